"""States of streams and pools: equal calls give equal bytes, and a failed call changes none."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from sklseq import OnlineDecoder, SemiCRFSegmenter
from sklseq.features import SegmentFeatures
from tests.online.test_online_futures import WORDS, sentences, with_types
from tests.online.test_online_stream import decoder_of

STRATEGIES = [
    {"strategy": "step", "latency_cost": 0.1},
    {"strategy": "step", "latency_cost": 0.1, "decide": "marginal"},
    {"strategy": "window", "latency_cost": 0.3},
    {"strategy": "closure"},
    {"strategy": "closure", "max_latency": 1},
    {"strategy": "chunk", "window_size": 3},
    {"strategy": "viterbi"},
    {"lag": 2},
]
VARIANTS = [
    dict(zip(("restart", "belief", "early"), values))
    for values in itertools.product(("conflict", "always"), ("forward", "viterbi"), (True, False))
]


def forbidding(rng, *shape):
    """Scores of which some are -inf, but not all of a row."""
    scores = rng.standard_normal(shape)
    forbidden = rng.random(shape) < 0.3
    forbidden[np.arange(len(scores)), rng.integers(shape[-1], size=len(scores))] = False
    scores[forbidden] = -np.inf
    return scores


def calls(rng, L, n=20):
    """Random calls of a stream or of a stream of a pool: (method, argument)."""
    for _ in range(n):
        emission = forbidding(rng, rng.integers(1, 5), L)
        kind = rng.choice(["push", "push", "push", "commit", "none", "nan"])
        if kind == "none":
            emission[-1] = -np.inf
        elif kind == "nan":
            emission[-1, -1] = np.nan
        yield "commit" if kind == "commit" else "push_potentials", emission


def bytes_of(stream):
    return pickle.dumps({k: v for k, v in stream.__getstate__().items() if k != "model"})


def attributes_of(stream):
    told = stream.n_seen, stream.n_emitted, stream.n_pending, repr(stream)
    try:
        return *told, stream.provisional, stream.provisional_proba().tolist()
    except ValueError as error:  # no path may end here
        return *told, str(error)


def call(stream, method, emission):
    """The labels of a call, or None if it fails; then the stream must be as before."""
    before = bytes_of(stream), attributes_of(stream)
    try:
        if method == "commit":
            return stream.commit(min(len(emission), stream.n_pending))
        return stream.push_potentials(emission[0] if len(emission) == 1 else emission)
    except ValueError:
        assert (bytes_of(stream), attributes_of(stream)) == before
        return None


@pytest.mark.parametrize("rule", STRATEGIES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_states_depend_on_what_was_pushed_alone(rule, variant):
    rng = np.random.default_rng(0)
    n_failed = 0
    for _ in range(2):
        L = int(rng.integers(2, 5))
        ends = forbidding(rng, 2, L)
        decoder = decoder_of(forbidding(rng, L, L), *ends, **rule, **variant)
        stream = decoder.stream()
        stream.push_potentials(np.zeros((1, L)) + ends[:1])
        stream.reset()
        other = decoder.stream()
        assert bytes_of(stream) == bytes_of(other)
        for method, emission in calls(rng, L):
            found = call(stream, method, emission)
            n_failed += found is None
            if found is None:
                continue
            if rng.random() < 0.2:
                stream = copy.copy(stream)
            elif rng.random() < 0.2:
                stream = pickle.loads(pickle.dumps(stream))
            assert call(other, method, emission) == found
            assert bytes_of(stream) == bytes_of(other)
    assert n_failed > 2


SEGMENT_RULES = [{}, {"max_latency": 2}, {"max_latency": 4}, {"lag": 2}]


@pytest.fixture(scope="module", params=[{"length": False}, {"max_length": 3, "after": 2}], ids=str)
def segments(request):
    X, y = sentences(1)
    model = make_pipeline(SegmentFeatures(**request.param), SemiCRFSegmenter(l2=0.1, tol=1e-3))
    return OnlineDecoder(model, strategy="closure").fit(X, with_types(y))


def segment_call(stream, method, *args):
    """The segments of a call, or None if it fails; then the stream must be as before."""
    before = pickle.dumps(stream), stream.n_seen, stream.n_pending
    try:
        return getattr(stream, method)(*args)
    except (ValueError, TypeError):
        assert (pickle.dumps(stream), stream.n_seen, stream.n_pending) == before
        return None


@pytest.mark.parametrize("rule", SEGMENT_RULES, ids=str)
def test_equal_streams_of_segments_have_equal_pickles(segments, rule):
    rng = np.random.default_rng(0)
    decoder = segments.set_params(**{"max_latency": None, "lag": None} | rule)
    segmenter, n_failed = decoder.estimator_[-1], 0
    transition = segmenter.transition_
    for _ in range(4):
        segmenter.transition_ = np.where(rng.random(transition.shape) < 0.5, -np.inf, transition)
        stream, other = decoder.segment_stream(), decoder.segment_stream()
        segment_call(stream, "push_many", rng.choice(WORDS, size=10).tolist())
        stream.reset()
        assert pickle.dumps(stream) == pickle.dumps(other)
        for _ in range(12):
            items = [str(word) for word in rng.choice(WORDS, size=rng.integers(1, 9))]
            method = str(rng.choice(["push_many", "push_many", "push_many", "commit"]))
            if rng.random() < 0.2:
                items.append(5)
            found = segment_call(stream, method, *([items] if method == "push_many" else []))
            n_failed += found is None
            if rng.random() < 0.3:
                stream = copy.copy(stream)
            if found is not None:
                again = [copy.deepcopy(items)] if method == "push_many" else []
                assert segment_call(other, method, *again) == found
            assert pickle.dumps(stream) == pickle.dumps(other)
    segmenter.transition_ = transition
    assert n_failed > 5


@pytest.mark.parametrize("rule", STRATEGIES, ids=str)
@pytest.mark.parametrize("restart", ["conflict", "always"])
def test_states_in_a_pool_are_those_of_single_streams(rule, restart):
    rng = np.random.default_rng(1)
    n_failed = 0
    for belief in ("forward", "viterbi"):
        L = int(rng.integers(2, 5))
        ends = forbidding(rng, 2, L)
        decoder = decoder_of(forbidding(rng, L, L), *ends, **rule, restart=restart, belief=belief)
        pool, streams = decoder.pool(), {}
        for _ in range(25):
            before = pickle.dumps(pool), pool.nbytes, repr(pool)
            ids = rng.choice(6, size=rng.integers(1, 5)).tolist()
            emission = forbidding(rng, len(ids), L)
            try:
                kind = rng.choice(["push", "push", "push", "flush", "drop"])
                if kind == "push":
                    emission[rng.integers(len(ids))] += rng.choice([0, 0, 0, -np.inf, np.nan])
                    pool.push_potentials(ids, emission)
                    for id in dict.fromkeys(ids):
                        stream = streams.setdefault(id, decoder.stream())
                        stream.push_potentials(emission[np.equal(ids, id)])
                else:
                    getattr(pool, kind)(ids)
                    streams = {id: stream for id, stream in streams.items() if id not in ids}
            except ValueError:
                n_failed += 1
                assert (pickle.dumps(pool), pool.nbytes, repr(pool)) == before
            assert sorted(pool.ids) == sorted(streams)
            for id, stream in streams.items():
                assert pickle.dumps(pool.checkpoint(id)) == pickle.dumps(stream.checkpoint())
    assert n_failed > 5


def test_labels_that_are_due_at_once_by_rounding_are_committed_all_or_none():
    # now + max_wait is rounded to now: labels leave with their row, and the next one cannot follow.
    rule = {"strategy": "closure", "restart": "conflict"}
    decoder = decoder_of(np.array([[0, -np.inf], [0, 0]]), **rule)
    stream = decoder.stream(max_wait=1e-9, clock=lambda: 1e9)
    assert [e.label for e in stream.push_potentials([0.5, 0.0])] == ["L0"]
    before = bytes_of(stream), attributes_of(stream)
    for _ in range(2):
        with pytest.raises(ValueError, match="No label is allowed"):
            stream.push_potentials([-np.inf, 0.0])
        assert (bytes_of(stream), attributes_of(stream)) == before
