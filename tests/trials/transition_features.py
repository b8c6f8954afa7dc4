"""Training with transition features: python -m tests.trials.transition_features [NUMBER]"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tests.estimators.test_chosen_columns import check_choices
from tests.estimators.test_hmsvm_transitions import check_solvers
from tests.estimators.test_segmenter_transitions import OPTIONS, check_objective
from tests.features.test_composed_roles import check_tree
from tests.objectives.test_block_transitions import PASSES, check_blocks
from tests.objectives.test_transition_features import check_minimum, check_steps
from tests.online.test_stream_transitions import check_streams


def fails(seed: int, check: Callable[..., None], *args: Any) -> bool:
    """Whether a check raises."""
    try:
        check(seed, *args)
    except Exception as error:
        print(f"seed {seed}: {check.__name__}: {str(error)[:300]}", flush=True)
        return True
    return False


def main(n: int = 1000) -> int:
    """Number of failures in n / 10 cases: all labelings take most of the time."""
    failed = 0
    checks = check_choices, check_solvers, check_minimum, check_steps, check_streams, check_tree
    for seed in range(n // 10):
        for check in checks:
            failed += fails(seed, check)
        failed += sum(fails(seed, check_blocks, passes) for passes in PASSES)
        options = OPTIONS[seed % len(OPTIONS)]
        failed += fails(seed, check_objective, options, 1 + seed % 2, 3 + seed % 4)
    return failed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
