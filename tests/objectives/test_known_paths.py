"""Steps among known paths: the same as those of a plain implementation with all features."""

from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import HMSVMTagger, Sequences
from sklseq.data.constraints import resolve_constraints
from sklseq.objectives.margin.hinge import Margin, PathLoss, StructuredHinge, linear_rows
from sklseq.objectives.scores.transition_features import TransitionFeatures
from sklseq.solvers import bcfw
from tests.estimators.test_hmsvm import path_features

L, SCALE, BOUNDARY = 3, 0.7, 1.3
COST = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]])
FORMS = {
    "dense": lambda x: x,
    "sparse": sparse.csr_matrix,
    "ones": lambda x: sparse.csr_matrix((x > 0).astype(float)),
    "no columns": lambda x: sparse.csr_matrix(x.shape),
}


class Problem:
    """Sequences, a hinge, and φ(x, y) - φ(x, p) of the paths of its working sets."""

    def __init__(
        self, seed, slack="l1", form="sparse", linked=False, averaging=0, n_own=10**6,
        lengths=(4, 1, 3, 6, 2, 5),
    ):  # fmt: skip
        rng = np.random.default_rng(seed)
        self.offsets, n = np.concatenate([[0], np.cumsum(lengths)]), sum(lengths)
        rows = FORMS[form](rng.normal(size=(n, 5)) * (rng.random((n, 5)) < 0.8))
        self.rows = rows.toarray() if sparse.issparse(rows) else rows
        self.y = rng.integers(L, size=n)
        self.triples = [(f, i, j) for f in (0, 2) for i in range(L) for j in range(i, L)]
        self.triples = self.triples if linked else []
        features = None
        if linked:
            codes = np.array([f * L**2 + i * L + j for f, i, j in self.triples])
            features = TransitionFeatures(Sequences(rows, self.offsets), codes, L, np.float64)
        free = resolve_constraints(None, np.arange(L))
        margin = Margin(PathLoss(COST, 0.0), slack, free, SCALE, BOUNDARY)
        self.C = rng.uniform(0.1, 2, len(lengths))
        if slack == "hard":
            self.C[:] = np.inf
        data = linear_rows(rows), self.offsets, self.y, self.C
        self.hinge, self.slack = StructuredHinge(*data, margin, averaging, n_own, features), slack

    def find_paths(self, rng):
        """Search for paths, and give them α at random: steps leave equal g behind."""
        hinge = self.hinge
        for _ in range(3):
            hinge.optimize(rng.permutation(hinge.blocks), np.zeros(len(self.C)), 1)
        before = hinge.support_paths()
        hinge.kernel.arrays["alpha"] *= rng.uniform(0.2, 0.9, hinge.kernel.arrays["alpha"].shape)
        after = hinge.support_paths()
        hinge._add_weights(after._replace(alpha=after.alpha - before.alpha))

    def vectors(self):
        """(sequence, α, loss, φ(x, y) - φ(x, p)) of all paths."""
        paths = self.hinge.support_paths()
        ends = np.cumsum(np.diff(self.offsets)[paths.sequence])
        options = L, SCALE, BOUNDARY, self.triples
        found = []
        for s, p in zip(paths.sequence, np.split(paths.labels, ends[:-1])):
            x, y = (z[self.offsets[s] : self.offsets[s + 1]] for z in (self.rows, self.y))
            found.append(path_features(x, y, *options) - path_features(x, p, *options))
        return paths.sequence, paths.alpha, paths.loss, np.array(found)

    def weights(self):
        """The hinge's weights in the order of ``path_features``."""
        coef, transition, start, end = self.hinge.weights()
        links = self.hinge.kernel.arrays["v"] / SCALE
        ends = np.concatenate([start, end]) / BOUNDARY
        return np.concatenate([coef.ravel(), transition.ravel() / SCALE, ends, links])

    def late(self):
        """Sums of changes times stamps, in this order, by places that training uses."""
        a, width = self.hinge.kernel.arrays, self.hinge.kernel.arrays["W"].shape[1]
        coef = np.zeros((len(self.hinge.source.order), L))
        coef[self.hinge.source.order] = a["late_W"][:, :L]
        score = a["late_score"].reshape(width, width)[:L, :L].ravel() / SCALE
        ends = np.concatenate([a["late_start"][:L], a["late_end"][:L]]) / BOUNDARY
        return np.concatenate([coef.ravel(), score, ends, a["late_v"] / SCALE])


