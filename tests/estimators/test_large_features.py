"""One feature of 10^3 to 10^300: answers about the other rows keep their digits.

The answers are those of enumeration in exact arithmetic, from the potentials.
"""

import re
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn import clone

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    RowBlocks,
    SegmentPotentials,
    SemiCRFSegmenter,
    ZScoreTagger,
)
from tests.oracles import ExactChain

POWERS = [3, 12, 15, 17, 20, 100, 300]
TAGGERS = {
    "crf": CRFTagger(l2=0.1),
    "constraints": CRFTagger(l2=0.1, constraints=[(0, 2), (2, 0)]),
    "hmsvm": HMSVMTagger(random_state=0),
    "zscore": ZScoreTagger(probability=True),
}


def data(seed, n, T=4):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(T, 3)) for _ in range(n)]


@cache
def fitted(name):
    X = data(0, 30)
    y = [np.argmax(x * [1, 1.5, 1], axis=1).tolist() for x in X]
    if name == "constraints":
        y = [[j if j == i else 1 for i, j in zip([1, *q], q)] for q in y]
    return TAGGERS[name].fit(X, y)


@pytest.mark.parametrize("name", TAGGERS)
@pytest.mark.parametrize("power", POWERS)
def test_answers_are_those_of_exact_arithmetic(name, power):
    model = fitted(name)
    for seed, x in enumerate(data(1, 6)):
        x[seed % 4, seed % 3] = (-1) ** seed * 10.0**power
        if seed == 5:
            x[0] = 10.0**power
        emission, transition, start, end, _ = model.potentials([x])
        exact = ExactChain(emission, transition, start, end)
        if not exact.is_moderate():
            continue
        best = model.predict([x])[0]
        assert exact.apart_of[tuple(best)] < 1e-9
        paths, scores = model.predict_nbest([x], 5)[0]
        apart = [exact.apart_of[tuple(path)] for path in paths]
        assert_allclose(apart, exact.apart[: len(apart)], rtol=1e-12, atol=1e-9)
        known = [None, None, None, (best[3] + 1) % 3]
        given = [p for p in exact.paths if p[3] == known[3]]
        if given and exact.apart_of[tuple(given[0])] < 1e3:
            path = model.predict([x], known=[known])[0]
            assert exact.apart_of[tuple(path)] - exact.apart_of[tuple(given[0])] < 1e-9
        path = model.predict([x], valid=lambda q: q.count(1) == 1, handle_invalid="best")[0]
        wanted = next((p for p in exact.paths if list(p).count(1) == 1), path)
        if exact.apart_of[tuple(wanted)] < 1e3:
            assert exact.apart_of[tuple(path)] - exact.apart_of[tuple(wanted)] < 1e-9
        if name not in ("hmsvm", "zscore"):
            sums_of_crf(model, x, exact, paths, scores)


def sums_of_crf(model, x, exact, paths, scores):
    apart = exact.apart[: len(paths)]
    log_p = -apart - np.log(np.exp(-exact.apart).sum())
    close = {"rtol": 1e-12, "atol": 1e-9}
    assert_allclose(scores, log_p, **close)
    several = [x] * len(paths)
    assert_allclose(model.predict_log_proba_sequence(several, paths), log_p, **close)
    blocks = [RowBlocks(lambda x=x: iter([x[:2], x[2:]])) for x in several]
    assert_allclose(model.predict_log_proba_sequence(blocks, paths), log_p, **close)
    assert_allclose(model.predict_proba([x])[0], exact.marginals, atol=1e-9)
    assert_allclose(model.predict_proba(blocks[:1])[0], exact.marginals, atol=1e-9)
    assert_allclose(model.path_entropy([x]), exact.entropy, atol=1e-9)
    drawn = model.sample([x], 300, random_state=0)[0]
    for j in range(3):
        p = exact.marginals[:, j]
        assert (np.abs((drawn == j).mean(axis=0) - p) <= 0.01 + 0.3 * np.sqrt(p)).all()
    found = model.predict_segment_proba([x], [[(0, 2, int(exact.paths[0, 0]))]])[0]
    runs = (exact.paths[:, :2] == exact.paths[0, 0]).all(axis=1)
    runs &= exact.paths[:, 2] != exact.paths[0, 0]
    assert_allclose(found, [exact.p[runs].sum()], atol=1e-9)


