"""Checks of the checkpoints of streams: the same model and rule, and valid fields."""

import zlib
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from scipy import sparse

from sklseq._lib.checks import is_number
from sklseq._lib.checksums import row_checksum
from sklseq.estimators.online.pipelines import StreamModel

ADVICE = "Give what OnlineStream.checkpoint() returned, unchanged."
LARGEST = 2**62  # largest count: sums with later rows must not overflow

# (arrays, checksum) of taggers, so that not every checkpoint reads the weights. Training makes new
# arrays; numbers written into the old ones are not noticed.
_CHECKSUMS: WeakKeyDictionary = WeakKeyDictionary()


def weights_checksum(tagger: Any) -> int:
    """Return a checksum of all fitted numeric arrays of a tagger."""
    arrays = {name: a for name, a in sorted(vars(tagger).items()) if _is_fitted(name, a)}
    kept, total = _CHECKSUMS.get(tagger, ((), 0))
    if len(kept) == len(arrays) and all(a is b() for a, b in zip(arrays.values(), kept)):
        return total
    total = 0
    for name, value in arrays.items():
        value = value.tocsr() if sparse.issparse(value) else value
        total = row_checksum(value, total ^ zlib.crc32(f"{name} {value.dtype.str}".encode()))
    _CHECKSUMS[tagger] = tuple(map(ref, arrays.values())), total
    return total


def _is_fitted(name: str, value: Any) -> bool:
    numeric = isinstance(value, np.ndarray) or sparse.issparse(value)
    return name.endswith("_") and numeric and value.dtype.kind in "biuf"


def name_of(function: Callable) -> str:
    """Return module and qualified name; for nested functions and lambdas also a code hash."""
    named = function if hasattr(function, "__qualname__") else type(function)
    name = f"{named.__module__}.{named.__qualname__}"
    code = getattr(function, "__code__", None)
    if "<" not in name or code is None:
        return name
    constants = [c for c in code.co_consts if isinstance(c, (int, float, str, type(None)))]
    return f"{name} {zlib.crc32(code.co_code + repr((constants, code.co_names)).encode()):08x}"


def check_checkpoint(checkpoint: Any, new: dict, model: StreamModel) -> None:
    """Raise unless a stream on ``model`` can continue it; ``new``: checkpoint of a new stream."""
    _check_identity(checkpoint, new["of"])
    _check_state(checkpoint, new, model, len(new["of"]["labels"]))


def _check_identity(checkpoint: Any, mine: dict) -> None:
    # Raise unless it is a checkpoint of the same model and rule.
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("of"), dict):
        raise ValueError(
            "checkpoint must be what OnlineStream.checkpoint() gave; got "
            f"{type(checkpoint).__name__}{' without the model it is of' * bool(checkpoint)}."
        )
    its = checkpoint["of"]
    for name, value in mine.items():
        if name not in its or type(its[name]) is not type(value) or its[name] != value:
            raise ValueError(
                f"The checkpoint is of a stream with other {name}; continue it on the decoder "
                "that made it, or on a copy."
            )


def _refuse(name: str, wanted: str, value: Any) -> None:
    text = repr(value)
    if isinstance(value, np.ndarray) and value.ndim != 1:
        text = f"an array of {value.dtype} of shape {value.shape}"
    elif len(text) > 60:
        text = f"{text[:50]}..."
    raise ValueError(f"{name} of the checkpoint must be {wanted}; got {text}. {ADVICE}")


def _check_names(found: dict, wanted: tuple, where: str) -> None:
    if not isinstance(found, dict):
        _refuse(where, "a dict", found)
    if set(found) != set(wanted):
        _refuse(where, f"a dict of {', '.join(wanted)}", sorted(map(str, found)))


def _check_count(name: str, value: Any, least: int, most: int) -> None:
    if not is_number(value, whole=True) or not least <= value <= most:
        _refuse(name, f"an integer from {least} to {most}", value)


def _check_array(name: str, value: Any, dtype: np.dtype, shape: tuple, why: str = "") -> None:
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        _refuse(name, f"an array of {dtype} of shape {shape} {why}".rstrip(), value)


