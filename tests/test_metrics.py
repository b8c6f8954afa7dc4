"""Token, sequence and span scores; scorers in scikit-learn's model selection."""

import pickle
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sklearn.metrics
from joblib import Parallel, delayed
from numpy.testing import assert_allclose, assert_array_equal
from seqeval import scheme as seqeval_schemes
from seqeval.metrics import sequence_labeling as seqeval
from seqeval.metrics import v1 as strict_seqeval
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_score,
    cross_validate,
    learning_curve,
)

from sklseq import CRFTagger, SemiCRFSegmenter, metrics
from sklseq.data.labels import as_label_sequences, split_labels
from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
from sklseq.data.strict_spans import find_strict_spans
from sklseq.metrics import (
    SCORERS,
    get_scorer,
    sequence_accuracy,
    span_f1,
    span_f1_scorer,
    span_fbeta,
    span_precision,
    span_precision_recall_fscore_support,
    span_recall,
    span_report,
    token_accuracy,
)
from tests.trials import readers as trials_readers

EXACT = 1e-12  # the same few operations in another order


def random_labels(seed, classes, n_sequences=12, max_length=9, n_wrong=0.3):
    """True and predicted label sequences, of unlike lengths and with many broken spans."""
    rng = np.random.default_rng(seed)
    y_true = [
        rng.choice(classes, size=rng.integers(0, max_length)).tolist() for _ in range(n_sequences)
    ]
    y_pred = [
        [rng.choice(classes).item() if rng.random() < n_wrong else label for label in labels]
        for labels in y_true
    ]
    return y_true, y_pred


IOB2 = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER", "B-a-b", "I-a-b"]
IOBES = ["O", *(f"{letter}-{type_}" for letter in "BIES" for type_ in ("LOC", "PER"))]


# --------------------------------------------------------------------- tokens and sequences


def test_accuracies_by_hand():
    y_true = [["a", "b"], [], ["a", "a", "a"], ["b"]]
    y_pred = [["a", "a"], [], ["a", "a", "a"], ["a"]]
    assert_allclose(token_accuracy(y_true, y_pred), 4 / 6, rtol=EXACT)
    assert_allclose(sequence_accuracy(y_true, y_pred), 2 / 4, rtol=EXACT)


def test_weights_count_sequences_again():
    y_true, y_pred = random_labels(0, IOB2)
    weight = np.random.default_rng(1).integers(0, 4, size=len(y_true))
    again = np.repeat(np.arange(len(y_true)), weight)
    for score in (token_accuracy, sequence_accuracy):
        expected = score([y_true[i] for i in again], [y_pred[i] for i in again])
        assert_allclose(score(y_true, y_pred, sample_weight=weight), expected, rtol=EXACT)
        assert 0 < expected < 1


@pytest.mark.parametrize("convert", [list, np.array, lambda y: np.array(y, dtype=object)])
def test_equal_length_binary_labels_are_sequences(convert):
    y_true, y_pred = convert([[0, 1, 0], [1, 1, 0]]), convert([[0, 1, 1], [1, 1, 0]])
    assert_allclose(token_accuracy(y_true, y_pred), 5 / 6, rtol=EXACT)
    assert_allclose(sequence_accuracy(y_true, y_pred), 1 / 2, rtol=EXACT)


@pytest.mark.parametrize("score", [token_accuracy, sequence_accuracy, span_f1, span_report])
@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        (
            [["O"], ["O"], ["O"]],
            [["O"], ["O"]],
            r"y_true has 3 sequences, y_pred 2; sequence 2 is missing in y_pred: pass",
        ),
        ([["O"]], [["O"], ["O"]], r"y_pred 2; sequence 1 is missing in y_true"),
        (
            [["O"], ["O", "O"], ["O"]],
            [["O"], ["O"], ["O", "O"]],
            r"Sequence 1 has 2 labels in y_true but 1 in y_pred; they must be of equal length",
        ),
        ([[], ["O"]], [[], [1]], r"labels such as 'O', y_pred such as 1 \(sequence 1\)"),
        ([["O", None]], [["O", "O"]], r"Label None of y_true, at row 1 of sequence 0"),
        ([["O", "O"]], [["O", np.nan]], r"Label nan of y_pred, at row 1 of sequence 0"),
    ],
)
def test_mismatches_name_the_sequence(score, y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        score(y_true, y_pred)


@pytest.mark.parametrize(
    ("score", "y", "weight", "message"),
    [
        (token_accuracy, [], None, r"Accuracy over no rows is undefined; pass sequences"),
        (token_accuracy, [[], []], None, r"Accuracy over no rows is undefined"),
        (sequence_accuracy, [], None, r"Accuracy over no sequences is undefined"),
        (sequence_accuracy, [["O"]], [0], r"Accuracy over no sequences is undefined"),
        (
            token_accuracy,
            [["O"]],
            [1, 2],
            r"one entry per sequence, shape \(1,\); got shape \(2,\)",
        ),
        (token_accuracy, [["O"], ["O"]], [1, -2], r"sample_weight\[1\] is -2.0; weights must be"),
        (sequence_accuracy, [["O"]], [np.nan], r"sample_weight\[0\] is nan; weights must be finit"),
    ],
)
def test_errors_of_accuracies(score, y, weight, message):
    with pytest.raises(ValueError, match=message):
        score(y, y, sample_weight=weight)


# ------------------------------------------------------------------------------------- spans


def test_span_scores_by_hand():
    y_true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O", "B-PER"]]
    y_pred = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "B-LOC", "I-PER"]]
    scores = span_precision_recall_fscore_support(y_true, y_pred)
    assert_allclose(scores.precision, [2 / 3, 1 / 2], rtol=EXACT)
    assert_allclose(scores.recall, [1, 1 / 2], rtol=EXACT)
    assert_allclose(scores.f1, [4 / 5, 1 / 2], rtol=EXACT)
    assert scores.support.tolist() == [2, 2]
    assert_allclose(span_precision(y_true, y_pred), 3 / 5, rtol=EXACT)
    assert_allclose(span_recall(y_true, y_pred), 3 / 4, rtol=EXACT)
    assert_allclose(span_f1(y_true, y_pred), 2 / 3, rtol=EXACT)
    assert_allclose(span_f1(y_true, y_pred, average="macro"), 13 / 20, rtol=EXACT)


