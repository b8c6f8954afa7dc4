"""Online decoding: curves of all strategies, and speed. Prints Markdown tables.

Tasks: CoNLL-2000, test sentences joined in documents of 20, a CRF with all states and c2 = 1;
and the fields of Enron e-mails. With SKLSEQ_DATA they are read from `conll2000/` and
`enron-email-fields/`; what is missing is replaced by generated contact documents. "states" compares
settings on states that last and on other corpora. Disagreement is
with Viterbi's algorithm on whole documents. Latency is given in rows, by which rules count, and in
tokens, which includes those that features look ahead.
"early" are the rules that decide one row earlier than the paper's. The default is "step, forward,
restart conflict, early", the paper's rules are "viterbi, restart always".
"""

import argparse
import re
from functools import partial
from itertools import chain, product
from time import perf_counter

import numpy as np
from _common import by_turns, folder, header, need, row
from _corpora import corpus, tagged
from bench_which import gestures
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder
from sklseq.datasets import make_contacts, read_conll
from sklseq.features import TemplateFeatures
from sklseq.inference import decode_online, viterbi
from sklseq.metrics import span_f1, token_accuracy

COSTS = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0003, 0.0001)
SIZES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
LAGS = (0, 1, 2, 3, 4, 5, 7, 10, 15)
WINDOW = range(-2, 3)


# --- Data ---------------------------------------------------------------------------------------


def joined(X, y, n=20):
    """Documents of n sentences."""
    runs = [slice(i, i + n) for i in range(0, len(X), n)]
    columns = [{k: list(chain.from_iterable(x[k] for x in X[run])) for k in X[0]} for run in runs]
    return columns, [list(chain.from_iterable(y[run])) for run in runs]


def conll2000(max_iter):
    features = TemplateFeatures(columns=["w", "pos"])
    tagger = CRFTagger(
        l2=1.0, all_possible_states=True, all_possible_transitions=True, max_iter=max_iter,
        tol=1e-4, n_jobs=-1,
    )  # fmt: skip
    model = make_pipeline(features, tagger).fit(*tagged("conll2000", "train"))
    return model, *joined(*tagged("conll2000", "test"))


def shape(word):
    """Capitals, letters and digits as A, a, 0; runs cut to two."""
    kinds = re.sub(r"[a-z]", "a", re.sub(r"[A-Z]", "A", re.sub(r"\d", "0", word)))
    return re.sub(r"(.)\1+", r"\1\1", kinds)


def enron_columns(x):
    lines = x["line"]
    newline = ["1", *("01"[a != b] for a, b in zip(lines, lines[1:]))][: len(lines)]
    return {"w": [w.lower() for w in x["w"]], "shape": list(map(shape, x["w"])), "newline": newline}


def enron(max_iter):
    path, names = need("enron-email-fields"), ("w", "line", "space", "zone")
    train, test = (read_conll(path / f"{n}.tsv.gz", columns=names) for n in ("train", "test"))
    model = contact_model(["w", "shape", "newline"], max_iter, l2=1.0)
    model.fit(list(map(enron_columns, train[0])), train[1])
    return model, list(map(enron_columns, test[0])), test[1]


def contacts(max_iter):
    X, y = make_contacts(600, random_state=0)
    return contact_model(["w", "newline"], max_iter, l2=0.1).fit(X[:400], y[:400]), X[400:], y[400:]


def contact_model(columns, max_iter, l2):
    templates = [f"{c}[{k}]" for c in columns[:-1] for k in WINDOW]
    templates += [f"{c}[{k}]|{c}[{k + 1}]" for c in columns[:-1] for k in (-1, 0)]
    templates += ["newline[-1]", "newline[0]", "newline[1]", "newline[0]|w[0]"]
    tagger = CRFTagger(l2=l2, all_possible_transitions=True, max_iter=max_iter, tol=1e-4, n_jobs=-1)
    return make_pipeline(TemplateFeatures(templates, columns=columns), tagger)


# --- Curves -------------------------------------------------------------------------------------


