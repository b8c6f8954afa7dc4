"""Deployment of models: exported files, model cards, and loading of saved models."""

import inspect
import os
from typing import Any

import numpy as np
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

import sklseq
from sklseq import features
from sklseq._lib.checks import check_choice
from sklseq._lib.estimator import as_fitted
from sklseq._lib.model_file import (
    FIRST_VERSION,
    MARGINAL_VERSION,
    PAIRS_VERSION,
    new_file_name,
    write_model,
)
from sklseq._lib.version import __version__
from sklseq.data.types import PathLike
from sklseq.estimators.base import BaseTagger
from sklseq.estimators.crf.crf_tagger import DECODINGS
from sklseq.estimators.weights import check_weights, dense_weights
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
    receptive_field,
)
from sklseq.features._dict_transform import DictTransform
from sklseq.features._lexicon_transform import LexiconTransform
from sklseq.features._template_transform import TemplateTransform
from sklseq.features._token_transform import TokenTransform
from sklseq.features._window_transform import WindowTransform

__all__ = ["export", "model_card", "trusted_types"]

# The class of a transform declares the attributes that an exported file holds.
_TRANSFORMS = {
    DictFeatures: DictTransform,
    LexiconFeatures: LexiconTransform,
    TemplateFeatures: TemplateTransform,
    TokenFeatures: TokenTransform,
    WindowFeatures: WindowTransform,
}
_PRECISIONS = (None, "float32", "float16", "int8")


def export(model: BaseEstimator, path: PathLike, *, precision: str | None = None) -> None:
    """Write a fitted model to one file, which :func:`sklseq.runtime.load` decodes with NumPy alone.

    Parameters
    ----------
    model : CRFTagger, ZScoreTagger, HMSVMTagger, or Pipeline
        A tagger fitted on feature dicts or attributes; or a Pipeline of ``DictFeatures``,
        ``TokenFeatures``, ``TemplateFeatures``, ``LexiconFeatures``, ``WindowFeatures`` and
        FeatureUnions of them, and a tagger. Not supported are your own functions
        (``functions=``), whose code a file cannot hold, ``transformer_weights`` of a FeatureUnion,
        and kernels other than the linear one.
    path : str or path
        The file appears only when it is complete.
    precision : {None, "float32", "float16", "int8"}, default=None
        Type of the stored state weights. None: unchanged, and the runtime predicts the same labels.
        "int8": integers from -127 to 127, times one factor for each label. "float16" holds numbers
        up to 65,504. Transitions are always stored unchanged.

    Returns
    -------
    None

    Raises
    ------
    ValueError
        If the model has a part that cannot be exported, or a weight that is not finite or is not
        in the range of ``precision``; the message names it.
    OSError
        If the file cannot be written.

    Notes
    -----
    The layout is described in ``sklseq/_lib/model_file.py``: a header in JSON, arrays, a version
    and a checksum; no pickle. Attributes and weights that are zero are left out.

    Examples
    --------
    See :func:`sklseq.runtime.load`.
    """
    check_choice("precision", precision, _PRECISIONS)
    new_file_name(path)
    described = describe(model, precision)
    version = PAIRS_VERSION if described["pairs"] else FIRST_VERSION
    write_model(path, described, version if described["decode"] == "path" else MARGINAL_VERSION)


def describe(model: Any, precision: str | None = None) -> dict[str, Any]:
    """Return the content of the file of a model, which :class:`sklseq.runtime.Decoder` takes."""
    *steps, tagger = [model] if not isinstance(model, Pipeline) else _steps(model)
    _check_tagger(tagger)
    coef = tagger.coef_.toarray() if sparse.issparse(tagger.coef_) else np.asarray(tagger.coef_)
    steps, coef, pairs = _steps_and_weights(tagger, steps, coef)
    parts = [_part(step) for step in steps]
    _check_weights(tagger, steps, coef, precision)
    labels, decode = tagger.classes_.tolist(), getattr(tagger, "decode", "path")
    check_choice("decode", decode, DECODINGS)
    return {
        "sklseq": __version__,
        "classes": labels,
        "probabilistic": hasattr(tagger, "predict_proba"),
        "decode": decode,
        "columns": input_columns(model),
        "receptive_field": list(receptive_field(Pipeline([("all", s) for s in steps]))),
        "features": parts[0] if len(parts) == 1 else {"class": "Pipeline", "parts": parts},
        "n_features": len(coef),
        "coef": _weights(coef, precision),
        "pairs": pairs,
        "transition": tagger.transition_,
        "start": tagger.start_,
        "end": tagger.end_,
    }


