"""Numbers at the edge of what floats hold: the right answer or the right error, never a wrong one.

Answers are compared with the log-domain reference, with the same problem in other units, or with
what is known in closed form.
"""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    SemiCRFSegmenter,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.inference import (
    decode_online,
    forward_backward,
    nbest,
    reference,
    sample,
    viterbi,
)

NAMES = ["lbfgs", "owlqn", "eg", "adagrad", "checkpoint", "emp"]
CRFS = {
    "lbfgs": lambda **k: CRFTagger(solver="lbfgs", **k),
    "owlqn": lambda **k: CRFTagger(**{"solver": "owlqn", "l1": 1e-9} | k),
    "eg": lambda **k: CRFTagger(solver="eg", **k),
    "adagrad": lambda **k: CRFTagger(solver="adagrad", **k),
    "checkpoint": lambda **k: CRFTagger(gradient="checkpoint", **k),
    "emp": lambda **k: CRFTagger(gradient="emp", **k),
    "segmenter": lambda **k: SemiCRFSegmenter(inference="full", max_segment_length=1, **k),
}
OTHERS = {
    "perceptron": lambda: HMSVMTagger(solver="perceptron", random_state=0),
    "bcfw": lambda: HMSVMTagger(random_state=0, max_iter=30),
    "working set": lambda: HMSVMTagger(solver="working_set", random_state=0, max_iter=30),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "z-score": ZScoreTagger,
    "z-score sampling": lambda: ZScoreTagger(moments="sampling", n_paths=20, random_state=0),
    "z-score cv": ZScoreTaggerCV,
}


def make_data(seed=0, n=12, T=None, L=3):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T or int(rng.integers(1, 8)), L + 1)) for _ in range(n)]
    return X, [np.abs(x[:, :L]).argmax(axis=1) for x in X]


def as_segments(y):
    return [[(t, t + 1, f"s{label}") for t, label in enumerate(one)] for one in y]


def train(name, X, y, **parameters):
    model = (CRFS | OTHERS)[name](**parameters)
    if name == "segmenter":
        model.outside, y = None, as_segments(y)
    return model.fit(X, y)


def assert_sound(model, X):
    # Finite weights, paths of the right length, probabilities that sum to 1.
    for name in ("coef_", "transition_", "start_", "end_"):
        assert np.isfinite(getattr(model, name, 0)).all(), name
    predict = getattr(model, "predict_labels", model.predict)
    assert [len(p) for p in predict(X)] == [len(x) for x in X]
    if hasattr(model, "predict_proba"):
        for proba in model.predict_proba(X):
            assert_allclose(proba.sum(axis=1), 1, atol=1e-6)


# --- Scores -------------------------------------------------------------------------------------


def close(scale):
    # Sums of T scores of this size are known to T · scale · 2⁻⁵³, a few of these are lost.
    return {"rtol": 1e-11, "atol": 1e-11 + 3e-14 * scale}


def problem(seed, T, L, scale, forbid):
    rng = np.random.default_rng(seed)
    emission = rng.choice([-scale, scale, 0.0, 1.0], size=(T, L)) + rng.normal(size=(T, L))
    transition = rng.choice([-scale, scale, 0.0], size=(L, L)) + rng.normal(size=(L, L))
    if forbid:
        mask = rng.random((T, L)) < 0.3
        mask[:, 0] = False  # one path is always left
        emission[mask] = -np.inf
        transition[rng.random((L, L)) < 0.3] = -np.inf
        transition[0, 0] = 0.0
    return emission, transition, rng.normal(size=L) * scale, rng.normal(size=L) * scale


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e8, 1e30, 1e300])
@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("L", [1, 2, 9])
def test_extreme_scores_equal_the_log_domain(scale, forbid, L):
    for seed in range(3):
        emission, transition, start, end = problem(seed, 12, L, scale, forbid)
        ends = {"start": start, "end": end}
        log_z, marginals, pairwise = reference.forward_backward(emission, transition, start, end)
        ours = forward_backward(emission, transition, **ends)
        assert_allclose(ours.log_z, [log_z], **close(scale))
        path, best = reference.viterbi(emission, transition, start, end)
        labels, score = viterbi(emission, transition, **ends)
        assert_allclose(score, [best], **close(scale))
        if scale <= 1e8:  # above, sums are rounded so much that many paths score the same
            assert_array_equal(labels, path)
        found, scores = nbest(emission, transition, n=3, **ends)[0]
        assert_allclose(scores[0], best, **close(scale))
        assert_allclose(
            [reference.score_path(p, emission, transition, start, end) for p in found],
            scores, **close(scale),
        )  # fmt: skip
        if scale <= 1e8:
            assert_allclose(ours.marginals, marginals, atol=1e-10 + 1e-14 * scale)
            assert_allclose(ours.pairwise, pairwise, atol=1e-10 + 1e-13 * scale)
        drawn = sample(emission, transition, random_state=seed, **ends)[0]
        assert np.isfinite(reference.score_path(drawn, emission, transition, start, end))


