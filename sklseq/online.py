"""Online decoding: scorers, reports and results of ``sklseq.OnlineDecoder``."""

from sklseq.estimators.online.calibration import CalibrationReport, calibration_report
from sklseq.estimators.online.online_decoder import (
    Emission,
    LatencyReport,
    OnlineDecoder,
    OnlineDecoding,
    OnlineStream,
    make_latency_scorer,
    neg_mean_latency,
)
from sklseq.estimators.online.pool import PoolLabels, StreamPool
from sklseq.estimators.online.segment_stream import SegmentEmission, SegmentStream
from sklseq.estimators.online.tuning import LatencyTuning, tune_latency

__all__ = [
    "CalibrationReport",
    "Emission",
    "LatencyReport",
    "LatencyTuning",
    "OnlineDecoder",
    "OnlineDecoding",
    "OnlineStream",
    "PoolLabels",
    "SegmentEmission",
    "SegmentStream",
    "StreamPool",
    "calibration_report",
    "make_latency_scorer",
    "neg_mean_latency",
    "tune_latency",
]
