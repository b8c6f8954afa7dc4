"""SemiCRFSegmenter: gradients, the chain that it generalises, every answer, bad input."""

import itertools
import pickle
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import logsumexp
from sklearn.model_selection import GridSearchCV, cross_val_score

from sklseq import (
    CRFTagger,
    OnlineDecoder,
    SegmentPotentials,
    SemiCRFSegmenter,
    Sequences,
    labels_to_segments,
)
from sklseq._lib.threads import Threads
from sklseq.data.segment_labels import segments_to_labels
from sklseq.datasets import make_citations
from sklseq.estimators.semicrf import segment_problem
from sklseq.features import SegmentFeatures, TokenFeatures
from sklseq.inference import segment_closure
from sklseq.objectives.scores.score_map import full_support
from sklseq.objectives.segment.segment_likelihood import (
    POWER,
    GoldSegments,
    SegmentData,
    SegmentLogLikelihood,
    SegmentScores,
    segment_support,
)
from tests.inference.test_segment_inference import one, random_problem, segmentations
from tests.oracles import kkt_residual, numerical_gradient
from tests.segment_reference import every_segment, is_active

LABELS = ("O", "a", "b")


def problem(seed, n_sequences=12, longest=6, n_features=5, dense=True, shared=False):
    """Random potentials of all kinds, and random segments (O of length one)."""
    rng = np.random.default_rng(seed)
    parts, y = [], []
    for _ in range(n_sequences):
        n = int(rng.integers(0, longest + 1))
        H = 3 * n
        start = rng.integers(0, max(n, 1), H)
        stop = np.array([rng.integers(i + 1, n + 1) for i in start], dtype=int)
        rows = rng.normal(size=(H, n_features))
        if not dense:
            rows *= rng.random(rows.shape) < 0.4
        parts.append((n, rng.integers(0, 4, H), start, stop, rows))
        segments, t = [], 0
        while t < n:
            label = LABELS[rng.integers(3)]
            end = t + 1 if label == "O" else int(rng.integers(t + 1, n + 1))
            if label != "O":
                segments.append((t, end, label))
            t = end
        y.append(segments)
    return SegmentPotentials.from_list(parts), y


def covered(y, X):
    """The same with segments of O."""
    out = []
    for segments, n in zip(y, X.lengths, strict=True):
        inside = {t for i, j, _ in segments for t in range(i, j)}
        out.append(sorted([*segments, *((t, t + 1, "O") for t in range(n) if t not in inside)]))
    return out


def log_likelihood(X, y, model):
    """Σ log p by enumeration: (values, one a sequence)."""
    index = {label: k for k, label in enumerate(model.classes_)}
    limit = [1 if label == "O" else model.max_segment_length_ for label in model.classes_]
    out = []
    for x, gold in zip(X, covered(y, X), strict=True):
        scores = x.rows @ model.coef_

        def score(segments, scores=scores, x=x):
            total, before = 0.0, None
            for i, j, k in segments:
                total += scores[is_active(x.kind, x.start, x.stop, i, j), k].sum()
                total += model.start_[k] if before is None else model.transition_[before, k]
                before = k
            return total + (0 if before is None else model.end_[before])

        gold = [(i, j, index[label]) for i, j, label in gold]
        every = [score(s) for s in segmentations(x.n_steps, len(index), limit)]
        out.append(score(gold) - logsumexp(every))
    return np.array(out)


def likelihood_of(X, y, *, observed, full=None, n_jobs=1, weights=None, l2=0.3):
    y = covered(y, X)
    flat = [(s, *segment) for s, segments in enumerate(y) for segment in segments]
    columns = [np.array([row[k] for row in flat]) for k in range(3)]
    codes = np.array([LABELS.index(row[3]) for row in flat])
    limits = np.array([1, full or 0, full or 0])
    X = X if full is None else every_segment(X, full)
    data = SegmentData(X, GoldSegments(*columns, codes), 3, limits)
    support = segment_support(data, 3) if observed else full_support(3)
    scores = SegmentScores(data, support)
    weights = np.ones(len(X)) if weights is None else weights
    return scores, SegmentLogLikelihood(scores, data, weights, l2, Threads(n_jobs))