@pytest.mark.parametrize("scale", [1e4, 1e8])
@pytest.mark.parametrize("strategy", ["step", "window", "closure", "chunk", "viterbi"])
@pytest.mark.parametrize("belief", ["viterbi", "forward"])
def test_extreme_scores_online(scale, strategy, belief):
    window = {"window_size": 3} if strategy == "chunk" else {}
    rule = {"strategy": strategy, "belief": belief, **window}
    for seed in range(3):
        emission, transition, start, end = problem(seed, 15, 4, scale, seed == 1)
        ours = decode_online(emission, transition, start=start, end=end, **rule)
        labels, times = reference.decode_online(emission, transition, start, end, **rule)
        assert_array_equal(ours.labels, labels)
        assert_array_equal(ours.latency + np.arange(15), times)
        if strategy in ("viterbi", "closure"):
            assert_array_equal(ours.labels, viterbi(emission, transition, start=start, end=end)[0])


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_scores_that_are_no_numbers_are_refused(value):
    emission = np.zeros((3, 2))
    emission[1, 1] = value
    for question in (forward_backward, viterbi, nbest, sample, decode_online):
        with pytest.raises(ValueError, match="emission"):
            question(emission, np.zeros((2, 2)))


def test_a_thousand_labels():
    rng = np.random.default_rng(0)
    emission, transition = rng.normal(size=(9, 1000)), rng.normal(size=(1000, 1000))
    log_z, marginals, pairwise = reference.forward_backward(emission, transition)
    ours = forward_backward(emission, transition)
    assert_allclose(ours.log_z, [log_z], rtol=1e-12)
    assert_allclose(ours.marginals, marginals, atol=1e-13)
    assert_allclose(ours.pairwise, pairwise, atol=1e-13)
    path, best = reference.viterbi(emission, transition)
    assert_array_equal(viterbi(emission, transition)[0], path)
    assert_array_equal(decode_online(emission, transition, strategy="closure").labels, path)
    assert_allclose(nbest(emission, transition, n=2)[0][1][0], best, rtol=1e-13)


@pytest.mark.parametrize("name", ["lbfgs", "eg", "adagrad", "segmenter", "perceptron", "z-score"])
def test_estimators_with_many_labels(name):
    L = 60 if name == "adagrad" else 150  # test_a_thousand_labels: kernels
    X, y = [np.arange(L).reshape(-1, 1) % [[7, 11, 13, 300]]] * 2, [np.arange(L)] * 2
    X = [x / 300.0 for x in X]
    fewer = {} if name in OTHERS else {"max_iter": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X, y, **fewer)
    assert len(model.classes_) == L
    assert_sound(model, X)


def test_a_million_rows_decode_as_the_reference():
    # Blocks of a problem that forgets: what is far away decides nothing.
    rng = np.random.default_rng(0)
    emission = rng.normal(size=(1_000_000, 2)) * 1e4
    transition = np.array([[0.0, -3.0], [-2.0, 0.0]])
    labels = viterbi(emission, transition)[0]
    for a in rng.integers(0, 999_000, 5):
        path, _ = reference.viterbi(emission[a : a + 60], transition)
        assert_array_equal(labels[a + 20 : a + 40], path[20:40])
    assert_array_equal(decode_online(emission, transition, strategy="closure").labels, labels)
    log_z, marginals, _ = forward_backward(emission, transition)
    assert np.isfinite(log_z).all()
    assert_allclose(marginals.sum(axis=1), 1, rtol=1e-12)


# --- Units of features --------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e2, 1e8, 1e30, 1e100])
@pytest.mark.parametrize("name", [*NAMES, "segmenter"])
def test_units_of_features_do_not_matter_without_penalty(name, scale):
    if name == "eg" and not (1e-8 < scale < 1e100):
        pytest.skip("needs l2 > 0, which is then not invariant; or refused: see below")
    X, y = make_data()
    # eg: the penalty in the same units.
    l2 = 1e-3 if name == "eg" else 0.0
    l1 = {"l1": 1e-9 * min(1, scale)} if name == "owlqn" else {}
    plain = train(name, X, y, l2=l2, tol=1e-8)
    other = train(name, [x * scale for x in X], y, l2=l2 * min(1, scale**2), tol=1e-8, **l1)
    share = 2e-2 if name == "eg" else 1e-5  # the penalty of transitions is in other units
    assert_allclose(other.objective_, plain.objective_, rtol=share)
    assert_sound(other, [x * scale for x in X])


