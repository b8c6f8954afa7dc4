"""Kernels of ZScoreTagger against weights of features: python -m tests.trials.zscore_kernels N

Random sequences, weights of sequences and labels, losses, ridges of 1e-4 to 10 and both kinds of
transitions: the kernel x·z, and what one fit leaves out, against the linear model.
"""

from __future__ import annotations

import sys

import numpy as np

from sklseq import ZScoreTagger, ZScoreTaggerCV

TOLERANCE = 1e-7  # of scores, over the largest


def error_of(seed: int) -> float:
    """The largest difference of scores, or of accuracies of sequences left out."""
    rng = np.random.default_rng(seed)
    L, M, lengths = int(rng.integers(2, 5)), int(rng.integers(1, 6)), rng.integers(1, 7, 12)
    X = [rng.normal(size=(length, M)) for length in lengths]
    W = rng.normal(size=(M, L))
    y = [(x @ W + rng.gumbel(size=(len(x), L))).argmax(axis=1) for x in X]
    if len(np.unique(np.concatenate(y))) < 2:
        return 0.0
    weights, kind = rng.random(12) + 0.1, rng.choice(["covariance", "information"])
    by_class = [None, "balanced", {y[0][0]: 3.0}][rng.integers(3)]
    options = {"transitions": str(kind), "class_weight": by_class}
    options["loss"] = ["hamming", None][rng.integers(2)]
    kernel, l2 = {"kernel": "poly", "degree": 1, "gamma": 1.0}, 10 ** rng.uniform(-4, 1)
    linear, other = (
        ZScoreTagger(l2=l2, **options, **more).fit(X, y, weights) for more in ({}, kernel)
    )
    found, expected = (t.potentials(X) for t in (other, linear))
    apart = max(np.abs(a - b).max() for a, b in zip(found[:2], expected[:2]))
    scores = [
        ZScoreTaggerCV(l2s=[l2], cv="leave-one-out", **options, **more).fit(X, y, weights)
        for more in ({}, kernel)
    ]
    size = max(np.abs(part).max() for part in expected[:2])
    return float(max(apart / size, np.abs(scores[0].cv_scores_ - scores[1].cv_scores_).max()))


def main(n: int) -> int:
    """The number of cases that fail, of n."""
    errors = [error_of(seed) for seed in range(n)]
    failed = [seed for seed, error in enumerate(errors) if not error <= TOLERANCE]
    print(f"{n} problems, wrong: {failed}, largest error {max(errors):.1e}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]))))
