"""Kernels computed on demand: the same training as with the Gram matrix, and the same minimum."""

import warnings
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from sklseq import HMSVMTagger, HMSVMTaggerCV
from sklseq._lib.threads import Threads
from sklseq.estimators import kernel_functions
from sklseq.estimators.hmsvm import margin_problem
from sklseq.estimators.hmsvm.margin_problem import MarginProblem
from sklseq.estimators.kernel_functions import KernelRows, RowKernel, gram_matrix
from sklseq.estimators.sources.source import RowSource
from sklseq.objectives.margin import separable
from tests.estimators.test_hmsvm import (
    COST,
    PARAMETERS,
    TIGHT,
    explicit_rows,
    problem,
    quadratic_program,
)

KINDS = {
    "rbf": PARAMETERS["rbf"],
    "poly": PARAMETERS["poly"],
    "callable": {"kernel": laplacian_kernel},
    "precomputed": {"kernel": "precomputed"},
}
SETTINGS = (
    {},
    {"slack": "l2"},
    {"loss": "zero_one", "average": True},
    {"solver": "working_set", "transition_scale": 2.0},
    {"solver": "perceptron"},
    {"solver": "perceptron", "average": False},
)


def megabytes(n_block):
    """The ``cache_size`` of blocks of so many rows."""
    return 16 * (n_block + 0.5) ** 2 / 1e6


class DoubleRows(KernelRows):
    """Kernels on demand in double precision, one visit of a sequence a block."""

    n_sweeps = 0

    def __init__(self, kernel, rows, cache_size):
        self.whole = gram_matrix(kernel, rows, 1e3)
        super().__init__(kernel, rows, cache_size)

    def gram(self, rows):
        assert len(rows) <= max(self.n_block, 5)
        return np.ascontiguousarray(self.whole[np.ix_(rows, rows)])

    def block(self, rows):
        assert len(rows) <= self.n_part
        return self.whole[rows]

    def between(self, a, b):
        assert len(a) * len(b) <= 2 * separable.KERNELS
        return self.whole[np.ix_(a, b)]


