"""What the weights of a segmenter say, by name."""

import numpy as np
from sklearn.pipeline import make_pipeline

from sklseq import SemiCRFSegmenter
from sklseq.features import SegmentFeatures, TokenFeatures
from sklseq.inspection import feature_names, top_features
from tests.estimators.test_semicrf import problem

X = [["in", "New", "York", "now"], ["New", "Delhi"], ["now", "in", "Rome"]]
Y = [[(1, 3, "city")], [(0, 2, "city")], [(2, 3, "city")]]


def test_largest_weights_of_rows_without_names():
    potentials, segments = problem(0)
    model = SemiCRFSegmenter().fit(potentials, segments)
    every = model.top_features(15)
    sizes = [abs(weight) for weight, _, _ in every]
    assert sizes == sorted(sizes, reverse=True)
    assert len(every) == 15
    for weight, label, name in every:
        j = model.classes_.tolist().index(label)
        assert model.coef_[int(name[1:]), j] == weight
    assert {label for _, label, _ in model.top_features(5, label="a")} == {"a"}
    weight, i, j = model.top_transitions(1)[0]
    k = np.unravel_index(np.abs(model.transition_).argmax(), (3, 3))
    assert (weight, i, j) == (model.transition_[k], *model.classes_[list(k)])


def test_pipeline_names_features_of_segments():
    model = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(l2=0.1)).fit(X, Y)
    names = feature_names(model).tolist()
    found = top_features(model, 400, label="city")
    assert {name for _, _, name in found} <= set(names)
    assert any(name.startswith("start:") for _, _, name in found)
    for weight, _, name in found:
        column = model[-1].classes_.tolist().index("city")
        assert model[-1].coef_[names.index(name), column] == weight
