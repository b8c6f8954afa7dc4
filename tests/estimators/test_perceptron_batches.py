"""``HMSVMTagger.partial_fit``: the perceptron batch by batch, against ``fit`` and plain Python."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import HMSVMTagger, HMSVMTaggerCV
from sklseq.inference import nbest

CLASSES = ["a", "b", "c"]
PARTS = ("coef_", "transition_", "start_", "end_")


def make_noisy_data(seed, n=25):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, 4)) for T in rng.integers(1, 7, n)]
    return X, [np.array(CLASSES)[rng.integers(0, 3, len(x))] for x in X]


def perceptron(**parameters):
    return HMSVMTagger(solver="perceptron", **{"random_state": 0} | parameters)


def same_weights(a, b, rtol=1e-9):
    for name in PARTS:
        assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=1e-10)


def as_csr(x):
    """Columns of different frequencies, which training orders by them."""
    return sparse.csr_matrix(np.where(x > [1.0, -1.0, 0.0, 0.5], x, 0))


@pytest.mark.parametrize("form", [np.asarray, as_csr])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"average": False},
        {"boundaries": False, "transition_scale": 0.5},
        {"constraints": ~np.eye(3, k=1, dtype=bool)},
    ],
)
def test_calls_are_passes_of_fit(parameters, form):
    X, y = make_noisy_data(0)
    if "constraints" in parameters:
        y = [np.sort(labels)[::-1] for labels in y]
    X, weights = [form(x) for x in X], np.arange(len(X)) % 4
    state = np.random.RandomState
    fitted = perceptron(max_iter=5, random_state=state(1), **parameters).fit(X, y, weights)
    tagger = perceptron(random_state=state(1), **parameters)
    for _ in range(5):
        tagger.partial_fit(X, y, CLASSES, weights)
    same_weights(tagger, fitted)
    assert_array_equal(tagger.loss_curve_, fitted.loss_curve_)
    assert tagger.n_mistakes_ == fitted.n_mistakes_ > 0
    assert tagger.radius_ == pytest.approx(fitted.radius_, rel=1e-12)
    assert tagger.n_iter_ == fitted.n_iter_ == 5


class PlainPerceptron:
    """Averaged perceptron by its definition."""

    def __init__(self):
        self.w, self.sums, self.n = [np.zeros((4, 2)), np.zeros((2, 2)), *np.zeros((2, 2))], 0, 0

    def visit(self, x, y):
        coef, transition, start, end = self.w
        paths, scores = nbest(x @ coef, transition, n=2, start=start, end=end)[0]
        right = (paths == y).all(axis=1)
        wrong = paths[~right][0]
        truth = x @ coef
        value = truth[np.arange(len(y)), y].sum() + transition[y[:-1], y[1:]].sum()
        if scores[~right][0] >= value + start[y[0]] + end[y[-1]]:
            for path, sign in ((y, 1), (wrong, -1)):
                np.add.at(coef.T, path, sign * x)
                np.add.at(transition, (path[:-1], path[1:]), sign)
                start[path[0]] += sign
                end[path[-1]] += sign
        self.n += 1
        self.sums = [part + total for part, total in zip(self.w, self.sums or [0] * 4)]


def test_batches_are_the_averaged_perceptron():
    # One sequence a batch, so that the order is known; the first has one wrong path, so no ties.
    rng = np.random.default_rng(1)
    tagger, plain = perceptron(), PlainPerceptron()
    for n in [1, *rng.integers(1, 7, 40)]:
        x, labels = rng.normal(size=(n, 4)), rng.integers(2, size=n)
        tagger.partial_fit([x], [labels], classes=[0, 1])
        plain.visit(x, labels)
        for name, total in zip(PARTS, plain.sums):
            assert_allclose(getattr(tagger, name), total / plain.n, rtol=1e-9, atol=1e-12)


def test_a_model_goes_on_after_a_pickle_and_fit_begins_anew():
    X, y = make_noisy_data(0)
    one = perceptron().partial_fit(X, y, CLASSES)
    two = pickle.loads(pickle.dumps(one))
    same_weights(one.partial_fit(X, y), two.partial_fit(X, y), rtol=0)
    same_weights(two.fit(X, y), perceptron().fit(X, y), rtol=0)
    with pytest.raises(ValueError, match="cannot go on from fit"):
        two.partial_fit(X, y)


def test_attributes_keep_the_columns_of_the_first_call():
    words, labels = [[{"w": "x"}, {"w": "y"}], [{"w": "y"}]], [["a", "b"], ["b"]]
    tagger = perceptron()
    for _ in range(5):
        tagger.partial_fit(words, labels, classes=["a", "b"])
    assert tagger.score(words, labels) == 1
    with pytest.warns(UserWarning, match="leaves out attributes .* such as 'w:z'"):
        tagger.partial_fit([[{"w": "z"}]], [["a"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger.partial_fit([[{"w": "z"}]], [["a"]])  # said once
    assert list(tagger.feature_names_in_) == ["w:x", "w:y"]


def test_single_precision_is_kept():
    X, y = make_noisy_data(0)
    tagger = perceptron().partial_fit([x.astype(np.float32) for x in X], y, CLASSES)
    assert {getattr(tagger, name).dtype for name in PARTS} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("parameters", "arguments", "message"),
    [
        ({}, {}, "The first call of partial_fit needs classes"),
        ({}, {"classes": ["a", "b"]}, "'c'"),
    ],
)
def test_bad_first_calls(parameters, arguments, message):
    X, y = make_noisy_data(0)
    tagger = perceptron().set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        tagger.partial_fit(X, y, **arguments)
    assert not hasattr(tagger, "classes_")


@pytest.mark.parametrize("parameters", [{"solver": "auto"}, {"kernel": "rbf"}])
def test_other_ways_of_training_have_no_parts(parameters):
    tagger = perceptron().set_params(**parameters)
    with pytest.raises(AttributeError, match="needs solver='perceptron' and kernel='linear'"):
        _ = tagger.partial_fit


@pytest.mark.parametrize(
    ("change", "parameters", "message"),
    [
        (lambda X, y: (X, y, ["a", "b"]), {}, "classes must be those of the first call"),
        (lambda X, y: ([x[:, :3] for x in X], y), {}, "3 features"),
        (lambda X, y: (X, [np.full(len(v), "z") for v in y]), {}, "'z'"),
        (lambda X, y: (X, y), {"average": False}, "average must stay"),
    ],
)
def test_bad_later_calls_change_nothing(change, parameters, message):
    X, y = make_noisy_data(0)
    tagger = perceptron().partial_fit(X, y, classes=CLASSES)
    before = pickle.dumps(tagger)
    with pytest.raises(ValueError, match=message):
        tagger.set_params(**parameters).partial_fit(*change(X, y))
    tagger.set_params(average="auto")
    same_weights(tagger.partial_fit(X, y), pickle.loads(before).partial_fit(X, y), rtol=0)


def test_a_search_has_no_parts():
    with pytest.raises(AttributeError, match="HMSVMTaggerCV has no partial_fit: cross-validation"):
        HMSVMTaggerCV(solver="perceptron").partial_fit([np.eye(2)], [["a", "b"]], ["a", "b"])
