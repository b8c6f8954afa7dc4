"""The z-score's figures: the paper's two tables and its figure, and CoNLL-2000 beside the CRF.

    python benchmarks/bench_zscore.py [table1] [figure1] [table2] [weights] [search] [kappa]
        [separate] [refine] [kernels] [chunking] [warm]

Ricci, De Bie, Cristianini (2007), §6. Columns MM, MM(H) and perceptron are HMSVMTagger's.
Real data is found through SKLSEQ_DATA (`conll2000/`, `conll2002/`, `ocr-letters/`, ...);
parts without their data say so.
Within a part, models take turns in one process. Errors are shares of labels, in percent.
"""

import argparse
import warnings
from functools import partial
from statistics import mean, median
from time import perf_counter

import numpy as np
from _common import (
    by_turns,
    each_with_data,
    header,
    need,
    row,
    shape_features,
    window_features,
)
from _corpora import corpus, dense_letters, tagged
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from threadpoolctl import threadpool_limits

from sklseq import CRFTagger, HMSVMTagger, ZScoreTagger, ZScoreTaggerCV
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.inference import forward_backward, viterbi
from sklseq.metrics import span_f1, token_accuracy
from sklseq.objectives.likelihood.likelihood import LogLikelihood

warnings.simplefilter("ignore", ConvergenceWarning)


# --- Data ---------------------------------------------------------------------------------------


class HiddenMarkov:
    """A random hidden Markov model that starts anywhere.

    ``balanced`` models change from i to j as often as from j to i, so that states are equally
    frequent; of others, rows of the transition matrix are drawn one by one. Rows of A and E are
    Dirichlet with the concentrations ``of_A`` and ``of_E``.
    """

    def __init__(self, rng, n_states, n_symbols, *, of_A=1.0, of_E=1.0, balanced=False):
        self.rng, shape = rng, (n_states, n_symbols)
        self.A = rng.dirichlet(np.full(n_states, of_A), n_states)
        while balanced and np.abs(self.A - self.A.T).max() > 1e-9:  # to doubly stochastic
            self.A = self.A + self.A.T
            for _ in range(200):
                self.A /= np.sqrt(self.A.sum(axis=1)[:, None] * self.A.sum(axis=0))
        self.E = rng.dirichlet(np.full(n_symbols, of_E), n_states)
        self.eye = np.eye(shape[1])

    def draw(self, n, length):
        """n labelled sequences, symbols one-hot."""
        y = np.zeros((n, length), dtype=int)
        y[:, 0] = self.rng.integers(len(self.A), size=n)
        for t in range(1, length):
            y[:, t] = _choose(self.rng, self.A[y[:, t - 1]])
        symbols = _choose(self.rng, self.E[y.ravel()])
        return list(self.eye[symbols].reshape(n, length, -1)), list(y)

    def draw_all_states(self, n, length):
        """The same, until every state has occurred."""
        X, y = self.draw(n, length)
        while len(np.unique(y)) < len(self.A):
            X, y = self.draw(n, length)
        return X, y

    def least_error(self, X, y):
        """Error in percent of who knows the model and gives each row its likeliest label."""
        with np.errstate(divide="ignore"):
            emission, transition = np.concatenate(X) @ np.log(self.E.T + 1e-300), np.log(self.A)
        offsets = np.cumsum([0, *map(len, y)])
        mu = forward_backward(emission, transition, offsets).marginals
        return 100 * np.mean(mu.argmax(axis=1) != np.concatenate(y))


def _choose(rng, shares):
    return (
        (rng.random((len(shares), 1)) > shares.cumsum(axis=1))
        .sum(axis=1)
        .clip(max=shares.shape[1] - 1)
    )


def of_paper(**options):
    """A tagger with the transitions of the paper."""
    return ZScoreTagger(transitions="covariance", **options)


# --- Measuring ----------------------------------------------------------------------------------


def measure(model, train, test):
    """(error in percent, seconds of fit)."""
    began = perf_counter()
    model.fit(*train)
    seconds = perf_counter() - began
    return 100 * (1 - model.score(*test)), seconds


