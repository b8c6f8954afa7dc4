"""Kernels between rows: named, callable or precomputed, and their Gram matrix."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg.lapack import dpotrf, spotrf
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

from sklseq._lib.checks import check_number, is_number
from sklseq._lib.threads import Threads
from sklseq._lib.tiny import TINY
from sklseq.data.sequences import canonical

NAMES = ("linear", "poly", "rbf", "precomputed")
BLOCK = 1 << 22  # entries of the Gram matrix computed at a time
LEAST_PART = 64  # rows of the Gram matrix computed at a time, at least
MOST_ROWS = 1000  # largest number of rows whose kernels with all rows are computed at once
RBF_OF_FLOAT32 = 1e3  # largest gamma · ‖x‖² for which "rbf" in float32 has errors below 1e-4
LARGEST = {"float32": 1e30, "float64": 1e100}  # limits of kernel values
RIDGES = (1e-10, 1e-8, 1e-6, 1e-4)  # fractions of the mean diagonal, tried in this order
NEGATIVE = 1e-6  # largest effect of float32 rounding on an eigenvalue, over the Frobenius norm


class RowKernel(NamedTuple):
    """k(x, z) for rows x and z."""

    kernel: str | Callable
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __call__(self, A: Any, B: Any) -> np.ndarray:
        """The matrix k(A[i], B[j]), checked."""
        A, B = canonical(A), canonical(B)  # scikit-learn's "rbf" takes squares of stored values
        with np.errstate(over="ignore", invalid="ignore"):
            return _checked(self._values(A, B), (A.shape[0], B.shape[0]), self.kernel)

    def _values(self, A: Any, B: Any) -> Any:
        if self.kernel == "linear":
            return linear_kernel(A, B)
        if self.kernel == "poly":
            return polynomial_kernel(A, B, degree=self.degree, gamma=self.gamma, coef0=self.coef0)
        if self.kernel == "rbf":
            B, A = centred(B, A)
            return rbf_kernel(A, B, gamma=self.gamma)
        return self.kernel(A, B)


def centred(rows: Any, *others: Any) -> list:
    """Subtract the mean of ``rows`` from all: distances between rows far from 0 lose precision.

    Sparse matrices are not centred, unless more than half of the entries of ``rows`` are stored, so
    that arrays take no more memory.
    """
    found = [rows, *others]
    if sparse.issparse(rows) and 2 * rows.nnz > rows.shape[0] * rows.shape[1]:
        found = [x.toarray() if sparse.issparse(x) else x for x in found]
    if any(sparse.issparse(x) for x in found):
        return found
    centre = found[0].mean(axis=0)
    return [x - centre for x in found]


def _checked(block: Any, shape: tuple[int, int], kernel: str | Callable) -> np.ndarray:
    block = block.toarray() if sparse.issparse(block) else np.asarray(block)
    if block.shape != shape:
        found = f"shape {block.shape}" if block.ndim else repr(block.item())
        raise ValueError(
            f"kernel must return a matrix of shape {shape}, one row and one column for each row "
            f"of its two arguments; got {found}."
        )
    if block.dtype.kind not in "biuf":
        raise ValueError(f"kernel must return finite real numbers; got dtype {block.dtype}.")
    limit, worst = LARGEST.get(block.dtype.name, 1e100), _magnitude(block)
    if not worst <= limit:  # also where it is NaN
        name = "the callable" if callable(kernel) else repr(kernel)
        raise ValueError(
            f"kernel must return finite real numbers of magnitude at most {limit:.0e}; {name} "
            f"gave {worst:.3g}. Scale the features, e.g. by PerToken(StandardScaler()), or lower "
            "gamma or degree."
        )
    return block


def _magnitude(block: np.ndarray) -> float:
    return max(float(block.max()), -float(block.min())) if block.size else 0.0


def check_kernel(tagger: Any) -> None:
    """Raise on bad ``kernel``, ``gamma``, ``degree`` or ``coef0``."""
    if not callable(tagger.kernel) and tagger.kernel not in NAMES:
        raise ValueError(f"kernel must be one of {NAMES} or a callable; got {tagger.kernel!r}.")
    if is_number(tagger.gamma):
        if not 0 < tagger.gamma < np.inf:
            raise ValueError(f"gamma must be above 0 and finite; got {tagger.gamma!r}.")
    elif tagger.gamma not in ("scale", "auto"):
        raise ValueError(f"gamma must be 'scale', 'auto' or a number; got {tagger.gamma!r}.")
    check_number("degree", tagger.degree, least=1, whole=True)
    if not is_number(tagger.coef0) or not 0 <= tagger.coef0 < np.inf:
        raise ValueError(
            "coef0 must be finite and at least 0, otherwise the kernel is indefinite; got "
            f"{tagger.coef0!r}."
        )


def resolve_gamma(gamma: str | float, rows: Any) -> float:
    """ "scale" and "auto" as in scikit-learn's SVC: 1 / (n_features · variance), 1 / n_features."""
    if is_number(gamma):
        return float(gamma)
    n = rows.shape[1]
    if gamma == "auto":
        return 1.0 / n
    mean, variance = _moments(rows)
    if variance <= (4 * np.finfo(np.float64).eps * mean) ** 2:  # equal numbers, up to rounding
        return 1.0
    if 1.0 / np.finfo(np.float64).max > n * variance:
        raise ValueError(
            "gamma='scale' is 1 / (n_features · variance of X), which is infinite: the variance is "
            f"{variance:.3g}. Scale the features, e.g. by PerToken(StandardScaler()), or give "
            "gamma a number."
        )
    return 1.0 / (n * variance)


