"""Training side by side: our solvers on five data sets, and beside what else one would use.

Parts (all, or those named): corpora, penalties, scales, threads, l1, peers, optimum, curves, and
labels. Tables go to standard output in Markdown; `--json FILE` keeps the figures, `--plot FILE` the
curves. Data: SKLSEQ_DATA, a folder that holds the folders named in `_corpora.py` and `conll2000`;
the part labels needs none.
"""

import multiprocessing as mp
import tempfile
import warnings
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from time import perf_counter

import bench_crfsuite as chunks
import numpy as np
import pycrfsuite
from _common import by_turns
from _corpora import CORPORA, corpus, tagged_or_generated
from _many_labels import crfsuite_iteration, matrix_against_lists
from _peers import crfsuite_trainer, opened_crfsuite, trained_crfsuite
from _report import KEPT, parts_of, run, table
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from sklseq import CRFTagger, HMSVMTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.metrics import span_f1


def fit(X, y, **parameters):
    """(fitted tagger, seconds, what it warned of)."""
    began = perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tagger = CRFTagger(**parameters).fit(X, y)
    return tagger, perf_counter() - began, [str(w.message) for w in caught]


# --- Our solvers against each other ---------------------------------------------------------------


def part_corpora(quick):
    """Every solver on data of five shapes, up to 2,000 sequences of each: objective above that of
    L-BFGS run to the end."""
    row = table("corpora", "data", "rows", "labels", "weights", "solver", "seconds",
                "seconds of L-BFGS to the same", "objective above optimum")  # fmt: skip
    for name in CORPORA:
        X, y = corpus(name, 100 if quick else 2000)
        best, _, _ = fit(X, y, solver="lbfgs", tol=1e-8, max_iter=2000)
        curve = np.array(best.loss_curve_)
        for solver in ("dual", "adagrad"):
            tagger, seconds, _ = fit(X, y, solver=solver)
            above = tagger.objective_ / best.objective_ - 1
            n = int(np.argmax(curve <= tagger.objective_)) if above > 0 else len(curve) - 1
            _, theirs, _ = fit(X, y, solver="lbfgs", tol=0, max_iter=max(n, 1))
            row(name, X.n_rows, len(tagger.classes_), tagger.coef_.size, solver, seconds, theirs,
                above)  # fmt: skip


def part_penalties(quick):
    """The default solver from weak to strong penalties."""
    row = table("penalties", "data", "l2", "seconds", "iterations", "above L-BFGS", "warned")
    for name in ("ocr-letters", "ncbi-disease"):
        X, y = corpus(name, 50 if quick else 1500)
        for l2 in (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0):
            best, _, _ = fit(X, y, solver="lbfgs", l2=l2, tol=1e-7, max_iter=3000)
            tagger, seconds, warned = fit(X, y, l2=l2, max_iter=3000)
            row(name, l2, seconds, tagger.n_iter_, tagger.objective_ / best.objective_ - 1,
                bool(warned))  # fmt: skip


def part_scales(quick):
    """Features a thousand times too large or small, by each solver."""
    row = table(
        "scales", "data", "scale", "l2", "solver", "seconds", "iterations", "above L-BFGS", "warned"
    )
    for name in ("ocr-letters", "ncbi-disease"):
        X, y = corpus(name, 50 if quick else 1000)
        for scale in (1e-3, 1e3):
            scaled = Sequences(X.rows * scale, X.offsets)
            for l2 in (scale**2, 1.0):  # the same model in other units, and another model
                best, _, _ = fit(scaled, y, solver="lbfgs", l2=l2, tol=1e-7, max_iter=5000)
                for solver in ("dual", "adagrad", "lbfgs"):
                    tagger, seconds, warned = fit(scaled, y, solver=solver, l2=l2)
                    row(name, scale, l2, solver, seconds, tagger.n_iter_,
                        tagger.objective_ / best.objective_ - 1, bool(warned))  # fmt: skip


# --- CoNLL-2000, 19 attributes a token ------------------------------------------------------------


