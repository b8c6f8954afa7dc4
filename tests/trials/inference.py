"""Random damage of spans of segments; transitions of rows in chains and segmentations; spans and
single labels in chains.

python -m tests.trials.inference [N]
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.testing import assert_allclose

from sklseq.inference import SegmentSpans, segment_forward_backward
from tests.inference.test_once import CLASSES as LABELS
from tests.inference.test_once import check as check_once
from tests.inference.test_row_transitions import check_expectations, check_questions
from tests.inference.test_segment_rows import FORMS
from tests.inference.test_segment_rows import check_rows as check_segments
from tests.inference.test_span_sums import CLASSES
from tests.inference.test_span_sums import check as check_spans

VALUES = [-(2**63), -(10**8), -7, -1, 0, 1, 2, 3, 4, 5, 100, 2**31, 2**40, 2**63 - 1]


def random_spans(rng: np.random.Generator) -> SegmentSpans:
    lengths = rng.integers(0, 6, size=rng.integers(1, 4))
    counts = np.where(lengths > 0, rng.integers(0, 4, size=len(lengths)), 0)
    ends = np.repeat(lengths, counts)
    start = rng.integers(0, np.maximum(ends, 1))
    stop = rng.integers(start + 1, ends + 1)
    kind = rng.integers(0, 4, size=len(start))
    return SegmentSpans(lengths, np.concatenate([[0], np.cumsum(counts)]), kind, start, stop)


def is_right(spans: SegmentSpans) -> bool:
    """What the documentation of SegmentSpans asks for, potential by potential."""
    lengths, offsets, *columns = ([int(v) for v in column] for column in spans)
    n = len(columns[0])
    if any(not 0 <= length <= 2**30 for length in lengths) or any(
        len(column) != n for column in columns
    ):
        return False
    if len(offsets) != len(lengths) + 1 or offsets[0] != 0 or offsets[-1] != n:
        return False
    if any(b < a for a, b in zip(offsets, offsets[1:])):
        return False
    return all(
        kind in range(4) and 0 <= start < stop <= lengths[s]
        for s in range(len(lengths))
        for kind, start, stop in list(zip(*columns))[offsets[s] : offsets[s + 1]]
    )


def damage_once(seed: int) -> None:
    """Change one number of one array, or its length, and ask."""
    rng = np.random.default_rng(seed)
    spans = random_spans(rng)
    name = spans._fields[rng.integers(5)]
    column = getattr(spans, name).astype(np.int64)
    if len(column) and rng.random() < 0.8:
        column[rng.integers(len(column))] = VALUES[rng.integers(len(VALUES))]
    else:
        column = column[:-1] if rng.random() < 0.5 else np.append(column, 0)
    spans = spans._replace(**{name: column})
    scores = rng.normal(size=(len(spans.kind), 2))
    try:
        answer = segment_forward_backward(spans, scores, rng.normal(size=(2, 2)))
    except ValueError:
        assert not is_right(spans), (seed, spans)
        return
    assert is_right(spans), (seed, spans)
    assert (answer.potentials >= 0).all()
    assert (answer.potentials.sum(axis=1) < 1 + 1e-9).all()
    assert_allclose(answer.tokens.sum(axis=1), 1)


def check_rows(seed: int) -> None:
    """A chain whose transitions differ from row to row: by enumeration, and a longer one."""
    rng = np.random.default_rng(seed)
    dtype, form = rng.choice(["float64", "float32"]), rng.choice(["entries", "dense"])
    L = int(rng.integers(1, 10))
    most = {1: 9, 2: 8, 3: 6, 4: 5}.get(L, 3)
    check_questions(seed, L, rng.integers(0, most + 1, 3), dtype, form, rng.choice([0, 0.1]))
    L = int(rng.choice([*range(1, 10), 22, 40]))
    unit, highest = rng.choice([1e-3, 1, 10, 100, 800]), bool(rng.integers(2))
    check_expectations(seed, L, rng.integers(0, 30, 5), dtype, unit, highest)
    form, dense, forbid = rng.choice(list(FORMS)), bool(rng.integers(2)), rng.choice([0, 0.15])
    check_segments(seed, form, forbid, dtype, dense)


def main(n: int = 10_000) -> None:
    for seed in range(n):
        damage_once(seed)
    print(f"{n} damaged spans: each refused, or allowed and answered.")
    for seed in range(n // 100):
        rng = np.random.default_rng(seed)
        kind = {"scale": 10.0 ** rng.integers(-8, 4), "forbid": rng.choice([0.0, 0.3, 0.6])}
        check_spans(seed, list(CLASSES)[seed % len(CLASSES)], **kind, rtol=1e-9, atol=1e-12)
        check_once(seed, list(LABELS)[seed % len(LABELS)], forbid=kind["forbid"])
        check_rows(seed)
    print(f"Labels at most once in {n // 100} random chains: the best path that enumeration finds.")
    print(f"Transitions of rows in {n // 100} random chains: every question, by enumeration.")
    print(f"And in {n // 100} random segmentations: the same.")
    print(f"Every span of {n // 100} random chains has the probability that enumeration gives.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
