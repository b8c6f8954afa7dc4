"""Tables 1 and 2, Figure 2 of Sarawagi (2006): segments against tokens, succinct or one by one.

    python benchmarks/bench_segmenter.py [table1] [table2] [figure2] [boundary] [context] [losses]
           [curves] [defaults] [calibration] [temperatures] [rerank] [nested] [unknown]
           [--quick] [--data NAME ...] [--splits N] [--figure FILE]

    SequenceBCEU   CRFTagger on IOBES labels
    Segment        SemiCRFSegmenter(max_segment_length=L), segment features
    SegmentOpt     SemiCRFSegmenter(), with segment features (m = L) and without (m = 1)
    Tagger         CRFTagger on IOBES labels, all features of TokenFeatures that occur twice
    Boundary       SemiCRFSegmenter() with these features at the boundaries of segments, and the
                   similarity of whole segments to entries; with both losses

Features as in the paper's §4: the word, its shapes and flags at each token and its neighbours, and
whether the token stands in a lexicon's entry; at the start, the end and all tokens of segments.
Segment features are lengths, and the TF-IDF and Jaro-Winkler similarity to the lexicons' entries.
Each split trains on a random 30 % and tests on the rest; models take turns within a split. Seconds
of one core are medians of training and prediction together, and of the extraction of all features,
lexicons included. All models have a weight for every feature and label. Real data is found through
SKLSEQ_DATA; without it, references are generated.
"""

import argparse
import gzip
import sys
import warnings
from functools import partial
from itertools import chain, product
from pathlib import Path
from statistics import mean, median, stdev
from tempfile import TemporaryDirectory
from time import process_time
from typing import NamedTuple

import numpy as np
from _common import by_turns, folder
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline, make_union

from sklseq import CRFTagger, SegmentReranker, SemiCRFSegmenter
from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
from sklseq.datasets import make_citations, read_conll
from sklseq.features import (
    LexiconFeatures,
    SegmentFeatures,
    TokenFeatures,
    WindowFeatures,
    count_active_potentials,
)
from sklseq.inspection import spans
from sklseq.metrics import span_f1, span_precision_recall_fscore_support

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of the slow references
from tests.segment_reference import every_segment

warnings.simplefilter("ignore", ConvergenceWarning)
FIELDS = ("title", "author", "journal")


# --- Data ---------------------------------------------------------------------------------------


class Task(NamedTuple):
    """Sequences of tokens, IOB2 labels and lexicons."""

    X: list
    y: list
    lexicons: dict
    longest: int  # L of Segment, m of SegmentOpt

    def part(self, which):
        """Tokens and labels of some sequences."""
        return [self.X[s] for s in which], [self.y[s] for s in which]

    def segments(self, which):
        return [labels_to_segments(self.y[s]) for s in which]

    def splits(self, n_splits, share=0.3):
        """Pairs (sequences to train on, sequences to test)."""
        return ShuffleSplit(n_splits, train_size=share, random_state=0).split(self.X)

    def small_splits(self, n_splits, n):
        """The same with n sequences to train on, and at most 300 to test."""
        n_test = min(300, len(self.X) - n)
        split = ShuffleSplit(n_splits, train_size=n, test_size=n_test, random_state=0)
        return split.split(self.X)


def columns(path):
    X, y = read_conll(path, separator="\t")
    return [x["c0"] for x in X], [list(labels) for labels in y]


def only(y, fields):
    """Other fields count as outside."""
    return [[label if label[2:] in fields else "O" for label in labels] for labels in y]


def lines(path, column, starts=""):
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [row.split("\t")[column] for row in rows if row.startswith(starts)]


def lexicons(folder):
    folder = folder / "lexicons"
    parscit = folder / "parscit-dict.tsv.gz"
    return {
        "journal": lines(folder / "journal-names.tsv.gz", 0)
        + lines(folder / "journal-names.tsv.gz", 1)
        + lines(folder / "dblp-venues.tsv.gz", 2, "journal"),
        "last-name": lines(parscit, 1, "last-name"),
        "first-name": lines(parscit, 1, "male-name") + lines(parscit, 1, "female-name"),
        "place": lines(parscit, 1, "place"),
        "publisher": lines(parscit, 1, "publisher"),
    }


