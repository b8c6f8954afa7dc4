"""Labels that leave by the clock: commit, deadlines, asynchronous sources on a clock of our own."""

import asyncio
import copy
import itertools
import pickle
import selectors

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder
from sklseq.features import TemplateFeatures
from tests import reference
from tests.trials.online import decoder_of

X = [["he", "sleeps", "and", "she", "sings"], ["she", "runs"], ["and", "he", "runs"]]
Y = [["N", "V", "C", "N", "V"], ["N", "V"], ["C", "N", "V"]]


@pytest.fixture(scope="module")
def model():
    features = TemplateFeatures(["w[-1]", "w[0]", "w[1]", "w[2]"])
    return FrozenEstimator(make_pipeline(features, CRFTagger(l2=0.1)).fit(X * 3, Y * 3))


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


# ------------------------------------------------------------------ commit


def best_of_all(rows, transition, start, end, prefix):
    """The best of all paths that begin with ``prefix``, by enumeration."""
    n, L = rows.shape
    rest = itertools.product(range(L), repeat=n - len(prefix))
    paths = [(*prefix, *tail) for tail in rest]
    scores = [reference.score_path(path, rows, transition, start, end) for path in paths]
    return list(paths[int(np.argmax(scores))])


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("strategy", ["viterbi", "closure", "step", "window"])
def test_after_a_commit_labels_are_viterbis_given_those_committed(strategy, early):
    changed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        L, n = int(rng.integers(2, 4)), int(rng.integers(2, 7))
        chain = [2 * rng.standard_normal(shape) for shape in ((L, L), L, L)]
        rows, rule = rng.standard_normal((n, L)), {"strategy": strategy, "latency_cost": 0}
        rule |= {"early": early, "belief": "viterbi", "restart": "always"}
        stream = decoder_of(*chain, rule).stream()
        k = int(rng.integers(1, n))
        labels = [e.label for e in stream.push_potentials(rows[:k])]
        m = int(rng.integers(0, stream.n_pending + 1))
        committed = stream.commit(m)
        assert [e.position for e in committed] == list(range(len(labels), len(labels) + m))
        assert all(e.latency == k - 1 - e.position for e in committed)
        labels += [e.label for e in committed]
        if strategy == "viterbi":
            start = chain[1] if k > 0 else None
            assert labels == best_of_all(rows[:k], chain[0], start, np.zeros(L), [])[:m]
        expected = best_of_all(rows, *chain, labels)
        labels += [e.label for e in stream.push_potentials(rows[k:]) + stream.flush()]
        assert labels == expected
        changed += labels != best_of_all(rows, *chain, [])
    assert changed > 3  # commits that were not Viterbi's labels


def test_a_commit_of_items_that_wait_for_others_labels_them_as_if_none_came(model):
    decoder = OnlineDecoder(model, lag=4)
    stream, whole = decoder.stream(), X[0] + X[2]
    assert stream.push_many(whole[:4]) == []
    assert stream.n_pending == 4
    oldest = stream.commit(3)
    assert [(e.position, e.latency) for e in oldest] == [(0, 3), (1, 2), (2, 1)]
    given = oldest + stream.commit() + stream.commit()
    assert stream.n_pending == 0
    assert stream.n_seen == stream.n_emitted == 4
    assert stream.checkpoint()["items"] == whole[3:4]  # later features look back at it
    # Later rows are those of the whole sequence, after the committed label.
    given += stream.push_many(whole[4:]) + stream.flush()
    assert [e.position for e in given] == list(range(len(whole)))
    tagger = model.estimator[-1]
    psi = tagger.potentials(model.estimator[:-1].transform([whole]))
    last = tagger.classes_.tolist().index(given[3].label)
    late = decoder_of(psi.transition, psi.transition[last], psi.end, {"lag": 2}).stream()
    expected = late.push_potentials(psi.emission[4:]) + late.flush()
    assert [e.label for e in given[4:]] == tagger.classes_[[e.label for e in expected]].tolist()


@pytest.mark.parametrize("n", [-1, 3, True, 0.5, "all"])
def test_a_commit_of_more_than_is_pending_is_refused(n):
    stream = decoder_of(np.eye(3), *np.zeros((2, 3)), {"lag": 9}).stream()
    stream.push_potentials(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="n must be an integer from 0 to 2, the number of pending"):
        stream.commit(n)
    assert (stream.n_pending, stream.commit(0)) == (2, [])