def _steps(model: Pipeline) -> list:
    return [s for _, s in model.steps if s is not None and s != "passthrough"]


def input_columns(model: Any) -> list[str] | None:
    """Names of the columns of tokens that a fitted Pipeline reads; None if it reads features."""
    step = model
    while True:
        if isinstance(step, Pipeline):
            step = _steps(step)[0]
        elif isinstance(step, FeatureUnion):
            step = step.transformer_list[0][1]
        elif getattr(step, "extractor_", None) is not None:
            step = step.extractor_
        else:
            break
    if not hasattr(step, "columns_"):
        return None
    if hasattr(step, "feature_names_in_"):
        return step.feature_names_in_.tolist()
    n = step.n_features_in_
    return ["w"] if n == 1 else [f"c{i}" for i in range(n)]  # default names of columns


def _check_tagger(tagger: Any) -> None:
    if not isinstance(tagger, BaseTagger):
        raise ValueError(
            f"model must be a CRFTagger, ZScoreTagger or HMSVMTagger, or a Pipeline that ends with "
            f"one; got {type(tagger).__name__}."
        )
    check_weights(tagger)
    if not hasattr(tagger, "coef_"):
        raise ValueError(
            f"{type(tagger).__name__} was fitted with a kernel that is not linear and has no "
            "weights of features; use kernel='linear' on rows of an approximation (Nystroem)."
        )
    if any(not isinstance(label, (str, int, bool)) for label in tagger.classes_.tolist()):
        raise ValueError(
            f"Labels must be strings, integers or booleans to be exported; got {tagger.classes_!r}."
        )


def _steps_and_weights(
    tagger: Any, steps: list, coef: np.ndarray
) -> tuple[list, np.ndarray, dict[str, Any] | None]:
    """Return extractors and weights without attributes of zero weight, and ``_pairs``."""
    of_pairs = tagger.transition_coef_
    steps = steps or [getattr(tagger, "vectorizer_", None)]
    if _reads_numbers(steps[0]):
        raise ValueError(
            "The model was fitted on rows of numbers, but a file must say how they are made; "
            "fit it on feature dicts, or export a Pipeline of extractors and tagger."
        )
    last = steps[-1]
    if type(last) is DictFeatures and len(steps) == 1:
        last = as_fitted(last)
        kept = coef.any(axis=1)
        if of_pairs is not None:
            kept |= np.diff(of_pairs.indptr) > 0
        if last.n_features is None and not kept.all():
            names = last.get_feature_names_out()[kept].tolist()
            pruned = DictFeatures(columns=last.columns, dtype=last.dtype)
            pruned.vocabulary_ = dict(zip(names, range(len(names))))
            pruned.n_features_out_ = len(names)
            return [pruned], coef[kept], _pairs(None if of_pairs is None else of_pairs[kept])
    return steps, coef, _pairs(of_pairs)


def _reads_numbers(step: Any) -> bool:
    """Whether an extractor begins with rows of numbers, as WindowFeatures without extractor."""
    if isinstance(step, Pipeline):
        return _reads_numbers(next(iter(_steps(step)), None))
    if isinstance(step, FeatureUnion):
        return any(map(_reads_numbers, _union_parts(step)))
    return step is None or (hasattr(step, "extractor_") and _reads_numbers(step.extractor_))


def _pairs(coef: sparse.csr_matrix | None) -> dict[str, Any] | None:
    """Weights of transition features: columns, counts per column, pairs of labels, values."""
    if coef is None:
        return None
    counts = np.diff(coef.indptr)
    columns = np.flatnonzero(counts).astype(np.int32)
    return {
        "columns": columns,
        "counts": counts[columns].astype(np.int32),
        "pairs": coef.indices.astype(np.int32),
        "values": coef.data,
    }


