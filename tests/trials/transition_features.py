"""Training with transition features: python -m tests.trials.transition_features [NUMBER]"""

from __future__ import annotations

import sys

from tests.estimators.test_chosen_columns import check_choices
from tests.estimators.test_hmsvm_transitions import check_solvers
from tests.objectives.test_transition_features import check_minimum, check_steps


def main(n: int = 1000) -> int:
    """Number of failures in n / 10 cases: all labelings take most of the time."""
    failed = 0
    for seed in range(n // 10):
        for check in (check_choices, check_solvers, check_minimum, check_steps):
            try:
                check(seed)
            except Exception as error:
                failed += 1
                print(f"seed {seed}: {check.__name__}: {str(error)[:300]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
