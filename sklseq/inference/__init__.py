"""Exact inference on linear chains and segmentations, given nothing but potentials.

>>> import numpy as np
>>> from sklseq.inference import viterbi
>>> labels, scores = viterbi(np.eye(3), np.zeros((3, 3)))
>>> labels
array([0, 1, 2], dtype=int32)
"""

from sklseq.inference.chain import Marginals, forward_backward, nbest, sample, viterbi
from sklseq.inference.expectation import ExpectedFeatures, entropy, expected_features
from sklseq.inference.online import OnlinePaths, decode_online
from sklseq.inference.segment_online import segment_closure
from sklseq.inference.segments import (
    SegmentMarginals,
    SegmentSpans,
    segment_forward_backward,
    segment_nbest,
    segment_sample,
    segment_viterbi,
)

__all__ = [
    "ExpectedFeatures",
    "Marginals",
    "OnlinePaths",
    "SegmentMarginals",
    "SegmentSpans",
    "decode_online",
    "entropy",
    "expected_features",
    "forward_backward",
    "nbest",
    "sample",
    "segment_closure",
    "segment_forward_backward",
    "segment_nbest",
    "segment_sample",
    "segment_viterbi",
    "viterbi",
]
