"""Temperature of a segmenter without further fits: each sequence is left out approximately."""

from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.ragged import offsets_of, ranges
from sklseq.estimators.semicrf.segment_program import asked_cells, segment_sums, with_queries
from sklseq.estimators.semicrf.temperature import HeldOut, best_temperature
from sklseq.inference.segment.segmentations import (
    SegmentPlan,
    SegmentSpans,
    SegmentTransitions,
    best_segments,
)
from sklseq.objectives.scores.score_map import ScoreMap
from sklseq.objectives.segment._left_out import add_changes
from sklseq.objectives.segment.segment_hinge import token_loss
from sklseq.objectives.segment.segment_starts import transitions_of_starts

# Factor κ of the diagonal of the Hessian. Features of a token repeat each other, so that the other
# sequences hold their weights more firmly than the diagonal says. (Of 1, 1.5, 2 and 3, the last has
# the lowest expected error for names, by up to 0.08, and on references the lowest or one 0.01 above
# it; for words and addresses 1.5 was better by up to 0.03.)
REDUNDANCY = 3.0
# Accuracy of the logarithm of the temperature.
COARSE = 0.2
# Sequences with about as many true segments are left out; more hardly change the temperature.
ENOUGH = 1000


class Distinct(NamedTuple):
    """Training sequences without those that repeat another one.

    Attributes
    ----------
    sequence : ndarray of int, rising
        Number of the first of equal sequences.
    weights : ndarray
        Sum of the weights of equal sequences.
    """

    sequence: np.ndarray
    weights: np.ndarray


def temperature_of_left_out(segmenter: Any, problem: Any, w: np.ndarray) -> float:
    """Return the best temperature of models without one sequence, for the sequence left out.

    If f is the objective and ℓ_s the weighted loss of sequence s, a Newton step from the minimum w
    of f towards that of f - ℓ_s is

        w_s = w + D_s⁻¹ ∇ℓ_s(w),    D_s = 2 · l2 + κ · Σ_{r≠s} h_r

    with diagonal matrices h_r in place of the Hessians of ℓ_r: the larger one of the variances of
    features if the cells c of r were independent, Σ_c x_c² μ_c (1 - μ_c), and the squares of
    ∇ℓ_r, whose expectation is their true variance. Weights of features that only s has become 0.
    Only the scores of cells of s are computed from w_s; transitions stay as they are. Equal
    sequences are left out together, so that two copies are one sequence of twice the weight. Takes
    as long as four to eight evaluations of f, and about four more for segmentations and the search.
    """
    distinct = distinct_sequences(problem)
    psi = _left_out_scores(segmenter, problem, w, distinct)
    chosen = Distinct(*(column[_regular(problem, distinct.sequence)] for column in distinct))
    chain = _chain(problem, w, problem.source.potentials[chosen.sequence])
    return best_temperature([_held_out(segmenter, problem, psi, chain, chosen)], COARSE)


def distinct_sequences(problem: Any) -> Distinct:
    """Return the sequences without copies; equal ones have equal features and true segments."""
    data, source, first = problem.data, problem.source, {}
    plan, rows = data.plan, data.rows.rows
    cuts = np.searchsorted(source.segments.sequence, np.arange(plan.n_sequences + 1))
    true = [*source.segments[1:3], source.codes]
    starts = [] if data.starts is None else [(data.starts.rows, plan.steps)]
    group = np.empty(plan.n_sequences, dtype=int)
    for s in range(plan.n_sequences):
        cells = slice(*plan.cells[[s, s + 1]])
        parts = [column[cells] for column in (plan.kind, plan.start, plan.stop)]
        parts += [column[cuts[s] : cuts[s + 1]] for column in true]
        for matrix, bounds in [(rows, plan.cells), *starts]:
            a, b = bounds[[s, s + 1]]
            ends = matrix.indptr[a : b + 1]
            entries = slice(ends[0], ends[-1])
            parts += [ends - ends[0], matrix.indices[entries], matrix.data[entries]]
        group[s] = first.setdefault(tuple(part.tobytes() for part in parts), s)
    sequence = np.unique(group)
    weights = np.bincount(group, source.weights, minlength=plan.n_sequences)
    return Distinct(sequence, weights[sequence])


