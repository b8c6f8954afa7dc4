"""sklseq and python-crfsuite side by side: the same attributes, objective and process.

Runs alternate (A B A B ...), medians are reported. The model is CRFsuite's: `boundaries=False` on
our side, c1 = 0, c2 = 1. Data: CoNLL-2000 if SKLSEQ_DATA names a folder that holds `conll2000/`,
else generated documents. Prints a Markdown table; "ratio" above 1 means that sklseq is better.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import _report
import numpy as np
import pycrfsuite
from _common import by_turns
from _corpora import tagged_or_generated
from _peers import crfsuite_trainer, opened_crfsuite

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.data.labels import encode_labels
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.source import RowSource
from sklseq.features import TemplateFeatures
from sklseq.metrics import span_f1, token_accuracy
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.solvers import lbfgs

WINDOW = range(-2, 3)


# --- Attributes ---------------------------------------------------------------------------------


def crfsuite_templates():
    """The 19 templates of CRFsuite's chunking example."""
    single = [[(c, k)] for c in ("w", "pos") for k in WINDOW]
    pairs = [[("w", k), ("w", k + 1)] for k in (-1, 0)]
    pairs += [[("pos", k), ("pos", k + 1)] for k in range(-2, 2)]
    triples = [[("pos", k), ("pos", k + 1), ("pos", k + 2)] for k in range(-2, 1)]
    return [("|".join(f"{c}[{k}]" for c, k in t), t) for t in single + pairs + triples]


def attributes_in_python(x, templates):
    """Attribute lists of one sequence, as CRFsuite's example builds them."""
    n = len(x["w"])
    items = []
    for t in range(n):
        item = []
        for name, template in templates:
            values = []
            for column, k in template:
                if not 0 <= t + k < n:
                    break
                values.append(x[column][t + k])
            else:
                item.append(name + "=" + "|".join(values))
        items.append(item)
    if n:
        items[0].append("__BOS__")
        items[-1].append("__EOS__")
    return items


def our_features(n_jobs=1):
    names = [name for name, _ in crfsuite_templates()]
    return TemplateFeatures(names, columns=["w", "pos"], n_jobs=n_jobs)


def our_tagger(states, **parameters):
    possible = states == "all"
    return CRFTagger(
        l2=1.0,
        boundaries=False,
        all_possible_states=possible,
        all_possible_transitions=possible,
        **parameters,
    )


# --- Both sides ---------------------------------------------------------------------------------


def train_crfsuite(items, y, states, max_iter, path):
    """(trainer, seconds); its log has the losses."""
    began = perf_counter()
    trainer = crfsuite_trainer(
        items, y, c1=0.0, c2=1.0, max_iterations=max_iter, period=10**6, delta=0.0, epsilon=0.0,
        **observed_or_all(states),
    )  # fmt: skip
    trainer.train(str(path))
    return trainer, perf_counter() - began


def observed_or_all(states):
    """CRFsuite's parameters for the pairs that have weights."""
    possible = int(states == "all")
    return {"feature.possible_states": possible, "feature.possible_transitions": possible}


def crfsuite_evaluation(items, y, states, path):
    """Seconds per evaluation: of the iterations, by the line-search trials they took."""
    trainer, _ = train_crfsuite(items, y, states, 12, path)
    log = trainer.logparser.iterations[1:]  # the first one also has evaluations not logged
    return sum(i["time"] for i in log) / sum(i["linesearch_trials"] for i in log)


class OurObjective:
    """Objective with gradient, as the solver calls it."""

    def __init__(self, X, y, states, threads):
        labels = np.concatenate(y)
        classes = np.unique(labels)
        codes = encode_labels(labels, classes, X.offsets)
        source = RowSource(X, codes, classes)
        self.scores = score_map(our_tagger(states), source, source.summarise())
        weights = np.ones(len(X))
        self.objective = LogLikelihood(self.scores, codes, X.offsets, weights, 1.0, threads)
        self.w, self.gradient = self.scores.new_vector(), self.scores.new_vector()
        lbfgs(self.objective, self.w, max_iter=5)  # a point on the way, not the origin

    def evaluate(self):
        self.objective.value_and_gradient(self.w, self.gradient)

    def seconds(self):
        return np.median(by_turns([self.evaluate], 5, perf_counter))


