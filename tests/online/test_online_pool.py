"""StreamPool: what it gives is what single streams give, whatever the order of the calls."""

import gc
import pickle
import threading
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder
from sklseq.datasets import make_contacts
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.online import StreamPool

RULES = [
    {},
    {"latency_cost": 0.3, "early": False, "restart": "conflict"},
    {"belief": "forward", "max_latency": 4},
    {"strategy": "window", "latency_cost": 0.3},
    {"strategy": "closure"},
    {"strategy": "chunk", "window_size": 3},
    {"strategy": "viterbi"},
    {"lag": 2, "decide": "marginal"},
]


@pytest.fixture(scope="module")
def model():
    X, y = make_contacts(25, random_state=6)
    window = WindowFeatures(TokenFeatures(), before=2, after=1)
    return make_pipeline(window, CRFTagger(l2=0.1, tol=0.1)).fit([x["w"] for x in X], y)


@pytest.fixture(scope="module")
def tokens():
    X, _ = make_contacts(40, random_state=7)
    return [token for x in X for token in x["w"]]


def decoder_of(model, **rule):
    return OnlineDecoder(FrozenEstimator(model), **rule)


class Singles:
    """The same calls on single streams."""

    def __init__(self, decoder):
        self.decoder, self.streams = decoder, {}

    def push_many(self, ids, items):
        found = {id: [] for id in ids}
        for id, item in zip(ids, items):
            stream = self.streams.setdefault(id, self.decoder.stream())
            found[id] += stream.push(item)
        return found

    def flush(self, ids):
        return {id: self.streams.pop(id).flush() for id in ids}

    def commit(self, ids, n):
        found = {}
        for id in ids:
            stream = self.streams[id]
            found[id] = stream.commit(None if n is None else min(n, stream.n_pending))
        return found

    def provisional(self, ids):
        return {id: self.streams[id].provisional for id in ids}


def by_id(labels):
    """Emissions of each stream of a call."""
    found = {id: [] for id in labels.ids}
    for stream, *fields in zip(*(column.tolist() for column in labels[1:])):
        found[labels.ids[stream]].append(tuple(fields))
    return found


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_any_interleaving_gives_what_single_streams_give(rule, model, tokens):
    rng = np.random.default_rng(0)
    decoder = decoder_of(model, **rule)
    pool, singles = decoder.pool(), Singles(decoder)
    for step in range(14):
        ids = rng.integers(8, size=rng.integers(1, 12)).tolist()
        items = [tokens[k] for k in rng.integers(len(tokens), size=len(ids))]
        assert by_id(pool.push_many(ids, items)) == singles.push_many(ids, items)
        some = [id for id in pool.ids if rng.random() < 0.08]
        if step % 3 == 0:
            n = None if rng.random() < 0.3 else int(rng.integers(4))
            half = [id for id in pool.ids if rng.random() < 0.4]
            assert by_id(pool.commit(half, n)) == singles.commit(half, n)
        if step % 5 == 0:
            assert by_id(pool.provisional(some)) == singles.provisional(some)
        if step % 9 == 0:
            pool = pickle.loads(pickle.dumps(pool))
        if step % 4 == 0:
            for id in some:  # into a single stream and back
                singles.streams[id] = decoder.stream(pool.checkpoint(id))
                pool.restore(id, singles.streams[id].checkpoint())
        assert by_id(pool.flush(some)) == singles.flush(some)
        assert sorted(pool.ids) == sorted(singles.streams)
    assert by_id(pool.flush()) == singles.flush(pool.ids or list(singles.streams))
    assert len(pool) == pool.nbytes == 0


def test_a_thousand_streams(model, tokens):
    decoder = decoder_of(model)
    pool, given = decoder.pool(), {s: tokens[s : s + 12] for s in range(1000)}
    found = {s: [] for s in given}
    for t in range(12):
        for s, emissions in by_id(
            pool.push_many(list(given), [x[t] for x in given.values()])
        ).items():
            found[s] += emissions
    assert pool.nbytes < 1000 * (2048 + 12 * 480)
    for s, emissions in by_id(pool.flush()).items():
        found[s] += emissions
    decoding = decoder.decode(list(given.values()))
    for s in given:
        assert [e[1] for e in found[s]] == decoding.labels[s].tolist()
        assert [e[0] + e[3] for e in found[s]] == decoding.times[s].tolist()


def rounded(found):
    """Without the last digits of confidences: products of matrices depend on their shapes."""
    return {id: [(p, y, round(c, 12), wait) for p, y, c, wait in e] for id, e in found.items()}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, list, "potentials"])
def test_rows_and_scores_of_any_form(form):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 4))
    tagger = CRFTagger(l2=0.1).fit([rows[:30], rows[30:]], [["a", "b", "c"] * 10] * 2)
    decoder = decoder_of(tagger)
    pool, streams = decoder.pool(), [decoder.stream() for _ in range(3)]
    ids = rng.integers(3, size=60)
    scores = tagger.potentials([rows]).emission
    for k in range(0, 60, 6):
        part, which = slice(k, k + 6), ids[k : k + 6].tolist()
        if form == "potentials":
            labels = pool.push_potentials(which, scores[part])
            wanted = {
                s: streams[s].push_potentials(scores[part][ids[part] == s])
                for s in dict.fromkeys(which)
            }
        else:
            items = form(rows[part]) if form is not list else list(rows[part])
            labels = pool.push_many(which, items)
            wanted = {
                s: streams[s].push_many(rows[part][ids[part] == s]) for s in dict.fromkeys(which)
            }
        assert rounded(by_id(labels)) == rounded(wanted)
    wanted = {s: streams[s].flush() for s in range(3)}
    assert rounded(by_id(pool.flush([0, 1, 2]))) == rounded(wanted)