class Task:
    """A fitted model, test documents, their potentials and the best paths."""

    def __init__(self, name, model, X, y):
        self.name, self.model, self.X, self.y = name, model, X, y
        self.psi = model[-1].potentials(model[:-1].transform(X))
        self.chain = {"start": self.psi.start, "end": self.psi.end}
        self.delay = model[0].receptive_field[1]  # tokens that features look ahead
        lengths = np.diff(self.psi.offsets)
        self.to_end = np.repeat(self.psi.offsets[1:], lengths) - 1 - np.arange(lengths.sum())
        self.best = self.viterbi()
        self.truth = np.concatenate([np.asarray(labels) for labels in y])

    def viterbi(self):
        emission, transition, _, _, offsets = self.psi
        return viterbi(emission, transition, offsets, **self.chain)[0]

    def decode(self, **rule):
        emission, transition, _, _, offsets = self.psi
        return decode_online(emission, transition, offsets, **self.chain, **rule)

    def row(self, **rule):
        """(rows, disagreement in %, share above 10 in %, accuracy in %, most rows, tokens)."""
        labels, latency, _ = self.decode(**rule)
        return self.measured(labels, latency)

    def measured(self, labels, latency):
        wrong, late = 100 * (labels != self.best).mean(), 100 * (latency > 10).mean()
        accuracy = 100 * (self.model[-1].classes_[labels] == self.truth).mean()
        tokens = np.minimum(latency + self.delay, self.to_end).mean()
        return latency.mean(), wrong, late, accuracy, int(latency.max()), tokens

    def independent_windows(self, size):
        """The paper's fixed windows: Viterbi on each alone, whatever was emitted before.

        Scores of first and last labels count only where documents begin and end.
        """
        emission, transition, start, end, offsets = self.psi
        filled = offsets[:-1] < offsets[1:]
        emission = emission.copy()
        emission[offsets[:-1][filled]] += start
        emission[offsets[1:][filled] - 1] += end
        runs = [np.arange(a, b, size) for a, b in zip(offsets[:-1], offsets[1:])]
        cuts = np.append(np.concatenate(runs), offsets[-1])
        labels, _ = viterbi(emission, transition, cuts)
        stop = np.repeat(cuts[1:], np.diff(cuts))
        return self.measured(labels, stop - 1 - np.arange(len(stop)))

    def accuracy(self):
        return 100 * (self.model[-1].classes_[self.best] == self.truth).mean()


RESTARTS = ("always", "conflict")
PAPER = {"belief": "viterbi", "restart": "always"}


def curves(task):
    """name -> list of (setting, measured)."""
    answers = {
        "windows, independent": [(w, task.independent_windows(w)) for w in SIZES],
        "closure": [("", task.row(strategy="closure", early=False))],
        "closure, early": [("", task.row(strategy="closure"))],
    }
    for restart in RESTARTS:
        rule = PAPER | {"restart": restart}
        rows = [(w, task.row(strategy="chunk", window_size=w, **rule)) for w in SIZES]
        answers[f"chunk, restart {restart}"] = rows
        answers[f"lag, restart {restart}"] = [(k, task.row(lag=k, **rule)) for k in LAGS]
        for strategy in ("step", "window"):
            for belief, early in product(("viterbi", "forward"), (False, True)):
                rule = {"strategy": strategy, "belief": belief, "restart": restart, "early": early}
                rows = [(c, task.row(latency_cost=c, **rule)) for c in COSTS]
                answers[f"{strategy}, {belief}, restart {restart}{', early' * early}"] = rows
    rule = PAPER | {"uncertainty": "entropy", "early": False}
    answers["step, entropy"] = [(c, task.row(latency_cost=c, **rule)) for c in COSTS]
    return answers


def print_curves(answers):
    header("strategy", "setting", "mean latency, rows", "tokens", "disagreement %",
           "above 10 rows, %", "accuracy %", "most rows")  # fmt: skip
    for name, rows in answers.items():
        for setting, (latency, wrong, late, accuracy, longest, tokens) in rows:
            numbers = f"{latency:.3f}", f"{tokens:.3f}", f"{wrong:.4f}", f"{late:.3f}"
            row(name, setting, *numbers, f"{accuracy:.3f}", longest)


def at_latency(rows, latency, least):
    """Disagreement at a mean latency, interpolated in its logarithm; None outside the curve.

    ``least`` stands for none at all: one row, so that ratios stay finite.
    """
    points = sorted((m[0], max(m[1], least)) for _, m in rows)
    x, y = np.array(points).T
    if not x[0] <= latency <= x[-1]:
        return None
    return float(np.exp(np.interp(latency, x, np.log(y))))


