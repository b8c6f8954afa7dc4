"""The benchmark of long sequences compares equal things, and its processes answer."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_long.py"
pytest.importorskip("resource")


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_long", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_gradients_are_of_the_same_objective(bench, kind):
    X, y = bench.log(500, 3, 40, kind)
    coef = np.random.default_rng(0).normal(size=(40, 3))
    values = []
    for gradient in bench.GRADIENTS:
        f = bench.objective(gradient, X, y, 3)
        w = f.scores.pack(bench.Weights(coef, np.eye(3), np.zeros(3), np.zeros(3)))
        values.append(f.value_and_gradient(w, np.empty_like(w)))
    np.testing.assert_allclose(values[1:], values[0], rtol=1e-11)


def test_a_measuring_process_answers(bench, tmp_path):
    bench.mapped_log(tmp_path / "rows.npy", 5000)
    command = [sys.executable, str(PATH), "--measure", "emp", str(tmp_path / "rows.npy")]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = map(float, out.split())
    assert seconds > 0
    assert 1e5 < peak < 1e7
    command = [sys.executable, str(PATH), "--products", str(tmp_path / "rows.npy")]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ratio, *peaks = map(float, out.split())
    assert ratio > 0
    assert all(1e5 < peak < 1e7 for peak in peaks)
