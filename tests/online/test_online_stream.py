"""The streaming contract: every test's name is the sentence it checks."""

import copy
import gc
import itertools
import os
import pickle
import threading
import time
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline, make_union

from sklseq import CRFTagger, OnlineDecoder
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.inference import decode_online

RULES = [
    {"strategy": "step", "latency_cost": 0.03},
    {"strategy": "step", "latency_cost": 0.03, "restart": "conflict", "belief": "forward"},
    {"strategy": "step", "uncertainty": lambda p: 1 - p.max(), "max_latency": 5},
    {"strategy": "window", "latency_cost": 0.1},
    {"strategy": "closure"},
    {"strategy": "closure", "max_latency": 4},
    {"strategy": "chunk", "window_size": 5},
    {"strategy": "viterbi"},
    {"lag": 3},
    {"lag": 1, "restart": "conflict"},
]
rules = pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(rule))
COLUMNS = ("w", "tag")


def chain(seed=0, T=60, L=4):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((T, L)), rng.standard_normal((L, L))


def decoder_of(transition, *ends, **rule):
    decoder = OnlineDecoder(None, **rule)
    decoder.estimator_ = CRFTagger()
    set_tagger(decoder.estimator_, transition, *ends)
    return decoder


def set_tagger(tagger, transition, start=None, end=None):
    """A CRFTagger whose features are the label scores themselves."""
    L = len(transition)
    tagger.classes_ = np.array([f"L{j}" for j in range(L)])
    tagger.coef_, tagger.transition_ = np.eye(L), np.asarray(transition, dtype=float)
    tagger.start_ = np.zeros(L) if start is None else np.asarray(start)
    tagger.end_ = np.zeros(L) if end is None else np.asarray(end)
    tagger.n_features_in_, tagger.vectorizer_ = L, None


def expected(emission, transition, rule, *ends):
    """(labels, latency) by decode_online, as codes."""
    ends = dict(zip(("start", "end"), ends))
    paths = decode_online(emission, transition, **ends, **rule)
    return paths.labels.tolist(), paths.latency.tolist(), paths.confidence.tolist()


def told(emissions):
    """(codes, latency, confidence) of emissions, which must be in order of position."""
    assert [e.position for e in emissions] == list(range(len(emissions)))
    codes = [int(e.label[1:]) for e in emissions]
    return codes, [e.latency for e in emissions], [e.confidence for e in emissions]


# ------------------------------------------------------------------ labels


@rules
def test_pushing_one_by_one_gives_what_decode_gives(rule):
    emission, transition = chain()
    stream = decoder_of(transition, **rule).stream()
    emissions = []
    for t, row in enumerate(emission):
        new = stream.push(row)
        assert all(e.latency == t - e.position for e in new)
        emissions += new
    assert told(emissions + stream.flush()) == expected(emission, transition, rule)


@rules
@pytest.mark.parametrize("seed", range(5))
def test_any_chunking_gives_the_same_labels(rule, seed):
    emission, transition = chain(seed)
    rng, stream = np.random.default_rng(seed), decoder_of(transition, **rule).stream()
    cuts = np.sort(rng.integers(0, len(emission), 9)).tolist()
    emissions = []
    for a, b in itertools.pairwise([0, *cuts, len(emission)]):
        part = emission[a:b]
        emissions += stream.push_many([list, sparse.csr_matrix, np.array][seed % 3](part))
    assert told(emissions + stream.flush()) == expected(emission, transition, rule)


@rules
def test_scores_can_be_pushed_directly(rule):
    emission, transition = chain(1)
    stream = decoder_of(transition, **rule).stream()
    emissions = [e for row in emission[:30] for e in stream.push_potentials(row)]
    emissions += stream.push_potentials(emission[30:])
    assert told(emissions + stream.flush()) == expected(emission, transition, rule)


def test_scores_of_any_layout_and_precision_can_be_pushed():
    emission, transition = chain(1)
    decoder = decoder_of(transition, latency_cost=0.02)
    wanted = expected(emission, transition, {"latency_cost": 0.02})
    wide = np.repeat(emission, 2, axis=1)[:, ::2]
    for rows in (wide, np.asfortranarray(emission), emission.tolist(), emission.astype(">f8")):
        for push_all in (True, False):
            stream = decoder.stream()
            parts = [rows] if push_all else rows
            emissions = [e for part in parts for e in stream.push_potentials(part)]
            assert told(emissions + stream.flush()) == wanted


