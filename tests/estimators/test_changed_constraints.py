"""Training that goes on after constraints have become wider, narrower or other ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from sklseq import CRFTagger, HMSVMTagger, RowBlocks, SemiCRFSegmenter, ZScoreTagger
from sklseq.data.constraints import resolve_constraints
from tests.sample_data import make_data

LABELS = ["B-x", "I-x", "O"]
# No, some and other forbidden pairs; "iob2" also forbids I-x at the start.
PAIRS = [("B-x", "O")], [("I-x", "B-x"), ("O", "O")]
CONSTRAINTS = [PAIRS[0], None, PAIRS[1], PAIRS[0], "iob2", None, "iob2"]
F = {"transition_features": [0, 2]}


def data(seed=0):
    return make_data(seed, n=30, M=3, max_len=4, labels=LABELS)


def without_violations(X, y, constraints):
    allowed = resolve_constraints(constraints, np.array(LABELS))
    kept = []
    for s, labels in enumerate(y):
        codes = np.searchsorted(LABELS, labels)
        ends = allowed.start[codes[0]] and allowed.end[codes[-1]]
        if ends and allowed.transition[codes[:-1], codes[1:]].all():
            kept.append(s)
    return [X[s] for s in kept], [y[s] for s in kept]


def check_forbidden(model, constraints):
    """Weights are -inf where the constraints forbid, and finite elsewhere."""
    allowed = resolve_constraints(constraints, np.array(LABELS))
    for name, mask in zip(("transition_", "start_", "end_"), allowed):
        assert_array_equal(np.isfinite(getattr(model, name)), mask)


@pytest.mark.parametrize(
    "tagger",
    [
        CRFTagger(tol=1e-8, warm_start=True),
        CRFTagger(tol=1e-8, warm_start=True, solver="adagrad"),
        CRFTagger(tol=1e-8, warm_start=True, all_possible_transitions=True, **F),
        HMSVMTagger(tol=1e-5, warm_start=True, random_state=0),
    ],
    ids=lambda t: f"{t!r:.60}",
)
def test_warm_starts_end_at_the_minimum(tagger):
    X, y = data()
    if isinstance(tagger, HMSVMTagger):  # starts with the same sequences only
        for constraints in CONSTRAINTS:
            X, y = without_violations(X, y, constraints)
    for constraints in CONSTRAINTS:
        kept = without_violations(X, y, constraints)
        tagger.set_params(constraints=constraints).fit(*kept)
        cold = clone(tagger).fit(*kept)
        assert_allclose(tagger.objective_, cold.objective_, rtol=1e-4)
        check_forbidden(tagger, constraints)


@pytest.mark.parametrize("features", [{}, F], ids=["states", "transitions"])
def test_warm_starts_of_segmenters_end_at_the_minimum(features):
    X, y = data()
    segmenter = SemiCRFSegmenter(tol=1e-8, warm_start=True, outside=None, **features)
    for constraints in (c for c in CONSTRAINTS if c != "iob2"):
        kept, labels = without_violations(X, y, constraints)
        segments = [[(t, t + 1, k) for t, k in enumerate(one.tolist())] for one in labels]
        segmenter.set_params(constraints=constraints).fit(kept, segments)
        cold = clone(segmenter).fit(kept, segments)
        assert_allclose(segmenter.objective_, cold.objective_, rtol=1e-4)


def in_blocks(X):
    return [RowBlocks(x) for x in X]


CRFS = [CRFTagger(), CRFTagger(**F), CRFTagger(all_possible_transitions=True, **F)]
PERCEPTRONS = [
    HMSVMTagger(solver="perceptron", random_state=0, **more)
    for more in ({"average": True}, {"average": False}, F)
]


@pytest.mark.parametrize(
    ("tagger", "form"),
    [(t, list) for t in CRFS + PERCEPTRONS] + [(t, in_blocks) for t in CRFS],
    ids=lambda value: getattr(value, "__name__", f"{value!r:.60}"),
)
def test_batches_go_on(tagger, form):
    tagger = clone(tagger)
    for seed, constraints in enumerate(CONSTRAINTS):
        X, y = without_violations(*data(seed), constraints)
        tagger.set_params(constraints=constraints).partial_fit(form(X), y, classes=LABELS)
        check_forbidden(tagger, constraints)
        assert np.isfinite(tagger.coef_).all()
        if tagger.transition_coef_ is not None:
            assert np.isfinite(tagger.transition_coef_.data).all()


def test_crf_of_z_scores_is_trained_with_other_constraints():
    X, y = without_violations(*data(), CONSTRAINTS[0])
    tagger = ZScoreTagger(constraints=CONSTRAINTS[0]).fit(X, y)
    crf = tagger.to_crf(X=X, y=y, constraints=None, tol=1e-8).fit(*data())
    assert_allclose(crf.objective_, clone(crf).fit(*data()).objective_, rtol=1e-4)
