"""Offsets and positions of parts of different lengths, against loops."""

import numpy as np
import pytest

from sklseq._lib.ragged import offsets_of, ranges

LENGTHS = ([], [0], [3], [2, 0, 0, 4, 1], [0, 5, 0])
KINDS = (list, np.array, np.uint8, np.int32, np.uint64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_offsets_are_running_sums_in_64_bits(lengths, kind):
    offsets = offsets_of(kind(lengths))
    assert offsets.dtype == np.int64
    assert offsets.tolist() == [sum(lengths[:k]) for k in range(len(lengths) + 1)]


def test_offsets_of_a_mask_count_its_true_entries():
    assert offsets_of(np.array([True, False, True])).tolist() == [0, 1, 1, 2]


def test_offsets_of_small_types_do_not_overflow():
    assert offsets_of(np.full(3, 200, np.uint8))[-1] == 600


@pytest.mark.parametrize("lengths", LENGTHS)
def test_ranges_follow_each_other(lengths):
    first = np.arange(len(lengths))[::-1] * 10
    each = [i for a, n in zip(first.tolist(), lengths) for i in range(a, a + n)]
    assert ranges(first, np.array(lengths, int)).tolist() == each
    assert ranges(0, np.array(lengths, int)).tolist() == [i for n in lengths for i in range(n)]
