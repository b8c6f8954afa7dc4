"""Estimators inside others: in pipelines, searches and frozen estimators."""

from __future__ import annotations

from typing import Any

from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from sklseq.data.types import SequencesLike


def unwrap(model: BaseEstimator, *, fitted: bool = True) -> Any:
    """Return the estimator inside FrozenEstimator or a search, or the model itself.

    Of a search it is the best estimator. If it has none, an error is raised; if not ``fitted``, its
    ``estimator`` is returned.
    """
    if fitted and not hasattr(model, "get_params") and not hasattr(model, "predict"):
        raise TypeError(
            f"model must be a fitted estimator, Pipeline or search; got {type(model).__name__}."
        )
    while True:
        if isinstance(model, FrozenEstimator):
            model = model.estimator
        elif not (hasattr(model, "refit") and hasattr(model, "estimator")):
            return model
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif fitted:
            raise NotFittedError(
                f"{type(model).__name__} has no best estimator; fit it, with refit=True."
            )
        else:
            model = model.estimator


def fit_weighted(model: Any, X: Any, y: Any, weights: Any) -> Any:
    """Fit a pipeline, search or estimator, whose last step gets the weights; None: no weights."""
    inner, given = getattr(model, "estimator", model), {}  # the estimator inside a search
    if weights is not None:
        prefix = f"{inner.steps[-1][0]}__" if isinstance(inner, Pipeline) else ""
        given[f"{prefix}sample_weight"] = weights
    with config_context(enable_metadata_routing=False):  # the weights are for the last step
        return model.fit(X, y, **given)


def last_step(model: BaseEstimator, X: SequencesLike | None = None) -> tuple[BaseEstimator, Any]:
    """Return the tagger or segmenter at the end of a model, and its input for X.

    Parameters
    ----------
    model : Pipeline, search or estimator
        Fitted.
    X : list of sequences, optional
        As ``model.predict`` takes it.

    Returns
    -------
    estimator : estimator
        The last step; that of the best estimator if the model is a search.
    X : list of sequences or None
        Transformed by all steps but the last.

    Raises
    ------
    NotFittedError
        If a search has no best estimator.
    TypeError
        If `model` is not an estimator.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TokenFeatures
    >>> from sklseq.inspection import last_step
    >>> X, y = [["Ann", "sings"]], [["NAME", "O"]]
    >>> model = make_pipeline(TokenFeatures(), CRFTagger(random_state=0)).fit(X, y)
    >>> tagger, rows = last_step(model, X)
    >>> tagger.sample(rows, 3)[0].shape
    (3, 2)
    """
    while True:
        inner = unwrap(model)
        if isinstance(inner, Pipeline):
            if X is not None and len(inner.steps) > 1:
                X = inner[:-1].transform(X)
            inner = inner[-1]
        if inner is model:
            return model, X
        model = inner
