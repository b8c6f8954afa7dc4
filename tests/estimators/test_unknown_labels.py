"""CRFTagger on labels of which some are unknown: training, options, decoding and scores."""

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    GridSearchCV,
    PredefinedSplit,
    cross_val_predict,
    cross_val_score,
)

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    OnlineDecoder,
    RowBlocks,
    Shards,
    ZScoreTagger,
)
from sklseq._lib.threads import Threads
from sklseq.data.constraints import allowed_transitions
from sklseq.estimators.crf.early_stopping import EarlyStopping
from sklseq.estimators.sources.open_source import open_source
from sklseq.estimators.sources.shards import read_content
from sklseq.inference.chain.linear_chain import MOST_BATCH_ROWS
from sklseq.objectives.likelihood.label_curvature import diagonal_curvature
from sklseq.objectives.likelihood.sharded import add_sums, likelihood_of, sum_of_shard
from tests.objectives.test_partial import options, partial_labels, problem_of
from tests.sample_data import make_data, make_sparse_data

WEIGHTS = ["coef_", "transition_", "start_", "end_"]
LABELS = ["a", "b", "c"]


@pytest.fixture
def data():
    X, y = make_data(0, n=30, labels=LABELS, min_len=2)
    return X, [labels.tolist() for labels in y]


@pytest.fixture
def partial(data):
    rng = np.random.default_rng(0)
    some = [[item if rng.random() < 0.6 else None for item in labels] for labels in data[1]]
    return data[0], [[{"a", "b"} if item == "b" else item for item in labels] for labels in some]


def assert_same_bits(a, b):
    for name in WEIGHTS:
        assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("solver", ["auto", "dual", "adagrad", "lbfgs"])
def test_sets_of_one_label_are_labels(data, solver):
    X, y = data
    sets = [[{item} for item in labels] for labels in y]
    unknown = [*X, np.ones((2, 5))], [*sets, [None, None]]  # says nothing: left out
    tagger = CRFTagger(solver=solver)
    assert_same_bits(CRFTagger(solver=solver).fit(X, y), tagger.fit(X, sets))
    assert_same_bits(CRFTagger(solver=solver).fit(X, y), tagger.fit(*unknown))


@pytest.mark.parametrize("make", [make_data, make_sparse_data])
def test_a_set_of_all_labels_is_an_unknown_label(make):
    X, y = make(1, n=20)
    some = partial_labels(y, 1)
    sets = [[{0, 1, 2} if item is None else item for item in labels] for labels in some]
    nan = [
        np.array([np.nan if item is None else item for item in labels], object) for labels in some
    ]
    first = CRFTagger().fit(X, some)
    assert_same_bits(first, CRFTagger().fit(X, sets))
    assert_same_bits(first, CRFTagger().fit(X, nan))
    assert first.solver_ == "lbfgs"


def test_a_label_that_occurs_in_sets_only_is_a_class(data):
    X, y = data
    y = [[item if item != "c" else {"b", "c"} for item in labels] for labels in y]
    assert CRFTagger().fit(X, y).classes_.tolist() == LABELS


