"""What streams and decoders say of input that cannot be right."""

import copy
import threading

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter
from sklseq.data.segment_labels import segments_to_labels
from sklseq.inference import decode_online
from sklseq.online import make_latency_scorer, neg_mean_latency
from tests.online.test_online_stream import PIPELINES, decoder_of, states_equal, token_data

# ------------------------------------------------------------------ checkpoints


def some_checkpoint(**rule):
    decoder = decoder_of(np.eye(3), **rule)
    stream = decoder.stream()
    stream.push_potentials(np.tile([0.3, 0.2, 0.1], (4, 1)))
    return decoder, stream.checkpoint()


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("beam", "previous", 10**9),
        ("beam", "previous", -2),
        ("beam", "n_rows", 10**9),
        ("beam", "n_rows", -5),
        ("beam", "n_emitted", 10**9),
        ("beam", "n_emitted", -5),
        ("beam", "n_emitted", True),
        ("beam", "lossy", 3),
        ("beam", "origin", np.array([0, 1, 9], dtype=np.intc)),
        ("beam", "origin", np.array([0, 0, 0], dtype=np.intc)),
        ("beam", "pointers", None),
        ("beam", "psi", np.zeros((9, 3))),
        ("beam", "alpha", np.full((4, 3), np.nan)),
        ("beam", "vectors", np.full((4, 3), -np.inf)),
        ("of", "labels", None),
        ("of", "weights", 3),
        (None, "of", None),
        (None, "beam", 3),
        (None, "items", "x"),
        (None, "items", [1]),
        (None, "n_waiting", -5),
        (None, "ended", True),
    ],
)
@pytest.mark.parametrize("rule", [{"strategy": "viterbi", "lag": 3}, {"strategy": "closure"}])
def test_a_damaged_field_of_a_checkpoint_is_refused(rule, part, name, value):
    if name == "origin" and "lag" in rule:
        rule = {"lag": 5}
    decoder, checkpoint = some_checkpoint(**rule)
    place = checkpoint if part is None else checkpoint[part]
    place[name] = value
    what = rf"{name}.* of the checkpoint|checkpoint .*{name}|checkpoint must be what"
    with pytest.raises(ValueError, match=what):
        decoder.stream(checkpoint)
    del place[name]
    with pytest.raises(ValueError, match="heckpoint"):
        decoder.stream(checkpoint)


def test_a_checkpoint_with_items_that_nobody_waits_for_is_refused():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["window"]()).fit(X, y)
    stream = decoder.stream()
    stream.push_many([{"w": "rain", "tag": "r"}] * 5)
    for name, value in (("items", []), ("items", None), ("n_waiting", -5), ("n_waiting", 3)):
        with pytest.raises(
            ValueError, match=f"{name} of the checkpoint|n_waiting of the checkpoint"
        ):
            decoder.stream({**stream.checkpoint(), name: value})


def test_a_checkpoint_of_other_weights_is_refused():
    decoder, checkpoint = some_checkpoint()
    same, other = copy.deepcopy(decoder), copy.deepcopy(decoder)
    assert states_equal(same.stream(checkpoint), decoder.stream(checkpoint))
    other.estimator_.coef_ = 2 * other.estimator_.coef_
    with pytest.raises(ValueError, match="is of a stream with other weights"):
        other.stream(checkpoint)
    other.estimator_.coef_ = sparse.csr_matrix(decoder.estimator_.coef_)
    reread = other.stream().checkpoint()
    other.stream(reread)
    other.estimator_.coef_ = 2 * other.estimator_.coef_
    with pytest.raises(ValueError, match="is of a stream with other weights"):
        other.stream(reread)


class Measure:
    def __call__(self, p):
        return 1 - p.max()