# --- Questions ----------------------------------------------------------------------------------


class Table:
    def __init__(self):
        self.add = _report.table(
            "crfsuite", "question", "states", "sklseq", "python-crfsuite", "ratio"
        )

    def row(self, question, states, ours, theirs, *, unit, higher_is_better=False):
        ratio = ours / theirs if higher_is_better else theirs / ours
        self.add(f"{question}, {unit}", states, float(ours), float(theirs), float(ratio))


def compare_evaluations(table, X, y, items, states, path, rounds):
    theirs = []
    rows = our_features().fit_transform(X)
    rows32 = Sequences(rows.rows.astype(np.float32), rows.offsets)
    for data, name in ((rows, "float64"), (rows32, "float32")):
        for n in (1, 2):
            with Threads(n) as threads:
                objective = OurObjective(data, y, states, threads)
                ours, is_first = [], not theirs
                for _ in range(rounds):
                    ours.append(objective.seconds())
                    if is_first:
                        theirs.append(crfsuite_evaluation(items, y, states, path))
            question = f"evaluation, {name}, {n} thread{'s' * (n > 1)}"
            table.row(question, states, median(ours), median(theirs), unit="s")


def compare_prediction(table, data, states, path, rounds):
    X, y, X_test, y_test = data
    templates = crfsuite_templates()
    n = sum(map(len, y_test))
    features = our_features()
    tagger = our_tagger(states, max_iter=30, tol=0).fit(features.fit_transform(X), y)
    train_crfsuite([attributes_in_python(x, templates) for x in X], y, states, 30, path)
    other = opened_crfsuite(path)
    rows = features.transform(X_test)
    items = [pycrfsuite.ItemSequence(attributes_in_python(x, templates)) for x in X_test]
    labels = other.labels()

    def marginals():
        for sequence in items:
            other.set(sequence)
            for t in range(len(sequence)):
                for label in labels:
                    other.marginal(label, t)

    questions = {
        "tagging from token columns": (
            lambda: tagger.predict(features.transform(X_test)),
            lambda: [other.tag(attributes_in_python(x, templates)) for x in X_test],
        ),
        "tagging from prepared features": (
            lambda: tagger.predict(rows),
            lambda: [other.tag(sequence) for sequence in items],
        ),
        "marginals": (lambda: tagger.predict_proba(rows), marginals),
    }
    for question, works in questions.items():
        a, b = np.median(by_turns(works, rounds, perf_counter), axis=0)
        table.row(question, states, n / a, n / b, unit="tokens/s", higher_is_better=True)


def compare_fits(table, data, states, path, rounds):
    """Token columns to the objective that CRFsuite has after 100 iterations."""
    X, y, X_test, y_test = data
    templates = crfsuite_templates()
    score = span_f1 if any(label.startswith("B-") for label in y[0]) else token_accuracy
    state = {}

    def theirs():
        began = perf_counter()
        items = [attributes_in_python(x, templates) for x in X]
        state["trainer"], _ = train_crfsuite(items, y, states, 100, path)
        return perf_counter() - began

    def ours(solver, n_jobs, n_iter):
        began = perf_counter()
        features = our_features(n_jobs=n_jobs)
        rows = features.fit_transform(X)
        tagger = our_tagger(states, solver=solver, max_iter=n_iter, tol=0, n_jobs=n_jobs)
        state["model"] = features, tagger.fit(rows, y)
        return perf_counter() - began

    their_times = [theirs() for _ in range(rounds)]
    target = state["trainer"].logparser.iterations[-1]["loss"]
    rows = our_features(n_jobs=2).fit_transform(X)
    for solver in ("lbfgs", "dual"):
        n_iter = iterations_to(target, rows, y, states, solver)
        for n_jobs in (1, 2):
            seconds = median(ours(solver, n_jobs, n_iter) for _ in range(rounds))
            question = f"{solver} to objective {target:,.1f}, {n_jobs} thread{'s' * (n_jobs > 1)}"
            table.row(question, states, seconds, median(their_times), unit="s")
    features, tagger = state["model"]
    other = opened_crfsuite(path)
    mine = score(y_test, tagger.predict(features.transform(X_test)))
    yours = score(y_test, [other.tag(attributes_in_python(x, templates)) for x in X_test])
    name = "chunk F1" if score is span_f1 else "token accuracy"
    table.row(name, states, 100 * mine, 100 * yours, unit="%", higher_is_better=True)


