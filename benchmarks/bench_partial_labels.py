"""Training with unknown labels, against leaving unlabelled rows out and against calling them "O".

    SKLSEQ_DATA=~/data python benchmarks/bench_partial_labels.py [SENTENCES] [PART]

Span F1 on the test set, mean and standard deviation of three draws, of CRFTagger(l2=0.5):

* "partial": None at unlabelled rows, sets of labels where several are possible.
* "rows left out": runs of labelled rows are sequences of their own, with the features they had.
* "O": what is unlabelled is "O".
* "proportions": as "partial", with label_proportions of all unlabelled rows; "50 columns": and of
  those that have one of the 50 most frequent features of the word itself, from the true labels;
  "off by a third": each of these times 2/3 or 4/3, at random, then divided by their sum. Not where
  half of the labels are known.

Labels are known at a half or a tenth of the rows, at random; or come from lists: of CoNLL-2000, the
labels that the words of a hundred labelled sentences have there, if they occur five times, and the
sentences themselves; of the others, the names of a third of all entities, and "O" for other words
that begin with a small letter (of NCBI, for the 150 most frequent words that are in no name).

PART is none (the table), or one of:

``--chain``: what the order of labels can add at most, where a tenth of CoNLL-2000 is known: F1 of
both models, and with their state scores as the features of a chain that is trained on all labels,
those of the sentences or of the test set itself.

``--names``: what helps where a third of the names is known. "Share": with label_proportions of the
share of "O" in the unlabelled rows; "of 50": the share in fifty sentences; "x 1/2", "x 3/2": wrong
ones. "Small words unknown": None at one or two "O" between rows that may be in a name. Of
CoNLL-2002, "O" at unlabelled first words that begin with a small letter elsewhere, and all labels
of the fifty sentences.

``--both``: names from a list as in ``--names``, eight draws: "partial" with the share in fifty
sentences, rows left out, and both at once, the sentences with half and with a twentieth of the
weight; what each of them is better than rows left out, mean and standard error.

``--options``: other parameters where a tenth of CoNLL-2000 is known.

``--dropping``: other ways to leave out what is unlabelled, of five draws. "Runs" are the "rows
left out" of the table; "rows joined": sequences of their labelled rows; "rows alone": each labelled
row is a sequence. These have the features of whole sentences. "Runs of tokens", "tokens deleted":
runs, and sentences, of the labelled tokens, before features are extracted; "sentences left out":
those with an unlabelled row, and how many remain. "Options": constraints="iob2" (of runs, for pairs
only; not with words of a hundred sentences), all_possible_states=True and the default l2; the set
of all labels stands for None.
"""

import sys
from collections import Counter, defaultdict
from itertools import groupby

import numpy as np
from _common import header, need, row
from _corpora import sentences
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, Sequences
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.metrics import span_f1

N_TEST, DRAWS = 600, 3
WEIGHTS = 0.5, 0.05  # of sentences with unknown labels beside their runs of labelled rows
CONSTRAINED = "proportions", "50 columns", "off by a third"
CORPORA = {
    "conll2000": ("train.txt.gz", "test.txt.gz"),
    "conll2002": ("esp.train.gz", "esp.testa.gz"),
    "ncbi-disease": ("train.tsv.gz", "test.tsv.gz"),
}


def longer_sentences(path):
    """Sentences of two words or more."""
    X, y = sentences(path)
    kept = [s for s, labels in enumerate(y) if len(labels) > 1]
    return [X[s] for s in kept], [y[s] for s in kept]