def test_streams_of_a_float32_model_round_as_it_does():
    # Scores that float32 cannot tell apart: ties must fall as in the batch algorithm.
    rng = np.random.default_rng(0)
    emission = 1e5 + rng.integers(0, 4, (80, 4)) * 2.0**-7 + rng.random((80, 4)) * 2.0**-12
    decoder = decoder_of(rng.integers(0, 4, (4, 4)) * 2.0**-9, strategy="closure")
    for name in ("coef_", "transition_", "start_", "end_"):
        setattr(decoder.estimator_, name, getattr(decoder.estimator_, name).astype(np.float32))
    batch = decoder.estimator_.predict([emission.astype(np.float32)])[0]
    for push in ("push_many", "push_potentials"):
        stream = decoder.stream()
        rows = emission.astype(np.float32) if push == "push_many" else emission
        emissions = getattr(stream, push)(rows) + stream.flush()
        assert [e.label for e in emissions] == batch
    stream = decoder.stream()
    emissions = [e for row in emission for e in stream.push_potentials(row)] + stream.flush()
    assert [e.label for e in emissions] == batch


def test_starts_and_ends_count():
    emission, transition = chain(2, T=8)
    ends = np.array([0, 5.0, 0, 0]), np.array([0, 0, 9.0, 0])
    stream = decoder_of(transition, *ends, strategy="closure").stream()
    emissions = stream.push_many(emission) + stream.flush()
    assert told(emissions) == expected(emission, transition, {"strategy": "closure"}, *ends)


@rules
def test_committed_labels_never_change(rule):
    # Each position leaves once, and what has left does not depend on the rows that follow.
    emission, transition = chain(3)
    decoder, rng = decoder_of(transition, **rule), np.random.default_rng(0)
    for cut in (10, 35, 50):
        stream, other = decoder.stream(), decoder.stream()
        committed = stream.push_many(emission[:cut])
        assert (len(committed) > 0) == (
            rule["strategy"] != "viterbi" if "strategy" in rule else True
        )
        everything = committed + stream.push_many(emission[cut:]) + stream.flush()
        assert [e.position for e in everything] == list(range(len(emission)))
        changed = np.concatenate([emission[:cut], 5 * rng.standard_normal((20, 4))])
        elsewhere = [e for row in changed for e in other.push(row)] + other.flush()
        assert [e[:3] for e in elsewhere[: len(committed)]] == [e[:3] for e in committed]


@pytest.mark.parametrize("bound", [0, 1, 4])
@rules
def test_latency_never_exceeds_max_latency(rule, bound):
    if "lag" in rule:
        pytest.skip("lag is a bound itself")
    emission, transition = chain(4, T=200)
    stream = decoder_of(0.1 * transition, **rule | {"max_latency": bound}).stream()
    for row in emission:
        assert all(e.latency <= bound for e in stream.push(row))
        assert stream.n_pending <= bound


def test_before_any_item_there_is_nothing():
    stream = decoder_of(np.eye(2)).stream()
    assert (stream.n_seen, stream.n_emitted, stream.n_pending) == (0, 0, 0)
    assert stream.provisional == []
    assert stream.push_many([]) == []
    assert stream.flush() == []


def test_iter_yields_one_emission_an_item_and_takes_no_more_than_it_needs():
    emission, transition = chain(5)
    decoder = decoder_of(transition, lag=2)
    taken = []

    def source():
        for row in emission:
            taken.append(1)
            yield row

    emissions = decoder.iter(source())
    first = next(emissions)
    assert (first.position, first.latency, len(taken)) == (0, 2, 3)
    assert told([first, *emissions]) == expected(emission, transition, {"lag": 2})
    endless = decoder.iter(itertools.repeat(emission[0]))
    assert [e.position for e in itertools.islice(endless, 1000)] == list(range(1000))


# ------------------------------------------------------------------ provisional labels


@rules
def test_provisional_labels_are_those_of_a_flush_now(rule):
    emission, transition = chain(6, T=25)
    stream = decoder_of(transition, **rule).stream()
    for row in emission:
        stream.push(row)
        provisional = stream.provisional
        assert len(provisional) == stream.n_pending
        assert provisional == pickle_round_trip(stream).flush()


def test_provisional_changes_nothing():
    emission, transition = chain(7)
    decoder = decoder_of(transition, latency_cost=0.01)
    one, two = decoder.stream(), decoder.stream()
    for row in emission:
        assert one.push(row) == two.push(row)
        assert one.provisional == copy.copy(one).flush()
    assert one.flush() == two.flush()
    assert one.provisional == []


