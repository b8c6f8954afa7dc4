"""Labels that training did not have: wrong in every score, of probability zero as a path."""

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    RowBlocks,
    SemiCRFSegmenter,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.datasets import read_conll
from sklseq.features import TokenFeatures
from sklseq.metrics import span_f1, token_accuracy

TAGGERS = {
    "crf": CRFTagger(max_iter=20, tol=1e-3),
    "crf float32": CRFTagger(max_iter=20, tol=1e-3),
    "hmsvm": HMSVMTagger(random_state=0),
    "hmsvm rbf": HMSVMTagger(kernel="rbf", random_state=0),
    "zscore": ZScoreTagger(),
    "zscore cv": ZScoreTaggerCV(),
    "online": OnlineDecoder(ZScoreTagger()),
    "online lag": OnlineDecoder(ZScoreTagger(), lag=1),
}
KINDS = {"strings": np.array(["a", "b", "c", "new"]), "integers": np.array([3, -1, 7, 99])}


def make_data_of_new_label(kind="strings", seed=0, n=8):
    """Rows that tell their label, of which the last is not in the first half of the sequences."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 3, size=rng.integers(1, 6)) for _ in range(n)]
    for path in codes[n // 2 :]:
        path[rng.integers(len(path))] = 3
    X = [3 * np.eye(4)[path] + 0.1 * rng.normal(size=(len(path), 4)) for path in codes]
    return X, [KINDS[kind][path] for path in codes]


def share_right(y, predicted, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    right = sum(w * np.sum(np.asarray(a) == b) for a, b, w in zip(y, predicted, weight))
    return right / sum(w * len(a) for a, w in zip(y, weight))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TAGGERS)
def test_an_unseen_label_is_a_wrong_row(name, kind):
    X, y = make_data_of_new_label(kind)
    X = [x.astype(np.float32) for x in X] if "32" in name else X
    model = TAGGERS[name].fit(X[:4], y[:4])
    weight = np.linspace(0.5, 3, len(X))
    predicted = model.predict(X)
    assert not np.isin(np.concatenate(predicted), KINDS[kind][3]).any()
    assert_allclose(model.score(X, y), share_right(y, predicted))
    assert_allclose(model.score(X, y, weight), share_right(y, predicted, weight))
    assert model.score([x[:1] for x in X], [KINDS[kind][3:]] * len(X)) == 0.0


def test_unseen_labels_in_blocks_and_shards():
    X, y = make_data_of_new_label()
    model, weight = CRFTagger(tol=1e-3).fit(X[:4], y[:4]), np.linspace(0.5, 3, len(X))
    expected = model.score(X, y, weight)
    assert 0 < expected < 1
    blocks = [RowBlocks(x) for x in X]
    assert_allclose(model.score(blocks, y, weight), expected)
    shards = Shards([(X[:5], y[:5], weight[:5]), (X[5:], y[5:], weight[5:])])
    assert_allclose(model.score(shards), expected)


def test_unseen_labels_on_a_cluster():
    delayed = pytest.importorskip("dask").delayed
    X, y = make_data_of_new_label()
    model = CRFTagger(tol=1e-3).fit(X[:4], y[:4])
    parts = [delayed((X[:5], y[:5])), delayed((X[5:], y[5:]))]
    assert_allclose(model.score(parts), model.score(X, y))


@pytest.mark.parametrize("form", ["labels", "segments"])
def test_unseen_types_of_a_segmenter_are_wrong_spans(form):
    X, _ = make_data_of_new_label()
    labels = [["O"] * len(x) for x in X]
    segments = [[] for _ in X]
    for s, x in enumerate(X):
        kind = "new" if s >= 4 else "a"
        labels[s][len(x) - 1] = f"B-{kind}"
        segments[s] = [(len(x) - 1, len(x), kind)]
    y = labels if form == "labels" else segments
    model = SemiCRFSegmenter(max_iter=20, tol=1e-3).fit(X[:4], y[:4])
    assert_allclose(model.score(X, y), span_f1(labels, model.predict_labels(X)))
    weight = np.array([0] * 2 + [2] * (len(X) - 2))  # as if left out, and as if there twice
    twice = np.repeat(np.arange(len(X)), weight)
    repeated = model.score([X[s] for s in twice], [y[s] for s in twice])
    assert repeated != model.score(X, y)
    assert_allclose(model.score(X, y, sample_weight=weight), repeated, rtol=1e-12)
    online = OnlineDecoder(model, strategy="closure").fit(X[:4], labels[:4])
    repeated = online.score([X[s] for s in twice], [labels[s] for s in twice])
    assert_allclose(online.score(X, labels, sample_weight=weight), repeated, rtol=1e-12)
    log_p = model.predict_log_proba_sequence(X, y)
    assert_array_equal(np.isneginf(log_p), np.arange(len(X)) >= 4)
    assert_allclose(log_p[:4], model.predict_log_proba_sequence(X[:4], y[:4]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_with_an_unseen_label_has_probability_0(kind):
    X, y = make_data_of_new_label(kind)
    model = CRFTagger(tol=1e-3).fit(X[:4], y[:4])
    log_p = model.predict_log_proba_sequence(X, y)
    assert_array_equal(np.isneginf(log_p), [KINDS[kind][3] in path for path in y])
    assert_allclose(log_p[:4], model.predict_log_proba_sequence(X[:4], y[:4]))


@pytest.mark.parametrize("name", ["crf", "hmsvm", "zscore", "online"])
def test_labels_of_another_kind_are_an_error_not_a_zero(name):
    X, y = make_data_of_new_label("integers")
    model = TAGGERS[name].fit(X[:4], y[:4])
    with pytest.raises(ValueError, match="must be strings, or neither: convert one"):
        model.score(X, [path.astype(str) for path in y])
    with pytest.raises(ValueError, match="must be strings, or neither"):
        CRFTagger().fit(X[:4], y[:4]).score([RowBlocks(x) for x in X], [p.astype(str) for p in y])


@pytest.mark.parametrize("n_folds", [3, 10])
@pytest.mark.parametrize("name", TAGGERS)
def test_folds_with_labels_of_their_own_have_finite_scores(name, n_folds):
    X, y = make_data_of_new_label(n=10)
    # One label a sequence and nowhere else, in a tenth of the sequences.
    y = [path.astype("U9") for path in y]
    y[2][0], y[7][0] = "rare", "rarer"
    estimator = TAGGERS[name]
    scores = cross_val_score(estimator, X, y, cv=KFold(n_folds), error_score="raise")
    assert np.isfinite(scores).all()
    for (train, test), score in zip(KFold(n_folds).split(X), scores):
        model = estimator.fit([X[s] for s in train], [y[s] for s in train])
        truth = [y[s] for s in test]
        assert_allclose(score, token_accuracy(truth, model.predict([X[s] for s in test])))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.skipif("SKLSEQ_DATA" not in os.environ, reason="SKLSEQ_DATA names no data folder")
def test_grid_search_on_conll2000_has_no_nan():
    path = Path(os.environ["SKLSEQ_DATA"]) / "conll2000" / "train.txt.gz"
    if not path.exists():
        pytest.skip("no conll2000 in SKLSEQ_DATA")
    X, y = (part[:2000] for part in read_conll(path, columns=["w", "pos"]))
    rows = TokenFeatures(n_features=2**10).fit_transform([x["w"] for x in X])
    model = CRFTagger(max_iter=1, tol=1.0)
    search = GridSearchCV(model, {"l2": [0.1, 1.0]}, cv=3).fit(rows, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