def chunking(quick):
    """(rows, labels, rows of the test set, its labels, attribute lists)."""
    X, y, X_test, y_test = tagged_or_generated(n=200 if quick else None)
    features = chunks.our_features()
    templates = chunks.crfsuite_templates()
    items = [pycrfsuite.ItemSequence(chunks.attributes_in_python(x, templates)) for x in X]
    rows, rows_test = features.fit_transform(X), features.transform(X_test)
    tests = [chunks.attributes_in_python(x, templates) for x in X_test]
    return rows, y, rows_test, y_test, items, tests


@contextmanager
def elsewhere(work):
    """A forked process that does ``work`` when it is told to: yields (start, wait)."""
    here, there = mp.get_context("fork").Pipe()
    process = mp.get_context("fork").Process(target=_when_told, args=(work, there), daemon=True)
    process.start()
    try:
        yield lambda: here.send(True), here.recv
    finally:
        here.send(False)
        process.join()


def _when_told(work, there):
    while there.recv():
        work()
        there.send(True)


def threads_against_processes(one, two, turns):
    """Seconds of ``one``, of ``two``, and of two processes that do ``one`` at the same time.

    Five times in a row, as training does: each has arrays of its own, and finds them cold after
    the others' turn.
    """
    one, two = partial(five_times, one), partial(five_times, two)

    def both():
        start()
        one()
        wait()

    with elsewhere(one) as (start, wait):
        both()  # pages that the processes no longer share are copied now
        return np.median(by_turns([one, two, both], turns, perf_counter), axis=0) / 5


def five_times(work):
    for _ in range(5):
        work()


def part_threads(quick):
    """One thread and two, by turns, beside what two processes of one thread get done at once."""
    table_row = table("threads", "what", "states", "1 thread, s", "2 threads, s", "ratio",
                      "ratio of two processes", "share of that")  # fmt: skip

    def row(what, states, one, two):
        a, b, both = threads_against_processes(one, two, 3 if quick else 15)
        table_row(what, states, a, b, a / b, 2 * a / both, (a / b) / (2 * a / both))

    X, y, *_ = chunking(quick)
    for states in ("observed", "all"):
        for dtype in (np.float64, np.float32):
            data = Sequences(X.rows.astype(dtype), X.offsets)
            with Threads(1) as one, Threads(2) as two:
                a, b = (chunks.OurObjective(data, y, states, threads) for threads in (one, two))
                row(f"evaluation, {np.dtype(dtype)}", states, a.evaluate, b.evaluate)
        tagger = chunks.our_tagger(states, max_iter=20, tol=0.0).fit(X, y)
        other = copy(tagger).set_params(n_jobs=2)
        for name in ("predict", "predict_proba"):
            work = [partial(getattr(model, name), X) for model in (tagger, other)]
            row(name, states, *work)


def part_l1(quick):
    """c1 = 1, c2 = 1: to the objective of CRFsuite's OWL-QN after 100 iterations."""
    row = table("l1", "solver", "seconds", "ratio", "objective", "weights not 0", "F1")
    X, y, X_test, y_test, items, tests = chunking(quick)
    trainer = crfsuite_trainer(items, y, c1=1.0, c2=1.0, max_iterations=100, delta=0.0)
    tagger, theirs = trained_crfsuite(trainer)
    last, info = trainer.logparser.iterations[-1], tagger.info()
    nonzero = len(info.state_features) + len(info.transitions)
    score = span_f1(y_test, [tagger.tag(x) for x in tests])
    row("CRFsuite", theirs, 1.0, last["loss"], nonzero, score)
    own = {"l1": 1.0, "l2": 1.0, "boundaries": False}
    n = passes_to(last["loss"], X, y, solver="dual", **own)
    for name, how in {
        f"dual, {n} passes: to that objective": {"solver": "dual", "tol": 0.0, "max_iter": n},
        "dual, tol=1e-4": {"solver": "dual", "tol": 1e-4},
        "adagrad, tol=1e-3": {"solver": "adagrad", "tol": 1e-3},
        "owlqn, tol=1e-4": {"solver": "owlqn", "tol": 1e-4},
        "owlqn, tol=1e-4, 2 threads": {"solver": "owlqn", "tol": 1e-4, "n_jobs": 2},
    }.items():
        times = [fit(X, y, **own, **how)[:2] for _ in range(3 if how["solver"] == "dual" else 1)]
        model, took = times[0][0], np.median([t for _, t in times])
        nonzero = int((model.coef_ != 0).sum() + (model.transition_ != 0).sum())
        score = span_f1(y_test, model.predict(X_test))
        row(name, took, theirs / took, model.objective_, nonzero, score)


