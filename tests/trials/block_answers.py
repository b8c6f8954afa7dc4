"""Random sequences in blocks and in memory: python -m tests.trials.block_answers [2000]

Blocks of any size, none and one row among them, dense, sparse and of several types of numbers, go
through random windows and transformers of rows to training, labels, probabilities and online
decoding. All numbers are those of the same rows in memory.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler

from sklseq import CRFTagger, OnlineDecoder, RowBlocks
from sklseq.estimators import block_sums, decode_blocks
from sklseq.estimators.online import long_decoding
from sklseq.features import PerToken, WindowFeatures, _extracted_blocks

__all__ = ["main", "trial"]

READERS = (_extracted_blocks, block_sums, decode_blocks, long_decoding)
DTYPES = (np.float64, np.float32, np.int64, np.bool_)
STRATEGIES = ("step", "window", "closure", "viterbi", "lag", "chunk")


def cut(rng, X: np.ndarray) -> list:
    """X in blocks, some without rows."""
    return np.split(X, np.sort(rng.integers(0, len(X) + 1, rng.integers(0, 9))))


def source(rng, X: np.ndarray, is_sparse: bool):
    """X as an item of a list of sequences in blocks."""
    as_block = sparse.csr_matrix if is_sparse else np.asarray
    blocks = [as_block(part) for part in cut(rng, X)]
    kind = rng.integers(5)
    if kind == 0:
        return lambda: iter(blocks)
    if kind == 1:
        return RowBlocks(as_block(X))
    if kind == 2:
        longer = np.concatenate([X[:2], X, X[-1:]])
        return RowBlocks([as_block(part) for part in cut(rng, longer)])[2 : 2 + len(X)]
    return RowBlocks(blocks)


def rows_like(rng, n: int, m: int, dtype) -> np.ndarray:
    return (2 * rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.7)).astype(dtype)


def extractors(rng, is_sparse: bool) -> list:
    """Up to three extractors of rows, one behind the other."""
    scaler = [MaxAbsScaler(), StandardScaler(with_mean=False)]
    scaler += [] if is_sparse else [StandardScaler(), MinMaxScaler()]
    found = []
    for _ in range(rng.integers(1, 4)):
        per_token = PerToken(
            [None, FunctionTransformer(np.abs), scaler[rng.integers(len(scaler))]][rng.integers(3)]
        )
        before, after = (int(k) for k in rng.integers(0, 8, 2))
        window = WindowFeatures(
            per_token if rng.random() < 0.4 else None, before=before, after=after,
            bos_eos=bool(rng.integers(2)), bias=bool(rng.integers(2)),
            n_features=64 if is_sparse and rng.random() < 0.3 else None,
        )  # fmt: skip
        found.append(window if rng.random() < 0.6 else per_token)
    return found


def decoder_of(rng, model) -> OnlineDecoder:
    strategy = STRATEGIES[rng.integers(len(STRATEGIES))]
    given = {"strategy": strategy, "latency_cost": float(rng.choice([0.0, 0.02]))}
    if strategy == "lag":
        given = {"lag": int(rng.integers(30, 40))}
    elif strategy == "chunk":
        given["window_size"] = int(rng.integers(1, 6))
    decide = ["map", "marginal"][rng.integers(2)]
    return OnlineDecoder(model, decide=decide, **given)


def trial(seed: int) -> None:
    """Compare all answers of one random model."""
    rng = np.random.default_rng(seed)
    m, dtype, is_sparse = int(rng.integers(1, 4)), DTYPES[rng.integers(4)], rng.random() < 0.4
    X = [rows_like(rng, n, m, dtype) for n in rng.integers(1, 60, rng.integers(1, 4))]
    L = int(rng.integers(2, 5))
    y = [np.append(rng.integers(L, size=len(x) - 1), s % L) for s, x in enumerate(X)]
    memory = [sparse.csr_matrix(x) if is_sparse else x for x in X]
    blocks = [source(rng, x, is_sparse) for x in X]
    steps = extractors(rng, is_sparse)
    model = make_pipeline(*steps, CRFTagger(max_iter=5, tol=0.0)).fit(memory, y)
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype != np.float32 else {"rtol": 1e-4, "atol": 1e-5}
    compare_answers(model, memory, blocks, y, close)
    compare_online(decoder_of(rng, model), memory, blocks, y, close)
    again = make_pipeline(*steps, CRFTagger(max_iter=5, tol=0.0)).fit(blocks, y)
    for one, other in zip(model[:-1].transform(memory), again[:-1].transform(blocks)):
        assert_allclose(dense(other.read()), dense([one]), **close)
    if dtype != np.float32:
        assert_allclose(again[-1].coef_, model[-1].coef_, rtol=1e-6, atol=1e-6)


def dense(blocks) -> np.ndarray:
    parts = [x.toarray() if sparse.issparse(x) else x for x in blocks]
    return np.concatenate(parts).astype(np.float64)


def compare_answers(model, memory: list, blocks: list, y: list, close: dict) -> None:
    assert model.predict(memory) == model.predict(blocks)
    assert_allclose(model.score(blocks, y), model.score(memory, y), rtol=1e-12)
    expected = np.concatenate(model.predict_proba(memory))
    out = np.empty(expected.shape)
    model.predict_proba(blocks, out=out)
    assert_allclose(out, expected, **close)


def compare_online(decoder, memory: list, blocks: list, y: list, close: dict) -> None:
    decoder.fit(memory, y)
    expected, found = decoder.decode(memory), decoder.decode(blocks)
    for s in range(len(memory)):
        assert_array_equal(found.labels[s], expected.labels[s])
        assert_array_equal(found.times[s], expected.times[s])
        assert_allclose(found.confidence[s], expected.confidence[s], **close)


def main(n: int) -> None:
    """So many trials; an AssertionError ends them."""
    before, begin = [reader.BLOCK_ROWS for reader in READERS], time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(n):
                for reader in READERS:
                    reader.BLOCK_ROWS = 1 + seed % 17
                try:
                    trial(seed)
                except Exception as error:
                    error.add_note(f"seed {seed}")
                    raise
    finally:
        for reader, rows in zip(READERS, before):
            reader.BLOCK_ROWS = rows
    print(f"{n} models, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
