"""Data in shards: files, training, prediction, and everything that can be wrong with them."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import PredefinedSplit

from sklseq import CRFTagger, HMSVMTagger, Sequences, Shards
from sklseq._lib.threads import Threads
from sklseq.data.store import ALIGNMENT, Stored, read_stored, write_stored
from sklseq.estimators.sources.shards import ShardError, as_bytes
from sklseq.features import DictFeatures

# Sums of some 1e4 terms in another order, and what a converged solver makes of the difference.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
FORMS = ["dense", "float32", "csr", "values"]


def tokens(n=60, seed=0):
    """Sequences of dicts, some empty, with labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = [[{"a": f"v{rng.integers(12)}", "b": "uv"[rng.random() < 0.5]}
          for _ in range(rng.integers(0, 9))] for _ in range(n)]  # fmt: skip
    y = [[("B" if t["b"] == "v" else "A") + t["a"][-1] for t in x] for x in X]
    return X, [[label if rng.random() < 0.8 else "A0" for label in labels] for labels in y]


def packed(form="csr", n=60, seed=0):
    X, y = tokens(n, seed)
    X = DictFeatures().fit_transform(X)
    if form == "values":
        rows = X.rows.copy()
        rows.data = np.random.default_rng(1).normal(size=rows.nnz)
        return X.with_rows(rows), y
    if form == "csr":
        return X, y
    return X.with_rows(X.rows.toarray().astype(np.float32 if form == "float32" else float)), y


def cut(X, y, n):
    size = -(-len(y) // n)
    return [(X[a : a + size], y[a : a + size]) for a in range(0, len(y), size)]


@pytest.fixture
def saved(tmp_path):
    """A folder of four shards, and all of them together."""
    X, y = packed()
    for k, (rows, labels) in enumerate(cut(X, y, 4)):
        rows.save(tmp_path / f"{k}.npz", labels)
    return tmp_path, X, y


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_load_gives_what_was_saved(tmp_path, form, mmap):
    X, y = packed(form)
    X.save(tmp_path / "a.npz", y, np.arange(len(y)))
    Z, labels = Sequences.load(tmp_path / "a.npz", mmap=mmap, return_y=True)
    same = (Z.rows != X.rows).nnz == 0 if X.is_sparse else (Z.rows == X.rows).all()
    assert same
    assert Z.dtype == X.dtype
    np.testing.assert_array_equal(Z.offsets, X.offsets)
    assert labels == y
    np.testing.assert_array_equal(read_stored(tmp_path / "a.npz").weights, np.arange(len(y)))


def test_rows_are_mapped_where_they_lie(tmp_path):
    X, y = packed("dense")
    X.save(tmp_path / "a.npz", y)
    rows = Sequences.load(tmp_path / "a.npz").rows
    assert isinstance(rows, np.memmap)
    assert rows.offset % ALIGNMENT == 0
    assert not rows.flags.writeable
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["rows"], X.rows)


def test_ones_are_not_stored(tmp_path):
    X, _ = packed("csr")
    X.save(tmp_path / "a.npz")
    assert np.load(tmp_path / "a.npz")["data"].size == 0
    assert Sequences.load(tmp_path / "a.npz", return_y=True)[1] is None


@pytest.mark.parametrize("labels", [[[1, 2], [2]], [[True, False], [True]], [["ä", "b"], ["ä"]]])
def test_labels_keep_their_kind(tmp_path, labels):
    Sequences(np.zeros((3, 1)), [0, 2, 3]).save(tmp_path / "a.npz", labels)
    y = Sequences.load(tmp_path / "a.npz", return_y=True)[1]
    assert y == labels
    assert {type(label) for row in y for label in row} == {type(labels[0][0])}


SOME = ["b", None, {"a", "c"}, {"a", "b", "c"}]


@pytest.mark.parametrize("kind", [str, int])
@pytest.mark.parametrize("mmap", [True, False])
def test_unknown_labels_are_saved(tmp_path, kind, mmap):
    number = {"a": 1, "b": 2, "c": 3}
    as_kind = (lambda label: label) if kind is str else number.get
    y = [[{*map(as_kind, x)} if isinstance(x, set) else as_kind(x) for x in SOME], [None], []]
    X = Sequences(np.arange(5.0)[:, None], [0, 4, 5, 5])
    X.save(tmp_path / "a.npz", y)
    labels = Sequences.load(tmp_path / "a.npz", mmap=mmap, return_y=True)[1]
    assert labels == y
    X[1:].save(tmp_path / "a.npz", y[1:])  # nothing is known
    labels = Sequences.load(tmp_path / "a.npz", mmap=mmap, return_y=True)[1]
    assert labels == y[1:]


