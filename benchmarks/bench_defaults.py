"""What a user who changes nothing gets: from feature dicts to a model and to labels, by turns.

Parts (all, or those named): defaults, tagging, gaps, search, penalty, columns. Beside
sklearn-crfsuite, in one thread and by process time; both read the same dicts, made by the function
of its tutorial where there are words. `--rounds N`: medians of N; `--data NAME ...`: some of the
corpora; `--every N`: of the part gaps, every Nth sequence; `--plot FILE`: ratios as a picture.
Data: SKLSEQ_DATA, a folder that holds the folders named in `CORPORA`.
"""

import argparse
import gc
import pickle
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np
from _common import need, tutorial_items
from _corpora import sentences
from _report import KEPT, parts_of, run, table
from bench_features import tutorial_features
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from sklseq import CRFTagger, CRFTaggerCV, read_crfsuite_model
from sklseq.features import (
    DictFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
    column_features,
)
from sklseq.metrics import span_f1, span_f1_scorer, token_accuracy

PENALTIES = [(0.1, 0.1), (0, 1), (0, 0.1), (1, 1e-3)]  # (l1, l2), (c1, c2)
QUICK = 60  # sequences


# --- Corpora --------------------------------------------------------------------------------------


class Task(NamedTuple):
    """Training and test set: raw columns of tokens, if there are words; feature dicts; labels."""

    raw: list
    X: list
    y: list
    raw_test: list
    X_test: list
    y_test: list


def words(train, test, label=-1, columns=("w",)):
    def read(path):
        raw, y = sentences(path, columns, label)
        return raw, [tutorial_items(x["w"], x.get("pos")) for x in raw], y

    return lambda there: Task(*read(there / train), *read(there / test))


def letters(there):
    """Pixels that are set."""

    def read(path):
        X, y = sentences(path, ("pixels",))
        keys = [f"p{k}" for k in range(len(X[0]["pixels"][0]))]
        items = [
            [{key: 1.0 for key, p in zip(keys, item) if p == "1"} for item in x["pixels"]]
            for x in X
        ]
        return None, items, y

    return Task(*read(there / "folds1-9.tsv.gz"), *read(there / "fold0.tsv.gz"))


def protein(there, reach=7):
    """Amino acids in a window of 15, for 8 states; every fifth chain is of the test set."""
    X, y = sentences(there / "cb513.tsv.gz", ("acid",), label=2)
    keys = {d: f"{d:+d}" for d in range(-reach, reach + 1)}
    items = [
        [
            {keys[d]: x["acid"][t + d] for d in keys if 0 <= t + d < len(labels)}
            for t in range(len(labels))
        ]
        for x, labels in zip(X, y)
    ]
    is_test = [s % 5 == 0 for s in range(len(y))]
    parts = [[z for z, test in zip(Z, is_test) if test == want] for want in (False, True)
             for Z in (items, y)]  # fmt: skip
    return Task(None, *parts[:2], None, *parts[2:])


CORPORA = {
    "conll2000": words("train.txt.gz", "test.txt.gz", columns=("w", "pos")),
    "conll2002": words("esp.train.gz", "esp.testb.gz", columns=("w", "pos")),
    "ud-english-ewt": words("train.tsv.gz", "test.tsv.gz", label=2),
    "ncbi-disease": words("train.tsv.gz", "test.tsv.gz"),
    "ocr-letters": letters,
    "protein-cb513": protein,
}


def task(name, quick):
    found = CORPORA[name](need(name))
    return Task(*(z and z[:QUICK] for z in found)) if quick else found


# --- Both sides -----------------------------------------------------------------------------------


class Ours:
    """A pipeline with every parameter but the penalties as it is."""

    def __init__(self, l1, l2, features=DictFeatures):
        self.model = make_pipeline(features(), CRFTagger(l1=l1, l2=l2))
        self.warned = False

    def fit(self, X, y):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.model.fit(X, y)
        self.warned = bool(caught)

    def tagger_and_rows(self, X):
        return self.model[-1], self.model[:-1].transform(X)


class Theirs:
    """sklearn_crfsuite.CRF, which needs all_possible_transitions to know them all."""

    def __init__(self, c1, c2, max_iterations=None):
        import sklearn_crfsuite

        self.model = sklearn_crfsuite.CRF(
            algorithm="lbfgs", c1=c1, c2=c2, all_possible_transitions=True,
            max_iterations=max_iterations,
        )  # fmt: skip

    def fit(self, X, y):
        self.model.fit(X, y)

    def tagger_and_rows(self, X):
        return read_crfsuite_model(self.model.modelfile.name), X