def _regular(problem: Any, sequence: np.ndarray) -> np.ndarray:
    # Places in ``sequence`` at regular distances, of sequences with about ENOUGH segments.
    segments, n = problem.source.segments, len(sequence)
    kept = np.isin(segments.sequence, sequence)
    n_true = int((kept & (segments.label != problem.segmenter.outside)).sum())
    n_chosen = max(1, min(n, n * ENOUGH // max(n_true, 1)))
    return np.linspace(0, n - 1, n_chosen).astype(int)


def _chain(problem: Any, w: np.ndarray, X: Any) -> SegmentTransitions:
    weights, rows = problem.scores.chain_weights(w), None
    if problem.columns is not None:
        of_pairs = problem.attributes(w)["transition_coef_"]
        rows = transitions_of_starts(X, weights[0], of_pairs)
    return SegmentTransitions(*weights, rows=rows)


def _left_out_scores(segmenter: Any, problem: Any, w: np.ndarray, distinct: Distinct) -> np.ndarray:
    # Padded scores of cells by the weights without their sequence; cells of copies have no change.
    data, scores, plan = problem.data, problem.scores, problem.data.plan
    psi, margin = np.empty((plan.n_cells, plan.width)), 0
    scores.design.scores(scores.design.weights(scores.state(w)), 0, plan.n_cells, psi)
    if segmenter.loss == "softmax-margin":
        margin = token_loss(data, scores.n_labels)
    chain = _chain(problem, w, problem.source.potentials)
    marginals = segment_sums(plan, psi + margin, chain, segmenter.n_jobs)[2]
    cells = _spans_of(plan, distinct.sequence)[1]
    marginals, label = marginals[cells], data.label[cells]
    sizes = np.diff(plan.cells)[distinct.sequence]
    sequence = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    of_cell = distinct.weights[sequence][:, None]
    residual, active = of_cell * marginals, np.flatnonzero(label >= 0)
    variance = residual * (1 - marginals)
    residual[active, label[active]] -= of_cell[active, 0]
    # Weights that are not trained, or 0 by the L1 penalty, stay as they are.
    trained = ScoreMap.unpack(scores, (w != 0).astype(w.dtype)).coef
    columns, changed = data.rows.rows[cells].tocsc(), psi[cells]
    add_changes(
        columns.indptr.astype(np.int64), columns.indices.astype(np.int64), columns.data, sequence,
        distinct.weights, residual, variance, np.ascontiguousarray(trained),
        2 * problem.l2, REDUNDANCY, changed,
    )  # fmt: skip
    psi[cells] = changed
    return psi


def _held_out(segmenter: Any, problem: Any, psi: np.ndarray, chain, distinct: Distinct) -> HeldOut:
    # Segments of the best segmentations of distinct sequences.
    chosen, weights = distinct
    plan, classes = problem.data.plan, problem.classes
    spans, cells = _spans_of(plan, chosen)
    psi, some = psi[cells], plan
    if len(chosen) < plan.n_sequences:
        some = SegmentPlan(spans, plan.n_labels, plan.limits)
    found = best_segments(some, psi, chain)[0]
    sequence = np.repeat(np.arange(len(chosen)), [len(segments) for segments in found])
    start, stop, code = np.concatenate(found).T
    kept = classes[code] != segmenter.outside
    asked = sequence[kept], start[kept], stop[kept], code[kept]
    right = _is_true(problem, chosen[asked[0]], *asked[1:])
    scores, spans = with_queries(spans, psi[:, : plan.n_labels], asked)
    plan = SegmentPlan(spans, plan.n_labels, plan.limits)
    return HeldOut(
        plan, plan.cell_scores(scores), chain, segmenter.n_jobs,
        asked_cells(plan, some.cells, asked[0]), asked[3], right,
        weights[asked[0]],
    )  # fmt: skip


def _spans_of(plan: SegmentPlan, chosen: np.ndarray) -> tuple[SegmentSpans, np.ndarray]:
    # The cells of some sequences as spans, and their numbers.
    sizes = np.diff(plan.cells)[chosen]
    offsets = offsets_of(sizes)
    cells = ranges(plan.cells[chosen], sizes)
    lengths = np.diff(plan.steps)[chosen]
    spans = SegmentSpans(lengths, offsets, plan.kind[cells], plan.start[cells], plan.stop[cells])
    return spans, cells


def _is_true(problem: Any, *columns: np.ndarray) -> np.ndarray:
    # Whether each segment, given by sequence, start, stop and code, is one of the training data.
    true = set(zip(*(x.tolist() for x in (*problem.source.segments[:3], problem.source.codes))))
    return np.array([s in true for s in zip(*(x.tolist() for x in columns))], dtype=bool)
