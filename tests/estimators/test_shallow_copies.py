"""Methods that change a fitted estimator leave the original of a shallow copy as it is."""

import copy

import numpy as np
import pytest

from sklseq import CRFTagger, HMSVMTagger, ZScoreTagger
from sklseq.features import DictFeatures

RNG = np.random.default_rng(0)
X = [[{f"a{RNG.integers(9)}": 1.0, "b": RNG.normal()} for _ in range(6)] for _ in range(8)]
Y = [["p" if item["b"] > 0 else "q" for item in x] for x in X]
NEW = [[{"c": 1.0, "a1": 1.0, "b": 0.5}, {"d": 2.0, "b": -0.5}]]
LABELS = ["p", "q"]


HASHED = DictFeatures(n_features=32).fit(X).transform

PERCEPTRON = HMSVMTagger(solver="perceptron", random_state=0)
MODELS = {
    "crf": lambda: CRFTagger(l1=0.5).fit(X, Y),
    "crf sparse": lambda: CRFTagger(l1=0.5).fit(X, Y).sparsify(),
    "crf transitions": lambda: CRFTagger(transition_features="a").fit(X, Y),
    "crf batches": lambda: CRFTagger().partial_fit(HASHED(X), Y, classes=LABELS),
    "hmsvm batches": lambda: PERCEPTRON.partial_fit(HASHED(X), Y, classes=LABELS),
    "z-score batches": lambda: ZScoreTagger().partial_fit(X, Y, classes=LABELS),
    "dicts": lambda: DictFeatures(transition_features="a").fit(X),
}
CHANGES = {
    "prune": lambda model: model.prune(0.1),
    "sparsify": lambda model: model.sparsify(),
    "densify": lambda model: model.densify(),
    "fit": lambda model: model.fit(NEW, [LABELS]),
    "partial_fit": lambda model: model.partial_fit(
        NEW if isinstance(model, ZScoreTagger) else HASHED(NEW), [LABELS]
    ),
    "restrict": lambda model: model.restrict(np.arange(model.n_features_out_) % 2),
    "extend": lambda model: model.extend(NEW),
}


def answers(model):
    if isinstance(model, DictFeatures):
        rows = model.transform(X)
        return [
            rows.rows.toarray().tolist(),
            rows.roles.tolist(),
            model.get_feature_names_out().tolist(),
        ]
    given = X if model.n_features_in_ != 32 else HASHED(X)
    return list(model.predict(given)), str(model.predict_nbest(given, 2))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_original_of_a_changed_copy_stays(name):
    model = MODELS[name]()
    batches, before = "batches" in name, answers(model)
    for change, call in CHANGES.items():
        if hasattr(model, change) and batches >= (change == "partial_fit"):
            call(copy.copy(model))
            assert answers(model) == before, change
