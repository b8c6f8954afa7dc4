"""Taggers of other packages."""

import tempfile
from pathlib import Path

import numpy as np
import pycrfsuite
from _common import seconds
from sklearn.svm import LinearSVC


class TokenSVC:
    """LinearSVC on single tokens."""

    def fit(self, X, y):
        self.svc = LinearSVC(C=0.1, random_state=0).fit(X.rows, np.concatenate(y))

    def predict(self, X):
        return np.split(self.svc.predict(X.rows), X.offsets[1:-1])


def crfsuite_items(X):
    """The rows of X as CRFsuite reads them."""
    names = np.array([str(k) for k in range(X.shape[1])], dtype=object)
    rows = [names[X.rows.indices[a:b]].tolist() for a, b in zip(X.rows.indptr, X.rows.indptr[1:])]
    return [pycrfsuite.ItemSequence(rows[a:b]) for a, b in zip(X.offsets, X.offsets[1:])]


def crfsuite_trainer(items, y, algorithm="lbfgs", **parameters):
    """A trainer that holds the data."""
    trainer = pycrfsuite.Trainer(algorithm, parameters, verbose=False)
    for x, labels in zip(items, y):
        trainer.append(x, [str(label) for label in labels])
    return trainer


def trained_crfsuite(trainer):
    """(tagger, seconds of training)."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        took = seconds(trainer.train, path)
        return opened_crfsuite(path), took


def opened_crfsuite(path):
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger
