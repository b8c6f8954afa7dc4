"""What is asked about segmentations, of ``sklseq.inference`` and of a segmenter of given weights.

The features of a potential are its number among all potentials: weights are scores.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import OnlineDecoder, SegmentPotentials, SemiCRFSegmenter
from sklseq.data.segment_labels import segments_to_labels
from sklseq.inference import (
    segment_closure,
    segment_forward_backward,
    segment_nbest,
    segment_sample,
    segment_viterbi,
)
from tests.segment_reference import every_segment

from .questions import law
from .reference import Segmentation
from .structures import SegmentCase

__all__ = ["QUESTIONS"]

N_SAMPLES = 100


def refused(case: SegmentCase, ask) -> tuple:
    """That a question about sequences without a segmentation is refused, by name."""
    try:
        ask()
    except ValueError as error:
        return "refusal", "has no allowed segmentation" in str(error), True, 0
    return "refusal", False, True, 0


def sums(case: SegmentCase) -> Iterator[tuple]:
    args, rest = case.arguments
    if case.impossible:
        yield refused(case, lambda: segment_forward_backward(*args, **rest))
        return
    weights = case.rng.random(len(case.sequences)) + 0.5
    answer, slow = segment_forward_backward(*args, **rest, weights=weights), case.sequences
    tolerance, n = case.slack, int(case.spans.lengths.sum()) + 1
    yield "log Z", answer.log_z, [x.log_z for x in slow], tolerance
    yield "potentials", answer.potentials, np.concatenate([x.potentials for x in slow]), tolerance
    yield "tokens", answer.tokens, np.concatenate([x.tokens for x in slow]), tolerance
    moves = sum(w * x.moves for w, x in zip(weights, slow))
    yield "transitions", answer.transition, moves, case.slack_of(n)
    ends = sum(w * np.array(x.ends) for w, x in zip(weights, slow))
    yield "first and last", [answer.start, answer.end], ends, case.slack_of(n)


def best(case: SegmentCase) -> Iterator[tuple]:
    args, rest = case.arguments
    if case.impossible:
        yield refused(case, lambda: segment_viterbi(*args, **rest))
        return
    found, scores = segment_viterbi(*args, **rest)
    yield from _best(case, "viterbi", found)
    yield "scores", scores, [x.score(x.best) for x in case.sequences], case.slack


def _best(case: SegmentCase, name: str, found) -> Iterator[tuple]:
    for slow, rows in zip(case.sequences, found):
        yield f"score of the segments, {name}", slow.score(rows), slow.score(slow.best), case.slack
        if case.recipe.exact:
            wanted = np.array(slow.best, dtype=int).reshape(-1, 3)
            yield f"segments, {name}", np.reshape(rows, (-1, 3)), wanted, 0


def n_best(case: SegmentCase) -> Iterator[tuple]:
    args, rest = case.arguments
    n = int(case.rng.choice([1, 3, 10]))
    if case.impossible:
        yield refused(case, lambda: segment_nbest(*args, n, **rest))
        return
    for slow, (found, scores) in zip(case.sequences, segment_nbest(*args, n, **rest)):
        yield from _n_best(case, "segment_nbest", n, slow, found, scores, 0)


def _n_best(case, name: str, n: int, slow: Segmentation, found, scores, log_z) -> Iterator[tuple]:
    yield f"scores, {name}", scores, slow.best_scores(n) - log_z, 2 * case.slack
    of_segments = [slow.score(rows) - log_z for rows in found]
    yield f"scores of the segments, {name}", of_segments, scores, 2 * case.slack
    different = {str(np.asarray(rows).tolist()) for rows in found}
    yield f"different segmentations, {name}", len(different), len(found), 0


def law_of_samples(case: SegmentCase) -> Iterator[tuple]:
    args, rest = case.arguments
    if case.impossible:
        yield refused(case, lambda: segment_sample(*args, **rest))
        return
    drawn = segment_sample(*args, N_SAMPLES, **rest, random_state=case.seed)
    for slow, samples in zip(case.sequences, drawn):
        yield from _law(slow, "segment_sample", samples)


def _law(slow: Segmentation, name: str, samples) -> Iterator[tuple]:
    is_segment = np.zeros((len(samples), *slow.theta.shape), dtype=bool)
    for k, rows in enumerate(samples):
        for start, stop, label in rows:
            is_segment[k, start, stop, label] = True
    yield from law(f"segments, {name}", is_segment, slow.segments)


def closure(case: SegmentCase) -> Iterator[tuple]:
    """Online: the best segments, in time."""
    args, rest = case.arguments
    if case.impossible:
        yield refused(case, lambda: segment_closure(*args, **rest))
        return
    found, times = segment_closure(*args, **rest)
    yield from _best(case, "closure", found)
    for s, certain in enumerate(times):
        yield f"order of times, sequence {s}", np.sort(certain), certain, 0


def futures(case: SegmentCase) -> Iterator[tuple]:
    """That segments which have left are best whatever comes."""
    if case.impossible:
        return
    args, rest = case.arguments
    longest = int((case.spans.stop - case.spans.start).max(initial=1))
    max_span = (None, longest, longest + 1)[int(case.rng.integers(3))]
    for s, (rows, certain) in enumerate(zip(*segment_closure(*args, **rest, max_span=max_span))):
        yield from _causal(case, s, rows, certain, max_span)


def _causal(case: SegmentCase, s: int, rows, certain, max_span) -> Iterator[tuple]:
    # Other potentials stop after step ``now`` + 1, and the sequence ends earlier or later.
    for now in range(int(certain.min(initial=case.spans.lengths[s])), case.spans.lengths[s] - 1):
        other = _other_future(case, s, now, max_span)
        if other.log_z == -np.inf:
            continue
        for start, stop, label in rows[certain <= now]:
            name = f"segment ({start}, {stop}, {label}) known at {now} of sequence {s}"
            with_it = _best_with(other, start, stop, label)
            yield f"another future keeps {name}", with_it, other.score(other.best), case.slack


def _other_future(case: SegmentCase, s: int, now: int, max_span: int | None) -> Segmentation:
    at = np.arange(*case.spans.offsets[s : s + 2])
    at = at[case.spans.stop[at] <= now + 1]
    n = int(case.rng.integers(now + 1, 2 * int(case.spans.lengths[s])))
    H = int(case.rng.integers(2 * n)) if n > now + 1 else 0
    stop = case.rng.integers(now + 2, max(n, now + 2) + 1, H)
    first = np.zeros(H, int) if max_span is None else np.maximum(0, stop - max_span)
    fresh = (case.rng.integers(0, 4, H), case.rng.integers(first, stop), stop)
    kept = (column[at] for column in (case.spans.kind, case.spans.start, case.spans.stop))
    columns = [np.concatenate(pair).astype(np.int64) for pair in zip(kept, fresh)]
    # What is to come may outweigh all that is known, or nothing refutes a segment given too early.
    size = 10.0 ** case.rng.integers(0, 4)
    drawn = size * case.recipe.draw(case.rng, H, case.n_labels)
    return case.sequence(n, columns, np.concatenate([case.scores[at], drawn]))


def _best_with(slow: Segmentation, start: int, stop: int, label: int):
    # Score of the best segmentation that has this segment.
    other = Segmentation.__new__(Segmentation)
    other.__dict__.update(n=slow.n, L=slow.L, transition=slow.transition, first=slow.first)
    other.__dict__.update(last=slow.last, theta=slow.theta.copy())
    for s, e in slow.parts():
        if s < stop and e > start and (s, e) != (start, stop):
            other.theta[s, e] = -np.inf
    kept = other.theta[start, stop, label]
    other.theta[start, stop] = -np.inf
    other.theta[start, stop, label] = kept
    return other.score(other.best)


# ---------------------------------------------------------------------- estimators


def applies(case: SegmentCase) -> bool:
    """Whether a segmenter with finite weights has these scores and longest segments."""
    same = case.max_length is None or np.ndim(case.max_length) == 0
    return same and not (case.impossible or case.recipe.holes)


def segmenter(case: SegmentCase) -> tuple[SemiCRFSegmenter, SegmentPotentials]:
    """A segmenter with the scores of the case for weights, and its X; no label is outside."""
    H, L = case.scores.shape
    made, zeros = SemiCRFSegmenter(outside=None), np.zeros(L)
    fitted = {
        "classes_": np.array([f"{j:02d}" for j in range(L)]),
        "coef_": case.scores,
        "transition_": case.transition,
        "start_": zeros if case.start is None else case.start,
        "end_": zeros if case.end is None else case.end,
        "max_segment_length_": case.max_length or 0,
        "max_span_": int((case.spans.stop - case.spans.start).max(initial=1)),
        "n_features_in_": H,
        "vectorizer_": None,
    }
    for name, value in fitted.items():
        setattr(made, name, value)
    return made, SegmentPotentials(*case.spans, sparse.eye(H, format="csr"))


def coded(segments) -> list:
    return [(start, stop, int(label)) for start, stop, label in segments]


def predicted(case: SegmentCase) -> Iterator[tuple]:
    """``predict``, ``predict_nbest``, ``decode_closure``."""
    if not applies(case):
        return
    model, X = segmenter(case)
    yield from _best(case, "predict", [coded(rows) for rows in model.predict(X)])
    found, times = zip(*model.decode_closure(X))
    yield from _best(case, "decode_closure", map(coded, found))
    args, rest = case.arguments
    known = segment_closure(*args, **rest, max_span=model.max_span_)[1]
    yield "times, decode_closure", np.concatenate(times), np.concatenate(known), 0
    decoder = OnlineDecoder(model, strategy="closure")
    decoder.estimator_ = model
    decoding = decoder.decode(X)
    for s, rows in enumerate(found):
        waited = np.repeat(times[s], [stop - start for start, stop, _ in rows])
        labels = segments_to_labels(rows, int(case.spans.lengths[s]))
        yield "labels, OnlineDecoder", decoding.labels[s], labels, 0
        yield "times, OnlineDecoder", decoding.times[s], waited, 0
    if case.max_length is not None:
        every = model.predict(every_segment(X, case.max_length))
        yield from _best(case, "every segment", [coded(rows) for rows in every])
    for slow, (found, scores) in zip(case.sequences, model.predict_nbest(X, 3)):
        found = [coded(rows) for rows in found]
        yield from _n_best(case, "predict_nbest", 3, slow, found, scores, slow.log_z)


def probabilities(case: SegmentCase) -> Iterator[tuple]:
    """``predict_proba``, ``predict_segment_proba``, ``predict_log_proba_sequence``, ``sample``."""
    if not applies(case):
        return
    model, X = segmenter(case)
    names, slow = model.classes_, case.sequences
    for one, proba in zip(slow, model.predict_proba(X)):
        yield "predict_proba", proba, one.tokens, case.slack
    asked = [[(s, e, case.rng.integers(one.L)) for s, e in one.parts()] for one in slow]
    written = [[(s, e, names[y]) for s, e, y in rows] for rows in asked]
    for one, rows, proba in zip(slow, asked, model.predict_segment_proba(X, written)):
        wanted = np.array([one.segments[row] for row in rows], np.longdouble)
        yield "predict_segment_proba", proba, wanted, case.slack
    for one, samples in zip(slow, model.sample(X, N_SAMPLES, random_state=case.seed)):
        yield from _law(one, "sample", [coded(rows) for rows in samples])
    for what, paths in (("best", [one.best for one in slow]), ("any", _anything(case))):
        y = [[(s, e, names[k]) for s, e, k in rows] for rows in paths]
        wanted = [one.score(rows) - one.log_z for one, rows in zip(slow, paths)]
        got = model.predict_log_proba_sequence(X, y)
        yield f"log-probability of {what} segments", got, wanted, 2 * case.slack


def _anything(case: SegmentCase) -> list:
    # One random segmentation a sequence, allowed or not.
    paths = []
    for slow in case.sequences:
        inner = np.flatnonzero(case.rng.random(max(slow.n - 1, 0)) < 0.5) + 1
        cuts = [0, *inner.tolist(), slow.n] if slow.n else [0]
        parts = zip(cuts[:-1], cuts[1:])
        paths.append([(s, e, int(case.rng.integers(slow.L))) for s, e in parts])
    return paths


def objective(case: SegmentCase) -> Iterator[tuple]:
    """``objective_`` of few iterations is what the docstring says, of the fitted weights."""
    if not applies(case) or not len(case.scores) or not case.spans.lengths.sum():
        return
    _, X = segmenter(case)
    y = [slow.best for slow in case.sequences]
    names = np.array([f"{j:02d}" for j in range(case.n_labels)])
    written = [[(s, e, names[k]) for s, e, k in rows] for rows in y]
    weights = case.rng.random(len(y)) + 0.5
    for loss in ("log", "hinge"):
        model = SemiCRFSegmenter(
            loss=loss, max_iter=2, tol=1e-9, l2=0.3, outside=None,
            max_segment_length=case.max_length,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "y holds one label only")
            model.fit(X, written, sample_weight=weights)
        wanted = _objective(case, model, names, y, weights)
        yield f"objective_, {loss}", model.objective_, wanted, 1e-9 * (1 + abs(float(wanted)))


def _objective(case: SegmentCase, model, names: np.ndarray, y: list, weights: np.ndarray):
    seen = np.searchsorted(model.classes_, names) if len(names) else names
    total = np.longdouble(0)
    for s, (rows, weight) in enumerate(zip(y, weights)):
        slow = _fitted(case, s, model)
        rows = [(i, j, int(seen[k])) for i, j, k in rows]
        true = slow.score(rows)
        if model.loss == "log":
            total += weight * (slow.log_z - true)
        else:
            slow.theta += _errors(slow, rows)
            total += weight * (slow.score(slow.best) - true)
    for part in (model.coef_, model.transition_, model.start_, model.end_):
        total += model.l2 * np.square(part.astype(np.longdouble)).sum()
    return total


def _fitted(case: SegmentCase, s: int, model) -> Segmentation:
    # Sequence s with the weights of a fitted segmenter.
    columns, at = case.own(s)
    limits = np.full(len(model.classes_), model.max_segment_length_)
    ends = (model.transition_, model.start_, model.end_, limits)
    return Segmentation(int(case.spans.lengths[s]), columns, model.coef_[at], *ends)


def _errors(slow: Segmentation, rows: list) -> np.ndarray:
    # Of each segment, the steps whose IOB2 label is not that of ``rows``.
    truth = {t: (t == i, k) for i, j, k in rows for t in range(i, j)}
    errors = np.zeros(slow.theta.shape)
    for s, e in slow.parts():
        for y in range(slow.L):
            errors[s, e, y] = sum(truth[t] != (t == s, y) for t in range(s, e))
    return errors


QUESTIONS = {
    "segment_forward_backward": sums,
    "segment_viterbi": best,
    "segment_nbest": n_best,
    "segment_sample": law_of_samples,
    "segment_closure": closure,
    "segment_closure, other futures": futures,
    "SemiCRFSegmenter.predict": predicted,
    "probabilities of SemiCRFSegmenter": probabilities,
    "objective_ of SemiCRFSegmenter": objective,
}
