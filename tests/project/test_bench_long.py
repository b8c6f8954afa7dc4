"""The benchmark of long sequences compares equal things, and its processes answer."""

import numpy as np
import pytest

pytest.importorskip("resource")


@pytest.fixture(scope="module")
def bench(load):
    return load("bench_long")


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
    seconds, peak = map(float, bench.output_of("--measure", "emp", tmp_path / "rows.npy").split())
    assert seconds > 0
    assert 1e5 < peak < 1e7
    ratio, *peaks = map(float, bench.output_of("--products", tmp_path / "rows.npy").split())
    assert ratio > 0
    assert all(1e5 < peak < 1e7 for peak in peaks)
