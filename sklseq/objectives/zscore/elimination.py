"""Ridge regression of label indicators on sparse rows, most columns eliminated exactly."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.index_types import index_type
from sklseq._lib.inverse_root import InverseRoot
from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import Threads, spans
from sklseq.data.sequences import Sequences, row_positions
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.scores.design import SparseRows, _linear, values_unless_ones
from sklseq.objectives.zscore.factorised import CentredInverse
from sklseq.objectives.zscore.moments import ROUNDING as CONSTANT
from sklseq.objectives.zscore.moments import Sample

BLOCK = 4_096  # rows whose scores stay in the cache
FREQUENT = 2_000  # columns whose Gram matrix is factorised, at most
ROUNDING = 50  # roundings of the whole right-hand side, below which a column's rest is nothing else
FAINT = 1e-14  # fraction of a column of O that the ridge must be for its row to be left a weight
WORTH = 100  # operations of its factorisation, n³, that one of nnz · n_labels pays for


class Entries(NamedTuple):
    """Some columns of CSR rows, as the kernels read them; ``data`` is empty where all are one."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    def owners(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def squares(self) -> np.ndarray:
        return np.square(self.data, dtype=float) if len(self.data) else np.ones(len(self.indices))

    def of_rows(self, chosen: np.ndarray) -> "Entries":
        """The entries of the rows where ``chosen`` is True; all entries must be one."""
        counts = np.diff(self.indptr)
        indptr = offsets_of(counts[chosen]).astype(self.indptr.dtype)
        return Entries(indptr, self.indices[np.repeat(chosen, counts)], self.data)


def n_frequent(nnz: int, n_labels: int) -> int:
    """Number of columns to factorise: that costs about as much as a few products with all rows."""
    return min(FREQUENT, int((WORTH * nnz * n_labels) ** (1 / 3)))


class ColumnKinds:
    """Columns by how often they occur: H, R and O of :class:`EliminatedRidge`.

    They are the same for all ridges, but for negligible ones.

    Parameters
    ----------
    sample : Sample
        With sparse rows.
    ridge : float
    dtype
        Of products.
    frequent : int, optional
        Columns of H beside the indicators; by default :func:`n_frequent`, and all without a zero
        up to 2000.

    Attributes
    ----------
    numbers : list of ndarray
        Numbers of the columns of H, R and O.
    frequent, once : Entries
        H with the two indicators and a column of ones, and O.
    rest : SparseRows
        R.
    squares : ndarray of shape (n_rows,)
        Sums of the squares of O.
    """

    def __init__(self, sample: Sample, ridge: float, dtype, frequent: int | None = None):
        rows, weights = sample.rows, sample.row_weights
        self.n_labels, self.dtype = sample.n_labels, np.dtype(dtype)
        n_rows, self.n_columns = rows.shape
        counts = np.bincount(rows.indices, minlength=self.n_columns)
        order = np.argsort(-counts, kind="stable")
        n_seen, n_shared, n_full = (int((counts > k).sum()) for k in (0, 1, n_rows - 1))
        if frequent is None:
            frequent = max(n_frequent(rows.nnz, self.n_labels), min(n_full, FREQUENT))
        cuts = (0, min(frequent, n_shared), n_shared, n_seen)
        self.largest = 0.0  # weighted square that O may have, where H has room for O
        if n_seen <= FREQUENT:
            once = counts[rows.indices] == 1
            squares = np.square(rows.data[once]) * np.repeat(weights, np.diff(rows.indptr))[once]
            self.largest = float(squares.max(initial=0))
        self.merged = self._is_faint(ridge)
        if self.merged:
            cuts = (0, n_seen, n_seen, n_seen)
        self.numbers = [order[a:b] for a, b in zip(cuts[:-1], cuts[1:])]
        self._pack(rows, sample.offsets, counts)
        squares = self.once.squares()
        self.squares = np.bincount(self.once.owners(), squares, minlength=n_rows)
        self.constant: np.ndarray | None = None

    def _is_faint(self, ridge: float) -> bool:
        # Without O, rows of weight d are rounding of others, though no less than the ridge.
        return ridge < FAINT * self.largest

    def serve(self, ridge: float, dtype) -> bool:
        """Whether the kinds are the same for this ridge."""
        return self.dtype == dtype and self.merged == self._is_faint(ridge)

    def gram(self, d: np.ndarray) -> np.ndarray:
        """The lower triangle of HᵀdH, where all entries are one.

        The sum over rows without O, whose weight does not depend on the ridge, is kept.
        """
        varies = self.squares > 0
        if self.constant is None:
            n = len(self.numbers[0]) + 3
            self.constant, self.varying = np.zeros((n, n)), self.frequent.of_rows(varies)
            _linear.weighted_gram(*self.frequent.of_rows(~varies), d[~varies], self.constant)
        gram = self.constant.copy()
        _linear.weighted_gram(*self.varying, d[varies], gram)
        return gram

    def _pack(self, rows, offsets: np.ndarray, counts: np.ndarray) -> None:
        n_rows, data = rows.shape[0], values_unless_ones(rows, np.float64)
        first, last, _ = row_positions(offsets)
        flags = np.ones((n_rows, 3), dtype=np.uint8)
        flags[last, 0] = flags[first, 1] = 0
        self.frequent = self._take(rows, data, self.numbers[0], counts, flags)
        data = data.astype(self.dtype, copy=False)
        R, self.once = (self._take(rows, data, chosen, counts, None) for chosen in self.numbers[1:])
        matrix = sparse.csr_matrix(
            (R.data if len(R.data) else np.ones(len(R.indices), self.dtype), R.indices, R.indptr),
            shape=(n_rows, len(self.numbers[1])),
        )
        packed = Sequences(matrix, np.array([0, n_rows], dtype=np.int64))
        self.rest = SparseRows(packed, _chain.padded_width(self.n_labels), self.dtype)
        self.numbers[1] = self.numbers[1][self.rest.order]

    def _take(self, rows, data, chosen, counts, flags) -> Entries:
        number = np.full(self.n_columns, -1, dtype=np.int32)
        number[chosen] = np.arange(len(chosen), dtype=np.int32)
        size = int(counts[chosen].sum()) + (0 if flags is None else int(flags.sum()))
        indptr, indices = np.empty(rows.shape[0] + 1, np.int64), np.empty(size, np.int32)
        taken = np.empty(size if len(data) else 0, dtype=data.dtype)
        _linear.take_columns(
            rows.indptr, rows.indices, data, number, indptr, indices, taken, flags, len(chosen)
        )
        kind = index_type(size)
        return Entries(indptr.astype(kind), indices.astype(kind, copy=False), taken)


