"""A public parser of addresses, with its own features and model, answers the same."""

import random
import time

import pytest

from sklseq.compat import pycrfsuite


def addresses(n):
    draw = random.Random(0)
    streets, ends = ["Main", "Martin Luther King", "5th", "Old Mill"], ["St", "Ave.", "Blvd", "Rd,"]
    for _ in range(n):
        parts = [str(draw.randrange(1, 9999)), draw.choice(["", "N", "S.W."])]
        parts += [draw.choice(streets), draw.choice(ends), draw.choice(["", "Apt 4B,", "# 12"])]
        parts += [draw.choice(["Chicago,", "New York", "St. Paul"]), draw.choice(["IL", "NY"])]
        yield " ".join([*parts, f"{draw.randrange(99999):05}"])


def test_usaddress():
    usaddress = pytest.importorskip("usaddress")
    peer = pytest.importorskip("pycrfsuite").Tagger()
    tagger = pycrfsuite.Tagger()
    peer.open(usaddress.MODEL_PATH)
    tagger.open(usaddress.MODEL_PATH)
    items = [usaddress.tokens2features(usaddress.tokenize(text)) for text in addresses(200)]
    for x in items:
        assert tagger.tag(x) == peer.tag(x)
        assert abs(tagger.marginal(tagger.tag()[0], 0) - peer.marginal(peer.tag()[0], 0)) < 1e-9
    seconds = {peer: [], tagger: []}
    for _ in range(5):
        for one, times in seconds.items():
            begun = time.process_time()
            for x in items:
                one.tag(x)
            times.append(time.process_time() - begun)
    assert min(seconds[tagger]) < 1.3 * min(seconds[peer])  # measured 0.6