# ------------------------------------------------------------------ independence and state


def test_streams_of_one_decoder_do_not_see_each_other():
    decoder, jobs = decoder_of(chain()[1], latency_cost=0.02), []
    streams = [decoder.stream() for _ in range(5)]
    emissions = [[] for _ in streams]
    data = [chain(seed)[0] for seed in range(5)]
    for t in range(60):
        for k, stream in enumerate(streams):
            emissions[k] += stream.push(data[k][t])
    for k, stream in enumerate(streams):
        jobs.append(told(emissions[k] + stream.flush()))
        assert jobs[-1] == expected(data[k], chain()[1], {"latency_cost": 0.02})


def test_streams_work_in_threads():
    _, transition = chain()
    decoder, answers = decoder_of(transition, latency_cost=0.02), {}

    def run(seed):
        stream = decoder.stream()
        emissions = [e for row in chain(seed, T=300)[0] for e in stream.push_potentials(row)]
        answers[seed] = told(emissions + stream.flush())

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(6):
        emission, _ = chain(seed, T=300)
        assert answers[seed] == expected(emission, transition, {"latency_cost": 0.02})


def pickle_round_trip(stream):
    rule = stream._model.rule
    if callable(rule.uncertainty):  # a lambda cannot be pickled, the rest of the state can
        return copy.copy(stream)
    return pickle.loads(pickle.dumps(stream))


@rules
def test_pickle_in_mid_stream_resumes(rule):
    emission, transition = chain(8)
    forbidden = np.where(transition < -0.8, -np.inf, transition)
    for scores in (transition, forbidden):
        stream = decoder_of(scores, **rule).stream()
        emissions = []
        for t, row in enumerate(emission):
            emissions += stream.push(row)
            if t % 3 == 0:
                stream = pickle_round_trip(stream)
        assert told(emissions + stream.flush()) == expected(emission, scores, rule)


def test_a_pickled_stream_holds_no_compiled_objects():
    stream = decoder_of(np.eye(3)).stream()
    stream.push([1.0, 2.0, 3.0])
    assert b"_online_v3" not in pickle.dumps(stream)
    assert b"Beam" not in pickle.dumps(stream)


@rules
def test_a_checkpoint_without_the_model_resumes_on_the_decoder(rule):
    emission, transition = chain(8)
    decoder = decoder_of(transition, **rule)
    stream, emissions = decoder.stream(), []
    for row in emission:
        emissions += stream.push(row)
        stored = pickle.dumps(stream.checkpoint())
        assert len(stored) < 1500 + 100 * stream.n_pending
        stream = decoder.stream(pickle.loads(stored))
    assert told(emissions + stream.flush()) == expected(emission, transition, rule)


def test_a_checkpoint_of_tokens_resumes():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["marks"](), latency_cost=0.05).fit(X, y)
    for x, labels in zip(X, decoder.predict(X)):
        stream, got = decoder.stream(), []
        for item in ITEMS["dicts"](x):
            got += stream.push(item)
            stream = decoder.stream(pickle.loads(pickle.dumps(stream.checkpoint())))
        got += stream.flush()
        assert [e.label for e in got] == labels
        with pytest.raises(ValueError, match="flushed"):
            decoder.stream(stream.checkpoint()).push(item)


def test_a_checkpoint_of_something_else_is_refused():
    decoder = decoder_of(np.eye(3), latency_cost=0.02)
    checkpoint = decoder.stream().checkpoint()
    for other, what in (
        (decoder_of(2 * np.eye(3), latency_cost=0.02), "transitions"),
        (decoder_of(np.eye(3), [0.0, 1, 2], latency_cost=0.02), "transitions"),
        (decoder_of(np.eye(3), latency_cost=0.03), "parameters"),
        (decoder_of(np.eye(3), lag=1), "parameters"),
    ):
        with pytest.raises(ValueError, match=f"is of a stream with other {what}"):
            other.stream(checkpoint)
    for bad in (b"...", {}, 3):
        with pytest.raises(ValueError, match=r"checkpoint must be what .*checkpoint\(\) gave"):
            decoder.stream(bad)


