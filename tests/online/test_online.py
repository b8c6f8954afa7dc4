"""OnlineDecoder as an estimator of scikit-learn: parameters, answers, model selection, errors."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer

from sklseq import CRFTagger, OnlineDecoder, Sequences
from sklseq.datasets import make_contacts
from sklseq.estimators.online.pipelines import look_ahead
from sklseq.features import DictFeatures, TemplateFeatures, TokenFeatures, WindowFeatures
from sklseq.metrics import token_accuracy
from sklseq.online import make_latency_scorer, neg_mean_latency

STRATEGIES = ["step", "window", "closure", "chunk", "viterbi"]


@pytest.fixture(scope="module")
def data():
    X, y = make_contacts(30, random_state=1)
    return [{name: column[:150] for name, column in x.items()} for x in X], [t[:150] for t in y]


@pytest.fixture(scope="module")
def model(data):
    templates = ["w[-1]", "w[0]", "w[1]", "newline[0]", "newline[2]"]
    pipeline = make_pipeline(TemplateFeatures(templates), CRFTagger(l2=0.1, max_iter=40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return pipeline.fit(*data)


@pytest.fixture(scope="module")
def numeric(data, model):
    """(X, fitted tagger) without look-ahead."""
    return model[0].transform(data[0]), model[-1]


def online(model, **parameters):
    return OnlineDecoder(FrozenEstimator(model), **parameters).fit(None, None)


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    "rule",
    [{"strategy": "closure"}, {"latency_cost": 0}, {"strategy": "window", "latency_cost": 0}],
)
def test_lossless_predictions_are_the_taggers(rule, data, model):
    assert online(model, **rule).predict(data[0]) == model.predict(data[0])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_decode_gives_labels_times_and_confidence(strategy, numeric):
    X, tagger = numeric
    decoder = online(tagger, strategy=strategy, window_size=3)
    labels, times, confidence = decoder.decode(X)
    for s, n in enumerate(X.lengths):
        assert len(labels[s]) == len(times[s]) == len(confidence[s]) == n
        assert (times[s] >= np.arange(n)).all()
        assert times[s].max() == n - 1
        assert (np.diff(times[s]) >= 0).all()
        assert ((confidence[s] > 0) & (confidence[s] <= 1)).all()
        assert_array_equal(labels[s], decoder.predict(X)[s])
    assert set(np.concatenate(labels)) <= set(decoder.classes_)


def test_look_ahead_of_features_is_part_of_latency(data, model, numeric):
    X, tagger = numeric
    of_rows, of_tokens = online(tagger).decode(X), online(model).decode(data[0])
    for n, rows, tokens in zip(X.lengths, of_rows.times, of_tokens.times):
        assert_array_equal(tokens, np.minimum(rows + 2, n - 1))
    report = online(model, max_latency=3).latency_report(data[0])
    assert report.quantiles[1.0] == 3


def test_latency_report_counts_what_decode_says(data, model):
    decoder = online(model, latency_cost=0.2)
    decoding, report = decoder.decode(data[0]), decoder.latency_report(data[0])
    latency = np.concatenate([times - np.arange(len(times)) for times in decoding.times])
    batch = np.concatenate(model.predict(data[0]))
    assert report.n_rows == len(latency)
    assert report.mean == latency.mean()
    assert report.quantiles[0.5] == np.sort(latency)[(len(latency) - 1) // 2]
    assert report.quantiles[1.0] == latency.max()
    assert_array_equal(report.histogram, np.bincount(latency))
    assert report.share_above_10 == (latency > 10).mean()
    assert report.disagreement == (np.concatenate(decoding.labels) != batch).mean() > 0
    assert f"mean {report.mean:.3f}" in str(report)


def test_transform_gives_confidence_and_latency_as_features(data, model):
    decoder = online(model)
    features, decoding = decoder.transform(data[0]), decoder.decode(data[0])
    assert isinstance(features, Sequences)
    assert features.shape == (len(data[0]), len(decoder.classes_) + 1)
    names = decoder.get_feature_names_out()
    assert len(names) == features.shape[1]
    assert names[-1] == "latency"
    for rows, labels, times, confidence in zip(features, *decoding):
        assert_array_equal(rows[:, -1], times - np.arange(len(times)))
        assert_allclose(rows[:, :-1].sum(axis=1), confidence, rtol=0)
        assert_array_equal(decoder.classes_[rows[:, :-1].argmax(axis=1)], labels)


def test_score_is_token_accuracy(data, model):
    decoder = online(model)
    assert decoder.score(*data) == token_accuracy(data[1], decoder.predict(data[0])) > 0.8
    weights = np.arange(len(data[0]))
    expected = token_accuracy(data[1], decoder.predict(data[0]), sample_weight=weights)
    assert decoder.score(*data, sample_weight=weights) == expected


def test_threads_change_nothing(data, model):
    one, two = online(model), online(model, n_jobs=2)
    for a, b in zip(one.decode(data[0] * 40), two.decode(data[0] * 40)):
        assert_array_equal(np.concatenate(a), np.concatenate(b))


def test_empty_sequences_are_fine(data, model):
    empty = {"w": [], "newline": []}
    labels, times, _ = online(model).decode([empty, data[0][0], empty])
    assert [len(x) for x in labels] == [0, len(data[1][0]), 0]
    assert len(times[2]) == 0
    assert len(online(model).predict([])) == 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_float32_taggers_decode_like_themselves(numeric, data):
    X = numeric[0].with_rows(numeric[0].rows.astype(np.float32))
    tagger = CRFTagger(l2=0.1, max_iter=20, tol=0.1).fit(X, data[1])
    assert tagger.coef_.dtype == np.float32
    assert online(tagger, strategy="closure").predict(X) == tagger.predict(X)


# ------------------------------------------------------------------ inside scikit-learn


def test_fit_trains_a_clone():
    X, y = [["he", "sleeps"], ["she", "sings"]], [["N", "V"], ["N", "V"]]
    pipeline = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger())
    decoder = OnlineDecoder(pipeline, latency_cost=0).fit(X, y)
    assert not hasattr(pipeline[0], "n_features_out_")
    assert decoder.predict(X)[1] == ["N", "V"]
    assert decoder.classes_.tolist() == ["N", "V"]
    default = OnlineDecoder().fit([[{"a": 1}, {"b": 1}]], [["x", "y"]])
    assert isinstance(default.estimator_, CRFTagger)


def test_fit_passes_sample_weight_on():
    X, y = [[{"a": 1}], [{"a": 1}]], [["x"], ["y"]]
    for favoured, weights in (("x", [3, 1]), ("y", [1, 3])):
        decoder = OnlineDecoder(CRFTagger(), latency_cost=0).fit(X, y, sample_weight=weights)
        assert decoder.predict(X)[0] == [favoured]


def test_clone_and_pickle(data, model):
    decoder = online(model, strategy="window", latency_cost=0.1, max_latency=9)
    again = pickle.loads(pickle.dumps(decoder))
    for a, b in zip(decoder.decode(data[0]), again.decode(data[0])):
        assert_array_equal(np.concatenate(a), np.concatenate(b))
    assert clone(decoder).get_params()["max_latency"] == 9


def test_grid_search_over_latency_cost(data, model):
    costs = [1.0, 0.1, 0.001]
    searches = [
        GridSearchCV(online(model), {"latency_cost": costs}, cv=2, scoring=scoring, refit=False)
        for scoring in (neg_mean_latency, make_latency_scorer(price=0), None)
    ]
    latency, accuracy, default = (
        search.fit(*data).cv_results_["mean_test_score"] for search in searches
    )
    assert (np.diff(latency) < 0).all()
    assert_allclose(accuracy, default, rtol=1e-12)  # the same numbers, averaged the same way
    assert accuracy[-1] >= accuracy[0]


def test_scorers_weigh_accuracy_against_latency(data, model):
    decoder, X = online(model), data[0]
    mean = decoder.latency_report(X).mean
    scorer = make_latency_scorer(price=0.02)
    assert_allclose(scorer(decoder, *data), decoder.score(*data) - 0.02 * mean, rtol=1e-12)
    assert neg_mean_latency(decoder, X) == -mean
    pickle.loads(pickle.dumps(scorer))
    assert "price=0.02" in repr(scorer)
    named = make_latency_scorer(metric=partial(token_accuracy, sample_weight=None))
    search = GridSearchCV(decoder, {"latency_cost": [0.1]}, scoring=named)
    assert "metric=functools.partial(<function token_accuracy" in repr(search)
    with pytest.raises(ValueError, match="price must be a finite number of at least 0; got -1"):
        make_latency_scorer(-1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_cross_val_predict(numeric, data):
    X, _ = numeric
    tagger = CRFTagger(l2=1.0, max_iter=15, tol=0.01)
    predicted = cross_val_predict(OnlineDecoder(tagger, max_latency=2), X, data[1], cv=2)
    assert [len(p) for p in predicted] == X.lengths.tolist()


def test_a_search_inside_the_decoder():
    X, y = [["he", "sleeps"], ["she", "sings", "he"]] * 3, [["N", "V"], ["N", "V", "N"]] * 3
    pipeline = make_pipeline(TemplateFeatures(["w[0]", "w[1]"]), CRFTagger())
    search = GridSearchCV(pipeline, {"crftagger__l2": [0.1, 10.0]}, cv=2)
    decoder = OnlineDecoder(search, strategy="closure").fit(X, y)
    assert decoder.predict(X) == search.fit(X, y).predict(X)
    assert look_ahead(decoder.estimator_) == (1, 1)
    assert look_ahead(search.set_params(estimator__crftagger__l1=1.0), fitted=False) == (0, 0)


# ------------------------------------------------------------------ receptive fields


class Field(TransformerMixin, BaseEstimator):
    def __init__(self, field=(0, 0)):
        self.field = field

    @property
    def receptive_field(self):
        return self.field

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


def test_receptive_fields_add_up_along_a_pipeline():
    steps = [Field((2, 1)), "passthrough", make_pipeline(Field((0, 3)), Field((1, 0)))]
    assert look_ahead(make_pipeline(*steps, CRFTagger())) == (3, 4)


def test_receptive_fields_of_a_union_are_the_widest():
    union = make_union(Field((2, 1)), make_pipeline(Field((0, 3)), Field((1, 0))))
    assert look_ahead(make_pipeline(union, CRFTagger())) == (2, 3)
    union = FeatureUnion([("a", Field((1, 1))), ("b", "drop")])
    assert look_ahead(make_pipeline(FrozenEstimator(union), CRFTagger())) == (1, 1)


def test_receptive_fields_of_the_extractors(data):
    def field(*templates, **parameters):
        return TemplateFeatures(list(templates), **parameters).fit(data[0]).receptive_field

    assert field("w[0]", bos_eos=False) == (0, 0)
    assert field("w[0]") == (1, 1)
    assert field("w[-3]|w[0]", "newline[2]") == (3, 2)
    assert DictFeatures().fit([[{"a": 1}]]).receptive_field == (0, 0)


# ------------------------------------------------------------------ errors


class Untouched(CRFTagger):
    def fit(self, X, y):
        raise AssertionError("trained")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"latency_cost": -1}, "latency_cost must be a finite number of at least 0; got -1"),
        ({"latency_cost": np.nan}, "latency_cost must be .*; got nan"),
        ({"strategy": "fast"}, "strategy must be one of .*; got 'fast'"),
        ({"uncertainty": "gini"}, "uncertainty must be one of .*; got 'gini'"),
        ({"strategy": "chunk"}, "needs window_size"),
    ],
)
def test_bad_parameters_are_found_before_training(parameters, message):
    with pytest.raises(ValueError, match=message):
        OnlineDecoder(Untouched(), **parameters).fit([[{"a": 1}]], [["x"]])


def test_an_estimator_without_potentials_is_refused():
    with pytest.raises(TypeError, match=r"potentials\(X\).*LogisticRegression has none"):
        OnlineDecoder(LogisticRegression()).fit([[[1.0]]], [["x"]])


def test_a_step_without_receptive_field_is_named():
    pipeline = make_pipeline(FunctionTransformer(), CRFTagger())
    with pytest.raises(ValueError, match=r"Step 'functiontransformer' \(FunctionTransformer\)"):
        OnlineDecoder(pipeline).fit([[[1.0]]], [["x"]])
    union = make_pipeline(make_union(Field(), FunctionTransformer()), CRFTagger())
    with pytest.raises(ValueError, match=r"Step 'featureunion__functiontransformer'"):
        OnlineDecoder(union).fit([[[1.0]]], [["x"]])


def test_a_step_that_needs_the_whole_sequence_is_named():
    for field in (None, (np.inf, 0)):
        pipeline = make_pipeline(Field(field), CRFTagger()).fit([[[1.0]], [[0.0]]], [["x"], ["y"]])
        with pytest.raises(ValueError, match=r"Step 'field' .* needs the whole sequence"):
            online(pipeline).predict([[[1.0]]])


def test_a_bound_below_the_look_ahead_is_refused(data, model):
    with pytest.raises(ValueError, match=r"max_latency=1 cannot be kept: .* look 2 tokens ahead"):
        online(model, max_latency=1).predict(data[0])
    with pytest.raises(ValueError, match=r"lag=0 cannot be kept"):
        OnlineDecoder(FrozenEstimator(model), lag=0).stream()


@pytest.mark.parametrize(
    "features",
    [
        TemplateFeatures(["w[0]", "w[1]", "newline[2]"]),
        TemplateFeatures(columns=["w", "newline"]),
        make_union(TemplateFeatures(["w[0]"]), TemplateFeatures(["w[2]"])),
        WindowFeatures(TokenFeatures(columns=["w"]), after=2),
    ],
    ids=["templates", "default", "union", "window"],
)
def test_a_bound_below_the_look_ahead_is_refused_before_training(features, data):
    pipeline = make_pipeline(features, Untouched())
    for name in ("max_latency", "lag"):
        with pytest.raises(ValueError, match=f"{name}=1 cannot be kept: .* look 2 tokens"):
            OnlineDecoder(pipeline, **{name: 1}).fit(*data)
        with pytest.raises(AssertionError, match="trained"):
            OnlineDecoder(pipeline, **{name: 2}).fit(*data)


def test_confidence_at_the_end_is_the_taggers_probability(data, model):
    labels, _, confidence = online(model, strategy="viterbi").decode(data[0])
    code = {label: k for k, label in enumerate(model.classes_)}
    for path, certain, proba in zip(labels, confidence, model.predict_proba(data[0])):
        expected = proba[np.arange(len(path)), [code[label] for label in path]]
        assert_allclose(certain, expected, rtol=1e-9)  # sums of 150 rows in another order


def test_a_frozen_estimator_needs_no_fit(data, model):
    decoder, fitted = OnlineDecoder(FrozenEstimator(model)), online(model)
    assert decoder.predict(data[0]) == fitted.predict(data[0])
    assert_array_equal(decoder.classes_, fitted.classes_)
    assert decoder.score(*data) == fitted.score(*data)
    assert str(decoder.latency_report(data[0])) == str(fitted.latency_report(data[0]))
    assert list(decoder.iter([])) == []
    unfitted = OnlineDecoder(FrozenEstimator(clone(model)))
    with pytest.raises(NotFittedError):
        unfitted.predict(data[0])
    assert not hasattr(unfitted, "classes_")


def test_an_unfitted_decoder_says_so(data, model):
    decoder = OnlineDecoder(model)
    for use in (decoder.stream, lambda: decoder.predict(data[0]), lambda: decoder.classes_):
        with pytest.raises(NotFittedError):
            use()


def test_a_report_needs_rows(model):
    with pytest.raises(ValueError, match="X holds no rows"):
        online(model).latency_report([])


def test_a_decoder_has_no_number_of_features_before_fit():
    X, y = [np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[2, 1]]], [["a", "b", "c", "a"], ["c", "b"]]
    decoder = OnlineDecoder(CRFTagger(), latency_cost=0.1)
    assert not hasattr(decoder, "n_features_in_")
    assert decoder.fit(X, y).n_features_in_ == 3


@pytest.mark.parametrize("routing", [False, True])
def test_sample_weights_reach_the_estimator(routing):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(5, 2)) for _ in range(8)]
    y = [(x[:, 0] > 0).astype(int) for x in X]
    y[0], weights = 1 - y[0], np.r_[50.0, np.ones(7)]
    expected = CRFTagger().fit(X, y, sample_weight=weights).coef_
    with sklearn.config_context(enable_metadata_routing=routing):
        tagger = CRFTagger().set_fit_request(sample_weight=True) if routing else CRFTagger()
        decoder = OnlineDecoder(tagger)
        if routing:
            decoder.set_score_request(sample_weight=True)
        search = GridSearchCV(decoder, {"lag": [1]}, cv=2).fit(X, y, sample_weight=weights)
        assert_array_equal(search.best_estimator_.estimator_.coef_, expected)
        if routing:
            model = make_pipeline(decoder).fit(X, y, sample_weight=weights)
            assert_array_equal(model[-1].estimator_.coef_, expected)
            with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
                OnlineDecoder(CRFTagger()).fit(X, y, sample_weight=weights)
        OnlineDecoder(FrozenEstimator(CRFTagger().fit(X, y))).fit(X, y).predict(X)