class Task:
    """A corpus: ``n`` sentences, evenly from the training set, and the first of the test set."""

    def __init__(self, name, n):
        train, test = CORPORA[name]
        self.name, (X, y) = name, longer_sentences(need(name) / train)
        step = max(1, len(X) // n)
        X, self.y = X[::step][:n], y[::step][:n]
        self.words = [columns["w"] for columns in X]
        X_test, y_test = longer_sentences(need(name) / test)
        test, self.y_test = X_test[:N_TEST], y_test[:N_TEST]
        own = TokenFeatures(columns="w", suffixes=3, prefixes=3)
        features = WindowFeatures(own, before=1, after=1)
        self.features, self.raw, self.raw_test = features, X, test
        self.X, self.X_test = features.fit_transform(X), features.transform(test)
        names = features.get_feature_names_out().tolist()
        self.of_word = [k for k, name in enumerate(names) if name.startswith("w.")]

    def f1(self, X, y, label_proportions=None):
        tagger = CRFTagger(l2=0.5, label_proportions=label_proportions or None).fit(X, y)
        return 100 * span_f1(self.y_test, tagger.predict(self.X_test))

    def proportions(self, y, columns=50, rng=None):
        """Of the true labels of unlabelled rows; with ``rng``, off by a third."""
        unknown = np.array([item is None for labels in y for item in labels])
        truth = np.concatenate(self.y)[unknown]
        values = self.X.rows[unknown][:, self.of_word].tocsc()
        frequent = np.argsort(-np.diff(values.indptr), kind="stable")[:columns]
        known = {label for labels in y for item in labels if item for label in as_set(item)}

        def shares(rows):
            counts = Counter(label for label in truth[rows].tolist() if label in known)
            if rng is not None:
                counts = {k: n * rng.choice([2 / 3, 4 / 3]) for k, n in counts.items()}
            return {label: n / sum(counts.values()) for label, n in counts.items()}

        groups = {k: values.indices[values.indptr[k] : values.indptr[k + 1]] for k in frequent}
        of_columns = {self.of_word[k]: shares(rows) for k, rows in groups.items()}
        of_columns = {column: given for column, given in of_columns.items() if given}
        return shares(slice(None)) | of_columns


def as_set(item):
    return {item} if isinstance(item, str) else item


def labelled_runs(X, y):
    """Runs of rows with a known label, as sequences."""
    rows, labels = [], []
    for s, items in enumerate(y):
        known = np.array([isinstance(item, str) for item in items] + [False])
        edges = np.flatnonzero(np.diff(known, prepend=False))
        for a, b in edges.reshape(-1, 2):
            rows.append(X.rows[X.offsets[s] + a : X.offsets[s] + b])
            labels.append(items[a:b])
    return rows, labels


def at_random(task, share, rng):
    return [[item if rng.random() < share else None for item in labels] for labels in task.y]


def from_dictionary(task, rng, n=100, least=5):
    """Labels that the words of ``n`` labelled sentences have there."""
    chosen, seen = set(rng.permutation(len(task.y))[:n].tolist()), defaultdict(Counter)
    for s in chosen:
        for word, label in zip(task.words[s], task.y[s]):
            seen[word][label] += 1
    known = {word: set(c) for word, c in seen.items() if c.total() >= least}
    return [
        y if s in chosen else [known.get(word) for word in words]
        for s, (words, y) in enumerate(zip(task.words, task.y))
    ]


def spans(labels):
    starts = [t for t, label in enumerate(labels) if label[0] == "B"]
    for a in starts:
        b = a + 1
        while b < len(labels) and labels[b][0] == "I":
            b += 1
        yield a, b, labels[a][2:]


def from_names(task, rng, share=1 / 3, longest=6):
    """Labels of the words that are a listed name, and "O" for words that are hardly in a name."""
    names = defaultdict(Counter)
    for words, labels in zip(task.words, task.y):
        for a, b, kind in spans(labels):
            names[tuple(words[a:b])][kind] += 1
    listed = {k: names[k].most_common(1)[0][0] for k in sorted(names) if rng.random() < share}
    if np.mean([name[0][:1].islower() for name in listed]) > 0.2:
        counts = Counter(word.lower() for words in task.words for word in words)
        in_names = {word.lower() for name in listed for word in name}
        outside = {word for word, _ in counts.most_common(150)} - in_names
        is_outside = lambda word: word.lower() in outside  # noqa: E731
    else:
        is_outside = lambda word: not word[:1].isupper()  # noqa: E731
    answer = []
    for words in task.words:
        labels, t = ["O" if is_outside(word) else None for word in words], 0
        while t < len(words):
            ends = range(min(len(words), t + longest), t, -1)
            end = next((b for b in ends if tuple(words[t:b]) in listed), None)
            if end is not None:
                kind = listed[tuple(words[t:end])]
                labels[t:end] = ["B-" + kind] + ["I-" + kind] * (end - t - 1)
            t = end or t + 1
        answer.append(labels)
    return answer


def mean(scores):
    return f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}"


