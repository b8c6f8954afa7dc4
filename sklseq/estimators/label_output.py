"""Form of predicted labels: lists of Python's own types, or arrays."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.data._label_lists import label_list, label_lists
from sklseq.data.labels import LabelLists, cut_rows
from sklseq.objectives.scores.scored_rows import ScoredRows


class LabelOutputMixin:
    """``set_output`` of estimators that predict labels or segments."""

    def set_output(self, *, predict: str | None = None, transform: None = None) -> Self:
        """Choose the form of predicted labels.

        Clones keep the choice, so that it holds in searches and cross-validation.

        Parameters
        ----------
        predict : {"list", "array"} or None, default=None
            "list", the default of estimators: a list with a list for each sequence, of str, int or
            bool. "array": an object array with an array of labels, or a list of segments, for each
            sequence. None changes nothing.
        transform : None
            The parameter of scikit-learn's transformers; these estimators do not transform.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the form is unknown, or `transform` is given.

        Examples
        --------
        >>> from sklseq import CRFTagger
        >>> X, y = [[["Ann"], ["sings"]]], [["NAME", "O"]]
        >>> tagger = CRFTagger().fit(X, y)
        >>> tagger.predict(X)
        [['NAME', 'O']]
        >>> tagger.set_output(predict="array").predict(X)[0]
        array(['NAME', 'O'], dtype='<U4')
        """
        if predict not in (None, "list", "array"):
            raise ValueError(f"predict must be 'list', 'array' or None; got {predict!r}.")
        if transform is not None:
            raise ValueError(
                f"transform must be None; got {transform!r}: {type(self).__name__} predicts and "
                "does not transform. Choose the form of labels by predict."
            )
        if predict is not None:
            # The attribute that scikit-learn's clone copies.
            config = getattr(self, "_sklearn_output_config", {})
            self._sklearn_output_config = {**config, "predict": predict}
        return self


def gives_lists(estimator: Any) -> bool:
    """Whether an estimator returns labels as lists (default), not arrays chosen by `set_output`."""
    return getattr(estimator, "_sklearn_output_config", {}).get("predict", "list") == "list"


def chosen_labels(estimator: Any, codes: np.ndarray) -> Any:
    """Return labels of an array of codes as nested lists or an array, as `set_output` chose.

    Lists share one object for each class, which takes less memory than a string for each row.
    """
    if gives_lists(estimator):
        return estimator.classes_.astype(object).take(codes).tolist()
    return estimator.classes_.take(codes)


def cut_labels(
    estimator: Any,
    codes: np.ndarray,
    offsets: np.ndarray,
    threads: Threads | None = None,
    labels: np.ndarray | None = None,
) -> Any:
    """Return labels of each sequence, from the codes of all rows.

    ``threads``: those that work together on a single long sequence. ``labels``: of the codes; by
    default the classes of the estimator.
    """
    labels = estimator.classes_ if labels is None else labels
    if gives_lists(estimator):
        codes, offsets = codes.astype(np.intc, copy=False), offsets.astype(np.int64, copy=False)
        if threads is not None:
            return LabelLists([label_list(labels.tolist(), codes, threads)])
        return LabelLists(label_lists(labels.tolist(), codes, offsets))
    return np.asarray(LabelLists(cut_rows(labels.take(codes), offsets)))


def best_labels(estimator: Any, rows: ScoredRows, decode: str = "path") -> Any:
    """Return labels of each sequence, in the form that `set_output` chose.

    ``decode``: of the best paths, or by marginals, as :meth:`ScoredRows.labels` takes it.
    """
    found = LabelLists([None] * len(rows.X))

    def keep(a, b, codes, offsets, threads):
        found[a:b] = cut_labels(estimator, codes, offsets, threads)  # while other threads decode

    rows.labels(decode, keep)
    return found if gives_lists(estimator) else np.asarray(found)


def as_chosen(estimator: Any, answers: Iterable[Any]) -> Any:
    """Return labels or segments of each sequence, in the form that `set_output` chose."""
    if not gives_lists(estimator):
        return np.asarray(LabelLists(answers))
    shared: dict = {}
    return LabelLists(x if isinstance(x, list) else _as_list(x, shared) for x in answers)


def _as_list(labels: np.ndarray, shared: dict) -> list:
    found = labels.tolist()
    return list(map(shared.setdefault, found, found))