def objective(side, l1, l2, X, y):
    """-Σ log p(y | x) + l1 ‖w‖₁ + l2 ‖w‖² of the weights that a side has found."""
    tagger, rows = side.tagger_and_rows(X)
    coef = getattr(tagger.coef_, "data", tagger.coef_)  # of CSR: its entries
    w = np.concatenate([np.ravel(np.asarray(part)) for part in
                        (coef, tagger.transition_, tagger.start_, tagger.end_)])  # fmt: skip
    loss = -tagger.predict_log_proba_sequence(rows, y).sum()
    return float(loss + l1 * np.abs(w).sum() + l2 * np.square(w).sum())


def score(y, predicted):
    """Span F1, or accuracy where labels are no spans, in percent."""
    spans = all(label == "O" or label[:2] in ("B-", "I-") for labels in y for label in labels)
    return 100 * (span_f1 if spans else token_accuracy)(y, list(predicted))


def seconds(work, *arguments):
    """Process time of a call, with as little of the garbage collector as can be."""
    gc.collect()
    began = process_time()
    work(*arguments)
    return process_time() - began


# --- Parts ----------------------------------------------------------------------------------------


def part_defaults(quick):
    """Fit from feature dicts with default parameters but the penalties, against sklearn-crfsuite's
    default and its 100 iterations: seconds of processor time in one thread, medians of rounds by
    turns (its default run, which takes longest and differs by noise only, is run once). Objectives
    are computed by one function; ours has weights for first and last labels too. The score on the
    test set is span F1, or accuracy where labels are no spans."""
    row = table(
        "defaults", "data", "l1", "l2", "sklseq, s", "CRFsuite, s", "ratio", "100 iterations, s",
        "ratio to 100", "objective", "CRFsuite's", "at 100", "score", "CRFsuite's score",
        "score at 100", "solver", "warned",
    )  # fmt: skip
    for name in OPTIONS.data:
        data = task(name, quick)
        for l1, l2 in PENALTIES[:1] if quick else PENALTIES:
            sides = {
                "ours": Ours(l1, l2),
                "100": Theirs(l1, l2, 10 if quick else 100),
                "default": Theirs(l1, l2, 20 if quick else None),
            }
            times = {side: [] for side in sides}
            for k in range(1 if quick else OPTIONS.rounds):
                for side in ("ours", "100", *(["default"] if k == 0 else [])):
                    times[side].append(seconds(sides[side].fit, data.X, data.y))
            ours, theirs, after_100 = (median(times[k]) for k in ("ours", "default", "100"))
            order = [sides[k] for k in ("ours", "default", "100")]
            values = [objective(side, l1, l2, data.X, data.y) for side in order]
            scores = [score(data.y_test, side.model.predict(data.X_test)) for side in order]
            solver = getattr(sides["ours"].model[-1], "solver_", "auto")
            row(name, l1, l2, ours, theirs, theirs / ours, after_100, after_100 / ours,
                *values, *scores, solver, sides["ours"].warned)  # fmt: skip
    row("geometric mean", "", "", "", "", mean_ratio(5), "", mean_ratio(7), *[""] * 8)


def mean_ratio(column):
    return float(np.exp(np.mean([np.log(cells[column]) for cells in KEPT["defaults"]["rows"]])))


def part_tagging(quick):
    """From feature dicts to labels and from raw tokens to labels, by models that were pickled:
    microseconds of processor time a token, medians of rounds by turns. CRFsuite's features of raw
    tokens are the function of its tutorial."""
    row = table("tagging", "data", "from", "sklseq, µs a token", "CRFsuite, µs a token", "ratio")
    for name in OPTIONS.data:
        data = task(name, quick)
        n, theirs = sum(map(len, data.y_test)), Theirs(0.1, 0.1, 10 if quick else 100)
        trained(theirs, data.X, data.y)
        ours = trained(Ours(0.1, 0.1), data.X, data.y)
        questions = {
            "feature dicts": (
                lambda ours=ours, data=data: ours.model.predict(data.X_test),
                lambda theirs=theirs, data=data: theirs.model.predict(data.X_test),
            ),
        }
        if data.raw is not None:
            features = partial(tutorial_features, "pos" in data.raw[0])
            from_raw = trained(Ours(0.1, 0.1, features), data.raw, data.y)

            def tag_raw(theirs=theirs, data=data):
                items = [tutorial_items(x["w"], x.get("pos")) for x in data.raw_test]
                theirs.model.predict(items)

            questions["raw tokens"] = (
                lambda model=from_raw.model, data=data: model.predict(data.raw_test),
                tag_raw,
            )
        for question, works in questions.items():
            rounds = [[seconds(work) for work in works] for _ in range(1 + 2 * OPTIONS.rounds)]
            a, b = np.median(rounds, axis=0) / n * 1e6
            row(name, question, a, b, b / a)