def chain_of_all_labels(model, task, X, y):
    """F1 with the state scores of a model and transitions of known labels."""

    def scores(X):
        emission, *_, offsets = model.potentials(X)
        return Sequences(emission - emission.mean(axis=1, keepdims=True), offsets)

    tagger = CRFTagger(l2=1e-3).fit(scores(X), y)
    return 100 * span_f1(task.y_test, tagger.predict(scores(task.X_test)))


def chains(n=1000):
    task, figures = Task("conll2000", n), []
    for seed in range(DRAWS):
        y = at_random(task, 0.1, np.random.default_rng(seed))
        for data in (labelled_runs(task.X, y), (task.X, y)):
            model = CRFTagger(l2=0.5).fit(*data)
            f1 = 100 * span_f1(task.y_test, model.predict(task.X_test))
            known = chain_of_all_labels(model, task, task.X, task.y)
            test = chain_of_all_labels(model, task, task.X_test, task.y_test)
            figures.append([f1, known, test])
    header("states", "as trained", "chain of all labels", "of the test set")
    row("rows left out", *map(mean, zip(*figures[::2])))
    row("partial", *map(mean, zip(*figures[1::2])))


def first_words_outside(task, y):
    """``y`` with "O" at unlabelled first words that begin with a small letter elsewhere."""
    lower = {word for words in task.words for word in words if word[:1].islower()}
    return [
        ["O" if labels[0] is None and words[0].lower() in lower else labels[0], *labels[1:]]
        for words, labels in zip(task.words, y)
    ]


def small_words_unknown(y, longest=2):
    """``y`` with None at one or two "O" between rows that may be in a name, one of them unknown."""
    answer = []
    for labels in y:
        runs = [list(run) for _, run in groupby(labels, lambda label: label == "O")]
        for before, run, after in zip(runs, runs[1:], runs[2:]):
            beside = before[-1], after[0]
            if run[0] == "O" and len(run) <= longest and None in beside:
                run[:] = [None] * len(run)
        answer.append([label for run in runs for label in run])
    return answer


def share_of_o(y, truth):
    """Share of "O" in the rows that are unknown in y."""
    rows = [b for one, other in zip(y, truth) for a, b in zip(one, other) if a is None]
    return rows.count("O") / len(rows)


def ways_of_names(task, y, n):
    """Labels for training, and the labels without those of ``n`` sentences with all labels."""
    small, first = small_words_unknown(y), first_words_outside(task, y)
    ways = {"as in the table": (y, y), "small words unknown": (small, small)}
    if task.name == "conll2002":
        both = small_words_unknown(first)
        ways |= {"O at first words": (first, first), "both": (both, both)}
        ways["labels of 50 sentences"] = task.y[:n] + y[n:], y
        ways["and small words unknown"] = task.y[:n] + small[n:], small
        ways["and O at first words"] = task.y[:n] + both[n:], both
    return ways


def names(n=1000, n_labelled=50):
    header("corpus", "labels", *("partial", "share", "of 50", "x 1/2", "x 3/2"), "rows left out")
    for name in ("conll2002", "ncbi-disease"):
        task, figures = Task(name, n), {}
        for seed in range(DRAWS):
            y = from_names(task, np.random.default_rng(seed))
            for way, (labels, before) in ways_of_names(task, y, n_labelled).items():
                share, found = share_of_o(labels, task.y), share_of_o(before[:n_labelled], task.y)
                shares = [None, share, found, share / 2, min(1.0, 1.5 * share)]
                f1 = [task.f1(task.X, labels, {"O": p} if p else None) for p in shares]
                figures.setdefault(way, []).append([*f1, task.f1(*labelled_runs(task.X, labels))])
        for way, f1 in figures.items():
            row(name, way, *map(mean, zip(*f1)))


