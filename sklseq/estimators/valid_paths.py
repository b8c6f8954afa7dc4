"""Best label paths among the valid ones: at most one span of a type, or any rule of the user."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from sklseq.data.span_rules import SpanRules, span_rules
from sklseq.data.types import ValidLike
from sklseq.inference.chain.linear_chain import nbest, viterbi
from sklseq.inference.chain.once import best_paths_once

__all__ = ["valid_paths"]

# Paths that are tried in turn, each time of the sequences without a valid one.
NUMBERS = (8, 64, 512, 4096)


def valid_paths(potentials: tuple, classes: np.ndarray, valid: ValidLike) -> np.ndarray:
    """Codes of the best valid label paths, as `BaseTagger.predict` defines ``valid``."""
    if callable(valid):
        return _first_valid(potentials, classes, valid)
    rules = span_rules(classes)
    return best_paths_once(potentials, rules, _types(valid, rules))


def _types(valid: Any, rules: SpanRules) -> np.ndarray:
    if isinstance(valid, str) and valid == "once":
        return np.array([label != "O" for label in rules.types], dtype=bool)
    if isinstance(valid, (str, bytes)) or not isinstance(valid, Collection):
        raise ValueError(
            "valid must be None, 'once', a list of span types that may occur once, or a function "
            f"of the labels of one sequence; got {valid!r}."
        )
    unknown = [label for label in valid if label not in rules.types]
    if unknown:
        raise ValueError(
            f"valid names {unknown[0]!r}, which is no span type of the model; they are "
            f"{', '.join(map(repr, rules.types))}."
        )
    return np.array([label in valid for label in rules.types], dtype=bool)


def _first_valid(potentials: tuple, classes: np.ndarray, valid: Callable) -> np.ndarray:
    # Paths come best first, so the first valid one is the best valid one.
    emission, transition, start, end, offsets = potentials
    codes, _ = viterbi(emission, transition, offsets, start=start, end=end)
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        if valid(classes[codes[a:b]].tolist()):
            continue
        tried = 1
        for n in NUMBERS:
            paths, _ = nbest(emission[a:b], transition, None, n, start=start, end=end)[0]
            good = (k for k in range(tried, len(paths)) if valid(classes[paths[k]].tolist()))
            k = next(good, None)
            if k is not None:
                codes[a:b] = paths[k]
                break
            tried = len(paths)
            if tried < n:
                raise ValueError(f"None of the {tried} label paths of sequence {s} is valid.")
        else:
            raise ValueError(
                f"None of the {tried} best label paths of sequence {s} is valid; loosen the rule."
            )
    return codes