def test_a_commit_that_no_path_allows_changes_nothing():
    # Label 0 was committed, and only label 1 can follow what came.
    transition = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    rule = {"strategy": "viterbi", "restart": "conflict"}
    clock = Clock()
    stream = decoder_of(transition, *np.zeros((2, 2)), rule).stream(max_wait=1.0, clock=clock)
    stream.push_potentials([1.0, 0.0])
    assert [e.label for e in stream.commit()] == [0]
    stream.push_potentials([-np.inf, 0.0])
    for call in (stream.commit, stream.flush):
        with pytest.raises(ValueError, match="No label is allowed at "):
            call()
    clock.now = 2.0
    with pytest.raises(ValueError, match="No label is allowed at "):
        stream.push_potentials([0.0, 0.0])
    assert (stream.n_pending, len(stream._arrivals)) == (1, 1)


def test_a_flushed_stream_commits_nothing():
    stream = decoder_of(np.eye(2), *np.zeros((2, 2)), {}).stream(max_wait=0)
    stream.flush()
    assert (stream.tick(), stream.deadline) == ([], None)
    with pytest.raises(ValueError, match="was flushed"):
        stream.commit()


# ------------------------------------------------------------------ deadlines


@pytest.mark.parametrize("max_wait", [0.0, 0.1, 0.35])
def test_no_label_waits_longer_than_max_wait_if_the_stream_is_asked_in_time(model, max_wait):
    rng, clock, came, left = np.random.default_rng(0), Clock(), {}, {}
    stream = OnlineDecoder(model, lag=6).stream(max_wait=max_wait, clock=clock)
    words = rng.choice(X[0], size=200).tolist()
    for i, word in enumerate(words):
        arrival = clock.now + float(rng.choice([0, 0.04, 0.3]))
        while stream.deadline is not None and stream.deadline <= arrival:
            clock.now = stream.deadline
            left |= {e.position: clock.now for e in stream.tick()}
        clock.now = came[i] = arrival
        left |= {e.position: clock.now for e in stream.push(word)}
    left |= {e.position: clock.now for e in stream.flush()}
    assert sorted(left) == list(range(200))
    waits = np.array([left[i] - came[i] for i in range(200)])
    assert waits.max() <= max_wait + 1e-12
    assert stream.deadline is None


def test_a_push_after_the_deadline_commits_what_was_due():
    clock = Clock()
    stream = decoder_of(np.eye(2), *np.zeros((2, 2)), {"lag": 9}).stream(max_wait=1.0, clock=clock)
    assert stream.push_many(np.eye(2)) == []
    clock.now = 0.5
    assert stream.push_potentials([0.0, 1.0]) == []
    assert stream.deadline == 1.0
    clock.now = 1.25
    assert [(e.position, e.latency) for e in stream.push([1.0, 0.0])] == [(0, 3), (1, 2)]
    assert stream.deadline == 1.5
    stream.reset()
    assert (stream.deadline, stream.tick()) == (None, [])


def test_a_failed_push_leaves_the_deadlines_alone():
    clock = Clock()
    stream = decoder_of(np.eye(2), *np.zeros((2, 2)), {"lag": 9}).stream(max_wait=1.0, clock=clock)
    stream.push_potentials(np.zeros((2, 2)))
    for clock.now in (0.5, 2.0):
        with pytest.raises(ValueError, match="No label is allowed at row 3"):
            stream.push_potentials([[0.0, 0.0], [-np.inf, -np.inf]])
        assert (stream.deadline, stream.n_pending) == (1.0, 2)
    assert len(stream.tick()) == 2


def test_copies_and_checkpoints_keep_no_deadline_but_one_of_their_own():
    clock = Clock()
    decoder = decoder_of(np.eye(2), *np.zeros((2, 2)), {"lag": 9})
    stream = decoder.stream(max_wait=1.0, clock=clock)
    stream.push_potentials(np.zeros((2, 2)))
    twin = copy.copy(stream)
    twin.flush()
    assert len(stream.provisional) == 2
    assert stream.deadline == 1.0
    clock.now = 5.0
    resumed = decoder.stream(stream.checkpoint(), max_wait=1.0, clock=clock)
    assert (resumed.deadline, resumed.tick()) == (6.0, [])
    unpickled = pickle.loads(pickle.dumps(stream))
    assert (unpickled.deadline, unpickled.tick(), unpickled.n_pending) == (None, [], 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_wait": -1}, "max_wait must be None or a finite number of at least 0; got -1"),
        ({"max_wait": np.nan}, "max_wait must be None or a finite number of at least 0; got nan"),
        ({"max_wait": True}, "max_wait must be None or a finite number of at least 0; got True"),
        ({"max_wait": "1"}, "max_wait must be None or a finite number of at least 0; got '1'"),
        ({"max_wait": 1, "clock": 5}, "clock must be a function that returns the time; got 5"),
    ],
)
def test_a_wait_that_is_none_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        decoder_of(np.eye(2), *np.zeros((2, 2)), {}).stream(**parameters)


