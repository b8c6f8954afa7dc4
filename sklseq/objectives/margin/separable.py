"""Proof that no hard margin exists: sequences whose margins contradict each other.

Weights w keep all margins, w · (φ(x_i, y_i) - φ(x_i, p)) ≥ loss(y_i, p), unless (Farkas) there are

    α ≥ 0    with    Σ_ip α_ip (φ(x_i, y_i) - φ(x_i, p)) = 0    and    Σ_ip α_ip loss(y_i, p) = 1.

If the dual has no maximum, the iterates diverge in the direction of such an α, so the paths of
large α are candidates. An α found by non-negative least squares is a proof.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from sklseq.objectives.margin.pieces import SupportPaths
from sklseq.objectives.scores.transition_features import TransitionFeatures

# Norm of the sum, relative to its longest term, below which it counts as 0: no solver finds a
# margin so narrow. The square root of a Gram matrix has rounding errors of about 1e-8.
NARROW = 1e-6
KERNELS = 1 << 20  # kernels of rows of paths that are computed at a time
FEW = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30)  # numbers of sequences tried for a contradiction


def contradiction(gram: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """Find a proof that no weights keep the margins of some paths.

    Parameters
    ----------
    gram : ndarray of shape (n_paths, n_paths)
        Inner products of φ(x_i, y_i) - φ(x_i, p).
    loss : ndarray of shape (n_paths,)

    Returns
    -------
    ndarray of shape (n_paths,)
        α of the module docstring, up to scale; all 0 if these margins can be kept.
    """
    longest = np.sqrt(gram.diagonal().max(initial=0))
    if longest == 0:
        return (np.arange(len(loss)) == 0).astype(float)
    values, vectors = np.linalg.eigh(gram)
    columns = (vectors * np.sqrt(np.clip(values, 0, None))).T / longest
    unit = loss / loss.max()
    try:
        alpha, _ = nnls(np.vstack([columns, unit]), np.append(np.zeros(len(loss)), 1.0))
    except RuntimeError:  # out of iterations
        return np.zeros(len(loss))
    narrow = np.linalg.norm(columns @ alpha) <= NARROW * (unit @ alpha)
    return alpha if narrow else np.zeros(len(loss))


def smallest_contradiction(gram: np.ndarray, loss: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Find few sequences whose margins no weights keep.

    Parameters
    ----------
    gram, loss : ndarray
        As for :func:`contradiction`.
    owner : int ndarray of shape (n_paths,)
        Sequence of each path.

    Returns
    -------
    int ndarray
        Sequences, sorted: the first 1, 2, 3, … of largest α that contradict each other.
    """
    mass = np.bincount(owner, contradiction(gram, loss))
    order = np.argsort(-mass, kind="stable")[: np.count_nonzero(mass)]
    for k in FEW:
        chosen = np.flatnonzero(np.isin(owner, order[:k]))
        if k < len(order) and contradiction(gram[np.ix_(chosen, chosen)], loss[chosen]).any():
            return np.sort(order[:k])
    return np.sort(order)


def path_gram(
    paths: SupportPaths, y: np.ndarray, n_labels: int, source: Any, scales: tuple,
    features: TransitionFeatures | None = None,
) -> np.ndarray:  # fmt: skip
    """Inner products of φ(x_i, y_i) - φ(x_i, p), for the paths p of some sequences i.

    Parameters
    ----------
    paths : SupportPaths
    y : ndarray
        Label codes of rows.
    n_labels : int
    source : CSR matrix of rows, or function ``source(a, b)`` of row numbers
        Returns the kernels of rows a with rows b.
    scales : (float, float)
        Values of the features of transitions, and of those of the first and last label.
    features : TransitionFeatures, optional
    """
    total = np.zeros((len(paths.sequence),) * 2)
    for part in state_differences(paths, y, n_labels):
        if sparse.issparse(source):
            rows = part @ source
            total += (rows @ rows.T).toarray()
        else:
            used = np.unique(part.indices)
            part = part[:, used].toarray()
            for rows in np.array_split(np.arange(len(used)), 1 + len(used) ** 2 // KERNELS):
                total += part[:, rows] @ source(used[rows], used) @ part.T
    chain = list(chain_differences(paths, y, n_labels, *scales))
    if features is not None:
        chain.append(scales[0] * link_differences(paths, y, features))
    for part in chain:
        total += (part @ part.T).toarray()
    return total


def state_differences(
    paths: SupportPaths, y: np.ndarray, n_labels: int
) -> Iterator[sparse.csr_matrix]:
    """For each label j, a matrix (n_paths, n_rows) of [y_t = j] - [p_t = j]."""
    owner, rows = paths.rows()
    apart = paths.labels != y[rows]
    owner, rows, wrong = owner[apart], rows[apart], paths.labels[apart]
    shape = (len(paths.sequence), len(y))
    for j in range(n_labels):
        values = (y[rows] == j).astype(float) - (wrong == j)
        kept = values != 0
        yield sparse.csr_matrix((values[kept], (owner[kept], rows[kept])), shape=shape)


def chain_differences(
    paths: SupportPaths, y: np.ndarray, n_labels: int, scale: float, boundary: float
) -> Iterator[sparse.csr_matrix]:
    """Differences of the features of transitions, first and last labels: (n_paths, size) each."""
    owner, rows = paths.rows()
    truth, wrong, n = y[rows].astype(int), paths.labels.astype(int), len(paths.sequence)
    inside = np.flatnonzero(owner[1:] == owner[:-1]) + 1
    first, last = paths.bounds[:-1], paths.bounds[1:] - 1
    for value, size, codes, who in (
        (scale, n_labels**2, lambda p: n_labels * p[inside - 1] + p[inside], owner[inside]),
        (boundary, n_labels, lambda p: p[first], np.arange(n)),
        (boundary, n_labels, lambda p: p[last], np.arange(n)),
    ):
        true, false = (
            sparse.csr_matrix((np.full(len(who), value), (who, codes(p))), shape=(n, size))
            for p in (truth, wrong)
        )
        yield true - false


def link_differences(
    paths: SupportPaths, y: np.ndarray, features: TransitionFeatures
) -> sparse.csr_matrix:
    """Differences of the sums of transition features: (n_paths, n_weights)."""
    owner, rows = paths.rows()
    inside = np.flatnonzero(owner[1:] == owner[:-1]) + 1
    shape, total = (len(paths.sequence), features.n_weights), 0
    for sign, labels in ((1, y[rows].astype(np.int64)), (-1, paths.labels.astype(np.int64))):
        pairs = np.full(len(rows), -1)
        pairs[inside] = features.n_labels * labels[inside - 1] + labels[inside]
        k, weight, value = features.of_pairs(rows, pairs)
        total += sparse.csr_matrix((sign * value, (owner[k], weight)), shape=shape)
    return total
