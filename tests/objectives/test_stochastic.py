"""Steps of AdaGrad, one sequence at a time, against the gradient, L-BFGS and plain NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.objectives.likelihood import dual as _dual
from sklseq.objectives.likelihood import stochastic as _stochastic
from sklseq.objectives.likelihood.batches import APART, LEAST, BatchPlan
from sklseq.objectives.likelihood.dual import DualLikelihood
from sklseq.objectives.likelihood.stochastic import FIRST_SQUARE, StochasticLikelihood
from sklseq.solvers import adagrad
from tests import reference
from tests.objectives.test_dual import likelihood_of
from tests.sample_data import make_sparse_data

SEEDS = range(3)
# Sums of squares and what is made of them are float32.
SINGLE = 2e-6

MODELS = [
    {},
    {"all_possible_states": True, "all_possible_transitions": True},
    {"boundaries": False},
    {"l1": 20.0},
    {"l1": 0.2, "l2": 0.0},
    {"l2": 0.0},
]


@pytest.fixture
def exact(monkeypatch):
    """Residuals are never sampled."""
    monkeypatch.setattr(_stochastic, "ALMOST", 0.0)


def likelihood_of_one(primal, s):
    # Without penalty.
    weights = np.zeros_like(primal.weights)
    weights[s] = primal.weights[s]
    with Threads(1) as threads:
        return type(primal)(primal.scores, primal.y, primal.offsets, weights, 0.0, threads)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("L", [2, 3, 5, 9])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("T", [1, 2])
def test_a_visit_is_the_step_of_adagrad(exact, seed, L, states, T):
    # Up to two rows without a feature in common, and ones as features: each weight is touched
    # once, so that the step is rate · g / √(1 + g²) with g from the likelihood's own gradient.
    rng = np.random.default_rng(seed)
    rows = rng.random((12, T, 6, T)) < 0.5
    rows &= np.eye(T, dtype=bool)[None, :, None]
    rows = sparse.csr_matrix(rows.reshape(12 * T, 6 * T).astype(float))
    X = Sequences(rows, np.arange(0, 12 * T + 1, T))
    y = [np.array([k % L, *rng.integers(0, L, T - 1)]) for k in range(12)]
    tagger = CRFTagger(all_possible_states=states, l2=0.7)
    with Threads(1) as threads:
        primal = likelihood_of(tagger, X, y, threads)
        stochastic = StochasticLikelihood(primal, l1=0.3)
        for s in rng.permutation(12)[:3]:
            before = stochastic.w.copy()
            squares = primal.scores.new_vector() + FIRST_SQUARE
            gradient = np.zeros_like(before)
            likelihood_of_one(primal, s).value_and_gradient(before, gradient)
            stochastic.squares = [np.full_like(x, FIRST_SQUARE) for x in stochastic.squares]
            stochastic.descend(np.array([s]), 0.5)
            squares += gradient**2
            step = 0.5 / np.sqrt(squares)
            expected = before - step * gradient
            expected = np.sign(expected) * np.maximum(np.abs(expected) - step * 0.3, 0)
            expected /= 1 + step * 2 * 0.7
            real = primal.scores.pack(primal.scores.unpack(expected))  # padding has no meaning
            assert_allclose(
                primal.scores.pack(primal.scores.unpack(stochastic.w)), real, atol=SINGLE
            )
            value = primal.value(before)
            assert_allclose(stochastic.metric(), np.sqrt(squares), rtol=1e-5)
            assert primal.value(before) == value  # which asking for it leaves as it is


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_passes_and_what_follows_come_as_near_as_told(seed, model):
    X, y = make_sparse_data(seed, n=600)
    model = {"l2": 0.5} | model
    a = CRFTagger(solver="adagrad", tol=1e-2, **model).fit(X, y)
    b = CRFTagger(solver="owlqn", tol=1e-9, max_iter=5000, **model).fit(X, y)
    assert b.objective_ <= a.objective_ + 1e-9 * b.objective_
    assert a.objective_ <= b.objective_ * 1.01
    if model.get("l1", 0) > 1:
        assert (a.coef_ == 0).any()


@pytest.mark.filterwarnings("ignore:.*little or no weight:UserWarning")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", ["dense", "float32", "constraints", "weights"])
def test_a_smaller_tolerance_is_finished_by_lbfgs(seed, form):
    X, y = make_sparse_data(seed)
    model, weight = {"l2": 0.1}, None
    if form == "dense":
        X = Sequences(X.rows.toarray(), X.offsets)
    if form == "float32":
        X = Sequences(X.rows.astype(np.float32), X.offsets)
    if form == "constraints":
        y = [np.maximum.accumulate(labels) for labels in y]
        model["constraints"] = np.triu(np.ones((3, 3), bool))
    if form == "weights":
        weight = np.random.default_rng(seed).integers(0, 3, len(X)).astype(float)
        weight[:2] = 1
    a = CRFTagger(solver="adagrad", tol=1e-8, max_iter=2000, **model).fit(X, y, weight)
    b = CRFTagger(solver="lbfgs", tol=1e-8, max_iter=2000, **model).fit(X, y, weight)
    assert_allclose(a.objective_, b.objective_, rtol=1e-5)
    assert a.coef_.dtype == b.coef_.dtype
    assert_array_equal(np.isinf(a.transition_), np.isinf(b.transition_))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few passes
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_features_of_any_scale_are_learnt_alike(scale):
    # Where the penalty is scaled with them, the model is the same but for the unit of its weights.
    X, y = make_sparse_data(0)
    a = CRFTagger(solver="adagrad", tol=1e-2, l2=0.0, max_iter=7).fit(X, y)
    scaled = Sequences(X.rows * scale, X.offsets)
    b = CRFTagger(solver="adagrad", tol=1e-2, l2=0.0, max_iter=7).fit(scaled, y)
    assert_allclose(b.coef_ * scale, a.coef_, rtol=1e-4, atol=1e-4)


def test_certain_rows_are_sampled_without_bias(monkeypatch):
    # The mean of many first passes is what the pass without sampling does, to its noise.
    X, y = make_sparse_data(1, n=3)
    moved = []
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(), X, y, threads)
        for k in range(400):
            monkeypatch.setattr(_stochastic, "ALMOST", 3.0)
            monkeypatch.setattr(_stochastic, "SEED", 10**12 + 10**10 * k)
            stochastic = StochasticLikelihood(primal)
            stochastic.squares = [x + np.float32(1e4) for x in stochastic.squares]  # linear steps
            stochastic.descend(np.array([0]), 0.01)
            moved.append(stochastic.w)
        monkeypatch.setattr(_stochastic, "ALMOST", 0.0)
        stochastic = StochasticLikelihood(primal)
        stochastic.squares = [x + np.float32(1e4) for x in stochastic.squares]
        stochastic.descend(np.array([0]), 0.01)
    error = np.std(moved, axis=0) / np.sqrt(len(moved))
    assert (np.abs(np.mean(moved, axis=0) - stochastic.w) <= 5 * error + 1e-9).all()


def random_problem(seed):
    """A likelihood over a random structure, and weights of any magnitude."""
    rng = np.random.default_rng(seed)
    L = int(rng.choice([2, 3, 5, 9, 30]))
    X, y = make_sparse_data(seed, n=L + 5, L=L)
    model = {"all_possible_transitions": bool(rng.random() < 0.5)}
    model["all_possible_states"] = bool(rng.random() < 0.5)
    if rng.random() < 0.4:
        y = [np.maximum.accumulate(labels) for labels in y]  # labels never go down
        seen = len(np.unique(np.concatenate(y)))
        model["constraints"] = np.triu(np.ones((seen, seen), bool))
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(**model), X, y, threads)
    w = primal.scores.pack(
        primal.scores.unpack(rng.normal(size=primal.scores.n_weights) * 10 ** rng.uniform(-1, 5))
    )
    return X, primal, w


def check_losses(seed):
    # `losses` and the sum returned are -log p before each step, however far apart scores are.
    X, primal, w = random_problem(seed)
    weights = primal.scores.unpack(w)
    emission, chain = X.rows @ weights.coef[:, : primal.scores.n_labels], weights[1:]
    for s in range(6):
        stochastic = StochasticLikelihood(primal, w=w.copy())
        rows = slice(*X.offsets[s : s + 2])
        log_z, _, _ = reference.forward_backward(emission[rows], *chain)
        score = reference.score_path(primal.y[rows], emission[rows], *chain)
        total = stochastic.descend(np.array([s]), 0.0)
        near = {"rtol": 1e-9, "atol": 1e-11 * np.abs(emission[rows]).max() * len(emission[rows])}
        assert_allclose(stochastic.losses[s], log_z - score, **near)
        assert_allclose(total, log_z - score, **near)


@pytest.mark.parametrize("seed", range(20))
def test_losses_are_minus_log_p_whatever_the_scores(seed):
    check_losses(seed)


def test_same_seed_same_bits_and_few_sequences_are_left_to_one_thread():
    X, y = make_sparse_data(1)
    fits = [
        CRFTagger(solver="adagrad", tol=1e-2, random_state=s, n_jobs=n).fit(X, y).coef_
        for s, n in ((0, 1), (0, 2), (1, 1))
    ]
    assert_array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])


def test_a_rate_that_diverges_is_cut_and_never_gives_nan():
    X, y = make_sparse_data(0)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(l2=0.1), X, y, threads)
        result = adagrad(StochasticLikelihood(primal), primal, rate=1e6, n_passes=30)
        gentle = adagrad(StochasticLikelihood(primal), primal, rate=1.0, n_passes=30)
    assert np.isfinite(result.w).all()
    assert result.value <= result.history[0]
    assert result.value <= 1.5 * gentle.value


def test_the_optimum_is_not_left():
    X, y = make_sparse_data(0)
    best = CRFTagger(solver="lbfgs", tol=1e-10, max_iter=5000).fit(X, y)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(), X, y, threads)
        w = primal.scores.pack(
            type(primal.scores.unpack(primal.scores.new_vector()))(
                best.coef_, best.transition_, best.start_, best.end_
            )
        )
        result = adagrad(StochasticLikelihood(primal, w=w.copy()), primal, rate=1.0, n_passes=3)
    assert result.value <= result.history[0]
    assert_allclose(result.w, w, atol=1e-3)


class Stub:
    """Every pass moves uphill."""

    sequences, losses = np.arange(3), np.zeros(3)

    def __init__(self):
        self.w = np.zeros(2)

    def descend(self, order, rate, boost):
        self.w += 1
        return 0.0

    def forget(self):
        pass

    def value(self, w):
        return 1 + float(w @ w)


def test_an_end_worse_than_the_start_is_not_the_answer():
    stub = Stub()
    result = adagrad(stub, stub, n_passes=4)
    assert (result.message, result.converged, result.value) == ("worse", False, 1.0)
    assert result.history == [1.0, 1.0]
    assert_array_equal(result.w, 0)


class Overshooting(Stub):
    """The third pass has more than twice the losses of the second; w counts the passes."""

    def __init__(self):
        super().__init__()
        self.told, self.rates, self.n_forgotten = iter([40.0, 10.0, 21.0, 9.0]), [], 0

    def descend(self, order, rate, boost):
        self.rates.append(rate)
        self.w += 1
        return next(self.told)

    def forget(self):
        self.n_forgotten += 1

    def restart(self, w):
        self.w = w.copy()

    def value(self, w):
        return 100 - float(w @ w)


def test_a_pass_that_doubles_the_losses_is_undone():
    stub = Overshooting()
    result = adagrad(stub, stub, rate=1.0, n_passes=4)
    assert stub.rates == [1.0, 0.75, 0.5, 0.25 / 4]
    assert stub.n_forgotten == 3
    assert_array_equal(result.w, 3)


def test_what_past_gradients_leave():
    X, y = make_sparse_data(0)
    with Threads(1) as threads:
        stochastic = StochasticLikelihood(likelihood_of(CRFTagger(), X, y, threads))
        stochastic.descend(stochastic.sequences, 0.5)
        before = stochastic.metric() ** 2
        assert (before > FIRST_SQUARE + 1).any()
        for _ in range(2):
            stochastic.forget()
    assert_allclose(stochastic.metric() ** 2, 4 + 0.64 * (before - 4), rtol=1e-5)


def test_few_passes_are_reported_and_warned_of(capsys):
    X, y = make_sparse_data(0)
    with pytest.warns(ConvergenceWarning, match="nothing shows that the objective, 1"):
        CRFTagger(solver="adagrad", tol=1e-2, max_iter=5, verbose=1).fit(X, y)
    assert sum("iteration" in line for line in capsys.readouterr().out.splitlines()) == 5


def test_a_warm_start_goes_on_from_the_weights():
    X, y = make_sparse_data(0)
    tagger = CRFTagger(solver="adagrad", tol=1e-2, warm_start=True).fit(X, y)
    first = tagger.objective_
    tagger.fit(X, y)
    assert tagger.loss_curve_[0] == pytest.approx(first, rel=1e-9)
    assert tagger.objective_ <= first


MANY = 2 * LEAST + 50  # sequences of which two threads take shares


def in_batches_of(monkeypatch, size):
    """Batches of so many sequences, in the order given, for any number of threads."""

    def plan(order, lengths, n_threads, each):
        first = np.append(np.arange(0, len(order), size), len(order))
        counters = np.zeros(APART * (5 + 2 * n_threads), np.int64)
        return BatchPlan(order, lengths, first, counters, np.zeros_like(first), n_threads)

    monkeypatch.setattr(BatchPlan, "of", plan)


@pytest.mark.parametrize("states", [False, True])
def test_gradients_of_a_batch_are_those_before_it(exact, monkeypatch, states):
    # Against NumPy. Sequences of one row, so that each weight has one gradient of each.
    X, y = make_sparse_data(1, n=60)
    X, y = Sequences(X.rows[:50], np.arange(51)), [[label] for label in np.concatenate(y)[:50]]
    in_batches_of(monkeypatch, 7)
    order = np.random.default_rng(0).permutation(50)
    with Threads(2) as threads:
        tagger = CRFTagger(all_possible_states=states, l2=0.0)
        primal = likelihood_of(tagger, X, y, threads)
        steps = StochasticLikelihood(primal)
        steps.scale = None
        steps.descend(order, 0.5)
    w, squares = np.zeros_like(steps.w), np.full_like(steps.w, FIRST_SQUARE)
    for k in range(0, 50, 7):
        gradients = np.zeros((len(order[k : k + 7]), len(w)))
        for s, gradient in zip(order[k : k + 7], gradients):
            likelihood_of_one(primal, s).value_and_gradient(w, gradient)
        for gradient in gradients:
            squares += gradient**2
            w -= 0.5 * gradient / np.sqrt(squares)
    real = [primal.scores.pack(primal.scores.unpack(x)) for x in (steps.w, w)]
    assert np.abs(real[1]).max() > 0.1
    assert_allclose(*real, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [{}, {"l1": 0.2}, {"all_possible_states": True}, {"boundaries": False},
     {"transition_features": [0, 2, 5], "l1": 0.05}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(("n", "unit", "L"), [(2, 1.0, 3), (3, 4.0, 9), (2, 1.0, 40)])
@pytest.mark.filterwarnings("ignore:CRFTagger did not converge")
def test_threads_in_batches_of_one_give_the_bits_of_one_thread(
    exact, monkeypatch, model, n, unit, L
):
    # Rare features too, as only some threads have their weights.
    X, y = make_sparse_data(n, n=120, M=6, L=L)
    far = np.repeat(np.arange(len(X)) * 40 // len(X), np.diff(X.offsets))
    own = sparse.kron(sparse.csr_matrix(np.eye(40)), np.ones((1, 6)), "csr")[far]
    rare = own.multiply(sparse.hstack([X.rows] * 40))
    X = Sequences(sparse.csr_matrix(unit * sparse.hstack([X.rows, rare])), X.offsets)
    in_batches_of(monkeypatch, 1)
    given = {"solver": "adagrad", "max_iter": 4, "tol": 1e-9} | model
    one, several = (CRFTagger(n_jobs=k, **given).fit(X, y) for k in (1, n))
    assert_array_equal(one.coef_, several.coef_)
    assert_array_equal(one.transition_, several.transition_)
    assert_array_equal(one.start_, several.start_)


@pytest.mark.parametrize("solver", ["adagrad", "dual"])
def test_results_do_not_depend_on_which_thread_did_what(monkeypatch, solver):
    # With three threads, parts of the weights and shares of the sequences differ.
    X, y = make_sparse_data(4, n=330, M=40)
    in_batches_of(monkeypatch, 6)
    given = {"solver": solver, "l2": 1.0, "l1": 0.1, "max_iter": 8, "tol": 1e-9}
    with pytest.warns(ConvergenceWarning):
        two, three = (CRFTagger(n_jobs=k, **given).fit(X, y).coef_ for k in (2, 3))
    # The norms of parts of the weights are added up in another order.
    assert_allclose(two, three, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("solver", ["adagrad", "dual"])
@pytest.mark.parametrize(
    "model", [{}, {"l1": 0.2}, {"all_possible_states": True}, {"early_stopping": True}], ids=str
)
def test_two_threads_find_the_same_model_and_the_same_bits_each_time(solver, model):
    X, y = make_sparse_data(3, n=MANY + 100)
    weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    weight[:2] = 1
    given = {"solver": solver, "l2": 1.0, "tol": 1e-4, "max_iter": 2000} | model
    one, two, again = (CRFTagger(n_jobs=n, **given).fit(X, y, weight) for n in (1, 2, 2))
    assert_array_equal(two.coef_, again.coef_)
    assert_array_equal(two.transition_, again.transition_)
    if "early_stopping" not in model:
        assert not np.array_equal(one.coef_, two.coef_)
        assert_allclose(two.objective_, one.objective_, rtol=2e-4)


@pytest.mark.parametrize("solver", ["adagrad", "dual"])
def test_an_error_in_a_thread_ends_training(monkeypatch, solver):
    module = {"adagrad": _stochastic, "dual": _dual}[solver]
    kernel = {"adagrad": "_descent", "dual": "_ascent"}[solver]

    def fails(state, plan, me, *args):
        if me == 1:
            raise MemoryError("no room for a thread")
        return 0.0, 0

    X, y = make_sparse_data(3, n=MANY)
    with Threads(2) as threads:
        primal = likelihood_of(CRFTagger(), X, y, threads)
        state = StochasticLikelihood(primal) if solver == "adagrad" else DualLikelihood(primal)
        first = state.sequences
        monkeypatch.setattr(module, kernel, SimpleNamespace(descend=fails, ascend=fails))
        with pytest.raises(MemoryError, match="no room for a thread"):
            state.descend(first, 1.0) if solver == "adagrad" else state.ascend(first)
