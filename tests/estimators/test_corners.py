"""Rare branches and sentences that no other test meets."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter, Sequences, Shards
from sklseq._lib.cpu import cpu_level
from sklseq.data.row_blocks import RowBlocks
from sklseq.features import WindowFeatures
from sklseq.solvers import _dense, _lbfgs
from sklseq.testing import check_sequence_estimator

X = [np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[2, 1]]]
Y = [["a", "b", "c", "a"], ["c", "b"]]


def test_an_unknown_build_is_refused(monkeypatch):
    monkeypatch.setenv("SKLSEQ_CPU", "fast")
    with pytest.raises(ValueError, match="SKLSEQ_CPU must be 'auto' or 'baseline'; got 'fast'"):
        cpu_level()
    monkeypatch.setenv("SKLSEQ_CPU", "baseline")
    assert cpu_level() == "baseline"


def test_unknown_data_of_checks_is_refused():
    with pytest.raises(ValueError, match=r"data must be .*; got 'images'"):
        check_sequence_estimator(CRFTagger(), data="images")


def test_weights_of_zero_have_no_score():
    tagger = CRFTagger().fit(X, Y)
    with pytest.raises(ValueError, match="score needs at least one row of positive weight"):
        tagger.score(X, Y, sample_weight=[0.0, 0.0])


def test_what_stands_for_data_says_so():
    assert repr(Shards([(X, Y)], max_memory="1KB")) == (
        "<Shards: 1 shards, max_memory=1e+03 bytes>"
    )
    blocks = RowBlocks(RowBlocks(X[0]))
    assert blocks.source is X[0]
    assert repr(blocks) == "RowBlocks(ndarray)"


def test_a_decoder_has_no_number_of_features_before_fit():
    decoder = OnlineDecoder(CRFTagger(), latency_cost=0.1)
    assert not hasattr(decoder, "n_features_in_")
    assert decoder.fit(X, Y).n_features_in_ == 3


def test_segments_without_features_are_refused():
    with pytest.raises(ValueError, match="X must have at least one feature; got 0"):
        SemiCRFSegmenter().fit([np.ones((2, 0))], [["O", "B-x"]])


def test_a_segmenter_tells_its_objective(capsys):
    model = SemiCRFSegmenter(verbose=1, l2=1.0).fit([np.eye(2), np.eye(2)], [["O", "B-x"]] * 2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= model.n_iter_ >= 1
    assert lines[0].startswith("[SemiCRFSegmenter] iteration ")
    assert float(lines[-1].rsplit(" ", 1)[1]) == pytest.approx(model.objective_, abs=1e-5)


def test_hashed_windows_have_names_by_number():
    rows = [sparse.csr_matrix(x) for x in X]
    window = WindowFeatures(before=1, n_features=8).fit(rows)
    names = window.get_feature_names_out()
    assert len(names) == len(set(names)) == window.transform(rows).shape[1] == 8


def test_a_ridge_below_the_rounding_of_the_matrix_gives_the_minimum_norm():
    A, b = np.full((3, 3), 1e20), np.full((3, 1), 3e20)
    W = _dense.solve_dense(A, b, 1e-9).w
    assert_allclose(W, np.ones((3, 1)), rtol=1e-9)  # of all with a sum of 3


class Walled:
    """(w - 1)², which is infinite from w = 2 on: a step may not look behind the wall."""

    def value_and_gradient(self, w, gradient):
        if w[0] >= 2:
            return np.inf
        gradient[:] = 200 * (w - 1)
        return 100 * float((w[0] - 1) ** 2)


def test_a_step_behind_a_wall_is_shortened():
    result = _lbfgs.lbfgs(Walled(), np.array([-10.0]), tol=1e-9)
    assert_allclose(result.w, [1.0], rtol=1e-8)
    assert _lbfgs._interpolate(3.0, 1.0, -1.0, np.inf) == pytest.approx(0.3)


def test_sequences_of_sparse_rows_join_in_blocks():
    left, right = (Sequences(sparse.csr_matrix(np.eye(2) * k), [0, 1, 2]) for k in (1, 2))
    both = np.concatenate([left, right], axis=1)
    assert both.rows.toarray().tolist() == [[1, 0, 2, 0], [0, 1, 0, 2]]
    with pytest.raises(TypeError):
        np.vstack([left, right])
