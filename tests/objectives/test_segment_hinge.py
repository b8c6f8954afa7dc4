"""SemiCRFSegmenter(loss="hinge"): the loss, the search, primal and dual, against enumeration."""

import itertools
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from sklseq import SegmentPotentials, SemiCRFSegmenter
from sklseq._lib.threads import Threads
from sklseq.data.segment_labels import segments_to_labels
from sklseq.objectives.scores.score_map import full_support
from sklseq.objectives.segment.segment_hinge import SegmentHinge, with_token_cells
from sklseq.objectives.segment.segment_likelihood import (
    GoldSegments,
    SegmentData,
    SegmentLogLikelihood,
    SegmentScores,
)
from sklseq.solvers import bcfw
from tests.estimators.test_semicrf import LABELS, covered, problem
from tests.inference.test_segment_inference import segmentations
from tests.segment_reference import is_active

LIMITS = [1, 0, 0]


def hinge_of(X, y, weights, l2=0.3):
    flat = [(s, *segment) for s, one in enumerate(covered(y, X)) for segment in one]
    columns = [np.array([row[k] for row in flat]) for k in range(3)]
    codes = np.array([LABELS.index(row[3]) for row in flat])
    data = SegmentData(with_token_cells(X), GoldSegments(*columns, codes), 3, np.array(LIMITS))
    return SegmentHinge(SegmentScores(data, full_support(3)), data, weights, l2)


def errors(gold, segments, n):
    """Steps whose IOB2 label is wrong."""
    a, b = (
        segments_to_labels([(i, j, label) for i, j, label in one if label != "O"], n)
        for one in (gold, segments)
    )
    return int((np.asarray(a) != np.asarray(b)).sum())


def violations(X, y, coef, chain):
    """For each sequence all (loss + score - score of the truth), by enumeration."""
    out = []
    for x, gold in zip(X, covered(y, X), strict=True):
        scores = x.rows @ coef

        def score(segments, scores=scores, x=x):
            total, before = 0.0, None
            for i, j, k in segments:
                total += scores[is_active(x.kind, x.start, x.stop, i, j), k].sum()
                total += chain[3, k] if before is None else chain[before, k]
                before = k
            return total + (0 if before is None else chain[4, before])

        true = score([(i, j, LABELS.index(label)) for i, j, label in gold])
        every = [
            errors(gold, [(i, j, LABELS[k]) for i, j, k in segments], x.n_steps)
            + score(segments)
            - true
            for segments in segmentations(x.n_steps, 3, LIMITS)
        ]
        out.append(every)
    return out


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_primal_and_search_are_those_of_enumeration(seed):
    X, y = problem(seed, longest=5)
    rng = np.random.default_rng(seed)
    weights = rng.random(len(X)) + 0.5
    hinge = hinge_of(X, y, weights)
    hinge.coef[:], hinge.chain[:] = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    slack = [max(v) for v in violations(X, y, hinge.coef, hinge.chain)]
    ridge = 0.3 * (np.square(hinge.coef).sum() + np.square(hinge.chain).sum())
    assert_allclose(hinge.certificate().primal, ridge + weights @ slack, rtol=1e-10)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_softmax_margin_is_that_of_enumeration_and_its_gradient_of_differences(n_threads):
    X, y = problem(7, longest=5)
    weights = np.random.default_rng(7).random(len(X)) + 0.5
    hinge = hinge_of(X, y, weights)
    scores, data = hinge.scores, hinge.data
    w = scores.new_vector()
    w[:] = np.random.default_rng(1).normal(size=len(w))
    parts, gradient, other = scores.unpack(w), w.copy(), w.copy()
    chain = np.vstack([parts.transition, parts.start, parts.end])
    every = violations(X, y, parts.coef, chain)
    expected = weights @ [logsumexp(v) for v in every] + 0.3 * (w @ w)
    with Threads(n_threads) as threads:
        f = SegmentLogLikelihood(scores, data, weights, 0.3, threads, hinge.loss)
        assert_allclose(f.value_and_gradient(w, gradient), expected, rtol=1e-12)
        direction = np.random.default_rng(2).normal(size=len(w))
        direction[w == 0] = 0
        ahead, behind = (f.value_and_gradient(w + h * direction, other) for h in (1e-5, -1e-5))
    assert_allclose((ahead - behind) / 2e-5, gradient @ direction, rtol=1e-7)


