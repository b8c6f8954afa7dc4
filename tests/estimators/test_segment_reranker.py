"""Reranking of segmentations: choices by enumeration, cross-fitting, features, checks."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, SegmentReranker, SemiCRFSegmenter, Sequences, labels_to_segments
from sklseq.datasets import make_citations
from sklseq.estimators.folds import take
from sklseq.estimators.semicrf.whole_features import (
    UNSEEN,
    fit_texts,
    texts_log_proba,
    whole_features,
)
from sklseq.features import SegmentFeatures, TokenFeatures
from sklseq.inspection import extract

# The label of "z" is that of the field before the last one: no pair of neighbours tells it.
X = [["a", "m", "z"], ["b", "m", "z"], ["a", "n", "m", "z"], ["b", "m", "n", "z"]] * 5
Y = [
    [(t, t + 1, {"a": "A", "b": "B", "z": "P" if x[0] == "a" else "Q"}.get(word, "M"))
     for t, word in enumerate(x)]
    for x in X
]  # fmt: skip
WORDS = SegmentFeatures(TokenFeatures(shape=False, prefixes=0, suffixes=0), length=False)


def model(**parameters):
    segmenter = make_pipeline(WORDS, SemiCRFSegmenter(l2=0.1))
    return SegmentReranker(segmenter, **{"cv": 2} | parameters)


def count(tokens, segments):
    return {"n": len(segments)}


def test_the_order_of_fields_decides_what_neighbours_cannot():
    assert model().estimator.fit(X, Y).score(X, Y) < 0.95
    reranker = model().fit(X, Y)
    assert reranker.score(X, Y) == 1
    new = [["b", "n", "n", "m", "z"], ["a", "m", "m", "m", "z"]]
    assert [found[-1][2] for found in reranker.predict(new)] == ["Q", "P"]
    weights = dict(zip(reranker.vectorizer_.get_feature_names_out(), reranker.coef_))
    assert weights["order=A<P"] > 0 > weights["order=A<Q"]


def test_the_default_segmenter_has_features_at_boundaries():
    reranker = SegmentReranker(cv=2).fit(X, Y)
    assert reranker.score(X, Y) == 1
    assert reranker.estimator_[0].min_count == 2


def segmentations(n, labels, outside):
    """All segmentations of n steps; each label outside is a segment of one step."""
    for cuts in itertools.product([False, True], repeat=n - 1):
        bounds = [0, *(t + 1 for t, cut in enumerate(cuts) if cut), n]
        spans = list(zip(bounds[:-1], bounds[1:]))
        for chosen in itertools.product(labels, repeat=len(spans)):
            one = [(i, j, label) for (i, j), label in zip(spans, chosen)]
            if all(j - i == 1 for i, j, label in one if label == outside):
                yield one


def test_the_choice_is_the_best_of_all_segmentations_by_enumeration():
    rng = np.random.default_rng(0)
    reranker = model(n_candidates=5000, text=False, l2=0.01).fit(X, Y)
    reranker.coef_ = rng.normal(size=len(reranker.coef_))
    names = reranker.vectorizer_.get_feature_names_out().tolist()
    segmenter, features = reranker.estimator_[-1], reranker.estimator_[:-1]
    for x in (["z"], ["m", "a"], ["a", "z", "b"], ["z", "m", "n", "a"]):
        every = list(segmentations(len(x), segmenter.classes_.tolist(), "O"))
        if len(every) > 5000:
            continue
        rows = features.transform([x] * len(every))
        log_p = segmenter.predict_log_proba_sequence(rows, every)
        scores = log_p + 0
        for k, one in enumerate(every):
            found = [segment for segment in one if segment[2] != "O"]
            values = {**whole_features([found], None)[0], "score": log_p[k] - log_p.max()}
            known = {name: value for name, value in values.items() if name in names}
            scores[k] += sum(reranker.coef_[names.index(name)] * v for name, v in known.items())
        [(ranked, log_proba)] = reranker.predict_nbest([x], len(every))
        order = np.argsort(-scores)
        np.testing.assert_allclose(
            log_proba, (scores - np.logaddexp.reduce(scores))[order], rtol=0, atol=1e-8
        )
        best = [segment for segment in every[order[0]] if segment[2] != "O"]
        assert ranked[0] == best == reranker.predict([x])[0]
        spans = reranker.predict_spans([x])[0]
        p = np.exp(scores - np.logaddexp.reduce(scores))
        for start, stop, label, proba in spans:
            expected = sum(q for q, one in zip(p, every) if (start, stop, label) in one)
            assert proba == pytest.approx(expected, rel=1e-8)


class Spy(SemiCRFSegmenter):
    """Remembers the sequences of training, and refuses to rank them."""

    n_ranked = 0

    def fit(self, X, y, sample_weight=None):
        self.seen_ = {x.rows.indices.tobytes() for x in X}
        return super().fit(X, y, sample_weight)

    def predict_nbest(self, X, n=10):
        assert not self.seen_ & {x.rows.indices.tobytes() for x in X}
        Spy.n_ranked += len(X)
        return super().predict_nbest(X, n)


def test_candidates_of_a_sequence_are_of_a_model_that_was_not_trained_on_it():
    rows, _ = make_citations(12, random_state=0)
    words = [[*x, f"end{s}"] for s, x in enumerate(rows)]
    y = [[(0, 1, "x"), (1, len(x), "y")] for x in words]
    features = SegmentFeatures(length=False).fit(words)
    before = Spy.n_ranked
    SegmentReranker(make_pipeline(features, Spy(l2=0.1)), cv=3).fit(words, y)
    assert Spy.n_ranked - before == len(words)


def test_texts_of_a_fold_do_not_hold_its_fields(monkeypatch):
    from sklseq.estimators.semicrf import segment_reranker

    fitted = []
    monkeypatch.setattr(
        segment_reranker, "fit_texts", lambda X, y, w: fitted.append(X) or fit_texts(X, y)
    )
    words = [[f"{word}{s}" for word in x] for s, x in enumerate(X)]
    model(cv=2).fit(words, Y)
    first, second, whole = (sorted(map(tuple, x)) for x in fitted)
    assert not set(first) & set(second)
    assert sorted(first + second) == whole == sorted(map(tuple, words))


def test_features_of_a_segmentation():
    tokens = ["Lee,", "A", '"Big', "Data.", "now", "(3)"]
    one, other = [(0, 2, "author"), (2, 5, "title")], [(3, 4, "title"), (4, 6, "title")]
    found = whole_features([one, other], tokens)
    assert dict(found[0]) == {
        "next=^>author": 1, "next=author>title": 1, "next=title>$": 1,
        "times=author:1": 1, "times=title:1": 1, "order=author<title": 1,
        "length=author:2": 1, "length=title:3": 1, "segments": 0.2, "inside": 0.5,
        "open=author:0:0": 1, "open=title:0:1": 1,
        "marks=author:.0": 1, "marks=author:,1": 1, "marks=title:.1": 1, "marks=title:,0": 1,
    }  # fmt: skip
    assert found[1]["times=title:2"] == found[1]["order=title<title"] == 1
    assert found[1]["open=title:0:0"] == 2
    assert "open=title:0:0" not in whole_features([other], None)[0]
    assert dict(whole_features([[]], tokens)[0]) == {"next=^>$": 1, "segments": 0, "inside": 0}


def test_log_probabilities_of_texts_are_sums_over_segments():
    texts = fit_texts(X, Y)
    lists = [[[(0, 1, "A")], [(0, 1, "A"), (1, 2, "new")], []], []]
    found = texts_log_proba(texts, X[:2], lists)
    p = texts.predict_log_proba(["a"])[0][texts.classes_.tolist().index("A")]
    np.testing.assert_allclose(found[0], [p, p + UNSEEN, 0], rtol=1e-12)
    assert found[1] == []
    assert fit_texts(X, [[(0, 1, "A")]] * len(X)) is None
    assert texts_log_proba(None, X[:1], [[[], []]]) == [[0.0, 0.0]]


def test_functions_see_the_sequence_and_the_segments():
    def first(tokens, segments):
        return {f"{tokens[0]}:{segments[-1][2]}": 1.0} if segments else {}

    reranker = model(functions=[first], text=False).fit(X, Y)
    assert "a:P" in reranker.vectorizer_.vocabulary_
    assert reranker.score(X, Y) == 1


def test_other_forms_of_x_and_y():
    rows = Sequences(np.eye(4)[[0, 2, 3, 1, 2, 3] * 4], np.arange(0, 25, 3))
    labels = [["B-A", "B-M", "B-P"], ["B-B", "B-M", "B-Q"]] * 4
    reranker = SegmentReranker(SemiCRFSegmenter(l2=0.1), cv=2, text=False).fit(rows, labels)
    assert reranker.score(rows, labels) == 1
    assert reranker.predict(rows)[0] == labels_to_segments(labels[0])
    pairs = [[(word, "x") for word in x] for x in X]
    features = SegmentFeatures(TokenFeatures(columns="c0"), length=False)
    two = SegmentReranker(make_pipeline(features, SemiCRFSegmenter(l2=0.1)), cv=2, columns="c0")
    assert two.fit(pairs, Y).score(pairs, Y) == 1
    assert two.predict(pairs) == Y
    assert extract(two, pairs[:1], tokens=X[:1])[0][0][:2] == ("A", "a")
    assert two.predict([]) == two.predict_labels([]) == []
    assert two.predict_labels(pairs)[0] == ["B-A", "B-M", "B-P"]


@pytest.mark.parametrize("s", [0, 4])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["B-A", "x", "O"], "Label 'x' at row 1 of sequence {s} of y"),
        (["B-A", "O"], "Sequence {s} has 3 rows in X but 2 labels in y"),
        ([(0, 9, "A")], "Segment 0 of sequence {s} of y, .*, runs past the end"),
    ],
)
def test_wrong_segments_name_their_sequence(s, wrong, message):
    rows = [["a", "m", "z"], ["b", "m", "z"]] * 4
    reranker = model().fit(rows, Y[:2] * 4)
    of_labels = isinstance(wrong[0], str)
    y = [["B-A", "B-M", "B-P"] if of_labels else [(0, 1, "A")] for _ in rows]
    y[s] = wrong
    for call in (reranker.score, model().fit):
        with pytest.raises(ValueError, match=message.format(s=s)):
            call(rows, y)


@pytest.mark.parametrize("outside", ["none", "", None])
def test_labels_and_score_with_another_label_outside(outside):
    y = [[one for one in y if outside is None or one[2] != "M"] for y in Y]
    segmenter = make_pipeline(WORDS, SemiCRFSegmenter(l2=0.1, outside=outside))
    reranker = SegmentReranker(segmenter, cv=2).fit(X, y)
    assert reranker.score(X, y) == 1
    of_m = "B-M" if outside is None else outside
    assert reranker.predict_labels(X)[0] == ["B-A", of_m, "B-P"]


@pytest.mark.parametrize(("row", "other"), [({"a": "x"}, {"b": "x"}), (["x"], [])])
def test_rows_without_the_column_of_tokens_are_named(row, other):
    rows, labels = [[row, row], [row, row], [row, other]], [[(0, 1, "x")]] * 3
    reranker = SegmentReranker(SemiCRFSegmenter(), cv=2)
    with pytest.raises(ValueError, match=r"Row 1 of sequence 2 of X has no column '(a|c0)'; got"):
        reranker.fit(rows, labels)


def test_a_fitted_model_can_be_pickled_and_keeps_its_parameters():
    reranker = model().fit(X, Y)
    expected = list(reranker.predict(X))
    assert list(pickle.loads(pickle.dumps(reranker)).predict(X)) == expected
    reranker.set_params(n_candidates=1, text=False, columns="c9", functions=[len])
    assert list(reranker.predict(X)) == expected


@pytest.mark.parametrize(
    "parameters", [{"text": False}, {"n_candidates": 2}, {"functions": [count]}]
)
def test_a_second_fit_is_that_of_a_new_estimator(parameters):
    reranker = model().fit(X, Y).set_params(**parameters).fit(X, Y)
    fresh = model(**parameters).fit(X, Y)
    assert reranker.vectorizer_.feature_names_ == fresh.vectorizer_.feature_names_
    assert_allclose(reranker.coef_, fresh.coef_)
    assert reranker.predict_nbest(X[:3], 2)[1][0] == fresh.predict_nbest(X[:3], 2)[1][0]


def test_features_and_probabilities_of_many_segments():
    """Against sums over pairs and candidates; both take time linear in the number of segments."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        labels = rng.choice(list("abcde"), rng.integers(0, 9)).tolist()
        one = [(k, k + 1, label) for k, label in enumerate(labels)]
        found = {name for name in whole_features([one], None)[0] if name.startswith("order=")}
        assert found == {f"order={a}<{b}" for a, b in itertools.combinations(labels, 2)}
    reranker = model().fit(X, Y)
    for spans, (found, log_proba) in zip(reranker.predict_spans(X), reranker.predict_nbest(X, 25)):
        for *segment, p in spans:
            holds = [tuple(segment) in one for one in found]
            assert_allclose(p, np.exp(log_proba)[holds].sum())


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_candidates": 0}, ValueError, "^n_candidates must be an integer of at least 1; got 0"),
        ({"cv": 1}, ValueError, "^cv must be an integer of at least 2; got 1"),
        ({"cv": 21}, ValueError, "^cv=21 folds need as many sequences of a weight above 0"),
        ({"l2": 0}, ValueError, "^l2 must be a finite number above 0; got 0"),
        ({"text": 3}, ValueError, "^text must be True or False; got 3"),
        ({"functions": ["x"]}, ValueError, "^functions must be None or a list of functions"),
        ({"estimator": CRFTagger()}, TypeError, "^estimator must be a SemiCRFSegmenter, a Pipe"),
        (
            {"estimator": GridSearchCV(SemiCRFSegmenter(), {"l2": [1.0]}, refit=False)},
            ValueError,
            "use refit=True",
        ),
    ],
)
def test_wrong_parameters_are_refused(parameters, error, message):
    reranker = model().set_params(**parameters)
    with pytest.raises(error, match=message):
        reranker.fit(X, Y)
    assert not hasattr(reranker, "coef_")


