"""Labels of every dtype and range, through every door: kept as they are, or refused."""

import warnings

import numpy as np
import pytest

from sklseq import CRFTagger, HMSVMTagger, RowBlocks, Shards, ZScoreTagger, ZScoreTaggerCV
from sklseq.data.labels import as_label_sequences
from sklseq.metrics import token_accuracy

DTYPES = [bool, *"bBhHiIqQ", "U3", object]
LEAST, MOST = -(2**63), 2**63 - 1


def new_labels(rng):
    """Three distinct labels (two booleans) of a random dtype, and whether training takes them."""
    dtype = np.dtype(DTYPES[rng.integers(len(DTYPES))])
    if dtype.kind == "b":
        return [False, True], dtype, True
    if dtype.kind == "U":
        return ["", "é", "ab"], dtype, True
    info = np.iinfo(np.int64 if dtype.kind == "O" else dtype)
    least, most = int(info.min), int(info.max)
    candidates = [least, least + 1, 0, 1, most // 2, most - 1, most]
    if dtype.kind == "O":
        candidates += [2**63, 10**20, -(10**20)]
    candidates = sorted(set(candidates))
    chosen = [candidates[k] for k in rng.permutation(len(candidates))[:3]]
    return chosen, dtype, all(LEAST <= label <= MOST for label in chosen)


def containers(labels, dtype, rng):
    """Two sequences that have all the labels, each in one of the forms they may come in."""
    order = [np.resize(rng.permutation(len(labels)), 6) for _ in range(2)]
    sequences = [[labels[k] for k in one] for one in order]
    forms = [list, tuple, lambda s: np.array(s, dtype=dtype), lambda s: list(np.array(s, dtype))]
    y = [forms[rng.integers(len(forms))](one) for one in sequences]
    return order, sequences, y


def doors(labels):
    """Name and function (X, y) that gives a fitted tagger."""

    def cut(x, y):
        return [RowBlocks([x[:2], x[2:]])], [lambda: iter([y[:4], y[4:]])]

    yield "crf", lambda X, y: CRFTagger(max_iter=20).fit(X, y)
    yield "eg", lambda X, y: CRFTagger(solver="eg", max_iter=5).fit(X, y)
    yield "adagrad", lambda X, y: CRFTagger(solver="adagrad", max_iter=5).fit(X, y)
    yield "blocks", lambda X, y: CRFTagger(max_iter=20).fit([RowBlocks(x) for x in X], y)
    yield "label blocks", lambda X, y: CRFTagger(max_iter=20).fit(*cut(X[0], y[0]))
    yield "shards", lambda X, y: CRFTagger(max_iter=20).fit(Shards([(X, y), (X[:1], y[:1])]))
    yield "margin", lambda X, y: HMSVMTagger(max_iter=20).fit(X, y)
    yield "perceptron", lambda X, y: HMSVMTagger(solver="perceptron").fit(X, y)
    yield "zscore", lambda X, y: ZScoreTagger().fit(X, y)
    yield "zscore cv", lambda X, y: ZScoreTaggerCV().fit(X, y)
    yield "partial_fit", lambda X, y: CRFTagger().partial_fit(X, y, classes=labels)
    yield "zscore partial", lambda X, y: ZScoreTagger().partial_fit(X, y, classes=labels)


@pytest.mark.parametrize("seed", range(40))
def test_labels_are_kept_or_refused(seed):
    rng = np.random.default_rng(seed)
    labels, dtype, taken = new_labels(rng)
    order, sequences, y = containers(labels, dtype, rng)
    X = [np.eye(len(labels))[one] for one in order]
    for name, fit in doors(labels):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not taken:
                with pytest.raises(
                    ValueError, match=r"Label -?\d+ of (y|classes), at row \d of seq"
                ):
                    fit(X, y)
                continue
            tagger = fit(X, y)
        assert tagger.classes_.tolist() == sorted(labels), name
        predicted = tagger.predict(X)
        assert all(set(one) <= set(labels) for one in predicted), name
        right = [a == b for p, t in zip(predicted, sequences) for a, b in zip(p, t)]
        assert tagger.score(X, y) == pytest.approx(np.mean(right)), name


def test_numbers_of_64_bits_that_join_as_floats():
    # np.concatenate makes float64 of uint64 and int64, in which 2**53 + 1 is 2**53.
    y = [np.array([2**53 + 1, 0]), np.array([1], dtype=np.uint64)]
    assert as_label_sequences(y)[0].tolist() == [2**53 + 1, 0, 1]


@pytest.mark.parametrize("label", [2**63, 2**64 - 1])
def test_unsigned_labels_that_would_turn_negative(label):
    X, y = [np.eye(2)[[0, 1, 0]]], [np.array([0, label, 0], dtype=np.uint64)]
    message = rf"Label {label} of y, at row 1 of sequence 0, is not a 64-bit integer; integer"
    for one in (y, [y[0].tolist()], [list(y[0])], [y[0].astype(object)]):
        with pytest.raises(ValueError, match=message):
            CRFTagger().fit(X, one)
    with pytest.raises(ValueError, match=message.replace("y,", "y_true,")):
        token_accuracy(y, y)
    tagger = CRFTagger().fit(X, [[0, 1, 0]])
    for rows in (X, [RowBlocks(X[0])]):
        with pytest.raises(ValueError, match=message):
            tagger.score(rows, y)
    with pytest.raises(ValueError, match=f"Label {label} of classes, at row 1"):
        CRFTagger().partial_fit(X, [[0, 0, 0]], classes=[0, label])
