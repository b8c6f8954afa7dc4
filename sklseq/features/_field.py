"""How far a row's features reach."""

from __future__ import annotations

from sklearn.base import BaseEstimator

__all__ = ["receptive_field"]


def receptive_field(estimator: BaseEstimator) -> tuple[int, int]:
    """How many tokens before and after a token its row of features depends on.

    Steps of a pipeline add up; a union reaches as far as its farthest part; a tagger at the end
    of a pipeline counts as nothing. With ``(b, a)``, tokens ``t - b`` to ``t + a`` are enough to
    compute row ``t`` of a sequence, which is what a stream has to keep and to wait for.

    Parameters
    ----------
    estimator : extractor, Pipeline or FeatureUnion

    Returns
    -------
    tuple (before, after)

    Raises
    ------
    ValueError
        If a transformer does not say how far it reaches.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq.features import TokenFeatures, WindowFeatures, receptive_field
    >>> receptive_field(make_pipeline(WindowFeatures(TokenFeatures(), before=2, after=1)))
    (2, 1)
    """
    from sklearn.pipeline import FeatureUnion, Pipeline

    if isinstance(estimator, Pipeline):
        fields = [receptive_field(step) for _, step in estimator.steps]
        return sum(b for b, _ in fields), sum(a for _, a in fields)
    if isinstance(estimator, FeatureUnion):
        fields = [receptive_field(part) for _, part in estimator.transformer_list]
        return max(b for b, _ in fields), max(a for _, a in fields)
    if estimator is None or estimator in ("passthrough", "drop"):
        return 0, 0
    if hasattr(estimator, "receptive_field"):
        before, after = estimator.receptive_field
        return int(before), int(after)
    if hasattr(estimator, "predict") and not hasattr(estimator, "transform"):
        return 0, 0
    raise ValueError(
        f"{type(estimator).__name__} does not say how many neighbours its rows depend on; wrap it "
        "in PerToken if it works row by row, or give it an attribute receptive_field."
    )
