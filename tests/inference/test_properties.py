"""Properties of kernels and containers over generated inputs, compared with slow definitions."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import Sequences
from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
from sklseq.inference import decode_online, forward_backward, nbest, viterbi
from tests import reference
from tests.oracles import enumerate_chain

SETTINGS = settings(max_examples=60)
SCORE = st.one_of(
    st.floats(-5, 5), st.floats(-1e4, 1e4), st.sampled_from([0.0, 1.0, -1.0, 1e8, -1e8, -np.inf])
)


@st.composite
def chains(draw, max_rows=5, max_labels=4):
    """(emission, transition, start, end) with at least one allowed path: all zeros."""
    T, L = draw(st.integers(1, max_rows)), draw(st.integers(1, max_labels))

    def scores(*shape):
        n = int(np.prod(shape))
        return np.array(draw(st.lists(SCORE, min_size=n, max_size=n))).reshape(shape)

    emission, transition, start, end = scores(T, L), scores(L, L), scores(L), scores(L)
    for array in (emission[:, :1], transition[:1, :1], start[:1], end[:1]):
        array[~np.isfinite(array)] = 0
    return emission, transition, start, end


def magnitude(chain):
    return 1 + sum(np.abs(np.where(np.isfinite(a), a, 0)).max() for a in chain) * len(chain[0])


@SETTINGS
@given(chains())
def test_chains_equal_enumeration(chain):
    emission, transition, start, end = chain
    _, scores, log_z, marginals, pairwise = enumerate_chain(*chain)
    near = {"rtol": 1e-12, "atol": 1e-14 * magnitude(chain)}
    ours = forward_backward(emission, transition, start=start, end=end)
    assert_allclose(ours.log_z[0], log_z, **near)
    assert_allclose(ours.marginals, marginals, atol=1e-12 + 1e-14 * magnitude(chain))
    assert_allclose(ours.pairwise, pairwise, atol=1e-12 + 1e-14 * magnitude(chain))
    labels, best = viterbi(emission, transition, start=start, end=end)
    assert_allclose(best[0], scores.max(), **near)
    assert_allclose(reference.score_path(labels, *chain), scores.max(), **near)
    found, top = nbest(emission, transition, n=6, start=start, end=end)[0]
    assert_allclose(top, np.sort(scores[scores > -np.inf])[::-1][:6], **near)
    assert len({tuple(path) for path in found}) == len(top)
    closure = decode_online(emission, transition, start=start, end=end, strategy="closure")
    assert_array_equal(closure.labels, labels)


@SETTINGS
@given(st.lists(chains(max_rows=4, max_labels=1), min_size=1, max_size=6), st.integers(1, 12))
def test_batches_are_their_sequences(chains_of_one, L):
    rng = np.random.default_rng(L)
    transition, lengths = rng.normal(size=(L, L)), [len(c[0]) for c in chains_of_one]
    offsets = np.cumsum([0, *lengths, 0])  # the last is empty
    emission = np.concatenate([np.repeat(c[0], L, axis=1) for c in chains_of_one])
    emission = emission + rng.normal(size=emission.shape)
    labels, best = viterbi(emission, transition, offsets)
    log_z, marginals, _ = forward_backward(emission, transition, offsets)
    assert best[-1] == log_z[-1] == 0
    for s, (a, b) in enumerate(zip(offsets[:-2], offsets[1:-1])):
        assert_array_equal(labels[a:b], viterbi(emission[a:b], transition)[0])
        one = forward_backward(emission[a:b], transition)
        assert_allclose(log_z[s], one.log_z[0], rtol=1e-13, atol=1e-13)
        assert_allclose(marginals[a:b], one.marginals, atol=1e-12)


@st.composite
def packed(draw):
    lengths = draw(st.lists(st.integers(0, 4), max_size=8))
    offsets, width = np.cumsum([0, *lengths]), draw(st.integers(0, 3))
    rows = np.arange(float(offsets[-1] * width)).reshape(int(offsets[-1]), width)
    return Sequences(sparse.csr_matrix(rows) if draw(st.booleans()) else rows, offsets)


def plain(X):
    return [x.toarray().tolist() if sparse.issparse(x) else x.tolist() for x in X]


@SETTINGS
@given(packed(), st.data())
def test_sequences_are_lists_of_matrices(X, data):
    as_list, n = plain(X), len(X)
    cut = data.draw(st.slices(n))
    assert plain(X[cut]) == as_list[cut]
    if n:
        which = data.draw(st.lists(st.integers(-n, n - 1), max_size=9))
        assert plain(X[which]) == [as_list[k] for k in which]
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
        assert plain(X[mask]) == [x for x, keep in zip(as_list, mask) if keep]
        assert plain([X[n - 1]]) == as_list[-1:]
    assert plain(pickle.loads(pickle.dumps(X))) == as_list
    assert plain(Sequences.from_list(list(X))) == as_list if n else True
    assert X.lengths.sum() == X.n_rows


@SETTINGS
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.sampled_from("ab")), max_size=6),
    st.integers(0, 3),
    st.sampled_from(["iob2", "iobes", "bilou"]),
)
def test_segments_survive_labels(parts, rest, scheme):
    segments, at = [], 0
    for gap, size, type_ in parts:
        segments.append((at + gap, at + gap + size, type_))
        at += gap + size
    labels = segments_to_labels(segments, at + rest, scheme)
    assert len(labels) == at + rest
    assert labels_to_segments(labels, scheme, strict=True) == segments