def at_disagreement(rows, percent):
    """Least mean latency at which a curve is at most that wrong (of the points measured)."""
    return min((m[0] for _, m in rows if m[1] <= percent), default=None)


def print_ratios(answers, restart, n, early):
    """Disagreement at equal latency, and latency at equal disagreement.

    The fixed lag is the stronger one, which restarts in conflict only.
    """
    setting = f"restart {restart}{', early' * early}"
    print(f"\n{setting}")
    ours = [answers[f"{name}, viterbi, {setting}"] for name in ("step", "window")]
    baselines = ("lag, restart conflict", f"chunk, restart {restart}", "windows, independent")
    theirs = [answers[name] for name in baselines]
    names = "step", "window", "lag", "chunk", "independent"
    print()
    header("at mean latency, rows", *names, *(f"{name} / best" for name in names[2:]))
    for latency in (0.25, 0.5, 0.75, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0):
        found = [at_latency(rows, latency, 100 / n) for rows in ours + theirs]
        best = min((f for f in found[:2] if f is not None), default=None)
        ratios = [None if f is None or best is None else f / best for f in found[2:]]
        cells = ["–" if f is None else f"{f:.4f}" for f in found]
        row(latency, *cells, *("–" if r is None else f"{r:.1f} ×" for r in ratios))
    print("\nMean latency in rows\n")
    header("at disagreement %", *names)
    for percent in (1.0, 0.5, 0.1, 0.05, 0.01):
        found = [at_disagreement(rows, percent) for rows in ours + theirs]
        row(percent, *("–" if f is None else f"{f:.3f}" for f in found))