class EliminatedRidge:
    """(X̃ᵀ diag(weights) X̃ + ridge) V = X̃ᵀ diag(weights) Y, for sparse rows and a ridge above 0.

    X̃ are the rows with the two indicators of :mod:`~sklseq.objectives.zscore.moments`. Its
    columns are of three kinds, and conjugate gradients solve for one of them only:

    * O, those in one row only, unless the ridge is negligible beside them. Given the other
      weights, such a column is fitted to the residual of its row, which leaves the row a weight of
      d = weights · ridge / (ridge + weights · Σ x²).
    * H, the most frequent and the two indicators: their G = HᵀdH + ridge is inverted, as below.
    * R, the rest. What remains is the Schur complement of H,

          (Rᵀ d R + ridge - Rᵀ d H G⁻¹ Hᵀ d R) V = Rᵀ d (Y - H G⁻¹ Hᵀ d Y).

    A product with it reads X̃ as often as one with the whole matrix, but frequent columns cause
    the large condition number: on text, five iterations replace nearly thirty.

    Means may exceed spreads by any factor: H has a constant column, whose weight is the part of the
    means in the scores; columns without a zero are stored minus their means; and G is inverted by
    :class:`~sklseq.objectives.zscore.factorised.CentredInverse`.

    Parameters
    ----------
    sample : Sample
        With sparse rows.
    ridge, threads, dtype
        ``dtype`` is that of products; float32 needs half the memory traffic.
    frequent : int, optional
        As of :class:`ColumnKinds`.
    kinds : ColumnKinds, optional
        That serve this ridge; for several ridges of the same rows.

    Attributes
    ----------
    gradient : ndarray of shape (n_rest, n_labels)
        Right-hand side.
    preconditioner : ndarray of shape (n_rest,)
        Inverse of the diagonal of Rᵀ d R + ridge.
    inverse : InverseRoot
        Of C.
    """

    def __init__(
        self, sample: Sample, ridge: float, threads: Threads, dtype=np.float64,
        frequent: int | None = None, kinds: ColumnKinds | None = None,
    ):  # fmt: skip
        self.y, self.n_labels, self.ridge, self.threads = sample.y, sample.n_labels, ridge, threads
        self.kinds = kinds or ColumnKinds(sample, ridge, dtype, frequent)
        self.dtype, self.width = self.kinds.dtype, self.kinds.rest.width
        self.columns = self.kinds.numbers
        self.frequent, self.rest = self.kinds.frequent, self.kinds.rest
        self._reduce(sample.row_weights)
        self._shift()
        self._factorise(shares=kinds is not None)
        self._right_hand_side()

    # ------------------------------------------------------------------ set-up

    def _reduce(self, weights: np.ndarray) -> None:
        # Row weights d.
        self.d = weights * self.ridge / (self.ridge + weights * self.kinds.squares)
        self.scales = self.d.astype(self.dtype)[:, None]

    def _shift(self) -> None:
        # Columns of H without a zero less their means; then all in the precision of products.
        H, self.shifts = self.frequent, np.zeros(len(self.columns[0]) + 2)
        if len(H.data):
            owners = H.owners()
            counts = np.bincount(H.indices, minlength=len(self.shifts))[: len(self.columns[0])]
            candidates = H.indices < (counts >= len(self.y)).sum()  # columns go by counts
            at, entry = owners[candidates], H.indices[candidates]
            filled = np.zeros((len(self.y), 1 + entry.max(initial=-1)), dtype=bool)
            filled[at, entry] = True
            sums = np.bincount(entry, self.d[at] * H.data[candidates], len(self.shifts))
            # SciPy adds up repeated entries of a row, so each would be less the mean.
            full = np.flatnonzero(filled.all(axis=0) & (counts[: filled.shape[1]] == len(filled)))
            self.shifts[full] = sums[full] / self.d.sum()
            values = H.data[candidates] - self.shifts[entry]
            # A constant column's rest is rounding, of which centring would make a column.
            sums, squares = (
                np.bincount(entry, self.d[at] * values**k, len(self.shifts)) for k in (1, 2)
            )
            spread = squares - np.square(sums) / self.d.sum()
            constant = spread <= self.d.sum() * np.square(CONSTANT * self.shifts)
            values[(constant & (self.shifts != 0))[entry]] = 0
            H = H._replace(data=H.data.copy())
            H.data[candidates] = values
        self.frequent = H._replace(data=H.data.astype(self.dtype, copy=False))

    def _factorise(self, shares: bool) -> None:
        n = len(self.columns[0])
        if shares and not len(self.frequent.data):
            gram = self.kinds.gram(self.d)
        else:
            gram = np.zeros((n + 3, n + 3))
            _linear.weighted_gram(*self.frequent, self.d, gram)
        # The indicators are columns of ones here, and of 1 / √L in X̃: their ridge is L times that.
        self.sizes = np.ones((n + 2, 1))
        self.sizes[n:] = self.n_labels**-0.5
        self.ridges = self.ridge / np.square(self.sizes)
        self.total, self.levels = gram[-1, -1], gram[-1:, :-1].T / gram[-1, -1]
        gram = gram[:-1, :-1] - self.total * self.levels * self.levels.T
        gram[np.diag_indices(n + 2)] = np.maximum(gram.diagonal(), 0)
        self.units = (gram.diagonal()[:, None] + self.ridges) ** -0.5
        self.inverse = InverseRoot(gram, self.ridges[:, 0], self._frequent_product)
        self.means = self.shifts[:, None] + self.levels
        self.centred = CentredInverse(self.inverse, self.means[:, 0], self.total)
        squares = np.bincount(
            self.rest.indices, self._rest_squares(), minlength=self.rest.n_features
        )
        self.preconditioner = (1 / (squares + self.ridge)).astype(self.dtype)

    def _frequent_product(self, P: np.ndarray) -> np.ndarray:
        # C P without the ridge, from rows.
        H = self.frequent
        data = H.data if len(H.data) else np.ones(len(H.indices))
        rows = sparse.csr_matrix((data, H.indices, H.indptr), (len(self.y), len(P) + 1))[:, :-1]
        scores = self.d[:, None] * (rows @ P - self.levels.T @ P)
        return rows.T @ scores - self.levels * scores.sum(axis=0)

    def _rest_squares(self) -> np.ndarray:
        weights = np.repeat(self.d, np.diff(self.rest.indptr))
        if len(self.rest.data):
            weights *= np.square(self.rest.data, dtype=np.float64)
        return weights

    def _right_hand_side(self) -> None:
        n_rows = len(self.y)
        self.residual = aligned_zeros(n_rows * self.width, self.dtype).reshape(-1, self.width)
        self.padded, self.product = np.split(aligned_zeros(2 * self.rest.n_weights, self.dtype), 2)
        self.pieces = spans(n_rows, self.threads.n)
        self.residual[np.arange(n_rows), self.y] = 1
        by_frequent = self._collect_frequent()
        V = -self._solve_frequent(by_frequent)
        self.gradient = self._transposed(V)[:, : self.n_labels].copy()
        # Labels that H explains up to rounding leave R nothing to do.
        self.lengths = self._lengths(self.gradient)
        whole = -np.einsum("ij,ij->j", by_frequent, V)[: self.n_labels] + self.lengths**2
        self.rounding = ROUNDING * np.finfo(self.dtype).eps * np.sqrt(whole)
        self.gradient[:, self.lengths <= self.rounding] = 0

    def _lengths(self, of_rest: np.ndarray) -> np.ndarray:
        # Lengths of the columns, in units in which the diagonal is 1.
        return np.sqrt(np.einsum("ij,ij,i->j", of_rest, of_rest, self.preconditioner, dtype=float))

    # ------------------------------------------------------------------ products

    def _each_block(self, work, new_buffer) -> list[np.ndarray]:
        # Calls work(a, b, buffer) on runs of rows that fit the cache; each thread has one buffer.
        def through(piece: tuple[int, int]) -> np.ndarray:
            buffer = new_buffer()
            for a in range(*piece, BLOCK):
                work(a, min(a + BLOCK, piece[1]), buffer)
            return buffer

        return self.threads.map(through, self.pieces)

    def _collect_frequent(self, W: np.ndarray | None = None, scaled: bool = False) -> np.ndarray:
        # Hᵀ d residual; with W, the residual is first set to the scores of R's columns.
        begin, stop = self.frequent.indptr[:-1], self.frequent.indptr[1:]

        def work(a: int, b: int, total: np.ndarray) -> None:
            block, part = self.residual[a:b], np.zeros(total.shape, self.dtype)
            if W is not None:
                self.rest.scores(W, a, b, block)
            _linear.scatter_rows(
                begin[a:b], stop[a:b], self.frequent.indices, self.frequent.data,
                block if scaled else block * self.scales[a:b], part,
            )  # fmt: skip
            total += part  # float32 sums over all rows would be the largest error

        return sum(self._each_block(work, lambda: np.zeros((len(self.ridges) + 1, self.width))))

    def _solve_frequent(self, sides: np.ndarray) -> np.ndarray:
        # Weights of H and of the constant from padded products with both.
        solution, n = np.zeros((len(sides), self.width)), self.n_labels
        sides, s = sides[:-1, :n], sides[-1, :n]
        V, mV = self.centred.solve(sides - self.levels * s, s)
        solution[:-1, :n] = V
        solution[-1, :n] = mV - self.levels.T @ V
        return solution

    def _transposed(self, V: np.ndarray, ridge: float = 0.0) -> np.ndarray:
        # Rᵀ d (residual + H V) + ridge · padded; the residual is left as it is multiplied.
        W, H = np.ascontiguousarray(V, dtype=self.dtype), self.frequent

        def work(a: int, b: int, buffer: np.ndarray) -> None:
            block = self.residual[a:b]
            indptr = H.indptr[a : b + 1]  # block += H W
            _linear.gather_rows(indptr, H.indices, H.data, W, block, 0, b - a, block, 1.0)
            block *= self.scales[a:b]
            self.rest.collect(block, a, buffer)

        buffers = self._each_block(work, self.rest.new_buffer)
        self.rest.finish(self.residual, buffers, self.padded, ridge, self.product, self.threads)
        return self.product.reshape(-1, self.width)

    def hessian_product(self, P: np.ndarray) -> np.ndarray:
        """The Schur complement times a block of at most ``n_labels`` columns; until the next."""
        W = self.padded.reshape(-1, self.width)
        W[:, : P.shape[1]], W[:, P.shape[1] :] = P, 0
        V = -self._solve_frequent(self._collect_frequent(W))
        return self._transposed(V, self.ridge)[:, : P.shape[1]]

    # ------------------------------------------------------------------ the whole solution

    def finish(self, V: np.ndarray) -> float:
        """Take V as the weights of R's columns and find the others.

        Returns
        -------
        float
            Length of the residual, computed anew and in units in which the diagonal is 1, as a
            share of that of ``gradient``: of the label where it is largest. Rounding does not
            count.
        """
        W = self.padded.reshape(-1, self.width)
        W[:, : self.n_labels], W[:, self.n_labels :] = V, 0
        R, residual = self.rest, self.residual
        self._each_block(lambda a, b, _: R.scores(W, a, b, residual[a:b]), lambda: None)
        np.negative(residual, out=residual)
        residual[np.arange(len(self.y)), self.y] += 1
        self.of_rest = V
        self.of_frequent = self._solve_frequent(self._collect_frequent())
        left = self._transposed(-self.of_frequent, -self.ridge)  # residual: d (Y - X̃ V)
        squares = np.square(self._lengths(left[:, : self.n_labels]))
        squares += self._left_to_frequent()
        excess = np.maximum(np.sqrt(squares) - self.rounding, 0)
        return float(np.max(excess / np.where(self.lengths > 0, self.lengths, 1)))

    def _left_to_frequent(self) -> np.ndarray:
        # Squared lengths of the residual of H's columns, in units in which the diagonal of C is 1
        # and the direction of the means as short as n m mᵀ makes it.
        left = self._collect_frequent(scaled=True)[:, : self.n_labels]
        weights = self.of_frequent[:-1, : self.n_labels]
        left = left[:-1] + self.shifts[:, None] * left[-1] - self.ridges * weights
        left, m = self.units * left, self.units * self.means
        square = float(np.vdot(m, m))
        if square > 0:
            left += m * (((1 + self.total * square) ** -0.5 - 1) / square * (m.T @ left))
        return np.square(left).sum(axis=0)

    def training_scores(self, weights: np.ndarray) -> np.ndarray:
        """X̃ V; 1 for the true label of a row of weight 0."""
        L = self.n_labels
        lost = np.divide(1, weights, where=weights > 0, out=np.zeros_like(weights))[:, None]
        scores = -lost * self.residual[:, :L]  # O leaves d / weights of what the others leave
        scores[np.arange(len(self.y)), self.y] += 1
        return scores

    def weights(self, mix: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
        """The solution times an (n_labels, n_labels) matrix.

        Of shape (n_columns + 2, n_labels), or those of the columns ``kept`` and the last two.
        """
        L, n = self.n_labels, self.kinds.n_columns
        place = np.arange(n) if kept is None else np.full(n, -1)
        if kept is not None:
            n = len(kept)
            place[kept] = np.arange(n)
        frequent, rest, once = (place[columns] for columns in self.columns)
        out = np.zeros((n + 2, L))
        of_frequent = self.of_frequent[:-1, :L] @ mix
        of_frequent /= self.sizes
        _put(out, frequent, of_frequent[:-2])
        out[-2:] = of_frequent[-2:]
        for a, b in spans(len(rest), 1 + len(rest) // BLOCK):
            _put(out, rest[a:b], self.of_rest[a:b] @ mix)
        self._fill_once(out, once, mix / self.ridge)
        return out

    def _fill_once(self, out: np.ndarray, columns: np.ndarray, mix: np.ndarray) -> None:
        indptr, indices, values = self.kinds.once
        for a in range(0, len(self.y), BLOCK):
            ends = indptr[a : a + BLOCK + 1]
            entries = slice(ends[0], ends[-1])
            left = self.residual[a : a + BLOCK, : self.n_labels] @ mix
            left = np.repeat(left, np.diff(ends), axis=0)
            if len(values):
                left *= values[entries, None]
            _put(out, columns[indices[entries]], left)


def _put(out: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    # out[places] = values, but for places of -1.
    known = places >= 0
    if known.all():
        out[places] = values
    else:
        out[places[known]] = values[known]