@pytest.mark.thread_unsafe(reason="measures the memory of all threads")
def test_streams_share_the_transitions():
    L = 400
    decoder = decoder_of(np.random.default_rng(0).normal(size=(L, L)))
    streams = [decoder.stream()]
    tracemalloc.start()
    streams += [decoder.stream() for _ in range(20)]
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len({id(stream._chain) for stream in streams}) == 1
    assert held / 20 < 8 * L * L / 5
    decoder.estimator_.transition_ = np.zeros((L, L))  # a stream made later sees it
    assert not decoder.stream()._chain.score[:L, :L].any()


@rules
def test_reset_starts_afresh(rule):
    emission, transition = chain(9)
    stream = decoder_of(transition, **rule).stream()
    stream.push_many(chain(10)[0])
    for _ in range(2):  # in mid-stream, then after a flush
        stream.reset()
        assert (stream.n_seen, stream.n_emitted, stream.n_pending) == (0, 0, 0)
        emissions = stream.push_many(emission) + stream.flush()
        assert told(emissions) == expected(emission, transition, rule)


def test_refitting_the_decoder_leaves_its_streams_alone():
    X, y = [[{"a": 1}, {"b": 1}]], [["x", "y"]]
    decoder = OnlineDecoder(CRFTagger(l2=0.1), lag=0).fit(X, y)
    stream = decoder.stream()
    decoder.fit(X, [["p", "q"]])
    assert stream.push({"a": 1})[0].label == "x"
    assert decoder.stream().push({"a": 1})[0].label == "p"


def test_input_rows_are_not_kept():
    class Row(np.ndarray):
        pass

    emission, transition = chain(11)
    stream = decoder_of(transition, strategy="viterbi").stream()
    rows = [row.copy().view(Row) for row in emission]
    gone = [weakref.ref(row) for row in rows]
    for row in rows:
        stream.push(row)
        stream.push_potentials(row)
    del rows, row
    gc.collect()
    assert not any(ref() is not None for ref in gone)


def test_rows_may_be_overwritten_after_a_push():
    emission, transition = chain(12)
    stream, row, emissions = decoder_of(transition, lag=2).stream(), np.empty(4), []
    for scores in emission:
        row[:] = scores
        emissions += stream.push(row)
        row[:] = np.nan
    assert told(emissions + stream.flush()) == expected(emission, transition, {"lag": 2})


