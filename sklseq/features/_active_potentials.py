"""Numbers of features of single segments and of stored potentials."""

import numpy as np

from sklseq._lib.checks import check_number
from sklseq.data.segment_potentials import OPEN_BOTH, OPEN_END, OPEN_START, SegmentPotentials


def count_active_potentials(
    X: SegmentPotentials, max_segment_length: int | None = None
) -> tuple[int, int]:
    """Count the features of all segments one by one, and as stored: G and H of Sarawagi's Table 1.

    Parameters
    ----------
    X : SegmentPotentials
    max_segment_length : int, optional
        Count segments of at most this many tokens in G; None: all.

    Returns
    -------
    tuple of int (G, H)

    Notes
    -----
    A potential of the span [u, v) in a sequence of T tokens is active in 1 segment if it is exact,
    in T - v + 1 with an open end, in u + 1 with an open start, and in the product with both.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq import SegmentPotentials
    >>> from sklseq.features import count_active_potentials
    >>> X = SegmentPotentials(
    ...     lengths=[5], offsets=[0, 2], kind=[1, 3], start=[2, 1], stop=[3, 2], rows=np.eye(2))
    >>> count_active_potentials(X), count_active_potentials(X, max_segment_length=2)
    ((11, 2), (5, 2))
    """
    check_number("max_segment_length", max_segment_length, 1, whole=True, optional=True)
    widths = np.diff(X.rows.indptr).astype(np.int64)[X.row]
    ends = np.repeat(X.lengths, np.diff(X.offsets))
    return int((widths * _segments_of(X, ends, max_segment_length)).sum()), int(widths.sum())


def _segments_of(X: SegmentPotentials, ends: np.ndarray, longest: int | None) -> np.ndarray:
    longest = int(ends.max(initial=1)) if longest is None else longest
    earlier = np.where(np.isin(X.kind, (OPEN_START, OPEN_BOTH)), X.start, 0)
    later = np.where(np.isin(X.kind, (OPEN_END, OPEN_BOTH)), ends - X.stop, 0)
    spare = longest - (X.stop - X.start)
    # Segments are [u - a, v + b) with a ≤ earlier, b ≤ later and a + b ≤ spare: for each a there
    # are later + 1 of them if a ≤ spare - later, else spare - a + 1.
    last = np.minimum(earlier, spare)
    full = np.maximum(np.minimum(last, spare - later) + 1, 0)
    cut = np.maximum(last + 1 - full, 0)
    count = full * (later + 1) + cut * (spare + 1) - cut * (full + last) // 2
    return np.where(spare >= 0, count, 0)


count_firings = count_active_potentials  # the name before 0.1