@pytest.mark.parametrize("full", [None, 6])
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_gradient_is_that_of_finite_differences(seed, observed, full):
    X, y = problem(seed, dense=bool(seed))
    weights = np.random.default_rng(seed).random(len(X)) + 0.5
    scores, f = likelihood_of(X, y, observed=observed, full=full, weights=weights)
    w = scores.new_vector()
    w[:] = np.random.default_rng(seed).normal(size=len(w))
    gradient, ignored = scores.new_vector(), scores.new_vector()
    value = f.value_and_gradient(w, gradient)
    assert np.isfinite(value)

    def at(v):
        aligned = scores.new_vector()
        aligned[:] = v
        return f.value_and_gradient(aligned, ignored)

    # Padding of w takes no part. Central differences of step 1e-5: error about 1e-8.
    used = scores.pack(scores.unpack(np.ones_like(w))) != 0
    assert_allclose(gradient[used], numerical_gradient(at, w)[used], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("units", [1.0, 1e200])
def test_scale_of_the_solver_is_the_formula_for_each_feature(units):
    X, y = problem(0, dense=False)
    X.rows = X.rows @ sparse.diags_array(np.where(np.arange(X.shape[1]) == 2, units, 1.0))
    weights = np.random.default_rng(0).random(len(X)) + 0.5
    scores, f = likelihood_of(X, y, observed=False, weights=weights)
    found, of_units = scores.unpack(f.solver_scale()), scores.scale(0.3)
    of_units = scores.unpack(np.ones_like(scores.new_vector()) if units == 1 else of_units)
    rows, plan = f.data.rows.rows.toarray(), f.data.plan
    rows[:, 2] /= units
    shares = 0.5 ** (plan.stop - plan.start - 1)
    rows /= np.sqrt(shares @ np.square(rows) / (shares @ (rows != 0)))
    bounds = (np.repeat(weights, np.diff(plan.cells)) * shares) @ np.square(rows)
    expected = (bounds + 0.6) ** POWER
    for k in range(3):
        assert_allclose(found.coef[:, k], of_units.coef[:, k] * expected, rtol=1e-12)
    pairs = weights[f.data.gold.sequence].sum() / 3
    assert_allclose(found.transition, (pairs + 0.6) ** POWER, rtol=1e-12)
    assert_allclose(found.start, (weights.sum() + 0.6) ** POWER, rtol=1e-12)
    assert_allclose(found.end, (weights.sum() + 0.6) ** POWER, rtol=1e-12)


def test_scale_of_the_solver_of_a_weight_of_2_is_that_of_two_copies():
    X, y = problem(1, dense=False)
    once = likelihood_of(X, y, observed=False, weights=np.full(len(X), 2.0))[1].solver_scale()
    twice = likelihood_of(X[[*range(len(X))] * 2], y + y, observed=False)[1].solver_scale()
    assert_allclose(twice, once, rtol=1e-12)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("observed", [False, True])
def test_second_derivatives_are_the_variances_of_cells(observed, n_jobs):
    X, y = problem(4, dense=False)
    weights = np.random.default_rng(0).random(len(X)) + 0.5
    scores, f = likelihood_of(X, y, observed=observed, weights=weights, n_jobs=n_jobs)
    w, marginals = np.random.default_rng(1).normal(size=scores.n_weights), {}
    f.keep_marginals = lambda F, block: marginals.update({block.first: F.copy()})
    f.value_and_gradient(w, np.empty_like(w))
    mu = np.concatenate([marginals[first] for first in sorted(marginals)])[:, :3]
    each = np.repeat(weights, np.diff(f.data.plan.cells))[:, None]
    squares = f.data.rows.rows.toarray() ** 2
    expected = squares.T @ (mu * (1 - mu / each)) + 0.6
    found = scores.unpack(f.diagonal(w))
    trained = scores.unpack(np.ones_like(w)).coef != 0
    assert_allclose(found.coef[trained], expected[trained], rtol=1e-10)
    assert set(found.transition.ravel()) <= {0, np.inf}  # 0: not observed


def test_value_is_that_of_enumeration():
    X, y = problem(2)
    model = SemiCRFSegmenter(l2=0.3).fit(X, y)
    expected = log_likelihood(X, y, model)
    assert_allclose(model.predict_log_proba_sequence(X, y), expected, rtol=1e-10, atol=1e-10)
    weights = (model.coef_, model.transition_, model.start_, model.end_)
    ridge = 0.3 * sum(np.square(w).sum() for w in weights)
    assert_allclose(model.objective_, ridge - expected.sum(), rtol=1e-10)


@pytest.mark.parametrize("longest", [None, 6])
def test_full_equals_succinct(longest):
    X, y = problem(3, n_sequences=20)
    parameters = {"l2": 0.2, "tol": 1e-10, "max_segment_length": longest, "max_iter": 2000}
    succinct = SemiCRFSegmenter(all_possible_states=True, **parameters).fit(X, y)
    parameters["max_segment_length"] = 6
    every = every_segment(X, 6)
    full = SemiCRFSegmenter(all_possible_states=True, **parameters).fit(every, y)
    # Both minimise one strictly convex function to a gradient of 1e-10.
    assert_allclose(full.objective_, succinct.objective_, rtol=1e-9)
    assert_allclose(full.coef_, succinct.coef_, atol=1e-4)
    assert (succinct.n_potentials_, full.n_potentials_) == (X.n_potentials, every.n_potentials)
    assert full.predict(every) == succinct.predict(X)
    for p, q in zip(full.predict_proba(every), succinct.predict_proba(X), strict=True):
        assert_allclose(p, q, atol=1e-4)


def test_full_takes_as_many_iterations_as_succinct():
    # Written out, a feature of tokens is a sum, which is large in few long segments only. (The
    # largest value as unit: three to four times as many iterations.)
    X, y = make_citations(30, random_state=0)
    y = [[s for s in labels_to_segments(labels) if s[1] - s[0] <= 20] for labels in y]
    succinct = SegmentFeatures(TokenFeatures(), min_count=2).fit_transform(X)
    every = every_segment(succinct, 20)
    assert abs(every.rows).max() > 8  # within a factor of 8, solvers use no scale
    model = SemiCRFSegmenter(max_segment_length=20)
    n_iter = model.fit(succinct, y).n_iter_
    # Both minimise one function, but for the scale of weights in L-BFGS.
    assert model.fit(every, y).n_iter_ <= 1.25 * n_iter


@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_optimum(l1):
    X, y = problem(4, n_sequences=20)
    scores, f = likelihood_of(X, y, observed=False, l2=0.1)
    model = SemiCRFSegmenter(l1=l1, l2=0.1, tol=1e-9, max_iter=5000, all_possible_states=True).fit(
        X, y
    )
    weights = type(
        "W", (), {n: getattr(model, f"{n}_") for n in ("coef", "transition", "start", "end")}
    )
    w, gradient = scores.pack(weights), scores.new_vector()
    f.value_and_gradient(w, gradient)
    assert kkt_residual(w, gradient, l1) < 1e-3
    assert (model.coef_ == 0).any() == (l1 > 0)


def test_threads_agree():
    X, y = problem(5, n_sequences=900)
    scores, one = likelihood_of(X, y, observed=True)
    _, two = likelihood_of(X, y, observed=True, n_jobs=2)
    assert len(two.parts) == 2
    w = scores.new_vector()
    w[:] = np.random.default_rng(0).normal(size=len(w))
    a, b = scores.new_vector(), scores.new_vector()
    assert_allclose(one.value_and_gradient(w, a), two.value_and_gradient(w, b), rtol=1e-13)
    assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------ the linear chain


def test_token_features_alone_are_a_linear_chain():
    """A CRF over B-a, I-a, B-b, … with tied weights has the same probabilities."""
    rng = np.random.default_rng(0)
    X = Sequences(rng.normal(size=(60, 4)), np.arange(0, 61, 6))
    y = [
        [(0, 3, "a"), (3, 4, "b"), (4, 6, "a")] if s % 2 else [(1, 5, "b"), (5, 6, "b")]
        for s in range(10)
    ]
    model = SemiCRFSegmenter(l2=0.1).fit(X, y)
    assert model.classes_.tolist() == ["O", "a", "b"]
    states = [("O", True), ("a", True), ("a", False), ("b", True), ("b", False)]
    code = [model.classes_.tolist().index(label) for label, _ in states]
    chain = CRFTagger(l2=0.1, max_iter=1)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chain.fit(list(X), [["O", "Ba", "Ia", "Bb", "Ib", "O"]] * 10)
    assert chain.classes_.tolist() == ["Ba", "Bb", "Ia", "Ib", "O"]
    order = [1, 3, 2, 4, 0]
    states, code = [states[k] for k in order], [code[k] for k in order]
    chain.coef_ = model.coef_[:, code].copy()
    chain.end_ = model.end_[code].copy()
    each = model.intercept_[code]  # of each row: a transition of a chain, or a start
    assert np.abs(each).max() > 0.1
    chain.start_ = np.where([new for _, new in states], model.start_[code] + each, -np.inf)
    chain.transition_ = np.full((5, 5), -np.inf)
    for i, (before, _) in enumerate(states):
        for j, (label, new) in enumerate(states):
            if new:
                chain.transition_[i, j] = model.transition_[code[i], code[j]] + each[j]
            elif before == label:
                chain.transition_[i, j] = each[j]
    for p, q in zip(model.predict_proba(X), chain.predict_proba(X), strict=True):
        assert_allclose(p, np.stack([q[:, 4], q[:, 0] + q[:, 2], q[:, 1] + q[:, 3]], 1), atol=1e-10)
    short = {"O": "O", "B-a": "Ba", "I-a": "Ia", "B-b": "Bb", "I-b": "Ib"}
    labels = [[short[x] for x in path] for path in model.predict_labels(X)]
    assert labels == chain.predict(X)
    gold = [["O"] * 6 for _ in y]
    for path, segments in zip(gold, y, strict=True):
        for i, j, label in segments:
            path[i:j] = [f"B{label}"] + [f"I{label}"] * (j - i - 1)
    assert_allclose(
        model.predict_log_proba_sequence(X, y),
        chain.predict_log_proba_sequence(X, gold),
        rtol=1e-10,
    )


# ------------------------------------------------------------------ answers


@pytest.fixture(scope="module")
def fitted():
    X, y = problem(6, n_sequences=30)
    return SemiCRFSegmenter(l2=0.05).fit(X, y), X, y


def test_score_counts_segments(fitted):
    model, X, y = fitted
    right = sum(len(set(p) & set(t)) for p, t in zip(model.predict(X), y, strict=True))
    total = sum(len(p) + len(t) for p, t in zip(model.predict(X), y, strict=True))
    assert_allclose(model.score(X, y), 2 * right / total, rtol=1e-14)


def test_labels_and_segments_train_alike(fitted):
    model, X, y = fitted
    labels = []
    for segments, n in zip(y, X.lengths, strict=True):
        path = ["O"] * n
        for i, j, label in segments:
            path[i:j] = [f"B-{label}"] + [f"I-{label}"] * (j - i - 1)
        labels.append(path)
    again = SemiCRFSegmenter(l2=0.05).fit(X, labels)
    assert_array_equal(again.coef_, model.coef_)
    spelled = SemiCRFSegmenter(l2=0.05).fit(X, covered(y, X))
    assert_array_equal(spelled.coef_, model.coef_)
    assert again.score(X, labels) == model.score(X, y)


def test_answers_agree(fitted):
    model, X, _ = fitted
    best, proba = model.predict(X), model.predict_proba(X)
    n_best = model.predict_nbest(X, 4)
    of_best = model.predict_log_proba_sequence(X, best)
    segment_proba = model.predict_segment_proba(X)
    samples = model.sample(X, 300, random_state=0)
    for s, n in enumerate(X.lengths):
        assert n_best[s][0][0] == best[s]
        assert_allclose(n_best[s][1][0], of_best[s], rtol=0, atol=1e-10)
        assert (np.diff(n_best[s][1]) <= 0).all()
        assert_allclose(proba[s].sum(axis=1), np.ones(n), rtol=1e-12)
        drawn = np.array([[segment in one for segment in best[s]] for one in samples[s]])
        if best[s]:
            # Five standard deviations of a mean of 300 draws.
            assert_allclose(drawn.mean(axis=0), segment_proba[s], atol=5 * 0.5 / np.sqrt(300))


def test_segment_proba_is_a_sum_of_sequence_probabilities(fitted):
    model, X, _ = fitted
    s = int(np.argmax(X.lengths == 4))
    x = X[[s]]
    index = model.classes_.tolist()
    limit = [1 if label == "O" else 0 for label in index]
    asked = [(0, 2, "a"), (1, 2, "O"), (1, 4, "b"), (0, 4, "a")]
    expected = np.zeros(4)
    for segments in segmentations(4, 3, limit):
        written = [(i, j, index[k]) for i, j, k in segments]
        p = np.exp(model.predict_log_proba_sequence(x, [written])[0])
        expected += p * np.array([q in written for q in asked])
    assert_allclose(model.predict_segment_proba(x, [asked])[0], expected, rtol=1e-10)


def test_longest_length_holds(fitted):
    _, X, y = fitted
    short = [[(i, min(j, i + 2), label) for i, j, label in segments] for segments in y]
    model = SemiCRFSegmenter(l2=0.05, max_segment_length=2).fit(X, short)
    answers = [*model.predict(X), *(s for one in model.sample(X, 9, 0) for s in one)]
    assert max(j - i for segments in answers for i, j, _ in segments) == 2
    y_long = [[(0, int(n), "a")] if n > 2 else [] for n in X.lengths]
    impossible = model.predict_log_proba_sequence(X, y_long)
    assert (impossible[X.lengths > 2] == -np.inf).all()


def test_without_outside():
    X, _ = problem(7)
    y = [[(0, int(n), "a")] if n else [] for n in X.lengths]
    y[1] = [(t, t + 1, "b") for t in range(X.lengths[1])]
    model = SemiCRFSegmenter(outside=None, l2=0.1).fit(X, y)
    for segments, n in zip(model.predict(X), X.lengths, strict=True):
        assert [t for i, j, _ in segments for t in range(i, j)] == list(range(n))


@pytest.mark.parametrize("outside", ["O", "none", "", None])
def test_labels_are_those_of_the_predicted_segments(outside):
    X, y = problem(9)
    if outside is None:
        y = [[(t, t + 1, "ab"[t % 2]) for t in range(n)] for n in X.lengths.tolist()]
    model = SemiCRFSegmenter(outside=outside, l2=0.1).fit(X, y)
    other = "O" if outside is None else outside
    expected = [
        segments_to_labels(segments, n, outside=other).tolist()
        for segments, n in zip(model.predict(X), X.lengths.tolist(), strict=True)
    ]
    assert model.predict_labels(X) == expected
    arrays = model.set_output(predict="array").predict_labels(X)
    assert [labels.tolist() for labels in arrays] == expected


@pytest.mark.parametrize("outside", ["O", "none", "", "B-q", "I-a", None])
def test_the_score_does_not_depend_on_the_label_outside(outside):
    X, y = problem(9)
    if outside is None:
        labels = iter(np.random.default_rng(0).choice(["a", "b"], X.n_steps).tolist())
        y = [[(t, t + 1, next(labels)) for t in range(n)] for n in X.lengths.tolist()]
    model = SemiCRFSegmenter(outside=outside, l2=1.0).fit(X, y)
    true, found = (
        {(s, *one) for s, segments in enumerate(each) for one in segments}
        for each in (y, model.predict(X))
    )
    f1 = 2 * len(true & found) / (len(true) + len(found))
    assert 0 < f1 < 1
    assert model.score(X, y) == pytest.approx(f1, rel=1e-15)


def test_a_label_of_segments_is_not_the_one_outside():
    y = [[(1, 3, "x")], [(0, 1, "x")]]
    X = [[["a"], ["b"], ["c"]], [["b"], ["a"]]]
    model = SemiCRFSegmenter(outside="I-x").fit(X, y)
    with pytest.raises(ValueError, match="outside='I-x' is also a label of segments of type 'x'"):
        model.predict_labels(X)


def test_model_selection_and_pickles(fitted):
    model, X, y = fitted
    search = GridSearchCV(SemiCRFSegmenter(tol=1e-3), {"l2": [0.1, 10.0]}, cv=3)
    search.fit(X, y)
    assert search.best_params_["l2"] in (0.1, 10.0)
    assert len(cross_val_score(SemiCRFSegmenter(l2=0.1), X, y, cv=3)) == 3
    copy = pickle.loads(pickle.dumps(model))
    assert copy.predict(X) == model.predict(X)


def test_warm_start():
    X, y = problem(8)
    model = SemiCRFSegmenter(warm_start=True).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ < first
    wider = SegmentPotentials.from_list(
        [(x.n_steps, x.kind, x.start, x.stop, np.ones((len(x.kind), 2))) for x in X]
    )
    with pytest.raises(ValueError, match="warm_start=True needs the labels and features"):
        model.fit(wider, y)


def test_no_potential_in_some_sequence(fitted):
    model, _, _ = fitted
    none = np.zeros(0, dtype=int)
    X = SegmentPotentials([3, 0], [0, 0, 0], none, none, none, np.zeros((0, 5)))
    assert len(model.predict(X)) == 2
    assert model.predict_labels(X)[1] == []
    assert_allclose(model.predict_proba(X)[0].sum(axis=1), 1, rtol=1e-12)


# ------------------------------------------------------------------ online


def test_closure_emits_before_the_end():
    rng = np.random.default_rng(0)
    n, L = 400, 3
    steps = np.arange(n)
    spans = one(n, (np.repeat([1, 3], n), np.tile(steps, 2), np.tile(steps + 1, 2)))
    scores = 3 * rng.normal(size=(2 * n, L))
    segments, times = segment_closure(spans, scores, np.zeros((L, L)), max_span=1)
    waited = times[0] - segments[0][:, 1] + 1
    assert 0 < waited.mean() < 20
    assert len(segments[0]) > 50


def test_without_a_bound_of_spans_nothing_is_certain_early():
    # A potential to come may favour a segment from the first step on, unless lengths are limited.
    n, spans, scores, transition, start, end = random_problem(3, n=30, L=2, n_potentials=200)
    ends = {"start": start, "end": end}
    _, (times,) = segment_closure(one(n, spans), scores, transition, **ends)
    assert (times == n - 1).all()
    _, (times,) = segment_closure(one(n, spans), scores, transition, max_length=3, **ends)
    assert times[0] < n - 1
    longest = (spans[2] - spans[1]).max()
    h = (spans[2] - spans[1]).argmax()
    message = f"Potential {h} of sequence 0 spans {longest} steps, but none may span more than"
    with pytest.raises(ValueError, match=message):
        segment_closure(one(n, spans), scores, transition, max_span=longest - 1, **ends)
    for bad in (0, 1.5, "all"):
        with pytest.raises(ValueError, match="max_span must be an integer of at least 1; got"):
            segment_closure(one(n, spans), scores, transition, max_span=bad, **ends)


def test_online_decoder_of_segments(fitted):
    model, X, y = fitted
    decoder = OnlineDecoder(SemiCRFSegmenter(l2=0.05), strategy="closure").fit(X, y)
    decoded = decoder.decode(X)
    emitted = model.decode_closure(X)
    for s, n in enumerate(X.lengths):
        assert decoded.labels[s].tolist() == model.predict_labels(X)[s]
        assert emitted[s][0] == model.predict(X)[s]
        assert len(decoded.times[s]) == n
        for (i, j, _), time in zip(*emitted[s], strict=True):
            assert (decoded.times[s][i:j] == time).all()
            assert time >= j - 1
    with pytest.raises(ValueError, match="segmenter needs strategy='closure'"):
        OnlineDecoder(SemiCRFSegmenter()).fit(X, y)
    for name in ("latency_report", "stream", "iter"):
        with pytest.raises(AttributeError, match="SemiCRFSegmenter labels segments"):
            getattr(decoder, name)
    assert all(np.isnan(c).all() for c in decoded.confidence)


def test_a_decoder_of_segments_refuses_what_it_would_ignore(fitted):
    _, X, y = fitted
    decoder = OnlineDecoder(SemiCRFSegmenter(l2=0.05), strategy="closure").fit(X, y)
    for bad, message in (
        ({"strategy": "xx"}, "strategy must be one of"),
        ({"strategy": "step"}, "segmenter needs strategy='closure'"),
        ({"decide": "marginal"}, "needs the marginals of a tagger"),
    ):
        for use in (decoder.predict, decoder.decode):
            decoder.set_params(**{"strategy": "closure"} | bad)
            with pytest.raises(ValueError, match=message):
                use(X)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([(0, 2, "a"), (1, 3, "b")], "Segment 1 of sequence 1 of y, (1, 3, 'b'), overlaps the one"),
        ([(2, 3, "a"), (0, 1, "b")], "Segment 1 of sequence 1 of y, (0, 1, 'b'), comes after the"),
        ([(1, 9, "a")], "Segment 0 of sequence 1 of y, (1, 9, 'a'), runs past the end of its"),
        ([(-1, 2, "a")], "Segment 0 of sequence 1 of y, (-1, 2, 'a'), begins before step 0"),
        ([(1, 1, "a")], "Segment 0 of sequence 1 of y, (1, 1, 'a'), is empty: segments are half"),
        ([(0, 1)], "Segment 0 of sequence 1 of y must be (start, stop, label)"),
        ([(0, 1, 7)], "Segment 0 of sequence 1 of y must be (start, stop, label)"),
        ([(0, 1.5, "a")], "Segment 0 of sequence 1 of y must be (start, stop, label)"),
        ([(0, 4, "a")], "Segment (0, 4, 'a') of sequence 1 of y has 4 steps, more than max_segm"),
    ],
)
def test_bad_segments(segments, message):
    X = Sequences(np.ones((6, 2)), [0, 2, 6])
    model = SemiCRFSegmenter(max_segment_length=3)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(X, [[(0, 1, "a")], segments])
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("N", "Label 'N' at row 1 of sequence 1 of y is neither 'O' nor of the form 'B-type'"),
        ("E-x", "Label 'E-x' at row 1 of sequence 1 of y is neither 'O'"),
        ("", "Label '' at row 1"),
        ("b-x", "Label 'b-x' at row 1"),
        ("Bx", "Label 'Bx' at row 1"),
        (7, "must be strings, integers or booleans|are of kind"),
        (None, "of type NoneType"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "score", "predict_log_proba_sequence"])
