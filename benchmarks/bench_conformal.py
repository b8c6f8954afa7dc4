"""Coverage and size of conformal label sets on held-out parts of corpora.

    SKLSEQ_DATA=~/data python benchmarks/bench_conformal.py [SENTENCES]

CRFTagger(l2=0.5), trained on two thirds of the sentences; the others are divided at random, 20
times, into halves: one to calibrate with, one to measure. alpha = 0.1. Mean and standard deviation
of the coverage over the divisions, and the mean number of labels in a set. "sequence": every label
of a sentence is in its set.
"""

import sys

import numpy as np
from _common import each_with_data, header, row
from bench_partial_labels import CORPORA, Task
from sklearn.frozen import FrozenEstimator

from sklseq import ConformalTagger, CRFTagger

DIVISIONS = 20


def divisions(model, X, y, by):
    for k in range(DIVISIONS):
        order = np.random.default_rng(k).permutation(len(X))
        half = len(X) // 2
        a, b = order[:half], order[half:]
        sets = ConformalTagger(FrozenEstimator(model), by=by)
        sets.fit(X[a], [y[s] for s in a])
        yield sets.coverage_report(X[b], [y[s] for s in b])


def measure(name, n):
    task = Task(name, n)
    cut = len(task.y) * 2 // 3
    order = np.random.default_rng(0).permutation(len(task.y))
    train, rest = order[:cut], order[cut:]
    model = CRFTagger(l2=0.5).fit(task.X[train], [task.y[s] for s in train])
    X, y = task.X[rest], [task.y[s] for s in rest]
    for by in ("token", "span", "sequence"):
        found = np.array([report[:3] for report in divisions(model, X, y, by)])
        coverage = f"{found[:, 0].mean():.3f} ± {found[:, 0].std():.3f}"
        size, empty = found[:, 1].mean(), found[:, 2].mean()
        accuracy = f"{model.score(X, y):.3f}"
        row(name, accuracy, by, coverage, f"{size:.2f}", f"{empty:.2f}", len(model.classes_))


def main(n=3000):
    header("corpus", "accuracy", "by", "coverage", "labels in a set", "empty sets", "all labels")
    each_with_data(measure, CORPORA, n)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