@pytest.mark.parametrize("unknown", [None, {"a", "b", "c"}])
def test_states_that_have_a_weight(unknown):
    # Labels and members of sets count for the features of their row; an unknown label does not,
    # but allows every transition, first and last label.
    X, y = [np.eye(4), np.eye(4)[3:]], [["a", {"b", "c"}, unknown, "c"], ["a"]]
    tagger = CRFTagger(l2=0.01).fit(X, y)
    expected = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]]
    assert_array_equal(tagger.coef_ != 0, expected)
    expected = [[0, 1, 1], [1, 1, 1], [1, 1, 1]]  # a - b or c - any - c
    assert_array_equal(tagger.transition_ != 0, expected)
    assert_array_equal(tagger.start_ != 0, [1, 0, 0])
    parts = Shards([(X[:1], y[:1]), (X[1:], y[1:])])
    for other in (([RowBlocks(x) for x in X], y), (Shards([(X, y)]),), (parts,)):
        again = CRFTagger(l2=0.01).fit(*other)
        for name in WEIGHTS:
            assert_array_equal(getattr(again, name) != 0, getattr(tagger, name) != 0)
    assert (CRFTagger(l2=0.01, all_possible_states=True).fit(X, y).coef_ != 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_penalties_weights_threads_and_a_warm_start(partial, dtype):
    X, y = partial
    X = [x.astype(dtype) for x in X]
    tight = CRFTagger(tol=1e-6, l2=0.5).fit(X, y)
    assert tight.coef_.dtype == dtype
    rtol = 1e-5 if dtype == np.float64 else 1e-3
    twice = CRFTagger(tol=1e-6, l2=0.5).fit(X + X, y + y, sample_weight=[0.5] * 2 * len(X))
    assert_allclose(twice.objective_, tight.objective_, rtol=rtol)
    without = CRFTagger(tol=1e-6, l2=0.5).fit(X[1:], y[1:])
    zero = CRFTagger(tol=1e-6, l2=0.5).fit(X, y, sample_weight=[0, *[1] * (len(X) - 1)])
    assert_same_bits(without, zero)
    threads = CRFTagger(tol=1e-6, l2=0.5, n_jobs=2).fit(X, y)
    assert_allclose(threads.objective_, tight.objective_, rtol=rtol)
    tight.warm_start = True
    n_iter, objective = tight.n_iter_, tight.objective_
    assert tight.fit(X, y).n_iter_ <= n_iter
    assert tight.objective_ <= objective * (1 + rtol)
    sparse = CRFTagger(l1=1.0, tol=1e-4).fit(X, y)
    assert 0 < (sparse.coef_ == 0).mean() < 1


def test_early_stopping_scores_the_rows_that_are_known(partial):
    X, y = partial
    tagger = CRFTagger(early_stopping=True, validation_fraction=0.3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(X, y)
    assert len(tagger.validation_scores_) > 1
    assert 0 < max(tagger.validation_scores_) <= 1


def test_a_splitter_counts_the_sequences_of_the_user(partial):
    # Sequences that say nothing are left out, and labelled ones come first, in training only.
    X, y = partial
    weights = np.arange(len(y)) % 5
    y[3], y[7] = [None] * len(y[3]), ["a"] * len(y[7])
    fold = np.where(np.isin(np.arange(len(y)), [3, 5, 7, 8, 14]), 0, -1)
    tagger = CRFTagger(early_stopping=True, validation_fraction=PredefinedSplit(fold))
    for labels in (y, [[item if item == "a" else "b" for item in one] for one in y]):
        source = open_source(X, labels, weights, "auto")
        aside = EarlyStopping.of_source(tagger, source)
        expected = [labels[s] for s in (3, 7, 8, 14) if any(labels[s])]
        assert sorted(str(one.tolist()) for one in aside.y) == sorted(map(str, expected))
        kept = [s for s in range(len(y)) if fold[s] and weights[s] and any(labels[s])]
        assert_array_equal(np.sort(source.numbers[source.weights > 0]), kept)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "dual"}, "solver='dual' needs a convex objective, and y has unknown"),
        ({"solver": "eg"}, "solver='eg' needs a convex objective"),
        (
            {"solver": "adagrad", "entropy_weight": 0.1},
            "solver='adagrad' updates weights after each labelled sequence, but entropy_weight=0.1",
        ),
    ],
    ids=str,
)
def test_what_does_not_train_on_unknown_labels_says_so(partial, parameters, message):
    tagger = CRFTagger(**parameters)
    with pytest.raises(ValueError, match=message):
        tagger.fit(*partial)
    assert not hasattr(tagger, "coef_")


def test_other_ways_of_training_say_so(partial):
    X, y = partial
    for tagger in (HMSVMTagger(), ZScoreTagger()):
        with pytest.raises(ValueError, match=r"at row . of sequence ., is of type .*; labels must"):
            tagger.fit(X, y)