def test_labels_that_are_not_iob2_are_named(method, label, message):
    X = Sequences(np.ones((6, 2)), [0, 2, 6])
    y = [["B-x", "O"], ["B-x", "I-x", "O", "O"]]
    model = SemiCRFSegmenter(l2=1.0, max_iter=2, tol=1.0).fit(X, y)
    y[1][1] = label
    with pytest.raises(ValueError, match=message) as caught:
        getattr(model, method)(X, y)
    if isinstance(label, str):
        assert "taggers such as CRFTagger read labels of single" in str(caught.value)
    assert "scheme" not in str(caught.value)


@pytest.mark.parametrize("y", [[[1, 2], [1, 1, 2, 2]], [[("N",)] * 2, [("N",)] * 4]])
def test_labels_that_are_no_strings_are_refused(y):
    X = Sequences(np.ones((6, 2)), [0, 2, 6])
    with pytest.raises(ValueError, match="taggers such as CRFTagger read labels of single"):
        SemiCRFSegmenter().fit(X, y)


def test_potentials_that_were_written_to():
    X = SegmentPotentials.from_tokens(Sequences(np.ones((2, 2)), [0, 2]))
    model = SemiCRFSegmenter().fit(X, [[(0, 1, "a")]])
    X.stop[0] = 10**9
    with pytest.raises(ValueError, match="outside the sequence's 2 steps"):
        model.predict(X)


