"""Labels of every dtype and range, and with NUL, at length: python -m tests.trials.labels [N]"""

from __future__ import annotations

import sys

from tests.data.test_label_dtypes import test_labels_are_kept_or_refused
from tests.data.test_label_nul import test_nul_at_the_end_is_refused_and_elsewhere_kept


def main(n: int) -> None:
    """So many trials; an AssertionError ends them."""
    for seed in range(n):
        test_labels_are_kept_or_refused(seed)
        test_nul_at_the_end_is_refused_and_elsewhere_kept(seed)
    print(f"{n} label sets kept or refused")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
