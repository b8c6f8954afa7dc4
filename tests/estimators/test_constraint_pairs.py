"""Forbidden pairs of labels as ``constraints``: the same model as by the scheme that they write."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    OnlineDecoder,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)

LABELS = ["B-x", "B-y", "I-x", "I-y", "O"]
PAIRS = [("O", "I-x"), ("O", "I-y"), (None, "I-x"), (None, "I-y")]
PAIRS += [(f"{letter}-{a}", f"I-{b}") for letter in "BI" for a, b in ("xy", "yx")]
TAGGERS = {
    "crf": lambda given: CRFTagger(constraints=given),
    "crf-cv": lambda given: CRFTaggerCV(l2s=[0.1, 1.0], cv=3, constraints=given),
    "hmsvm": lambda given: HMSVMTagger(constraints=given, random_state=0),
    "hmsvm-cv": lambda given: HMSVMTaggerCV(cv=3, constraints=given, random_state=0),
    "zscore": lambda given: ZScoreTagger(constraints=given),
    "zscore-cv": lambda given: ZScoreTaggerCV(l2s=[0.1, 1.0], cv=3, constraints=given),
    "left-out": lambda given: ZScoreTaggerCV(l2s=[0.1, 1.0], cv="leave-one-out", constraints=given),
    "online": lambda given: OnlineDecoder(CRFTagger(constraints=given)),
}


def spans(seed, n=12):
    """Rows of noise and IOB2 labels; the last sequence alone has the type y."""
    rng = np.random.default_rng(seed)
    y = [["O", "B-x", "I-x", "B-x", "O", "O"] for _ in range(n - 1)] + [["B-y", "I-y", "O"]]
    return [rng.normal(size=(len(labels), 4)) for labels in y], y


@pytest.mark.parametrize("name", TAGGERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_pairs_of_a_scheme(name):
    X, y = spans(0)
    new = spans(1, 40)[0]
    models = [TAGGERS[name](given).fit(X, y) for given in ("iob2", PAIRS)]
    models = [getattr(model, "estimator_", model) for model in models]
    for field in ("transition_", "start_", "end_"):
        assert_array_equal(*(getattr(model, field) for model in models))
    assert models[0].predict(new) == models[1].predict(new)
    assert np.isneginf(models[1].start_[2:4]).all()


def test_pairs_and_masks_of_shards_and_batches():
    X, y = spans(0)
    parts = Shards([lambda: (X[:6], y[:6]), lambda: (X[6:], y[6:])])
    mask = [[int((a, b) not in PAIRS) for b in LABELS] for a in LABELS]
    for given in (PAIRS, mask):
        of_shards = CRFTagger(constraints=given).fit(parts)
        batch = CRFTagger(constraints=given).partial_fit(X, y, classes=LABELS)
        for model in (of_shards, batch):
            assert_array_equal(np.isneginf(model.transition_), np.array(mask) == 0)


def test_a_label_pair_in_training_that_is_forbidden():
    with pytest.raises(ValueError, match="'I-y' may not follow 'B-y' at row 1 of sequence 11"):
        CRFTagger(constraints=[("B-y", "I-y")]).fit(*spans(0))
