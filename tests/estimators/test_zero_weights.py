"""A sequence of weight 0 counts as if it were not there, however the data comes."""

import numpy as np
import pytest

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    RowBlocks,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)


def random_data(seed: int):
    """Rows, labels and weights; labels and pairs of weight-0 sequences occur nowhere else."""
    rng = np.random.default_rng(seed)
    X = [rng.integers(0, 2, size=(n, 4)).astype(float) for n in rng.integers(2, 6, size=9)]
    weights = rng.permutation([1.0, 2.0, 0.5, 0.0, 0.0, 1.0, 3.0, 0.0, 1.0])
    y = [rng.choice(["O", "B-a", "B-b"], size=len(x)).tolist() for x in X]
    for s in np.flatnonzero(weights == 0):
        y[s][0] = "B-c"
        X[s][0, 3] = 1
    for s in np.flatnonzero(weights):
        X[s][:, 3] = 0
    X[int(np.flatnonzero(weights)[0])][0, 3] = 1
    return X, y, weights


ESTIMATORS = {
    "crf": CRFTagger(tol=1e-10),
    "crf of CRFsuite": CRFTagger(tol=1e-10, boundaries=False, l1=0.1),
    "crf iob2": CRFTagger(tol=1e-10, constraints="iob2"),
    "checkpoint": CRFTagger(tol=1e-10, gradient="checkpoint"),
    "emp": CRFTagger(tol=1e-10, gradient="emp"),
    "hmsvm": HMSVMTagger(tol=1e-6, max_iter=2000, random_state=0),
    "hmsvm iob2": HMSVMTagger(tol=1e-6, max_iter=2000, random_state=0, constraints="iob2"),
    "hmsvm rbf": HMSVMTagger(tol=1e-6, max_iter=2000, random_state=0, kernel="rbf"),
    "zscore": ZScoreTagger(),
    "zscore cv": ZScoreTaggerCV(),
    "segmenter": SemiCRFSegmenter(tol=1e-10, all_possible_states=False),
}


def answers(tagger, X) -> tuple:
    if hasattr(tagger, "potentials"):
        return tuple(tagger.potentials(X)[:4])
    return tagger.coef_, tagger.transition_, tagger.start_, tagger.end_


BALANCED = [
    HMSVMTagger(class_weight="balanced", tol=1e-6, max_iter=2000, random_state=0),
    ZScoreTagger(class_weight="balanced"),
    ZScoreTagger(class_weight="balanced", kernel="rbf", gamma=1.0),
]


@pytest.mark.parametrize("tagger", BALANCED, ids=["hmsvm", "zscore", "zscore rbf"])
@pytest.mark.parametrize("seed", range(2))
def test_balanced_weights_count_weight_2_as_two_sequences(tagger, seed):
    X, y, _ = random_data(seed)
    weights = np.random.default_rng(seed).integers(1, 4, len(X))
    copies = np.repeat(np.arange(len(X)), weights)
    found = tagger.fit(X, y, sample_weight=weights).decision_function(X)
    again = tagger.fit([X[s] for s in copies], [y[s] for s in copies]).decision_function(X)
    for a, b in zip(found, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)  # solvers end within tol


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("seed", range(2))
def test_weight_0_is_removal(name, seed):
    X, y, weights = random_data(seed)
    kept = np.flatnonzero(weights)
    tagger = ESTIMATORS[name]
    all_of_them = tagger.fit(X, y, sample_weight=weights)
    got, classes = answers(all_of_them, X), all_of_them.classes_.tolist()
    few = tagger.fit([X[s] for s in kept], [y[s] for s in kept], sample_weight=weights[kept])
    assert classes == few.classes_.tolist()
    tolerance = 0.02 if "hmsvm" in name else 1e-4
    for a, b in zip(got, answers(few, X)):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def in_blocks(X, y, weights):
    return [RowBlocks(x) for x in X], y, weights


def in_shards(X, y, weights):
    half = len(X) // 2
    parts = [slice(0, half), slice(half, None)]
    none = (X[:2], [["B-d"] * len(x) for x in X[:2]], [0.0, 0.0])
    return Shards([(X[p], y[p], weights[p]) for p in parts] + [none]), None, None


def in_files(X, y, weights, folder):
    Sequences.from_list(X).save(folder / "all.npz", y, weights)
    return Shards([folder / "all.npz"]), None, None


@pytest.mark.parametrize("form", [in_blocks, in_shards, in_files])
def test_forms_of_data_leave_weight_0_out(form, tmp_path):
    X, y, weights = random_data(0)
    kept = np.flatnonzero(weights)
    few = CRFTagger(tol=1e-10).fit([X[s] for s in kept], [y[s] for s in kept], weights[kept])
    more = (tmp_path,) if form is in_files else ()
    other = CRFTagger(tol=1e-10).fit(*form(X, y, weights, *more))
    assert other.classes_.tolist() == few.classes_.tolist()
    for a, b in zip(answers(other, X), answers(few, X)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("tagger", "parameters"),
    [
        (CRFTagger, {"constraints": [("c", "a")]}),
        (CRFTagger, {"constraints": np.ones((3, 3), dtype=bool)}),
        (CRFTagger, {"label_proportions": {"c": 0.5}}),
        (HMSVMTagger, {"loss": 1 - np.eye(3)}),
        (HMSVMTagger, {"class_weight": {"c": 2.0}}),
        (ZScoreTagger, {"class_weight": {"c": 2.0}}),
    ],
)
def test_errors_about_labels_of_weight_0_say_so(tagger, parameters):
    X, y = [np.eye(2)] * 3, [["a", "b"], ["a", "b"], ["c", "c"]]
    if "label_proportions" in parameters:
        X, y = [*X, np.eye(2)], [*y, [None, None]]
    with pytest.raises(ValueError, match="Labels of sequences of weight 0 do not count"):
        tagger(**parameters).fit(X, y, sample_weight=[1, 1, 0, 1][: len(X)])


def test_errors_keep_the_number_of_the_sequence():
    X, y, weights = [np.ones((2, 1))] * 3, [["a", "b"]] * 2 + [["a"]], [0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"Sequence 2 has .*rows in X"):
        CRFTagger().fit([RowBlocks(x) for x in X], y, weights)
    with pytest.raises(ValueError, match="at least one row"):
        CRFTagger().fit([X[0], X[0][:0]], [["a", "b"], []], [0.0, 1.0])


def test_weights_of_zero_have_no_score():
    X, y = [np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[2, 1]]], [["a", "b", "c", "a"], ["c", "b"]]
    tagger = CRFTagger().fit(X, y)
    with pytest.raises(ValueError, match="score needs at least one row of positive weight"):
        tagger.score(X, y, sample_weight=[0.0, 0.0])
