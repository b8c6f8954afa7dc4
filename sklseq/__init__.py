"""Label and segment sequences with scikit-learn.

>>> from sklseq import CRFTagger
>>> from sklseq.features import TemplateFeatures
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sklseq import metrics
from sklseq._lib.version import __version__ as __version__
from sklseq.data.row_blocks import RowBlocks
from sklseq.data.sequences import Sequences
from sklseq.estimators.crf.crf_tagger import CRFTagger

if TYPE_CHECKING:  # _LAZY, for type checkers
    from sklseq.data.segment_potentials import SegmentPotentials
    from sklseq.estimators.crf.crfsuite_model import read_crfsuite_model
    from sklseq.estimators.hmsvm.hmsvm_tagger import HMSVMTagger
    from sklseq.estimators.online.online_decoder import OnlineDecoder
    from sklseq.estimators.semicrf import SemiCRFSegmenter
    from sklseq.estimators.shards.shards import Shards
    from sklseq.estimators.zscore.zscore_cv import ZScoreTaggerCV
    from sklseq.estimators.zscore.zscore_tagger import ZScoreTagger

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

# Loaded when first used, so that a deployed model imports its own estimator only, and
# `sklseq.datasets.make_contacts` works without an import of `sklseq.datasets`.
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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sklseq.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'sklseq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_MODULES, *_LAZY]
