"""Extractor of matches with the entries of word lists."""

import gzip
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sklseq._lib.checks import check_number
from sklseq._lib.lines import as_lines
from sklseq.data.sequences import Sequences
from sklseq.data.types import ColumnsLike, DTypeLike, LexiconsLike
from sklseq.features._columns import read_columns, select_columns
from sklseq.features._family import Extractor, check_some, to_sequences
from sklseq.features._grams import hash_table
from sklseq.features._lexicon_transform import LexiconTransform


class LexiconFeatures(LexiconTransform, Extractor, auto_wrap_output_keys=None):
    """Features of tokens that begin or continue an entry of a word list (gazetteer).

    With ``lexicons={"city": ["New York", "York", "Paris"]}`` the tokens of "in New York" get
    no feature, ``w.lexicon.city=B`` and ``w.lexicon.city=I``. At each token the longest entry
    that begins there matches, unless it lies inside one that began earlier. Sequences have the
    forms that :class:`TokenFeatures` reads.

    Parameters
    ----------
    lexicons : dict of str to list or path, or list of paths, default=None
        Entries of each lexicon by name. An entry is a str, split at white space, or a list of
        tokens. A path (str or path-like) names a UTF-8 text file, plain or gzipped, with one entry
        for each line; in a list of paths the names are those of the files without suffix. Files
        are read in ``fit`` only.
    columns : str, int or list of them, default=None
        Columns to read: names of mappings and dicts, positions of tuples. None: the only one.
    case_sensitive : bool, default=False
        Whether upper and lower case differ. If False, tokens are compared after ``str.casefold``.
    min_tokens : int, default=1
        Skip entries of fewer tokens.
    dtype : {float64, float32}, default=float64
        Type of the output's values, which are all 1.

    Attributes
    ----------
    columns_ : list of str
        Columns read.
    lexicons_ : list of str
        Names of the lexicons.
    token_codes_ : dict of str to int
        The tokens of all entries.
    tries_ : list of dict of arrays
        For each lexicon the trie of its entries: a hash table from (node, token) to node, and
        whether an entry ends at each node.
    max_length_ : int
        Number of tokens of the longest entry.
    n_features_in_ : int
        Columns of the training data.
    feature_names_in_ : ndarray of str
        Their names, if sequences were mappings or of dicts.
    n_features_out_ : int
        Columns of the output: two for each column read and each lexicon.

    Notes
    -----
    Matches may overlap but not nest, so a row depends on ``max_length_ - 1`` tokens on either
    side only; with disjoint matches from left to right it would depend on all earlier tokens. Cost
    O(rows) hash look-ups if nothing matches, independent of the number of entries.

    Examples
    --------
    >>> from sklseq.features import LexiconFeatures
    >>> features = LexiconFeatures({"city": ["New York", "York", "Paris"]})
    >>> features.fit_transform([["In", "NEW", "York"]]).rows.toarray()
    array([[0., 0.],
           [1., 0.],
           [0., 1.]])
    >>> features.get_feature_names_out().tolist()
    ['w.lexicon.city=B', 'w.lexicon.city=I']
    """

    def __init__(
        self,
        lexicons: LexiconsLike = None,
        *,
        columns: ColumnsLike | None = None,
        case_sensitive: bool = False,
        min_tokens: int = 1,
        dtype: DTypeLike = np.float64,
    ):
        self.lexicons = lexicons
        self.columns = columns
        self.case_sensitive = case_sensitive
        self.min_tokens = min_tokens
        self.dtype = dtype

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("min_tokens", self.min_tokens, 1, whole=True)

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        columns = read_columns(X)
        check_some(columns.sequences)
        names = select_columns(self, columns)
        lexicons = {
            name: self._entries(name, e) for name, e in named_lexicons(self.lexicons).items()
        }
        token_codes: dict[str, int] = {}
        tries = [_trie(*entries, token_codes) for entries in lexicons.values()]
        self.columns_, self.lexicons_ = names, list(lexicons)
        self.token_codes_, self.tries_ = token_codes, tries
        self.max_length_ = max(int(size.max()) for _, size in lexicons.values())
        columns.remember(self)
        self.n_features_out_ = 2 * len(names) * len(lexicons)
        return to_sequences(self._tags(columns), self.dtype)

    def _names(self, input_features: Any) -> Any:
        columns_and_lexicons = itertools.product(self.columns_, self.lexicons_)
        return [f"{c}.lexicon.{name}={tag}" for c, name in columns_and_lexicons for tag in "BI"]

    @property
    def receptive_field(self) -> tuple[int, int]:
        """Number of tokens before and after a token on which its features depend."""
        self._check_fitted()
        return self.max_length_ - 1, self.max_length_ - 1

    def _entries(self, name: str, entries: Any) -> tuple[list[str], np.ndarray]:
        """Return the tokens of all entries, folded, and the number of tokens of each."""
        tokens, size = [], []
        fold = str if self.case_sensitive else str.casefold
        for entry in lexicon_lines(name, entries):
            own = fold(entry).split() if isinstance(entry, str) else list(map(fold, entry))
            if len(own) >= self.min_tokens:
                tokens += own
                size.append(len(own))
        if not tokens:
            raise ValueError(
                f"The lexicon {name!r} has no entry of at least {self.min_tokens} tokens."
            )
        return tokens, np.array(size)


