"""Likelihood with transition features: enumeration, finite differences, supports."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.data.sequences import row_positions
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.objectives.likelihood import stochastic
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from sklseq.objectives.scores.row_entries import triple_support
from sklseq.objectives.scores.transition_features import (
    TransitionFeatures,
    observed_triples,
    triples_of_codes,
)
from tests.objectives.test_partial import options, partial_labels, problem_of
from tests.oracles import precise_numerical_gradient
from tests.reference import log_sum, score_path
from tests.sample_data import make_data, make_sparse_data

COLUMNS = [1, 3]


def enumerated(weights, coef, X, y, classes, sample_weight):
    """Σ_s weight_s · (log Z(Y_s) - log Z), by all paths."""
    L, total = len(classes), 0.0
    V = coef.toarray().reshape(-1, L, L)
    for x, labels, weight in zip(X, y, sample_weight):
        x = x.toarray() if hasattr(x, "toarray") else x
        transition = weights.transition + np.einsum("tf,fij->tij", x, V)
        psi, ends = x @ weights.coef, (weights.start, weights.end)
        for sign, given in ((1, labels), (-1, [None] * len(labels))):
            paths = list(itertools.product(*(options(item, classes) for item in given)))
            total += sign * weight * log_sum(score_path(paths, psi, transition, *ends))
    return total


@pytest.mark.parametrize("seed", range(4))
def test_triples_that_sets_of_labels_allow(seed):
    rng = np.random.default_rng(seed)
    L, n = 3, 3 + 1 + 2 * seed  # labels, unknown, sets of labels
    table = np.vstack(
        [np.eye(L, dtype=bool), np.ones((1, L), bool), rng.random((n - L - 1, L)) < 0.6]
    )
    for size in (0, 1, 40):
        keys = np.unique(rng.integers(5 * n**2, size=size))
        found = {
            (key // n**2 * L + i) * L + j
            for key in keys.tolist()
            for i, j in itertools.product(range(L), repeat=2)
            if L not in (key // n % n, key % n) and table[key // n % n, i] and table[key % n, j]
        }
        assert_array_equal(triples_of_codes(keys, table), sorted(found))


def data(seed, kind, n=6):
    return make_data(seed, n=n, max_len=5) if kind == "dense" else make_sparse_data(seed, n=n, M=5)


def drawn(scores, seed, size=1.0):
    """Weights without padding, and the same as a user sees them."""
    w = size * np.random.default_rng(seed).normal(size=scores.n_weights).astype(scores.dtype)
    weights = scores.unpack(w), scores.unpack_triples(w)
    return scores.pack(*weights), weights


def packed_again(scores, w):
    return scores.pack(scores.unpack(w), scores.unpack_triples(w))


MODELS = [
    {},
    {"all_possible_states": True, "all_possible_transitions": True},
    {"boundaries": False},
    {"constraints": [[True, True, True], [True, False, True], [True, True, True]]},
]


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_value_and_gradient(seed, partial, kind, model):
    X, y = data(seed, kind)
    y = partial_labels(y, seed) if partial else [labels.tolist() for labels in y]
    if "constraints" in model:
        y = [[item if item != 1 else (None if partial else 0) for item in z] for z in y]
        y[0][0] = {1} if partial else 1
    given = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    tagger = CRFTagger(l2=0.3, transition_features=COLUMNS, **model)
    source, scores, f = problem_of(tagger, X, y, given)
    w, weights = drawn(scores, seed + 9)
    gradient = np.zeros_like(w)
    value = f.value_and_gradient(w, gradient)
    log_p = enumerated(*weights, X, y, source.classes, given)
    assert_allclose(value, 0.3 * w @ w - log_p, rtol=1e-11)
    assert_allclose(f.value(w), value, rtol=1e-12)
    used = np.flatnonzero(packed_again(scores, np.ones_like(w)))
    numerical = precise_numerical_gradient(f.value, w)
    assert_allclose(gradient[used], numerical[used], rtol=1e-8, atol=1e-8)


def test_memory_of_entries_used_again_for_other_sets():
    # Column 0 has all nine pairs, column 1 one of them; blocks of one, the other and both.
    X = Sequences(np.array([[1.0, 0]] * 5 + [[0, 1.0]] * 5) * np.arange(1, 11)[:, None], [0, 10])
    features = TransitionFeatures(X, np.array([*range(9), 14]), 3, np.float64)
    v, shared = np.arange(10.0), np.zeros((3, 3))
    room = features.buffers([(0, 10)])
    for first, n in ((0, 5), (5, 5), (0, 5), (3, 6), (0, 5), (0, 10)):
        offsets = np.array([0, n])
        rows = features.fill(v, shared, first, offsets, room)
        fresh = features.fill(v, shared, first, offsets, features.buffers([(0, 10)]))
        assert_array_equal(rows.toarray(), fresh.toarray())
        assert_array_equal(rows.i, fresh.i)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_single_precision(kind):
    X, y = data(1, kind)
    single = Sequences.from_list([x.astype(np.float32) for x in X])
    tagger = CRFTagger(l2=1, transition_features=COLUMNS)
    source, scores, f = problem_of(tagger, single, y)
    assert scores.dtype == np.float32
    w, weights = drawn(scores, 3)
    gradient, double = np.zeros_like(w), np.zeros(len(w))
    value = f.value_and_gradient(w, gradient)
    log_p = enumerated(*weights, X, y, source.classes, np.ones(len(y)))
    assert_allclose(value, w @ w - log_p, rtol=1e-5)
    _, wide, g = problem_of(tagger, X, y)
    w64 = wide.pack(*weights)
    g.value_and_gradient(w64, double)
    assert_allclose(scores.unpack(gradient).coef, wide.unpack(double).coef, atol=1e-4)
    coefs = (scores.unpack_triples(gradient), wide.unpack_triples(double))
    assert_allclose(*(coef.toarray() for coef in coefs), atol=1e-4)


def test_scores_too_far_apart_for_scaled_arithmetic():
    X, y = data(0, "dense")
    mask = np.ones((3, 3), dtype=bool)
    mask[2, 1] = False
    y = [np.where(labels == 2, 0, labels) for labels in y]
    y[0][0] = 2
    tagger = CRFTagger(l2=0.0, transition_features=COLUMNS, constraints=mask)
    y[0][1:2] = 0
    source, scores, f = problem_of(tagger, X, y)
    w, weights = drawn(scores, 1, 700)
    gradient = np.zeros_like(w)
    log_p = enumerated(*weights, X, y, source.classes, np.ones(len(y)))
    for _ in range(2):  # the second evaluation is scaled by the scores of the first
        assert_allclose(f.value_and_gradient(w, gradient), -log_p, rtol=1e-11)
    assert np.isfinite(gradient).all()


def test_several_blocks_and_threads():
    X, y = make_sparse_data(0, n=2500)
    values = []
    for n in (1, 2):
        _, scores, f = problem_of(CRFTagger(transition_features=COLUMNS), X, y, n=n)
        w, _ = drawn(scores, 0)
        gradient = np.zeros_like(w)
        values.append((f.value_and_gradient(w, gradient), gradient))
    assert_allclose(values[0][0], values[1][0], rtol=1e-12)
    assert_allclose(values[0][1], values[1][1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_weights_are_of_triples_that_occur(kind):
    X, y = data(2, kind)
    X = X if isinstance(X, Sequences) else Sequences.from_list(X)
    codes, L = np.concatenate(y), 3
    dense = X.rows.toarray() if X.is_sparse else X.rows
    _, _, after = row_positions(X.offsets)
    triples = {
        (f * L + codes[t - 1]) * L + codes[t] for t in after for f in COLUMNS if dense[t, f] != 0
    }
    assert_array_equal(observed_triples(X, np.array(COLUMNS), codes, L), sorted(triples))
    _, scores, _ = problem_of(CRFTagger(transition_features=COLUMNS), X, y)
    assert scores.features.n_weights == len(triples)


def test_memory_is_that_of_weights_seen():
    # 50,000 columns and 40 labels: all weights would take 640 MB.
    rng, n = np.random.default_rng(0), 50_000
    X = Sequences(sparse.eye_array(n, format="csr"), np.arange(0, n + 1, 10))
    y = [rng.integers(0, 40, 10) for _ in range(n // 10)]
    _, scores, f = problem_of(CRFTagger(transition_features=np.ones(n, dtype=bool)), X, y)
    assert scores.features.n_weights == n - n // 10
    _, weights = drawn(scores, 0)
    assert weights[1].nnz == n - n // 10
    assert f.buffers[0].entries.score.nbytes < 1e5


@pytest.mark.parametrize("seed", range(20))
def test_triples_are_split(seed):
    rng = np.random.default_rng(seed)
    L, n_features = int(rng.integers(1, 6)), int(rng.integers(1, 8))
    kept = rng.random(n_features * L * L) < rng.choice([0, 0.1, 0.5, 0.95, 1])
    triples = np.flatnonzero(kept)
    columns, (start, i, j) = triple_support(triples, L)
    assert_array_equal(columns, np.unique(triples // L**2))
    feature = np.repeat(columns, np.diff(start))
    assert_array_equal((feature * L + i) * L + j, triples)
    assert i.max(initial=0) < L > j.max(initial=0)


def test_packing_is_the_inverse_of_unpacking():
    X, y = data(3, "sparse")
    _, scores, _ = problem_of(CRFTagger(transition_features=COLUMNS), X, y)
    w, weights = drawn(scores, 5)
    assert_array_equal(packed_again(scores, w), w)
    columns, pairs = weights[1].nonzero()
    assert_array_equal(np.unique(columns), COLUMNS)
    assert len(pairs) == scores.features.n_weights


def test_a_model_of_no_triples_is_the_plain_one():
    # Features occur in first rows only.
    X, y = [np.eye(3)[:1], np.eye(3)[1:2]], [[0], [1]]
    values = []
    for columns in (None, [0, 1, 2]):
        _, scores, f = problem_of(CRFTagger(transition_features=columns), X, y)
        values.append(f.value(drawn(scores, 0)[0]))
    assert values[0] == values[1]
    assert CRFTagger(transition_features=[0]).fit(X, y).transition_coef_.nnz == 0


def random_steps(seed):
    """A problem for steps of AdaGrad on single sequences, and weights."""
    rng = np.random.default_rng(seed)
    X, y = make_sparse_data(seed, n=6, M=5) if seed % 2 else make_data(seed, n=6, max_len=5)
    X = X if isinstance(X, Sequences) else Sequences.from_list(X)
    roles = rng.integers(1, 4, X.shape[1])
    roles[:2] = 1, 2
    X = Sequences(X.rows, X.offsets, roles)
    partial = seed % 3 == 0
    y = partial_labels(y, seed) if partial else [labels.tolist() for labels in y]
    model = MODELS[seed % 3]
    source = open_source(X, y, rng.uniform(0.5, 2, len(y)), "auto")
    scores = score_map(CRFTagger(**model), source, source.summarise(), single_sequences=True)
    f = source.likelihood(scores, 0.0, Threads(1))
    w, _ = drawn(scores, seed, [0.3, 1.0, 3.0][seed // 2 % 3])
    return source, scores, f, w


def check_steps(seed):
    """The step of each sequence is its gradient, and its loss -log p(y | x)."""
    source, scores, f, w = random_steps(seed)
    total, loss, lengths = np.zeros_like(w), 0.0, np.diff(f.offsets)
    for s in range(len(source.numbers)):
        # So large a sum of squares that it does not change: the step is minus the gradient.
        steps = StochasticLikelihood(f, w=w.copy(), first_square=2.0**40)
        steps.scale = None
        with patch.object(stochastic, "ALMOST", 0.0):
            steps.descend(np.array([s]), 2.0**20)
        # Steps in a sequence of more than twice the mean length are shorter.
        total += (w - steps.w) / np.sqrt(min(1, 2 * lengths.mean() / lengths[s]))
        loss += f.weights[s] * steps.losses[s]
    gradient = np.zeros_like(w)
    assert_allclose(loss, f.value_and_gradient(w, gradient), rtol=1e-9, atol=1e-9)
    used = packed_again(scores, np.ones_like(w)) != 0
    assert_allclose(total[used], gradient[used], rtol=1e-7, atol=1e-8)


def test_losses_of_steps_where_scores_are_far_apart():
    _, _, f, w = random_steps(7)
    w = 200 * w
    steps = StochasticLikelihood(f, w=w.copy(), first_square=2.0**40)
    steps.descend(steps.sequences, 1e-30)
    assert_allclose(steps.losses @ f.weights, f.value(w), rtol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_steps_of_single_sequences(seed):
    check_steps(seed)


def test_threads_merge_what_each_learned():
    X, y = make_sparse_data(1, n=300, M=6)
    tagger = CRFTagger(transition_features=[0, 2, 5], l2=0.1)
    source = open_source(X, y, None, "auto")
    scores = score_map(tagger, source, source.summarise(), single_sequences=True)
    order, start = np.random.default_rng(0).permutation(300), drawn(scores, 0)[0]

    def after(n_threads, order):
        with Threads(n_threads) as threads, patch.object(stochastic, "ALMOST", 0.0):
            f = source.likelihood(scores, 0.1, threads)
            steps = StochasticLikelihood(f, 0.05, start.copy())
            steps.descend(order, 0.5, n_sequences=300)
            return steps, steps.shares(order)

    both, shares = after(2, order)
    assert len(shares) == 2
    moves, grown = [], []
    for share in shares:
        one, _ = after(1, share)
        moves.append(one.v - scores.triples(start))
        grown.append(np.sqrt(np.maximum(one.squares[3] - stochastic.FIRST_SQUARE, 0) + 1e-30))
    expected = np.minimum(1, 1.5 * np.maximum(*grown) / sum(grown)) * sum(moves)
    assert np.abs(expected).max() > 0.1
    stays = np.abs(both.v) > 0  # not shrunk through 0
    assert stays.mean() > 0.9
    assert_allclose((both.v - scores.triples(start))[stays], expected[stays], atol=1e-5)


def check_minimum(seed):
    """Steps of AdaGrad, and L-BFGS after them, end where L-BFGS does."""
    rng = np.random.default_rng(seed)
    X, y = make_sparse_data(seed, n=30, M=6)
    X = Sequences(X.rows * sparse.diags_array(10 ** rng.uniform(-1, 1, 6)), X.offsets)
    given = {"l1": [0.0, 0.2][seed % 2], "l2": 10 ** rng.uniform(-1, 1), "tol": 1e-6}
    given |= {"transition_features": rng.permutation(6)[: 1 + seed % 3], "max_iter": 5000}
    given["all_possible_transitions"] = seed % 5 == 0
    weights = rng.integers(0, 3, len(X)).astype(float)
    weights[:2] = 1
    adagrad, lbfgs = (
        CRFTagger(solver=solver, **given).fit(X, y, weights) for solver in ("adagrad", "lbfgs")
    )
    assert_allclose(adagrad.objective_, lbfgs.objective_, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_solvers_end_at_the_same_minimum(seed):
    check_minimum(seed)