def fit_both(task, y, share, weight):
    """F1 from the sequences, of this weight, and from their runs of labelled rows, of the rest."""
    X, runs = labelled_runs(task.X, y)
    weights = np.repeat([weight, 1 - weight], [len(y), len(X)])
    tagger = CRFTagger(l2=0.5, label_proportions={"O": share})
    tagger.fit([*task.X, *X], y + runs, sample_weight=weights)
    return 100 * span_f1(task.y_test, tagger.predict(task.X_test))


def difference(scores, others):
    d = np.subtract(scores, others)
    return f"{d.mean():+.1f} ± {d.std(ddof=1) / np.sqrt(len(d)):.1f}"


def f1_of_both(task, labels, share):
    """F1 of rows left out, with the share of "O", and of both with each of the weights."""
    left_out = task.f1(*labelled_runs(task.X, labels))
    at_once = [fit_both(task, labels, share, weight) for weight in WEIGHTS]
    return left_out, task.f1(task.X, labels, {"O": share}), *at_once


def both(n=1000, n_labelled=50, draws=8):
    ways = "share", "both, 1/2", "both, 1/20"
    header("corpus", "labels", "rows left out", *ways, *(f"{way}: better by" for way in ways))
    for name in ("ncbi-disease", "conll2002"):
        task, figures = Task(name, n), {}
        for seed in range(draws):
            y = from_names(task, np.random.default_rng(seed))
            for way, (labels, before) in ways_of_names(task, y, n_labelled).items():
                if way in ("as in the table", "both", "and O at first words"):
                    share = share_of_o(before[:n_labelled], task.y)
                    figures.setdefault(way, []).append(f1_of_both(task, labels, share))
        for way, f1 in figures.items():
            left_out, *others = zip(*f1)
            differences = (difference(other, left_out) for other in others)
            row(name, way, *map(mean, (left_out, *others)), *differences)


def options(n=1000):
    task, figures = Task("conll2000", n), {}
    counts = np.diff(task.X.rows[:, task.of_word].tocsc().indptr)
    frequent = [task.of_word[k] for k in np.argsort(-counts, kind="stable")[:100]]
    ways = [
        {"l2": l2} | wide for wide in ({}, {"all_possible_states": True}) for l2 in (0.5, 0.2, 0.1)
    ]
    for seed in range(DRAWS):
        y = at_random(task, 0.1, np.random.default_rng(seed))
        for way in [*ways, {"l2": 0.5, "transition_features": frequent}]:
            models = [CRFTagger(**way).fit(*d) for d in ((task.X, y), labelled_runs(task.X, y))]
            f1 = [100 * span_f1(task.y_test, model.predict(task.X_test)) for model in models]
            figures.setdefault(" ".join(way) + f" {way['l2']}", []).append(f1)
    header("parameters", "partial", "rows left out")
    for way, f1 in figures.items():
        row(way, *map(mean, zip(*f1)))


def is_known(y):
    return [np.array([item is not None for item in labels]) for labels in y]


def labels_of(items):
    return [item for item in items if item is not None]


def rows_alone(task, y):
    """Each labelled row, with the features that it had, as a sequence."""
    rows = task.X.rows[np.concatenate(is_known(y))]
    labels = [[item] for items in y for item in labels_of(items)]
    return Sequences(rows, np.arange(len(labels) + 1)), labels


def rows_joined(task, y):
    """Sequences of their labelled rows, with the features that these had."""
    known = is_known(y)
    offsets = np.append(0, np.cumsum([one.sum() for one in known]))
    return Sequences(task.X.rows[np.concatenate(known)], offsets), list(map(labels_of, y))


def tokens(task, y, cut):
    """Labelled tokens, before features are extracted: one sentence of each, or each run if cut."""
    raw, labels = [], []
    for columns, known, items in zip(task.raw, is_known(y), y):
        at = np.flatnonzero(known)
        parts = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1) if cut else [at]
        for part in filter(len, parts):
            raw.append({k: np.array(column)[part].tolist() for k, column in columns.items()})
            labels.append([items[t] for t in part])
    return raw, labels


def f1_of_tokens(task, y, cut):
    """F1 if unlabelled tokens are deleted before features are extracted."""
    model = make_pipeline(clone(task.features), CRFTagger(l2=0.5)).fit(*tokens(task, y, cut))
    return 100 * span_f1(task.y_test, model.predict(task.raw_test))


