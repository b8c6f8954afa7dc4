"""Training at length: python -m tests.trials_training [number of cases]"""

from __future__ import annotations

import sys

from tests.test_hmsvm import PARAMETERS, check_no_mistake


def main(n: int = 10_000) -> None:
    """Raise on the first case that fails."""
    for seed in range(n):
        for parameters in ({}, PARAMETERS["poly"], PARAMETERS["rbf"]):
            check_no_mistake(seed, **parameters)
    print(f"{3 * n} perceptrons on separable data: no mistake left")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
