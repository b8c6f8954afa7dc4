"""The z-score's linear system on columns in any units: python -m tests.trials.zscore N

Random labelled rows with columns of all scales and means up to 1e8 times their spread, constant,
zero, equal and opposite columns and rows of weight zero, against the solution in extended
precision, by conjugate gradients. Some columns are equal but for noise of
1e-10 to 1e-1.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import sparse

from sklseq import ZScoreTagger
from sklseq._lib.threads import Threads
from sklseq.estimators.zscore.ridge_systems import RidgeSystems
from sklseq.objectives.zscore.moments import Sample, extended_rows

# Errors in scores of training rows, as a multiple of tol. One iteration's gain bounds what is left
# only where convergence is even: of 10,000 cases, two have more, and less than a tenth in all.
ALLOWED = 30
LIMIT = 0.1  # error that the manual allows columns that are equal but for little
ZERO = 1e-12


def make_rows(rng: np.random.Generator, form: str) -> np.ndarray:
    n, M = int(rng.integers(30, 250)), int(rng.integers(5, 110))
    density = rng.choice([0.02, 0.05, 0.1] if form == "sparse" else [0.1, 0.5, 1.0])
    values = rng.normal(size=(n, M)) if rng.random() < 0.5 else np.ones((n, M))
    rows = np.where(rng.random((n, M)) < density, values, 0)
    if rng.random() < 0.3:
        rows[:, rng.integers(M)] = 0
    if rng.random() < 0.5:
        rows[:, rng.integers(0, M, rng.integers(1, M))] += 10.0 ** rng.integers(0, 9)
    if rng.random() < 0.5:
        rows[:, rng.integers(M)] = 2016 - rng.integers(0, rng.choice([1, 27]), n)
    if rng.random() < 0.5:
        rows[:, rng.integers(0, M, 4)] = rng.choice([-1, 1]) * rows[:, rng.integers(0, M, 4)]
    if rng.random() < 0.3 and form == "sparse":
        noise = 1 + 10.0 ** rng.uniform(-5, -1) * rng.normal(size=(n, 2))
        rows[:, rng.integers(0, M, 2)] = rows[:, rng.integers(0, M, 2)] * noise
    if form == "dense" and rng.random() < 0.3:
        noise = 1 + 10.0 ** rng.uniform(-10, -1) * rng.normal(size=n)
        rows[:, rng.integers(M)] = rows[:, rng.integers(M)] * noise
    if rng.random() < 0.7:
        rows *= 10.0 ** rng.uniform(-6, 6, M)
    return rows


def make_case(seed: int, form: str) -> tuple[Sample, float]:
    """Labelled rows and a ridge."""
    rng = np.random.default_rng(seed)
    rows, L = make_rows(rng, form), int(rng.integers(2, 8))
    size = np.sqrt(np.square(rows).sum(axis=0))
    weights = rng.normal(size=(rows.shape[1], L)) / np.where(size > 0, size, 1)[:, None]
    strength, skew = rng.choice([0, 0.3, 3]) * np.sqrt(len(rows)), rng.choice([0, 3])
    scores = strength * rows @ weights + rng.gumbel(size=(len(rows), L)) + np.linspace(0, skew, L)
    offsets = np.unique(np.concatenate([[0, len(rows)], rng.integers(0, len(rows), 20)]))
    of_sequences = rng.random(len(offsets) - 1) + 0.05
    of_sequences[rng.random(len(of_sequences)) < 0.1] = 0
    of_sequences[0] = 1
    y = scores.argmax(axis=1).astype(np.int32)
    if form == "sparse":
        rows = sparse.csr_matrix(rows)
    return Sample(rows, offsets, y, of_sequences, L), 10.0 ** rng.uniform(-6, 2)


def exact_solution(sample: Sample, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """(V, A) that minimise ‖A V - [Y; 0]‖²: singular vectors, corrected in extended precision."""
    X = extended_rows(sample.rows, sample.offsets, sample.n_labels)
    X = X.toarray() if sparse.issparse(X) else X
    root = np.sqrt(sample.row_weights)[:, None]
    A = np.vstack([root * X, np.sqrt(ridge) * np.eye(X.shape[1])]).astype(np.longdouble)
    size = np.sqrt(np.square(A).sum(axis=0))
    A /= size
    Y = np.vstack(
        [root * np.eye(sample.n_labels)[sample.y], np.zeros((len(size), sample.n_labels))]
    )
    U, s, Vt = np.linalg.svd(A.astype(np.float64), full_matrices=False)
    kept = s > 1e-13 * s[0]
    V = np.zeros((len(size), sample.n_labels), np.longdouble)
    for _ in range(4):
        left = (Y - A @ V).astype(np.float64)
        V = V + Vt[kept].T @ ((U[:, kept].T @ left) / s[kept, None])
    return V / size[:, None], A * size


def solution_of(sample: Sample, ridge: float, tol: float) -> np.ndarray | None:
    """What conjugate gradients find; None if a warning is due."""
    with Threads(1) as threads:
        systems = RidgeSystems(ZScoreTagger(solver="cg", tol=tol), sample)
        system, result = systems.solve(ridge, threads)
        return system.weights(np.eye(sample.n_labels)) if result.converged else None


def error_of(sample: Sample, ridge: float, tol: float) -> float | None:
    """Error of the scores as a multiple of tol, of the worst label; None if a warning is due."""
    found = solution_of(sample, ridge, tol)
    if found is None:
        return None
    V, A = exact_solution(sample, ridge)
    fit, wrong = (np.sqrt(np.square(A @ W).sum(axis=0)).astype(float) for W in (V, found - V))
    # Labels of rows without features have a fit of zero, up to rounding.
    return float(np.max(wrong / np.where(fit > ZERO * fit.max(), fit, fit.max() or 1))) / tol


def main(n: int) -> int:
    """The number of cases that fail, of n."""
    failed, warned, limited, worst = 0, 0, 0, 0.0
    for seed in range(n):
        form = ("sparse", "dense")[seed % 2]
        tol = (1e-2, 1e-3)[seed // 2 % 2]
        error = error_of(*make_case(seed, form), tol)
        if error is None:
            warned += 1
            continue
        worst = max(worst, error)
        if not error <= ALLOWED:
            within = error * tol <= LIMIT
            failed, limited = failed + (not within), limited + within
            print(f"case {seed}, {form}, tol={tol}: error {error:.1f} tol", flush=True)
    print(f"{n} systems: {failed} wrong, {limited} above {ALLOWED} tol but within {LIMIT},")
    print(f"{warned} with a warning, largest error {worst:.1f} tol")
    return failed


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]))))