def test_partial_fit(partial):
    X, y = partial
    tagger, sets = CRFTagger(l2=0.1), [[None] * len(X[0]), *y]
    for _ in range(30):
        tagger.partial_fit([X[0], *X], sets, classes=LABELS)
    n_known = sum(any(labels) for labels in y)  # what says nothing takes no step
    assert tagger.n_seen_ == 30 * n_known < 30 * len(X)
    assert tagger.score(X, y) >= CRFTagger(l2=0.1).fit(X, y).score(X, y) - 0.02
    before = tagger.coef_.copy()
    tagger.partial_fit(X[:1], sets[:1])
    assert_array_equal(tagger.coef_, before)
    with pytest.raises(ValueError, match="Unknown label 'x' at row 0 of sequence 1; the known"):
        tagger.partial_fit(X[:2], [y[0], [{"x", "a"}, *[None] * (len(X[1]) - 1)]])
    never_a = np.ones((3, 3), dtype=bool)
    never_a[:, 0] = False
    with pytest.raises(ValueError, match="'a' may not follow 'b' at row 1 of sequence 1"):
        CRFTagger(constraints=never_a).partial_fit(
            X[:2], [[None] * len(X[0]), ["b", {"a"}, *[None] * (len(X[1]) - 2)]], classes=LABELS
        )


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
@pytest.mark.parametrize("make", [make_data, make_sparse_data])
def test_shards(make, solver):
    # The second shard has other labels than the first, and sets of all its own labels; of the third
    # nothing is known; labels of all others are known.
    X, y = make(0, n=30)
    y = [np.array(LABELS)[labels].tolist() for labels in y]
    y[:10] = [[{"a", "b"} if item == "b" else item for item in one] for one in y[:10]]
    y[:10] = [[None if item == "c" else item for item in one] for one in y[:10]]
    y[10:20] = [[{"b", "c"} if item != "c" else item for item in one] for one in y[10:20]]
    y[12] = [None] * len(y[12])
    y[20:23] = [[None] * len(one) for one in y[20:23]]
    weights = np.random.default_rng(0).uniform(0.5, 2, 30)
    weights[[3, 25]] = 0
    cuts = [slice(0, 10), slice(10, 20), slice(20, 23), slice(23, 30)]
    shards = Shards([(X[cut], y[cut], weights[cut]) for cut in cuts])
    options = {"l2": 0.3, "tol": 1e-9, "solver": solver}
    memory, tagger = CRFTagger(**options).fit(X, y, weights), CRFTagger(**options).fit(shards)
    assert tagger.classes_.tolist() == LABELS
    assert_allclose(tagger.objective_, memory.objective_, rtol=1e-8)
    assert_array_equal(tagger.coef_ != 0, memory.coef_ != 0)  # the same weights are trained
    assert_array_equal(tagger.transition_ != 0, memory.transition_ != 0)
    mask = np.ones((3, 3), dtype=bool)
    mask[0] = False
    with pytest.raises(ValueError, match=r"Shard 0.* of a sequence"):
        CRFTagger(constraints=mask, **options).fit(Shards([(X[cut], y[cut]) for cut in cuts[:2]]))


def test_parts_of_a_cluster_add_up(partial):
    X, y = partial
    _, scores, whole = problem_of(CRFTagger(l2=0.0), X, y)
    w = np.random.default_rng(0).normal(size=scores.new_vector().shape)
    w = scores.pack(scores.unpack(w))
    classes, gradient = np.array(LABELS), np.zeros_like(w)
    parts = [
        likelihood_of(scores, read_content((X[cut], y[cut])), classes, Threads(1))
        for cut in (slice(0, 11), slice(11, None))
    ]
    value, total = add_sums(*(sum_of_shard(part, w) for part in parts))
    assert_allclose(value, whole.value_and_gradient(w, gradient), rtol=1e-12)
    assert_allclose(total, gradient, rtol=1e-9, atol=1e-10)
    total = sum(diagonal_curvature(part, w) for part in parts)
    assert_allclose(total, diagonal_curvature(whole, w), rtol=1e-9, atol=1e-10)


def test_nothing_known():
    with pytest.raises(ValueError, match="y must hold a known label in a sequence of positive w"):
        CRFTagger().fit([np.eye(2), np.zeros((0, 2))], [[None, np.nan], []])
    with pytest.raises(ValueError, match="y must hold a known label in a sequence of positive w"):
        CRFTagger().fit([np.eye(2)], [[{"a", "b"}, None]])
    with pytest.raises(ValueError, match="y must hold a known label in a sequence of positive w"):
        CRFTagger().fit([np.eye(2)] * 2, [[None, None], ["a", "b"]], sample_weight=[1, 0])


