"""Ask every question about every case and count: python -m tests.differential [N]."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

__all__ = ["Difference", "Tally", "ask", "main"]


class Difference(NamedTuple):
    """An answer that is not the slow one.

    Attributes
    ----------
    case, question, what : str
    error, allowed : float
        Largest difference, and the tolerance.
    """

    case: str
    question: str
    what: str
    error: float
    allowed: float

    def __str__(self) -> str:
        return (
            f"{self.question}: {self.what} differs by {self.error:.3g}, {self.allowed:.3g} allowed"
            f" ({self.case})"
        )


class Tally:
    """Numbers of cases and comparisons, and the differences."""

    def __init__(self):
        self.cases, self.comparisons, self.differences = 0, Counter(), []

    def __str__(self) -> str:
        return (
            f"{self.cases} cases, {len(self.comparisons)} questions, "
            f"{sum(self.comparisons.values())} comparisons, {len(self.differences)} differences"
        )


def ask(case, questions: dict[str, Callable], tally: Tally) -> None:
    """Put the questions to a case; each yields (what, answer, slow answer, tolerance)."""
    tally.cases += 1
    for name, question in questions.items():
        with case.worked_on():
            for what, got, wanted, allowed in question(case):
                tally.comparisons[name] += 1
                error = distance(got, wanted)
                if not error <= allowed:
                    tally.differences.append(Difference(case.name, name, what, error, allowed))


def distance(got, wanted) -> float:
    """Largest difference of two arrays; infinite where shapes, signs of infinity or NaN differ."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape:
        return np.inf
    if got.dtype.kind not in "fiub":
        return 0.0 if (got == wanted).all() else np.inf
    got, wanted = got.astype(np.longdouble), wanted.astype(np.longdouble)
    with np.errstate(invalid="ignore"):
        apart = np.where(got == wanted, 0, np.abs(got - wanted))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0))


def run(tables: Iterable[tuple[Callable, dict]], n: int, tally: Tally) -> Tally:
    """Cases 0 to n - 1 of each (generator, questions)."""
    for generate, questions in tables:
        for k in range(n):
            ask(generate(k), questions, tally)
    return tally


def main(n: int = 10_000) -> int:
    """n chains, n / 4 segmentations and n / 20 long chains with all questions; 1 if one differs."""
    from . import estimator_questions, questions, segment_questions, structures

    tally, start = Tally(), time.perf_counter()
    chains = questions.QUESTIONS | estimator_questions.QUESTIONS
    run([(structures.chain, chains)], n, tally)
    run([(structures.segmentation, segment_questions.QUESTIONS)], n // 4, tally)
    of_long = questions.LONG_QUESTIONS | estimator_questions.LONG_QUESTIONS
    run([(structures.long_chain, of_long)], n // 20, tally)
    for difference in tally.differences[:50]:
        print(difference)
    print(f"{tally}, {time.perf_counter() - start:.0f} s")
    return int(bool(tally.differences))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
