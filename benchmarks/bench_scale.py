"""Data larger than memory, and more than one machine: memory, time and speed-up.

    python benchmarks/bench_scale.py                    all parts, small
    python benchmarks/bench_scale.py --full             20 million tokens under 4 GiB
    python benchmarks/bench_scale.py --part memory --full --max-memory 3GB --max-iter 30
    python benchmarks/bench_scale.py --part flat

memory   a process that may not have more than 4 GiB of addresses trains on shards, until L-BFGS
         stops by itself or after --max-iter iterations; peak memory
flat     time of an evaluation by token against the number of shards, kept and read again
dask     the same sum here, on one and on two worker processes

Data: CoNLL-2000 with the 19 attributes of CRFsuite's example if SKLSEQ_DATA names a folder that
holds `conll2000/`, else generated documents; repeated, each copy without 5 % of its attributes,
drawn anew.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
from _common import header, row
from _corpora import tagged_or_generated
from bench_crfsuite import our_features
from scipy import sparse

from sklseq import CRFTagger, Sequences, Shards
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.shard_source import LocalShardSource

LIMIT = 4 * 2**30
DROPPED = 0.05
ROUNDS = 5


def corpus():
    """Sequences and labels of one copy."""
    X, y, _, _ = tagged_or_generated()
    return our_features().fit_transform(X), y


def copy_of(X: Sequences, seed: int) -> Sequences:
    """X without some of its attributes."""
    kept = np.random.default_rng(seed).random(X.rows.nnz) >= DROPPED
    before = np.concatenate([[0], np.cumsum(kept)])
    indices, indptr = X.rows.indices[kept], before[X.rows.indptr].astype(np.int32)
    ones = np.ones(len(indices))
    return X.with_rows(sparse.csr_matrix((ones, indices, indptr), shape=X.rows.shape, copy=False))


def write(folder: Path, X: Sequences, y: list, n_copies: int, n_shards: int) -> int:
    """Save copies in so many shards of about equal size; the number of tokens."""
    per_shard, n = np.array_split(np.arange(n_copies), n_shards), 0
    if n_shards > n_copies:
        raise ValueError(f"At most {n_copies} shards.")
    for k, seeds in enumerate(per_shard):
        copies = [copy_of(X, int(seed)) for seed in seeds]
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([c.lengths for c in copies]))])
        rows = sparse.vstack([c.rows for c in copies], format="csr")
        Sequences(rows, offsets).save(folder / f"shard-{k:04}.npz", list(y) * len(seeds))
        n += rows.shape[0]
    return n


def objective(shards: Shards, threads: Threads):
    """The objective that CRFTagger would use."""
    source = LocalShardSource(shards)
    return source.likelihood(score_map(CRFTagger(l2=1), source, source.summarise()), 1.0, threads)


def seconds(f) -> float:
    """Processor time of an evaluation by one thread: other programs change little."""
    w, gradient = f.scores.new_vector(), f.scores.new_vector()
    begin = time.thread_time()
    f.value_and_gradient(w, gradient)
    return time.thread_time() - begin


# ------------------------------------------------------------------------------------- parts


def memory(
    full: bool,
    folder: Path,
    limits: list[str] | None = None,
    max_iter: int = 100,
    solver: str = "auto",
) -> None:
    """Train in a process with limited addresses."""
    X, y = corpus()
    n_copies, n_shards = (95, 48) if full else (8, 8)
    begin = time.perf_counter()
    n = write(folder, X, y, n_copies, n_shards)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(
        f"{n / 1e6:.2f} million tokens in {n_shards} shards, {size / 1e9:.2f} GB on disk, "
        f"written in {time.perf_counter() - begin:.0f} s"
    )
    header("max_memory", "iterations", "evaluations", "stopped by", "fit, s",
           "µs a token, evaluation", "peak, GiB", "objective", "accuracy")  # fmt: skip
    for limit in limits or (("2GB", "3GB") if full else ("300MB", "1GB")):
        command = [sys.executable, __file__, "--train", str(folder), limit, str(max_iter), solver]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=environment
        )
        r = json.loads(done.stdout.splitlines()[-1])
        row(
            limit, r["n_iter"], r["evaluations"], r["stopped_by"], f"{r['seconds']:.0f}",
            f"{1e6 * r['evaluation'] / n:.2f}", f"{r['peak'] / 2**30:.2f}",
            f"{r['objective']:.2f}", f"{r['accuracy']:.4f}",
        )  # fmt: skip


def train(folder: str, limit: str, max_iter: str, solver: str) -> None:
    """What the process of `memory` does."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    warnings.simplefilter("ignore")
    times = []
    from sklseq.objectives.likelihood.sharded import ShardedLogLikelihood

    evaluate = ShardedLogLikelihood.value_and_gradient

    def timed(self, w, gradient):
        begin = time.perf_counter()
        value = evaluate(self, w, gradient)
        times.append(time.perf_counter() - begin)
        return value

    ShardedLogLikelihood.value_and_gradient = timed
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tol = 1e-3 if solver == "adagrad" else 1e-5
        tagger = CRFTagger(l2=1, solver=solver, tol=tol, max_iter=int(max_iter), verbose=1)
        tagger.fit(Shards(folder, max_memory=limit))
    took, peak = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cut = any("did not converge" in str(one.message) for one in told)
    one = Shards(sorted(Path(folder).glob("*.npz"))[:1])
    print(json.dumps({
        "n_iter": tagger.n_iter_, "seconds": took, "peak": peak * 1024, "evaluations": len(times),
        "evaluation": median(times[1:] or [np.nan]), "objective": tagger.objective_,
        "stopped_by": "max_iter" if cut else "tol", "accuracy": tagger.score(one),
    }))  # fmt: skip