def how_often_certainty_grows(task, horizon=12):
    """Shares of (t0, T) with M_{T+1}(t0) <= M_T(t0), of all and of those still uncertain.

    The survivors are those of Viterbi's algorithm, nothing emitted; all rows t0 move on together.
    """
    psi, transition = task.psi.emission, task.psi.transition
    offsets, n, L = task.psi.offsets, *task.psi.emission.shape
    delta, pointers = np.empty((n, L)), np.zeros((n, L), dtype=np.intp)
    for a, b in zip(offsets[:-1], offsets[1:]):
        delta[a] = psi[a] + task.psi.start
        for t in range(a + 1, b):
            scores = delta[t - 1][:, None] + transition
            pointers[t] = scores.argmax(axis=0)
            delta[t] = psi[t] + scores.max(axis=0)
    p = np.exp(delta - delta.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    stop = np.repeat(offsets[1:], np.diff(offsets))
    rows, origin = np.arange(n), np.tile(np.arange(L), (n, 1))
    m = 1 - p.max(axis=1)
    total = grew = uncertain = uncertain_grew = 0
    for k in range(1, horizon + 1):
        alive = rows + k < stop[rows]
        rows, m, origin = rows[alive], m[alive], origin[alive]
        origin = np.take_along_axis(origin, pointers[rows + k], axis=1)
        pp = np.zeros((len(rows), L))
        np.add.at(pp, (np.arange(len(rows))[:, None], origin), p[rows + k])
        later = 1 - pp.max(axis=1)
        fell, open_ = later <= m + 1e-12, m > 1e-6
        total, grew = total + len(rows), grew + fell.sum()
        uncertain, uncertain_grew = uncertain + open_.sum(), uncertain_grew + (fell & open_).sum()
        m = later
    return grew / total, uncertain_grew / max(uncertain, 1)


# --- Calibration --------------------------------------------------------------------------------

BINS = (0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1)


def reliability(confidence, right):
    """(labels, mean confidence, share right) of each bin, and the expected calibration error.

    The error is the mean of |mean confidence - share right| over bins, weighted by their labels.
    """
    group = np.digitize(confidence, BINS[1:-1])
    n = np.bincount(group, minlength=len(BINS) - 1)
    sums = [np.bincount(group, x, minlength=len(n)) for x in (confidence, right)]
    error = np.abs(sums[0] - sums[1]).sum() / len(right)
    return [(k, a / k, b / k) for k, a, b in zip(n, *sums) if k], error


def print_calibration(task):
    print("\nConfidence against the share of labels that are right\n")
    header("rule", "labels", "mean confidence", "right")
    rules = {"step, λ = 0.01": {"latency_cost": 0.01}, "lag 0": {"lag": 0}, "lag 2": {"lag": 2},
             "closure": {"strategy": "closure"}, "viterbi": {"strategy": "viterbi"},
             "lag 0, marginal": {"lag": 0, "decide": "marginal"},
             "lag 1, marginal": {"lag": 1, "decide": "marginal"}}  # fmt: skip
    for name, rule in rules.items():
        labels, _, confidence = task.decode(**rule)
        right = task.model[-1].classes_[labels] == task.truth
        bins, error = reliability(confidence, right)
        for n, mean, share in bins:
            row(name, f"{n:,}", f"{mean:.4f}", f"{share:.4f}")
        row(f"{name}: expected calibration error", "", "", f"{error:.4f}")
        row(f"{name}: accuracy", f"{len(right):,}", "", f"{right.mean():.4f}")


# --- Speed --------------------------------------------------------------------------------------


def seconds(work, repeats=5):
    return np.median(by_turns([work], repeats, perf_counter))


def print_speed(task):
    n, L = task.psi.emission.shape
    print(f"\nSpeed, {n:,} rows, L = {L}, one thread (medians of 5)\n")
    header("what", "figure")
    rules = {
        "step, λ = 0.02": {"latency_cost": 0.02},
        "step, λ = 0.02, best paths, restart always": PAPER | {"latency_cost": 0.02},
        "step, λ = 0.02, best paths": {"latency_cost": 0.02, "belief": "viterbi"},
        "window, λ = 0.05": {"strategy": "window", "latency_cost": 0.05},
        "closure": {"strategy": "closure"},
        "lag 2": {"lag": 2},
    }
    row("Viterbi, batch: million rows/s", f"{n / seconds(task.viterbi) / 1e6:.2f}")
    for name, rule in rules.items():
        taken = seconds(partial(task.decode, **rule))
        row(f"{name}: million rows/s", f"{n / taken / 1e6:.2f}")
    for name, microseconds in pushes(task):
        row(f"push, {name}: µs", f"{microseconds:.2f}")


def pushes(task):
    """Microseconds an item, for items of every form."""
    tagger = OnlineDecoder(FrozenEstimator(task.model[-1]), latency_cost=0.02).fit(None, None)
    whole = OnlineDecoder(FrozenEstimator(task.model), latency_cost=0.02).fit(None, None)
    scores = np.ascontiguousarray(task.psi.emission, dtype=np.float64)
    tokens = [dict(zip(x, row)) for x in task.X[:10] for row in zip(*x.values())][:2000]
    csr = task.model[:-1].transform(task.X[:10]).rows
    sparse_rows = [csr[t] for t in range(1000)]

    def one_by_one(decoder, method, items):
        def work():
            push = getattr(decoder.stream(), method)
            for item in items:
                push(item)

        return 1e6 * seconds(work, 3) / len(items)

    yield "prepared row (its label scores)", one_by_one(tagger, "push_potentials", list(scores))
    yield "CSR row", one_by_one(tagger, "push", sparse_rows)
    yield "raw token through the pipeline", one_by_one(whole, "push", tokens)
    many = seconds(lambda: whole.stream().push_many(tokens), 3)
    yield f"raw token, {len(tokens)} at once", 1e6 * many / len(tokens)
    yield "raw token, a pool of 1,000 streams", in_a_pool(whole, tokens)
    many = seconds(lambda: tagger.stream().push_potentials(scores), 3)
    yield f"prepared row, {len(scores)} at once", 1e6 * many / len(scores)


# --- Report -------------------------------------------------------------------------------------


LINES = {
    "windows, independent": ("fixed windows, each by itself", "0.45", "s", "-"),
    "chunk, restart always": ("fixed windows after the last label", "0.7", "D", "-"),
    "lag, restart always": ("fixed lag", "#b8860b", "v", "-"),
    "step, viterbi, restart always": ("step, the paper's rule", "#0b6fa4", "o", "--"),
    "window, viterbi, restart always": ("variable window, the paper's rule", "#b3312c", "^", "--"),
    "step, viterbi, restart always, early": ("step, one row earlier", "#0b6fa4", "o", "-"),
    "window, viterbi, restart always, early": ("variable window, earlier", "#b3312c", "^", "-"),
    "step, forward, restart conflict, early": ("step, the default", "black", "o", "-"),
}
CLOSURES = {"closure": ("lossless, the paper's", "--"), "closure, early": ("lossless", "-")}
GOALS = {"conll2000": 0.1, "enron": 1.0, "contacts": 1.0}


def draw(reports, path):
    """Figures 5 (above) and 6 of the paper, a column for each of (task, answers)."""
    from matplotlib import pyplot as plt

    size = 6 * len(reports), 8.6
    figure, axes = plt.subplots(2, len(reports), figsize=size, squeeze=False, layout="constrained")
    for (above, below), (task, answers) in zip(axes.T, reports):
        draw_curves(above, task, answers)
        draw_waits(below, task, answers)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, loc="outside upper center")
    figure.savefig(path, dpi=110)