def test_a_checkpoint_of_another_function_is_refused():
    def error(p):
        return 1 - p.max()

    measures = [error, Measure(), lambda p: 1 - p.max(), lambda p: 1 - p.max() / 2, np.ptp]
    decoders = [decoder_of(np.eye(3), uncertainty=m) for m in measures]
    for a, one in enumerate(decoders):
        for b, two in enumerate(decoders):
            checkpoint = one.stream().checkpoint()
            if a == b:
                two.stream(checkpoint)
                continue
            with pytest.raises(ValueError, match="is of a stream with other parameters"):
                two.stream(checkpoint)


# ------------------------------------------------------------------ a stream that is busy

CALLS = {
    "push": lambda s: s.push([0.0] * 3),
    "push_many": lambda s: s.push_many(np.zeros((3, 3))),
    "push_potentials": lambda s: s.push_potentials(np.zeros((3, 3))),
    "flush": lambda s: s.flush(),
    "reset": lambda s: s.reset(),
    "checkpoint": lambda s: s.checkpoint(),
    "provisional": lambda s: s.provisional,
    "pickle": lambda s: s.__getstate__(),
}


@pytest.mark.parametrize("outer", ["push", "push_many", "push_potentials"])
@pytest.mark.parametrize("inner", CALLS)
def test_a_measure_cannot_use_its_own_stream(outer, inner):
    active = []

    def measure(p):
        if active:
            CALLS[inner](active[0])
        return 1.0

    decoder = decoder_of(np.eye(3), uncertainty=measure)
    stream, twin = decoder.stream(), decoder.stream()
    for s in (stream, twin):
        s.push_many(np.zeros((4, 3)))
    active.append(stream)
    with pytest.raises(RuntimeError, match="the stream is busy: "):
        CALLS[outer](stream)
    active.clear()
    assert states_equal(stream, twin)
    assert stream.push_many(np.zeros((3, 3))) == twin.push_many(np.zeros((3, 3)))
    assert stream.flush() == twin.flush()


def test_a_stream_in_two_threads_is_busy_or_whole():
    stream, inside, go_on, busy = None, threading.Event(), threading.Event(), []

    def measure(p):
        inside.set()
        go_on.wait(10)
        return 1.0

    stream = decoder_of(np.eye(3), uncertainty=measure).stream()
    thread = threading.Thread(target=stream.push_many, args=(np.zeros((50, 3)),))
    thread.start()
    inside.wait(10)
    for name, call in CALLS.items():
        with pytest.raises(RuntimeError, match="the stream is busy: "):
            call(stream)
        busy.append(name)
    go_on.set()
    thread.join()
    assert len(busy) == len(CALLS)
    assert len(stream.flush()) + stream.n_emitted >= 50


# ------------------------------------------------------------------ items


def rows_of(decoder, n=20):
    stream = decoder.stream()
    stream.push_many(np.zeros((n, 3)))
    return stream


@pytest.mark.parametrize(
    "item",
    [sparse.csr_matrix(np.eye(3)), sparse.csr_matrix((0, 3)), np.eye(3), np.zeros((1, 3))],
    ids=lambda item: f"{type(item).__name__} {item.shape}",
)
def test_push_takes_no_matrix(item):
    X, y = token_data()
    tagger = OnlineDecoder(PIPELINES["window"]()).fit(X, y)
    for decoder in (decoder_of(np.eye(3)), tagger):
        stream = decoder.stream()
        with pytest.raises(ValueError, match=r"Item 0 .* is a matrix of shape .*push_many"):
            stream.push(item)
        assert stream.n_seen == 0
    assert len(rows_of(decoder_of(np.eye(3), lag=0), 0).push(sparse.csr_matrix((1, 3)))) == 1


BAD = [
    None, 3, "abc", [], [1, None, 2], [1, "a", 2], [1, 2], [[1, 2, 3]], {"a": 1}, {1, 2, 3},
    [1, 10**400, 2], np.zeros(2), np.zeros(3, complex), np.array([1, None, 2]), np.array(3.0),
    np.array(["a", "b", "c"]), sparse.csr_matrix((1, 2)), sparse.csr_matrix((1, 3), dtype=complex),
]  # fmt: skip


