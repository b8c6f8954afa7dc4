"""Warnings of columns that are small, or far from zero, for the penalty."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    SemiCRFSegmenter,
    ZScoreTagger,
    ZScoreTaggerCV,
    labels_to_segments,
)
from sklseq.estimators import column_units
from sklseq.estimators.column_units import LITTLE_EFFECT
from sklseq.features import PerToken

MODELS = {
    "crf": CRFTagger(l2=0.1),
    "crf 1": CRFTagger(l2=1.0),
    "hmsvm": HMSVMTagger(random_state=0, max_iter=50),
    "zscore": ZScoreTagger(),
    "zscore l2": ZScoreTagger(l2=0.01),
    "segmenter": SemiCRFSegmenter(l2=0.1, outside=None, max_iter=30),
}


def make_states(n, length, seed=0):
    """Rows of two numbers, of sticky states whose means are on the axes."""
    rng = np.random.default_rng(seed)
    means = 1.5 * np.array([[0, -1], [0, 1], [1, 0], [-1, 0]])
    y = [rng.permutation(4).repeat(length // 4) for _ in range(n)]
    return [means[states] + rng.normal(size=(len(states), 2)) for states in y], y


def told(model, X, y):
    """Warnings of columns, and the fraction of rows labelled right."""
    is_segmenter = isinstance(model, SemiCRFSegmenter)
    labels = [labels_to_segments(list(map(str, q)), "runs") for q in y] if is_segmenter else y
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ConvergenceWarning)
        answers = model.fit(X, labels).predict(X)
    if is_segmenter:
        answers = [[int(k) for a, b, k in one for _ in range(a, b)] for one in answers]
    right = np.mean(np.concatenate([np.equal(p, q) for p, q in zip(answers, y)]))
    return {str(warning.message) for warning in found}, right


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [6, 30])
def test_units_and_offsets_that_lose_accuracy_are_told(name, n):
    X, y = make_states(n, 40)
    plain, best = told(MODELS[name], X, y)
    assert not plain
    for offset in (3.0, 30.0, 300.0):
        messages, right = told(MODELS[name], [x + [offset, 0] for x in X], y)
        assert right > best - 0.05 or messages
        named = "Of 2 columns of X, 1 (0) have a mean far from zero for their spread (column 0: "
        assert all(named in message for message in messages)
    for unit in (0.1, 0.01, 1e-3, 1e-4):
        messages, right = told(MODELS[name], [x * [1, unit] for x in X], y)
        assert right > best - 0.15 or messages
        assert all("Of 2 columns of X, 1 (1) are at most" in message for message in messages)


@pytest.mark.parametrize("model", [CRFTagger(), HMSVMTagger(max_iter=50), ZScoreTagger()], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_no_unit_of_all_columns_loses_accuracy_silently(model, seed):
    rng = np.random.default_rng(seed)
    n_labels, n_columns, n = rng.integers(2, 8), rng.integers(2, 12), rng.integers(10, 60)
    means, noise = rng.normal(size=(n_labels, n_columns)), rng.uniform(0.3, 1)
    y = [rng.integers(0, n_labels, 5).repeat(rng.integers(1, 9, 5)) for _ in range(n)]
    X = [means[states] + noise * rng.normal(size=(len(states), n_columns)) for states in y]
    X = [x - np.concatenate(X).mean(axis=0) for x in X]
    best = told(model, X, y)[1]
    for unit in (0.05, 0.02, 0.01, 0.003):
        messages, right = told(model, [unit * x for x in X], y)
        assert right > best - 0.2 or messages


@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_small_columns_add_as_little_as_the_bound_says(l2):
    for seed in range(5):
        X, y = make_states(5, 40, seed)
        rng = np.random.default_rng(seed)
        X = [x @ rng.normal(size=(2, 3)) * rng.choice([1e-1, 1e-2, 1e-3], size=3) for x in X]
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model = CRFTagger(l2=l2, tol=1e-6).fit(X, y)
        for warning in found:
            named = str(warning.message).partition("(")[2].partition(")")[0]
            columns = list(map(int, named.split(", ")))
            added = np.concatenate(X)[:, columns] @ model.coef_[columns]
            assert np.sqrt(np.square(added).mean(axis=0)).max() <= LITTLE_EFFECT


def test_intercepts_indicators_and_sparse_rows_are_not_told():
    X, y = make_states(10, 40)
    rng = np.random.default_rng(0)
    X = [np.c_[x, np.full(40, 1e4), rng.random((40, 2)) < [0.9, 0.1]] for x in X]
    assert not told(CRFTagger(), X, y)[0]
    far = [sparse.csr_array((rng.random((40, 50)) < 0.1) * 30.0) for _ in X]
    assert not told(CRFTagger(), far, y)[0]
    assert not told(CRFTagger(l2=0.0), [x + 30 for x in X], y)[0]  # no penalty, so no loss


@pytest.mark.parametrize("piece", [1, 7, 1 << 14])
@pytest.mark.parametrize("unit", [1e-6, -1e-6, 1.0])
def test_small_values_among_others_are_found(unit, piece, monkeypatch):
    monkeypatch.setattr(column_units, "PIECE", piece)
    rng, (_, y) = np.random.default_rng(0), make_states(10, 40)
    values = np.where(rng.random((400, 3)) < 0.1, [1.0, unit, -3.0], 0.0)
    X = [sparse.csr_array(values[40 * k :][:40]) for k in range(10)]
    messages = told(CRFTagger(l2=1.0), X, y)[0]
    assert len(messages) == (unit != 1)
    assert all("Of 3 columns of X, 1 (1) are at most 1e-06" in message for message in messages)


@pytest.mark.parametrize("model", [CRFTaggerCV(l2s=[0.1, 1.0], cv=2), ZScoreTaggerCV(cv=2)])
def test_searches_tell_and_scaling_helps(model):
    X, y = make_states(10, 40)
    X = [x + 100 for x in X]
    assert "Of 2 columns of X, 2 (0, 1) have a mean far" in told(model, X, y)[0].pop()
    assert not told(make_pipeline(PerToken(StandardScaler()), model), X, y)[0]
