"""Hidden Markov SVMs that start from the last fit, and losses by label."""

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from sklseq import HMSVMTagger, ZScoreTagger
from sklseq.estimators.hmsvm.margin_problem import MarginProblem
from sklseq.estimators.sources.source import RowSource
from sklseq.objectives.margin.hinge import StructuredHinge
from tests.estimators.test_hmsvm import COST, PARAMETERS, path_features, problem


def random_setting(seed):
    """(X, y, two settings of parameters and sample weights)."""
    rng = np.random.default_rng(seed)
    X, y = problem(seed, lengths=rng.integers(1, 5, 6) + (np.arange(6) == 0) * 3)
    kinds = {"loss": ["hamming", "zero_one", COST], "slack": ["l1", "l2"]}
    kinds |= {"transition_scale": [0.0, 1.0, 2.0], "boundaries": [True, False]}
    allowed = np.ones((3, 3), dtype=bool)
    allowed[0, 1] = False
    kernel = PARAMETERS[list(PARAMETERS)[seed % 3]]
    settings = []
    for _ in range(2):
        chosen = {name: values[rng.integers(len(values))] for name, values in kinds.items()}
        weights = rng.choice([0.0, 0.5, 1.0, 2.0], 6)
        weights[0] = 1.0
        settings.append(({"C": 10 ** rng.uniform(-2, 1.5), **chosen, **kernel}, weights))
    if seed % 2:
        y = [np.sort(labels)[::-1] for labels in y]
        settings[1][0]["constraints"] = allowed
    return X, y, settings


def other_labels(y, seed):
    """Some labels are others; from high to low if they were."""
    rng = np.random.default_rng(seed)
    y = [np.where(rng.random(len(z)) < 0.2, rng.integers(3, size=len(z)), z) for z in y]
    return [np.sort(labels)[::-1] for labels in y] if seed % 2 else y


def check_start(seed, relabel=False):
    """The dual variables at the start are allowed, and the weights are what they add up to."""
    X, y, ((before, w_before), (after, w_after)) = random_setting(seed)
    tagger = HMSVMTagger(warm_start=True, random_state=0, tol=0.1, **before).fit(X, y, w_before)
    tagger = pickle.loads(pickle.dumps(tagger)).set_params(**after)
    y = other_labels(y, seed) if relabel else y
    objective = MarginProblem(tagger, RowSource.read(X, y, w_after)).objective
    paths = objective.support_paths()
    labelings = [*paths.labelings(objective.offsets, objective.y)]
    mass = np.bincount([s for s, _, _ in labelings], [a for _, _, a in labelings], 6)
    assert not mass[w_after == 0].any()
    if after["slack"] == "l1":
        assert (mass <= objective.C * (1 + 1e-12)).all()
    eta, ends = after["transition_scale"], after["transition_scale"] * after["boundaries"]
    zero_one = isinstance(after["loss"], str) and after["loss"] == "zero_one"
    cost = after["loss"] if isinstance(after["loss"], np.ndarray) else 1 - np.eye(3)
    wrong = paths.wrong_rows(objective.y)
    losses = np.bincount(wrong.path, cost[objective.y[wrong.row], wrong.label], len(paths.alpha))
    assert_allclose(paths.loss, np.ones(len(losses)) if zero_one else losses)
    rows, total = np.eye(sum(map(len, X))), np.zeros(3 * sum(map(len, X)) + 15)
    for s, path, alpha in labelings:
        first, n = sum(map(len, X[:s])), len(X[s])
        own = rows[first : first + n]
        assert "constraints" not in after or not ((path[:-1] == 0) & (path[1:] == 1)).any()
        of_truth, of_path = (path_features(own, p, 3, eta, ends) for p in (y[s], path))
        total += alpha * (of_truth - of_path)
    weights, states = objective.weights(), total[:-15].reshape(-1, 3)
    if tagger.kernel == "linear":
        states = np.concatenate(X).T @ states
    free = np.isfinite(weights.transition)
    assert_allclose(weights.coef, states, atol=1e-10)
    assert_allclose(weights.transition[free], eta * total[-15:-6].reshape(3, 3)[free], atol=1e-10)
    assert_allclose([weights.start, weights.end], ends * total[-6:].reshape(2, 3), atol=1e-10)
    assert objective.last_certificate().dual >= -1e-12
    return len(paths.alpha)