def as_files(words, folder):
    """Files are read once a fit; lists would be copied with every clone of an extractor."""
    for name, entries in words.items():
        (folder / f"{name}.txt").write_text("\n".join(entries), encoding="utf-8")
    return {name: folder / f"{name}.txt" for name in words}


NOT_REFERENCES = {
    "headers": ("cora-headers/train.tsv.gz", "\t"),
    "companies": ("probablepeople-names/company.tsv.gz", "\t"),
    "conll2002": ("conll2002/esp.train.gz", None),
    "ncbi": ("ncbi-disease/train.tsv.gz", "\t"),
}


def tasks(names, quick, scratch):
    if (cora := folder("cora-citations")) is None:
        X, y, words = make_citations(200 if quick else 500, random_state=0, return_lexicons=True)
        return {"generated": Task(X, y, as_files(words, scratch), 20)}
    root, found = cora.parent, {}
    words = as_files(lexicons(root), scratch)
    some = {name: words[name] for name in ("journal", "last-name", "first-name")}
    X, y = columns(cora / "cora.tsv.gz")
    found["cora"] = Task(X, y, some, 20)
    journals = [s for s, labels in enumerate(y) if "B-journal" in labels]
    X, y = found["cora"].part(journals)
    found["cora-journals"] = Task(X, only(y, FIELDS), some, 20)
    X, y = columns(root / "anystyle-citations" / "core.tsv.gz")
    found["anystyle"] = Task(X, only(y, FIELDS), some, 20)
    parts = [columns(root / "us50-addresses" / f"{part}.tsv.gz") for part in ("train", "test")]
    places = {"place": words["place"]}
    found["us50"] = Task(parts[0][0] + parts[1][0], parts[0][1] + parts[1][1], places, 7)
    X, y = columns(root / "umass-citations" / "train.tsv.gz")
    found["umass"] = Task(X, y, some, 20)
    parts = [columns(path) for path in sorted((root / "parscit-other-citations").glob("*.tsv.gz"))]
    found["parscit"] = Task(*(list(chain.from_iterable(part)) for part in zip(*parts)), some, 20)
    for name, (path, separator) in NOT_REFERENCES.items():
        if name in (names or ()):  # with labels of tokens and no lexicons: for ``defaults``
            X, y = read_conll(root / path, separator=separator)
            found[name] = Task([x["c0"] for x in X], [list(labels) for labels in y], {}, 10)
    if quick:
        found = {name: Task(t.X[::3], t.y[::3], t.lexicons, t.longest) for name, t in found.items()}
    return {name: task for name, task in found.items() if not names or name in names}


# --- Models -------------------------------------------------------------------------------------


def token_features(words):
    plain = TokenFeatures(prefixes=0, suffixes=0, length=False)
    return WindowFeatures(make_union(plain, LexiconFeatures(words)), before=1, after=1)


def as_iobes(y):
    return [
        segments_to_labels(labels_to_segments(labels), len(labels), "iobes").tolist()
        for labels in y
    ]


class Sequence:
    def __init__(self, task, l2, features=None):
        self.features = token_features(task.lexicons) if features is None else features
        self.model = CRFTagger(l2=l2, tol=1e-3, all_possible_states=True)

    def fit(self, potentials, y):
        self.model.fit(potentials, as_iobes(y))

    def predict(self, potentials):
        return self.model.predict(potentials)

    @staticmethod
    def ratio(potentials, longest):
        return None


