"""The z-score's figures: the paper's two tables and its figure, and CoNLL-2000 beside the CRF.

    python benchmarks/bench_zscore.py [table1] [figure1] [table2] [chunking] [--runs N] [--n-jobs N]

Ricci, De Bie, Cristianini (2007), §6. Columns MM and MM(H) are HMSVMTagger's, where there is one.
Real data is found through SKLSEQ_DATA (`conll2000/`, `conll2002/`);
parts without their data say so.
Within a part, models take turns in one process. Errors are shares of labels, in percent.
"""

import argparse
import os
import warnings
from pathlib import Path
from statistics import mean, median
from time import perf_counter

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

import sklseq
from sklseq import CRFTagger, ZScoreTagger
from sklseq.datasets import read_conll
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.metrics import span_f1, token_accuracy

HMSVM = getattr(sklseq, "HMSVMTagger", None)
warnings.simplefilter("ignore", ConvergenceWarning)


# --- Data ---------------------------------------------------------------------------------------


def markov(rng, n_states, n_symbols, length, concentration):
    """A random hidden Markov model: a function that draws n sequences, one-hot."""
    start = rng.dirichlet(np.full(n_states, concentration))
    A = rng.dirichlet(np.full(n_states, concentration), n_states)
    E = rng.dirichlet(np.full(n_symbols, concentration), n_states)

    def draw(n):
        y = np.empty((n, length), dtype=int)
        for t in range(length):
            share = np.tile(start, (n, 1)) if t == 0 else A[y[:, t - 1]]
            y[:, t] = _choose(rng, share)
        symbols = _choose(rng, E[y.ravel()])
        return list(np.eye(n_symbols)[symbols].reshape(n, length, -1)), list(y)

    return draw


def _choose(rng, shares):
    return (
        (rng.random((len(shares), 1)) > shares.cumsum(axis=1))
        .sum(axis=1)
        .clip(max=shares.shape[1] - 1)
    )


def folder(name):
    path = Path(os.environ.get("SKLSEQ_DATA", "")) / name
    return path if "SKLSEQ_DATA" in os.environ and path.is_dir() else None


# --- Measuring ----------------------------------------------------------------------------------


def measure(model, train, test):
    """(error in percent, seconds of fit)."""
    began = perf_counter()
    model.fit(*train)
    seconds = perf_counter() - began
    return 100 * (1 - model.score(*test)), seconds


def margin_models(C=1.0):
    """MM, MM(H) and the perceptron, where the package has them."""
    if HMSVM is None:
        return {}
    return {
        "MM": HMSVM(C=C, loss="zero_one"),
        "MM(H)": HMSVM(C=C, loss="hamming"),
        "perceptron": HMSVM(solver="perceptron", max_iter=200),
    }


def say_what_is_missing():
    if HMSVM is None:
        print("(HMSVMTagger cannot be imported: columns MM, MM(H) and perceptron are left out.)")


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(*cells):
    row(*cells)
    row(*["---"] * len(cells))


# --- Table 1 ------------------------------------------------------------------------------------

PAPER_TABLE_1 = {3: (15.82, 15.91, 15.81), 5: (10.10, 10.13, 10.02), 7: (7.49, 7.58, 7.22),
                 9: (4.99, 4.99, 4.94), 11: (4.74, 4.78, 4.58)}  # fmt: skip


def table1(runs):
    """2 states, 3 to 11 symbols, length 100, 50 sequences to train and 100 to test.

    The paper does not say how its models were drawn; Dirichlet(0.5) has errors of its order.
    """
    print(f"\n### Table 1: {runs} random models a row; error % (ms)\n")
    say_what_is_missing()
    models = {
        "z": ZScoreTagger(loss=None, l2=0.0),
        "z(100)": ZScoreTagger(loss=None, l2=0.0, moments="sampling", n_paths=100, random_state=0),
        "z dp": ZScoreTagger(loss=None, l2=0.0, moments="dp"),
        "z(H)": ZScoreTagger(l2=0.0),
        "z(H, 100)": ZScoreTagger(l2=0.0, moments="sampling", n_paths=100, random_state=0),
        "CRF": CRFTagger(l2=0.1),
        **{k: m for k, m in margin_models().items() if k == "MM(H)"},
    }
    header("n_o", *models, "paper: z, z(100), MM(H)", "z minus z(100), ± s.e.")
    for n_o, paper in PAPER_TABLE_1.items():
        rng, found = np.random.default_rng(n_o), {name: [] for name in models}
        for _ in range(runs):
            draw = markov(rng, 2, n_o, 100, 0.5)
            train, test = draw(50), draw(100)
            while len(np.unique(train[1])) < 2:
                draw = markov(rng, 2, n_o, 100, 0.5)
                train, test = draw(50), draw(100)
            for name, model in models.items():
                found[name].append(measure(model, train, test))
        cells = [
            f"{mean(e for e, _ in f):.2f} ({1e3 * median(t for _, t in f):.0f})"
            for f in found.values()
        ]
        gap = [a[0] - b[0] for a, b in zip(found["z"], found["z(100)"])]
        error = np.std(gap) / np.sqrt(len(gap))
        row(n_o, *cells, ", ".join(map(str, paper)), f"{mean(gap):+.3f} ± {error:.3f}")


