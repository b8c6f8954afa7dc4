"""Ridge regression of label indicators by one factorisation, with the means of columns apart."""

import numpy as np
from scipy import sparse

from sklseq._lib.inverse_root import InverseRoot
from sklseq.objectives.zscore.moments import (
    ROUNDING,
    Products,
    Sample,
    Statistics,
    count_chain,
    label_sums,
)

SUMS = 1e-13  # fraction of the largest eigenvalue that is rounding, of sums of products
CORRECTIONS = 2  # corrections of a solution by its residual, which has no part along N


class CentredRows:
    """Rows less their weighted means, Z, whatever the means.

    Dense rows are shifted, and so are the columns without a zero of sparse rows. The means of the
    other sparse columns, at most √n_rows times their spreads, are subtracted from products.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_columns)
    weights : ndarray of shape (n_rows,)
    """

    def __init__(self, rows, weights: np.ndarray):
        self.d, self.total = weights, weights.sum()
        n_rows, shape = self.total or 1.0, rows.shape
        self.means = np.asarray(weights @ rows) / n_rows
        if sparse.issparse(rows):
            counts = np.bincount(rows.indices, minlength=shape[1])
            if (counts >= shape[0]).any():
                rows = rows.copy()
                rows.sum_duplicates()
                counts = np.bincount(rows.indices, minlength=shape[1])
            self.means = np.where(counts == shape[0], self.means, 0)
            if self.means.any():
                values, means = rows.data - self.means[rows.indices], self.means[rows.indices]
                varies = np.abs(values) > ROUNDING * np.abs(means)
                varies = np.bincount(rows.indices[varies], minlength=shape[1]) > 0
                rows.data = np.where(varies[rows.indices] | (means == 0), values, 0)
            self.levels = np.asarray(weights @ rows) / n_rows
        else:
            rows = rows - self.means
            rest = weights @ rows / n_rows  # the rounding of large means
            rows -= rest
            self.means, self.levels = self.means + rest, None
            rows[:, np.abs(rows).max(axis=0) <= ROUNDING * np.abs(self.means)] = 0
        self.rows = rows
        if self.levels is not None:
            self.means = self.means + self.levels

    def times(self, V: np.ndarray) -> np.ndarray:
        """Z V."""
        scores = np.asarray(self.rows @ V)
        return scores if self.levels is None else scores - self.levels @ V

    def transposed_times(self, B: np.ndarray) -> np.ndarray:
        """Zᵀ B."""
        sums = np.asarray(self.rows.T @ B)
        return sums if self.levels is None else sums - np.outer(self.levels, B.sum(axis=0))

    def product(self, V: np.ndarray) -> np.ndarray:
        """Zᵀ diag(weights) Z V."""
        return self.transposed_times(self.d[:, None] * self.times(V))

    def gram(self) -> np.ndarray:
        """Zᵀ diag(weights) Z."""
        if self.levels is None:
            scaled = np.sqrt(self.d)[:, None] * self.rows
            return scaled.T @ scaled  # both triangles from one
        scaled = self.rows.multiply(self.d[:, None])
        return (self.rows.T @ scaled).toarray() - self.total * np.outer(self.levels, self.levels)

    def squares(self) -> np.ndarray:
        """The diagonal of Zᵀ diag(weights) Z."""
        if self.levels is None:
            return np.square(self.rows).T @ self.d
        squares = self.rows.power(2).T @ self.d - self.total * np.square(self.levels)
        return np.maximum(squares, 0)

    def label_sums(self, y: np.ndarray, n_labels: int) -> np.ndarray:
        """Zᵀ diag(weights) Y."""
        sums = label_sums(self.rows, y, self.d, n_labels)
        if self.levels is None:
            return sums
        return sums - np.outer(self.levels, np.bincount(y, self.d, n_labels))


def centred_statistics(rows: CentredRows, sample: Sample) -> Statistics:
    """Sums over labelled sequences; ``rows`` are their extended rows."""
    observed = rows.label_sums(sample.y, sample.n_labels)
    return Statistics(rows.gram(), observed, rows.means, *count_chain(sample))


