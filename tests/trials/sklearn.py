"""At length: python -m tests.trials.sklearn [NUMBER]

Every estimator × every tool of scikit-learn × every kind of labels and data, and, where
SKLSEQ_DATA names a data folder, folds of CoNLL-2000, some of which have labels of their own.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score

from sklseq import CRFTagger, HMSVMTagger, SemiCRFSegmenter, ZScoreTagger
from sklseq.datasets import read_conll
from sklseq.features import TokenFeatures
from tests.estimators.test_sklearn_tools import ESTIMATORS, LABELS, WORKS, refused, run

DATA = ({}, {"length": 3}, {"length": 1}, {"packed": True}, {"packed": True, "length": 2})


def main(n: int = 10_000) -> int:
    """Run ``n`` cases; 1 if any was wrong."""
    warnings.simplefilter("ignore")
    cases = itertools.islice(
        ((*case, seed) for seed in itertools.count()
         for case in itertools.product(ESTIMATORS, WORKS, LABELS, DATA)), n,
    )  # fmt: skip
    wrong = done = 0
    for estimator, tool, labels, data, seed in cases:
        try:
            found = run(estimator, tool, labels, **data, seed=seed)
            # What a tool does not look at is no fault of the labels.
            assert isinstance(found, str) == refused(estimator, labels), found
        except Exception as error:
            wrong += 1
            print(f"{estimator}, {tool}, {labels}, {data}, seed {seed}: {error!r}"[:400])
        done += 1
    print(f"{done} cases, {wrong} wrong")
    return min(wrong + conll2000(), 1)


def conll2000() -> int:
    """Folds of the training set: how many scores are not finite."""
    path = Path(os.environ.get("SKLSEQ_DATA", "")) / "conll2000" / "train.txt.gz"
    if not path.exists():
        print("no conll2000 in SKLSEQ_DATA")
        return 0
    X, y = read_conll(path, columns=["w", "pos"])
    rows = TokenFeatures(n_features=2**12).fit_transform([x["w"] for x in X])
    wrong = 0
    for k in (3, 5, 10):
        model = ZScoreTagger(max_iter=3, tol=0.1)
        scores = cross_val_score(model, rows, y, cv=KFold(k), error_score="raise")
        wrong += int((~np.isfinite(scores)).sum())
        print(f"{k} folds of {len(rows)} sentences: {scores.round(3)}")
    for model in (CRFTagger(max_iter=3), HMSVMTagger(max_iter=2), SemiCRFSegmenter(max_iter=2)):
        key = "C" if isinstance(model, HMSVMTagger) else "l2"
        search = GridSearchCV(model, {key: [0.1, 1.0]}, cv=3, error_score="raise")
        scores = search.fit(rows[:2000], y[:2000]).cv_results_["mean_test_score"]
        wrong += int((~np.isfinite(scores)).sum())
        print(f"GridSearchCV(cv=3) on 2,000 sentences: {model} {scores.round(3)}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
