"""Probabilities of spans against sums over all label paths."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq.data.span_labels import find_spans
from sklseq.data.span_rules import find_by_rules, span_rules
from sklseq.data.strict_spans import STRICT_SCHEMES, find_strict_spans
from sklseq.inference import RowTransitions
from sklseq.inference.chain import sparse_transitions
from sklseq.inference.chain.span_sums import span_probabilities
from tests.oracles import enumerate_chain

CLASSES = {
    None: ["B-x", "I-x", "I-y", "O"],
    "iob1": ["B-x", "B-y", "I-x", "I-y", "O"],
    "iob2": ["B-x", "B-y", "I-x", "I-y", "O"],
    "ioe1": ["E-x", "E-y", "I-x", "I-y", "O"],
    "ioe2": ["E-x", "E-y", "I-x", "I-y", "O"],
    "iobes": ["B-x", "E-x", "I-x", "O", "S-y"],
    "bilou": ["B-x", "L-x", "I-x", "U-x", "I-y"],
    "runs": ["O", "city", "number"],
}


def read(labels, offsets, scheme):
    """Spans of label sequences one after another, by the functions that the metrics use."""
    if scheme == "runs":
        is_first = np.append(True, labels[1:] != labels[:-1])
        is_first[offsets[:-1][np.diff(offsets) > 0]] = True
        cuts = [*np.flatnonzero(is_first[: len(labels)]), len(labels)]
        spans = [(a, b, str(labels[a])) for a, b in zip(cuts, cuts[1:])]
        return [span for span in spans if span[2] != "O"]
    if scheme in STRICT_SCHEMES:
        found = find_strict_spans(labels, offsets, scheme)
    else:
        found = find_spans(labels, offsets)
    return [(a, b, found.types[k]) for a, b, k in zip(found.start, found.stop, found.type)]


@pytest.mark.parametrize("scheme", CLASSES)
def test_matrices_read_labels_as_the_metrics_do(scheme):
    rng, classes = np.random.default_rng(0), np.array(CLASSES[scheme])
    rules = span_rules(classes, scheme)
    lengths = rng.integers(0, 6, size=300)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    codes = rng.integers(0, len(classes), size=offsets[-1])
    start, stop, type_ = find_by_rules(codes, offsets, rules)
    expected = [
        (a + first, b + first, x)
        for first, last in zip(offsets[:-1], offsets[1:])
        for a, b, x in read(classes[codes[first:last]], np.array([0, last - first]), scheme)
    ]
    assert list(zip(start, stop, [rules.types[k] for k in type_])) == expected


def check(
    seed, scheme, lengths=(3, 0, 1, 4), scale=2.0, forbid=0.3, dtype=np.float64, of_rows=False,
    **close,
):  # fmt: skip
    """Every possible span of a few sequences, by enumeration; ``of_rows``: transitions of rows."""
    rng, classes = np.random.default_rng(seed), np.array(CLASSES[scheme])
    rules, L = span_rules(classes, scheme), len(classes)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    emission = scale * rng.normal(size=(offsets[-1], L)).astype(dtype)
    transition, start, end = (
        np.where(rng.random(size) < forbid, -np.inf, scale * rng.normal(size=size)).astype(dtype)
        for size in ((offsets[-1], L, L) if of_rows else (L, L), L, L)
    )
    transition[..., np.arange(L), np.arange(L)] = 0
    start[0] = end[0] = 0
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        T = b - a
        paths, scores, log_z, *_ = enumerate_chain(
            emission[a:b].astype(np.float64),
            transition[a:b] if of_rows else transition,
            start.astype(np.float64),
            end.astype(np.float64),
        )
        expected = dict.fromkeys(
            ((i, j, x) for i in range(T) for j in range(i + 1, T + 1) for x in rules.types), 0.0
        )
        p = np.exp(scores - log_z)
        for i, j, x in read(classes[paths.ravel()], np.arange(len(paths) + 1) * T, scheme):
            expected[i % T, j - i + i % T, x] += p[i // T]
        codes = [rules.types.index(x) for *_, x in expected]
        where = np.array([span[:2] for span in expected], dtype=int).reshape(-1, 2) + a
        ours = span_probabilities(
            (emission, transition, start, end, offsets), (*where.T, np.array(codes, int)), rules
        )
        assert_allclose(ours, list(expected.values()), err_msg=f"sequence {s}", **close)


@pytest.mark.parametrize("scheme", CLASSES)
@pytest.mark.parametrize("kind", [{}, {"forbid": 0.0}, {"scale": 1e3}, {"scale": 1e-8}], ids=str)
def test_every_span_equals_enumeration(scheme, kind):
    check(0, scheme, **kind, rtol=1e-10, atol=1e-12)
    check(1, scheme, **kind, of_rows=True, rtol=1e-10, atol=1e-12)


MANY = [scheme for scheme in CLASSES if len(CLASSES[scheme]) >= sparse_transitions.LEAST_LABELS]


@pytest.fixture
def lists(monkeypatch):
    """Force lists of pairs, whatever the share; return a list of the factors that were listed."""
    made, of = [], sparse_transitions.ListedFactors.of
    monkeypatch.setattr(sparse_transitions, "LIST_ROWS", 0)
    limits = dict.fromkeys(sparse_transitions.LIMITS, (1.1, 0.0))
    monkeypatch.setattr(sparse_transitions, "LIMITS", limits)

    def keep(*args):
        made.append(of(*args))
        return made[-1]

    monkeypatch.setattr(sparse_transitions.ListedFactors, "of", keep)
    return made


@pytest.mark.parametrize("scheme", MANY)
@pytest.mark.parametrize("kind", [{}, {"forbid": 0.9}, {"scale": 1e3}, {"scale": 1e-8}], ids=str)
def test_lists_of_pairs_equal_enumeration(scheme, kind, lists):
    check(2, scheme, **kind, rtol=1e-10, atol=1e-12)
    assert lists


@pytest.mark.parametrize("scheme", MANY)
def test_lists_of_pairs_with_scores_of_single_rows(scheme, lists, monkeypatch):
    rng, classes, n = np.random.default_rng(4), np.array(CLASSES[scheme]), 40
    rules, L = span_rules(classes, scheme), len(classes)
    emission, ends = rng.normal(size=(n, L)), rng.normal(size=(2, L))
    shared = np.where(rng.random((L, L)) < 0.5, rng.normal(size=(L, L)), 0.0)
    codes, offsets = rng.integers(0, L, size=n), np.array([0, n])
    spans = find_by_rules(codes, offsets, rules)
    rows = RowTransitions(shared, np.arange(n + 1), codes, codes[::-1], rng.normal(size=n))
    full = np.repeat(shared[None], n, axis=0)
    full[np.arange(n), codes, codes[::-1]] = rows.score
    listed = span_probabilities((emission, rows, *ends, offsets), spans, rules)
    assert lists
    monkeypatch.undo()
    dense = span_probabilities((emission, full, *ends, offsets), spans, rules)
    assert_allclose(listed, dense, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("scheme", CLASSES)
def test_float32(scheme):
    check(7, scheme, dtype=np.float32, rtol=1e-4, atol=1e-6)


def test_labels_decide_how_they_are_read():
    assert span_rules(np.array(["B-x", "I-x", "O"])).types == ["x"]
    assert span_rules(np.array(["O", "city"])).types == ["O", "city"]
    assert span_rules(np.array([0, 1])).types == [0, 1]
    with pytest.raises(ValueError, match="has the label 'city', which is none of scheme='iob2'"):
        span_rules(np.array(["O", "city"]), "iob2")
    with pytest.raises(ValueError, match=r"scheme must be None or one of 'iob1', .*got 'IOB2'"):
        span_rules(np.array(["O", "city"]), "IOB2")


@pytest.mark.parametrize("scheme", ["iob1", "ioe1", "runs"])
@pytest.mark.parametrize("of_rows", [False, True])
def test_spans_in_any_order_of_many_sequences(scheme, of_rows):
    """Several blocks, with sequences done in the log domain among the others."""
    rng, classes = np.random.default_rng(3), np.array(CLASSES[scheme])
    rules, L = span_rules(classes, scheme), len(classes)
    lengths = rng.integers(0, 12, size=900)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = offsets[-1]
    scale = np.repeat(np.where(rng.random(len(lengths)) < 0.1, 1e3, 1.0), lengths)[:, None]
    emission, ends = scale * rng.normal(size=(n, L)), rng.normal(size=(2, L))
    transition = rng.normal(size=(n, L, L) if of_rows else (L, L))
    codes = rng.integers(0, L, size=n)
    some = rng.permutation(len(find_by_rules(codes, offsets, rules)[0]))
    spans = start, stop, type_ = [x[some] for x in find_by_rules(codes, offsets, rules)]
    together = span_probabilities((emission, transition, *ends, offsets), spans, rules)
    for k in range(0, len(start), 50):
        s = np.searchsorted(offsets, start[k], side="right") - 1
        at, own = slice(offsets[s], offsets[s + 1]), transition
        if of_rows:
            own = transition[at]
        alone = span_probabilities(
            (emission[at], own, *ends, np.array([0, lengths[s]])),
            (start[k : k + 1] - at.start, stop[k : k + 1] - at.start, type_[k : k + 1]),
            rules,
        )
        assert_allclose(together[k], alone[0], rtol=1e-10, atol=1e-14)
    assert ((together > 1e-3) & (together < 1 - 1e-3)).mean() > 0.1


def test_no_rows_and_no_spans():
    rules, none = span_rules(np.array(["O", "x"])), np.zeros(0, dtype=int)
    for n, offsets in ((0, [0]), (0, [0, 0]), (2, [0, 0, 2])):
        potentials = np.zeros((n, 2)), np.zeros((2, 2)), None, None, np.array(offsets)
        assert span_probabilities(potentials, (none, none, none), rules).shape == (0,)
