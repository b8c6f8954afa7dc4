"""Proportions of labels on unlabelled rows: enumeration, finite differences, training, errors."""

import itertools
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import rel_entr
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, RowBlocks
from sklseq.inspection import standard_errors
from tests import reference
from tests.objectives.test_entropy import entropy_problem
from tests.objectives.test_partial import MODELS, enumerated, partial_labels, random_case
from tests.oracles import precise_numerical_gradient
from tests.sample_data import make_data, make_sparse_data

# Of all rows, of those of columns, and of both.
PROPORTIONS = [
    {0: 0.5, 1: 0.2, 2: 0.3},
    {2: 0.9},
    {1: 0.0, 0: 1.0, 3: {0: 0.8}},
    {2: {0: 0.3, 1: 0.3, 2: 0.4}, 0: {1: 0.6}},
]


def rows_of(X):
    return [x.toarray() if sparse.issparse(x) else x for x in X]


def divergence(weights, X, y, given, proportions, classes):
    """Σ N KL over the groups of rows, from marginals of slow recursions."""
    mu = [reference.forward_backward(x @ weights.coef, *weights[1:])[1] for x in rows_of(X)]
    every = set(classes.tolist())
    unknown = np.array([item is None or item == every for labels in y for item in labels])
    of_row = np.repeat(given, [len(labels) for labels in y]) * unknown
    rows, mu, total = np.concatenate(rows_of(X)), np.concatenate(mu), 0.0
    groups = [(value, rows[:, at] != 0) for at, value in proportions.items() if type(value) is dict]
    of_all = {label: p for label, p in proportions.items() if type(p) is not dict}
    for shares, member in [*groups, *([(of_all, 1)] if of_all else [])]:
        if not (n := (of_row * member).sum()):
            continue
        q = dict(zip(classes.tolist(), (of_row * member) @ mu / n))
        target, share = list(shares.values()), [q.pop(label) for label in shares]
        rest = max(0, 1 - sum(target))
        total += n * float(rel_entr([*target, rest], [*share, sum(q.values())]).sum())
    return total


