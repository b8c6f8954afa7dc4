"""What is handed to the questions of sklseq.inference is checked before a kernel reads it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import SegmentPotentials
from sklseq.inference import (
    SegmentSpans,
    decode_online,
    forward_backward,
    nbest,
    sample,
    segment_closure,
    segment_forward_backward,
    segment_nbest,
    segment_sample,
    segment_viterbi,
    viterbi,
)
from sklseq.inference.chain import sparse_transitions as pairs

CHAINS = [forward_backward, viterbi, nbest, sample, decode_online]
SEGMENTS = [
    segment_forward_backward, segment_viterbi, segment_nbest, segment_sample, segment_closure,
]  # fmt: skip


def one_potential(kind, start, stop):
    return SegmentSpans(*map(np.array, ([3], [0, 1], [kind], [start], [stop])))


@pytest.mark.parametrize("question", SEGMENTS)
@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (one_potential(3, -5, -1), r"spans \[-5, -1\), outside the sequence's 3 steps"),
        (one_potential(3, 3, 4), "outside the sequence's 3 steps"),
        (one_potential(3, 0, 10**9), "outside the sequence's 3 steps"),
        (one_potential(0, -(10**8), 2), "outside the sequence's 3 steps"),
        (one_potential(100, 1, 3), "has kind 100; kinds are 0"),
        (one_potential(-7, 1, 3), "has kind -7; kinds are 0"),
        (one_potential(3, 0.5, 2), "start must hold integers; got 0.5 for number 0"),
        (one_potential(3, 1, 2)._replace(lengths=[-3]), "lengths must not be negative"),
        (one_potential(3, 1, 2)._replace(lengths=[2**40]), "lengths must add up to at most"),
        (one_potential(3, 1, 2)._replace(lengths=[]), "offsets must have one entry more than"),
        (one_potential(3, 1, 2)._replace(offsets=[0, 3]), r"potentials \(1\); got 0 to 3"),
        (one_potential(3, 1, 2)._replace(offsets=[1, 2]), "offsets must rise from 0"),
        (one_potential(3, 1, 2)._replace(offsets=[0, 2, 1]), "got 2 and then 1 at positions 1 and"),
        ([[0, 1]], "spans must be a SegmentSpans or a SegmentPotentials; got list"),
        (None, "spans must be a SegmentSpans or a SegmentPotentials; got NoneType"),
    ],
)
def test_spans_are_checked(question, spans, message):
    with pytest.raises(ValueError, match=message):
        question(spans, [[2.0, 0.0]], np.zeros((2, 2)))


def test_potentials_that_were_written_to_are_checked():
    X = SegmentPotentials([3], [0, 1], [3], [0], [1], np.ones((1, 1)))
    segment_forward_backward(X, [[0.0]], [[0.0]])
    X.stop[0] = 10**9
    with pytest.raises(ValueError, match="outside the sequence's 3 steps"):
        segment_forward_backward(X, [[0.0]], [[0.0]])


def test_damaged_spans_are_refused_or_right():
    # In a process of its own: what is not refused may end it.
    command = [sys.executable, "-m", "tests.trials.inference", "500"]
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.parametrize("question", SEGMENTS[:2])
def test_sums_of_segments_that_overflow(question):
    spans = SegmentSpans(*map(np.array, ([3], [0, 2], [3, 3], [0, 1], [1, 2])))
    with pytest.raises(ValueError, match=r"so that sums of float64 do not overflow.*scores has"):
        question(spans, [[1.7e308], [1.7e308]], [[0.0]])


@pytest.mark.parametrize("question", CHAINS[:4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_chains_that_overflow(question, dtype):
    largest = np.finfo(dtype).max
    for bad in (np.full((3, 1), largest), np.full((3, 1), -largest)):
        with pytest.raises(ValueError, match=r"do not overflow.*emission has .* at"):
            question(bad, [[0.0]])
    with pytest.raises(ValueError, match=r"do not overflow.*transition has .* at"):
        question(np.zeros((3, 1), dtype), [[largest]])


@pytest.mark.parametrize("question", CHAINS)
@pytest.mark.parametrize(
    ("emission", "got"),
    [
        ([["1", "2"]], "list of dtype <U1"),
        (np.ones((2, 2)) + 1j, "ndarray of dtype complex128"),
        (np.ma.masked_equal([[1.0, 2.0]], 2), "a MaskedArray"),
        ([[1.0], [1.0, 2.0]], "rows of unequal length"),
        ((row for row in [[1.0, 2.0]]), "generator of dtype object"),
        (sparse.csr_array(np.ones((2, 2))), "a csr_array"),
    ],
)
def test_emission_of_other_types(question, emission, got):
    with pytest.raises(ValueError, match=f"emission must be a dense array .* got {got}"):
        question(emission, np.zeros((2, 2)))


def test_messages_name_the_place():
    with pytest.raises(ValueError, match=r"shape \(n_rows, n_labels\); got \(2,\)"):
        viterbi(np.zeros(2), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="got 3 and then 2 at positions 1 and 2"):
        viterbi(np.zeros((4, 2)), np.zeros((2, 2)), [0, 3, 2, 4])
    with pytest.raises(ValueError, match=r"^scores must be finite"):
        segment_viterbi(one_potential(3, 0, 1), [[np.nan]], [[0.0]])
    with pytest.raises(ValueError, match="one a sequence; got nan for sequence 0"):
        segment_forward_backward(one_potential(3, 0, 1), [[0.0]], [[0.0]], weights=[np.nan])


@pytest.mark.parametrize("n_labels", [2, 4, 6, 20])
@pytest.mark.parametrize("n_sequences", [1, 5])
def test_single_precision_keeps_sums_of_long_sequences(n_labels, n_sequences):
    rng = np.random.default_rng(0)
    n, transition = 200_000 // n_labels, rng.normal(size=(n_labels, n_labels))
    emission = (rng.normal(size=(n, n_labels)) * 0.001).astype(np.float32)
    offsets = np.linspace(0, n, n_sequences + 1).astype(int)
    single = forward_backward(emission, transition, offsets)
    double = forward_backward(emission.astype(float), transition.astype(np.float32), offsets)
    assert_allclose(single.marginals.sum(axis=1, dtype=float), 1, rtol=0, atol=5e-6)
    assert_allclose(single.marginals, double.marginals, rtol=2e-5, atol=0)
    assert_allclose(single.pairwise, double.pairwise, rtol=5e-6, atol=0)


@pytest.mark.parametrize("scale", [1, 30, 1000])
@pytest.mark.parametrize("kind", ["matrix", "forbidden", "lists"])
def test_single_precision_at_any_length(kind, scale, monkeypatch):
    # Rows are scaled one by one, marginals renormalised each 64th row: neither under- nor overflow.
    rng, L = np.random.default_rng(1), 9
    if kind == "lists":
        monkeypatch.setattr(pairs, "LIST_ROWS", 0)
        monkeypatch.setattr(pairs, "LIMITS", dict.fromkeys(pairs.LIMITS, (1.1, 0.0)))
    for T in (10, 63, 64, 65, 1000, 100_000 if scale < 1000 else 5_000):
        emission, transition = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(L, L))
        if kind != "matrix":
            transition[~np.eye(L, dtype=bool) & (rng.random((L, L)) < 0.8)] = -np.inf
        start, end = scale * rng.normal(size=(2, L))
        scores = [x.astype(np.float32) for x in (emission, transition, start, end)]
        single, double = (
            forward_backward(
                *(x.astype(dtype) for x in scores[:2]),
                [0, T],
                **dict(zip(("start", "end"), (x.astype(dtype) for x in scores[2:]))),
            )
            for dtype in (np.float32, float)
        )
        assert_allclose(single.log_z, double.log_z, rtol=1e-6)
        assert_allclose(single.marginals, double.marginals, rtol=0, atol=1e-5)
        assert_allclose(single.marginals.sum(axis=1, dtype=float), 1, rtol=0, atol=5e-6)
        assert_allclose(single.pairwise, double.pairwise, rtol=0, atol=1e-5 * np.sqrt(T) + 1e-6 * T)