def trained(side, X, y):
    """A side after training, with a model that was pickled."""
    side.fit(X, y)
    side.model = pickle.loads(pickle.dumps(side.model))
    return side


def part_gaps(quick):
    """How far default runs end above the minimum, in units of tol, along 13 values of l2 from 1e-3
    to 10, on a part of each corpus: against the least objective of a run with tol=1e-5 and the
    default run itself. Warned: runs with a ConvergenceWarning, not in the other columns."""
    row = table("gaps", "data", "l1", "median", "largest", "at l2", "above 1", "warned")
    for name in OPTIONS.data:
        data = task(name, quick)
        X, y = DictFeatures().fit_transform(data.X[:: OPTIONS.every]), data.y[:: OPTIONS.every]
        for l1 in (0, 0.1):
            shares, warned = {}, 0
            for l2 in np.geomspace(1e-3, 10, 3 if quick else 13):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    model = CRFTagger(l1=l1, l2=l2).fit(X, y)
                warned += bool(caught)
                if not caught:
                    shares[l2] = excess(model, X, y) / model.tol
            shares = shares or {np.nan: np.nan}  # all have warned
            worst = max(shares, key=shares.get)
            row(name, l1, median(shares.values()), shares[worst], worst,
                sum(share > 1 for share in shares.values()), warned)  # fmt: skip


