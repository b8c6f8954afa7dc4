"""ZScoreTagger at defaults with many labels: its ridge must not leave rows to transitions."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import Sequences, ZScoreTagger, ZScoreTaggerCV
from tests.sample_data import make_data

LENGTH = 15


def make_words(n_labels, noise, n_train, n_test=40):
    """Words of Markov chains of labels with five successors each, or of independent labels.

    Each label has five words of its own. With ``noise``, labels are chains and 30 % of words are
    drawn from all; without, they are independent and a word determines its label.
    """
    rng = np.random.default_rng(n_labels)
    n = n_train + n_test
    y = rng.integers(n_labels, size=(n, LENGTH))
    if noise:
        after = rng.integers(n_labels, size=(n_labels, 5))
        for t in range(1, LENGTH):
            y[:, t] = after[y[:, t - 1], rng.integers(5, size=n)]
    word = 5 * y + rng.integers(5, size=y.shape)
    other = rng.random(y.shape) < (0.3 if noise else 0.0)
    word[other] = rng.integers(5 * n_labels, size=other.sum())
    return (word[:n_train], y[:n_train]), (word[n_train:], y[n_train:])


def as_rows(word, n_labels):
    columns, n = word.ravel(), word.size
    rows = sparse.csr_matrix((np.ones(n), columns, np.arange(n + 1)), shape=(n, 5 * n_labels))
    return Sequences(rows, np.arange(0, n + 1, LENGTH))


def most_frequent_label(word, y, n_labels):
    """The most frequent label of each word."""
    counts = np.zeros((5 * n_labels, n_labels))
    np.add.at(counts, (word.ravel(), y.ravel()), 1)
    return counts.argmax(axis=1)


@pytest.mark.parametrize(
    ("n_labels", "noise", "transitions"),
    [*product([2, 50, 120], [True, False], ["covariance", "information"]),
     (400, True, "covariance")],
)  # fmt: skip
def test_no_worse_than_the_most_frequent_label_of_a_word(n_labels, noise, transitions):
    (word, y), (new, truth) = make_words(n_labels, noise, n_train=max(100, 4 * n_labels))
    base = (most_frequent_label(word, y, n_labels)[new] == truth).mean()
    tagger = ZScoreTagger(transitions=transitions).fit(as_rows(word, n_labels), list(y))
    score = tagger.score(as_rows(new, n_labels), list(truth))
    assert score >= base


@pytest.mark.parametrize(
    "options", [{}, {"solver": "cg"}, {"kernel": "rbf"}, {"moments": "sampling", "random_state": 0},
                {"moments": "dp"}, {"separate": True}, {"refine": 3}, {"probability": True},
                {"kernel": "rbf", "n_landmarks": 5, "random_state": 0}],
)  # fmt: skip
@pytest.mark.parametrize("n_labels", [2, 7])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_default_ridge_is_at_most_one_and_four_over_the_labels(options, n_labels):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(6, 3)) for _ in range(8)]
    y = [rng.permutation(max(6, n_labels))[:6] % n_labels for _ in X]
    tagger = ZScoreTagger(**options).fit(X, y)
    L = len(tagger.classes_)
    assert tagger.l2_ == min(1.0, 4 / L)
    if "refine" in options or "probability" in options:  # their CRF has its own default
        options = {}
        tagger = ZScoreTagger().fit(X, y)
    given = ZScoreTagger(l2=tagger.l2_, **options).fit(X, y)
    assert_allclose(given.decision_function(X)[0], tagger.decision_function(X)[0], rtol=1e-12)
    assert given.l2_ == tagger.l2_


def test_parts_have_the_default_ridge_of_their_labels():
    X, y = make_data(0, n=12)
    whole = ZScoreTagger().fit(X, y)
    parts = ZScoreTagger().partial_fit(X[:5], y[:5], classes=range(3))
    parts.partial_fit(X[5:], y[5:])
    assert parts.l2_ == whole.l2_ == 1.0
    assert_allclose(parts.coef_, whole.coef_, rtol=1e-8, atol=1e-9)
    eight = ZScoreTagger().partial_fit(X, y, classes=range(8))
    assert eight.l2_ == 0.5
    anew = eight.set_params(l2=0.5).partial_fit([], [])
    assert_allclose(anew.coef_, eight.coef_)


def test_a_search_keeps_its_grid():
    X, y = make_data(0, n=12)
    found = ZScoreTaggerCV(l2s=[0.03, 0.3], cv=3).fit(X, y)
    assert found.l2_ in (0.03, 0.3)