@pytest.mark.parametrize("seed", range(20))
def test_errors_of_constraints_name_the_first_sequence(seed):
    rng = np.random.default_rng(seed)
    sets = ["b", {"b", "c"}, None]
    y = [["a", sets[k], "a"] for k in rng.choice(3, p=[0.3, 0.3, 0.4], size=6)]
    y += [[None, "b", "c"], ["a", "b", "a"]]
    first = next(s for s, labels in enumerate(y) if labels[0] == "a" and labels[1])
    constraints = [("a", "b"), ("a", "c")]
    for gradient in ("auto", "streaming"):
        with pytest.raises(ValueError, match=f"at row 1 of sequence {first}"):
            CRFTagger(constraints=constraints, gradient=gradient).fit([np.eye(3)] * len(y), y)


def test_constraints_that_no_allowed_labeling_keeps():
    X = [np.eye(3)] * 6  # those with all labels come first inside
    y = [
        [None] * 3,
        ["O", None, "I-x"],
        ["B-x", "I-x", None],
        [None, {"O", "I-y"}, "I-x"],
        ["O"] * 3,
        ["O"] * 3,
    ]
    y[3][1] = {"O"}
    y[2][0] = {"B-x", "B-y"}
    with pytest.raises(ValueError, match="'I-x' may not follow 'O' at row 2 of sequence 3"):
        CRFTagger(constraints="iob2").fit(X, y)
    y[3][1] = {"O", "I-x"}
    tagger = CRFTagger(constraints="iob2").fit(X, y)
    allowed = allowed_transitions(tagger.classes_, "iob2").transition
    assert_array_equal(tagger.transition_ == -np.inf, ~allowed)
    with pytest.raises(
        ValueError, match=r"Sequence 1 has no allowed .*\. Correct its labels in known"
    ):
        tagger.predict(X[:2], known=[[None] * 3, ["O", "I-x", None]])


# ------------------------------------------------------------------------------------ decoding


@pytest.fixture
def model(data):
    return CRFTagger(all_possible_transitions=True, l2=0.1).fit(*data)


def test_decoding_given_some_labels(model):
    X = [x for x, _ in zip(*make_data(3, n=8, max_len=4))]
    known = partial_labels([np.full(len(x), "b", object) for x in X], 2, L=1)
    known = [[{"b", "c"} if isinstance(i, set) else i for i in labels] for labels in known]
    paths, proba = model.predict(X, known=known), model.predict_proba(X, known=known)
    potentials = model.potentials(X)
    for s, (a, b) in enumerate(itertools.pairwise(potentials.offsets)):
        scores, marginals = {}, np.zeros((b - a, 3))
        for path in itertools.product(*(options(item, model.classes_) for item in known[s])):
            j = np.array(path)
            score = potentials.start[j[0]] + potentials.end[j[-1]]
            score += potentials.emission[np.arange(a, b), j].sum()
            scores[path] = score + potentials.transition[j[:-1], j[1:]].sum()
            marginals[np.arange(b - a), j] += np.exp(scores[path])
        best = max(scores, key=scores.get)
        assert_array_equal(paths[s], model.classes_[list(best)])
        assert_allclose(proba[s], marginals / marginals[0].sum(), atol=1e-10)
    n = 1 + MOST_BATCH_ROWS // int(potentials.offsets[-1])  # more than a block
    many = model.predict_proba([X[1], *X * n], known=[known[1], *known * n])
    for a, b in zip(many, [proba[1], *proba * n]):
        assert_allclose(a, b, rtol=1e-12)


