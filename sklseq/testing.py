"""Checks of the scikit-learn contract for taggers, segmenters and extractors.

The checks of scikit-learn pass one 2-D array, but samples are sequences here, so this module has
checks of its own, one function per requirement. Use them on your own estimators::

    check_sequence_estimator(MyTagger())

or, with pytest, as one test per check::

    @pytest.mark.parametrize(("name", "check"), sequence_checks(MyTagger()))
    def test_contract(name, check):
        check()
"""

from __future__ import annotations

import copy
import inspect
import pickle
import tempfile
import warnings
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from sklseq.data.segment_potentials import SegmentPotentials, SequencePotentials
from sklseq.data.sequences import Sequences
from sklseq.data.types import LabelsLike, SequencesLike

__all__ = ["check_sequence_estimator", "sequence_checks"]

# Tolerance for two computations that differ in the order of additions only.
CLOSE = 1e-3


def check_sequence_estimator(
    estimator: BaseEstimator, *, data: str = "auto", exclude: Collection[str] = ()
) -> None:
    """Run all checks that apply to an estimator; an AssertionError names the one that fails.

    Parameters
    ----------
    estimator : estimator
        A tagger or segmenter (with ``predict``), an extractor (with ``transform``), or a pipeline
        of them. Its clones are fitted.
    data : {"auto", "rows", "tokens"}, default="auto"
        Form of one sequence of ``X``: a 2-D array, or a list of strings. "auto" means
        tokens if the tags of the first step say that it reads strings.
    exclude : collection of str, default=()
        Names of checks to leave out, see :func:`sequence_checks`.

    Returns
    -------
    None

    Examples
    --------
    >>> from sklseq import CRFTagger
    >>> from sklseq.testing import check_sequence_estimator
    >>> check_sequence_estimator(CRFTagger(l2=0.1))
    """
    for name, check in sequence_checks(estimator, data=data, exclude=exclude):
        try:
            check()
        except Exception as error:
            raise AssertionError(f"{type(estimator).__name__}: {name}: {error}") from error


def sequence_checks(
    estimator: BaseEstimator, *, data: str = "auto", exclude: Collection[str] = ()
) -> list[tuple[str, Callable[[], None]]]:
    """The checks that apply to an estimator, each as a name and a function without arguments.

    Parameters
    ----------
    estimator : estimator
        Not fitted.
    data : {"auto", "rows", "tokens"}, default="auto"
        Form of one sequence of ``X``, see :func:`check_sequence_estimator`.
    exclude : collection of str, default=()
        Names of checks to omit.

    Returns
    -------
    list of (name, callable)

    Raises
    ------
    ValueError
        If ``data`` or a name in ``exclude`` is unknown.
    """
    if data not in ("auto", "rows", "tokens"):
        raise ValueError(f'data must be "auto", "rows" or "tokens"; got {data!r}.')
    unknown = set(exclude) - {check.__name__.removeprefix("check_") for check in CHECKS}
    if unknown:
        raise ValueError(f"exclude names {sorted(unknown)}, which are not checks.")
    subject = Subject(estimator, data)
    checks = [(check.__name__.removeprefix("check_"), check) for check in CHECKS]
    return [
        (name, partial(_run, check, subject))
        for name, check in checks
        if name not in exclude and all(getattr(subject, p) for p in getattr(check, "needs", []))
    ]


def _for(*needs: str) -> Callable:
    """Decorate a check that applies only to subjects with all of these properties."""

    def mark(check: Callable) -> Callable:
        setattr(check, "needs", needs)  # noqa: B010
        return check

    return mark


def _run(check: Callable, subject: Subject) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(subject, *subject.data())


# --- Estimators and data ------------------------------------------------------------------------


