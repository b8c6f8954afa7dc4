"""transitions="auto": the choice by sequences left out, against training and predicting anew."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq import ZScoreTagger, ZScoreTaggerCV
from sklseq.data.sequences import Sequences
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore import transition_choice
from sklseq.estimators.zscore.transition_choice import RULES, choose_rule, losses
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from tests.sample_data import make_data

RARE = {"O": 0.3, "B-x": 2.0, "I-x": 1.0}
COST = np.array([[0.0, 2.0, 1.0], [1.0, 0.0, 3.0], [0.5, 1.0, 0.0]])


def make_spans(seed, lengths):
    """Spans of about three rows, and normal rows whose means differ by label."""
    rng = np.random.default_rng(seed)
    means, X, y = rng.normal(size=(3, 4)), [], []
    for n in lengths:
        inside = np.repeat(rng.random(n) < 0.4, 3)[:n]
        begins = inside & ~np.append(False, inside[:-1])
        codes = np.where(begins, 0, np.where(inside, 1, 2))
        X.append(means[codes] + 1.5 * rng.normal(size=(n, 4)))
        y.append(np.array(["B-x", "I-x", "O"])[codes])
    return X, y


def make_lasting(seed, n, length, n_labels=3):
    """Labels that last a hundred rows, in noise that hides them at each single row."""
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(0).normal(size=(n_labels, 4))
    y = [np.repeat(rng.integers(n_labels, size=length // 50), 50) for _ in range(n)]
    return [means[labels] + 2 * rng.normal(size=(length, 4)) for labels in y], y


def problem_of(tagger, X, y, weights=None):
    return ZScoreProblem(tagger, RowSource.read(X, y, weights))


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # of the penalty
@pytest.mark.parametrize(
    "options",
    [{}, {"loss": None}, {"loss": COST}, {"class_weight": RARE}, {"constraints": "iob2"},
     {"class_weight": "balanced", "l2": 0.01}, {"kernel": "rbf", "gamma": 0.3},
     {"kernel": "rbf", "gamma": 0.3, "n_landmarks": 9, "random_state": 0}],
)  # fmt: skip
def test_losses_are_those_of_training_and_predicting_anew(options):
    X, y = make_spans(0, [27, 1, 19, 40, 32, 23, 38, 10])
    weights = np.array([1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0, 1.0])
    problem = problem_of(ZScoreTagger(**options), X, y, weights)
    train, test = np.array([5, 0, 2, 3]), np.array([6, 4, 1])
    factors = {"O": 1.0, "B-x": 1.0, "I-x": 1.0}
    if "class_weight" in options:
        rows = np.repeat(weights, [len(labels) for labels in y])
        of_label = {a: rows[np.concatenate(y) == a].sum() for a in factors}
        balanced = {a: rows.sum() / 3 / of_label[a] for a in factors}
        factors = RARE if options["class_weight"] == RARE else balanced
    cost = options["loss"] if options.get("loss") is not None else 1 - np.eye(3)
    place = {"B-x": 0, "I-x": 1, "O": 2}
    found = losses(problem, train, test)
    for rule, loss in zip(RULES, found):
        given = {"transitions": rule.kind, "transition_weight": rule.weight, **options}
        tagger = ZScoreTagger(**given).fit(*([D[s] for s in train] for D in (X, y)), weights[train])
        answers = tagger.predict([X[s] for s in test])
        assert_allclose(loss, [
            weights[s] * factors[a] * cost[place[a], place[b]]
            for s, labels in zip(test, answers) for a, b in zip(y[s].tolist(), labels)
        ], rtol=1e-12)  # fmt: skip
    assert len(set(found.sum(axis=1))) > 1


def test_labels_that_the_part_lacks_are_answered_wrong():
    X, y = make_spans(1, [6] * 6)
    y[5][:] = "Z-only-here"
    problem = problem_of(ZScoreTagger(), X, y)
    assert losses(problem, np.arange(5), np.array([5])).all()
    assert losses(problem, np.array([5]), np.arange(5)).all()


@pytest.mark.parametrize("options", [{}, {"class_weight": "balanced"}, {"loss": None, "l2": 0.1}])
@pytest.mark.parametrize("make", [make_spans, make_lasting])
def test_the_clearly_least_loss_over_all_folds_is_chosen(make, options):
    args = (2, [10] * 23) if make is make_spans else (2, 12, 200)
    X, y = make(*args)
    order = np.random.default_rng(0).permutation(len(y))
    problem = problem_of(ZScoreTagger(**options), X, y)
    left = []
    for k in range(5):
        test = order[k::5]
        left.append(losses(problem, np.setdiff1d(order, test), test))
    left = np.hstack(left)
    best = int(left.sum(axis=1).argmin())
    gain = left[0] - left[best]
    best = RULES[best if gain.sum() > np.sqrt(gain @ gain) else 0]
    assert choose_rule(problem) == best
    tagger = ZScoreTagger(**options).fit(X, y)
    given = {"transitions": best.kind, "transition_weight": best.weight, **options}
    same = ZScoreTagger(**given).fit(X, y)
    for name in ("coef_", "transition_", "zscore_", "transition_weight_"):
        assert_array_equal(getattr(tagger, name), getattr(same, name))
    assert tagger.transitions_ == same.transitions_ == best.kind


@pytest.mark.parametrize(("n", "length"), [(1, 2000), (3, 700), (12, 200)])
def test_labels_that_last_are_found(n, length):
    X, y = make_lasting(1, n, length)
    new = make_lasting(2, 5, 400)
    scores = [
        ZScoreTagger(transitions=kind).fit(X, y).score(*new) for kind in ("auto", "covariance")
    ]
    assert scores[0] > scores[1] + 0.05


def test_pieces_of_few_sequences_ignore_constraints_on_the_first_label():
    X, y = make_spans(3, [150, 90])
    tagger = ZScoreTagger(constraints="iob2").fit(X, y)
    free = ZScoreTagger().fit(X, y)
    assert tagger.transition_weight_ == free.transition_weight_


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_of_large_data_one_part_is_trained_on_and_another_decoded(kernel, monkeypatch):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 60, 3_000 if kernel == "linear" else 300)
    offsets = np.cumsum([0, *lengths])
    X = Sequences(rng.normal(size=(offsets[-1], 2)), offsets)
    y = np.split(rng.integers(0, 2, offsets[-1]), offsets[1:-1])
    asked = []
    monkeypatch.setattr(
        transition_choice, "losses", lambda problem, *fold: asked.append(fold) or np.zeros((2, 1))
    )
    problem = problem_of(ZScoreTagger(kernel=kernel), X, y)
    assert choose_rule(problem) == RULES[0]
    ((train, test),) = asked
    assert not np.intersect1d(train, test).size
    assert lengths[train].min() > 0
    trained = max(len(X.rows) / 8, 6_000 if kernel == "linear" else 750)
    assert trained <= lengths[train].sum() < trained + 60
    if kernel == "linear":
        assert 9_940 < lengths[test].sum() < 10_060


@pytest.mark.parametrize(("n", "length"), [(5, 3_000), (6, 9_000), (10, 20_000), (40, 2_000)])
def test_of_long_sequences_one_at_least_is_decoded(n, length):
    rng = np.random.default_rng(n)
    X = Sequences(rng.normal(size=(n * length, 1)), np.arange(n + 1) * length)
    y = list(rng.integers(0, 2, (n, length)))
    problem = problem_of(ZScoreTagger(), X, y)
    ((train, test),) = transition_choice._folds(problem)
    assert len(test) > 0
    assert not np.intersect1d(train, test).size
    assert losses(problem, train, test).shape == (len(RULES), len(test) * length)


@pytest.mark.parametrize(
    ("options", "kind"),
    [({"refine": 1}, "covariance"), ({"transition_weight": 0.3}, "covariance"),
     ({"separate": True, "max_iter": 1}, "covariance"), ({"moments": "dp"}, "covariance"),
     ({"constraints": "iob2", "constrained": "training"}, "covariance"),
     ({"transitions": "information"}, "information")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_where_nothing_is_chosen(options, kind):
    X, y = make_spans(4, [10] * 12)
    tagger = ZScoreTagger(**options).fit(X, y)
    assert tagger.transitions_ == kind
    same = ZScoreTagger(**{"transitions": kind, **options}).fit(X, y)
    assert_array_equal(tagger.transition_, same.transition_)


def test_less_than_a_hundred_rows_and_parts_have_information():
    X, y = make_data(0, n=20)
    few = slice(0, 5)
    parts = ZScoreTagger().partial_fit(X[:10], y[:10], [0, 1, 2]).partial_fit(X[10:], y[10:])
    for tagger in (ZScoreTagger().fit(X[few], y[few]), parts):
        assert (tagger.transitions_, tagger.transition_weight_) == ("information", 0.07)
    whole = ZScoreTagger(transitions="information").fit(X, y)
    assert_allclose(parts.transition_, whole.transition_, rtol=1e-8)


def test_the_search_does_not_take_auto():
    with pytest.raises(ValueError, match="transitions must be one of"):
        ZScoreTaggerCV(transitions="auto").fit(*make_data(0))
