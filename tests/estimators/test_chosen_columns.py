"""transition_features of all estimators: random choices against their definition, wrong choices."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import GridSearchCV

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    SegmentPotentials,
    SemiCRFSegmenter,
)
from sklseq.features import DictFeatures, SegmentFeatures, TokenFeatures

NAMES = ["a:x", "a:y", "b:x", "b:y", "empty"]
CHOICES = ["numbers", "mask", "names", "pattern", "compiled", "function", "array"]
ESTIMATORS = {
    "crf": CRFTagger(l2=1.0),
    "hmsvm": HMSVMTagger(tol=0.1, random_state=0),
    "semicrf": SemiCRFSegmenter(l2=1.0, max_segment_length=1, outside=None),
}


def random_choice(rng):
    """A choice of columns, and the mask that it means."""
    mask = rng.random(len(NAMES)) < 0.4
    names = [name for name, one in zip(NAMES, mask, strict=True) if one]
    pattern = "|".join(f"^{name}$" for name in names) or "^z"
    return {
        "numbers": np.flatnonzero(mask).tolist(),
        "mask": mask.tolist(),
        "names": names,
        "pattern": pattern,
        "compiled": re.compile(pattern),
        "function": lambda name: name in names,
        "array": np.flatnonzero(mask) if rng.random() < 0.5 else mask,
    }[CHOICES[rng.integers(len(CHOICES))]], mask


def random_rows(rng):
    """Dicts, rows of numbers, labels and segments of one row; the first row has all names.

    Zeros of dicts count as observed, so that only the first row has one, of "empty".
    """
    X = [(rng.random((T, 5)) < 0.5) * [1.0, 1, 1, 1, 0] for T in (4, 3, 1)]
    X[0][0, :4] = 1
    y = [rng.choice(["p", "q"], len(x)).tolist() for x in X]
    y[0][:2] = "p", "q"
    dicts = [
        [{n: v for n, v in zip(NAMES, row.tolist(), strict=True) if v} for row in x] for x in X
    ]
    dicts[0][0] = dict(zip(NAMES, X[0][0].tolist()))
    segments = [[(t, t + 1, label) for t, label in enumerate(labels)] for labels in y]
    return dicts, X, {"crf": y, "hmsvm": y, "semicrf": segments}


def check_choices(seed):
    """Columns that have weights are those chosen that are active where a pair of labels is."""
    rng = np.random.default_rng(seed)
    dicts, X, y = random_rows(rng)
    chosen, mask = random_choice(rng)
    active = np.concatenate([x[1:] for x in X]).any(axis=0)
    for name, estimator in ESTIMATORS.items():
        model = type(estimator)(**estimator.get_params() | {"transition_features": chosen})
        if not mask.any():
            with pytest.raises(ValueError, match=f"chooses none of the {len(NAMES)} columns of X"):
                model.fit(dicts, y[name])
            continue
        model.fit(dicts, y[name])
        assert_array_equal(np.diff(model.transition_coef_.indptr) > 0, mask & active)
        model.set_params(transition_features=np.flatnonzero(mask))
        # Sparse rows, as dicts become: dense ones are summed in another order, and among paths of
        # equal violation, the last digit decides which one the HM-SVM takes.
        again = type(model)(**model.get_params()).fit(list(map(sparse.csr_array, X)), y[name])
        assert abs(again.transition_coef_ - model.transition_coef_).max() < 1e-12
    check_batches(rng, X, y["crf"], chosen, mask)


def check_batches(rng, X, y, chosen, mask):
    """The second batch must have the transition features of the first one, none included."""
    later = mask if rng.random() < 0.3 else rng.random(len(mask)) < 0.3
    first = np.flatnonzero(mask) if mask.any() else None
    second = np.flatnonzero(later) if later.any() else None
    for model in (CRFTagger(), CRFTagger().fit, HMSVMTagger(solver="perceptron")):
        if callable(model):
            model = CRFTagger(l2=1.0, transition_features=first).fit(X, y)
        else:
            model.set_params(transition_features=first).partial_fit(X, y, classes=["p", "q"])
        model.set_params(transition_features=second)
        before = model.coef_.copy()
        if (mask == later).all():
            model.partial_fit(X, y)
            continue
        with pytest.raises(ValueError, match="must stay as they were"):
            model.partial_fit(X, y)
        assert_array_equal(model.coef_, before)


@pytest.mark.parametrize("seed", range(25))
def test_choices(seed):
    check_choices(seed)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("", "'' chooses none of the 5 columns of X; column numbers are 0 to 4, and None"),
        (lambda _: False, "chooses none of the 5 columns of X; names look like 'a:x', and None"),
        ([0, True], r"must be None, or names, .* got \[0, True\]: give items of one kind"),
        ([0, "a:x"], r"must be None, or names, .* got \[0, 'a:x'\]: give items of one kind"),
        ([None], r"must be None, or names, .* got \[None\]\."),
        (b"a:x", "must be None, or names, .* got b'a:x': names are strings"),
        ([b"a:x"], r"must be None, or names, .* got \[b'a:x'\]: names are strings"),
        ({"a:x": 1}, r"must be None, or names, .* got {'a:x': 1}: give the names of a dict"),
        (True, "must be None, or names, .* got True: a mask has an entry for each column"),
        (np.False_, "must be None, or .* got .*False_?: a mask has an entry for each column"),
        (2, "must be None, or names, .* got 2: put column numbers into a list"),
        ([0.5], r"must be None, or names, .* got \[0.5\]: column numbers are integers"),
        (np.ones(5), r"must be None, or names, .* got array.*: column numbers are integers"),
        ([["a:x"]], r"must be None, or names, .* got \[\['a:x'\]\]: give one list, without lists"),
        ([["a:x", "a:y"], ["b:x"]], r"got \[\['a:x', 'a:y'\], \['b:x'\]\]: give one list"),
        ([[0, 1]], r"must be None, or names, .* got \[\[0, 1\]\]: give one list, without lists"),
        (np.ones((1, 5), dtype=bool), "must be None, or names, .* got array.*: give one list"),
        (iter([0]), "must be None, or names, .* got <list_iterator .*>: give a list"),
        ([1, 0, 1], "transition_features must choose different columns; it has 1 several times: d"),
        (np.array([2, 2]), "must choose different columns; it has 2 several times: drop one"),
        (["a:x", "b:x", "a:x"], "must choose different columns; it has 'a:x' several times: drop"),
        ("(", r"'\(' is not a regular expression"),
        (re.compile(b"x"), "must be None, or names, .* got re.compile"),
        (lambda name: name, "must return True or False for the name of a column; got 'a:x' for"),
        (lambda _: np.array([True, False]), "must return True or False .* got array"),
        (lambda: True, "transition_features failed for the column 'a:x': TypeError: .* takes 0"),
        (lambda _: 1 / 0, "failed for the column 'a:x': ZeroDivisionError: division by zero"),
    ],
)
def test_wrong_choices(name, chosen, message):
    dicts, _, y = random_rows(np.random.default_rng(0))
    model = ESTIMATORS[name]
    model = type(model)(**model.get_params() | {"transition_features": chosen})
    with pytest.raises(ValueError, match=message):
        model.fit(dicts, y[name])
    assert not hasattr(model, "classes_")


class Unread:
    """Sequences that must not be read."""

    def __getattr__(self, name):
        pytest.fail(f"X was asked for {name}")

    def __len__(self):
        pytest.fail("the length of X was read")

    def __getitem__(self, item):
        pytest.fail("X was read")


@pytest.mark.parametrize("chosen", [{"a": 1}, True, 2, [0.5], [["a"]], [1, 1], ["a", "a"], "("])
def test_wrong_forms_are_named_before_x_is_read(chosen):
    columns = {"transition_features": chosen}
    extractors = DictFeatures(**columns), TokenFeatures(**columns), SegmentFeatures(**columns)
    searches = CRFTaggerCV(**columns), HMSVMTaggerCV(**columns)
    for model in (*extractors, *searches, *(type(m)(**columns) for m in ESTIMATORS.values())):
        for method in ("fit", "partial_fit"):
            if hasattr(model, method):
                with pytest.raises(ValueError, match="transition_features"):
                    getattr(model, method)(Unread(), [])


@pytest.mark.parametrize("chosen", [["a", "rare"], "^rare$", {"rare"}.__contains__])
def test_a_fold_may_lack_a_chosen_column(chosen):
    # A search reads X once, so it knows the names of all sequences.
    X = [[{"a": 1}, {"a": 1}]] * 4 + [[{"a": 1}, {"rare": 1}]]
    y = [["p", "q"]] * 5
    rows = DictFeatures(transition_features=chosen).fit_transform(X)
    for search, given in (
        (CRFTaggerCV(l2s=[1.0], transition_features=chosen), X),
        (HMSVMTaggerCV(Cs=[1.0], transition_features=chosen), X),
        (CRFTaggerCV(l2s=[1.0]), rows),
        (GridSearchCV(CRFTagger(), {"l2": [1.0]}, error_score="raise"), rows),
    ):
        found = search.fit(given, y)
        found = getattr(found, "best_estimator_", found)
        assert found.transition_coef_.shape[1] == 4
    with pytest.raises(ValueError, match="names 'b', which is not a column of X"):
        CRFTaggerCV(transition_features=["a", "b"]).fit(X, y)


def test_functions_may_return_numpy_booleans():
    dicts, _, y = random_rows(np.random.default_rng(0))
    model = CRFTagger(transition_features=lambda name: np.array([name]) == "a:x")
    with pytest.raises(ValueError, match=r"got array\(\[ True\]\)"):
        model.fit(dicts, y["crf"])
    model.set_params(transition_features=lambda name: np.char.startswith(name, "a")[()])
    model.fit(dicts, y["crf"])
    assert set(np.flatnonzero(np.diff(model.transition_coef_.indptr))) == {0, 1}


@pytest.mark.parametrize("options", [{}, {"calibrate": 2}, {"l1": 0.1}], ids=str)
def test_segmenters_train_with_columns_that_are_empty(options):
    X = [np.array([[0, 1.0], [0, 1], [0, 2]]), np.array([[0, 1.0], [0, 2]])] * 2
    y = [[(0, 1, "p"), (1, 3, "q")], [(0, 2, "p")]] * 2
    plain = SemiCRFSegmenter(l2=0.1, **options).fit(X, y)
    model = SemiCRFSegmenter(l2=0.1, transition_features=[0], **options).fit(X, y)
    assert model.transition_coef_.nnz == 0
    assert_array_equal(model.coef_, plain.coef_)
    assert list(model.predict(X)) == list(plain.predict(X))


@pytest.mark.parametrize("names", [None, ["whole", "start:x"]])
def test_segmenters_refuse_columns_of_whole_segments_only(names):
    rows = sparse.csr_matrix(np.eye(2))
    X = SegmentPotentials([2], [0, 2], [0, 3], [0, 0], [2, 1], rows, feature_names=names)
    with pytest.raises(ValueError, match=r"OPEN_BOTH.* such potentials") as found:
        SemiCRFSegmenter(transition_features=[0]).fit(X, [[(0, 1, "p"), (1, 2, "q")]])
    assert ("such as '^start:'" in str(found.value)) == (names is not None)


@pytest.mark.parametrize("n", [-1, 1.5, None, "a"])
def test_numbers_of_strongest_weights(n):
    _, X, y = random_rows(np.random.default_rng(0))
    for name, model in ESTIMATORS.items():
        for options in ({}, {"transition_features": [0]}):
            model = type(model)(**model.get_params() | options).fit(X, y[name])
            for method in ("top_features", "top_transitions", "top_transition_features"):
                with pytest.raises(
                    ValueError,
                    match=r"n must be (an integer of at least 0|the number of weights); got",
                ):
                    getattr(model, method)(n)
                assert getattr(model, method)(0) == []


@pytest.mark.parametrize("options", [{}, {"transition_features": [0]}], ids=str)
def test_sequences_without_a_valid_segmentation_are_named(options):
    X, y = [np.eye(2), np.eye(2)], [[(0, 1, "p"), (1, 2, "q")]] * 2
    model = SemiCRFSegmenter(l2=0.1, max_segment_length=1, **options).fit(X, y)
    longer = [X[0], np.eye(2)[[0, 1, 0]]]
    with pytest.raises(ValueError, match=r"Sequence 1 has no segmentation .* that valid names"):
        model.predict(longer, valid="once")
    with pytest.raises(ValueError, match="of sequence 1 is valid; loosen the rule valid"):
        model.predict(longer, valid=lambda segments: len(segments) < 3)