def _part(step: Any) -> dict[str, Any] | None:
    """Return the content of a model file for an extractor."""
    if step is None:
        return None
    if isinstance(step, Pipeline):
        return {"class": "Pipeline", "parts": [_part(s) for s in _steps(step)]}
    if isinstance(step, FeatureUnion):
        return {"class": "FeatureUnion", "parts": [_part(s) for s in _union_parts(step)]}
    if type(step) not in _TRANSFORMS:
        raise ValueError(
            f"{type(step).__name__} cannot be exported; extractors that can be are "
            f"{', '.join(sorted(c.__name__ for c in _TRANSFORMS))}, and FeatureUnions and "
            "Pipelines of them."
        )
    check_is_fitted(step, "n_features_out_")
    step = as_fitted(step)
    if getattr(step, "functions", None):
        raise ValueError(
            "functions= of TokenFeatures are code, which an exported file cannot hold; compute "
            "their values into feature dicts or token columns, which the runtime reads."
        )
    names = _TRANSFORMS[type(step)].__annotations__
    state = {name: _plain(step, name) for name in names}
    return {"class": type(step).__name__, "state": state}


def _union_parts(union: FeatureUnion) -> list:
    if union.transformer_weights:
        raise ValueError(
            "A FeatureUnion with transformer_weights cannot be exported; leave them out."
        )
    for name, part in union.transformer_list:
        if part == "passthrough":
            raise ValueError(
                f"Part {name!r} of a FeatureUnion is 'passthrough', which cannot be "
                "exported; put an extractor there."
            )
    return [part for _, part in union.transformer_list if part != "drop"]


def _plain(step: Any, name: str) -> Any:
    value = getattr(step, name, None)
    if name in ("functions", "n_jobs") or (name == "templates" and step.n_features is None):
        return None  # not needed after fit
    if name == "templates" and isinstance(value, os.PathLike):
        return step.lines_
    if name == "extractor_":
        return _part(value)
    if name == "vocabulary_":  # in the order of the columns
        return list(step.vocabulary_)
    if name == "dtype":
        return np.dtype(value).name
    return list(value) if isinstance(value, (set, frozenset, range)) else value


def _check_weights(tagger: Any, steps: list, coef: np.ndarray, precision: str | None) -> None:
    """Raise a ValueError if a weight is not finite, also in the precision of the file."""
    stored = coef
    if precision in ("float32", "float16"):
        with np.errstate(over="ignore"):
            stored = coef.astype(precision)
    for i, j in np.argwhere(~np.isfinite(stored))[:1]:
        where = f"The weight of feature {_feature_name(steps[-1], i)} and label {_label(tagger, j)}"
        if np.isfinite(coef[i, j]):
            raise ValueError(
                f"{where} is {coef[i, j]:.6g}, and {precision} holds numbers up to "
                f"{np.finfo(stored.dtype).max:.6g}; give another precision, or none."
            )
        raise ValueError(f"{where} is {coef[i, j]}; fit the model again, on finite values.")
    for name in ("transition_", "start_", "end_"):
        values = getattr(tagger, name)
        for at in np.argwhere(np.isnan(values) | np.isposinf(values))[:1]:
            between = " to ".join(_label(tagger, j) for j in at)
            raise ValueError(
                f"The weight {name} of {between} is {values[tuple(at)]}; it must be finite, or "
                "-inf if forbidden: fit the model again, on finite values."
            )


def _label(tagger: Any, number: int) -> str:
    return repr(tagger.classes_[number].item())


def _feature_name(step: Any, column: int) -> str:
    step = as_fitted(step)
    if type(step) is DictFeatures and step.n_features is None:
        return repr(step.get_feature_names_out()[column])
    return f"in column {column}"


