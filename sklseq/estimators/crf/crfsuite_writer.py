"""Writer of model files of CRFsuite; the layout is described in ``crfsuite_model.py``."""

import os
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from sklseq._lib.estimator import as_fitted
from sklseq._lib.model_file import new_file_name, write_file
from sklseq._lib.ragged import offsets_of
from sklseq.estimators.crf.crf_tagger import CRFTagger
from sklseq.estimators.crf.crfsuite_model import (
    CHUNK,
    FEATURE,
    HEADER,
    N_TABLES,
    STATE,
    TRANSITION,
    VERSION,
)
from sklseq.estimators.weights import check_weights, dense_weights

# Weight of a forbidden transition: CRFsuite needs finite weights, and exp of this is 0.
FORBIDDEN = -1e4


def write_crfsuite_model(
    model: CRFTagger | Pipeline,
    path: str | os.PathLike[str],
    *,
    boundaries: tuple[str, str] | None = None,
) -> None:
    """Write a fitted CRF as a model file of CRFsuite.

    CRFsuite, python-crfsuite and their ports to other languages then give the same labels, except
    where two paths have exactly the same score, and the same marginals up to rounding.

    Parameters
    ----------
    model : CRFTagger or Pipeline
        Fitted on feature dicts or attributes. The file of a Pipeline has the feature names of its
        extractors; items for CRFsuite are then lists of these names.
    path : str or path
        The file appears once it is complete.
    boundaries : (str, str), default=None
        CRFsuite has no weights for the first and the last label, so these weights are stored for
        two new attributes: add the first one to the first item of each sequence, the second one to
        the last item. None: the model must be fitted with ``boundaries=False``.

    Returns
    -------
    None

    Raises
    ------
    ValueError
        If the format cannot represent the model: labels that are not strings, names with the
        character U+0000, hashed columns, or weights of first and last labels without
        ``boundaries``.

    Notes
    -----
    Forbidden transitions get the weight -10,000. Weights that are zero are left out, and so are
    attributes that have no other weights.

    References
    ----------
    N. Okazaki (2007), "CRFsuite: a fast implementation of conditional random fields".

    B. Jenkins (2006), "lookup3.c", the hash function of the tables of names.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklseq import CRFTagger, read_crfsuite_model, write_crfsuite_model
    >>> X, y = [[{"w": "the"}, {"w": "cat"}]], [["D", "N"]]
    >>> tagger = CRFTagger(boundaries=False).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.crfsuite")
    ...     write_crfsuite_model(tagger, path)
    ...     read_crfsuite_model(path).predict(X)[0]
    ['D', 'N']
    """
    new_file_name(path)
    tagger, names = _tagger_and_names(model)
    labels = tagger.classes_.tolist()
    if not all(isinstance(label, str) for label in labels):
        raise ValueError(f"Labels must be strings for CRFsuite; got {labels!r:.60}. Use map(str).")
    coef = np.asarray(dense_weights(tagger.coef_), dtype=np.float64)
    names, coef = _with_boundaries(tagger, names, coef, boundaries)
    kept = coef.any(axis=1)
    names, coef = [name for name, keep in zip(names, kept.tolist()) if keep], coef[kept]
    transition = np.where(np.isneginf(tagger.transition_), FORBIDDEN, tagger.transition_)
    features = np.concatenate([_features(STATE, coef), _features(TRANSITION, transition)])
    sections = [
        _chunk(b"FEAT", len(features), features.tobytes()),
        _names_section(labels, "label"),
        _names_section(names, "attribute"),
    ]
    begins = HEADER + offsets_of(list(map(len, sections)))
    # Two more lists, for first and last labels; no version of CRFsuite uses them.
    sections.append(_references(b"LFRF", features, TRANSITION, len(labels), 2, int(begins[-1])))
    begins = HEADER + offsets_of(list(map(len, sections)))
    sections.append(_references(b"AFRF", features, STATE, len(names), 0, int(begins[-1])))
    size = HEADER + sum(map(len, sections))
    # The number of features is in FEAT; CRFsuite itself writes 0 here.
    numbers = [VERSION, 0, len(labels), len(names), *begins.tolist()]
    header = b"lCRF" + _words([size]) + b"FOMC" + _words(numbers)
    write_file(path, header + b"".join(sections))