# --- Table 1 ------------------------------------------------------------------------------------

PAPER_TABLE_1 = {3: (15.82, 15.91, 15.81), 5: (10.10, 10.13, 10.02), 7: (7.49, 7.58, 7.22),
                 9: (4.99, 4.99, 4.94), 11: (4.74, 4.78, 4.58)}  # fmt: skip


FAMILIES = {  # of random models
    "any states": {"of_A": 0.5, "of_E": 0.5},
    "equally frequent states": {"of_A": 0.5, "of_E": 0.5, "balanced": True},
    "equally frequent states, nearly independent": {"of_A": 50, "of_E": 0.5, "balanced": True},
}


def table1(runs):
    """2 states, 3 to 11 symbols, length 100, 50 sequences to train and 100 to test.

    The paper does not say how its models were drawn, and their own error decides everything. So
    models are drawn until somebody who knows them would err as often as the paper's MM(H), within
    a tenth. It matters too how frequent states are and how much they depend on each other, as the
    z-score compares with labels that are uniform and independent: three tables.
    """
    models = {
        "z": of_paper(loss=None, l2=0.0),
        "z(100)": of_paper(loss=None, l2=0.0, moments="sampling", n_paths=100, random_state=0),
        "z(H)": of_paper(l2=0.0),
        "z(H, 100)": of_paper(l2=0.0, moments="sampling", n_paths=100, random_state=0),
        "MM(H)": HMSVMTagger(loss="hamming"),
        "CRF": CRFTagger(l2=0.1),
    }
    for family, options in FAMILIES.items():
        print(f"\n### Table 1: {runs} random models a row, {family}; error % (ms)\n")
        paper, gaps = "paper: z, z(100), MM(H)", ("z minus z(100)", "z(H) minus z(H, 100)")
        header("n_o", "least error", *models, paper, *(f"{gap}, ± s.e." for gap in gaps))
        for n_o, errors in PAPER_TABLE_1.items():
            table1_row(models, n_o, errors, runs, options)


def table1_row(models, n_o, paper, runs, options):
    rng, found, least = np.random.default_rng(n_o), {name: [] for name in models}, []
    while len(least) < runs:
        model = HiddenMarkov(rng, 2, n_o, **options)
        if abs(model.least_error(*model.draw(50, 100)) / paper[2] - 1) > 0.1:
            continue
        train, test = model.draw_all_states(50, 100), model.draw(100, 100)
        least.append(model.least_error(*test))
        for name, tagger in models.items():
            found[name].append(measure(tagger, train, test))
    row(
        n_o, f"{mean(least):.2f}", *errors_and_times(found), ", ".join(map(str, paper)),
        difference(found["z"], found["z(100)"]), difference(found["z(H)"], found["z(H, 100)"]),
    )  # fmt: skip


def errors_and_times(found, *, unit=1e3, digits=0):
    return [
        f"{mean(e for e, _ in f):.2f} ({unit * median(t for _, t in f):.{digits}f})"
        for f in found.values()
    ]


def difference(one, other):
    gap = [a[0] - b[0] for a, b in zip(one, other)]
    return f"{mean(gap):+.3f} ± {np.std(gap) / np.sqrt(len(gap)):.3f}"


# --- Figure 1 -----------------------------------------------------------------------------------


def figure1(runs):
    """3 states, 4 symbols, length 10: error and time against the size of the training set.

    C of MM and MM(H) are the paper's, its 100 rounds of the perceptron too.
    """
    models = {
        "z": of_paper(loss=None, l2=0.0),
        "z(H)": of_paper(l2=0.0),
        "CRF": CRFTagger(l2=0.1),
        "MM": HMSVMTagger(C=0.1, loss="zero_one"),
        "MM(H)": HMSVMTagger(C=1.0, loss="hamming"),
        "perceptron": HMSVMTagger(solver="perceptron", max_iter=100),
    }
    for balanced in (True, False):
        kind = "equally frequent states" if balanced else "states of any frequency"
        print(f"\n### Figure 1: {runs} random models a row, {kind}; error % (ms)\n")
        header("sequences", "least error", *models)
        for size in (5, 10, 20, 50, 100, 200):
            found, least = {name: [] for name in models}, []
            for run in range(runs):  # the same models for every size
                model = HiddenMarkov(np.random.default_rng(run), 3, 4, balanced=balanced)
                train, test = model.draw_all_states(size, 10), model.draw(100, 10)
                least.append(model.least_error(*test))
                for name, tagger in models.items():
                    found[name].append(measure(tagger, train, test))
            row(size, f"{mean(least):.2f}", *errors_and_times(found, digits=1))


