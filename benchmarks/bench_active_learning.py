"""Which labels to ask for next: span F1 by the number of labelled rows, on CoNLL-2000.

    SKLSEQ_DATA=~/data python benchmarks/bench_active_learning.py [SENTENCES] [--picture FILE]

Begins with 50 random sentences. Each round asks for about as many labels again, by a model of
those known so far, CRFTagger(l2=0.5): of whole sentences, at random or by
`sklseq.inspection.uncertainty`; or by the mean over rows of 1 - p of the best label ("doubts"), or
of 1 - its distance to the second best ("label margins"); or of single rows, at random or where the
entropy of the label is largest, the others being unknown. Mean and standard deviation of three
draws of the beginning.

``--picture``: features of the tags of the corpus too, and rounds that grow by half, until F1 is 90;
the picture is that of the first draw.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from _common import header, row
from bench_partial_labels import Task, mean
from scipy.special import entr

from sklseq import CRFTagger
from sklseq.inspection import uncertainty
from sklseq.metrics import span_f1

BEGIN, ROUNDS, DRAWS = 50, 6, 3
MEASURES = ("token", "entropy", "margin", "nbest-entropy")
DOUBTS = {"doubts": lambda P: 1 - P[:, -1], "label margins": lambda P: 1 - P[:, -1] + P[:, -2]}
WAYS = ("random sentences", *MEASURES, *DOUBTS, "random rows", "uncertain rows")


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
    value = rng.random(len(known))
    if way == "uncertain rows":
        value = entr(np.concatenate(model.predict_proba(task.X))).sum(axis=1)
    return np.argsort(-value * ~known)[:budget]


def owners(X):
    return np.repeat(np.arange(len(X)), np.diff(X.offsets))


def curve(task, way, seed, growth=None):
    """[(labelled rows, F1)] of each round; with ``growth`` until F1 is above 90."""
    rng, X = np.random.default_rng(seed), task.X
    known = np.isin(owners(X), rng.permutation(len(X))[:BEGIN])
    budget, found = int(BEGIN * X.n_rows / len(X)), []
    while len(found) < ROUNDS if growth is None else not found or found[-1][1] <= 90:
        flags = np.split(known, X.offsets[1:-1])
        y = [[j if k else None for j, k in zip(*pair)] for pair in zip(task.y, flags)]
        model = CRFTagger(l2=0.5).fit(X, y)
        found.append((int(known.sum()), 100 * span_f1(task.y_test, model.predict(task.X_test))))
        ask = next_rows if way.endswith("rows") else next_sentences
        budget = budget if growth is None else int(growth * known.sum())
        known[ask(model, task, known, way, budget, rng)] = True
    return found


def picture(task, file):
    figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
    header("asked for", "labels until F1 is 90")
    for way, style in zip(WAYS, ("ks-", "o-", "^-", "v-", "<-", "+-", ">-", "x--", "D--")):
        curves = [np.transpose(curve(task, way, seed, growth=0.5)) for seed in range(DRAWS)]
        needed = [np.exp(np.interp(90, f1, np.log(rows))) for rows, f1 in curves]
        row(way, f"{np.mean(needed):,.0f} ± {np.std(needed, ddof=1):,.0f}")
        rows, f1 = curves[0]
        ax.semilogx(rows, f1, style, ms=4, lw=1.2, label=way)
        ax.legend(frameon=False, fontsize=8)
        ax.axhline(90, color="grey", lw=0.6)
        ax.set(xlabel="labelled rows", ylabel="span F1, %", ylim=(85.5, 91))
        ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(file, dpi=120)


def main(n=2500, file=None):
    if file is not None:
        picture(Task("conll2000", n, tags=True), file)
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
