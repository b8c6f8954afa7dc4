"""Containers of the labels of a sequence: all readers of y take and refuse the same ones."""

import collections
import tempfile

import numpy as np
import pytest
from scipy import sparse

from sklseq import (
    ConformalTagger,
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    SemiCRFSegmenter,
    Sequences,
    ZScoreTagger,
    metrics,
)

X = [np.eye(2), np.eye(2)[::-1]] * 3
Y = [["B-x", "O"], ["O", "B-x"]] * 3
TAGGER = CRFTagger().fit(X, Y)
SEGMENTER = SemiCRFSegmenter().fit(X, Y)

READERS = {
    "fit": lambda y: CRFTagger().fit(X, y).coef_,
    "partial_fit": lambda y: CRFTagger().partial_fit(X, y, classes=["B-x", "O"]).coef_,
    "hmsvm": lambda y: HMSVMTagger(random_state=0).fit(X, y).coef_,
    "zscore": lambda y: ZScoreTagger().fit(X, y).coef_,
    "online": lambda y: OnlineDecoder(CRFTagger()).fit(X, y).estimator_.coef_,
    "conformal": lambda y: ConformalTagger(CRFTagger(), alpha=0.5).fit(X, y).threshold_,
    "segmenter": lambda y: SemiCRFSegmenter().fit(X, y).coef_,
    "score": lambda y: TAGGER.score(X, y),
    "score of segments": lambda y: SEGMENTER.score(X, y),
    "known": lambda y: TAGGER.predict(X, known=y),
    "log_proba": lambda y: TAGGER.predict_log_proba_sequence(X, y),
    "save": lambda y: saved(y),
    "y_true": lambda y: metrics.token_accuracy(y, Y),
    "y_pred": lambda y: metrics.span_f1(Y, y),
}


def saved(y):
    with tempfile.TemporaryDirectory() as folder:
        Sequences.from_list(X).save(f"{folder}/x.npz", y)
        return Sequences.load(f"{folder}/x.npz", mmap=False, return_y=True)[1]


def lists(labels):
    """The same labels in what is read as a list; indices of pandas do not begin at 0."""
    import pandas as pd
    import polars as pl

    series = pd.Series(labels, index=range(5, 5 + len(labels)))
    yield from (tuple(labels), np.array(labels), np.array(labels, dtype=object))
    yield from (collections.deque(labels), series, series.array, pd.Index(labels))
    yield from (series.astype("category"), series.astype("string").array, pl.Series(labels))


def others(labels):
    """What is no list of labels, with a part of the message."""
    import pandas as pd
    import polars as pl

    yield np.ma.array(labels, mask=[0, 1]), "is a masked array, whose mask would be lost; fill it"
    for make in (pd.DataFrame, pl.DataFrame):
        yield make(dict.fromkeys(labels, labels)), r"got a table \(DataFrame\). Take its column of"
    yield sparse.csr_array([[1, 0]]), r"got a sparse matrix \(csr_array\). Convert it"
    yield (label for label in labels), r"got an iterator \(generator\). Read it into a list"
    for text in (
        "BO",
        b"BO",
        bytearray(b"BO"),
        memoryview(b"BO"),
        dict.fromkeys(labels),
        {*labels},
    ):
        yield text, rf"must be a list .*\({type(text).__name__}\)"


@pytest.mark.parametrize("name", READERS)
def test_containers_of_labels(name):
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    read = READERS[name]
    expected = read(Y)
    for labels in zip(*map(lists, Y)):
        assert np.array_equal(read(list(labels)), expected)
    for labels, (_, message) in zip(zip(*map(others, Y)), others(Y[0])):
        for y in ([one for one, _ in labels], [*Y[:-1], labels[-1][0]]):
            with pytest.raises((TypeError, ValueError), match=message):
                read(y)


@pytest.mark.parametrize("y", [sparse.csr_matrix(np.eye(6)), bytearray(6), memoryview(bytes(6))])
def test_y_that_is_no_list(y):
    for name in ("fit", "segmenter", "y_true"):
        with pytest.raises((TypeError, ValueError), match=r"must be a list of .*; got "):
            READERS[name](y)


def test_masked_weights():
    weights = np.ma.array(np.ones(6), mask=[1] + [0] * 5)
    for fit in (TAGGER.fit, SEGMENTER.fit, TAGGER.score):
        with pytest.raises(ValueError, match=r"sample_weight is a masked array, .* fill it: "):
            fit(X, Y, sample_weight=weights)
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        metrics.token_accuracy(Y, Y, sample_weight=weights)
