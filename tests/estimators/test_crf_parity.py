"""CRFTagger with ``boundaries=False`` is CRFsuite's model: same loss, optimum, tags, marginals."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.pipeline import FeatureUnion, make_pipeline

from sklseq import CRFTagger, Shards
from sklseq.compat.sklearn_crfsuite import CRF
from sklseq.datasets import read_conll
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.weights import dense_weights
from sklseq.features import DictFeatures, TemplateFeatures, WindowFeatures
from sklseq.inference import forward_backward

pycrfsuite = pytest.importorskip("pycrfsuite")

# CRFsuite reports its loss, and dumps its weights, to six decimals.
LOSS = 1e-6
# Marginals from weights that were rounded to six decimals.
ROUNDED = {"rtol": 1e-4, "atol": 1e-4}
SEEDS = range(4)
CHOICES = pytest.mark.parametrize("every", [False, True], ids=["observed", "all"])


def make_attributes(seed, n=40, M=15, L=4):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        T = int(rng.integers(1, 9))
        codes = rng.integers(0, L, size=T)
        rows = rng.random((T, M)) < 0.15
        X.append([["bias", f"is{c if rng.random() < 0.6 else 0}", *(f"a{k}" for k in
                   np.flatnonzero(row))] for c, row in zip(codes, rows)])  # fmt: skip
        y.append([f"L{c}" for c in codes])
    return X, y


def train_crfsuite(X, y, path, every, max_iterations=2000, **tight):
    """(reported loss, tagger) of python-crfsuite with c1 = 0, c2 = 1."""
    trainer = pycrfsuite.Trainer("lbfgs", verbose=False)
    trainer.set_params({
        "c1": 0.0, "c2": 1.0, "max_iterations": max_iterations,
        "feature.possible_states": every, "feature.possible_transitions": every, **tight,
    })  # fmt: skip
    for x, labels in zip(X, y):
        trainer.append(x, labels)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return trainer.logparser.last_iteration["loss"], tagger


def our_model(every, **parameters):
    choice = {"all_possible_states": every, "all_possible_transitions": every}
    return CRFTagger(boundaries=False, l2=1.0, **choice, **parameters)


def load_weights(model, tagger):
    """Replace a fitted model's weights by those of CRFsuite's file."""
    info = tagger.info()
    column = {label: j for j, label in enumerate(model.classes_)}
    row = {name: k for k, name in enumerate(model.feature_names_in_)}
    coef, transition = np.zeros_like(model.coef_), np.zeros_like(model.transition_)
    for (name, label), weight in info.state_features.items():
        coef[row[name], column[label]] = weight
    for (i, j), weight in info.transitions.items():
        transition[column[i], column[j]] = weight
    model.coef_, model.transition_ = coef, transition
    return model


def objective(model, X, y):
    squares = (model.coef_**2).sum() + (model.transition_**2).sum()
    return squares - model.predict_log_proba_sequence(X, y).sum()


def check_parity(X, y, path, every, agreement, marginals_of, **limits):
    loss, tagger = train_crfsuite(X, y, path, every, **limits)
    ours = our_model(every, tol=1e-7, max_iter=1000).fit(X, y)
    assert ours.objective_ <= loss * (1 + LOSS)
    tags = [tagger.tag(x) for x in X]
    assert agreement_of(ours.predict(X), tags) >= agreement

    theirs = load_weights(ours, tagger)
    assert_allclose(objective(theirs, X, y), loss, rtol=LOSS)
    assert agreement_of(theirs.predict(X), tags) >= 0.9999
    for x in X[:marginals_of]:
        tagger.set(x)
        expected = [[tagger.marginal(c, t) for c in theirs.classes_] for t in range(len(x))]
        assert_allclose(theirs.predict_proba([x])[0], expected, **ROUNDED)


def agreement_of(a, b):
    return np.mean(np.concatenate(list(a)) == np.concatenate(b))


@CHOICES
@pytest.mark.parametrize("seed", SEEDS)
def test_same_loss_optimum_tags_and_marginals(tmp_path, every, seed):
    X, y = make_attributes(seed)
    tight = {"epsilon": 1e-9, "delta": 1e-12, "max_iterations": 2000}
    check_parity(X, y, tmp_path / "model", every, 0.999, len(X), **tight)


@CHOICES
def test_same_number_of_weights(tmp_path, every):
    X, y = make_attributes(0)
    info = train_crfsuite(X, y, tmp_path / "model", every)[1].info()
    ours = our_model(every).fit(X, y)
    names = ours.feature_names_in_
    trained = {(str(names[k]), str(ours.classes_[j])) for k, j in np.argwhere(ours.coef_ != 0)}
    assert trained >= set(info.state_features)  # its dump leaves out weights of exactly zero
    assert every or trained == set(info.state_features)


def make_items(seed, n=40, L=3):
    """Dicts with false flags, zeros, numbers of either sign, lists and dicts; some are empty."""
    rng = np.random.default_rng(seed)

    def item(c):
        names = [f"is{c if rng.random() < 0.6 else 0}", *rng.choice(list("abcde"), 2).tolist()]
        kind = rng.integers(10)
        if kind == 0:
            return {}
        return {
            "w": names[0], "flag": bool(rng.random() < (0.2, 0.5, 0.8)[c]), "never": False,
            "count": int(rng.integers(3)), "size": float(rng.choice([-1, -0.0, 0.5, 2])),
            "in": names[1:], "of": {"a": [0, 0.0, 1.5, True, "b"][rng.integers(5)]},
            **({f"rare{rng.integers(20)}": [0, False, 1][rng.integers(3)]} if kind < 5 else {}),
        }  # fmt: skip

    y = [rng.integers(0, L, size=int(rng.integers(1, 8))) for _ in range(n)]
    X = [[item(c) for c in codes] for codes in y]
    return X, [[f"L{c}" for c in codes] for codes in y]


def crfsuite_of_items(X, y, path, c1, every):
    """(trainer, weights) of python-crfsuite, exact to about 1e-3.

    Its default, ``feature.minfreq = 0``, drops pairs whose values sum to less than 0.
    """
    trainer = pycrfsuite.Trainer("lbfgs", verbose=False)
    trainer.set_params({
        "c1": c1, "c2": 0.1, "max_iterations": 5000, "epsilon": 1e-9, "delta": 1e-12,
        "feature.minfreq": -1e9,
        "feature.possible_states": every, "feature.possible_transitions": every,
    })  # fmt: skip
    for x, labels in zip(X, y):
        trainer.append(x, labels)
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return trainer, tagger.info()


def assert_same_weights(found, expected, atol=2e-3):
    assert {k for k, w in expected.items() if abs(w) > atol} <= set(found)
    for key, weight in found.items():
        assert abs(weight - expected.get(key, 0)) < atol, key


@CHOICES
@pytest.mark.parametrize("c1", [0.0, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_zeros_and_numbers_of_dicts(tmp_path, c1, every, seed):
    """CRFsuite has the weight of an attribute and a label also where the attribute's value is 0."""
    X, y = make_items(seed)
    trainer, info = crfsuite_of_items(X, y, tmp_path / "model", c1, every)
    choice = {"all_possible_states": every, "all_possible_transitions": every}
    model = CRFTagger(l1=c1, l2=0.1, boundaries=False, tol=1e-8, max_iter=5000, **choice).fit(X, y)
    assert model.objective_ == pytest.approx(trainer.logparser.last_iteration["loss"], rel=LOSS)
    assert_same_weights(model.state_features_, info.state_features)
    assert_same_weights(model.transition_features_, info.transitions)
    if not every:
        support = RowSource.read(X, y, None).summarise().support
        n_weights = len(support.pairs) + np.count_nonzero(support.transition)
        assert n_weights == trainer.logparser.featgen_num_features


