"""Other packages' taggers, behind the few methods that bench_hmsvm.py calls."""

import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pycrfsuite
from sklearn.svm import LinearSVC


class TokenSVC:
    """LinearSVC on single tokens."""

    def fit(self, X, y):
        self.svc = LinearSVC(C=0.1, random_state=0).fit(X.rows, np.concatenate(y))

    def predict(self, X):
        return np.split(self.svc.predict(X.rows), X.offsets[1:-1])


class CRFsuite:
    """A trainer of CRFsuite. `fit` needs what `prepare` made of the data."""

    def __init__(self, algorithm, max_iter=10):
        self.algorithm, self.max_iter = algorithm, max_iter

    def set_params(self, max_iter, tol):
        self.max_iter = max_iter

    @staticmethod
    def items(X):
        names = np.array([str(k) for k in range(X.shape[1])], dtype=object)
        rows = [
            names[X.rows.indices[a:b]].tolist() for a, b in zip(X.rows.indptr, X.rows.indptr[1:])
        ]
        return [pycrfsuite.ItemSequence(rows[a:b]) for a, b in zip(X.offsets, X.offsets[1:])]

    def prepare(self, items, y):
        self.trainer = pycrfsuite.Trainer(self.algorithm, verbose=False)
        self.trainer.set_params({"max_iterations": self.max_iter})
        for x, labels in zip(items, y):
            self.trainer.append(x, [str(label) for label in labels])

    def fit(self, X, y):
        with tempfile.TemporaryDirectory() as there:
            path = str(Path(there) / "model")
            self.trainer.train(path)
            self.tagger = pycrfsuite.Tagger()
            self.tagger.open(path)

    def predict_items(self, items):
        return [self.tagger.tag(x) for x in items]


SEQLEARN = """
import sys, time, numpy as np, scipy.sparse, six, sklearn.externals
sys.modules["sklearn.externals.six"] = sklearn.externals.six = six
from seqlearn.perceptron import StructuredPerceptron
d = np.load(sys.argv[1], allow_pickle=False)
X, Z = (scipy.sparse.csr_matrix((d[k + "data"], d[k + "indices"], d[k + "indptr"]), d[k + "shape"])
        for k in "ab")
model = StructuredPerceptron(max_iter=int(sys.argv[2]), random_state=0)
began = time.perf_counter()
model.fit(X, d["y"], d["alengths"])
seconds = time.perf_counter() - began
np.savez(sys.argv[3], seconds=seconds, labels=model.predict(Z, d["blengths"]))
"""


class Seqlearn:
    """seqlearn's averaged perceptron, in an interpreter of its own; only its fit is timed."""

    def __init__(self, python):
        self.python = python

    def run(self, A, y, B, passes=10):
        with tempfile.TemporaryDirectory() as there:
            data, answer = (str(Path(there) / name) for name in ("data.npz", "answer.npz"))
            arrays = {"y": np.concatenate(y)}
            for k, X in (("a", A), ("b", B)):
                arrays |= {k + "data": X.rows.data, k + "indices": X.rows.indices}
                arrays |= {k + "indptr": X.rows.indptr, k + "shape": X.rows.shape}
                arrays |= {k + "lengths": X.lengths}
            np.savez(data, **arrays)
            command = [self.python, "-W", "ignore", "-c", SEQLEARN, data, str(passes), answer]
            subprocess.run(command, check=True)
            with np.load(answer) as found:
                return float(found["seconds"]), np.split(found["labels"], B.offsets[1:-1])