def draw_curves(ax, task, answers):
    for name, (label, color, marker, line) in LINES.items():
        points = sorted((m[0], m[1]) for _, m in answers[name] if m[1] > 0)
        ax.plot(*zip(*points), line, color=color, marker=marker, markersize=4, label=label)
    for name, (label, line) in CLOSURES.items():
        ax.axvline(answers[name][0][1][0], color="#2e7d32", linestyle=line, label=label)
    ax.set(yscale="log", xlim=(0, 1.3 * answers["closure"][0][1][0]))
    ax.set(xlabel="mean latency in rows", ylabel="labels that differ from Viterbi's (%)")
    tokens = ax.secondary_xaxis("top", (lambda x: x + task.delay, lambda x: x - task.delay))
    tokens.set_xlabel(f"{task.name}: mean latency in tokens (features look {task.delay} ahead)")
    ax.grid(color="0.9", linewidth=0.6)


def draw_waits(ax, task, answers):
    goal = GOALS[task.name]
    for k, early in enumerate((False, True)):
        name = f"step, viterbi, restart always{', early' * early}"
        _, cost = min((m[0], cost) for cost, m in answers[name] if m[1] <= goal)
        latency = task.decode(latency_cost=cost, early=early, **PAPER).latency
        share = 100 * np.bincount(np.minimum(latency, 11), minlength=12) / len(latency)
        label = f"{LINES[name][0]}, λ = {cost}: mean {latency.mean():.2f} rows"
        colors = {"color": "#0b6fa4", "alpha": 1.0 if early else 0.4}
        ax.bar(np.arange(12) + 0.4 * k - 0.2, share, 0.4, label=label, **colors)
    ax.set_xticks(range(12), [*map(str, range(11)), "more"])
    ax.set(xlabel="latency in rows", ylabel="labels (%)")
    ax.set_title(f"at {goal:g} % disagreement with Viterbi", fontsize=10)
    ax.legend(frameon=False)


def in_a_pool(decoder, tokens):
    """Microseconds a token, of a thousand streams that each get one at a time."""

    def work():
        pool = decoder.pool()
        for t in range(20):
            items = [tokens[(s + t) % len(tokens)] for s in range(1000)]
            pool.push_many(range(1000), items)

    return 1e6 * seconds(work, 3) / 20_000


def report(task, spans):
    n, L = task.psi.emission.shape
    print(f"\n## {task.name}: {len(task.X)} documents, {n:,} rows, {L} labels\n")
    print(f"Viterbi: accuracy {task.accuracy():.3f} %\n")
    answers = curves(task)
    print_curves(answers)
    for restart, early in product(RESTARTS, (False, True)):
        print_ratios(answers, restart, n, early)
    every, uncertain = how_often_certainty_grows(task)
    print(
        f"\nM_T does not rise in T: {100 * every:.2f} % of all, {100 * uncertain:.2f} % of those "
        "with M_T > 1e-6"
    )
    if spans:
        print_spans(task)
    print_calibration(task)
    print_speed(task)
    return answers


# --- Defaults -----------------------------------------------------------------------------------

