"""Standard errors of weights: differences of gradients, several sources, errors."""

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    RowBlocks,
    SemiCRFSegmenter,
    Sequences,
    ZScoreTagger,
)
from sklseq.data.sequences import STATE, TRANSITION
from sklseq.inspection import standard_errors
from sklseq.objectives.scores.score_map import Weights
from tests.objectives.test_curvature import gradient_at
from tests.objectives.test_partial import partial_labels, problem_of
from tests.sample_data import make_data, make_sparse_data


def expected_errors(tagger, X, y, weights, robust):
    """From differences of gradients, for all weights of the layout."""
    _, scores, f = problem_of(tagger, X, y, weights)
    fitted = Weights(tagger.coef_, tagger.transition_, tagger.start_, tagger.end_)
    w = scores.pack(fitted, tagger.transition_coef_)
    ones = scores.pack(Weights(*(np.ones(x.shape) for x in fitted)))
    scores.triples(ones)[:] = 1
    at = np.flatnonzero(w if tagger.l1 else ones)
    H = np.empty((len(at), len(at)))
    for row, unit in zip(H, np.eye(len(w))[at] * 1e-3):
        g = [gradient_at(f, w + k * unit) for k in (-2, -1, 1, 2)]
        row[:] = (8 * (g[2] - g[1]) - (g[3] - g[0]))[at] / 12e-3
    J = H - 2 * tagger.l2 * np.eye(len(at))
    if robust:
        J = 0
        for s in range(len(y)):
            one = np.where(np.arange(len(y)) == s, weights, 1e-300)
            one_f = problem_of(tagger, X, y, one)[2]
            one_f.l2 = 0.0
            g = gradient_at(one_f, w)[at]
            J = J + np.outer(g, g)
    errors = np.full(len(w), 0.0)
    errors[at] = np.sqrt(np.diag(np.linalg.inv(H) @ J @ np.linalg.inv(H)))
    arrays = [np.where(x > 0, x, np.nan) for x in scores.unpack(errors)]
    return [*arrays, scores.triples(errors)[scores.triples(errors) > 0]]


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize(
    "model", [{}, {"all_possible_states": True}, {"l1": 0.3}, {"boundaries": False}], ids=str
)
@pytest.mark.parametrize("kind", ["dense", "sparse", "partial"])
def test_differences(kind, model, robust):
    X, y = make_data(1, n=9, M=2) if kind == "dense" else make_sparse_data(1, n=9, M=2)
    if kind == "partial":
        y, robust = partial_labels(y, 0, unknown=0.2), True
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    tagger = CRFTagger(l2=0.3, solver="lbfgs", tol=1e-14, max_iter=2000, **model)
    tagger.fit(X, y, sample_weight=weights)
    found = standard_errors(tagger, X, y, sample_weight=weights, robust=robust)
    for x, expected in zip(found, expected_errors(tagger, X, y, weights, robust)):
        assert_allclose(x, expected, rtol=1e-6)


def with_transition_features(seed, columns, role):
    """Sparse data in which some columns have weights for pairs of labels."""
    X, y = make_sparse_data(seed, n=12, M=3)
    roles = np.full(X.shape[1], STATE, dtype=np.uint8)
    roles[columns] = role
    return Sequences(X.rows, X.offsets, roles), y


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_differences_with_transition_features(l1, robust):
    X, y = with_transition_features(2, [0, 2], STATE | TRANSITION)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    tagger = CRFTagger(l1=l1, l2=0.3, solver="lbfgs", tol=1e-14, max_iter=2000)
    tagger.fit(X, y, sample_weight=weights)
    found = standard_errors(tagger, X, y, sample_weight=weights, robust=robust)
    expected = expected_errors(tagger, X, y, weights, robust)
    for x, other in zip([*found, found.transition_coef.data], expected):
        assert_allclose(x, other, rtol=1e-6)
    assert (found.transition_coef != 0).nnz == (tagger.transition_coef_ != 0).nnz


