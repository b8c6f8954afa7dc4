"""HMSVMTagger against quadratic programs over all labelings, and against other implementations."""

import itertools
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog, minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from sklseq import HMSVMTagger, Sequences
from sklseq.data.constraints import resolve_constraints
from sklseq.estimators.kernel_functions import RowKernel, gram_matrix
from sklseq.features import DictFeatures, PerToken
from sklseq.inference import nbest
from sklseq.objectives.margin.hinge import (
    Margin,
    PathLoss,
    StructuredHinge,
    _margin,
    linear_rows,
)
from sklseq.objectives.margin.pieces import SupportPaths
from sklseq.objectives.margin.separable import contradiction, path_gram
from sklseq.solvers import bcfw
from tests.oracles import all_paths

COST = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [1.5, 1.0, 0.0]])
KERNELS = {
    "linear": lambda A, B: linear_kernel(A, B),
    "poly": lambda A, B: polynomial_kernel(A, B, degree=2, gamma=0.7, coef0=1.0),
    "rbf": lambda A, B: rbf_kernel(A, B, gamma=0.7),
}
PARAMETERS = {
    "linear": {},
    "poly": {"kernel": "poly", "degree": 2, "gamma": 0.7, "coef0": 1.0},
    "rbf": {"kernel": "rbf", "gamma": 0.7},
}


