"""CRF, metrics and scorers with the interface of sklearn-crfsuite.

>>> from sklseq.compat import sklearn_crfsuite
>>> from sklseq.compat.sklearn_crfsuite import metrics, scorers
"""

from sklseq.compat.sklearn_crfsuite import metrics, scorers, utils
from sklseq.compat.sklearn_crfsuite.crf import CRF

__all__ = ["CRF", "metrics", "scorers", "utils"]
