"""Training at length: python -m tests.trials.training [number of cases]"""

from __future__ import annotations

import sys

import numpy as np

from tests.estimators.test_hmsvm import PARAMETERS, check_no_mistake
from tests.estimators.test_kernel_models import check_gram_matrix, check_overflow
from tests.estimators.test_kernel_rows import check_on_demand
from tests.estimators.test_margin_starts import check_start, check_warm
from tests.estimators.test_reported import SOLVERS, check_objective
from tests.estimators.test_smoothing import check_kernel_model, check_rounding, check_smoothing
from tests.objectives.test_stochastic import check_losses
from tests.solvers.test_far_columns import far_gaps
from tests.solvers.test_tolerance import PENALTIES, gaps

# An estimate is no bound: the share of fits that may end further above the minimum than tol, and
# how far.
SELDOM, TWICE, FAR = 0.01, 2.0, 0.03


def main(n: int = 10_000) -> None:
    """Raise on the first case that fails; of fits to minima, n / 100."""
    kinds = {}, PARAMETERS["poly"], PARAMETERS["rbf"]
    ended = sum(check_no_mistake(seed, **kind) for seed in range(n) for kind in kinds)
    print(f"{3 * n} perceptrons on separable data: {ended} without a mistake, others at max_iter")
    assert ended >= (1 - SELDOM) * 3 * n
    for seed in range(n // 10):
        check_losses(seed)
        check_objective(seed, SOLVERS[seed % len(SOLVERS)])
        check_gram_matrix(seed)
        check_overflow(seed)
        check_on_demand(seed)
        check_start(seed)
        check_warm(seed)
        check_smoothing(seed)
        check_rounding(seed)
        check_kernel_model(seed)
    print(
        f"{n // 10} losses and {n // 10} objectives: as recomputed; as many kernels, starts, bounds"
    )
    shares = [share for seed in range(n // 100) for share in far_gaps(seed)]
    above = np.mean(np.array(shares) > 1)
    print(
        f"{len(shares)} fits to columns far from 0: at most {max(shares):.2f}, {above:.2%} above 1"
    )
    assert above <= FAR
    rng, shares = np.random.default_rng(0), []
    for seed in range(1, n // 100 + 1):
        l1, l2 = PENALTIES[rng.integers(len(PENALTIES))]
        shares += gaps(seed, l1, l2, tol=10 ** -rng.uniform(1, 4))
    above = np.mean(np.array(shares) > 1)
    print(f"{len(shares)} fits: gap over tol at most {max(shares):.2f}, above 1 in {above:.2%}")
    assert above <= SELDOM
    assert max(shares) <= TWICE


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