class Segment:
    def __init__(self, task, l2, longest=None, full=False):
        """``longest``: of segment features; None: none of them."""
        self.features = SegmentFeatures(
            token_features(task.lexicons), before=0, after=0, length=longest is not None,
            max_length=longest or 1, lexicons=None if longest is None else task.lexicons,
            min_similarity=0.5,
        )  # fmt: skip
        self.longest = longest if full else None
        self.model = SemiCRFSegmenter(l2=l2, max_segment_length=self.longest)

    def fit(self, potentials, y):
        segments = [labels_to_segments(labels) for labels in y]
        if self.longest is not None:
            segments = [list(cut(s, self.longest)) for s in segments]
            potentials = every_segment(potentials, self.longest)
        self.model.fit(potentials, segments)

    def predict(self, potentials):
        if self.longest is not None:
            potentials = every_segment(potentials, self.longest)
        return self.model.predict_labels(potentials)

    @staticmethod
    def ratio(potentials, longest):
        g, h = count_active_potentials(potentials, longest)
        return g / h


def all_features(task):
    return make_union(TokenFeatures(), LexiconFeatures(task.lexicons))


def windows(extractor, min_count):
    return WindowFeatures(extractor, before=1, after=1, min_count=min_count)


def tagger(task, l2, min_count=2):
    """The same information as ``Boundary``: each token with its neighbours."""
    return Sequence(task, l2, windows(all_features(task), min_count))


CONTEXTS = (1, 1), (1, 2), (2, 2)  # tokens before and after segments
# Transition features: word, form and last letter of the token before a segment.
PAIRS = r"^before:.*w\.(lower|short_shape|suffix1)="


class Boundary(Segment):
    def __init__(self, task, l2, longest, loss="log", pairs=None, context=(1, 1)):
        """``longest``: of segments that are compared with entries; None: none of them.

        ``pairs``: which columns are transition features; ``context``: tokens before and after.
        """
        before, after = context
        self.features = SegmentFeatures(
            all_features(task), max_length=longest or 8, min_count=2, before=before, after=after,
            lexicons=None if longest is None else task.lexicons, transition_features=pairs,
        )  # fmt: skip
        self.longest, self.model = None, SemiCRFSegmenter(l2=l2, loss=loss)


class Plain(Segment):
    """The defaults of both classes, but for some parameters."""

    def __init__(self, extractor=None, min_count=None, **parameters):
        self.features = SegmentFeatures(extractor, min_count=min_count)
        self.longest, self.model = None, SemiCRFSegmenter(**parameters)


SIZES = (10, 50, 100, 200)
CALIBRATED = (50, 150)  # references, for errors of calibration
CURVES = {
    "tagger": lambda task, l2: tagger(task, l2, 1),
    "tagger, min_count=2": tagger,
    "tagger, ten times the penalty": lambda task, l2: tagger(task, 10 * l2, 1),
    "segmenter, defaults": lambda task, l2: Plain(all_features(task)),
    "segmenter": lambda task, l2: Boundary(task, l2, 10, "softmax-margin"),
}


def cut(segments, longest):
    """Too long ones in pieces: what is left to a model that cannot express them."""
    for start, stop, type_ in segments:
        for at in range(start, stop, longest):
            yield at, min(stop, at + longest), type_


# --- Measuring ----------------------------------------------------------------------------------


class Result(NamedTuple):
    recall: float
    precision: float
    f1: float
    seconds: float
    extraction: float
    ratio: float | None
    n_weights: int


def measure(model, rows, task, train, test):
    seen, new, extraction = rows
    (_, y), (_, true) = task.part(train), task.part(test)
    began = process_time()
    model.fit(seen, y)
    predicted = model.predict(new)
    seconds = process_time() - began
    scores = span_precision_recall_fscore_support(true, predicted, average="micro")
    values = (100 * score for score in (scores.recall, scores.precision, scores.f1))
    ratio, n_weights = model.ratio(seen, task.longest), model.model.coef_.size
    return Result(*values, seconds, extraction, ratio, n_weights)


def extract(features, task, train, test):
    """Features of both parts, and the seconds that they took."""
    (X, _), (X_test, _) = task.part(train), task.part(test)
    began = process_time()
    return features.fit_transform(X), features.transform(X_test), process_time() - began


