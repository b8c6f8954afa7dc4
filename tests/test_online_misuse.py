"""What streams and decoders say of input that cannot be right."""

import copy
import threading

import numpy as np
import pytest
from scipy import sparse

from sklseq import OnlineDecoder

from .test_online_stream import PIPELINES, decoder_of, states_equal, token_data

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

    decoder = decoder_of(np.zeros((3, 3)), uncertainty=measure)
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

    stream = decoder_of(np.zeros((3, 3)), uncertainty=measure).stream()
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
    with pytest.raises(ValueError, match="Item 21 of the stream has features that are too large"):
        stream.push_many([np.zeros(3), np.full(3, large)])
    with pytest.raises(ValueError, match="Item 20 of the stream has features that are too large"):
        stream.push([large, 0, 0])