def assert_equal_models(one, other):
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.estimator_[-1].coef_, other.estimator_[-1].coef_)
    texts = (m.text_model_[-1].coef_ for m in (one, other))
    np.testing.assert_array_equal(*texts)


def test_weights_of_sequences():
    plain = model().fit(X, Y)
    assert_equal_models(model().fit(X, Y, np.ones(20)), plain)
    some = np.random.default_rng(0).integers(0, 2, 20)
    kept = np.flatnonzero(some)
    part = model().fit([X[s] for s in kept], [Y[s] for s in kept])
    assert_equal_models(model().fit(X, Y, some), part)
    weighted = model().fit(X, Y, np.arange(1, 21))
    for of in (
        lambda m: m.coef_,
        lambda m: m.estimator_[-1].coef_,
        lambda m: m.text_model_[-1].coef_,
    ):
        assert of(weighted).shape == of(plain).shape
        assert not np.allclose(of(weighted), of(plain))
    with pytest.raises(ValueError, match="as many sequences of a weight above 0; got 1"):
        model().fit(X, Y, np.eye(20)[0])


def test_metadata_routing():
    with config_context(enable_metadata_routing=True):
        routed = model().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        weights = np.arange(1, 21)
        scores = cross_validate(routed, X, Y, params={"sample_weight": weights}, cv=KFold(2))
        parts = list(KFold(2).split(X))
        expected = [
            model()
            .fit(take(X, train), take(Y, train), weights[train])
            .score(take(X, test), take(Y, test), weights[test])
            for train, test in parts
        ]
        np.testing.assert_array_equal(scores["test_score"], expected)


