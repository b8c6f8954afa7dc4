"""What online decoding has given, no future changes: python -m tests.trials.online [N].

Random chains and segment models, each decoded under several futures; the confidence in labels
against enumeration of all paths; streams that go on from damaged checkpoints; and streams of which
labels are committed, against the definition; the last rows, which come with the end of the
sequence; pools of streams against single ones; long sequences in calls of any size, some of which
fail, as streams, in pools and in blocks.
``test_online_futures.py`` runs a part of it.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from copy import copy, deepcopy

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder, RowBlocks
from sklseq.data.sequences import Sequences
from sklseq.inference import (
    SegmentSpans,
    decode_online,
    forward_backward,
    segment_closure,
    segment_viterbi,
    viterbi,
)
from tests.reference import OnlineReference

STRATEGIES = ("step", "window", "closure", "chunk", "viterbi")


# ------------------------------------------------------------------ chains


def random_rule(rng) -> dict:
    rule = {
        "strategy": str(rng.choice(STRATEGIES)),
        "latency_cost": float(rng.choice([0, 0.003, 0.05, 0.5])),
        "uncertainty": str(rng.choice(["error", "entropy", "ambiguity"])),
        "belief": str(rng.choice(["viterbi", "forward"])),
        "restart": str(rng.choice(["always", "conflict"])),
        "window_size": int(rng.integers(1, 6)),
        "early": bool(rng.integers(2)),
    }
    bound = rng.choice(["max_latency", "lag", "none"], p=[0.3, 0.2, 0.5])
    return rule if bound == "none" else rule | {str(bound): int(rng.integers(0, 5))}


def random_chain(rng, n_labels: int):
    """(transition, start, end) and their type: dense, sparse or with forbidden steps."""
    L, scale = n_labels, float(rng.choice([0.3, 2, 30]))
    transition = scale * rng.normal(size=(L, L))
    form = rng.choice(["dense", "sparse", "forbidden"])
    if form == "sparse":
        transition[rng.random((L, L)) < 0.8] = 0
    if form == "forbidden":
        transition[rng.random((L, L)) < 0.4] = -np.inf
        transition[np.arange(L), (np.arange(L) + 1) % L] = 0  # there always is a way on
    ends = scale * rng.normal(size=(2, L)) * rng.integers(0, 2)
    dtype = np.float32 if rng.random() < 0.3 else np.float64
    return transition.astype(dtype), *ends.astype(dtype)


def random_rows(rng, n: int, n_labels: int, dtype) -> np.ndarray:
    return (float(rng.choice([0.3, 2, 30])) * rng.normal(size=(n, n_labels))).astype(dtype)


def decoder_of(transition, start, end, rule) -> OnlineDecoder:
    """On a tagger whose features are the label scores themselves."""
    tagger, L = CRFTagger(), len(transition)
    tagger.classes_, tagger.coef_ = np.arange(L), np.eye(L, dtype=transition.dtype)
    tagger.transition_, tagger.start_, tagger.end_ = transition, start, end
    tagger.n_features_in_, tagger.vectorizer_ = L, None
    decoder = OnlineDecoder(None, **rule)
    decoder.estimator_ = tagger
    return decoder


def is_allowed(labels, transition, start) -> bool:
    labels = np.asarray(labels, dtype=int)
    steps = transition[labels[:-1], labels[1:]]
    return bool((steps > -np.inf).all() and (len(labels) == 0 or start[labels[0]] > -np.inf))


def check_chain(rng) -> int:
    """One chain in several futures, as a stream and in batch; how many early labels there were."""
    L, n = int(rng.integers(1, 6)), int(rng.integers(1, 25))
    transition, start, end = random_chain(rng, L)
    rule, dtype = random_rule(rng), transition.dtype
    known = random_rows(rng, n, L, dtype)
    stream = decoder_of(transition, start, end, rule).stream()
    given = stream.push_potentials(known)
    assert is_allowed([e.label for e in given], transition, start)
    checkpoint, exact = stream.checkpoint(), _is_exact(rule)
    for _ in range(3):
        rows = np.concatenate([known, random_rows(rng, int(rng.integers(0, 12)), L, dtype)])
        stream = decoder_of(transition, start, end, rule).stream(checkpoint)
        everything = given + stream.push_potentials(rows[n:]) + stream.flush()
        assert [e.position for e in everything] == list(range(len(rows)))
        labels = [e.label for e in everything]
        assert is_allowed(labels, transition, start)
        paths = decode_online(rows, transition, start=start, end=end, **rule)
        assert paths.labels.tolist() == labels
        assert paths.latency.tolist() == [e.latency for e in everything]
        assert paths.confidence.tolist() == [e.confidence for e in everything]
        if exact:
            assert labels == viterbi(rows, transition, start=start, end=end)[0].tolist()
    return len(given)


def check_commits(rng) -> int:
    """A stream of which labels are committed gives those of the definition, at the same times."""
    L, n = int(rng.integers(1, 5)), int(rng.integers(1, 15))
    chain, rule = [x.astype(np.float64) for x in random_chain(rng, L)], random_rule(rng)
    rows, counts, found = random_rows(rng, n, L, np.float64), [], []
    stream = decoder_of(*chain, rule).stream()
    try:
        for row in rows:
            found += stream.push_potentials(row)
            k = int(rng.integers(0, stream.n_pending + 1)) if rng.random() < 0.3 else 0
            found += stream.commit(k)
            counts.append(k)
        found += stream.flush()
    except ValueError as error:  # no label may follow those committed
        if "No label is allowed" not in str(error):
            raise
    if "lag" in rule:
        rule |= {"strategy": "viterbi", "max_latency": rule.pop("lag")}
    reference = OnlineReference(*chain, **rule)
    for row, k in zip(rows, counts):
        reference.push(row)
        reference.commit(k)
    if len(found) == n:
        reference.finish()
    m = len(reference.labels)
    assert [e.label for e in found[:m]] == reference.labels, rule
    assert [e.position + e.latency for e in found[:m]] == reference.times, rule
    return m


def _is_exact(rule: dict) -> bool:
    waits = rule["strategy"] in ("closure", "viterbi")
    waits |= rule["strategy"] in ("step", "window") and rule["latency_cost"] == 0
    return waits and "lag" not in rule and "max_latency" not in rule


def posterior(rows, transition, start, end) -> np.ndarray:
    """Marginals by enumeration of all paths; ``end`` None: the sequence goes on."""
    n, L = rows.shape
    paths = np.array(list(itertools.product(range(L), repeat=n)))
    scores = start[paths[:, 0]] + rows[np.arange(n), paths].sum(axis=1)
    scores += transition[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    scores += 0 if end is None else end[paths[:, -1]]
    p = np.exp(scores - logsumexp(scores))
    return np.array([[p[paths[:, t] == j].sum() for j in range(L)] for t in range(n)])


def check_confidence(rng) -> int:
    """Confidence in the labels of a short chain is their posterior when they leave."""
    L, n = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    transition, start, end = (x.astype(np.float64) for x in random_chain(rng, L))
    rows, rule = random_rows(rng, n, L, np.float64), random_rule(rng)
    stream = decoder_of(transition, start, end, rule).stream()
    emissions = [(t, e) for t in range(n) for e in stream.push_potentials(rows[t])]
    emissions += [(n, e) for e in stream.flush()]
    for t, e in emissions:
        ended = end if t == n else None
        p = posterior(rows[: min(t + 1, n)], transition, start, ended)[e.position, e.label]
        # Sums of at most seven rows and scores up to 100: 1e-11 leaves room for their rounding.
        assert abs(e.confidence - p) < 1e-11, (e, p, rule)
    return n


# ------------------------------------------------------------------ the last rows

IOBES = ("O", "B", "I", "E", "S")


class Ahead(TransformerMixin, BaseEstimator):
    """Rows that are sums of a token, an array, and half of each of the ``after`` next ones."""

    def __init__(self, after: int):
        self.after = after
        self.receptive_field = (0, after)

    def fit(self, X, y=None):
        return self

    def transform(self, X) -> Sequences:
        parts = [self.rows(np.array(x)) for x in X]
        return Sequences(np.concatenate(parts), np.cumsum([0, *map(len, parts)]))

    def rows(self, x: np.ndarray) -> np.ndarray:
        later = (x[k:] for k in range(1, self.after + 1))
        return x + sum(np.pad(part, ((0, len(x) - len(part)), (0, 0))) for part in later) / 2


def iobes_chain(rng) -> tuple:
    """(transition, start, end) of labels of which some may not begin, follow or end."""
    inside = np.array([label in "BI" for label in IOBES])  # of a span that goes on
    goes_on = np.array([label in "IE" for label in IOBES])
    transition, start, end = (rng.normal(size=shape) for shape in ((5, 5), 5, 5))
    transition[inside[:, None] != goes_on] = start[goes_on] = end[inside] = -np.inf
    return transition, start, end


def best_after(given, rows, transition, start, end):
    """The best path that begins with these labels, or None if no end is allowed."""
    known = np.array(rows)
    for t, label in enumerate(given):
        known[t, np.arange(known.shape[1]) != label] = -np.inf
    try:
        return viterbi(known, transition, start=start, end=end)[0].tolist()
    except ValueError:
        return None


def check_last_rows(rng) -> int:
    """Labels that are pending when the last rows come know the end: stream, pool and batch."""
    transition, start, end = iobes_chain(rng)
    after, n = int(rng.integers(0, 4)), int(rng.integers(1, 15))
    rule = random_rule(rng) | {"decide": str(rng.choice(["map", "map", "marginal"]))}
    wait = next((name for name in ("max_latency", "lag") if name in rule), None)
    if wait:
        rule[wait] += after
    tokens = random_rows(rng, n, 5, np.float64)
    rows = Ahead(after).rows(tokens)
    decoder = decoder_of(transition, start, end, rule)
    decoder.estimator_ = make_pipeline(Ahead(after), decoder.estimator_)
    stream = decoder.stream()
    given = [e for token in tokens for e in stream.push(token)]
    shares, pending = stream.provisional_proba(), stream.provisional
    committed = copy(stream).commit()
    last = stream.flush()
    assert pending == last
    found = [tuple(e) for e in given + last]
    labels = [label for _, label, *_ in found]
    marginals = forward_backward(rows, transition, start=start, end=end).marginals
    assert np.allclose(shares, marginals[len(given) :], rtol=0, atol=1e-9)
    assert all(e.confidence == share[e.label] for e, share in zip(last, shares))
    assert [e.latency for e in last] == [n - 1 - e.position for e in last]
    assert wait is None or max(latency for *_, latency in found) <= rule[wait]
    columns = (column[0].tolist() for column in decoder.decode([list(tokens)]))
    assert [(e[1], e[0] + e[3], e[2]) for e in found] == list(zip(*columns))
    pool = decoder.pool()
    many = by_id(pool.push_many(["x"] * n, list(tokens)))["x"]
    assert many + by_id(pool.flush())["x"] == found
    if rule["decide"] == "map":
        best = best_after(labels[: len(given)], rows, transition, start, end)
        assert best is None or not last or end[labels[-1]] > -np.inf
        assert best is None or rule["restart"] == "conflict" or labels == best
        reference = _after_all_rows(rule, after, rows, (transition, start, end))
        twin = deepcopy(reference)
        reference.finish()
        assert reference.labels == labels, rule
        twin.commit(len(committed))
        assert twin.labels == labels[: len(given)] + [e.label for e in committed], rule
    return n


def _after_all_rows(rule: dict, after: int, rows, chain) -> OnlineReference:
    rule = {name: value for name, value in rule.items() if name != "decide"}
    if "lag" in rule:
        rule |= {"strategy": "viterbi", "max_latency": rule.pop("lag")}
    if "max_latency" in rule:
        rule["max_latency"] -= after
    reference = OnlineReference(*chain, **rule)
    for t, row in enumerate(rows):
        reference.push(row, held=t >= len(rows) - after)
    return reference


# ------------------------------------------------------------------ damaged checkpoints

VALUES = (None, "x", -5, -1, 0, 1, 2, 10**9, 10**30, 0.5, np.nan, True, False, [], {}, [1], b"x")


def damaged(rng, checkpoint: dict) -> tuple:
    """(where, a copy of the checkpoint in which one field is another one, or gone)."""
    checkpoint = {**checkpoint, "beam": dict(checkpoint["beam"]), "of": dict(checkpoint["of"])}
    part = checkpoint[str(rng.choice(["beam", "of"]))] if rng.random() < 0.8 else checkpoint
    name = list(part)[rng.integers(len(part))]
    value, way = part[name], rng.random()
    if way < 0.1:
        del part[name]
    elif way < 0.4 or not isinstance(value, np.ndarray):
        part[name] = VALUES[rng.integers(len(VALUES))]
    elif way < 0.5:
        part[name] = [value[:-1], value.astype(complex), value.T, value[None]][rng.integers(4)]
    else:
        part[name] = value = value.copy()
        if value.size:
            top = 2**31 - 1 if value.dtype.kind == "i" else 1e300
            drawn = [-1, 1, top, -top] + [np.nan, np.inf, -np.inf] * (top == 1e300)
            value.flat[rng.integers(value.size)] = drawn[rng.integers(len(drawn))]
    return name, checkpoint


def check_damage(rng) -> int:
    """A damaged checkpoint is refused by one ValueError, or a stream can go on from it."""
    L = int(rng.integers(1, 6))
    transition, start, end = random_chain(rng, L)
    decoder = decoder_of(transition, start, end, random_rule(rng))
    stream = decoder.stream()
    rows = random_rows(rng, int(rng.integers(1, 12)), L, transition.dtype)
    stream.push_potentials(rows)
    if rng.random() < 0.1:
        stream.flush()
    whole = stream.checkpoint()
    decoder.stream(whole)
    name, checkpoint = damaged(rng, whole)
    said = ""
    try:
        stream = decoder.stream(checkpoint)
        stream.push_potentials(np.concatenate([rows, rows]))
        stream.flush()
    except ValueError as error:
        said = str(error)
    known = ("checkpoint", "No label is allowed", "flushed")
    assert not said or any(s in said for s in known), (name, said)
    return 3 if "checkpoint" in said else 1


# ------------------------------------------------------------------ segments


def random_spans(rng, n: int, n_potentials: int, longest: int) -> tuple:
    # One of each first token, so that no two segmentations have equal scores.
    every, H = np.arange(n), n_potentials
    kind = np.append(np.ones(n, dtype=int), rng.integers(0, 4, H))
    first = np.append(every, rng.integers(0, n, H))
    stop = np.minimum(first + np.append(every * 0 + 1, rng.integers(1, longest + 1, H)), n)
    return kind, first, stop


def one(n: int, spans: tuple) -> SegmentSpans:
    return SegmentSpans(np.array([n]), np.array([0, len(spans[0])]), *spans)


def check_segments(rng) -> int:
    """Segments that were certain are in the best segmentation of every future."""
    n, L, longest = int(rng.integers(2, 14)), int(rng.integers(1, 4)), int(rng.integers(1, 6))
    scale, forbid = rng.choice([1, 20]), rng.choice([0, 0, 0.2])

    def scores(*shape):
        drawn = scale * rng.normal(size=shape)
        return np.where(rng.random(shape) < forbid, -np.inf, drawn)

    transition, start, end = scores(L, L), scores(L), scores(L)
    rule = {"start": start, "max_length": rng.integers(0, 4, L) if rng.random() < 0.5 else None}
    bound = None if rng.random() < 0.1 else longest
    spans = random_spans(rng, n, int(rng.integers(0, 50)), longest)
    psi, early = scores(len(spans[0]), L), 0
    try:
        found = segment_closure(one(n, spans), psi, transition, end=end, max_span=bound, **rule)
    except ValueError:  # no segmentation is allowed
        return 0
    segments, times = found[0][0], found[1][0]
    best = segment_viterbi(one(n, spans), psi, transition, end=end, **rule)[0][0]
    assert best.tolist() == segments.tolist()
    for t in range(n - 1):
        sure, known = segments[times <= t].tolist(), spans[2] <= t + 1
        for _ in range(3):
            m = int(rng.integers(t + 1, n + 6))
            new = random_spans(rng, m, int(rng.integers(0, 60)), m if bound is None else longest)
            later = new[2] > t + 1
            mixed = tuple(np.append(a[known], b[later]) for a, b in zip(spans, new))
            changed = np.append(psi[known], 20 * rng.normal(size=(later.sum(), L)), axis=0)
            try:
                other = segment_viterbi(
                    one(m, mixed), changed, transition, end=20 * rng.normal(size=L), **rule
                )[0][0].tolist()
            except ValueError:
                continue
            assert other[: len(sure)] == sure, (t, sure, other)
            early += len(sure)
    return early


# ------------------------------------------------------------------ many streams


def by_id(labels) -> dict:
    """(position, label, confidence, latency) of each stream of an answer of a pool."""
    found = {id: [] for id in labels.ids}
    for stream, *fields in zip(*(column.tolist() for column in labels[1:])):
        found[labels.ids[stream]].append(tuple(fields))
    return found


def check_pool(rng) -> int:
    """A pool gives what single streams give, and a call that fails changes none of its streams."""
    L, n_streams = int(rng.integers(1, 8)), int(rng.choice([1, 4, 30]))
    rule = random_rule(rng) | {"decide": str(rng.choice(["map", "map", "marginal"]))}
    chain = random_chain(rng, L)
    decoder = decoder_of(*chain, rule)
    pool, singles, given = decoder.pool(), {}, 0
    for step in range(12):
        ids = rng.integers(n_streams, size=rng.integers(1, 2 * n_streams + 1))
        rows = random_rows(rng, len(ids), L, chain[0].dtype)
        rows[rng.random(rows.shape) < 0.1 * rng.integers(2)] = -np.inf
        calls = {
            id: (singles.get(id) or decoder.stream(), "push_potentials", rows[ids == id])
            for id in dict.fromkeys(ids.tolist())
        }
        given += same_answers(calls, singles, pool.push_potentials, ids.tolist(), rows)
        some = [id for id in singles if rng.random() < 0.3]
        n = None if rng.random() < 0.5 else int(rng.integers(1, 4))
        if rng.random() < 0.3:
            least = {id: n and min(n, singles[id].n_pending) for id in some}
            calls = {id: (singles[id], "commit", least[id]) for id in some}
            given += same_answers(calls, singles, pool.commit, some, n)
        if rng.random() < 0.3:
            calls = {id: (singles[id], "flush") for id in some}
            given += same_answers(calls, singles, pool.flush, some)
            for id in set(singles) - set(pool.ids):
                del singles[id]
        if step % 4 == 3:
            for id in some:
                if id in singles:
                    singles[id] = decoder.stream(pool.checkpoint(id))
                    pool.restore(id, singles[id].checkpoint())
    return given


def same_answers(calls: dict, singles: dict, call, *arguments) -> int:
    """Labels that a call of a pool and calls of single streams give, or 0 if they fail alike."""
    copies = {id: copy(stream) for id, (stream, *_) in calls.items()}
    wanted, fails = {}, False
    for id, (_, name, *own) in calls.items():
        try:
            wanted[id] = getattr(copies[id], name)(*own)
        except ValueError:
            fails = True
    try:
        found = by_id(call(*arguments))
    except ValueError:
        assert fails
        return 0
    assert not fails
    assert found == wanted
    singles |= copies
    return sum(map(len, wanted.values()))


# ------------------------------------------------------------------ long waits


def check_long(rng) -> int:
    """Streams, pools and blocks of many rows, in calls of any size, give what one call gives."""
    L, n = int(rng.integers(2, 4)), int(10 ** rng.uniform(0.5, 3.5))
    chain = random_chain(rng, L) if rng.random() < 0.4 else chain_of_strangers(L)
    decoder = decoder_of(*chain, waiting_rule(rng, n))
    rows = random_rows(rng, n, L, chain[0].dtype)
    whole = decoder.decode([rows])
    cuts = np.cumsum((10 ** rng.uniform(0, 3.5, size=n + 1)).astype(int))
    parts = np.split(rows, cuts[cuts < n])
    blocks = decoder.decode([iter(parts), RowBlocks(rows)])
    for s, (column, other) in itertools.product((0, 1), zip(whole, blocks)):
        assert column[0].tolist() == other[s].tolist()
    expected = list(zip(*(column.tolist() for (column,) in whole)))
    for commits in (False, True):
        found = in_parts(rng, decoder, parts, commits)
        assert [e[0] for e in found] == list(range(n))
        assert commits or [(e[1], e[0] + e[3], e[2]) for e in found] == expected
    return n


def chain_of_strangers(n_labels: int):
    """No label follows another, so that no two paths meet and all labels wait."""
    transition = np.where(np.eye(n_labels), 0.0, -np.inf)
    return transition, np.zeros(n_labels), np.zeros(n_labels)


def waiting_rule(rng, n: int) -> dict:
    rule = random_rule(rng) | {"decide": str(rng.choice(["map", "map", "marginal"]))}
    wait = int(10 ** rng.uniform(0, 3))
    if "lag" in rule or "max_latency" in rule:
        # A commit looks at all pending rows again.
        rule["lag" if "lag" in rule else "max_latency"] = min(wait, 300_000 // n)
    return rule | {"window_size": wait, "latency_cost": float(rng.choice([0, 0, 1e-3, 0.05]))}


def in_parts(rng, decoder, parts: list, commits: bool) -> list:
    """Emissions of a stream, which are those of a pool; calls that fail change neither."""
    stream, pool, found, pooled = decoder.stream(), decoder.pool(), [], []
    for part in parts:
        bad = part.copy()
        bad[rng.integers(len(bad))] = -np.inf
        for call in (stream.push_potentials, lambda x: pool.push_potentials(["s"] * len(x), x)):
            refuses(call, bad)
        found += stream.push_potentials(part)
        pooled += by_id(pool.push_potentials(["s"] * len(part), part))["s"]
        if commits:
            k = int(rng.integers(0, stream.n_pending + 1))
            found += stream.commit(k)
            pooled += by_id(pool.commit(["s"], k))["s"]
        if rng.random() < 0.3:
            stream = pickle.loads(pickle.dumps(stream)) if rng.random() < 0.5 else copy(stream)
        if rng.random() < 0.2:
            pending = stream.provisional
            assert by_id(pool.provisional())["s"] == pending
            checkpoint = pool.checkpoint("s")
            pool.restore("s", stream.checkpoint())
            stream = decoder.stream(checkpoint)
            assert stream.provisional == pending
    found += stream.flush()
    assert found == pooled + by_id(pool.flush())["s"]
    return found


def refuses(call, rows) -> None:
    said = ""
    try:
        call(rows)
    except ValueError as error:
        said = str(error)
    assert "No label is allowed" in said


CHECKS = {
    "labels of chains": check_chain,
    "confidence": check_confidence,
    "damaged checkpoints": check_damage,
    "commits": check_commits,
    "last rows": check_last_rows,
    "segments": check_segments,
    "pools": check_pool,
    "long waits": check_long,
}


def main(n: int = 10_000) -> int:
    for name, check in CHECKS.items():
        found = sum(check(np.random.default_rng(seed)) for seed in range(n))
        print(f"{name}: {n:,} models, {found:,} answers given before the end or checked, all kept")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
