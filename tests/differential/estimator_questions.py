"""What is asked of taggers whose weights are given, of decoders on them, and of fitted taggers.

The features of a row are its number among all rows, so that state weights are emission scores.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, RowBlocks, Sequences, Shards, ZScoreTagger

from .questions import defined, law, rules
from .reference import Chain
from .structures import ChainCase

__all__ = ["LONG_QUESTIONS", "QUESTIONS"]

TAGGERS = (CRFTagger, HMSVMTagger, ZScoreTagger)
FORMS = {
    "dense": lambda rows, offsets: Sequences(rows, offsets),
    "sparse": lambda rows, offsets: Sequences(sparse.csr_matrix(rows), offsets),
    "arrays": lambda rows, offsets: np.split(rows, offsets[1:-1]),
}
N_SAMPLES = 100


def applies(case: ChainCase) -> bool:
    """Whether finite weights make these scores."""
    return not (case.impossible or case.recipe.holes)


def rows_of(case: ChainCase) -> np.ndarray:
    return np.eye(len(case.emission), dtype=case.emission.dtype)


def drawn_form(case: ChainCase):
    names = list(FORMS) if len(case.emission) else ["dense", "sparse"]
    name = names[case.rng.integers(len(names))]
    return name, FORMS[name](rows_of(case), case.offsets)


def tagger(case: ChainCase, make: type = CRFTagger):
    """A tagger with the scores of the case for weights; its labels are "00", "01" …"""
    zeros, made = np.zeros(case.n_labels, case.emission.dtype), make()
    fitted = {
        "classes_": np.array([f"{j:02d}" for j in range(case.n_labels)]),
        "coef_": case.emission,
        "transition_": case.transition,
        "start_": zeros if case.start is None else case.start,
        "end_": zeros if case.end is None else case.end,
        "n_features_in_": len(case.emission),
        "vectorizer_": None,
    }
    for name, value in fitted.items():
        setattr(made, name, value)
    return made


def codes_of(labels) -> np.ndarray:
    return np.asarray(labels).astype(int)


def predicted(case: ChainCase) -> Iterator[tuple]:
    """``predict`` of each tagger, of sequences in memory and in blocks."""
    if not applies(case):
        return
    form, X = drawn_form(case)
    for make in TAGGERS:
        yield from _best(case, f"{make.__name__}, {form}", tagger(case, make).predict(X))
    if not len(case.emission):
        return
    model, bounds = tagger(case), zip(case.offsets[:-1], case.offsets[1:])
    sources = [_in_blocks(case, rows_of(case)[a:b]) for a, b in bounds if b > a]
    kept = np.diff(case.offsets) > 0
    yield from _best(case, "RowBlocks", model.predict(sources), kept)
    found = [np.concatenate(list(model.predict_blocks(source))) for source in sources]
    yield from _best(case, "predict_blocks", found, kept)


def _in_blocks(case: ChainCase, rows: np.ndarray) -> RowBlocks:
    if case.seed % 2:
        return RowBlocks(rows)
    cuts = range(0, len(rows), case.block_rows)
    return RowBlocks(lambda: (rows[a : a + case.block_rows] for a in cuts))


def _best(case: ChainCase, name: str, found, kept=slice(None)) -> Iterator[tuple]:
    chains = [case.chains[s] for s in np.arange(len(case.chains))[kept]]
    paths = [codes_of(labels) for labels in found]
    best = [chain.score(chain.best) for chain in chains]
    of_paths = [chain.score(path) for chain, path in zip(chains, paths)]
    yield f"score of the labels, {name}", of_paths, best, case.slack
    if case.recipe.exact:
        for chain, path in zip(chains, paths):
            yield f"labels, {name}", path, chain.best, 0


def n_best(case: ChainCase) -> Iterator[tuple]:
    """``predict_nbest``: scores, and log-probabilities of CRFTagger."""
    if not applies(case):
        return
    n, (form, X) = int(case.rng.choice([1, 4])), drawn_form(case)
    best = [chain.best_scores(n) for chain in case.chains]
    for make in TAGGERS:
        found = tagger(case, make).predict_nbest(X, n)
        for chain, wanted, (paths, scores) in zip(case.chains, best, found):
            log_z = chain.log_z if make is CRFTagger else 0
            name, paths = f"{make.__name__}, {form}", codes_of(paths)
            yield f"scores, {name}", scores, wanted - log_z, 2 * case.slack
            of_paths = [chain.score(path) - log_z for path in paths]
            yield f"scores of the labels, {name}", of_paths, scores, 2 * case.slack
            yield f"different paths, {name}", len(set(map(bytes, paths))), len(paths), 0


def probabilities(case: ChainCase) -> Iterator[tuple]:
    """``predict_proba``, ``predict_log_proba_sequence`` and ``sample``."""
    if not applies(case):
        return
    (form, X), model = drawn_form(case), tagger(case)
    for chain, proba in zip(case.chains, model.predict_proba(X)):
        yield f"predict_proba, {form}", proba, chain.marginals, case.slack
    drawn = model.sample(X, N_SAMPLES, random_state=case.seed)
    for chain, paths in zip(case.chains, drawn):
        is_label = codes_of(paths)[:, :, None] == np.arange(case.n_labels)
        yield from law(f"sample, {form}", is_label, chain.marginals)
    anything = [case.rng.integers(0, case.n_labels, chain.T) for chain in case.chains]
    for what, paths in (("best", [chain.best for chain in case.chains]), ("any", anything)):
        y = [model.classes_[path] for path in paths]
        wanted = [chain.score(path) - chain.log_z for chain, path in zip(case.chains, paths)]
        got = model.predict_log_proba_sequence(X, y)
        yield f"log-probability of {what} path, {form}", got, wanted, 2 * case.slack


# ---------------------------------------------------------------------- online


def decoded(case: ChainCase) -> Iterator[tuple]:
    """``OnlineDecoder`` on whole sequences and as a stream."""
    if not applies(case) or case.longest > 40 or not len(case.emission):
        return
    rule = rules(case, 1)[0]
    decoder = OnlineDecoder(tagger(case), **rule)
    decoder.estimator_ = decoder.estimator
    wanted = [defined(case, a, b, rule) for a, b in zip(case.offsets[:-1], case.offsets[1:])]
    if None in wanted:
        return
    form, X = drawn_form(case)
    decoding, name = decoder.decode(X), ", ".join(map(str, rule.values()))
    for s, (labels, times) in enumerate(wanted):
        yield f"labels, {form}, {name}", codes_of(decoding.labels[s]), labels, 0
        yield f"times, {form}, {name}", decoding.times[s], times, 0
        rows = rows_of(case)[case.offsets[s] : case.offsets[s + 1]]
        emissions = list(_streamed(case, decoder.stream(), rows))
        yield f"positions, stream, {name}", [e.position for e in emissions], range(len(rows)), 0
        yield f"labels, stream, {name}", codes_of([e.label for e in emissions]), labels, 0
        waited = [e.position + e.latency for e in emissions]
        yield f"times, stream, {name}", waited, times, 0


def _streamed(case: ChainCase, stream, rows: np.ndarray) -> Iterator:
    # One by one, in runs, and as scores.
    way = case.seed % 3
    if way == 0:
        for row in rows:
            yield from stream.push(row)
    elif way == 1:
        for first in range(0, len(rows), case.block_rows):
            yield from stream.push_many(rows[first : first + case.block_rows])
    else:
        for row in rows:
            yield from stream.push_potentials(row @ case.emission)
    yield from stream.flush()


# ---------------------------------------------------------------------- training

FITS = [
    {"gradient": "forward-backward"},
    {"gradient": "checkpoint"},
    {"gradient": "emp"},
    {"gradient": "emp", "l1": 0.1},
    {"solver": "owlqn", "l1": 0.1},
    {"solver": "adagrad"},
    {"solver": "eg"},
    {"gradient": "emp", "boundaries": False},
    {"gradient": "auto"},
    {"gradient": "auto", "working_memory": 0.2},
    {"shards": 3},
    {"shards": 2, "l1": 0.1},
    {"shards": 3, "solver": "adagrad"},
]


def objective(case: ChainCase) -> Iterator[tuple]:
    """``objective_`` is -Σ weight · log p + l1 · ‖w‖₁ + l2 · ‖w‖² of the fitted weights."""
    if not applies(case) or not 0 < len(case.emission) <= 60:
        return
    parameters = dict(FITS[case.seed % len(FITS)])
    name = ", ".join(f"{key}={value}" for key, value in parameters.items())
    shards, memory = parameters.pop("shards", 0), parameters.pop("working_memory", 1024)
    y = [chain.best for chain in case.chains]
    seen = np.unique(np.concatenate(y))
    names = np.array([f"{j:02d}" for j in range(case.n_labels)])
    weights = case.rng.random(len(y)) + 0.5
    allowed = case.transition[np.ix_(seen, seen)] > -np.inf
    model = CRFTagger(max_iter=2, tol=1e-9, l2=0.3, constraints=allowed, **parameters)
    form, X = drawn_form(case)
    labels = [names[path] for path in y]
    with warnings.catch_warnings(), config_context(working_memory=memory):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "y holds one label only")
        if shards:
            model.fit(
                Shards(_parts(Sequences(rows_of(case), case.offsets), labels, weights, shards))
            )
        else:
            model.fit(X, labels, sample_weight=weights)
    wanted, size = _objective(case, model, [np.searchsorted(seen, path) for path in y], weights)
    eps = np.finfo(case.emission.dtype).eps
    yield f"objective_, {form}, {name}", model.objective_, wanted, 16 * eps * size


def _parts(X: Sequences, y: list, weights: np.ndarray, n: int) -> list[tuple]:
    cuts = np.linspace(0, len(y), n + 1).astype(int)
    return [(X[a:b], y[a:b], weights[a:b]) for a, b in itertools.pairwise(cuts)]


def fitted_zscore(case: ChainCase) -> Iterator[tuple]:
    """``zscore_`` of ZScoreTagger is that of its weights, over all paths it allows."""
    if not applies(case) or not 0 < len(case.emission) <= 60 or not 1 < case.n_labels < 10:
        return
    y = [chain.best for chain in case.chains]
    seen = np.unique(np.concatenate(y))
    if len(seen) == 1:
        return
    loss, L = (None, "hamming")[case.seed % 2], len(seen)
    allowed = case.transition[np.ix_(seen, seen)] > -np.inf
    model = ZScoreTagger(l2=0.3, loss=loss, constraints=allowed, constrained="training")
    form, X = drawn_form(case)
    weights = case.rng.random(len(y)) + 0.5
    model.fit(X, [np.array([f"{j:02d}" for j in path]) for path in y], sample_weight=weights)
    coef, cost = model.coef_.astype(np.longdouble), (loss == "hamming") * (1 - np.eye(L))
    pair = np.where(allowed, model.transition_, 0)[..., None]
    uniform, excess, variance = np.where(allowed, 0, -np.inf), np.longdouble(0), np.longdouble(0)
    for s, path in enumerate(np.searchsorted(seen, path) for path in y):
        row = coef[case.offsets[s] : case.offsets[s + 1]] + cost[path]
        mean, around = Chain(np.zeros(row.shape), uniform).moments(row[..., None], pair)
        score = row[np.arange(len(path)), path].sum() + pair[path[:-1], path[1:], 0].sum()
        excess, variance = (
            excess + weights[s] * (score - mean[0]),
            variance + weights[s] * around[0, 0],
        )
    tolerance = 1e-5 if model.coef_.dtype == np.float32 else 1e-7  # the second is of solvers
    if variance > 1e-20:
        yield f"zscore_, {form}, loss {loss}", model.zscore_, excess / np.sqrt(variance), tolerance


def _objective(case: ChainCase, model: CRFTagger, y: list, weights: np.ndarray):
    # The objective, and the sum of magnitudes of what is added.
    total = size = np.longdouble(0)
    for s, (path, weight) in enumerate(zip(y, weights)):
        emission = model.coef_[case.offsets[s] : case.offsets[s + 1]]
        chain = Chain(emission, model.transition_, model.start_, model.end_)
        total -= weight * (chain.score(path) - chain.log_z)
        size += weight * (abs(chain.log_z) + abs(chain.score(path)) + len(path))
    for part in (model.coef_, model.transition_, model.start_, model.end_):
        w = part[part > -np.inf].astype(np.longdouble)
        total += model.l1 * np.abs(w).sum() + model.l2 * np.square(w).sum()
    return total, float(size + abs(total))


QUESTIONS = {
    "predict": predicted,
    "predict_nbest": n_best,
    "probabilities of CRFTagger": probabilities,
    "OnlineDecoder": decoded,
    "zscore_": fitted_zscore,
    "objective_": objective,
}
OF_LONG = ("predict", "probabilities of CRFTagger")
LONG_QUESTIONS = {name: QUESTIONS[name] for name in OF_LONG}