def row_kernel(tagger: Any, rows: Any) -> RowKernel:
    """The kernel that the parameters of a tagger ask for."""
    gamma = resolve_gamma(tagger.gamma, rows) if tagger.kernel in ("poly", "rbf") else 1.0
    return RowKernel(tagger.kernel, gamma, int(tagger.degree), float(tagger.coef0))


def _moments(rows: Any) -> tuple[float, float]:
    # Mean and variance of all entries, in two passes, since E[x²] - E[x]² loses precision.
    stored = canonical(rows).data if sparse.issparse(rows) else rows
    stored = np.asarray(stored, dtype=np.float64)
    size = rows.shape[0] * rows.shape[1]
    mean = float(stored.sum() / size)
    squares = float(np.square(stored - mean).sum()) + (size - stored.size) * mean**2
    return mean, squares / size


def gram_matrix(
    kernel: RowKernel, rows: Any, cache_size: float, threads: Threads | None = None
) -> np.ndarray:
    """Return k between all rows, float64, computed block by block, by several threads if named.

    Raises
    ------
    ValueError
        If it needs more than ``cache_size`` megabytes, has the wrong shape, is not symmetric, or is
        not positive semi-definite. Symmetry and definiteness are tested for a callable or given
        matrix only; the test takes n³/3 operations and 4 n² bytes.
    """
    n = rows.shape[0]
    megabytes = 8 * n**2 / 1e6
    if not fits(n, cache_size):
        most = int((cache_size * 1e6 / 8) ** 0.5)
        raise ValueError(
            f"The Gram matrix of {n:,} rows needs {_size(megabytes)} MB, and cache_size allows "
            f"{_size(cache_size)} MB, enough for {most:,} rows. Raise cache_size, use "
            "HMSVMTagger(solver='bcfw'), which computes kernels on demand, ZScoreTagger with "
            "n_landmarks, or kernel='linear' on approximate features of the rows, as made by "
            "scikit-learn's Nystroem."
        )
    if kernel.kernel == "precomputed":
        _check_square(rows)
        dense = rows.toarray() if sparse.issparse(rows) else rows
        gram = np.ascontiguousarray(dense, dtype=np.float64)
    else:
        gram = _kernels_of_all(kernel, canonical(rows), threads or Threads(1))
    if callable(kernel.kernel) or kernel.kernel == "precomputed":
        _check_definite(gram)
    return gram


