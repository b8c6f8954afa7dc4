"""Units of features: the same model in other units, and an error where numbers overflow."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    SegmentPotentials,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
    labels_to_segments,
)
from sklseq.data.constraints import resolve_constraints
from sklseq.objectives.likelihood.summary import summarise_rows
from sklseq.objectives.scores.score_map import ScoreMap, full_support
from tests.estimators.methods import CRFS, NAMES, OTHERS, assert_sound, train
from tests.sample_data import make_argmax_data, make_sparse_data


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e2, 1e8, 1e30, 1e100])
@pytest.mark.parametrize("name", [*NAMES, "segmenter"])
def test_units_of_features_do_not_matter_without_penalty(name, scale):
    if name == "eg" and not (1e-8 < scale < 1e100):
        pytest.skip("needs l2 > 0, which is then not invariant; or refused: see below")
    X, y = make_argmax_data()
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
    X, y = make_argmax_data()
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


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # of the penalty
def test_columns_of_different_units_in_shards_and_blocks():
    X, y = make_argmax_data()
    X = [x * [1e-4, 1e8, 1.0, 1e4] for x in X]
    expected = CRFTagger(solver="lbfgs", tol=1e-8).fit(X, y)
    shards = CRFTagger(tol=1e-8).fit(Shards([(X[:5], y[:5]), (X[5:], y[5:])]))
    assert_allclose(shards.objective_, expected.objective_, rtol=1e-6)
    assert_allclose(shards.coef_, expected.coef_, rtol=1e-2, atol=1e-3)


def test_scaling_is_left_out_where_features_are_as_usual():
    from sklseq.data.sequences import as_sequences

    X, _ = make_argmax_data()
    for factor, scaled in ((1.0, False), (1e4, True), (1e-4, True)):
        rows = as_sequences([x * factor for x in X])
        scores = ScoreMap(rows, 3, full_support(3), resolve_constraints(None, range(3)), float)
        scale = scores.scale(0.0)
        assert (scale is not None) == scaled
        if scaled:
            assert (scale > 0).all()
            assert_array_equal(np.log2(scale) % 1, 0)


@pytest.mark.parametrize("counted", [False, True])
def test_a_rare_column_is_scaled_as_far_as_its_rows_outweigh_the_penalty(counted):
    # 2 · l2 is the curvature of the penalty, n · largest² a bound of that of n rows.
    columns = [[1.0] * 400, [0.01] * 400, [0.01] + [0.0] * 399, [100.0] + [0.0] * 399]
    X = Sequences(sparse.csr_array(np.array(columns).T), [0, 400])
    summary = summarise_rows(X, np.arange(3), full_support(3))
    counts = np.array([400, 400, 1, 1]) if counted else None
    given = full_support(3), resolve_constraints(None, range(3)), np.dtype(float), None
    scores = ScoreMap(X, 3, *given, summary._replace(counts=counts))
    for l2, expected in ((1e-8, [1, 2**-7, 2**-7, 2**7]), (1e-2, [1, 2**-7, 2**-3, 2**7])):
        assert_array_equal(scores.unpack(scores.scale(l2)).coef, np.outer(expected, np.ones(3)))
    assert_array_equal(scores.unpack(scores.scale(8.0)).coef[:, 0], [1, 2**-2, 1, 2**7])
    dense = ScoreMap(Sequences(X.rows.toarray(), [0, 400]), 3, *given)
    assert_array_equal(dense.unpack(dense.scale(1e-2)).coef[:, 0], [1, 2**-7, 2**-7, 2**7])


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e8, 1e30])
@pytest.mark.parametrize("moments", ["exact", "dp"])
def test_units_of_features_in_z_scores(moments, scale):
    X, y = make_argmax_data(n=30)
    plain, other = (ZScoreTagger(l2=0.0, moments=moments) for _ in range(2))
    plain.fit(X, y)
    other.fit([x * scale for x in X], y)
    assert_allclose(other.coef_ * scale, plain.coef_, rtol=1e-6)
    assert_allclose(other.transition_, plain.transition_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e30])
def test_units_of_features_in_kernels(kernel, scale):
    # gamma="scale" divides by the variance.
    X, y = make_argmax_data()
    parameters = {"kernel": kernel, "random_state": 0, "tol": 1e-4}
    plain = HMSVMTagger(**parameters).fit(X, y)
    other = HMSVMTagger(**parameters).fit([x * scale for x in X], y)
    assert_allclose(other.objective_, plain.objective_, rtol=1e-3)


@pytest.mark.parametrize("name", [*OTHERS, "eg"])
@pytest.mark.parametrize(("dtype", "top"), [(np.float64, 1e200), (np.float32, 1e30)])
def test_features_whose_products_overflow_are_refused(name, dtype, top):
    X, y = make_argmax_data()
    X[3][0, 1] = top / 1e8
    model = (CRFS | OTHERS)[name]()
    if name == "eg" and dtype == np.float32:
        pytest.skip("computes in float64")
    if name == "eg":
        X[3][0, 1] = top
    with pytest.raises(ValueError, match=r"magnitude 1e\+\d+; .* Scale the features"):
        model.fit([x.astype(dtype) for x in X], y)
    assert not [k for k in vars(model) if k.endswith("_") and not k.startswith("_")]


@pytest.mark.parametrize("name", [*NAMES, "segmenter", *OTHERS])
@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_constant_features(name, value):
    X, y = make_argmax_data(n=20)
    X = [np.full_like(x, value) for x in X]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X, y)
    assert_sound(model, X)
    if name in NAMES:  # nothing to tell rows apart by: a homogeneous chain
        assert_allclose(model.objective_, train("lbfgs", X, y).objective_, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_that_overflow_a_model_are_named(dtype):
    X, y = make_argmax_data()
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


def with_outlier(value, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(4, 3)), rng.normal(size=(3, 3))]
    X[1][2, 1] = value
    return [x.astype(dtype) for x in X], [list("abab"), list("baa")]


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad", "dual"])
@pytest.mark.parametrize("value", [1, 1e3, 1e6, 3e6, 1e7, 1e8, 1e9, 1e12, 1e15, 1e20, 1e30, 1e99])
def test_an_outlier_is_no_reason_to_end_early_without_a_warning(solver, value):
    X, y = with_outlier(value)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ConvergenceWarning)
        model = CRFTagger(l2=1, solver=solver, tol=1e-5).fit(X, y)
    least = 3.6074331 if value == 1 else 3.1600719  # by the dual with tol=1e-9
    assert model.objective_ >= least * (1 - 5e-8)  # of eight digits
    assert told or model.objective_ <= least * (1 + 2 * model.tol)
    weights = [model.coef_, model.transition_, model.start_, model.end_]
    penalty = model.l2 * sum(np.square(one).sum() for one in weights)
    loss = -model.predict_log_proba_sequence(X, y).sum()
    assert_allclose(model.objective_, loss + penalty, rtol=1e-5)  # SMALLEST_GAP


def test_features_whose_sums_overflow_are_refused():
    X, y = with_outlier(3e38, np.float32)
    with pytest.raises(ValueError, match=r"magnitude 3e\+38, and sums .* Scale the features"):
        CRFTagger().fit(X, y)


@pytest.mark.parametrize("name", ["crf", "hmsvm", "zscore", "segmenter"])
def test_columns_so_small_that_the_penalty_removes_them(name):
    models = {"crf": CRFTagger(), "hmsvm": HMSVMTagger(), "zscore": ZScoreTagger()}
    model = models.get(name, SemiCRFSegmenter(outside=None))
    rng = np.random.default_rng(0)
    y = [np.array(["a", "b", "c"])[rng.permutation(3)].repeat(20) for _ in range(20)]
    X = [(x[:, None] == ["a", "b", "c"]) + rng.normal(scale=0.3, size=(60, 3)) for x in y]
    if name == "segmenter":
        y = [labels_to_segments(list(labels), "runs") for labels in y]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.fit(X, y).predict(X)
        warnings.simplefilter("ignore", ConvergenceWarning)
        penalty = {"C": 1e12 * model.C} if name == "hmsvm" else {"l2": 1e-12}
        clone(model).set_params(**penalty).fit([1e-6 * x for x in X], y)  # has an effect there
    small = [sparse.csr_array(1e-6 * x) for x in X] if name == "crf" else [1e-6 * x for x in X]
    with pytest.warns(UserWarning, match=r"at most \de-06 in size, where .*StandardScaler"):
        other = model.fit(small, y).predict(small)
    assert len({str(v) for v in other}) == 1  # one answer for every sequence
    assert len({str(v) for v in found}) > 1


MODELS = {
    "crf": CRFTagger(),
    "crf cv": CRFTaggerCV(l2s=[0.1, 1.0], cv=2),
    "hmsvm": HMSVMTagger(random_state=0),
    "zscore": ZScoreTagger(),
    "zscore cv": ZScoreTaggerCV(cv=2),
    "segmenter": SemiCRFSegmenter(outside=None),
}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", MODELS)
def test_small_columns_beside_others_are_named(name, form):
    """A column that the penalty removes gives the same answers as none; the warning names it."""
    rng = np.random.default_rng(0)
    y = [np.array(["a", "b"])[rng.permutation(2)].repeat(10) for _ in range(6)]
    X = [(x[:, None] == ["a", "b"]) + rng.normal(scale=0.3, size=(20, 2)) for x in y]
    mixed = [form(x * [1e-6, 1.0]) for x in X]
    model = MODELS[name]
    if name == "segmenter":
        y = [labels_to_segments(list(labels), "runs") for labels in y]
    without = model.fit([form(x * [0.0, 1.0]) for x in X], y).predict(mixed)
    with pytest.warns(UserWarning, match=r"Of 2 columns of X, 1 \(0\) are at most \de-06 in size"):
        found = model.fit(mixed, y).predict(mixed)
    assert [list(v) for v in found] == [list(v) for v in without]


def test_rows_that_potentials_share_count_each():
    # 4000 potentials with one of two rows: enough to be worth more than the penalty.
    n, n_sequences = 4000, 50
    kinds, at = np.random.default_rng(0).integers(2, size=n), np.arange(n) % (n // n_sequences)
    offsets = np.arange(0, n + 1, n // n_sequences)
    X = SegmentPotentials(
        np.full(n_sequences, n // n_sequences), offsets, np.full(n, 3), at, at + 1,
        9e-3 * np.eye(2), row=kinds,
    )  # fmt: skip
    y = [[(t, t + 1, "ab"[k]) for t, k in enumerate(kinds[a:b])] for a, b in pairwise(offsets)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SemiCRFSegmenter(l2=0.05, outside=None, max_segment_length=1).fit(X, y)
    assert model.score(X, y) == 1


@pytest.mark.parametrize("unit", [1e60, 1e90, 1e100])
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_run_that_ends_at_the_last_digit_does_not_warn(seed, unit):
    # Scales differ very much, and the gradient is so small that its longest step gains nothing.
    X, y = make_sparse_data(seed, n=20, M=6, L=2)
    rows = X.with_rows(X.rows * unit)
    found = CRFTagger().fit(rows, y)  # warnings are errors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = CRFTagger(tol=1e-12, max_iter=5000).fit(rows, y)
    assert found.objective_ <= best.objective_ * (1 + found.tol)
