"""Scores of the steps of a stream of segments, from the tokens that they depend on."""

from typing import Any, Self

import numpy as np
from scipy import sparse

from sklseq._lib.estimator import as_fitted
from sklseq.estimators.online.items import numbered_from, one_sequence
from sklseq.estimators.weights import are_scores
from sklseq.features import SegmentFeatures, TokenFeatures, receptive_field
from sklseq.features._family import extract
from sklseq.features._segment import step_templates
from sklseq.features._token_transform import attributes_of
from sklseq.objectives.segment._step_scores import EVERYWHERE, scores_of_templates

MOST = 4096  # steps; in more of them, many tokens are equal, and their scores are computed once


class StepScorer:
    """Scores of few steps of a stream, of ``SegmentFeatures`` of single tokens and lengths.

    They are those of whole sequences, to the bit. Only the tokens that the new steps depend on are
    read, and no potential is stored.
    """

    def __init__(self, features: SegmentFeatures, segmenter: Any):
        self._features, self._coef = features, segmenter.coef_
        self._extractor = extractor = as_fitted(features.extractor_)
        self._templates: np.ndarray | None = None
        tokens = [0, *(t.token for t, _ in step_templates(features, 0) if t.token is not None)]
        self._before = receptive_field(extractor)[0] - min(tokens)
        plain = type(extractor) is TokenFeatures and len(extractor.columns_) == 1
        self._reads_strings = plain and extractor.n_features_in_ == 1

    @classmethod
    def of(cls, transformers: list, segmenter: Any) -> Self | None:
        """Return the scorer of a pipeline; None if its features or its weights are others."""
        if len(transformers) != 1 or type(transformers[0][1]) is not SegmentFeatures:
            return None
        features, coef = as_fitted(transformers[0][1]), segmenter.coef_
        if features.extractor_ is None or step_templates(features, 0) is None:
            return None
        plain = type(coef) is np.ndarray and coef.dtype == np.float64 and coef.flags.c_contiguous
        if not plain or len(coef) != len(features.kept_) or segmenter.transition_coef_ is not None:
            return None
        chain = segmenter.transition_, segmenter.start_, segmenter.end_
        return cls(features, segmenter) if all(map(are_scores, chain)) else None

    def part(self, window: list, base: int, a: int, b: int) -> tuple | None:
        """Steps a to b - 1, as arguments of ``SegmentBeam.push``.

        ``window`` holds all tokens from number ``base`` to the newest. None if there are many
        steps, or scores that are not finite.
        """
        if b - a > MOST:
            return None
        first = max(base, a - self._before)
        ends, columns, values, n_columns = self._rows(window[first - base :], first)
        if self._templates is None:
            self._templates = self._table(n_columns)
        scored = scores_of_templates(
            self._templates, self._features.kept_, self._coef, ends, columns, values,
            first, a, b, base + len(window),
        )  # fmt: skip
        return None if scored is None else (*scored, None)

    def _rows(self, tokens: list, first: int) -> tuple:
        # Ends of rows, columns, values (None: all are 1) and number of columns.
        extractor = self._extractor
        if self._reads_strings and all(type(token) is str for token in tokens):
            return *attributes_of(extractor, tokens), None, extractor.n_features_out_
        with numbered_from(lambda s, t: f"{first + t} of the stream"):
            rows = extract(extractor, one_sequence(tokens)).rows
        rows = sparse.csr_matrix(rows)
        values = rows.data.astype(self._features.dtype).astype(np.float64)
        ends, columns = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
        return ends, columns, values, rows.shape[1]

    def _table(self, n_columns: int) -> np.ndarray:
        # Templates by length, with columns of all parts.
        found = [
            (t.length, t.kind, EVERYWHERE if t.token is None else t.token, first, first + t.mark)
            for t, first in step_templates(self._features, n_columns)
        ]
        return np.array(sorted(found, key=lambda row: row[0]), dtype=np.int64)
