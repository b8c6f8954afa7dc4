"""The intercept of SemiCRFSegmenter: rows of tokens with it are rows with a column of ones."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import OnlineDecoder, SegmentPotentials, SemiCRFSegmenter, labels_to_segments
from sklseq.features import PerToken, SegmentFeatures, TokenFeatures

OPTIONS = {
    "likelihood": {"l2": 0.3},
    "margin": {"loss": "softmax-margin"},
    "hinge": {"loss": "hinge", "random_state": 0},
    "l1": {"l1": 0.2, "l2": 0.0},
    "seen": {"all_possible_states": False, "all_possible_transitions": False},
    "limit": {"max_segment_length": 4},
    "constraints": {"constraints": [("b", "b")]},
    "pairs": {"transition_features": [0, 1]},
    "calibrated": {"calibrate": 2},
}
FORMS = {
    "arrays": list,
    "float32": lambda X: [x.astype(np.float32) for x in X],
    "sparse": lambda X: [sparse.csr_array(x) for x in X],
    "dicts": lambda X: [[{"u": u, "v": v} for u, v in x.tolist()] for x in X],
}


def events(seed, n_sequences=20, n=200, length=10):
    """Recordings of noise at rest, with rare events at a higher level, and the runs of states."""
    rng, X, y = np.random.default_rng(seed), [], []
    for _ in range(n_sequences):
        labels = np.full(n, "rest", dtype=object)
        for start in rng.integers(0, n - length, rng.poisson(1)):
            labels[start : start + length] = "event"
        X.append(2.0 * (labels == "event")[:, None] + rng.normal(scale=0.7, size=(n, 2)))
        y.append(labels_to_segments(labels.tolist(), "runs"))
    return X, y


def small_problem(seed):
    """Sequences of numbers, and segments of the labels a and b, of which no two are of b."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, 2)) for n in rng.integers(4, 12, 8)]
    y = []
    for x in X:
        cuts = [0, *sorted(rng.choice(np.arange(1, len(x)), 3, replace=False).tolist()), len(x)]
        y.append([(i, j, "ab"[k % 2]) for k, (i, j) in enumerate(zip(cuts, cuts[1:]))])
    return X, [[(i, min(j, i + 4), label) for i, j, label in one] for one in y]


def with_ones(X):
    return SegmentPotentials.from_tokens([np.c_[x, np.ones(len(x), x.dtype)] for x in X])


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


CASES = [(name, "arrays") for name in OPTIONS] + [("likelihood", form) for form in FORMS]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_the_intercept_is_the_weight_of_a_column_of_ones(name, form):
    X, y = small_problem(0)
    X = [x.astype(np.float32).astype(float) for x in X]
    weight = np.array([1.0, 2, 0, 1, 1, 3, 1, 1])
    rows, ones = FORMS[form](X), with_ones(X)
    model = quietly(SemiCRFSegmenter(**OPTIONS[name], tol=1e-6), rows, y, weight)
    other = quietly(clone(model), ones, y, weight)
    assert not other.intercept_.any()
    assert model.n_features_in_ == len(model.coef_) == 2
    close = {"rtol": 1e-6, "atol": 1e-6}
    assert_allclose(np.vstack([model.coef_, model.intercept_]), other.coef_, **close)
    if name == "pairs":
        assert_allclose(
            model.transition_coef_.toarray(), other.transition_coef_[:2].toarray(), **close
        )
    assert model.predict(rows) == other.predict(ones)
    once = {"valid": ["b"], "handle_invalid": "best"}
    assert model.predict(rows, **once) == other.predict(ones, **once)
    for (found, times), (wanted, others) in zip(
        model.decode_closure(rows), other.decode_closure(ones), strict=True
    ):
        assert found == wanted
        assert times.tolist() == others.tolist()
    for (found, scores), (wanted, others) in zip(
        model.predict_nbest(rows, 3), other.predict_nbest(ones, 3), strict=True
    ):
        assert found == wanted
        assert_allclose(scores, others, **close)
    if name != "hinge":
        found = model.predict_log_proba_sequence(rows, y)
        assert_allclose(found, other.predict_log_proba_sequence(ones, y), **close)