def test_bad_y():
    X = Sequences(np.ones((6, 2)), [0, 2, 6])
    good = [[(0, 2, "a")], [(0, 4, "b")]]
    with pytest.raises(ValueError, match="leave a gap: nothing covers steps 1 to 3"):
        SemiCRFSegmenter(outside=None).fit(X, [good[0], [(0, 1, "a")]])
    with pytest.raises(ValueError, match="has the label 'O' at row 1, but outside=None"):
        SemiCRFSegmenter(outside=None).fit(X, [["B-a", "I-a"], ["B-a", "O", "O", "O"]])
    with pytest.raises(ValueError, match="got 2 in X and 1 in y"):
        SemiCRFSegmenter().fit(X, good[:1])
    with pytest.raises(ValueError, match="y must be a list"):
        SemiCRFSegmenter().fit(X, 3)
    with pytest.raises(ValueError, match="Sequence 1 has 4 rows in X but 3 labels"):
        SemiCRFSegmenter().fit(X, [["O", "O"], ["O", "O", "O"]])
    model = SemiCRFSegmenter().fit(X, good)
    unseen, seen = model.predict_segment_proba(X, [[(0, 2, "c")], [(0, 4, "b")]])
    assert unseen == [0]
    assert seen > 0
    for n_samples in (-1, 1.5):
        with pytest.raises(ValueError, match="n_samples must be an integer of at least 0"):
            model.sample(X, n_samples)
    with pytest.raises(ValueError, match="begins before step 0"):
        SemiCRFSegmenter().fit(X, [[(-1, 2, "a")], good[1]])
    with pytest.raises(ValueError, match="two integers and a string"):
        SemiCRFSegmenter().fit(X, [[(False, True, "a")], good[1]])
    with pytest.raises(AttributeError, match="no predict_proba: scores of loss='hinge'"):
        SemiCRFSegmenter(loss="hinge").predict_proba(X)
    with pytest.raises(ValueError, match="does not fit sequence 0, which has 2 steps"):
        model.predict_segment_proba(X, [[(0, 3, "a")], []])
    with pytest.raises(ValueError, match="one list for each of 2 sequences; got 1"):
        model.predict_segment_proba(X, [[]])
    with pytest.raises(ValueError, match="n must be an integer"):
        model.predict_nbest(X, 0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l1": -1}, "l1 must be a finite number"),
        ({"l2": np.nan}, "l2 must be a finite number"),
        ({"max_iter": 0}, "max_iter must be an integer"),
        ({"max_segment_length": 0}, "max_segment_length must be None or an integer"),
        ({"outside": 3}, "outside must be a string or None"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = problem(0)
    with pytest.raises(ValueError, match=message):
        SemiCRFSegmenter(**parameters).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "y"),
    [
        ({}, [[]]),
        ({"outside": "x"}, [[(0, 2, "x")]]),
        ({"outside": None, "max_segment_length": 1}, [[(0, 1, "a"), (1, 2, "a")]]),
    ],
)
def test_one_segmentation_warns(parameters, y):
    X = Sequences(np.ones((2, 1)), [0, 2])
    with pytest.warns(UserWarning, match="one label only"):
        model = SemiCRFSegmenter(**parameters).fit(X, y)
    drawn = model.sample(X, 50)[0]
    assert all(one == drawn[0] for one in drawn)


