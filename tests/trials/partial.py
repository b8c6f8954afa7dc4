"""Likelihood of partial labels against slow recursions: python -m tests.trials.partial [NUMBER]"""

from __future__ import annotations

import sys

from tests.objectives.test_partial import check_case, check_steps
from tests.objectives.test_partial_blocks import check_blocks
from tests.objectives.test_partial_segments import check_case as check_segments
from tests.objectives.test_proportions import check_case as check_proportions


def main(n: int = 2000) -> int:
    """Number of failures in n / 10 cases: the slow recursions take most of the time."""
    failed = 0
    for seed in range(n // 10):
        try:
            check_case(seed)
            check_steps(seed)
            check_blocks(seed)
            check_proportions(seed)
            if seed % 10 == 0:
                check_segments(seed, seed % 20 == 0, (None, 4)[seed % 3 > 0], seed % 40 == 0)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
