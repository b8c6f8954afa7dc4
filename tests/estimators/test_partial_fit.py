"""Training batch by batch, and training that stops early."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from sklseq import CRFTagger, HMSVMTagger, RowBlocks, Sequences, ZScoreTagger
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.source import RowSource
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood

CLASSES = ["a", "b", "c"]


def make_noisy_data(seed, n=60, noise=0.05):
    """Labels follow from the features, up to noise."""
    rng = np.random.default_rng(seed)
    weights = np.random.default_rng(99).normal(size=(8, 3)) * 3
    X = [(rng.random((T, 8)) < 0.4).astype(float) for T in rng.integers(1, 9, n)]
    y = []
    for x in X:
        codes = (x @ weights).argmax(axis=1)
        wrong = rng.random(len(x)) < noise
        y.append(np.array(CLASSES)[np.where(wrong, rng.integers(0, 3, len(x)), codes)])
    return X, y


def batches(X, y, size):
    return [(X[k : k + size], y[k : k + size]) for k in range(0, len(X), size)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["dense", "sparse", "sequences"])
def test_batches_lead_to_a_good_model(seed, form):
    X, y = make_noisy_data(seed, n=300)
    if form == "sparse":
        X = [sparse.csr_matrix(x) for x in X]
    if form == "sequences":
        X = Sequences(np.vstack(X), np.cumsum([0, *map(len, X)]))
    tagger = CRFTagger()
    for _ in range(3):
        for batch in batches(X, y, 20):
            tagger.partial_fit(*batch, classes=CLASSES)
    fitted = CRFTagger().fit(X, y)
    assert tagger.score(X, y) >= fitted.score(X, y) - 0.02
    assert tagger.n_seen_ == 900
    assert tagger.n_iter_ == len(tagger.loss_curve_) == 45


@pytest.mark.parametrize("ones", [True, False])
def test_one_call_is_one_pass_of_adagrad(ones):
    X, y = make_noisy_data(0)
    if not ones:
        X = [x * np.arange(1, 9) for x in X]
    batch = Sequences(sparse.csr_matrix(np.vstack(X)), np.cumsum([0, *map(len, X)]))
    codes = np.searchsorted(CLASSES, np.concatenate(y)).astype(np.int32)
    tagger = CRFTagger(l1=0.1, l2=1, all_possible_states=True, all_possible_transitions=True)
    source = RowSource(batch, codes, np.array(CLASSES))
    scores = score_map(tagger, source, source.summarise(), single_sequences=True)
    with Threads(1) as threads:
        from sklseq.objectives.likelihood.likelihood import LogLikelihood

        primal = LogLikelihood(scores, codes, batch.offsets, np.ones(60), 1.0, threads)
        stochastic = StochasticLikelihood(primal, 0.1, first_square=1.0)
        order = np.random.default_rng([0, 0]).permutation(stochastic.sequences)
        stochastic.descend(order, 1.0)
    tagger.partial_fit(X, y, classes=CLASSES)
    expected = scores.unpack(stochastic.w)
    assert_allclose(tagger.coef_, expected.coef, atol=1e-12)
    assert_allclose(tagger.transition_, expected.transition, atol=1e-12)
    assert_allclose(tagger.start_, expected.start, atol=1e-12)


def test_a_pickle_goes_on_with_the_same_bits():
    X, y = make_noisy_data(1)
    a = CRFTagger().partial_fit(X[:30], y[:30], classes=CLASSES)
    b = pickle.loads(pickle.dumps(a))
    assert_array_equal(a.partial_fit(X[30:], y[30:]).coef_, b.partial_fit(X[30:], y[30:]).coef_)


def test_it_goes_on_from_fit_and_fit_starts_anew():
    X, y = make_noisy_data(2)
    tagger = CRFTagger(all_possible_transitions=True).fit(X, y)
    before = clone(tagger).fit(X, y)
    tagger.partial_fit(X, y)
    assert tagger.n_seen_ == len(X)
    # From a good start, one pass does not end far away.
    assert tagger.score(X, y) >= before.score(X, y) - 0.02
    tagger.fit(X, y)
    assert_array_equal(tagger.coef_, before.coef_)
    assert not hasattr(tagger, "n_seen_")


def test_labels_that_come_later_and_rows_that_are_attributes():
    X, y = make_noisy_data(0)
    tagger = CRFTagger().partial_fit(X[:1], [["a"] * len(X[0])], classes=CLASSES)
    tagger.partial_fit(X, y)
    assert set(np.concatenate(tagger.predict(X))) == set(CLASSES)
    words = [[{"w": "x"}, {"w": "y"}], [{"w": "y"}]]
    labels = [["a", "b"], ["b"]]
    tagger = CRFTagger(l2=0.1).fit(words, labels)
    for _ in range(5):
        tagger.partial_fit(words, labels)
    assert tagger.score(words, labels) == 1
    assert list(tagger.feature_names_in_) == ["w:x", "w:y"]
    with pytest.warns(UserWarning, match="leaves out attributes .* such as 'w:z'"):
        tagger.partial_fit([[{"w": "z"}]], [["a"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger.partial_fit([[{"w": "z"}]], [["a"]])  # said once
    assert list(tagger.feature_names_in_) == ["w:x", "w:y"]


def test_constraints_hold():
    X, y = make_noisy_data(0, noise=0)
    y = [np.sort(labels) for labels in y]
    tagger = CRFTagger(constraints=np.triu(np.ones((3, 3), bool)))
    tagger.partial_fit(X, y, classes=CLASSES)
    assert np.isneginf(tagger.transition_[1, 0])
    for labels in tagger.predict(X):
        assert list(labels) == sorted(labels)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "The first call of partial_fit needs classes"),
        ({"classes": ["a", "b"]}, "'c'"),
        ({"classes": CLASSES, "X": [[{"w": "x"}]], "y": [["a"]]}, "the same columns in each batch"),
    ],
)
def test_bad_first_calls(arguments, message):
    X, y = make_noisy_data(0)
    arguments = {"X": X, "y": y} | arguments
    tagger = CRFTagger()
    with pytest.raises(ValueError, match=message):
        tagger.partial_fit(**arguments)
    assert not hasattr(tagger, "coef_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y, ["a", "b"]), "classes must be those of the first call"),
        (lambda X, y: ([x[:, :5] for x in X], y), "5 features"),
        (lambda X, y: (X, [np.full(len(v), "z") for v in y]), "'z'"),
    ],
)
def test_bad_later_calls_change_nothing(change, message):
    X, y = make_noisy_data(0)
    tagger = CRFTagger().partial_fit(X, y, classes=CLASSES)
    before = tagger.coef_.copy()
    with pytest.raises(ValueError, match=message):
        tagger.partial_fit(*change(X, y))
    assert_array_equal(tagger.coef_, before)
    assert tagger.n_seen_ == len(X)


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e100])
def test_scales_do_not_make_it_diverge(scale):
    X, y = make_noisy_data(0)
    tagger = CRFTagger(l2=0)
    for _ in range(3):
        tagger.partial_fit([x * scale for x in X], y, classes=CLASSES)
    assert np.isfinite(tagger.coef_).all()
    assert tagger.score([x * scale for x in X], y) > 0.8


# --- Early stopping ---------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["lbfgs", "eg", "adagrad", "owlqn"])
def test_it_stops_and_keeps_the_best_weights(solver):
    X, y = make_noisy_data(0, n=120, noise=0.4)
    tagger = CRFTagger(
        solver=solver, l2=0.01, early_stopping=True, validation_fraction=0.25, n_iter_no_change=3,
        max_iter=300,
    ).fit(X, y)  # fmt: skip
    scores = tagger.validation_scores_
    assert len(scores) == tagger.n_iter_ < 300
    assert len(scores) - 1 - int(np.argmax(scores)) == 3
    aside = np.sort(np.random.default_rng(0).permutation(120)[:30])
    assert tagger.score([X[s] for s in aside], [y[s] for s in aside]) == max(scores)


@pytest.mark.filterwarnings("ignore:CRFTagger did not converge")
def test_sequences_set_aside_teach_nothing():
    X, y = make_noisy_data(3)
    aside = np.sort(np.random.default_rng(0).permutation(60)[:6])
    weight = np.ones(60)
    weight[aside] = 0
    a = CRFTagger(early_stopping=True, n_iter_no_change=1000, max_iter=4, tol=0).fit(X, y)
    b = [CRFTagger(max_iter=k + 1, tol=0).fit(X, y, weight) for k in range(4)]
    best = int(np.argmax(a.validation_scores_))
    assert_allclose(a.coef_, b[best].coef_, rtol=1e-9, atol=1e-12)
    assert_allclose(a.objective_, b[best].objective_, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:CRFTagger did not converge")
def test_a_given_development_set():
    X, y = make_noisy_data(3)
    fold = np.repeat([-1, 0], [45, 15])
    given = {"early_stopping": True, "validation_fraction": PredefinedSplit(fold)}
    a = clone(CRFTagger(n_iter_no_change=1000, max_iter=4, tol=0, **given)).fit(X, y)
    b = [CRFTagger(max_iter=k + 1, tol=0).fit(X[:45], y[:45]) for k in range(4)]
    assert_allclose(a.validation_scores_, [t.score(X[45:], y[45:]) for t in b], rtol=1e-12)
    best = b[int(np.argmax(a.validation_scores_))]
    assert_allclose(a.coef_, best.coef_, rtol=1e-9, atol=1e-12)
    search = GridSearchCV(CRFTagger(), {"l2": [0.1, 10.0]}, cv=PredefinedSplit(fold), refit=False)
    scores = search.fit(X, y).cv_results_["mean_test_score"]
    b = [CRFTagger(l2=l2).fit(X[:45], y[:45]) for l2 in (0.1, 10.0)]
    assert_allclose(scores, [t.score(X[45:], y[45:]) for t in b], rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"validation_fraction": 0.0}, "between 0 and 1, or be a splitter .*; got 0.0"),
        ({"validation_fraction": 1}, "between 0 and 1, or be a splitter .*; got 1"),
        ({"validation_fraction": "split"}, "between 0 and 1, or be a splitter .*; got 'split'"),
        (
            {"validation_fraction": PredefinedSplit([0, -1])},
            "splits 2 sequences, and X has 60; give a splitter of all sequences of X",
        ),
        (
            {"validation_fraction": PredefinedSplit([-1, -1])},
            "sets none of the sequences aside; give a splitter with a test part",
        ),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be an integer of at least 1; got 0"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = make_noisy_data(0)
    with pytest.raises(ValueError, match=message):
        CRFTagger(early_stopping=True, **parameters).fit(X, y)


def test_too_few_sequences():
    X, y = make_noisy_data(0)
    with pytest.raises(ValueError, match="sets 1 of 1 aside, which leaves none to validate or to"):
        CRFTagger(early_stopping=True).fit(X[:1], y[:1])


def test_sequences_without_a_step_are_not_counted():
    X, y = [np.eye(2), np.zeros((0, 2)), np.eye(2), np.eye(2)], [[0, 1], [], [0, 1], [0, 1]]
    tagger = CRFTagger().partial_fit(X, y, classes=[0, 1], sample_weight=[1, 1, 0, 2])
    assert tagger.n_seen_ == 2


def as_blocks(X):
    return [RowBlocks([x[:2], x[2:]]) for x in X]


IN_PARTS = {
    "crf": (CRFTagger(), list),
    "crf blocks": (CRFTagger(), as_blocks),
    "perceptron": (HMSVMTagger(solver="perceptron"), list),
    "z-score": (ZScoreTagger(), list),
}


@pytest.mark.parametrize("name", IN_PARTS)
def test_a_later_batch_of_weight_0_changes_nothing(name):
    X, y = make_noisy_data(5, 12)
    tagger, form = IN_PARTS[name]
    tagger = clone(tagger).partial_fit(form(X), y, CLASSES)
    nothing = [(X, y, np.zeros(12)), ([], [], None), ([X[0][:0]], [[]], None)]
    for rows, labels, weights in nothing[: 1 if name == "crf blocks" else 3]:
        before = pickle.dumps(tagger)
        tagger.partial_fit(form(rows), labels, sample_weight=weights)
        assert pickle.dumps(tagger) == before
    for weights, message in (np.full(12, 1e200), "1e\\+200"), (np.zeros(11), "sample_weight"):
        with pytest.raises(ValueError, match=message):
            tagger.partial_fit(form(X), y, sample_weight=weights)


@pytest.mark.parametrize("name", IN_PARTS)
def test_the_first_batch_needs_a_positive_weight(name):
    X, y = make_noisy_data(5, 12)
    tagger, form = IN_PARTS[name]
    tagger = clone(tagger)
    with pytest.raises(ValueError, match="sample_weight must have a positive entry"):
        tagger.partial_fit(form(X), y, CLASSES, np.zeros(12))
    assert not hasattr(tagger, "classes_")


@pytest.mark.parametrize("form", [list, as_blocks])
def test_a_later_batch_of_unknown_labels_changes_nothing(form):
    X, y = make_noisy_data(5, 12)
    tagger = CRFTagger().partial_fit(form(X), y, CLASSES)
    before = pickle.dumps(tagger)
    tagger.partial_fit(form(X), [[None] * len(labels) for labels in y])
    assert pickle.dumps(tagger) == before


@pytest.mark.parametrize("tagger", [CRFTagger(), HMSVMTagger(solver="perceptron"), ZScoreTagger()])
def test_unknown_labels_of_weight_0_are_still_errors(tagger):
    X, y = make_noisy_data(5, 12)
    tagger.partial_fit(X, y, CLASSES)
    with pytest.raises(ValueError, match="'z'"):
        tagger.partial_fit(X, [["z"] * len(x) for x in X], sample_weight=np.zeros(12))
