"""Form of predicted labels: arrays, or lists of Python's own types."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from sklseq.data.labels import LabelLists

__all__ = ["LabelOutputMixin", "as_chosen", "gives_lists"]


class LabelOutputMixin:
    """``set_output`` of estimators that predict labels or segments."""

    def set_output(self, *, predict: str | None = None) -> Self:
        """Choose the form of predicted labels.

        Clones keep the choice, so that it holds in searches and cross-validation.

        Parameters
        ----------
        predict : {"array", "list"} or None, default=None
            "array", the default of estimators: an object array with an array of labels, or a list
            of segments, for each sequence. "list": a list with a list for each sequence, of str,
            int or bool, which other packages and ``json`` take. None changes nothing.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the form is unknown.

        Examples
        --------
        >>> from sklseq import CRFTagger
        >>> tagger = CRFTagger().set_output(predict="list")
        >>> tagger.fit([[["Ann"], ["sings"]]], [["NAME", "O"]]).predict([[["Ann"], ["sings"]]])
        [['NAME', 'O']]
        """
        if predict not in (None, "array", "list"):
            raise ValueError(f"predict must be 'array', 'list' or None; got {predict!r}.")
        if predict is not None:
            # The attribute that scikit-learn's clone copies.
            config = getattr(self, "_sklearn_output_config", {})
            self._sklearn_output_config = {**config, "predict": predict}
        return self


def gives_lists(estimator: Any) -> bool:
    """Whether `set_output` chose lists for an estimator."""
    return getattr(estimator, "_sklearn_output_config", {}).get("predict") == "list"


def as_chosen(estimator: Any, answers: np.ndarray) -> Any:
    """Arrays of labels, or lists of segments, in the form that `set_output` chose."""
    if not gives_lists(estimator):
        return answers
    return LabelLists(x.tolist() if isinstance(x, np.ndarray) else x for x in answers)
