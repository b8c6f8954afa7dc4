"""partial_fit, early stopping and scores of sequences in blocks."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import PredefinedSplit

from sklseq import CRFTagger, RowBlocks, Sequences
from sklseq.data.row_blocks import BLOCK_ROWS
from sklseq.estimators.crf import partial_fit
from sklseq.estimators.crf.partial_fit import PIECE_ROWS

LABELS = np.array(["B-x", "I-x", "O"])
WEIGHTS = ["coef_", "transition_", "start_", "end_"]


def long_data(n_rows, seed=0):
    # Labels that keep to "iob2" and are seen through noise.
    rng = np.random.default_rng(seed)
    codes = np.zeros(n_rows, dtype=int)
    codes[0] = 2
    for t in range(1, n_rows):
        codes[t] = rng.choice(3, p=[[0.1, 0.6, 0.3], [0.1, 0.6, 0.3], [0.2, 0, 0.8]][codes[t - 1]])
    return np.eye(3)[codes] + rng.normal(size=(n_rows, 3)) * 0.5, LABELS[codes]


@pytest.fixture(scope="module")
def data():
    return long_data(BLOCK_ROWS + 1000)


def fit_quietly(tagger, X, y, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return tagger.fit(X, y, *args)


FORMS = {
    "array": lambda x: RowBlocks(x),
    "function": lambda x: lambda: iter(np.array_split(x, 7)),
    "generator": lambda x: iter(np.array_split(x, 30)),
}


@pytest.mark.parametrize("form", FORMS)
def test_partial_fit_steps_through_pieces(data, form):
    # As batches of pieces in memory, each block being a batch.
    x, y = data
    tagger = CRFTagger(l2=0.1, random_state=0)
    tagger.partial_fit([FORMS[form](x)], [y], classes=LABELS)
    slow = CRFTagger(l2=0.1, random_state=0, boundaries=False)
    losses = []
    for a in range(0, len(x), BLOCK_ROWS):
        rows, labels = x[a : a + BLOCK_ROWS], y[a : a + BLOCK_ROWS]
        cuts = np.append(np.arange(0, len(rows), PIECE_ROWS), len(rows))
        pieces = [labels[b:c] for b, c in zip(cuts[:-1], cuts[1:])]
        slow.partial_fit(Sequences(rows, cuts), pieces, classes=LABELS)
        losses.append(slow.objective_)
    for name in WEIGHTS:
        assert_array_equal(getattr(tagger, name), getattr(slow, name))
    assert tagger.n_seen_ == slow.n_seen_ == 20
    assert (tagger.n_iter_, tagger.loss_curve_) == (1, [sum(losses)])
    # On from there, and as good as training on all rows in the end.
    for _ in range(3):
        tagger.partial_fit([FORMS[form](x)], [y])
    fitted = CRFTagger(l2=0.1).fit([x], [y])
    test = long_data(3000, seed=1)
    assert tagger.score(*[[part] for part in test]) > fitted.score(*[[p] for p in test]) - 0.01
    assert tagger.n_iter_ == len(tagger.loss_curve_) == 4


def test_partial_fit_keeps_starts_and_ends_and_pieces_may_begin_inside(data):
    x, y = data
    tagger = CRFTagger(constraints="iob2").fit([x[:50], x[50:100]], [y[:50], y[50:100]])
    before = tagger.start_.copy(), tagger.end_.copy(), tagger.coef_.copy()
    assert y[PIECE_ROWS * 3] == "I-x" or (y[::PIECE_ROWS] == "I-x").any()
    tagger.partial_fit([RowBlocks(x)], [lambda: iter(np.array_split(y, 9))])
    assert_array_equal(tagger.start_, before[0])
    assert_array_equal(tagger.end_, before[1])
    assert (tagger.coef_ != before[2]).any()
    new = CRFTagger(constraints="iob2").partial_fit([RowBlocks(x)], [y], classes=LABELS)
    assert_array_equal(new.start_, [0, -np.inf, 0])
    assert_array_equal(new.end_, [0, 0, 0])
    free = CRFTagger(constraints=[("O", "I-x")]).partial_fit([RowBlocks(x)], [y], classes=LABELS)
    assert_array_equal(new.coef_, free.coef_)  # "iob2" also forbids I-x at the start of a sequence
    assert new.predict([RowBlocks(x)])[0][0] != "I-x"


@pytest.mark.parametrize("seed", range(30))
def test_constraints_hold_across_the_borders_of_blocks(seed, monkeypatch):
    # Errors are those of sequences in memory, whose blocks have no borders.
    monkeypatch.setattr(partial_fit, "BLOCK_ROWS", 2)
    rng, classes = np.random.default_rng(seed), ["B-x", "E-x", "I-x", "O", "S-x"]
    free = [{*classes}, {"B-x", "E-x"}, {"I-x", "O"}, None] if seed % 2 else []
    labels = [classes + free, ["O", "S-x"] + free][seed % 4 < 2]
    y = [[labels[k] for k in rng.integers(0, len(labels), n)] for n in (4, 7)]
    broken = rng.integers(0, 4)
    y[1][: broken + 1] = ["O"] * broken + [classes[rng.integers(0, 5)]]
    X = [rng.normal(size=(len(labels), 2)) for labels in y]
    said = []
    for given in (X, list(map(RowBlocks, X))):
        try:
            CRFTagger(constraints="iobes").partial_fit(given, y, classes)
            said.append("")
        except ValueError as error:
            said.append(str(error))
    assert said[0] == said[1]


def test_partial_fit_of_unknown_labels_and_weights(data):
    x, y = data
    some = [label if t % 3 else None for t, label in enumerate(y.tolist())]
    X = [RowBlocks(x), RowBlocks(x[:300]), RowBlocks(x[:0])]
    tagger = CRFTagger(l2=0.1)
    for _ in range(3):
        tagger.partial_fit(X, [some, y[:300], []], LABELS, [1, 0, 1])
    assert tagger.n_seen_ == 3 * 20
    assert tagger.score([x], [y]) > 0.8


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([RowBlocks(np.eye(3))], [["O", "O"]], "Sequence 0 has more rows in X but 2 labels in y"),
        ([RowBlocks(np.eye(3))], [["O"] * 4], "Sequence 0 has 3 rows in X but more labels in y"),
        ([RowBlocks(np.eye(3))], [["O"] * 3] * 2, "same number of sequences"),
        ([RowBlocks(np.eye(3))], [["O", "O", "x"]], "Unknown label 'x'"),
        ([RowBlocks(np.eye(4))], [["O"] * 4], "X has 4 features, but CRFTagger was fitted with 3"),
    ],
)
def test_partial_fit_refuses_before_anything_changes(X, y, message):
    tagger = CRFTagger().partial_fit([np.eye(3)], [LABELS], classes=LABELS)
    before = {name: getattr(tagger, name).copy() for name in WEIGHTS}
    with pytest.raises(ValueError, match=message):
        tagger.partial_fit(X, y)
    for name, weights in before.items():
        assert_array_equal(getattr(tagger, name), weights)
    assert tagger.n_iter_ == 1
    tagger.partial_fit([RowBlocks(np.zeros((0, 3)))], [[]])
    assert tagger.n_iter_ == 1
    with pytest.raises(ValueError, match="X must hold at least one row of positive weight"):
        CRFTagger().partial_fit([RowBlocks(np.zeros((0, 3)))], [[]], classes=LABELS)


@pytest.mark.parametrize("gradient", ["auto", "checkpoint", "streaming"])
def test_early_stopping_is_that_of_sequences_in_memory(gradient):
    parts = [long_data(n, seed) for seed, n in enumerate([300, 50, 700, 20, 90, 400])]
    X, y = [x for x, _ in parts], [labels for _, labels in parts]
    weights = np.array([1, 2, 0.5, 0, 1, 1])
    options = {"early_stopping": True, "n_iter_no_change": 2, "solver": "lbfgs", "l2": 0.01}
    options["validation_fraction"] = PredefinedSplit([-1, 0, -1, 0, -1, 0])
    memory = fit_quietly(CRFTagger(**options), X, y, weights)
    for given in ([RowBlocks(x) for x in X], [lambda x=x: iter([x]) for x in X], X):
        if gradient == "checkpoint" and callable(given[0]):
            continue
        tagger = fit_quietly(CRFTagger(gradient=gradient, **options), given, y, weights)
        assert_allclose(tagger.validation_scores_, memory.validation_scores_, rtol=1e-12)
        assert_allclose(tagger.coef_, memory.coef_, rtol=1e-6, atol=1e-8)
        assert_allclose(tagger.objective_, memory.objective_, rtol=1e-9)


def test_early_stopping_sets_pieces_and_unknown_labels_aside():
    x, y = long_data(2000)
    X, labels = RowBlocks(x).pieces(100, y)
    options = {"early_stopping": True, "validation_fraction": 0.3, "random_state": 0, "l2": 0.01}
    tagger = fit_quietly(CRFTagger(**options), X, labels)
    assert len(tagger.validation_scores_) > 2
    assert max(tagger.validation_scores_) > 0.8
    some = [[label if t % 3 else None for t, label in enumerate(one)] for one in labels]
    memory = [np.concatenate(list(piece.read(4096, "here"))) for piece in X]
    first = fit_quietly(CRFTagger(**options, solver="lbfgs"), memory, some)
    for gradient in ("auto", "streaming"):
        tagger = fit_quietly(CRFTagger(**options, gradient=gradient), X, some)
        assert sorted(tagger.validation_scores_)[-1] > 0.8
    assert first.coef_.shape == tagger.coef_.shape
    with pytest.raises(
        ValueError, match=r"early_stopping=True with validation_fraction=0\.3 needs"
    ):
        CRFTagger(**options).fit([RowBlocks(x)], [y])


def test_scores_of_unknown_labels_in_blocks(data):
    x, y = data
    tagger = CRFTagger().fit([x[:500]], [y[:500]])
    some = [label if t % 3 else None for t, label in enumerate(y.tolist())]
    some[7], some[9] = {"O", "B-x"}, {"new"}
    given, weights = [some, y[:100]], [0.5, 2.0]
    expected = tagger.score([x, x[:100]], given, weights)
    blocks = [RowBlocks(x), lambda: iter([x[:40], x[40:100]])]
    assert tagger.score(blocks, given, weights) == pytest.approx(expected, rel=1e-12)
    assert tagger.score(blocks[:1], [lambda: iter([some[:100], some[100:]])]) < 1
    with pytest.raises(ValueError, match=r"score needs at least one row of positive weight and kn"):
        tagger.score(blocks[:1], [[None] * len(x)])
    with pytest.raises(ValueError, match=r"rows in X but .* labels in y"):
        tagger.score(blocks[:1], [some[:-1]])


@pytest.mark.parametrize("once", ["X", "y", "RowBlocks"])
def test_unknown_labels_that_come_late_need_a_second_reading(once):
    X, y = np.random.default_rng(0).normal(size=(9000, 2)), np.arange(9000) % 2
    late = y.tolist()[:8000] + [None] * 1000
    tagger = CRFTagger().fit([X[:100]], [y[:100]])

    def rows():
        return iter([X[:5000], X[5000:]])

    def labels():
        return iter([late[:5000], late[5000:]])

    expected = tagger.score([X[:8000]], [y[:8000]])
    assert abs(tagger.score([rows], [labels]) - expected) < 0.01
    assert tagger.score([rows()], [late]) == tagger.score([rows], [labels])
    given = {"X": rows(), "RowBlocks": RowBlocks(rows())}.get(once, rows)
    with pytest.raises(ValueError, match=rf"{'y' if once == 'y' else 'X'}\[0\] is an iterator"):
        tagger.score([given], [labels() if once == "y" else labels])