def passes_to(objective, X, y, most=64, **parameters):
    """The fewest passes that lead to an objective."""
    low, high = 0, most
    while high - low > 1:
        n = (low + high) // 2
        model, _, _ = fit(X, y, **parameters | {"tol": 0.0, "max_iter": n})
        low, high = (low, n) if model.objective_ <= objective else (n, high)
    return high


# What somebody in a hurry would set: the first that labels well enough is what counts.
QUICK = {
    "CRFTagger, defaults": CRFTagger(l2=1),
    "CRFTagger, tol=1e-2": CRFTagger(l2=1, tol=1e-2),
    "CRFTagger, tol=1e-1": CRFTagger(l2=1, tol=1e-1),
    "CRFTagger, dual, 5 passes": CRFTagger(l2=1, solver="dual", max_iter=5),
    "CRFTagger, adagrad, 3 passes": CRFTagger(l2=1, solver="adagrad", max_iter=3, tol=1e-2),
    "CRFTagger, adagrad, 5 passes": CRFTagger(l2=1, solver="adagrad", max_iter=5, tol=1e-2),
    "CRFTagger, all states, tol=1e-2": CRFTagger(l2=1, tol=1e-2, all_possible_states=True),
    "CRFTagger, all states, tol=1e-1": CRFTagger(l2=1, tol=1e-1, all_possible_states=True),
    "HMSVMTagger": HMSVMTagger(),
    "HMSVMTagger, perceptron": HMSVMTagger(solver="perceptron", max_iter=5),
}
GOOD = 0.936


