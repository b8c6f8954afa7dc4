"""Models that are decoded online, and parts of pipelines: transformers, tagger, receptive field."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from sklseq.data.types import SequencesLike
from sklseq.estimators.unwrap import unwrap
from sklseq.features import SegmentFeatures
from sklseq.inference.chain.online_rules import OnlineRule


class StreamModel(NamedTuple):
    """The model and rule that streams of one decoder share; it never changes.

    Attributes
    ----------
    estimator : fitted tagger or pipeline
    before, after : int
        Tokens around a token on which its row depends.
    rule : OnlineRule
    """

    estimator: Any
    before: int
    after: int
    rule: OnlineRule


def _steps(estimator: Any, prefix: str = "") -> list[tuple[str, Any]]:
    # (name, estimator) of all steps, including those of pipelines inside pipelines.
    estimator = unwrap(estimator, fitted=False)
    if not isinstance(estimator, Pipeline):
        return [(prefix or type(estimator).__name__, estimator)]
    steps = []
    for name, step in estimator.steps:
        if step is not None and not (isinstance(step, str) and step == "passthrough"):
            steps += _steps(step, f"{prefix}__{name}" if prefix else name)
    return steps


def tagger_of(estimator: BaseEstimator) -> tuple[list[tuple[str, Any]], Any]:
    """Return (transformers with names, tagger) of a tagger or a pipeline that ends in one."""
    *transformers, (_, tagger) = _steps(estimator)
    if not (callable(getattr(tagger, "potentials", None)) or decodes_segments(tagger)):
        raise TypeError(
            f"OnlineDecoder needs an estimator with potentials(X), such as CRFTagger, or a "
            f"pipeline that ends in one; {type(tagger).__name__} has none."
        )
    return transformers, tagger


def last_part(estimator: Any) -> Any:
    """Return the last step of all pipelines, which a decoder asks for scores."""
    return _steps(estimator)[-1][1]


def decodes_segments(tagger: Any) -> bool:
    """Whether the estimator is a segmenter, which has its own online rule."""
    return callable(getattr(tagger, "decode_closure", None))


def look_ahead(estimator: BaseEstimator, *, fitted: bool = True) -> tuple[int, int]:
    """Numbers of tokens before and after a token on which its row depends, over all transformers.

    If not ``fitted``, it only checks that all transformers define ``receptive_field``.
    """
    return _sum_of_fields(tagger_of(estimator)[0], fitted)


def _sum_of_fields(steps: list[tuple[str, Any]], fitted: bool) -> tuple[int, int]:
    fields = [_field_of(name, step, fitted) for name, step in steps]
    return sum(before for before, _ in fields), sum(after for _, after in fields)


def trial_look_ahead(estimator: BaseEstimator, X: SequencesLike) -> int:
    """Number of tokens that features look ahead, before training.

    Clones are fitted on one sequence, as the number can depend on the names of columns. 0 if a
    transformer fails; training then raises its error.
    """
    if isinstance(estimator, FrozenEstimator):
        return look_ahead(estimator)[1]
    after = 0
    try:
        rows = X[:1]
        for name, transformer in tagger_of(estimator)[0]:
            transformer = clone(transformer).fit(rows)
            after += _field_of(name, transformer, fitted=True)[1]
            rows = transformer.transform(rows)
    except Exception:
        pass
    return after


def _field_of(name: str, transformer: Any, fitted: bool) -> tuple[int, int]:
    transformer = unwrap(transformer, fitted=False)
    if isinstance(transformer, FeatureUnion):
        parts = [
            _sum_of_fields(_steps(step, f"{name}__{part}"), fitted)
            for part, step in transformer.transformer_list
            if not (isinstance(step, str) and step in ("drop", "passthrough"))
        ]
        return max((b for b, _ in parts), default=0), max((a for _, a in parts), default=0)
    known = hasattr(type(transformer), "receptive_field")
    if not known and "receptive_field" not in vars(transformer):
        raise ValueError(
            f"Step {name!r} ({type(transformer).__name__}) does not say on which tokens a row "
            "depends, so it may need the whole sequence. Use extractors of sklseq.features, or "
            "give it an attribute receptive_field = (tokens before, tokens after)."
        )
    if not fitted:
        return 0, 0
    field = transformer.receptive_field
    if field is None or not np.isfinite(field).all():
        advice = (
            "Give its functions of (sequence, start, stop) an attribute receptive_field = (tokens "
            "before, tokens after)."
        )
        raise ValueError(
            f"Step {name!r} ({type(transformer).__name__}) needs the whole sequence "
            f"(receptive_field is {field}), so labels cannot be emitted before its end. "
            f"{advice if isinstance(transformer, SegmentFeatures) else 'Remove it.'}"
        )
    return int(field[0]), int(field[1])