def compare(task, models, n_splits, share=0.3):
    """Name to results of all splits; models take turns, and share features that are equal."""
    results = {name: [] for name in models}
    for train, test in task.splits(n_splits, share):
        known = {}
        for name, make in models.items():
            model = make()
            key = type(model.features), str(model.features.get_params(deep=False))
            if key not in known:
                known[key] = extract(model.features, task, train, test)
            results[name].append(measure(model, known[key], task, train, test))
    return results


def fit_seconds(model, *data):
    return by_turns([partial(model.fit, *data)], 1).item()


def f1_of(results):
    return mean(r.f1 for r in results)


def spread_of(results):
    return mean_and_spread([r.f1 for r in results])


def mean_and_spread(scores):
    return f"{mean(scores):.1f} ± {stdev(scores):.1f}" if len(scores) > 1 else f"{scores[0]:.1f}"


def seconds_of(results):
    return median(r.seconds for r in results)


def table1(found, l2, n_splits):
    head = ("method", "R", "P", "F1", "seconds", "x BCEU", "extract", "G/H")
    for name, task in found.items():
        m, models = task.longest, {}
        models["SequenceBCEU"] = lambda task=task: Sequence(task, l2)
        models["SegmentOpt m=1"] = lambda task=task: Segment(task, l2)
        models[f"Segment L={m}"] = lambda task=task, m=m: Segment(task, l2, m, full=True)
        models[f"SegmentOpt m={m}"] = lambda task=task, m=m: Segment(task, l2, m)
        results = compare(task, models, n_splits)
        n_tokens = sum(map(len, task.X))
        print(f"\n{name}: {len(task.X)} sequences, {n_tokens} tokens, {n_splits} splits")
        print(f"{head[0]:<18}" + "".join(f"{h:>9}" for h in head[1:]))
        base = seconds_of(results["SequenceBCEU"])
        for method, of in results.items():
            r, p, f = (mean(getattr(x, k) for x in of) for k in ("recall", "precision", "f1"))
            ratio = f"{mean(x.ratio for x in of):9.1f}" if of[0].ratio else ""
            seconds, extraction = seconds_of(of), median(x.extraction for x in of)
            print(
                f"{method:<18}{r:9.1f}{p:9.1f}{f:9.1f}{seconds:9.2f}{seconds / base:9.2f}"
                f"{extraction:9.2f}{ratio}",
                flush=True,
            )
        full, opt = results[f"Segment L={m}"], results[f"SegmentOpt m={m}"]
        print(
            f"SegmentOpt is {seconds_of(full) / seconds_of(opt):.1f} times faster than Segment; "
            f"F1 {f1_of(opt) - f1_of(full):+.1f} against it, "
            f"{f1_of(opt) - f1_of(results['SequenceBCEU']):+.1f} against SequenceBCEU",
            flush=True,
        )


def boundary(found, l2, n_splits):
    """Tables 1 and 2 with features at the boundaries of segments, relative to Tagger."""
    for name, task in found.items():
        models = {
            "Tagger": lambda task=task: tagger(task, l2),
            "Boundary, no whole": lambda task=task: Boundary(task, l2, None),
            **{
                f"Boundary m={m}": lambda m=m, task=task: Boundary(task, l2, m)
                for m in (10, 15, 20, 25)
                if task.longest >= 10 or m == 10
            },
            "  softmax-margin": lambda task=task: Boundary(task, l2, 10, "softmax-margin"),
            "  transitions": lambda task=task: Boundary(task, l2, 10, pairs=PAIRS),
            "  both": lambda task=task: Boundary(task, l2, 10, "softmax-margin", PAIRS),
        }
        against_tagger(name, compare(task, models, n_splits))


