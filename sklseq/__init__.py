"""Label and segment sequences with scikit-learn.

>>> from sklseq import CRFTagger
>>> from sklseq.features import TemplateFeatures
"""

from importlib import import_module

from sklseq import metrics
from sklseq._lib.version import __version__ as __version__
from sklseq.data.row_blocks import RowBlocks
from sklseq.data.sequences import Sequences
from sklseq.estimators.crf.crf_tagger import CRFTagger

__all__ = [
    "CRFTagger",
    "HMSVMTagger",
    "OnlineDecoder",
    "RowBlocks",
    "SegmentPotentials",
    "SemiCRFSegmenter",
    "Sequences",
    "Shards",
    "ZScoreTagger",
    "ZScoreTaggerCV",
    "metrics",
    "read_crfsuite_model",
]

# Loaded when first used: a deployed model loads its own estimator and nothing else, and
# `sklseq.datasets.make_contacts` needs no import of its own.
_MODULES = ("datasets", "deployment", "display", "features", "inference", "inspection", "testing")
_LAZY = {
    "HMSVMTagger": "sklseq.estimators.hmsvm.hmsvm_tagger",
    "OnlineDecoder": "sklseq.estimators.online.online_decoder",
    "SegmentPotentials": "sklseq.data.segment_potentials",
    "SemiCRFSegmenter": "sklseq.estimators.semicrf",
    "Shards": "sklseq.estimators.sources.shards",
    "ZScoreTagger": "sklseq.estimators.zscore.zscore_tagger",
    "ZScoreTaggerCV": "sklseq.estimators.zscore.zscore_cv",
    "read_crfsuite_model": "sklseq.estimators.crf.crfsuite_model",
}


def __getattr__(name: str):
    if name in _MODULES:
        return import_module(f"sklseq.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sklseq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES, *_LAZY]