@pytest.mark.parametrize("item", BAD, ids=lambda item: repr(item)[:30])
def test_an_item_that_is_no_row_of_numbers_is_named(item):
    stream, good = rows_of(decoder_of(np.eye(3))), np.zeros(3)
    twin = rows_of(decoder_of(np.eye(3)))
    for k, items in enumerate(([item], [good, item], [good, [1, 2, 3], item, None])):
        with pytest.raises(ValueError, match=f"Item {20 + k} of the stream must be 3 numbers"):
            stream.push_many(items)
    with pytest.raises(ValueError, match="Item 20 of the stream must be 3 numbers"):
        stream.push(item)
    assert states_equal(stream, twin)


def test_rows_of_numbers_in_all_forms_can_stand_side_by_side():
    row = np.array([1.0, 2, 3])
    forms = [row, [1, 2, 3], (1.0, 2, 3), sparse.csr_matrix(row), sparse.coo_array(row)]
    forms += [row.astype(np.float32), row.astype(int)]
    decoder = decoder_of(np.eye(3), lag=0)
    wanted = rows_of(decoder, 0).push_many(np.tile(row, (49, 1)))
    got = rows_of(decoder, 0).push_many([x for a in forms for x in (a, *forms[:6])])
    assert got == wanted
    objects = np.array([[1, 2, 3]] * 2, dtype=object)
    with pytest.raises(ValueError, match="Item 0 of the stream must be 3 numbers"):
        rows_of(decoder, 0).push_many(objects)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_that_overflow_are_named_by_their_item(dtype):
    decoder = decoder_of(np.eye(3))
    for name in ("coef_", "transition_", "start_", "end_"):
        scores = getattr(decoder.estimator_, name)
        scores = scores * 1e10 if name == "coef_" else scores
        setattr(decoder.estimator_, name, scores.astype(dtype))
    stream, large = rows_of(decoder), np.finfo(dtype).max.astype(float)
    with pytest.raises(ValueError, match=r"^Label 'L0' of row 21 has the score inf"):
        stream.push_many([np.zeros(3), np.full(3, large)])
    with pytest.raises(ValueError, match=r"^Label 'L0' of row 20 has the score inf"):
        stream.push([large, 0, 0])


# ------------------------------------------------------------------ parameters and scorers


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lag": 10**30}, "lag must be at most"),
        ({"max_latency": 2**63 - 1}, "max_latency must be at most"),
        ({"strategy": "chunk", "window_size": 10**30}, "window_size must be at most"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0; got 0"),
        ({"n_jobs": "a"}, "n_jobs must be None or an integer other than 0; got 'a'"),
    ],
)
def test_a_parameter_out_of_range_is_found_in_fit(parameters, message):
    X, y = token_data()
    with pytest.raises(ValueError, match=message):
        OnlineDecoder(PIPELINES["window"](), **parameters).fit(X, y)


@pytest.mark.parametrize("parameters", [{"lag": 2**62 - 1}, {"max_latency": 2**62 - 1}])
def test_the_largest_bounds_never_bind(parameters):
    emission = np.random.default_rng(0).normal(size=(30, 3))
    for strategy in ("viterbi", "chunk", "window"):
        rule = {"strategy": strategy, "window_size": 2**62 - 1, "latency_cost": 0.0}
        free = decode_online(emission, np.eye(3), strategy="viterbi")
        bound = decode_online(emission, np.eye(3), **rule, **parameters)
        assert bound.labels.tolist() == free.labels.tolist()


@pytest.mark.parametrize("told", ["a", None, np.zeros(2), 1j, np.array([0.5]), np.nan, [1]])
def test_a_measure_that_returns_no_number_is_refused(told):
    decoder = decoder_of(np.eye(3), uncertainty=lambda p: told)
    stream, twin = decoder.stream(), decoder.stream()
    with pytest.raises(ValueError, match="uncertainty must return a number; it returned"):
        stream.push([0.0] * 3)
    assert states_equal(stream, twin)
    with pytest.raises(ValueError, match="uncertainty must return a number; it returned"):
        decoder.predict([np.zeros((5, 3))])


