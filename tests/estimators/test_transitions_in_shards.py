"""Transition features in shards: the triples, the objective and the model of the joined data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, Sequences, Shards
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.estimators.sources.shards import ShardError
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.objectives.likelihood.stochastic import (
    ShardedStochasticLikelihood,
    StochasticLikelihood,
)

LABELS = ["A", "B", "O"]
FORMS = ["dense", "float32", "csr", "values", "zeros", "large"]
KINDS = ["known", "partial"]


def data(form, kind="known", seed=0, n=30):
    """(X, y, weights): one sequence is empty, some labels unknown or sets, one weight 0."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, n)
    lengths[3] = 0
    n_rows = lengths.sum()
    rows = (rng.random((n_rows, 6)) < 0.4) * rng.normal(size=(n_rows, 6)).round(1)
    X = Sequences(rows, np.cumsum([0, *lengths]))
    if form == "float32":
        X = X.with_rows(rows.astype(np.float32))
    elif form != "dense":
        X = X.with_rows(sparse_rows(form, rows, rng))
    y = [rng.choice(LABELS, m).tolist() for m in lengths]
    if kind == "partial":
        some = [None, {"A", "O"}, {"B", "O"}, set(LABELS)]
        y = [[c if rng.random() < 0.7 else some[rng.integers(4)] for c in labels] for labels in y]
    weights = rng.integers(1, 4, n) / 2
    weights[5] = 0
    return X, y, weights


def sparse_rows(form, rows, rng):
    csr = sparse.csr_matrix(rows)
    if form == "csr":
        csr.data[:] = 1
    elif form == "zeros":
        csr.data *= rng.random(csr.nnz) < 0.5
    elif form == "large":
        csr = (csr @ sparse.diags_array(np.logspace(-2, 2, 6))).tocsr()
    return csr


def cut(X, y, weights, n):
    at = np.linspace(0, len(y), n + 1).astype(int)
    parts = [(X[a:b], y[a:b], weights[a:b]) for a, b in zip(at, at[1:])]
    return [parts[0], (X[:0], [], weights[:0]), *parts[1:]]


def objective(X, y, weights, tagger, threads, l2=0.3):
    source = open_source(X, y, weights, "auto")
    single = tagger.solver == "adagrad"
    scores = score_map(tagger, source, source.summarise(), single_sequences=single)
    return source.likelihood(scores, l2, threads)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("roles", [[3, 1, 3, 1, 2, 2], None])
def test_objective_and_gradient_are_those_of_the_joined_data(form, kind, roles):
    X, y, weights = data(form, kind)
    tagger = CRFTagger(transition_features=None if roles else [0, 2, 3])
    X = Sequences(X.rows, X.offsets, roles)
    exact = {"rtol": 1e-10, "atol": 1e-10}
    close = {"rtol": 1e-4, "atol": 1e-4} if form == "float32" else exact
    for n_shards, n_jobs, room in [(1, 1, np.inf), (4, 1, 0), (5, 2, np.inf)]:
        with Threads(n_jobs) as threads:
            whole = objective(X, y, weights, tagger, threads)
            shards = cut(X, y, weights, n_shards)
            if kind == "partial":  # nothing is known of a shard
                shards.append((X[:2], [[None] * n for n in X.lengths[:2]], weights[:2]))
            parts = objective(Shards(shards), None, None, tagger, threads)
            parts.max_bytes = room
            assert_array_equal(parts.scores.features.triples, whole.scores.features.triples)
            w = np.random.default_rng(n_shards).normal(size=whole.scores.n_weights)
            given = whole.scores.unpack(w), whole.scores.unpack_triples(w)
            for scale in (1, 0.5, 3):  # the second uses the largest score of the first
                (value, *gradient), (other, *same) = (
                    evaluated(f, scale * f.scores.pack(*given)) for f in (whole, parts)
                )
                assert_allclose(other, value, **close)
                assert_allclose(parts.value(scale * parts.scores.pack(*given)), value, **close)
                for a, b in zip(same, gradient):
                    assert_allclose(a, b, **close)


def evaluated(f, w):
    """The value, and the gradient in the order of the user's weights."""
    gradient = f.scores.new_vector()
    value = f.value_and_gradient(w, gradient)
    return value, *f.scores.unpack(gradient), f.scores.unpack_triples(gradient).toarray()