def test_files_of_unknown_labels_are_shards(tmp_path):
    # In the first file a set of all its labels, but not of all; in the second no label is known.
    rng = np.random.default_rng(0)
    y = [SOME * 3, ["a", "c", None, {"c", "b"}] * 2, [None] * 4, ["d", "a", None]]
    X = Sequences(rng.normal(size=(27, 3)), [0, 12, 20, 24, 27])
    cuts = [slice(0, 2), slice(2, 3), slice(3, 4)]
    weights = [1, 2, 1, 1]
    for k, cut in enumerate(cuts):
        X[cut].save(tmp_path / f"{k}.npz", y[cut], weights[cut])
    whole = CRFTagger(tol=1e-8).fit(X, y, weights)
    tagger = CRFTagger(tol=1e-8).fit(Shards(tmp_path))
    np.testing.assert_allclose(tagger.coef_, whole.coef_, atol=1e-4)
    assert tagger.objective_ == pytest.approx(whole.objective_, rel=1e-6)
    assert tagger.score(Shards(tmp_path)) == pytest.approx(whole.score(X, y, weights))


@pytest.mark.parametrize("shape", [(0, 3), (0, 0)])
def test_no_rows(tmp_path, shape):
    Sequences(np.zeros(shape), [0, 0]).save(tmp_path / "a.npz", [[]])
    X, y = Sequences.load(tmp_path / "a.npz", return_y=True)
    assert X.rows.shape == shape
    assert len(y) == 1


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    X, y = packed("dense")
    X.save(tmp_path / "a.npz", y)
    before = (tmp_path / "a.npz").read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("numpy.lib.format.write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        X[:2].save(tmp_path / "a.npz", y[:2])
    assert (tmp_path / "a.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path, share):
    X, y = packed("csr")
    X.save(tmp_path / "a.npz", y)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"a\.npz' is not a complete \.npz file.*Sequences\.save"):
        Sequences.load(tmp_path / "a.npz")


def test_foreign_and_newer_files_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", rows=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="holds no Sequences"):
        Sequences.load(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", sklseq=99, offsets=[0])
    with pytest.raises(ValueError, match=r"version 99.*install a newer one"):
        Sequences.load(tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        Sequences.load(tmp_path / "b.npz")
    with pytest.raises(ValueError, match=r"saved as \.npz files"):
        Sequences(np.zeros((1, 1)), [0, 1]).save(tmp_path / "rows.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codes": np.array([7, 0], np.uint8)}, "labels out of range"),
        ({"codes": np.array([0], np.uint8)}, "1 labels for 2 rows"),
        ({"offsets": np.array([0, 3])}, "offsets end at 3 instead of 2"),
        ({"table": np.ones((1, 1), bool), "codes": np.ones(2, np.uint8)}, "the table of label"),
        ({"table": np.ones((2, 2), bool)}, "the table of label sets is invalid"),
        ({"table": np.eye(2, 1, dtype=bool)}, "the table of label sets is invalid"),
        ({"table": np.ones((2, 1), bool), "codes": np.full(2, 2, np.uint8)}, "labels out of range"),
    ],
)
def test_damaged_content_is_refused(tmp_path, change, message):
    good = Stored(np.zeros((2, 1)), np.array([0, 2]), np.array(["a"]), np.zeros(2, np.uint8), None)
    write_stored(tmp_path / "a.npz", good._replace(**change))
    with pytest.raises(ValueError, match=f"corrupt: {message}"):
        Sequences.load(tmp_path / "a.npz")


def test_columns_out_of_range_are_refused(tmp_path):
    # Kernels would read memory that is not theirs.
    members = dict(sklseq=1, offsets=[0, 1], indptr=[0, 1], shape=[1, 2], data=np.zeros(0))
    np.savez(tmp_path / "a.npz", indices=np.array([2], np.int32), **members)
    with pytest.raises(ValueError, match="column numbers out of range"):
        Sequences.load(tmp_path / "a.npz")