def saved(X, y, path):
    DictFeatures().fit_transform(X).save(path / "rows.npz", y)
    return Shards(path)


EMPTY, WINDOW = DictFeatures(min_count=10**6), {"before": 0, "after": 0, "bos_eos": False}
READINGS = {
    "compat": lambda X, y, path, crf: CRF(c2=0.1).fit(X, y).model_,
    "pipeline": lambda X, y, path, crf: make_pipeline(DictFeatures(), crf).fit(X, y)[-1],
    "transformed": lambda X, y, path, crf: crf.fit(DictFeatures().fit(X).transform(X), y),
    "window": lambda X, y, path, crf: make_pipeline(
        WindowFeatures(DictFeatures(), **WINDOW), crf
    ).fit(X, y)[-1],
    "union": lambda X, y, path, crf: crf.fit(
        FeatureUnion([("all", DictFeatures()), ("none", EMPTY)]).fit_transform(X), y
    ),
    "shards": lambda X, y, path, crf: crf.fit(
        Shards([lambda: (X[:15], y[:15]), lambda: (X[15:], y[15:])])
    ),
    "saved": lambda X, y, path, crf: crf.fit(saved(X, y, path)),
    "blocks": lambda X, y, path, crf: crf.set_params(gradient="checkpoint").fit(X, y),
    "partial": lambda X, y, path, crf: crf.fit(X + X[:1], [*y, [None] * len(y[0])]),
    "weights": lambda X, y, path, crf: crf.fit(X + X[:1], y + y[:1], [1] * len(X) + [0]),
}


