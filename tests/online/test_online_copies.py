"""Streams and pools keep items of their own, and their states are whole when they are pickled."""

import copy
import pickle
import threading
from collections import OrderedDict, deque, namedtuple

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter
from sklseq._lib.owned import owned
from sklseq.estimators.online.stream import OnlineStream
from sklseq.features import DictFeatures, SegmentFeatures, TokenFeatures, WindowFeatures
from tests.online.test_online_pool import by_id

WORDS = [*"abbaabab"]
X = [WORDS, [*"ba"], [*"abba"]] * 3
Y = [["A" if w == "a" else "B" for w in x] for x in X]
Pair = namedtuple("Pair", "first second")

# Each makes an item, and changes it to one of another word.
FORMS = {
    "dict": (lambda w: {"p": w}, lambda item, w: item.update(p=w)),
    "list in dict": (lambda w: {"p": [w]}, lambda item, w: item["p"].__setitem__(0, w)),
    "dict in dict": (lambda w: {"p": {"q": w}}, lambda item, w: item["p"].update(q=w)),
    "set in dict": (lambda w: {"p": {w}}, lambda item, w: (item["p"].clear(), item["p"].add(w))),
    "ordered": (lambda w: OrderedDict(p=OrderedDict(q=w)), lambda item, w: item["p"].update(q=w)),
    "deep": (lambda w: {"p": {"q": [w]}}, lambda item, w: item["p"]["q"].__setitem__(0, w)),
    "list": (lambda w: [w], lambda item, w: item.__setitem__(0, w)),
    "set": (lambda w: {w}, lambda item, w: (item.clear(), item.add(w))),
    "deque": (lambda w: deque([w]), lambda item, w: item.__setitem__(0, w)),
    "array": (lambda w: np.array([w], dtype=object), lambda item, w: item.__setitem__(0, w)),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_item_may_be_filled_again(form):
    make, fill = FORMS[form]
    window = WindowFeatures(DictFeatures(), before=1, after=1)
    model = make_pipeline(window, CRFTagger(l2=0.01))
    decoder = OnlineDecoder(model, lag=1).fit([[make(w) for w in x] for x in X], Y)
    stream, pool = decoder.stream(), decoder.pool()
    one, found, pooled = make("?"), [], []
    for w in WORDS:
        fill(one, w)
        found += stream.push(one)
        pooled += pool.push("s", one).label.tolist()
    found = [emission.label for emission in found + stream.flush()]
    assert found == [*pooled, *pool.flush().label] == Y[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_stays_when_its_item_is_filled_again(form):
    make, fill = FORMS[form]
    one = make("a")
    kept = owned((1, one))
    before = copy.deepcopy(kept)
    fill(one, "b")
    assert kept == before


def test_copies_are_of_the_same_kind():
    row = sparse.csr_matrix(np.eye(3)[:1])
    pair = owned(Pair([1], row))
    assert type(pair) is Pair
    pair.first.append(2)
    pair.second.data[0] = 5
    assert row.data[0] == 1
    thing = object()
    assert owned([thing])[0] is thing


@pytest.mark.parametrize("make", ["csr", "csc", "coo", "bsr", "dia", "lil", "dok"])
def test_matrices_of_any_format_are_pushed(make):
    rows = np.eye(3)[[0, 1, 2, 1]]
    decoder = OnlineDecoder(CRFTagger(), lag=1).fit([rows], [["a", "b", "c", "b"]])
    for wrap in (getattr(sparse, f"{make}_matrix"), getattr(sparse, f"{make}_array")):
        given, pools = wrap(rows), (decoder.pool(), decoder.pool())
        answers = [by_id(p.push_many([*"stst"], x)) for p, x in zip(pools, (given, rows))]
        assert answers[0] == answers[1]
        assert decoder.stream().push_many(given) == decoder.stream().push_many(rows)


def spoil(value):
    """Change all dicts, lists and arrays in a value."""
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, (dict, list, tuple)) else ():
        spoil(part)
    if isinstance(value, (dict, list, set)):
        value.clear()
    elif isinstance(value, np.ndarray):
        value[...] = "b" if value.dtype == object else 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 3])
