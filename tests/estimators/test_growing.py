"""Training on a growing set of weights against training of all weights at once."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import CRFTagger, CRFTaggerCV, Sequences, Shards
from sklseq.data.sequences import STATE, TRANSITION
from sklseq.estimators.crf import crf_path, growing
from sklseq.objectives.likelihood.sharded import ShardedLogLikelihood

ALL = {"all_possible_states": True, "all_possible_transitions": True}


def problem(seed, n=25, n_columns=150, L=4, pairs=True, dtype=np.float64):
    """Sequences of labels that last, rows of attributes most of which are rare."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, n)
    X, y = [], []
    for T in lengths:
        labels = np.repeat(rng.integers(0, L, T), rng.integers(1, 4, T))[:T]
        column = np.minimum(rng.zipf(1.5, (T, 3)) - 1, n_columns // 2 - 1) * 2 + labels[:, None] % 2
        column[:, 2] = rng.integers(0, n_columns, T)
        rows = np.zeros((T, n_columns))
        np.put_along_axis(rows, column, rng.choice([1.0, 0.5, 2.0], (T, 3)), axis=1)
        X.append(sparse.csr_matrix(rows.astype(dtype)))
        y.append(labels.tolist())
    roles = np.where(rng.random(n_columns) < 0.3, STATE | TRANSITION, STATE).astype(np.uint8)
    offsets = np.append(0, np.cumsum(lengths))
    return Sequences(sparse.vstack(X, format="csr"), offsets, roles if pairs else None), y


@pytest.fixture
def grown(monkeypatch):
    """Let all problems grow; the list gets (weights of the set, all weights) of each set."""
    monkeypatch.setattr(growing, "MANY", 1)
    monkeypatch.setattr(growing, "FEW", 0.9)
    sizes, train = [], growing.Growth.train

    def counted(self, tol):
        sizes.append((len(self.at), len(self.w)))
        return train(self, tol)

    monkeypatch.setattr(growing.Growth, "train", counted)
    return sizes


def at_once(X, y, sample_weight=None, **parameters):
    """The same model, trained without growth to a much smaller tolerance."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "MANY", np.inf)
        return CRFTagger(tol=1e-8, solver="lbfgs", **parameters).fit(X, y, sample_weight)


@cache
def least(seed, pairs, l1, l2):
    """The minimum of the objective."""
    return at_once(*problem(seed, pairs=pairs), l1=l1, l2=l2, **ALL).objective_


@pytest.mark.parametrize("l1", [0.0, 0.3])
@pytest.mark.parametrize("l2", [3.0, 0.03])
@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
def test_objective_is_within_tol_of_the_minimum(grown, solver, tol, l2, l1):
    for seed, pairs in ((0, True), (1, False)):
        model = CRFTagger(solver=solver, tol=tol, l1=l1, l2=l2, random_state=0, **ALL)
        found, best = model.fit(*problem(seed, pairs=pairs)).objective_, least(seed, pairs, l1, l2)
        assert best * (1 - 1e-8) <= found <= best * (1 + tol)
    assert all(k < n for k, n in grown)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_objective_is_that_of_the_fitted_weights(grown, dtype):
    X, y = problem(2, dtype=dtype)
    tagger = CRFTagger(l2=0.5, l1=0.1, tol=1e-3, solver="lbfgs", **ALL).fit(X, y)
    weights = [tagger.coef_, tagger.transition_, tagger.start_, tagger.end_]
    weights = np.concatenate([*(x.ravel() for x in weights), tagger.transition_coef_.data])
    penalty = 0.5 * np.square(weights, dtype=float).sum() + 0.1 * np.abs(weights).sum()
    loss = -tagger.predict_log_proba_sequence(X, y).sum()
    assert_allclose(tagger.objective_, loss + penalty, rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert tagger.loss_curve_[-1] == tagger.objective_
    assert len(tagger.loss_curve_) == tagger.n_iter_ + 1
    assert tagger.coef_.dtype == dtype


def test_few_weights_of_unseen_events_are_trained_at_a_coarse_tolerance(grown):
    X, y = problem(3, n_columns=2000)
    tagger = CRFTagger(l2=1.0, tol=0.05, solver="lbfgs", **ALL).fit(X, y)
    (first, n), (last, _) = grown[0], grown[-1]
    assert first < last < 0.5 * n
    trained = np.count_nonzero(tagger.coef_) + tagger.transition_coef_.nnz
    assert trained <= last


@pytest.mark.parametrize("states", [True, False])
@pytest.mark.parametrize("transitions", [True, False])
def test_only_weights_that_the_parameters_ask_for_are_trained(grown, states, transitions):
    X, y = problem(4)
    model = {"all_possible_states": states, "all_possible_transitions": transitions}
    tagger = CRFTagger(l2=0.1, tol=1e-7, solver="lbfgs", **model).fit(X, y)
    best = at_once(X, y, l2=0.1, **model)
    assert_allclose(tagger.objective_, best.objective_, rtol=1e-6)
    assert_allclose(tagger.coef_, best.coef_, atol=1e-2)
    extra = tagger.transition_coef_.toarray()[best.transition_coef_.toarray() == 0]
    assert not extra.any()


def test_constraints_weights_and_boundaries(grown):
    X, y = problem(5)
    allowed = np.eye(4, dtype=bool)
    allowed[0] = allowed[:, 0] = True  # no label but 0 between other labels
    y = [[c if allowed[b, c] else 0 for b, c in zip([0, *labels], labels)] for labels in y]
    model = {"l2": 0.2, "boundaries": False, "constraints": allowed, **ALL}
    weight = np.random.default_rng(0).random(len(X)) * (np.arange(len(X)) % 7 > 0)
    tagger = CRFTagger(tol=1e-4, **model).fit(X, y, sample_weight=weight)
    best = at_once(X, y, weight, **model)
    assert grown
    assert tagger.objective_ <= best.objective_ * (1 + 1e-4)


def test_too_few_iterations_warn(grown):
    X, y = problem(6)
    for limit in (1, 12, 25):
        with pytest.warns(UserWarning, match="did not converge"):
            tagger = CRFTagger(l2=0.01, tol=1e-8, max_iter=limit, solver="lbfgs", **ALL).fit(X, y)
        assert tagger.n_iter_ == limit


def test_warm_start_begins_at_all_weights_of_the_previous_fit(grown):
    X, y = problem(7)
    tagger = CRFTagger(l2=0.1, tol=1e-6, solver="lbfgs", warm_start=True, **ALL).fit(X, y)
    before, n = tagger.objective_, tagger.n_iter_
    tagger.fit(X, y)
    assert tagger.loss_curve_[0] == pytest.approx(before, rel=1e-9)
    assert tagger.n_iter_ < n / 2
    assert tagger.objective_ <= before * (1 + 1e-12)


def test_several_threads(grown):
    X, y = problem(8)
    one, two = (
        CRFTagger(l2=0.5, tol=1e-6, solver="lbfgs", n_jobs=n, **ALL).fit(X, y) for n in (1, 2)
    )
    assert_allclose(one.objective_, two.objective_, rtol=1e-9)


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
@pytest.mark.parametrize("tol", [1e-2, 1e-5])
def test_paths_of_penalties_go_on_with_the_set(grown, monkeypatch, tol, solver):
    solved, solve = [], crf_path.CRFProblem.solve

    def recorded(self):
        result = solve(self)
        solved.append((self.l1, self.l2, self.source, result, self.growth))
        return result

    monkeypatch.setattr(crf_path.CRFProblem, "solve", recorded)
    X, y = problem(9)
    penalties = {"l2s": [0.03, 0.3, 3.0], "l1s": [0.0, 0.3]}
    model = CRFTaggerCV(cv=2, solver=solver, tol=tol, random_state=0, **penalties, **ALL)
    model.fit(X, y)
    assert len(solved) == 2 * 6 + 1
    n_cold = 0
    for l1, l2, source, result, growth in solved[:6]:
        labels = source.labels_of(np.arange(len(source.X)))
        best = at_once(source.X, labels, l1=l1, l2=l2, **ALL).objective_
        assert best * (1 - 1e-8) <= result.value <= best * (1 + tol)
        cold = CRFTagger(solver=solver, tol=tol, l1=l1, l2=l2, random_state=0, **ALL)
        n_cold += cold.fit(source.X, labels).n_iter_
        assert result.converged
        assert growth.part.growth is None  # earlier sets are not kept
    assert sum(result.n_iter for *_, result, _ in solved[:6]) < 0.8 * n_cold


@pytest.mark.parametrize("tol", [0.5, 0.2, 1e-2, 1e-4, 1e-9, 0.0])
def test_tolerances_fall_to_tol(tol):
    found = growing.tolerances(tol)
    assert found[-1] == tol
    assert (np.diff(found) < 0).all()
    if 0 < tol < growing.FIRST:
        assert found[0] == growing.FIRST
        steps = np.array(found[:-1]) / found[1:]
        assert (steps <= growing.STEP * (1 + 1e-9)).all()


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_shards_grow_as_rows_in_memory(grown, monkeypatch, solver, l1):
    X, y = problem(0)
    shards = Shards([(X[:9], y[:9]), (X[9:], y[9:])])
    made = []
    begin = ShardedLogLikelihood.__init__

    def noted(self, *args):
        made.append(self)
        begin(self, *args)

    monkeypatch.setattr(ShardedLogLikelihood, "__init__", noted)
    model = CRFTagger(solver=solver, tol=1e-5, l1=l1, l2=0.03, random_state=0, **ALL).fit(shards)
    best = least(0, True, l1, 0.03)
    assert best * (1 - 1e-8) <= model.objective_ <= best * (1 + 1e-5)
    assert grown
    assert all(k < n for k, n in grown)
    # Only one likelihood at a time keeps shards in memory.
    assert len(made) == 1 + len(grown)
    assert [sorted(one.kept) for one in made] == [[]] * len(grown) + [[0, 1]]


def test_dense_shards_train_all_weights_at_once(grown):
    X, y = problem(0)
    dense = Sequences(X.rows.toarray(), X.offsets, X.roles)
    CRFTagger(tol=1e-2, **ALL).fit(Shards([(dense, y)]))
    assert not grown
