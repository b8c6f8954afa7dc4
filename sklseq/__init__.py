"""Label and segment sequences with scikit-learn.

>>> from sklseq import CRFTagger
>>> from sklseq.features import TemplateFeatures
"""

from typing import TYPE_CHECKING

from sklseq._lib.lazy_names import lazy_names
from sklseq._lib.version import __version__ as __version__

if TYPE_CHECKING:  # the names below, for type checkers
    from sklseq import metrics
    from sklseq._lib.show_versions import show_versions
    from sklseq.data.row_blocks import RowBlocks
    from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
    from sklseq.data.segment_potentials import SegmentPotentials
    from sklseq.data.sequences import Sequences
    from sklseq.estimators.conformal import ConformalTagger
    from sklseq.estimators.crf.crf_tagger import CRFTagger
    from sklseq.estimators.crf.crf_tagger_cv import CRFTaggerCV
    from sklseq.estimators.crf.crfsuite_model import read_crfsuite_model
    from sklseq.estimators.crf.crfsuite_writer import write_crfsuite_model
    from sklseq.estimators.hmsvm.hmsvm_tagger import HMSVMTagger
    from sklseq.estimators.hmsvm.hmsvm_tagger_cv import HMSVMTaggerCV
    from sklseq.estimators.online.online_decoder import OnlineDecoder
    from sklseq.estimators.semicrf.segment_reranker import SegmentReranker
    from sklseq.estimators.semicrf.semicrf_segmenter import SemiCRFSegmenter
    from sklseq.estimators.sources.shards import Shards
    from sklseq.estimators.time_blocks import TimeBlockSplit
    from sklseq.estimators.zscore.zscore_cv import ZScoreTaggerCV
    from sklseq.estimators.zscore.zscore_tagger import ZScoreTagger

__all__ = [
    "CRFTagger",
    "CRFTaggerCV",
    "ConformalTagger",
    "HMSVMTagger",
    "HMSVMTaggerCV",
    "OnlineDecoder",
    "RowBlocks",
    "SegmentPotentials",
    "SegmentReranker",
    "SemiCRFSegmenter",
    "Sequences",
    "Shards",
    "TimeBlockSplit",
    "ZScoreTagger",
    "ZScoreTaggerCV",
    "labels_to_segments",
    "metrics",
    "read_crfsuite_model",
    "segments_to_labels",
    "show_versions",
    "write_crfsuite_model",
]

# Loaded when first used, so that an exported model is decoded without SciPy and scikit-learn, a
# saved one imports its own estimator only, and `sklseq.datasets.make_contacts` works without an
# import of `sklseq.datasets`.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "_lib.show_versions": ("show_versions",),
        "data.row_blocks": ("RowBlocks",),
        "data.segment_labels": ("labels_to_segments", "segments_to_labels"),
        "data.segment_potentials": ("SegmentPotentials",),
        "data.sequences": ("Sequences",),
        "estimators.conformal": ("ConformalTagger",),
        "estimators.crf.crf_tagger": ("CRFTagger",),
        "estimators.crf.crf_tagger_cv": ("CRFTaggerCV",),
        "estimators.crf.crfsuite_model": ("read_crfsuite_model",),
        "estimators.crf.crfsuite_writer": ("write_crfsuite_model",),
        "estimators.hmsvm.hmsvm_tagger": ("HMSVMTagger",),
        "estimators.hmsvm.hmsvm_tagger_cv": ("HMSVMTaggerCV",),
        "estimators.online.online_decoder": ("OnlineDecoder",),
        "estimators.semicrf.segment_reranker": ("SegmentReranker",),
        "estimators.semicrf.semicrf_segmenter": ("SemiCRFSegmenter",),
        "estimators.sources.shards": ("Shards",),
        "estimators.time_blocks": ("TimeBlockSplit",),
        "estimators.zscore.zscore_cv": ("ZScoreTaggerCV",),
        "estimators.zscore.zscore_tagger": ("ZScoreTagger",),
    },
    (
        "compat", "data", "datasets", "deployment", "display", "estimators", "features",
        "inference", "inspection", "metrics", "objectives", "online", "runtime", "solvers",
        "testing",
    ),
)  # fmt: skip
