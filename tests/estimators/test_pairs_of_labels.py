"""The manual's recipe of second-order transitions: pairs of labels that overlap."""

import numpy as np
import pytest

from sklseq import CRFTagger, HMSVMTagger


def as_pairs(labels):
    return [f"{a} {b}" for a, b in zip(["^", *labels[:-1]], labels)]


def sums_of_two(rng, n):
    """Each label is the parity of the two before it; only the first two show in the rows."""
    X, y = [], []
    for T in rng.integers(3, 9, n):
        labels = list(rng.integers(2, size=2))
        while len(labels) < T:
            labels.append((labels[-1] + labels[-2]) % 2)
        x = np.zeros((T, 4))
        x[:2, :2] = np.eye(2)[labels[:2]]
        x[0, 2] = x[2:, 3] = 1
        X.append(x)
        y.append([int(label) for label in labels])
    return X, y


@pytest.mark.parametrize(
    "model", [HMSVMTagger(C=10, random_state=0), CRFTagger(l2=1e-3)], ids=lambda m: type(m).__name__
)
def test_pairs_learn_what_single_labels_cannot(model):
    X, y = sums_of_two(np.random.default_rng(0), 60)
    pairs = [as_pairs(labels) for labels in y]
    classes = np.unique(np.concatenate(pairs))
    before, label = np.array([pair.split() for pair in classes]).T
    assert model.fit(X, y).score(X, y) < 0.9
    second = model.set_params(constraints=label[:, None] == before).fit(X, pairs)
    assert list(second.classes_) == list(classes)
    Z, wanted = sums_of_two(np.random.default_rng(1), 30)
    for path, labels in zip(second.predict(Z), wanted):
        assert [int(pair.split()[1]) for pair in path] == labels
        assert all(a.split()[1] == b.split()[0] for a, b in zip(path, path[1:]))