@pytest.mark.parametrize("outside", [None, "O"])
@pytest.mark.parametrize("longest", [None, 2])
@pytest.mark.filterwarnings("error")
def test_one_label_of_several_segmentations_does_not_warn(outside, longest):
    # Words of a text without spaces: a word of one or two steps begins where the column is 1.
    rng = np.random.default_rng(0)
    begins = [np.where(np.arange(6) % 2 == 0, 1, rng.integers(0, 2, 6)) for _ in range(20)]
    cuts = [[*np.flatnonzero(x).tolist(), 6] for x in begins]
    y = [[(a, b, "W") for a, b in itertools.pairwise(one)] for one in cuts]
    tokens = [x.reshape(-1, 1) for x in begins]
    X = SegmentPotentials.from_tokens([np.hstack([x, 1 - x]) for x in tokens], kinds=[1])
    model = SemiCRFSegmenter(outside=outside, max_segment_length=longest).fit(X, y)
    assert len({tuple(one) for one in model.sample(X[[0]], 50, random_state=0)[0]}) > 1
    assert model.score(X, y) > 0.9


def test_segments_without_features_are_refused():
    with pytest.raises(ValueError, match="X must have at least one feature; got 0"):
        SemiCRFSegmenter().fit([np.ones((2, 0))], [["O", "B-x"]])


