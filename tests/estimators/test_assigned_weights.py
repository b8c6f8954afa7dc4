"""Weights that a user assigns: those of another shape or type are refused before they are used."""

import pickle
from copy import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, SemiCRFSegmenter, ZScoreTagger
from sklseq.inspection import explain

rng = np.random.default_rng(0)
ROWS = [rng.normal(size=(5, 3)) for _ in range(12)]
LABELS = [["b" if row[0] > 0 else "a" for row in x] for x in ROWS]
SEGMENTS = [[(0, 2, "a"), (2, 5, "b")] for _ in ROWS]
MODELS = {
    "crf": CRFTagger(),
    "transition features": CRFTagger(transition_features=[0, 1]),
    "marginal": CRFTagger(decode="marginal"),
    "margin": HMSVMTagger(),
    "kernel": HMSVMTagger(kernel="rbf"),
    "zscore": ZScoreTagger(),
    "segmenter": SemiCRFSegmenter(transition_features=[0]),
}
WEIGHTS = ["coef_", "intercept_", "transition_", "start_", "end_", "transition_coef_"]
QUESTIONS = [
    "predict", "predict_proba", "predict_nbest", "predict_spans", "potentials", "sample",
    "decision_function", "predict_labels", "extract", "path_entropy", "score", "explain",
    "top_features", "top_transitions", "sparsify", "prune", "online", "warm start",
]  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    return {
        name: model.fit(ROWS, SEGMENTS if name == "segmenter" else LABELS)
        for name, model in MODELS.items()
    }


def wrong_forms(right):
    shape = right.shape
    yield np.zeros([n + 1 for n in shape])
    yield np.zeros([n - 1 for n in shape])
    yield np.zeros((*shape, 1))
    yield from (np.zeros(shape, kind) for kind in (int, bool, object, complex, np.float16, "U3"))
    yield np.zeros(shape).tolist()
    yield "x"
    yield sparse.csr_matrix((shape[0] + 1, shape[-1]))
    if not sparse.issparse(right):
        yield None
    else:
        yield right.tocsc()
        yield right.toarray()


def ask(model, question):
    y = SEGMENTS if isinstance(model, SemiCRFSegmenter) else LABELS
    if question == "explain":
        return explain(model, ROWS[0])
    if question == "online":
        return OnlineDecoder(FrozenEstimator(model), strategy="closure").predict(ROWS)
    if question == "warm start":
        return copy(model).set_params(warm_start=True).fit(ROWS, y)
    method = getattr(copy(model), question)
    if question.startswith("top") or question in ("sparsify", "prune"):
        return method()
    return method(ROWS, y) if question == "score" else method(ROWS)


def can(model, question):
    if question == "warm start":
        return isinstance(model, (CRFTagger, SemiCRFSegmenter))
    if question == "explain" and isinstance(model, ZScoreTagger):
        return False
    if question in ("online", "explain"):
        return hasattr(model, "coef_")
    return hasattr(model, question)


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("kind", MODELS)
def test_weights_of_another_form_are_refused(fitted, kind, name):
    right, n_asked = vars(fitted[kind]).get(name), 0
    if right is None:
        pytest.skip("the model has no such weights")
    for wrong in wrong_forms(right):
        model = copy(fitted[kind])
        setattr(model, name, wrong)
        for question in filter(lambda q: can(fitted[kind], q), QUESTIONS):
            with pytest.raises(ValueError, match=rf"^{name} must be an? .* of shape \("):
                ask(model, question)
            n_asked += 1
    assert n_asked > 50


@pytest.mark.parametrize("kind", MODELS)
def test_other_layouts_and_precisions_give_the_same_answers(fitted, kind):
    model = fitted[kind]
    for name in filter(vars(model).__contains__, WEIGHTS):
        right = getattr(model, name)
        if right is None or sparse.issparse(right):
            continue
        spread = np.zeros([2 * n for n in right.shape])[
            tuple(slice(None, None, 2) for _ in right.shape)
        ]
        spread[...] = right
        for other in (np.asfortranarray(right), spread, right.astype(np.float32)):
            changed = copy(model)
            setattr(changed, name, other)
            assert changed.predict(ROWS) == model.predict(ROWS)


def trained(kind, n_labels):
    if kind == "segmenter":
        y = [[(0, 2, f"s{k % n_labels}"), (2, 5, f"s{(k + 1) % n_labels}")] for k in range(12)]
        return SemiCRFSegmenter().fit(ROWS, y)
    model = HMSVMTagger(solver="perceptron") if kind == "perceptron" else clone(MODELS[kind])
    return model.fit(ROWS, [(np.arange(5) * k % n_labels).tolist() for k in range(len(ROWS))])


@pytest.mark.parametrize("n_labels", [3, 8])
@pytest.mark.parametrize("when", ["fitted", "batches", "used", "loaded", "sparse", "assigned"])
@pytest.mark.parametrize("kind", ["crf", "margin", "perceptron", "zscore", "kernel", "segmenter"])
def test_weights_may_be_changed_in_place(kind, when, n_labels):
    """Answers are those of the new weights, before and after the model has predicted."""
    model = trained(kind, n_labels)
    if when == "loaded":
        model = pickle.loads(pickle.dumps(model))
    elif when == "batches":
        if not hasattr(model, "partial_fit") or kind == "margin":
            pytest.skip("the model is not trained in batches")
        labels, classes = model.predict(ROWS), model.classes_
        model = clone(model).partial_fit(ROWS, labels, classes=classes)
    elif when == "sparse":
        if not hasattr(model, "sparsify"):
            pytest.skip("the model is never sparse")
        model.sparsify()
    elif when == "assigned" and kind != "kernel":
        model.coef_ = model.coef_.copy()
    if when not in ("fitted", "batches"):
        model.predict(ROWS)
    names = [name for name in ("dual_coef_", *WEIGHTS) if vars(model).get(name) is not None]
    arrays = {name: getattr(model, name) for name in names}
    model.predict(ROWS)
    of = np.random.default_rng(n_labels)
    for name, weights in arrays.items():
        values = weights.data if sparse.issparse(weights) else weights
        other = copy(model)
        setattr(other, name, copy(weights) if sparse.issparse(weights) else weights.copy())
        changed = getattr(other, name)
        (changed.data if sparse.issparse(changed) else changed)[...] = of.normal(size=values.shape)
        values[...] = changed.data if sparse.issparse(changed) else changed
        assert model.predict(ROWS) == other.predict(ROWS)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("kind", MODELS)
def test_weights_that_are_no_numbers_are_refused(fitted, kind, name, bad):
    right = vars(fitted[kind]).get(name)
    if right is None:
        pytest.skip("the model has no such weights")
    model, changed = copy(fitted[kind]), right.copy()
    (changed.data if sparse.issparse(changed) else changed).flat[-1] = bad
    setattr(model, name, changed)
    for question in ("predict", "predict_proba", "potentials", "online"):
        if can(model, question):
            with pytest.raises(ValueError, match="holds NaN"):
                ask(model, question)
