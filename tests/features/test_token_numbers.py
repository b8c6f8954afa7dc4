"""TokenNumbers: numbers of tokens, against a dict."""

import numpy as np
import pytest
from sklseq.features._encode import TokenNumbers, encode_column

LETTERS = {"ASCII": "ab\0Z ", "Latin-1": "aé\xff\x80", "any": "aéß語\U0001f600\ud800", "one": "a"}


@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
@pytest.mark.parametrize("longest", [1, 3, 4, 8, 9, 17])
def test_numbers_are_those_of_a_dict(letters, longest):
    rng = np.random.default_rng(longest)

    def token():  # built anew: equal tokens are not the same object
        return "".join(rng.choice(list(letters), rng.integers(0, longest + 1)))

    sequences = [[token() for _ in range(rng.integers(0, 100))] for _ in range(40)]
    starts = np.cumsum([0, *map(len, sequences)])
    known: dict = {}
    expected = [known.setdefault(t, len(known)) for x in sequences for t in x]
    grown = TokenNumbers()
    codes = np.zeros(starts[-1], dtype=np.int32)
    encode_column(sequences, "tokens", None, grown, 5, starts, codes, True)
    assert (codes - 5).tolist() == expected
    assert grown.names == list(known)
    half = list(known)[::2]
    for table in (TokenNumbers(half), TokenNumbers(half, 10_000)):
        encode_column(sequences, "tokens", None, table, 1, starts, codes, False)
        number = dict(zip(half, range(1, len(half) + 1)))
        assert codes.tolist() == [number.get(t, 0) for x in sequences for t in x]
        assert table.names == half