def plain_pass(w, sequence, alpha, loss, d, C, slack, order):
    """α, w and gaps after one exact step on each block, and the change of w by each."""
    alpha, gaps, changes = alpha.copy(), np.zeros(len(C)), []
    for s in order:
        at = np.flatnonzero(sequence == s)
        if not len(at):
            continue
        # The true path comes last; its feature vector is 0.
        a, vectors = alpha[at], np.vstack([d[at], np.zeros(d.shape[1])])
        g, mass, worst = loss[at] - d[at] @ w, a.sum(), max(0.0, (loss[at] - d[at] @ w).max())
        gaps[s] = abs(a @ g) + worst
        if slack != "hard":
            power, rest = (1, 0) if slack == "l1" else (2, mass**2 / (4 * C[s]))
            gaps[s] = C[s] * worst**power + rest - a @ g
        g = np.append(g, mass / (2 * C[s]) if slack == "l2" else 0.0)
        left = np.append(a, np.inf if slack == "l2" else C[s] - mass)
        high, low, n = g.argmax(), np.where(left > 0, g, np.inf).argmin(), len(a)
        change = vectors[high] - vectors[low]
        if g[high] > g[low]:
            square = change @ change + (slack == "l2" and n in (high, low)) / (2 * C[s])
            size = min(left[low], (g[high] - g[low]) / square)
            left[high] += size
            left[low] -= size
            alpha[at], change = left[:n], size * change
        changes.append(change)
        w = w + change
    return alpha, w, gaps, changes


