"""Terms of the score of a labeling, row by row and by name."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.available import missing_if
from sklseq.data.input_kinds import check_one_sequence
from sklseq.data.labels import encode_labels
from sklseq.data.sequences import Sequences
from sklseq.data.types import MatrixLike
from sklseq.estimators.weights import WeightsMixin, dense_weights, no_weights


class TokenExplanation(NamedTuple):
    """Score terms of the predicted label of one row; see :meth:`sklseq.CRFTagger.explain`.

    Attributes
    ----------
    label : label
        The predicted label.
    probability : float or None
        Its marginal probability, if the model has probabilities.
    contributions : list of (name, score)
        Terms of the best path's score that belong to this row, largest magnitude first. They add
        up, over all rows, to the score of the path.
    """

    label: Any
    probability: float | None
    contributions: list


class ExplainMixin(WeightsMixin):
    """``explain``, for models with state and transition weights."""

    @missing_if(no_weights)
    def explain(
        self: Any, x: MatrixLike, *, feature_names: Iterable[str] | None = None
    ) -> list[TokenExplanation]:
        """Explain the predicted labels of one sequence by the terms of their scores.

        Parameters
        ----------
        x : one sequence, in any form that :meth:`predict` takes in a list
        feature_names : array-like of str, optional

        Returns
        -------
        list of TokenExplanation
            For each row: label, its probability, and the terms of the path's score.
        """
        check_one_sequence(x)
        names, X = self._names(feature_names), self._read([x])
        codes = encode_labels(np.asarray(self.predict(X)[0]), self.classes_)
        proba = self.predict_proba(X)[0] if hasattr(self, "predict_proba") else None
        rows, labels = [], self.classes_.tolist()
        for t, j in enumerate(codes):
            terms = self._emission_terms(X, t, j, names) + self._chain_terms(codes, t)
            terms += self._transition_terms(X, t, codes, names)
            terms.sort(key=lambda term: -abs(term[1]))
            probability = None if proba is None else float(proba[t, j])
            rows.append(TokenExplanation(labels[j], probability, terms))
        return rows

    def _emission_terms(self: Any, X, t: int, j: int, names: np.ndarray) -> list[tuple[str, float]]:
        columns, values = _entries_of_row(X, t)
        scores = values * dense_weights(self.coef_[columns])[:, j]
        return [(str(names[c]), float(s)) for c, s in zip(columns, scores) if s != 0]

    def _transition_terms(self: Any, X, t: int, codes, names) -> list[tuple[str, float]]:
        if t == 0 or self.transition_coef_ is None:
            return []
        i, j = codes[t - 1 : t + 1]
        columns, values = _entries_of_row(X, t)
        weights = self.transition_coef_[columns][:, [i * len(self.classes_) + j]].toarray()[:, 0]
        pair = f"{self.classes_[i]} → {self.classes_[j]}"
        terms = zip(columns, values * weights)
        return [(f"{names[c]}, {pair}", float(s)) for c, s in terms if s != 0]

    def _chain_terms(self: Any, codes: np.ndarray, t: int) -> list[tuple[str, float]]:
        j, terms = codes[t], []
        if t == 0:
            terms.append((f"start → {self.classes_[j]}", float(self.start_[j])))
        else:
            i = codes[t - 1]
            name = f"{self.classes_[i]} → {self.classes_[j]}"
            terms.append((name, float(self.transition_[i, j])))
        if t == len(codes) - 1:
            terms.append((f"{self.classes_[j]} → end", float(self.end_[j])))
        return [term for term in terms if term[1] != 0]


def _entries_of_row(X: Sequences, t: int) -> tuple[np.ndarray, np.ndarray]:
    # Columns and values that are not zero; repeated entries of a sparse row add up.
    if X.is_sparse:
        entries = slice(X.rows.indptr[t], X.rows.indptr[t + 1])
        columns, at = np.unique(X.rows.indices[entries], return_inverse=True)
        return columns, np.bincount(at, X.rows.data[entries], len(columns))
    columns = np.flatnonzero(X.rows[t])
    return columns, X.rows[t][columns]