def only_pairs(labels):
    """The pairs that IOB2 forbids: runs may begin with I-."""
    return [(a, b) for a in labels for b in labels if b[0] == "I" and a[2:] != b[2:]]


def best_options(task, y, scheme):
    """F1 with a scheme and weights for all pairs of feature and label: partial, and of runs."""
    every = {label for labels in task.y for label in labels}
    named = [[every if item is None else item for item in labels] for labels in y]
    X, runs = labelled_runs(task.X, y)
    pairs = scheme and only_pairs(sorted({label for labels in runs for label in labels}))
    fits = (task.X, named, scheme), (X, runs, pairs)
    for rows, labels, constraints in fits:
        tagger = CRFTagger(constraints=constraints, all_possible_states=True).fit(rows, labels)
        yield 100 * span_f1(task.y_test, tagger.predict(task.X_test))


def f1_of_ways(task, y, scheme="iob2"):
    """F1 of all ways, in the order of the header; y has labels, sets and None."""
    single = [[item if isinstance(item, str) else None for item in labels] for labels in y]
    whole = [s for s, known in enumerate(is_known(single)) if known.all()]
    best, best_runs = best_options(task, y, scheme)
    parts = labelled_runs(task.X, y), rows_joined(task, single), rows_alone(task, single)
    by_rows = [task.f1(*part) for part in parts]
    by_tokens = [f1_of_tokens(task, single, cut) for cut in (True, False)]
    left = task.f1(task.X[whole], [y[s] for s in whole]) if whole else 0.0
    return [task.f1(task.X, y), best, best_runs, *by_rows, *by_tokens, left], len(whole)


def ways_to_label(name):
    listed = from_dictionary if name == "conll2000" else from_names
    return {
        "half": lambda task, rng: at_random(task, 0.5, rng),
        "a tenth": lambda task, rng: at_random(task, 0.1, rng),
        "list": listed,
    }


WAYS = (
    "partial", "partial, options", "runs, options", "runs", "rows joined", "rows alone",
    "runs of tokens", "tokens deleted", "sentences left out", "sentences",
)  # fmt: skip


def dropping(n=1000, draws=5):
    header("corpus", "labels", *WAYS)
    for name in CORPORA:
        task = Task(name, n)
        for title, make in ways_to_label(name).items():
            y = [make(task, np.random.default_rng(seed)) for seed in range(draws)]
            scheme = None if make is from_dictionary else "iob2"  # a word's label may break it
            scores, whole = zip(*(f1_of_ways(task, one, scheme) for one in y))
            row(name, title, *map(mean, zip(*scores)), max(whole))


def main(n=1000):
    header("corpus", "labels", "known", "partial", "rows left out", "O", *CONSTRAINED, "all labels")
    for name in CORPORA:
        task = Task(name, n)
        best = task.f1(task.X, task.y)
        for title, make in ways_to_label(name).items():
            scores = []
            for seed in range(DRAWS):
                y = make(task, np.random.default_rng(seed))
                zeros = [[item if isinstance(item, str) else "O" for item in one] for one in y]
                one = [task.f1(task.X, y), task.f1(*labelled_runs(task.X, y))]
                scores.append([*one, task.f1(task.X, zeros)])
                if title != "half":
                    rng = np.random.default_rng(seed)
                    given = (
                        task.proportions(y, 0),
                        task.proportions(y),
                        task.proportions(y, rng=rng),
                    )
                    scores[-1] += [task.f1(task.X, y, shares) for shares in given]
            known = np.mean([isinstance(item, str) for items in y for item in items])
            figures = [*map(mean, zip(*scores)), "", "", ""][:6]
            row(name, title, f"{known:.0%}", *figures, f"{best:.1f}")


if __name__ == "__main__":
    given = [int(n) for n in sys.argv[1:] if not n.startswith("--")]
    parts = {
        "--chain": chains, "--names": names, "--both": both, "--options": options,
        "--dropping": dropping,
    }  # fmt: skip
    next((part for option, part in parts.items() if option in sys.argv), main)(*given)
