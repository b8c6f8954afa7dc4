"""Training on columns whose mean is far from 0: gaps to minima found on centred columns."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.objectives.scores.centred import centred_columns
from sklseq.objectives.scores.score_map import Weights
from tests.objectives.test_dual import likelihood_of
from tests.solvers.test_tolerance import silent_gaps


def make_far(rng, n, length, d, L, mean, unit, density, signal):
    """Normal columns with this mean in standard deviations, labels drawn from a chain of scores."""
    lengths = rng.integers(1, 2 * length, n)
    Z = rng.normal(size=(lengths.sum(), d))
    S, A = Z @ rng.normal(size=(d, L)) * signal, rng.normal(size=(L, L))
    S += rng.gumbel(size=S.shape)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    y = [np.empty(k, dtype=int) for k in lengths]
    for scores, labels in zip(np.split(S, offsets[1:-1]), y):
        for t, row in enumerate(scores):
            labels[t] = np.argmax(row if t == 0 else row + A[labels[t - 1]])
    rows = (Z + mean) * unit * (rng.random(Z.shape) < density)
    return Sequences(sparse.csr_matrix(rows), offsets), y


def random_problem(seed):
    """X, y, l1, l2."""
    rng = np.random.default_rng(seed)
    X, y = make_far(
        rng, n=rng.choice([20, 60, 150]), length=rng.choice([3, 12]), d=rng.choice([3, 8, 20]),
        L=rng.choice([2, 4, 6]), mean=rng.choice([0, 3, 10, 30]), unit=10.0 ** rng.integers(-3, 4),
        density=rng.choice([1, 1, 0.5]), signal=rng.choice([0.3, 1, 3]),
    )  # fmt: skip
    return X, y, float(rng.choice([0, 0, 0.01, 0.1])), 10.0 ** rng.integers(-5, 1)


def moments(X):
    rows = X.rows.toarray()
    return rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-4 * np.abs(rows).max(axis=0))


def from_centred(scores, means, deviations):
    """The matrix from weights of centred columns to w."""
    T = np.empty((scores.n_weights, scores.n_weights))
    for i, unit in enumerate(np.eye(scores.n_weights)):
        coef = scores.unpack(unit).coef / deviations[:, None]
        transition, start, end = scores.trained_chain(unit)
        shift = means @ coef
        T[:, i] = scores.pack(Weights(coef, transition - shift, start - shift, end))
    return T


def minimum(X, y, l2):
    """The least objective for l1 = 0, by SciPy in the weights of centred columns."""
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(l2=l2), X, y, threads)
        T = from_centred(primal.scores, *moments(X))
        gradient = primal.scores.new_vector()

        def of_centred(u):
            return primal.value_and_gradient(T @ u, gradient), T.T @ gradient

        options = {"maxiter": 3000, "maxfun": 6000, "ftol": 1e-12, "gtol": 1e-9, "maxcor": 50}
        start = np.zeros(len(T))
        return minimize(of_centred, start, jac=True, method="L-BFGS-B", options=options).fun


def far_gaps(seed, tol=1e-2):
    """Excess over the minimum, in units of tol, of the solvers that do not warn."""
    X, y, l1, l2 = random_problem(seed)
    if l1 == 0:
        least = minimum(X, y, l2)
    else:
        options = {"solver": "lbfgs", "tol": 1e-9, "max_iter": 3000}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            least = CRFTagger(l1=l1, l2=l2, **options).fit(X, y).objective_
    return silent_gaps(("adagrad", "lbfgs"), X, y, least, tol, l1=l1, l2=l2)


@pytest.mark.parametrize("unit", [0.01, 1.0])
def test_the_objective_is_within_tol(unit):
    # 3.6 and 3.8 tol above the minimum where decreases alone tell the end.
    rng = np.random.default_rng(0)
    X, y = make_far(rng, 60, 8, 8, 3, mean=30, unit=unit, density=1, signal=0.3)
    l2 = 1e-4 * unit**2
    model = CRFTagger(solver="adagrad", l2=l2).fit(X, y)
    assert model.objective_ <= minimum(X, y, l2) * (1 + model.tol)


@pytest.mark.parametrize("seed", range(4))
def test_gaps_of_random_problems(seed):
    gaps = far_gaps(seed)
    assert len(gaps) == 2  # neither solver warns
    assert max(gaps) <= 1


@pytest.mark.parametrize("dense", [False, True])
def test_direction_is_that_of_centred_columns(dense):
    rng = np.random.default_rng(1)
    X, y = make_far(rng, 8, 4, 3, 3, mean=5, unit=0.1, density=1, signal=1)
    if dense:
        X = Sequences(X.rows.toarray(), X.offsets)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(l2=0.0), X, y, threads)
    w = rng.normal(size=primal.scores.n_weights)
    found = centred_columns(primal.scores, X.rows, 0.0).direction(w)
    rows = X.rows if dense else X.rows.toarray()
    T = from_centred(primal.scores, rows.mean(axis=0), rows.std(axis=0))
    np.testing.assert_allclose(found, T @ (T.T @ w), rtol=1e-9)


def test_columns_near_zero_and_constant_columns_are_not_centred():
    rng = np.random.default_rng(2)
    X, y = make_far(rng, 8, 4, 3, 3, mean=1, unit=1.0, density=1, signal=1)
    with Threads(1) as threads:
        scores = likelihood_of(CRFTagger(l2=0.0), X, y, threads).scores
    rows = X.rows.toarray()
    assert centred_columns(scores, X.rows, 0.0) is None
    rows[:, 0] = 2.0
    assert centred_columns(scores, rows, 0.0) is None
    assert centred_columns(scores, sparse.csr_matrix(rows), 0.0) is None
    rows[0, 0] = 1.9
    assert centred_columns(scores, sparse.csr_matrix(rows), 0.0) is not None
