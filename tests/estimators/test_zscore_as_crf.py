"""``refine`` and ``probability`` of ZScoreTagger: against a CRF that goes on from its weights."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from sklseq import Sequences, ZScoreTagger, ZScoreTaggerCV
from tests.estimators.test_zscore import make_markov
from tests.estimators.test_zscore_cv import make_spans
from tests.sample_data import make_data

CHAIN = ("coef_", "transition_", "start_", "end_")


@pytest.mark.parametrize("constraints", [None, "iob2"])
@pytest.mark.parametrize("transitions", ["covariance", "information"])
@pytest.mark.parametrize("k", [1, 7])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_refined_weights_are_those_of_a_crf_that_goes_on(constraints, transitions, k):
    X, y = make_spans(0)
    weights = np.array([1.0, 2.0, 0.0] * 6)[: len(X)]
    options = {"l2": 0.1, "constraints": constraints, "transitions": transitions}
    tagger = ZScoreTagger(refine=k, **options).fit(X, y, weights)
    start = ZScoreTagger(**options).fit(X, y, weights)
    more = {"solver": "lbfgs", "tol": 0.0, "max_iter": k, "l2": 0.1}
    kept = np.flatnonzero(weights)
    rows, labels, own = X[kept], [y[s] for s in kept], weights[kept]
    crf = start.to_crf(rows, labels, sample_weight=own, **more).fit(rows, labels, own)
    for name in CHAIN:
        assert_allclose(getattr(tagger, name), getattr(crf, name), rtol=1e-9, atol=1e-12)
    for ours, theirs in zip(tagger.predict_proba(X), crf.predict_proba(X)):
        assert_allclose(ours, theirs, rtol=1e-8)
    known = [[None] * len(part) for part in y]
    known[0][0] = y[0][0]
    assert_allclose(tagger.predict_proba(X, known)[0], crf.predict_proba(X, known)[0], rtol=1e-8)
    assert tagger.zscore_ == start.zscore_


def test_probabilities_are_those_of_the_best_multiple():
    X, y = make_markov(0)
    plain = ZScoreTagger(l2=0.3).fit(X, y)
    tagger = ZScoreTagger(l2=0.3, probability=True).fit(X, y)
    assert_allclose(tagger.coef_, tagger.scale_ * plain.coef_, rtol=1e-12)
    assert_allclose(tagger.transition_, tagger.scale_ * plain.transition_, rtol=1e-12)
    assert all(map(np.array_equal, tagger.predict(X), plain.predict(X)))
    crf = plain.to_crf(X, y, l2=0.3)
    for ours, theirs in zip(tagger.predict_proba(X), crf.predict_proba(X)):
        assert_allclose(ours, theirs, rtol=1e-8)
    assert not hasattr(plain, "predict_proba")
    with pytest.raises(AttributeError) as error:
        plain.predict_proba(X)
    assert "needs a fit with probability=True or refine" in str(error.value)
    assert not hasattr(ZScoreTagger(), "predict_proba")
    with pytest.raises(NotFittedError):
        ZScoreTagger(probability=True).predict_proba(X)
    assert not hasattr(tagger.set_params(probability=False).fit(X, y), "scale_")


def objective_of(tagger, scale, X, y, l2):
    """The CRF's objective at ``scale`` times all weights, by enumeration of all labelings."""
    chain = [scale * getattr(tagger, name).astype(float) for name in CHAIN]
    coef, transition, start, end = (np.where(np.isfinite(w), w, 0) for w in chain)
    total = l2 * sum(np.square(w).sum() for w in (coef, transition, start, end))
    for x, labels in zip(X, y):
        paths = np.stack(np.meshgrid(*[range(coef.shape[1])] * len(x)), axis=-1)
        paths = np.vstack([labels, paths.reshape(-1, len(x))])
        scores = (x @ coef)[np.arange(len(x)), paths].sum(axis=1) + start[paths[:, 0]]
        scores += transition[paths[:, :-1], paths[:, 1:]].sum(axis=1) + end[paths[:, -1]]
        total += np.logaddexp.reduce(scores[1:]) - scores[0]
    return total