# --- Figure 1 -----------------------------------------------------------------------------------


def figure1(runs):
    """3 states, 4 symbols, length 10: error and time against the size of the training set."""
    print(f"\n### Figure 1: {runs} random models a row; error % (ms)\n")
    say_what_is_missing()
    margin = margin_models()
    if margin:
        margin["MM"].set_params(C=0.1)
    models = {
        "z": ZScoreTagger(loss=None, l2=0.0), "z(H)": ZScoreTagger(l2=0.0),
        "CRF": CRFTagger(l2=0.1), **margin,
    }  # fmt: skip
    header("sequences", *models)
    for size in (5, 10, 20, 50, 100, 200):
        found = {name: [] for name in models}
        for run in range(runs):  # the same models for every size
            draw = markov(np.random.default_rng(run), 3, 4, 10, 1.0)
            train, test = draw(size), draw(100)
            while len(np.unique(train[1])) < 3:
                train = draw(size)
            for name, model in models.items():
                found[name].append(measure(model, train, test))
        row(size, *(
            f"{mean(e for e, _ in f):.2f} ({1e3 * median(t for _, t in f):.1f})"
            for f in found.values()
        ))  # fmt: skip


# --- Table 2 ------------------------------------------------------------------------------------

PAPER_TABLE_2 = {"S1": (11.66, 11.07, 13.94, 10.97, 20.99, 12.01),
                 "S2": (8.01, 7.89, 9.04, 8.11, 13.78, 8.29)}  # fmt: skip


def shape_features(word):
    """What a word looks like: the paper's "spelling properties"."""
    found = [f"w={word.lower()}"]
    checks = {
        "capital": word[:1].isupper(), "upper": word.isupper(),
        "digit": any(map(str.isdigit, word)),
        "number": word.replace(",", "").replace(".", "").isdigit(), "hyphen": "-" in word,
        "point": "." in word and len(word) > 1, "alnum": word.isalnum(), "quote": word in "\"'«»",
        "inner": any(map(str.isupper, word[1:])) and not word.isupper(), "one": len(word) == 1,
    }  # fmt: skip
    return found + [name for name, holds in checks.items() if holds]


def spanish_features(words, kind):
    """Attributes of one sentence. "words": the word alone; S1: with its spelling; S2: S1 of the
    previous, this and the next word."""
    own = [[f"w={w.lower()}"] if kind == "words" else shape_features(w) for w in words]
    if kind != "S2":
        return own
    window = []
    for t in range(len(own)):
        item = list(own[t])
        item += [f"-1:{f}" for f in own[t - 1]] if t else ["first"]
        item += [f"+1:{f}" for f in own[t + 1]] if t + 1 < len(own) else ["last"]
        window.append(item)
    return window


def table2(n_jobs):
    """300 Spanish sentences, 5 folds."""
    path = folder("conll2002")
    print("\n### Table 2: 300 sentences of CoNLL-2002 Spanish, 5 folds; error % (s a fold)\n")
    if path is None:
        print("(no conll2002/ under SKLSEQ_DATA)")
        return
    say_what_is_missing()
    columns, y = read_conll(path / "esp.train.gz", columns=("w", "pos"))
    chosen = [s for s, labels in enumerate(y) if len(labels) >= 10][:300]
    y = [y[s] for s in chosen]
    n_tokens = sum(map(len, y))
    print(
        f"{n_tokens} tokens, {n_tokens / 300:.0f} a sentence, {len(set(np.concatenate(y)))} labels"
    )
    share = np.mean(np.concatenate(y) == "O")
    print(f"all O: {100 * (1 - share):.2f} %\n")
    models = {
        "z": ZScoreTagger(loss=None, l2=0.0, n_jobs=n_jobs),
        "z, l2=0.1": ZScoreTagger(loss=None, l2=0.1, n_jobs=n_jobs),
        "z(H)": ZScoreTagger(l2=0.0, n_jobs=n_jobs),
        "z(H), l2=0.1": ZScoreTagger(l2=0.1, n_jobs=n_jobs),
        "z(H), l2=0.1, iob2": ZScoreTagger(l2=0.1, constraints="iob2", n_jobs=n_jobs),
        "z(H, 150 paths), l2=0.1": ZScoreTagger(
            l2=0.1, moments="sampling", n_paths=150, random_state=0
        ),
        "CRF, l2=0.1": CRFTagger(l2=0.1, n_jobs=n_jobs),
        **margin_models(),
    }
    kinds = ("words", "S1", "S2")
    header("features", "attributes", *models, "paper: z, z(H), MM, MM(H), HMP, CRF")
    for kind in kinds:
        X = [spanish_features(columns[s]["w"], kind) for s in chosen]
        found = {name: [] for name in models}
        for train, test in KFold(5, shuffle=True, random_state=0).split(X):
            vectorizer = DictFeatures()
            A = vectorizer.fit_transform([X[s] for s in train])
            B = vectorizer.transform([X[s] for s in test])
            known, wanted = [y[s] for s in train], [y[s] for s in test]
            for name, model in models.items():
                began = perf_counter()
                model.fit(A, known)
                seconds = perf_counter() - began
                predicted = np.concatenate(model.predict(B))
                found[name].append((100 * np.mean(predicted != np.concatenate(wanted)), seconds))
        cells = [
            f"{mean(e for e, _ in f):.2f} ({median(t for _, t in f):.2f})" for f in found.values()
        ]
        row(kind, A.shape[1], *cells, ", ".join(map(str, PAPER_TABLE_2.get(kind, ("-",)))))


