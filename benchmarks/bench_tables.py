"""One sequence of millions of rows in a CSV or Parquet file: training, probabilities, search.

    python benchmarks/bench_tables.py [ROWS] [FOLDER]

Each step runs in a process of its own. Memory: the largest of /proc/self/status, RssAnon (of the
process itself) and RssFile (pages of mapped files, which the system drops when it needs memory),
sampled every 20 ms, each above that after the imports. Needs pyarrow.
"""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from _common import header, row
from sklearn.model_selection import GridSearchCV

from sklseq import CRFTagger, RowBlocks, TimeBlockSplit

M, RUN, BLOCK = 4, 20, 100_000
STEPS = ("cache", "fit", "unknown", "partial_fit", "predict_proba", "search")


def blocks(n_rows):
    """Rows and labels in runs: the first column tells the label, with noise."""
    for k, first in enumerate(range(0, n_rows, BLOCK)):
        rng, n = np.random.default_rng(k), min(BLOCK, n_rows - first)
        y = np.repeat(rng.integers(0, 2, n // RUN + 1), RUN)[:n]
        X = rng.normal(size=(n, M))
        X[:, 0] += y
        yield X.round(3), y


def write(folder, n_rows):
    import pyarrow
    from pyarrow import csv, parquet

    names = [*(f"x{j}" for j in range(M)), "y"]
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in names[:-1]])
    schema = schema.append(pyarrow.field("y", pyarrow.int8()))
    files = folder / "log.csv", folder / "log.parquet"
    with csv.CSVWriter(files[0], schema) as one, parquet.ParquetWriter(files[1], schema) as other:
        for X, y in blocks(n_rows):
            table = pyarrow.table([*X.T, y.astype(np.int8)], schema=schema)
            one.write(table)
            other.write_table(table)


def half_known(y):
    """Blocks of labels, half of them unknown at random."""
    rng = np.random.default_rng(0)
    for a in range(0, len(y), BLOCK):
        labels = np.asarray(y[a : a + BLOCK]).astype(object)
        labels[rng.random(len(labels)) < 0.5] = None
        yield labels


def run(step, path):
    """One step, with the cache beside the file."""
    X, y = RowBlocks.from_table(path, "y", cache=f"{path}-cache")
    if step == "fit":
        tagger = CRFTagger().fit([X], [y])
        print(f"accuracy {tagger.score([X], [y]):.3f}", file=sys.stderr)
    if step == "unknown":
        CRFTagger().fit([X], [lambda: half_known(y)])
    if step == "partial_fit":
        CRFTagger().partial_fit([X], [y], classes=np.unique(y[:BLOCK]))
    if step == "predict_proba":
        tagger = CRFTagger().fit([X[:100_000]], [y[:100_000]])
        out = np.lib.format.open_memmap(f"{path}-p.npy", "w+", np.float64, (len(y), 2))
        tagger.predict_proba([X], out=out)
    if step == "search":
        parts, labels = X.pieces(len(y) // 20, y)
        cv = TimeBlockSplit(2, gap=1, past_only=True)
        search = GridSearchCV(CRFTagger(), {"l2": [0.1, 10.0]}, cv=cv, refit=False)
        print(search.fit(parts, labels).cv_results_["mean_test_score"], file=sys.stderr)


def resident():
    with open("/proc/self/status") as file:
        found = dict(line.split(":", 1) for line in file)
    return np.array([int(found[name].split()[0]) / 1e3 for name in ("RssAnon", "RssFile")])


def measured(step, path):
    before = peak = resident()
    done, begin = threading.Event(), time.perf_counter()

    def watch():
        nonlocal peak
        while not done.wait(0.02):
            peak = np.maximum(peak, resident())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    run(step, path)
    done.set()
    watcher.join()
    print(time.process_time(), *(peak - before), time.perf_counter() - begin)


def main(n_rows=10**6, folder=None):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(folder or made)
        if not (folder / "log.parquet").exists():
            write(folder, n_rows)
        header("file", "step", "processor time, s", "own memory, MB", "mapped files, MB")
        for name in ("log.csv", "log.parquet"):
            for step in STEPS:
                command = [sys.executable, __file__, step, str(folder / name)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds, own, mapped, _ = map(float, answer.stdout.split()[-4:])
                row(name, step, f"{seconds:.0f}", f"{own:.0f}", f"{mapped:.0f}")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in STEPS:
        measured(*sys.argv[1:])
    else:
        main(*map(int, sys.argv[1:2]), *sys.argv[2:3])