def iterations_to(target, rows, y, states, solver):
    """How many iterations (lbfgs) or passes (dual) reach the objective."""
    tagger = our_tagger(states, solver=solver, max_iter=300, tol=0, n_jobs=2)
    if solver == "lbfgs":
        curve = np.asarray(tagger.fit(rows, y).loss_curve_)
        return int(np.flatnonzero(curve <= target * (1 + 1e-9))[0])
    for n in range(5, 60):
        if tagger.set_params(max_iter=n).fit(rows, y).objective_ <= target:
            return n
    raise RuntimeError(f"solver={solver!r} did not reach {target:,.2f} in 60 passes.")


def compare_memory(table, states, quick):
    """Peak of a fresh process above what it had with the data loaded."""
    peaks = []
    for side in ("ours", "theirs"):
        command = [sys.executable, __file__, "--memory", side, "--states", states]
        done = subprocess.run(
            command + ["--quick"] * quick, check=True, capture_output=True, text=True
        )
        peaks.append(float(done.stdout.split()[-1]))
    table.row("peak memory of a fit above the data", states, *peaks, unit="MB")


def memory(name):
    """VmRSS (now) or VmHWM (peak) in MB; the peak in both cases where there is no /proc.

    Not ru_maxrss if it can be helped: on Linux it starts from the parent's peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def print_peak(side, states, n_sentences):
    X, y, _, _ = tagged_or_generated(n=n_sentences)
    before = memory("VmRSS")
    if side == "ours":
        our_tagger(states, max_iter=5, tol=0).fit(our_features().fit_transform(X), y)
    else:
        templates = crfsuite_templates()
        items = (attributes_in_python(x, templates) for x in X)
        with tempfile.TemporaryDirectory() as folder:
            train_crfsuite(items, y, states, 5, Path(folder) / "model")
    print(memory("VmHWM") - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 sentences, one round")
    parser.add_argument("--full", action="store_true", help="whole fits too: minutes")
    parser.add_argument("--states", choices=["observed", "all", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file to keep the figures in")
    parser.add_argument("--memory", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    n_sentences = 100 if options.quick else None
    if options.memory:
        print_peak(options.memory, options.states, n_sentences)
        return
    rounds = 1 if options.quick else options.rounds
    data = X, y, _, _ = tagged_or_generated(n=n_sentences)
    templates = crfsuite_templates()
    items = [pycrfsuite.ItemSequence(attributes_in_python(x, templates)) for x in X]
    labels = np.concatenate(y)
    print(f"{len(y):,} sequences, {len(labels):,} tokens, {len(np.unique(labels))} labels\n")
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        for states in ["observed", "all"] if options.states == "both" else [options.states]:
            compare_evaluations(table, X, y, items, states, path, rounds)
            compare_prediction(table, data, states, path, rounds)
            compare_memory(table, states, options.quick)
            if options.full:
                compare_fits(table, data, states, path, rounds)
            if options.json:
                _report.KEPT["crfsuite"]["what"] = (
                    "Beside python-crfsuite; a ratio above 1 is ours."
                )
                _report.keep(options.json)


if __name__ == "__main__":
    import warnings

    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)  # fits are cut short on purpose
    main()
