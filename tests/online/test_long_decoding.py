"""Online decoding of sequences in blocks, against the same in memory."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq import CRFTagger, OnlineDecoder, RowBlocks
from sklseq.estimators.online import long_decoding
from tests.trials.online import STRATEGIES, chain_of_strangers, decoder_of

rng = np.random.default_rng(0)
Y = np.arange(90) // 7 % 3
X = np.eye(3)[Y] + rng.normal(size=(90, 3))
TAGGER = CRFTagger().fit([X], [Y])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block_rows", [1, 4, 4096])
def test_blocks_give_labels_times_and_confidence_of_memory(monkeypatch, strategy, block_rows):
    monkeypatch.setattr(long_decoding, "BLOCK_ROWS", block_rows)
    decoder = OnlineDecoder(TAGGER, strategy=strategy, window_size=5).fit([X], [Y])
    expected = decoder.decode([X, X[:4]])
    found = decoder.decode([iter(np.split(X, [3, 3, 50])), RowBlocks(X[:4])])
    assert_array_equal(found.times[0], expected.times[0])
    for one, other in zip(expected, found):
        assert_allclose(one[0], other[0], rtol=1e-12)
        assert_allclose(one[1], other[1], rtol=1e-12)
    assert_array_equal(decoder.predict([RowBlocks(X)])[0], expected.labels[0])
    assert decoder.score([RowBlocks(X)], [Y]) == decoder.score([X], [Y])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_thousands_of_rows_wait_for_the_end(strategy):
    rule = {"strategy": strategy, "latency_cost": 0.0, "window_size": 5000}
    decoder = decoder_of(*chain_of_strangers(2), rule)
    rows = np.random.default_rng(0).normal(size=(9000, 2))
    for one, other in zip(decoder.decode([rows]), decoder.decode([RowBlocks(rows)])):
        assert_array_equal(one[0], other[0])


def test_sequences_without_rows():
    decoder = OnlineDecoder(TAGGER).fit([X], [Y])
    found = decoder.decode([RowBlocks([])])
    assert [len(column[0]) for column in found] == [0, 0, 0]


def test_errors_name_row_and_sequence():
    decoder = OnlineDecoder(TAGGER).fit([X], [Y])
    bad = X.copy()
    bad[70, 1] = np.inf
    with pytest.raises(ValueError, match="row 70 of sequence 1"):
        decoder.decode([RowBlocks(X), RowBlocks(bad)])
    decoder.estimator_.transition_ = np.full((3, 3), -np.inf)
    with pytest.raises(ValueError, match="No label is allowed at row 1 of sequence 0"):
        decoder.decode([RowBlocks(X)])
