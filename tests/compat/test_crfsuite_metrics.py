"""Metrics of sklearn-crfsuite's names against scikit-learn's on items, and whole sequences."""

import numpy as np
import pytest
import sklearn.metrics

from sklseq.compat.sklearn_crfsuite import metrics
from sklseq.metrics import sequence_accuracy, token_accuracy


def drawn(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, size=rng.integers(1, 8))
    return [[rng.choice(list("abc"), n).tolist() for n in lengths] for _ in range(2)]


@pytest.mark.parametrize("seed", range(10))
def test_items_and_sequences(seed):
    y_true, y_pred = drawn(seed)
    flat = [[label for labels in y for label in labels] for y in (y_true, y_pred)]
    if not flat[0]:
        return
    assert metrics.flat_accuracy_score(y_true, y_pred) == token_accuracy(y_true, y_pred)
    options = {"average": "macro", "zero_division": 0}
    for name in ("precision_score", "recall_score", "f1_score"):
        expected = getattr(sklearn.metrics, name)(*flat, **options)
        assert getattr(metrics, f"flat_{name}")(y_true, y_pred, **options) == expected
    expected = sklearn.metrics.fbeta_score(*flat, beta=2, **options)
    assert metrics.flat_fbeta_score(y_true, y_pred, 2, **options) == expected
    options = {"labels": ["b", "a"], "zero_division": 0}
    expected = sklearn.metrics.classification_report(*flat, **options)
    assert metrics.flat_classification_report(y_true, y_pred, **options) == expected
    assert metrics.sequence_accuracy_score(y_true, y_pred) == sequence_accuracy(y_true, y_pred)


def test_sequences_of_one_length_are_counted_as_sequences():
    arrays = [np.array(["a", "b"]), np.array(["a", "a"])]
    assert metrics.sequence_accuracy_score([["a", "b"], ["a", "b"]], arrays) == 0.5


def test_another_number_of_sequences_is_refused():
    with pytest.raises(ValueError, match="must have the same number of sequences; got 1 and 2"):
        metrics.sequence_accuracy_score([["a"]], [["a"], ["a"]])