def test_softmax_margin_is_above_likelihood_and_hinge():
    X, y = problem(3, n_sequences=20)
    log, margin, hinge = (
        SemiCRFSegmenter(l2=0.3, loss=loss).fit(X, y) for loss in ("log", "softmax-margin", "hinge")
    )
    assert margin.objective_ > max(log.objective_, hinge.objective_)
    (found, log_proba) = margin.predict_nbest(X, 1)[4]
    assert found[0] == margin.predict(X)[4]
    assert_allclose(log_proba, margin.predict_log_proba_sequence(X, margin.predict(X))[4])


def numbers_at_segments(seed):
    """Few rows of few numbers, at the start, the end and inside of segments."""
    rng = np.random.default_rng(seed)
    n_sequences, D, L = (int(rng.choice(some)) for some in ([1, 3, 10], [1, 3, 10], [1, 3]))
    X, y = [], []
    for _ in range(n_sequences):
        n = int(rng.integers(2, 9))
        cuts = np.unique([0, *rng.integers(0, n, 2), n]).tolist()
        y.append([(i, j, f"l{rng.integers(L)}") for i, j in itertools.pairwise(cuts)])
        rows = np.kron(rng.normal(size=(n, D))[:, None, None], np.eye(3)[:, :, None])
        at = np.repeat(np.arange(n), 3)
        X.append((n, np.tile([1, 2, 3], n), at, at + 1, rows.reshape(3 * n, 3 * D)))
    return SegmentPotentials.from_list(X), y


# Of 120 seeds, those on which an estimate without proof was at least 2.6 times too small.
@pytest.mark.parametrize("seed", [26, 67, 93, 118])
def test_softmax_margin_stops_within_tol_of_the_minimum(seed):
    X, y = numbers_at_segments(seed)
    options = {"l2": 1e-4, "loss": "softmax-margin", "max_iter": 3000}
    model, best = (SemiCRFSegmenter(tol=tol, **options).fit(X, y) for tol in (1e-3, 1e-9))
    assert model.objective_ <= best.objective_ * (1 + 1e-3)


@pytest.mark.parametrize("seed", [3, 4])
def test_every_step_raises_the_dual_and_no_dual_exceeds_any_primal(seed):
    X, y = problem(seed)
    weights = np.random.default_rng(seed).random(len(X)) + 0.5
    hinge = hinge_of(X, y, weights)
    gaps, duals, primals = np.zeros(len(X)), [], []
    for _ in range(60):
        for s in hinge.blocks:
            hinge.optimize(np.array([s]), gaps, 1, 0.0)
        primal, dual = hinge.certificate()
        duals.append(dual)
        primals.append(primal)
    assert (np.diff(duals) >= -1e-9).all()
    assert duals[0] > 0
    assert max(duals) <= min(primals) + 1e-9
    # The gap of a pass falls as 1 / passes (Lacoste-Julien et al. 2013, Theorem 2).
    assert min(primals) - max(duals) < 0.1 * (primals[0] - duals[0])


def test_certificates_change_no_search():
    """The search of a certificate serves the next pass, and no later one."""
    X, y = problem(5)
    plain, certified = hinge_of(X, y, np.ones(len(X))), hinge_of(X, y, np.ones(len(X)))
    gaps, others = np.zeros((2, len(X)))
    for _ in range(4):
        certified.certificate()
        for _ in range(2):
            plain.optimize(plain.blocks, gaps, 3, 0.0)
            certified.optimize(plain.blocks, others, 3, 0.0)
            assert (gaps == others).all()
    assert (plain.w == certified.w).all()


def test_weights_are_those_of_the_mixtures():
    X, y = problem(5)
    weights = np.random.default_rng(5).random(len(X)) + 0.5
    hinge = hinge_of(X, y, weights)
    gaps, w = np.zeros(len(X)), np.zeros_like(hinge.w)
    for _ in range(5):
        hinge.optimize(hinge.blocks, gaps, 1, 0.0)
    for s, (x, gold, known) in enumerate(zip(X, covered(y, X), hinge.sets, strict=True)):
        phi = [counts_of(x, one) for one in held_by(known, x, gold)]
        w += weights[s] / 0.6 * (phi[0] - known.alpha @ phi)
    assert_allclose(hinge.w, w, atol=1e-12)


def held_by(known, x, gold):
    """The segmentations of a working set, by their differences from the true one."""
    codes = [(i, j, LABELS.index(label)) for i, j, label in gold]
    every = [codes, *segmentations(x.n_steps, 3, LIMITS)]
    named = {}
    for one in every:
        pairs, counts, loss = known.apart(as_rows(one))
        assert loss == (errors(gold, named_by(one), x.n_steps) if one else 0)
        named.setdefault((pairs.tobytes(), counts.tobytes()), one)
    assert len(named) == len(every) - 1
    return [named[pairs.tobytes(), counts.tobytes()] for pairs, counts in known.held()]