AVERAGES = (None, "micro", "macro", "weighted")
SCHEMES = {
    "iob1": "BI", "iob2": "BI", "ioe1": "IE", "ioe2": "IE", "iobes": "BIES", "bilou": "BILU",
}  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.filterwarnings("ignore:.* seems not to be NE tag")
def test_where_scores_equal_those_of_seqeval(scheme, strict):
    """What the page on migration says: not in the default mode for BILOU, nor in IOE1 if strict.

    A bare "B" is left out: seqeval calls its type "_", here it is empty.
    """
    ours = {"mode": "strict", "scheme": scheme} if strict else {}
    theirs = {"scheme": getattr(seqeval_schemes, scheme.upper())} if strict else {}
    peer = strict_seqeval if strict else seqeval
    classes = ["O", *(f"{letter}-{type_}" for letter in SCHEMES[scheme] for type_ in ("a", "b-c"))]
    different = 0
    for seed in range(60):
        pair = random_labels(seed, classes, n_wrong=(0.05, 0.3, 1.0)[seed % 3])
        chosen = {"average": AVERAGES[seed % 4], "zero_division": 0}
        got = span_precision_recall_fscore_support(*pair, average=AVERAGES[seed % 4], **ours)
        expected = peer.precision_recall_fscore_support(*pair, **chosen, **theirs)
        different += not all(np.array_equal(a, b) for a, b in zip(got[3:], expected[3:]))
        if (scheme, strict) not in (("bilou", False), ("ioe1", True)):
            for value, reference in zip(got, expected):
                assert_allclose(value, reference, rtol=EXACT)
        if scheme == "bilou" and not strict:  # the letters of IOBES are what they mean here
            turned = [
                [[re.sub("^L", "E", re.sub("^U", "S", label)) for label in x] for x in y]
                for y in pair
            ]
            expected = seqeval.f1_score(*turned, zero_division=0)
            assert_allclose(span_f1(*pair), expected, rtol=EXACT)
    assert bool(different) == ((scheme, strict) in (("bilou", False), ("ioe1", True)))


def test_spans_agree_with_a_set_of_triples():
    """BILOU and bare prefixes, which seqeval does not read."""
    classes = ["O", "B", "I", "L", "U", "B-x", "I-x", "L-x", "U-x"]
    for seed in range(50):
        y_true, y_pred = random_labels(seed, classes)
        spans_true, spans_pred = (
            {(n, s) for n, labels in enumerate(y) for s in labels_to_segments(labels, "bilou")}
            for y in (y_true, y_pred)
        )
        f1 = 2 * len(spans_true & spans_pred) / (len(spans_true) + len(spans_pred))
        assert_allclose(span_f1(y_true, y_pred), f1, rtol=EXACT)


def test_random_labels_score_as_in_seqeval_and_conlleval():
    """All schemes × both modes × averages × zero_division × weights; broken and whole spans."""
    assert trials_readers.run("spans", 40, seed=1) == 40


def test_strict_mode_takes_whole_spans_only():
    broken, whole = [["I-a", "I-a"]], [["B-a", "I-a"]]
    assert span_f1(whole, broken) == 1
    for score in (span_f1, span_precision, span_recall):
        assert score(whole, broken, mode="strict", scheme="iob2") == 0
        assert score(whole, whole, mode="strict", scheme="iob2") == 1
    # A label of no span is no type of the averages.
    strict = {"mode": "strict", "scheme": "iob2"}
    y_true, y_pred = [["B-a", "O", "I-b"]], [["B-a", "I-b", "O"]]
    assert span_f1(y_true, y_pred, average=None, **strict).tolist() == [1]
    assert span_f1(y_true, y_pred, average="macro") == 0.5