def state(pool):
    return pickle.dumps({id: pool.checkpoint(id) for id in pool.ids})


def test_a_failed_call_changes_nothing(model, tokens):
    pool = decoder_of(model).pool()
    pool.push_many([*"abcab"], tokens[:5])
    before = state(pool)
    with pytest.raises((ValueError, TypeError)):
        pool.push_many(["a", "new", "b"], [*tokens[:2], {"w": "x"}])
    with pytest.raises(ValueError, match="one id for each item; got 2 and 1"):
        pool.push_many(["a", "b"], tokens[:1])
    with pytest.raises(ValueError, match="No stream 'new' is open"):
        pool.flush(["a", "new"])
    with pytest.raises(ValueError, match="n must be None or an integer of at least 0"):
        pool.commit(["a"], -1)
    with pytest.raises(ValueError, match="features depend on later"):
        pool.push_potentials(["b"], np.zeros((1, len(model[-1].classes_))))
    assert state(pool) == before
    assert pool.ids == [*"abc"]
    assert "new" not in pool


def test_errors_name_the_stream():
    rows = np.eye(3)
    tagger = CRFTagger(constraints=np.triu(np.ones((2, 2), bool))).fit([rows], [["a", "a", "b"]])
    pool = decoder_of(tagger, strategy="closure").pool()
    pool.push_many(["s", "t"], rows[:2])
    before = state(pool)
    for scores, message in (
        ([[0, 0], [np.nan, 0]], "Label 'a' of row 1 of stream 't' has the score nan"),
        ([[0, 0], [-np.inf, -np.inf]], "No label is allowed at row 1 of stream 't', after"),
    ):
        with pytest.raises(ValueError, match=message):
            pool.push_potentials(["s", "t"], scores)
        assert state(pool) == before
    with pytest.raises(ValueError, match="must have 1 rows, one for each id, and 2 columns"):
        pool.push_potentials(["s"], [[0.0]])


def test_checkpoints_of_flushed_streams_and_other_models(model, tokens):
    decoder = decoder_of(model)
    pool, stream = decoder.pool(), decoder.stream()
    stream.push(tokens[0])
    stream.flush()
    with pytest.raises(ValueError, match="was flushed: its sequence is over"):
        pool.restore("s", stream.checkpoint())
    with pytest.raises(ValueError, match="other parameters"):
        pool.restore("s", decoder_of(model, lag=3).stream().checkpoint())
    assert len(pool) == 0


def test_memory_of_dropped_streams_is_free(model, tokens):
    pool = decoder_of(model).pool()
    for _ in range(3):
        pool.push_many(range(50), tokens[:50])
        pool.push_many(range(50), tokens[:50])
        assert len(pool) == 50
        assert pool.nbytes > 50 * 300
        pool.drop(range(50))
        assert pool.nbytes == len(pool) == 0


def test_python_memory_of_a_stream_is_its_tokens(model, tokens):
    pool = decoder_of(model).pool()
    pool.push_many(["x"], tokens[:1])
    gc.collect()
    tracemalloc.start()
    for t in range(6):
        pool.push_many(range(300), tokens[t : t + 300])
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 300 * 600


def test_one_thread_at_a_time(model, tokens):
    found = []
    pool = None

    def measure(distribution):
        thread = threading.Thread(target=lambda: found.append(busy(pool)))
        thread.start()
        thread.join()
        return 0.0

    def busy(pool):
        with pytest.raises(RuntimeError, match="busy: push_many"):
            pool.push_many(["s"], tokens[:1])
        return True

    pool = decoder_of(model, uncertainty=measure).pool()
    for token in tokens[:20]:
        pool.push("s", token)
    assert all(found)
    assert found


def test_an_error_of_a_measure_changes_nothing(model, tokens):
    answers = iter([0.0] * 10)

    def measure(distribution):
        return next(answers)

    pool = decoder_of(model, uncertainty=measure).pool()
    for k in range(0, 400, 8):
        before = state(pool)
        try:
            pool.push_many([k % 3, (k + 1) % 3], tokens[k : k + 2])
        except StopIteration:
            break
    else:
        pytest.fail("the measure was not asked ten times")
    assert state(pool) == before


def test_what_it_says(model, tokens):
    pool = decoder_of(model).pool()
    assert isinstance(pool, StreamPool)
    pool.push("s", tokens[0])
    assert repr(pool).startswith("<StreamPool: 1 streams, ")
    labels = pool.push_many([], [])
    assert labels.ids == []
    assert_array_equal(labels.position, np.zeros(0))


@pytest.mark.parametrize(
    ("ids", "shown"),
    [("ab", "'ab'"), (5, "5"), ([[1], "b"], r"\[1\]"), ([float("nan"), 1], "nan")],
)
def test_names_of_streams_are_checked(model, ids, shown):
    pool = OnlineDecoder(FrozenEstimator(model)).pool()
    with pytest.raises(ValueError, match=f"stream.*; got {shown}"):
        pool.push_many(ids, ["a", "b"])
    with pytest.raises(ValueError, match=f"stream.*; got {shown}"):
        pool.flush(ids)
    assert len(pool) == 0
