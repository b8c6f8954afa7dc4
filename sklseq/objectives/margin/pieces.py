"""Pieces of sequences, whose dual variables are updated one piece after the other.

Where a path returns to the true label, its violation of the margin is a sum over the runs of rows
in which it is wrong:

    loss(y, p) + F(x, p) - F(x, y) = Σ_runs (loss + F of p - F of y, with the transitions around),

if the loss adds up over rows. So paths that keep the true label of a row t are pairs of a path
before t and one after it, and their slack (L1, or none) is a sum of two: a sequence, restricted
to such paths, is two sequences that share row t, which their paths *hold*. α of the one and α of
the other, each of sum at most C, are together as good as α of their pairs (``regroup``).

A piece is a run of *free* rows and the held rows beside it. It is worthwhile where most rows are
certain: they are in no piece and cost nothing, and a step changes few rows instead of all.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklseq._lib.ragged import offsets_of, ranges
from sklseq.data.sequences import row_positions

SEED, N_CODES = 20031, 1 << 12  # of the random numbers by which equal paths are recognised


class Pieces(NamedTuple):
    """Runs of rows of sequences.

    Attributes
    ----------
    owner : int64 ndarray of shape (n_pieces,)
        Sequence of each piece.
    first, stop : int64 ndarray of shape (n_pieces,)
        Its rows, of which neighbours may share one that both hold.
    held : uint8 ndarray of shape (2, n_pieces)
        Whether its first and its last row keep their true labels.
    """

    owner: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    held: np.ndarray


def whole_sequences(offsets: np.ndarray) -> Pieces:
    """Each sequence as one piece, with all its rows free."""
    n = len(offsets) - 1
    first, stop = np.array(offsets[:-1]), np.array(offsets[1:])
    return Pieces(np.arange(n), first, stop, np.zeros((2, n), np.uint8))


def cut(offsets: np.ndarray, free: np.ndarray) -> Pieces:
    """A piece for each longest run of free rows of a sequence; ``free``: one entry for a row."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    linked = np.zeros(len(free) + 1, dtype=bool)  # to the row before
    linked[1:-1] = free[1:] & free[:-1] & (owner[1:] == owner[:-1])
    first = np.flatnonzero(free & ~linked[:-1])
    stop = np.flatnonzero(free & ~linked[1:]) + 1
    owner = owner[first]
    held = np.stack([first > offsets[owner], stop < offsets[owner + 1]]).astype(np.uint8)
    return Pieces(owner, first - held[0], stop + held[1], held)