def context(found, l2, n_splits):
    """Tokens before and after segments, without and with transition features."""
    for name, task in found.items():
        models = {"Tagger": lambda task=task: tagger(task, l2)}
        for around, pairs in product(CONTEXTS, (None, PAIRS)):
            kind = "Boundary {}, {}".format(*around) + ("" if pairs is None else " transitions")
            models[kind] = partial(Boundary, task, l2, 10, pairs=pairs, context=around)
        against_tagger(name, compare(task, models, n_splits))


def against_tagger(name, results):
    base = results["Tagger"]
    print(
        f"\n{name:<18}{'F1':>18}{'against':>10}{'seconds':>9}{'x':>6}{'extract':>9}{'weights':>9}"
    )
    for method, of in results.items():
        ratio = seconds_of(of) / seconds_of(base)
        print(
            f"{method:<24}{spread_of(of):>12}{f1_of(of) - f1_of(base):+10.1f}"
            f"{seconds_of(of):9.2f}{ratio:6.2f}{median(x.extraction for x in of):9.2f}"
            f"{median(x.n_weights for x in of):9.0f}",
            flush=True,
        )


def table2(found, l2, n_splits):
    sizes = (10, 15, 20, 25)
    for name, task in found.items():
        if task.longest < 10:  # addresses: the paper varies it for references only
            continue
        models = {}
        for m in sizes:
            models["Segment", m] = lambda m=m, task=task: Segment(task, l2, m, full=True)
            models["SegmentOpt", m] = lambda m=m, task=task: Segment(task, l2, m)
        results = compare(task, models, n_splits)
        print(f"\n{name}: L of Segment, m of SegmentOpt")
        print(" " * 20 + "".join(f"{m:>13}" for m in sizes))
        for what, of in (("F1", spread_of), ("seconds", lambda r: f"{seconds_of(r):.2f}")):
            for method in ("Segment", "SegmentOpt"):
                row = "".join(f"{of(results[method, m]):>13}" for m in sizes)
                print(f"{what:<9}{method:<11}{row}", flush=True)


def figure2(found, l2, n_splits):
    shares = (0.1, 0.2, 0.3, 0.4, 0.5)
    for name, task in found.items():
        m = task.longest
        models = {
            "SequenceBCEU": lambda task=task: Sequence(task, l2),
            f"Segment L={m}": lambda task=task, m=m: Segment(task, l2, m, full=True),
            f"SegmentOpt m={m}": lambda task=task, m=m: Segment(task, l2, m),
        }
        of = [compare(task, models, n_splits, share) for share in shares]
        print(f"\n{name}: seconds by share of training data")
        print(" " * 18 + "".join(f"{share:>9.0%}" for share in shares))
        for method in models:
            row = "".join(f"{seconds_of(results[method]):9.2f}" for results in of)
            print(f"{method:<18}{row}", flush=True)


def losses(found, l2, n_splits):
    """Training with each loss on the same features, by turns: F1, seconds, iterations or passes."""
    kinds = ("log", "softmax-margin", "hinge")
    for name, task in found.items():
        print(f"\n{name}: losses")
        for m in (None, task.longest):
            results = {loss: [] for loss in kinds}
            for train, test in task.splits(n_splits):
                seen, new, _ = extract(Segment(task, l2, m).features, task, train, test)
                (_, y), (_, true) = task.part(train), task.part(test)
                for loss in kinds:
                    model = SemiCRFSegmenter(l2=l2, loss=loss, random_state=0)
                    seconds = fit_seconds(model, seen, y)
                    results[loss].append((100 * model.score(new, true), seconds, model.n_iter_))
            base = median(r[1] for r in results["log"])
            for loss, of in results.items():
                f1, seconds, n_iter = zip(*of)
                print(
                    f"m={m or 1:<4}{loss:<16}{mean_and_spread(f1)}{median(seconds):9.3f}"
                    f"{median(seconds) / base:9.2f}    {min(n_iter)} to {max(n_iter)}",
                    flush=True,
                )