@cache
def segmenter(loss):
    X = data(0, 30)
    labels = [np.argmax(x * [1, 1.5, 1], axis=1).tolist() for x in X]
    y = [[(t, t + 1, "abc"[j]) for t, j in enumerate(q)] for q in labels]
    model = SemiCRFSegmenter(l2=0.1, outside=None, max_segment_length=1, loss=loss)
    return model.fit(X, y)


@pytest.mark.parametrize("loss", ["log", "hinge"])
@pytest.mark.parametrize("power", POWERS)
def test_segmenters_of_single_steps_answer_as_in_exact_arithmetic(loss, power):
    model = segmenter(loss)
    for seed, x in enumerate(data(1, 4)):
        x[seed, seed % 3] = (-1) ** seed * 10.0**power
        exact = ExactChain(
            x @ model.coef_ + model.intercept_, model.transition_, model.start_, model.end_
        )
        if not exact.is_moderate():
            continue

        def apart_of(segments, exact=exact):
            return exact.apart_of[tuple("abc".index(label) for *_, label in segments)]

        best = model.predict([x])[0]
        assert apart_of(best) < 1e-9
        found, scores = model.predict_nbest([x], 5)[0]
        assert_allclose([apart_of(one) for one in found], exact.apart[:5], rtol=1e-12, atol=1e-9)
        once = model.predict([x], valid=["a"], handle_invalid="best")[0]
        wanted = next(p for p in exact.paths if list(p).count(0) <= 1)
        if exact.apart_of[tuple(wanted)] < 1e3:
            assert apart_of(once) - exact.apart_of[tuple(wanted)] < 1e-9
        if loss == "log":
            log_p = -exact.apart[:5] - np.log(np.exp(-exact.apart).sum())
            assert_allclose(scores, log_p, rtol=1e-12, atol=1e-9)
            found = model.predict_log_proba_sequence([x] * len(found), found)
            assert_allclose(found, log_p, rtol=1e-12, atol=1e-9)
            assert_allclose(model.predict_proba([x])[0], exact.marginals, atol=1e-9)
            proba = model.predict_segment_proba([x], [best])[0]
            wanted = exact.marginals[np.arange(4), exact.paths[0]]
            assert_allclose(proba, wanted, atol=1e-9)
        else:
            assert_allclose(scores, exact.scores[:5], rtol=1e-12, atol=1e-9)


def small_problem():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 2)) for _ in range(6)]
    return X, [[int(v > 0) for v in x[:, 0] + rng.normal(size=4)] for x in X]


def segments_of(y):
    return [[(t, t + 1, "ab"[j]) for t, j in enumerate(q)] for q in y]


@pytest.mark.parametrize("unit", [1e155, 1e200, 1e300])
def test_segmenters_train_on_features_whose_squares_overflow(unit):
    X, y = small_problem()
    parameters = {"l2": 1.0, "outside": None, "max_segment_length": 1, "tol": 1e-8}
    large = [x * unit for x in X]
    wanted = CRFTagger(l2=1.0, tol=1e-8, all_possible_states=True).fit(large, y).objective_
    # Chains have no intercept, and neither have potentials.
    potentials = SegmentPotentials.from_tokens(large)
    found = SemiCRFSegmenter(**parameters).fit(potentials, segments_of(y))
    assert_allclose(found.objective_, wanted, rtol=1e-5)
    with pytest.raises(ValueError, match="loss='hinge' multiplies features"):
        SemiCRFSegmenter(loss="hinge", outside=None).fit(large, segments_of(y))