def check_on_demand(seed):
    """With kernels on demand, the visits are those with the Gram matrix.

    Of other solvers than the perceptron, those of the first pass: the paths of a sequence whose
    problem is solved tie, up to rounding.
    """
    rng = np.random.default_rng(seed)
    kind, setting = list(KINDS)[seed % 4], SETTINGS[rng.integers(len(SETTINGS))]
    X, y = problem(seed, lengths=[3, *rng.integers(1, 6, 12)])
    n = sum(map(len, X))
    if kind == "precomputed":
        rows = np.concatenate(X)
        X = np.split(rbf_kernel(rows, rows, gamma=0.7), np.cumsum([len(x) for x in X])[:-1])
    elif rng.integers(2):
        X = [sparse.csr_matrix(x) for x in X]
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], len(X))
    weights[0] = 1.0
    common = {"C": 10 ** rng.uniform(-1, 1), "random_state": 0, "tol": 0.0}
    common["max_iter"] = 3 if "perceptron" in setting.values() else 1
    fitted = []
    for cache_size in (1000, megabytes(int(rng.integers(1, n // 2)))):
        tagger = HMSVMTagger(**common, **KINDS[kind], **setting, cache_size=cache_size)
        with warnings.catch_warnings(), patch.object(margin_problem, "KernelRows", DoubleRows):
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.append(tagger.fit(X, y, weights))
    whole, demanded = fitted
    assert_array_equal(demanded.support_, whole.support_)
    assert_allclose(demanded.dual_coef_, whole.dual_coef_, atol=1e-8)
    assert_allclose(demanded.transition_, whole.transition_, atol=1e-8)
    if setting.get("solver") != "perceptron":
        assert demanded.objective_ == pytest.approx(whole.objective_)
        assert demanded.dual_gap_ == pytest.approx(whole.dual_gap_, abs=1e-8)


@pytest.mark.parametrize("seed", range(24))
def test_kernels_on_demand_train_as_the_gram_matrix_does(seed):
    check_on_demand(seed)


@pytest.mark.parametrize("slack", ["l1", "l2"])
@pytest.mark.parametrize("kernel", ["poly", "rbf"])
def test_the_minimum_is_that_of_the_program_over_all_labelings(kernel, slack):
    X, y = problem(3)
    parameters = PARAMETERS[kernel] | TIGHT | {"tol": 1e-4, "slack": slack, "loss": COST, "C": 0.8}
    tagger = HMSVMTagger(cache_size=megabytes(3), **parameters).fit(X, y)
    expected = quadratic_program(explicit_rows(X, kernel), y, 3, COST, 0.0, 0.8, slack)
    assert tagger.objective_ == pytest.approx(expected, rel=3e-4)
    assert tagger.objective_ - tagger.dual_gap_ <= expected * (1 + 1e-5)


def test_scores_stay_those_of_the_coefficients():
    X, y = problem(5, lengths=[4] * 30)
    tagger = HMSVMTagger(**PARAMETERS["rbf"], cache_size=megabytes(17), C=5, random_state=0)
    fit = MarginProblem(tagger, RowSource.read(X, y, None))
    fit.solve()
    coef, S = (fit.objective.kernel.arrays[name] for name in ("coef", "S"))
    rows = np.concatenate(X)
    assert_allclose(S, coef.T @ rbf_kernel(rows, rows, gamma=0.7), atol=1e-4)
    assert fit.objective.kernel.arrays["coef"].any()


def test_warm_start_and_interrupt_with_kernels_on_demand():
    X, y = problem(2, lengths=[4] * 20)
    kinds = PARAMETERS["rbf"] | {"cache_size": megabytes(11), "random_state": 0, "tol": 1e-3}
    cold = HMSVMTagger(C=2.0, **kinds).fit(X, y)
    warm = HMSVMTagger(C=1.0, warm_start=True, **kinds).fit(X, y).set_params(C=2.0).fit(X, y)
    assert warm.objective_ == pytest.approx(cold.objective_, rel=2e-3)
    assert warm.n_iter_ < cold.n_iter_


def test_hard_margins_on_demand_name_their_contradictions():
    x = np.ones((2, 2))
    tagger = HMSVMTagger(C=np.inf, kernel="rbf", cache_size=megabytes(2), random_state=0)
    with pytest.raises(ValueError, match="sequences 0, 1 cannot all score"):
        tagger.fit([x, x, 3 * x], [[0, 1], [1, 0], [0, 0]])


@pytest.mark.parametrize("far", [0.0, 1e7])
def test_single_precision_where_it_suffices(far):
    rows = np.random.default_rng(0).normal(size=(50, 4)) + far
    for gamma in (0.1, 1e4):
        kernel = RowKernel("rbf", gamma)
        demanded, chosen = KernelRows(kernel, rows, 1.0), np.array([3, 7, 49])
        assert demanded.rows.dtype == (np.float32 if gamma == 0.1 else np.float64)
        expected = gram_matrix(kernel, rows, 100)[chosen]
        assert_allclose(demanded.block(chosen), expected, atol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("n", [1, 64, 65, 200])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", laplacian_kernel])
def test_parts_of_the_gram_matrix_by_one_thread_and_by_two(kernel, n, form):
    rows = np.random.default_rng(n).normal(size=(n, 4))
    whole = RowKernel(kernel, 0.3)(rows, rows)
    with Threads(2) as two:
        for threads in (None, two):
            found = gram_matrix(RowKernel(kernel, 0.3), form(rows), 100, threads)
            assert_allclose(found, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_of_a_block_are_those_with_all_rows(kind, form):
    rows, chosen = np.random.default_rng(1).normal(size=(30, 4)), np.array([3, 29, 7, 0, 11])
    name = KINDS[kind]["kernel"]
    if kind == "precomputed":
        rows = laplacian_kernel(rows, rows)
    whole = gram_matrix(RowKernel(name, 0.3), form(rows), 100)
    with patch.object(kernel_functions, "MOST_ROWS", 2):
        demanded = KernelRows(RowKernel(name, 0.3), form(rows), 1e-3)
        assert (demanded.n_block, demanded.n_part) == (7, 2)
        for block in (chosen, chosen[:3], chosen[::-1]):
            assert_allclose(demanded.gram(block), whole[np.ix_(block, block)], rtol=1e-4, atol=1e-5)
            assert_allclose(demanded.block(block), whole[block], rtol=1e-4, atol=1e-5)
            expected = whole[np.ix_(block, chosen)]
            assert_allclose(demanded.between(block, chosen), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_precomputed_kernels_are_not_copied(form):
    rows = np.random.default_rng(1).normal(size=(30, 4))
    gram = form(laplacian_kernel(rows, rows))
    demanded = KernelRows(RowKernel("precomputed"), gram, 1e-3)
    assert demanded.rows is gram
    chosen = np.array([3, 29, 7])
    expected = gram_matrix(RowKernel("precomputed"), gram, 100)[np.ix_(chosen, chosen)]
    assert_array_equal(demanded.gram(chosen), expected)
    assert_array_equal(demanded.between(chosen, chosen), expected)
    assert demanded.block(chosen).dtype == np.float32


@pytest.mark.parametrize("kernel", ["precomputed", lambda A, B: 1e40 * laplacian_kernel(A, B)])
def test_kernels_too_large_for_single_precision_are_refused_on_demand(kernel):
    X, y = problem(2, lengths=[4] * 20)
    if kernel == "precomputed":
        rows = np.concatenate(X)
        X = np.split(1e40 * laplacian_kernel(rows, rows), 20)
    tagger = HMSVMTagger(kernel=kernel, C=1e-40, max_iter=1, tol=1.0).fit(X, y)
    assert np.isfinite(tagger.dual_coef_).all()  # with the Gram matrix, they are not
    with pytest.raises(ValueError, match=r"magnitude at most 1e\+30"):
        tagger.set_params(cache_size=megabytes(11)).fit(X, y)


def test_what_is_no_kernel_is_refused_on_demand_too():
    X, y = problem(2, lengths=[4] * 20)
    kernel = lambda A, B: -laplacian_kernel(A, B)  # noqa: E731
    with pytest.raises(ValueError, match="positive semi-definite; on the first"):
        HMSVMTagger(kernel=kernel, cache_size=megabytes(11)).fit(X, y)
    with pytest.raises(ValueError, match="as many columns as rows in all sequences, 80; got 3"):
        HMSVMTagger(kernel="precomputed", cache_size=megabytes(11)).fit(X, y)


def test_what_needs_the_gram_matrix_says_so():
    X, y = problem(2, lengths=[4] * 20)
    small = {"kernel": "rbf", "cache_size": megabytes(11)}
    for tagger in (HMSVMTagger(solver="smoothing", **small), HMSVMTaggerCV(Cs=[1], **small)):
        with pytest.raises(ValueError, match=r"use HMSVMTagger.*on demand"):
            tagger.fit(X, y)
    long = [np.concatenate(X * 5)]
    tagger = HMSVMTagger(**small, max_iter=1, tol=1e9).fit(long, [np.concatenate(y * 5)])
    assert tagger.solver_ == "bcfw"
