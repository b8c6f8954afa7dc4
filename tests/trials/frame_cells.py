"""Cells of any kinds in long tables: python -m tests.trials.frame_cells [N]"""

from __future__ import annotations

import sys

from tests.datasets.test_frame_cells import check


def main(n: int) -> None:
    """So many tables; an AssertionError ends them."""
    for seed in range(n):
        check(seed)
    print(f"{n} tables kept or refused")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