@pytest.mark.parametrize("case", range(8))
def test_value_and_gradient(case):
    model, proportions = MODELS[case % 4], PROPORTIONS[(case + case // 4) % 4]
    X, y = make_data(0, n=8, max_len=5) if case < 4 else make_sparse_data(0, n=8, M=4)
    y = partial_labels(y, 0)
    if "constraints" in model:
        y = [[item if item != 1 else None for item in labels] for labels in y]
        y[0][0] = {1}
    y[4], y[5] = [None] * len(y[4]), [None] * len(y[5])
    X, y = [x for x in X if x.shape[0] < 7], [one for one in y if len(one) < 7]
    given = np.random.default_rng(0).uniform(0.5, 2, len(y))
    tagger = CRFTagger(l2=0.3, label_proportions=proportions, proportions_weight=0.7, **model)
    source, scores, f = entropy_problem(tagger, X, y, given)
    w = scores.new_vector()
    filled = scores.pack(scores.unpack(np.ones_like(w))) != 0
    w[filled] = np.random.default_rng(1).normal(size=filled.sum())
    gradient = np.empty_like(w)
    value = f.value_and_gradient(w, gradient)
    weights = scores.unpack(w)
    expected = 0.3 * float(w @ w) - enumerated(weights, X, y, source.classes, given)
    expected += 0.7 * divergence(weights, X, y, given, proportions, source.classes)
    assert value == pytest.approx(expected, rel=1e-10)
    assert f.value(w) == pytest.approx(value, rel=1e-12)
    numerical = precise_numerical_gradient(f.value, w)
    assert_allclose(gradient[filled], numerical[filled], rtol=1e-8, atol=1e-8)
    _, _, threads = entropy_problem(tagger, X, y, given, 3)
    again = np.empty_like(w)
    assert threads.value_and_gradient(w, again) == pytest.approx(value, rel=1e-12)
    assert_allclose(again, gradient, rtol=1e-10, atol=1e-11)


def check_case(seed):
    """Against slow recursions, and along a random direction; few or many labels."""
    tagger, X, y, scale = random_case(seed)
    rng = np.random.default_rng(seed)
    X = [x * (rng.random(x.shape) < 0.7) for x in X]
    labels = sorted({labels[0] for labels in y if len(labels) == 1})
    given = rng.uniform(0.5, 2, len(y))

    def shares():
        n = int(rng.integers(1, max(2, len(labels))))
        chosen = rng.permutation(labels)[:n].tolist()
        return dict(zip(chosen, rng.dirichlet(np.ones(n + 1))))

    proportions = {k: shares() for k in range(seed % 3)}
    proportions |= {at: p for at, p in shares().items() if at not in proportions}
    tagger.set_params(label_proportions=proportions, proportions_weight=rng.uniform(0.1, 2))
    source, scores, f = entropy_problem(tagger, X, y, given)
    # Proportions near 1e-16, below the rounding errors of marginals, have no exact gradient.
    size, scale = scores.new_vector().shape, min(scale, 1.0)
    w, v = (scores.pack(scores.unpack(scale * rng.normal(size=size))) for _ in range(2))
    gradient, weights = np.zeros_like(w), scores.unpack(w)
    value = f.value_and_gradient(w, gradient)
    plain = CRFTagger(**tagger.get_params() | {"label_proportions": None})
    _, _, without = entropy_problem(plain, X, y, given)
    more = divergence(weights, X, y, given, proportions, source.classes)
    expected = without.value(w) + tagger.proportions_weight * more
    assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
    v /= np.linalg.norm(v)
    slope = (f.value(w + 1e-6 * v) - f.value(w - 1e-6 * v)) / 2e-6
    assert_allclose(gradient @ v, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_many_labels_and_few_transitions(seed):
    check_case(seed)


def test_training_reaches_the_proportions():
    X, y = make_data(0, n=40)
    y[10:] = [[None] * len(labels) for labels in y[10:]]
    wanted = {0: 0.7, 1: 0.2, 2: 0.1}
    tagger = CRFTagger(l2=0.01, tol=1e-6, label_proportions=wanted, proportions_weight=100.0)
    found = np.concatenate(tagger.fit(X, y).predict_proba(X[10:])).mean(axis=0)
    assert_allclose(found, [0.7, 0.2, 0.1], atol=0.01)
    weights = np.r_[np.ones(10), np.zeros(30)]  # nothing unknown is left
    alone = CRFTagger(l2=0.01, tol=1e-6).fit(X[:10], y[:10])
    assert_allclose(tagger.fit(X, y, weights).coef_, alone.coef_)
    with warnings.catch_warnings():  # rounding of float32 may end training before tol
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit([x.astype(np.float32) for x in X], y)
    single = tagger.predict_proba(X[10:])
    assert_allclose(np.concatenate(single).mean(axis=0), [0.7, 0.2, 0.1], atol=0.02)


def test_columns_by_name():
    X = [[{"w": "a"}, {"w": "b"}]] * 2 + [[{"w": "c"}, {"w": "c"}]] * 5
    y = [["A", "B"]] * 2 + [[None, None]] * 5
    options = {"all_possible_states": True, "l2": 0.01, "proportions_weight": 10.0}
    tagger = CRFTagger(label_proportions={"w:c": {"A": 0.9}}, **options).fit(X, y)
    assert np.concatenate(tagger.predict_proba(X[2:]))[:, 0].mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([0.5, 0.5], "must be None or a dict of labels"),
        ({}, "must be None or a dict of labels"),
        ({0: 1.5}, "between 0 and 1; the label 0 has 1.5"),
        ({0: np.nan}, "between 0 and 1"),
        ({0: "a"}, "between 0 and 1"),
        ({0: {}}, "at least one label"),
        ({0: 0.6, 1: 0.6}, "must sum to 1 at most; got 1.2"),
        ({1: {0: 0.6, 1: 0.6}}, "must sum to 1 at most; got 1.2"),
        ({0: 0.2, 1: 0.2, 2: 0.2}, "of all labels must sum to 1; got 0.6"),
        ({7: 0.2}, "has the label 7, which y does not have"),
        ({0: {7: 0.2}}, "has the label 7, which y does not have"),
        ({99: {1: 0.2}}, "has the column 99, which X does not have; .* numbers from 0 to"),
    ],
)
def test_wrong_proportions(wrong, message):
    X, y = make_data(0)
    y[3] = [None] * len(y[3])
    tagger = CRFTagger(label_proportions=wrong)
    with pytest.raises(ValueError, match=message):
        tagger.fit(X, y)
    assert not hasattr(tagger, "coef_")


def allowed_paths(n, mask):
    every = itertools.product(range(len(mask)), repeat=n)
    return [path for path in every if all(mask[i, j] for i, j in itertools.pairwise(path))]


@pytest.mark.parametrize("given", [{"a": 0.5, "b": 0.5}, {"b": 0.5}, {1: {"b": 0.7, "c": 0.3}}])
def test_labels_that_constraints_forbid(given):
    """Against enumeration: with a finite q, and with q = 0 where a label has a proportion."""
    rng, n_refused = np.random.default_rng(0), 0
    of_all = {label: p for label, p in given.items() if label != 1} or given[1]
    groups = [of_all.keys(), {"a", "b", "c"} - of_all.keys()]
    groups = [[label] for label in groups[0]] + [groups[1]] * (sum(of_all.values()) < 1)
    for _ in range(30):
        mask = rng.random((3, 3)) < 0.5
        paths = {n: allowed_paths(n, mask) for n in range(1, 5)}
        X = [rng.integers(0, 2, (n, 2)).astype(float) for n in rng.integers(1, 5, 3) if paths[n]]
        y = [["abc"[k] for k in paths[len(x)][-1]] for x in X] + [["a"], ["b"], ["c"]]
        y[0] = [None if rng.random() < 0.6 else label for label in y[0]]
        X += [np.ones((1, 2))] * 3
        member = X[0][:, 1] != 0 if 1 in given else np.ones(len(X[0]), dtype=bool)
        rows = [t for t, label in enumerate(y[0]) if label is None and member[t]]
        there = {"abc"[path[t]] for path in paths[len(X[0])] for t in rows}
        options = {"constraints": mask, "all_possible_states": True, "max_iter": 5, "l2": 0.1}
        tagger = CRFTagger(label_proportions=given, **options)
        refused = bool(rows) and not all(there & set(labels) for labels in groups)
        n_refused += refused
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if refused:
                missing = next(labels for labels in groups if not there & set(labels))
                some = re.escape(", ".join(map(repr, sorted(missing))))
                with pytest.raises(ValueError, match=f"to {some}, which `constraints` forbid at"):
                    tagger.fit(X, y)
            else:
                assert tagger.fit(X, y).objective_ < 100
    assert 2 < n_refused < 28


def test_errors():
    X, y = make_data(0)
    some = {"label_proportions": {0: 0.5}}
    with pytest.raises(ValueError, match="proportions_weight must be a finite number of at least"):
        CRFTagger(proportions_weight=-1).fit(X, y)
    with pytest.raises(ValueError, match="entropy_weight=1 and label_proportions exclude each"):
        CRFTagger(entropy_weight=1, **some).fit(X, y)
    with pytest.raises(ValueError, match="label_proportions needs sequences in memory"):
        CRFTagger(**some).fit([RowBlocks(x) for x in X], y)
    with pytest.raises(ValueError, match="label_proportions cannot be combined with transition"):
        CRFTagger(transition_features=[0], **some).fit(X, y)
    with pytest.raises(ValueError, match="trained with label_proportions"):
        standard_errors(CRFTagger(**some).fit(X, y), X, y)