RULES = {
    "filtered posterior": {"lag": 0, "decide": "marginal"},
    "default": {},
    "λ = 0.001": {"latency_cost": 0.001},
    "λ = 0.0001": {"latency_cost": 0.0001},
    "marginal": {"decide": "marginal"},
    "window": {"strategy": "window"},
    "lag 0": {"lag": 0},
    "lag 20": {"lag": 20},
    "closure": {"strategy": "closure"},
    "paper, early": PAPER,
    "paper": PAPER | {"early": False},
    "paper, lag 0": PAPER | {"lag": 0},
    "paper, lag 20": PAPER | {"lag": 20},
}


def states():
    """20 + 20 sequences of 2 states that last: means half a standard deviation apart."""
    rng = np.random.default_rng(0)

    def some(n):
        y = [np.repeat(rng.integers(2, size=10), 200) for _ in range(n)]
        return [rng.normal(loc=0.5 * z[:, None]) for z in y], y

    return *some(20), *some(20)


def of_corpus(name, n=3000):
    X, y = corpus(name)
    order = np.arange(len(y))
    if name == "protein-cb513":
        order, n = np.random.default_rng(0).permutation(len(y)), len(y) // 2
    train, test = order[:n], order[n : n + 1500]
    return X[train], [y[s] for s in train], X[test], [y[s] for s in test]


def print_defaults():
    """Accuracy, span F1 and latency of a CRF with default settings, by many rules."""
    given = {"states": (states(), {}), "gestures": (gestures(), {})}
    given["CB513"] = of_corpus("protein-cb513"), {}
    given["CoNLL-2002"] = of_corpus("conll2002"), {}
    given["CoNLL-2002, iob2"] = given["CoNLL-2002"][0], {"constraints": "iob2"}
    for name, ((X, y, X_test, y_test), options) in given.items():
        model = FrozenEstimator(CRFTagger(**options).fit(X, y))
        print(f"\n{name}\n")
        header("rule", "accuracy %", "span F1 %", "latency, rows")
        for what, rule in RULES.items():
            decoded = OnlineDecoder(model, **rule).decode(X_test)
            labels, waits = decoded.labels, [t - np.arange(len(t)) for t in decoded.times]
            f1 = f"{100 * span_f1(y_test, labels):.2f}" if name.startswith("CoNLL") else ""
            right = 100 * token_accuracy(y_test, labels)
            row(what, f"{right:.2f}", f1, f"{np.concatenate(waits).mean():.2f}")


def print_spans(task):
    print()
    header("strategy", "span F1", "token accuracy %", "latency, rows")
    print_span_row(task, "Viterbi", task.best, 0)
    for strategy in ("step", "window"):
        for restart, belief in product(RESTARTS, ("viterbi", "forward")):
            for cost in (0.2, 0.05, 0.01):
                rule = {"restart": restart, "belief": belief, "latency_cost": cost}
                paths = task.decode(strategy=strategy, **rule)
                name = f"{strategy}, {belief}, λ = {cost}, restart {restart}"
                print_span_row(task, name, paths.labels, paths.latency.mean())


def print_span_row(task, name, labels, latency):
    classes, offsets = task.model[-1].classes_, task.psi.offsets
    cut = [classes[labels[a:b]] for a, b in zip(offsets[:-1], offsets[1:])]
    right = 100 * (classes[labels] == task.truth).mean()
    row(name, f"{100 * span_f1(task.y, cut):.2f}", f"{right:.2f}", f"{latency:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-iter", type=int, default=150, help="of training; default 150")
    parser.add_argument("--figure", help="also draw the curves and waiting times to this file")
    tasks = ["conll2000", "enron", "contacts", "states"]
    parser.add_argument("--task", choices=tasks, action="append")
    args = parser.parse_args()
    there = {"conll2000": folder("conll2000"), "enron": folder("enron-email-fields")}
    chosen = args.task or [name for name, path in there.items() if path] or ["contacts"]
    reports = []
    if "states" in chosen:
        print_defaults()
    for name in (name for name in chosen if name != "states"):
        fit = {"conll2000": conll2000, "enron": enron, "contacts": contacts}[name]
        task = Task(name, *fit(args.max_iter))
        reports.append((task, report(task, spans=name != "contacts")))
    if args.figure and reports:
        draw(reports, args.figure)


if __name__ == "__main__":
    main()