def test_strict_scorers_and_reports():
    X, y = [["a", "b"]] * 2, [["B-a", "I-a"], ["O", "I-a"]]
    tagger = make_tagger().fit(X[1:], [["I-a", "I-a"]])
    strict = {"mode": "strict", "scheme": "iob2"}
    assert make_scorer(span_f1)(tagger, X, y) == 0.5
    assert make_scorer(span_f1, **strict)(tagger, X, y) == 0
    report = span_report([["B-a", "I-a"]], [["I-a", "I-a"]], output_dict=True, **strict)
    assert report["micro avg"] == {"precision": 0, "recall": 0, "f1-score": 0, "support": 1}
    assert "a       0.00      0.00      0.00         1" in span_report(
        [["B-a", "I-a"]], [["I-a", "I-a"]], **strict
    )


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou"])
def test_strict_mode_reads_what_the_scheme_writes(scheme):
    """Random spans, written by the rules of each scheme; those of IOB1 and IOE1 by hand."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        spans, at = [], int(rng.integers(0, 2))
        while at < 8:
            stop = at + int(rng.integers(1, 4))
            spans.append((at, stop, "xy"[rng.integers(2)]))
            at = stop + int(rng.integers(0, 2))
        n = at + 1
        labels = ["O"] * n
        for k, (start, stop, type_) in enumerate(spans):
            before, after = (
                spans[j] if 0 <= j < len(spans) else (-1, -1, "") for j in (k - 1, k + 1)
            )
            letters = ["I"] * (stop - start)
            if scheme == "iob2" or (scheme == "iob1" and before[1:] == (start, type_)):
                letters[0] = "B"
            if scheme == "ioe2" or (scheme == "ioe1" and after[::2] == (stop, type_)):
                letters[-1] = "E"
            labels[start:stop] = [f"{letter}-{type_}" for letter in letters]
        if scheme in ("iobes", "bilou"):
            labels = segments_to_labels(spans, n, scheme).tolist()
        flat, offsets = as_label_sequences([labels, labels])
        found = find_strict_spans(flat, offsets, scheme)
        read = [(a, b, found.types[c]) for a, b, c in zip(found.start, found.stop, found.type)]
        assert read == spans + [(a + n, b + n, type_) for a, b, type_ in spans]


def test_labels_with_their_prefix_behind_are_refused():
    for options in ({}, {"mode": "strict", "scheme": "iob2"}):
        with pytest.raises(ValueError, match="y_true: Label 'PER-B' at row 1 of sequence 0 is not"):
            span_f1([["O", "PER-B"]], [["O", "O"]], **options)


def test_labels_turned_round_score_as_with_suffixes_in_seqeval():
    def turn(y):
        return [["-".join(label.rsplit("-", 1)[::-1]) for label in labels] for labels in y]

    strict = {"scheme": "iobes", "mode": "strict"}, {"scheme": seqeval_schemes.IOBES}
    for seed in range(20):
        pair = random_labels(seed, IOBES, n_wrong=0.3)
        suffixed = [
            [["-".join(label.split("-", 1)[::-1]) for label in labels] for labels in y]
            for y in pair
        ]
        turned = [turn(y) for y in suffixed]
        assert [[list(labels) for labels in y] for y in pair] == turned
        for peer, (ours, theirs) in ((seqeval, ({}, {})), (strict_seqeval, strict)):
            expected = peer.precision_recall_fscore_support(
                *suffixed, average="macro", zero_division=0, suffix=True, **theirs
            )
            got = span_precision_recall_fscore_support(*turned, average="macro", **ours)
            assert_allclose(got[:3], expected[:3], rtol=EXACT, atol=0)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 3.0])
def test_fbeta_agrees_with_seqeval(beta, strict):
    ours = {"mode": "strict", "scheme": "iobes"} if strict else {}
    theirs = {"scheme": seqeval_schemes.IOBES} if strict else {}
    peer = strict_seqeval if strict else seqeval
    for seed in range(20):
        y_true, y_pred = random_labels(seed, IOBES, n_wrong=0.3)
        for average in (None, "micro", "macro", "weighted"):
            expected = peer.precision_recall_fscore_support(
                y_true, y_pred, average=average, zero_division=0, beta=beta, **theirs
            )
            got = span_fbeta(y_true, y_pred, beta=beta, average=average, **ours)
            assert_allclose(got, expected[2], rtol=EXACT, atol=0)


def test_fbeta_at_its_ends():
    y_true, y_pred = random_labels(3, IOB2)
    weight = np.random.default_rng(0).random(len(y_true))
    types = {"labels": sorted({label[2:] for labels in y_true for label in labels} - {""})[:2]}
    for options in ({"average": "macro"}, {"sample_weight": weight}, types):
        chosen = y_true, y_pred
        assert span_fbeta(*chosen, beta=0, **options) == span_precision(*chosen, **options)
        assert span_fbeta(*chosen, beta=1, **options) == span_f1(*chosen, **options)
        assert_allclose(span_fbeta(*chosen, beta=1e9, **options), span_recall(*chosen, **options))
    half = span_fbeta(y_true, y_pred, beta=0.5)
    assert span_fbeta(y_true, y_pred, beta=Fraction(1, 2)) == half
    for beta in (-1, np.nan, np.inf, None, "2", [1], 1e200, Decimal(1), np.array([1.0, 2.0])):
        with pytest.raises(ValueError, match="beta must be a real number from 0 to 1e100; got"):
            span_fbeta(y_true, y_pred, beta=beta)


def test_weights_count_spans_again():
    y_true, y_pred = random_labels(2, IOB2)
    weight = np.random.default_rng(1).integers(0, 4, size=len(y_true))
    again = np.repeat(np.arange(len(y_true)), weight)
    expected = span_precision_recall_fscore_support(
        [y_true[i] for i in again], [y_pred[i] for i in again]
    )
    got = span_precision_recall_fscore_support(y_true, y_pred, sample_weight=weight)
    for value, reference in zip(got, expected):
        assert_allclose(value, reference, rtol=EXACT)
    halves = {"sample_weight": weight / 2}
    assert_allclose(
        span_f1(y_true, y_pred, **halves), span_f1(y_true, y_pred, sample_weight=weight)
    )
    with pytest.raises(ValueError, match=r"sample_weight\[1\] is -1"):
        span_f1([["O"], ["O"]], [["O"], ["O"]], sample_weight=[1, -1])


@pytest.mark.parametrize("scale", [1e308, 1e-310, 5e-324])
@pytest.mark.filterwarnings("error")
def test_weights_may_have_any_scale(scale):
    y_true, y_pred = random_labels(2, IOB2)
    weight = (np.arange(len(y_true)) % 2).astype(float)
    for score in (token_accuracy, sequence_accuracy):
        expected = score(y_true, y_pred, sample_weight=weight)
        assert_allclose(score(y_true, y_pred, sample_weight=weight * scale), expected, rtol=EXACT)
    for average in (None, "micro", "macro", "weighted"):
        expected, found = (
            span_precision_recall_fscore_support(y_true, y_pred, sample_weight=one, average=average)
            for one in (weight, weight * scale)
        )
        for value, reference in zip(found[:3], expected[:3]):
            assert_allclose(value, reference, rtol=EXACT)
    report = span_report(y_true, y_pred, sample_weight=weight * scale, output_dict=True)
    assert_allclose(report["micro avg"]["f1-score"], span_f1(y_true[1::2], y_pred[1::2]))
    assert (report["token accuracy"]["support"] == np.inf) == (scale == 1e308)


def test_weights_of_sequences_without_spans_do_not_count():
    y = [["B-a"], ["O"]]
    assert span_f1(y, y, sample_weight=[1e-300, 1.7e308]) == 1


@pytest.mark.parametrize("zero_division", [0.0, 1.0, np.nan])
def test_weighted_average_without_true_spans_is_that_of_scikit_learn(zero_division):
    got = span_precision_recall_fscore_support(
        [["O", "O"]], [["B-x", "B-y"]], average="weighted", zero_division=zero_division
    )
    expected = sklearn.metrics.precision_recall_fscore_support(
        ["O", "O"], ["x", "y"], labels=["x", "y"], average="weighted", zero_division=zero_division
    )
    assert_array_equal(got[:3], expected[:3])
    assert_array_equal(got[:3], [0, zero_division, 0])


@pytest.mark.parametrize("average", [None, "micro", "macro", "weighted"])
@pytest.mark.parametrize("seed", range(5))
def test_changes_that_change_no_span_score(average, seed):
    y_true, y_pred = random_labels(seed, IOB2)
    expected = span_precision_recall_fscore_support(y_true, y_pred, average=average)

    order = np.random.default_rng(seed).permutation(len(y_true))
    permuted = [y_true[i] for i in order], [y_pred[i] for i in order]
    # One long sequence: an O between two sequences does what the boundary did.
    joined = tuple([[label for labels in y for label in [*labels, "O"]]] for y in (y_true, y_pred))
    # The same spans, written correctly in another scheme.
    rewritten = tuple(
        [segments_to_labels(labels_to_segments(row), len(row), "iobes") for row in y]
        for y in (y_true, y_pred)
    )
    as_arrays = tuple(split_labels(*as_label_sequences(y)) for y in permuted)
    for changed in (permuted, joined, rewritten, as_arrays):
        got = span_precision_recall_fscore_support(*changed, average=average)
        for value, reference in zip(got, expected):
            assert_allclose(value, reference, rtol=EXACT, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_renamed_types_rename_the_scores(seed):
    y_true, y_pred = random_labels(seed, IOB2)
    names = {"LOC": "z", "PER": "m", "a-b": ""}  # reverses the sorted order

    def rename(y):
        parts = [[label.partition("-") for label in labels] for labels in y]
        return [[a + h + names.get(type_, "") for a, h, type_ in labels] for labels in parts]

    before = span_precision_recall_fscore_support(y_true, y_pred)
    after = span_precision_recall_fscore_support(rename(y_true), rename(y_pred))
    for value, reference in zip(after, before):
        assert_array_equal(value, reference[::-1])


@pytest.mark.parametrize("seed", range(5))
def test_swapping_truth_and_prediction_swaps_precision_and_recall(seed):
    y_true, y_pred = random_labels(seed, IOBES)
    scores = span_precision_recall_fscore_support(y_true, y_pred)
    swapped = span_precision_recall_fscore_support(y_pred, y_true)
    assert_array_equal(scores.precision, swapped.recall)
    assert_array_equal(scores.f1, swapped.f1)
    assert_array_equal(span_f1(y_true, y_true, average=None), np.ones(2))


def test_chosen_types():
    y_true, y_pred = [["B-x", "B-y", "O", "B-z"]], [["B-x", "O", "B-y", "B-z"]]
    scores = span_precision_recall_fscore_support(y_true, y_pred, labels=["z", "no", "y"])
    assert scores.f1.tolist() == [1, 0, 0]
    assert scores.support.tolist() == [1, 0, 1]
    chosen = {"labels": ["x", "y"]}
    assert span_f1(y_true, y_pred, **chosen) == 0.5
    assert span_f1(y_true, y_pred, average="macro", labels=["x", "z", "no"]) == 2 / 3
    assert span_recall(y_true, y_pred, average="weighted", **chosen) == 0.5


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_zero_division_without_any_span(average, value):
    for y in ([], [[]], [["O", "O"]]):
        scores = span_precision_recall_fscore_support(y, y, average=average, zero_division=value)
        assert_array_equal(scores, [value, value, value, 0])
    assert span_f1([["O"]], [["O"]], average=None).shape == (0,)


def test_zero_division_of_a_type_on_one_side():
    y_true, y_pred = [["B-x", "O", "B-y"]], [["O", "B-z", "B-y"]]  # types x, y, z
    for value in (0.0, 1.0, np.nan):
        precision, recall, f1, support = span_precision_recall_fscore_support(
            y_true, y_pred, zero_division=value
        )
        assert_array_equal(precision, [value, 1, 0])
        assert_array_equal(recall, [0, 1, value])
        assert_array_equal(f1, [0, 1, 0])
        assert_array_equal(support, [1, 1, 0])
    assert span_precision(y_true, y_pred, average="macro", zero_division=np.nan) == 0.5


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        ([["B-x"]], {"average": "samples"}, r"average must be None, 'micro', .*; got 'samples'\."),
        ([["B-x"]], {"labels": "x"}, r"a list of span types; got the string 'x': wrap it"),
        ([["B-x"]], {"zero_division": "warn"}, r"zero_division must be .*; got 'warn'\."),
        ([["B-x"]], {"zero_division": 0.5}, r"zero_division must be 0.0, 1.0 or nan; got 0.5\."),
        ([["B-x"]], {"mode": "lenient"}, r"mode must be 'conlleval' or 'strict'; got 'lenient'\."),
        ([["B-x"]], {"scheme": "iob2"}, r"scheme='iob2' needs mode='strict', which reads valid"),
        ([["B-x"]], {"mode": "strict"}, r"scheme must be one of 'iob1', .*; got None\."),
        (
            [["B-x"]],
            {"mode": "strict", "scheme": ["iob"]},
            r"scheme must be one of 'iob1', .*; got \['iob'\]\.",
        ),
        (
            [["O"], ["O", "E-x"]],
            {"mode": "strict", "scheme": "iob2"},
            r"y_true: Label 'E-x' at row 1 of sequence 1 .* the form 'B-type', 'I-type': relabel",
        ),
        ([[0, 1]], {}, r"y_true: Label 0 at row 0 of sequence 0 is not a span label"),
    ],
)
def test_errors_of_span_scores(y, options, message):
    with pytest.raises(ValueError, match=message):
        span_precision_recall_fscore_support(y, y, **options)


def test_wrong_label_in_y_pred_is_named():
    with pytest.raises(ValueError, match=r"y_pred: Label 'name' at row 1 of sequence 0 is not"):
        span_f1([["O", "O"]], [["O", "name"]])


# ------------------------------------------------------------------------------------ report


def test_report_as_text():
    y_true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    y_pred = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "O"]]
    assert span_report(y_true, y_pred, digits=3).splitlines() == [
        "                precision    recall  f1-score   support",
        "",
        "           LOC      1.000     0.500     0.667         2",
        "           PER      0.500     1.000     0.667         1",
        "",
        "     micro avg      0.667     0.667     0.667         3",
        "     macro avg      0.750     0.750     0.667         3",
        "  weighted avg      0.833     0.667     0.667         3",
        "token accuracy                          0.833         6",
    ]


def test_report_columns_stay_aligned_with_long_types():
    labels = [["B-a-very-long-type-of-span", "O"]]
    lines = span_report(labels, labels).splitlines()
    assert {len(line) for line in lines if line} == {len(lines[0])}


def test_report_without_spans():
    report = span_report([["O", "O"]], [["O", "O"]], output_dict=True)
    assert report["token accuracy"] == {"accuracy": 1.0, "support": 2}
    assert set(report) == {"micro avg", "macro avg", "weighted avg", "token accuracy"}


@pytest.mark.parametrize("weight", [None, [0, 0]])
@pytest.mark.parametrize("y", [[[], []], [["B-a"], ["O", "O"]], []])
def test_a_report_of_nothing_has_zeros(y, weight):
    weight = weight and weight[: len(y)]
    if any(y) and weight is None:
        return
    report = span_report(y, y, output_dict=True, sample_weight=weight)
    assert report.pop("token accuracy") == {"accuracy": 0, "support": 0}
    assert {value for row in report.values() for value in row.values()} == {0}
    assert span_report(y, y, sample_weight=weight).split()[-1] in ("0", "0.00")


def test_report_as_dictionary_has_the_scores():
    y_true, y_pred = random_labels(3, IOB2)
    report = span_report(y_true, y_pred, output_dict=True)
    averages = ["micro avg", "macro avg", "weighted avg"]
    assert list(report) == ["LOC", "PER", "a-b", *averages, "token accuracy"]
    scores = span_precision_recall_fscore_support(y_true, y_pred)
    for index, type_ in enumerate(["LOC", "PER", "a-b"]):
        assert list(report[type_].values()) == [score[index] for score in scores]
    for average in ("micro", "macro", "weighted"):
        scores = span_precision_recall_fscore_support(y_true, y_pred, average=average)
        assert list(report[f"{average} avg"].values()) == list(scores)
    assert report["token accuracy"]["accuracy"] == token_accuracy(y_true, y_pred)


@pytest.mark.parametrize("seed", range(5))
def test_weights_in_a_report_are_copies(seed):
    y_true, y_pred = random_labels(seed, IOB2)
    weight = np.random.default_rng(seed).integers(0, 4, size=len(y_true))
    weight[0] = 1
    weighted = span_report(y_true, y_pred, output_dict=True, sample_weight=weight)
    copies = [[y for y, n in zip(one, weight) for _ in range(n)] for one in (y_true, y_pred)]
    expected = span_report(*copies, output_dict=True)
    for name, row in expected.items():
        assert weighted[name] == pytest.approx(row)
    lines = span_report(y_true, y_pred, sample_weight=weight / 2).splitlines()
    assert {len(line) for line in lines if line} == {len(lines[0])}


# ---------------------------------------------------------------------------------- segments


@pytest.mark.parametrize("seed", range(10))
def test_segments_score_as_their_labels(seed):
    y_true, y_pred = random_labels(seed, IOB2)
    true, pred = ([labels_to_segments(labels) for labels in y] for y in (y_true, y_pred))
    found = np.empty(len(pred), dtype=object)
    found[:] = pred
    for average in (None, "micro", "macro", "weighted"):
        expected = span_precision_recall_fscore_support(y_true, y_pred, average=average)
        for pair in ((true, pred), (true, y_pred), (y_true, pred), (y_true, found)):
            got = span_precision_recall_fscore_support(*pair, average=average)
            for a, b in zip(got, expected):
                assert_array_equal(a, b)
    report = span_report(y_true, y_pred, output_dict=True)
    del report["token accuracy"]
    assert span_report(true, found, output_dict=True) == report


def test_a_segmenter_that_finds_nothing():
    nothing = np.empty(2, dtype=object)
    nothing[:] = [[], []]
    for y_true in ([["B-a"], ["O", "O"]], [[(0, 1, "a")], []]):
        assert span_f1(y_true, nothing) == 0.0
    assert span_f1([[], []], [[], [(0, 2, "a")]]) == 0.0
    assert span_f1([["B-a"], ["O", "O"]], [[], []]) == 0.0


def test_answers_for_empty_sequences_are_labels():
    tagger = CRFTagger().fit([np.eye(2)], [["B-x", "O"]])
    p = tagger.predict([np.zeros((0, 2))])
    assert span_f1([[]], p, mode="strict", scheme="iob2") == 0.0
    assert sequence_accuracy([[]], p) == 1.0
    assert "token accuracy" not in span_report([["B-x"]], p, output_dict=True)
    with pytest.raises(ValueError, match=r"1 label in y_true but 0 .* If the empty lists are"):
        token_accuracy([["B-x"]], p)
    with pytest.raises(ValueError, match="1 label in y_true but 0"):
        span_f1([["B-x"]], p, mode="strict", scheme="iob2")
    with pytest.raises(ValueError, match="1 label in y_true but 0"):
        span_f1([["B-x"]], tagger.set_output(predict="array").predict([np.zeros((0, 2))]))
    with pytest.raises(ValueError, match="over no sequences"):
        sequence_accuracy([], np.empty(0, object))


def test_segments_where_they_have_no_score():
    segments = [[(0, 1, "a")]]
    for accuracy in (token_accuracy, sequence_accuracy):
        with pytest.raises(ValueError, match=r"y_true holds segments .* use span_f1"):
            accuracy(segments, segments)
    with pytest.raises(ValueError, match=r"mode='strict' is for labels"):
        span_f1(segments, segments, mode="strict", scheme="iob2")
    with pytest.raises(ValueError, match=r"y_true has 1 sequence, y_pred 2"):
        span_f1(segments, segments * 2)
    with pytest.raises(ValueError, match=r"^Sequence 0 of y_pred: "):
        span_f1([["B-a"]], [[(0, 2, "a")]])


@pytest.mark.parametrize(
    "wrong",
    [
        (0.0, 2.0, "x"), (0, 2.5, "x"), (True, 2, "x"), ("0", "2", "x"), (0, None, "x"), (0, 1),
        (0, 2, 3), (0, 2, None), (0, 2, np.nan), (0, 2, ["x"]), "B-x", 7, None,
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("side", ["y_true", "y_pred"])
def test_wrong_segments_are_named(wrong, side):
    right = [[(0, 1, "x")], [(0, 2, "x")]]
    sides = {"y_true": right, "y_pred": right} | {side: [right[0], [(0, 1, "x"), wrong]]}
    message = f"^Segment 1 of sequence 1 of {side} must be .start, stop, label., two integers"
    for metric in (span_f1, span_report):
        with pytest.raises(ValueError, match=message):
            metric(**sides)


@pytest.mark.parametrize("form", ["segments", "labels"])
def test_scorers_of_spans_take_a_segmenter(form):
    X = [np.eye(2), np.eye(2)[[0, 0, 1]]] * 3
    y = [["B-a", "B-b"], ["B-a", "I-a", "B-b"]] * 3
    if form == "segments":
        y = [labels_to_segments(labels) for labels in y]
    segmenter = SemiCRFSegmenter().fit(X, y)
    assert span_f1_scorer(segmenter, X, y) == segmenter.score(X, y) == 1.0
    scores = cross_val_score(SemiCRFSegmenter(), X, y, cv=2, scoring=span_f1_scorer)
    assert_array_equal(scores, cross_val_score(SemiCRFSegmenter(), X, y, cv=2))
    with pytest.raises(ValueError, match=r"use span_f1 and its scorer"):
        get_scorer("token_accuracy")(segmenter, X, y)


# ----------------------------------------------------------------------------------- scorers


def make_tagger(damage=0.0):
    # A class inside a function travels by value to worker processes, which cannot import tests.
    class Tagger(BaseEstimator):
        """Says of each token what it was told of it; `damage` is the share of lies."""

        def __init__(self, damage=0.0):
            self.damage = damage

        def fit(self, X, y):
            self.label_of_ = {t: label for x, z in zip(X, y) for t, label in zip(x, z)}
            self.classes_ = sorted(set(self.label_of_.values()))
            return self

        def predict(self, X):
            rng = np.random.default_rng(0)
            labels = np.empty(len(X), dtype=object)
            for index, tokens in enumerate(X):
                told = [self.label_of_.get(token, self.classes_[0]) for token in tokens]
                lies = rng.random(len(tokens)) < self.damage
                labels[index] = np.where(lies, self.classes_[0], told)
            return labels

    return Tagger(damage)


def ragged_corpus():
    y = random_labels(7, IOB2, n_sequences=40, max_length=12)[0]
    return y, y  # tokens that say what they are


def equal_length_corpus(as_array=False):
    X = np.random.default_rng(0).integers(0, 10, size=(30, 3))
    y = (X > 4).astype(int)
    return (X, y) if as_array else (X.tolist(), y.tolist())


@pytest.mark.parametrize("name", SCORERS)
def test_grid_search_by_scorer(name):
    X, y = ragged_corpus()
    search = GridSearchCV(make_tagger(), {"damage": [1.0, 0.0, 0.5]}, scoring=SCORERS[name], cv=3)
    search.fit(X, y)
    assert search.best_params_ == {"damage": 0.0}
    assert search.best_score_ == 1.0
    assert 0 <= search.cv_results_["mean_test_score"][0] < 1


def test_several_scorers_at_once():
    X, y = ragged_corpus()
    found = cross_validate(make_tagger(0.3), X, y, scoring=SCORERS, cv=KFold(3))
    for name, scorer in SCORERS.items():
        expected = cross_val_score(make_tagger(0.3), X, y, scoring=scorer, cv=KFold(3))
        assert_array_equal(found[f"test_{name}"], expected)
        assert 0 < expected.mean() < 1
    search = GridSearchCV(
        make_tagger(), {"damage": [0.5, 0.0]}, scoring=SCORERS, refit="span_f1", cv=3
    )
    assert clone(search).fit(X, y).best_params_ == {"damage": 0.0}


@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("name", ["token_accuracy", "sequence_accuracy"])
def test_equal_length_binary_labels_through_model_selection(name, as_array):
    X, y = equal_length_corpus(as_array)
    assert cross_val_score(make_tagger(), X, y, scoring=SCORERS[name], cv=3).tolist() == [1, 1, 1]
    damaged = cross_val_score(make_tagger(0.8), X, y, scoring=SCORERS[name], cv=3)
    assert ((damaged > 0) & (damaged < 1)).all()
    scorer, tagger = SCORERS[name], make_tagger(0.8).fit(X, y)
    pairs = list(zip(y, tagger.predict(X)))
    by_hand = {
        "token_accuracy": np.mean([a == b for rows in pairs for a, b in zip(*rows)]),
        "sequence_accuracy": np.mean([list(a) == list(b) for a, b in pairs]),
    }
    assert_allclose(scorer(tagger, X, y), by_hand[name], rtol=EXACT)
    search = GridSearchCV(make_tagger(), {"damage": [0.8, 0.0]}, scoring=SCORERS[name], cv=3).fit(
        X, y
    )
    assert search.best_params_ == {"damage": 0.0}
    sizes, _, test_scores = learning_curve(make_tagger(), X, y, scoring=SCORERS[name], cv=3)
    assert test_scores.shape == (len(sizes), 3)


@pytest.mark.parametrize("name", SCORERS)
def test_scorers_pickle_and_are_cloned(name):
    X, y = ragged_corpus()
    tagger = make_tagger(0.5).fit(X, y)
    score = SCORERS[name](tagger, X, y)
    assert pickle.loads(pickle.dumps(SCORERS[name]))(tagger, X, y) == score
    assert clone(SCORERS[name], safe=False)(tagger, X, y) == score
    assert metrics.get_scorer(name)(tagger, X, y) == score


def test_scorers_work_in_worker_processes():
    X, y = ragged_corpus()
    tagger = make_tagger(0.5).fit(X, y)
    with Parallel(n_jobs=2, backend="loky") as workers:
        scores = workers(delayed(scorer)(tagger, X, y) for scorer in SCORERS.values())
    assert scores == [scorer(tagger, X, y) for scorer in SCORERS.values()]
    both = {name: SCORERS[name] for name in ("span_f1", "token_accuracy")}
    options = {"scoring": both, "refit": "span_f1", "cv": 3}
    grid = {"damage": [0.5, 0.0]}
    alone, together = (
        GridSearchCV(make_tagger(), grid, n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (1, 2)
    )
    assert together.best_params_ == {"damage": 0.0}
    for name in ("mean_test_span_f1", "mean_test_token_accuracy"):
        assert_array_equal(together.cv_results_[name], alone.cv_results_[name])


def test_weight_reaches_the_scorer():
    X, y = [["B-x"], ["O"]], [["B-x"], ["B-x"]]
    tagger = make_tagger().fit(X[:1] + [["O"]], y[:1] + [["O"]])
    assert metrics.token_accuracy_scorer(tagger, X, y, sample_weight=[3, 1]) == 0.75


def test_other_parameters_make_another_scorer():
    X, y = ragged_corpus()
    tagger = make_tagger(0.5).fit(X, y)
    macro = make_scorer(span_f1, average="macro", zero_division=1.0)
    expected = span_f1(y, tagger.predict(X), average="macro", zero_division=1.0)
    assert macro(tagger, X, y) == expected


def test_get_scorer_knows_the_names_of_scikit_learn():
    assert repr(metrics.get_scorer("accuracy")) == repr(sklearn.metrics.get_scorer("accuracy"))
    assert metrics.get_scorer("span_f1") is not metrics.span_f1_scorer
    with pytest.raises(ValueError, match="span_f2"):
        metrics.get_scorer("span_f2")


IMPORT_EVERYTHING = """
import copyreg, importlib, os, pkgutil, random, signal, sys, warnings
import numpy as np, sklearn
import scipy.optimize, sklearn.feature_selection, sklearn.inspection, sklearn.linear_model
import sklearn.model_selection, sklearn.pipeline, sklearn.preprocessing
from sklearn.metrics import get_scorer_names