def problem(seed, lengths=(3, 1, 2, 3), n_features=3, L=3, separable=False):
    """Random rows and labels 0 to L - 1, all of which occur."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, n_features)) for T in lengths]
    y = [rng.integers(L, size=T) for T in lengths]
    if separable:
        W = 2 * rng.normal(size=(n_features, L))
        y = [(x @ W).argmax(axis=1) for x in X]
    y[0][: min(L, lengths[0])] = np.arange(min(L, lengths[0]))
    return X, y


def path_features(x, path, L, eta, boundary, triples=()):
    """φ(x, y), as one vector: states, transitions, first and last label, (feature, i, j)."""
    states, pairs, ends = np.zeros((x.shape[1], L)), np.zeros((L, L)), np.zeros((2, L))
    for t, j in enumerate(path):
        states[:, j] += x[t]
        if t:
            pairs[path[t - 1], j] += eta
    ends[0, path[0]] += boundary
    ends[1, path[-1]] += boundary
    links = [
        sum(eta * x[t, f] for t in range(1, len(path)) if (path[t - 1], path[t]) == (i, j))
        for f, i, j in triples
    ]
    return np.concatenate([states.ravel(), pairs.ravel(), ends.ravel(), links])


def differences(X, y, L, cost, offset, eta=1.0, boundary=1.0, triples=()):
    """(sequence, φ(y_i) - φ(y), loss) for every wrong labeling y of every sequence."""
    for s, (x, truth) in enumerate(zip(X, y)):
        given = (L, eta, boundary, triples)
        phi = path_features(x, truth, *given)
        for path in all_paths(len(truth), L):
            if (path != truth).any():
                loss = offset + sum(cost[a, b] for a, b in zip(truth, path))
                yield s, phi - path_features(x, path, *given), loss


def quadratic_program(X, y, L, cost, offset, C, slack, **scales):
    """Minimum of the primal with one constraint a labeling, by SLSQP."""
    owner, A, loss = map(np.array, zip(*differences(X, y, L, cost, offset, **scales)))
    n, m = (0 if slack == "hard" else len(X)), A.shape[1]
    C = np.broadcast_to(C, len(X))[:n]
    G = np.hstack([A, np.eye(len(X))[owner][:, :n]])
    power = 2 if slack == "l2" else 1

    def value(v):
        gradient = np.concatenate([v[:m], C * power * v[m:] ** (power - 1)])
        return 0.5 * v[:m] @ v[:m] + C @ v[m:] ** power, gradient

    start = np.concatenate([np.zeros(m), np.full(n, loss.max())])
    result = minimize(
        value, start, jac=True, method="SLSQP", bounds=[(None, None)] * m + [(0, None)] * n,
        constraints={"type": "ineq", "fun": lambda v: G @ v - loss, "jac": lambda v: G},
        options={"ftol": 1e-13, "maxiter": 2000},
    )  # fmt: skip
    assert (G @ result.x - loss).min() > -1e-8
    return result.fun


def explicit_rows(X, kernel):
    """Rows whose inner products are their kernels."""
    rows = np.concatenate(X)
    values, vectors = np.linalg.eigh(KERNELS[kernel](rows, rows))
    mapped = vectors * np.sqrt(np.clip(values, 0, None))
    return np.split(mapped, np.cumsum([len(x) for x in X])[:-1])


LOSSES = {"hamming": (1 - np.eye(3), 0.0), "zero_one": (0 * COST, 1.0), "matrix": (COST, 0.0)}
TIGHT = {"tol": 1e-8, "max_iter": 100_000, "random_state": 0}


# ------------------------------------------------------------------ the optimum


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("slack", ["l1", "l2"])
@pytest.mark.parametrize("loss", LOSSES)
def test_primal_and_dual_equal_the_program_over_all_labelings(loss, slack, kernel):
    seed = 10 * list(LOSSES).index(loss) + list(KERNELS).index(kernel)
    X, y = problem(seed)
    best = quadratic_program(explicit_rows(X, kernel), y, 3, *LOSSES[loss], C=0.7, slack=slack)
    given = COST if loss == "matrix" else loss
    for solver in ("bcfw", "working_set"):
        tagger = HMSVMTagger(
            C=0.7, loss=given, slack=slack, solver=solver, **PARAMETERS[kernel], **TIGHT
        ).fit(X, y)
        # SLSQP is exact to about 1e-8 here, our gap to 1e-8 of the objective.
        assert_allclose(tagger.objective_, best, rtol=1e-6)
        assert_allclose(tagger.objective_ - tagger.dual_gap_, best, rtol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("loss", LOSSES)
def test_hard_margin_equals_the_program(loss, kernel):
    X, y = problem(3, n_features=8, separable=True)
    best = quadratic_program(explicit_rows(X, kernel), y, 3, *LOSSES[loss], C=1, slack="hard")
    given = COST if loss == "matrix" else loss
    for solver in ("bcfw", "working_set"):
        tagger = HMSVMTagger(
            C=np.inf, loss=given, solver=solver, **PARAMETERS[kernel], **TIGHT
        ).fit(X, y)
        assert_allclose(tagger.objective_, best, rtol=1e-6)
        assert tagger.score(X, y) == 1


@pytest.mark.parametrize(("scale", "boundaries"), [(0.0, True), (0.5, False), (2.0, True)])
def test_transition_scale_and_boundaries(scale, boundaries):
    X, y = problem(5)
    scales = {"eta": scale, "boundary": scale * boundaries}
    best = quadratic_program(X, y, 3, *LOSSES["hamming"], C=0.7, slack="l1", **scales)
    tagger = HMSVMTagger(C=0.7, transition_scale=scale, boundaries=boundaries, **TIGHT).fit(X, y)
    assert_allclose(tagger.objective_, best, rtol=1e-6)
    assert (tagger.transition_ != 0).any() == (scale > 0)
    assert tagger.start_.any() == (scale > 0 and boundaries)


def test_weights_of_sequences_and_classes():
    X, y = problem(6)
    weights, by_class = np.array([2.0, 0.0, 0.5, 1.0]), np.array([1.0, 3.0, 0.5])
    cost = by_class[:, None] * (1 - np.eye(3))
    kept = [0, 2, 3]
    best = quadratic_program(
        [X[s] for s in kept], [y[s] for s in kept], 3, cost, 0.0, C=0.7 * weights[kept], slack="l1"
    )
    tagger = HMSVMTagger(C=0.7, class_weight=dict(enumerate(by_class)), **TIGHT)
    tagger.fit(X, y, sample_weight=weights)
    assert_allclose(tagger.objective_, best, rtol=1e-6)
    assert 1 not in tagger.support_index_
    balanced = HMSVMTagger(class_weight="balanced", **TIGHT).fit(X, y)
    counts = np.bincount(np.concatenate(y))
    same = HMSVMTagger(class_weight=dict(enumerate(9 / (3 * counts))), **TIGHT).fit(X, y)
    assert_allclose(balanced.coef_, same.coef_)


@pytest.mark.parametrize(
    ("solver", "average"), [("bcfw", False), ("bcfw", True), ("working_set", False)]
)
def test_gap_is_never_negative_and_shrinks(solver, average):
    X, y = problem(7, lengths=[6] * 30, n_features=4)
    tagger = HMSVMTagger(C=0.3, solver=solver, average=average, tol=1e-3, random_state=1).fit(X, y)
    passes, primal, dual, gap = tagger.loss_curve_.T
    assert (gap >= 0).all()
    assert (np.diff(dual) >= -1e-12 * dual[-1]).all()
    assert gap[-1] < 0.1 * gap[0]
    assert gap[-1] <= 1e-3 * primal[-1]
    assert_allclose(gap, primal - dual)
    assert (np.diff(passes) > 0).all()
    assert 0 <= tagger.dual_gap_ <= (1 if average else 1e-3) * tagger.objective_


@pytest.mark.parametrize("seed", range(2))
def test_length_one_equals_crammer_and_singer(seed):
    X, y = problem(seed, lengths=[1] * 40, n_features=5)
    y = [np.array([k % 3]) for k in range(40)]
    svm = LinearSVC(C=0.5, multi_class="crammer_singer", fit_intercept=False, tol=1e-8,
                    max_iter=1_000_000, random_state=0)  # fmt: skip
    svm.fit(np.concatenate(X), np.concatenate(y))
    for loss in ("hamming", "zero_one"):
        tagger = HMSVMTagger(C=0.5, loss=loss, boundaries=False, **TIGHT).fit(X, y)
        # Weights are known to the square root of the gap.
        assert_allclose(tagger.coef_, svm.coef_.T, atol=1e-3)
        slack = [
            np.delete(1 + x @ svm.coef_.T, j).max() - (x @ svm.coef_.T)[0, j]
            for x, j in zip(X, np.concatenate(y))
        ]
        value = 0.5 * (svm.coef_**2).sum() + 0.5 * np.maximum(slack, 0).sum()
        assert_allclose(tagger.objective_, value, rtol=1e-5)


@pytest.mark.parametrize("solver", ["bcfw", "working_set", "perceptron"])
def test_primal_equals_dual(solver):
    X, y = problem(9, lengths=[4] * 12)
    options = {**TIGHT, "max_iter": None, "tol": 1e-6, "solver": solver}
    primal = HMSVMTagger(**options).fit(X, y)
    rows = np.concatenate(X)
    columns = np.split(rows @ rows.T, np.arange(4, 48, 4))
    for kernel, data in ((linear_kernel, X), ("precomputed", columns)):
        dual = HMSVMTagger(kernel=kernel, **options).fit(data, y)
        # A perceptron makes the same steps; else rounding may choose between paths that tie, and
        # weights are known to the square root of the gap.
        atol = 1e-10 if solver == "perceptron" else 1e-3
        for p, q in zip(primal.potentials(X)[:4], dual.potentials(data)[:4]):
            assert_allclose(p, q, atol=atol)
        if solver != "perceptron":
            assert_allclose(primal.objective_, dual.objective_, rtol=2e-6)
            assert_allclose(rows[dual.support_].T @ dual.dual_coef_, primal.coef_, atol=atol)
        assert not hasattr(dual, "coef_")


# ------------------------------------------------------------------ paths


@pytest.mark.parametrize("T", [1, 2, 5])
@pytest.mark.parametrize("L", [1, 2, 3, 9])
def test_most_violated_equals_enumeration(T, L):
    rng, allowed = np.random.default_rng(T + 10 * L), np.ones((L, L), dtype=bool)
    T = min(T, 3) if L == 9 else T
    y = np.zeros(T, dtype=int) if L < 3 else rng.integers(L, size=T)
    if L == 3:
        allowed[0, 2] = y[1:].tolist().count(2) > 0
    x, cost = rng.normal(size=(T, 3)), rng.random((L, L)) * (1 - np.eye(L))
    for offset in (0.0, 1.0):
        hinge = StructuredHinge(
            linear_rows(x), np.array([0, T]), y, np.ones(1),
            Margin(PathLoss(cost, offset), "l1", resolve_constraints(allowed, np.arange(L))),
        )  # fmt: skip
        state = hinge.kernel.arrays
        state["W"][:, :L] = rng.normal(size=(3, L))
        state["score"][:L, :L] += rng.normal(size=(L, L))
        state["score_t"][...] = state["score"].T
        for name in ("start", "end"):
            state[name][:L] = rng.normal(size=L)
        w = hinge.weights()

        def score(p, w=w):
            pairs = w.transition[p[:-1], p[1:]].sum()
            return (x @ w.coef)[np.arange(T), p].sum() + w.start[p[0]] + w.end[p[-1]] + pairs

        wrong = [p for p in all_paths(T, L) if (p != y).any() and score(p) > -np.inf]
        path, g = hinge.most_violated(0)
        if not wrong:
            assert g == -np.inf
            continue
        values = [offset + cost[y, p].sum() + score(p) - score(y) for p in wrong]
        assert_allclose(g, max(values), rtol=1e-12, atol=1e-12)
        assert_array_equal(path, wrong[int(np.argmax(values))])


def test_zero_one_finds_the_second_best_path_where_the_truth_is_best():
    X, y = problem(3, n_features=8, separable=True)
    tagger = HMSVMTagger(C=np.inf, loss="zero_one", **{**TIGHT, "tol": 1e-4}).fit(X, y)
    emission, transition, start, end, offsets = tagger.potentials(X)
    best = nbest(emission, transition, offsets, 2, start=start, end=end)
    margins = [scores[0] - scores[1] for _, scores in best]
    assert_array_equal(np.concatenate([labels[0] for labels, _ in best]), np.concatenate(y))
    assert_allclose(min(margins), 1, atol=1e-3)
    found = {s.sequence: s.labels for s in tagger.support_sequences_[::-1]}
    tight = int(np.argmin(margins))
    assert any(np.array_equal(found[s], best[s][0][1]) for s in found)
    assert tight in found


# ------------------------------------------------------------------ perceptron


def slow_perceptron(X, y, L, order, n_passes, weights=1.0):
    """Collins's Figure 1, with the average of the weights after each visit."""
    n = len(path_features(X[0], y[0], L, 1.0, 1.0))
    w, total, visits, mistakes = np.zeros(n), np.zeros(n), 0, 0
    weights = np.broadcast_to(weights, len(X))
    for _ in range(n_passes):
        for s in order(len(X)):
            phi = path_features(X[s], y[s], L, 1.0, 1.0)
            others = [
                path_features(X[s], p, L, 1.0, 1.0)
                for p in all_paths(len(y[s]), L)
                if (p != y[s]).any()
            ]
            scores = [w @ other for other in others]
            if max(scores) >= w @ phi:
                guess = others[int(np.argmax(scores))]
                if not w.any():  # all paths tie: ours differs in the last label that is not 0
                    path = y[s].copy()
                    path[np.flatnonzero(path)[-1]] = 0
                    guess = path_features(X[s], path, L, 1.0, 1.0)
                w, mistakes = w + weights[s] * (phi - guess), mistakes + 1
            total, visits = total + w, visits + 1
    return w, total / visits, mistakes


