"""Ten million pushes into one stream: python -m tests.trials.soak_stream [N].

Memory must not grow, labels come in order, none is lost, and now and then the labels of a stretch
are those of a new stream that continues a checkpoint.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from sklseq import CRFTagger, OnlineDecoder

STRETCH = 500


def resident() -> float:
    """Megabytes in memory now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def main(n: int = 10_000_000) -> int:
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(30, 4)) for _ in range(50)]
    y = [np.abs(x[:, :3]).argmax(axis=1) for x in X]
    decoder = OnlineDecoder(CRFTagger().fit(X, y), latency_cost=0.05, max_latency=50).fit(X, y)
    rows = rng.normal(size=(10_007, 4))  # a prime: no period of anything else
    stream, after, start, sizes = decoder.stream(), 0, time.perf_counter(), []
    every, twin, until = max(1, n // 20), stream, 0  # the twin is to give the same until then
    for k in range(n):
        if k % every == every // 2:
            sizes.append(resident())
            print(
                f"{k:>10,} pushes, {time.perf_counter() - start:.0f} s, {sizes[-1]:.1f} MB",
                flush=True,
            )
            twin, until = decoder.stream(stream.checkpoint()), k + STRETCH
        emissions = stream.push(rows[k % len(rows)])
        assert k >= until or twin.push(rows[k % len(rows)]) == emissions, k
        for emission in emissions:
            assert emission.position == after, (emission.position, after)
            after += 1
        assert k - after < 51
    after += len(stream.flush())
    assert after == n, (after, n)
    growth = max(sizes[2:]) - sizes[1] if len(sizes) > 2 else 0
    print(f"{n:,} labels in order; memory grew by {growth:.2f} MB after the first tenth")
    return int(growth > 1)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
