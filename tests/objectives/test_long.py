"""Sequences of any length: three gradients, rows in blocks, decoding in blocks, errors."""

import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse

from sklseq import CRFTagger, RowBlocks, Sequences
from sklseq._lib.threads import Threads
from sklseq.data.constraints import resolve_constraints
from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import CodedLabels, label_blocks
from sklseq.inference import forward_backward
from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.objectives.likelihood.block_sequence import BlockSequence, as_block
from sklseq.objectives.likelihood.gradient_plan import Plan, plan_gradient
from sklseq.objectives.likelihood.label_curvature import diagonal_curvature
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.long import LongLogLikelihood
from sklseq.objectives.likelihood.long_data import LongData
from sklseq.objectives.likelihood.passes import (
    WHOLE,
    Checkpoints,
    Counts,
    OnePass,
    Pending,
    Stored,
    StoredOnce,
)
from sklseq.objectives.scores.score_map import ScoreMap, Weights, full_support
from tests.oracles import enumerate_chain, precise_numerical_gradient

PASSES = [OnePass, Checkpoints, Stored, StoredOnce]
# Different orders of some 1e5 additions.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def labelled(T, L=3, M=5, seed=0, form=np.asarray):
    rng = np.random.default_rng(seed)
    y = np.repeat(rng.integers(0, L, T // 5 + 1), 5)[:T]
    y[: min(L, T)] = np.arange(min(L, T))
    X = rng.normal(size=(T, M)) * (rng.random((T, M)) < 0.6)
    if T:
        X[:, 0] += y
    return form(X), y


def long_likelihood(X, y, passes, *, block_rows=16, allowed=None, l2=0.5, weights=None):
    X, L = Sequences.from_list(X), len(np.unique(np.concatenate(y)))
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    plan = Plan("", passes, block_rows, "", 1e9)
    labels = CodedLabels(list(y), np.arange(L), np.eye(L, dtype=bool))
    data = LongData.of_codes(blocks_of(X), labels, weights, plan)
    allowed = resolve_constraints(allowed, np.arange(L))
    scores = ScoreMap(data.summary.layout(), L, full_support(L), allowed, np.float64)
    return LongLogLikelihood(scores, data, l2)


def reference_likelihood(X, y, *, allowed=None, l2=0.5, weights=None):
    X, L = Sequences.from_list(X), len(np.unique(np.concatenate(y)))
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    allowed = resolve_constraints(allowed, np.arange(L))
    dense = X.rows.toarray() if X.is_sparse else X.rows
    scores = ScoreMap(X.with_rows(dense), L, full_support(L), allowed, np.float64)
    codes = np.concatenate(y).astype(np.int32)
    return LogLikelihood(scores, codes, X.offsets, weights, l2, Threads(1))


def evaluate(likelihood, w):
    gradient = np.empty_like(w)
    return likelihood.value_and_gradient(w, gradient), gradient


# ---------------------------------------------------------------------- one chain, all passes


class Blocks:
    """A sequence whose features are the labels themselves, so that counts are marginals."""

    def __init__(self, emission, width, block_rows):
        n = len(emission)
        self.rows, self.block_rows = sparse.eye(n, format="csr"), block_rows
        self.hold, self.keep = 1, 1e9
        self.W = np.zeros((n, width))
        self.W[:, : emission.shape[1]] = emission

    def blocks(self):
        return (self.block(a, b) for a, b in self.spans())

    def spans(self):
        cuts = [*range(0, self.rows.shape[0], self.block_rows), self.rows.shape[0]]
        return list(zip(cuts[:-1], cuts[1:]))

    def bytes_kept(self, rows):
        return rows.nbytes

    n_rows = keep = 0

    def first_whole(self, spans, n):
        return len(spans) * 2 // 3

    def block(self, a, b):
        return as_block(self.rows[a:b])


def run(passes, emission, transition, start, end, block_rows=3, weight=1.0):
    chain = BlockChain(Transitions(transition, start, end))
    sequence = Blocks(emission, chain.width, block_rows)
    counts = Counts(len(emission), chain.width)
    log_z = passes(chain, sequence.W, counts, weight).run(sequence)
    L = emission.shape[1]
    return log_z, counts.state[:, :L], counts.pairs[:L, :L], counts


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3])
@pytest.mark.parametrize("passes", PASSES)
def test_passes_against_enumeration(passes, scale):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        T, L = int(rng.integers(1, 8)), int(rng.integers(1, 4))
        emission, transition = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(L, L))
        if L > 1 and seed % 2:
            transition[1, 0] = -np.inf
        start, end = rng.normal(size=(2, L)) * scale
        _, _, log_z, marginals, pairwise = enumerate_chain(emission, transition, start, end)
        answer = run(passes, emission, transition, start, end, int(rng.integers(1, 5)), 2.0)
        np.testing.assert_allclose(answer[0], log_z, rtol=1e-12)
        np.testing.assert_allclose(answer[1], 2 * marginals, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(answer[2], 2 * pairwise, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(answer[3].start[:L], 2 * marginals[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(answer[3].end[:L], 2 * marginals[-1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("scale", "stick", "forbid"),
    [(1.0, 0.0, False), (0.0, 25.0, False), (1e3, 0.0, True), (0.5, -np.inf, True), (1e3, 9.0, 0)],
    ids=["mixing", "sticky", "large", "never twice", "large and sticky"],
)
@pytest.mark.parametrize(("L", "T"), [(2, 300), (3, 300), (5, 300), (9, 300), (3, 2000)])
@pytest.mark.parametrize("passes", PASSES)
def test_passes_against_forward_backward(passes, L, T, scale, stick, forbid):
    rng = np.random.default_rng(L)
    emission = scale * rng.normal(size=(T, L))
    transition = np.where(np.eye(L, dtype=bool), stick, rng.normal(size=(L, L)))
    if forbid and L > 2:
        transition[0, 2] = -np.inf
    start, end = rng.normal(size=(2, L))
    # The reference's log alpha grows with T and the scores, and its rounding with it.
    atol = 1e-12 if T < 1000 or scale < 100 else 1e-9
    log_z, marginals, pairwise = forward_backward(emission, transition, start=start, end=end)
    answer = run(passes, emission, transition, start, end, block_rows=37 if T < 1000 else 512)
    np.testing.assert_allclose(answer[0], log_z[0], rtol=1e-12)
    np.testing.assert_allclose(answer[1], marginals, rtol=1e-9, atol=atol)
    np.testing.assert_allclose(answer[2], pairwise, rtol=1e-9, atol=atol)


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("passes", PASSES)
def test_passes_against_forward_backward_on_a_hundred_thousand_rows(passes, scale):
    rng = np.random.default_rng(3)
    T, M = 100_000, 4
    X, W = rng.normal(size=(T, M)), scale * rng.normal(size=(M, 3))
    transition, (start, end) = rng.normal(size=(3, 3)), rng.normal(size=(2, 3))
    transition[0, 2] = -np.inf
    log_z, marginals, pairwise = forward_backward(X @ W, transition, start=start, end=end)
    chain = BlockChain(Transitions(transition, start, end))
    sequence, counts = Blocks(X @ W, chain.width, 4096), Counts(M, chain.width)
    sequence.rows, sequence.W = sparse.csr_matrix(X), np.pad(W, ((0, 0), (0, chain.width - 3)))
    np.testing.assert_allclose(
        passes(chain, sequence.W, counts, 1.0).run(sequence), log_z[0], rtol=1e-9
    )
    # Relative to the largest: entries are sums of numbers of both signs.
    size = np.abs(X.T @ marginals).max()
    np.testing.assert_allclose(counts.state[:, :3], X.T @ marginals, rtol=0, atol=1e-9 * size)
    np.testing.assert_allclose(counts.pairs[:3, :3], pairwise, rtol=0, atol=1e-9 * T)


def test_underflow_between_blocks_is_carried():
    # Label 1 loses a factor e^-900 in the first block and wins by the last row of the third.
    emission = np.zeros((9, 2))
    emission[1, 1], emission[8, 1] = -900.0, 950.0
    transition = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    for passes in PASSES:
        _, marginals, _, _ = run(passes, emission, transition, None, None)
        np.testing.assert_allclose(marginals[:, 1], 1 / (1 + np.exp(-50.0)), rtol=1e-12)


def test_no_path_is_told():
    transition = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])
    for passes in PASSES:
        assert run(passes, np.zeros((9, 2)), transition, None, None)[0] == -np.inf


# ---------------------------------------------------------------------- objective


@pytest.mark.parametrize("block_rows", [16, 64, 1000])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("passes", PASSES)
def test_gradients_agree(passes, form, block_rows):
    parts = [labelled(T, seed=T, form=form) for T in (1, 700, 0, 33)]
    X, y = zip(*parts)
    options = {"weights": [1, 0.5, 1, 2], "allowed": ~np.eye(3, k=2, dtype=bool)}
    y = [np.where(labels == 2, 1, labels) if len(labels) == 1 else labels for labels in y]
    options = {**options, "allowed": None}
    long = long_likelihood(X, y, passes, block_rows=block_rows, **options)
    reference = reference_likelihood(X, y, **options)
    w = reference.scores.new_vector()
    rng = np.random.default_rng(1)
    weights = Weights(rng.normal(size=(5, 3)), *(rng.normal(size=s) for s in ((3, 3), 3, 3)))
    w_long, w = long.scores.pack(weights), reference.scores.pack(weights)
    value, gradient = evaluate(long, w_long)
    expected, expected_gradient = evaluate(reference, w)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    ours, theirs = long.scores.unpack(gradient), reference.scores.unpack(expected_gradient)
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, **CLOSE)


@pytest.mark.parametrize("block_rows", [16, 1000])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_second_derivatives_in_each_weight(form, block_rows):
    # Of sequences longer than a block, those with the filter, which has all of p_t without
    # transitions; in logarithms where scores are large.
    parts = [labelled(T, seed=T, form=form) for T in (3, 700, 0, 33)]
    X, y = zip(*parts)
    options = {"weights": [1, 0.5, 1, 2]}
    long = long_likelihood(X, y, OnePass, block_rows=block_rows, **options)
    reference = reference_likelihood(X, y, **options)
    rng = np.random.default_rng(1)
    coef, (start, end) = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    for coef[0, 0] in (0.5, 800):
        A = rng.normal(size=(3, 3)) * (block_rows == 1000)
        weights = Weights(coef, A, start, end)
        found = long.scores.unpack(long.diagonal(long.scores.pack(weights)))
        exact = diagonal_curvature(reference, reference.scores.pack(weights))
        for a, b in zip(found, reference.scores.unpack(exact)):
            np.testing.assert_allclose(a, b, **CLOSE)


@pytest.mark.parametrize("passes", PASSES)
def test_finite_differences(passes):
    X, y = labelled(60)
    likelihood = long_likelihood([X], [y], passes)
    w = np.random.default_rng(0).normal(size=likelihood.scores.n_weights)
    used = likelihood.scores.pack(likelihood.scores.unpack(w))  # 0 in the padding
    _, gradient = evaluate(likelihood, used)
    numerical = precise_numerical_gradient(lambda v: evaluate(likelihood, v)[0], used)
    real = likelihood.scores.pack(likelihood.scores.unpack(np.ones_like(w))) != 0
    np.testing.assert_allclose(gradient[real], numerical[real], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("T", [4095, 4096, 4097, 100_000])
def test_gradients_agree_on_long_sequences(T):
    X, y = labelled(T, L=4, form=sparse.csr_matrix)
    answers = []
    for passes in PASSES:
        likelihood = long_likelihood([X], [y], passes, block_rows=4096)
        answers.append(evaluate(likelihood, 0.3 * np.ones(likelihood.scores.n_weights)))
    for value, gradient in answers[1:]:
        np.testing.assert_allclose(value, answers[0][0], rtol=1e-11)
        np.testing.assert_allclose(gradient, answers[0][1], rtol=1e-9, atol=1e-9 * T)


def test_one_pass_reads_once_and_holds_more_where_labels_stick():
    X, y = labelled(5000)
    source = RowBlocks(lambda: iter([X]))
    plan = Plan("emp", OnePass, 64, "", 1e9)
    data = LongData.read([source], label_blocks([y], 1), np.ones(1), lambda *_, **__: plan)
    allowed = resolve_constraints(None, [0, 1, 2])
    scores = ScoreMap(data.summary.layout(), 3, full_support(3), allowed, np.float64)
    likelihood = LongLogLikelihood(scores, data, 1.0)
    before = source.n_reads
    weights = Weights(np.zeros((5, 3)), 12 * np.eye(3), np.zeros(3), np.zeros(3))
    evaluate(likelihood, scores.pack(weights))
    assert source.n_reads == before + 1
    assert likelihood.sequences[0].hold > 1


def sticky(T=5000, stick=12.0, keep=1e9):
    """(likelihood under "auto", weights under which labels change once in e^stick rows)."""
    X, y = labelled(T)
    plan = Plan("emp", OnePass, 64, "", keep, or_checkpoint=True)
    data = LongData.read([RowBlocks(X)], label_blocks([y], 1), np.ones(1), lambda *_, **__: plan)
    allowed = resolve_constraints(None, [0, 1, 2])
    scores = ScoreMap(data.summary.layout(), 3, full_support(3), allowed, np.float64)
    weights = Weights(np.zeros((5, 3)), stick * np.eye(3), np.zeros(3), np.zeros(3))
    return LongLogLikelihood(scores, data, 1.0), scores.pack(weights)


def test_more_blocks_wait_until_little_is_gone_through_more_than_once():
    likelihood, w = sticky(T=40_000, stick=3.0)
    evaluate(likelihood, w)
    [sequence] = likelihood.sequences
    evaluate(likelihood, w)
    assert 1 < sequence.hold < 40_000 / 64
    assert sequence.n_repeated < sequence.n_rows / 4
    assert likelihood.passes is OnePass


def test_checkpoints_take_over_where_labels_stick():
    # With room for no block but one, each row would be gone through once for each label.
    likelihood, w = sticky(stick=60.0, keep=1e5)
    _, gradient = evaluate(likelihood, w)
    assert likelihood.sequences[0].n_repeated > 5000
    assert likelihood.passes is Checkpoints
    np.testing.assert_allclose(evaluate(likelihood, w)[1], gradient, **CLOSE)


def test_checkpoints_take_over_where_there_is_too_little_room():
    likelihood, w = sticky(keep=100.0)
    value, gradient = evaluate(likelihood, w)
    assert likelihood.passes is Checkpoints
    expected, expected_gradient = evaluate(sticky()[0], w)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    np.testing.assert_allclose(gradient, expected_gradient, **CLOSE)


def test_what_waits_for_the_last_label_is_copied_seldom(monkeypatch):
    sizes, grow = [], Pending._grow

    def counted(self, *arguments):
        before = len(self.state)
        grow(self, *arguments)
        sizes.extend([len(self.state)] * (len(self.state) > before))

    monkeypatch.setattr(Pending, "_grow", counted)
    rng = np.random.default_rng(0)
    n = 3000
    answer = run(OnePass, rng.normal(size=(n, 2)), np.log(np.eye(2) + 1e-300), None, None, 32)
    assert max(sizes) >= 2000
    assert len(sizes) < 20  # not one for each 32 rows
    assert answer[1].sum() == pytest.approx(n)


def test_short_sequences_share_a_block(monkeypatch):
    parts = [
        labelled(T, seed=T, form=form)
        for T in range(3, 40)
        for form in (np.asarray, sparse.csr_matrix)
    ]
    X, y = zip(*parts)
    plan = Plan("emp", OnePass, 256, "", 1e9)
    sources = [RowBlocks(x if k % 3 else lambda x=x: iter([x[:2], x[2:]])) for k, x in enumerate(X)]
    data = LongData.read(sources, label_blocks(y, len(y)), np.ones(len(y)), lambda *_, **__: plan)
    allowed = resolve_constraints(None, [0, 1, 2])
    scores = ScoreMap(data.summary.layout(), 3, full_support(3), allowed, np.float64)
    likelihood = LongLogLikelihood(scores, data, 0.5)
    monkeypatch.setattr(OnePass, "run", None)
    n_rows = sum(map(len, y))
    assert any(batch.rows is None for batch in likelihood.batches)  # with a function among them
    assert n_rows / 256 <= len(likelihood.batches) <= n_rows / (256 - 40) + 1
    reference = reference_likelihood([sparse.csr_matrix(x) for x in X], y)
    rng = np.random.default_rng(1)
    weights = Weights(rng.normal(size=(5, 3)), *(rng.normal(size=s) for s in ((3, 3), 3, 3)))
    value, gradient = evaluate(likelihood, scores.pack(weights))
    expected, expected_gradient = evaluate(reference, reference.scores.pack(weights))
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    for ours, theirs in zip(scores.unpack(gradient), reference.scores.unpack(expected_gradient)):
        np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize(("T", "keep"), [(5000, 0.0), (5000, 3e4), (5000, 1e9), (60_000, 1e9)])
def test_checkpoints_compute_again_what_they_may_not_keep(monkeypatch, T, keep):
    X, y = labelled(T, L=4)
    expected = evaluate(long_likelihood([X], [y], OnePass), 0.1 * np.ones(4 * 5 + 16 + 8))
    likelihood = long_likelihood([X], [y], Checkpoints, block_rows=64)
    [sequence], done = likelihood.sequences, []
    sequence.keep = keep
    original = BlockChain.filter

    def counted(self, psi, *arguments, **options):
        done.append(len(psi))
        return original(self, psi, *arguments, **options)

    monkeypatch.setattr(BlockChain, "filter", counted)
    value, gradient = evaluate(likelihood, 0.1 * np.ones(4 * 5 + 16 + 8))
    np.testing.assert_allclose(value, expected[0], rtol=1e-11)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-9)
    kept, most = 2 * T - sum(done), min(T, WHOLE * np.sqrt(T), keep / (16 * 4))
    assert kept == T if most == T else most - 64 < kept <= max(most, 64)


def test_checkpoints_stand_apart_by_a_cache_or_more():
    narrow, wide = (RowBlocks(np.zeros((0, m))) for m in (2, 2048))
    for rows, n_rows, step in (
        (narrow, 10**4, 4096),
        (wide, 10**4, 128),
        (wide, 10**7, 2496),
        (narrow, 10**9, 32768),
    ):
        spans = BlockSequence(rows, 0, 4096, n_rows).spans()
        assert spans[0] == (0, step)
        assert spans[-1][1] == n_rows
        assert len(spans) <= max(4096, np.ceil(np.sqrt(n_rows)))


# ---------------------------------------------------------------------- the tagger


def weights_of(tagger):
    parts = tagger.coef_, tagger.transition_, tagger.start_, tagger.end_
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.parametrize("gradient", ["checkpoint", "emp"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_fits_agree(gradient, form):
    X, y = zip(*(labelled(T, seed=T, form=form) for T in (400, 30)))
    y = [np.array(["a", "b", "c"])[labels] for labels in y]
    fit = {"l2": 1.0, "tol": 1e-9}
    expected = CRFTagger(**fit).fit(X, y, sample_weight=[1, 2])
    tagger = CRFTagger(gradient=gradient, **fit).fit(X, y, sample_weight=[1, 2])
    np.testing.assert_allclose(weights_of(tagger), weights_of(expected), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tagger.objective_, expected.objective_, rtol=1e-9)
    assert tagger.classes_.tolist() == ["a", "b", "c"]
    again = CRFTagger(gradient=gradient, warm_start=True, **fit).fit(X, y, sample_weight=[1, 2])
    again.fit(X, y, sample_weight=[1, 2])
    np.testing.assert_allclose(again.loss_curve_[0], tagger.objective_, rtol=1e-12)


def test_dicts_and_float32_and_l1():
    X = [[{"w": str(k % 3)} for k in range(50)]]
    y = [[str(k % 2) for k in range(50)]]
    for parameters in ({}, {"l1": 0.1}, {"constraints": ~np.eye(2, dtype=bool)}):
        expected = CRFTagger(**parameters).fit(X, y)
        tagger = CRFTagger(gradient="emp", **parameters).fit(X, y)
        np.testing.assert_allclose(tagger.objective_, expected.objective_, rtol=1e-5)
        np.testing.assert_array_equal(
            tagger.transition_ == -np.inf, expected.transition_ == -np.inf
        )
        assert tagger.predict(X)[0] == expected.predict(X)[0]
    x, labels = labelled(100)
    assert CRFTagger(gradient="emp").fit([x.astype(np.float32)], [labels]).coef_.dtype == np.float32


@pytest.fixture(scope="module")
def model():
    X, y = labelled(3000)
    return CRFTagger(tol=1e-9).fit([X], [y]), X, y


def in_pieces(X, *cuts):
    return lambda: iter([X[a:b] for a, b in zip([0, *cuts], [*cuts, X.shape[0]])])


def save_and_open(X, kind, folder):
    if kind == "npy":
        np.save(folder / "x.npy", X)
        return RowBlocks(folder / "x.npy")
    sparse.save_npz(folder / "x.npz", sparse.csr_matrix(X), compressed=kind == "zip")
    return RowBlocks(str(folder / "x.npz"))


@pytest.mark.parametrize("kind", ["npy", "npz", "zip"])
def test_files_give_the_same_rows(kind, tmp_path, model):
    tagger, X, y = model
    source = save_and_open(X, kind, tmp_path)
    rows = [b.toarray() if sparse.issparse(b) else b for b in source.read(700)]
    np.testing.assert_array_equal(np.concatenate(rows), X)
    assert [len(r) for r in rows] == [700] * 4 + [200]
    assert source.random_access == (kind == "npy")
    fitted = CRFTagger(gradient="emp", tol=1e-9).fit([source], [y])
    np.testing.assert_allclose(fitted.objective_, tagger.objective_, rtol=1e-6)


def test_blocks_of_any_size_give_the_same_fit(model):
    _, X, y = model
    pieces = [in_pieces(X), in_pieces(X, 1, 1, 2, 500), in_pieces(X, 2999)]
    labels = [y, lambda: iter([y[:7], y[7:]]), list(y)]
    fits = [CRFTagger(gradient="emp").fit([a], [b]) for a, b in zip(pieces, labels)]
    for tagger in fits[1:]:
        np.testing.assert_array_equal(weights_of(tagger), weights_of(fits[0]))


@pytest.mark.parametrize("gradient", ["forward-backward", "emp", "auto"])
def test_sources_read_from_the_beginning_only(gradient, model):
    expected, X, y = model
    tagger = CRFTagger(gradient=gradient, tol=1e-9).fit([in_pieces(X, 100)], [y])
    np.testing.assert_allclose(tagger.objective_, expected.objective_, rtol=1e-5)


def test_decoding_in_blocks_is_viterbi(model):
    tagger, X, y = model
    expected = tagger.predict([X])[0]
    for labels in tagger.predict([in_pieces(X, 5, 900), sparse.csr_matrix(X)]):
        np.testing.assert_array_equal(labels, expected)
    blocks = list(tagger.predict_blocks(X[a : a + 500] for a in range(0, 3000, 500)))
    np.testing.assert_array_equal(np.concatenate(blocks), expected)
    one_shot = [iter([X]), iter([X[:10]])]
    truth = [lambda: iter([y[:99], y[99:]]), y[:10]]
    score = tagger.score([X, X[:10]], [y, y[:10]], sample_weight=[1, 3])
    assert tagger.score(one_shot, truth, sample_weight=[1, 3]) == pytest.approx(score, rel=1e-12)


def test_auto_goes_by_working_memory_and_says_so(model, capsys):
    X, y = np.tile(model[1], (4, 1)), np.tile(model[2], 4)
    chosen = []
    for megabytes in (1024, 1):
        with sklearn.config_context(working_memory=megabytes), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CRFTagger(verbose=1, max_iter=1).fit([X], [y])
        chosen.append(capsys.readouterr().out.splitlines()[0])
    assert chosen[0].startswith("[CRFTagger] gradient 'forward-backward': forward-backward keeps")
    assert chosen[1] == (
        "[CRFTagger] gradient 'streaming': forward-backward keeps 1.54 MB, of 1.05 MB allowed; "
        "checkpointing where labels rarely change"
    )


def test_plans():
    ask = {"packed": False, "random_access": True}
    assert plan_gradient("forward-backward", 1000, 5, budget=1e9, **ask).passes is Stored
    assert plan_gradient("forward-backward", 10**6, 5, budget=1e8, **ask).passes is StoredOnce
    assert plan_gradient("auto", 10**6, 5, budget=1e8, **ask).passes is OnePass
    assert plan_gradient("checkpoint", 10**6, 5, budget=1e6, **ask).block_rows < 4096
    assert plan_gradient("auto", 10**6, 5, budget=1e8, **ask).or_checkpoint
    # Beside rows in blocks, forward-backward keeps 128 MiB at most.
    assert plan_gradient("auto", 4 * 10**6, 2, budget=2**30, **ask).passes is Stored
    assert plan_gradient("auto", 5 * 10**6, 2, budget=2**30, **ask).passes is OnePass
    ask["packed"] = True
    assert plan_gradient("auto", 5 * 10**6, 2, budget=2**30, **ask).passes is None
    ask["packed"] = False
    # Pair marginals given each of 200 last labels alone take more than there is.
    assert plan_gradient("auto", 10**6, 200, budget=1e8, **ask).passes is Checkpoints
    with pytest.raises(
        ValueError, match=r"allows 100 MB, but .* needs 275 MB with gradient='streaming'"
    ):
        plan_gradient("auto", 10**6, 200, packed=False, random_access=False, budget=1e8)


# ---------------------------------------------------------------------- errors


def broken(X):
    yield X[:10]
    raise OSError("disk gone")


class Changing:
    """Fewer rows at the second reading."""

    def __init__(self, X):
        self.X, self.reads = X, 0

    def __iter__(self):
        self.reads += 1
        return iter([self.X[: len(self.X) // self.reads]])


X20, Y20 = labelled(20)
NAN = np.where(np.arange(5) == 2, np.nan, X20)


@pytest.mark.thread_unsafe(reason="one of the sources changes when it is read")
@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([iter([X20])], [Y20], r"X\[0\] is an iterator.*'lbfgs' reads X.*a function"),
        ([lambda: iter([X20])], [iter([Y20])], r"y\[0\] is an iterator"),
        ([lambda: iter([X20, X20[:, 1:]])], [Y20], "Block 1 of sequence 0 has 4 features, the"),
        ([lambda: broken(X20)], [Y20], "Block 1 of sequence 0 cannot be read: OSError: disk gone"),
        ([lambda: iter([X20[0]])], [Y20], "Block 0 of sequence 0 must be 2-D"),
        (
            [lambda: iter([NAN])],
            [Y20],
            r"X must be finite; row 0 of sequence 0 \(row 0 of block 0\) holds nan in column 2",
        ),
        ([lambda: iter([X20.astype(str)])], [Y20], "Block 0 of sequence 0 must hold numbers"),
        ([lambda: iter([X20])], [Y20[:9]], "Sequence 0 has at least 20 rows in X but 9 labels"),
        ([lambda: iter([X20[:9]])], [Y20], "Sequence 0 has 9 rows in X but at least 20 labels"),
        (
            [lambda: iter([])],
            [[]],
            "X must hold at least one row; got 1 sequence with 0 rows in all",
        ),
        ([lambda: iter([])], [["a"]], "Sequence 0 has 0 rows in X but at least 1"),
        ([lambda: iter([X20])], [Y20, Y20], "got 1 in X and 2 in y"),
        ([lambda: iter([X20]), X20[:, 1:]], [Y20, Y20], "sequence 1 has 4, those before have 5"),
        (
            [lambda: iter([X20]), [{"a": 1}]],
            [Y20, ["a"]],
            "Sequence 1 of X must be rows of numbers",
        ),
        ([Changing(X20)], [Y20], "Sequence 0 had 20 rows when it was first read, and 10 now"),
        ([lambda: iter([X20])] * 2, [Y20, list("ab" * 10)], "all strings or all integers"),
    ],
)
def test_bad_input(X, y, message):
    tagger = CRFTagger(gradient="emp")
    with pytest.raises(ValueError, match=message):
        tagger.fit(X, y)
    assert not hasattr(tagger, "classes_")


def test_bad_budget_and_gradient():
    with (
        sklearn.config_context(working_memory=0),
        pytest.raises(ValueError, match=r"working_memory allows 0 B, but a block of 64 rows"),
    ):
        CRFTagger(gradient="emp").fit([X20], [Y20])
    with pytest.raises(ValueError, match="gradient='checkpoint' reads blocks from the last"):
        CRFTagger(gradient="checkpoint").fit([lambda: iter([X20])], [Y20])
    with pytest.raises(ValueError, match=r"gradient must be one of \('auto', 'forward-backward'"):
        CRFTagger(gradient="backward").fit([X20], [Y20])
    mask = np.ones((3, 3), dtype=bool)
    mask[Y20[4], Y20[5]] = False
    with pytest.raises(ValueError, match=f"{Y20[5]} may not follow {Y20[4]}"):
        CRFTagger(constraints=mask).fit([lambda: iter([X20])], [Y20])


@pytest.mark.parametrize("gradient", ["streaming", "checkpoint", "forward-backward"])
@pytest.mark.parametrize("seed", range(10))
def test_errors_of_constraints_name_the_row_as_in_memory(seed, gradient):
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=n) for n in rng.choice([1, 2, 7, 5000], size=4)]
    X = [rng.normal(size=(len(labels), 2)) for labels in y]
    y.append(np.repeat(range(3), 2))  # has all labels
    X.append(rng.normal(size=(6, 2)))
    forbidden = [(1, 2), (None, y[2][0].item()), (y[3][-1].item(), None)][seed % 3]
    messages = []
    for rows, labels in [(X, y), (X, y), (map(RowBlocks, X), y), (map(RowBlocks, X), cut(y, rng))]:
        chosen = gradient if messages else "auto"
        with pytest.raises(ValueError, match="violate `constraints`") as caught:
            CRFTagger(gradient=chosen, constraints=[forbidden]).fit([*rows], labels)
        messages.append(str(caught.value))
    assert "of sequence" in messages[0]
    assert len(set(messages)) == 1


def cut(y, rng):
    pieces = [np.split(labels, np.sort(rng.integers(len(labels), size=3))) for labels in y]
    return [lambda blocks=blocks: iter(blocks) for blocks in pieces]


def test_what_the_last_label_decides_is_charged_to_working_memory():
    import tracemalloc

    rng = np.random.default_rng(0)
    L, M, T = 30, 400, 6000
    y = np.repeat(rng.permutation(np.resize(np.arange(L), T // 10)), 10)
    X = rng.normal(size=(T, M))

    def fit(gradient, megabytes):
        tagger = CRFTagger(gradient=gradient, max_iter=1)
        with sklearn.config_context(working_memory=megabytes), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tagger.fit([X], [y])

    with pytest.raises(
        MemoryError,
        match=r"With gradient='streaming' the expected counts of 400 features, given each of the "
        r"last labels, take 3\.07 MB, of .* MB left of working_memory; raise it: .*'checkpoint' on",
    ):
        fit("emp", 5)
    tracemalloc.start()
    fit("emp", 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20


def test_bad_input_of_a_fitted_tagger(model):
    tagger, X, y = model
    with pytest.raises(ValueError, match="Sequence 0 has 4 features, but CRFTagger was fitted wi"):
        tagger.predict([lambda: iter([X[:, 1:]])])
    with pytest.raises(ValueError, match="Block 1 of sequence 0 cannot be read"):
        tagger.predict([broken(X)])
    with pytest.raises(ValueError, match="X holds sequences in blocks, which this method does not"):
        tagger.predict_nbest([lambda: iter([X])])
    with pytest.raises(ValueError, match="Sequence 0 has more rows in X but 9 labels in y"):
        tagger.score([iter([X])], [y[:9]])
    with pytest.raises(ValueError, match="Sequence 0 has 9 rows in X but more labels in y"):
        tagger.score([iter([X[:9]])], [y])
    assert len(tagger.predict([iter([])])[0]) == 0


def test_bad_files(tmp_path):
    X = sparse.random(9000, 50, density=0.3, format="csr", random_state=0)
    sparse.save_npz(tmp_path / "x.npz", X, compressed=False)
    data = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"is not a complete \.npz file; write it again"):
        RowBlocks(tmp_path / "cut.npz")
    at = data.find(b"data.npy") + 4000
    (tmp_path / "bad.npz").write_bytes(data[:at] + b"\0" * 100 + data[at + 100 :])
    with pytest.raises(ValueError, match=r"Block \d of the sequence cannot be read: BadZipFile"):
        list(RowBlocks(tmp_path / "bad.npz").read())
    sparse.save_npz(tmp_path / "csc.npz", X.tocsc())
    with pytest.raises(ValueError, match="holds a csc matrix; save it as CSR"):
        RowBlocks(tmp_path / "csc.npz")
    with pytest.raises(
        ValueError, match=r"Rows are read from files \.npy, \.npz, .*; got '.*x.txt'"
    ):
        RowBlocks("x.txt")
    with pytest.raises(ValueError, match=r"Rows must be 2-D \(n_steps, n_features\); got shape"):
        RowBlocks(np.zeros(3))
    with pytest.raises(TypeError, match="RowBlocks needs a function"):
        RowBlocks({1: X})


def test_too_little_memory_is_told(monkeypatch):
    def full(*_):
        raise MemoryError("no")

    monkeypatch.setattr(LogLikelihood, "value_and_gradient", full)
    with pytest.raises(
        MemoryError,
        match=r"gradient='forward-backward' ran out of memory .* gradient='streaming'",
    ):
        CRFTagger(gradient="forward-backward").fit([X20], [Y20])


def test_labels_and_rows_are_not_held():
    # 2 million rows of 4 numbers are 64 MB; blocks and what is made of them take a few.
    import tracemalloc

    rng = np.random.default_rng(0)
    X = rng.normal(size=(4096, 4))
    y = (X[:, 0] > 0).astype(int)
    n = 60
    tagger = CRFTagger(gradient="emp", max_iter=1)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger.fit([lambda: (X for _ in range(n))], [lambda: (y for _ in range(n))])
    score = tagger.score([X for _ in range(1)], [y])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.8 * n * X.nbytes
    assert score > 0.9
