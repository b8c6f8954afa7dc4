"""The benchmark of segmentations measures what it says."""

import numpy as np


def test_segments_of_the_benchmark_are_probable(load, capsys):
    bench = load("bench_segments")
    rng = np.random.default_rng(0)
    bench.throughput(3, rng, 1)
    bench.linearity((100,), rng, 1)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert float(rows[-1][4]) > 0.9
    states = [float(row[3]) for row in rows[2:8]]
    assert states[0] == 1  # features of tokens: all starts are one group
    assert states == sorted(states)
