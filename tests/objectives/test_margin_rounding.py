"""The duality gap of margin training where rounding errors are as large as the objective."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from sklseq import HMSVMTagger

PATHS = np.array([*itertools.product(range(2), repeat=4)])


def problem(seed, scale):
    """Eight sequences of four rows; for an even seed, the sign of a column is the label."""
    rng = np.random.default_rng(seed)
    X = [scale * rng.normal(size=(4, 6)) for _ in range(8)]
    return X, [rng.integers(2, size=4) if seed % 2 else (x[:, 0] > 0).astype(int) for x in X]


def exact_objective(tagger, X, y):
    """The primal objective of the weights, in extended precision."""
    wide = np.longdouble
    if tagger.kernel == "linear":
        coef = tagger.coef_.astype(wide)
    else:
        coef = tagger.support_vectors_.astype(wide).T @ tagger.dual_coef_.astype(wide)
    chain = [getattr(tagger, name).astype(wide) for name in ("transition_", "start_", "end_")]
    transition, start, end = chain
    lost = np.sign if tagger.loss == "zero_one" else np.asarray
    total = wide(0.5) * sum((part**2).sum() for part in (coef, *chain))
    for x, truth in zip(X, y):
        scores = x.astype(wide) @ coef

        def score(p, scores=scores):
            return (
                scores[range(4), p].sum() + start[p[0]] + end[p[3]] + sum(transition[p[:-1], p[1:]])
            )

        slack = max(score(p) - score(truth) + lost((p != truth).sum()) for p in PATHS)
        total += wide(tagger.C) * max(slack, 0) ** (2 if tagger.slack == "l2" else 1)
    return total


FORMS = [
    {"slack": "l1"}, {"slack": "l2"}, {"slack": "l1", "solver": "working_set"},
    {"slack": "l1", "loss": "zero_one"},
    {"slack": "l1", "kernel": "poly", "degree": 1, "gamma": 1.0},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Of 6 columns of X")
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e8, 1e10])
@pytest.mark.parametrize("C", [1.0, 1e8, 1e12])
def test_the_gap_covers_what_rounding_hides(C, scale, form):
    for seed in (2, 3):
        X, y = problem(seed, scale)
        tagger = HMSVMTagger(
            **{"C": C, "random_state": 0, "max_iter": 300, "solver": "bcfw"} | form
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            tagger.fit(X, y)
        warned = any("converge" in str(w.message) for w in caught)
        assert warned or tagger.dual_gap_ <= 0.01 * tagger.objective_
        # 1e-13: rounding of the sum itself
        error = abs(exact_objective(tagger, X, y) - tagger.objective_)
        assert error <= tagger.dual_gap_ + 1e-13 * tagger.objective_