def test_a_constant_transition_feature_has_the_errors_of_transitions():
    X, y = with_transition_features(3, [1], TRANSITION)
    rows = X.rows.tolil()
    rows[:, 1] = 1
    X = X.with_rows(rows.tocsr())
    tagger = CRFTagger(l2=0.3, solver="lbfgs", tol=1e-13, max_iter=2000).fit(X, y)
    found = standard_errors(tagger, X, y)
    errors = found.transition_coef.toarray()[1].reshape(found.transition.shape)
    assert_allclose(np.where(errors > 0, errors, np.nan), found.transition, rtol=1e-6)
    assert np.isnan(found.coef[1]).all()


def test_forms_of_data():
    X, y = make_sparse_data(0, n=15, M=3, ones=True)
    tagger = CRFTagger(l2=0.3, tol=1e-12, constraints=np.eye(3)[[2, 0, 1]] < 1)
    y = [np.where(labels == 1, 0, labels) for labels in y]
    y = [np.full_like(labels, 2) if 2 in labels else labels for labels in y]
    y[0][:] = 1
    for labels in y:
        labels[:] = labels[0]
    tagger.fit(X, y)
    expected = standard_errors(tagger, X, y)
    assert np.isnan(expected.transition[~np.isfinite(tagger.transition_)]).all()
    lists = [[{f"f{k}": 1 for k in row.indices} for row in x] for x in X]
    dicts = CRFTagger(**tagger.get_params()).fit(lists, y)
    order = [int(name[1:]) for name in dicts.feature_names_in_]
    assert_allclose(standard_errors(dicts, lists, y).coef, expected.coef[order], rtol=1e-4)
    single = [sparse.csr_matrix(x, dtype=np.float32) for x in X]
    tagger = CRFTagger(**tagger.get_params()).fit(single, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert_allclose(standard_errors(tagger, single, y).coef, expected.coef, rtol=1e-3)


def test_errors_and_warnings():
    X, y = make_data(0)
    tagger = CRFTagger(l2=0.3, tol=1e-12).fit(X, y)
    with pytest.raises(ValueError, match="5 features and 3 labels, the data 4 features"):
        standard_errors(tagger, [x[:, :4] for x in X], y)
    with pytest.raises(ValueError, match="the data 5 features and 2 labels"):
        standard_errors(tagger, X, [np.minimum(labels, 1) for labels in y])
    with pytest.raises(ValueError, match="need sequences in memory"):
        standard_errors(tagger, [RowBlocks(x) for x in X], y)
    for other in (ZScoreTagger(), CRFTaggerCV(cv=2)):
        with pytest.raises(ValueError, match=r"(ZScoreTagger|CV) has no standard errors; use CRF"):
            standard_errors(other.fit(X, y), X, y)
    with pytest.raises(ValueError, match="has no standard errors"):
        standard_errors(SemiCRFSegmenter(), X, y)
    few = pytest.raises(ValueError, match=r"Standard errors of 29 weights need .* MB")
    with few, sklearn.config_context(working_memory=0.001):
        standard_errors(tagger, X, y)
    with pytest.raises(ValueError, match=r"y has unknown labels .*; pass robust=True"):
        standard_errors(tagger, X, [[None, *labels[1:]] for labels in y])
    far = CRFTagger(l2=0.3, max_iter=3, solver="lbfgs", tol=0.5).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="standard errors from the minimum"):
        standard_errors(far, X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        free = CRFTagger(l2=0.0, tol=1e-6, max_iter=20).fit(X, y)
    with pytest.raises(ValueError, match=r"not positive definite: .* scale them, use a larger l2"):
        standard_errors(free, X, y)


def test_robust_is_true_or_false():
    X, y = [np.eye(2)] * 4, [[0, 1], [1, 0]] * 2
    with pytest.raises(ValueError, match="robust must be True or False; got 'yes'"):
        standard_errors(CRFTagger(l2=1.0).fit(X, y), X, y, robust="yes")
