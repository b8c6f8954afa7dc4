"""Streams, pools and blocks of models with transition features: what whole sequences give."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, RowBlocks, Sequences
from sklseq.data.row_blocks import BLOCK_ROWS
from sklseq.estimators.online.long_decoding import decode_long
from sklseq.estimators.online.row_potentials import chain_of
from sklseq.features import TemplateFeatures
from sklseq.inference.chain.online_rules import OnlineRule, decode_block
from sklseq.online import Emission
from tests.inference.test_online_inference import STRATEGIES, random_rule

TEMPLATE = """
U00:%x[0,0]
U01:%x[1,0]
B
B01:%x[0,0]
*02:%x[-1,0]
"""


def labelled(rng, n=12, dtype=float):
    """Rows of which the first column says that the label changes."""
    X = [(rng.random((int(rng.integers(1, 12)), 4)) < 0.5).astype(dtype) for _ in range(n)]
    X = [x * rng.normal(1, 0.3, 4).astype(dtype) for x in X]
    return X, [np.cumsum(x[:, 0] > 0) % 3 for x in X]


def random_decoder(seed):
    """(decoder, sequences, items of each): features with and without extractors."""
    rng = np.random.default_rng(seed)
    rule = {"strategy": STRATEGIES[seed % len(STRATEGIES)], **random_rule(seed)}
    if rule.get("max_latency") == 0:  # the template looks one token ahead
        rule["max_latency"] = 2
    X, y = labelled(rng, dtype=[float, np.float32][seed % 5 == 0])
    form, crf = seed % 4, CRFTagger(l2=0.1, all_possible_transitions=seed % 3 == 0)
    if seed % 2:
        crf.set_params(constraints=[[True, True, False], [False, True, True], [True, False, True]])
    if form == 0:
        words = [["xy"[int(row[0] > 0)] + "ab"[int(row[1] > 0)] for row in x] for x in X]
        features = TemplateFeatures(TEMPLATE, bos_eos=seed % 3 == 0)
        model = make_pipeline(features, crf).fit(words, y)
        return OnlineDecoder(model, **rule).fit(words, y), words, words
    kind = HMSVMTagger(random_state=0) if seed % 8 == 7 else crf
    if form == 1:
        dicts = [[{str(k): float(v) for k, v in enumerate(row)} for row in x] for x in X]
        kind.set_params(transition_features=["0", "2"])
        return OnlineDecoder(kind, **rule).fit(dicts, y), dicts, dicts
    kind.set_params(transition_features=[0, 2])
    if form == 2:
        X = [sparse.csr_matrix(x) for x in X]
    return OnlineDecoder(kind, **rule).fit(X, y), X, [list(x) for x in X]


def check_emissions(emissions, decoding, s):
    assert [e.position for e in emissions] == list(range(len(decoding.labels[s])))
    assert_array_equal([e.label for e in emissions], decoding.labels[s])
    assert_array_equal([e.position + e.latency for e in emissions], decoding.times[s])
    assert_allclose([e.confidence for e in emissions], decoding.confidence[s], atol=1e-6)


def check_streams(seed):
    """A stream that is stored and restored between pushes, and a pool of all sequences."""
    rng = np.random.default_rng(seed)
    decoder, X, items = random_decoder(seed)
    decoding, pool = decoder.decode(X), decoder.pool()
    found: list = [[] for _ in X]
    for s, rows in enumerate(items):
        stream, emissions, at = decoder.stream(), [], 0
        while at < len(rows):
            n = int(rng.integers(1, 4))
            emissions += stream.push_many(rows[at : at + n]) if n > 1 else stream.push(rows[at])
            if rng.random() < 0.3:
                stream = decoder.stream(pickle.loads(pickle.dumps(stream.checkpoint())))
            at += n
        provisional, last = stream.provisional, stream.flush()
        assert provisional == last
        check_emissions(emissions + last, decoding, s)
    waiting = [(s, at) for s, rows in enumerate(items) for at in range(len(rows))]
    order = sorted(waiting, key=lambda pair: (pair[1] // 2, rng.random(), pair[1]))
    order = [s for s, _ in order]
    numbers = dict.fromkeys(range(len(X)), 0)
    while order:
        some, order = order[:7], order[7:]
        batch = []
        for s in some:
            batch.append(items[s][numbers[s]])
            numbers[s] += 1
        collect(pool.push_many(some, batch), found)
        if rng.random() < 0.2:
            pool = pickle.loads(pickle.dumps(pool))
    collect(pool.flush(), found)
    for s in range(len(X)):
        check_emissions(found[s], decoding, s)


def collect(labels, found):
    columns = labels.stream, labels.position, labels.label, labels.confidence, labels.latency
    for stream, *rest in zip(*columns):
        found[labels.ids[stream]].append(Emission(*rest))


@pytest.mark.parametrize("seed", range(24))
def test_streams_and_pools_give_what_whole_sequences_give(seed):
    check_streams(seed)


@pytest.mark.parametrize("seed", range(4, 10))
def test_blocks_of_any_cut(seed):
    rng = np.random.default_rng(seed)
    X, y = labelled(rng, n=30)
    x, z = np.concatenate(X), np.concatenate(y)
    tagger = CRFTagger(l2=0.1, transition_features=[0, 2]).fit([x], [z])
    cuts = np.sort(rng.integers(1, len(x), 5))
    blocks = [RowBlocks(lambda: iter(part for part in np.split(x, cuts) if len(part)))]
    with_cuts(tagger, [x], [z], blocks)


def with_cuts(tagger, X, y, blocks):
    for whole, part in zip(tagger.predict(X), tagger.predict(blocks)):
        assert_array_equal(part, whole)
    assert_array_equal(np.concatenate([*tagger.predict_blocks(blocks[0])]), tagger.predict(X)[0])
    assert tagger.score(blocks, y) == tagger.score(X, y)
    for whole, part in zip(tagger.predict_proba(X), tagger.predict_proba(blocks)):
        assert_allclose(part, whole, atol=1e-10)
    log_p = tagger.predict_log_proba_sequence(blocks, y)
    assert_allclose(log_p, tagger.predict_log_proba_sequence(X, y), rtol=1e-9)
    decoder = OnlineDecoder(tagger, lag=3).fit(X, y)
    for whole, part in zip(decoder.decode(X), decoder.decode(blocks)):
        assert_allclose(part[0], whole[0], atol=1e-10)
    assert_allclose(tagger.path_entropy(blocks), tagger.path_entropy(X), rtol=1e-9)


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_long_sequences_in_blocks(size):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2 * BLOCK_ROWS + 37, 3))
    y = np.cumsum(x[:, 0] > 0.5) % 3
    tagger = CRFTagger(l2=1, transition_features=[0], max_iter=20, tol=0.1).fit(
        [x[:2000]], [y[:2000]]
    )
    tagger.coef_, tagger.transition_coef_ = size * tagger.coef_, size * tagger.transition_coef_
    with_cuts(tagger, [x], [y], [RowBlocks(x)])


def test_held_rows_of_extractors_that_look_ahead():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(BLOCK_ROWS + 50, 3))
    y = np.cumsum(x[:, 0] > 0.5) % 3
    tagger = CRFTagger(transition_features=[0], max_iter=50, tol=0.1).fit([x[:500]], [y[:500]])

    tagger.transition_coef_ = 2 * tagger.transition_coef_
    rule = OnlineRule.checked(**{"strategy": "closure", "lag": None})
    potentials = tagger.potentials([x])
    chain = chain_of(potentials)
    whole = decode_block(potentials.emission, potentials.offsets, chain, rule, held=2)
    (part,) = decode_long(tagger, [RowBlocks(x)], chain_of(tagger.potentials([])), rule, 2)
    assert_array_equal(part.labels, whole.labels)
    assert_allclose(part.confidence, whole.confidence, atol=1e-10)


def test_entries_of_parts_follow_the_row_before():
    rng = np.random.default_rng(1)
    X, y = labelled(rng)
    tagger = CRFTagger(l2=0.1, transition_features=[0, 2]).fit(X, y)
    x = np.concatenate(X)
    whole = tagger.potentials([x]).transition.toarray()
    parts = Sequences(x, [0, 0, 5, 5, 6, len(x)])
    for given in ([0, 0, 1, 1, 1], [1, 0, 0, 1, 0], [0, 1, 1, 0, 1]):
        rows = tagger.potentials(parts, continued=np.array(given, dtype=bool)).transition.toarray()
        expected = whole.copy()
        for s, first in ((1, 0), (3, 5), (4, 6)):
            if not given[s]:
                expected[first] = tagger.transition_
        if given[1]:
            expected[0] = tagger.potentials([x[[1, 0]]]).transition.toarray()[1]
        assert_allclose(rows, expected, rtol=1e-12)


def test_what_streams_refuse():
    rng = np.random.default_rng(1)
    X, y = labelled(rng)
    decoder = OnlineDecoder(CRFTagger(l2=0.1, transition_features=[0, 2]), lag=1).fit(X, y)
    stream, pool = decoder.stream(), decoder.pool()
    with pytest.raises(ValueError, match="push_potentials takes emission scores, and the trans"):
        stream.push_potentials(np.zeros(3))
    with pytest.raises(ValueError, match="push_potentials takes emission scores, and the trans"):
        pool.push_potentials(["a"], np.zeros((1, 3)))
    stream.push(X[0][0])
    checkpoint = stream.checkpoint()
    checkpoint["beam"]["transition"][:] = np.nan
    with pytest.raises(ValueError, match="transition"):
        decoder.stream(checkpoint)
    checkpoint["beam"]["transition"] = np.zeros((1, 2, 3))
    with pytest.raises(ValueError, match="transition"):
        decoder.stream(checkpoint)
    before = stream.provisional
    with pytest.raises(ValueError, match="are too large"):
        stream.push(np.array([1e308, 0, 1e308, 0]))
    assert stream.provisional == before
