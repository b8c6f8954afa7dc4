"""Numbers of neighbours on which the features of a token depend."""

import math

from sklearn.base import BaseEstimator


def receptive_field(estimator: BaseEstimator) -> tuple[float, float]:
    """Return how many tokens before and after a token its row of features depends on.

    The fields of the steps of a pipeline are added; the field of a union is the largest of its
    parts; a tagger at the end of a pipeline adds nothing. With ``(b, a)``, tokens ``t - b`` to
    ``t + a`` determine row ``t`` of a sequence, so a stream keeps ``b`` past tokens and
    labels a token ``a`` tokens late. An infinite number means the rest of the sequence.

    Parameters
    ----------
    estimator : extractor, Pipeline or FeatureUnion

    Returns
    -------
    tuple (before, after)

    Raises
    ------
    ValueError
        If a transformer has no attribute ``receptive_field``.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq.features import TokenFeatures, WindowFeatures, receptive_field
    >>> receptive_field(make_pipeline(WindowFeatures(TokenFeatures(), before=2, after=1)))
    (2, 1)
    """
    from sklearn.pipeline import FeatureUnion, Pipeline  # start-up

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
        return _whole(before), _whole(after)
    if hasattr(estimator, "predict") and not hasattr(estimator, "transform"):
        return 0, 0
    raise ValueError(
        f"{type(estimator).__name__} has no attribute receptive_field, the numbers of neighbours "
        "on which its rows depend; add it, or wrap the transformer in PerToken if it works row by "
        "row."
    )


def _whole(number: float) -> float:
    return number if number == math.inf else int(number)