def _tagger_and_names(model: Any) -> tuple[CRFTagger, list[str]]:
    tagger = model[-1] if isinstance(model, Pipeline) else model
    if not isinstance(tagger, CRFTagger):
        raise ValueError(
            f"model must be a CRFTagger, or a Pipeline that ends with one; got "
            f"{type(tagger).__name__}. CRFsuite has linear-chain CRFs only."
        )
    check_weights(tagger)
    if tagger.transition_coef_ is not None:
        raise ValueError(
            "The model has transition features, which CRFsuite does not have; train it without "
            "transition_features and B lines."
        )
    extractor = getattr(tagger, "vectorizer_", None)
    if isinstance(model, Pipeline) and len(model) > 1:
        extractor = model[:-1]
        last = as_fitted(model[-2])
        if getattr(last, "n_features", None) is not None:
            raise ValueError(
                f"{type(last).__name__} has hashed columns (n_features={last.n_features}), whose "
                "attributes are not known; fit it with n_features=None."
            )
    if extractor is None:
        raise ValueError(
            "The tagger was fitted on rows of numbers, which have no attributes for CRFsuite; fit "
            "it on feature dicts, or give a Pipeline of extractors and tagger."
        )
    return tagger, [str(name) for name in extractor.get_feature_names_out()]


def _with_boundaries(
    tagger: CRFTagger, names: list[str], coef: np.ndarray, boundaries: Any
) -> tuple[list[str], np.ndarray]:
    ends = np.stack([tagger.start_, tagger.end_]).astype(np.float64)
    if not ends.any():
        return names, coef
    if boundaries is None:
        raise ValueError(
            "CRFsuite has no weights for first and last labels: fit with boundaries=False, or "
            "give boundaries=('__BOS__', '__EOS__') and these attributes to first and last items."
        )
    first, last = boundaries
    for name in {first, last} & set(names) or ({first} if first == last else ()):
        raise ValueError(f"boundaries must be two new attributes; {name!r} is one already.")
    ends = np.where(np.isneginf(ends), FORBIDDEN, ends)
    return [*names, first, last], np.concatenate([coef, ends])


def _features(kind: int, weights: np.ndarray) -> np.ndarray:
    source, label = np.nonzero(weights)
    features = np.empty(len(source), dtype=FEATURE)
    features["kind"], features["source"], features["label"] = kind, source, label
    features["weight"] = weights[source, label]
    return features


def _words(numbers: Any) -> bytes:
    return np.asarray(numbers, dtype="<u4").tobytes()


def _chunk(mark: bytes, n: int, content: bytes) -> bytes:
    content += bytes(-len(content) % 4)
    return mark + _words([CHUNK + len(content), n]) + content


def _references(
    mark: bytes, features: np.ndarray, kind: int, n: int, extra: int, begin: int
) -> bytes:
    """A section with the list of features of each label or attribute."""
    mine = np.flatnonzero(features["kind"] == kind)
    counts = np.bincount(features["source"][mine], minlength=n)
    # A list holds its length and its features; ``features`` are sorted by source.
    first = np.cumsum(counts + 1) - (counts + 1)
    lists = np.empty(len(mine) + n, dtype=np.uint32)
    is_length = np.zeros(len(lists), dtype=bool)
    is_length[first] = True
    lists[is_length], lists[~is_length] = counts, mine
    at = begin + CHUNK + 4 * (n + extra) + 4 * first
    return _chunk(mark, n + extra, _words([*at.tolist(), *[0] * extra]) + _words(lists))