@pytest.mark.parametrize(
    "told", [0, True, 0.5, np.float32(0.5), np.array(0.5), -np.inf, np.int8(1)]
)
def test_a_measure_may_return_any_real_number(told):
    decoder = decoder_of(np.eye(3), uncertainty=lambda p: told)
    assert len(decoder.predict([np.zeros((5, 3))])[0]) == 5


def test_a_first_row_of_no_label_is_not_told_to_wait():
    forbidden = [-np.inf, -np.inf]
    stream = decoder_of(np.eye(2), forbidden).stream()
    for call in (
        lambda: stream.push([0.0, 0.0]),
        lambda: stream.push_potentials([0.0, 0.0]),
        lambda: decode_online(np.zeros((2, 2)), np.eye(2), start=np.array(forbidden)),
    ):
        with pytest.raises(ValueError, match=r"No label is allowed at row 0.*in start") as error:
            call()
        assert "wait" not in str(error.value)


SCORERS = {"neg_mean_latency": neg_mean_latency, "make_latency_scorer": make_latency_scorer(0.1)}


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_take_pipelines_that_end_in_a_decoder(name):
    X, y = token_data()
    scorer, decoder = SCORERS[name], OnlineDecoder(PIPELINES["window"](), lag=3).fit(X, y)
    wanted = scorer(decoder, X, y)
    same = FunctionTransformer()
    for pipeline in (
        make_pipeline(same, decoder),
        make_pipeline("passthrough", make_pipeline(same, decoder)),
        make_pipeline(decoder),
    ):
        assert scorer(pipeline, X, y) == wanted
    for other in (decoder.estimator_, decoder.estimator_[-1], CRFTagger()):
        with pytest.raises(TypeError, match=f"{name} needs an OnlineDecoder, or a pipeline"):
            scorer(other, X, y)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SCORERS)
def test_scorers_need_rows(name):
    for X in ([], [np.zeros((0, 3))]):
        with pytest.raises(ValueError, match="X holds no rows; a mean latency needs at least one"):
            SCORERS[name](decoder_of(np.eye(3)), X, [])


@pytest.mark.parametrize("price", ["a", None, -1, np.nan, np.inf, 1j, [1]])
def test_a_price_that_is_none_is_refused(price):
    with pytest.raises(ValueError, match="price must be a finite number of at least 0; got"):
        make_latency_scorer(price)
    with pytest.raises(ValueError, match="metric must be a function of true and predicted"):
        make_latency_scorer(metric=None)


def segment_data(rng, n):
    X, y = [], []
    for _ in range(n):
        x, segments, t = rng.normal(size=(12, 3)), [], int(rng.integers(0, 3))
        while t < 12:
            stop = min(12, t + int(rng.integers(1, 4)))
            label = ["A", "C"][rng.integers(2)]
            x[t:stop, 0] += 4 if label == "A" else -4
            segments.append((t, stop, label))
            t = stop + int(rng.integers(0, 3))
        X.append(x)
        y.append(segments)
    return X, y


def test_segments_are_scored_as_their_labels():
    for seed in range(2):
        X, y = segment_data(np.random.default_rng(seed), 8)
        labels = [segments_to_labels(segments, 12) for segments in y]
        decoder = OnlineDecoder(SemiCRFSegmenter(), strategy="closure")
        fitted, same = (decoder.fit(X, truth).score(X, truth) for truth in (y, labels))
        assert fitted == same
        assert 0.5 < fitted <= 1
        assert decoder.score(X, y) == fitted
        for scorer in (None, make_latency_scorer(0.01)):
            scores = [
                GridSearchCV(decoder, {"estimator__l2": [1]}, scoring=scorer, cv=2)
                .fit(X, truth)
                .cv_results_["mean_test_score"]
                for truth in (y, labels)
            ]
            assert np.isfinite(scores).all()
            np.testing.assert_array_equal(*scores)