def test_save_checks_labels_and_rows(tmp_path):
    X = Sequences(np.zeros((2, 1)), [0, 2])
    with pytest.raises(ValueError, match="2 rows in X but 1 label in y"):
        X.save(tmp_path / "a.npz", [["a"]])
    with pytest.raises(ValueError, match="X must be finite"):
        Sequences(np.full((2, 1), np.nan), [0, 2]).save(tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------- training


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("l1", [0.0, 0.3])
@pytest.mark.parametrize("form", FORMS)
def test_shards_train_the_model_of_all_data_together(form, l1, n_jobs):
    X, y = packed(form)
    tight = {"rtol": 1e-3, "atol": 1e-3} if form == "float32" else {"rtol": 1e-6, "atol": 1e-6}
    solver = {"l1": l1, "n_jobs": n_jobs, "tol": 1e-5 if form == "float32" else 1e-10}
    together = CRFTagger(solver="owlqn" if l1 else "lbfgs", **solver).fit(X, y)
    for n in (1, 3, 7):
        apart = CRFTagger(**solver).fit(Shards(cut(X, y, n)))
        np.testing.assert_allclose(apart.objective_, together.objective_, rtol=tight["rtol"])
        np.testing.assert_allclose(apart.coef_, together.coef_, **tight)
        assert apart.coef_.dtype == together.coef_.dtype


@pytest.mark.parametrize(
    "parameters",
    [
        {"all_possible_states": True},
        {"all_possible_transitions": True, "boundaries": False},
        {"constraints": np.ones((2, 2), bool)},
    ],
)
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_parameters_mean_the_same(form, parameters):
    X, y = packed(form)
    y = [[label[0] for label in labels] for labels in y]
    together = CRFTagger(solver="lbfgs", tol=1e-10, **parameters).fit(X, y)
    apart = CRFTagger(tol=1e-10, **parameters).fit(Shards(cut(X, y, 4)))
    np.testing.assert_allclose(apart.coef_, together.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(apart.transition_, together.transition_, rtol=1e-6, atol=1e-6)


def objective(shards, l2=0.5, n_jobs=None, solver="auto"):
    from sklseq.estimators.crf.crf_problem import score_map
    from sklseq.estimators.sources.shard_source import LocalShardSource

    source = LocalShardSource(shards)
    summary = source.summarise()
    scores = score_map(CRFTagger(), source, summary, single_sequences=solver == "adagrad")
    return source.likelihood(scores, l2, Threads(n_jobs))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["dense", "csr", "values"])
def test_value_and_gradient_are_those_of_one_shard(form, seed):
    X, y = packed(form, seed=seed)
    one, many = objective(Shards([(X, y)])), objective(Shards(cut(X, y, 5)))
    w = np.random.default_rng(seed).normal(size=one.scores.n_weights)
    g, h = np.zeros((2, len(w)))
    np.testing.assert_allclose(
        many.value_and_gradient(w, h), one.value_and_gradient(w, g), rtol=1e-12
    )
    np.testing.assert_allclose(h, g, **CLOSE)
    np.testing.assert_allclose(many.value(w), many.value_and_gradient(w, h), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few passes
@pytest.mark.parametrize(
    "parameters", [{}, {"l1": 0.3}, {"all_possible_states": True}, {"l2": 0.0, "l1": 0.5}]
)
@pytest.mark.parametrize("form", [*FORMS, "large"])
def test_sequences_of_one_shard_are_visited_as_those_in_memory(form, parameters):
    X, y = packed("values" if form == "large" else form)
    if form == "large":
        X = X.with_rows((X.rows @ sparse.diags(np.logspace(-2, 3, X.shape[1]))).tocsr())
    stochastic = {"solver": "adagrad", "tol": 1e-3, "max_iter": 7, "random_state": 3}
    together = CRFTagger(**stochastic, **parameters).fit(X, y)
    one = CRFTagger(**stochastic, **parameters).fit(Shards([(X, y)]))
    np.testing.assert_allclose(one.coef_, together.coef_, rtol=1e-6, atol=1e-9)
    assert one.coef_.dtype == together.coef_.dtype


@pytest.mark.parametrize("seed", range(3))
def test_visits_to_many_shards(seed):
    X, y = packed("csr", seed=seed)
    parts = [(X[:0], []), *cut(X, y, 5), ([], [])]
    best = CRFTagger(solver="lbfgs", tol=1e-10).fit(X, y)
    rough = CRFTagger(solver="adagrad", tol=1e-3).fit(Shards(parts))
    assert rough.n_iter_ <= 60
    assert best.objective_ <= rough.objective_ <= 1.001 * best.objective_
    exact = CRFTagger(solver="adagrad", tol=1e-10).fit(Shards(parts))
    np.testing.assert_allclose(exact.coef_, best.coef_, rtol=1e-5, atol=3e-5)


def rows_that_lack_features(seed):
    """Sixteen sequences; each successive two have some of three columns only. The first column
    occurs with one label, so it is sparse; the second is dense, as it occurs with all labels."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(6, size=rng.integers(2, 9)) for _ in range(16)]
    kinds = np.repeat(rng.permutation(list(np.ndindex(2, 2, 2))), 2, axis=0)
    columns = [np.column_stack((v == 0, v >= 0, v < 2)) * kind for v, kind in zip(y, kinds)]
    return Sequences.from_list([sparse.csr_matrix(x, dtype=float) for x in columns]), y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("chosen", [None, [0], [1, 2]])
def test_visits_to_shards_that_lack_features(seed, chosen):
    X, y = rows_that_lack_features(seed)
    given = {"transition_features": chosen, "tol": 1e-9}
    best = CRFTagger(solver="lbfgs", **given).fit(X, y)
    found = CRFTagger(solver="adagrad", **given).fit(Shards(cut(X, y, 8)))
    assert found.solver_ == "adagrad+lbfgs"
    np.testing.assert_allclose(found.objective_, best.objective_, rtol=1e-8)


def test_threads_share_out_the_sequences_of_each_shard():
    X, y = packed(n=810)
    parts = cut(X, y, 3)
    given = {"l2": 1, "solver": "adagrad", "max_iter": 60, "tol": 1e-4, "all_possible_states": True}
    one, two, again = (CRFTagger(n_jobs=n, **given).fit(Shards(parts)) for n in (1, 2, 2))
    np.testing.assert_array_equal(two.coef_, again.coef_)
    assert not np.array_equal(one.coef_, two.coef_)
    np.testing.assert_allclose(two.objective_, one.objective_, rtol=2e-4)


def test_a_pass_visits_every_sequence_and_reads_every_shard_once(saved):
    from sklseq.objectives.likelihood.stochastic import ShardedStochasticLikelihood

    folder, X, _ = saved
    f = objective(Shards(folder), solver="adagrad")
    f.max_bytes = 0
    visits = ShardedStochasticLikelihood(f, 0.0, f.scores.new_vector())
    filled = X.lengths > 0
    np.testing.assert_array_equal(visits.sequences, np.flatnonzero(filled))
    before = f.n_reads
    order = np.random.default_rng(0).permutation(visits.sequences)
    visits.descend(order, 1.0)
    assert f.n_reads == before + 4
    assert visits.steps.n_updates == len(order)
    assert [k for k, _ in visits._by_shard(np.array([40, 2, 50, 41, 3]))] == [2, 0, 3]
    assert [list(mine) for _, mine in visits._by_shard(np.array([40, 2, 50, 41, 3]))] == [
        [40, 41],
        [2, 3],
        [50],
    ]


@pytest.mark.parametrize("form", ["dense", "csr", "dicts"])
def test_functions_may_fill_the_same_memory_again(form):
    """Shards of one length, as CSR with as many values in each row; each has its own weights."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(4, 50, 3)), rng.random((4, 5))
    y = (X[:, :, 0] + rng.normal(size=(4, 50)) > 0).astype(int).reshape(4, 5, 10)
    rows, of_sequences = np.empty((50, 3)), np.empty(5)
    matrix = sparse.csr_matrix(np.ones((50, 3)))
    matrix.data = rows.reshape(-1)

    def as_dicts(rows):
        return [[dict(zip("abc", row)) for row in x] for x in rows.reshape(5, 10, 3)]

    def read(k):
        rows[:], of_sequences[:] = X[k], weights[k]
        given = matrix if form == "csr" else rows
        given = as_dicts(rows) if form == "dicts" else Sequences(given, np.arange(0, 51, 10))
        return given, list(y[k]), of_sequences

    parts = [(list(X[k].reshape(5, 10, 3)), list(y[k]), weights[k]) for k in range(4)]
    expected = CRFTagger(l2=0.1, tol=1e-6).fit(Shards(parts))
    found = CRFTagger(l2=0.1, tol=1e-6).fit(Shards([lambda k=k: read(k) for k in range(4)]))
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-4)


def test_what_does_not_fit_is_read_again(saved):
    folder, _, _ = saved
    roomy, tight = objective(Shards(folder)), objective(Shards(folder))
    tight.max_bytes = 0
    w = np.random.default_rng(0).normal(size=roomy.scores.n_weights)
    g, h = np.zeros((2, len(w)))
    for _ in range(3):
        assert tight.value_and_gradient(w, h) == roomy.value_and_gradient(w, g)
        np.testing.assert_array_equal(h, g)
    assert (roomy.n_reads, tight.n_reads) == (4, 12)
    assert (len(roomy.kept), len(tight.kept)) == (4, 0)


def test_dicts_have_the_columns_of_all_shards():
    X, y = tokens()
    together = CRFTagger(solver="lbfgs", tol=1e-10).fit(X, y)
    apart = CRFTagger(tol=1e-10).fit(Shards([lambda p=p: p for p in cut(X, y, 6)]))
    assert apart.feature_names_in_.tolist() == together.feature_names_in_.tolist()
    np.testing.assert_allclose(apart.coef_, together.coef_, rtol=1e-6, atol=1e-6)
    assert apart.predict(X) == together.predict(X)


def test_weights_are_part_of_shards(tmp_path):
    X, y = packed()
    weights = np.random.default_rng(0).random(len(y))
    together = CRFTagger(solver="lbfgs", tol=1e-10).fit(X, y, weights)
    X[:20].save(tmp_path / "0.npz", y[:20], weights[:20])
    shards = Shards([tmp_path / "0.npz", (X[20:], y[20:], weights[20:])])
    apart = CRFTagger(tol=1e-10).fit(shards)
    np.testing.assert_allclose(apart.coef_, together.coef_, rtol=1e-6, atol=1e-6)
    assert apart.score(shards) == pytest.approx(together.score(X, y, weights), abs=1e-12)


def test_empty_shards_and_labels_of_some_shards_only():
    X, y = packed("dense")
    parts = [(X[:0], []), *cut(X, y, 5), ([], [])]
    apart = CRFTagger(tol=1e-10).fit(Shards(parts))
    together = CRFTagger(solver="lbfgs", tol=1e-10).fit(X, y)
    assert apart.classes_.tolist() == together.classes_.tolist()
    np.testing.assert_allclose(apart.coef_, together.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [CRFTagger, lambda: HMSVMTagger(max_iter=3, tol=1e3)])
def test_predict_and_score(saved, make):
    folder, X, y = saved
    tagger, shards = make().fit(X, y), Shards(folder)
    assert tagger.predict(shards) == tagger.predict(X)
    assert tagger.score(shards) == pytest.approx(tagger.score(X, y), abs=1e-12)


def test_iteration_gives_x_and_y(saved):
    folder, X, y = saved
    parts = list(Shards(folder))
    assert sum(len(rows) for rows, _ in parts) == len(X)
    assert [list(row) for _, labels in parts for row in labels] == y


def test_warm_start(saved):
    folder, _, _ = saved
    tagger = CRFTagger(warm_start=True, tol=1e-6).fit(Shards(folder))
    n_iter, value = tagger.n_iter_, tagger.objective_
    tagger.fit(Shards(folder))
    assert tagger.n_iter_ < n_iter
    assert tagger.objective_ <= value


# ---------------------------------------------------------------------------- errors


def test_a_missing_shard_is_named(saved):
    folder, X, y = saved
    tagger = CRFTagger(l2=1, max_iter=20, tol=1e-3).fit(X, y)
    before = tagger.coef_
    with pytest.raises(ShardError, match=r"Shard 1 \('.*none\.npz'\): .*There is no file"):
        tagger.fit(Shards([folder / "0.npz", folder / "none.npz"]))
    assert tagger.coef_ is before


def test_all_files_are_looked_at_before_any_is_read(saved, monkeypatch):
    folder, _, _ = saved
    monkeypatch.setattr(Shards, "labelled", lambda *args, **kwargs: pytest.fail("was read"))
    (folder / "3.npz").write_bytes(b"PK")
    with pytest.raises(ShardError, match=r"Shard 3 .*is not a complete \.npz file"):
        CRFTagger().fit(Shards(folder))


def test_a_shard_of_another_width_is_named(saved):
    folder, _, _ = saved
    Sequences(sparse.csr_matrix(np.ones((2, 3))), [0, 2]).save(folder / "2.npz", [["A0", "B1"]])
    with pytest.raises(ShardError, match=r"Shard 2 \('.*2\.npz'\): it has 3 features, shard 0 has"):
        CRFTagger().fit(Shards(folder))


@pytest.mark.parametrize("damage", ["missing", "truncated", "width"])
def test_a_shard_that_breaks_in_mid_fit_leaves_the_last_model(saved, monkeypatch, damage):
    folder, X, y = saved
    expected = CRFTagger(solver="lbfgs", max_iter=4, tol=0.0)
    with pytest.warns(match="did not converge"):
        expected.fit(X, y)

    def after(k, value, w):
        if k == 4:
            path = folder / "2.npz"
            if damage == "missing":
                path.unlink()
            elif damage == "truncated":
                path.write_bytes(path.read_bytes()[:500])
            else:
                Sequences(X.rows[:4, :5], [0, 4]).save(path, [["A0", "A0", "A0", "A0"]])
        return False

    monkeypatch.setattr("sklseq.estimators.crf.monitor.iteration_hook", lambda *args: after)
    monkeypatch.setattr(
        "sklseq.objectives.likelihood.sharded.ShardedLogLikelihood._read", read_always
    )
    tagger = CRFTagger(tol=0.0)
    with pytest.raises(ShardError, match=r"Shard 2 .*The model of iteration 4 is kept.*warm_start"):
        tagger.fit(Shards(folder))
    assert tagger.n_iter_ == 4
    np.testing.assert_allclose(tagger.coef_, expected.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(tagger.objective_, expected.objective_, rtol=1e-9)
    assert len(tagger.predict(X)) == len(X)


def test_a_shard_that_breaks_between_visits_leaves_the_last_pass(saved, monkeypatch):
    folder, _, _ = saved
    passes = []

    def after(k, value, w):
        passes.append(w.copy())
        if k == 3:
            (folder / "2.npz").unlink()
        return False

    monkeypatch.setattr("sklseq.estimators.crf.monitor.iteration_hook", lambda *args: after)
    monkeypatch.setattr(
        "sklseq.objectives.likelihood.sharded.ShardedLogLikelihood._read", read_always
    )
    tagger = CRFTagger(solver="adagrad", all_possible_states=True)
    with pytest.raises(ShardError, match=r"Shard 2 .*no file.*The model of iteration 3 is kept"):
        tagger.fit(Shards(folder))
    assert tagger.n_iter_ == len(passes) == 3
    assert len(tagger.loss_curve_) == 3
    coef = tagger.coef_[tagger.coef_ != 0]
    assert np.isin(coef, passes[2]).all()
    assert not np.isin(coef, passes[1]).any()


def read_always(self, k):
    return self.read(k)


def one_other_value(X, y, w):
    X = [x.copy() for x in X]
    X[1][0, 0] += 1e-12
    return X, y, w


@pytest.mark.thread_unsafe(reason="a shard changes when it is read")
@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
@pytest.mark.parametrize("visit", [2, 6])
@pytest.mark.parametrize(
    "change",
    [
        one_other_value,
        lambda X, y, w: (X[::-1], y, w),
        lambda X, y, w: ([x[:, ::-1] for x in X], y, w),
        lambda X, y, w: (X[:-1], y[:-1], w[:-1]),
        lambda X, y, w: (X, [labels[::-1] for labels in y], w),
        lambda X, y, w: (X, [[f"{label}x" for label in labels] for labels in y], w),
        lambda X, y, w: (X, y, w[::-1]),
        lambda X, y, w: ([np.hstack([x, x]) for x in X], y, w),
        lambda X, y, w: ([sparse.csr_matrix(x) for x in X], y, w),
        lambda X, y, w: ([[{"a": 1.0}] * len(x) for x in X], y, w),
    ],
)
def test_a_shard_that_changes_is_refused(monkeypatch, solver, visit, change):
    monkeypatch.setattr(
        "sklseq.objectives.likelihood.sharded.ShardedLogLikelihood._read", read_always
    )
    rng, reads = np.random.default_rng(0), []
    X = [rng.normal(size=(n, 3)) for n in (4, 3, 4)]
    y, w = [list("abba")[: len(x)] for x in X], [1.0, 2.0, 3.0]
    y[0] = list("aabb")

    def shard():
        reads.append(0)
        return change(X, y, w) if len(reads) == visit else (X, y, w)

    tagger = CRFTagger(solver=solver, all_possible_states=True)
    with pytest.raises(ShardError, match="Shard 1: it holds other rows, labels or weights than"):
        tagger.fit(Shards([(X, y), shard]))
    assert hasattr(tagger, "coef_") == (visit > 2)


@pytest.mark.thread_unsafe(reason="a shard changes when it is read")
def test_dicts_that_change_are_refused(monkeypatch):
    monkeypatch.setattr(
        "sklseq.objectives.likelihood.sharded.ShardedLogLikelihood._read", read_always
    )
    y = [["x", "y"]] * 3
    for other in ("c", "new"):
        reads = []

        def shard(reads=reads, other=other):
            reads.append(0)
            return [[{"a": 1}, {"b": 2.0 if len(reads) < 3 else other}]] * 3, y

        with pytest.raises(ShardError, match="Shard 0: it holds other rows"):
            CRFTagger().fit(Shards([shard, ([[{"c": 1}, {"a": 1}]] * 3, y)]))


def test_a_worker_that_makes_another_shard_is_told():
    pytest.importorskip("distributed")
    from sklseq.estimators.sources.cluster import _prepare, _read
    from sklseq.objectives.likelihood.summary import summarise_shard

    X, y = [np.eye(3)], [["a", "b", "a"]]
    first = summarise_shard(_read((X, y), 4))
    other, checksums = _read(([np.eye(3)[::-1]], y), 4), {4: first.parts[0].checksum}
    with pytest.raises(ShardError, match="Shard 4: it holds other rows, labels or weights"):
        _prepare(other, 4, (SimpleNamespace(n_features=3), None, None, checksums))
    assert first.parts == summarise_shard(_read((X, y), 4)).parts


def test_a_memory_limit_below_one_shard(saved):
    folder, X, y = saved
    with pytest.raises(ValueError, match=r"Shard 0 .* takes about .* max_memory allows 0.001 MB"):
        CRFTagger().fit(Shards(folder, max_memory=1000))
    with pytest.raises(ValueError, match=r"Shard 0 takes about .* weights and solver .* raise max"):
        CRFTagger().fit(Shards([(X, y)], max_memory="20 kB"))


@pytest.mark.parametrize("size", ["a lot", "1.2.3GB", -1, 0, True, "5 XB", "0MB", "0.0", ".", "GB"])
def test_sizes_that_are_none(size):
    with pytest.raises(ValueError, match="max_memory must be a number of bytes"):
        Shards([([], [])], max_memory=size)


def test_sizes():
    assert as_bytes("1.5 GB") == 1.5e9
    assert as_bytes("2MiB") == 2 * 2**20
    assert as_bytes(100) == 100
    assert as_bytes(".5kB") == as_bytes("500.") == 500


@pytest.mark.parametrize(
    ("sources", "error", "message"),
    [
        (3, TypeError, "Shards needs a list"),
        ((p for p in "ab"), TypeError, "Make a list of an iterator"),
        ([], ValueError, "at least one shard"),
        ([5], TypeError, "Shard 0 must be the path"),
    ],
)
def test_sources_that_are_none(sources, error, message):
    with pytest.raises(error, match=message):
        Shards(sources)


def test_what_a_function_must_return():
    with pytest.raises(ShardError, match=r"Shard 0: a shard must be a tuple \(X, y\)"):
        CRFTagger().fit(Shards([lambda: 3]))
    with pytest.raises(ShardError, match="Shard 0: KeyError: 'x'"):
        CRFTagger().fit(Shards([lambda: {}["x"]]))
    with pytest.raises(ShardError, match="Shard 0: Sequence 0 has 2 rows in X but 1 label"):
        CRFTagger().fit(Shards([([np.zeros((2, 1))], [["a"]])]))


def test_shards_that_do_not_go_together():
    dense, form = (Sequences(np.ones((2, 1)), [0, 2]), [["a", "b"]]), "dicts or attribute lists"
    with pytest.raises(ShardError, match=f"Shard 1: only one of shards 0 and 1 holds {form}"):
        CRFTagger().fit(Shards([dense, ([[{"x": 1}]], [["a"]])]))
    csr = (Sequences(sparse.csr_matrix(np.ones((2, 1))), [0, 2]), [["a", "b"]])
    with pytest.raises(ShardError, match="Shard 1: only one of shards 0 and 1 is sparse"):
        CRFTagger().fit(Shards([dense, csr]))
    with pytest.raises(ShardError, match="Shard 1: its labels are of another kind"):
        CRFTagger().fit(Shards([dense, (dense[0], [[1, 2]])]))
    with pytest.raises(ValueError, match="2 shards with 0 such rows"):
        CRFTagger().fit(Shards([([], []), ([], [])]))
    with pytest.raises(ValueError, match="at least one row of positive weight"):
        CRFTagger().fit(Shards([(*dense, [0.0])]))


STOPPING = {"early_stopping": True, "l2": 0.01, "n_iter_no_change": 2, "validation_fraction": 0.3}


@pytest.mark.parametrize("known", ["all", "some"])
@pytest.mark.parametrize("form", [*FORMS, "dicts"])
def test_early_stopping_is_that_of_sequences_in_memory(form, known):
    X, y = tokens() if form == "dicts" else packed(form)
    if known == "some":  # in each sequence, so that both sources have the same ones in one order
        y = [[None if t == 1 else label for t, label in enumerate(one)] for one in y]
        y = [["A0", *one[1:]] for one in y]
    weights = np.tile([1.0, 2.0, 0.0, 0.5], 15)
    keep = np.flatnonzero([len(one) > 1 for one in y])
    X, y, weights = [X[s] for s in keep], [y[s] for s in keep], weights[keep]
    cuts = [0, 5, 5, 21, 22, len(y)]
    parts = [(X[a:b], y[a:b], weights[a:b]) for a, b in zip(cuts, cuts[1:])]
    tagger = CRFTagger(solver="lbfgs", random_state=3, **STOPPING)
    memory = clone(tagger).fit(X, y, weights)
    shards = tagger.fit(Shards(parts, max_memory="2MB"))
    assert 2 < len(shards.validation_scores_) < 40
    close = {"rtol": 1e-5} if form == "float32" else {"rtol": 1e-9}
    np.testing.assert_allclose(shards.validation_scores_, memory.validation_scores_, rtol=1e-12)
    np.testing.assert_allclose(shards.objective_, memory.objective_, **close)
    assert shards.coef_.shape == memory.coef_.shape


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
def test_a_splitter_sets_shards_aside(saved, solver):
    folder, X, y = saved
    tagger = CRFTagger(solver=solver, random_state=0, **STOPPING)
    tagger.set_params(validation_fraction=PredefinedSplit([-1, 0, -1, 0])).fit(Shards(folder))
    aside = np.r_[15:30, 45:60]
    best = tagger.score(X[aside], [y[s] for s in aside])
    np.testing.assert_allclose(best, max(tagger.validation_scores_), rtol=1e-12)
    if solver == "lbfgs":
        fold = np.where(np.isin(np.arange(60), aside), 0, -1)
        memory = clone(tagger).set_params(validation_fraction=PredefinedSplit(fold)).fit(X, y)
        np.testing.assert_allclose(tagger.validation_scores_, memory.validation_scores_, rtol=1e-12)
        np.testing.assert_allclose(tagger.coef_, memory.coef_, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="splits 3 shards, and X has 4; give a splitter of all sh"):
        tagger.set_params(validation_fraction=PredefinedSplit([0, -1, -1])).fit(Shards(folder))


def test_sequences_set_aside_count_as_memory(saved):
    wide = [(Sequences(np.ones((9, 4000)), [0, 5, 9]), [["a"] * 5, ["b"] * 4])] * 3
    CRFTagger().fit(Shards(wide, max_memory="3MB"))
    with pytest.raises(ValueError, match=r"solver and sequences set aside .* allows 3 MB"):
        CRFTagger(early_stopping=True, validation_fraction=0.7).fit(Shards(wide, max_memory="3MB"))


def test_arguments_that_shards_have_themselves(saved):
    folder, X, y = saved
    shards = Shards(folder)
    with pytest.raises(ValueError, match="leave y out"):
        CRFTagger().fit(shards, y)
    with pytest.raises(ValueError, match="Shards contain their sample_weight"):
        CRFTagger().fit(shards, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match="solver='eg' keeps the state of every row"):
        CRFTagger(solver="eg").fit(shards)
    with pytest.raises(ValueError, match="gradient='emp' is for single long sequences"):
        CRFTagger(gradient="emp").fit(shards)
    with pytest.raises(TypeError, match="y must be a list of label sequences"):
        CRFTagger().fit(X)
    X[:3].save(folder / "0.npz")
    with pytest.raises(ShardError, match=r"Shard 0 .*it holds no labels"):
        CRFTagger().fit(shards)


def test_labels_that_constraints_forbid():
    parts = [([np.eye(2)], [["a", "c"]]), ([np.eye(2)], [["b", "a"]]), ([], [])]
    for forbidden, message in (
        ([1, 0], r"'a' may not follow 'b', in Shard 1\."),
        ([0, 2], r"'c' may not follow 'a', in Shard 0\."),
    ):
        allowed = np.ones((3, 3), bool)
        allowed[tuple(forbidden)] = False
        with pytest.raises(ValueError, match=f"Training labels violate `constraints`: {message}"):
            CRFTagger(constraints=allowed).fit(Shards(parts))


def test_repr_names_the_number_of_shards_and_the_memory():
    assert repr(Shards([([np.eye(2)], [["a", "b"]])], max_memory="1KB")) == (
        "<Shards: 1 shards, max_memory=1e+03 bytes>"
    )
