"""Closed form = dynamic programs = products with C = enumeration of all labelings."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq._lib.threads import Threads
from sklseq.data.constraints import resolve_constraints
from sklseq.objectives.zscore.elimination import EliminatedRidge, n_frequent
from sklseq.objectives.zscore.factorised import CentredRows, centred_statistics, solve_sums
from sklseq.objectives.zscore.moments import (
    ChainWeights,
    Sample,
    combine,
    decompose,
    extended_rows,
    score_moments,
    score_products,
    stack_weights,
    unstack_weights,
)
from sklseq.objectives.zscore.path_moments import AllowedMoments, AllowedPaths, SampledMoments
from sklseq.objectives.zscore.programs import DynamicPrograms, count_programs
from sklseq.objectives.zscore.regression import RidgeSystem
from sklseq.solvers import cg

# Sums of a few hundred float64 terms.
EXACT = {"rtol": 1e-10, "atol": 1e-10}
SEEDS = range(4)
LABELS = ["B-x", "I-x", "O"]
CONSTRAINTS = pytest.mark.parametrize("constraints", [None, "iob2", "mask"])
FORMS = pytest.mark.parametrize("form", ["discrete", "real"])


def path_features(rows, path, n_labels):
    """φ(y) by counting: state weights row by row, then transitions."""
    coef, transition = np.zeros((rows.shape[1], n_labels)), np.zeros((n_labels, n_labels))
    for t, j in enumerate(path):
        coef[:, j] += rows[t]
        if t:
            transition[path[t - 1], j] += 1
    return np.concatenate([coef.ravel(), transition.ravel()])


def is_allowed(path, allowed):
    if not len(path):
        return True
    steps = all(allowed.transition[i, j] for i, j in itertools.pairwise(path))
    return bool(allowed.start[path[0]] and allowed.end[path[-1]] and steps)


def labelings(T, allowed):
    L = len(allowed.start)
    return [p for p in itertools.product(range(L), repeat=T) if is_allowed(p, allowed)]


def resolve(constraints, n_labels):
    if constraints == "mask":
        mask = np.ones((n_labels, n_labels), dtype=bool)
        mask[0, 1] = mask[2, 2] = False
        return resolve_constraints(mask, range(n_labels))
    return resolve_constraints(constraints, LABELS[:n_labels])


def make_sample(seed, form="real", constraints=None, lengths=(3, 1, 4, 0, 2), L=3, M=4):
    """(Sample, allowed): random rows and labels that keep to the constraints; all occur."""
    rng = np.random.default_rng(seed)
    allowed = resolve(constraints, L)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if form == "discrete":
        rows = np.eye(M)[rng.integers(0, M, offsets[-1])]
    else:
        rows = rng.normal(size=(offsets[-1], M)) * (rng.random((offsets[-1], M)) < 0.6)
    codes = []
    for T in lengths:
        path = rng.integers(0, L, T)
        while not is_allowed(path, allowed):
            path = rng.integers(0, L, T)
        codes.extend(path)
    if len(set(codes)) < L:
        return make_sample(seed + 1000, form, constraints, lengths, L, M)
    weights = rng.choice([0.5, 1.0, 2.0], size=len(lengths))
    return Sample(rows, offsets, np.array(codes, dtype=np.int32), weights, L), allowed


def random_cost(seed, L=3):
    cost = np.random.default_rng(seed).random((L, L))
    np.fill_diagonal(cost, 0)
    return cost


def enumerate_moments(sample, allowed, cost):
    """(b, C, c, mean loss) by summing over every allowed labeling."""
    L, n = sample.n_labels, sample.rows.shape[1] * sample.n_labels + sample.n_labels**2
    b, C, c, mean_loss = np.zeros(n), np.zeros((n, n)), np.zeros(n), 0.0
    for s, weight in enumerate(sample.weights):
        span = slice(*sample.offsets[s : s + 2])
        rows, y = sample.rows[span], sample.y[span]
        paths = labelings(len(y), allowed)
        phi = np.array([path_features(rows, p, L) for p in paths])
        loss = np.array([sum(cost[i, j] for i, j in zip(y, p)) for p in paths])
        around = phi - phi.mean(axis=0)
        b += weight * (path_features(rows, y, L) - phi.mean(axis=0))
        C += weight * around.T @ around / len(paths)
        c += weight * around.T @ (loss - loss.mean()) / len(paths)
        mean_loss += weight * loss.mean()
    return b, C, c, mean_loss


def best_weights(b, C, c, mean_loss, l2, with_loss):
    """C⁻¹(α b - c), with the pseudo-inverse."""
    inverse = np.linalg.pinv(C + 2 * l2 * np.eye(len(b)), rcond=1e-11, hermitian=True)
    if not with_loss:
        return inverse @ b
    alpha = max(0, (1 + mean_loss + b @ inverse @ c) / (b @ inverse @ b))
    return inverse @ (alpha * b - c)


def products_of(system, weights):
    return score_products(system.training_scores(weights), system.y, weights)


def closed_form(sample, cost, l2, *, direct, threads=1):
    """(weights, maximum, statistics) by a factorisation or by conjugate gradients."""
    extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
    statistics = centred_statistics(CentredRows(extended, sample.row_weights), sample)
    ridge = 2 * sample.n_labels * l2
    if direct:
        solution, products = solve_sums(statistics, ridge)
        maximum = combine(products, statistics, cost, l2)
        return stack_weights(solution @ maximum.mix, maximum.pairs), maximum
    with Threads(threads) as pool:
        if sparse.issparse(sample.rows) and ridge > 0:
            system = EliminatedRidge(sample, ridge, pool, frequent=1)
        else:
            rows = CentredRows(extended, sample.row_weights)
            system = RidgeSystem(rows, sample.y, sample.n_labels, ridge)
        system.finish(solve(system, 1e-13).w)
        maximum = combine(products_of(system, sample.row_weights), statistics, cost, l2)
        return stack_weights(system.weights(maximum.mix), maximum.pairs), maximum


def solve(system, tol):
    return cg(system, system.gradient, preconditioner=system.preconditioner, tol=tol)


def flat(weights):
    return np.concatenate([weights.coef.ravel(), weights.transition.ravel()])


@FORMS
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
@pytest.mark.parametrize("way", ["direct", "cg", "cg on sparse rows", "two threads"])
def test_the_closed_form_is_the_maximum(form, l2, loss, way):
    seed = 2 * (form == "real") + (l2 > 0)  # of four, each with all losses and ways
    sample, allowed = make_sample(seed, form)
    cost = {None: None, "hamming": 1 - np.eye(3), "matrix": random_cost(seed)}[loss]
    moments = enumerate_moments(sample, allowed, np.zeros((3, 3)) if cost is None else cost)
    expected = best_weights(*moments, l2, cost is not None)
    if way != "direct" and way != "cg":
        sample = sample._replace(rows=sparse.csr_matrix(sample.rows))
    threads = 2 if way == "two threads" else 1
    weights, _ = closed_form(sample, cost, l2, direct=way == "direct", threads=threads)
    # Two solvers of a linear system whose condition number is up to 1e3.
    assert_allclose(flat(weights), expected, rtol=1e-8, atol=1e-9)


@FORMS
@CONSTRAINTS
@pytest.mark.parametrize("seed", SEEDS)
def test_dynamic_programs_are_the_enumeration(form, constraints, seed):
    sample, allowed = make_sample(seed, form, constraints)
    cost = random_cost(seed)
    b, C, c, mean_loss = enumerate_moments(sample, allowed, cost)
    programs = DynamicPrograms(sample, 0.7, allowed)
    assert_allclose(programs.b, b, **EXACT)
    assert_allclose(programs.matrix(), C, **EXACT)
    assert_allclose(programs.hessian_product(np.eye(len(b))), C + 0.7 * np.eye(len(b)), **EXACT)
    assert_allclose(programs.loss_covariance(cost), c, **EXACT)
    assert_allclose(programs.mean_loss(cost), mean_loss, **EXACT)


@FORMS
@CONSTRAINTS
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_products_with_the_covariance_are_the_enumeration(form, constraints, seed, kind):
    sample, allowed = make_sample(seed, form, constraints)
    cost = random_cost(seed)
    b, C, c, mean_loss = enumerate_moments(sample, allowed, cost)
    if kind == "sparse":
        sample = sample._replace(rows=sparse.csr_matrix(sample.rows))
    moments = AllowedMoments(sample, 0.7, allowed)
    assert_allclose(moments.b, b, **EXACT)
    assert_allclose(moments.hessian_product(np.eye(len(b))), C + 0.7 * np.eye(len(b)), **EXACT)
    assert_allclose(moments.loss_covariance(cost), c, **EXACT)
    assert_allclose(moments.mean_loss(cost), mean_loss, **EXACT)


@pytest.mark.parametrize("M", [2, 4, 7])
def test_proposition_2_counts_the_programs(M):
    sample, allowed = make_sample(M, "discrete", M=M, lengths=(20, 20))
    assert len(np.unique(sample.rows.argmax(axis=1))) == M
    assert DynamicPrograms(sample, 0.0, allowed).n_programs == 6 * M + 5
    assert count_programs(sample.rows, 3, free=True, with_loss=False) == 6 * M + 5
    n = 3 * M + 9
    assert count_programs(sample.rows, 3, free=False, with_loss=True) == n * (n + 1) // 2 + n


@pytest.mark.parametrize("seed", SEEDS)
@CONSTRAINTS
def test_sampling_converges_at_the_monte_carlo_rate(seed, constraints):
    sample, allowed = make_sample(seed, "real", constraints)
    cost = random_cost(seed)
    exact = enumerate_moments(sample, allowed, cost)
    errors = []
    for n_paths in (10, 1_000):
        rng, found = np.random.default_rng(seed), []
        for _ in range(30):
            moments = SampledMoments(sample, 0.0, allowed, n_paths, rng)
            answer = (
                moments.b,
                moments.hessian_product(np.eye(len(moments.b))),
                moments.loss_covariance(cost),
                moments.mean_loss(cost),
            )
            found.append([np.sqrt(np.mean(np.square(a - e))) for a, e in zip(answer, exact)])
        errors.append(np.sqrt(np.mean(np.square(found), axis=0)))
    # A hundred times the paths, a tenth of the error; a factor 2 for chance in 30 trials.
    ratio = errors[0] / errors[1]
    assert ((ratio > 5) & (ratio < 20)).all(), ratio


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_have_the_moments_of_their_paths(seed):
    sample, allowed = make_sample(seed)
    moments = SampledMoments(sample, 0.0, allowed, 7, np.random.default_rng(seed))
    n = len(moments.b)
    C, b = np.zeros((n, n)), np.zeros(n)
    for s, weight in enumerate(sample.weights):
        span = slice(*sample.offsets[s : s + 2])
        phi = np.array([path_features(sample.rows[span], p[span], 3) for p in moments.paths])
        C += weight * np.cov(phi.T, bias=True)
        b += weight * (path_features(sample.rows[span], sample.y[span], 3) - phi.mean(axis=0))
    assert_allclose(moments.b, b, **EXACT)
    assert_allclose(moments.hessian_product(np.eye(n)), C, **EXACT)
    assert_allclose(moments.matrix(), C, **EXACT)


@CONSTRAINTS
@pytest.mark.parametrize("seed", SEEDS)
def test_score_moments(constraints, seed):
    sample, allowed = make_sample(seed, constraints=constraints)
    rng = np.random.default_rng(seed)
    # A level of 1e3 in the emission scores must not cost the variance its digits.
    emission = rng.normal(size=(len(sample.y), 3)) + 1e3
    transition = np.where(allowed.transition, rng.normal(size=(3, 3)), -np.inf)
    found = AllowedPaths(allowed, sample.offsets).score_moments(emission, transition)
    for s in range(len(sample.weights)):
        psi = emission[slice(*sample.offsets[s : s + 2])]
        scores = np.array(
            [
                sum(psi[t, j] for t, j in enumerate(p))
                + sum(transition[i, j] for i, j in itertools.pairwise(p))
                for p in labelings(len(psi), allowed)
            ]
        )
        assert_allclose(found.mean[s], scores.mean(), rtol=1e-10)
        assert_allclose(found.variance[s], scores.var(), rtol=1e-9, atol=1e-9)
    if constraints is None:
        free = score_moments(emission, transition, sample.offsets)
        assert_allclose(free.mean, found.mean, rtol=1e-10)
        assert_allclose(free.variance, found.variance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_decomposition_is_an_isometry(seed):
    rng = np.random.default_rng(seed)
    one, two = (ChainWeights(rng.normal(size=(4, 3)), rng.normal(size=(3, 3))) for _ in range(2))
    kept = stack_weights(*decompose(one))
    (W1, D1), (W2, D2) = decompose(one), decompose(two)
    assert_allclose(np.vdot(flat(kept), flat(two)), np.vdot(W1, W2) + np.vdot(D1, D2), **EXACT)
    again = stack_weights(*decompose(kept))
    assert_allclose(flat(again), flat(kept), **EXACT)
    lost = unstack_weights(flat(one) - flat(kept), 4, 3)  # one number a row, one for transitions
    assert_allclose(np.ptp(lost.coef, axis=1), 0, atol=1e-12)
    assert_allclose(np.ptp(lost.transition), 0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss", [None, "matrix"])
@pytest.mark.parametrize("way", ["sums", "scores", "scores of eliminated columns"])
def test_the_zscore_from_products_alone(seed, loss, way):
    sample, allowed = make_sample(seed)
    cost = None if loss is None else random_cost(seed)
    if way == "scores of eliminated columns":
        sample = sample._replace(rows=sparse.csr_matrix(sample.rows))
    weights, maximum = closed_form(sample, cost, 0.1, direct=way == "sums")
    none = np.zeros((3, 3)) if cost is None else cost
    dense = sample._replace(rows=as_dense(sample.rows))
    b, C, c, mean_loss = enumerate_moments(dense, allowed, none)
    spread = sum(
        weight * np.var([sum(none[i, j] for i, j in zip(y, p)) for p in labelings(len(y), allowed)])
        for weight, y in zip(sample.weights, np.split(sample.y, sample.offsets[1:-1]))
    )
    w = flat(weights)
    expected = (w @ b - mean_loss) / np.sqrt(w @ C @ w + 2 * w @ c + spread)
    assert_allclose(maximum.zscore, expected, **EXACT)


def as_dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


# ------------------------------------------------------------------ elimination


def make_text(seed, kind, n_columns=60):
    """Sparse rows in which columns occur never, once, seldom and often; weights may be zero."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, 20)
    n = lengths.sum()
    rows = sparse.random(n, n_columns, 0.03, "csr", random_state=rng)
    often = sparse.random(n, 6, 0.5, "csr", random_state=rng)
    rows = sparse.hstack([often, rows], format="csr")
    if kind == "ones":
        rows.data[:] = 1
    elif kind == "repeated entries":
        indices = rows.indices.copy()
        indices[rows.indptr[:-1][np.diff(rows.indptr) > 1] + 1] = indices[
            rows.indptr[:-1][np.diff(rows.indptr) > 1]
        ]
        rows = sparse.csr_matrix((rows.data, indices, rows.indptr), shape=rows.shape)
        assert not rows.has_canonical_format
    weights = rng.random(20) + 0.1
    weights[3] = 0
    y = rng.integers(0, 3, n).astype(np.int32)
    return Sample(rows, np.concatenate([[0], np.cumsum(lengths)]), y, weights, 3)


