"""Exact inference on linear chains and segmentations from their potentials.

>>> import numpy as np
>>> from sklseq.inference import viterbi
>>> labels, scores = viterbi(np.eye(3), np.zeros((3, 3)))
>>> labels
array([0, 1, 2], dtype=int32)

Imports: _lib, data; never sklearn.
"""

from typing import TYPE_CHECKING

from sklseq._lib.lazy_names import lazy_names

__all__ = [
    "ExpectedFeatures",
    "Marginals",
    "OnlinePaths",
    "PackedScores",
    "RowTransitions",
    "SegmentMarginals",
    "SegmentSpans",
    "decode_online",
    "entropy",
    "expected_features",
    "forward_backward",
    "from_padded",
    "max_marginals",
    "nbest",
    "sample",
    "segment_closure",
    "segment_forward_backward",
    "segment_nbest",
    "segment_sample",
    "segment_viterbi",
    "to_padded",
    "viterbi",
]

if TYPE_CHECKING:  # the names below, for type checkers
    from sklseq.inference.chain.expectation import ExpectedFeatures, entropy, expected_features
    from sklseq.inference.chain.linear_chain import (
        Marginals,
        forward_backward,
        nbest,
        sample,
        viterbi,
    )
    from sklseq.inference.chain.max_marginals import max_marginals
    from sklseq.inference.chain.online_rules import OnlinePaths, decode_online
    from sklseq.inference.chain.padded import PackedScores, from_padded, to_padded
    from sklseq.inference.chain.row_transitions import RowTransitions
    from sklseq.inference.segment.segment_closure import segment_closure
    from sklseq.inference.segment.segmentations import (
        SegmentMarginals,
        SegmentSpans,
        segment_forward_backward,
        segment_nbest,
        segment_sample,
        segment_viterbi,
    )

# Modules are loaded at first use, because decoding needs only some of them.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "chain.expectation": ("ExpectedFeatures", "entropy", "expected_features"),
        "chain.linear_chain": ("Marginals", "forward_backward", "nbest", "sample", "viterbi"),
        "chain.max_marginals": ("max_marginals",),
        "chain.online_rules": ("OnlinePaths", "decode_online"),
        "chain.padded": ("PackedScores", "from_padded", "to_padded"),
        "chain.row_transitions": ("RowTransitions",),
        "segment.segment_closure": ("segment_closure",),
        "segment.segmentations": (
            "SegmentMarginals", "SegmentSpans", "segment_forward_backward", "segment_nbest",
            "segment_sample", "segment_viterbi",
        ),
    },
)  # fmt: skip