def _weights(coef: np.ndarray, precision: str | None) -> dict[str, Any]:
    """State weights: all, or only the nonzero ones with their labels, whichever is smaller."""
    scale = None
    if precision == "int8":
        scale = np.abs(coef).max(axis=0, initial=0) / 127
        coef = np.rint(coef / np.where(scale > 0, scale, 1)).astype(np.int8)
    elif precision is not None:
        coef = coef.astype(precision)  # _check_weights has checked the range
    n_entries, label_type = np.count_nonzero(coef), np.uint8 if coef.shape[1] <= 256 else np.int32
    sparse_size = n_entries * (coef.itemsize + np.dtype(label_type).itemsize) + 4 * len(coef)
    if sparse_size >= coef.nbytes:
        return {"values": coef, "labels": None, "counts": None, "scale": scale}
    feature, label = np.nonzero(coef)
    counts = np.bincount(feature, minlength=len(coef)).astype(np.int32)
    values = coef[feature, label]
    return {"values": values, "labels": label.astype(label_type), "counts": counts, "scale": scale}


def model_card(model: BaseEstimator, *, description: str = "") -> str:
    """Describe a fitted model as a page in Markdown.

    Parameters
    ----------
    model : fitted tagger, or Pipeline that ends with one
    description : str, default=""
        A paragraph of your own: purpose of the model, training data, scores.

    Returns
    -------
    str
        Labels, steps with the parameters that differ from their defaults, numbers of features and
        weights, how training ended, versions.

    Examples
    --------
    >>> from sklseq import CRFTagger
    >>> from sklseq.deployment import model_card
    >>> tagger = CRFTagger(l2=0.1).fit([[{"w": "the"}, {"w": "cat"}]], [["D", "N"]])
    >>> print(model_card(tagger).splitlines()[0])
    # CRFTagger with 2 labels
    """
    *steps, tagger = _steps(model) if isinstance(model, Pipeline) else [model]
    if not isinstance(tagger, BaseEstimator) or hasattr(tagger, "transform"):
        raise TypeError(
            "model must be a fitted tagger, or a Pipeline that ends with one; got "
            f"{type(tagger).__name__}."
        )
    if not isinstance(description, str):
        raise TypeError(
            f"description must be a string; got {description!r:.40} ({type(description).__name__})."
        )
    check_weights(tagger)
    labels = [str(label) for label in tagger.classes_.tolist()]
    lines = [f"# {type(tagger).__name__} with {len(labels)} labels", ""]
    lines += [description, ""] if description else []
    lines += ["Labels: " + ", ".join(f"`{label}`" for label in labels) + ".", "", "## Steps", ""]
    lines += [f"* `{' '.join(repr(as_fitted(step)).split())}`" for step in [*steps, tagger]]
    lines += ["", "## Weights", "", f"* {tagger.n_features_in_:,} features"]
    if hasattr(tagger, "coef_"):
        n = int(np.count_nonzero(dense_weights(tagger.coef_)))
        n += int(np.isfinite(tagger.transition_[tagger.transition_ != 0]).sum())
        n += 0 if tagger.transition_coef_ is None else tagger.transition_coef_.nnz
        lines.append(f"* {n:,} weights that are not zero, of type {tagger.coef_.dtype}")
    facts = [
        f"* {what}: {getattr(tagger, name):,.6g}"
        for name, what in (("n_iter_", "iterations"), ("objective_", "objective"))
        if isinstance(getattr(tagger, name, None), (int, float))
    ]
    lines += ["", "## Training", "", *facts] if facts else []
    lines += ["", f"sklseq {__version__}, scikit-learn {sklearn.__version__}.", ""]
    return "\n".join(lines)


def trusted_types() -> list[str]:
    """Types that ``skops.io.load`` has to trust for models of this package.

    A model of sklseq consists of its own estimators, scikit-learn's, arrays, strings and numbers.
    By default, skops trusts all of these except the first, and not SciPy's CSR matrix, which
    ``sparsify`` stores. Add the names of your own functions in extractors.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from sklseq.deployment import trusted_types
    >>> "sklseq.estimators.crf.crf_tagger.CRFTagger" in trusted_types()
    True

    To save and load a model::

        skops.io.dump(model, "model.skops")
        model = skops.io.load("model.skops", trusted=trusted_types())
    """
    names = {f"{sparse.csr_matrix.__module__}.csr_matrix"}
    for module in (sklseq, features):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, BaseEstimator):
                names.add(f"{value.__module__}.{value.__qualname__}")
    return sorted(names)
