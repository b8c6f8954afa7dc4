"""Margins of ``ZScoreTagger(separate=True)``, by enumeration of labelings."""

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklseq import ZScoreTagger


@pytest.mark.parametrize("l2", [0.01, 0.1, 1.0])
def test_every_labeling_keeps_its_margin(l2):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        y = [rng.integers(2 + seed % 2, size=rng.integers(2, 5)) for _ in range(5)]
        L, n_rows = len(np.unique(np.concatenate(y))), sum(map(len, y))
        X = [np.eye(3)[z] + 0.4 * rng.normal(size=(len(z), 3)) for z in y]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of those that nothing separates
            tagger = ZScoreTagger(separate=True, l2=l2).fit(X, y)
        if tagger.score(X, y) < 1:
            continue
        margin = 0.1 * (1 + n_rows * (L - 1) / L) / n_rows  # the mean Hamming loss of random labels
        for x, truth in zip(X, y):
            paths = np.array(list(itertools.product(range(L), repeat=len(truth))))
            scores = (x @ tagger.coef_)[np.arange(len(truth)), paths].sum(axis=1)
            scores += tagger.transition_[paths[:, :-1], paths[:, 1:]].sum(axis=1)
            n_wrong = (paths != truth).sum(axis=1)
            gaps = scores[n_wrong == 0] - scores
            assert (gaps >= 0.998 * margin * n_wrong - 1e-9).all()


@pytest.mark.parametrize("loss", ["hamming", None])
def test_weights_count_as_repetitions(loss):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = [rng.normal(size=(n, 4)) for n in rng.integers(2, 7, size=14)]
        W = rng.normal(size=(4, 3))
        y = [np.argmax(x @ W + 0.3 * rng.gumbel(size=(len(x), 3)), axis=1) for x in X]
        counts = rng.integers(1, 4, size=14)
        tagger = ZScoreTagger(loss=loss, separate=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of those that nothing separates
            weighted = clone(tagger).fit(X, y, sample_weight=counts)
            often = np.repeat(np.arange(14), counts)
            repeated = clone(tagger).fit([X[s] for s in often], [y[s] for s in often])
        # A labeling may lack a thousandth of its margin, and others are added in other rounds.
        size = abs(repeated.coef_).max()
        assert_allclose(weighted.coef_, repeated.coef_, atol=0.01 * size)
        assert_allclose(weighted.transition_, repeated.transition_, atol=0.01 * size)