class Subject:
    """An estimator, its capabilities, and data for it."""

    def __init__(self, estimator: Any, data: str):
        self.original = estimator
        self.predicts = hasattr(estimator, "predict") or hasattr(estimator, "predict_labels")
        self.reads_tokens = data == "tokens" or (data == "auto" and _reads_strings(estimator))
        self.reads_numbers = not self.reads_tokens
        # A segmenter derives segments from IOB labels, so it does not take arbitrary labels.
        self.any_label = self.predicts and not hasattr(estimator, "predict_labels")
        fit = inspect.signature(estimator.fit).parameters if hasattr(estimator, "fit") else {}
        self.takes_weights = "sample_weight" in fit
        self.has_n_jobs = any(name.endswith("n_jobs") for name in estimator.get_params())
        self.is_ours = isinstance(estimator, BaseEstimator) and not isinstance(estimator, Pipeline)

    def new(self, *, precise: bool = False, **parameters: Any) -> Any:
        """A new clone with a seed; ``precise`` trains until summation order has no effect."""
        estimator = clone(self.original)
        for name in estimator.get_params():
            last = name.rsplit("__", 1)[-1]
            if last == "random_state":
                parameters.setdefault(name, 0)
            if precise and last == "tol":
                parameters.setdefault(name, 1e-9)
            if precise and last == "max_iter":
                parameters.setdefault(name, 2000)
        return estimator.set_params(**parameters)

    def data(self, seed: int = 0, lengths: Any = (3, 1, 4, 2, 5, 1, 3, 2, 4, 3)) -> tuple:
        """Learnable sequences of tokens or rows of numbers, and their IOB labels."""
        rng, X, y = np.random.default_rng(seed), [], []
        for n in lengths:
            inside = rng.integers(0, 2, size=n)
            begins = inside & ~np.concatenate([[0], inside[:-1]])
            codes = inside * (2 - begins)  # O, B, I
            if self.reads_tokens:
                X.append([f"{'abc'[code]}{rng.integers(0, 3)}" for code in codes])
            else:
                X.append(np.round(4 * np.eye(3)[codes] + rng.uniform(0, 0.5, size=(n, 3)), 3))
            y.append(np.array(["O", "B-x", "I-x"])[codes].tolist())
        return X, y

    def fitted(self, X: SequencesLike, y: LabelsLike, **parameters: Any) -> Any:
        return self.new(**parameters).fit(X, y)


def _reads_strings(estimator: Any) -> bool:
    if isinstance(estimator, Pipeline):
        return _reads_strings(estimator.steps[0][1])
    if isinstance(estimator, FeatureUnion):
        return _reads_strings(estimator.transformer_list[0][1])
    return bool(get_tags(estimator).input_tags.string)


def answers(estimator: BaseEstimator, X: SequencesLike) -> list:
    """Return predictions or features of each sequence, in a form that can be compared."""
    if isinstance(estimator, Pipeline) and hasattr(estimator[-1], "predict_labels"):
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    if hasattr(estimator, "predict_labels"):
        return [np.asarray(p).tolist() for p in estimator.predict_labels(X)]
    if hasattr(estimator, "predict"):
        return [np.asarray(p).tolist() for p in estimator.predict(X)]
    out = estimator.transform(X)
    if not isinstance(out, (Sequences, SegmentPotentials)):
        raise AssertionError(
            f"transform gave {type(out).__name__}, neither Sequences nor SegmentPotentials"
        )
    names = estimator.get_feature_names_out().tolist()
    assert len(names) == out.shape[1], "get_feature_names_out does not name every column"
    assert len(set(names)) == len(names), "get_feature_names_out names two columns alike"
    if isinstance(out, SegmentPotentials):
        return [_named_potentials(sequence, names) for sequence in out]
    return [_named_rows(rows, names) for rows in out]


def _named_potentials(sequence: SequencePotentials, names: list[str]) -> list[dict]:
    """For each step, its potentials whose span begins there, by (kind, stop, name)."""
    n_steps, *spans, rows = sequence
    steps: list[dict] = [{} for _ in range(n_steps)]
    for kind, start, stop, row in zip(*(a.tolist() for a in spans), _named_rows(rows, names)):
        for name, value in row.items():
            key = kind, stop, name
            steps[start][key] = steps[start].get(key, 0.0) + value
    return steps


def _named_rows(rows: Any, names: list[str]) -> list[dict]:
    dense = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    return [{names[j]: float(row[j]) for j in np.flatnonzero(row)} for row in dense]


def assert_alike(a: Any, b: Any, X: SequencesLike, *, exactly: bool = True) -> None:
    """Assert that two estimators have the same answers for X."""
    assert answers(a, X) == answers(b, X), "answers differ"
    if hasattr(a, "predict_proba"):
        for p, q in zip(a.predict_proba(X), b.predict_proba(X)):
            if exactly:
                np.testing.assert_array_equal(p, q)
            else:
                np.testing.assert_allclose(p, q, rtol=CLOSE, atol=CLOSE)


def _raises(errors: Any, call: Callable, *arguments: Any) -> str:
    try:
        call(*arguments)
    except errors as error:
        return str(error)
    raise AssertionError("bad input was accepted without an error")


# --- Parameters and state -----------------------------------------------------------------------


