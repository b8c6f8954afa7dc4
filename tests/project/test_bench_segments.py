"""The benchmark of segmentations measures what it says."""

import importlib.util
from pathlib import Path

import numpy as np

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_segments.py"


def test_segments_of_the_benchmark_are_probable(capsys):
    spec = importlib.util.spec_from_file_location("bench_segments", PATH)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    rng = np.random.default_rng(0)
    bench.throughput(3, rng, 1)
    bench.linearity((100,), rng, 1)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert float(rows[-1][4]) > 0.9
    states = [float(row[3]) for row in rows[2:8]]
    assert states[0] == 1  # features of tokens: all starts are one group
    assert states == sorted(states)
