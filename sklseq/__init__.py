"""Label and segment sequences with scikit-learn.

>>> from sklseq import CRFTagger
>>> from sklseq.features import TemplateFeatures
"""

from importlib import import_module

from sklseq import metrics
from sklseq._sequences import Sequences
from sklseq._version import __version__ as __version__
from sklseq._zscore_cv import ZScoreTaggerCV
from sklseq.crf import CRFTagger
from sklseq.online import OnlineDecoder
from sklseq.zscore import ZScoreTagger

__all__ = [
    "CRFTagger",
    "OnlineDecoder",
    "Sequences",
    "ZScoreTagger",
    "ZScoreTaggerCV",
    "metrics",
]

_LAZY = (
    "datasets",
    "deployment",
    "display",
    "features",
    "inference",
    "inspection",
    "testing",
)


def __getattr__(name: str):
    # Sub-packages load when first used: `sklseq.datasets.make_contacts` needs no import of its own.
    if name in _LAZY:
        return import_module(f"sklseq.{name}")
    raise AttributeError(f"module 'sklseq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