def named_lexicons(lexicons: Any) -> dict[str, Any]:
    """Return the entries or path of each lexicon by name."""
    if isinstance(lexicons, Mapping):
        named = {str(name): entries for name, entries in lexicons.items()}
    elif isinstance(lexicons, (list, tuple)) and all(
        isinstance(path, (str, os.PathLike)) for path in lexicons
    ):
        named = {Path(path).name.split(".")[0]: path for path in lexicons}
        if len(named) < len(lexicons):
            raise ValueError("Files of lexicons must have different names; use a dict.")
    else:
        named = {}
    if not named:
        raise ValueError(
            "lexicons must be a dict from name to entries or path, or a list of paths, and not "
            f"empty; got {lexicons!r:.60}."
        )
    return named


def lexicon_lines(name: str, entries: Any) -> list:
    """Return the entries of a lexicon, or the lines of its file, checked."""
    if isinstance(entries, (str, os.PathLike)):
        path = Path(entries)
        if not path.is_file():
            raise ValueError(
                f"The lexicon {name!r} is the file {str(path)!r}, which does not exist; give the "
                "path of a file, or a list of entries in a dict such as {'city': ['New York']}."
            )
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        return as_lines(raw.decode("utf-8-sig"))
    if not isinstance(entries, Iterable) or isinstance(entries, (bytes, Mapping)):
        raise ValueError(
            f"The lexicon {name!r} must be a list of entries or a path; "
            f"got {type(entries).__name__}."
        )
    # The order of sets of strings differs between processes.
    lines = sorted(entries) if isinstance(entries, (set, frozenset)) else list(entries)
    for kind in set(map(type, lines)) - {str}:  # a list of strings needs no check
        for entry in lines:
            if type(entry) is kind and not (
                isinstance(entry, (str, list, tuple)) and all(isinstance(t, str) for t in entry)
            ):
                raise ValueError(
                    f"Entries of a lexicon must be strings or lists of strings; {name!r} holds "
                    f"{entry!r}."
                )
    return lines


def _trie(
    tokens: list[str], size: np.ndarray, token_codes: dict[str, int]
) -> dict[str, np.ndarray]:
    """Return the children of nodes as a hash table of (node, code); node 0 is the root."""
    new = itertools.filterfalse(token_codes.__contains__, dict.fromkeys(tokens))
    token_codes.update(zip(list(new), itertools.count(len(token_codes) + 1)))
    codes = np.fromiter(map(token_codes.__getitem__, tokens), np.uint64, len(tokens))
    first, node = np.cumsum(size) - size, np.zeros(len(size), dtype=np.uint64)
    pairs, n_nodes, alive = [], 1, np.arange(len(size))
    for depth in range(size.max()):
        alive = alive[size[alive] > depth]
        steps = (node[alive] + np.uint64(1)) << np.uint64(32) | codes[first[alive] + depth]
        steps, child = np.unique(steps, return_inverse=True)
        new = np.arange(n_nodes, n_nodes + len(steps), dtype=np.uint64)
        pairs.append(np.stack([steps, new], axis=1))
        node[alive], n_nodes = new[child], n_nodes + len(steps)
    slots = hash_table(np.concatenate(pairs))
    is_entry = np.zeros(n_nodes, dtype=np.uint8)
    is_entry[node.astype(np.int64)] = 1
    return {"slots": slots, "is_entry": is_entry}
