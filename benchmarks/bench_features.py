"""Feature extraction and deployment beside what users copy today; prints Markdown tables.

* the tutorial of sklearn-crfsuite on CoNLL-2002 Spanish, raw tokens to labels;
* extraction at 30 attributes a token, beside a hand-written Python function and its dicts;
* look-ups in a lexicon of 100,000 entries, beside a search in a Python dict of tuples;
* a fresh process that loads a model and tags one sentence, beside importing scikit-learn's base
  module and loading the arrays.

Runs alternate (A B A B ...); medians. Data: SKLSEQ_DATA, a folder that holds `conll2002/` and
`conll2000/`, else generated documents. Needs sklearn-crfsuite. "ratio" above 1: sklseq is better.
"""

import argparse
import gc
import pickle
import subprocess
import sys
import tempfile
import tracemalloc
import warnings
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from _common import by_turns, header, row, tutorial_items
from _corpora import tagged_or_generated
from sklearn.pipeline import FeatureUnion, make_pipeline

from sklseq import CRFTagger
from sklseq.features import LexiconFeatures, TemplateFeatures, TokenFeatures, WindowFeatures
from sklseq.metrics import span_f1, token_accuracy

C1, C2, ITERATIONS = 0.1, 0.1, 100  # of the tutorial


def f1(y, predicted):
    try:
        return span_f1(y, predicted)
    except ValueError:  # generated labels are no spans
        return token_accuracy(y, predicted)


def n_tokens(X):
    return sum(len(x["w"]) for x in X)


def medians(rounds, *sides):
    """Median seconds of each side, run in turn."""
    return np.median(by_turns(sides, rounds, perf_counter), axis=0)


# --- The tutorial: features as a Python function, dicts, sklearn-crfsuite ---------------------


def tutorial(X, y, X_test):
    """Labels of the test set."""
    import sklearn_crfsuite

    items, items_test = ([tutorial_items(x["w"], x["pos"]) for x in part] for part in (X, X_test))
    model = sklearn_crfsuite.CRF(
        algorithm="lbfgs", c1=C1, c2=C2, max_iterations=ITERATIONS, all_possible_transitions=True
    )
    return model.fit(items, y).predict(items_test)


# --- The same as a pipeline ---------------------------------------------------------------------

OFF = dict(word=False, lower=False, shape=False, short_shape=False, prefixes=0, suffixes=0,
           flags=False, length=False)  # fmt: skip


def tutorial_features(tags=True):
    """The tutorial's attributes exactly: suffixes and digits of the token itself only."""
    words = TokenFeatures(columns="w", **OFF | {"lower": True, "flags": ["upper", "title"]})
    own = TokenFeatures(columns="w", **OFF | {"suffixes": [2, 3], "flags": ["digit"]})
    near = [("w", words)]
    if tags:
        of_tags = TokenFeatures(columns="pos", **OFF | {"word": True, "prefixes": [2]})
        near.append(("p", of_tags))
    both = FeatureUnion(near, verbose_feature_names_out=False)
    window = WindowFeatures(both, before=1, after=1, bias=True)
    return FeatureUnion([("window", window), ("own", own)], verbose_feature_names_out=False)


# Name, settings: as a user types it; and as many iterations as theirs of the same kind of solver.
OURS = [
    ("lbfgs, 1 thread", {"solver": "lbfgs", "tol": 1e-5}),
    ("lbfgs, 2 threads", {"solver": "lbfgs", "tol": 1e-5, "n_jobs": 2}),
    ("defaults", {}),
]


def ours(X, y, X_test, settings):
    """Labels of the test set, and the objective."""
    # boundaries=False: exactly the transitions of CRFsuite.
    tagger = CRFTagger(
        l1=C1, l2=C2, max_iter=ITERATIONS, all_possible_transitions=True, boundaries=False,
        **settings,
    )  # fmt: skip
    model = make_pipeline(tutorial_features(), tagger).fit(X, y)
    return model.predict(X_test), tagger.objective_