def flat(full: bool, folder: Path) -> None:
    """Time by token against the number of shards."""
    X, y = corpus()
    n_copies, numbers = (8, [1, 2, 4, 8, 16, 32, 64]) if full else (4, [1, 2, 4])
    copies = [copy_of(X, seed) for seed in range(n_copies)]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([c.lengths for c in copies]))])
    X, y = Sequences(sparse.vstack([c.rows for c in copies], format="csr"), offsets), y * n_copies
    objectives, again, n = {}, {}, X.n_rows
    for n_shards in numbers:
        place = folder / str(n_shards)
        place.mkdir()
        for k, which in enumerate(np.array_split(np.arange(len(y)), n_shards)):
            X[which].save(place / f"{k:04}.npz", [y[s] for s in which])
        shards = Shards(place, max_memory="4GB")
        objectives[n_shards] = objective(shards, Threads(1))
        again[n_shards] = objective(shards, Threads(1))
        again[n_shards].max_bytes = 0
    kept, read = ({k: [] for k in numbers} for _ in range(2))
    for _ in range(ROUNDS):  # in turn
        for k in numbers:
            seconds(objectives[k])  # reads all that there is
            kept[k].append(seconds(objectives[k]))
            objectives[k].kept.clear()
            objectives[k].max_bytes = 4e9
            read[k].append(seconds(again[k]))
    print(f"{n / 1e6:.2f} million tokens, one thread, {ROUNDS} rounds in turn: median, least")
    header("shards", "kept in memory, µs a token", "read each time, µs a token")
    for k in numbers:
        cells = (f"{1e6 * median(t) / n:.3f}, {1e6 * min(t) / n:.3f}" for t in (kept[k], read[k]))
        row(k, *cells)


def cluster(full: bool, folder: Path) -> None:
    """Evaluations here, on one and on two workers, in turn."""
    X, y = corpus()
    n = write(folder, X, y, 32 if full else 8, 8)
    shards, rounds = Shards(folder, max_memory="4GB"), 7
    here = objective(shards, Threads(1))
    w = here.scores.new_vector()
    w[:] = 0.1 * np.random.default_rng(0).normal(size=len(w))
    with ExitStack() as stack:
        places = {"this process, one thread": here}
        for n_workers in (1, 2):
            name = f"{n_workers} worker{'s'[: n_workers - 1]}"
            places[name] = on_workers(n_workers, shards, stack)
        times, gradients, values = {name: [] for name in places}, {}, {}
        for _ in range(rounds):
            for name, f in places.items():
                gradients[name] = np.empty_like(w)
                begin = time.perf_counter()
                values[name] = f.value_and_gradient(w, gradients[name])
                times[name].append(time.perf_counter() - begin)
    print(
        f"{n / 1e6:.2f} million tokens in 8 shards, {len(w)} weights, {rounds - 1} rounds in turn"
    )
    header("where", "median, s", "least, s", "speed-up (median, least)", "objective", "gradient")
    first, one = next(iter(places)), np.array(times["1 worker"][1:])
    for name in places:
        t = np.array(times[name][1:])  # the first one reads all that there is
        off = abs(values[name] / values[first] - 1)
        apart = np.abs(gradients[name] - gradients[first]).max() / np.abs(gradients[first]).max()
        speed_up = f"{np.median(one / t):.2f}, {one.min() / t.min():.2f}"
        row(name, f"{np.median(t):.3f}", f"{t.min():.3f}", speed_up, f"{off:.1e}", f"{apart:.1e}")
    print("objective, gradient: largest relative difference from this process")


def on_workers(n_workers: int, shards: Shards, stack: ExitStack):
    """The objective on a cluster of its own, as long as the stack is open."""
    from distributed import Client, LocalCluster

    from sklseq.estimators.sources.cluster import ClusterSource

    cluster = LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None,
        silence_logs=50,
    )  # fmt: skip
    place = stack.enter_context(cluster)
    client = stack.enter_context(Client(place, set_as_default=False))
    with client.as_current():
        source = stack.enter_context(ClusterSource(shards.to_delayed()))
        return source.likelihood(score_map(CRFTagger(l2=1), source, source.summarise()), 1.0, None)


PARTS = {"memory": memory, "flat": flat, "dask": cluster}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--max-memory", action="append", help="of part memory, e.g. 3GB")
    parser.add_argument("--max-iter", type=int, default=100, help="of part memory")
    parser.add_argument("--solver", default="auto", help="of part memory; adagrad: tol=1e-3")
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(*arguments.train)
        return
    for name in arguments.part or PARTS:
        print(f"\n{name}\n")
        with tempfile.TemporaryDirectory() as folder:
            options = (arguments.max_memory, arguments.max_iter, arguments.solver)
            given = options if name == "memory" else ()
            PARTS[name](arguments.full, Path(folder), *given)


if __name__ == "__main__":
    main()
