"""Inspection of fitted pipelines: weights and explanations with feature names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from sklseq.data.segment_labels import Span
from sklseq.data.types import MatrixLike, TokensLike

__all__ = ["Span", "explain", "feature_names", "top_features"]


def feature_names(
    model: BaseEstimator, input_features: Iterable[str] | None = None
) -> np.ndarray | None:
    """Names of the input features of the last step of a fitted pipeline.

    Parameters
    ----------
    model : Pipeline or estimator
        Fitted.
    input_features : array-like of str, default=None
        Names of the columns of ``X`` if it holds numbers.

    Returns
    -------
    ndarray of str objects, or None
        None if there are no names: a single estimator, fitted on rows of numbers.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TemplateFeatures
    >>> from sklseq.inspection import feature_names
    >>> model = make_pipeline(TemplateFeatures(["w[0]"], bos_eos=False), CRFTagger())
    >>> feature_names(model.fit([["a", "b"]], [["x", "y"]])).tolist()
    ['w[0]=a', 'w[0]=b']
    """
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        return model[:-1].get_feature_names_out(input_features)
    last = model[-1] if isinstance(model, Pipeline) else model
    names: Any = input_features
    return getattr(last, "feature_names_in_", names)


def top_features(
    model: BaseEstimator,
    n: int = 10,
    *,
    label: Hashable | None = None,
    input_features: Iterable[str] | None = None,
) -> list[tuple]:
    """The state weights of largest magnitude of a tagger at the end of a pipeline.

    Parameters
    ----------
    model : Pipeline or tagger
        Fitted.
    n : int, default=10
    label : label, optional
        Only weights of this label.
    input_features : array-like of str, default=None
        Names of the columns of ``X`` where it holds numbers.

    Returns
    -------
    list of (weight, label, feature name)

    Raises
    ------
    ValueError
        If the last step has no such weights.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger
    >>> from sklseq.features import TemplateFeatures
    >>> from sklseq.inspection import top_features
    >>> model = make_pipeline(TemplateFeatures(["w[0]"], bos_eos=False), CRFTagger(l2=0.1))
    >>> sorted({name for _, _, name in top_features(model.fit([["a", "b"]], [["x", "y"]]), 4)})
    ['w[0]=a', 'w[0]=b']
    """
    names, tagger = feature_names(model, input_features), _last(model)
    if not hasattr(tagger, "top_features"):
        raise ValueError(
            f"{type(tagger).__name__} has no weights of named features; top_features needs "
            "CRFTagger, ZScoreTagger or a pipeline that ends with one."
        )
    return tagger.top_features(n, label=label, feature_names=names)


def explain(
    model: BaseEstimator, x: MatrixLike | TokensLike, *, input_features: Iterable[str] | None = None
) -> list:
    """Explain the label of each row of one raw sequence.

    Parameters
    ----------
    model : Pipeline or tagger
        Fitted.
    x : one sequence
        An item of the list that ``model.predict`` takes.
    input_features : array-like of str, default=None
        Names of the columns of ``X`` if it holds numbers.

    Returns
    -------
    list of TokenExplanation
    """
    names = feature_names(model, input_features)
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        x = model[:-1].transform([x])[0]
    return _last(model).explain(x, feature_names=names)


def _last(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model