def learning_curve(task, l2, n_splits):
    """Number of references trained on -> name of the model -> F1 of each split."""
    scores = {}
    for n in (n for n in SIZES if 2 * n <= len(task.X)):
        scores[n] = of_size = {name: [] for name in CURVES}
        for train, test in task.small_splits(n_splits, n):
            for name, make in CURVES.items():
                model = make(task, l2)
                rows = extract(model.features, task, train, test)
                of_size[name].append(measure(model, rows, task, train, test).f1)
    return scores


def curves(found, l2, n_splits, figure=None):
    """F1 by number of references, of taggers with several settings and of segmenters."""
    drawn = {}
    for name, task in found.items():
        drawn[name] = scores = learning_curve(task, l2, n_splits)
        print(f"\n{name}: F1 by number of references" + "".join(f"{n:>13}" for n in scores))
        for model in CURVES:
            cells = (f"{mean_and_spread(of[model]):>13}" for of in scores.values())
            print(f"{model:<32}" + "".join(cells), flush=True)
        best = [
            max(mean(of[m]) for m in CURVES if m.startswith("tagger")) for of in scores.values()
        ]
        for model in (m for m in CURVES if m.startswith("segmenter")):
            gains = [mean(of[model]) - b for of, b in zip(scores.values(), best)]
            cells = "".join(f"{gain:>+13.1f}" for gain in gains)
            print(f"{model + ' - best tagger':<32}{cells}")
    if figure:
        draw_curves(drawn, figure)