# --- Table 2 ------------------------------------------------------------------------------------

PAPER_TABLE_2 = {
    "S1": (11.66, 11.07, 13.94, 10.97, 20.99, 12.01),
    "S2": (8.01, 7.89, 9.04, 8.11, 13.78, 8.29),
}


def spanish_features(words, kind):
    """Attributes of one sentence. "words": the word alone; S1: with its spelling; S2: S1 of the
    previous, this and the next word."""
    own = [[f"w={w.lower()}"] if kind == "words" else shape_features(w) for w in words]
    return window_features(own) if kind == "S2" else own


RIDGES = {"l2": [0.001, 0.01, 0.03, 0.1, 0.3, 1.0]}
COSTS = {"C": [0.01, 0.1, 1.0]}
TABLE_2 = {  # column: model, what an inner split decides
    "z": (of_paper(loss=None), RIDGES),
    "z(H)": (of_paper(loss="hamming"), RIDGES),
    "MM": (HMSVMTagger(loss="zero_one"), COSTS),
    "MM(H)": (HMSVMTagger(loss="hamming"), COSTS),
    "perceptron": (HMSVMTagger(solver="perceptron"), {"max_iter": [5, 20, 100]}),
    "CRF": (CRFTagger(), RIDGES),
    "z(H), l2=0": (of_paper(l2=0.0), {}),
    "z(H), iob2": (of_paper(constraints="iob2", constrained="training"), RIDGES),
    "z(H, 150 paths)": (
        of_paper(moments="sampling", n_paths=150, random_state=0),
        {"l2": [0.03, 0.1, 0.3]},
    ),
}


def chosen_by_inner_split(model, grid, A, y, n_jobs):
    """The model with the parameters of least error on a quarter of the training sequences."""
    cut = len(y) * 3 // 4
    best = clone(model).set_params(n_jobs=n_jobs)
    choices = [{name: value} for name, values in grid.items() for value in values]
    if choices:
        tried = [clone(best).set_params(**choice).fit(A[:cut], y[:cut]) for choice in choices]
        right = [tagger.score(A[cut:], y[cut:]) for tagger in tried]
        best.set_params(**choices[int(np.argmax(right))])
    return best


def table2(n_jobs):
    """300 Spanish sentences, 5 folds; every column's parameter from an inner split of the fold."""
    print("\n### Table 2: 300 sentences of CoNLL-2002 Spanish, 5 folds; error % (s of a fit)\n")
    columns, y = tagged("conll2002", "train")
    chosen = [s for s, labels in enumerate(y) if len(labels) >= 10][:300]
    y = [y[s] for s in chosen]
    flat = np.concatenate(y)
    print(f"{len(flat)} tokens, {len(flat) / 300:.0f} a sentence, {len(set(flat))} labels")
    print(f"all O: {100 * np.mean(flat != 'O'):.2f} %\n")
    header("features", "attributes", *TABLE_2, "paper: z, z(H), MM, MM(H), HMP, CRF")
    for kind in ("words", "S1", "S2"):
        X = [spanish_features(columns[s]["w"], kind) for s in chosen]
        found = {name: [] for name in TABLE_2}
        for train, test in KFold(5, shuffle=True, random_state=0).split(X):
            vectorizer = DictFeatures()
            A = vectorizer.fit_transform([X[s] for s in train])
            B = vectorizer.transform([X[s] for s in test])
            known, wanted = [y[s] for s in train], np.concatenate([y[s] for s in test])
            for name, (model, grid) in TABLE_2.items():
                best = chosen_by_inner_split(model, grid, A, known, n_jobs)
                began = perf_counter()
                best.fit(A, known)
                seconds = perf_counter() - began
                wrong = np.concatenate(best.predict(B)) != wanted
                found[name].append((100 * np.mean(wrong), seconds))
        cells = errors_and_times(found, unit=1, digits=2)
        row(kind, A.shape[1], *cells, ", ".join(map(str, PAPER_TABLE_2.get(kind, ("-",)))))


