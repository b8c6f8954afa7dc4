"""Label and segment sequences with scikit-learn."""

from sklseq import metrics
from sklseq._sequences import Sequences
from sklseq.crf import CRFTagger

__version__ = "0.1.0.dev0"
__all__ = ["CRFTagger", "Sequences", "metrics"]
