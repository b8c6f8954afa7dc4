"""Transition features through random trees of extractors: roles of columns, and the model."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from sklseq import CRFTagger, SegmentReranker, SemiCRFSegmenter, Sequences
from sklseq.datasets import make_citations
from sklseq.features import (
    DictFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    WindowFeatures,
)

LINES = {"U": 1, "B": 2, "*": 3}


class Words(DictFeatures):
    """Dicts of a word and its first letter; some of them are transition features."""

    def fit_transform(self, X, y=None, **params):
        return super().fit_transform(self.dicts(X), y, **params)

    def transform(self, X):
        return super().transform(self.dicts(X))

    def dicts(self, X):
        return [[{"w": w, "first": w[0], "long": len(w) > 1} for w in x] for x in X]


def leaf(rng):
    """An extractor of words, and the role of a column by its name."""
    if rng.random() < 0.4:
        chosen = [name for name in ("w", "first", "long") if rng.random() < 0.5]

        def is_chosen(name):
            return name.split(":")[0] in chosen

        words = Words(transition_features=is_chosen if chosen else None)
        return words, lambda name: 3 if is_chosen(name) else 1
    kinds = rng.choice(list(LINES), size=rng.integers(1, 4))
    lines = [f"{kind}{k}:%x[{rng.integers(-1, 2)},0]" for k, kind in enumerate(kinds)]
    return TemplateFeatures("\n".join(lines), bos_eos=False), lambda name: LINES[name[0]]


def random_tree(rng, X, depth):
    """A fitted transformer of words, its names, and the roles that its columns should have."""
    kind = rng.integers(4) if depth else 0
    if kind == 0:
        extractor, role = leaf(rng)
        extractor.fit_transform(X)
        names = extractor.get_feature_names_out()
        return extractor, names, [role(name) for name in names]
    if kind == 1:
        parts = [random_tree(rng, X, depth - 1) for _ in range(rng.integers(1, 4))]
        union = FeatureUnion([(f"t{k}", part) for k, (part, *_) in enumerate(parts)])
        if rng.random() < 0.3:
            union.set_params(transformer_weights={"t0": 2.0})
        names = [f"t{k}__{name}" for k, part in enumerate(parts) for name in part[1]]
        return union, names, [role for part in parts for role in part[2]]
    part, names, roles = random_tree(rng, X, depth - 1)
    if kind == 2:
        return make_pipeline(part, PerToken(MaxAbsScaler())), names, roles
    window = WindowFeatures(part, before=1, after=1, conjoin=None)
    window.fit_transform(X)
    known, found = dict(zip(names, roles)), window.get_feature_names_out()
    return window, found, [known.get(name, 1) for name in found]


def check_tree(seed):
    """Roles, also after slices, pickles, copies and joins; the model of a pipeline."""
    rng = np.random.default_rng(seed)
    X = [rng.choice(["a", "bc", "ca", "d"], size=rng.integers(1, 5)).tolist() for _ in range(9)]
    y = [rng.choice(["p", "q", "r"], size=len(x)).tolist() for x in X]
    tree, names, roles = random_tree(rng, X, 3)
    rows = tree.fit_transform(X)
    assert list(tree.get_feature_names_out()) == list(names)
    expected = np.array(roles)
    for some in (rows, tree.transform(X), rows[3:], rows[[4, 1]], pickle.loads(pickle.dumps(rows))):
        found = np.ones(len(names)) if some.roles is None else some.roles
        assert_array_equal(found, expected)
    both = np.concatenate([rows, rows], axis=1)
    assert_array_equal(np.ones(2 * len(names)) if both.roles is None else both.roles, [*roles] * 2)
    model = make_pipeline(tree, CRFTagger(solver="lbfgs", max_iter=4)).fit(X, y)
    given = Sequences(sparse.csr_matrix(rows.rows), rows.offsets, expected)
    other = CRFTagger(solver="lbfgs", max_iter=4).fit(given, y)
    assert_allclose(model[-1].coef_, other.coef_, rtol=1e-9, atol=1e-12)
    assert not model[-1].coef_[expected == 2].any()
    for one, role in ((model[-1], rows.roles), (other, given.roles)):
        assert (one.transition_coef_ is None) == (role is None or not (role & 2).any())
    if other.transition_coef_ is not None:
        difference = model[-1].transition_coef_ - other.transition_coef_
        assert abs(difference).max() < 1e-12
        assert not np.diff(other.transition_coef_.indptr)[expected == 1].any()
    assert model.predict(X) == other.predict(given)


@pytest.mark.filterwarnings("ignore:CRFTagger did not converge")
@pytest.mark.parametrize("seed", range(30))
def test_roles_of_random_trees(seed):
    check_tree(seed)


@pytest.mark.filterwarnings("ignore:SemiCRFSegmenter did not converge")
def test_a_reranker_has_the_transition_features_of_its_segmenter():
    X, y = make_citations(6, random_state=0)
    features = SegmentFeatures(min_count=3, transition_features=r"\.short_shape=")
    pipeline = make_pipeline(features, SemiCRFSegmenter(l2=1.0, max_iter=3))
    model = SegmentReranker(pipeline, cv=2, n_candidates=2, text=False).fit(X, y)
    models = pipeline.fit(X, y), model.estimator_
    alone, inside = (one[-1].transition_coef_ for one in models)
    assert (alone != inside).nnz == 0
    assert alone.nnz