# --- Ridge and transition weight ----------------------------------------------------------------

SAMPLES = {  # sequences, of which a quarter is held out
    "ocr-letters": 6_000, "protein-cb513": 400, "ud-english-ewt": 4_000, "conll2000": 4_000,
    "conll2002": 4_000,
}  # fmt: skip


def weights(n_jobs):
    """Held-out quality of ZScoreTagger with both kinds of transitions, and of ZScoreTaggerCV."""
    print("\n### Transitions, their weight, and the ridge (processor seconds)\n")
    header("data", "model", "l2", "transitions_", "transition_weight_", "accuracy %", "span F1",
           "search, s", "fit, s")  # fmt: skip
    each_with_data(weights_of, SAMPLES, n_jobs)


def weights_of(name, n_jobs):
    X, known, Z, wanted = divided(name)
    spans = has_spans(known)
    for label, model in weighed_models(spans, n_jobs).items():
        searched, model = searched_model(model, X, known)
        spent, found = processor_seconds(model, X, known), model.predict(Z)
        cells = 100 * token_accuracy(wanted, found), spans and 100 * span_f1(wanted, found)
        numbers = (f"{c:.2f}" for c in (model.transition_weight_, *cells, searched, spent))
        row(name, label, f"{model.l2_:.3g}", model.transitions_, *numbers)