def test_verbose_prints_the_objective(capsys):
    model = SemiCRFSegmenter(verbose=1, l2=1.0).fit([np.eye(2), np.eye(2)], [["O", "B-x"]] * 2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= model.n_iter_ >= 1
    assert lines[0].startswith("[SemiCRFSegmenter] iteration ")
    assert float(lines[-1].rsplit(" ", 1)[1]) == pytest.approx(model.objective_, abs=1e-5)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([[(0.5, 2, "a")], []], "Segment 0 of sequence 0 of segments must be (start, stop, label)"),
        ([[], [(0, 1)]], "Segment 0 of sequence 1 of segments must be (start, stop, label)"),
        ([[], [(True, 2, "a")]], "two integers and a string; got (True, 2, 'a')."),
        ([[(0, 1, 5)], []], "two integers and a string; got (0, 1, 5)."),
        ([(0, 1, "a"), (1, 2, "a")], "Segment 0 of sequence 0 of segments must be"),
        ([3, []], "Segment 0 of sequence 0 of segments must be"),
        ("ab", "segments must be a list of segment lists, one a sequence; got 'ab'."),
        ([[(0, 9, "a")], []], "Segment (0, 9, 'a') does not fit sequence 0"),
    ],
)
def test_wrong_questions(asked, message):
    X = [[["x"], ["y"], ["x"]], [["y"], ["x"]]]
    model = SemiCRFSegmenter().fit(X, [[(0, 2, "a")], [(1, 2, "a")]])
    with pytest.raises(ValueError, match=re.escape(message)):
        model.predict_segment_proba(X, asked)