def as_rows(segments):
    return np.array(segments, dtype=np.int64).reshape(-1, 3)


def named_by(segments):
    return [(i, j, LABELS[k]) for i, j, k in segments]


def counts_of(x, segments):
    """φ of a segmentation, counted one by one: features, then transitions, first and last label."""
    features, chain, before = np.zeros((x.rows.shape[1], 3)), np.zeros((5, 3)), 3
    for i, j, k in segments:
        fired = is_active(x.kind, x.start, x.stop, i, j)
        features[:, k] += np.asarray(x.rows[fired].sum(axis=0)).ravel()
        chain[before, k] += 1
        before = k
    if segments:
        chain[4, before] += 1
    return np.concatenate([features, chain]).ravel()


@pytest.mark.parametrize("seed", [0, 5, 9])
def test_working_sets_hold_losses_and_products(seed):
    X, y = problem(seed)
    weights = np.random.default_rng(seed).random(len(X)) + 0.5
    hinge = hinge_of(X, y, weights)
    gaps, largest = np.zeros(len(X)), 0
    for _ in range(6):
        hinge.optimize(hinge.blocks, gaps, 5, 0.0)
    for x, gold, known in zip(X, covered(y, X), hinge.sets, strict=True):
        assert_allclose(known.alpha.sum(), 1, rtol=1e-12)
        assert (known.alpha >= 0).all()
        held = held_by(known, x, gold)
        assert len(set(map(tuple, held))) == len(held)
        phi = np.array([counts_of(x, one) - counts_of(x, held[0]) for one in held])
        assert_allclose(known.gram, phi @ phi.T, rtol=1e-12, atol=1e-12)
        loss = [errors(gold, named_by(one), x.n_steps) if one else 0 for one in held]
        assert_allclose(known.gains(), loss + phi @ hinge.w, atol=1e-10)
        largest = max(largest, len(held))
    assert largest > 4


@pytest.mark.parametrize("seed", [1, 4])
def test_optimum_over_all_segmentations(seed):
    """At the optimum, mass lies on nothing but most violated segmentations."""
    X, y = problem(seed, longest=5)
    weights = np.random.default_rng(seed).random(len(X)) + 0.5
    hinge = hinge_of(X, y, weights)
    result = bcfw(hinge, rng=np.random.default_rng(0), tol=1e-8, max_iter=3000, n_steps=20)
    assert result.converged
    slack = [max(v) for v in violations(X, y, hinge.coef, hinge.chain)]
    ridge = 0.3 * (np.square(hinge.coef).sum() + np.square(hinge.chain).sum())
    primal = ridge + weights @ slack
    lost = sum(w * known.alpha @ known.loss for w, known in zip(weights, hinge.sets, strict=True))
    assert_allclose(lost - ridge, primal, rtol=2e-8)  # the dual, of the mixtures' weights
    for s, known in enumerate(hinge.sets):
        # What mass c below the best costs the gap is alpha · c: 1e-8 of a primal of some 10.
        assert (known.alpha * (slack[s] - known.gains()) < 1e-6).all()


@pytest.mark.parametrize("ratio", [0.01, 1.0, 100.0])
def test_updates_solve_the_small_problem(ratio):
    """Of one sequence with six known segmentations, by the optimality conditions."""
    X, y = problem(2, longest=5)
    s = int(np.argmax(X.lengths))
    hinge = hinge_of(X, y, np.full(len(X), ratio), l2=0.5)
    known, gold = hinge.sets[s], covered(y, X)[s]
    for one in list(segmentations(int(X.lengths[s]), 3, LIMITS))[5::40][:5]:
        known.admit(as_rows(one))
    before = known.gains()
    assert_allclose(known.update(10_000, 1e-14), ratio * before.max(), rtol=1e-14)
    assert_allclose(known.alpha.sum(), 1, rtol=1e-12)
    phi = np.array([counts_of(X[s], one) for one in held_by(known, X[s], gold)])
    assert_allclose(hinge.w, ratio * (phi[0] - known.alpha @ phi), atol=1e-12)
    gain = known.gains()
    # Optimal: no gain is above that of any with mass.
    assert len(gain) == 6
    assert gain.max() - gain[known.alpha > 0].min() < 1e-10
    assert known.alpha.min() >= 0