@pytest.mark.parametrize("reading", READINGS)
def test_zeros_of_dicts_read_in_any_way(tmp_path, reading):
    """The weights of dicts in memory, which the test above compares with CRFsuite's."""
    X, y = make_items(0)
    crf = CRFTagger(l2=0.1, boundaries=False, tol=1e-6)
    expected = dense_weights(clone(crf).fit(X, y).coef_)
    found = dense_weights(READINGS[reading](X, y, tmp_path, crf).coef_)
    np.testing.assert_array_equal(found != 0, expected != 0)
    assert_allclose(found, expected, atol=0.1)


@pytest.mark.parametrize("kind", ["rows", "blocks", "unknown label"])
def test_zeros_of_transition_features(kind):
    """A triple has a weight where the feature is stored as 0, as a pair has."""
    X, y = [[{"f": 0}, {"f": 1}, {"f": False}]], [["a", "b", "a"]]
    crf = CRFTagger(transition_features=["f"], boundaries=False)
    if kind == "blocks":
        crf.set_params(gradient="checkpoint")
    if kind == "unknown label":
        X, y = [*X, X[0]], [*y, [None, "a", "a"]]
    found = crf.fit(X, y).transition_coef_
    assert found.indices.tolist() == ([1, 2] if kind != "unknown label" else [0, 1, 2])


@functools.cache
def conll2000(n):
    folder = os.environ.get("SKLSEQ_DATA")
    if not folder:
        pytest.skip("SKLSEQ_DATA does not point to a folder with conll2000/")
    X, y = read_conll(Path(folder) / "conll2000" / "train.txt.gz", columns=["w", "pos"])
    features = TemplateFeatures(None, columns=["w", "pos"])
    rows = features.fit_transform(X[:n])
    names = features.get_feature_names_out().tolist()
    attributes = [[[names[k] for k in row.indices] for row in x] for x in rows]
    return attributes, y[:n]


@CHOICES
def test_conll2000(tmp_path, every):
    X, y = conll2000(100)
    check_parity(X, y, tmp_path / "model", every, 0.999, 20, max_iterations=150)


def test_marginals_of_potentials_are_those_of_inference():
    X, y = make_attributes(1)
    model = our_model(True).fit(X, y)
    emission, transition, start, end, offsets = model.potentials(X)
    again = forward_backward(emission, transition, offsets, start=start, end=end)
    assert_allclose(np.concatenate(model.predict_proba(X)), again.marginals, rtol=1e-10)