def draw_curves(drawn, path):
    """One panel a data set: mean F1 and its standard error, by number of references."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(len(drawn), 3)
    rows = -(-len(drawn) // columns)
    size = 3.6 * columns, 3.4 * rows
    figure, axes = plt.subplots(rows, columns, figsize=size, sharey=True, squeeze=False)
    axes = axes.ravel()
    for axis, (name, scores) in zip(axes, drawn.items()):
        for model in CURVES:
            f1 = np.array([of[model] for of in scores.values()])
            error = f1.std(axis=1, ddof=min(1, f1.shape[1] - 1)) / f1.shape[1] ** 0.5
            style = "--" if model.startswith("tagger") else "-"
            axis.errorbar(list(scores), f1.mean(axis=1), error, ls=style, label=model, capsize=2)
        axis.set(title=name, xscale="log", xlabel="references with labels")
        axis.set_xticks(list(scores), labels=list(map(str, scores)))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[::columns]:
        axis.set_ylabel("F1 of fields (%)")
    axes[-1].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def defaults(found, l2, n_splits):
    """F1, seconds and calibration error by ``min_count``, penalty and number of sequences."""
    models = {"tagger": lambda: Sequence(None, 0.1, windows(TokenFeatures(), 2)), "defaults": Plain}
    for min_count, penalty in product((1, 2), (0.1, 0.3, 1.0)):
        name = f"min_count={min_count}, l2={penalty}"
        models[name] = partial(Plain, min_count=min_count, l2=penalty)
    for name, task in found.items():
        for n in (n for n in (10, 50, 100, 500) if 2 * n <= len(task.X)):
            results, errors = {kind: [] for kind in models}, {kind: [] for kind in models}
            for train, test in task.small_splits(n_splits, n):
                for kind, make in models.items():
                    model = make()
                    rows = extract(model.features, task, train, test)
                    results[kind].append(measure(model, rows, task, train, test))
                    if kind != "tagger":
                        told = model.model.predict_spans(rows[1])
                        errors[kind].append(calibration_error(told, task.segments(test))[0])
            n_tokens = sum(len(task.X[s]) for s in train)
            print(f"\n{name}: {n} sequences, {n_tokens} tokens in the last split")
            for kind, of in results.items():
                error = f"{mean(errors[kind]):9.3f}" if errors[kind] else ""
                print(f"{kind:<20}{spread_of(of):>14}{seconds_of(of):9.3f}{error}", flush=True)


def calibration(found, l2, n_splits):
    """Expected calibration error of predicted segments, and how many with 0.4 to 0.6 are right."""
    for name, task in found.items():
        print(f"\n{name}: calibration error (accuracy where the probability is 0.4 to 0.6)")
        for n in (n for n in CALIBRATED if 2 * n <= len(task.X)):
            for penalty in (0.1, 1.0):
                for loss in ("log", "softmax-margin"):
                    parts = {None: [], 5: []}
                    for train, test in task.splits(n_splits, n):
                        seen, new, _ = extract(Boundary(task, l2, 10).features, task, train, test)
                        for folds, errors in parts.items():
                            model = SemiCRFSegmenter(l2=penalty, loss=loss, calibrate=folds)
                            told = model.fit(seen, task.part(train)[1]).predict_spans(new)
                            errors.append(calibration_error(told, task.segments(test)))
                    cells = "".join(
                        f"{mean(e for e, _ in of):10.3f} ({mean(m for _, m in of):.2f})"
                        for of in parts.values()
                    )
                    print(f"{n:>5} references, l2={penalty:<5}{loss:<16}{cells}", flush=True)


def temperatures(found, l2, n_splits):
    """Calibration error with the defaults of both classes, by ways to calibrate; seconds."""
    ways = (None, "loo", 3)
    for name, task in found.items():
        for n in (n for n in (10, 50, 100, 200, 500) if 2 * n <= len(task.X)):
            if (n < 100 or n == 200) if name in NOT_REFERENCES else n > 200:
                continue
            results = {way: [] for way in ways}
            for train, test in task.small_splits(n_splits, n):
                seen, new, _ = extract(SegmentFeatures(), task, train, test)
                for way in ways:
                    model = SemiCRFSegmenter(calibrate=way)
                    seconds = fit_seconds(model, seen, task.part(train)[1])
                    told = model.predict_spans(new)
                    results[way].append((calibration_error(told, task.segments(test))[0], seconds))
            base = median(seconds for _, seconds in results[None])
            cells = (
                f"{mean(e for e, _ in of):10.3f} ({median(t for _, t in of) / base:.2f})"
                for of in results.values()
            )
            print(f"{name:<18}{n:>5}{base:9.3f}" + "".join(cells), flush=True)


def rerank(found, l2, n_splits):
    """The segmenter against the choice among its 25 best, by turns: F1, seconds, errors."""
    for name, task in found.items():
        results = {"segmenter": [], "reranked": []}
        for train, test in task.splits(n_splits):
            boundary = Boundary(task, l2, 10, "softmax-margin")
            base = make_pipeline(boundary.features, boundary.model)
            X_test, truth = task.part(test)[0], task.segments(test)
            for kind, model in zip(results, (base, SegmentReranker(base))):
                seconds = fit_seconds(model, *task.part(train))
                began = process_time()
                told = spans(model, X_test)
                took = process_time() - began
                f1 = 100 * span_f1(truth, [[span[:3] for span in one] for one in told])
                results[kind].append((f1, seconds, took, calibration_error(told, truth)[0]))
        print(f"\n{name}{'F1':>26}{'fit':>9}{'predict':>9}{'error':>9}")
        for kind, of in results.items():
            f1, *others = zip(*of)
            cells = "".join(f"{median(x):9.3f}" for x in others)
            print(f"{kind:<18}{mean_and_spread(f1):>14}{cells}", flush=True)


def nested(found, l2, n_splits):
    """The reranked segmenter; folds of the training references choose its context and whether it
    has transition features."""
    for name, task in found.items():
        f1 = []
        for train, test in task.splits(n_splits):
            X, y = task.part(train)
            scores, models = {}, {}
            for around, pairs in product(CONTEXTS, (None, PAIRS)):
                boundary = Boundary(task, l2, 10, "softmax-margin", pairs, around)
                seen = boundary.features.fit_transform(X)
                folds = KFold(3, shuffle=True, random_state=0)
                one = around, pairs is not None
                scores[one] = cross_val_score(boundary.model, seen, y, cv=folds).mean()
                models[one] = make_pipeline(boundary.features, boundary.model)
            best = max(scores, key=scores.get)
            model = SegmentReranker(models[best]).fit(X, y)
            f1.append(100 * model.score(*task.part(test)))
            print(f"{name}: context, transition features {best}, F1 {f1[-1]:.2f}", flush=True)
        print(f"{name:<18}{mean_and_spread(f1)}", flush=True)


def unknown(found, l2, n_splits):
    """F1 where only some fields of the training references are known."""
    for name, task in found.items():
        print(f"\n{name}: unknown segments, runs of known fields only, unknown fields outside, all")
        for share in (0.5, 0.1):
            f1, rng = [], np.random.default_rng(0)
            for train, test in task.splits(n_splits):
                (X, _), true = task.part(train), task.segments(train)
                some = [hide(segments, share, rng) for segments in true]
                known = [[s for s in segments if s[2] is not None] for segments in some]
                ways = (X, some), known_runs(X, some), (X, known), (X, true)
                new = task.part(test)
                f1.append([100 * boundary_model(task, l2).fit(*way).score(*new) for way in ways])
            cells = "".join(f"{mean_and_spread(of):>14}" for of in zip(*f1))
            print(f"{share:<6.0%}{cells}", flush=True)


def boundary_model(task, l2):
    boundary = Boundary(task, l2, None)
    return make_pipeline(boundary.features, boundary.model)


def hide(segments, share, rng):
    """Each segment with probability ``share``; others become stretches, which join if they touch:
    their borders are unknown too."""
    some = []
    for start, stop, type_ in segments:
        if rng.random() < share:
            some.append((start, stop, type_))
        elif some and some[-1][1:] == (start, None):
            some[-1] = some[-1][0], stop, None
        else:
            some.append((start, stop, None))
    return some


def known_runs(X, y):
    """What lies between unknown stretches, as sequences of their own."""
    runs, segments = [], []
    for x, some in zip(X, y):
        edges = [0, *chain.from_iterable(s[:2] for s in some if s[2] is None), len(x)]
        for a, b in zip(edges[::2], edges[1::2]):
            if a < b:
                runs.append(x[a:b])
                segments.append([(s[0] - a, s[1] - a, s[2]) for s in some if a <= s[0] < b])
    return runs, segments


def calibration_error(predicted, true):
    """(expected calibration error, fraction right of those of about one half)."""
    pairs = [
        (span.probability, tuple(span[:3]) in segments)
        for one, segments in zip(predicted, true)
        for span in one
    ]
    proba, right = np.reshape(pairs, (-1, 2)).T
    bins = np.minimum((proba * 10).astype(int), 9)
    middle = right[abs(proba - 0.5) < 0.1]
    error = np.abs(np.bincount(bins, proba - right)).sum() / max(len(proba), 1)
    return error, middle.mean() if len(middle) else np.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["table1", "table2", "figure2"])
    parser.add_argument("--quick", action="store_true", help="a third of the data, one split")
    names = "cora, cora-journals, anystyle, us50, umass, parscit; if named: "
    names += ", ".join(NOT_REFERENCES)
    parser.add_argument("--data", nargs="*", help=names)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--figure", help="file of the picture of curves")
    parser.add_argument("--l2", type=float, default=0.1)
    arguments = parser.parse_args()
    n_splits = 1 if arguments.quick else arguments.splits
    parts = (table1, table2, figure2, boundary, context, losses, curves, calibration, rerank)
    parts += (nested, unknown, defaults, temperatures)
    programs = {part.__name__: part for part in parts}
    programs["curves"] = partial(curves, figure=arguments.figure)
    with TemporaryDirectory() as scratch:
        found = tasks(arguments.data, arguments.quick, Path(scratch))
        for part in arguments.parts:
            print(f"\n{part}")
            programs[part](found, arguments.l2, n_splits)


if __name__ == "__main__":
    main()