def test_a_search_as_segmenter():
    search = GridSearchCV(
        make_pipeline(WORDS, SemiCRFSegmenter()), {"semicrfsegmenter__l2": [0.1, 50.0]}, cv=2
    )
    for weights in (None, np.arange(1, 21)):
        found = SegmentReranker(search, cv=2).fit(X, Y, weights)
        assert found.estimator_[-1].l2 == 0.1
        assert_equal_models(found, model().fit(X, Y, weights))


def test_unknown_stretches_are_refused_before_training():
    partly = [[*Y[0][:-1], (2, 3, None)], *Y[1:]]
    reranker = SegmentReranker(make_pipeline(WORDS, SemiCRFSegmenter(l2=0.1)), cv=2)
    for call in (reranker.fit, model().fit(X, Y).score):
        with pytest.raises(ValueError, match=r"Segment 2 of sequence 0 .* unknown segments"):
            call(X, partly)
    assert not hasattr(reranker, "coef_")


def test_score_needs_a_fitted_model():
    with pytest.raises(NotFittedError):
        SegmentReranker().score(X, Y)


@pytest.mark.parametrize("returned", [None, 3, {"f": np.nan}, {"f": "x"}, {"f": None}])
def test_what_functions_return_is_checked(returned):
    def mine(tokens, segments):
        return returned

    with pytest.raises(ValueError, match="Function mine of functions must return"):
        model(functions=[mine]).fit(X, Y)