@pytest.mark.parametrize("name", [*NAMES, "segmenter"])
@pytest.mark.parametrize("form", ["dense", "sparse", "float32"])
def test_columns_of_very_different_units(name, form):
    X, y = make_data()
    units = np.array([1e-30, 1e30, 1.0, 1e4])
    X, plain = [x * units for x in X], [x * (units > 1e-9) for x in X]
    if form == "sparse":
        X = [sparse.csr_matrix(x) for x in X]
    if form == "float32":
        X = [x.astype(np.float32) for x in X]
    # With a penalty, a column of 1e-30 cannot count, and those of 1e4 and more count for nothing.
    model = train(name, X, y, l2=0.01)
    expected = train("lbfgs", [x * [1, 1e2, 1, 1e2] for x in plain], y, l2=0.01, tol=1e-8)
    assert_allclose(model.objective_, expected.objective_, rtol=1e-3)


def test_columns_of_different_units_in_shards_and_blocks():
    X, y = make_data()
    X = [x * [1e-4, 1e8, 1.0, 1e4] for x in X]
    expected = CRFTagger(solver="lbfgs", tol=1e-8).fit(X, y)
    shards = CRFTagger(tol=1e-8).fit(Shards([(X[:5], y[:5]), (X[5:], y[5:])]))
    assert_allclose(shards.objective_, expected.objective_, rtol=1e-6)
    assert_allclose(shards.coef_, expected.coef_, rtol=1e-2, atol=1e-3)


def test_scaling_is_left_out_where_features_are_as_usual():
    from sklseq.data.labels import resolve_constraints
    from sklseq.data.sequences import as_sequences
    from sklseq.objectives.scores.score_map import ScoreMap, full_support

    X, _ = make_data()
    for factor, scaled in ((1.0, False), (1e4, True), (1e-4, True)):
        rows = as_sequences([x * factor for x in X])
        scores = ScoreMap(rows, 3, full_support(3), resolve_constraints(None, range(3)), float)
        scale = scores.scale(0.0)
        assert (scale is not None) == scaled
        if scaled:
            assert (scale > 0).all()
            assert_array_equal(np.log2(scale) % 1, 0)


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e8, 1e30])
@pytest.mark.parametrize("moments", ["exact", "dp"])
def test_units_of_features_in_z_scores(moments, scale):
    X, y = make_data(n=30)
    plain, other = (ZScoreTagger(l2=0.0, moments=moments) for _ in range(2))
    plain.fit(X, y)
    other.fit([x * scale for x in X], y)
    assert_allclose(other.coef_ * scale, plain.coef_, rtol=1e-6)
    assert_allclose(other.transition_, plain.transition_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e30])
def test_units_of_features_in_kernels(kernel, scale):
    # gamma="scale" divides by the variance.
    X, y = make_data()
    parameters = {"kernel": kernel, "random_state": 0, "tol": 1e-4}
    plain = HMSVMTagger(**parameters).fit(X, y)
    other = HMSVMTagger(**parameters).fit([x * scale for x in X], y)
    assert_allclose(other.objective_, plain.objective_, rtol=1e-3)


@pytest.mark.parametrize("name", [*OTHERS, "eg"])
@pytest.mark.parametrize(("dtype", "top"), [(np.float64, 1e200), (np.float32, 1e30)])
def test_features_whose_products_overflow_are_refused(name, dtype, top):
    X, y = make_data()
    X[3][0, 1] = top / 1e8
    model = (CRFS | OTHERS)[name]()
    if name == "eg" and dtype == np.float32:
        pytest.skip("computes in float64")
    if name == "eg":
        X[3][0, 1] = top
    with pytest.raises(ValueError, match=r"magnitude 1e\+\d+, and .* Scale the features"):
        model.fit([x.astype(dtype) for x in X], y)
    assert not [k for k in vars(model) if k.endswith("_") and not k.startswith("_")]