# --- CoNLL-2000 ---------------------------------------------------------------------------------


def chunking(runs, n_jobs):
    """19 attributes a token: fit and F1 beside CRFTagger's 100 iterations; warm start."""
    path = folder("conll2000")
    print(f"\n### CoNLL-2000, 19 attributes a token, {n_jobs} thread(s)\n")
    if path is None:
        print("(no conll2000/ under SKLSEQ_DATA)")
        return
    train = read_conll(path / "train.txt.gz", columns=("w", "pos"))
    test = read_conll(path / "test.txt.gz", columns=("w", "pos"))
    features = TemplateFeatures(columns=["w", "pos"])
    A, B = features.fit_transform(train[0]), features.transform(test[0])
    models = {
        "z(H), l2=1": ZScoreTagger(n_jobs=n_jobs),
        "z(H), l2=0.1": ZScoreTagger(l2=0.1, n_jobs=n_jobs),
        "z(H), l2=0.02": ZScoreTagger(l2=0.02, n_jobs=n_jobs),
        "z, l2=1": ZScoreTagger(loss=None, n_jobs=n_jobs),
        "CRF, 100 iterations": CRFTagger(max_iter=100, tol=0.0, n_jobs=n_jobs),
        "CRF, all states, 100 iterations": CRFTagger(
            max_iter=100, tol=0.0, all_possible_states=True, n_jobs=n_jobs
        ),
    }  # fmt: skip
    seconds = {name: [] for name in models}
    for _ in range(runs):
        for name, model in models.items():
            began = perf_counter()
            model.fit(A, train[1])
            seconds[name].append(perf_counter() - began)
    base = median(seconds["CRF, 100 iterations"])
    header("model", "iterations", "fit, s", "CRF's time over it", "token error %", "span F1")
    for name, model in models.items():
        predicted = model.predict(B)  # the test labels have one that training has not
        error = 100 * (1 - token_accuracy(test[1], predicted))
        f1 = 100 * span_f1(test[1], predicted)
        t = median(seconds[name])
        row(name, model.n_iter_, f"{t:.2f}", f"{base / t:.1f}", f"{error:.2f}", f"{f1:.2f}")
    warm_start(A, train[1], models, n_jobs)


def warm_start(A, y, models, n_jobs):
    """Iterations the CRF saves by starting from the z-score's weights."""
    print("\nIterations until the CRF's objective (l2 = 1, all states) is within 1 % and 0.1 %\n")
    options = {"max_iter": 200, "tol": 0.0, "all_possible_states": True, "n_jobs": n_jobs}
    curves = {"zero": CRFTagger(**options).fit(A, y).loss_curve_}
    for name in ("z, l2=1", "z(H), l2=0.1"):
        for scale in (1, 4):
            crf = models[name].to_crf(scale=scale, **options)
            curves[f"{name}, times {scale}"] = crf.fit(A, y).loss_curve_
    best = min(min(curve) for curve in curves.values())
    header("start", "objective there", *(f"within {p} %" for p in (10, 1, 0.1)))
    for name, curve in curves.items():
        within = [
            next((k for k, f in enumerate(curve) if f <= best * (1 + p / 100)), "-")
            for p in (10, 1, 0.1)
        ]
        row(name, f"{curve[0]:,.0f}", *within)


PARTS = {
    "table1": lambda a: table1(a.runs), "figure1": lambda a: figure1(a.runs),
    "table2": lambda a: table2(a.n_jobs), "chunking": lambda a: chunking(min(a.runs, 3), a.n_jobs),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--n-jobs", type=int, default=1)
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        PARTS[part](arguments)


if __name__ == "__main__":
    main()