def check_clone_has_equal_parameters(subject: Subject, X: list, y: list) -> None:
    one, two = clone(subject.original), clone(subject.original)
    assert repr(one.get_params()) == repr(two.get_params()) == repr(subject.original.get_params())


@_for("is_ours")  # a Pipeline replaces its parameters by the fitted steps
def check_fit_changes_no_parameter(subject: Subject, X: list, y: list) -> None:
    estimator = subject.new()
    before = {k: (id(v), repr(v)) for k, v in estimator.get_params().items()}
    assert estimator.fit(X, y) is estimator, "fit must return self"
    answers(estimator, X)
    assert {k: (id(v), repr(v)) for k, v in estimator.get_params().items()} == before


@_for("is_ours")
def check_attributes_end_in_an_underscore(subject: Subject, X: list, y: list) -> None:
    estimator = subject.new()
    parameters = set(estimator.get_params(deep=False))
    assert set(vars(estimator)) == parameters, "__init__ sets more than its parameters"
    answers(estimator.fit(X, y), X)
    for name in set(vars(estimator)) - parameters:
        assert name.endswith("_") or name.startswith("_"), f"attribute {name!r} has no underscore"


def check_an_unfitted_one_says_so(subject: Subject, X: list, y: list) -> None:
    _raises(NotFittedError, answers, subject.new(), X)


@_for("is_ours")
def check_a_failed_fit_leaves_nothing_fitted(subject: Subject, X: list, y: list) -> None:
    estimator = subject.new()
    _raises(ValueError, estimator.fit, [], [])
    _raises(NotFittedError, answers, estimator, X)


def check_refit_equals_fit(subject: Subject, X: list, y: list) -> None:
    other = subject.data(seed=1, lengths=(2, 6, 1, 7))
    again = subject.new().fit(*other).fit(X, y)
    assert_alike(subject.fitted(X, y), again, X)


