"""Best label paths, or segmentations, among the valid ones: each type once, or a user's rule."""

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np

from sklseq._lib.signatures import takes
from sklseq.data.labels import cut_rows
from sklseq.data.span_rules import span_rules
from sklseq.data.types import ValidLike
from sklseq.inference.chain.linear_chain import PlainScores, nbest_of_one
from sklseq.inference.chain.once import NoValidAnswerError, best_paths_once

# Numbers of best paths that are tried one after the other, until one path is valid.
NUMBERS = (8, 64, 512, 4096)


def valid_paths(
    best: np.ndarray, potentials: tuple, classes: np.ndarray, valid: ValidLike, handle_invalid: str
) -> np.ndarray:
    """Return codes of the best valid label paths.

    ``best``: codes of the best paths of all. ``valid``, ``handle_invalid``: as in
    `BaseTagger.predict`.
    """
    scores = PlainScores.of_potentials(*potentials)
    if callable(valid):
        valid, unless = check_valid(valid), unless_invalid(handle_invalid)
        return _first_valid(best.copy(), scores, classes, valid, unless)
    rules = span_rules(classes)
    # The rules of runs list the outside label too, which is the type of no label.
    once = types_once(valid, [x for k, x in enumerate(rules.types) if k in rules.type_of])
    chosen = np.array([label in once for label in rules.types], dtype=bool)
    return best_paths_once(best, scores, rules, chosen, handle_invalid == "best")


def unless_invalid(handle_invalid: str) -> AbstractContextManager:
    """Return a reusable context that suppresses ``NoValidAnswerError`` for "best"."""
    return suppress(NoValidAnswerError) if handle_invalid == "best" else nullcontext()


def check_valid(valid: Callable) -> Callable[[Any, int], bool]:
    """Check that ``valid`` takes one argument; return it with a check of its results.

    The function returned also takes the number of the sequence, for messages.
    """
    if not takes(valid, 1):
        raise ValueError(
            "valid given as a function must take one argument, the labels or segments of one "
            f"sequence; got {valid!r}."
        )

    def checked(answer: Any, s: int) -> bool:
        try:
            found = valid(answer[:])  # the function may change its list
            ok = bool(found)
        except Exception as error:
            raise ValueError(
                f"The function valid must return True or False; for an answer of sequence {s} it "
                f"failed with {type(error).__name__}: {error}"
            ) from error
        if found is None:
            raise ValueError(
                f"valid must return True or False; {valid!r} returned None for sequence {s}."
            )
        return ok

    return checked


def types_once(valid: Any, types: list) -> list:
    """Return the types that may occur at most once, if ``valid`` is not a function."""
    if isinstance(valid, str) and valid == "once":
        return list(types)
    if isinstance(valid, (str, bytes)) or not isinstance(valid, Collection):
        raise ValueError(
            "valid must be None, 'once', a list of span types that may occur once, or a function "
            f"of the labels or segments of one sequence; got {valid!r}."
        )
    unknown = [label for label in valid if label not in types]
    if unknown:
        known = f"span types are {', '.join(map(repr, types))}" if types else "it has none"
        raise ValueError(
            f"valid names {unknown[0]!r}, which is not a span type of the model; {known}."
        )
    return list(valid)


def repeated_labels(segments: list, once: list) -> list:
    """Return the labels in ``once`` that several segments have."""
    counts = Counter(label for _, _, label in segments if label in once)
    return [label for label, n in counts.items() if n > 1]


def segmentation_rule(
    valid: ValidLike | None, classes: np.ndarray, outside: str | None
) -> Callable[[list, int], bool]:
    """Return a function: whether segments (start, stop, label) of sequence s are valid."""
    if valid is None:
        return lambda *_: True
    if callable(valid):
        return check_valid(valid)
    once = types_once(valid, [label for label in classes.tolist() if label != outside])
    return lambda segments, _: not repeated_labels(segments, once)


def _first_valid(
    codes: np.ndarray, scores: PlainScores, classes: np.ndarray, valid: Callable,
    unless: AbstractContextManager,
) -> np.ndarray:  # fmt: skip
    for s, path in enumerate(cut_rows(codes, scores.offsets)):

        def of_sequence(path: list[int], s: int = s) -> bool:
            return valid(classes[path].tolist(), s)

        def paths(n: int, s: int = s) -> list[list[int]]:
            return nbest_of_one(scores[s], n)[0].tolist()

        best = path.tolist()
        if not of_sequence(best):
            with unless:
                path[:] = first_valid(best, paths, of_sequence, f"label paths of sequence {s}")
    return codes


def first_valid(
    best: list, nbest: Callable[[int], list[list]], valid: Callable[[list], bool], what: str
) -> list:
    """Return the first valid answer among ``nbest(n)``; the answer ``best`` is known to be invalid.

    Answers are sorted, so this is the best valid answer. Equal scores may have another order for
    another n, and ``best`` any place among them, so that answers already tried are known by value.
    """
    tried = {tuple(best)}
    for n in NUMBERS:
        answers = nbest(n)
        for answer in answers:
            if (key := tuple(answer)) not in tried:
                tried.add(key)
                if valid(answer):
                    return answer
        if len(answers) < n:
            break
    which = "" if len(answers) < n else "best "
    raise NoValidAnswerError(
        f"None of the {len(tried)} {which}{what} is valid; loosen the rule valid, or use "
        "handle_invalid='best'."
    )
