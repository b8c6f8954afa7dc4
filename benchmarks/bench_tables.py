"""One long table beside packed arrays: fit and predict with from_frame, against without.

A million rows of ten numbers, or of one word, in sequences of 20; processor time, one thread, in
turns, best of three (fit) and of nine (predict). Needs pandas and polars. "ratio": table against
packed arrays, lower is better.
"""

import argparse
import os
import warnings
from time import process_time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import pandas as pd
import polars as pl
from _common import header, row
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, Sequences
from sklseq.datasets import from_frame
from sklseq.features import TokenFeatures, WindowFeatures


def best(*works, rounds):
    """Best seconds of each work, in turns."""
    seconds = [[] for _ in works]
    for _ in range(rounds):
        for times, work in zip(seconds, works):
            began = process_time()
            work()
            times.append(process_time() - began)
    return [min(times) for times in seconds]


def compare(name, model, packed, y, columns):
    """Print a line for fit and one for predict."""
    tables = [make(columns) for make in (pd.DataFrame, pl.DataFrame)]
    inputs = [c for c in columns if c not in ("s", "y")]
    fits = [lambda t=t: model.fit(*from_frame(t, "s", "y")) for t in tables]
    predicts = [lambda t=t: model.predict(from_frame(t, "s", columns=inputs)[0]) for t in tables]
    for what, rounds, own, others in (
        ("fit", 3, lambda: model.fit(packed, y), fits),
        ("predict", 9, lambda: model.predict(packed), predicts),
    ):
        base, pandas, polars = best(own, *others, rounds=rounds)
        ratios = [f"{seconds / base:.2f}" for seconds in (pandas, polars)]
        row(f"{name}, {what}", f"{base:.3f}", *ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    n = parser.parse_args().rows
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    offsets = np.append(np.arange(0, n, 20), n)
    sentence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    rows = rng.normal(size=(n, 10))
    labels = np.array(list("abcde"))[
        (rows @ rng.normal(size=(10, 5)) + rng.gumbel(size=(n, 5))).argmax(axis=1)
    ]
    words = np.array([f"w{k}" for k in range(5000)], dtype=object)[rng.integers(0, 5000, n)]
    cuts = list(zip(offsets[:-1].tolist(), offsets[1:].tolist()))
    y = [labels[a:b] for a, b in cuts]
    header("task", "packed, s", "pandas, ratio", "polars, ratio")
    numbers = {f"x{j}": rows[:, j] for j in range(10)}
    tagger = CRFTagger(max_iter=20)
    compare("numbers", tagger, Sequences(rows, offsets), y, {**numbers, "s": sentence, "y": labels})
    model = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger(max_iter=3))
    lists = [{"w": words[a:b].tolist()} for a, b in cuts]
    compare("words", model, lists, y, {"w": words, "s": sentence, "y": labels})


if __name__ == "__main__":
    main()
