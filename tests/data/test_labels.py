"""Label sequences, spans and constraints."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklseq.data._label_lists import label_list, label_lists

from sklseq._lib.threads import Threads
from sklseq.data.constraints import allowed_transitions, check_constraints, resolve_constraints
from sklseq.data.labels import (
    as_label_sequences,
    codes_of_strings,
    encode_labels,
    find_codes,
    split_labels,
)
from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
from sklseq.data.span_labels import SCHEMES, find_spans

TYPES = ("", "x", "y", "first-name")


def starts_and_ends_of_chunks(labels):
    """Read spans row by row with the two functions of the conlleval script, as they are there."""

    def tag_and_type(label):
        tag, _, type_ = label.partition("-")
        return {"L": "E", "U": "S"}.get(tag, tag), type_

    def end_of_chunk(before, tag, type_before, type_):
        pairs = {"BB", "BS", "BO", "IB", "IS", "IO", "EE", "EI", "EO", "SO", "SB", "SI", "SE", "SS"}
        pairs |= {"EB", "ES"}
        return before + tag in pairs or (before != "O" and type_before != type_)

    def start_of_chunk(before, tag, type_before, type_):
        pairs = {"BB", "IB", "OB", "OI", "EE", "EI", "OE", "SE", "SI", "OS", "BS", "IS"}
        pairs |= {"EB", "SB", "ES", "SS"}
        return before + tag in pairs or (tag != "O" and type_before != type_)

    segments, begun, before, type_before = [], None, "O", ""
    for row, label in enumerate([*labels, "O"]):
        tag, type_ = tag_and_type(label)
        if end_of_chunk(before, tag, type_before, type_):
            segments.append((begun, row, type_before))
        if start_of_chunk(before, tag, type_before, type_):
            begun = row
        before, type_before = tag, type_
    return segments


def labels_of(scheme, types=TYPES):
    letters = sorted(set(SCHEMES[scheme]))
    return ["O", *(f"{a}-{t}" if t else a for a in letters for t in types)]


any_label = st.sampled_from(sorted({*labels_of("iobes"), *labels_of("bilou")}))


@st.composite
def segments_and_length(draw):
    """Segments of one sequence, not overlapping, touching or not, and its length."""
    pieces = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from(TYPES))))
    segments, row = [], 0
    for gap, length, type_ in pieces:
        segments.append((row + gap, row + gap + length, type_))
        row += gap + length
    return segments, row + draw(st.integers(0, 2))


# ---------------------------------------------------------------- label sequences ↔ flat arrays


@pytest.mark.parametrize(
    ("y", "flat", "lengths"),
    [
        ([["B", "I"], [], ["O"]], ["B", "I", "O"], [2, 0, 1]),
        ([("B", "I"), np.array(["longer"])], ["B", "I", "longer"], [2, 1]),
        ([np.array(["B"]), np.array([]), np.array(["longer"])], ["B", "longer"], [1, 0, 1]),
        ([np.array(["B"], dtype=object), ["O"]], ["B", "O"], [1, 1]),
        ([[0, 1], [1, 1]], [0, 1, 1, 1], [2, 2]),
        (np.array([[0, 1, 0], [1, 1, 0]], dtype=np.uint8), [0, 1, 0, 1, 1, 0], [3, 3]),
        (np.array([["a", "b"], ["c", "d"]], dtype=object), ["a", "b", "c", "d"], [2, 2]),
        ([[True], [np.False_, True]], [True, False, True], [1, 2]),
        ([[np.int32(7)], [8]], [7, 8], [1, 1]),
    ],
)
def test_as_label_sequences(y, flat, lengths):
    got, offsets = as_label_sequences(y)
    assert got.tolist() == flat
    assert got.dtype == np.array(flat).dtype
    assert np.diff(offsets).tolist() == lengths
    assert (offsets.dtype, offsets[0]) == (np.int64, 0)


@pytest.mark.parametrize(("y", "n_sequences"), [([], 0), ([[], []], 2), (np.empty((3, 0)), 3)])
def test_no_labels_give_an_empty_array_of_strings(y, n_sequences):
    flat, offsets = as_label_sequences(y)
    assert flat.shape == (0,)
    assert flat.dtype.kind == "U"
    assert offsets.tolist() == [0] * (n_sequences + 1)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["a"], ["b", None]], r"Label None of y, at row 1 of sequence 1, is of type NoneType"),
        ([["a"], [], ["b", np.nan]], r"Label nan of y, at row 1 of sequence 2, is of type float"),
        ([[0, 1], [0.5]], r"Label 0.5 of y, at row 0 of sequence 1, is of type float"),
        ([["a", "b"], ["c", 3]], r"Label 3 of y, at row 1 of sequence 1, is of kind integer"),
        ([["a"], np.array([1])], r"Label 1 of y, at row 0 of sequence 1, is of kind integer"),
        ([np.array(["a"]), np.array([1])], r"Label 1 of y, at row 0 of sequence 1, is of kind int"),
        ([[1, 0], [True]], r"Label True of y, at row 0 of sequence 1, is of kind boolean"),
        (np.full((2, 2), 0.5), r"Label 0.5 of y, at row 0 of sequence 0, is of type float"),
        (
            [[1.0], ["a"]],
            r"Label 'a' of y, at row 0 of sequence 1, is of kind string and the labels",
        ),
        ([[2.0**64]], r"Label 18446744073709551616 of y, at row 0 of sequence 0, is not a 64-bit"),
        ([[b"B"]], r"Label b'B' of y, at row 0 of sequence 0, is of type bytes"),
        (
            [[(0, 2, "PER")]],
            r"Label \(0, 2, 'PER'\) of y, at row 0 of sequence 0, is of type tuple",
        ),
        ([["a", ["a", "b"]]], r"of type list; .* a set of possible labels \(labels in blocks come"),
        ([[np.array(["a"])]], r"of type ndarray; .* a function that yields the blocks\)"),
    ],
)
def test_bad_labels_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        as_label_sequences(y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ("BIO", r"y must be a list of label sequences; got str\."),
        (None, r"y must be a list of label sequences; got NoneType\."),
        ({"a": ["B"]}, r"y must be a list of label sequences; got dict\."),
        (["B", "I"], r"Sequence 0 of y must be a list .* got 'B' \(str\)\. To pass one sequence"),
        ([[0], 1], r"Sequence 1 of y must be a list .* got 1 \(int\)\."),
        (np.array([0, 1]), r"Sequence 0 of y must be a list .* got np.int64\(0\)|got 0"),
        ([["B"], {"B"}], r"Sequence 1 of y must be a list .* got \{'B'\} \(set\)\."),
        ([(label for label in "BI")], r"Sequence 0 of y must be a list .*\(generator\)\."),
        (np.zeros((2, 2, 2), dtype=int), r"Sequence 0 of y must be a 1-D array .* 2 dimensions\."),
    ],
)
def test_what_is_no_list_of_sequences_is_refused(y, message):
    with pytest.raises(TypeError, match=message):
        as_label_sequences(y)


@given(st.lists(st.lists(st.integers(-3, 3), max_size=4)))
def test_split_labels_is_the_reverse(y):
    flat, offsets = as_label_sequences(y)
    sequences = split_labels(flat, offsets)
    assert sequences.dtype == object
    assert sequences.shape == (len(y),)
    assert [sequence.tolist() for sequence in sequences] == y


@pytest.mark.parametrize(
    "flat", [np.array(["b", "a", "ü", "b", "Z"]), np.array([3, -1, 3]), np.array([True, False])]
)
def test_codes_index_the_sorted_classes(flat):
    classes = np.unique(flat)
    assert classes.dtype == flat.dtype
    assert classes.tolist() == sorted(set(flat.tolist()))
    codes = encode_labels(flat, classes)
    assert codes.dtype == np.int32
    assert_array_equal(classes[codes], flat)


@given(st.lists(st.lists(st.text(max_size=2), max_size=3) | st.just(("a", "ü")), max_size=4))
def test_codes_of_strings_are_those_of_the_array(y):
    flat = [label for labels in y for label in labels]
    found = codes_of_strings(y)
    if not flat or any(label.endswith("\0") for label in flat):
        assert found is None
        return
    classes, codes, offsets = found
    labels, cuts = as_label_sequences(y)
    assert_array_equal(classes, np.unique(labels))
    assert classes.dtype == labels.dtype
    assert_array_equal(codes, encode_labels(labels, classes))
    assert_array_equal(offsets, cuts)


@pytest.mark.parametrize(
    "y",
    ["ab", (["a"],), ["ab"], [["a"], {"b"}], [["a", 1]], [[np.str_("a")]], [[None, "a"]], [[]]],
)
def test_only_lists_of_plain_strings_are_coded_at_once(y):
    assert codes_of_strings(y) is None


def test_codes_follow_the_order_of_classes():
    assert encode_labels(np.array(["O", "B", "O"]), ["O", "B"]).tolist() == [0, 1, 0]
    assert encode_labels(np.array([], dtype=str), ["O", "B"]).shape == (0,)
    for classes in ([7, -2, 3], [2**62, 5, -(2**62)], [1, 0]):  # near each other or not
        flat = np.array([*classes, 4, 2**63 - 1, -(2**63), *classes * 4])
        assert (
            find_codes(flat, classes).tolist()
            == [0, 1, 2][: len(classes)] + [-1] * 3 + [*range(len(classes))] * 4
        )


def test_unknown_label_is_named():
    flat, offsets = as_label_sequences([["O", "O"], [], ["O", "B", "X", "Y"]])
    message = r"Unknown label 'X' at row 2 of sequence 2; the known labels are 'B', 'O': correct it"
    with pytest.raises(ValueError, match=message):
        encode_labels(flat, ["B", "O"], offsets)
    with pytest.raises(ValueError, match=r"Unknown label 'X' at row 4 of sequence 0"):
        encode_labels(flat, ["B", "O"])
    with pytest.raises(ValueError, match=r"known labels are 0, 1, 2, 3, 4, 5, 6, 7, \.\.\.:"):
        encode_labels(np.array([99]), np.arange(20))


# ------------------------------------------------------------------------- labels ↔ segments


@pytest.mark.parametrize(
    ("labels", "segments"),
    [
        ("B-x I-x O B-y", [(0, 2, "x"), (3, 4, "y")]),
        ("B-x B-x I-x", [(0, 1, "x"), (1, 3, "x")]),
        ("I-x I-x O I-y", [(0, 2, "x"), (3, 4, "y")]),
        ("B-x I-y I-y", [(0, 1, "x"), (1, 3, "y")]),
        ("B-x I-x E-x S-y O", [(0, 3, "x"), (3, 4, "y")]),
        ("B-x O E-x E-x I-x", [(0, 1, "x"), (2, 3, "x"), (3, 4, "x"), (4, 5, "x")]),
        ("B-x L-x U-x I-x", [(0, 2, "x"), (2, 3, "x"), (3, 4, "x")]),
        ("B I I O B", [(0, 3, ""), (4, 5, "")]),
        ("B-a-b I-a-b", [(0, 2, "a-b")]),
        ("O O", []),
        ("", []),
    ],
)
def test_reading_by_hand(labels, segments):
    assert labels_to_segments(labels.split(), scheme=None) == segments


@given(st.lists(any_label))
def test_any_order_of_labels_is_read_as_conlleval_does(labels):
    assert labels_to_segments(labels, scheme=None) == starts_and_ends_of_chunks(labels)


@given(st.lists(st.lists(any_label, max_size=6), max_size=6))
def test_spans_never_cross_sequences(y):
    flat, offsets = as_label_sequences(y)
    spans = find_spans(flat, offsets)
    got = [
        (start, stop, spans.types[code])
        for start, stop, code in zip(spans.start, spans.stop, spans.type)
    ]
    expected = [
        (offset + start, offset + stop, type_)
        for offset, labels in zip(offsets.tolist(), y)
        for start, stop, type_ in labels_to_segments(labels, scheme=None)
    ]
    assert got == expected
    assert spans.types == sorted({type_ for *_, type_ in expected})


@pytest.mark.parametrize("scheme", SCHEMES)
@given(segments_and_length())
def test_round_trip_from_segments(scheme, drawn):
    segments, n_steps = drawn
    labels = segments_to_labels(segments[::-1], n_steps, scheme)
    assert labels.shape == (n_steps,)
    assert labels_to_segments(labels, scheme) == segments
    assert labels_to_segments(labels, scheme, strict=True) == segments


@pytest.mark.parametrize("scheme", SCHEMES)
@given(st.data())
def test_round_trip_from_valid_labels(scheme, data):
    classes = labels_of(scheme)
    labels = data.draw(st.lists(st.sampled_from(classes), max_size=6))
    try:
        segments = labels_to_segments(labels, scheme, strict=True)
    except ValueError:
        repaired = segments_to_labels(labels_to_segments(labels, scheme), len(labels), scheme)
        assert repaired.tolist() != labels
    else:
        assert segments_to_labels(segments, len(labels), scheme).tolist() == labels


@given(st.lists(st.sampled_from(["O", "rest", "B-x"]), max_size=9))
def test_runs_of_states_are_segments(labels):
    runs = [(key, len(list(group))) for key, group in itertools.groupby(labels)]
    stops = list(itertools.accumulate(n for _, n in runs))
    expected = [(b - n, b, key) for (key, n), b in zip(runs, stops) if key != "O"]
    assert labels_to_segments(labels, "runs") == expected
    assert segments_to_labels(expected, len(labels), "runs").tolist() == labels


def test_runs_have_labels_that_are_strings():
    with pytest.raises(ValueError, match="got 1: write the labels as strings"):
        labels_to_segments([1, 1, 0], "runs")
    assert segments_to_labels([(0, 1, "a"), (1, 2, "a")], 2, "runs").tolist() == ["a", "a"]


def test_other_outside_label():
    labels = segments_to_labels([(1, 2, "x")], 3, outside="_")
    assert labels.tolist() == ["_", "B-x", "_"]
    assert labels_to_segments(labels, outside="_", strict=True) == [(1, 2, "x")]


@pytest.mark.parametrize(
    ("labels", "scheme", "message"),
    [
        (["O", "I-x"], "iob2", r"scheme='iob2': 'I-x' may not follow 'O' at row 1 of sequence 0"),
        (["I-x"], "iob2", r"'I-x' may not be the first label, at row 0 of sequence 0"),
        (["B-x", "I-x", "I-y"], "iob2", r"'I-y' may not follow 'I-x' at row 2 of sequence 0"),
        (["S-x", "B-x"], "iobes", r"'B-x' may not be the last label, at row 1 of sequence 0"),
        (["B-x", "O"], "iobes", r"'O' may not follow 'B-x' at row 1 of sequence 0\. Correct"),
        (["B-x", "U-x"], "bilou", r"'U-x' may not follow 'B-x' at row 1"),
    ],
)
def test_strict_reading_names_the_first_broken_span(labels, scheme, message):
    with pytest.raises(ValueError, match=message):
        labels_to_segments(labels, scheme, strict=True)


def test_several_sequences_are_converted_one_by_one():
    for labels in ([["B-x", "O"]], ([], ["O"]), [("B-x",)]):
        with pytest.raises(TypeError, match=r"of one sequence; .*labels_to_segments\(one\) for"):
            labels_to_segments(labels)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: labels_to_segments(["O", "S-x"]), r"Label 'S-x' at row 1 of sequence 0 is not a"),
        (lambda: labels_to_segments(["O", "S-x"]), r"have the form 'B-type', 'I-type': relabel it"),
        (lambda: labels_to_segments(["y", "O", "a"], None), r"Label 'y' at row 0 of sequence 0"),
        (lambda: labels_to_segments(["name"], None), r"Label 'name' at row 0 of sequence 0 is not"),
        (lambda: labels_to_segments([""], None), r"Label '' at row 0 of sequence 0 is not a span"),
        (lambda: labels_to_segments([0, 1]), r"Label 0 at row 0 of sequence 0 is not a span label"),
        (
            lambda: labels_to_segments([], "iob1"),
            r"scheme must be one of 'iob2', .*'runs'; got 'iob1'",
        ),
        (lambda: labels_to_segments([], None, strict=True), r"scheme must be one of .* got None"),
        (
            lambda: segments_to_labels([], -1),
            "n_steps, .* must be .* at least 0; got -1",
        ),
        (
            lambda: segments_to_labels([], 2.5),
            "n_steps, .* must be .*; got 2.5",
        ),
        (
            lambda: segments_to_labels([], "2"),
            "n_steps, .* must be .*; got '2'",
        ),
        (
            lambda: segments_to_labels([], None),
            "n_steps, .* must be .*; got None",
        ),
        (lambda: segments_to_labels(None, 4), "segments must be a list of triples .*; got None"),
        (lambda: segments_to_labels([], 2, outside=0), "outside must be a string, .*; got 0"),
        (
            lambda: segments_to_labels([(0, 2, "x")], 3, outside="I-x"),
            "outside='I-x' is also a label of the segment",
        ),
        (lambda: segments_to_labels([], 2, "IOB2"), r"scheme must be one of .*'runs'; got 'IOB2'"),
        (lambda: segments_to_labels([(0, 2)], 3), r"Segment \(0, 2\) must be a triple \(start, st"),
        (lambda: segments_to_labels([(0, 2, 5)], 3), r"Segment \(0, 2, 5\) must be a triple"),
        (lambda: segments_to_labels([(0.0, 2, "x")], 3), r"Segment \(0.0, 2, 'x'\) must be a tri"),
        (lambda: segments_to_labels([(2, 2, "x")], 3), r"Segment \(2, 2, 'x'\) is empty: start"),
        (lambda: segments_to_labels([(2, 4, "x")], 3), r"\(2, 4, 'x'\) exceeds .* 3 rows"),
        (lambda: segments_to_labels([(-1, 1, "x")], 3), r"\(-1, 1, 'x'\) exceeds its seq"),
        (
            lambda: segments_to_labels([(2, 4, "x"), (0, 3, "y")], 5),
            r"Segments \(0, 3, 'y'\) and \(2, 4, 'x'\) overlap; a row has one label",
        ),
    ],
)
def test_errors_of_labels_and_segments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------- constraints


@pytest.mark.parametrize("scheme", SCHEMES)
def test_allowed_paths_are_the_labelings_that_segments_can_be_written_as(scheme):
    classes = labels_of(scheme, types=("x", "y"))
    transition, start, end = allowed_transitions(classes, scheme)
    codes = dict(zip(classes, range(len(classes))))
    for n_steps in (1, 2, 3):
        for labels in itertools.product(classes, repeat=n_steps):
            path = [codes[label] for label in labels]
            allowed = start[path[0]] and end[path[-1]] and transition[path[:-1], path[1:]].all()
            segments = labels_to_segments(labels, scheme)
            written = tuple(segments_to_labels(segments, n_steps, scheme).tolist()) == labels
            assert allowed == written, labels


def test_allowed_transitions_by_hand():
    transition, start, end = allowed_transitions(["O", "B-x", "E-x", "I-x", "S-x"], "iobes")
    outside, inside = [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]
    assert transition.tolist() == [outside, inside, outside, inside, outside]
    assert start.tolist() == outside
    assert end.tolist() == [1, 0, 1, 0, 1]


def test_resolved_constraints():
    classes = np.array(["B-x", "I-x", "O"])
    for got, expected in zip(
        resolve_constraints("iob2", classes), allowed_transitions(classes, "iob2")
    ):
        assert_array_equal(got, expected)
    for got, shape in zip(resolve_constraints(None, [0, 1]), [(2, 2), (2,), (2,)]):
        assert_array_equal(got, np.ones(shape, dtype=bool), strict=True)
    mask = np.array([[True, False], [False, True]])
    resolved = resolve_constraints(mask, [0, 1])
    assert_array_equal(resolved.transition, mask, strict=True)
    assert not np.shares_memory(resolved.transition, mask)
    assert resolved.start.all()
    assert resolved.end.all()
    assert not resolve_constraints([[False, False], [False, True]], [0, 1]).transition[0].any()
    for same in (mask.astype(int), [[1, 0], [0, 1]], mask.astype(float), tuple(map(tuple, mask))):
        assert_array_equal(resolve_constraints(same, [0, 1]).transition, mask, strict=True)


def test_forbidden_pairs():
    """A scheme written as pairs gives the masks of the scheme; 0 and 1 may be labels."""
    classes = ["B-x", "I-x", "O"]
    scheme = allowed_transitions(classes, "iob2")
    pairs = {("O", "I-x"), (None, "I-x")}
    for found, expected in zip(resolve_constraints(pairs, classes), scheme):
        assert_array_equal(found, expected, strict=True)
    found = resolve_constraints([(0, 1), (1, None)], [0, 1])
    assert found.transition.tolist() == [[True, False], [True, True]]
    assert found.start.all()
    assert found.end.tolist() == [True, False]
    assert all(mask.all() for mask in resolve_constraints([], classes))


@pytest.mark.parametrize(
    ("constraints", "classes", "message"),
    [
        (
            "bio",
            ["O"],
            r"constraints must be None, 'iob2', .* \(1, 1\); got 'bio'\. Did you mean 'iob2'",
        ),
        ("IOB2", ["O"], "Did you mean 'iob2'"),
        ("BIOUL", ["O"], "Did you mean 'bilou'"),
        ("BIOES", ["O"], "Did you mean 'iobes'"),
        ("bmes", ["O"], "In 'iobes', M is I, and W is S: rename the labels"),
        ("spans", ["O"], "got 'spans'.$"),
        ("iob2", ["O", "name"], r"Label 'name' is not a span label; with scheme='iob2' labels"),
        ("iob2", ["O", "S-x"], r"Label 'S-x' is not a span label.* 'B-type', 'I-type'"),
        ("iobes", [0, 1], r"Label 0 is not a span label; with scheme='iobes'"),
        ([[True]], ["a", "b"], r"boolean, or 0 and 1, of shape \(2, 2\), .* bool, shape \(1, 1\)"),
        ([[1, 2], [0, 1]], ["a", "b"], r"0 and 1, of shape \(2, 2\), .* dtype int"),
        ([[True], [True, False]], ["a", "b"], r"of shape \(2, 2\), .* dtype object"),
        (0.5, ["a"], r"of shape \(1, 1\), .* got dtype float64, shape \(\)"),
        ([["a", "b"]], ["a", "b"], r"pairs needs tuples \(label, next label\)"),
        ([("a", "b", "a")], ["a", "b"], r"list of forbidden pairs .* got \('a', 'b', 'a'\)"),
        ([(None, None)], ["a", "b"], "list of forbidden pairs"),
        (
            [("a", "c")],
            ["a", "b"],
            "constraints names 'c', which is not a label; labels are 'a', 'b'",
        ),
        ([("a", ["b"])], ["a", "b"], r"constraints names \['b'\]"),
        ([(0, 1), (1, 0)], ["a", "b"], "constraints names 0, which is not a label"),
    ],
)
def test_errors_of_constraints(constraints, classes, message):
    with pytest.raises(ValueError, match=message):
        resolve_constraints(constraints, classes)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([["O"], [], ["B-x", "I-x", "E-x"]], None),
        ([["O"], ["B-x", "E-x"], ["O"]], None),
        ([[], []], None),
        (
            [["O"], [], ["O", "B-x", "O"]],
            r"violate `constraints`: 'O' may not follow 'B-x' at row 2 of sequence 2\. Correct",
        ),
        ([["O", "O"], ["E-x"]], r"'E-x' may not be the first label, at row 0 of sequence 1"),
        ([["O", "B-x"], ["E-x"]], r"'B-x' may not be the last label, at row 1 of sequence 0"),
    ],
)
def test_violated_constraints_are_named(y, message):
    classes = ["B-x", "E-x", "I-x", "O"]
    flat, offsets = as_label_sequences(y)
    codes = encode_labels(flat, classes, offsets)
    allowed = resolve_constraints("iobes", classes)
    if message is None:
        assert check_constraints(codes, offsets, allowed, classes) is None
        return
    with pytest.raises(ValueError, match=message):
        check_constraints(codes, offsets, allowed, classes)


def test_label_lists():
    classes, codes = ["a", "b", "c"], np.array([2, 0, 0, 1], dtype=np.intc)
    offsets = np.array([0, 3, 3, 4])
    found = label_lists(classes, codes, offsets)
    assert found == [["c", "a", "a"], [], ["b"]]
    assert found[0][1] is classes[0]
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=f"Code {wrong} is not the number of a label"):
            label_lists(classes, np.array([0, wrong], dtype=np.intc), np.array([0, 2]))


def test_threads_write_one_list():
    # Labels of no other object, whose references count: immortal ones would hide a wrong number.
    classes = ["".join(parts) for parts in (["la", "bel"], ["oth", "er"], ["ne", "ver"])]
    before = [sys.getrefcount(label) for label in classes]
    for n_rows in (0, 1, 2, 1000):
        codes = np.random.default_rng(n_rows).integers(0, 2, n_rows).astype(np.intc)
        with Threads(3) as threads:
            found = label_list(classes, codes, threads)
        assert found == label_lists(classes, codes, np.array([0, n_rows]))[0]
        held = [sys.getrefcount(label) for label in classes]
        assert held == (before + np.bincount(codes, minlength=3)).tolist()
    del found
    assert [sys.getrefcount(label) for label in classes] == before
    with Threads(2) as threads, pytest.raises(IndexError, match="Code 3 is not the number"):
        label_list(classes, np.array([0, 1, 2, 3], dtype=np.intc), threads)