@pytest.mark.parametrize("relabel", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_start_is_allowed_and_its_weights_add_up(seed, relabel):
    check_start(seed, relabel)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_path_of_ten_values_takes_three_fits(kernel):
    X, y = problem(4, lengths=[6] * 40, separable=True)
    tagger = HMSVMTagger(kernel=kernel, warm_start=True, random_state=0)
    passes = 0
    for C in np.logspace(-2, 1, 10):
        passes += tagger.set_params(C=C).fit(X, y).n_iter_
    alone = HMSVMTagger(C=10, kernel=kernel, random_state=0).fit(X, y)
    assert passes <= 3 * alone.n_iter_
    assert tagger.objective_ == pytest.approx(alone.objective_, rel=1e-2)


def check_warm(seed):
    """From whatever start, training ends at the same minimum."""
    X, y, ((before, w_before), (after, w_after)) = random_setting(seed)
    tight = {"tol": 1e-5, "max_iter": 20_000, "random_state": 0}
    tagger = HMSVMTagger(warm_start=True, random_state=0, tol=0.1, **before).fit(X, y, w_before)
    warm = clone(tagger).set_params(**after, **tight)
    cold = clone(warm).fit(X, y, w_after)
    vars(warm).update({k: v for k, v in vars(tagger).items() if k.endswith("_")})
    warm.fit(X, y, w_after)
    # Each is within its gap of the minimum, and not below it.
    for one, other in ((warm, cold), (cold, warm)):
        assert one.objective_ >= other.objective_ - other.dual_gap_ - 1e-9
    bound = warm.objective_ - warm.dual_gap_
    warm.fit(X, y, w_after)
    assert warm.objective_ - warm.dual_gap_ >= bound * (1 - 1e-9)  # steps never lower the dual


@pytest.mark.parametrize("seed", range(6))
def test_a_warm_start_ends_at_the_same_minimum(seed):
    check_warm(seed)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("C", [1.0, np.inf])
@pytest.mark.parametrize("first", ["one label", "one allowed path"])
@pytest.mark.filterwarnings("ignore:y holds one label only")
def test_a_start_without_wrong_paths(first, C, kernel):
    # The first fit has no dual variables.
    X = problem(0, lengths=[2] * 10)[0]
    y = [[0, 0]] * 10 if first == "one label" else [[0, 1]] * 10
    allowed = np.array([[False, True], [False, False]]) if first == "one allowed path" else None
    tagger = HMSVMTagger(C=C, kernel=kernel, warm_start=True, constraints=allowed, random_state=0)
    assert len(tagger.fit(X, y).support_alpha_) == 0
    assert_array_equal(np.array([*tagger.fit(X, y).predict(X)]), y)
    later = tagger.set_params(constraints=None).fit(X, y)
    assert_array_equal(np.array([*later.predict(X)]), y)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_path_of_C_takes_fewer_passes(kernel):
    X, y = problem(1, lengths=[6] * 30)
    warm = HMSVMTagger(warm_start=True, kernel=kernel, random_state=0)
    passes = np.zeros(2)
    for C in np.geomspace(0.1, 10, 8):
        cold = clone(warm).set_params(C=C).fit(X, y)
        passes += warm.set_params(C=C).fit(X, y).n_iter_, cold.n_iter_
        assert warm.dual_gap_ <= 0.01 * warm.objective_
        assert abs(warm.objective_ - cold.objective_) <= 0.01 * cold.objective_
    assert passes[0] < 0.8 * passes[1]


def test_an_interrupt_keeps_what_was_reached(monkeypatch):
    X, y = problem(1, lengths=[6] * 20)
    optimize, calls = StructuredHinge.optimize, []

    def interrupted(self, *args):
        calls.append(0)
        if len(calls) == 5:
            raise KeyboardInterrupt
        optimize(self, *args)

    tagger = HMSVMTagger(C=10, tol=1e-4, random_state=0)
    whole = clone(tagger).fit(X, y)
    with monkeypatch.context() as patch:
        patch.setattr(StructuredHinge, "optimize", interrupted)
        for warm in (False, True):
            tagger.set_params(warm_start=warm)
            calls.clear()
            with pytest.raises(KeyboardInterrupt):
                tagger.fit(X, y)
            assert hasattr(tagger, "classes_") == warm
    assert tagger.n_iter_ == 4
    assert whole.objective_ - whole.dual_gap_ <= tagger.objective_
    objective, bound = tagger.objective_, tagger.objective_ - tagger.dual_gap_
    tagger.fit(X, y)
    assert tagger.n_iter_ < whole.n_iter_
    assert tagger.objective_ < objective
    assert tagger.objective_ - tagger.dual_gap_ > bound
    assert tagger.objective_ == pytest.approx(whole.objective_, rel=2e-4)


def test_starts_that_cannot_be():
    X, y = problem(0)
    tagger = HMSVMTagger(warm_start=True).fit(X, y)
    before = tagger.coef_
    for rows, labels in (
        (X[:2], y[:2]),
        ([x[::2] for x in X], [labels[::2] for labels in y]),
        (X, [labels + 7 for labels in y]),
    ):
        with pytest.raises(ValueError, match="warm_start=True needs the sequences and labels of"):
            tagger.fit(rows, labels)
    assert tagger.coef_ is before
    with pytest.raises(ValueError, match="which solver='perceptron' does not keep"):
        HMSVMTagger(warm_start=True, solver="perceptron").fit(X, y)


# ------------------------------------------------------------------ losses by label

NAMES = np.array(["a", "b", "c"])


@pytest.mark.parametrize("make", [partial(HMSVMTagger, random_state=0), ZScoreTagger])
def test_losses_by_label_are_those_of_their_matrix(make):
    X, y = problem(2, lengths=[5] * 8)
    y = [NAMES[labels] for labels in y]
    cost = 1 - np.eye(3)
    cost[0, 2], cost[2, 1] = 3, 0.5
    by_label = {("a", "c"): 3, ("c", "b"): 0.5, ("a", "other"): 9}
    expected = make(loss=cost).fit(X, y)
    for loss in (by_label, lambda true, wrong: by_label.get((true, wrong), 1)):
        found = make(loss=loss).fit(X, y)
        assert_array_equal(found.coef_, expected.coef_)
        assert_array_equal(found.transition_, expected.transition_)
        # A fold without "c" has a matrix of two labels: a given one would not fit.
        few = [np.where(labels == "c", "a", labels) for labels in y]
        assert_array_equal(make(loss=loss).fit(X, few).coef_, make().fit(X, few).coef_)
        folds = [few[0], *y[1:4], *few[4:]]
        assert np.isfinite(cross_val_score(make(loss=loss), X, folds, cv=2)).all()


@pytest.mark.parametrize("make", [HMSVMTagger, ZScoreTagger])
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({("a", 1): 2}, "with labels such as 'a'; got \\('a', 1\\)"),
        ({"ab": 2}, "must have keys \\(true label, wrong label\\).*got 'ab'"),
        ({("a", "b"): -1}, "finite, not negative"),
        ({("a", "a"): 1}, "0 on the diagonal"),
        ({("a", "b"): "much"}, "loss must be 'hamming'"),
        (lambda true, wrong: np.nan, "finite, not negative"),
        (3.0, "one row and one column per label"),
    ],
)
def test_losses_by_label_that_are_none(make, loss, message):
    X, y = problem(2)
    with pytest.raises(ValueError, match=message):
        make(loss=loss).fit(X, [NAMES[labels] for labels in y])