def check_pickles_answer_alike(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    for copied in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        assert_alike(estimator, copied, X)
    assert_alike(estimator, pickle.loads(pickle.dumps(estimator)), X)  # also after predictions


def check_memory_maps_answer_alike(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "model"
        joblib.dump(estimator, path)
        assert_alike(estimator, joblib.load(path, mmap_mode="r"), X)
        joblib.dump((X, y), path)
        mapped, labels = joblib.load(path, mmap_mode="r")
        assert_alike(estimator, subject.fitted(mapped, labels), X)
        assert answers(estimator, mapped) == answers(estimator, X)


@_for("is_ours", "reads_numbers")
def check_n_features_in(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    assert estimator.n_features_in_ == 3
    wider = [np.ones((2, 4))]
    message = _raises(ValueError, answers, estimator, wider)
    assert "4" in message, "the message does not say how many features there are"
    assert "3" in message, "the message does not say how many features are expected"


# --- Inputs -------------------------------------------------------------------------------------


def check_inputs_are_not_changed(subject: Subject, X: list, y: list) -> None:
    before = pickle.dumps((X, y))
    answers(subject.fitted(X, y), X)
    assert pickle.dumps((X, y)) == before, "fit or predict changed its input"


def check_read_only_inputs(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    if subject.reads_numbers:
        for x in X:
            x.flags.writeable = False
    assert_alike(estimator, subject.fitted(X, y), X)


@_for("reads_numbers")
def check_sparse_inputs_may_be_read_only(subject: Subject, X: list, y: list) -> None:
    # Each entry in two halves, columns from last to first: SciPy could sort and add them in place.
    x = np.concatenate(X)
    n, width = x.shape
    columns, ends = np.tile(np.arange(width)[::-1], 2 * n), np.arange(n + 1) * 2 * width
    values = np.repeat(x[:, ::-1] / 2, 2, axis=0).ravel()
    halves = sparse.csr_matrix((values, columns, ends), shape=x.shape)
    arrays = halves.data, halves.indices, halves.indptr
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    packed = Sequences(halves, np.cumsum([0] + [len(x) for x in X]))
    answers(subject.fitted(packed, y), packed)
    now = halves.data, halves.indices, halves.indptr
    assert all(map(np.array_equal, now, before)), "fit or predict changed its input"


@_for("reads_numbers")
def check_dense_sparse_packed_and_dicts_are_equal(subject: Subject, X: list, y: list) -> None:
    dense = subject.new(precise=True).fit(X, y)
    csr = [sparse.csr_matrix(x) for x in X]
    offsets = np.cumsum([0] + [len(x) for x in X])
    for form in (csr, Sequences(np.concatenate(X), offsets), [np.asfortranarray(x) for x in X]):
        assert_alike(dense, subject.new(precise=True).fit(form, y), form, exactly=False)
        assert answers(dense, form) == answers(dense, X), "a form of input changes the answer"
    if subject.predicts:
        dicts = [[{f"x{j}": v for j, v in enumerate(row)} for row in x.tolist()] for x in X]
        of_dicts = subject.new(precise=True).fit(dicts, y)
        assert answers(of_dicts, dicts) == answers(dense, X), "dicts change the answer"


@_for("reads_numbers")
def check_float32_and_float64(subject: Subject, X: list, y: list) -> None:
    small = [x.astype(np.float32) for x in X]
    assert answers(subject.fitted(small, y), small) == answers(subject.fitted(X, y), X)


@_for("reads_numbers", "predicts")
def check_nan_and_infinity_are_errors(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    for value in (np.nan, np.inf):
        bad = copy.deepcopy(X)
        bad[2][1, 0] = value
        for call in (partial(subject.new().fit, bad, y), partial(answers, estimator, bad)):
            assert "2" in _raises(ValueError, call), "the message does not name the sequence"


@_for("predicts")
def check_wrong_lengths_are_errors(subject: Subject, X: list, y: list) -> None:
    _raises(ValueError, subject.new().fit, X, y[:-1])
    message = _raises(ValueError, subject.new().fit, X, [*y[:4], y[4][:-1], *y[5:]])
    assert "4" in message, "the message does not name the sequence"


def check_one_sequence_instead_of_a_list_is_an_error(subject: Subject, X: list, y: list) -> None:
    single = "abc" if subject.reads_tokens else X[0]
    _raises(ValueError, answers, subject.fitted(X, y), single)


# --- Sequences ----------------------------------------------------------------------------------


def check_order_of_sequences_is_irrelevant(subject: Subject, X: list, y: list) -> None:
    order = np.random.default_rng(0).permutation(len(X))
    estimator = subject.new(precise=True).fit(X, y)
    mixed = [X[s] for s in order]
    expected = answers(estimator, X)
    assert answers(estimator, mixed) == [expected[s] for s in order]
    other = subject.new(precise=True).fit(mixed, [y[s] for s in order])
    assert answers(other, X) == expected, "training on permuted sequences changes the answer"


def check_each_sequence_is_answered_alone(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    assert answers(estimator, X) == [answers(estimator, [x])[0] for x in X]


def check_equal_lengths_are_nothing_special(subject: Subject, X: list, y: list) -> None:
    X, y = subject.data(lengths=(3,) * 8)
    estimator = subject.fitted(X, y)
    ragged, _ = subject.data(lengths=(3, 1))
    assert answers(estimator, X + ragged)[:8] == answers(estimator, X)
    if subject.predicts and not hasattr(estimator, "predict_labels"):
        for predicted in (estimator.predict(X), estimator.predict(X + ragged)):
            array = isinstance(predicted, np.ndarray) and predicted.dtype == object
            assert isinstance(predicted, list) or (array and predicted.ndim == 1), (
                "predict must give a list or a 1-D object array, ragged or not"
            )
    if subject.reads_numbers:
        as_cube = np.stack(X)
        assert answers(estimator, as_cube) == answers(estimator, X)


def check_empty_sequences_give_empty_answers(subject: Subject, X: list, y: list) -> None:
    empty = [] if subject.reads_tokens else np.zeros((0, 3))
    with_empty, labels = [empty, *X[:4], empty, *X[4:]], [[], *y[:4], [], *y[4:]]
    estimator = subject.new(precise=True).fit(with_empty, labels)
    plain = answers(subject.new(precise=True).fit(X, y), X)
    got = answers(estimator, with_empty)
    assert [len(a) for a in (got[0], got[5])] == [0, 0]
    assert got[1:5] + got[6:] == plain, "empty sequences change the others' answers"
    assert answers(estimator, [empty]) == [[]]
    assert answers(estimator, []) == []


def check_one_row_sequences(subject: Subject, X: list, y: list) -> None:
    X, y = subject.data(lengths=(1,) * 12)
    estimator = subject.fitted(X, y)
    got = answers(estimator, X)
    assert [len(a) for a in got] == [1] * 12
    if subject.predicts:
        assert got == y, "single rows that are easy to tell apart are not learnt"


def check_training_labels_are_learnt(subject: Subject, X: list, y: list) -> None:
    if subject.predicts:
        assert answers(subject.fitted(X, y), X) == y, "easy training data is not learnt"


# --- Labels and weights -------------------------------------------------------------------------


@_for("any_label")
def check_labels_of_any_type(subject: Subject, X: list, y: list) -> None:
    for table in (
        {"O": 7, "B-x": -1, "I-x": 3},
        {"O": "no", "B-x": "yes", "I-x": "more"},
        {"O": np.int8(0), "B-x": np.int8(1), "I-x": np.int8(2)},
    ):
        labels = [[table[label] for label in path] for path in y]
        expected = [[_plain(label) for label in path] for path in labels]
        assert answers(subject.fitted(X, labels), X) == expected
        arrays = [np.array(path) for path in labels]
        assert answers(subject.fitted(X, arrays), X) == expected
        objects = np.empty(len(y), dtype=object)
        objects[:] = [np.array(path, dtype=object) for path in labels]
        assert answers(subject.fitted(X, objects), X) == expected


@_for("predicts")
def check_an_unseen_label_counts_as_wrong(subject: Subject, X: list, y: list) -> None:
    estimator = subject.fitted(X, y)
    unseen = [*y[:4], ["B-unseen"] * len(y[4]), *y[5:]]
    before, after = estimator.score(X, y), estimator.score(X, unseen)
    assert np.isfinite(after), "score of a label that training did not have is not a number"
    assert after < before, "a label that training did not have counts as right"


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def _other_labels(y: list) -> list:
    """Other labels for the same data, so that weights decide between the two."""
    other = {"O": "B-x", "B-x": "O", "I-x": "O"}
    return [[other[label] for label in path] for path in y]


@_for("takes_weights", "predicts")
def check_weight_0_is_removal_and_weight_2_duplication(subject: Subject, X: list, y: list) -> None:
    wrong = _other_labels(y)
    n = len(X)
    alone = subject.new(precise=True).fit(X, y)
    unseen = [["B-unseen"] * len(path) for path in y]
    weight = np.repeat([1.0, 0.0, 0.0], n)
    none = subject.new(precise=True).fit(X * 3, y + wrong + unseen, sample_weight=weight)
    assert_alike(alone, none, X, exactly=False)
    weighted = subject.new(precise=True).fit(X + X, y + wrong, sample_weight=[2.0] * n + [1.0] * n)
    twice = subject.new(precise=True).fit(X + X + X, y + y + wrong)
    assert_alike(twice, weighted, X, exactly=False)


@_for("takes_weights", "predicts")
def check_bad_weights_are_errors(subject: Subject, X: list, y: list) -> None:
    for bad in (np.ones(len(X) + 1), np.full(len(X), -1.0), np.full(len(X), np.nan)):
        _raises(ValueError, subject.new().fit, X, y, bad)


@_for("takes_weights", "predicts", "is_ours")
def check_weights_are_routed(subject: Subject, X: list, y: list) -> None:
    X, y = X + X, y + _other_labels(y)
    weight = np.repeat([1.0, 0.0], len(X) // 2)
    expected = subject.new().fit(X, y, sample_weight=weight)
    plain = Pipeline([("last", subject.new())]).fit(X, y, last__sample_weight=weight)
    assert_alike(expected, plain, X)
    with sklearn.config_context(enable_metadata_routing=True):
        last = subject.new().set_fit_request(sample_weight=True)
        routed = Pipeline([("last", last)]).fit(X, y, sample_weight=weight)
    assert_alike(expected, routed, X)


# --- Settings of scikit-learn and threads -------------------------------------------------------


def check_settings_of_output_do_not_break_it(subject: Subject, X: list, y: list) -> None:
    expected = answers(subject.fitted(X, y), X)
    with sklearn.config_context(transform_output="pandas"):
        assert answers(subject.fitted(X, y), X) == expected


@_for("has_n_jobs")
def check_numbers_of_threads_agree(subject: Subject, X: list, y: list) -> None:
    names = [name for name in subject.original.get_params() if name.endswith("n_jobs")]
    one, two = (subject.fitted(X, y, **dict.fromkeys(names, n)) for n in (1, 2))
    assert_alike(one, two, X, exactly=False)
    again = subject.fitted(X, y, **dict.fromkeys(names, 2))
    assert_alike(two, again, X)


CHECKS = [
    value
    for name, value in list(globals().items())
    if name.startswith("check_") and name != "check_sequence_estimator"
]