@pytest.mark.parametrize("kernel", ["linear", linear_kernel], ids=["primal", "dual"])
@pytest.mark.parametrize("weights", [None, np.arange(8) % 3 + 0.5], ids=["equal", "weights"])
def test_averaged_perceptron_equals_the_slow_one(kernel, weights):
    X, y = problem(11, lengths=[3] * 8)
    order, given = np.random.default_rng(4).permutation, 1.0 if weights is None else weights
    last, mean, mistakes = slow_perceptron(X, y, 3, order, 5, given)
    for average, expected in ((False, last), (True, mean)):
        tagger = HMSVMTagger(
            solver="perceptron", kernel=kernel, average=average, max_iter=5, random_state=4, C=7
        ).fit(X, y, weights)
        assert tagger.n_mistakes_ == mistakes == sum(tagger.loss_curve_)
        emission, transition, start, end, _ = tagger.potentials(X)
        assert_allclose(emission, np.concatenate(X) @ expected[:9].reshape(3, 3), atol=1e-10)
        assert_allclose(transition.ravel(), expected[9:18], atol=1e-12)
        assert_allclose([start, end], expected[18:].reshape(2, 3), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_perceptron_keeps_its_bound(kernel, seed):
    X, y = problem(seed, lengths=[3] * 6, n_features=6, separable=True)
    # The hard margin of the zero-one loss is 1 / ‖w‖, ‖w‖² being twice the objective.
    options = {"max_iter": 100_000, "random_state": seed, **PARAMETERS[kernel]}
    widest = HMSVMTagger(C=np.inf, loss="zero_one", tol=1e-3, **options).fit(X, y)
    made = HMSVMTagger(solver="perceptron", **options).fit(X, y)
    assert made.loss_curve_[-1] == 0
    assert 0 < made.n_mistakes_ <= made.radius_**2 * 2 * widest.objective_


def separable(seed):
    """Sequences that some weights label rightly: each row's label is that of its largest column."""
    rng = np.random.default_rng(seed)
    L = int(rng.integers(2, 5))
    X, y = [], []
    for T in [L, *rng.integers(1, 6, size=int(rng.integers(4, 15)))]:
        labels = rng.integers(L, size=T)
        rows = rng.normal(size=(T, L + 2)) * rng.choice([0.1, 1, 10])
        rows[np.arange(T), labels] = rows[:, :L].max(axis=1) + rng.choice([0.01, 0.1, 1])
        X.append(rows)
        y.append(labels)
    y[0][:] = np.arange(L)
    X[0][:, :L] = 20 * np.eye(L)
    return X, y


def check_no_mistake(seed, **parameters):
    X, y = separable(seed)
    options = {"max_iter": 100_000, "random_state": seed, **parameters}
    made = HMSVMTagger(solver="perceptron", **options).fit(X, y)
    if made.loss_curve_[-1] == 0:
        assert made.score(X, y) == 1.0
    else:  # (radius / margin)² mistakes may need more passes than max_iter
        assert made.n_iter_ == options["max_iter"]
    return made.loss_curve_[-1] == 0


@pytest.mark.parametrize("parameters", [{}, PARAMETERS["poly"], {"average": False}], ids=str)
@pytest.mark.parametrize("seed", range(40))
def test_the_averaged_perceptron_labels_separable_data_rightly(seed, parameters):
    assert check_no_mistake(seed, **parameters)


def test_the_average_keeps_a_margin_above_rounding():
    # The average of these passes is right by less than the rounding of a kernel's sums.
    for seed in (1678, 2438):
        assert check_no_mistake(seed, **PARAMETERS["rbf"])


def test_further_passes_are_only_counted_where_the_average_errs():
    # With none to count, the average is that of the passes made: as slow_perceptron has it above.
    X, y = problem(11, lengths=[3] * 8, n_features=6, separable=True)
    made = HMSVMTagger(solver="perceptron", random_state=4, max_iter=1000).fit(X, y)
    n = made.n_iter_
    _, mean, _ = slow_perceptron(X, y, 3, np.random.default_rng(4).permutation, n)
    while True:  # so many visits of the last weights more, until the average is right
        emission, transition, start, end, _ = made.potentials(X)
        if np.allclose(emission, np.concatenate(X) @ mean[:18].reshape(6, 3), atol=1e-9):
            break
        n *= 2
        assert n <= 64 * made.n_iter_
        _, mean, _ = slow_perceptron(X, y, 3, np.random.default_rng(4).permutation, n)
    assert_allclose(transition.ravel(), mean[18:27], atol=1e-9)
    assert_allclose([start, end], mean[27:].reshape(2, 3), atol=1e-9)


def test_perceptron_reports_what_it_did():
    X, y = problem(0)
    tagger = HMSVMTagger(solver="perceptron", random_state=0).fit(X, y)
    assert tagger.n_iter_ == len(tagger.loss_curve_) <= 10
    assert not hasattr(tagger, "dual_gap_")
    assert not hasattr(tagger, "dual_coef_")
    with pytest.raises(AttributeError, match="may be, see solver_, have no support_sequences_"):
        _ = tagger.support_sequences_


# ------------------------------------------------------------------ attributes


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_support_sequences_and_coefficients_make_the_weights(form):
    X, y = problem(13, lengths=[5] * 20)
    tagger = HMSVMTagger(C=2.0, random_state=0).fit([form(x) for x in X], y)
    w = np.zeros(len(path_features(X[0], y[0], 3, 1, 1)))
    for sequence, labels, alpha in tagger.support_sequences_:
        assert alpha > 0
        truth, wrong = (path_features(X[sequence], p, 3, 1, 1) for p in (y[sequence], labels))
        w += alpha * (truth - wrong)
    expected = [tagger.coef_.ravel(), tagger.transition_.ravel(), tagger.start_, tagger.end_]
    assert_allclose(w, np.concatenate(expected), atol=1e-9)
    rows = np.concatenate(X)[tagger.support_]
    assert_allclose(rows.T @ tagger.dual_coef_, tagger.coef_, atol=1e-9)
    assert tagger.n_support_ == len(tagger.support_) == len(tagger.dual_coef_)
    paths = tagger.support_sequences_
    by_sequence = np.bincount([p.sequence for p in paths], [p.alpha for p in paths])
    assert by_sequence.max() <= 2.0 * (1 + 1e-12)


def test_working_sets_grow_beyond_their_first_slots():
    X, y = problem(14, lengths=[20] * 4, n_features=2)
    tagger = HMSVMTagger(C=5.0, tol=1e-4, max_iter=5000, random_state=0).fit(X, y)
    assert np.bincount(tagger.support_index_).max() > 8


def margin():
    return Margin(PathLoss(1 - np.eye(3), 0.0), "l1", resolve_constraints(None, np.arange(3)))


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("linear", [True, False])
def test_average_of_all_iterates(kind, linear):
    X, y = problem(15, lengths=[4] * 5)
    rows, offsets = np.concatenate(X), np.arange(0, 21, 4)
    hinge = StructuredHinge(
        linear_rows(rows) if linear else rows @ rows.T, offsets, np.concatenate(y),
        np.full(5, 0.8), margin(), averaging=kind,
    )  # fmt: skip
    gaps, iterates, certificates = np.zeros(5), [], []
    for s in np.random.default_rng(0).integers(5, size=12):
        hinge.optimize(np.array([s]), gaps, 2, 0.1)
        iterates.append(np.concatenate([w.ravel() for w in hinge.weights()]))
        certificates.append(hinge.last_certificate())
    weights = np.ones(12) if kind == 1 else np.arange(1.0, 13)
    hinge.settle()
    settled = np.concatenate([w.ravel() for w in hinge.weights()])
    assert_allclose(settled, np.average(iterates, axis=0, weights=weights), atol=1e-12)
    # Primal and dual are convex and concave: the average is no worse than the averages of both.
    primal, dual = np.average(certificates, axis=0, weights=weights)
    last = hinge.certificate()
    assert last.primal <= primal
    assert last.dual >= dual
    assert last.gap >= 0


def hinge_of(X, y, n_own=0, C=0.8, form=np.asarray):
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in X])])
    return StructuredHinge(
        linear_rows(form(np.concatenate(X))), offsets, np.concatenate(y),
        np.full(len(X), C), margin(), n_own=n_own,
    )  # fmt: skip