def test_working_set_forgets_what_has_no_mass():
    X, y = problem(2, longest=5)
    s = int(np.argmax(X.lengths))
    hinge = hinge_of(X, y, np.ones(len(X)))
    known, gold = hinge.sets[s], covered(y, X)[s]
    every = list(segmentations(int(X.lengths[s]), 3, LIMITS))
    known.admit(as_rows(every[3]))
    known.update(1, 0.0)  # mass on this one, and the true one
    for one in every[::7][1:]:
        if len(known.alpha) < 13:
            known.admit(as_rows(one))
    mass, gram = known.alpha > 0, known.gram.copy()
    kept = [one for one, has in zip(held_by(known, X[s], gold), mass, strict=True) if has]
    assert mass.tolist() == [True] * 2 + [False] * 11
    known.forget()
    assert held_by(known, X[s], gold) == kept
    assert (known.gram == gram[np.ix_(mass, mass)]).all()
    assert known.alpha.min() > 0
    for one in kept:
        known.admit(as_rows(one))
    assert len(known.alpha) == len(kept)  # none is added twice


def test_loss_counts_wrong_labels():
    """Without features and chain, the sum that the search maximises is the loss alone."""
    X, y = problem(6)
    hinge = hinge_of(X, y, np.ones(len(X)))
    for s, gold in enumerate(covered(y, X)):
        n = int(X.lengths[s])
        if n == 0:
            continue
        ((_, segments),) = hinge.searches(np.array([s]))
        # Every label can be wrong.
        assert hinge.sets[s].violation(segments) == errors(gold, named_by(segments), n) == n
        assert hinge.sets[s].gains()[0] == 0  # the truth


@pytest.mark.parametrize("every", [True, False])
def test_estimator_is_within_the_tolerance_of_the_minimum(every):
    X, y = problem(7, dense=False)
    parameters = {"loss": "hinge", "l2": 0.3, "all_possible_states": every}
    rough = SemiCRFSegmenter(**parameters, max_iter=5000).fit(X, y)
    fine = SemiCRFSegmenter(**parameters, tol=4e-5, max_iter=50_000).fit(X, y)
    # tol=1e-3 is proved to be within 5 %, tol=4e-5 within 0.2 %.
    assert rough.objective_ <= fine.objective_ / 0.95
    assert fine.objective_ <= rough.objective_ / 0.998
    assert rough.n_iter_ < fine.n_iter_
    slack = [max(v) for v in violations(X, y, fine.coef_, _chain(fine))]
    ridge = 0.3 * (np.square(fine.coef_).sum() + np.square(_chain(fine)).sum())
    assert_allclose(fine.objective_, ridge + np.sum(slack), rtol=1e-10)


def _chain(model):
    return np.concatenate([model.transition_, [model.start_, model.end_]])


def test_sample_weights_are_repetitions():
    X, y = problem(8, n_sequences=6)
    counts = np.array([1, 2, 0, 1, 3, 1])
    chosen = np.repeat(np.arange(6), counts)
    parameters = {"loss": "hinge", "tol": 1e-4, "max_iter": 50_000}
    weighted = SemiCRFSegmenter(**parameters).fit(X, y, sample_weight=counts)
    repeated = SemiCRFSegmenter(**parameters).fit(X[chosen], [y[s] for s in chosen])
    # Each is proved to be within 0.5 % of one minimum.
    assert_allclose(weighted.objective_, repeated.objective_, rtol=5.1e-3)


def test_answers_without_probabilities():
    X, y = problem(9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SemiCRFSegmenter(loss="hinge", max_iter=20).fit(X, y)
    predicted = model.predict(X)
    for (best, scores), one in zip(model.predict_nbest(X, 3), predicted, strict=True):
        assert best[0] == one
        assert (np.diff(scores) <= 0).all()
    for name in (
        "predict_proba",
        "predict_segment_proba",
        "predict_log_proba_sequence",
        "sample",
    ):
        assert not hasattr(model, name)
        assert hasattr(SemiCRFSegmenter(), name)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l1": 0.1}, "loss='hinge' needs l1=0 and l2 > 0; got l1=0.1 and l2=0.1."),
        ({"l2": 0}, "loss='hinge' needs l1=0 and l2 > 0; got l1=0.0 and l2=0."),
        ({"warm_start": True}, "loss='hinge' cannot start from given weights"),
        ({"loss": "square"}, "must be one of ('log', 'softmax-margin', 'hinge'); got 'square'."),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = problem(0)
    with pytest.raises(ValueError, match=re.escape(message)):
        SemiCRFSegmenter(**{"loss": "hinge", **parameters}).fit(X, y)


def test_too_few_passes_warn():
    X, y = problem(1)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1"):
        SemiCRFSegmenter(loss="hinge", max_iter=1, l2=0.01).fit(X, y)
