"""Reader of model files of CRFsuite, which checks every part of the file.

    header (48 bytes)   lCRF  size  FOMC  100  counts  first byte of each section
    FEAT                features: kind (0 state, 1 transition), from, to, weight
    CQDB, CQDB          names of labels, names of attributes: number ↔ string
    LFRF, AFRF          features of each label, of each attribute

Numbers are little-endian, 32 bits; weights are doubles. Every size is compared with that of the
file before memory is allocated, so a corrupt file needs at most a small multiple of its length.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import ranges
from sklseq.estimators.crf.crf_tagger import CRFTagger
from sklseq.features import DictFeatures

VERSION = 100
HEADER, CHUNK = 48, 12  # bytes of the header of the file, and of a section
N_TABLES = 256  # hash tables of a CQDB, after its header of 24 bytes
FEATURE = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
STATE, TRANSITION = 0, 1
# Limits: with more, a file of a few hundred kilobytes would need hundreds of megabytes.
MAX_LABELS, MAX_LETTERS = 5_000, 1 << 24
# State weights are stored as a dense array if more than DENSE_SHARE of its entries are used, or if
# it has at most DENSE_SIZE entries.
DENSE_SHARE, DENSE_SIZE = 0.05, 1 << 20


def read_crfsuite_model(path: str | os.PathLike, *, encoding: str = "utf-8") -> CRFTagger:
    """Read a model file of CRFsuite, python-crfsuite or sklearn-crfsuite as a fitted CRFTagger.

    Predictions and marginals are those of CRFsuite on the same items, whatever algorithm trained
    the model. The file of a ``sklearn_crfsuite.CRF`` is its ``modelfile.name``.

    Parameters
    ----------
    path : str or path-like
        The ``.crfsuite`` file.
    encoding : str, default="utf-8"
        Encoding of labels and attributes; python-crfsuite writes UTF-8, the command-line tool
        the bytes of its input.

    Returns
    -------
    CRFTagger
        A fitted tagger of feature dicts and lists of attributes. Its ``boundaries`` is False, as
        CRFsuite has no weights for first and last labels. ``classes_`` has the order of the file,
        so that ties between labels are decided as in CRFsuite. ``coef_`` is an array, or a CSR
        matrix if few of its entries are used. ``n_iter_``, ``objective_`` and ``loss_curve_`` are
        not set, as the file does not have them; ``l1`` and ``l2`` have their defaults.

    Raises
    ------
    ValueError
        If the file is not such a model, has another version, or is truncated or damaged; the
        message names the section and the byte.
    OSError
        If the file cannot be read.

    Notes
    -----
    To continue training from these weights, set the penalties and use ``partial_fit``, or ``fit``
    with ``warm_start=True`` on rows of ``vectorizer_``. Items are read with two differences from
    CRFsuite: one that holds NaN or is a single string raises an error (as in
    :class:`sklseq.features.DictFeatures`), and an attribute with the character U+0000 counts as
    unknown, where CRFsuite reads the part before it.

    The cost is O(length of the file).

    References
    ----------
    N. Okazaki (2007), "CRFsuite: a fast implementation of conditional random fields". The format
    is that of the writer in its source, ``crf1d_model.c`` and ``cqdb.c``.

    Examples
    --------
    ::

        import sklseq

        tagger = sklseq.read_crfsuite_model("ner.crfsuite")
        tagger.predict([[{"word": "Madrid", "upper": True}]])
    """
    file = _File.read(path, encoding)
    sections = file.sections()
    features = file.features(sections["features"])
    labels = file.names(sections["labels"], "label", file.n_labels)
    if len(labels) * max(map(len, labels)) > MAX_LETTERS:  # an array takes this for each
        raise ValueError(f"{file.path} has a label of {max(map(len, labels))} letters: too long.")
    attributes = file.names(sections["attributes"], "attribute", file.n_attributes)
    # Two more lists than labels, for first and last labels; no version of CRFsuite uses them.
    for kind, section, n, extra in (
        (TRANSITION, "labels' features", file.n_labels, 2),
        (STATE, "attributes' features", file.n_attributes, 0),
    ):
        file.check_references(sections[section], section, features, kind, n, extra)
    return _tagger(features, labels, attributes)


class _Section(NamedTuple):
    begin: int
    end: int


class _File(NamedTuple):
    """Bytes of a model file, its path for messages, and the numbers of its header."""

    path: str
    data: bytes
    encoding: str
    n_features: int
    n_labels: int
    n_attributes: int
    begins: dict[str, int]

    @classmethod
    def read(cls, path: Any, encoding: str) -> Self:
        name = os.fspath(path)
        "".encode(encoding)  # raises LookupError for an unknown encoding
        with Path(path).open("rb") as file:
            head = file.read(HEADER)
            if head[:4] != b"lCRF":
                raise ValueError(
                    f"{name} is not a model of CRFsuite: it begins with {head[:4]!r}, not b'lCRF'."
                )
            if len(head) < HEADER:
                raise ValueError(
                    f"{name} is cut off in its header: it has {len(head)} of {HEADER} bytes."
                )
            size, length = int.from_bytes(head[4:8], "little"), os.fstat(file.fileno()).st_size
            if size != length:
                raise ValueError(
                    f"{name} is cut off or damaged: it has {length} bytes, and its header (byte 4) "
                    f"says {size}."
                )
            data = head + file.read(length - HEADER)
        numbers = np.frombuffer(data, "<u4", 9, 12).tolist()
        if data[8:12] != b"FOMC" or numbers[0] != VERSION:
            raise ValueError(
                f"{name} holds a model of type {data[8:12]!r} and version {numbers[0]} (byte 8); "
                f"only type b'FOMC', version {VERSION}, is read: that of CRFsuite 0.11 and 0.12."
            )
        sections = ("features", "labels", "attributes", "labels' features", "attributes' features")
        return cls(name, data, encoding, *numbers[1:4], dict(zip(sections, numbers[4:])))

    def fail(self, where: str, byte: int, what: str) -> NoReturn:
        raise ValueError(
            f"{self.path} is damaged in the section of {where}, at byte {byte}: {what}"
        )

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """32-bit numbers at these byte positions, which must lie inside the file."""
        data = np.frombuffer(self.data, np.uint8)
        each = data[np.asarray(positions, dtype=np.int64)[:, None] + np.arange(4)]
        return each.view("<u4").ravel().astype(np.int64)

    # --- Sections

    def sections(self) -> dict[str, _Section]:
        """Begin and end of each section, checked to lie inside the file without overlaps."""
        marks = (b"FEAT", b"CQDB", b"CQDB", b"LFRF", b"AFRF")
        found = {}
        for (name, begin), mark in zip(self.begins.items(), marks):
            if not HEADER <= begin <= len(self.data) - CHUNK:
                self.fail(name, begin, f"it must lie between {HEADER} and {len(self.data)}.")
            if self.data[begin : begin + 4] != mark:
                seen = self.data[begin : begin + 4]
                self.fail(name, begin, f"it must begin with {mark!r}; got {seen!r}.")
            size = int(self.numbers([begin + 4])[0])
            if not CHUNK <= size <= len(self.data) - begin:
                self.fail(name, begin + 4, f"its size, {size}, goes beyond the file.")
            found[name] = _Section(begin, begin + size)
        in_order = sorted(found.items(), key=lambda item: item[1])
        for (before, one), (name, other) in zip(in_order, in_order[1:]):
            if one.end > other.begin:
                self.fail(name, other.begin, f"it overlaps with that of {before}.")
        return found

    def features(self, section: _Section) -> np.ndarray:
        """All features, checked to refer to existing labels and attributes."""
        begin, end = section
        n = int(self.numbers([begin + 8])[0])
        if end - begin != CHUNK + n * FEATURE.itemsize:
            self.fail("features", begin + 8, f"{n} features do not fill {end - begin} bytes.")
        if self.n_features not in (0, n):  # most writers leave 0
            self.fail("features", begin + 8, f"{n} features; the header says {self.n_features}.")
        if not 1 <= self.n_labels <= MAX_LABELS:
            raise ValueError(
                f"{self.path} says that it has {self.n_labels} labels (byte 20); from 1 to "
                f"{MAX_LABELS} can be read."
            )
        features = np.frombuffer(self.data, FEATURE, n, begin + CHUNK)
        n_sources = np.where(features["kind"] == STATE, self.n_attributes, self.n_labels)
        for wrong, what in (
            (features["kind"] > TRANSITION, "is neither of a state (0) nor of a transition (1)"),
            (features["source"] >= n_sources, "begins at a label or attribute that is not there"),
            (features["label"] >= self.n_labels, "leads to a label that is not there"),
            (~np.isfinite(features["weight"]), "has a weight that is not finite"),
        ):
            if wrong.any():
                k = int(np.argmax(wrong))
                at = begin + CHUNK + k * FEATURE.itemsize
                self.fail("features", at, f"feature {k} {what}: {features[k].item()}.")
        return features

    # --- Names

    def names(self, section: _Section, what: str, n: int) -> list[str]:
        """Labels or attributes by their numbers, from a database of strings."""
        begin, end, where = *section, f"{what}s"
        tables = begin + 24
        if end < tables + 8 * N_TABLES:
            self.fail(where, begin + 4, f"{end - begin} bytes are too few for {N_TABLES} tables.")
        order, _, back = self.numbers([begin + 12, begin + 16, begin + 20]).tolist()
        if order != 0x62445371:
            self.fail(where, begin + 12, "its bytes have another order, or it is not a database.")
        if n == 0:
            return []
        if not 24 + 8 * N_TABLES <= back <= end - begin - 4 * n:
            self.fail(where, begin + 20, f"its table of {n} {where} goes beyond it ({back}).")
        records = begin + self.numbers(begin + back + 4 * np.arange(n))
        sizes = self._check_records(records, begin, begin + back, where)
        self._check_tables(records, section, where)
        texts = [
            self._text(a, b, where, k)
            for k, (a, b) in enumerate(
                zip((records + 8).tolist(), (records + 7 + sizes).tolist(), strict=True)
            )
        ]
        last = dict(zip(texts, range(n)))
        if len(last) < n:
            k = next(k for k, text in enumerate(texts) if last[text] != k)
            self.fail(where, int(records[k]), f"{what} {texts[k]!r} occurs twice.")
        return texts

    def _check_records(self, records, begin: int, end: int, where: str) -> np.ndarray:
        # A record holds a number, the length of the string with its final zero, and the string.
        wrong = (records < begin + 24 + 8 * N_TABLES) | (records + 9 > end)
        if wrong.any():
            k = int(np.argmax(wrong))
            self.fail(where, int(records[k]), f"entry {k} lies outside.")
        sizes = self.numbers(records + 4)
        order = np.argsort(records, kind="stable")
        limits = np.empty_like(records)
        limits[order] = np.append(records[order][1:], end)
        wrong = (self.numbers(records) != np.arange(len(records))) | (sizes < 1)
        wrong |= records + 8 + sizes > limits
        if wrong.any():
            k = int(np.argmax(wrong))
            self.fail(where, int(records[k]), f"entry {k} has another number or does not fit.")
        return sizes

    def _check_tables(self, records: np.ndarray, section: _Section, where: str) -> None:
        # CRFsuite finds strings by hash tables of (hash, entry), half of them empty: they must
        # hold the entries, once each, in the table of the last byte of their hash.
        begin, end = section
        at = begin + 24 + 8 * np.arange(N_TABLES)
        first, count = self.numbers(at), self.numbers(at + 4)
        used = count > 0
        wrong = used & ((first < 24 + 8 * N_TABLES) | (begin + first + 8 * count > end))
        if wrong.any() or count.sum() != 2 * len(records):
            k = int(np.argmax(wrong))
            self.fail(where, int(at[k]), "its hash tables lie outside or have another size.")
        table = np.repeat(np.arange(N_TABLES), count)
        slots = begin + np.repeat(first, count) + 8 * ranges(0, count)
        hashes, entries = self.numbers(slots), self.numbers(slots + 4)
        full = entries != 0
        if not np.array_equal(np.sort(begin + entries[full]), np.sort(records)):
            self.fail(where, int(at[0]), "its hash tables do not hold every entry once.")
        if ((hashes % N_TABLES)[full] != table[full]).any():
            self.fail(where, int(at[0]), "a hash stands in the table of another.")

    def _text(self, a: int, b: int, where: str, k: int) -> str:
        text = self.data[a:b]
        if self.data[b] != 0 or b"\0" in text:
            self.fail(where, a, f"entry {k} does not end with its only zero.")
        try:
            return text.decode(self.encoding)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path}: entry {k} of the {where}, at byte {a}, is not {self.encoding} "
                f"({error.reason}); give encoding= that of the training data, e.g. 'latin-1'."
            ) from None

    # --- References

    def check_references(
        self, section: _Section, where: str, features: np.ndarray, kind: int, n: int, extra: int
    ) -> None:
        """Check that each feature of a kind is listed once, by its label or attribute.

        CRFsuite reads these lists, this module reads the features: both must agree.
        """
        begin, end = section
        if int(self.numbers([begin + 8])[0]) != n + extra or CHUNK + 4 * (n + extra) > end - begin:
            self.fail(where, begin + 8, f"it must have {n + extra} lists.")
        first = begin + CHUNK + 4 * (n + extra)
        lists = self.numbers(begin + CHUNK + 4 * np.arange(n + extra))
        wrong = (lists[:n] < first) | (lists[:n] + 4 > end)
        if wrong.any() or lists[n:].any():
            k = int(np.argmax(wrong)) if wrong.any() else n
            self.fail(where, begin + CHUNK + 4 * k, f"list {k} lies outside, at {lists[k]}.")
        counts = self.numbers(lists[:n])
        mine = np.flatnonzero(features["kind"] == kind)
        wrong = lists[:n] + 4 + 4 * counts > end
        if wrong.any() or counts.sum() != len(mine):
            k = int(np.argmax(wrong))
            at = int(lists[k]) if n else begin
            self.fail(where, at, f"its lists name {counts.sum()} features of {len(mine)}.")
        source = np.repeat(np.arange(n), counts)
        at = np.repeat(lists[:n] + 4, counts) + 4 * ranges(0, counts)
        listed = self.numbers(at)
        order = np.argsort(listed, kind="stable")
        if not np.array_equal(listed[order], mine) or not np.array_equal(
            features["source"][mine], source[order]
        ):
            self.fail(where, first, "the lists do not name every feature once, where it begins.")


def _tagger(features: np.ndarray, labels: list[str], attributes: list[str]) -> CRFTagger:
    L, M = len(labels), len(attributes)
    states, moves = (features[features["kind"] == kind] for kind in (STATE, TRANSITION))
    # Weights of one pair add up, as in CRFsuite.
    transition = np.zeros((L, L))
    np.add.at(transition, (moves["source"], moves["label"]), moves["weight"])
    pairs = states["source"].astype(np.int64), states["label"].astype(np.int64)
    coef = sparse.csr_matrix((states["weight"], pairs), shape=(M, L))
    if max(DENSE_SIZE, len(states) / DENSE_SHARE) >= M * L:
        coef = coef.toarray()
    vectorizer = DictFeatures()
    vectorizer.vocabulary_ = dict(zip(attributes, range(M)))
    vectorizer.n_features_out_ = M
    tagger = CRFTagger(boundaries=False)
    tagger.classes_ = np.array(labels)
    tagger.coef_, tagger.transition_ = coef, transition
    tagger.start_, tagger.end_ = np.zeros(L), np.zeros(L)
    tagger.n_features_in_, tagger.vectorizer_ = M, vectorizer
    tagger.feature_names_in_ = vectorizer.get_feature_names_out()
    return tagger