def widened(free: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Rows that are free, or beside a free row of the same sequence."""
    first, last, _ = row_positions(offsets)
    before, after = np.append(free[1:], False), np.append(False, free[:-1])
    before[last], after[first] = False, False
    return free | before | after


class WrongRows(NamedTuple):
    """Wrong paths by the rows in which they err.

    Attributes
    ----------
    piece : int64 ndarray of shape (n_paths,)
        Number of the piece of each path, in the order of rows.
    alpha : ndarray of shape (n_paths,)
    path, row, label : ndarray of shape (n_wrong,)
        Sorted by path and row.
    """

    piece: np.ndarray
    alpha: np.ndarray
    path: np.ndarray
    row: np.ndarray
    label: np.ndarray

    def select(self, chosen: np.ndarray) -> "WrongRows":
        """Paths by number, in this order."""
        bounds = np.searchsorted(self.path, np.arange(len(self.piece) + 1))
        rows, number = spread(bounds[chosen], np.diff(bounds)[chosen])
        piece, alpha = self.piece[chosen], self.alpha[chosen]
        return WrongRows(piece, alpha, number, self.row[rows], self.label[rows])


class SupportPaths(NamedTuple):
    """Wrong paths with α > 0: each by its labels in some rows; in the others it has the true ones.

    Attributes
    ----------
    sequence, first : int64 ndarray of shape (n_paths,)
        Sequence of each path, and the row of its first label. Paths of one sequence and one first
        row share one limit of their sum of α.
    alpha, loss : ndarray of shape (n_paths,)
    bounds : int64 ndarray of shape (n_paths + 1,)
        Labels of path k: ``labels[bounds[k]:bounds[k + 1]]``.
    labels : int ndarray
    """

    sequence: np.ndarray
    first: np.ndarray
    alpha: np.ndarray
    loss: np.ndarray
    bounds: np.ndarray
    labels: np.ndarray

    def select(self, chosen: np.ndarray) -> "SupportPaths":
        """Paths by number."""
        lengths = np.diff(self.bounds)[chosen]
        kept = (values[chosen] for values in self[:4])
        labels = self.labels[ranges(self.bounds[chosen], lengths)]
        return SupportPaths(*kept, offsets_of(lengths), labels)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """(number of the path, row of the data) of each label."""
        rows, path = spread(self.first, np.diff(self.bounds))
        return path, rows

    def wrong_rows(self, y: np.ndarray) -> WrongRows:
        """Their wrong rows; for the number of a piece, its first row."""
        path, rows = self.rows()
        wrong = np.flatnonzero(self.labels != y[rows])
        return WrongRows(self.first, self.alpha, path[wrong], rows[wrong], self.labels[wrong])

    def labelings(
        self, offsets: np.ndarray, y: np.ndarray
    ) -> Iterator[tuple[int, np.ndarray, float]]:
        """(sequence, labels, α) of wrong paths of whole sequences with the same Σ α φ.

        By sequence, the largest α first, and Σ α of a sequence no larger than of its pieces.
        """
        wrong = regroup(self.wrong_rows(y), whole_sequences(offsets))
        bounds = np.searchsorted(wrong.path, np.arange(len(wrong.piece) + 1))
        for k in np.lexsort([-wrong.alpha, wrong.piece]):
            s, cells = int(wrong.piece[k]), slice(bounds[k], bounds[k + 1])
            labels = y[offsets[s] : offsets[s + 1]].copy()
            labels[wrong.row[cells] - offsets[s]] = wrong.label[cells]
            yield s, labels, float(wrong.alpha[k])


def regroup(paths: WrongRows, after: Pieces) -> WrongRows:
    """The paths of other pieces that have the same Σ α φ, and no larger sums of α.

    A path whose wrong rows are in several pieces becomes a path of each. Where a piece takes in
    several of before, the α of each of these are laid out from 0 on; at each place, the paths that
    lie over it are one path.

    Parameters
    ----------
    paths : WrongRows
    after : Pieces
        All rows in which paths err are free.
    """
    if not len(paths.row):
        return paths
    parts = _merged(_split(paths, after), paths.piece)
    return _combined(parts)


class _Parts(NamedTuple):
    # Parts of paths, by piece and origin; `path` of the wrong rows numbers the parts.
    paths: WrongRows
    origin: np.ndarray


def _split(paths: WrongRows, after: Pieces) -> tuple[WrongRows, np.ndarray]:
    # Parts of paths, each within one piece, and the number of the path of each.
    free_first = after.first + after.held[0]
    piece = np.searchsorted(free_first, paths.row, side="right") - 1
    starts = np.append(True, (np.diff(paths.path) != 0) | (np.diff(piece) != 0))
    number, at = np.cumsum(starts) - 1, np.flatnonzero(starts)
    of_path = paths.path[at]
    parts = WrongRows(piece[at], paths.alpha[of_path], number, paths.row, paths.label)
    return parts, of_path


def _merged(split: tuple[WrongRows, np.ndarray], origins: np.ndarray) -> _Parts:
    # Equal parts of the same origin become one, with the sum of their α; sorted by piece, origin.
    parts, of_path = split
    origin = origins[of_path]
    key = np.add.reduceat(
        _codes(parts.row, parts.label), np.flatnonzero(np.append(True, np.diff(parts.path) != 0))
    )
    order = np.lexsort([key, origin, parts.piece])
    sorted_keys = np.stack([parts.piece[order], origin[order], key[order].view(np.int64)])
    new = np.append(True, (np.diff(sorted_keys) != 0).any(axis=0))
    kept = order[new]  # one of each
    alpha = np.bincount(np.cumsum(new) - 1, parts.alpha[order])
    return _Parts(parts.select(kept)._replace(alpha=alpha), origin[kept])


def _codes(row: np.ndarray, label: np.ndarray) -> np.ndarray:
    # A number for each pair, of which sums (modulo 2⁶⁴) of different sets hardly ever agree.
    random = np.random.default_rng(SEED).integers(2**63, size=(2, N_CODES), dtype=np.uint64)
    of_row = random[0, row % N_CODES] + 2 * row.astype(np.uint64)
    return of_row * (random[1, label % N_CODES] | np.uint64(1))


def _combined(parts: _Parts) -> WrongRows:
    # The paths of pieces: of most, all parts have one origin, and are paths already.
    paths, origin = parts
    starts = np.append(True, (np.diff(paths.piece) != 0) | (np.diff(origin) != 0))
    mixed = (np.bincount(paths.piece[starts]) > 1)[paths.piece]
    if not mixed.any():
        return paths
    alone = paths.select(np.flatnonzero(~mixed))
    joined = _joined(_Parts(paths.select(np.flatnonzero(mixed)), origin[mixed]))
    joined = joined._replace(path=joined.path + len(alone.piece))
    both = WrongRows(*map(np.concatenate, zip(alone, joined)))
    return both.select(np.argsort(both.piece, kind="stable"))


def _joined(parts: _Parts) -> WrongRows:
    # Lays the α of each origin out from 0 on, and joins what lies over the same places of a piece.
    (piece, alpha, path, row, label), origin = parts
    starts = np.append(True, (np.diff(piece) != 0) | (np.diff(origin) != 0))
    total = np.cumsum(alpha)
    base = np.maximum.accumulate(np.where(starts, total - alpha, -np.inf))
    high = total - base
    low = np.where(starts, 0.0, np.append(0.0, high[:-1]))
    n = len(piece)
    places = np.lexsort([np.concatenate([low, high]), np.concatenate([piece, piece])])
    value, of_piece = np.concatenate([low, high])[places], np.concatenate([piece, piece])[places]
    new = np.append(True, (np.diff(value) != 0) | (np.diff(of_piece) != 0))
    rank = np.empty(2 * n, np.int64)
    rank[places] = np.cumsum(new) - 1
    value, of_piece = value[new], of_piece[new]
    cells, part = spread(rank[:n], rank[n:] - rank[:n])  # the places that a part covers
    used, cells = np.unique(cells, return_inverse=True)
    bounds = np.searchsorted(path, np.arange(n + 1))
    rows, entry = spread(bounds[part], np.diff(bounds)[part])
    order = np.lexsort([row[rows], cells[entry]])
    rows, joined = rows[order], cells[entry][order]
    alpha = value[used + 1] - value[used]
    return WrongRows(of_piece[used], alpha, joined, row[rows], label[rows])


def spread(first: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers first[k], first[k] + 1, …, count[k] of them, for all k; and k for each."""
    k = np.repeat(np.arange(len(count)), count)
    return ranges(first, count), k