def part_peers(quick):
    """What an impatient user would take instead; ours and LinearSVC by turns."""
    row = table("peers", "who", "fit, s", "of LinearSVC's", "of CRFsuite's, observed",
                "of CRFsuite's, all", "F1", f"F1 at least {GOOD:.1%}")  # fmt: skip
    X, y, X_test, y_test, items, tests = chunking(quick)
    svc, flat = LinearSVC(), np.concatenate(y)
    fits = [partial(svc.fit, X.rows, flat), *(partial(m.fit, X, y) for m in QUICK.values())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        of_svc, *times = np.median(by_turns(fits, 1 if quick else 3, perf_counter), axis=0)
    theirs = []
    for states in ("observed", "all"):
        options = {"c1": 0.0, "c2": 1.0, "max_iterations": 100, **chunks.observed_or_all(states)}
        tagger, took = trained_crfsuite(crfsuite_trainer(items, y, **options))
        theirs.append((span_f1(y_test, [tagger.tag(x) for x in tests]), took))

    def show(name, took, score):
        shares = (took / of_svc, *(took / other for _, other in theirs))
        row(name, took, *shares, score, score >= GOOD)

    labels = np.split(svc.predict(X_test.rows), X_test.offsets[1:-1])
    show("LinearSVC on single tokens", of_svc, span_f1(y_test, labels))
    for (name, model), took in zip(QUICK.items(), times):
        show(name, took, span_f1(y_test, model.predict(X_test)))
    for name, (score, took) in zip(("observed", "all states"), theirs):
        show(f"CRFsuite, lbfgs, 100 iterations, {name}", took, score)
    for algorithm in ("l2sgd", "ap", "pa", "arow"):
        tagger, took = trained_crfsuite(crfsuite_trainer(items, y, algorithm))
        show(f"CRFsuite, {algorithm}", took, span_f1(y_test, [tagger.tag(x) for x in tests]))


def part_optimum(quick):
    """To 1.0001 times the optimum, by turns: L-BFGS and the dual's ascent, stopped when they are
    there, and the ascent until its gap proves it."""
    row = table("optimum", "states", "solver", "seconds", "of L-BFGS's", "iterations",
                "objective above optimum", "F1")  # fmt: skip
    X, y, X_test, y_test, *_ = chunking(quick)
    for states in ("observed", "all"):
        make = partial(chunks.our_tagger, states)
        best = make(solver="lbfgs", tol=1e-8, max_iter=2000).fit(X, y)
        curve = np.array(best.loss_curve_)
        target = 1.0001 * best.objective_
        n = int(np.argmax(curve <= target))
        passes = passes_to(target, X, y, **make(solver="dual").get_params())
        models = {
            "lbfgs": make(solver="lbfgs", tol=0, max_iter=n),
            f"dual, {passes} passes": make(solver="dual", tol=0, max_iter=passes),
            "dual, tol=1e-4": make(solver="dual", tol=1e-4),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fits = [partial(model.fit, X, y) for model in models.values()]
            times = np.median(by_turns(fits, 1 if quick else 3, perf_counter), axis=0)
        for (name, model), took in zip(models.items(), times):
            row(states, name, took, took / times[0], model.n_iter_,
                model.objective_ / best.objective_ - 1,
                span_f1(y_test, model.predict(X_test)))  # fmt: skip


def part_curves(quick):
    """Objective and F1 against seconds of training."""
    row = table("curves", "who", "seconds", "objective", "F1")
    X, y, X_test, y_test, items, tests = chunking(quick)
    most = {
        "dual": (1, 2, 3, 4, 6, 8, 12, 16, 24),
        "adagrad": (1, 2, 4, 8, 16, 36),
        "lbfgs": (5, 10, 20, 40, 70, 100, 150),
    }
    for solver, numbers in most.items():
        for n in numbers[:2] if quick else numbers:
            model, seconds, _ = fit(X, y, solver=solver, boundaries=False, max_iter=n,
                                    tol=1e-3 if solver == "adagrad" else 0.0)  # fmt: skip
            row(solver, seconds, model.objective_, span_f1(y_test, model.predict(X_test)))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        for n in (5, 10) if quick else (5, 10, 20, 40, 70, 100):
            trainer, seconds = chunks.train_crfsuite(items, y, "observed", n, path)
            tagger = opened_crfsuite(path)
            loss = trainer.logparser.iterations[-1]["loss"]
            row("CRFsuite", seconds, loss, span_f1(y_test, [tagger.tag(x) for x in tests]))


def part_labels(quick):
    """Many labels, observed transitions: lists of them against the matrix, by turns."""
    row = table("labels", "labels", "share of transitions", "what", "matrix, µs a row",
                "lists, µs a row", "ratio")  # fmt: skip
    for most, n_sequences in ((50, 400), (100, 400), (300, 300), (1000, 250)):
        n_labels, share, best = matrix_against_lists(most, n_sequences, 1 if quick else 7)
        for name, (matrix, lists) in best.items():
            row(n_labels, share, name, matrix, lists, matrix / lists)
        if most <= 300:
            theirs = crfsuite_iteration(most, n_sequences)
            row(n_labels, share, "iteration of CRFsuite", theirs, best["evaluation"][1],
                theirs / best["evaluation"][1])  # fmt: skip


def plot_curves(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    curves = {}
    for who, *figures in KEPT["curves"]["rows"]:
        curves.setdefault(who, []).append(figures)
    best = min(objective for found in curves.values() for _, objective, _ in found)
    for k, (who, found) in enumerate(curves.items()):
        seconds, objective, f1 = np.transpose(found)
        style = {"marker": "os^D"[k % 4], "color": f"C{k}", "label": who, "markersize": 4}
        axes[0].loglog(seconds, objective / best - 1 + 1e-6, **style)
        axes[1].semilogx(seconds, 100 * f1, **style)
    axes[0].set(xlabel="seconds of training", ylabel="objective above the least, share")
    axes[1].set(xlabel="seconds of training", ylabel="chunk F1, %", ylim=(85, 94.5))
    axes[1].legend(loc="lower right")
    figure.savefig(path, dpi=120)


def with_plot(parser):
    parser.add_argument("--plot", type=Path, help="picture of the part curves")


if __name__ == "__main__":
    options = run(__doc__, parts_of(globals()), with_plot)
    if options.plot and "curves" in KEPT:
        plot_curves(options.plot)
