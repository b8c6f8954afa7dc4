"""Chains whose labels do not all reach each other: python -m tests.trials.supports [NUMBER]

Which labels are alive is a matter of the support, scores above -inf, and never of magnitude:
evidence that drifts brings back labels whose probability was below the smallest number. Every
gradient and every public sum is compared with forward-backward in extended precision.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from sklseq.inference import entropy, expected_features, forward_backward
from tests.differential.reference import Chain
from tests.objectives.test_long import PASSES, run

SCALES = (0.1, 1.0, 5.0, 30.0, 1000.0)
# Which transitions are allowed, of labels i and j; n and p are random numbers and labels.
SUPPORTS = {
    "all": lambda i, j, n, p, q: i >= 0,
    "left-right": lambda i, j, n, p, q: (j >= i) & (j < i + n),
    "permutation": lambda i, j, n, p, q: j == p[i],
    "periodic": lambda i, j, n, p, q: j % n == (i + 1) % n,
    "block-diagonal": lambda i, j, n, p, q: i % n == j % n,
    "banded": lambda i, j, n, p, q: abs(i - j) < n,
    "random": lambda i, j, n, p, q: q < 0.5,
    "few forbidden": lambda i, j, n, p, q: q < 0.9,
    "never twice": lambda i, j, n, p, q: i != j,
    "identity": lambda i, j, n, p, q: i == j,
}


def drifting(T: int, L: int, scale: float, rng: np.random.Generator) -> np.ndarray:
    """Scores of rows: noise, and preferences that change a few times."""
    cuts = np.sort(rng.integers(0, T + 1, rng.integers(0, 4)))
    slopes = rng.normal(size=(len(cuts) + 1, L))[np.searchsorted(cuts, np.arange(T), side="right")]
    return scale * (slopes + rng.choice([0.0, 1.0]) * rng.normal(size=(T, L)))


def random_chain(seed: int):
    """(description, emission, transition, ends, rows in a block)."""
    rng = np.random.default_rng(seed)
    kind = list(SUPPORTS)[seed % len(SUPPORTS)]
    L, T = int(rng.integers(2, 10)), int(rng.integers(1, 260))
    of_rows, of_pairs = rng.choice(SCALES, 2)
    n = int(rng.integers(2, 4))
    i, j = np.indices((L, L))
    allowed = SUPPORTS[kind](i, j, n, rng.permutation(L), rng.random((L, L)))
    between = rng.normal(size=(L, L))
    between = (between, np.zeros((L, L)), (np.eye(L) - 1) * abs(between))[rng.integers(3)]
    transition = np.where(allowed, of_pairs * between, -np.inf)
    emission = drifting(T, L, of_rows, rng)
    if rng.random() < 0.2:
        emission[rng.random((T, L)) < 0.02] = -np.inf
    start, end = of_pairs * rng.normal(size=(2, L))
    start[rng.random(L) < rng.choice([0.1, 0.8])] = -np.inf
    block_rows = int(rng.integers(8, 65))
    told = f"seed {seed}, {kind}: T={T} L={L} scales {of_rows} and {of_pairs} blocks {block_rows}"
    return told, emission, transition, {"start": start, "end": end}, block_rows


def check(seed: int) -> None:
    """All answers about one chain."""
    told, emission, transition, ends, block_rows = random_chain(seed)
    exact = Chain(emission, transition, **ends)
    if exact.log_z == -np.inf:
        for passes in PASSES:
            assert run(passes, emission, transition, *ends.values(), block_rows)[0] == -np.inf, told
        for question in (forward_backward, expected_features, entropy):
            with pytest.raises(ValueError, match="no allowed label path"):
                question(emission, transition, **ends)
        return
    close = _tolerance(emission, transition, told)
    pairwise = exact.pairs.sum(axis=0)
    for passes in PASSES:
        log_z, rows, pairs, counts = run(passes, emission, transition, *ends.values(), block_rows)
        L = emission.shape[1]
        _compare(exact.log_z, log_z, close, passes.__name__)
        _compare(exact.marginals, rows, close, passes.__name__)
        _compare(pairwise, pairs, close, passes.__name__)
        _compare(exact.marginals[[0, -1]], [counts.start[:L], counts.end[:L]], close, "ends")
    for answer, ours in zip(
        (exact.log_z, exact.marginals, pairwise), forward_backward(emission, transition, **ends)
    ):
        _compare(answer, ours, close, "forward_backward")
    _compare(exact.entropy, entropy(emission, transition, **ends), close, "entropy")
    _check_features(seed, emission, transition, ends, exact, close)


def _check_features(seed, emission, transition, ends, exact, close) -> None:
    rng, (T, L) = np.random.default_rng(seed), emission.shape
    row, pair = rng.normal(size=(T, L, 2)), rng.normal(size=(L, L, 2))
    mean = np.einsum("tj,tjm->m", exact.marginals, row) + np.einsum("tij,ijm->m", exact.pairs, pair)
    ours = expected_features(emission, transition, row_features=row, pair_features=pair, **ends)
    _compare(mean, ours.mean[0], close, "expected_features")
    _compare(exact.log_z, ours.log_z[0], close, "expected_features")


def _tolerance(emission, transition, told: str) -> dict:
    # Scores are only added: their sums are rounded to eps of the largest, T times at most.
    size = max(np.abs(x[np.isfinite(x)]).max(initial=1.0) for x in (emission, transition))
    atol = 1e-12 + 4 * np.finfo(float).eps * size * len(emission) ** 2
    return {"rtol": 1e-9, "atol": atol, "err_msg": told}


def _compare(expected, ours, close: dict, what: str) -> None:
    close = {**close, "err_msg": f"{what}, {close['err_msg']}"}
    np.testing.assert_allclose(np.float64(ours), np.float64(expected), **close)


def main(n: int = 10_000) -> None:
    """Print how many of n chains have other answers, and the first few."""
    wrong = []
    for seed in range(n):
        try:
            check(seed)
        except AssertionError as error:
            wrong.append(seed)
            if len(wrong) <= 5:
                print(error)
    print(f"{n} chains on {len(SUPPORTS)} kinds of support: {len(wrong)} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
