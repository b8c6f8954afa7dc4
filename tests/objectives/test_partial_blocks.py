"""Likelihood of partial labels of rows in blocks: slow recursions, and the same rows in memory."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from sklseq import CRFTagger, RowBlocks
from sklseq._lib.threads import Threads
from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import CodedLabels
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.block_source import BlockSource
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.long_data import LongData
from sklseq.objectives.likelihood.passes import Checkpoints, OnePass, Stored, StoredOnce
from tests.objectives.test_partial import (
    partial_labels,
    problem_of,
    random_case,
    slow_value_and_gradient,
)

PASSES = [OnePass, Checkpoints, Stored, StoredOnce]


def block_problem(tagger, X, y, weights, passes, block_rows):
    plan = Plan("", passes, block_rows, "", 1e9)
    source = BlockSource(
        lambda: LongData.of_codes(blocks_of(X), CodedLabels.read(y, weights), weights, plan), "here"
    )
    scores = score_map(tagger, source, source.summarise())
    return source, scores, source.likelihood(scores, tagger.l2, Threads(1))


def check_blocks(seed):
    tagger, X, y, scale = random_case(seed)
    rng = np.random.default_rng(seed)
    given, block_rows = rng.uniform(0.5, 2, len(y)), int(rng.choice([1, 2, 5, 100]))
    for passes in PASSES:
        source, scores, f = block_problem(tagger, X, y, given, passes, block_rows)
        w = scale * np.random.default_rng(seed).normal(size=scores.new_vector().shape)
        w = scores.pack(scores.unpack(w))
        gradient = np.zeros_like(w)
        value = f.value_and_gradient(w, gradient)
        args = scores.unpack(w), X, y, source.summary.classes, given
        expected, slow = slow_value_and_gradient(*args)
        assert_allclose(value, expected, rtol=1e-9, atol=1e-9 * scale)
        assert_allclose(gradient, scores.pack(slow), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_against_slow_recursions(seed):
    check_blocks(seed)


def long_data(seed):
    # Labels of the first one are all known, of the last one none is.
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, 4)) for T in (90, 700, 1, 0, 30, 450, 20)]
    y = [rng.integers(0, 3, len(x)) for x in X]
    some = partial_labels(y, seed, unknown=0.5)
    some[0], some[-1] = y[0].tolist(), [None] * 20
    some[1][100:400], some[5][:] = [None] * 300, [{0, 1}] * 450
    return X, some, rng.uniform(0.5, 2, len(X))


FORMS = {
    "arrays": lambda X: X,
    "RowBlocks": lambda X: [RowBlocks(x) for x in X],
    "functions": lambda X: [
        lambda x=x: iter(np.array_split(x, 1 + len(x) // 37) if len(x) else []) for x in X
    ],
}


@pytest.mark.parametrize("gradient", ["auto", "forward-backward", "checkpoint", "streaming"])
@pytest.mark.parametrize("form", FORMS)
def test_all_forms_and_gradients_give_the_numbers_of_rows_in_memory(form, gradient):
    X, y, weights = long_data(0)
    if (form, gradient) == ("functions", "checkpoint"):
        return
    parts = range(len(X)) if form != "functions" else [0, 1, 2, 4, 5, 6]
    X, y, weights = [X[s] for s in parts], [y[s] for s in parts], weights[list(parts)]
    tagger = CRFTagger(l2=0.2, gradient=gradient)
    _, scores, memory = problem_of(CRFTagger(l2=0.2), X, y, weights)
    with config_context(working_memory=0.13):
        source, blocks, f = problem_of(tagger, FORMS[form](X), y, weights)
    if form != "arrays" or gradient in ("checkpoint", "streaming"):
        assert isinstance(source, BlockSource)
        assert f.long
    values, gradients = [], []
    w = np.random.default_rng(0).normal(size=(4, 3))
    for layout, one in ((scores, memory), (blocks, f)):
        parts = layout.unpack(np.random.default_rng(1).normal(size=layout.new_vector().shape))
        at = layout.pack(parts._replace(coef=w))
        gradient = np.zeros_like(at)
        values.append(one.value_and_gradient(at, gradient))
        gradients.append(layout.unpack(gradient))
    assert_allclose(values[1], values[0], rtol=1e-11)
    for a, b in zip(*gradients):
        assert_allclose(b, a, rtol=1e-9, atol=1e-9)


def test_training_in_blocks_ends_at_the_same_minimum():
    X, y, weights = long_data(1)
    first = CRFTagger(l2=0.2, tol=1e-9).fit(X, y, weights)
    for gradient in ("checkpoint", "streaming"):
        tagger = CRFTagger(l2=0.2, tol=1e-9, gradient=gradient)
        tagger.fit([RowBlocks(x) for x in X], y, weights)
        assert_allclose(tagger.objective_, first.objective_, rtol=1e-8)
        assert_allclose(tagger.coef_, first.coef_, atol=1e-4)
    dicts = [[{f"f{j}": v for j, v in enumerate(row)} for row in x] for x in X]
    tagger = CRFTagger(l2=0.2, tol=1e-9, gradient="streaming").fit(dicts, y, weights)
    assert_allclose(tagger.objective_, first.objective_, rtol=1e-8)


def test_codes_of_labels_that_are_read_in_blocks():
    y = [
        lambda: iter([["b", None], [{"a", "c"}, frozenset("a")]]),
        ["x", "y"],
        [{"a", "b", "c"}, float("nan"), {"c", "a"}],
        [],
    ]
    codes, classes, table = CodedLabels.read(y, np.array([1, 0, 1, 1]))
    assert classes.tolist() == ["a", "b", "c"]
    assert [one.tolist() for one in codes] == [[1, 3, 4, 0], [], [3, 3, 4], []]
    assert codes[0].dtype == np.uint8
    allowed = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1]]
    assert_array_equal(table.astype(int), allowed)
    many = np.arange(1000)
    codes, classes, _ = CodedLabels.read([[*many.tolist(), None]], np.ones(1))
    assert codes[0].dtype == np.uint16
    assert_array_equal(codes[0], np.arange(1001))
    assert classes.dtype == np.int64


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[None] * 4], "y must hold a known label in a sequence of positive weight"),
        ([["a", None, "b"]], "Sequence 0 has at least 4 rows in X but 3 labels in y"),
        ([["a", None, "b", "a", "b"]], "Sequence 0 has 4 rows in X but at least 5 labels in y"),
        ([["a", None, 1, "a"]], r"Label 1 of y, at row 2 of sequence 0, is of kind integer"),
        ([lambda: iter([["a", None], [1, 2]])], "Labels such as 1 follow labels such as"),
        ([lambda: iter([["a", None], ["b", set()]])], "at row 3 of sequence 0 is empty"),
        ([["a", None, "b", "a"], ["a"]], "same number of sequences"),
    ],
)
def test_wrong_labels(y, message):
    with pytest.raises(ValueError, match=message):
        CRFTagger().fit([RowBlocks(np.eye(4))], y)


def test_what_partial_labels_in_blocks_refuse():
    X, y = [RowBlocks(np.eye(4))], [["a", None, {"a", "b"}, "b"]]
    with pytest.raises(ValueError, match="solver='dual' updates weights after single sequences"):
        CRFTagger(solver="dual").fit(X, y)
    with pytest.raises(ValueError, match="needs sequences in memory and gradient='auto'; gradient"):
        CRFTagger(gradient="streaming", entropy_weight=0.1).fit([np.eye(4)], y)
    mask = np.array([[True, False], [True, True]])
    y = [["a", {"b"}, None, "b"]]
    for gradient in ("auto", "streaming"):
        with pytest.raises(ValueError, match="'b' may not follow 'a' at row 1 of sequence 0"):
            CRFTagger(constraints=mask, gradient=gradient).fit(X, y)
    with pytest.raises(ValueError, match="'b' may not follow 'a' at row 1 of sequence 0"):
        CRFTagger(constraints=mask, gradient="streaming").fit([np.eye(4)], y)
    tagger = CRFTagger(gradient="streaming").fit(X, [["a", None, "b", "b"]])
    assert tagger.solver_ == "lbfgs"
