"""Streams of segments: against decoding of whole sequences, and under other futures."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_equal
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter
from sklseq.estimators.online import segment_steps
from sklseq.features import (
    DictFeatures,
    PerToken,
    SegmentFeatures,
    TokenFeatures,
    WindowFeatures,
)
from sklseq.metrics import segments_to_labels
from tests.online.test_online_futures import WORDS, sentences, with_types

FEATURES = {
    "tokens": SegmentFeatures(length=False),
    "lengths": SegmentFeatures(length=True, max_length=3, before=2, after=0),
    "grams": SegmentFeatures(length=False, inside=False, first=[2], last=[3], after=2),
}
RULES = [{}, {"max_latency": 5}, {"max_latency": 2}, {"lag": 2}, {"lag": 6}]


@pytest.fixture(scope="module", params=FEATURES)
def model(request):
    X, y = sentences(1)
    segmenter = SemiCRFSegmenter(l2=0.1, tol=1e-3)
    decoder = OnlineDecoder(make_pipeline(FEATURES[request.param], segmenter), strategy="closure")
    return decoder.fit(X, with_types(y))


def told(decoder, emissions, n):
    """(IOB2 labels, times or -1 outside) of emissions, which must be in order."""
    assert all(a.stop <= b.start for a, b in zip(emissions, emissions[1:]))
    labels = segments_to_labels([e[:3] for e in emissions], n)
    times = np.full(n, -1)
    for e in emissions:
        times[e.start : e.stop] = e.stop - 1 + e.latency
    return list(labels), times


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_stream_gives_the_segments_and_times_of_decode(model, rule):
    decoder = model.set_params(**{"max_latency": None, "lag": None} | rule)
    rng, found = np.random.default_rng(0), 0
    for n in (1, 2, 7, 20):
        x = rng.choice(WORDS, size=n).tolist()
        stream, single = decoder.segment_stream(), []
        for i, token in enumerate(x):
            single += stream.push(token)
            bound = rule.get("max_latency", rule.get("lag", n))
            assert stream.n_pending <= bound
            assert stream.n_seen == i + 1
        provisional = stream.provisional
        end = stream.flush()
        assert provisional == end
        single += end
        cut = n // 2
        many = stream.push_many(x[:cut]) + stream.push_many(x[cut:]) + stream.flush()
        assert many == single
        labels, times = told(decoder, single, n)
        decoded = decoder.decode([x])
        assert labels == decoded.labels[0].tolist()
        inside = times >= 0
        assert times[inside].tolist() == decoded.times[0][inside].tolist()
        found += len(single)
        if not rule:
            predicted = decoder.estimator_.predict([x])[0]
            assert labels == list(segments_to_labels(predicted, n))
    assert found > 5


def test_of_segmentations_that_tie_one_of_the_best_is_chosen():
    # Tenths of few values: many segmentations have the same score, up to rounding.
    rng, others = np.random.default_rng(0), 0
    X, y = [np.eye(3)] * 2, [[(0, 1, "a"), (1, 3, "b")], [(0, 2, "b")]]
    for outside in (None, "O"):
        y = y if outside else [[*y[0]], [*y[1], (2, 3, "a")]]
        segmenter = SemiCRFSegmenter(outside=outside, max_iter=1, tol=1e9).fit(X, y)
        decoder = OnlineDecoder(FrozenEstimator(segmenter), strategy="closure").fit(X, y)
        for _ in range(20):
            for name in ("coef_", "transition_", "start_", "end_", "intercept_"):
                weights = getattr(segmenter, name)
                setattr(segmenter, name, rng.integers(-2, 3, weights.shape) / 10)
            x = [rng.integers(0, 2, (6, 3)).astype(float) for _ in range(5)]
            best = segmenter.predict(x)
            found = [segments for segments, _ in segmenter.decode_closure(x)]
            others += found != best
            scores = [segmenter.predict_log_proba_sequence(x, one) for one in (best, found)]
            assert_allclose(*scores, atol=1e-9)
            labels = [segments_to_labels(one, 6).tolist() for one in found]
            assert [list(one) for one in decoder.decode(x).labels] == labels
    assert others > 0


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_tokens_to_come_change_no_segment_that_was_emitted(model, rule):
    decoder = model.set_params(**{"max_latency": None, "lag": None} | rule)
    rng, early = np.random.default_rng(1), 0
    for _ in range(6):
        known = rng.choice(WORDS, size=int(rng.integers(1, 15))).tolist()
        given = decoder.segment_stream().push_many(known)
        early += len(given)
        for _ in range(2):
            x = known + rng.choice(WORDS, size=int(rng.integers(0, 9))).tolist()
            stream = decoder.segment_stream()
            emissions = stream.push_many(x) + stream.flush()
            assert emissions[: len(given)] == given
            decoded = decoder.decode([x])
            assert told(decoder, emissions, len(x))[0] == decoded.labels[0].tolist()
    assert early > 5


def test_after_a_commit_the_segments_are_those_that_begin_with_it(model):
    decoder = model.set_params(max_latency=None, lag=None)
    x = ["met", "New", "York", "of", "Smith", "said", "Mr.", "Smith"]
    stream = decoder.segment_stream()
    given = stream.push_many(x[:3])
    given += stream.commit()
    assert (stream.n_pending, stream.commit()) == (0, [])
    rest = stream.push_many(x[3:]) + stream.flush()
    assert all(e.stop <= 3 for e in given)
    assert all(e.start >= 3 for e in rest)
    # The segmentation of what came, if it had ended, but for the scores of the end.
    assert [e.latency for e in given] == [3 - e.stop for e in given]


def test_what_follows_a_final_segment_depends_on_its_label(model):
    decoder = copy.deepcopy(model.set_params(max_latency=None, lag=None))
    transition = decoder.estimator_[-1].transition_
    transition[:] = np.where(np.eye(len(transition), dtype=bool), 0, -100)
    stream = decoder.segment_stream()
    given = stream.push("met") + stream.commit()
    assert given == []  # outside
    assert stream._tokens == ["met"]  # later features look back at it
    assert stream.push_many(["New", "York"]) + stream.flush() == []
    assert len(stream.push_many(["New", "York"]) + stream.flush()) > 0


def test_a_stream_can_be_pickled_and_a_failed_push_changes_nothing(model):
    decoder = model.set_params(max_latency=None, lag=None)
    stream = decoder.segment_stream()
    given = stream.push_many(WORDS.tolist())
    twin = pickle.loads(pickle.dumps(stream))
    for bad in (5, {"w": "Smith"}):
        with pytest.raises((TypeError, ValueError)):
            stream.push_many(["Smith", bad])
    assert "10 tokens" in repr(stream)
    assert stream.push("York") + stream.flush() == twin.push("York") + twin.flush()
    assert stream.n_seen == 0
    assert stream.push_many(WORDS.tolist()) == given


def test_a_stream_takes_one_call_at_a_time(model):
    stream = model.set_params(max_latency=None, lag=None).segment_stream()
    stream.push("met")
    with stream._lock:
        for call in (lambda: stream.push("York"), stream.commit, stream.flush, stream.reset):
            with pytest.raises(RuntimeError, match="the stream is busy: "):
                call()
    assert stream.n_seen == 1


def test_a_push_reads_the_tokens_that_new_potentials_depend_on(model, monkeypatch):
    decoder = model.set_params(max_latency=None, lag=None)
    extractor, rng, read = decoder.estimator_[0], np.random.default_rng(2), []
    before, after = extractor.receptive_field
    transform, attributes_of = SegmentFeatures.transform, segment_steps.attributes_of
    monkeypatch.setattr(
        SegmentFeatures, "transform", lambda self, X: read.append(len(X[0])) or transform(self, X)
    )
    monkeypatch.setattr(
        segment_steps,
        "attributes_of",
        lambda self, tokens: read.append(len(tokens)) or attributes_of(self, tokens),
    )
    stream = decoder.segment_stream()
    for token in rng.choice(WORDS, size=40).tolist():
        stream.push(token)
    alone = stream._scorer is not None  # potentials of single tokens and of lengths only
    assert alone == (extractor.first == 0)
    assert max(read) == before + (1 if alone else extractor.max_span) + after
    stream = pickle.loads(pickle.dumps(stream))
    assert len(stream._tokens) == before + extractor.max_span + after - 1


def doubled(token):
    return {"size": len(token) / 3, "first": token[0]}


def as_dicts(x):
    return [{"w": token} for token in x]


def as_sizes(x):
    return np.array([[len(token) / 7, token[0] < "Q"] for token in x])


def survivors(beam):
    """Scores of all entries, of the nodes of the newest boundary and of the old group."""
    _, _, rows, _, of_label, _ = beam.state()
    return [rows[0][:-1], of_label[:2]]


TOKENS = {
    "default": (None, list),
    "hashed": (TokenFeatures(n_features=64, functions=[str.istitle]), list),
    "rare": (TokenFeatures(min_count=2, dtype=np.float32), as_dicts),
    "window": (WindowFeatures(TokenFeatures(prefixes=0, suffixes=1), before=1, after=2), list),
    "numbers": (DictFeatures(), lambda x: [doubled(token) for token in x]),
    "dense": (PerToken(StandardScaler()), as_sizes),
}


@pytest.mark.parametrize("tokens", TOKENS)
def test_steps_from_few_tokens_have_the_scores_of_whole_windows(tokens):
    # Bit by bit: scores of survivors, and what leaves, for random features, weights and pushes.
    (X, y), rng, (extractor, form) = sentences(1), np.random.default_rng(3), TOKENS[tokens]
    X, y = [form(x) for x in X], with_types(y)
    some = 0
    for k in range(5):
        start, end, before, after = rng.integers(0, 3, size=4).tolist()
        features = SegmentFeatures(
            extractor, start=start, end=end, before=before, after=after, length=k % 2 == 0,
            max_length=4, longer_than=[2] if k == 1 else (), min_count=1 + k % 3,
            dtype=[np.float64, np.float32][k % 2],
        )  # fmt: skip
        model = make_pipeline(features, SemiCRFSegmenter()).fit(X, y)
        model[-1].coef_[:] = rng.normal(size=model[-1].coef_.shape)
        most = None if k < 3 else after + 3
        decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure", max_latency=most)
        fast = decoder.fit(X, y).segment_stream()
        slow = decoder.segment_stream()
        assert fast._scorer is not None
        slow._scorer = None
        x = form(rng.choice(WORDS, size=30).tolist())
        while len(x):
            n = int(rng.integers(1, 5))
            found = fast.push_many(x[:n])
            assert found == slow.push_many(x[:n])
            assert_equal(*(survivors(stream._beam) for stream in (fast, slow)))
            x, some = x[n:], some + len(found)
        assert fast.provisional == slow.provisional
        assert fast.flush() == slow.flush()
    assert some > 10


def test_features_and_weights_that_are_not_finite_are_named_by_a_push():
    X = [[[1.0], [2.0]], [[2.0]]] * 3
    model = make_pipeline(SegmentFeatures(PerToken(StandardScaler())), SemiCRFSegmenter())
    model.fit(list(map(np.array, X)), [[(0, 1, "a")], [(0, 1, "b")]] * 3)
    scaler = model[0].extractor_.transformer_
    decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure").fit(X, None)
    stream = decoder.segment_stream()
    stream.push(np.array([1.0]))
    scaler.scale_[:] = 1e-320
    with pytest.raises(ValueError, match="features must be finite"), np.errstate(over="ignore"):
        stream.push_many([np.array([1e8])] * 3)
    scaler.scale_[:] = 1
    model[-1].coef_[0] = np.nan
    with pytest.raises(ValueError, match="holds NaN"):
        stream.push_many([np.array([1.0])] * 3)
    assert stream.n_seen == 1


def test_a_bound_below_the_look_ahead_and_a_tagger_are_refused():
    X, y = sentences(1)
    segmenter = make_pipeline(SegmentFeatures(length=False, after=2), SemiCRFSegmenter(l2=0.1))
    with pytest.raises(ValueError, match="max_latency=1 cannot be kept: the features look 2"):
        OnlineDecoder(segmenter, strategy="closure", max_latency=1).fit(X, with_types(y))
    tagger = OnlineDecoder(CRFTagger()).fit([[["a"], ["b"]]], [["x", "y"]])
    with pytest.raises(AttributeError, match="CRFTagger labels tokens, not segments"):
        _ = tagger.segment_stream


def test_features_look_back_at_tokens_of_segments_that_have_left():
    # The label of "w" depends on the token before it alone.
    X, y = (
        [["a", "w"], ["b", "w"]] * 3,
        [[(0, 1, "x"), (1, 2, "p")], [(0, 1, "x"), (1, 2, "q")]] * 3,
    )
    features = SegmentFeatures(length=False, inside=False, before=1, after=0)
    model = make_pipeline(features, SemiCRFSegmenter(l2=0.01))
    stream = OnlineDecoder(model, strategy="closure", max_latency=0).fit(X, y).segment_stream()
    labels = [emission.label for token in "awbw" for emission in stream.push(token)]
    assert labels == ["x", "p", "x", "q"]


def test_steps_that_become_known_with_the_end_are_decoded_with_it():
    # "q" is the best label of "w" if the sequence goes on, "p" if it ends.
    X, y = [["a", "w", "z"], ["a", "w"]] * 3, [[(1, 2, "q")], [(1, 2, "p")]] * 3
    features = SegmentFeatures(length=False, inside=False, before=0, after=1)
    model = make_pipeline(features, SemiCRFSegmenter(l2=0.01)).fit(X, y)
    segmenter = model[-1]
    segmenter.coef_[:] = segmenter.transition_[:] = segmenter.start_[:] = segmenter.end_[:] = 0
    o, p, q = (list(segmenter.classes_).index(label) for label in "Opq")
    segmenter.start_[o], segmenter.transition_[o, q], segmenter.end_[p] = 9, 1, 5
    decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure", max_latency=1)
    stream = decoder.segment_stream()
    found = stream.push("a") + stream.push("w") + stream.flush()
    labels = segments_to_labels([e[:3] for e in found], 2)
    assert list(labels) == list(decoder.decode([["a", "w"]]).labels[0]) == ["O", "B-p"]


def test_the_label_outside_is_that_of_the_last_fit():
    X = [x for x in sentences(1)[0] if len(x) > 1]
    whole = [[(0, len(x) - 1, "all"), (len(x) - 1, len(x), "last")] for x in X[:3]]
    model = make_pipeline(SegmentFeatures(length=False), SemiCRFSegmenter(l2=0.1))
    decoder = OnlineDecoder(model, strategy="closure").fit(X[:3], whole)
    stream = decoder.segment_stream()
    expected = stream.push_many(X[0]) + stream.flush(), decoder.score(X[:3], whole)
    assert [e.label for e in expected[0]] == ["all", "last"]
    decoder.estimator_[-1].set_params(outside="all")
    stream = decoder.segment_stream()
    assert (stream.push_many(X[0]) + stream.flush(), decoder.score(X[:3], whole)) == expected


@pytest.mark.parametrize("before", [0, 1])
def test_transition_features_of_the_first_pending_token(before):
    # The label of "w" and "v" depends on the pair of the token and the label before it.
    answers = {"aw": "p", "av": "q", "bw": "q", "bv": "p"}
    X = [list(pair) for pair in answers] * 3
    y = [[(0, 1, x[0]), (1, 2, answers["".join(x)])] for x in X]
    features = SegmentFeatures(
        inside=False, end=0, before=before, after=0, length=False, transition_features="^start:"
    )
    model = make_pipeline(features, SemiCRFSegmenter(l2=0.01)).fit(X, y)
    x = list("awavbwbvbwav")
    for most in (0, 1, 5):
        decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure", max_latency=most)
        stream = decoder.fit(X, y).segment_stream()
        found = [emission for token in x for emission in stream.push(token)] + stream.flush()
        labels, times = told(decoder, found, len(x))
        assert [label[2:] for label in labels[1::2]] == [
            answers[a + b] for a, b in zip(x[::2], x[1::2])
        ]
        decoded = decoder.decode([x])
        assert labels == decoded.labels[0].tolist()
        assert times.tolist() == decoded.times[0].tolist()


def reading(offset):
    """Return a function of segments that reads the token at an offset from one of their ends."""

    def neighbour(sequence, start, stop):
        at = start + offset if offset < 0 else stop + offset
        return 0 <= at < len(sequence) and sequence[at] == "a"

    neighbour.receptive_field = (-offset, 0) if offset < 0 else (0, offset + 1)
    return neighbour


@pytest.mark.parametrize("offset", [-20, -5, -1, 0, 1, 7])
def test_a_function_that_reads_neighbours_is_the_same_in_a_stream(offset):
    rng, function = np.random.default_rng(0), reading(offset)
    X = [list(rng.choice(list("abcd"), 40)) for _ in range(6)]
    y = [[(t, t + 1, "P") for t in range(40) if function(x, t, t + 1)] for x in X]
    parameters = dict(before=0, after=0, start=0, end=0, max_length=2, functions=[function])
    model = make_pipeline(SegmentFeatures(**parameters), SemiCRFSegmenter()).fit(X, y)
    stream = OnlineDecoder(FrozenEstimator(model), strategy="closure").segment_stream()
    for x, expected in zip(X, model.predict(X), strict=True):
        found = [emission for token in x for emission in stream.push(token)] + stream.flush()
        assert [(e.start, e.stop, e.label) for e in found] == expected
        stream.reset()


def test_a_function_that_may_read_the_whole_sequence_has_no_stream():
    def late(sequence, start, stop):
        return start >= 2

    X, y = [["a", "b", "c"]] * 3, [[(2, 3, "P")]] * 3
    model = make_pipeline(SegmentFeatures(functions=[late]), SemiCRFSegmenter()).fit(X, y)
    decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure")
    with pytest.raises(ValueError, match=r"needs the whole sequence .*function.* receptive_field"):
        decoder.segment_stream()
    for wrong in (1, (1,), (-1, 0), (0.5, 0), "12"):
        late.receptive_field = wrong
        with pytest.raises(ValueError, match=r"receptive_field of the function .* must be a pair"):
            decoder.segment_stream()
