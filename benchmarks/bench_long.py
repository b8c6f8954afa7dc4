"""Sequences of any length: time and memory of each gradient, and an intrusion detector.

    python benchmarks/bench_long.py                 all parts, small
    python benchmarks/bench_long.py --full          lengths up to 10 million
    python benchmarks/bench_long.py --part ratio

ratio      time of an evaluation beside forward-backward, both in memory: processor time of one
           thread, BLAS's too, so that other programs change little
memory     time and peak memory above the input against T (memory map; every peak in a process of
           its own, as counted by tracemalloc, which sees NumPy's arrays and no mapped file)
limit      fits under an address-space limit: which gradient finishes
hessian    time of a product with the Hessian beside a gradient, in memory (forward-backward at
           the weights kept between products, or computed again), of one sequence and of many, in
           float64 and float32, and in blocks, and peak memory above the input of both in blocks
detector   KDD Cup 1999 as one sequence: EMP, forward-backward, logistic regression by record
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _common import by_turns, folder
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from threadpoolctl import threadpool_limits

from sklseq import CRFTagger, RowBlocks, Sequences
from sklseq._lib.threads import Threads
from sklseq.data.constraints import resolve_constraints
from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import CodedLabels, label_blocks
from sklseq.datasets import make_connections, read_kdd99
from sklseq.objectives.likelihood.gradient_plan import plan_gradient
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.long import LongLogLikelihood
from sklseq.objectives.likelihood.long_data import LongData
from sklseq.objectives.scores.score_map import ScoreMap, Weights, full_support, observed_support

GRADIENTS = ("forward-backward", "checkpoint", "emp")
BUDGET = 2.0**30
DTYPES = np.float64, np.float32


def log(n_rows: int, n_labels: int, n_features: int, kind: str, seed: int = 0):
    """Rows and labels in runs: dense normal features, or 20 a row of many."""
    rng = np.random.default_rng(seed)
    if kind == "dense":
        X = rng.normal(size=(n_rows, n_features))
    else:
        X = sparse.random(n_rows, n_features, 20 / n_features, format="csr", random_state=rng)
    return X, np.repeat(rng.integers(0, n_labels, n_rows // 10 + 1), 10)[:n_rows].astype(np.int32)


def objective(
    gradient: str, X, y, n_labels: int, length: int | None = None, dtype: type = np.float64
):
    """The objective that CRFTagger would use, of rows in memory: one sequence, or many."""
    n_rows = X.shape[0]
    rows = Sequences(X.astype(dtype, copy=False), np.arange(0, n_rows + 1, length or n_rows))
    weights = np.ones(len(rows))
    plan = plan_gradient(gradient, len(y), n_labels, packed=True, random_access=True, budget=BUDGET)
    allowed = resolve_constraints(None, np.arange(n_labels))
    if plan.passes is None:
        support = observed_support(rows, y, n_labels)
        scores = ScoreMap(rows, n_labels, support, allowed, dtype)
        return LogLikelihood(scores, y, rows.offsets, weights, 1.0, Threads(1))
    labels = CodedLabels([y], np.arange(n_labels), np.eye(n_labels, dtype=bool))
    data = LongData.of_codes(blocks_of(rows), labels, weights, plan)
    scores = ScoreMap(data.summary.layout(), n_labels, data.summary.support, allowed, np.float64)
    return LongLogLikelihood(scores, data, 1.0)


def seconds(
    objectives: list, n_labels: int, stick: float, rounds: int = 25, clock=time.perf_counter
) -> np.ndarray:
    """Times of evaluations at random weights, by turns: (rounds, objectives)."""
    rng, zeros = np.random.default_rng(1), np.zeros(n_labels)
    coef = 0.3 * rng.normal(size=(objectives[0].scores.n_features, n_labels))
    weights = Weights(coef, stick * np.eye(n_labels), zeros, zeros)
    vectors = [f.scores.pack(weights) for f in objectives]
    works = [
        partial(f.value_and_gradient, w, np.empty_like(w)) for f, w in zip(objectives, vectors)
    ]
    return by_turns(works, rounds, clock)


def part_ratio(full: bool) -> None:
    n_rows = 200_000 if full else 50_000
    print(f"\nTime of an evaluation, T = {n_rows:,}, one thread; ratios: median (of the minima)")
    print("rows    L    M  transition  forward-backward      checkpoint             emp")
    cases = [(k, n, m, 0.5) for k in ("dense", "sparse") for n in (2, 5, 10) for m in (50, 500)]
    for kind, n_labels, n_features, stick in [
        *cases,
        ("dense", 10, 500, 8),
        ("sparse", 10, 500, 8),
    ]:
        X, y = log(n_rows, n_labels, n_features, kind)
        objectives = [objective(g, X, y, n_labels) for g in GRADIENTS]
        with threadpool_limits(1):
            t = seconds(objectives, n_labels, stick, clock=time.thread_time)
        least = t.min(axis=0)
        cells = (f"{np.median(t[:, j] / t[:, 0]):8.2f} ({least[j] / least[0]:.2f})" for j in (1, 2))
        print(
            f"{kind:6} {n_labels:2} {n_features:4} {stick:11} "
            f"{1e9 * np.median(t[:, 0]) / n_rows:13.0f} ns " + " ".join(cells),
            flush=True,
        )


# ---------------------------------------------------------------------- memory against T

N_FEATURES, N_LABELS = 8, 3


def mapped_log(path: Path, n_rows: int) -> np.ndarray:
    """A file of float32 rows, written a block at a time."""
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, N_FEATURES))
    block, _ = log(10_000, N_LABELS, N_FEATURES, "dense")
    for a in range(0, n_rows, len(block)):
        rows[a : a + len(block)] = block[: n_rows - a]
    rows.flush()
    return rows


def long_objective(gradient: str, path: Path):
    source = RowBlocks(path)
    n_rows = source.source.shape[0]
    y = np.resize(np.repeat(np.arange(N_LABELS, dtype=np.int8), 10), n_rows)

    def plan(longest, n_labels, **kind):
        return plan_gradient(gradient, int(longest), n_labels, budget=BUDGET, **kind)

    data = LongData.read([source], label_blocks([y], 1), np.ones(1), plan)
    allowed = resolve_constraints(None, np.arange(N_LABELS))
    layout = data.summary.layout()
    scores = ScoreMap(layout, N_LABELS, full_support(N_LABELS), allowed, np.float64)
    return LongLogLikelihood(scores, data, 1.0)


def measure(gradient: str, path: str) -> None:
    """In a process of its own: seconds an evaluation, and its peak in bytes."""
    f = long_objective(gradient, Path(path))
    t = float(np.median(seconds([f], N_LABELS, 1.0, rounds=2)))
    tracemalloc.start()
    seconds([f], N_LABELS, 1.0, rounds=1)
    print(t, tracemalloc.get_traced_memory()[1])


def output_of(*arguments) -> str:
    """Output of this program in a process of its own, with one BLAS thread."""
    return subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        check=True, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ).stdout  # fmt: skip


def part_memory(full: bool) -> None:
    lengths = [10**4, 10**5, 10**6] + [10**7] * full
    print(f"\nAn evaluation, {N_FEATURES} features, {N_LABELS} labels: seconds, peak above input")
    print("         T  " + "".join(f"{g:>28}" for g in GRADIENTS))
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in lengths:
            path = Path(folder) / "rows.npy"
            mapped_log(path, n_rows)
            cells = []
            for gradient in GRADIENTS:
                t, peak = map(float, output_of("--measure", gradient, path).split())
                cells.append(f"{t:15.3f} s {peak / 1e6:8.2f} MB")
            print(f"{n_rows:>10,}  " + "".join(cells), flush=True)


# ---------------------------------------------------------------------- products with the Hessian


def product_seconds(f, rounds: int = 9, budget: float = BUDGET) -> np.ndarray:
    """Times of gradients and of products with the Hessian, by turns: (rounds, 2)."""
    numbers = 0.1 * np.random.default_rng(0).normal(size=(2, f.scores.n_weights))
    w, v = numbers.astype(f.scores.dtype)
    hessian, answer = f.hessian(w, budget), np.empty_like(w)
    hessian.product(v, answer)  # keeps what products share
    works = partial(f.value_and_gradient, w, answer), partial(hessian.product, v, answer)
    return by_turns(works, rounds, time.thread_time)


def measure_products(path: str) -> None:
    """In a process of its own: ratio of times, and peaks of a gradient and of a product."""
    f = long_objective("checkpoint", Path(path))
    times = product_seconds(f, rounds=5)
    w, peaks = np.zeros(f.scores.n_weights), []
    answer = np.empty_like(w)
    for work in (f.value_and_gradient, lambda w, out: f.hessian(w).product(w, out)):
        tracemalloc.start()
        work(w, answer)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    print(np.median(times[:, 1] / times[:, 0]), *peaks)


def part_hessian(full: bool) -> None:
    n_rows = 200_000 if full else 50_000
    print(f"\nTime of a product with the Hessian / of a gradient, in memory, T = {n_rows:,}")
    print("rows     T of each    L    M  kept again; float32: kept again")
    for kind, features in ("dense", (10, 50)), ("sparse", (500,)):
        for n_labels, n_features in itertools.product((2, 5, 9, 22, 45, 100), features):
            X, y = log(n_rows, n_labels, n_features, kind)
            for length in (n_rows, 25):
                ratios = []
                with threadpool_limits(1):
                    for dtype, budget in itertools.product(DTYPES, (BUDGET, 0.0)):
                        f = objective("auto", X, y, n_labels, length, dtype)
                        times = product_seconds(f, budget=budget)
                        ratios.append(np.median(times[:, 1] / times[:, 0]))
                cells = " ".join(f"{ratio:5.2f}" for ratio in ratios)
                print(f"{kind:6} {length:11} {n_labels:4} {n_features:4} {cells}", flush=True)
    print(f"\nIn blocks, {N_FEATURES} features, {N_LABELS} labels: ratio, peaks above input")
    with tempfile.TemporaryDirectory() as folder:
        for n_rows in [10**4, 10**5, 10**6] + [10**7] * full:
            mapped_log(path := Path(folder) / "rows.npy", n_rows)
            ratio, *peaks = map(float, output_of("--products", path).split())
            cells = "".join(f"{peak / 1e6:12.2f} MB" for peak in peaks)
            print(f"{n_rows:>10,} {ratio:8.2f}{cells}", flush=True)


# ---------------------------------------------------------------------- an address-space limit


def fit_within(gradient: str, megabytes: str, n_rows: str) -> None:
    """In a process of its own: a fit of a generated log under RLIMIT_AS."""
    X, y, _ = make_connections(100_000)
    repeats = int(n_rows) // 100_000

    def rows():
        return (X for _ in range(repeats))

    def labels():
        return (y for _ in range(repeats))

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (int(megabytes) << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    try:
        tagger = CRFTagger(gradient=gradient, max_iter=3).fit([rows], [labels])
        print(f"objective {tagger.objective_:.0f} in {time.perf_counter() - begin:.1f} s")
    except MemoryError as error:
        print(f"MemoryError: {error}")


def part_limit(full: bool) -> None:
    megabytes = 200
    print(f"\nFits of 3 iterations within {megabytes} MB of address space more than at the start")
    for n_rows in [10**6, 8 * 10**6, 24 * 10**6][: 2 + full]:
        for gradient in ("forward-backward", "emp"):
            out = output_of("--fit", gradient, megabytes, n_rows)
            print(f"T = {n_rows:>10,}  {gradient:16}  {out.strip()}", flush=True)


# ---------------------------------------------------------------------- the detector


def connections(full: bool):
    """(what it is, training log, test log): of the KDD files, or generated."""
    if (path := folder("kddcup99")) is None:
        yield "what follows", *cut(make_connections(60_000), np.arange(60_000) < 40_000)
        return
    log = read_kdd99(path / "kddcup.data_10_percent.csv.gz")
    first = log._replace(X=log.X[:100_000], y=log.y[:100_000])
    yield "what follows", *cut(first, np.arange(100_000) < 70_000)
    if full:
        even = np.arange(len(log.y)) // 10_000 % 2 == 0
        yield "every other 10,000 records", *cut(log, even)
        X, y, _ = read_kdd99(path / "corrected.csv.gz", feature_names=log.feature_names)
        yield "the test file, in another order", (log.X, log.y), (X, y)


def cut(log, train: np.ndarray):
    return (log.X[train], log.y[train]), (log.X[~train], log.y[~train])


def report(name: str, t: float, truth, predicted, classes) -> None:
    per_class = f1_score(truth, predicted, labels=classes, average=None, zero_division=0)
    cells = "  ".join(f"{c} {s:.4f}" for c, s in zip(classes, per_class))
    accuracy, mean = np.mean(truth == np.asarray(predicted)), per_class.mean()
    print(f"{name:18} {t:7.1f} s  accuracy {accuracy:.4f}  F1 {mean:.4f}: {cells}", flush=True)


def part_detector(full: bool) -> None:
    warnings.simplefilter("ignore")
    options = {"l2": 1.0, "max_iter": 1000, "tol": 1e-8}
    for what, (X, y), (X_test, y_test) in connections(full):
        classes = np.unique(y)
        print(f"\nIntrusion detector: {len(y):,} records, tested on {len(y_test):,}: {what}")
        for gradient in GRADIENTS:
            begin = time.perf_counter()
            tagger = CRFTagger(gradient=gradient, **options).fit([X], [y])
            t = time.perf_counter() - begin
            report(gradient, t, y_test, tagger.predict([X_test])[0], classes)
        begin = time.perf_counter()
        single = LogisticRegression(C=0.5, max_iter=300).fit(X, y)
        t = time.perf_counter() - begin
        report("logistic, a record", t, y_test, single.predict(X_test), classes)


PARTS = {
    "ratio": part_ratio,
    "memory": part_memory,
    "hessian": part_hessian,
    "limit": part_limit,
    "detector": part_detector,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--products", help=argparse.SUPPRESS)
    parser.add_argument("--fit", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
    elif options.products:
        measure_products(options.products)
    elif options.fit:
        fit_within(*options.fit)
    else:
        for name in [options.part] if options.part else PARTS:
            PARTS[name](options.full)


if __name__ == "__main__":
    main()
