"""Transition features: cost of an evaluation, test scores with and without them, Wapiti, CRF++.

    SKLSEQ_DATA=~/data python benchmarks/bench_transitions.py [cost] [scores] [peers]
        [--sentences N] [--task NAME ...] [--wapiti COMMAND] [--crfpp COMMAND]

cost: CoNLL-2000 (22 labels), processor time of an evaluation of the objective in one thread, and
memory of the weights, for one transition feature a token. scores: CoNLL-2000 (span F1), English Web
Treebank (accuracy), OCR letters (accuracy, trained on fold 0, and on nine folds) and documents with
contact information (span F1); what is chosen for each model (penalty, scale) is chosen on the last
quarter of the shuffled training part. peers: the same template, model and penalty by Wapiti and by
CRF++ (crf_learn and crf_test, for example of the package crfpy), if they are installed; the package
libwapiti has Wapiti's source. N: how many
sentences to train on, for less time.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import warnings
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
from _common import NoData, by_turns, each_with_data, header, need, row
from _corpora import letters, sentences, tagged
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.data.sequences import TRANSITION
from sklseq.datasets import make_contacts
from sklseq.estimators.crf.crf_problem import CRFProblem
from sklseq.estimators.sources.open_source import open_source
from sklseq.features import TemplateFeatures
from sklseq.metrics import span_f1, token_accuracy

warnings.simplefilter("ignore", ConvergenceWarning)

WORDS = [f"U0{k}:%x[{k - 2},0]" for k in range(5)] + ["U05:%x[-1,0]/%x[0,0]", "U06:%x[0,0]/%x[1,0]"]
TAGS = [f"U1{k}:%x[{k - 2},1]" for k in range(5)]
TAGS += [f"U2{k}:%x[{k - 2},1]/%x[{k - 1},1]" for k in range(4)]
PAIRS = {
    "word": "B0:%x[0,0]",
    "tag or suffix": "B1:%x[0,1]",
    "word pair": "B2:%x[-1,0]/%x[0,0]",
    "pair of tags or suffixes": "B3:%x[-1,1]/%x[0,1]",
}
ALL = {"all_possible_states": True, "all_possible_transitions": True}


# ---------------------------------------------------------------- data


def conll2000(n):
    return tagged("conll2000", "train", n), tagged("conll2000", "test")


def ewt(n):
    folder = need("ud-english-ewt")
    (X, y), test = (sentences(folder / f"{part}.tsv.gz", label=1) for part in ("train", "test"))
    for x in X + test[0]:
        x["suffix"] = [word[-3:].lower() for word in x["w"]]
    return (X[:n], y[:n]), test


def contacts(n):
    parts = [make_contacts(k, random_state=s) for s, k in enumerate((n or 400, 400))]
    kinds = [(r"\d", "d"), (r"[A-Z]", "X"), (r"[a-z]", "x")]

    def shape(word):
        for pattern, kind in kinds:
            word = re.sub(pattern, kind, word)
        return word[:5]

    def spans(labels):
        return ["O" if label == "NOTCONTACT" else f"I-{label}" for label in labels]

    return [
        ([{"w": x["w"], "shape": [*map(shape, x["w"])]} for x in X], [*map(spans, y)])
        for X, y in parts
    ]


def ocr(n, reverse=False):
    parts = [letters(need("ocr-letters") / f"{k}.tsv.gz") for k in ("fold0", "folds1-9")]
    (X, y), test = parts[::-1] if reverse else parts
    kept = np.random.default_rng(0).permutation(len(X))[:n]
    return (X[kept], [y[k] for k in kept]), test


# ---------------------------------------------------------------- models


def text_models(X):
    """{name: (settings, function of settings, labels, rows and more rows, parameters)}."""
    columns = list(X[0])
    lines = WORDS + TAGS * (len(columns) > 1)

    def rows(more, settings, labels, *parts):
        features = TemplateFeatures([*lines, *more], columns=columns)
        return [features.fit_transform(parts[0]), *map(features.transform, parts[1:])]

    found = {"none": ([()], lambda *a: rows([], *a), {})}
    found["none, all states and pairs"] = [()], found["none"][1], ALL
    for name, line in PAIRS.items():
        found[name] = [()], lambda *a, line=line: rows([line], *a), {}
    return found


def pixel_models(X):
    n = X.rows.shape[1]

    def plain(settings, labels, *parts):
        return parts

    def components(settings, labels, *parts):
        scale, k = settings
        pca = PCA(k, random_state=0).fit(parts[0].rows.toarray())
        return [with_pairs(X, scale * pca.transform(X.rows.toarray())) for X in parts]

    def clusters(settings, labels, *parts):
        scale, k = settings
        means = KMeans(k, n_init=1, random_state=0).fit(parts[0].rows.toarray())
        return [with_pairs(X, scale * np.eye(k)[means.predict(X.rows.toarray())]) for X in parts]

    def pixels(settings, labels, *parts):
        return [with_pairs(X, settings[0] * X.rows) for X in parts]

    def probabilities(settings, labels, *parts):
        known = Letters(parts[0], labels)
        return [beside(X, settings[0] * known.of_both(X)) for X in parts]

    def positions(settings, labels, *parts):
        return [beside(X, settings[0] * ends(X)) for X in parts]

    scales = [(1.0,), (3.0,)]
    of_clusters = list(product((1.0, 2.0), (30, 100, 400)))
    return {
        "none": ([()], plain, {}),
        "none, all states and pairs": ([()], plain, ALL),
        "all pixels × 0.1": ([(0.1,)], pixels, {}),
        "principal components": (list(product((0.1, 0.3), (10, 30))), components, {}),
        "clusters of pixels": (of_clusters, clusters, {}),
        "clusters of pixels, all states and pairs": (of_clusters, clusters, ALL),
        "probabilities, for labels only": (scales, probabilities, {}),
        "probabilities": (scales, probabilities, {"transition_features": np.arange(n, n + 52)}),
        "positions, for labels only": (scales, positions, {}),
        "positions": (scales, positions, {"transition_features": np.arange(n, n + 30)}),
    }


class Letters:
    """Probabilities of letters given their own pixels, by a model that has not seen them.

    Those of the rows to learn from are by models of four fifths of their words.
    """

    def __init__(self, X, y):
        self.X, y = X, np.concatenate(y)
        words = np.repeat(np.arange(len(X)), np.diff(X.offsets))
        self.model = LogisticRegression(C=0.1, max_iter=200)
        self.out_of_fold = cross_val_predict(
            self.model, X.rows, y, groups=words, cv=GroupKFold(5), method="predict_proba"
        )
        self.model.fit(X.rows, y)

    def of_both(self, X):
        """Probabilities of each letter and of the one before it in its word, or zeros."""
        own = self.out_of_fold if X is self.X else self.model.predict_proba(X.rows)
        before = np.roll(own, 1, axis=0)
        before[X.offsets[:-1]] = 0
        return np.hstack([own, before])


def ends(X):
    """Indicators of the numbers of letters before and after each letter of its word."""
    lengths = np.diff(X.offsets)
    before = np.arange(X.n_rows) - np.repeat(X.offsets[:-1], lengths)
    after = np.repeat(lengths, lengths) - 1 - before
    return np.hstack([np.eye(15)[np.minimum(k, 14)] for k in (before, after)])


def beside(X, columns):
    """X beside more columns."""
    columns = Sequences(sparse.csr_matrix(columns), X.offsets)
    return np.concatenate([X, columns], axis=1)


def with_pairs(X, columns):
    """X beside columns that have weights for pairs only."""
    columns = sparse.csr_matrix(columns)
    pairs = Sequences(columns, X.offsets, np.full(columns.shape[1], TRANSITION))
    return np.concatenate([X, pairs], axis=1)


TASKS = {
    "conll2000": (conll2000, text_models, span_f1, (0.1, 0.3, 1.0)),
    "ewt": (ewt, text_models, token_accuracy, (0.1, 0.3, 1.0)),
    "contacts": (contacts, text_models, span_f1, (0.01, 0.1, 1.0)),
    "letters, fold 0": (ocr, pixel_models, token_accuracy, (0.3, 1.0, 3.0)),
    "letters, nine folds": (lambda n: ocr(n, True), pixel_models, token_accuracy, (0.03, 0.1, 0.3)),
}


# ---------------------------------------------------------------- scores


def scores(n, tasks):
    header("data", "transition features", "weights", "of pairs", "chosen", "aside", "test")
    for task in tasks or TASKS:
        read, models, measure, l2s = TASKS[task]
        (X, y), (X_test, y_test) = read(n)
        order = np.random.default_rng(1).permutation(len(X))
        X, y = (
            X[order] if isinstance(X, Sequences) else [X[k] for k in order],
            [y[k] for k in order],
        )
        cut = len(X) * 3 // 4
        for name, (settings, rows, parameters) in models(X).items():
            found = {}
            for one in settings:
                learnt, aside = rows(one, y[:cut], X[:cut], X[cut:])
                for l2 in l2s:
                    model = CRFTagger(l2=l2, solver="lbfgs", **parameters).fit(learnt, y[:cut])
                    found[one, l2] = measure(y[cut:], model.predict(aside))
            one, l2 = max(found, key=found.get)
            learnt, test = rows(one, y, X, X_test)
            model = CRFTagger(l2=l2, solver="lbfgs", **parameters).fit(learnt, y)
            coef = model.transition_coef_
            numbers = np.count_nonzero(model.coef_), 0 if coef is None else coef.nnz
            percent = [
                f"{100 * s:.2f}" for s in (found[one, l2], measure(y_test, model.predict(test)))
            ]
            row(task, name, *numbers, f"l2 = {l2:g} {one or ''}", *percent)


# ---------------------------------------------------------------- cost


def problem(X, y, **parameters):
    source = open_source(X, y, None, "auto")
    return source, CRFProblem(CRFTagger(solver="lbfgs", **parameters), source, source.summarise())


def cost(n, rounds=7):
    header("transition feature of each token", "pairs", "weights of pairs", "MB", "dense, MB",
           "ms an evaluation", "ratio")  # fmt: skip
    X, y = conll2000(n or 2000)[0]
    forms = [("none", None, {})]
    forms += [(name, line, {}) for name, line in PAIRS.items()]
    forms += [(name, line, {"all_possible_transitions": True}) for name, line in PAIRS.items()]
    plain = None
    with Threads(1) as threads:
        for name, line, parameters in forms:
            lines = [*WORDS, *TAGS, *([line] if line else [])]
            rows = TemplateFeatures(lines, columns=["w", "pos"]).fit_transform(X)
            source, one = problem(rows, y, **parameters)
            best = clock(source, one, threads, rounds)
            plain = plain or clock(source, one, threads, rounds)
            features, L = one.scores.features, one.scores.n_labels
            n_weights = 0 if features is None else features.n_weights
            n_columns = 0 if features is None else len(features.columns)
            megabytes = (f"{8e-6 * k:.2f}" for k in (n_weights, n_columns * L * L))
            pairs = "-" if line is None else "all" if parameters else "seen"
            row(name, pairs, n_weights, *megabytes, f"{1e3 * best:.1f}", f"{best / plain:.2f}")


def clock(source, problem, threads, rounds):
    """Processor time of an evaluation at small weights drawn at random: the best of some."""
    f = source.likelihood(problem.scores, 1.0, threads)
    w = problem.scores.new_vector()
    w[:] = 0.1 * np.random.default_rng(0).normal(size=len(w))
    gradient = np.empty_like(w)
    return by_turns([lambda: f.value_and_gradient(w, gradient)], rounds).min()


# ---------------------------------------------------------------- Wapiti and CRF++


def peers(n, commands):
    """A template file with a plain B, and two with bigrams, too; all pairs of labels."""
    found = {name: path for name, one in commands.items() if (path := shutil.which(one))}
    if not found:
        raise NoData(f"there is no command {' or '.join(commands.values())}; see --help")
    header("lines for pairs", "program", "processor time, s", "iterations", "objective", "F1")
    (X, y), (X_test, y_test) = conll2000(n or 450)
    for more in ([], [PAIRS["tag or suffix"]], [PAIRS["word pair"]]):
        lines = [*WORDS, *TAGS, "B", *more]

        def report(program, time, iterations, objective, labels, more=more):
            percent = f"{100 * span_f1(y_test, labels):.2f}"
            name = " ".join(["B", *more])
            row(name, program, f"{time:.3g}", iterations, f"{objective:.3f}", percent)

        for name, program in found.items():
            for arguments in PEERS[name]:
                done = run_peer(name, program, arguments, lines, X, y, X_test)
                report(" ".join([name, *arguments]), *done)
        for tol in (1e-4, 1e-3, 1e-2):
            began = process_time()
            features = TemplateFeatures(lines, columns=["w", "pos"], boundary="mark", bos_eos=False)
            model = CRFTagger(l2=0.5, boundaries=False, tol=tol, n_jobs=1, **ALL)
            model.fit(features.fit_transform(X), y)
            time, labels = process_time() - began, model.predict(features.transform(X_test))
            report(f"sklseq, tol={tol:g}", time, model.n_iter_, model.objective_, labels)


# Options of training with l2 = 1 / 2, until the objective no longer changes and by default.
PEERS = {
    "wapiti": (["-1", "0", "-2", "1", "-e", "1e-7", "-w", "0"], ["-1", "0", "-2", "1"]),
    "crf++": (["-c", "1", "-e", "1e-6"], ["-c", "1"]),
}


def run_peer(name, program, options, lines, X, y, X_test):
    """(processor time of training, iterations, objective, labels)."""
    with tempfile.TemporaryDirectory() as there:
        names = [str(Path(there) / k) for k in ("patterns", "train", "test", "model")]
        patterns, train, test, model = names
        Path(patterns).write_text("\n".join(lines) + "\n")
        for path, part, labels in ((train, X, y), (test, X_test, [None] * len(X_test))):
            Path(path).write_text("\n\n".join(map(table, part, labels)) + "\n\n")
        if name == "wapiti":
            learn = [program, "train", *options, "-p", patterns, train, model]
            label, steps = [program, "label", "-m", model, test], r"\[ *(\d+)\] obj=(\S+)"
        else:
            learn = [program, "-t", *options, patterns, train, model]
            label = [program.replace("crf_learn", "crf_test"), "-m", model, test]
            steps = r"iter=(\d+) .*?obj=(\S+)"
        began = children()
        done = subprocess.run(learn, check=True, capture_output=True, text=True)
        time = children() - began
        labelled = subprocess.run(label, check=True, capture_output=True, text=True).stdout
    iterations, objective = re.findall(steps, done.stdout + done.stderr)[-1]
    groups = labelled.strip().split("\n\n")
    labels = [[line.split()[-1] for line in group.split("\n")] for group in groups]
    return time, iterations, float(objective), labels


def table(x, labels):
    columns = [*x.values(), *([labels] if labels else [])]
    return "\n".join(map(" ".join, zip(*columns)))


def children():
    times = os.times()
    return times.children_user + times.children_system


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help="cost, scores, peers")
    parser.add_argument("--sentences", type=int, metavar="N")
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--wapiti", default="wapiti", metavar="COMMAND")
    parser.add_argument("--crfpp", default="crf_learn", metavar="COMMAND")
    options = parser.parse_args()
    n = options.sentences
    parts = {
        "cost": lambda: cost(n),
        "scores": lambda: scores(n, options.task),
        "peers": lambda: peers(n, {"wapiti": options.wapiti, "crf++": options.crfpp}),
    }
    each_with_data(lambda name: parts[name](), options.parts or parts)


if __name__ == "__main__":
    main()
