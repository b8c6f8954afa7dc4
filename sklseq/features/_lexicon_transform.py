"""Transform of fitted ``LexiconFeatures``, with NumPy alone."""

import itertools
from itertools import chain
from typing import Any

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.features import _rows
from sklseq.features._columns import read_columns
from sklseq.features._grams import slot_shift
from sklseq.features._packed_rows import PackedRows
from sklseq.features._token_transform import distinct_tokens

B, I = 1, 2  # noqa: E741


class LexiconTransform:
    """Part of ``LexiconFeatures`` that transforms, with the same parameters and attributes."""

    case_sensitive: bool
    columns_: list[str]
    token_codes_: dict[str, int]
    tries_: list[dict[str, np.ndarray]]
    n_features_in_: int
    n_features_out_: int

    def packed_rows(self, X: Any) -> PackedRows:
        """Rows of features of X."""
        return self._tags(read_columns(X).like(self))

    def _tags(self, columns: Any) -> PackedRows:
        tokens, codes, offsets = distinct_tokens(columns, self.columns_)
        folded = chain.from_iterable(tokens)
        if not self.case_sensitive:
            folded = map(str.casefold, folded)
        known = np.array([self.token_codes_.get(token, 0) for token in folded], dtype=np.int32)
        tags = np.empty((len(self.columns_) * len(self.tries_), codes.shape[1]), dtype=np.uint8)
        pairs = itertools.product(codes, self.tries_)
        for (of_column, trie), row in zip(pairs, tags):
            slots = trie["slots"]
            _rows.match_entries(
                known[of_column], offsets, slots, slot_shift(slots), trie["is_entry"], row
            )
        marked = np.stack([tags & B, tags & I], axis=1)
        marked = marked.reshape(2 * len(tags), codes.shape[1]).T > 0
        indptr = offsets_of(marked.sum(axis=1))
        indices = np.nonzero(marked)[1].astype(np.int32)
        return PackedRows(indptr, indices, None, self.n_features_out_, offsets)