def part_search(quick):
    """Ten values of l2 from 1e-3 to 10 in one of five folds: seconds of processor time in one
    thread of CRFTaggerCV, and of GridSearchCV over CRFTagger, on the same packed rows."""
    row = table("search", "data", "CRFTaggerCV, s", "GridSearchCV, s", "ratio", "l2", "l2 of grid")
    l2s = np.geomspace(1e-3, 10, 3 if quick else 10)
    for name in [name for name in ("conll2000", "conll2002") if name in OPTIONS.data]:
        data = task(name, quick)
        X, y = DictFeatures().fit_transform(data.X), data.y
        fold = {"cv": list(KFold(5).split(y))[:1], "scoring": span_f1_scorer, "refit": False}
        ours = CRFTaggerCV(l2s=l2s, all_possible_transitions=True, **fold)
        grid = GridSearchCV(CRFTagger(all_possible_transitions=True), {"l2": l2s}, **fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a, b = (seconds(search.fit, X, y) for search in (ours, grid))
        row(name, a, b, b / a, ours.l2_, grid.best_params_["l2"])


def part_penalty(quick):
    """Span F1 or accuracy on at most 1,500 test sequences by l2 after training on n sequences: why
    l2 is 0.1 by default. Means of two draws, from 800 sequences on of one. Features: dicts
    (CRFsuite's tutorial, pixels of letters, residues), or windows of token features."""
    l2s = [1, 0.3, 0.1, 0.03]
    row = table("penalty", "data", "features", "sequences", *[f"l2 = {l2:g}" for l2 in l2s])
    rng = np.random.default_rng(0)
    for name in OPTIONS.data:
        data = task(name, quick)
        ways = [("dicts", DictFeatures(), data.X, data.X_test)]
        if data.raw is not None:
            words = ([{"w": x["w"]} for x in part] for part in (data.raw, data.raw_test))
            ways.append(("windows", WindowFeatures(TokenFeatures()), *words))
        for way, features, X, X_test in ways:
            for n in [n for n in (50, 200, 800, 3000) if n <= len(X)]:
                found = []
                for _ in range(2 if n < 800 else 1):
                    drawn = rng.permutation(len(X))[:n]
                    rows = features.fit_transform([X[s] for s in drawn])
                    rows_test, y = features.transform(X_test[:1500]), [data.y[s] for s in drawn]
                    taggers = [CRFTagger(l2=l2).fit(rows, y) for l2 in l2s]
                    predicted = [tagger.predict(rows_test) for tagger in taggers]
                    found.append([score(data.y_test[:1500], labels) for labels in predicted])
                row(name, way, n, *np.mean(found, axis=0))


def part_columns(quick):
    """Span F1 or accuracy of CRFTagger() on at most 1,500 test sequences, and seconds of processor
    time of extraction and fit, by the features of columns of strings: why `column_features` is the
    default of `sklseq train`. Training sets: the first n sequences."""
    row = table("columns", "data", "columns", "sequences", "templates", "windows of letters",
                "column_features", *["s"] * 3)  # fmt: skip
    for name in OPTIONS.data:
        for data, columns in columns_of(name, task(name, quick)):
            ways = [
                TemplateFeatures(columns=columns),
                WindowFeatures(TokenFeatures(columns=columns[:1])),
                column_features(columns, symbols=columns == ["residue"]),
            ]
            for n in sorted({min(n, len(data.y)) for n in (200, 3000)}):
                models = [make_pipeline(clone(way), CRFTagger()) for way in ways]
                times = [seconds(model.fit, data.raw[:n], data.y[:n]) for model in models]
                found = [score(data.y_test[:1500], m.predict(data.raw_test[:1500])) for m in models]
                row(name, " ".join(columns), n, *found, *times)


def columns_of(name, data):
    """Yield the task with its columns of strings, and with its words alone."""
    if data.raw is None and name == "protein-cb513":
        raw, raw_test = ([{"residue": [t["+0"] for t in x]} for x in X] for X in data[1::3])
        yield data._replace(raw=raw, raw_test=raw_test), ["residue"]
    elif data.raw is not None:
        yield data, list(data.raw[0])
        if len(data.raw[0]) > 1:
            yield data, ["w"]


def excess(model, X, y):
    """Share by which the objective of a fitted model exceeds the least that is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = clone(model).set_params(solver="adagrad", tol=1e-5, max_iter=1000).fit(X, y)
    return model.objective_ / min(best.objective_, model.objective_) - 1


def plot_ratios(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [cells for cells in KEPT["defaults"]["rows"] if cells[1] != ""]
    names = list(dict.fromkeys(cells[0] for cells in rows))
    figure, axis = plt.subplots(figsize=(10, 4), layout="constrained")
    for k, (l1, l2) in enumerate(dict.fromkeys(tuple(cells[1:3]) for cells in rows)):
        some = [cells for cells in rows if tuple(cells[1:3]) == (l1, l2)]
        at = np.array([names.index(cells[0]) for cells in some]) + 0.15 * (k - 1.5)
        axis.semilogy(
            at, [cells[7] for cells in some], "o", color=f"C{k}", label=f"l1 = {l1:g}, l2 = {l2:g}"
        )
        axis.semilogy(at, [cells[5] for cells in some], "^", color=f"C{k}", fillstyle="none")
    for ratio in (1, 5, 10):
        axis.axhline(ratio, color="0.8", linewidth=1, zorder=0)
    axis.plot([], [], "o", color="0.4", label="100 iterations of CRFsuite")
    axis.plot([], [], "^", color="0.4", fillstyle="none", label="default of CRFsuite")
    axis.set(ylabel="time of CRFsuite / time of sklseq", xticks=range(len(names)))
    axis.set_xticklabels(names)
    ticks = [1, 2, 5, 10, 20, 50, 100]
    axis.set_yticks(ticks, map(str, ticks), minor=False)
    axis.set_yticks([], minor=True)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, dpi=120)


def with_options(parser):
    parser.add_argument("--rounds", type=int, default=3, help="medians of so many")
    parser.add_argument("--data", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument(
        "--every", type=int, default=10, help="of the part gaps: every Nth sequence"
    )
    parser.add_argument("--plot", type=Path, help="picture of the part defaults")


OPTIONS = argparse.Namespace(rounds=3, data=list(CORPORA), every=10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    with_options(parser)
    OPTIONS, _ = parser.parse_known_args()
    with threadpool_limits(1):
        run(__doc__, parts_of(globals()), with_options)
    if OPTIONS.plot and "defaults" in KEPT:
        plot_ratios(OPTIONS.plot)
