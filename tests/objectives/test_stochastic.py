"""Steps of AdaGrad, one sequence at a time, against the gradient, L-BFGS and plain NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints
from sklseq.objectives.likelihood import dual as _dual
from sklseq.objectives.likelihood import stochastic as _stochastic
from sklseq.objectives.likelihood.dual import DualLikelihood
from sklseq.objectives.likelihood.lattice import LEAST
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
@pytest.mark.parametrize("pace", [1, 0.5])
def test_a_visit_is_the_step_of_adagrad(exact, monkeypatch, seed, L, states, T, pace):
    # Up to two rows without a feature in common, and ones as features: each weight is touched
    # once, so that the step is rate · g / √(1 + g²) with g from the likelihood's own gradient.
    # All sequences have the mean length; with LONG below 1, they count as long.
    monkeypatch.setattr(_stochastic, "LONG", pace**2)
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
            expected = before - pace * step * gradient
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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("forbidden", [None, "transition", "start", "end"])
def test_the_value_of_zeros(seed, forbidden):
    # Label 2 is never first, last or after itself.
    X, y = make_sparse_data(seed)
    for labels in y:
        labels[::2] = labels[-1:] = 1
    weights = np.random.default_rng(seed).uniform(0, 2, len(y))
    with Threads(1) as threads:
        f = likelihood_of(CRFTagger(), X, y, threads, weights)
        allowed = Constraints(np.ones((3, 3), bool), np.ones(3, bool), np.ones(3, bool))
        if forbidden is not None:
            getattr(allowed, forbidden).flat[-1] = False
        f.scores.allowed = allowed
        zeros = f.scores.new_vector()
        assert_allclose(f.value(zeros), f.value_and_gradient(zeros, zeros.copy()), rtol=1e-12)


class Stub:
    """Every pass moves uphill."""

    sequences = np.arange(3)

    def __init__(self):
        self.w = np.zeros(2)

    def descend(self, order, rate):
        self.w += 1
        return 0.0

    def forget(self):
        pass

    def value(self, w):
        return 1 + float(w @ w)

    def value_and_gradient(self, w, gradient):
        return self.value(w)


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

    def descend(self, order, rate):
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


def test_a_weight_that_one_thread_moves_is_where_that_thread_left_it(exact):
    # Sequences in turn have features of their own; weights of labels go up to 1.5 times as far as
    # the mean of both threads' (all start at 0).
    X, y = make_sparse_data(0, n=MANY)
    own = sparse.lil_matrix((X.n_rows, 16))
    first = np.repeat(np.arange(MANY) < MANY // 2, np.diff(X.offsets))
    own[first, :8], own[~first, 8:] = X.rows[first], X.rows[~first]
    X = Sequences(own.tocsr(), X.offsets)
    alone, whole = [], []
    with Threads(2) as threads:
        primal = likelihood_of(CRFTagger(all_possible_states=True), X, y, threads)
        together = StochasticLikelihood(primal, 0.1)
        shares = together.shares(np.arange(MANY))
        assert len(shares) == 2
        assert_array_equal(np.concatenate(shares), np.arange(MANY))
        cut = [MANY // 2, MANY - MANY // 2]
        # No merges within the pass.
        together.shares = lambda order: np.split(order, cut[: len(order) == MANY])
        loss = together.descend(np.arange(MANY), 0.5)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(all_possible_states=True), X, y, threads)
        halves = np.split(np.arange(MANY), cut[:1])
        for mine, others in (halves, halves[::-1]):
            one = StochasticLikelihood(primal, 0.1)
            alone.append((one, one.descend(mine, 0.5, n_sequences=MANY)))
            # Sequences of weight 0 change weights by the penalties only.
            whole.append(StochasticLikelihood(primal, 0.1))
            whole[-1].weights = primal.weights * np.isin(np.arange(MANY), mine)
            whole[-1].descend(np.append(mine, others), 0.5)
    unpack = primal.scores.unpack
    weights = [unpack(one.w) for one in (together, *(one for one, _ in alone))]
    own = [unpack(one.w).coef for one in whole]
    assert (own[0][:8] != 0).any()
    assert (own[1][8:] != 0).any()
    assert_array_equal(weights[0].coef[:8], own[0][:8])
    assert_array_equal(weights[0].coef[8:], own[1][8:])
    assert_allclose(loss, alone[0][1] + alone[1][1], rtol=1e-12)
    roots = [unpack(np.sqrt(one.metric() ** 2 - FIRST_SQUARE)).transition for one, _ in alone]
    factor = np.minimum(1, 1.5 * np.maximum(*roots) / sum(roots))
    assert (factor < 0.9).any()
    steps = weights[1].transition + weights[2].transition
    assert_allclose(weights[0].transition, factor * steps, rtol=1e-4, atol=1e-6)
    grown = sum(one.metric() ** 2 - FIRST_SQUARE for one, _ in alone)
    assert_allclose(together.metric() ** 2 - FIRST_SQUARE, grown, rtol=1e-4, atol=1e-4)


def merged_slowly(state, arrays, others, counts, rate, part, finish):
    """What `StochasticLikelihood._merge` gives for state weights, weight by weight."""
    before, n, answers = state.n_updates, len(others), []

    def shrunk(w, G, m, s):
        step = m * rate * s**2 / np.sqrt(G)
        w = np.sign(w) * max(abs(w) - step * state.l1 * part, 0)
        return w / (1 + step * 2 * state.l2 * part)

    for at in (0, 1):
        x, G, stamps = (part[at].reshape(-1) for part in arrays.values())
        lanes, scale = len(x) // max(len(stamps), 1), state.scale and state.scale[at]
        for k in range(len(x)):
            late = before - stamps[k // lanes]
            s = 1 if not state.scale else scale[k * len(scale) // len(x)]
            start, step, roots, ends, squares = shrunk(x[k], G[k], late, s), 0, [], [], G[k]
            own = [tuple(part[at].reshape(-1) for part in (one.copies, one.squares, one.stamps))
                   for one in others]  # fmt: skip
            moved = [t[k // lanes] > before for _, _, t in own]
            if sum(moved) == 1:
                w, G_now, t = own[moved.index(True)]
                end = shrunk(w[k], G_now[k], before + counts.sum() - t[k // lanes], s)
                answers.append((end, G_now[k]))
                continue
            for (w, G_now, t), count, has in zip(own, counts, moved):
                since = before + count - t[k // lanes] if has else count
                ends.append(shrunk(w[k] if has else start, G_now[k], since, s))
                step, squares = step + ends[-1] - start, squares + G_now[k] - G[k]
                roots.append(np.sqrt(max(G_now[k] - G[k], 0)))
            r = min(1, (1 + 1 / n) * max(roots) / sum(roots)) if sum(roots) > 1e-7 else 1
            end = start + r * step if any(moved) else shrunk(x[k], G[k], late + counts.sum(), s)
            has_sign = any(moved) and not any(end * one > 0 for one in ends)
            answers.append((0 if has_sign else end, squares))
    return np.array(answers).T


@pytest.mark.parametrize(
    ("n", "unit", "states"), [(2, 1.0, False), (2, 4.0, True), (3, 4.0, False)]
)
def test_merges_of_threads_against_a_slow_one(monkeypatch, n, unit, states):
    X, y = make_sparse_data(n, n=4 * n * LEAST)
    # Features of each fortieth of the sequences, as rare ones are updated by some threads only.
    far = np.repeat(np.arange(len(X)) * 40 // len(X), np.diff(X.offsets))
    own = sparse.kron(sparse.csr_matrix(np.eye(40)), np.ones((1, X.shape[1])), "csr")[far]
    X = Sequences(sparse.csr_matrix(unit * own.multiply(sparse.hstack([X.rows] * 40))), X.offsets)
    merge, seen = StochasticLikelihood._merge, [0]

    def checked(state, arrays, others, counts, rate, part, finish):
        given = arrays, others, counts, rate, part
        expected = merged_slowly(state, *given, True)
        merge(state, *given, finish)
        if not finish:  # the penalties that are due stay due
            for one in others:
                for name, parts in arrays.items():
                    for at, x in enumerate(parts):
                        assert_array_equal(getattr(one, name)[at], x)
            kept = [[x.copy() for x in parts] for parts in arrays.values()]
            state.n_updates += counts.sum()
            merge(state, arrays, others, 0 * counts, rate, part, True)
            state.n_updates -= counts.sum()
        found = [np.concatenate([part[at].reshape(-1) for at in (0, 1)])
                 for part in (arrays["copies"], arrays["squares"])]  # fmt: skip
        assert_allclose(found[0], expected[0], rtol=2e-4, atol=1e-6)
        assert_allclose(found[1], expected[1], rtol=1e-5)
        if not finish:
            for parts, values in zip(arrays.values(), kept):
                for x, value in zip(parts, values):
                    x[:] = value
        seen[0] += 1

    monkeypatch.setattr(StochasticLikelihood, "_merge", checked)
    with Threads(n) as threads:
        primal = likelihood_of(CRFTagger(all_possible_states=states, l2=0.5), X, y, threads)
        state = StochasticLikelihood(primal, 0.2)
        for _ in range(2):
            state.descend(state.sequences, 0.5)
            state.forget()
    assert seen[0] == 8


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

    def fails(state, order, *args):
        if order[0] != first[0]:
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


@pytest.mark.parametrize("seed", [0, 2])
def test_long_sequences_of_labels_that_last_do_not_overshoot(seed):
    """40 texts of 160 rows on average and one of 5,000, nearly all of one label."""
    rng, n_labels, vocabulary = np.random.default_rng(seed), 12, 400
    lengths = [*rng.integers(20, 300, 40).tolist(), 5000]
    words, rows, y = rng.integers(2, vocabulary + 2, (n_labels, 60)), [], []
    for T in lengths:
        labels = np.repeat(rng.integers(0, n_labels, T // 40 + 1), 40)[:T]
        if T == 5000:
            labels = np.repeat([0, rng.integers(1, n_labels)], [T - 10, 10])
        for label in labels:
            known = rng.random() < 0.9
            of = words[label, rng.integers(0, 60, 10)] if known else rng.integers(2, vocabulary, 10)
            rows.append(np.unique([0, 1, *of]))
        y.append(labels.tolist())
    ends = np.cumsum([0, *map(len, rows)])
    matrix = sparse.csr_matrix((np.ones(ends[-1]), np.concatenate(rows), ends))
    X = Sequences(matrix, np.cumsum([0, *lengths]))
    start, after_passes = CRFTagger(solver="adagrad", l2=0.1).fit(X, y).loss_curve_[:2]
    # 0.006 and 0.008; 0.012 and 0.013 where steps depend on the mean length only.
    assert after_passes < 0.0095 * start