OPTIONS = [
    {}, {"form": "dense"}, {"form": "ones"}, {"form": "no columns"}, {"n_own": 0},
    {"slack": "l2"}, {"slack": "l2", "linked": True}, {"slack": "hard"}, {"linked": True},
    {"linked": True, "n_own": 20, "form": "ones"}, {"averaging": 2},
    {"averaging": 2, "linked": True, "slack": "l2"},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_updates_are_those_of_a_plain_implementation(seed, options):
    problem = Problem(seed, **options)
    hinge, rng = problem.hinge, np.random.default_rng(seed)
    problem.find_paths(rng)
    assert hinge.kernel.arrays["size"].max() >= 3
    known, order = problem.vectors(), rng.permutation(hinge.blocks)
    w, late, count = problem.weights(), None, hinge.n_updates
    if hinge.averaging:
        late, sums = problem.late(), hinge.kernel.arrays["late_sums"].copy()
    assert_allclose(w, known[1] @ known[3], atol=1e-12)
    gaps = np.zeros(len(problem.C))
    with hinge.known_paths(order) as paths:
        paths.update(gaps, -np.inf, 1, 0.1)
    alpha, w, expected, changes = plain_pass(w, *known, problem.C, problem.slack, order)
    assert_allclose(gaps, expected, atol=1e-10)
    assert_allclose(problem.weights(), w, atol=1e-10)
    assert_allclose(problem.vectors()[1], alpha[alpha > 0], atol=1e-10)
    assert_array_equal(hinge.kernel.arrays["score_t"], hinge.kernel.arrays["score"].T)
    assert hinge.n_updates == count + len(changes)
    if hinge.averaging:
        stamps = np.cumsum(np.arange(count + len(changes) + 1))[count:]
        expected = late + sum(stamp * change for stamp, change in zip(stamps, changes))
        assert_allclose(problem.late(), expected, atol=1e-8)
        moved = hinge.kernel.arrays["late_sums"] - sums
        stamp_of = dict(zip([s for s in order if (known[0] == s).any()], stamps))
        lost, mass = np.zeros((2, len(problem.C)))
        for s, change, value in zip(known[0], alpha - known[1], known[2]):
            lost[s] += stamp_of[s] * change * value
            mass[s] += stamp_of[s] * change
        assert_allclose(moved, [lost, mass], atol=1e-8)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_steps_go_on_until_no_pair_of_paths_is_apart(options):
    # (An exact step makes two g equal, so the next pair may depend on rounding errors.)
    problem = Problem(11, **options)
    hinge, accuracy = problem.hinge, 1e-6
    problem.find_paths(np.random.default_rng(0))
    block = np.array([3])
    sequence, _, loss, d = problem.vectors()
    g = (loss - d @ problem.weights())[sequence == 3]
    with hinge.known_paths(block) as paths:
        paths.update(np.zeros(len(problem.C)), -np.inf, 1000, accuracy)
    sequence, alpha, loss, d = problem.vectors()
    w = problem.weights()
    assert_allclose(w, alpha @ d, atol=1e-10)
    left, C, mass = (loss - d @ w)[sequence == 3], problem.C[3], alpha[sequence == 3].sum()
    of_true = mass / (2 * C) if problem.slack == "l2" else 0.0
    if problem.slack == "l2" or mass < C * (1 - 1e-12):
        left = np.append(left, of_true)
    assert mass <= C * (1 + 1e-12) or problem.slack == "l2"
    assert np.ptp(left) <= 4 * accuracy * (np.abs(g).max() + of_true)


@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_passes_close_the_gap_among_known_paths(slack):
    problem = Problem(7, slack, lengths=[6] * 12)
    hinge, known = problem.hinge, np.zeros(12)
    for _ in range(2):
        hinge.optimize(hinge.blocks, np.zeros(12), 1)
    before = hinge.certificate()
    with hinge.known_paths(hinge.blocks) as paths:
        for _ in range(300):
            paths.update(known, -np.inf, 10, 0.0)
    after = hinge.certificate()
    assert (known >= -1e-12).all()
    assert known.sum() < 1e-6 * after.primal
    assert after.dual > before.dual
    assert after.gap > known.sum()  # new paths would reduce it further


def test_blocks_of_small_gaps_are_left_alone():
    problem = Problem(3)
    hinge = problem.hinge
    hinge.optimize(hinge.blocks, np.zeros(6), 1)
    before = problem.vectors()
    gaps = np.array([1.0, 3.0, 1.0, 1.0, 1.0, 1.0])
    with hinge.known_paths(hinge.blocks) as paths:
        paths.update(gaps, 3.0, 10, 0.1)
    assert_array_equal(gaps, [1.0, 3.0, 1.0, 1.0, 1.0, 1.0])
    for found, expected in zip(problem.vectors(), before):
        assert_array_equal(found, expected)


def test_a_step_without_an_end_is_found_among_known_paths():
    # Without features, no weights keep a margin, and the dual has no maximum.
    free = resolve_constraints(None, np.arange(2))
    margin = Margin(PathLoss(1 - np.eye(2), 0.0), "hard", free, 0.0, 0.0)
    C, offsets = np.full(2, np.inf), np.arange(3)
    hinge = StructuredHinge(linear_rows(np.zeros((2, 1))), offsets, np.arange(2), C, margin)
    a = hinge.kernel.arrays
    a["size"][0], a["paths"][0, 0], a["alpha"][0, 0], a["loss"][0, 0] = 1, 1, 0.5, 1.0
    with hinge.known_paths(hinge.blocks) as paths:
        paths.update(np.zeros(2), -np.inf, 3, 0.1)
    assert_array_equal(hinge.inseparable, [0])


def test_fits_are_the_same_in_each_run_and_with_each_number_of_threads():
    rng = np.random.default_rng(0)
    X = [sparse.random(6, 30, 0.3, "csr", random_state=rng) for _ in range(60)]
    y = [rng.integers(L, size=6) for _ in X]
    fits = [HMSVMTagger(solver="bcfw", random_state=1, n_jobs=n).fit(X, y) for n in (1, 1, 2)]
    for other in fits[1:]:
        assert_array_equal(other.coef_, fits[0].coef_)
        assert_array_equal(other.support_alpha_, fits[0].support_alpha_)


def test_an_interrupt_among_known_paths_leaves_weights_of_the_paths():
    problem = Problem(5, lengths=[5] * 20)
    hinge = problem.hinge
    hinge.optimize(hinge.blocks, np.zeros(20), 1)
    with suppress(KeyboardInterrupt), hinge.known_paths(hinge.blocks) as paths:
        paths.update(np.zeros(20), -np.inf, 3, 0.1)
        raise KeyboardInterrupt
    _, alpha, _, d = problem.vectors()
    assert_allclose(problem.weights(), alpha @ d, atol=1e-12)
    assert bcfw(hinge, rng=np.random.default_rng(0), n_known_passes=3).converged


def test_inner_products_of_rows_wait_for_the_first_step():
    hinge = Problem(0, lengths=[8] * 20).hinge
    for _ in range(2):  # also for pieces
        hinge.certificate()
        assert not hinge.kernel.has_own
        with hinge.prepared():
            assert hinge.kernel.has_own
            hinge.optimize(hinge.blocks, np.zeros(len(hinge.pieces.first)), 3, 0.1)
        hinge.divide(8, 1)
    hinge.divide(8, 2)
    assert not hinge.kernel.has_own