@pytest.mark.parametrize("kind", ["ones", "values", "repeated entries"])
@pytest.mark.parametrize("frequent", [0, 3, 1000])
@pytest.mark.parametrize("ridge", [0.01, 10.0])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_columns_are_eliminated_exactly(kind, frequent, ridge, n_threads):
    seed = 2 * (ridge > 1) + n_threads - 1  # of four, each with all kinds and numbers
    sample = make_text(seed, kind)
    X, w = extended_rows(sample.rows, sample.offsets, 3).toarray(), sample.row_weights
    Y = np.eye(3)[sample.y]
    expected = np.linalg.solve(
        X.T @ (w[:, None] * X) + ridge * np.eye(X.shape[1]), X.T @ (w[:, None] * Y)
    )
    with Threads(n_threads) as threads:
        system = EliminatedRidge(sample, ridge, threads, frequent=frequent)
        sizes = [len(columns) for columns in system.columns]
        assert sizes[0] == (min(frequent, sum(sizes[:2])) if frequent else 0)
        assert sizes[2] > 0
        assert (sizes[1] > 0) == (frequent < 1000)
        assert system.finish(solve(system, 1e-14).w) < 1e-12
        found = system.weights(np.eye(3))
        products = products_of(system, w)
    # The condition number is up to 1e4.
    assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    assert_allclose(system.weights(np.ones((3, 3))), found @ np.ones((3, 3)), **EXACT)
    for one, other in zip(products, score_products(X @ expected, sample.y, w)):
        assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_residual_is_that_of_all_columns(seed):
    sample, rng = make_text(seed, "values"), np.random.default_rng(seed)
    with Threads(1) as threads:
        system = EliminatedRidge(sample, 0.5, threads, frequent=3)
        share = system.finish(rng.normal(size=system.gradient.shape))
        V = system.weights(np.eye(3))
    X, w = extended_rows(sample.rows, sample.offsets, 3).toarray(), sample.row_weights[:, None]
    left = X.T @ (w * (np.eye(3)[sample.y] - X @ V)) - 0.5 * V
    # Weights of rows are less by what columns that occur once take up.
    once = np.bincount(X.nonzero()[1], minlength=X.shape[1]) == 1
    d = 0.5 * w / (0.5 + w * np.square(X[:, once]).sum(axis=1, keepdims=True))
    # Of columns eliminated, what exceeds their means is measured apart from these.
    often = [*system.columns[0], -2, -1]
    means = (d * X[:, often]).sum(axis=0) / d.sum()
    M = np.diag((d * np.square(X)).sum(axis=0) + 0.5)
    M[np.ix_(often, often)] += d.sum() * (np.outer(means, means) - np.diag(np.square(means)))
    lengths = np.sqrt(np.einsum("ij,ij->j", left, np.linalg.solve(M, left)))
    of_rest = np.sqrt(system.preconditioner)[:, None] * system.gradient
    assert_allclose(system.lengths, np.linalg.norm(of_rest, axis=0), rtol=1e-12)
    assert_allclose((lengths / system.lengths).max(), share, rtol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_precision_does_not_add_up_the_rounding_of_many_rows(seed):
    # 20 columns in 20,000 rows each, of 200,000, and many rare ones.
    rng, n, M = np.random.default_rng(seed), 200_000, 4_000
    often, rare = rng.integers(0, 10, (n, 2)) + [0, 10], rng.integers(20, M, (n, 2))
    indices = np.hstack([often, rare]).ravel().astype(np.int32)
    rows = sparse.csr_matrix((np.ones(4 * n), indices, np.arange(0, 4 * n + 1, 4)), (n, M))
    y = rng.integers(0, 2, n).astype(np.int32)
    sample = Sample(rows, np.arange(0, n + 1, 20), y, np.ones(n // 20), 2)
    with Threads(1) as threads:
        single, double = (
            EliminatedRidge(sample, 1.0, threads, dtype, frequent=20)
            for dtype in (np.float32, np.float64)
        )
        P = rng.random(single.gradient.shape)
        found = single.hessian_product(P.astype(np.float32))
        expected = double.hessian_product(P)
    assert np.linalg.norm(found - expected) < 2e-6 * np.linalg.norm(expected)


def test_few_columns_are_factorised_where_rows_are_few():
    assert n_frequent(0, 3) == 0
    assert n_frequent(10_000, 10) == pytest.approx(215, abs=1)
    assert n_frequent(4_000_000, 22) == 2_000


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", [sparse.csr_matrix, np.asarray])
def test_products_with_centred_rows(seed, form):
    rng = np.random.default_rng(seed)
    rows = sparse.random(300, 90, 0.1, "csr", random_state=rng).toarray()
    rows[:, 3] = rng.normal(size=300) + 50
    weights, y = rng.random(300) + 0.1, rng.integers(0, 5, 300).astype(np.int32)
    system = RidgeSystem(CentredRows(form(rows), weights), y, 5, 0.7)
    U = rng.normal(size=(90, 19))
    V = system.solution_of(U)
    product = rows.T @ (weights[:, None] * (rows @ V)) + 0.7 * V
    same = {"rtol": 1e-9, "atol": 1e-7}
    assert_allclose(system.hessian_product(U), system.right_hand_side(product), **same)
    sums = rows.T @ (weights[:, None] * np.eye(5)[y])
    assert_allclose(system.gradient, system.right_hand_side(sums), **same)
    shift = rows.T @ weights / weights.sum() if form is np.asarray else system.means
    squares = weights @ np.square(rows - shift)
    assert_allclose(1 / system.preconditioner, squares + 0.7, rtol=1e-9)