@pytest.mark.parametrize("solver", ["bcfw", "working_set", "perceptron"])
def test_stored_zeros_are_left_out(solver):
    """False flags of feature dicts: rows are read without them, and the model is the same."""
    rng = np.random.default_rng(31)
    X = [sparse.csr_matrix((rng.random((5, 6)) < 0.5).astype(float)) for _ in range(8)]
    y = [rng.integers(3, size=5) for _ in X]
    flags = []
    for x in X:
        indptr, indices = np.arange(6) * 6, np.tile(np.arange(6), 5)
        flags.append(sparse.csr_matrix((x.toarray().ravel(), indices, indptr), shape=x.shape))
    rows = linear_rows(sparse.vstack(flags, format="csr"))
    assert len(rows.data) == 0
    assert len(rows.indices) == sum(x.nnz for x in X)
    assert all(x.nnz == 30 for x in flags)
    tagger = HMSVMTagger(solver=solver, random_state=0)
    expected, found = (clone(tagger).fit(rows, y) for rows in (X, flags))
    for name in ("coef_", "transition_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_own", [0, 20, 10**6])
def test_weights_are_those_of_the_working_sets(n_own, form):
    # Whether scores follow steps by inner products or are read again: weights are always what the
    # working sets add up to, and tend to the same. (On the way, paths that an exact step has made
    # equal tie up to rounding.) 20 numbers are enough for some of the sequences.
    X, y = problem(27, lengths=[4, 1, 3, 6, 2, 5])
    hinge, plain = hinge_of(X, y, n_own, form=form), hinge_of(X, y)
    start, size = _margin.own_places(np.diff(hinge.offsets), n_own)
    assert (start < 0).sum() == {0: 6, 20: 3, 10**6: 0}[n_own]
    assert size == {0: 0, 20: 14, 10**6: 91}[n_own]
    for h in (hinge, plain):
        rng, gaps = np.random.default_rng(0), np.zeros(6)
        for _ in range(200):
            h.optimize(rng.permutation(6), gaps, 4, 0.1, n_searches=3)
            with h.known_paths(rng.permutation(6)) as paths:
                paths.update(gaps, -np.inf, 4, 0.1)
    assert_allclose(hinge.certificate(), plain.certificate(), rtol=1e-4)
    assert 0 <= hinge.certificate().gap <= 1e-4 * hinge.certificate().primal
    coef, transition, start, end = hinge.weights()
    paths, w = hinge.support_paths(), 0
    ends = np.cumsum([len(X[s]) for s in paths.sequence])
    for s, alpha, path in zip(paths.sequence, paths.alpha, np.split(paths.labels, ends[:-1])):
        w += alpha * (path_features(X[s], y[s], 3, 1, 1) - path_features(X[s], path, 3, 1, 1))
    expected = np.concatenate([coef.ravel(), transition.ravel(), start, end])
    assert_allclose(w, expected, atol=1e-12)