def test_weights_of_unknown_segments_and_of_the_fit_before():
    X, y = small_problem(1)
    y[0] = [(0, 3, "a"), (3, len(X[0]), None)]
    model = SemiCRFSegmenter(tol=1e-7).fit(X, y)
    other = SemiCRFSegmenter(tol=1e-7).fit(with_ones(X), y)
    assert_allclose(model.intercept_, other.coef_[2], rtol=1e-6)
    before = model.objective_
    model.set_params(warm_start=True).fit(X, y)
    assert_allclose(model.loss_curve_[0], before, rtol=1e-12)
    with pytest.raises(ValueError, match=r"and 2 features; got .* and 3 features"):
        model.fit([np.c_[x, x[:, :1]] for x in X], y)


def test_explanations_have_the_intercept():
    X, _ = small_problem(2)
    model = SemiCRFSegmenter(outside=None).fit(*events(0, 4))
    for x in X:
        explained = model.explain(x)
        total = sum(score for part in explained for _, score in part.contributions)
        other = clone(model)
        vars(other).update(vars(model))
        other.coef_ = np.vstack([model.coef_, model.intercept_])
        other.n_features_in_, other.intercept_ = 3, np.zeros(2)
        again = other.explain(with_ones([x])[0])
        assert [part[:3] for part in again] == [part[:3] for part in explained]
        assert_allclose(
            total, sum(score for part in again for _, score in part.contributions), rtol=1e-12
        )
        terms = dict(explained[0].contributions)
        size = explained[0].stop - explained[0].start
        code = model.classes_.tolist().index(explained[0].label)
        assert_allclose(terms["intercept"], size * model.intercept_[code], rtol=1e-12)


def test_potentials_are_refused_where_rows_were_fitted():
    X, y = small_problem(3)
    model = SemiCRFSegmenter().fit(X, y)
    assert model.predict(SegmentPotentials.from_tokens(X)) == model.predict(X)
    for kinds in ((1,), (2,)):
        with pytest.raises(ValueError, match="fitted on rows of tokens, which have an intercept"):
            model.predict(SegmentPotentials.from_tokens(X, kinds))
    old = pickle.loads(pickle.dumps(model))
    del old.intercept_  # as in models of versions without it
    assert old.predict(SegmentPotentials.from_tokens(X, (1,)))
    assert all(len(labels) == len(x) for labels, x in zip(old.predict_labels(X), X, strict=True))
    assert "intercept" not in dict(old.explain(X[0])[0].contributions)


def test_streams_have_the_intercept():
    X, y = events(1, 6)
    decoder = OnlineDecoder(SemiCRFSegmenter(outside=None), strategy="closure").fit(X, y)
    segmenter = decoder.estimator_
    stream = decoder.segment_stream()
    found = [segment for row in X[0] for segment in stream.push(row)] + stream.flush()
    assert [tuple(segment[:3]) for segment in found] == segmenter.predict(X[:1])[0]


MODELS = {
    "rows": lambda: SemiCRFSegmenter(outside=None),
    "segments": lambda: make_pipeline(
        SegmentFeatures(PerToken(StandardScaler())), SemiCRFSegmenter(outside=None)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_rare_states_are_found(name):
    X, y = events(2)
    model = MODELS[name]().fit(X[:10], y[:10])
    right = found = true = 0
    for segments, wanted in zip(model.predict(X[10:]), y[10:], strict=True):
        at, of = ([s for s in one if s[2] == "event"] for one in (segments, wanted))
        right += sum(any(abs(a - i) + abs(b - j) <= 2 for i, j, _ in of) for a, b, _ in at)
        found, true = found + len(at), true + len(of)
    assert true > 5
    assert 2 * right / (found + true) > 0.9


def test_segments_of_numbers_count_their_tokens_and_those_of_words_do_not():
    X, _ = events(3, 2, 30)
    features = SegmentFeatures(PerToken(), length=False).fit(X)
    names = features.get_feature_names_out().tolist()
    out = features.transform([x[:5] for x in X])
    column = names.index("inside:bias")
    values = out.rows[out.row][:, [column]].toarray()[:, 0]
    assert values.sum() == 10
    assert set(out.kind[values > 0]) == {3}
    assert (out.stop - out.start)[values > 0].max() == 1
    words = SegmentFeatures(TokenFeatures()).fit([["a", "b", "c"] * 10])
    assert "inside:bias" not in words.get_feature_names_out()
