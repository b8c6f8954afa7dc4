"""``decision_function`` of taggers without probabilities, against all labelings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import HMSVMTagger, RowBlocks, ZScoreTagger
from sklseq.features import PerToken
from tests.inference.test_max_marginals import by_enumeration

RNG = np.random.default_rng(0)
Y = [RNG.integers(3, size=n) for n in (4, 1, 3, 5, 2, 4)]
X = [RNG.normal(size=(len(y), 4)) + y[:, None] for y in Y]
MODELS = {
    "linear": HMSVMTagger(random_state=0),
    "perceptron": HMSVMTagger(solver="perceptron", random_state=0),
    "rbf": HMSVMTagger(kernel="rbf", random_state=0),
    "z-score": ZScoreTagger(),
    "z-score rbf": ZScoreTagger(kernel="rbf"),
}


@pytest.mark.parametrize("name", MODELS)
def test_scores_below_the_best_equal_enumeration(name):
    model = MODELS[name].fit(X, Y)
    found = model.decision_function(X)
    assert [len(f) for f in found] == [len(x) for x in X]
    for x, scores in zip(X, found):
        emission, transition, start, end, _ = model.potentials([x])
        best = by_enumeration(emission, transition, start, end)
        assert_allclose(scores, best - best.max(), atol=1e-10)
        assert_array_equal(model.classes_[scores.argmax(axis=1)], model.predict([x])[0])


def test_forbidden_labels_have_no_score():
    y = [["O", "B-x", "I-x"], ["B-x", "I-x", "O"]]
    rows = [np.eye(3), np.eye(3)]
    (scores,) = HMSVMTagger(constraints="iob2").fit(rows, y).decision_function(rows[:1])
    assert_array_equal(np.isneginf(scores), [[False, True, False], [False] * 3, [False] * 3])
    assert_array_equal(scores.max(axis=1), np.zeros(3))


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_pipelines_pass_it_on(name):
    pipeline = make_pipeline(PerToken(StandardScaler()), MODELS[name]).fit(X, Y)
    expected = pipeline[-1].decision_function(pipeline[0].transform(X))
    for a, b in zip(pipeline.decision_function(X), expected, strict=True):
        assert_array_equal(a, b)


def test_single_precision_is_kept():
    rows = [x.astype(np.float32) for x in X]
    assert HMSVMTagger().fit(rows, Y).decision_function(rows)[0].dtype == np.float32


def test_blocks_of_rows_are_refused():
    model = MODELS["linear"].fit(X, Y)
    with pytest.raises(ValueError, match="which this method does not read"):
        model.decision_function([RowBlocks([X[0]])])
    assert model.decision_function([]) == []