@pytest.mark.parametrize("now", [None, "12:00", np.nan, True])
def test_a_clock_that_gives_no_number_is_refused(now):
    stream = decoder_of(np.eye(2), *np.zeros((2, 2)), {}).stream(max_wait=1, clock=lambda: now)
    with pytest.raises(ValueError, match="clock must return a number; it returned"):
        stream.push([0.0, 0.0])
    assert stream.n_seen == 0


# ------------------------------------------------------------------ asynchronous sources


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits, and then at once."""

    def __init__(self):
        self.now = 0.0
        selector = selectors.DefaultSelector()
        self._select, selector.select = selector.select, self._jump
        super().__init__(selector)

    def time(self):
        return self.now

    def _jump(self, timeout=None):
        assert timeout is not None, "nothing is left to wait for"
        self.now += max(0.0, timeout)
        return self._select(0)


def run(loop, work):
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


@pytest.mark.filterwarnings("error")
def test_fifty_clients_get_every_label_within_its_deadline_and_none_changes(model):
    decoder, loop = OnlineDecoder(model, lag=4), Loop()

    async def client(seed):
        rng, came, got = np.random.default_rng(seed), [], []
        words = rng.choice(X[0], size=30).tolist()

        async def source():
            for word in words:
                await asyncio.sleep(float(rng.choice([0, 0.02, 0.5])))
                came.append(loop.now)
                yield word

        async for emission in decoder.aiter(source(), max_wait=0.1, clock=loop.time):
            got.append((emission, loop.now))
        waits = [now - came[e.position] for e, now in got]
        assert [e.position for e, _ in got] == list(range(30))
        # Timers fire when less than the resolution of the clock, 1 ns, is missing.
        assert max(waits) <= 0.1 + 2e-9
        assert max(waits) > 0.09  # deadlines counted
        return words, [e for e, _ in got], [now for _, now in got], came

    async def everyone():
        return await asyncio.gather(*map(client, range(50)))

    committed = 0
    for words, emissions, times, came in run(loop, everyone()):
        # The same labels leave, at the same times, from a stream that is driven by hand.
        clock, again = Clock(), []
        stream = decoder.stream(max_wait=0.1, clock=clock)
        for arrival, word in zip(came, words):
            while stream.deadline is not None and stream.deadline < arrival - 1e-6:
                clock.now = stream.deadline
                again += [(e, clock.now) for e in stream.tick()]
                committed += 1
            clock.now = arrival
            again += [(e, clock.now) for e in stream.push(word)]
        again += [(e, clock.now) for e in stream.flush()]
        assert [e for e, _ in again] == emissions
        assert np.allclose([t for _, t in again], times, rtol=0, atol=1e-6)
    assert committed > 100


def test_a_source_without_deadlines_gives_what_iter_gives(model):
    decoder = OnlineDecoder(model, latency_cost=0.05)

    async def source():
        for word in X[0] * 5:
            await asyncio.sleep(0)
            yield word

    async def labels():
        return [e async for e in decoder.aiter(source())]

    assert run(Loop(), labels()) == list(decoder.iter(X[0] * 5))


@pytest.mark.filterwarnings("error")
def test_a_source_that_fails_or_is_left_early_is_closed(model):
    closed = []

    async def source(fails):
        try:
            yield "he"
            await asyncio.sleep(0.01)
            if fails:
                raise OSError("connection lost")
            yield "runs"
            await asyncio.sleep(60)
        finally:
            closed.append(fails)

    async def labels(fails):
        labelled = OnlineDecoder(model, lag=2).aiter(source(fails), max_wait=0.005)
        async for _ in labelled:
            if not fails:
                break
        await labelled.aclose()

    with pytest.raises(OSError, match="connection lost"):
        run(Loop(), labels(True))
    run(Loop(), labels(False))
    assert closed == [True, False]


def test_a_source_that_is_not_asynchronous_is_refused(model):
    with pytest.raises(TypeError, match="aiter takes an asynchronous iterable; got list"):
        OnlineDecoder(model).aiter(["he"])
