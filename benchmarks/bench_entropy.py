"""Unlabelled sentences by the entropy of their labelings, at 5 % labelled.

    SKLSEQ_DATA=~/data python benchmarks/bench_entropy.py [SENTENCES]

Span F1 on the test set, mean and standard deviation of five draws of the labelled sentences, of
CRFTagger(l2=0.5, entropy_weight=...). 0: the labelled sentences alone.
"""

import sys

import numpy as np
from _common import header, row
from bench_partial_labels import Task, mean

from sklseq import CRFTagger
from sklseq.metrics import span_f1

DRAWS, SHARE, WEIGHTS = 5, 0.05, (0.0, 0.01, 0.03, 0.1, 0.3)


def main(n: int = 1000) -> None:
    header("corpus", *(f"weight {weight}" for weight in WEIGHTS))
    for name in ("conll2000", "conll2002"):
        task = Task(name, n)
        scores = np.zeros((len(WEIGHTS), DRAWS))
        for draw in range(DRAWS):
            order = np.random.default_rng(draw).permutation(len(task.y))
            known = set(order[: int(SHARE * len(order))].tolist())
            y = [labels if s in known else [None] * len(labels) for s, labels in enumerate(task.y)]
            for k, weight in enumerate(WEIGHTS):
                tagger = CRFTagger(l2=0.5, entropy_weight=weight).fit(task.X, y)
                scores[k, draw] = 100 * span_f1(task.y_test, tagger.predict(task.X_test))
        row(name, *map(mean, scores))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