def _kernels_of_all(kernel: RowKernel, rows: Any, threads: Threads) -> np.ndarray:
    n = rows.shape[0]
    gram = np.empty((n, n))
    step = max(1, min(BLOCK // max(n, 1), max(LEAST_PART, n // 8)))
    parts = [slice(a, min(a + step, n)) for a in range(0, n, step)]

    def fill(part: slice) -> None:  # the rows up to its last one: named kernels are symmetric
        gram[part, : part.stop] = kernel(rows[part], rows[: part.stop])
        gram[: part.start, part] = gram[part, : part.start].T

    if callable(kernel.kernel):
        for part in parts:
            gram[part] = kernel(rows[part], rows)
    else:
        threads.map(fill, parts[::-1])  # the longest first
    return gram


def fits(n_rows: int, cache_size: float) -> bool:
    """Whether the Gram matrix of ``n_rows`` rows takes at most ``cache_size`` megabytes."""
    return 8 * n_rows**2 <= cache_size * 1e6


class KernelRows:
    """Kernels of some training rows with all of them, computed on demand in single precision.

    "rbf" on rows of large norm is computed in double precision.

    Parameters
    ----------
    kernel : RowKernel
    rows : ndarray or CSR matrix
        With "precomputed", the Gram matrix.
    cache_size : float
        Megabytes for kernel values and for the buffers of their computation.

    Attributes
    ----------
    n_block : int
        Rows of a block, whose kernels with each other are kept; larger blocks need fewer passes.
    n_part : int
        Rows whose kernels with all rows are computed at once.
    n_sweeps : int
        Further updates of each sequence of a block, which are cheap while its kernels are kept.

    Raises
    ------
    ValueError
        If the Gram matrix of the first block of rows fails the tests of :func:`gram_matrix`; other
        rows are not tested.
    """

    n_sweeps = 8

    def __init__(self, kernel: RowKernel, rows: Any, cache_size: float):
        self.kernel, n, rows = kernel, rows.shape[0], canonical(rows)
        if kernel.kernel == "precomputed":
            _check_square(rows)
        self.n_block = int(np.clip((cache_size * 1e6 / 16) ** 0.5, 1, n))
        self.n_part = int(np.clip(cache_size * 1e6 / (16 * n), 1, MOST_ROWS))
        is_single = kernel.kernel in NAMES and kernel.kernel != "precomputed"
        if kernel.kernel == "rbf":
            (rows,) = centred(rows)
        if kernel.kernel == "rbf" and not sparse.issparse(rows):
            is_single = (
                kernel.gamma * np.einsum("ij,ij->i", rows, rows).max(initial=0) <= RBF_OF_FLOAT32
            )
        with np.errstate(over="ignore"):
            self.rows = rows.astype(np.float32) if is_single else rows
        self._held = np.zeros(0)
        if callable(kernel.kernel) or kernel.kernel == "precomputed":
            _check_definite(self.gram(np.arange(min(n, self.n_block))))

    def between(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Kernels of rows a with rows b, float64."""
        A = self.rows[a]
        if self.kernel.kernel == "precomputed":
            return A[:, b].toarray() if sparse.issparse(A) else A[:, b]
        return self._between(A, self.rows[b])

    def gram(self, rows: np.ndarray) -> np.ndarray:
        """Kernels of these rows with each other, float64; overwritten by the next call."""
        n, A = len(rows), self.rows[rows]
        if self._held.size < n**2:
            self._held = np.empty(n**2)  # kept: allocation costs more than the kernels
        found = self._held[: n**2].reshape(n, n)
        if self.kernel.kernel == "precomputed":
            found[:] = A[:, rows].toarray() if sparse.issparse(A) else A[:, rows]
            return found
        for a in range(0, n, MOST_ROWS):
            found[a : a + MOST_ROWS] = self._between(A[a : a + MOST_ROWS], A)
        return found

    def block(self, rows: np.ndarray) -> np.ndarray:
        """Kernels of these rows with all rows, of shape (len(rows), n_rows), float32."""
        A = self.rows[rows]
        if self.kernel.kernel != "precomputed":
            A = self._between(A, self.rows)
        block = A.toarray() if sparse.issparse(A) else A
        if block.dtype == np.float32:
            return block
        with np.errstate(over="ignore"):
            return _checked(block.astype(np.float32), block.shape, self.kernel.kernel)

    def _between(self, A: Any, B: Any) -> np.ndarray:
        if self.kernel.kernel == "rbf" and not sparse.issparse(A):
            return _rbf(A, B, self.kernel.gamma)
        return self.kernel(A, B)


def _rbf(A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
    # exp(-gamma · ‖a - b‖²) in the precision of the rows; scikit-learn's computes in double.
    found = A @ B.T
    found *= 2
    found -= np.einsum("ij,ij->i", A, A)[:, None]
    found -= np.einsum("ij,ij->i", B, B)
    np.minimum(found, 0, out=found)
    found *= A.dtype.type(gamma)
    return np.exp(found, out=found)


def _size(megabytes: float) -> str:
    return f"{megabytes:,.0f}" if megabytes >= 10 else f"{megabytes:.2g}"


def gram_factor(gram: np.ndarray) -> np.ndarray:
    """Return lower triangular R with R Rᵀ = gram + ridge · I, where the ridge offsets rounding.

    Cost n³/3, and as much memory as ``gram``.
    """
    for ridge in RIDGES:
        factor = np.array(gram, order="C")
        factor.flat[:: len(gram) + 1] += ridge * max(np.trace(gram) / len(gram), TINY)
        # LAPACK stores by columns: the upper triangle of the transpose is the lower one of gram.
        _, failed = dpotrf(factor.T, clean=True, overwrite_a=True)
        if not failed:
            break
    return factor


def _check_square(rows: Any) -> None:
    n, m = rows.shape
    if n != m:
        raise ValueError(
            "With kernel='precomputed', rows of X hold their kernel with every training row, so X "
            f"must have as many columns as rows in all sequences, {n}; got {m} columns. To search "
            "parameters, use HMSVMTaggerCV or ZScoreTaggerCV, which cut columns with the folds, "
            "not GridSearchCV."
        )


def _check_definite(gram: np.ndarray) -> None:
    norm = float(np.linalg.norm(gram))
    if norm == 0:
        return
    _check_symmetric(gram)
    unit = np.divide(gram, norm, out=np.empty(gram.shape, np.float32), casting="same_kind")
    unit.flat[:: len(unit) + 1] += NEGATIVE
    _, n_first = spotrf(unit.T, clean=False, overwrite_a=True)  # Cholesky stops at a negative pivot
    if n_first > 0:
        which = "first training row" if n_first == 1 else f"first {n_first} training rows"
        raise ValueError(
            f"The kernel must be positive semi-definite; on the {which} its "
            "matrix has a negative eigenvalue. Training needs a semidefinite one: use another "
            "kernel."
        )


def _check_symmetric(gram: np.ndarray) -> None:
    largest, step = _magnitude(gram), max(1, BLOCK // len(gram))
    for a in range(0, len(gram), step):
        apart = np.abs(gram[a : a + step] - gram[:, a : a + step].T)
        i, j = np.unravel_index(apart.argmax(), apart.shape)
        if apart[i, j] > 1e-6 * largest:
            raise ValueError(
                f"The kernel must be symmetric; rows {a + i} and {j} give {gram[a + i, j]:.6g} one "
                f"way and {gram[j, a + i]:.6g} the other."
            )
