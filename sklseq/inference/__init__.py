"""Exact inference on linear chains and segmentations, given nothing but potentials.

>>> import numpy as np
>>> from sklseq.inference import viterbi
>>> labels, scores = viterbi(np.eye(3), np.zeros((3, 3)))
>>> labels
array([0, 1, 2], dtype=int32)

Imports: _lib, data; never sklearn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sklseq.inference.chain.linear_chain import Marginals, forward_backward, nbest, sample, viterbi

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

if TYPE_CHECKING:  # _LATER, for type checkers
    from sklseq.inference.chain.expectation import ExpectedFeatures, entropy, expected_features
    from sklseq.inference.chain.online_rules import OnlinePaths, decode_online
    from sklseq.inference.segment.segment_closure import segment_closure
    from sklseq.inference.segment.segmentations import (
        SegmentMarginals,
        SegmentSpans,
        segment_forward_backward,
        segment_nbest,
        segment_sample,
        segment_viterbi,
    )

# Loaded when first used: a model that labels needs the linear chain only.
_LATER = {
    "chain.expectation": ("ExpectedFeatures", "entropy", "expected_features"),
    "chain.online_rules": ("OnlinePaths", "decode_online"),
    "segment.segment_closure": ("segment_closure",),
    "segment.segmentations": (
        "SegmentMarginals", "SegmentSpans", "segment_forward_backward", "segment_nbest",
        "segment_sample", "segment_viterbi",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"sklseq.inference.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sklseq.inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