def test_updates_of_known_paths_raise_the_dual_and_find_nothing():
    X, y = problem(28, lengths=[6] * 30)
    hinge, gaps, known = hinge_of(X, y, 10**6), np.zeros(30), np.zeros(30)
    hinge.optimize(np.arange(30), gaps, 1)
    before, duals = hinge.support_paths(), [hinge.certificate().dual]
    for _ in range(50):
        with hinge.known_paths(np.arange(30)) as paths:
            paths.update(known, -np.inf, 3, 0.0)
        duals.append(hinge.certificate().dual)
    assert (np.diff(duals) >= -1e-12 * duals[-1]).all()
    assert duals[1] > duals[0] * (1 + 1e-6)
    assert (known >= -1e-12).all()
    assert known.sum() < 1e-3 * gaps.sum()
    among = {tuple(p) for p in before.labels.reshape(-1, 6)}
    assert {tuple(p) for p in hinge.support_paths().labels.reshape(-1, 6)} <= among
    certificate = hinge.certificate()
    assert certificate.gap > 1e-3 * certificate.primal


def test_more_searches_a_visit_gain_more():
    X, y = problem(29, lengths=[8] * 20)
    duals = []
    for n_searches in (1, 3):
        hinge, gaps = hinge_of(X, y, 10**6), np.zeros(20)
        hinge.optimize(np.arange(20), gaps, 3, 0.1, n_searches)
        duals.append(hinge.certificate().dual)
    assert duals[1] > duals[0]