def test_checkpoints_share_nothing_with_streams(form, n):
    make, _ = FORMS[form]
    window = WindowFeatures(DictFeatures(), before=1, after=1)
    decoder = OnlineDecoder(make_pipeline(window, CRFTagger(l2=0.01)), lag=1)
    decoder = decoder.fit([[make(w) for w in x] for x in X], Y)
    items = [make(w) for w in WORDS]
    stream, pool = decoder.stream(), decoder.pool()
    stream.push_many(items[:n])
    pool.push_many(["s"] * n, items[:n])
    expected = copy.copy(stream).push_many(items[n:])
    for one in (stream.checkpoint(), pool.checkpoint("s")):  # given, then spoilt
        spoil(one)
    given = stream.checkpoint(), pool.checkpoint("s")
    twin = decoder.stream(given[0])
    pool.restore("t", given[1])
    for one in given:  # taken, then spoilt
        spoil(one)
    assert expected == stream.push_many(items[n:]) == twin.push_many(items[n:])
    for id in "st":
        found = by_id(pool.push_many([id] * (len(items) - n), items[n:]))[id]
        assert found == [tuple(e) for e in expected]


def test_a_pickled_pool_builds_one_stream_for_all(monkeypatch):
    decoder = OnlineDecoder(CRFTagger(), lag=1).fit([np.eye(3)], [["a", "b", "c"]])
    pool, made = decoder.pool(), []
    pool.push_many([*range(30)], np.eye(3)[np.arange(30) % 3])
    pickled, init = pickle.dumps(pool), OnlineStream.__init__
    monkeypatch.setattr(
        OnlineStream, "__init__", lambda self, *args: made.append(init(self, *args))
    )
    again = pickle.loads(pickled)
    assert len(made) == 1
    assert by_id(again.flush()) == by_id(pool.flush())


def test_wrong_calls_of_pools():
    rows = np.eye(3)
    decoder = OnlineDecoder(CRFTagger(), lag=1).fit([rows], [["a", "b", "c"]])
    pool = decoder.pool()
    pool.push_many([*"sss"], rows)
    for kind in (set, frozenset):
        with pytest.raises(ValueError, match="in the order of the items; got a set"):
            pool.push_many(kind("st"), rows[:2])
        with pytest.raises(ValueError, match="in the order of the items; got a set"):
            pool.push_potentials(kind("st"), rows[:2])
        assert pool.provisional(kind("s")).ids == ["s"]
    checkpoint = pool.checkpoint("s")
    for id in (float("nan"), ["x"], {}):
        with pytest.raises(ValueError, match="must be hashable and equal to itself"):
            pool.restore(id, checkpoint)
    assert pool.ids == ["s"]
    twin = pickle.loads(pickle.dumps(pool))
    assert pool.commit(n=2**70).label.tolist() == twin.commit().label.tolist()


def test_a_pool_is_pickled_between_calls():
    """All streams of a pickled pool have as many rows, while another thread pushes to all."""
    rows, ids, stop, found = np.eye(3), list(range(40)), threading.Event(), []
    decoder = OnlineDecoder(CRFTagger(), lag=1).fit([rows], [["a", "b", "c"]])
    pool, many = decoder.pool(), np.eye(3)[np.arange(40) % 3]
    pool.push_many(ids, many)

    def push():
        while not stop.is_set():
            try:
                pool.push_many(ids, many)
            except RuntimeError:  # busy: the other thread pickles
                continue

    thread = threading.Thread(target=push)
    thread.start()
    for _ in range(3000):
        try:
            again = pickle.loads(pickle.dumps(pool))
        except RuntimeError:
            continue
        found.append({int(n) for n in np.bincount(again.flush().stream)})
        if len(found) == 10:
            break
    stop.set()
    thread.join()
    assert all(len(counts) == 1 for counts in found)


def test_a_busy_pool_and_segment_stream_are_not_pickled():
    segments = [[(t, t + 1, "x") for t, w in enumerate(x) if w == "a"] for x in X]
    model = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter())
    stream = OnlineDecoder(model, strategy="closure").fit(X, segments).segment_stream()
    rows = np.eye(3)
    pool = OnlineDecoder(CRFTagger(), lag=1).fit([rows], [["a", "b", "c"]]).pool()
    for one in (stream, pool):
        with one._lock, pytest.raises(RuntimeError, match="busy"):
            pickle.dumps(one)
        pickle.dumps(one)