def timed(work, *arguments):
    """(seconds, processor time, what it returns)."""
    began, worked = perf_counter(), process_time()
    answer = work(*arguments)
    return perf_counter() - began, process_time() - worked, answer


def bench_tutorial(rounds, n_sentences):
    X, y, X_test, y_test = tagged_or_generated("conll2002", n_sentences)
    theirs, mine = [], [[] for _ in OURS]
    for k in range(rounds):
        *times, labels = timed(tutorial, X, y, X_test)
        theirs.append((*times, f1(y_test, labels)))
        for (_, settings), results in zip(OURS, mine):
            seeded = settings | {"random_state": k}
            *times, (labels, objective) = timed(ours, X, y, X_test, seeded)
            results.append((*times, f1(y_test, labels), objective))
    t, busy, score = np.median(theirs, axis=0)
    print(f"\nTutorial, {len(X)} sequences, {n_tokens(X)} tokens; c1 = {C1}, c2 = {C2}\n")
    print("Medians; the seed of each round is another.\n")
    header("", "seconds, fit + predict", "ratio", "processor time", "ratio", "F1", "least F1",
           "objective")  # fmt: skip
    row("sklearn-crfsuite, tutorial", f"{t:.2f}", 1, f"{busy:.2f}", 1, f"{score:.4f}", "", "")
    for (name, _), results in zip(OURS, mine):
        seconds, work, score, objective = np.median(results, axis=0)
        least = min(f1 for *_, f1, _ in results)
        row(
            f"sklseq, {name}", f"{seconds:.2f}", f"{t / seconds:.1f}", f"{work:.2f}",
            f"{busy / work:.1f}", f"{score:.4f}", f"{least:.4f}", f"{objective:.0f}",
        )  # fmt: skip


# --- Extraction alone ---------------------------------------------------------------------------


def function_of_30(words, t):
    """30 attributes of a token and its neighbours, by hand."""
    item = {}
    for d in (-1, 0, 1):
        if not 0 <= t + d < len(words):
            continue
        word, p = words[t + d], f"{d}:"
        item[p + "word"], item[p + "lower"] = word, word.lower()
        for n in (1, 2, 3):
            item[f"{p}prefix{n}"], item[f"{p}suffix{n}"] = word[:n], word[-n:]
        item[p + "title"], item[p + "upper"] = word.istitle(), word.isupper()
    return item


def thirty():
    """The same 30 attributes; flags count where they are true."""
    tokens = OFF | {"word": True, "lower": True, "prefixes": 3, "suffixes": 3, "length": True,
                    "shape": True}  # fmt: skip
    return WindowFeatures(TokenFeatures(columns="w", **tokens), bos_eos=False)


def memory_of(make):
    """Bytes that Python allocates for what ``make`` returns."""
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size, made


def bench_extraction(rounds, n_sentences):
    X, _, _, _ = tagged_or_generated("conll2002", n_sentences)
    n, features = n_tokens(X), thirty()
    per_token = features.fit_transform(X).rows.nnz / n

    def by_hand():
        return [[function_of_30(x["w"], t) for t in range(len(x["w"]))] for x in X]

    hashed = WindowFeatures(features.extractor, bos_eos=False, n_features=2**20)
    works = {
        "function and dicts": by_hand,
        "fit_transform": lambda: features.fit_transform(X),
        "transform": lambda: features.transform(X),
        "fit_transform, hashed": lambda: hashed.fit_transform(X),
    }
    times = medians(rounds, *works.values())
    print(f"\nExtraction, {n} tokens, {per_token:.1f} attributes a token, one thread\n")
    header("", "tokens/s", "ratio")
    for name, seconds in zip(works, times):
        row(name, f"{n / seconds:,.0f}", f"{times[0] / seconds:.1f}")
    ours, rows = memory_of(lambda: thirty().fit_transform(X))
    dicts, _ = memory_of(by_hand)
    csr = sum(a.nbytes for a in (rows.rows.indices, rows.rows.indptr))
    print(
        f"\nMemory of the set: dicts {dicts / 1e6:.0f} MB, ours {ours / 1e6:.1f} MB (CSR "
        f"{csr / 1e6:.1f} MB): 1/{dicts / ours:.0f}"
    )


