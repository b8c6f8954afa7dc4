"""Pieces of sequences: the same Σ α φ and feasible α, whatever the pieces."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from sklseq import HMSVMTagger, Sequences
from sklseq.data.constraints import Constraints
from sklseq.objectives.margin.hinge import Margin, PathLoss, StructuredHinge, linear_rows
from sklseq.objectives.margin.pieces import (
    Pieces,
    SupportPaths,
    WrongRows,
    cut,
    regroup,
    whole_sequences,
)


def problem(seed, n=4, longest=12, L=3, m=5, C=1.0, slack="l1"):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows, y = rng.normal(size=(offsets[-1], m)), rng.integers(L, size=offsets[-1])
    rows[np.arange(len(y)), y] += 1.5
    free = Constraints(np.ones((L, L), bool), np.ones(L, bool), np.ones(L, bool))
    loss = PathLoss(1.0 - np.eye(L), 0.0)
    rows = linear_rows(sparse.csr_matrix(rows))
    costs = np.full(n, C)
    return StructuredHinge(rows, offsets, y, costs, Margin(loss, slack, free), 0, 10**6)


def states(hinge):
    a = hinge.kernel.arrays
    return np.concatenate([a[k][np.isfinite(a[k])] for k in ("W", "score", "start", "end")])


def of_paths(hinge):
    """(Σ α φ, Σ α loss) of labelings of whole sequences, with α checked."""
    offsets, y, L = hinge.offsets, hinge.y, hinge.n_labels
    X = hinge.source.matrix().toarray()
    W, pairs, ends = np.zeros((X.shape[1], L)), np.zeros((L, L)), np.zeros((2, L))
    lost, mass, paths = 0.0, np.zeros(len(hinge.C)), hinge.support_paths()
    for s, path, alpha in paths.labelings(offsets, y):
        truth, x = y[offsets[s] : offsets[s + 1]], X[offsets[s] : offsets[s + 1]]
        lost += alpha * (path != truth).sum()
        mass[s] += alpha
        assert alpha > 0
        for labels, sign in ((truth, alpha), (path, -alpha)):
            np.add.at(W.T, labels, sign * x)
            np.add.at(pairs, (labels[:-1], labels[1:]), sign)
            ends[0, labels[0]] += sign
            ends[1, labels[-1]] += sign
    wrong = np.bincount(paths.wrong_rows(y).path, minlength=len(paths.loss))
    np.testing.assert_allclose(paths.loss, wrong, atol=1e-12)
    assert paths.alpha @ paths.loss == pytest.approx(lost, abs=1e-9)
    assert (mass <= hinge.C * (1 + 1e-9)).all()
    return W, pairs, ends, lost


def unite(hinge):
    hinge._regroup(hinge.support_paths().wrong_rows(hinge.y), hinge.whole)


def check(hinge):
    W, pairs, ends, lost = of_paths(hinge)
    weights = hinge.weights()
    np.testing.assert_allclose(weights.coef, W[np.argsort(hinge.source.order)], atol=1e-9)
    np.testing.assert_allclose(weights.transition, pairs, atol=1e-9)
    np.testing.assert_allclose([weights.start, weights.end], ends, atol=1e-9)
    dual = lost - 0.5 * hinge.squared_norm()
    assert hinge.last_certificate().dual == pytest.approx(dual, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_pieces_keep_weights_and_dual(seed):
    hinge = problem(seed, C=[0.05, 1.0, 20.0][seed % 3])
    rng = np.random.default_rng(seed)
    hinge.certificate()
    for k in range(6):
        before = states(hinge)
        if k % 3 == 2:
            unite(hinge)
        else:
            hinge.divide(int(rng.integers(1, 6)), int(rng.integers(10)))
        np.testing.assert_array_equal(states(hinge), before)
        check(hinge)
        for _ in range(2):
            gaps = np.zeros(len(hinge.pieces.first))
            hinge.optimize(rng.permutation(hinge.blocks), gaps, 3, 0.1, 2)
            with hinge.known_paths(rng.permutation(hinge.blocks)) as paths:
                paths.update(gaps, -np.inf, 3, 0.1)
        check(hinge)
        assert hinge.certificate().gap >= -1e-9


@pytest.mark.parametrize("ratio", [0.3, 3.0])
def test_rescaled_pieces_have_the_dual_of_whole_sequences(ratio):
    """α and C of pieces, as training leaves them: the dual of the united paths, at most C each."""
    hinge = problem(5, C=0.05)
    for k in range(3):
        hinge.divide(4, k)
        gaps = np.zeros(len(hinge.pieces.first))
        hinge.optimize(hinge.blocks, gaps, 3, 0.1, 2)
    hinge.rescale(ratio)
    np.testing.assert_allclose(hinge.C, ratio * 0.05)
    check(hinge)
    with hinge.known_paths(hinge.blocks) as paths:
        paths.update(gaps, -np.inf, 3, 0.1)
    check(hinge)
    hinge.optimize(hinge.blocks, gaps, 3, 0.1, 2)
    check(hinge)
    assert hinge.certificate().gap >= -1e-9
    hinge.rescale(ratio)
    unite(hinge)
    check(hinge)


def test_disputed_rows_are_those_last_measured_or_of_the_present_weights():
    hinge, measured = problem(3), problem(3)
    measured.certificate()
    for each in (hinge, measured):
        each.divide(3, 1)
        each.optimize(each.blocks, np.zeros(len(each.pieces.first)), 3, 0.1, 2)
    for of_one, of_other in zip(hinge.pieces, measured.pieces):
        np.testing.assert_array_equal(of_one, of_other)
    before = hinge.disputed
    hinge.divide(3, 2)
    assert hinge.disputed is before
    hinge.certificate()
    assert hinge.disputed is not before


def test_held_rows_keep_their_labels():
    hinge = problem(3, n=3, longest=9)
    hinge.certificate()
    hinge.divide(2, 1)
    pieces = hinge.pieces
    assert pieces.held.any()
    for piece in hinge.blocks.tolist():
        rows = np.arange(pieces.first[piece], pieces.stop[piece])
        labels, g = hinge.most_violated(piece)
        fixed = [rows[0]] * pieces.held[0, piece] + [rows[-1]] * pieces.held[1, piece]
        best = -np.inf  # no weights yet: the loss alone
        for path in itertools.product(range(3), repeat=len(rows)):
            path = np.array(path)
            wrong = path != hinge.y[rows]
            if wrong.any() and not wrong[np.isin(rows, fixed)].any():
                best = max(best, wrong.sum())
        assert g == best == (labels != hinge.y[rows]).sum()
        assert not (labels != hinge.y[rows])[np.isin(rows, fixed)].any()


@pytest.mark.parametrize("seed", range(5))
def test_regrouped_paths_have_the_same_sums(seed):
    """Between random pieces, by the α of each wrong label and the sums at each row."""
    rng = np.random.default_rng(seed)
    offsets = np.array([0, 30, 30, 50])
    before = cut(offsets, rng.random(50) < 0.6)
    path, row, label, piece = [], [], [], []
    for p in range(len(before.first)):
        free = np.arange(before.first[p] + before.held[0, p], before.stop[p] - before.held[1, p])
        for _ in range(4):
            wrong = free[rng.random(len(free)) < 0.5]
            if len(wrong):
                path += [len(piece)] * len(wrong)
                piece.append(p)
                row += wrong.tolist()
                label += rng.integers(1, 3, len(wrong)).tolist()
    alpha = rng.random(len(piece))
    paths = WrongRows(*map(np.array, (piece, alpha, path, row, label)))
    active = np.isin(np.arange(50), row)
    for after in (whole_sequences(offsets), cut(offsets, active | (rng.random(50) < 0.3))):
        found = regroup(paths, after)
        a, b = of_pairs(paths), of_pairs(found)
        assert a.keys() == b.keys()
        np.testing.assert_allclose([b[k] for k in a], [a[k] for k in a], rtol=1e-9)
        most = np.bincount(paths.piece, paths.alpha, len(before.first))
        for p, mass in enumerate(np.bincount(found.piece, found.alpha)):
            inside = before.owner == after.owner[p]
            assert mass <= most[np.flatnonzero(inside)].max(initial=0) * (1 + 1e-12)
        check_inside(found, after)


def test_pieces_of_one_origin_keep_their_paths():
    """Where other pieces join: the paths of each, in the order of pieces."""
    before = cut(np.array([0, 6, 12]), np.arange(12) % 6 < 5)  # the pieces of rows 0-4 and 6-10
    piece, path = np.array([0, 0, 1, 2]), np.array([0, 1, 2, 3, 3])
    alpha, row = np.array([0.3, 0.5, 0.25, 1.0]), np.array([0, 0, 2, 6, 7])
    paths = WrongRows(piece, alpha, path, row, np.array([1, 2, 1, 1, 2]))
    found = regroup(paths, before)
    assert found.piece.tolist() == [0, 0, 0, 1]
    assert found.alpha[:3].sum() == pytest.approx(0.8, rel=1e-12)  # of row 0, more than of row 2
    assert found.alpha[3] == 1.0
    assert found.row[found.path == 3].tolist() == [6, 7]
    assert found.label[found.path == 3].tolist() == [1, 2]
    assert of_pairs(found).keys() == of_pairs(paths).keys()


def of_pairs(paths):
    """{(row, label before, label): Σ α}, the true label being 0."""
    sums = {}
    for k, alpha in enumerate(paths.alpha):
        labels = dict(zip(paths.row[paths.path == k].tolist(), paths.label[paths.path == k]))
        for t in {*labels, *(u + 1 for u in labels)}:
            key = (t, int(labels.get(t - 1, 0)), int(labels.get(t, 0)))
            sums[key] = sums.get(key, 0) + alpha
    return sums


def check_inside(paths: WrongRows, pieces: Pieces):
    piece = paths.piece[paths.path]
    assert (paths.row >= pieces.first[piece] + pieces.held[0, piece]).all()
    assert (paths.row < pieces.stop[piece] - pieces.held[1, piece]).all()


def test_long_sequences_need_few_passes():
    """Two sequences of 1,500 rows: 25 passes where the blocks are whole sequences."""
    rng = np.random.default_rng(0)
    y = [np.cumsum(rng.random(1500) < 0.05) % 4 for _ in range(2)]
    rows = [np.eye(4)[labels] + 0.6 * rng.normal(size=(1500, 4)) for labels in y]
    X = Sequences.from_list([sparse.csr_matrix(x) for x in rows])
    tagger = HMSVMTagger(solver="bcfw", C=0.1, random_state=0, max_iter=15).fit(X, y)
    other = HMSVMTagger(solver="smoothing", C=0.1, tol=1e-3).fit(X, y)
    assert tagger.dual_gap_ <= 0.01 * tagger.objective_
    least = other.objective_ - other.dual_gap_
    assert least <= tagger.objective_ <= 1.01 * other.objective_
    assert tagger.objective_ - tagger.dual_gap_ <= other.objective_


@pytest.mark.parametrize(("n", "length"), [(4, 250), (1, 1000), (16, 250), (2, 2000)])
def test_dual_variables_take_memory_linear_in_the_rows(n, length):
    """Stored labels, which for whole sequences are about the sum of squared lengths."""
    rng = np.random.default_rng(n)
    y = [np.cumsum(rng.random(length) < 0.1) % 4 for _ in range(n)]
    X = [sparse.csr_matrix(np.eye(4)[z] + 0.4 * rng.normal(size=(length, 4))) for z in y]
    tagger = HMSVMTagger(solver="bcfw", C=0.1, random_state=0, tol=0.02).fit(X, y)
    assert len(tagger.support_labels_) <= 8 * n * length
    mass = np.zeros(n)
    for s, labels, alpha in tagger.support_sequences_:
        mass[s] += alpha
        assert len(labels) == length
    assert (mass <= 0.1 * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", range(8))
def test_starts_leave_out_forbidden_paths(seed):
    """Paths of parts of sequences, the rest of which has the true labels."""
    hinge, rng = problem(seed, n=6, longest=5), np.random.default_rng(seed)
    masks = rng.random((3, 3)) < 0.6, rng.random(3) < 0.6, rng.random(3) < 0.6
    sequence, first, parts, expected = [], [], [], []
    for k in range(200):
        s = int(rng.integers(6))
        truth = hinge.y[hinge.offsets[s] : hinge.offsets[s + 1]]
        a, b = np.sort(rng.choice(len(truth) + 1, 2, replace=False))
        labels = truth.copy()
        labels[a:b] = rng.integers(3, size=b - a)
        around = labels[max(a - 1, 0) : b + 1]  # true labels elsewhere are taken to be allowed
        free = masks[0][around[:-1], around[1:]].all() and (labels != truth).any()
        if free and (a > 0 or masks[1][labels[0]]) and (b < len(labels) or masks[2][labels[-1]]):
            expected.append(k)
        sequence.append(s)
        first.append(hinge.offsets[s] + a)
        parts.append(labels[a:b])
    bounds = np.concatenate([[0], np.cumsum([len(p) for p in parts])])
    arrays = np.array(sequence), np.array(first), np.ones(200), np.ones(200), bounds
    found = hinge._usable(SupportPaths(*arrays, np.concatenate(parts)), Constraints(*masks))
    assert found.tolist() == expected
