"""Searches over penalties: the scores of GridSearchCV, conventions of scikit-learn, and errors."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedKFold,
)

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    Sequences,
    ZScoreTaggerCV,
)
from sklseq.estimators.crf import crf_problem
from sklseq.estimators.hmsvm.margin_problem import MarginProblem
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore import zscore_cv
from sklseq.metrics import span_f1, span_f1_scorer, token_accuracy_scorer

L2S = np.logspace(-1, 2, 4)
CS = np.logspace(-2, -0.5, 3)


def sentences(n=30, seed=0, n_labels=3, dense=True):
    """Rows and labels of a noisy chain."""
    rng = np.random.default_rng(seed)
    W, names = rng.normal(size=(5, n_labels)), np.array(["B-x", "O", "B-y", "I-y"])
    X = [rng.normal(size=(rng.integers(2, 8), 5)) for _ in range(n)]
    y = [names[(x @ W + rng.gumbel(size=(len(x), n_labels))).argmax(axis=1)] for x in X]
    if not dense:
        X = [[{f"f{k}={round(v)}" for k, v in enumerate(row)} for row in x] for x in X]
    return X, y


def grid(estimator, **options):
    names = {"l1s": "l1", "l2s": "l2", "Cs": "C"}
    values = {names[key]: options.pop(key) for key in list(options) if key in names}
    return GridSearchCV(estimator, values, **options)


def mean_square_proba(tagger, X, y):
    return float(np.mean(np.square(np.concatenate(tagger.predict_proba(X)))))


def assert_same_search(search, cold, atol=0.0):
    for key in ("mean_test_score", "std_test_score"):
        assert_allclose(search.cv_results_[key], cold.cv_results_[key], atol=atol, rtol=1e-12)
    assert search.best_score_ == pytest.approx(cold.best_score_, abs=atol)
    assert search.cv_results_["mean_test_score"][cold.best_index_] >= search.best_score_ - atol


# --- The scores of a cold search ----------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"l2s": L2S},
        {"l2s": L2S[::-1], "solver": "dual"},
        {"l2s": [3.0, 0.3], "l1s": [0.1, 1.0], "solver": "lbfgs"},
        {"l2s": [3.0, 0.3, 0.1], "l1s": [0.0, 0.5], "solver": "adagrad"},
        {"l2s": [0.5], "l1s": [0.1, 0.5, 2.0]},
        {"l2s": [0.0, 0.1, 1.0], "l1s": [0.5], "all_possible_transitions": True},
    ],
)
@pytest.mark.parametrize("dense", [True, False])
def test_crf_scores_are_those_of_a_cold_grid_search(options, dense):
    X, y = sentences(20, dense=dense)
    own = {
        k: v for k, v in options.items() if not k.endswith("s") or k == "all_possible_transitions"
    }
    grids = {k: v for k, v in options.items() if k in ("l1s", "l2s")}
    search = CRFTaggerCV(tol=1e-10, cv=3, **options).fit(X, y)
    cold = grid(CRFTagger(tol=1e-10, **own), cv=3, **grids).fit(X, y)
    assert_same_search(search, cold)
    assert search.scores_.shape == (3, len(search.l1s_), len(search.l2s_))


def test_a_path_on_many_rows_is_solved_by_adagrad_and_lbfgs_with_its_scale(monkeypatch, capsys):
    X, y = sentences(40, dense=False)
    for name in ("SOME_ROWS", "MANY_ROWS"):
        monkeypatch.setattr(crf_problem, name, 10)
    monkeypatch.setattr("sklseq.estimators.crf.crf_path.MANY_ROWS", 10)
    search = CRFTaggerCV(l2s=[0.1, 1.0, 10.0], cv=2, tol=1e-10, verbose=1, refit=False).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    solvers = [line.split("'")[1] for line in lines if line.startswith("[CRFTagger] solver")]
    assert solvers == ["adagrad", "lbfgs", "lbfgs"] * 2
    cold = grid(CRFTagger(tol=1e-10, solver="lbfgs"), l2s=[0.1, 1.0, 10.0], cv=2).fit(X, y)
    assert_same_search(search, cold)


def test_pairs_of_the_solver_for_another_penalty():
    rng = np.random.default_rng(0)
    H, s = np.diag(rng.random(5)), rng.normal(size=5)
    before = SimpleNamespace(l2=0.5, pairs=[(s, H @ s + 2 * 0.5 * s)])
    ((same, y),) = crf_problem.CRFProblem.pairs_for(before, 0.125)
    assert_array_equal(same, s)
    assert_allclose(y, H @ s + 2 * 0.125 * s)


@pytest.mark.parametrize(
    "options",
    [
        {"entropy_weight": 0.3},
        {"label_proportions": {"D": 0.3, "N": 0.3}, "proportions_weight": 0.5},
        {"label_proportions": {"D": 0.3, "w:the": {"D": 0.9, "N": 0.0}}},
    ],
)
def test_crf_scores_with_unlabelled_rows_are_those_of_a_cold_grid_search(options):
    X = [[{"w": w} for w in s] for s in [("the", "cat", "sat"), ("a", "dog", "ran")] * 9]
    y = [["D", "N", "V"], ["D", "N", "V"], ["D", None, None], [None] * 3] * 4 + [
        ["D", None, "V"]
    ] * 2
    cv = KFold(3, shuffle=True, random_state=0)
    how = {"cv": cv, "scoring": mean_square_proba}
    search = CRFTaggerCV(tol=1e-8, l2s=[1.0, 0.1], **how, **options).fit(X, y)
    cold = grid(CRFTagger(tol=1e-8, **options), l2s=[1.0, 0.1], **how).fit(X, y)
    assert_same_search(search, cold, atol=1e-4)
    plain = CRFTaggerCV(tol=1e-8, l2s=[1.0, 0.1], **how).fit(X, y)
    assert np.abs(plain.scores_ - search.scores_).min() > 1e-3
    assert np.abs(plain.coef_ - search.coef_).max() > 1e-3
    assert search.label_proportions is options.get("label_proportions")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"slack": "l2"},
        {"kernel": "rbf"},
        {"kernel": "poly", "gamma": 0.2, "degree": 2, "coef0": 1.0},
        {"kernel": lambda A, B: (1 + A @ B.T) ** 2},
        {"solver": "working_set"},
        {"average": True, "max_iter": 10, "tol": 1e-2},
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_hmsvm_scores_are_those_of_a_cold_grid_search(options):
    X, y = sentences(24)
    options = {"tol": 1e-4, "random_state": 0, "max_iter": 300} | options
    search = HMSVMTaggerCV(Cs=CS, cv=3, **options).fit(X, y)
    cold = grid(HMSVMTagger(**options), Cs=CS, cv=3).fit(X, y)
    # Ends of training differ within tol: one row in 20 may be labelled otherwise.
    assert_same_search(search, cold, atol=0.0 if options.get("average") else 0.05)


@pytest.mark.parametrize(
    ("slack", "loss"), [("l1", "hamming"), ("l2", "hamming"), ("l1", "zero_one")]
)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("ratio", [0.3, 4.0])
def test_rescaled_dual_variables_are_consistent_and_no_worse(slack, loss, kernel, ratio):
    X, y = sentences(20)
    options = {"slack": slack, "loss": loss, "kernel": kernel, "gamma": 0.3}
    tagger = HMSVMTagger(C=0.5, random_state=0, **options)
    objective = MarginProblem(tagger, RowSource.read(X, y, None)).objective
    objective.optimize(np.arange(20), np.zeros(20), 3)
    C = objective.C.copy()
    objective.rescale(ratio)
    assert_allclose(objective.C, ratio * C)
    mass = np.bincount(objective.support_paths().sequence, objective.support_paths().alpha)
    assert slack == "l2" or (mass <= objective.C[: len(mass)] * (1 + 1e-12)).all()
    rescaled = objective.certificate()
    assert rescaled.gap >= -1e-9
    weights = objective.weights()
    # The dual is that of an objective with these α: its weights follow from them alone.
    fresh = MarginProblem(tagger.set_params(C=ratio * 0.5), RowSource.read(X, y, None)).objective
    assert rescaled.dual >= fresh.certificate().dual - 1e-9
    rows = np.concatenate(X)
    coef = np.zeros((len(rows), objective.n_labels))
    support, coef[support] = objective.support_rows()
    expected = rows.T @ coef if kernel == "linear" else coef
    assert_allclose(weights.coef, expected, atol=1e-10)
    objective.rescale(1.0)
    assert objective.certificate().dual >= rescaled.dual - 1e-9


def test_sequences_of_weight_0_and_integer_weights():
    X, y = sentences(20)
    weights = np.array([0, 1, 2, 1] * 5)
    splits = list(KFold(3).split(X))
    for search, tagger, point in (
        (CRFTaggerCV(l2s=[0.3], cv=splits), CRFTagger(l2=0.3), "l2"),
        (
            HMSVMTaggerCV(Cs=[0.3], cv=splits, tol=1e-4, random_state=0),
            HMSVMTagger(C=0.3, tol=1e-4, random_state=0),
            "C",
        ),
    ):
        search.fit(X, y, weights)
        for k, (train, test) in enumerate(splits):
            cut = lambda part, chosen: [part[i] for i in chosen]  # noqa: E731
            tagger.fit(cut(X, train), cut(y, train), weights[train])
            expected = tagger.score(cut(X, test), cut(y, test), weights[test])
            assert search.scores_[k].ravel()[0] == pytest.approx(expected, abs=1e-12), point


# --- Conventions --------------------------------------------------------------------------------

SEARCHES = [CRFTaggerCV(l2s=[0.1, 1.0], cv=3), HMSVMTaggerCV(Cs=[0.1, 1.0], cv=3, random_state=0)]


@pytest.mark.parametrize("search", SEARCHES)
def test_refitted_model_is_that_of_the_plain_tagger(search):
    X, y = sentences()
    search = sklearn.clone(search).fit(X, y)
    plain = (
        CRFTagger(l2=search.l2_)
        if hasattr(search, "l2_")
        else HMSVMTagger(C=search.C_, random_state=0)
    )
    plain.fit(X, y)
    assert_array_equal(search.coef_, plain.coef_)
    assert_array_equal(search.transition_, plain.transition_)
    assert search.objective_ == plain.objective_
    again = pickle.loads(pickle.dumps(search))
    assert again.predict(X) == plain.predict(X)
    results = search.cv_results_
    assert results["rank_test_score"].min() == 1
    assert_allclose(results["mean_test_score"], search.scores_.reshape(3, -1).mean(axis=0))
    assert results["params"][0].keys() == ({"l1", "l2"} if hasattr(search, "l2_") else {"C"})


@pytest.mark.parametrize("search", SEARCHES)
def test_feature_dicts_are_read_once_and_named(search):
    X, y = sentences(dense=False)
    X = [[dict.fromkeys(sorted(row), 1.0) for row in x] for x in X]
    search = sklearn.clone(search).fit(X, y)
    assert len(search.feature_names_in_) == search.coef_.shape[0]
    assert 0 <= search.score(X, y) <= 1


@pytest.mark.parametrize("search", SEARCHES)
def test_threads_change_nothing(search):
    X, y = sentences()
    one, two = (sklearn.clone(search).set_params(n_jobs=n).fit(X, y) for n in (1, 2))
    assert_array_equal(one.scores_, two.scores_)


def test_without_refit_there_is_no_model():
    X, y = sentences()
    search = CRFTaggerCV(l2s=[0.1, 1.0], refit=False).fit(X, y)
    assert search.l2_ in (0.1, 1.0)
    with pytest.raises(NotFittedError):
        search.predict(X)
    search.set_params(refit=True).fit(X, y).set_params(refit=False).fit(X, y)
    assert not hasattr(search, "coef_")


@pytest.mark.parametrize("scoring", ["span_f1", span_f1_scorer, token_accuracy_scorer])
def test_scoring(scoring):
    X, y = sentences()
    search = CRFTaggerCV(l2s=[0.1, 1.0], scoring=scoring, cv=3).fit(X, y)
    cold = grid(CRFTagger(), l2s=[0.1, 1.0], cv=3, scoring=search._scorer()).fit(X, y)
    assert_allclose(
        search.cv_results_["mean_test_score"], cold.cv_results_["mean_test_score"], atol=0.02
    )
    if scoring == "span_f1":
        assert search.score(X, y) == pytest.approx(span_f1(y, search.predict(X)))


def test_equal_scores_choose_the_strongest_penalty():
    X, y = [np.eye(2)] * 6, [["a", "b"]] * 6
    search = CRFTaggerCV(l1s=[0.001, 0.01], l2s=[0.001, 0.1, 0.01], cv=2).fit(X, y)
    assert (search.scores_ == 1).all()
    assert (search.l1_, search.l2_) == (0.01, 0.1)
    assert HMSVMTaggerCV(Cs=[1.0, 0.5, 2.0], cv=2, random_state=0).fit(X, y).C_ == 0.5


def test_racing_leaves_out_points_that_are_worse_in_both_first_folds():
    X, y = sentences(40)
    grids = {"l1s": [0.01, 1e4], "l2s": [0.1, 1.0], "cv": 4}  # l1=1e4: every weight is 0
    full = CRFTaggerCV(**grids).fit(X, y)
    search = CRFTaggerCV(**grids, racing=0.05).fit(X, y)
    assert_array_equal(np.isnan(search.scores_[:, 1]).all(axis=1), [False, False, True, True])
    assert not np.isnan(search.scores_[:, 0]).any()
    assert (search.l1_, search.l2_) == (full.l1_, full.l2_)
    assert_array_equal(search.cv_results_["rank_test_score"][2:], 3)
    assert_array_equal(CRFTaggerCV(**grids, racing=1).fit(X, y).scores_, full.scores_)


@pytest.mark.parametrize("search", SEARCHES)
def test_groups_go_to_the_splitter(search):
    X, y = sentences(12)
    groups = np.repeat([0, 1, 2, 3], 3)
    search = sklearn.clone(search).set_params(cv=LeaveOneGroupOut())
    assert search.fit(X, y, groups=groups).n_splits_ == 4
    with sklearn.config_context(enable_metadata_routing=True):
        search = sklearn.clone(search).set_params(cv=GroupKFold(3), scoring="token_accuracy")
        search.scoring = token_accuracy_scorer.set_score_request(sample_weight=True)
        search.set_fit_request(sample_weight=True)
        weights = np.repeat([1.0, 0.0, 2.0], 4)
        search.fit(X, y, groups=groups, sample_weight=weights)
        assert search.n_splits_ == 3
        assert 0 <= search.score(X, y, sample_weight=weights) <= 1


def test_inputs_stay_as_they_are():
    X, y = sentences()
    packed = Sequences.from_list(X)
    before = packed.rows.copy()
    HMSVMTaggerCV(Cs=[0.1], cv=2, kernel="rbf").fit(packed, y)
    assert_array_equal(packed.rows, before)


# --- Errors and warnings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (
            CRFTaggerCV(l2s=[]),
            r"l2s must be a list of finite numbers of at least 0, or the number of",
        ),
        (CRFTaggerCV(l2s=[-1]), "l2s must be"),
        (CRFTaggerCV(l1s="x"), "l1s must be"),
        (CRFTaggerCV(l1s=[np.nan]), "l1s must be"),
        (CRFTaggerCV(l2s=True), "l2s must be"),
        (HMSVMTaggerCV(Cs=[0.0]), "Cs must be a list of finite numbers above 0"),
        (HMSVMTaggerCV(Cs=[np.inf]), "Cs must be"),
        (HMSVMTaggerCV(solver="perceptron"), "solver='perceptron' has no C to search"),
        (CRFTaggerCV(racing=-1), "racing must be None or a difference of scores"),
        (CRFTaggerCV(solver="sgd"), "solver must be one of"),
        (CRFTaggerCV(solver="dual", l2s=[0.0]), "needs l2 > 0"),
        (CRFTaggerCV(refit=1), "refit must be True or False"),
        (HMSVMTaggerCV(tol=-1), "tol must be"),
        (CRFTaggerCV(scoring="nope"), "nope"),
        (CRFTaggerCV(cv=100), "cv=100 must be at least 2 and at most the number of sequences, 6"),
    ],
)
def test_wrong_parameters(search, message):
    X, y = sentences(6)
    with pytest.raises(ValueError, match=message):
        search.fit(X, y)
    assert not [name for name in vars(search) if name.endswith("_")]


def test_wrong_calls():
    X, y = sentences(6)
    with pytest.raises(TypeError, match="fit takes sample_weight and groups; got 'foo'"):
        CRFTaggerCV(l2s=[1.0]).fit(X, y, foo=1)
    with pytest.raises(ValueError, match="same number of sequences"):
        CRFTaggerCV(l2s=[1.0]).fit(X, y[:-1])
    with pytest.raises(AttributeError, match="CRFTaggerCV has no partial_fit: cross-validation"):
        CRFTaggerCV().partial_fit(X, y)


def test_one_warning_names_where_training_did_not_converge():
    X, y = sentences()
    with pytest.warns(ConvergenceWarning, match=r"CRFTaggerCV: \d+ of 6 models did not converge"):
        CRFTaggerCV(l2s=[0.01, 0.1], cv=3, max_iter=3, solver="lbfgs", refit=False).fit(X, y)


def test_verbose_prints_a_line_for_each_model(capsys):
    X, y = sentences(6)
    CRFTaggerCV(l2s=[0.1, 1.0], cv=2, verbose=1, refit=False).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    own = [line for line in lines if line.startswith("[CRFTaggerCV]")]
    assert [" score " in line for line in own] == [False, True] * 4
    assert own[0] == "[CRFTaggerCV] fold 0, l1=0, l2=1"


# --- Folds and scores of all three searches -------------------------------------------------------

WORDS = [[{"w": f"w{i % 4}"}, {"w": "b"}] for i in range(12)]
TAGS = [["A" if i % 4 < 2 else "B", "C"] for i in range(12)]
THREE = [
    CRFTaggerCV(l2s=[0.1, 1.0], cv=3),
    HMSVMTaggerCV(Cs=[0.1, 1.0], cv=3, random_state=0),
    ZScoreTaggerCV(l2s=[0.1, 1.0], transition_weights=[None], cv=3),
]


@pytest.mark.parametrize("n", [1, 2, 4, 5])
@pytest.mark.parametrize("search", THREE)
def test_default_folds_of_few_sequences_leave_out_one_each(search, n, monkeypatch):
    monkeypatch.setattr(zscore_cv, "FEW_ENTRIES", 0)  # not in closed form
    default, each = (sklearn.clone(search).set_params(cv=cv) for cv in (None, KFold(max(n, 2))))
    if n == 1:
        with pytest.raises(ValueError, match=r"cv=None needs at least 2 sequences .* got 1\. Cut"):
            default.fit(WORDS[:n], TAGS[:n])
        return
    assert default.fit(WORDS[:n], TAGS[:n]).best_score_ == each.fit(WORDS[:n], TAGS[:n]).best_score_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": []}, r"at least one pair \(train, test\)"),
        ({"cv": [([0, 1], [99])]}, "test part of fold 0 .* from 0 to 11; got 99"),
        ({"cv": [([0, -1], [1])]}, "training part of fold 0 .*; got -1"),
        ({"cv": [([0.5], [1])]}, r"training part of fold 0 .*; got \[0.5\]"),
        ({"cv": [([], [1])]}, "training part of fold 0 .* its 0 sequences have none"),
        ({"cv": [([0, 1, 2], [3]), ([0, 1], [])]}, "test part of fold 1 .* its 0 sequences"),
        ({"cv": [([0], [1]), ([11], [1])]}, "training part of fold 1 .* its 1 sequences"),
        ({"cv": [1, 2]}, "fold 0 is 1"),
        ({"cv": 13}, "cv=13 must be at least 2 and at most the number of sequences, 12; change"),
        ({"cv": 1}, "cv=1 must be at least 2"),
        ({"cv": KFold(13)}, r"cv=KFold.n_splits=13.* cannot divide 12 sequences"),
        ({"cv": GroupKFold(3)}, r"needs groups; call fit\(X, y, groups=\.\.\.\)"),
        ({"cv": StratifiedKFold(3)}, "needs one class for each sample"),
        ({"scoring": "accuracy"}, "scorer of labels or one of .*; got 'accuracy'"),
        ({"scoring": {"a": "span_f1"}}, "scoring must be"),
        ({"scoring": ["span_f1"]}, "scoring must be"),
        ({"scoring": lambda tagger, X, y: None}, "scoring must return a number, got None"),
        ({"scoring": lambda tagger, X, y: np.nan}, "found no finite score"),
        ({"l2s": [10**400]}, "must be a list of finite numbers"),
    ],
)
@pytest.mark.parametrize("search", THREE)
@pytest.mark.filterwarnings("ignore:scoring=.*has no argument sample_weight")
def test_wrong_folds_and_scores(search, options, message):
    if "l2s" in options and hasattr(search, "Cs"):
        options = {"Cs": options["l2s"]}
    search = sklearn.clone(search).set_params(**options)
    with pytest.raises(ValueError, match=message):
        search.fit(WORDS, TAGS, sample_weight=[1] * 11 + [0])
    assert not [name for name in vars(search) if name.endswith("_")]


@pytest.mark.parametrize("search", THREE)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_named_and_not_chosen(search, wrong):
    calls = []

    def scoring(tagger, X, y):
        calls.append(0)
        return wrong if len(calls) == 1 else 0.5

    search = sklearn.clone(search).set_params(scoring=scoring)
    with pytest.warns(UserWarning, match=r"scores are not finite at .*these penalties are not"):
        search.fit(WORDS, TAGS)
    assert search.best_score_ == 0.5


@pytest.mark.filterwarnings("ignore:CRFTaggerCV. scores are not finite")
def test_racing_with_scores_that_are_not_finite():
    def scoring(tagger, X, y):
        return np.nan if tagger.l2 > 1 else 0.5

    search = CRFTaggerCV(l2s=[0.1, 1.0, 2.0], cv=3, racing=0.1, scoring=scoring).fit(WORDS, TAGS)
    assert (search.l2_, search.best_score_) == (1.0, 0.5)


@pytest.mark.parametrize("search", THREE)
def test_a_scorer_without_weights(search):
    search = sklearn.clone(search).set_params(scoring=lambda tagger, X, y: 0.5)
    with pytest.warns(UserWarning, match="has no argument sample_weight, so scores are not"):
        search.fit(WORDS, TAGS, sample_weight=np.ones(12))


@pytest.mark.parametrize("search", THREE)
def test_groups_of_all_searches(search):
    search = sklearn.clone(search).set_params(cv=GroupKFold(3))
    assert 0 <= search.fit(WORDS, TAGS, groups=np.arange(12) % 3).best_score_ <= 1


@pytest.mark.parametrize("search", THREE)
def test_a_mask_where_a_fold_lacks_a_label(search):
    mask = np.array([[True, False, True], [True, True, True], [True, True, True]])
    folds = [([0, 1, 4], [2, 3, 5]), ([0, 1, 2, 3], [4, 5])]
    masked = sklearn.clone(search).set_params(constraints=mask, cv=folds).fit(WORDS, TAGS)
    free = sklearn.clone(search).set_params(cv=folds).fit(WORDS, TAGS)
    assert masked.best_score_ == free.best_score_


def test_a_loss_matrix_where_a_fold_lacks_a_label():
    y = [["A"] * 2] * 8 + [["B"] * 2] * 16
    folds = [(np.arange(8), np.arange(8, 24)), (np.arange(24), np.arange(8))]
    X = [[{"w": "a"}, {"w": "b"}]] * 24
    search = HMSVMTaggerCV(Cs=[1.0], loss=[[0, 1], [2, 0]], cv=folds).fit(X, y)
    assert search.scores_[0, 0] == 0  # "B" is unknown to the model of the first fold
    np.testing.assert_array_equal(search.classes_, ["A", "B"])
