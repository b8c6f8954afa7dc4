"""Products with a lower triangular matrix of rows, of which few zeros are multiplied."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq import Sequences
from sklseq.objectives.scores import design
from sklseq.objectives.scores.design import DenseRows, TriangularRows

L, WIDTH = 3, 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 4, 5, 13])
def test_products_equal_those_of_any_dense_matrix(n, dtype, monkeypatch):
    monkeypatch.setattr(design, "STRIP", 4)
    rng = np.random.default_rng(n)
    X = Sequences(np.tril(rng.normal(size=(n, n))), np.array([0, n]))
    plain, ours = (kind(X, None, L, WIDTH, np.dtype(dtype)) for kind in (DenseRows, TriangularRows))
    W, residual = (rng.normal(size=(n, WIDTH)).astype(dtype) for _ in range(2))
    for first, last in [(0, n), (n // 3, n), (n // 3, 2 * n // 3)]:
        found, wanted = np.full((2, last - first, WIDTH), np.nan, dtype)
        buffers = ours.new_buffer() + 1, plain.new_buffer() + 1  # sums of other rows before
        for one, out, buffer in zip((ours, plain), (found, wanted), buffers):
            one.scores(W, first, last, out)
            one.collect(residual[first:last], first, buffer)
        # Rounding of sums of at most 13 products of standard normal numbers.
        tolerance = 100 * np.finfo(dtype).eps
        assert_allclose(found, wanted, rtol=0, atol=tolerance)
        assert_allclose(*buffers, rtol=0, atol=tolerance)
