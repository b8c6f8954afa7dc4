"""Every error of CRFTagger: which value, where, what to do; and nothing is left half done."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklseq import CRFTagger, HMSVMTagger
from sklseq.inference.chain.linear_chain import BATCH_ROWS
from tests.sample_data import make_data


@pytest.fixture
def data():
    return make_data(0)


@pytest.fixture
def model(data):
    return CRFTagger().fit(*data)


def spoiled(X, value, kind):
    X = [x.copy() for x in X]
    long = max(range(len(X)), key=lambda s: len(X[s]))
    X[long][2, 1] = value
    return (X if kind == "dense" else [sparse.csr_matrix(x) for x in X]), long


@pytest.mark.parametrize(("kind", "value"), [("dense", np.nan), ("sparse", np.inf)])
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("tagger", [CRFTagger(), HMSVMTagger(), HMSVMTagger(kernel="rbf")], ids=str)
def test_what_is_not_finite_is_found_in_whatever_block_it_is(data, tagger, n_jobs, kind, value):
    X, y = data
    tagger = clone(tagger).set_params(max_iter=5, n_jobs=n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(X, y)
    n = 1 + BATCH_ROWS // min(map(len, X))  # so that the last one is in another block
    many = [X[k % len(X)] for k in range(n)]
    spoilt, _ = spoiled([np.ones((4, X[0].shape[1]))], value, "dense")
    many = [*many, *spoilt]
    if kind == "sparse":
        many = [sparse.csr_matrix(x) for x in many]
    names = ["predict", "predict_proba"] if hasattr(tagger, "predict_proba") else ["predict"]
    for name in names:
        with pytest.raises(ValueError, match=f"row 2 of sequence {n} holds {value}"):
            getattr(tagger, name)(many)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_features_that_are_not_finite(data, model, value, kind):
    X, s = spoiled(data[0], value, kind)
    for work in (lambda: CRFTagger().fit(X, data[1]), lambda: model.predict(X)):
        with pytest.raises(ValueError, match=f"row 2 of sequence {s} holds {value}"):
            work()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_attribute_values_that_are_not_finite(value):
    X, y = [[{"a": 1.0}], [{"b": 1.0}, {"a": value}]], [["u"], ["u", "v"]]
    with pytest.raises(ValueError, match=r"(?s)equence 1.*[Rr]ow 1|[Rr]ow 1.*equence 1"):
        CRFTagger().fit(X, y)


MIXED = [
    ([np.ones((1, 2)), [{"a": 1.0}]], "sequence 0 holds a 2-D array but sequence 1 holds feature"),
    ([[{"a": 1.0}], np.ones((1, 2))], "sequence 0 holds feature dicts but sequence 1 holds a 2-D"),
    ([np.ones((1, 2)), sparse.csr_matrix(np.ones((1, 2)))], "sequence 1 holds a sparse matrix"),
]


@pytest.mark.parametrize(("X", "message"), MIXED, ids=range(3))
def test_sequences_of_different_forms(X, message):
    with pytest.raises(ValueError, match=message):
        CRFTagger().fit(X, [["a"], ["b"]])


def test_sequences_of_different_width():
    with pytest.raises(ValueError, match="sequence 1 has 3, the first has 2"):
        CRFTagger().fit([np.ones((1, 2)), np.ones((1, 3))], [["a"], ["b"]])


def test_dicts_for_a_model_of_arrays_and_the_reverse(model):
    with pytest.raises(ValueError, match="fitted on arrays"):
        model.predict([[{"a": 1.0}]])
    named = CRFTagger().fit([[{"a": 1.0}, {"b": 1.0}]], [["u", "v"]])
    with pytest.raises(ValueError, match="fitted on feature dicts"):
        named.predict([np.ones((2, 2))])


@pytest.mark.parametrize("method", ["fit", "score", "predict_log_proba_sequence"])
def test_different_numbers_of_sequences(data, model, method):
    X, y = data
    with pytest.raises(ValueError, match="same number of sequences; got 12 in X and 11 in y"):
        getattr(model, method)(X, y[:-1])


@pytest.mark.parametrize("method", ["fit", "score", "predict_log_proba_sequence"])
def test_different_lengths_name_the_sequence(data, model, method):
    X, y = data
    y = [*y[:4], [*y[4], 0], *y[5:]]
    with pytest.raises(ValueError, match=rf"Sequence 4 has {len(X[4])} rows? in X but {len(y[4])}"):
        getattr(model, method)(X, y)


@pytest.mark.parametrize("method", ["score", "predict_log_proba_sequence"])
def test_labels_of_another_kind(data, model, method):
    X, y = data
    y = [list(map(str, labels)) for labels in y]
    with pytest.raises(ValueError, match="both must be strings, or neither: convert one"):
        getattr(model, method)(X, y)


METHODS = ["predict", "predict_proba", "predict_nbest", "sample", "potentials"]


@pytest.mark.parametrize("method", METHODS)
def test_different_number_of_features(data, model, method):
    with pytest.raises(ValueError, match=r"X has 3 features, but CRFTagger .* fitted with 5"):
        getattr(model, method)([x[:, :3] for x in data[0]])


@pytest.mark.parametrize("method", METHODS)
def test_before_fit(data, method):
    with pytest.raises(NotFittedError, match="CRFTagger"):
        getattr(CRFTagger(), method)(data[0])


@pytest.mark.parametrize("method", ["top_features", "top_transitions"])
def test_inspection_before_fit(method):
    with pytest.raises(NotFittedError):
        getattr(CRFTagger(), method)(3)


@pytest.mark.parametrize("method", ["score", "predict_log_proba_sequence"])
def test_before_fit_with_labels(data, method):
    with pytest.raises(NotFittedError):
        getattr(CRFTagger(), method)(*data)


@pytest.mark.parametrize("X", [[], [[]], [np.zeros((0, 2))]], ids=["none", "list", "array"])
def test_nothing_to_fit(X):
    with pytest.raises(ValueError, match="X must hold at least one row"):
        CRFTagger().fit(X, [[]] * len(X))


def test_no_features():
    with pytest.raises(ValueError, match="at least one feature"):
        CRFTagger().fit([np.ones((2, 0))], [["a", "b"]])
    with pytest.raises(ValueError, match="at least one feature"):
        CRFTagger().fit([[{}, {}]], [["a", "b"]])


BAD = [
    *[(name, value) for name in ("l1", "l2", "tol") for value in (-1e-9, np.nan, np.inf, "1")],
    *[("max_iter", value) for value in (0, -1, np.nan, 1.5, "many")],
    ("solver", "newton"),
    ("gradient", "numerical"),
    ("constraints", "iob"),
    ("constraints", np.ones((2, 2), dtype=bool)),
    ("constraints", np.full((3, 3), 0.5)),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda v: str(v).replace("\n", ""))
def test_parameters_out_of_range_are_named_with_their_value(data, name, value):
    with pytest.raises(ValueError, match=rf"{name}.* must be") as caught:
        CRFTagger(**{name: value}).fit(*data)
    if not isinstance(value, np.ndarray):
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [None, [0.1], True + 0j])
@pytest.mark.parametrize("name", ["l1", "l2", "tol", "max_iter"])
def test_parameters_of_another_type(data, name, value):
    with pytest.raises((ValueError, TypeError), match=rf"{name} must be"):
        CRFTagger(**{name: value}).fit(*data)


@pytest.mark.parametrize("name", ["solver", "gradient"])
@pytest.mark.parametrize("value", [None, ["lbfgs"]])
def test_choices_of_another_type(data, name, value):
    with pytest.raises((ValueError, TypeError), match=rf"{name} must be one of"):
        CRFTagger(**{name: value}).fit(*data)


def test_paper_names_are_aliases(data):
    pairs = ({"solver": "eg"}, {"solver": "dual"}), ({"l1": 0.5, "solver": "owlqn"}, {"l1": 0.5})
    for one, other in (*pairs, ({"gradient": "emp"}, {"gradient": "streaming"})):
        a, b = CRFTagger(**one).fit(*data), CRFTagger(**other).fit(*data)
        np.testing.assert_array_equal(a.coef_, b.coef_)
        assert a.get_params().items() >= one.items()


WEIGHTS = [
    (np.ones(11), r"sample_weight .*\(12,\).*\(11,\)"),
    (np.ones((12, 1)), r"sample_weight .*\(12, 1\)"),
    (np.r_[np.ones(11), -1], r"sample_weight\[11\] is -1"),
    (np.r_[np.nan, np.ones(11)], r"sample_weight\[0\] is nan"),
    (np.r_[np.inf, np.ones(11)], r"sample_weight\[0\] is inf"),
]


@pytest.mark.parametrize(("weight", "message"), WEIGHTS, ids=range(5))
def test_bad_sample_weights(data, model, weight, message):
    for work in (CRFTagger().fit, model.score):
        with pytest.raises(ValueError, match=message):
            work(*data, sample_weight=weight)


@pytest.mark.parametrize("X", [[["He", "runs"]], [("He", "runs")], ["He runs"]], ids=str)
def test_raw_tokens(X):
    with pytest.raises(ValueError, match=r"tokens|got str"):
        CRFTagger().fit(X, [["a", "b"]])


SINGLE = {
    "array": np.ones((2, 3)),
    "sparse": sparse.csr_matrix(np.ones((2, 3))),
    "dicts": [{"a": 1.0}, {"b": 1.0}],
}


@pytest.mark.parametrize("kind", SINGLE)
def test_one_sequence_that_is_not_in_a_list(kind):
    with pytest.raises(ValueError, match=r"must be a list"):
        CRFTagger().fit(SINGLE[kind], ["a", "b"])


@pytest.mark.parametrize("y", ["ab", [1, 2], ["a", "b"], 3], ids=str)
def test_labels_of_one_sequence_that_are_not_in_a_list(y):
    X = [np.ones((1, 2)), np.ones((1, 2))]
    with pytest.raises((TypeError, ValueError), match=r"y must be|of y must be"):
        CRFTagger().fit(X, y)


def test_labels_that_are_not_labels():
    X = [np.ones((2, 1))]
    for bad in (b"b", ("a", "b"), 1.5):
        with pytest.raises(ValueError, match=r"Label .* of y, at row 1 of sequence 0"):
            CRFTagger().fit(X, [["a", bad]])


@pytest.mark.parametrize("n", [0, -1])
def test_no_paths_asked_for(data, model, n):
    with pytest.raises(ValueError, match="n"):
        model.predict_nbest(data[0], n)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(data[0], n - 1)


def test_explain_takes_one_sequence(data, model):
    with pytest.raises(ValueError):
        model.explain(data[0])
    with pytest.raises(ValueError, match="feature_names must name 5"):
        model.explain(data[0][0], feature_names=["a"])
    with pytest.raises(ValueError, match="label must be one of"):
        model.top_features(label="none")
    with pytest.raises(ValueError, match=r"n must be .* got 'none': give a label as label='none'"):
        model.top_features("none")


FAILURES = {
    "parameter": ({"l2": -1.0}, lambda X, y: (X, y)),
    "constraint": ({"constraints": np.zeros((3, 3), dtype=bool)}, lambda X, y: (X, y)),
    "labels": ({}, lambda X, y: (X, y[:-1])),
    "features": ({}, lambda X, y: (spoiled(X, np.nan, "dense")[0], y)),
    "dicts": ({}, lambda X, y: ([[{"a": np.nan}]], [["u"]])),
    "dicts, then labels": ({}, lambda X, y: ([[{"a": 1.0}]], [["u", "v"]])),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_fit_leaves_the_estimator_as_it_was(data, model, failure):
    parameters, spoil = FAILURES[failure]
    before = model.predict_proba(data[0])
    state = set(vars(model))
    with pytest.raises(ValueError):
        model.set_params(**parameters).fit(*spoil(*data))
    assert set(vars(model)) == state
    for p, q in zip(model.predict_proba(data[0]), before):
        assert_array_equal(p, q)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_first_fit_leaves_the_estimator_unfitted(data, failure):
    parameters, spoil = FAILURES[failure]
    fresh = CRFTagger(**parameters)
    with pytest.raises(ValueError):
        fresh.fit(*spoil(*data))
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)
