"""Labels of which some are unknown: what is read, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, Sequences, ZScoreTagger, metrics
from sklseq.data.labels import PartialLabelError, as_label_sequences
from sklseq.data.partial_labels import AllowedLabels, PartialLabels
from sklseq.inspection import standard_errors

NAN = float("nan")


def read(y, classes=None, **options):
    X = Sequences(np.zeros((sum(map(len, y)), 1)), np.cumsum([0, *map(len, y)]))
    partial = PartialLabels.read(y, X)
    return partial.allowed(np.unique(partial.flat) if classes is None else classes, **options)


def test_labels_sets_and_unknown_labels_become_codes_of_a_table():
    y = [["b", None, {"a", "c"}], [], [NAN, frozenset("a"), {"c", "a"}, {"a", "b", "c"}]]
    codes, table = read(y)
    assert codes.tolist() == [1, 3, 4, 3, 0, 4, 3]  # a set of one is a label, one of all unknown
    assert table.astype(int).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 1]]
    choices = AllowedLabels(codes, table).choices(np.array(["a", "b", "c"]))
    assert choices.tolist() == ["a", "b", "c", None, {"a", "c"}]


@pytest.mark.parametrize(
    "y",
    [
        [[2, None], [{2, 5}, 5]],
        [np.array([2.0, NAN]), np.array([{2, 5}, 5.0], dtype=object)],
        [np.array([2.0, NAN], np.float32), (frozenset([np.int64(5), 2]), np.int8(5))],
    ],
)
def test_integers_may_come_as_floats_where_others_are_missing(y):
    codes, table = read(y)
    assert codes.tolist() == [0, 2, 2, 1]
    assert table.shape == (3, 2)


def test_labels_that_are_not_among_the_classes():
    codes, table = read([["a", "x", {"x", "b"}, {"x", "z"}, None]], np.array(["a", "b"]), new=True)
    assert table[codes].astype(int).tolist() == [[1, 0], [0, 0], [0, 1], [0, 0], [1, 1]]
    with pytest.raises(ValueError, match="Unknown label 'x' at row 1 of sequence 1; the known"):
        read([[{"a", "b"}], ["a", {"x"}]], np.array(["a", "b"]))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["a"], ["b", set()]], "The set of labels of y at row 1 of sequence 1 is empty; name"),
        ([["a"], ["b", {"c", 1.5}]], "Label 1.5 of y, at row 1 of sequence 1, is of type float"),
        ([["a", {"b"}], [None, 3]], "Label 3 of y, at row 1 of sequence 1, is of kind integer"),
        ([["a", {"b", None}]], "The set of labels of y at row 1 of sequence 0 holds None or NaN;"),
        ([[1.5, None]], "Label 1.5 of y, at row 0 of sequence 0, is of type float"),
        ([[2**63, None]], "is not a 64-bit integer"),
        ([["a", {"b\0"}]], "at row 1 of sequence 0, ends in a NUL character"),
    ],
)
def test_errors_name_the_row(y, message):
    with pytest.raises(ValueError, match=message):
        read(y)


@pytest.mark.parametrize("unknown", [None, NAN, {"a"}, np.float32("nan")], ids=str)
def test_what_needs_every_label_says_so(unknown):
    y = [["a", "b"], ["b", unknown]]
    X = [np.eye(2), np.eye(2)]
    match = "of y, at row 1 of sequence 1, is of type .*; labels must be strings"
    with pytest.raises(PartialLabelError, match=match):
        as_label_sequences(y)
    for tagger in (HMSVMTagger(), ZScoreTagger(), OnlineDecoder(HMSVMTagger())):
        with pytest.raises(ValueError, match=match):
            tagger.fit(X, y)
    with pytest.raises(ValueError, match="of y_true, at row 1 of sequence 1, is of type"):
        metrics.token_accuracy(y, [["a", "b"], ["b", "a"]])


def test_floats_that_are_not_whole_are_no_labels():
    with pytest.raises(ValueError) as error:
        as_label_sequences([[1.5, 2.0]])
    assert type(error.value) is ValueError


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, object])
def test_whole_floats_are_integers_with_and_without_unknown_labels(dtype):
    y = [np.array([3.0, 5.0], dtype), [5, 3], np.array([3.0], dtype)]
    flat, _ = as_label_sequences(y)
    assert flat.dtype == np.int64
    assert flat.tolist() == [3, 5, 5, 3, 3]
    assert_array_equal(read(y)[0], read([*y, np.array([NAN], dtype)])[0][:-1])


def test_penalties_leave_padding_alone():
    codes, table = read([["a", None, {"b", "c"}]])
    psi = np.ones((3, 4), np.float32)
    AllowedLabels(codes, table).restrict(psi, 0)
    forbidden = np.ones((3, 4), bool)
    forbidden[:, :3], forbidden[:, 3] = ~table[codes], False
    assert_array_equal(psi, np.where(forbidden, -np.inf, 1))
    AllowedLabels.all(3).restrict(psi, 0)
    assert psi.dtype == np.float32


@pytest.mark.parametrize("label", [None, np.nan, {"a", "b"}])
def test_the_error_names_what_reads_partial_labels(label):
    X, y = [np.eye(2)] * 2, [["a", label], ["b", "a"]]
    message = r"CRFTagger, score of taggers, standard_errors and known= .*; SemiCRFSegmenter.fit"
    with pytest.raises(PartialLabelError, match=message):
        HMSVMTagger().fit(X, y)
    tagger = CRFTagger().fit(X, y)
    assert standard_errors(tagger, X, y, robust=True).coef.shape == (2, 2)
    assert tagger.predict(X[:1], known=y[:1])[0][0] == "a"
    right = [tagger.predict(X)[0][0] == "a", *np.equal(tagger.predict(X)[1], y[1])]
    if isinstance(label, set):
        right.append(tagger.predict(X)[0][1] in label)
    assert tagger.score(X, y) == np.mean(right)
