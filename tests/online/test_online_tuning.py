"""tune_latency: the target is kept on data not seen, one training a fold, honest curves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter
from sklseq.datasets import make_contacts
from sklseq.display import LatencyAccuracyDisplay
from sklseq.features import TemplateFeatures
from sklseq.online import make_latency_scorer, neg_mean_latency, tune_latency


def tagger():
    return make_pipeline(TemplateFeatures(["w[0]", "w[1]"]), CRFTagger(l2=0.1, tol=0.1))


@pytest.fixture(scope="module")
def data():
    return make_contacts(90, random_state=3)


@pytest.fixture(scope="module")
def seen(data):
    return data[0][:40], data[1][:40]


@pytest.fixture(scope="module")
def model(seen):
    return tagger().fit(*seen)


class Counted(BaseEstimator):
    """A tagger that counts how often it is trained."""

    n_fits = 0

    def fit(self, X, y):
        type(self).n_fits += 1
        self.tagger_ = CRFTagger(l2=0.1, tol=0.1).fit(X, y)
        self.classes_ = self.tagger_.classes_
        return self

    def potentials(self, X):
        return self.tagger_.potentials(X)


def between(decoder, X, share):
    """A mean latency between that without waiting and that of certain labels."""
    least, most = (
        clone(decoder).set_params(latency_cost=cost).latency_report(X).mean for cost in (10, 0)
    )
    return least + share * (most - least)


@pytest.mark.parametrize("strategy", ["step", "window"])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_mean_latency_is_kept_on_data_not_seen(strategy, share, data, model):
    decoder = OnlineDecoder(FrozenEstimator(model), strategy=strategy)
    target = between(decoder, data[0][40:65], share)
    tuning = tune_latency(decoder, data[0][40:65], None, target_latency=target)
    # Half a percent on the sequences of the search; 5 % of the target on others.
    assert_allclose(tuning.report.mean, target, rtol=0.005)
    report = tuning.decoder.latency_report(data[0][65:])
    assert_allclose(report.mean, target, rtol=0.05)


def test_the_curve_is_that_of_decoders(seen, model):
    decoder = OnlineDecoder(FrozenEstimator(model), max_latency=6)
    target = between(decoder, seen[0], 0.5)
    tuning = tune_latency(decoder, *seen, target_latency=target)
    assert tuning.curve["latency_cost"].tolist() == sorted(tuning.curve["latency_cost"])
    for k in (0, 5, -1):
        cost = float(tuning.curve["latency_cost"][k])
        report = OnlineDecoder(FrozenEstimator(model), max_latency=6, latency_cost=cost)
        report = report.latency_report(seen[0])
        assert (report.mean, report.disagreement) == (
            tuning.curve["mean_latency"][k],
            tuning.curve["disagreement"][k],
        )
    assert tuning.decoder.latency_report(seen[0]).mean == tuning.report.mean
    assert tuning.decoder.latency_cost == tuning.latency_cost
    assert decoder.latency_cost == 0.01


def test_folds_decode_what_their_model_has_not_seen(seen):
    X, y = seen[0][:12], seen[1][:12]
    tuning = tune_latency(OnlineDecoder(tagger()), X, y, scorer=neg_mean_latency, cv=KFold(3))
    latency, wrong, n = 0.0, 0.0, 0
    for train, test in KFold(3).split(X):
        part = tuning.decoder.fit([X[s] for s in train], [y[s] for s in train])
        report = part.latency_report([X[s] for s in test])
        latency += report.n_rows * report.mean
        wrong += report.n_rows * report.disagreement
        n += report.n_rows
    # rtol: the order of sums.
    assert_allclose(tuning.report.mean, latency / n, rtol=1e-12)
    assert_allclose(tuning.report.disagreement, wrong / n, rtol=1e-12)


def test_disagreement_is_that_asked_for(seen, model):
    decoder = OnlineDecoder(FrozenEstimator(model))
    tuning = tune_latency(decoder, *seen, target_disagreement=0.01)
    # The next label that changes is the limit: 0.05 of 0.01.
    assert_allclose(tuning.report.disagreement, 0.01, rtol=0.05)


def test_equal_costs_are_judged_by_the_other_measure(seen, model):
    decoder, seen = OnlineDecoder(FrozenEstimator(model)), [part[:8] for part in seen]
    curve = tune_latency(decoder, *seen, scorer=neg_mean_latency).curve
    exact = curve["disagreement"] == 0
    assert len(set(curve["mean_latency"][exact])) > 1
    tuning = tune_latency(decoder, *seen, target_disagreement=0.0)
    assert tuning.report.disagreement == 0
    assert tuning.report.mean == curve["mean_latency"][exact].min()
    least = curve["mean_latency"].min()  # of several costs, so high that each label leaves at once
    tuning = tune_latency(decoder, *seen, target_latency=least)
    at_least = curve["mean_latency"] == least
    assert tuning.report.disagreement == curve["disagreement"][at_least].min()


def test_one_training_a_fold(seen):
    X, y = [list(map(list, zip(x["w"]))) for x in seen[0][:12]], seen[1][:12]
    Counted.n_fits = 0
    tuning = tune_latency(OnlineDecoder(Counted()), X, y, target_disagreement=0.001, cv=3)
    assert Counted.n_fits == 3
    assert len(tuning.reports) > 15
    fitted = OnlineDecoder(FrozenEstimator(Counted().fit(X, y)))
    Counted.n_fits = 0
    tuning = tune_latency(fitted, X, y, target_disagreement=0.001)
    assert Counted.n_fits == 0
    assert len(tuning.decoder.predict(X)) == 12


@pytest.mark.parametrize("scorer", [make_latency_scorer(0.02), neg_mean_latency])
def test_scores_are_those_of_a_grid_search(scorer, seen):
    X, y = seen[0][:15], seen[1][:15]
    tuning = tune_latency(OnlineDecoder(tagger()), X, y, scorer=scorer, cv=2)
    costs = tuning.curve["latency_cost"][[0, 6, 12]]
    search = GridSearchCV(
        OnlineDecoder(tagger()), {"latency_cost": costs}, scoring=scorer, cv=2, refit=False
    ).fit(X, y)
    # rtol: the order of sums.
    assert_allclose(
        tuning.curve["score"][[0, 6, 12]], search.cv_results_["mean_test_score"], rtol=1e-12
    )
    best = tuning.curve["latency_cost"] == tuning.latency_cost
    assert tuning.curve["score"][best] == tuning.curve["score"].max()


def test_the_display_shows_curve_and_choice(seen, model):
    tuning = tune_latency(OnlineDecoder(FrozenEstimator(model)), *seen, target_disagreement=0.01)
    display = LatencyAccuracyDisplay.from_tuning(tuning)
    assert display.curves[0].latency.tolist() == tuning.curve["mean_latency"].tolist()
    assert display.look_ahead.values == (tuning.latency_cost,)
    assert display.look_ahead.reports == [tuning.report]


def test_wrong_calls(seen, model):
    decoder = OnlineDecoder(FrozenEstimator(model))
    for arguments, message in (
        ({}, r"exactly one of .*; got none of them"),
        ({"target_latency": 1, "scorer": neg_mean_latency}, r"exactly one of .*; got \['target_l"),
        ({"target_latency": -1.0}, r"target_latency must be a finite number of at least 0"),
        ({"target_latency": 100}, r"target_latency=100 cannot be reached: .* it is from"),
        ({"target_disagreement": 1}, r"target_disagreement=1 cannot be reached"),
        ({"scorer": lambda *_: np.nan}, r"finite number; with latency_cost=0 it gave nan"),
        ({"scorer": "accuracy"}, r"scorer must be called as scorer\(decoder, X, y\)"),
    ):
        with pytest.raises(ValueError, match=message):
            tune_latency(decoder, *seen, **arguments)
    for wrong in ({"lag": 2}, {"strategy": "closure"}):
        with pytest.raises(ValueError, match="tune_latency chooses latency_cost, which"):
            tune_latency(OnlineDecoder(FrozenEstimator(model), **wrong), *seen, target_latency=2)
    with pytest.raises(TypeError, match="takes an OnlineDecoder; got Pipeline"):
        tune_latency(model, *seen, target_latency=2)
    with pytest.raises(TypeError, match="potentials of a tagger; got a segmenter"):
        tune_latency(OnlineDecoder(SemiCRFSegmenter()), *seen, target_latency=2)
    with pytest.raises(ValueError, match="same number of sequences; got 40 in X and 39 in y"):
        tune_latency(OnlineDecoder(tagger()), seen[0], seen[1][:-1], target_latency=2)
    with pytest.raises(ValueError, match="max_latency=0 cannot be kept"):
        tune_latency(decoder.set_params(max_latency=0), *seen, target_latency=2)
    assert np.isfinite(decoder.latency_cost)


def test_a_scorer_may_ask_about_other_sequences(seen):
    """Each half of a fold, a copy of it, and new sequences, against the fold's own decoder."""
    new, found = make_contacts(3, random_state=9)[0], {}

    def scorer(decoder, X, y):
        key = len(X), decoder.latency_cost
        found[key] = [decoder.predict(part) for part in (X[:2], X[2:], list(X), new)]
        return 0.0

    X, y = seen[0][:9], seen[1][:9]
    decoder = OnlineDecoder(tagger())
    tune_latency(decoder, X, y, scorer=scorer, cv=[(np.arange(4, 9), np.arange(4))])
    fitted = decoder.fit(X[4:], y[4:])
    for (_, cost), answers in found.items():
        fitted.set_params(latency_cost=cost)
        for answer, part in zip(answers, (X[:2], X[2:4], X[:4], new)):
            assert [list(x) for x in answer] == [list(x) for x in fitted.predict(part)]


@pytest.mark.parametrize("frozen", [False, True])
def test_a_label_sequence_that_is_missing_is_found_before_any_work(frozen, seen, model):
    estimator = FrozenEstimator(model) if frozen else tagger()
    with pytest.raises(ValueError, match="got 40 in X and 39 in y"):
        tune_latency(OnlineDecoder(estimator), seen[0], seen[1][:-1], scorer=neg_mean_latency)
