"""Objectives that estimators report, against those of their fitted weights, by slow recursions."""

import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, HMSVMTagger, SemiCRFSegmenter, Sequences, Shards
from tests import reference
from tests.sample_data import make_sparse_data

SOLVERS = ("auto", "eg", "dual", "adagrad", "lbfgs", "owlqn")


def chains(model, X):
    """(emission, transition, start, end) of each sequence, in float64."""
    emission, transition, start, end, offsets = model.potentials(X)
    for a, b in zip(offsets[:-1], offsets[1:]):
        yield [x.astype(np.float64) for x in (emission[a:b], transition, start, end)]


def losses(model, X, y):
    """-log p of each sequence."""
    codes = [np.searchsorted(model.classes_, labels) for labels in y]
    return np.array(
        [
            reference.forward_backward(*chain)[0] - reference.score_path(path, *chain)
            for chain, path in zip(chains(model, X), codes)
        ]
    )


def weights_of(model):
    parts = [model.coef_, model.transition_, model.start_, model.end_]
    parts += [model.intercept_] if hasattr(model, "intercept_") else []
    w = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])
    return w[np.isfinite(w)]


def penalties(model):
    w = weights_of(model)
    return model.l1 * np.abs(w).sum() + model.l2 * (w @ w)


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


def random_fit(seed, solver):
    """A tagger fitted in one of the ways that there are, and the data of its objective."""
    rng = np.random.default_rng(seed)
    L = int(rng.choice([2, 3, 5]))
    X, y = make_sparse_data(seed, n=20, L=L)
    l1 = 0.0 if solver == "lbfgs" else float(rng.choice([0, 0.1, 2]))
    model = CRFTagger(
        solver=solver, l1=l1, l2=float(rng.choice([1e-3, 0.1, 1, 30])), random_state=seed,
        tol=float(rng.choice([1e-1, 1e-3, 1e-6])), max_iter=int(rng.choice([1, 5, 15, 300])),
        all_possible_states=bool(rng.random() < 0.5), boundaries=bool(rng.random() < 0.7),
    )  # fmt: skip
    weight = rng.integers(0, 3, len(X)).astype(float)
    weight[:2] = 1
    if rng.random() < 0.3:
        y = [np.maximum.accumulate(labels) for labels in y]
        n = len(np.unique(np.concatenate(y)))
        model.constraints = np.triu(np.ones((n, n), bool))
    how = rng.choice(["plain", "dense", "float32", "shards", "emp", "early"])
    if how == "dense":
        X = Sequences(X.rows.toarray(), X.offsets)
    if how == "float32":
        X = X.with_rows(X.rows.astype(np.float32))
    if how == "shards" and solver not in ("eg", "dual"):
        return quietly(model, Shards([(X[:9], y[:9], weight[:9]), (X[9:], y[9:], weight[9:])])), (
            X,
            y,
            weight,
        )
    if how == "emp" and solver not in ("eg", "dual", "adagrad"):
        model.gradient = "emp"
    if how == "early":
        model.early_stopping, weight = True, np.ones(len(X))
    quietly(model, X, y, weight)
    if how == "early":
        from sklseq.estimators.crf.early_stopping import EarlyStopping

        lengths = np.array([len(labels) for labels in y])
        weight[EarlyStopping(model, lengths, weight).aside] = 0
    return model, (X, y, weight)


def check_objective(seed, solver):
    model, (X, y, weight) = random_fit(seed, solver)
    expected = weight @ losses(model, X, y) + penalties(model)
    rtol = 1e-4 if model.coef_.dtype == np.float32 else 1e-9
    assert_allclose(model.objective_, expected, rtol=rtol, atol=1e-6)
    if not model.early_stopping:
        assert model.loss_curve_[-1] == model.objective_
    assert min(model.loss_curve_) <= model.loss_curve_[0]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(8))
def test_the_objective_is_that_of_the_fitted_weights(seed, solver):
    check_objective(seed, solver)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_verbose_names_the_solver_and_prints_objectives(solver, l2, capsys):
    X, y = make_sparse_data(0, n=2500 if solver == "auto" else 30)  # auto: 10,000 rows
    model = CRFTagger(solver=solver, l2=l2, tol=1e-2, verbose=1).fit(X, y)
    lines = re.findall(r"iteration (\d+) \((\w+)\): objective (\S+)", capsys.readouterr().out)
    assert [int(k) for k, _, _ in lines] == list(range(1, model.n_iter_ + 1))
    assert float(lines[-1][2]) == pytest.approx(model.objective_, abs=1e-6)
    auto = "dual" if l2 == 1 else "adagrad"
    assert lines[0][1] == {"auto": auto, "owlqn": "lbfgs", "eg": "dual"}.get(solver, solver)


def test_partial_fit_reports_losses_before_its_steps():
    X, y = make_sparse_data(0)
    model = CRFTagger(l1=0.1, l2=0.5).partial_fit(X[:20], y[:20], classes=[0, 1, 2])
    for s in range(20, 30):
        before = losses(model, X[s : s + 1], y[s : s + 1])
        model.partial_fit(X[s : s + 1], y[s : s + 1], sample_weight=[2.0])
        assert_allclose(model.objective_, 2 * before.sum(), rtol=1e-9)
        assert model.loss_curve_[-1] == model.objective_


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [
    {"solver": "bcfw"}, {"solver": "bcfw", "average": True}, {"solver": "working_set"},
    {"solver": "bcfw", "slack": "l2"}, {"solver": "bcfw", "boundaries": False},
], ids=str)  # fmt: skip
def test_the_margin_objective_is_that_of_the_fitted_weights(seed, options):
    X, y = make_sparse_data(seed)
    weight = np.random.default_rng(seed).integers(1, 4, len(X)) / 2
    model = quietly(HMSVMTagger(C=0.7, max_iter=3, random_state=seed, **options), X, y, weight)
    slack = []
    for chain, path in zip(chains(model, X), y):
        wrong = np.ones_like(chain[0])
        wrong[np.arange(len(path)), path] = 0
        worst = reference.viterbi(chain[0] + wrong, *chain[1:])[1]
        slack.append(max(0, worst - reference.score_path(path, *chain)))
    slack, w = np.array(slack), weights_of(model)
    total = 0.7 * weight @ (slack**2 if options.get("slack") == "l2" else slack)
    assert_allclose(model.objective_, 0.5 * w @ w + total, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_the_segmenter_objective_is_that_of_the_fitted_weights(seed, l1):
    X, _ = make_sparse_data(seed)
    rng = np.random.default_rng(seed)
    y = [[(int(k), int(k) + 1, "ab"[rng.integers(2)])] for k in rng.integers(0, X.lengths)]
    weight = rng.integers(1, 4, len(X)).astype(float)
    model = SemiCRFSegmenter(l1=l1, l2=0.2, max_iter=int(rng.choice([3, 300])))
    quietly(model, X, y, weight)
    expected = penalties(model) - weight @ model.predict_log_proba_sequence(X, y)
    assert_allclose(model.objective_, expected, rtol=1e-9)
    assert model.loss_curve_[-1] == model.objective_
