"""Displays of models and predictions; matplotlib is imported when one is drawn.

Imports: _lib, data, estimators, inference, inspection, metrics.
"""

from sklseq.display._confusion import SpanConfusionDisplay
from sklseq.display._latency import SWEEPS as SWEEPS
from sklseq.display._latency import LatencyAccuracyDisplay, TradeOff
from sklseq.display._loss import LossCurveDisplay
from sklseq.display._marginals import MarginalsDisplay
from sklseq.display._marked_text import SpansDisplay
from sklseq.display._penalty_path import PenaltyPathDisplay
from sklseq.display._segmentation import SegmentationDisplay
from sklseq.display._transitions import TransitionsDisplay

__all__ = [
    "LatencyAccuracyDisplay",
    "LossCurveDisplay",
    "MarginalsDisplay",
    "PenaltyPathDisplay",
    "SegmentationDisplay",
    "SpanConfusionDisplay",
    "SpansDisplay",
    "TradeOff",
    "TransitionsDisplay",
]
