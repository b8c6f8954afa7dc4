"""Which estimator: time and quality of the taggers on eight corpora.

    python benchmarks/bench_which.py [corpus ...] [--sequences N] [--folder docs]

Sequences of a corpus are shuffled; the first N are trained on (half of a smaller corpus), and as
many of the others tested on, at most 1,000. Penalties are chosen on a quarter of the training
sequences; the time is that of one fit with the chosen ones on all of them, on one thread, without
the features. With --folder, writes the table (which_estimator.csv) and the picture
(_static/which_estimator.png).
"""

import argparse
import csv
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from _common import each_with_data, header, need, row
from _corpora import corpus
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, Sequences, ZScoreTagger
from sklseq.datasets import read_conll
from sklseq.metrics import span_f1, token_accuracy

warnings.simplefilter("ignore", ConvergenceWarning)

# Corpus: what it is, measure, whether a kernel is tried.
CORPORA = {
    "conll2000": ("chunks, English", span_f1, False),
    "conll2002": ("named entities, Spanish", span_f1, False),
    "ncbi-disease": ("diseases", span_f1, False),
    "ud-english-ewt": ("parts of speech, web", token_accuracy, False),
    "ptb-wsj-sample": ("parts of speech, news", token_accuracy, False),
    "protein-cb513": ("protein structure", token_accuracy, False),
    "ocr-letters": ("handwritten words", token_accuracy, True),
    "gesture-phase": ("gestures, 5 recordings", token_accuracy, False),
}
L2S, CS, MOST_TEST = (0.03, 0.3, 3.0), (0.03, 0.3, 3.0), 1000


def models(with_kernel):
    """{name: (model, name of its penalty or None, values)}"""
    found = {
        "z-score": (ZScoreTagger(), "l2", (0.1, 1.0, 10.0, 100.0)),
        "averaged perceptron": (HMSVMTagger(solver="perceptron", random_state=0), None, ()),
        "HM-SVM": (HMSVMTagger(random_state=0), "C", CS),
        "CRF": (CRFTagger(), "l2", L2S),
    }
    if with_kernel:
        kernel = HMSVMTagger(kernel="rbf", solver="bcfw", tol=0.05, random_state=0)
        found["HM-SVM, rbf"] = kernel, "C", (0.3, 1.0, 3.0)
    return found


def data(name, n):
    """(X, y, X, y) to train and to test on."""
    if name == "gesture-phase":
        return gestures()
    X, y = corpus(name)
    order = np.random.default_rng(0).permutation(len(y))
    n = min(n, len(y) // 2)
    train, test = order[:n], order[n : n + min(n, MOST_TEST)]
    return X[train], [y[s] for s in train], X[test], [y[s] for s in test]


def gestures():
    """Five recordings, and the last of two persons; columns scaled by those trained on."""
    found, y = read_conll(need("gesture-phase") / "gesture-phase.tsv.gz")
    rows = [np.array([*zip(*[*x.values()][1:])], float) for x in found]
    names = [x["c0"][0] for x in found]
    test = [k for k, name in enumerate(names) if name in ("a3", "c3")]
    train = [k for k in range(len(names)) if k not in test]
    pooled = np.concatenate([rows[k] for k in train])
    rows = [(x - pooled.mean(axis=0)) / pooled.std(axis=0) for x in rows]
    X, Z = (Sequences.from_list([rows[k] for k in part]) for part in (train, test))
    return X, [y[k] for k in train], Z, [y[k] for k in test]


def choose(model, penalty, values, X, y, measure):
    """The model with the penalty of the best score on a quarter of the sequences."""
    if penalty is None:
        return model
    inner = max(1, len(y) // 4)
    scores = {}
    for value in values:
        model.set_params(**{penalty: value}).fit(X[inner:], y[inner:])
        scores[value] = measure(y[:inner], model.predict(X[:inner]))
    return model.set_params(**{penalty: max(scores, key=scores.get)})


def measured(name, n):
    """Rows (corpus, model, penalty, seconds, quality in percent), printed."""
    X, y, Z, wanted = data(name, n)
    what, measure, with_kernel = CORPORA[name]
    unit = "F1" if measure is span_f1 else "accuracy"
    print(f"\n### {name}: {what}; {len(y)} sequences, {X.n_rows} rows, {unit}\n")
    header("model", "penalty", "fit, s", unit + ", %")
    for label, (model, penalty, values) in models(with_kernel).items():
        model = choose(model, penalty, values, X, y, measure)
        began = process_time()
        model.fit(X, y)
        seconds = process_time() - began
        shown = f"{penalty}={getattr(model, penalty):g}" if penalty else "-"
        yield line(name, label, shown, seconds, measure(wanted, model.predict(Z)))
        if label == "CRF" and name == "gesture-phase":
            decoder = OnlineDecoder(model).fit(X, y)
            yield line(name, "CRF, online", shown, seconds, measure(wanted, decoder.predict(Z)))


def line(name, label, penalty, seconds, quality):
    row(label, penalty, f"{seconds:.2f}", f"{100 * quality:.1f}")
    return name, label, penalty, f"{seconds:.2f}", f"{100 * quality:.1f}"


def write(found, folder):
    """The table and the picture."""
    with open(folder / "which_estimator.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["corpus", *LABELS])
        for name in dict.fromkeys(name for name, *_ in found):
            cells = {label: f"{q} ({t} s)" for n, label, _, t, q in found if n == name}
            out.writerow([name, *(cells.get(label, "") for label in LABELS)])
    draw(found, folder / "_static" / "which_estimator.png")


LABELS = ["z-score", "averaged perceptron", "HM-SVM", "CRF", "HM-SVM, rbf", "CRF, online"]


def draw(found, path):
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, *_ in found))
    shape = {"nrows": 2, "ncols": -(-len(names) // 2), "squeeze": False}
    figure, grid = plt.subplots(**shape, figsize=(11, 5.5), layout="constrained")
    for axes, name in zip(grid.ravel(), names):
        what, measure, _ = CORPORA[name]
        for k, label in enumerate(LABELS):
            points = [row[3:] for row in found if row[:2] == (name, label)]
            at = np.maximum(np.array(points, float).reshape(-1, 2).T, 0.005)  # shown as "0.00"
            axes.plot(*at, "osD^vP"[k], color=f"C{k}", label=label, ms=8)
        axes.set(xscale="log", xlim=(0.005, 10), title=what)
        axes.set_ylabel("span F1, %" if measure is span_f1 else "accuracy, %")
        axes.grid(alpha=0.3)
        axes.margins(y=0.2)
    for axes in grid.ravel()[len(names) :]:
        axes.set_axis_off()
    for axes in grid[-1]:
        axes.set_xlabel("seconds of one fit")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="*", choices=[*CORPORA, []], default=[])
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where the table and the picture go")
    options = parser.parse_args()
    found = []
    each_with_data(
        lambda name: found.extend(measured(name, options.sequences)), options.corpora or CORPORA
    )
    if options.folder and found:
        write(found, options.folder)


if __name__ == "__main__":
    main()