def test_nothing_and_everything_known(model, data):
    X, y = data
    unknown = [[None] * len(x) for x in X]
    assert model.predict(X) == model.predict(X, known=unknown)
    assert model.predict(X, known=y) == y
    for tagger in (HMSVMTagger(kernel="rbf", max_iter=5), HMSVMTagger(max_iter=5), ZScoreTagger()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tagger.fit(X, y)
        assert tagger.predict(X, known=y) == y


def test_wrong_known_labels(model, data):
    X, y = data
    with pytest.raises(ValueError, match="Unknown label 'x' at row 1 of sequence 0; the known"):
        model.predict(X[:1], known=[["a", {"x", "b"}, *[None] * (len(X[0]) - 2)]])
    with pytest.raises(ValueError, match="Labels such as 1 cannot be compared with labels such as"):
        model.predict(X[:1], known=[[1, *[None] * (len(X[0]) - 1)]])
    with pytest.raises(ValueError, match="X and known must hold the same number of sequences"):
        model.predict_proba(X, known=y[1:])
    with pytest.raises(ValueError, match=r"Sequence 0 has . rows in X but 1 label in known"):
        model.predict(X, known=[y[0][:1], *y[1:]])
    with pytest.raises(ValueError, match="known needs sequences in memory"):
        model.predict([RowBlocks(lambda: iter([X[0]]))], known=y[:1])


# -------------------------------------------------------------------------------------- scores


def test_rows_of_unknown_label_do_not_count(model, data):
    X, y = data
    right = [labels == model.predict(X)[s] for s, labels in enumerate(map(np.array, y))]
    some = [[item if t % 2 else None for t, item in enumerate(labels)] for labels in y]
    expected = np.concatenate([one[1::2] for one in right]).mean()
    assert model.score(X, some) == pytest.approx(expected)
    assert model.score(X, [[{item} for item in labels] for labels in y]) == model.score(X, y)
    assert model.score(X, [[*[{"x", *"ab"}, {"c", "x"}] * 3][: len(x)] for x in X]) < 1
    assert model.score(X, [[{"a", "b", "c", "x"}, "x", *[None] * 9][: len(x)] for x in X]) == 0.5
    with pytest.raises(
        ValueError, match="score needs at least one row of positive weight and known label"
    ):
        model.score(X, [[None] * len(x) for x in X])


def test_tools_of_scikit_learn(partial):
    X, y = partial
    search = GridSearchCV(CRFTagger(), {"l2": [0.1, 1.0]}, cv=3).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert (cross_val_score(CRFTagger(), X, y, cv=3) > 0.4).all()
    predicted = cross_val_predict(CRFTagger(), X, y, cv=3)
    assert [len(labels) for labels in predicted] == [len(x) for x in X]
    decoder = OnlineDecoder(CRFTagger()).fit(X, y)
    assert_same_bits(decoder.estimator_, CRFTagger().fit(X, y))


def test_series_of_pandas_hold_unknown_labels(model, data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    some = [[item if t % 2 else None for t, item in enumerate(labels)] for labels in y]
    series = [pandas.Series(labels, dtype="string") for labels in some]
    assert model.predict(X, known=series) == model.predict(X, known=some)
    codes = [[None if item is None else LABELS.index(item) for item in labels] for labels in some]
    series = [pandas.Series(labels, dtype="Int64") for labels in codes]
    assert_same_bits(CRFTagger().fit(X, series), CRFTagger().fit(X, codes))


def test_search_for_penalties(partial):
    X, y = partial
    mask = np.ones((3, 3), dtype=bool)
    for constraints in (None, mask):
        options = {"constraints": constraints, "tol": 1e-6}
        search = CRFTaggerCV(l2s=[0.1, 3.0], cv=3, **options).fit(X, y)
        grid = GridSearchCV(CRFTagger(**options), {"l2": [0.1, 3.0]}, cv=3).fit(X, y)
        expected = grid.cv_results_["mean_test_score"]
        assert_allclose(search.scores_.mean(axis=0).ravel(), expected, atol=0.02)
    # A label of one sequence only, in a set: its row and column of the mask are left out with it.
    y[0] = [frozenset("ax"), *[None] * (len(y[0]) - 1)]
    mask = np.ones((4, 4), dtype=bool)
    assert CRFTaggerCV(l2s=[1.0], cv=3, constraints=mask).fit(X, y).classes_.tolist() == [*"abcx"]
    with pytest.raises(ValueError, match=r"at row . of sequence ., is of type .*; labels must"):
        HMSVMTaggerCV(Cs=[1.0]).fit(X, y)


def test_search_keeps_labels_that_only_sets_of_all_name(data):
    # Folds know an I-a without a B-a, which only the set of all labels names there.
    X, every = [x for x in data[0] if len(x) > 2][:9], {"B-a", "I-a", "O"}
    y = [["O", *[every] * (len(x) - 2), "I-a"] for x in X]
    y[0][-2:] = "B-a", "I-a"
    options = {"constraints": "iob2", "tol": 1e-6}
    search = CRFTaggerCV(l2s=[0.1, 3.0], cv=3, **options).fit(X, y)
    grid = GridSearchCV(CRFTagger(**options), {"l2": [0.1, 3.0]}, cv=3).fit(X, y)
    expected = grid.cv_results_["mean_test_score"]
    assert_allclose(search.scores_.mean(axis=0).ravel(), expected, atol=1e-9)
    y = [[item if item in ("O", "I-a") else None for item in labels] for labels in y[1:]]
    for other, message in ("O", "may not follow 'O' at"), ("B-b", "may follow none of"):
        y[-1][0] = other
        with pytest.raises(ValueError, match=f"'I-a' {message} .*give the set of all in place"):
            CRFTagger(**options).fit(X[1:], y)


def test_unlabelled_rows_help():
    # A label in ten: better than the labelled rows alone, as sequences of their own.
    rng = np.random.default_rng(0)

    def sample(n):
        y = [np.cumsum(rng.random(20) < 0.2) % 3 for _ in range(n)]
        return [np.eye(3)[one] + rng.normal(size=(20, 3)) for one in y], y

    (X, y), test = sample(60), sample(60)
    some = [[int(j) if rng.random() < 0.1 else None for j in one] for one in y]
    rows = [
        (x[t : t + 1], [j]) for x, one in zip(X, some) for t, j in enumerate(one) if j in range(3)
    ]
    dropped = CRFTagger(l2=0.1).fit(*zip(*rows)).score(*test)
    filled = CRFTagger(l2=0.1).fit(X, [[j or 0 for j in one] for one in some]).score(*test)
    assert CRFTagger(l2=0.1).fit(X, some).score(*test) > 0.05 + max(dropped, filled)


@pytest.mark.parametrize("tagger", [CRFTagger, HMSVMTagger, ZScoreTagger])
def test_labels_outside_the_scheme_are_named_with_their_place(tagger):
    X, y = [[[0.0]], [[1.0], [2.0]], [[1.0], [0.0]]], [["O"], ["O", "B-x"], ["O", "SIZE"]]
    with pytest.raises(ValueError, match="Label 'SIZE' at row 1 of sequence 2 is not a span label"):
        tagger(constraints="iob2").fit(X, y)
    with pytest.raises(ValueError, match="Label 'SIZE' at row 1 of sequence 2 is not a span label"):
        tagger(constraints="iob2").fit(X, y, sample_weight=[0, 1, 1])


SOURCES = {
    "memory": lambda x: x,
    "blocks": lambda x: RowBlocks([x[:2], x[2:]]),
    "shards": None,
    "pieces": lambda x: RowBlocks(x),
}


def fit_from(source, solver, X, y, constraints):
    tagger = CRFTagger(constraints=constraints, solver=solver)
    if source == "shards":
        return tagger.fit(Shards([(X, y)]))
    rows = [SOURCES[source](x) for x in X]
    if source == "pieces":
        return tagger.partial_fit(rows, y, classes=LABELS)
    return tagger.fit(rows, y)


def first_dead_row(labels, mask):
    """The first row at which no allowed path is left, by going through all paths."""
    paths = [()]
    for row, item in enumerate(labels):
        choices = [j for j, label in enumerate(LABELS) if item is None or label in item]
        paths = [p + (j,) for p in paths for j in choices if not p or mask[p[-1], j]]
        if not paths:
            return row
    return None


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(12))
def test_constraints_are_checked_on_every_source(source, seed):
    # One sequence alone may be in conflict; others have all labels and keep to the constraints.
    rng = np.random.default_rng(seed)
    mask = rng.random((3, 3)) < 0.6
    mask[np.diag_indices(3)] = True
    y = [[label] * 4 for label in LABELS]
    sets = [{label} for label in LABELS] + [{"a", "b"}, {"b", "c"}, None]
    doubtful = [sets[k] for k in rng.integers(len(sets), size=4)]
    doubtful[0] = {LABELS[rng.integers(3)]}
    at = int(rng.integers(4))
    y.insert(at, [next(iter(one)) if one and len(one) == 1 else one for one in doubtful])
    y[at - 1] = [y[at - 1][0], None, y[at - 1][2], y[at - 1][3]]  # so that y is partial
    X = [rng.normal(size=(4, 2)) for _ in y]
    row = first_dead_row(doubtful, mask)
    solver = "adagrad" if source in ("memory", "shards") and seed % 2 else "auto"
    if row is None:
        assert np.isfinite(fit_from(source, solver, X, y, mask).objective_)
        return
    where = "a sequence" if source == "shards" else f"sequence {at}"
    with pytest.raises(ValueError, match=rf"violate `constraints`: .* at row {row} of {where}\."):
        fit_from(source, solver, X, y, mask)


def test_first_and_last_labels_in_blocks_beside_unknown_ones():
    X = [RowBlocks(np.eye(3)), RowBlocks(np.eye(3)[:2])]
    with pytest.raises(ValueError, match="'I-a' may not follow 'O' at row 2 of sequence 0"):
        CRFTagger(constraints="iob2").fit(X, [["B-a", "O", "I-a"], ["O", None]])
    with pytest.raises(ValueError, match="'I-a' may not be the first label, at row 0 of sequence"):
        CRFTagger(constraints="iob2").fit(X, [["I-a", "O", "B-a"], ["O", None]])
    y = [["S-a", "O", "B-a"], ["O", {"E-a", "I-a"}]]
    with pytest.raises(ValueError, match="'B-a' may not be the last label, at row 2 of sequence 0"):
        CRFTagger(constraints="iobes").fit(X, y)


def test_pieces_name_sequence_and_row():
    x = np.eye(3)[np.zeros(600, int)]
    classes = ["B-a", "I-a", "O"]
    for last in ("I-a", {"I-a"}):
        y = [["O"] * 3, ["B-a", "I-a"] * 299 + ["O", last]]
        with pytest.raises(ValueError, match="'I-a' may not follow 'O' at row 599 of sequence 1"):
            CRFTagger(constraints="iob2").partial_fit(
                [RowBlocks(x[:3]), RowBlocks(x)], y, classes=classes
            )
    for other in ("zz", {"zz", "O"}):
        y = [["O"] * 3, ["O"] * 500 + [other] + ["O"] * 99]
        with pytest.raises(ValueError, match="Unknown label 'zz' at row 500 of sequence 1"):
            CRFTagger().partial_fit([RowBlocks(x[:3]), RowBlocks(x)], y, classes=classes)


SCORED = {
    "crf": lambda: CRFTagger(l2=0.1),
    "search": lambda: CRFTaggerCV(l2s=[0.1], cv=2),
    "hmsvm": lambda: HMSVMTagger(random_state=0),
    "zscore": ZScoreTagger,
    "online": lambda: OnlineDecoder(CRFTagger(l2=0.1)),
}


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("every", [set(LABELS), {*LABELS, "unseen"}])
def test_score_counts_sets_of_all_labels(name, every):
    rng = np.random.default_rng(5)
    X = [rng.normal(size=(n, 3)) for n in (4, 3, 5, 2, 6)]
    y = [[LABELS[k] for k in x.argmax(axis=1)] for x in X]
    model = SCORED[name]().fit(X, y)
    predicted, weights = model.predict(X), np.arange(1.0, 6)
    wrong = [[LABELS[(LABELS.index(label) + 1) % 3] for label in labels] for labels in predicted]
    items = [every, None, {"unseen"}, np.nan, {"a", "b"}]
    truth = [
        [(items + labels)[t + s] for t in range(len(labels))] for s, labels in enumerate(wrong)
    ]

    def expected(first):
        rows = [
            (weight, mine in item if isinstance(item, set) else mine == item)
            for weight, *pair in list(zip(weights, predicted, truth))[first:]
            for mine, item in zip(*pair)
            if item is not None and item is not np.nan
        ]
        return np.average([right for _, right in rows], weights=[weight for weight, _ in rows])

    assert_allclose(model.score(X, truth, weights), expected(0))
    if name != "online":
        assert_allclose(model.score([RowBlocks([x]) for x in X], truth, weights), expected(0))
        shards = Shards([lambda: (X[1:], truth[1:], weights[1:])])
        assert_allclose(model.score(shards), expected(1))
    with pytest.raises(ValueError, match="score needs at least one row of positive weight and kn"):
        model.score(X, [[None] * len(x) for x in X])