def _check_state(checkpoint: dict, new: dict, model: StreamModel, n_labels: int) -> None:
    # Raise if no stream on ``model`` can have these fields.
    _check_names(checkpoint, tuple(new), "all")
    beam, like = checkpoint["beam"], new["beam"]
    _check_names(beam, tuple(like), "beam")
    _check_counts(beam, n_labels, model.rule.restart)
    n = beam["n_rows"] - beam["n_emitted"]
    for name in ("vectors", "origin", "losses", "filtered"):
        _check_array(name, beam[name], like[name].dtype, like[name].shape)
    for name in ("pointers", "psi", "alpha", "transition"):
        if name in like:
            shape = (n, *like[name].shape[1:])
            _check_array(name, beam[name], like[name].dtype, shape, "(n_rows - n_emitted, ..)")
    _check_labels(beam, n, n_labels, model.rule)
    _check_scores(beam, model.rule.belief)
    _check_items(checkpoint, beam, model)


def _check_counts(beam: dict, n_labels: int, restart: str) -> None:
    _check_count("n_rows", beam["n_rows"], 0, LARGEST)
    _check_count("n_emitted", beam["n_emitted"], 0, beam["n_rows"])
    if not isinstance(beam["lossy"], bool):
        _refuse("lossy", "True or False", beam["lossy"])
    may_contradict = restart == "conflict" and beam["lossy"] and beam["n_emitted"] > 0
    _check_count("previous", beam["previous"], -1, n_labels - 1 if may_contradict else -1)


def _check_labels(beam: dict, n: int, n_labels: int, rule: Any) -> None:
    for name in ("origin", "pointers"):
        if not ((beam[name] >= 0) & (beam[name] < n_labels)).all():
            _refuse(name, f"labels from 0 to {n_labels - 1}", beam[name])
    if beam["losses"].size and n and not _within(beam["losses"], 0, beam["n_rows"]):
        _refuse("losses", f"numbers of rows from 0 to {beam['n_rows']}", beam["losses"])
    # Decoding follows the pointers back until labels agree, and relies on origin for that.
    if n == 0 or rule.strategy == "chunk":
        return
    if rule.strategy == "viterbi" and rule.max_latency is None:
        return
    origin = np.arange(n_labels)
    for row in beam["pointers"][:0:-1]:
        origin = row[origin]
    if (origin != beam["origin"]).any():
        _refuse("origin", f"where pointers lead, {origin.tolist()}", beam["origin"])


def _within(values: np.ndarray, least: float, most: float) -> bool:
    # Comparisons are False for NaN.
    return bool(((values >= least) & (values <= most)).all())


def _check_scores(beam: dict, belief: str) -> None:
    largest = np.finfo(float).max
    for name in ("vectors", "psi", "alpha", "filtered", "transition"):
        if name in beam and not _within(beam[name], -np.inf, largest):
            _refuse(name, "finite or -inf", beam[name])
    rows = [("vectors[0]", beam["vectors"][:1]), ("alpha", beam["alpha"])]
    rows += [("filtered", beam["filtered"][None])]
    if belief == "forward":
        rows += [("vectors[3]", beam["vectors"][3:])]
    for name, scores in rows:
        if (scores.max(axis=1) != 0).any():
            _refuse(name, "scores of which the largest of each row is 0", scores)


def _check_items(checkpoint: dict, beam: dict, model: StreamModel) -> None:
    items, n_waiting, ended = (checkpoint[name] for name in ("items", "n_waiting", "ended"))
    if not isinstance(ended, bool) or (ended and beam["n_rows"] > beam["n_emitted"]):
        _refuse("ended", "False, or True if no row is pending", ended)
    if not isinstance(items, list):
        _refuse("items", "a list", items)
    _check_count("n_waiting", n_waiting, 0, min(model.after, len(items)) * (not ended))
    most = min(model.before, beam["n_rows"]) + n_waiting
    if len(items) > most * (not ended):
        _refuse("items", f"a list of at most {most * (not ended)}", items)
