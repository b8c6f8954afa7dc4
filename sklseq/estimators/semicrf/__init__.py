"""``SemiCRFSegmenter``, ``SegmentReranker`` and their private helpers."""

# Models pickled before 0.1 import the class from here.
from sklseq.estimators.semicrf.semicrf_segmenter import SemiCRFSegmenter

__all__ = ["SemiCRFSegmenter"]