@pytest.mark.parametrize("name", [*NAMES, "segmenter", *OTHERS])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_constant_features(name, value):
    X, y = make_data(n=20)
    X = [np.full_like(x, value) for x in X]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X, y)
    assert_sound(model, X)
    if name in NAMES:  # nothing to tell rows apart by: a homogeneous chain
        assert_allclose(model.objective_, train("lbfgs", X, y).objective_, rtol=1e-4)


# --- Penalties, labels, lengths ------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NAMES if n != "owlqn"] + ["segmenter"])
def test_a_penalty_of_a_million(name):
    X, y = make_data()
    rows, labels = sum(map(len, X)), np.concatenate(y)
    ridge = train(name, X, y, l2=1e6)
    assert max(np.abs(ridge.coef_).max(), np.abs(ridge.transition_).max()) < 1e-3
    # One Newton step from 0 away from it: all labels are as likely, to first order.
    assert_allclose(ridge.objective_, rows * np.log(len(np.unique(labels))), rtol=1e-4)
    if name != "lbfgs":
        for l2 in (1.0, 1e6):
            lasso = train(name, X, y, l1=1e6, l2=l2)
            assert not lasso.coef_.any()
            assert not lasso.transition_.any()
            assert_allclose(lasso.objective_, rows * np.log(3), rtol=1e-9)


@pytest.mark.parametrize("penalties", [(0, 0), (0, 1e6), (1e6, 0), (1e6, 1e6)])
def test_penalties_of_partial_fit(penalties):
    l1, l2 = penalties
    X, y = make_data()
    model = CRFTagger(l1=l1, l2=l2)
    for _ in range(30):
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert_sound(model, X)
    largest = np.abs(model.coef_).max()
    if l1 or l2:  # the last step of a weight is taken after its last penalty
        assert largest < 0.1
    else:
        assert largest > 0.3


@pytest.mark.parametrize("C", [1e-12, 1e12])
def test_an_extreme_margin(C):
    X, y = make_data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HMSVMTagger(C=C, max_iter=50, random_state=0).fit(X, y)
    assert_sound(model, X)
    assert np.isfinite(model.objective_)


@pytest.mark.parametrize("name", [*NAMES, "segmenter", *OTHERS])
def test_one_label(name):
    X, y = make_data()
    with pytest.warns(UserWarning, match="y holds one label only"):
        model = train(name, X, [one * 0 for one in y])
    assert_sound(model, X)
    predict = getattr(model, "predict_labels", model.predict)
    assert len({str(label) for path in predict(X) for label in path}) == 1


@pytest.mark.parametrize("name", [*NAMES, "segmenter", *OTHERS])
def test_sequences_of_one_row(name):
    # No transitions at all: a multinomial logistic regression, whose rows may come in one sequence.
    X, y = make_data(n=40, T=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X, y)
    assert_sound(model, X)
    assert not model.transition_.any()
    if name in NAMES:
        assert_allclose(model.objective_, train("lbfgs", X, y).objective_, rtol=1e-4)


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_labels_that_never_occur_in_a_fold(name):
    X, y = make_data(n=20)
    y = [np.where(one == 2, 0, one) for one in y]
    y[-1] = np.full(len(y[-1]), 7)  # in the last fold only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X[:-1], y[:-1])
    n_rows = sum(map(len, y))
    right = model.score(X[:-1], y[:-1]) * (n_rows - len(y[-1]))
    assert model.score(X, y) == pytest.approx(right / n_rows, rel=1e-12)  # label 7: none is right
    if name in CRFS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            assert np.isfinite(cross_val_score(CRFS[name](), X, y, cv=KFold(5))).all()


def test_a_constraint_that_leaves_no_path_is_an_error():
    X, y = [np.eye(2)], [["a", "b"]]
    model = CRFTagger(constraints=[[False, True], [False, False]]).fit(X, y)
    for question in (model.predict, model.predict_proba, OnlineDecoder(model).fit(X, y).predict):
        with pytest.raises(ValueError, match=r"[Ss]equence 0.*every path meets a score of -inf"):
            question([np.ones((3, 2))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_that_overflow_a_model_are_named(dtype):
    X, y = make_data()
    model = CRFTagger(l2=0.01).fit([x.astype(dtype) for x in X], y)
    model.coef_ = 10 * model.coef_
    huge = [x.astype(dtype) for x in X]
    huge[4][0] = np.finfo(dtype).max
    for question in (model.predict, model.predict_proba, model.predict_nbest):
        with (
            pytest.raises(ValueError, match=r"[Ss]equence 4|emission must be finite"),
            np.errstate(all="ignore"),
        ):
            question(huge)
