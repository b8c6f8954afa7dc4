"""Products with the Hessian of likelihoods: differences of gradients, and symmetry."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import CRFTagger, RowBlocks, Shards
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.inference.chain import tangent
from sklseq.objectives.likelihood import long_hessian
from sklseq.objectives.likelihood.passes import Checkpoints, OnePass
from sklseq.objectives.scores.score_map import Weights
from tests.objectives.test_long import labelled, long_likelihood, reference_likelihood
from tests.objectives.test_partial import MODELS, partial_labels, problem_of
from tests.sample_data import make_data, make_sparse_data


def gradient_at(f, w):
    gradient = np.empty_like(w)
    f.value_and_gradient(w, gradient)
    return gradient


def difference(f, w, v, step=1e-3):
    """Fourth-order difference of gradients along v."""
    g = {k: gradient_at(f, w + k * step * v) for k in (-2, -1, 1, 2)}
    return (8 * (g[1] - g[-1]) - (g[2] - g[-2])) / (12 * step)


def products(f, w, vectors, room=0.0):
    hessian, answers = f.hessian(w, room), np.empty((len(vectors), len(w)))
    for v, answer in zip(vectors, answers):
        hessian.product(v, answer)
    return answers


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("labels", ["known", "partial"])
@pytest.mark.parametrize("seed", range(2))
def test_hessian_product(seed, labels, kind, model):
    X, y = make_data(seed, n=7, max_len=9) if kind == "dense" else make_sparse_data(seed, n=9, M=4)
    if "constraints" in model:
        y = [np.where(labels == 1, 2, labels) for labels in y]
        y[0][0] = 1
    if labels == "partial":
        y = partial_labels(y, seed)
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    _, scores, f = problem_of(CRFTagger(l2=0.3, **model), X, y, weights)
    rng = np.random.default_rng(seed)
    filled = scores.pack(Weights(*(np.ones(x.shape) for x in scores.unpack(scores.new_vector()))))
    w, u, v = rng.normal(size=(3, scores.n_weights)) * (filled != 0)
    Hu, Hv = products(f, w, (u, v))
    assert_allclose(Hv, difference(f, w, v), rtol=1e-8, atol=1e-8 * np.abs(Hv).max())
    assert u @ Hv == pytest.approx(v @ Hu, rel=1e-11)
    assert_allclose(products(f, w, (u, v, v), room=1e9)[2], Hv, rtol=1e-12, atol=1e-13)
    scores.chain_part(v)[:] = 0  # no change of transitions
    (still,) = products(f, w, [v])
    assert_allclose(still, difference(f, w, v), rtol=1e-8, atol=1e-8 * np.abs(still).max())


@pytest.mark.parametrize("L", [3, 20])
@pytest.mark.parametrize("labels", ["known", "partial"])
@pytest.mark.parametrize("lengths", [(6000,), (25,) * 60 + (0, 700)], ids=["one", "many"])
def test_products_in_float32_are_those_in_float64(lengths, labels, L):
    # Blocks hold more rows than one sum of products in float32.
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, 4)).astype(np.float32) for T in lengths]
    y = [rng.integers(0, L, T) for T in lengths]
    y[0][:L] = range(L)
    if labels == "partial":
        y = partial_labels(y, 0)
    answers = []
    for rows in (X, [x.astype(np.float64) for x in X]):
        _, scores, f = problem_of(CRFTagger(l2=0.3), rows, y)
        assert scores.dtype == rows[0].dtype
        numbers = 0.3 * np.random.default_rng(1).normal(size=(2, scores.n_weights))
        w, v = numbers.astype(np.float32).astype(scores.dtype)
        answers.append(products(f, w, [v, v], room=1e5))
    scale = np.abs(answers[1]).max()
    assert_allclose(answers[0], answers[1], rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_shards_and_threads(n_threads):
    X, y = make_sparse_data(0, n=1800, M=5)  # several blocks of rows for each thread
    tagger = CRFTagger(l2=0.3)
    _, scores, f = problem_of(tagger, X, y)
    w, v = np.random.default_rng(0).normal(size=(2, scores.n_weights))
    (expected,) = products(f, w, [v])
    _, _, f = problem_of(tagger, X, y, n=n_threads)
    assert len(f.runs) == n_threads
    assert_allclose(products(f, w, [v, v], room=2e3)[1], expected, rtol=1e-11, atol=1e-12)
    source = open_source(Shards([(X[:7], y[:7]), (X[7:], y[7:])]), None, None, "auto")
    shared = score_map(tagger, source, source.summarise())
    f = source.likelihood(shared, 0.3, Threads(n_threads))
    w, v = (shared.pack(scores.unpack(x)) for x in (w, v))
    (found,) = products(f, w, [v], room=1e9)
    assert_allclose(found, shared.pack(scores.unpack(expected)), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("room", [0.0, 1e9])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_smaller_blocks_than_those_of_gradients(n_threads, room, monkeypatch):
    # More blocks than threads have buffers: all of them count.
    X, y = make_sparse_data(0, n=20, M=5)
    _, scores, f = problem_of(CRFTagger(l2=0.3), X, y, n=n_threads)
    w, v = np.random.default_rng(0).normal(size=(2, scores.n_weights))
    (expected,) = products(f, w, [v])
    assert len(f.buffers) == 1
    monkeypatch.setattr(tangent, "BLOCK_SCORES", 1)
    monkeypatch.setattr(tangent, "LEAST_ROWS", 10)
    for found in products(f, w, [v, v], room):
        assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kept", [0, 12_000, 1 << 25])
@pytest.mark.parametrize("form", ["array", "sparse"])
def test_blocks(form, kept, monkeypatch):
    monkeypatch.setattr(long_hessian, "KEPT", kept)
    X, y = zip(*(labelled(T, seed=T) for T in (300, 17, 5, 0, 90)))
    weights = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    given = [sparse.csr_matrix(x) for x in X] if form == "sparse" else list(X)
    f = reference_likelihood(X, y, weights=weights)
    long = long_likelihood(given, y, Checkpoints, weights=weights)
    w, v = (f.scores.pack(_weights(f.scores, k)) for k in range(2))
    ours = (long.scores.pack(_weights(long.scores, k)) for k in range(2))
    own_w, own_v = ours
    (expected,), found = products(f, w, [v]), products(long, own_w, [own_v, own_w, own_v])
    expected = long.scores.pack(f.scores.unpack(expected))
    for product in found[::2]:  # the first one, and one that uses what the first has kept
        assert_allclose(product, expected, rtol=1e-9, atol=1e-9)
    for one, x in ((f, v), (long, own_v)):
        one.scores.chain_part(x)[:] = 0  # no change of transitions
    (expected,), (found,) = products(f, w, [v]), products(long, own_w, [own_v])
    expected = long.scores.pack(f.scores.unpack(expected))
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def _weights(scores, seed):
    rng = np.random.default_rng(seed)
    return Weights(*(rng.normal(size=x.shape) for x in scores.unpack(scores.new_vector())))


def test_blocks_that_are_read_forward_only(monkeypatch):
    X, y = labelled(100)
    long = long_likelihood([X], [y], OnePass)
    monkeypatch.setattr(RowBlocks, "random_access", False)
    with pytest.raises(ValueError, match="sequence 0 can only be read from the beginning"):
        long.hessian(long.scores.new_vector())
