"""One long table with a group column, against packed arrays (numbers) and lists (words).

    python benchmarks/bench_frames.py [ROWS]

Processor time of reading and training, and of reading and prediction, best of three by turns.
"""

import sys
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module

import numpy as np
from _common import by_turns, header, row
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, Sequences
from sklseq.datasets import from_frame
from sklseq.features import TemplateFeatures, TokenFeatures

LENGTH, N_NUMBERS, N_WORDS = 20, 10, 30_000
MODELS = {
    "ten numbers": CRFTagger(max_iter=10),
    "words, own attributes": make_pipeline(TokenFeatures(columns="w"), CRFTagger(max_iter=10)),
    "words, templates": make_pipeline(
        TemplateFeatures(["w[0]", "w[-1]", "w[1]", "w[-1]|w[0]"], columns=["w"]),
        CRFTagger(max_iter=10),
    ),
}


def columns(n):
    """Group, words by Zipf's law, numbers and labels that depend on both."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, N_WORDS + 1)
    word = rng.choice(N_WORDS, n, p=frequency / frequency.sum())
    x = rng.normal(size=(n, N_NUMBERS))
    y = np.array(["O", "B", "I"])[np.minimum((word + (x[:, 0] > 1)) % 7, 2)].tolist()
    words = {"w": [f"w{w}" for w in word.tolist()]}
    return np.arange(n) // LENGTH, words, {f"x{j}": x[:, j].copy() for j in range(N_NUMBERS)}, y


def tables(data):
    """The same table of several packages, of those that are installed."""
    for package, function in (
        ("pandas", "DataFrame"),
        ("polars", "DataFrame"),
        ("pyarrow", "table"),
    ):
        with suppress(ImportError):
            table = getattr(import_module(package), function)(data)
            yield package, table
            if package == "pandas" and "w" in data:
                yield "pandas, objects", table.astype({"w": object})


def compare(name, model, cells, group, y):
    """A row of times for ``fit``, and one for ``predict``."""
    n = len(y)
    cut = [slice(a, a + LENGTH) for a in range(0, n, LENGTH)]
    labels = [y[part] for part in cut]
    if "w" in cells:
        X = [{"w": cells["w"][part]} for part in cut]
    else:
        offsets = np.append(np.arange(0, n, LENGTH), n)
        X = Sequences(np.column_stack(list(cells.values())), offsets)

    def fit(table=None):
        model.fit(*((X, labels) if table is None else from_frame(table, "s", "y")))

    def predict(table=None):
        model.predict(X if table is None else from_frame(table, "s", columns=list(cells))[0])

    found = dict(tables({"s": group, **cells, "y": y}))
    header(name, "packed", *found)
    for work in (fit, predict):
        works = [work, *(partial(work, table) for table in found.values())]
        first, *others = by_turns(works, 3).min(axis=0)
        row(work.__name__, f"{first:.3f} s", *(f"{other / first:.2f}" for other in others))


def main(n=10**6):
    group, words, numbers, y = columns(n)
    for name, model in MODELS.items():
        compare(name, model, words if name.startswith("words") else numbers, group, y)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*map(int, sys.argv[1:2]))