def resident_bytes():
    """Memory of this process, where the system tells; else 0."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 if statm.exists() else 0


@pytest.mark.thread_unsafe(reason="measures the memory of all threads")
@pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer keeps what is freed"
)
def test_memory_is_flat_over_two_million_pushes():
    emission = 2 * np.random.default_rng(0).standard_normal((20_000, 3))
    stream = decoder_of(np.eye(3), latency_cost=0.05).stream()
    n, sizes, resident = 0, set(), []
    for _ in range(100):  # soak_stream.py: many more
        n += len(stream.push_potentials(emission))
        sizes.add(stream.nbytes)
        resident.append(resident_bytes())
    assert n + stream.n_pending == stream.n_seen == 2_000_000
    assert len(sizes) == 1
    assert sizes.pop() < 100_000
    assert resident[-1] - resident[20] < 4e6  # three bytes for each row would be 4.8e6


@pytest.mark.thread_unsafe(reason="measures the memory of all threads")
@pytest.mark.parametrize("rule", [{"strategy": "closure"}, {"strategy": "window"}, {"lag": 3}])
def test_memory_is_bounded_by_the_latency(rule):
    emission = 2 * np.random.default_rng(0).standard_normal((4_000, 3))
    stream = decoder_of(np.eye(3), **rule).stream()
    sizes = []
    tracemalloc.start()
    try:
        for k in range(12):
            stream.push_potentials(emission)
            sizes.append(stream.nbytes)
            if k == 1:
                early = tracemalloc.get_traced_memory()[0]
        late = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert stream.n_pending < 100
    assert len(set(sizes)) == 1
    assert late - early < 10_000


def test_memory_shrinks_when_the_latency_does():
    apart = np.where(np.eye(2, dtype=bool), 0, -np.inf)  # two paths that never meet
    stream = decoder_of(apart, strategy="closure").stream()
    stream.push_many(np.zeros((50_000, 2)))
    assert stream.n_pending == 50_000
    held = stream.nbytes
    stream.push_potentials([0.0, -np.inf])  # the last label is known, and so are all others
    for _ in range(300_000 // 1000):
        stream.push_potentials(np.tile([0.0, -np.inf], (1000, 1)))
    assert stream.n_pending == 0
    assert stream.nbytes < held / 20


# ------------------------------------------------------------------ raw tokens and other items


WORDS = ["a", "rose", "is", "and", "the", "rain", "in", "Spain", "mainly", ",", "said"]


def token_data():
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(12):
        w = rng.choice(WORDS, size=int(rng.integers(1, 15))).tolist()
        X.append({"w": w, "tag": [word[0] for word in w]})
        y.append([("N" if len(word) > 3 else "O") + word[-1] for word in w])
    return X, y


PIPELINES = {
    "window": lambda: make_pipeline(
        TemplateFeatures(["w[-2]", "w[0]", "tag[1]|tag[2]", "w[-1]|w[0]"]), CRFTagger(l2=0.1)
    ),
    "marks": lambda: make_pipeline(
        TemplateFeatures(["w[-3]", "w[0]", "tag[4]"], boundary="mark"), CRFTagger(l2=0.1)
    ),
    "ends": lambda: make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(l2=0.1)),
    "no look-ahead": lambda: make_pipeline(
        TemplateFeatures(["w[-2]", "w[0]"], bos_eos=False), CRFTagger(l2=0.1)
    ),
    "union": lambda: make_pipeline(
        make_union(TemplateFeatures(["w[-1]"]), TemplateFeatures(["tag[3]"], bos_eos=False)),
        CRFTagger(l2=0.1),
    ),
}
ITEMS = {
    "dicts": lambda x: [dict(zip(x, row)) for row in zip(*x.values())],
    "tuples": lambda x: list(zip(*x.values())),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("form", ITEMS)
def test_raw_tokens_give_what_whole_sequences_give(pipeline, form):
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES[pipeline](), latency_cost=0.05).fit(X, y)
    labels, times, confidence = decoder.decode(X)
    for s, x in enumerate(X):
        for size in (1, 3, 100):
            stream, emissions, seen = decoder.stream(), [], []
            items = ITEMS[form](x)
            for k in range(0, len(items), size):
                new = stream.push_many(items[k : k + size])
                emissions += new
                seen += [min(k + size, len(items)) - 1] * len(new)
            assert stream.n_seen == len(items)
            last = stream.flush()
            emissions, seen = emissions + last, seen + [len(items) - 1] * len(last)
            assert [e.label for e in emissions] == labels[s].tolist()
            assert [e.position + e.latency for e in emissions] == times[s].tolist()
            assert [e.confidence for e in emissions] == confidence[s].tolist()
            if size == 1:
                assert seen == times[s].tolist()


def test_plain_words_can_be_pushed():
    X, y = token_data()
    X = [x["w"] for x in X]
    model = make_pipeline(TemplateFeatures(["w[0]", "w[1]"]), CRFTagger(l2=0.1))
    decoder = OnlineDecoder(model, strategy="closure").fit(X, y)
    for x, expected_labels in zip(X, decoder.estimator_.predict(X)):
        assert [e.label for e in decoder.iter(x)] == expected_labels


def test_only_the_window_around_pending_tokens_is_transformed():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["window"](), latency_cost=0.05).fit(X, y)
    sizes, extractor = [], decoder.estimator_[0]
    transform = extractor.transform
    extractor.transform = lambda X: sizes.append(len(X[0])) or transform(X)
    stream = decoder.stream()
    for item in ITEMS["dicts"](X[0]) * 40:
        stream.push(item)
        assert len(stream._items) <= 2 + 2
    assert max(sizes) == 2 + 1 + 2


def test_look_ahead_counts_as_latency_and_towards_max_latency():
    X, y = token_data()
    model = PIPELINES["window"]().fit(X, y)
    items = ITEMS["dicts"](X[0]) * 5
    for bound in (2, 3):
        decoder = OnlineDecoder(FrozenEstimator(model), strategy="closure", max_latency=bound)
        stream = decoder.fit(X, y).stream()
        latency = [e.latency for item in items for e in stream.push(item)]
        assert min(latency) >= 2
        assert max(latency) <= bound
        assert stream.n_pending <= bound


def test_provisional_labels_of_tokens_that_wait_for_their_features():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["window"](), strategy="closure").fit(X, y)
    stream = decoder.stream()
    items = ITEMS["dicts"](X[0])
    for t, item in enumerate(items):
        emitted = stream.push(item)
        assert len(stream.provisional) == stream.n_pending >= min(t + 1, 2) - len(emitted)
        x = {name: values[: t + 1] for name, values in X[0].items()}
        batch = decoder.estimator_.predict([x])[0]
        assert [e.label for e in stream.provisional] == batch[stream.n_emitted :]


def test_tokens_may_be_changed_after_a_push():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["window"](), latency_cost=0.05).fit(X, y)
    stream, item, labels = decoder.stream(), {}, []
    for token in ITEMS["dicts"](X[0]):
        item.update(token)
        labels += [e.label for e in stream.push(item)]
        item.update(w="?", tag="?")
    labels += [e.label for e in stream.flush()]
    assert labels == decoder.predict(X)[0]


def test_a_pickled_stream_of_tokens_resumes():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["marks"](), latency_cost=0.05).fit(X, y)
    for x, labels in zip(X, decoder.predict(X)):
        stream, got = decoder.stream(), []
        for item in ITEMS["tuples"](x):
            got += stream.push(item)
            stream = pickle.loads(pickle.dumps(stream))
        assert [e.label for e in got + stream.flush()] == labels


def test_feature_dicts_attributes_arrays_and_sparse_rows_can_be_pushed():
    X, y = token_data()
    dicts = [ITEMS["dicts"](x) for x in X]
    attributes = [[[f"w={w}", f"tag={t}"] for w, t in zip(*x.values())] for x in X]
    rows = DictFeatures().fit_transform(dicts)
    arrays = [x.toarray() for x in rows]
    for form in (dicts, attributes, arrays, list(rows)):
        decoder = OnlineDecoder(CRFTagger(l2=0.1), latency_cost=0.1).fit(form, y)
        labels = decoder.predict(form)
        for x, expected_labels in zip(form, labels):
            items = [x[t] for t in range(x.shape[0])] if hasattr(x, "shape") else x
            assert [e.label for e in decoder.iter(items)] == expected_labels


def test_labels_are_plain_python_objects():
    decoder = OnlineDecoder(CRFTagger(), lag=0).fit([[[1.0], [0.0]]], [[3, 5]])
    assert type(decoder.stream().push(np.array([1.0]))[0].label) is int
    assert type(decoder_of(np.eye(2), lag=0).stream().push([1.0, 0.0])[0].label) is str


# ------------------------------------------------------------------ bad input


def states_equal(a, b):
    a, b = a.__getstate__(), b.__getstate__()
    return all(pickle.dumps(a[name]) == pickle.dumps(b[name]) for name in a if name != "model")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.push([1.0, 2.0, 3.0]), ValueError, "Item 5 of the stream must be 4 numbers"),
        (lambda s: s.push([np.nan] * 4), ValueError, "X must be finite; row 5 of the stream"),
        (
            lambda s: s.push_many([[0.0] * 4, [0.0, np.inf, 0, 0]]),
            ValueError,
            "X must be finite; row 6 of the stream",
        ),
        (
            lambda s: s.push_many({"w": ["a", "b"], "tag": ["x", "y"]}),
            ValueError,
            r"push_many takes items one after another; got a dict of \['w', 'tag'\]",
        ),
        (
            lambda s: s.push_potentials([1e309, 0, 0, 0]),
            ValueError,
            "Label 0 of row 5 has the score inf",
        ),
        (lambda s: s.push("word"), ValueError, "must be 4 numbers, .*; got 'word'"),
        (lambda s: s.push_many("words"), ValueError, "push_many takes items one after another"),
        (lambda s: s.push_many(np.zeros(4)), ValueError, r"2-D matrix; got shape \(4,\)"),
        (lambda s: s.push_potentials([0.0] * 3), ValueError, "must have 4 scores, .* got 3"),
        (
            lambda s: s.push_potentials([0, np.nan, 0, 0]),
            ValueError,
            "Label 1 of row 5 has the score nan",
        ),
        (
            lambda s: s.push_potentials([[0.0] * 4, [0, 0, np.inf, 0]]),
            ValueError,
            "Label 2 of row 6 has the score inf",
        ),
        (lambda s: s.push_potentials(np.zeros((2, 3))), ValueError, r"4 columns, .*\(2, 3\)"),
        (lambda s: s.push_potentials([-np.inf] * 4), ValueError, "No label is allowed at row 5"),
        (
            lambda s: s.push_potentials([[0.0] * 4] * 3 + [[-np.inf] * 4]),
            ValueError,
            "No label is allowed at row 8",
        ),
    ],
)
@rules
def test_a_failed_push_changes_nothing_and_the_next_one_works(rule, call, error, message):
    emission, transition = chain(13)
    decoder = decoder_of(transition, **rule)
    stream, twin = decoder.stream(), decoder.stream()
    emissions = stream.push_many(emission[:5])
    twin.push_many(emission[:5])
    with pytest.raises(error, match=message):
        call(stream)
    assert states_equal(stream, twin)
    emissions += stream.push_many(emission[5:]) + stream.flush()
    assert told(emissions) == expected(emission, transition, rule)


@rules
def test_a_score_that_float32_cannot_hold_is_refused(rule):
    # 1e39 is infinite in float32; -1e39 would be forbidden; 3.4e38 overflows with the transition.
    emission, transition = (x.astype(np.float32) for x in chain(15))
    decoder = decoder_of(transition, **rule)
    for name in ("coef_", "transition_", "start_", "end_"):
        setattr(decoder.estimator_, name, getattr(decoder.estimator_, name).astype(np.float32))
    stream, twin = decoder.stream(), decoder.stream()
    emissions = stream.push_potentials(emission[:5])
    twin.push_potentials(emission[:5])
    for score in (1e39, -1e39, 3.4e38):
        for rows in ([score, 0, 0, 0], [[score, 0, 0, 0]], [[0] * 4, [score, 0, 0, 0]]):
            t = 5 + (np.shape(rows) == (2, 4))
            with pytest.raises(ValueError, match=rf"of row {t} has .* float32 do not overflow"):
                stream.push_potentials(rows)
    assert states_equal(stream, twin)
    emissions += stream.push_potentials(emission[5:]) + stream.flush()
    assert told(emissions) == expected(emission, transition, rule)


def test_bad_items_are_named_by_their_number_in_the_stream():
    X = [[{"a": 1.0, "b": 0.5}] * 4]
    decoder = OnlineDecoder(make_pipeline(DictFeatures(), CRFTagger()), lag=0).fit(
        X, [list("xyxy")]
    )
    stream = decoder.stream()
    stream.push_many(X[0] * 3)
    with pytest.raises(ValueError, match="row 13 of the stream"):
        stream.push_many([{"a": 1.0}, {"a": np.nan}])
    X, y = token_data()
    stream = OnlineDecoder(PIPELINES["window"]()).fit(X, y).stream()
    stream.push_many(ITEMS["dicts"](X[0]) * 3)
    assert len(stream._items) == 4  # the window begins before the items pushed now
    n = stream.n_seen
    with pytest.raises((ValueError, TypeError), match=f"(?i)(row|token) {n + 1} of the stream"):
        stream.push_many([{"w": "a", "tag": "b"}, {"w": "a", "tag": 3}])


class Frame:
    """What pandas, polars and others have in common."""

    def __init__(self, columns):
        self.columns, self.shape = list(columns), (len(columns["w"]), len(columns))

    def __iter__(self):
        return iter(self.columns)


def test_columns_are_refused_by_name():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["window"]()).fit(X, y)
    for frame in (X[0], Frame(X[0])):
        for name in ("push_many", "iter"):
            take = decoder.iter if name == "iter" else decoder.stream().push_many
            with pytest.raises(ValueError, match=f"{name} takes items one after another; got a"):
                take(frame)
    for name, items in (("iter", "words"), ("push_many", 3), ("iter", None)):
        take = decoder.iter if name == "iter" else decoder.stream().push_many
        with pytest.raises(ValueError, match=f"{name} takes items one after another, such as"):
            take(items)
    rows = DictFeatures().fit_transform([ITEMS["dicts"](x) for x in X])
    decoder = OnlineDecoder(CRFTagger()).fit(rows, y)
    with pytest.raises(ValueError, match="the items of one sequence; got 12 sequences"):
        decoder.iter(rows)


def test_a_dead_end_after_committed_labels_is_refused_row_by_row():
    # Label 0 must be followed by 0; it leaves at once, then 1 is forced: refused, state as before.
    transition = np.array([[0, -np.inf], [0, 0]])
    rules = ({"lag": 0}, {"strategy": "window", "max_latency": 0}, {"strategy": "step"})
    for rule, restart in itertools.product(rules, ("always", "conflict")):
        rule = {"max_latency": 0} | rule | {"restart": restart}
        if "lag" in rule:
            del rule["max_latency"]
        stream, twin = (decoder_of(transition, **rule).stream() for _ in range(2))
        for s in (stream, twin):
            assert s.push([3.0, 0.0])[0].label == "L0"
        for _ in range(2):
            with pytest.raises(ValueError, match="No label is allowed at row 1"):
                stream.push_potentials([-np.inf, 0.0])
            with pytest.raises(ValueError, match="No label is allowed at row 2"):
                stream.push_potentials([[0.0, 0.0], [-np.inf, 0.0]])
        assert states_equal(stream, twin)
        assert stream.push([0.0, 9.0])[0].label == "L0"


def test_a_measure_that_fails_leaves_the_stream_as_it_was():
    emission, transition = chain(14)
    broken = []

    def measure(p):
        if broken:
            raise RuntimeError("out of order")
        return 1 - p.max()

    rule = {"uncertainty": measure, "latency_cost": 0.05}
    stream = decoder_of(transition, **rule).stream()
    emissions = stream.push_many(emission[:5])
    before = pickle.dumps(stream.__getstate__()["beam"])
    broken.append(1)
    for push in (stream.push, stream.push_potentials):
        with pytest.raises(RuntimeError, match="out of order"):
            push(emission[5])
    assert pickle.dumps(stream.__getstate__()["beam"]) == before
    broken.clear()
    emissions += stream.push_many(emission[5:]) + stream.flush()
    assert told(emissions) == expected(emission, transition, {**rule})


@pytest.mark.thread_unsafe(reason="measures processor time")
@pytest.mark.parametrize(
    "rule", [{"strategy": "viterbi"}, {"uncertainty": lambda p: 1.0, "latency_cost": 1e-9}]
)
def test_the_cost_of_a_push_does_not_grow_with_the_rows_that_wait(rule):
    apart = np.where(np.eye(2, dtype=bool), 0, -np.inf)  # two paths that never meet
    stream, pair, least = decoder_of(apart, **rule).stream(), np.zeros((2, 2)), []
    for n_pending in (100, 100_000):
        stream.push_potentials(np.zeros((n_pending - stream.n_pending, 2)))
        times = []
        for _ in range(30):
            start = time.process_time_ns()
            stream.push_potentials(pair)
            times.append(time.process_time_ns() - start)
        least.append(min(times))
    # A copy of 100,000 pending rows takes a hundred times as long as a push.
    assert least[1] < 10 * least[0]


def test_a_token_that_features_cannot_read_is_refused_at_once():
    X, y = token_data()
    decoder = OnlineDecoder(PIPELINES["marks"](), latency_cost=0.05).fit(X, y)
    stream = decoder.stream()
    for item in (7, {"w": "no tag"}, None):
        with pytest.raises((ValueError, TypeError)):
            stream.push(item)
        assert stream.n_seen == 0
    got = stream.push_many(ITEMS["dicts"](X[0])[:3])
    with pytest.raises((ValueError, TypeError)):
        stream.push({"w": 3, "tag": "x"})
    got += stream.push_many(ITEMS["dicts"](X[0])[3:]) + stream.flush()
    assert [e.label for e in got] == decoder.predict(X)[0]


def test_a_flushed_stream_refuses_everything_but_reset():
    stream = decoder_of(np.eye(2)).stream()
    stream.push([0.0, 1.0])
    stream.flush()
    for call in (
        stream.flush,
        lambda: stream.push([0.0, 1.0]),
        lambda: stream.push_many([[0.0, 1.0]]),
        lambda: stream.push_potentials([0.0, 1.0]),
    ):
        with pytest.raises(ValueError, match=r"flushed: its sequence is over. Call reset\(\)"):
            call()
    assert "flushed" in repr(stream)
    stream.reset()
    assert stream.push([0.0, 1.0]) == []
    assert "1 items, 0 labels emitted, 1 pending" in repr(stream)


def test_a_flush_that_no_path_allows_changes_nothing():
    stream = decoder_of(np.eye(2), None, [-np.inf, -np.inf], strategy="closure").stream()
    stream.push([0.0, 1.0])
    for _ in range(2):
        with pytest.raises(ValueError, match="No label is allowed at the end, after row 0"):
            stream.flush()
    assert stream.n_pending == 1


def test_scores_cannot_follow_tokens_that_wait():
    X, y = token_data()
    stream = OnlineDecoder(PIPELINES["window"]()).fit(X, y).stream()
    stream.push(ITEMS["dicts"](X[0])[0])
    with pytest.raises(ValueError, match="push_potentials cannot follow items"):
        stream.push_potentials(np.zeros(9))
