"""What the 45 tests of sklearn-crfsuite 0.5 ask for, by the translation of docs/migration.rst.

"lbfgs" and "l2sgd" are those of ``compat.sklearn_crfsuite.CRF``; "ap", "pa" and "arow" become
margin taggers. Metrics are those of ``compat.sklearn_crfsuite.metrics``.
"""

import pickle

import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from sklseq import CRFTagger, HMSVMTagger, read_crfsuite_model, write_crfsuite_model
from sklseq.compat.sklearn_crfsuite import CRF, metrics
from sklseq.inference import forward_backward

# Numbers as values, an empty item, bytes, letters beyond ASCII.
ITEMS = [{"sun": 1, "wind": 0.5}, {"sun": 1}, {"rain": 1, "wind": 0.1}, {"rain": 0.5, "sun": 0.2},
         {}, {"rain": 1}, {"sun": 2}, {"météo": "grêle".encode(), "rain": 1}]  # fmt: skip
LABELS = ["out", "out", "in", "in", "in", "in", "out", "in"]
ALGORITHMS = ["lbfgs", "l2sgd", "pa", "ap"]  # "arow" is translated as "pa" is


def translated(algorithm, verbose=False):
    if algorithm in ("lbfgs", "l2sgd"):
        return CRF(algorithm, verbose=verbose)
    solver = "perceptron" if algorithm == "ap" else "auto"
    return HMSVMTagger(solver=solver, boundaries=False, random_state=0, verbose=int(verbose))


def lists(y):
    return [list(labels) for labels in y]


def marginals(model):
    """A list of dicts, as by ``predict_marginals``."""
    if isinstance(model, CRF):
        return model.predict_marginals([ITEMS])[0]
    scores = model.potentials([ITEMS])
    found = forward_backward(
        scores.emission, scores.transition, scores.offsets, start=scores.start, end=scores.end
    )
    return [dict(zip(model.classes_, row)) for row in found.marginals.tolist()]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm(algorithm):
    """Labels, score, marginals, pickles and the error before fit: 5 × 4 of the tests."""
    model = translated(algorithm)
    with pytest.raises(NotFittedError):
        model.predict([ITEMS])
    model.fit([ITEMS], [LABELS])
    assert lists(model.predict([ITEMS])) == [LABELS]
    assert model.score([ITEMS], [LABELS]) == 1
    again = pickle.loads(pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL))
    assert again.score([ITEMS], [LABELS]) == 1
    assert again.get_params() == model.get_params()
    items = marginals(model)
    assert len(items) == len(LABELS)
    for item in items:
        assert set(item) == {"in", "out"}
        assert sum(item.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "dev"),
    [*((name, False) for name in ALGORITHMS), ("lbfgs", True), ("l2sgd", True)],
)
def test_verbose_and_development_set(algorithm, dev, capsys):
    model, data = translated(algorithm, verbose=True), ([ITEMS] * 2, [LABELS] * 2)
    model.fit(*data, *(([ITEMS], [LABELS]) if dev else ()))
    assert lists(model.predict([ITEMS])) == [LABELS]
    assert capsys.readouterr().out


def test_modules_of_the_tutorial():
    """``import sklearn_crfsuite``; ``from sklearn_crfsuite import scorers, metrics``."""
    from sklseq.compat import sklearn_crfsuite
    from sklseq.compat.sklearn_crfsuite import scorers
    from sklseq.compat.sklearn_crfsuite.metrics import flat_f1_score, flatten

    crf = sklearn_crfsuite.CRF().fit([ITEMS], [LABELS])
    assert flat_f1_score([LABELS], crf.predict([ITEMS]), average="weighted") == 1
    wrong = [LABELS[:-1] + ["out"]]
    assert scorers.flat_accuracy(crf, [ITEMS], wrong) == 7 / 8
    assert scorers.sequence_accuracy(crf, [ITEMS], wrong) == 0
    scores = cross_val_score(crf, [ITEMS] * 4, [LABELS] * 4, cv=2, scoring=scorers.flat_accuracy)
    assert scores.tolist() == [1, 1]
    assert flatten([LABELS, LABELS]) == LABELS * 2


def test_half_a_development_set_is_refused():
    for half in ({"X_dev": [ITEMS]}, {"y_dev": [LABELS]}):
        model = CRF()
        with pytest.raises(ValueError, match="X_dev and y_dev"):
            model.fit([ITEMS], [LABELS], **half)
        assert not hasattr(model, "model_")


def test_model_file(tmp_path):
    """``model_filename``: written after fit, read as a fitted tagger, and pickled with it."""
    crf = CRF().fit([ITEMS], [LABELS])
    write_crfsuite_model(crf.model_, tmp_path / "model")
    assert read_crfsuite_model(tmp_path / "model").score([ITEMS], [LABELS]) == 1
    with pytest.raises(ValueError, match=r"model_filename=.*write_crfsuite_model"):
        CRF(model_filename="model").fit([ITEMS], [LABELS])


def test_cross_validation():
    for model in (CRF(), CRFTagger(boundaries=False)):
        scores = cross_val_score(model, [ITEMS] * 10, [LABELS] * 10, cv=5)
        assert scores.tolist() == [1] * 5


def test_results_before_and_after_fit():
    names = ["tagger_", "size_", "classes_", "num_attributes_", "attributes_", "state_features_",
             "transition_features_"]  # fmt: skip
    crf = CRF()
    assert all(getattr(crf, name, None) is None for name in names)
    crf.fit([ITEMS] * 3, [LABELS] * 3)
    assert all(getattr(crf, name) for name in names)
    assert set(crf.classes_) == {"in", "out"} == set(crf.tagger_.labels())
    assert "sun" in crf.attributes_
    assert len(crf.attributes_) == crf.num_attributes_
    weights = {**crf.state_features_, **crf.transition_features_}
    assert {type(weight) for weight in weights.values()} == {float}
    assert {attribute for attribute, _ in crf.state_features_} <= set(crf.attributes_)
    assert {label for _, label in weights} <= set(crf.classes_)
    assert {label for label, _ in crf.transition_features_} <= set(crf.classes_)


def test_metrics():
    y_true, y_pred = [["a", "c", "b"], ["a", "a"]], [["b", "c", "b"], ["a", "b"]]
    assert metrics.flat_accuracy_score(y_true, y_pred) == 3 / 5
    for score in (metrics.flat_precision_score, metrics.flat_recall_score, metrics.flat_f1_score):
        assert score(y_true, y_pred, average="micro") == pytest.approx(3 / 5)
    assert metrics.flat_f1_score(y_true, y_pred, average="macro") == pytest.approx(2 / 3)
    score = metrics.flat_fbeta_score(y_true, y_pred, beta=1, average="macro")
    assert score == pytest.approx(2 / 3)


def test_f1_of_two_labels_in_sequences_of_equal_length():
    """An expected failure of sklearn-crfsuite."""
    y = [["a", "b"], ["a", "b"]]
    assert metrics.flat_f1_score(y, y, average="weighted") == 1


def test_sequence_accuracy():
    score = metrics.sequence_accuracy_score
    assert score([["a", "c", "b"], ["a", "a"]], [["b", "c", "b"], ["a", "b"]]) == 0
    assert score([], []) == 0
    assert score([[1, 2], [3], [4]], [[1, 2], [4], [4]]) == 2 / 3
    assert score([[1, 2], [3]], [[1, 2], [3]]) == 1
    assert score([[1, 2], [3]], [[3], [1, 2]]) == 0
