"""Likelihood of partly known segments: enumeration, finite differences, training, errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from sklseq import SemiCRFSegmenter, Sequences
from sklseq._lib.threads import Threads
from sklseq.estimators.semicrf.segment_problem import SegmentProblem
from sklseq.estimators.semicrf.segment_source import SegmentSource
from sklseq.objectives.scores.score_map import Weights
from sklseq.objectives.segment.partial_segments import PartialSegmentLogLikelihood
from tests.estimators.test_segmenter_transitions import starts_of
from tests.estimators.test_semicrf import covered, problem
from tests.inference.test_segment_inference import segmentations
from tests.oracles import precise_numerical_gradient
from tests.segment_reference import is_active


def forget(y, lengths, seed, share=0.5):
    """Segments and gaps become unknown, with borders between them; the lists of segments."""
    rng, answer = np.random.default_rng(seed), []
    for segments, n in zip(y, lengths, strict=True):
        cuts = sorted({0, n, *(at for i, j, _ in segments for at in (i, j))})
        known = {(i, j): label for i, j, label in segments}
        out = []
        for a, b in zip(cuts[:-1], cuts[1:], strict=True):
            if rng.random() < share:
                if out and out[-1][1:] == (a, None) and rng.random() < 0.5:
                    a = out.pop()[0]  # no border
                out.append((a, b, None))
            elif (a, b) in known:
                out.append((a, b, known[a, b]))
        answer.append(out)
    return answer


def enumerated(model, X, y, weights):
    """Σ weight · -log p(Y)."""
    index = {label: k for k, label in enumerate(model.classes_)}
    limit = [1 if label == "O" else model.max_segment_length_ for label in model.classes_]
    total = 0.0
    for x, gold, weight in zip(X, covered(y, X), weights, strict=True):
        L, scores = len(index), x.rows @ model.coef_
        transition = np.tile(model.transition_, (x.n_steps, 1, 1))
        if model.transition_coef_ is not None:
            own = model.transition_coef_.toarray().reshape(-1, L, L)
            transition += np.einsum("tf,fij->tij", starts_of(x), own)

        def score(segments, scores=scores, transition=transition, x=x):
            total, before = 0.0, None
            for i, j, k in segments:
                total += scores[is_active(x.kind, x.start, x.stop, i, j), k].sum()
                total += model.start_[k] if before is None else transition[i][before, k]
                before = k
            return total + (0 if before is None else model.end_[before])

        wanted = {(i, j, index[label]) for i, j, label in gold if label is not None}
        every = list(segmentations(x.n_steps, len(index), limit))
        values = np.array([score(segments) for segments in every])
        borders = {border for i, j, _ in gold for border in (i, j)}
        agree = np.array([
            wanted <= set(segments)
            and not any(i < border < j for i, j, _ in segments for border in borders)
            for segments in every
        ])  # fmt: skip
        total -= weight * (logsumexp(values[agree]) - logsumexp(values))
    return total


def likelihood(segmenter, X, y, weights, n_threads=1):
    source = SegmentSource.read(X, y, weights, segmenter.outside)
    given = SegmentProblem(segmenter, source)
    args = given.data, given.stretches, source.weights, segmenter.l2, Threads(n_threads)
    return given, PartialSegmentLogLikelihood(given.scores, *args)


@pytest.mark.parametrize("limit", [None, 4])
@pytest.mark.parametrize("every", [True, False])
def test_value_and_gradient(every, limit):
    check_case(0, every, limit, not every)
    check_case(1, every, limit, every)


@pytest.mark.parametrize("seed", [0, 1, 7, 8])
def test_transition_features(seed):
    """Also into and out of unknown stretches."""
    assert check_case(seed, True, None, False, [0, 2])


def check_case(seed, every, limit, dense, columns=None):
    """Returns the number of triples (transition feature, label, next label)."""
    X, y = problem(seed, n_sequences=8, dense=dense, n_features=3, longest=4)
    y, rng = forget(y, X.lengths, seed), np.random.default_rng(seed)
    weights = rng.uniform(0.5, 2, len(X))
    segmenter = SemiCRFSegmenter(
        l2=0.3, max_segment_length=limit, all_possible_states=every,
        all_possible_transitions=every, transition_features=columns,
    )  # fmt: skip
    given, f = likelihood(segmenter, X, y, weights)
    w = given.scores.new_vector()
    used = given.scores.pack(given.scores.unpack(np.ones_like(w))) != 0
    used[given.scores.ends[-1] :] = True
    w[used] = rng.normal(size=used.sum())
    gradient, ignored = given.scores.new_vector(), given.scores.new_vector()
    value = f.value_and_gradient(w, gradient)
    vars(segmenter).update(given.attributes(w))
    expected = enumerated(segmenter, X, y, weights) + 0.3 * float(w @ w)
    assert value == pytest.approx(expected, rel=1e-10)

    def at(v):
        aligned = given.scores.new_vector()
        aligned[:] = v
        return f.value_and_gradient(aligned, ignored)

    numerical = precise_numerical_gradient(at, w)
    assert_allclose(gradient[used], numerical[used], rtol=1e-8, atol=1e-8)
    _, threads = likelihood(segmenter, X, y, weights, 3)
    assert threads.value_and_gradient(w, ignored) == pytest.approx(value, rel=1e-12)
    assert_allclose(ignored, gradient, rtol=1e-10, atol=1e-12)
    return len(given.scores.triples(w)) if columns else 0


def test_training_minimises():
    X, y = problem(3, n_sequences=20)
    y = forget(y, X.lengths, 0, 0.3)
    model = SemiCRFSegmenter(l2=0.3, tol=1e-10).fit(X, y)
    weights = (model.coef_, model.transition_, model.start_, model.end_)
    ridge = 0.3 * sum(np.square(w).sum() for w in weights)
    # what is wholly unknown is left out
    expected = enumerated(model, X, y, np.ones(len(y)))
    assert model.objective_ == pytest.approx(ridge + expected, rel=1e-8)
    given, f = likelihood(model, X, y, None)
    gradient = given.scores.new_vector()
    f.value_and_gradient(given.scores.pack(Weights(*weights)), gradient)
    assert np.abs(gradient).max() < 1e-3


def test_forms_of_unknown_stretches():
    rng = np.random.default_rng(0)
    X = Sequences.from_list([rng.normal(size=(6, 2)) for _ in range(8)])
    known = [[(0, 2, "a"), (3, 4, "b")]] * 6
    some = [[(0, 2, "a"), (3, 4, "b"), (4, 6, None)], [(0, 6, None)]]
    one = SemiCRFSegmenter(tol=1e-6).fit(X, known + some)
    without = SemiCRFSegmenter(tol=1e-6).fit(X, known + some, sample_weight=[1] * 7 + [0])
    assert_allclose(one.coef_, without.coef_, rtol=1e-12)
    longer = [(0, 2, "a"), (2, 6, None)]  # the limit is one of segments, not of stretches
    limited = SemiCRFSegmenter(max_segment_length=2).fit(X, [*known[1:], *some, longer])
    assert limited.max_segment_length_ == 2


def test_any_labels_may_follow_each_other_inside_a_stretch():
    X = [np.eye(4), np.eye(4)]
    known = [(0, 2, "a"), (2, 4, "b")]
    for stop, trained in ((3, False), (4, True)):  # one unknown token between a and b, or two
        y = [known, [(0, 2, "a"), (2, stop, None), *[(3, 4, "b")] * (stop == 3)]]
        model = SemiCRFSegmenter(all_possible_transitions=False).fit(X, y)
        assert (model.transition_[1, 0] != 0) == trained


@pytest.mark.filterwarnings("ignore:y holds one label only")
@pytest.mark.parametrize("missing", [np.nan, np.float32("nan"), float("nan"), "pandas.NA"])
def test_labels_of_unknown_stretches(missing):
    if missing == "pandas.NA":
        missing = pytest.importorskip("pandas").NA
    X = [np.eye(4), np.eye(4)[[1, 2]]]
    first, other = (
        SemiCRFSegmenter().fit(X, [[(0, 2, "a"), (2, 4, label)], [(0, 1, label), (1, 2, "b")]])
        for label in (None, missing)
    )
    assert first.classes_.tolist() == other.classes_.tolist() == ["a", "b"]
    assert_allclose(first.coef_, other.coef_)


def test_no_segment_goes_over_a_border_between_unknown_stretches():
    X = Sequences.from_list([np.eye(2)] * 2)
    segmenter = SemiCRFSegmenter(l2=1, tol=1e-9, outside=None)
    for stretches in ([(0, 1, None), (1, 2, None)], [(0, 2, None)]):
        y = [[(0, 2, "A")], stretches]
        model = segmenter.fit(X, y)
        ridge = sum(np.square(w).sum() for w in (model.coef_, model.transition_))
        ridge += np.square(model.start_).sum() + np.square(model.end_).sum()
        expected = segmentations_lost(model, len(stretches) == 2)
        assert model.objective_ == pytest.approx(ridge + expected, rel=1e-9)


def segmentations_lost(model, split):
    """-log p((0, 2, A)), and -log p of two segments if ``split``; one label, two steps."""
    inside = model.coef_.sum() + model.start_[0] + model.end_[0]
    scores = inside + np.array([0, model.transition_[0, 0]])
    return (2 if split else 1) * logsumexp(scores) - scores[: 1 + split].sum()


@pytest.mark.filterwarnings("ignore")  # one label only; three iterations
@pytest.mark.parametrize("seed", range(20))
def test_objective_by_enumeration(seed):
    """Lists of any known and unknown segments: the objective of training is the enumerated one."""
    X, y = problem(seed, n_sequences=4, n_features=2, longest=5)
    y = forget(y, X.lengths, seed, 0.8)
    if not any(label for segments in y for _, _, label in segments):
        return
    model = SemiCRFSegmenter(l2=0.3, max_iter=3).fit(X, y)
    weights = (model.coef_, model.transition_, model.start_, model.end_)
    ridge = 0.3 * sum(np.square(w).sum() for w in weights)
    expected = enumerated(model, X, y, np.ones(len(y)))
    assert model.objective_ == pytest.approx(ridge + expected, rel=1e-9)


def test_errors():
    X = Sequences.from_list([np.eye(3)] * 4)
    y = [[(0, 1, "a"), (1, 3, None)]] * 4
    with pytest.raises(ValueError, match="all are unknown"):
        SemiCRFSegmenter().fit(X, [[(0, 3, None)]] * 4)
    with pytest.raises(ValueError, match=r"loss='hinge' needs all segments, .* loss='log'"):
        SemiCRFSegmenter(loss="hinge").fit(X, y)
    with pytest.raises(ValueError, match=r"calibrate=2 needs all segments"):
        SemiCRFSegmenter(calibrate=2).fit(X, y)
    whole = [[(0, 1, "a"), (1, 3, "b")]] * 3 + [[(0, 3, None)]]
    for wrong in ({"loss": "hinge"}, {"loss": "softmax-margin"}, {"calibrate": 2}):
        with pytest.raises(ValueError, match="needs all segments"):
            SemiCRFSegmenter(**wrong).fit(X, whole)
    SemiCRFSegmenter(loss="hinge").fit(X, whole, sample_weight=[1, 1, 1, 0])


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([(0, 2, "a"), (1, 3, None)], r"\(1, 3, None\), overlaps .* \(0, 2, 'a'\)"),
        ([(0, 2, None), (1, 3, "a")], r"\(1, 3, 'a'\), overlaps .* \(0, 2, None\)"),
        ([(1, 1, None)], r"\(1, 1, None\), is empty"),
        ([(0, 4, None)], r"\(0, 4, None\), runs past"),
        ([(-1, 1, None)], r"\(-1, 1, None\), begins before"),
        ([(0, 1.5, None)], r"or None for steps .* got \(0, 1.5, None\)"),
        ([(0, 1)], "or None for steps whose segments are unknown; got"),
    ],
)
def test_errors_show_stretches_as_they_are_given(segments, message):
    X = Sequences.from_list([np.eye(3)] * 2)
    with pytest.raises(ValueError, match=message):
        SemiCRFSegmenter().fit(X, [[(0, 1, "a")], segments])