@pytest.mark.parametrize("kernel", ["poly", "rbf"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_kernel_scores_of_new_rows(form, kernel):
    X, y = problem(16, lengths=[5] * 20)
    new, _ = problem(17, lengths=[2, 0, 4])
    tagger = HMSVMTagger(**PARAMETERS[kernel], random_state=0).fit([form(x) for x in X], y)
    rows = np.concatenate(X)[tagger.support_]
    emission = tagger.potentials([form(x) for x in new]).emission
    scores = KERNELS[kernel](np.concatenate(new), rows) @ tagger.dual_coef_
    assert_allclose(emission, scores, atol=1e-10)
    predicted = tagger.predict([form(x) for x in new])
    best = tagger.predict_nbest([form(x) for x in new], 3)
    for p, (labels, values) in zip(predicted, best):
        assert_array_equal(p, labels[0])
        assert (np.diff(values) <= 0).all()
    assert tagger.gamma_ == 0.7


def test_scores_of_all_rows_are_kept_up_to_date():
    X, y = problem(26, lengths=[4] * 6)
    rows, offsets = np.concatenate(X), np.arange(0, 25, 4)
    gram = rbf_kernel(rows, gamma=0.7)
    hinge = StructuredHinge(gram, offsets, np.concatenate(y), np.full(6, 2.0), margin())
    rng, gaps = np.random.default_rng(0), np.zeros(6)
    for _ in range(5):
        hinge.optimize(rng.permutation(6), gaps, 20, 0.1)
    state = hinge.kernel.arrays
    assert (state["coef"] != 0).any()
    assert_allclose(state["S"], state["coef"].T @ gram, atol=1e-12)


@pytest.mark.parametrize("block", [1, 7, 60, 10_000])
def test_gram_matrix_in_blocks(block, monkeypatch):
    monkeypatch.setattr("sklseq.estimators.kernel_functions.BLOCK", block)
    rows, sizes = np.random.default_rng(block).normal(size=(20, 3)), []

    def kernel(A, B):
        sizes.append(len(A))
        return A @ B.T

    assert_allclose(gram_matrix(RowKernel(kernel), rows, 1), rows @ rows.T, rtol=1e-12)
    assert sum(sizes) == 20
    assert max(sizes) == min(20, max(1, block // 20))


def test_gamma_scale_is_that_of_svc():
    X, y = problem(18)
    rows = np.concatenate(X)
    for form in (np.asarray, sparse.csr_matrix):
        tagger = HMSVMTagger(kernel="rbf").fit([form(x) for x in X], y)
        assert_allclose(tagger.gamma_, 1 / (3 * rows.var()))
    assert HMSVMTagger(kernel="rbf", gamma="auto").fit(X, y).gamma_ == 1 / 3


def test_forms_of_input_and_float32():
    X, y = problem(19, lengths=[4] * 10)
    dense = HMSVMTagger(random_state=0).fit(X, y)
    packed = HMSVMTagger(random_state=0).fit(Sequences.from_list(X), y)
    csr = HMSVMTagger(random_state=0).fit([sparse.csr_matrix(x) for x in X], y)
    single = HMSVMTagger(random_state=0).fit([x.astype(np.float32) for x in X], y)
    assert_array_equal(dense.coef_, packed.coef_)
    assert_allclose(dense.coef_, csr.coef_, atol=1e-10)
    assert single.coef_.dtype == single.transition_.dtype == np.float32
    # Rows differ by 1e-7; where training stops may differ by a pass, so by the tolerance.
    assert_allclose(single.objective_, dense.objective_, rtol=0.02)


def test_empty_sequences_and_one_label():
    X, y = problem(20, lengths=[3, 0, 4, 0])
    tagger = HMSVMTagger(random_state=0).fit(X, y)
    assert [len(p) for p in tagger.predict(X)] == [3, 0, 4, 0]
    assert_allclose(
        tagger.objective_, HMSVMTagger(random_state=0).fit(X[::2], y[::2]).objective_, rtol=0.03
    )
    with pytest.warns(UserWarning, match="one label only"):
        alone = HMSVMTagger().fit(X, [np.zeros(len(x), dtype=int) for x in X])
    assert set(np.concatenate(alone.predict(X))) == {0}
    assert alone.objective_ == alone.dual_gap_ == 0


def test_constraints_hold_in_training_and_in_answers():
    rng = np.random.default_rng(0)
    y = [["O", "B-x", "I-x", "O"], ["B-x", "O"], ["O", "B-x", "I-x"]] * 4
    X = [rng.normal(size=(len(labels), 2)) for labels in y]
    tagger = HMSVMTagger(constraints="iob2", random_state=0).fit(X, y)
    for labels in [s.labels for s in tagger.support_sequences_] + list(tagger.predict(X)):
        assert not any(b == "I-x" and a == "O" for a, b in zip(["O", *labels], labels))
    assert tagger.transition_[2, 1] == tagger.start_[1] == -np.inf
    assert np.isfinite(tagger.objective_)


@pytest.mark.parametrize("kernel", ["linear", "rbf", linear_kernel])
def test_auto_chooses_by_kernel(kernel, monkeypatch):
    X, y = problem(25)
    steps = []

    def spy(objective, **options):
        steps.append(options["n_steps"])
        return bcfw(objective, **options)

    monkeypatch.setattr("sklseq.estimators.hmsvm.margin_problem.bcfw", spy)
    auto = HMSVMTagger(kernel=kernel, random_state=0).fit(X, y)
    named = HMSVMTagger(kernel=kernel, solver="bcfw", random_state=0).fit(X, y)
    assert steps == [3 if kernel == "linear" else 20] * 2
    assert_array_equal(auto.potentials(X).emission, named.potentials(X).emission)
    tagger = HMSVMTagger(C=np.inf, kernel=kernel, random_state=0)
    tagger.fit(*problem(3, n_features=8, separable=True))
    assert len(steps) == 3
    assert tagger.dual_gap_ <= 0.01 * tagger.objective_


# ------------------------------------------------------------------ scikit-learn


def items():
    words = [["the", "cat", "sleeps"], ["a", "dog"], ["the", "dog", "barks"], ["a", "cat"]] * 3
    y = [["D", "N", "V"][: len(sentence)] for sentence in words]
    return [[{"w": word} for word in sentence] for sentence in words], y


def test_dicts_pipelines_search_and_clones():
    X, y = items()
    tagger = HMSVMTagger(random_state=0).fit(X, y)
    assert tagger.score(X, y) == 1
    words = ["a", "barks", "cat", "dog", "sleeps", "the"]
    assert sorted(tagger.feature_names_in_) == [f"w:{word}" for word in words]
    pipe = make_pipeline(DictFeatures(), HMSVMTagger(random_state=0)).fit(X, y)
    assert pipe.predict(X) == tagger.predict(X)
    search = GridSearchCV(HMSVMTagger(), {"C": [0.1, 1], "kernel": ["linear", "rbf"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.5
    assert len(cross_val_predict(HMSVMTagger(), X, y, cv=2)) == len(X)
    assert clone(tagger).get_params() == tagger.get_params()


@pytest.mark.parametrize("kernel", ["linear", "rbf", linear_kernel])
def test_pickled_and_refitted(kernel):
    X, y = problem(21)
    tagger = HMSVMTagger(kernel=kernel, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(tagger))
    assert_array_equal(again.potentials(X).emission, tagger.potentials(X).emission)
    assert len(again.support_sequences_) == len(tagger.support_sequences_)
    tagger.set_params(kernel="linear", solver="perceptron").fit(X, y)
    assert not hasattr(tagger, "support_")
    assert not hasattr(tagger, "dual_gap_")


def test_skops_loads_what_it_saves():
    skops = pytest.importorskip("skops.io")
    X, y = problem(22)
    for kernel in ("linear", "rbf"):
        tagger = HMSVMTagger(kernel=kernel, random_state=0).fit(X, y)
        data = skops.dumps(tagger)
        trusted = skops.get_untrusted_types(data=data)
        assert all(name.startswith("sklseq.") for name in trusted)
        again = skops.loads(data, trusted=trusted)
        assert again.predict(X) == tagger.predict(X)


def test_same_seed_same_bits_and_threads():
    X, y = problem(23, lengths=[40] * 60)
    one, two, again = (HMSVMTagger(C=0.01, random_state=3, n_jobs=n).fit(X, y) for n in (1, 2, 2))
    assert_array_equal(two.coef_, again.coef_)
    assert_allclose(one.coef_, two.coef_, atol=1e-12)
    assert one.predict(X) == two.predict(X)


def test_nystroem_features_stand_for_a_kernel():
    X, y = problem(24, lengths=[5] * 20)
    X = Sequences.from_list(X)
    exact = HMSVMTagger(kernel="rbf", gamma=0.7, tol=1e-4, random_state=0).fit(X, y)
    mapped = Nystroem(gamma=0.7, n_components=100, random_state=0).fit_transform(X.rows)
    linear = HMSVMTagger(tol=1e-4, random_state=0).fit(X.with_rows(mapped), y)
    # With every row as a component the kernel is exact.
    assert_allclose(linear.objective_, exact.objective_, rtol=1e-3)
    pipe = make_pipeline(
        PerToken(Nystroem(gamma=0.7, n_components=100, random_state=0)),
        HMSVMTagger(tol=1e-4, random_state=0),
    )
    assert_allclose(pipe.fit(X, y)[-1].objective_, exact.objective_, rtol=1e-3)
    assert pipe.score(X, y) == linear.score(X.with_rows(mapped), y)


def test_verbose(capsys):
    HMSVMTagger(verbose=1).fit(*problem(0))
    assert "[HMSVMTagger] pass 1: objective" in capsys.readouterr().out
    HMSVMTagger(verbose=1, solver="perceptron").fit(*problem(0))
    assert "[HMSVMTagger] pass 1: mistakes" in capsys.readouterr().out


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C must be a number above 0"),
        ({"C": -1.0}, "C must be a number above 0"),
        ({"C": np.nan}, "C must be a number above 0"),
        ({"tol": -1}, "tol must be a finite number of at least 0"),
        ({"transition_scale": -1}, "transition_scale must be a finite number of at least 0"),
        ({"max_iter": 0}, "max_iter must be None or an integer of at least 1; got 0"),
        ({"slack": "l3"}, "slack must be one of"),
        ({"solver": "smo"}, "solver must be one of"),
        ({"average": "yes"}, "average must be one of"),
        ({"solver": "working_set", "average": True}, "average=True needs solver='bcfw'"),
        ({"kernel": "sigmoid"}, "kernel must be one of .* or a callable; got 'sigmoid'"),
        ({"gamma": 0}, "gamma must be above 0 and finite; got 0"),
        ({"gamma": "wide"}, "gamma must be 'scale', 'auto' or a number"),
        ({"degree": 0}, "degree must be an integer of at least 1; got 0"),
        ({"coef0": -1.0}, "coef0 must be finite and at least 0"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0"),
        ({"loss": "squared"}, "loss must be 'hamming', 'zero_one', .*; got 'squared'"),
        ({"loss": None}, "loss must be 'hamming', 'zero_one', a matrix, a dict .*; got None"),
        ({"loss": np.ones((3, 3))}, r"0 on the diagonal, .* label 0 and the answer 0 it is 1"),
        ({"loss": lambda a: 1.0}, "a callable of these two that returns them; got <function"),
        ({"loss": dict}, "a callable of these two that returns them; got <class 'dict'>"),
        (
            {"loss": lambda a, b: "x"},
            "The loss function must return a number; got 'x' for the true",
        ),
        ({"loss": lambda a, b: {}[a]}, "The loss function has no cost for the true label"),
        ({"loss": "zero_one", "class_weight": "balanced"}, "class_weight weighs wrong labels"),
        ({"class_weight": {0: -1.0}}, "class_weight must be finite and not negative"),
        ({"kernel": lambda A, B: np.ones((2, 2))}, r"matrix of shape \(9, 9\).*got shape \(2, 2\)"),
        ({"kernel": lambda A, B: np.full((len(A), len(B)), np.nan)}, "finite real numbers"),
        ({"kernel": lambda A, B: A[:, :1] - B[:, 0]}, "kernel must be symmetric; rows"),
        ({"kernel": lambda A, B: -A @ B.T}, "semi-definite; on the first training row its"),
        ({"kernel": "precomputed"}, "as many columns as rows in all sequences, 9; got 3 columns"),
        (
            {"kernel": "rbf", "cache_size": 0.0005, "solver": "smoothing"},
            r"9 rows needs 0.00065 MB, and cache_size allows 0.0005 MB, enough for 7 rows",
        ),
    ],
)
def test_bad_parameters(parameters, message):
    tagger = HMSVMTagger(**parameters)
    with pytest.raises(ValueError, match=message):
        tagger.fit(*problem(0))
    assert not hasattr(tagger, "classes_")


def test_bad_data():
    X, y = problem(0)
    tagger = HMSVMTagger(kernel="rbf").fit(X, y)
    with pytest.raises(ValueError, match="X has 2 features, but HMSVMTagger was fitted with 3"):
        tagger.predict([x[:, :2] for x in X])
    with pytest.raises(ValueError, match="at least one row"):
        HMSVMTagger().fit([], [])
    with pytest.raises(ValueError, match="sample_weight must have one entry per sequence"):
        HMSVMTagger().fit(X, y, sample_weight=[1.0])
    with pytest.raises(ValueError, match="sample_weight must have a positive entry; all weights"):
        HMSVMTagger().fit(X, y, sample_weight=np.zeros(4))


SOLVERS = ["auto", "bcfw", "working_set"]


def test_kernel_is_checked_again_in_prediction():
    X, y = problem(0)
    tagger = HMSVMTagger(kernel=lambda A, B: A @ B.T if len(A) > 2 else np.ones((1, 1))).fit(X, y)
    with pytest.raises(ValueError, match=r"kernel must return a matrix of shape \(2, \d\)"):
        tagger.predict([X[0][:2]])
    squares = np.split(np.concatenate(X) @ np.concatenate(X).T, [3, 4, 6])
    tagger = HMSVMTagger(kernel="precomputed").fit(squares, y)
    with pytest.raises(ValueError, match="X has 5 features, but HMSVMTagger was fitted with 9"):
        tagger.predict([squares[0][:, :5]])


@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_margin_of_a_sequence_without_one(solver):
    x = np.array([[1.0, 0.0]])
    with pytest.raises(ValueError, match=r"sequence 0 cannot score above its wrong labelings"):
        HMSVMTagger(C=np.inf, boundaries=False, solver=solver).fit([0 * x, x], [[0], [1]])


@pytest.mark.parametrize("loss", ["hamming", "zero_one"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_hard_margin_names_sequences_that_contradict_each_other(solver, kernel, loss):
    X, y = problem(3, n_features=8, lengths=[3] * 12, separable=True)
    X[7], y[7] = X[4].copy(), y[4].copy()
    y[7][1] = (y[7][1] + 1) % 3
    tagger = HMSVMTagger(C=np.inf, loss=loss, solver=solver, random_state=0, **PARAMETERS[kernel])
    with pytest.raises(ValueError, match="but sequences 4, 7 cannot all score above"):
        tagger.fit(X, y)
    assert not hasattr(tagger, "classes_")
    assert tagger.fit(X[:7] + X[8:], y[:7] + y[8:]).score(X, y) > 0.9


@pytest.mark.parametrize("solver", ["bcfw", "working_set"])
def test_hard_margin_that_is_neither_found_nor_refuted(solver):
    x = np.array([[1.0, 0.0]])
    tagger = HMSVMTagger(C=np.inf, solver=solver, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="if these are not, no number of passes"):
        tagger.fit([x, x, x], [[0], [1], [0]])
    assert tagger.n_iter_ == 3


def test_hard_margin_needs_a_loss_for_every_wrong_labeling():
    cost = 1 - np.eye(3)
    cost[0, 1] = 0
    with pytest.raises(ValueError, match=r"A hard margin \(C=inf\) needs a loss above 0"):
        HMSVMTagger(C=np.inf, loss=cost).fit(*problem(0))
    HMSVMTagger(C=1, loss=cost).fit(*problem(0))


@pytest.mark.parametrize("seed", range(4))
def test_contradictions_equal_a_linear_program(seed):
    # Margins can be kept if w · difference ≥ loss has a solution.
    X, y = problem(seed, n_features=2, lengths=[2] * (2 + seed % 3))
    owner, A, loss = map(np.array, zip(*differences(X, y, 3, 1 - np.eye(3), 0.0)))
    program = linprog(np.zeros(A.shape[1]), A_ub=-A, b_ub=-loss, bounds=(None, None))
    assert program.status in (0, 2)
    alpha = contradiction(A @ A.T, loss)
    assert alpha.any() == (program.status == 2)
    # Square roots of a Gram matrix's rounding.
    assert_allclose(alpha @ A, 0, atol=1e-6 * (1 + alpha.sum()))
    paths = SupportPaths(
        owner, 2 * owner, loss, loss, 2 * np.arange(len(owner) + 1),
        np.concatenate([p for s, x in enumerate(X) for p in all_paths(2, 3) if (p != y[s]).any()]),
    )  # fmt: skip
    rows = np.concatenate(X)
    for source in (sparse.csr_matrix(rows), rows @ rows.T):
        if not sparse.issparse(source):
            source = partial(lambda gram, a, b: gram[np.ix_(a, b)], source)
        gram = path_gram(paths, np.concatenate(y), 3, source, (1.0, 1.0))
        assert_allclose(gram, A @ A.T, atol=1e-12)


def test_warns_when_passes_run_out():
    X, y = problem(0, lengths=[5] * 10)
    with pytest.warns(
        ConvergenceWarning, match=r"in 1 passes .* raise max_iter or tol, or lower C"
    ):
        HMSVMTagger(C=100, max_iter=1, tol=1e-9).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HMSVMTagger(solver="perceptron", max_iter=1).fit(X, y)


def objective_of(tagger, X, y, C):
    """½‖w‖² + C Σ ξ of the weights of a tagger, by trying all labelings."""
    weights = (tagger.coef_, tagger.transition_, tagger.start_, tagger.end_)
    total = 0.5 * sum(float((w**2).sum()) for w in weights)
    for rows, truth in zip(X, y):
        paths = np.array(list(itertools.product(range(len(tagger.classes_)), repeat=len(rows))))
        scores = (rows @ tagger.coef_)[np.arange(len(rows)), paths].sum(axis=1)
        scores += tagger.transition_[paths[:, :-1], paths[:, 1:]].sum(axis=1)
        scores += tagger.start_[paths[:, 0]] + tagger.end_[paths[:, -1]]
        wrong = (paths != np.searchsorted(tagger.classes_, truth)).sum(axis=1)
        total += C * (scores + wrong - scores[wrong == 0]).max()
    return total


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("seed", range(4))
def test_the_average_is_within_tol_or_warned_of(kernel, seed):
    # The gap that counts is that of the weights that are returned: of the average.
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(3, 2)) for _ in range(4)]
    y = [rng.integers(3, size=3) for _ in range(4)]
    for max_iter in (50, 20000):
        tagger = HMSVMTagger(
            C=10, tol=1e-3, average=True, kernel=kernel, max_iter=max_iter, random_state=0
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            tagger.fit(X, y)
        within = tagger.dual_gap_ <= 1e-3 * tagger.objective_
        assert within == (not told)
        assert within or max_iter == tagger.n_iter_
        if kernel == "linear":
            assert tagger.objective_ == pytest.approx(objective_of(tagger, X, y, 10), rel=1e-9)
    assert within
    assert tagger.loss_curve_[-1, 3] == pytest.approx(tagger.dual_gap_)