@pytest.mark.parametrize("name", ["coef_", "transition_", "start_", "end_"])
def test_weights_that_are_no_numbers_are_noticed(name):
    X = [[["x"], ["y"], ["x"]], [["y"], ["x"]]]
    model = SemiCRFSegmenter().fit(X, [[(0, 2, "a")], [(1, 2, "a")]])
    getattr(model, name).flat[0] = np.nan
    for method in (model.predict, model.predict_proba, model.predict_nbest, model.predict_labels):
        with pytest.raises(ValueError, match="holds NaN"):
            method(X)


@pytest.mark.parametrize("loss", ["log", "softmax-margin"])
def test_fits_end_within_tol_and_sooner_by_a_proved_excess(loss, monkeypatch):
    n_iter = {True: 0, False: 0}
    for seed in range(6):
        X, y = problem(seed, n_sequences=12, longest=12, n_features=20, dense=bool(seed % 2))
        parameters = {"loss": loss, "l2": [0.01, 0.1, 1.0][seed % 3]}
        least = SemiCRFSegmenter(tol=1e-9, max_iter=5000, **parameters).fit(X, y).objective_
        for proved in n_iter:
            monkeypatch.setitem(segment_problem.GAPS, loss, proved and 1)
            model = SemiCRFSegmenter(**parameters).fit(X, y)
            assert model.objective_ <= (1 + model.tol) * least
            n_iter[proved] += model.n_iter_
    assert n_iter[True] < 0.97 * n_iter[False]
