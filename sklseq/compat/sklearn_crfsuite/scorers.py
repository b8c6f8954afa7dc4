"""Scorers with the names of ``sklearn_crfsuite.scorers``, for searches and cross-validation.

>>> from sklseq.compat.sklearn_crfsuite import scorers
"""

from sklearn.metrics import make_scorer

from sklseq.compat.sklearn_crfsuite import metrics

__all__ = ["flat_accuracy", "sequence_accuracy"]

flat_accuracy = make_scorer(metrics.flat_accuracy_score)
sequence_accuracy = make_scorer(metrics.sequence_accuracy_score)
