"""``SemiCRFSegmenter``, ``SegmentReranker`` and their private helpers."""

# Models stored before 0.1 look for the class here.
from sklseq.estimators.semicrf.semicrf_segmenter import SemiCRFSegmenter

__all__ = ["SemiCRFSegmenter"]