def divided(name):
    """(X, y, X, y): three quarters of a sample of a corpus to train on, the others to test."""
    X, y = corpus(name)
    order = np.random.default_rng(0).permutation(len(y))[: SAMPLES[name]]
    train, test = np.split(order, [SAMPLES[name] * 3 // 4])
    return X[train], [y[s] for s in train], X[test], [y[s] for s in test]


def has_spans(y):
    return any(label.startswith("B-") for labels in y for label in labels)


def processor_seconds(model, *data):
    return by_turns([partial(model.fit, *data)], 1).item()


def weighed_models(spans, n_jobs):
    split = ShuffleSplit(1, test_size=0.25, random_state=0)
    search = {"l2s": [0.03, 0.1, 0.3, 1.0, 3.0], "cv": split, "n_jobs": n_jobs}
    search["scoring"] = "span_f1" if spans else "token_accuracy"
    kinds = ("covariance", "information")
    models = {f"{k}, l2={l2}": ZScoreTagger(l2=l2, transitions=k, n_jobs=n_jobs)
              for k in ("auto", *kinds) for l2 in (1.0, 0.1, None)}  # fmt: skip
    models |= {f"{k}, chosen": ZScoreTaggerCV(transitions=k, **search) for k in kinds}
    if spans:
        models |= {
            f"{k}, chosen, iob2": ZScoreTaggerCV(transitions=k, constraints="iob2", **search)
            for k in kinds
        }
    return models


def searched_model(model, X, y):
    """(processor seconds of the search, the tagger that it chooses)."""
    if not isinstance(model, ZScoreTaggerCV):
        return 0.0, model
    spent, names = processor_seconds(model, X, y), ("transitions", "constraints", "n_jobs")
    chosen = {name: getattr(model, name) for name in names}
    return spent, ZScoreTagger(l2=model.l2_, transition_weight=model.transition_weight_, **chosen)


SEARCHED = {"conll2002": 1_000, "ud-english-ewt": 1_000, "ocr-letters": 1_500}  # sequences


def search(n_jobs):
    """ZScoreTaggerCV beside GridSearchCV: the same grid of 3 x 5, five folds, token accuracy."""
    grid = {"l2": [0.1, 0.3, 1.0], "transition_weight": [0.03, 0.05, 0.07, 0.1, 0.15]}
    folds = {"cv": KFold(5, shuffle=True, random_state=0)}
    print("\n### ZScoreTaggerCV and GridSearchCV, 3 x 5 values, 5 folds (processor seconds)\n")
    header("data", "ZScoreTaggerCV", "GridSearchCV", "ratio", "chosen", "by the grid")
    own = ZScoreTaggerCV(
        l2s=grid["l2"], transition_weights=grid["transition_weight"], n_jobs=n_jobs, **folds
    )
    by_grid = GridSearchCV(ZScoreTagger(transitions="information", n_jobs=n_jobs), grid, **folds)

    def compare(name):
        X, y = corpus(name, SEARCHED[name])
        (times,) = by_turns([partial(model.fit, X, y) for model in (own, by_grid)], 1)
        ratio, chosen = times[1] / times[0], f"{own.l2_:g}, {own.transition_weight_:g}"
        best = ", ".join(f"{value:g}" for value in by_grid.best_params_.values())
        row(name, *(f"{t:.2f}" for t in times), f"{ratio:.1f}", chosen, best)

    each_with_data(compare, SEARCHED)


def kappa(n_jobs):
    """The default transition weight, by folds of the training sequences that weights() has."""
    kappas = [0.03, 0.05, 0.07, 0.1, 0.15]
    print("\n### Weight of transitions='information', by folds of the training sequences; %\n")
    header("data", *kappas)
    options = {"l2s": [0.1, 0.3, 1.0], "cv": KFold(3, shuffle=True, random_state=0)}

    def score(name):
        X, y, *_ = divided(name)
        options["scoring"] = "span_f1" if has_spans(y) else "token_accuracy"
        search = ZScoreTaggerCV(transition_weights=kappas, n_jobs=n_jobs, **options)
        scores = search.fit(X, y).cv_scores_.max(axis=0)
        row(name, *(f"{100 * score:.2f}" for score in scores))

    each_with_data(score, SAMPLES)


# --- Every training sequence decoded right ------------------------------------------------------


def separate(n_jobs):
    """Fits with a constraint for each training sequence that is decoded wrongly."""
    print("\n### separate=True: random separable problems, least of three processor times\n")
    header("sequences", "columns", "plain, ms", "separate, ms", "ratio", "constraints")
    for seed, n, n_columns in ((0, 100, 60), (1, 200, 120), (2, 400, 300), (3, 200, 60)):
        X, y = separable(np.random.default_rng(seed), n, n_columns)
        models = [of_paper(l2=0.01, separate=way, n_jobs=n_jobs) for way in (False, True)]
        times = by_turns([partial(model.fit, X, y) for model in models], 3)
        plain, separated = 1e3 * times.min(axis=0)
        ratio, n_constraints = f"{separated / plain:.1f}", models[1].n_constraints_
        row(n, n_columns, f"{plain:.1f}", f"{separated:.0f}", ratio, n_constraints)


def separable(rng, n, n_columns):
    """Normal rows, and the labels that random weights give them."""
    X = [rng.normal(size=(10, n_columns)) for _ in range(n)]
    weights = rng.normal(size=(n_columns, 4)), 2 * rng.normal(size=(4, 4))
    return X, [viterbi(x @ weights[0], weights[1])[0] for x in X]


# --- Iterations from the z-score ----------------------------------------------------------------

REFINED = {"conll2002": 1.0, "ud-english-ewt": 0.3, "conll2000": 1.0}  # l2 of all models


def refine(n_jobs):
    """The z-score, L-BFGS iterations from it and from zero, and the CRF as it comes."""
    print("\n### Iterations from the z-score (processor seconds)\n")
    header("data", "l2", "model", "token accuracy %, span F1", "fit, s")
    each_with_data(refined, REFINED, n_jobs)


def refined(name, n_jobs):
    (X, known, Z, wanted), l2 = divided(name), REFINED[name]
    options = {"l2": l2, "n_jobs": n_jobs}
    own = {"transitions": "information", **options}
    models = {
        "z-score": of_paper(**options),
        "z-score, refine=10": ZScoreTagger(refine=10, **options),
        "z-score, refine=20": ZScoreTagger(refine=20, **options),
        "information": ZScoreTagger(**own),
        "information, refine=20": ZScoreTagger(refine=20, **own),
        "CRF, 20 iterations": CRFTagger(solver="lbfgs", max_iter=20, tol=0.0, **options),
        "CRF, as it comes": CRFTagger(**options),
    }
    for label, model in models.items():
        spent, found = processor_seconds(model, X, known), model.predict(Z)
        cells = [token_accuracy(wanted, found)]
        if name != "ud-english-ewt":
            cells.append(span_f1(wanted, found))
        row(name, f"{l2:g}", label, *(f"{100 * c:.2f}" for c in cells), f"{spent:.2f}")


# --- Kernels ------------------------------------------------------------------------------------


def kernels(n_jobs):
    """Kernels on letters: train on fold 0 and test on the nine others, and the reverse."""
    print("\n### Letters: token accuracy % (processor seconds)\n")
    path = need("ocr-letters")
    small, large = (dense_letters(path / f"{f}.tsv.gz") for f in ("fold0", "folds1-9"))
    rbf = {"kernel": "rbf", "gamma": 0.05, "l2": 0.002, "random_state": 0, "n_jobs": n_jobs}
    own = {"transitions": "information"}
    search = {"kernel": "rbf", "gammas": [0.02, 0.05, 0.1], "l2s": [0.0005, 0.002, 0.01],
              "transition_weights": [0.03, 0.05, 0.07, 0.1], "n_jobs": n_jobs,
              "cv": KFold(3, shuffle=True, random_state=0)}  # fmt: skip
    models = {
        "linear, covariance": (of_paper(l2=0.1), (0, 1)),
        "linear, information": (ZScoreTagger(l2=0.1, **own), (0, 1)),
        "rbf, covariance": (of_paper(**rbf), (0,)),
        "rbf, information": (ZScoreTagger(**rbf, **own), (0,)),
        "rbf, information, chosen": (ZScoreTaggerCV(**search), (0,)),
        "rbf, information, 1,000 landmarks": (ZScoreTagger(n_landmarks=1000, **rbf, **own), (0, 1)),
        "rbf, information, 2,000 landmarks": (ZScoreTagger(n_landmarks=2000, **rbf, **own), (1,)),
    }
    splits = ((small, large), (large, small))
    header("model", "trained on", "accuracy", "fit, s")
    for name, (model, chosen) in models.items():
        for k in chosen:
            (X, y), test = splits[k]
            spent = processor_seconds(model, X, y)
            row(name, f"{len(y):,} words", f"{100 * model.score(*test):.2f}", f"{spent:.1f}")


# --- CoNLL-2000 ---------------------------------------------------------------------------------


def templates(name, *parts):
    """(rows, labels) of each part of a corpus; 19 attributes a token, those of the first part."""
    read = [tagged(name, part) for part in parts]
    features = TemplateFeatures(columns=["w", "pos"]).fit(read[0][0])
    return [(features.transform(X), y) for X, y in read]


def chunking(runs, n_jobs):
    """19 attributes a token: fit and F1 beside CRFTagger's 100 iterations; warm start."""
    print(f"\n### CoNLL-2000, 19 attributes a token, {n_jobs} thread(s)\n")
    train, test = templates("conll2000", "train", "test")
    limit = {"solver": "lbfgs", "max_iter": 100, "tol": 0.0, "n_jobs": n_jobs}
    crf, all_states = "CRF, 100 iterations", "CRF, all states, 100 iterations"
    models = {
        "z(H), l2=1": of_paper(l2=1.0, n_jobs=n_jobs),
        "z(H), l2=0.1": of_paper(l2=0.1, n_jobs=n_jobs),
        "z(H), l2=0.02": of_paper(l2=0.02, n_jobs=n_jobs),
        "z, l2=1": of_paper(loss=None, l2=1.0, n_jobs=n_jobs),
        crf: CRFTagger(**limit),
        all_states: CRFTagger(l2=1, all_possible_states=True, **limit),
        "CRF, as it comes": CRFTagger(n_jobs=n_jobs),
    }
    with threadpool_limits(n_jobs, "blas"):
        fits = [partial(model.fit, *train) for model in models.values()]
        times = dict(zip(models, np.median(by_turns(fits, runs, perf_counter), axis=0)))
    header(
        "model", "iterations", "fit, s", "CRF's over it", "that of all states over it",
        "token error %", "span F1",
    )  # fmt: skip
    for name, model in models.items():
        predicted = model.predict(test[0])  # the test labels have one that training has not
        error = 100 * (1 - token_accuracy(test[1], predicted))
        f1 = 100 * span_f1(test[1], predicted)
        ratios = (f"{times[base] / times[name]:.1f}" for base in (crf, all_states))
        row(name, model.n_iter_, f"{times[name]:.2f}", *ratios, f"{error:.2f}", f"{f1:.2f}")


def warm(n_jobs):
    """Evaluations of the CRF that starting from the z-score's weights saves."""
    each_with_data(warm_start, ("conll2000", "conll2002"), n_jobs)


def warm_start(name, n_jobs):
    """Evaluations until the objective is that of 100 iterations from zero, or near the least."""
    print(f"\n### Warm start: {name}, 19 attributes a token, l2 = 1\n")
    ((X, y),) = templates(name, "train")
    limit = {"solver": "lbfgs", "max_iter": 150, "tol": 0.0, "n_jobs": n_jobs}
    least = CRFTagger(n_jobs=n_jobs).fit(X, y).objective_  # within 1e-5
    zscore = of_paper(n_jobs=n_jobs).fit(X, y)
    observed = {"all_possible_states": False, "all_possible_transitions": False, **limit}
    models = {
        "zero": CRFTagger(**limit),
        "z(H), best multiple": zscore.to_crf(X, y, **observed),
        "z(H), as it is": zscore.to_crf(**observed),
    }
    curves = {name: evaluations(model, X, y) for name, model in models.items()}
    goals = {"zero after 100 iterations": models["zero"].loss_curve_[100]}
    goals |= {f"{share} of the least": share * least for share in (1.1, 1.01, 1.001, 1.0001)}
    header("start", "objective there", *goals)
    for name, values in curves.items():
        counts = (
            next((k + 1 for k, f in enumerate(values) if f <= g), "-") for g in goals.values()
        )
        row(name, f"{values[0]:,.0f}", *counts)


def evaluations(model, X, y):
    """The objective at each evaluation of a fit."""
    values, plain = [], LogLikelihood.value_and_gradient

    def recorded(self, w, gradient):
        values.append(plain(self, w, gradient))
        return values[-1]

    LogLikelihood.value_and_gradient = recorded
    try:
        model.fit(X, y)
    finally:
        LogLikelihood.value_and_gradient = plain
    return values


PARTS = {
    "table1": lambda a: table1(a.runs),
    "figure1": lambda a: figure1(a.runs),
    "table2": lambda a: table2(a.n_jobs),
    "weights": lambda a: weights(a.n_jobs),
    "search": lambda a: search(a.n_jobs),
    "kappa": lambda a: kappa(a.n_jobs),
    "separate": lambda a: separate(a.n_jobs),
    "refine": lambda a: refine(a.n_jobs),
    "kernels": lambda a: kernels(a.n_jobs),
    "chunking": lambda a: chunking(min(a.runs, 3), a.n_jobs),
    "warm": lambda a: warm(a.n_jobs),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--n-jobs", type=int, default=1)
    arguments = parser.parse_args()
    each_with_data(lambda part: PARTS[part](arguments), arguments.parts or PARTS)


if __name__ == "__main__":
    main()
