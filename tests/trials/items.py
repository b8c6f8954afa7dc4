"""Items of every kind, at length: python -m tests.trials.items [N]"""

from __future__ import annotations

import sys

from tests.features.test_dict_features import test_long_sequences_of_mixed_items


def main(n: int) -> None:
    """So many trials; an AssertionError ends them."""
    for seed in range(n):
        test_long_sequences_of_mixed_items(seed)
    print(f"{n} data sets read")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