# --- Lexicon ------------------------------------------------------------------------------------


def longest_by_hand(words, entries, longest):
    """Length of the longest entry from each token, by tuples in a set."""
    folded = [word.casefold() for word in words]
    return [
        next((n for n in range(longest, 0, -1) if tuple(folded[t : t + n]) in entries), 0)
        for t in range(len(folded))
    ]


def bench_lexicon(rounds, n_sentences):
    X, _, _, _ = tagged_or_generated("conll2002", n_sentences)
    rng = np.random.default_rng(0)
    words = sorted({word for x in X for word in x["w"]}) + [f"unseen{i}" for i in range(50_000)]
    lengths = rng.integers(1, 5, size=100_000)
    numbers = [rng.integers(len(words), size=n).tolist() for n in lengths]
    entries = {tuple(words[i] for i in entry) for entry in numbers}
    began = perf_counter()
    features = LexiconFeatures({"x": [list(e) for e in sorted(entries)]}, columns="w").fit(X)
    built = perf_counter() - began
    folded = {tuple(word.casefold() for word in entry) for entry in entries}
    mine, hand = medians(
        rounds,
        lambda: features.transform(X),
        lambda: [longest_by_hand(x["w"], folded, 4) for x in X],
    )
    n = n_tokens(X)
    print(f"\nLexicon of {len(entries)} entries (fit {built:.2f} s)\n")
    header("", "tokens/s", "ratio")
    row("tuples in a set", f"{n / hand:,.0f}", 1)
    row("LexiconFeatures", f"{n / mine:,.0f}", f"{hand / mine:.1f}")


# --- A fresh process ----------------------------------------------------------------------------

ARRAYS = """
import sklearn.base, numpy as np
with np.load("model.npz") as arrays:
    loaded = {name: arrays[name] for name in arrays}
"""
TAG = """
import pickle
model = pickle.load(open("model.pkl", "rb"))
print(model.predict([pickle.load(open("x.pkl", "rb"))])[0][:3])
"""


def bench_process(rounds, n_sentences):
    X, y, _, _ = tagged_or_generated("conll2000", n_sentences)
    templates = TemplateFeatures(columns=["w", "pos"])
    with tempfile.TemporaryDirectory() as folder:
        model = make_pipeline(templates, CRFTagger(l1=0.5, l2=0.1, max_iter=40)).fit(X, y)
        size = len(pickle.dumps(model))
        tagger = model[-1]
        names = ("coef_", "transition_", "start_", "end_", "classes_")
        np.savez(Path(folder) / "model.npz", **{name: getattr(tagger, name) for name in names})

        def run(code):
            subprocess.run(
                [sys.executable, "-c", code], cwd=folder, check=True, stdout=subprocess.DEVNULL
            )

        print("\nFresh process, first sentence of CoNLL-2000\n")
        header("", "seconds", "ratio of times")
        for form in ("dense", "sparse"):
            if form == "sparse":
                tagger.sparsify()
                size = len(pickle.dumps(model))
            (Path(folder) / "model.pkl").write_bytes(pickle.dumps(model, protocol=5))
            (Path(folder) / "x.pkl").write_bytes(pickle.dumps(X[0]))
            base, ours = medians(max(rounds, 9), lambda: run(ARRAYS), lambda: run(TAG))
            if form == "dense":
                row("sklearn.base and the arrays", f"{base:.3f}", 1)
            what = f"unpickle ({form}, {size / 1e6:.1f} MB) and tag"
            row(what, f"{ours:.3f}", f"{ours / base:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=None, help="of each part")
    parser.add_argument("--only", choices=["tutorial", "extraction", "lexicon", "process"])
    arguments = parser.parse_args()
    benches = {"extraction": bench_extraction, "lexicon": bench_lexicon, "process": bench_process,
               "tutorial": bench_tutorial}  # fmt: skip
    for name, bench in benches.items():
        if arguments.only in (None, name):
            bench(arguments.rounds, arguments.sentences)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
