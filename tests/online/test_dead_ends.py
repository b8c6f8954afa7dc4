"""Labels that nothing may follow: streams of all kinds go on, and can end with such a label."""

import numpy as np
import pytest

from sklseq import CRFTagger, OnlineDecoder, runtime
from sklseq.deployment import describe

RULES = [
    {"latency_cost": 0.2},
    {"latency_cost": 0.2, "belief": "viterbi"},
    {"latency_cost": 0.2, "early": False},
    {"latency_cost": 0.2, "restart": "always"},
    {"latency_cost": 0.2, "decide": "marginal"},
    {"latency_cost": 0.2, "strategy": "window"},
    {"strategy": "closure", "max_latency": 1},
    {"strategy": "chunk", "window_size": 2},
    {"lag": 0},
    {"lag": 1, "belief": "viterbi"},
]


def decoder_of(**rule):
    """A decoder in which nothing follows "END", the label of "z"."""
    tagger = CRFTagger(l2=0.01, constraints=[("END", "M"), ("END", "END")])
    X = [[["a"], ["z"]], [["b"], ["a"], ["z"]]] * 4
    return OnlineDecoder(tagger, **rule).fit(X, [["M"] * (len(x) - 1) + ["END"] for x in X])


def labels_of(emissions):
    return [emission.label for emission in emissions]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_streams_of_all_kinds_go_on_and_agree(rule):
    rng, decoder = np.random.default_rng(0), decoder_of(**rule)
    exported = runtime.Decoder(describe(decoder.estimator_))
    for _ in range(15):
        x = [[str(w)] for w in rng.choice(list("abz"), 12)]
        expected = list(decoder.predict([x])[0])
        assert "END" not in expected[:-1]
        stream, pool, own = (
            decoder.stream(),
            decoder.pool(),
            exported.stream(**{"strategy": "step"} | rule),
        )
        assert labels_of(stream.push_many(x)) + labels_of(stream.flush()) == expected
        pushed = [label for item in x for label in pool.push_many([0], [item]).label]
        assert [*pushed, *pool.flush([0]).label] == expected
        assert [label for item in x for label in own.push(item)] + own.finish() == expected


@pytest.mark.parametrize("strategy", ["step", "window"])
def test_the_end_confirms_the_label_and_a_row_contradicts_it(strategy):
    decoder = decoder_of(latency_cost=0.2, strategy=strategy)
    assert list(decoder.predict([[["a"], ["z"]]])[0]) == ["M", "END"]
    assert list(decoder.predict([[["a"], ["z"], ["a"]]])[0][:2]) == ["M", "M"]


def test_a_committed_label_can_be_followed():
    stream = decoder_of(strategy="viterbi").stream()
    stream.push(["z"])
    assert labels_of(stream.provisional) == ["END"]
    assert labels_of(stream.commit()) == ["M"]
    stream.push(["z"])
    assert labels_of(stream.flush()) == ["END"]