def lacking(seed):
    """Few labels, so that some transitions and, of features that may be 0, some states lack."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=4) for _ in range(2)]
    y[0][:3] = range(3)
    X = [np.eye(3)[(labels + (rng.random(4) < 0.3)) % 3] for labels in y]
    return X, y


@pytest.mark.parametrize("transitions", ["covariance", "information"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_objective_counts_weights_of_what_y_lacks(seed, transitions):
    X, y = lacking(seed)
    l2, weight = 0.1, 0.5 if transitions == "information" else None
    options = {"l2": l2, "transitions": transitions, "transition_weight": weight}
    plain = ZScoreTagger(**options).fit(X, y)
    tagger = ZScoreTagger(probability=True, **options).fit(X, y)
    best = minimize_scalar(
        lambda s: objective_of(plain, s, X, y, l2), bounds=(0, 50), method="bounded"
    )
    found = objective_of(tagger, 1, X, y, l2)
    assert_allclose(tagger.scale_, best.x, rtol=0.011)
    assert_allclose(plain.to_crf(X, y, l2=l2).coef_, tagger.coef_, rtol=1e-12)
    for k in (1, 2, 5):
        refined = ZScoreTagger(refine=k, **options).fit(X, y)
        value = objective_of(refined, 1, X, y, l2)
        assert value < found
        found = value
    crf = plain.to_crf(X, y, l2=l2).fit(X, y)
    assert_allclose(crf.loss_curve_[0], objective_of(tagger, 1, X, y, l2), rtol=1e-9)


def test_a_zscore_of_refined_weights_counts_ends():
    X, y = make_markov(1, n=6, T=4)
    tagger = ZScoreTagger(l2=0.01, refine=15).fit(X, y)
    assert np.abs(tagger.start_).max() > 0.01
    labelings = np.stack(np.meshgrid(*[range(3)] * 4), axis=-1).reshape(-1, 4)

    def score(x, path):
        rows = (x @ tagger.coef_)[np.arange(4), path].sum()
        pairs = tagger.transition_[path[:-1], path[1:]].sum()
        return rows + pairs + tagger.start_[path[0]] + tagger.end_[path[-1]]

    found = tagger.sequence_zscore(X, y).zscore
    for x, labels, z in zip(X, y, found):
        scores = np.array([score(x, path) for path in labelings])
        assert_allclose(z, (score(x, labels) - scores.mean()) / scores.std(), rtol=1e-8)


def test_iterations_cut_short_are_no_failure():
    X, y = make_markov(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        tagger = ZScoreTagger(refine=2).fit(X, y)
    rows = Sequences(np.concatenate(X).astype(np.float32), np.cumsum([0, *map(len, X)]))
    single = ZScoreTagger(refine=2).fit(rows, y)
    assert single.coef_.dtype == single.predict_proba(rows)[0].dtype == np.float32
    assert_allclose(single.coef_, tagger.coef_, atol=1e-3)
    assert_array_equal(single.predict(rows)[0], tagger.predict(X)[0])


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        ({"refine": -1}, "fit", "refine must be"),
        ({"refine": True}, "fit", "refine must be an integer"),
        ({"class_weight": "bal"}, "fit", "class_weight must be None, 'balanced' or a dict"),
        ({"probability": 1}, "fit", "probability must be True or False"),
        ({"refine": 3, "kernel": "rbf"}, "fit", "needs weights of features, which kernel='rbf'"),
        ({"refine": 3}, "partial_fit", "partial_fit: it keeps sums only"),
    ],
)
def test_what_cannot_be_refined(options, method, message):
    X, y = make_markov(3, n=3)
    arguments = {"classes": [0, 1, 2]} if method == "partial_fit" else {}
    error = AttributeError if method == "partial_fit" else ValueError
    with pytest.raises(error, match=message):
        getattr(ZScoreTagger(**options), method)(X, y, **arguments)


def product(A, B):
    return A @ B.T


@pytest.mark.parametrize("n_landmarks", [None, 12])
def test_probabilities_with_a_kernel(n_landmarks):
    X, y = make_data(2)
    kernel = {"kernel": product, "n_landmarks": n_landmarks, "random_state": 0}
    tagger = ZScoreTagger(l2=0.3, probability=True, **kernel).fit(X, y)
    linear = ZScoreTagger(l2=0.3, probability=True).fit(X, y)  # few columns: landmarks are exact
    assert_allclose(tagger.scale_, linear.scale_, rtol=1e-6)
    for found, expected in zip(tagger.predict_proba(X), linear.predict_proba(X)):
        assert_allclose(found, expected, atol=1e-6)
    plain = ZScoreTagger(l2=0.3, **kernel).fit(X, y)
    assert_allclose(tagger.dual_coef_, tagger.scale_ * plain.dual_coef_)


@pytest.mark.parametrize("options", [{"refine": 4}, {"probability": True}])
def test_a_search_trains_its_best_as_a_crf(options):
    X, y = make_data(3)
    search = ZScoreTaggerCV(l2s=[0.1, 1.0], **options).fit(X, y)
    chosen = {"l2": search.l2_, "transition_weight": search.transition_weight_}
    tagger = ZScoreTagger(transitions="information", **chosen, **options).fit(X, y)
    assert_allclose(search.coef_, tagger.coef_)
    assert_allclose(
        np.concatenate(search.predict_proba(X)), np.concatenate(tagger.predict_proba(X))
    )
    assert_allclose(search.cv_scores_, ZScoreTaggerCV(l2s=[0.1, 1.0]).fit(X, y).cv_scores_)


@pytest.mark.parametrize("scale", [0.3, 2.5])
def test_a_factor_multiplies_weights_of_ends_too(scale):
    X, y = make_spans(0)
    tagger = ZScoreTagger(refine=5, l2=0.1).fit(X, y)
    crf = tagger.to_crf(scale=scale)
    assert np.abs(tagger.start_).max() > 0
    for name in CHAIN:
        assert_allclose(getattr(crf, name), scale * getattr(tagger, name))
    assert all(map(np.array_equal, crf.predict(X), tagger.predict(X)))


def test_the_best_multiple_of_refined_weights_is_that_of_all_weights():
    """Against a search for the least objective along the ray."""
    X, y = make_spans(0)
    tagger = ZScoreTagger(refine=5, l2=0.1).fit(X, y)
    for name in CHAIN:
        setattr(tagger, name, 3 * getattr(tagger, name))

    def objective(k):
        crf = tagger.to_crf(scale=k, l2=0.1)
        squares = sum(
            np.square(getattr(crf, name)[np.isfinite(getattr(crf, name))]).sum() for name in CHAIN
        )
        return 0.1 * squares - crf.predict_log_proba_sequence(X, y).sum()

    best = minimize_scalar(objective, bounds=(0.01, 3), method="bounded").x
    found = tagger.to_crf(X, y, l2=0.1).start_ / tagger.start_
    assert_allclose(found, best, rtol=0.02)  # PRECISION of the search is 0.01
