"""Online decoding: scorers, reports and results of ``sklseq.OnlineDecoder``."""

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
from sklseq.estimators.online.tuning import LatencyTuning, tune_latency

__all__ = [
    "Emission",
    "LatencyReport",
    "LatencyTuning",
    "OnlineDecoder",
    "OnlineDecoding",
    "OnlineStream",
    "PoolLabels",
    "StreamPool",
    "make_latency_scorer",
    "neg_mean_latency",
    "tune_latency",
]