def _names_section(names: list[str], what: str) -> bytes:
    """A section of strings: hash tables, records of (number, length, string), record positions."""
    texts = []
    for name in names:
        if "\0" in name or name.encode("utf-8", "replace").decode() != name:
            raise ValueError(
                f"The {what} {name!r} has a character that CRFsuite cannot store: U+0000, which "
                "ends its strings, or half of a surrogate pair; replace it."
            )
        texts.append(name.encode() + b"\0")
    sizes = np.array([len(text) for text in texts], dtype=np.int64)
    places = 24 + 8 * N_TABLES + np.cumsum(8 + sizes) - (8 + sizes)
    records = b"".join(
        b"".join((k.to_bytes(4, "little"), len(text).to_bytes(4, "little"), text))
        for k, text in enumerate(texts)
    )
    records += bytes(-len(records) % 4)
    begin = 24 + 8 * N_TABLES + len(records)
    refs, tables = _hash_tables(_hashes(texts, sizes), places, begin)
    back = begin + len(tables)
    size = back + 4 * len(names)
    head = b"CQDB" + _words([size, 0, 0x62445371, len(names), back])
    return head + refs + records + tables + _words(places)


def _hash_tables(hashes: np.ndarray, places: np.ndarray, begin: int) -> tuple[bytes, bytes]:
    """(Position, size) of each table; the tables of (hash, place), with linear probing."""
    counts = 2 * np.bincount(hashes % N_TABLES, minlength=N_TABLES)
    first = np.cumsum(counts) - counts
    slots = [(0, 0)] * int(counts.sum())
    starts, sizes = first.tolist(), counts.tolist()
    for h, place in zip(hashes.tolist(), places.tolist()):
        start, size = starts[h % N_TABLES], sizes[h % N_TABLES]
        k = (h // N_TABLES) % size
        while slots[start + k][1]:
            k = (k + 1) % size
        slots[start + k] = (h, place)
    at = np.where(counts > 0, begin + 8 * first, 0)
    return _words(np.stack([at, counts], axis=1)), _words(np.array(slots).reshape(-1, 2))


def _hashes(texts: list[bytes], sizes: np.ndarray) -> np.ndarray:
    """Jenkins's lookup3 hash (little-endian, from 0) of each text."""
    hashes = np.zeros(len(texts), dtype=np.uint32)
    order = np.argsort(sizes, kind="stable")  # groups texts of similar length, to pad little
    for first in range(0, len(texts), 1024):
        some = order[first : first + 1024]
        hashes[some] = _hashes_together([texts[i] for i in some.tolist()], sizes[some])
    return hashes


def _hashes_together(texts: list[bytes], sizes: np.ndarray) -> np.ndarray:
    n_blocks = int(sizes.max() + 11) // 12
    padded = b"".join(text.ljust(12 * n_blocks, b"\0") for text in texts)
    blocks = np.frombuffer(padded, "<u4").reshape(len(texts), n_blocks, 3).astype(np.uint32)
    a = np.uint32(0xDEADBEEF) + sizes.astype(np.uint32)
    b, c = a.copy(), a.copy()
    for k in range(n_blocks):
        used = sizes > 12 * k
        last = used & (sizes <= 12 * (k + 1))
        for x, word in zip((a, b, c), blocks[:, k].T):
            x[used] += word[used]
        for rows, rounds in ((used & ~last, _mixed), (last, _final)):
            a[rows], b[rows], c[rows] = rounds(a[rows], b[rows], c[rows])
    return c


def _turned(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint32(bits)) | (x >> np.uint32(32 - bits))


def _mixed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a = (a - c) ^ _turned(c, first)
        c = c + b
        b = (b - a) ^ _turned(a, second)
        a = a + c
        c = (c - b) ^ _turned(b, third)
        b = b + a
    return a, b, c


def _final(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple:
    c = (c ^ b) - _turned(b, 14)
    a = (a ^ c) - _turned(c, 11)
    b = (b ^ a) - _turned(a, 25)
    c = (c ^ b) - _turned(b, 16)
    a = (a ^ c) - _turned(c, 4)
    b = (b ^ a) - _turned(a, 14)
    c = (c ^ b) - _turned(b, 24)
    return a, b, c