def test_functions_that_fail_are_named():
    def mine(tokens, segments):
        return {"f": 1 / (len(segments) - len(segments))}

    with pytest.raises(ValueError, match="mine of functions failed with ZeroDivisionError"):
        model(functions=[mine]).fit(X, Y)


def test_functions_cannot_change_what_they_get():
    def mine(tokens, segments):
        tokens[0] = "changed"
        segments.clear()
        return {}

    before = [list(x) for x in X]
    reranker = model(functions=[mine]).fit(X, Y)
    assert reranker.predict(X) == model(functions=[lambda x, s: {}]).fit(X, Y).predict(X)
    assert before == X


def test_functions_of_other_arguments_are_refused_before_training(monkeypatch):
    monkeypatch.setattr(SemiCRFSegmenter, "fit", None)
    with pytest.raises(ValueError, match=r"must take two arguments, \(tokens, segments\); got len"):
        model(functions=[len]).fit(X, Y)


@pytest.mark.parametrize("valid", ["once", ["M"], lambda found: len({k for *_, k in found}) == 3])
def test_the_best_valid_candidate_is_chosen(valid):
    reranker = model().fit(X, Y)
    labels = [[k for *_, k in one] for one in reranker.predict(X, valid=valid)]
    assert any(one.count("M") > 1 for one in Y for one in [[k for *_, k in one]])
    for one, (candidates, _) in zip(labels, reranker.predict_nbest(X, 25)):
        chosen = [
            c
            for c in candidates
            if (callable(valid) and valid(c))
            or (
                not callable(valid)
                and max(map([k for *_, k in c].count, "M" if valid == ["M"] else "ABMPQ")) <= 1
            )
        ]
        assert one == [k for *_, k in chosen[0]]
    never = reranker.predict(X, valid=lambda _: False, handle_invalid="best")
    assert never == reranker.predict(X)


def test_candidates_of_which_none_is_valid():
    reranker = model(n_candidates=3).fit(X, Y)
    with pytest.raises(ValueError, match="None of the 3 candidates of sequence 0 is valid; loosen"):
        reranker.predict(X, valid=lambda _: False)
    with pytest.raises(ValueError, match="valid names 'town', which is not a span type"):
        reranker.predict(X, valid=["town"])
    with pytest.raises(ValueError, match="handle_invalid must be 'error' or 'best'"):
        reranker.predict(X, handle_invalid="raise")
    with pytest.raises(ValueError, match="at least one row of positive weight"):
        reranker.score(X, Y, sample_weight=np.zeros(len(X)))