USERS = [
    user
    for name, module in sorted(sys.modules.items()) if name.startswith("sklearn") and module
    for user in vars(module).values() if hasattr(user, "__dict__")
]


def options_of(user):
    for name in ("_parameter_constraints", "_skl_parameter_constraints"):
        constraints = vars(user).get(name)
        if isinstance(constraints, dict):
            yield [sorted(map(str, getattr(c, "options", [c]))) for c in constraints.values()
                   if not isinstance(c, list)]
            yield [sorted(map(str, getattr(option, "options", [option])))
                   for c in constraints.values() if isinstance(c, list) for option in c]


def seen():
    return {
        "names of scorers": get_scorer_names(),
        "constraints of parameters": [list(options_of(user)) for user in USERS],
        "settings": sklearn.get_config(),
        "NumPy": (np.geterr(), np.get_printoptions(), str(np.random.get_state())),
        "random": random.getstate(),
        "warnings": warnings.filters[:],
        "environment": dict(os.environ),
        "path": sys.path[:],
        "pickle": set(copyreg.dispatch_table),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "hooks": (sys.excepthook, sys.displayhook, sys.getrecursionlimit()),
    }


before = seen()
import sklseq
names = [m.name for m in pkgutil.walk_packages(sklseq.__path__, "sklseq.")]
for name in names:  # those with dependencies of their own apart
    if not name.startswith(("sklseq.display", "sklseq.estimators.sources.cluster")):
        importlib.import_module(name)
after = seen()
print("imported", len(names), "changed", [what for what in before if before[what] != after[what]])
"""


def test_importing_changes_nothing_outside_the_package():
    done = subprocess.run([sys.executable, "-c", IMPORT_EVERYTHING], capture_output=True, text=True)
    assert re.fullmatch(r"imported \d\d+ changed \[\]\s*", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("labels", [["B-A"], [], ["B-A", "I-A"]])
def test_types_that_occur_nowhere_are_named(labels):
    with pytest.raises(ValueError, match=r"span type that occurs, of \['A'\]; got \["):
        span_f1([["B-A"]], [["B-A"]], labels=labels)
    assert span_f1([["B-A"]], [["B-A"]], labels=["A", "unseen"]) == 1.0
