"""Products with Hessians, and standard errors: python -m tests.trials.second_order [NUMBER]"""

from __future__ import annotations

import sys

import numpy as np

from sklseq import CRFTagger
from sklseq.inspection import standard_errors
from tests.inference.test_tangent import FORMS, check_covariances
from tests.sample_data import make_data


def check_spread(n: int, seed: int = 0) -> None:
    """Estimates from n samples of a model spread as standard errors say, within 5 / sqrt(2 n)."""
    X, y = make_data(seed, n=60, M=2, L=2)
    truth = CRFTagger(l2=1.0, tol=1e-10, all_possible_states=True).fit(X, y)
    coefs, errors = [], []
    for k in range(n):
        drawn = [paths[0] for paths in truth.sample(X, 1, random_state=k)]
        model = CRFTagger(l2=0.1, tol=1e-10, all_possible_states=True).fit(X, drawn)
        coefs.append(model.coef_)
        errors.append([standard_errors(model, X, drawn, robust=r).coef for r in (False, True)])
    spread, expected = np.std(coefs, axis=0, ddof=1), np.sqrt(np.mean(np.square(errors), axis=0))
    for found in expected:
        if not np.allclose(found / spread, 1, atol=5 / np.sqrt(2 * n)):
            raise AssertionError(f"standard errors {found.tolist()}, spread {spread.tolist()}")


def main(n: int = 2000) -> int:
    """Number of failures in n / 10 cases, and of a comparison with n / 10 samples."""
    failed = 0
    for seed in range(n // 10):
        try:
            check_covariances(seed, 1 + seed % 5, FORMS[seed // 5 % 4])
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    try:
        check_spread(n // 10)
    except AssertionError as error:
        failed += 1
        print(error, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