DENORMAL = [
    CRFTagger(), CRFTagger(solver="adagrad"), CRFTagger(l2=0, l1=0.1), CRFTagger(l2=0.1),
    HMSVMTagger(random_state=0), ZScoreTagger(), SemiCRFSegmenter(outside=None),
    SemiCRFSegmenter(outside=None, loss="hinge"),
]  # fmt: skip


@pytest.mark.parametrize("model", DENORMAL, ids=str)
def test_a_column_of_denormal_numbers_counts_as_zeros(model):
    X, y = small_problem()
    y = segments_of(y) if isinstance(model, SemiCRFSegmenter) else y
    tiny, none = ([np.c_[x, np.full(4, v)] for x in X] for v in (3e-309, 0))
    assert model.fit(tiny, y).predict(X=tiny) == model.fit(none, y).predict(none)


def test_partial_fit_with_a_column_of_denormal_numbers():
    X, y = small_problem()
    tiny = [np.c_[x, np.full(4, 3e-309)] for x in X]
    tagger = CRFTagger().partial_fit(tiny, y, classes=[0, 1]).partial_fit(tiny, y)
    assert np.isfinite(tagger.coef_).all()


@pytest.mark.parametrize("model", [CRFTagger, SemiCRFSegmenter, ZScoreTagger, HMSVMTagger])
@pytest.mark.parametrize("weight", [1e-170, 1e160])
def test_weights_out_of_range_are_refused(model, weight):
    X, y = small_problem()
    y = segments_of(y) if model is SemiCRFSegmenter else y
    with pytest.raises(ValueError, match="largest sample_weight must be from 1e-15 to 1e"):
        model().fit(X, y, sample_weight=np.full(6, weight))
    if model is not HMSVMTagger:
        with pytest.raises(ValueError, match="l2 must be a finite number from 0 to 1e"):
            model(l2=1e308).fit(X, y)


@pytest.mark.parametrize("model", [CRFTagger, SemiCRFSegmenter, ZScoreTagger, HMSVMTagger])
def test_tiny_weights_beside_others_are_no_weight(model):
    X, y = small_problem()
    y = segments_of(y) if model is SemiCRFSegmenter else y
    found = []
    for tiny in (0.0, 1e-300, 1e-20):
        fitted = model(tol=1e-4).fit(X, y, sample_weight=np.append(np.ones(5), tiny))
        found.append(fitted.coef_)
    for other in found[1:]:
        assert_allclose(other, found[0], atol=1e-2)  # solvers end within tol


@pytest.mark.parametrize("factor", [1e-15, 1e15])
@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
def test_weights_in_range_scale_the_objective(solver, factor):
    X, y = small_problem()
    one, many = (
        CRFTagger(l2=k, solver=solver, tol=1e-4, random_state=0).fit(X, y, np.full(6, k))
        for k in (1.0, factor)
    )
    assert_allclose(many.objective_ / factor, one.objective_, rtol=1e-3)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("value", [1e39, -1e300])
@pytest.mark.parametrize("model", [CRFTagger(), HMSVMTagger(), ZScoreTagger(), SemiCRFSegmenter()])
@pytest.mark.filterwarnings("error:overflow:RuntimeWarning")
def test_values_beyond_the_type_of_the_weights_are_named(model, value, form):
    X, y = small_problem()
    as_form = sparse.csr_matrix if form == "sparse" else np.asarray
    y = segments_of(y) if isinstance(model, SemiCRFSegmenter) else y
    model = clone(model).fit([as_form(x.astype(np.float32)) for x in X], y)
    X[2][1, 0] = value
    if model.coef_.dtype == np.float64:
        model.predict([as_form(x) for x in X])
        return
    message = f"numbers of float32, as the weights; row 1 of sequence 2 holds {value:.6g} in col"
    for question in ("predict", "predict_proba", "decision_function"):
        if hasattr(model, question):
            with pytest.raises(ValueError, match=re.escape(message)):
                getattr(model, question)([as_form(x) for x in X])