class CentredInverse:
    """(C + ridge + n m mᵀ)⁻¹ for means m that may exceed the spreads of columns by any factor.

    C is the matrix of centred columns. For a right-hand side b + m sᵀ, Sherman and Morrison's
    formula has no difference of large numbers,

        V = C⁻¹ b + q (s - n mᵀC⁻¹b) / (1 + n mᵀq),   q = C⁻¹ m,
        mᵀV = (mᵀC⁻¹b + s mᵀq) / (1 + n mᵀq).

    Where m has a part u along directions that no centred row has, q is u / ridge and more; all is
    multiplied by the ridge, which may be 0.

    Parameters
    ----------
    inverse : InverseRoot
        Of C + ridge.
    means : ndarray of shape (n_columns,)
    total : float
        n, the sum of row weights.
    """

    def __init__(self, inverse: InverseRoot, means: np.ndarray, total: float):
        self.inverse, self.means, self.total = inverse, means[:, None], total
        self.direction = inverse.solve(self.means)
        self.one, unseen = 1.0, inverse.unseen(self.means)
        square = float(np.vdot(unseen, self.means))
        if square > 0:
            self.one = inverse.ridge
            self.direction = self.one * self.direction + unseen
        self.square = float(np.vdot(self.means, self.direction))
        self.excess = self.one + total * self.square

    def solve(self, b: np.ndarray, s: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
        """V, and mᵀV of shape (1, n_labels)."""
        V = self.inverse.solve(b)
        mV = self.means.T @ V
        V += self.direction * ((s - self.total * mV) / self.excess)
        mV = (self.one * mV + s * self.square) / self.excess
        if self.square > 0:  # mᵀV may be less than the rounding of C⁻¹b
            V += self.direction * ((mV - self.means.T @ V) / self.square)
        return V, mV


class SolvedRows:
    """A solution V of a system in rows X̃: attributes ``solution``, ``scores`` X̃ V and ``y``."""

    solution: np.ndarray
    scores: np.ndarray
    y: np.ndarray

    def training_scores(self, weights: np.ndarray) -> np.ndarray:
        """X̃ V, whatever the weights of rows."""
        return self.scores

    def weights(self, mix: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
        """The solution times an (n_labels, n_labels) matrix.

        Of all columns, or of the columns ``kept`` and the last two.
        """
        solution = self.solution if kept is None else self.solution[np.append(kept, [-2, -1])]
        return solution @ mix


class FactorisedRidge(SolvedRows):
    """(X̃ᵀ diag(weights) X̃ + ridge) V = X̃ᵀ diag(weights) Y by one factorisation.

    A ridge of 0 is the limit of ridges: the solution of minimum norm.

    Parameters
    ----------
    rows : CentredRows
        Of X̃.
    sample : Sample
    ridge : float
    statistics : Statistics
        :func:`centred_statistics` of these.
    """

    def __init__(self, rows: CentredRows, sample: Sample, ridge: float, statistics: Statistics):
        self.inverse = inverse = inverse_of_rows(rows, statistics.gram, ridge)
        V, mV = inverse.solve(statistics.observed, statistics.labels)
        for _ in range(0 if inverse.inverse.N.size else CORRECTIONS):
            left = -(rows.times(V) + mV)
            left[np.arange(len(sample.y)), sample.y] += 1
            left *= rows.d[:, None]
            step, of_means = inverse.solve(
                rows.transposed_times(left) - ridge * V, left.sum(axis=0)
            )
            V, mV = V + step, mV + of_means
        self.y, self.solution, self.scores = sample.y, V, rows.times(V) + mV


def inverse_of_rows(rows: CentredRows, gram: np.ndarray, ridge: float) -> CentredInverse:
    """The inverse of X̃ᵀX̃ + ridge from the rows and their products."""
    return CentredInverse(InverseRoot(gram, ridge, rows.product), rows.means, rows.total)


def inverse_of_sums(statistics: Statistics, ridge: float) -> CentredInverse:
    """The inverse of X̃ᵀX̃ + ridge from sums of products alone."""

    def product(P: np.ndarray) -> np.ndarray:
        return statistics.gram @ P

    root = InverseRoot(statistics.gram, ridge, product, noise=SUMS)
    return CentredInverse(root, statistics.means, float(statistics.labels.sum()))


def solve_sums(statistics: Statistics, ridge: float) -> tuple[np.ndarray, Products]:
    """V = (X̃ᵀX̃ + ridge)⁻¹ X̃ᵀY from sums alone, and its products."""
    V, mV = inverse_of_sums(statistics, ridge).solve(statistics.observed, statistics.labels)
    return V, sum_products(V, statistics, mV)


def sum_products(V: np.ndarray, statistics: Statistics, mV: np.ndarray | None = None) -> Products:
    """Products of weights V from sums alone; ``mV`` is mᵀV where it is known to more digits."""
    labels = statistics.labels
    if mV is None:
        mV = statistics.means[None] @ V
    observed = V.T @ statistics.observed + mV.T * labels
    return Products(observed, V.T @ statistics.gram @ V + labels.sum() * mV.T * mV)
