"""Padded batches as packed rows, and back."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import forward_backward, from_padded, to_padded, viterbi


@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("lengths", [[3, 0, 4], [4, 4, 4], [0, 0, 0], None])
def test_each_sequence_is_answered_as_alone(lengths, of_rows):
    rng = np.random.default_rng(0)
    emission = rng.normal(size=(3, 4, 2))
    transition = rng.normal(size=(3, 4, 2, 2) if of_rows else (2, 2))
    mask = np.arange(4) < np.array([4] * 3 if lengths is None else lengths)[:, None]
    packed = from_padded(emission, transition, lengths=lengths)
    for one, other in zip(packed, from_padded(emission, transition, mask=mask)):
        assert_array_equal(one, other)
    log_z, marginals, _ = forward_backward(*packed)
    padded = to_padded(marginals, packed.offsets, fill=-1)
    labels = to_padded(viterbi(*packed)[0], packed.offsets)
    assert padded.shape == (3, mask.sum(axis=1).max(), 2)
    for s, T in enumerate(mask.sum(axis=1)):
        alone = emission[s, :T], transition[s, :T] if of_rows else transition
        assert_allclose(log_z[s], forward_backward(*alone).log_z[0])
        assert_allclose(padded[s, :T], forward_backward(*alone).marginals)
        assert_array_equal(labels[s, :T], viterbi(*alone)[0])
        assert (padded[s, T:] == -1).all()


@pytest.mark.parametrize(
    ("emission", "transition", "rest", "message"),
    [
        (np.zeros((3, 2)), np.zeros((2, 2)), {}, "emission of a padded batch"),
        (np.zeros((1, 3, 2)), np.zeros((1, 2, 2, 2)), {}, r"\(2, 2\) or \(1, 3, 2, 2\)"),
        (np.zeros((1, 3, 2)), np.zeros((2, 2)), {"lengths": [4]}, "4 for sequence 0"),
        (np.zeros((1, 3, 2)), np.zeros((2, 2)), {"lengths": [1, 1]}, "must be 1 integers"),
        (np.zeros((1, 3, 2)), np.zeros((2, 2)), {"lengths": [1.0]}, "must be 1 integers"),
        (np.zeros((1, 3, 2)), np.zeros((2, 2)), {"mask": [[1, 1, 0]]}, "bool array"),
        (np.zeros((1, 3, 2)), np.zeros((2, 2)), {"mask": [[True, False, True]]}, "sequence 0 has"),
        (
            np.zeros((1, 3, 2)), np.zeros((2, 2)),
            {"mask": [[True] * 3], "lengths": [3]}, "one of them",
        ),
    ],
)  # fmt: skip
def test_errors(emission, transition, rest, message):
    with pytest.raises(ValueError, match=message):
        from_padded(emission, transition, **rest)


def test_padding_needs_rows_and_offsets_that_fit():
    with pytest.raises(ValueError, match="offsets must rise"):
        to_padded([1, 2], [0, 1])
    with pytest.raises(ValueError, match="one entry for each row"):
        to_padded(1, [0, 1])


@pytest.mark.parametrize(
    "fill", [0, 1, -1, 300, 2**40, 0.0, -1.0, -1.5, 0.1, 1e300, np.nan, np.inf]
)
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.int64, np.float32, np.float64])
def test_padding_has_the_value_that_was_given(dtype, fill):
    values = np.array([1, 0, 1]).astype(dtype)
    with np.errstate(all="ignore"):
        kept = np.isclose(float(np.array(fill).astype(dtype)), fill, equal_nan=True)
    if not kept:
        with pytest.raises(ValueError, match="fill must be a number that the type of values"):
            to_padded(values, [0, 1, 3], fill)
        return
    padding = to_padded(values, [0, 1, 3], fill)[0, 1]
    assert padding.dtype == dtype
    assert_allclose(float(padding), fill, rtol=1e-7)


@pytest.mark.parametrize("fill", ["x", [0, 1], None, 1j])
def test_padding_is_one_number(fill):
    with pytest.raises(ValueError, match="fill must be"):
        to_padded([1, 2, 3], [0, 1, 3], fill)