# Sequences with unknown labels come last in each shard.
@pytest.mark.parametrize(("n_shards", "kind"), [(1, "known"), (1, "partial"), (3, "known")])
@pytest.mark.parametrize("form", ["dense", "csr", "large"])
def test_steps_are_those_in_memory(form, n_shards, kind, monkeypatch):
    X, y, weights = data(form, kind)
    y[0] = [*"ABO" * 3][: X.lengths[0]]
    tagger = CRFTagger(transition_features=[0, 2, 3], solver="adagrad")
    # Random numbers, which begin again with each shard, leave out small steps.
    monkeypatch.setattr("sklseq.objectives.likelihood.stochastic.ALMOST", 0)
    with Threads(1) as threads:
        whole = objective(X, y, weights, tagger, threads)
        parts = objective(Shards(cut(X, y, weights, n_shards)), None, None, tagger, threads)
        steps = StochasticLikelihood(whole, 0.1)
        visits = ShardedStochasticLikelihood(parts, 0.1, parts.scores.new_vector())
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(steps.sequences)
            if n_shards > 1:  # shards are visited one after the other
                order = np.sort(order)
            losses = [one.descend(order, 0.7) for one in (steps, visits)]
            assert_allclose(losses[1], losses[0], rtol=1e-10)
        for name in ("coef", "transition"):
            a, b = (
                getattr(f.scores.unpack(x.w), name) for f, x in ((parts, visits), (whole, steps))
            )
            assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        triples = (
            f.scores.unpack_triples(x.w).toarray() for f, x in ((parts, visits), (whole, steps))
        )
        assert_allclose(*triples, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "parameters",
    [{}, {"l1": 0.2, "solver": "owlqn"}, {"all_possible_transitions": True}, {"solver": "adagrad"},
     {"n_jobs": 2}],
)  # fmt: skip
def test_shards_train_the_model_of_the_joined_data(parameters, kind):
    X, y, weights = data("csr", kind)
    given = {"tol": 1e-8, "transition_features": [0, 2, 3], "random_state": 0, "l2": 1.0}
    together = CRFTagger(**given | {"solver": "lbfgs"} | parameters).fit(X, y, weights)
    apart = CRFTagger(**given | parameters).fit(Shards(cut(X, y, weights, 4)))
    assert_allclose(apart.objective_, together.objective_, rtol=1e-7)
    if kind == "known":  # else there may be several minima
        triples = (one.transition_coef_.toarray() for one in (apart, together))
        assert_allclose(*triples, atol=1e-3)
    assert apart.transition_coef_.nnz > 5
    again = CRFTagger(**given, warm_start=True).fit(X, y, weights)
    again.fit(Shards(cut(X, y, weights, 3)))
    assert again.n_iter_ < 10


def test_threads_share_out_sequences_of_each_shard():
    X, y, weights = data("csr", n=700)
    given = {"solver": "adagrad", "transition_features": [0, 1], "tol": 1e-5}
    parts = Shards(cut(X, y, weights, 3))
    one, two, again = (CRFTagger(n_jobs=n, **given).fit(parts) for n in (1, 2, 2))
    assert_array_equal(two.transition_coef_.toarray(), again.transition_coef_.toarray())
    assert_allclose(two.objective_, one.objective_, rtol=2e-5)


def test_roles_of_saved_rows_and_names_of_dicts(tmp_path):
    rng = np.random.default_rng(0)
    words = [rng.choice([*"abcd"], rng.integers(1, 7)).tolist() for _ in range(40)]
    y = [[("N", "V")[(w in "ab") ^ (k % 2)] for k, w in enumerate(x)] for x in words]
    given = {"tol": 1e-8, "solver": "lbfgs"}
    rows = TemplateFeatures("U00:%x[0,0]\nB\nB01:%x[0,0]", bos_eos=False).fit_transform(words)
    for k in range(4):
        rows[k::4].save(tmp_path / f"{k}.npz", y[k::4])
    saved, whole = CRFTagger(**given).fit(Shards(tmp_path)), CRFTagger(**given).fit(rows, y)
    assert_allclose(saved.transition_coef_.toarray(), whole.transition_coef_.toarray(), atol=1e-4)
    assert saved.predict(Shards(tmp_path)) == [
        labels for k in range(4) for labels in whole.predict(rows[k::4])
    ]
    dicts = [[{"w": w, "bias": 1} for w in x] for x in words]
    of_names = CRFTagger(transition_features="^w", **given)
    named = of_names.fit(Shards([(dicts[k::4], y[k::4]) for k in range(4)]))
    found = named.top_transition_features(4)
    order = [s for k in range(4) for s in range(k, 40, 4)]
    again = CRFTagger(**of_names.get_params()).fit([dicts[s] for s in order], [y[s] for s in order])
    for mine, theirs in zip(found, again.top_transition_features(4)):
        assert mine[1:] == theirs[1:]
        assert_allclose(mine[0], theirs[0], atol=1e-4)


def test_shards_with_other_roles_are_named():
    X, y, _ = data("csr")
    parts = [(Sequences(X.rows, X.offsets, roles), y) for roles in ([3, *[1] * 5], [1] * 6, None)]
    with pytest.raises(ShardError, match="Shard 1: its columns have other roles than those of"):
        CRFTagger().fit(Shards(parts))
    assert not hasattr(CRFTagger().fit(Shards(parts[1:])), "roles_")


def test_roles_that_change_are_refused():
    X, y, _ = data("csr")
    roles = iter([[3] * 6, [3] * 6, [3, *[1] * 5]])
    with pytest.raises(ShardError, match="other rows, labels or weights than at the first"):
        CRFTagger().fit(
            Shards([lambda: (Sequences(X.rows, X.offsets, next(roles)), y)], max_memory="1MB")
        )


def test_stored_zeros_count():
    dicts = [[{"a": 0.0, "b": 1}, {"a": 0.0}, {"a": 2.0}]] * 4
    y = [["N", "V", "N"]] * 4
    X = DictFeatures().fit_transform(dicts)
    given = CRFTagger(transition_features=[0], tol=1e-6)
    nnz = [
        len(one.transition_coef_.indices)
        for one in (given.fit(Shards([(X, y)])), CRFTagger(**given.get_params()).fit(X, y))
    ]
    assert nnz[0] == nnz[1]
