"""Random text from a grammar, and the parameters that all generators of data share."""

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from sklseq._lib.checks import check_number

_SYMBOL = re.compile(r"\{([a-z_]+)\}|#")


def read_grammar(words: str, templates: str) -> dict[str, list[str]]:
    """Return the alternatives of each symbol of a grammar.

    Parameters
    ----------
    words, templates : str
        Entries ``symbol: alternatives``, each of which starts a line. White space separates the
        alternatives of `words`, ``|`` those of `templates`. A template may contain ``{symbol}``,
        ``#`` (a random digit) and ``¶`` (a line break).
    """
    grammar = {"#": list("0123456789")}
    for text, split in ((words, str.split), (templates, _split_templates)):
        for entry in re.split(r"\n(?=[a-z_]+:)", text.strip()):
            symbol, _, alternatives = entry.partition(":")
            grammar[symbol] = split(alternatives)
    return grammar


def _split_templates(text: str) -> list[str]:
    return [" ".join(part.split()).replace("¶", "\n") for part in text.split("|")]


def expand(template: str, choose: Callable[[str], str]) -> str:
    """Replace each symbol by the template that `choose` draws for it, until none is left."""
    return _SYMBOL.sub(lambda match: expand(choose(match[1] or "#"), choose), template)


def draw_generators(n: int, what: str, random_state: Any) -> list[random.Random]:
    """One generator of random numbers for each of `n` documents, the first ones equal for all n."""
    check_number(f"n, the number of {what},", n, 1, whole=True)
    seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=n)
    return [random.Random(int(seed)) for seed in seeds]
