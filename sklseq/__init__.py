"""Label and segment sequences with scikit-learn."""

from sklseq._sequences import Sequences

__version__ = "0.1.0.dev0"
__all__ = ["Sequences"]
