"""Which labels to ask for next: span F1 by the number of labelled rows, on CoNLL-2000.

    SKLSEQ_DATA=~/data python benchmarks/bench_active_learning.py [SENTENCES] [--picture FILE]

Begins with 50 random sentences. Each round asks for about as many labels again, by a model of
those known so far, CRFTagger(l2=0.5): of whole sentences, at random or by
`sklseq.inspection.uncertainty`; or by the mean over rows of 1 - p of the best label ("doubts"), or
of 1 - its distance to the second best ("label margins"); or of single rows, at random or by
`sklseq.inspection.uncertain_rows`, the others being unknown. Mean and standard deviation of three
draws of the beginning.

``--picture``: features of the tags of the corpus too, all test sentences, and rounds that grow by
half, until F1 is 90; random sentences and rows, and the least certain ones of both, three draws.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from _common import header, row
from bench_partial_labels import Task, mean

from sklseq import CRFTagger
from sklseq.inspection import uncertain_rows, uncertainty
from sklseq.metrics import span_f1

BEGIN, ROUNDS, DRAWS = 50, 6, 3
MEASURES = ("token", "entropy", "margin", "nbest-entropy")
DOUBTS = {"doubts": lambda P: 1 - P[:, -1], "label margins": lambda P: 1 - P[:, -1] + P[:, -2]}
WAYS = ("random sentences", *MEASURES, *DOUBTS, "random rows", "uncertain rows")
SHOWN = {"random sentences": "k", "random rows": "C7", "token": "C0", "uncertain rows": "C3"}


def next_sentences(model, task, known, way, budget, rng):
    """Rows of the sentences to label."""
    X, lengths = task.X, np.diff(task.X.offsets)
    rest = np.flatnonzero(np.bincount(owners(X), known, minlength=len(X)) == 0)
    value = rng.random(len(rest))
    if way in MEASURES:
        value = uncertainty(model, X[rest], way)
    elif way in DOUBTS:
        rows = [np.sort(proba, axis=1) for proba in model.predict_proba(X[rest])]
        value = np.array([DOUBTS[way](proba).mean() for proba in rows])
    order = rest[np.argsort(-value)]
    chosen = order[np.cumsum(lengths[order]) <= budget]
    return np.flatnonzero(np.isin(owners(X), chosen))


def next_rows(model, task, known, way, budget, rng):
    if way == "random rows":
        return np.argsort(-rng.random(len(known)) * ~known)[:budget]
    found = uncertain_rows(model, task.X, budget, partly(task, known))
    return np.array([task.X.offsets[s] + t for s, t in found])


def partly(task, known):
    """The labels of which ``known`` has a True, None for the others."""
    flags = np.split(known, task.X.offsets[1:-1])
    return [[j if k else None for j, k in zip(*pair)] for pair in zip(task.y, flags)]


def owners(X):
    return np.repeat(np.arange(len(X)), np.diff(X.offsets))


def curve(task, way, seed, growth=None):
    """[(labelled rows, F1)] of each round; with ``growth`` until F1 is above 90."""
    rng, X = np.random.default_rng(seed), task.X
    known = np.isin(owners(X), rng.permutation(len(X))[:BEGIN])
    budget, found = int(BEGIN * X.n_rows / len(X)), []
    while len(found) < ROUNDS if growth is None else not found or found[-1][1] <= 90:
        model = CRFTagger(l2=0.5).fit(X, partly(task, known))
        found.append((int(known.sum()), 100 * span_f1(task.y_test, model.predict(task.X_test))))
        ask = next_rows if way.endswith("rows") else next_sentences
        budget = budget if growth is None else int(growth * known.sum())
        known[ask(model, task, known, way, budget, rng)] = True
    return found


def picture(task, file):
    figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
    ax.axhline(90, color="grey", lw=0.6)
    header("asked for", "labels until F1 is 90")
    for way, colour in SHOWN.items():
        curves = [np.transpose(curve(task, way, seed, growth=0.5)) for seed in range(DRAWS)]
        needed = [np.exp(np.interp(90, f1, np.log(rows))) for rows, f1 in curves]
        title = f"{np.mean(needed):,.0f} ± {np.std(needed, ddof=1):,.0f}"
        row(way, title)
        for rows, f1 in curves:
            ax.semilogx(rows, f1, ".-", c=colour, lw=0.8, ms=4)
        names = {"token": "least certain sentences", "uncertain rows": "least certain rows"}
        ax.semilogx(np.mean(needed), 90, "D", c=colour, label=f"{names.get(way, way)}: {title}")
    ticks = [1000, 2000, 4000, 8000, 16000]
    ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="labelled rows", ylabel="span F1, %", ylim=(82.5, 91.5))
    ax.legend(frameon=False, fontsize=8, title="labels until F1 is 90", loc="lower right")
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def main(n=2500, file=None):
    if file is not None:
        picture(Task("conll2000", n, tags=True, n_test=None), file)
        return
    task = Task("conll2000", n)
    header("asked for", *(f"{k} × {BEGIN}" for k in range(1, ROUNDS + 1)))
    for way in WAYS:
        curves = np.array([curve(task, way, seed) for seed in range(DRAWS)])
        row(way, *(mean(curves[:, k, 1]) for k in range(ROUNDS)))
    row("labelled rows", *(f"{k:.0f}" for k in curves[:, :, 0].mean(axis=0)))


if __name__ == "__main__":
    *given, file = sys.argv[1:] if "--picture" in sys.argv else [*sys.argv[1:], None]
    main(*(int(n) for n in given if n != "--picture"), file=file)
