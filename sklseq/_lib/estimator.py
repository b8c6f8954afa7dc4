"""Base of all estimators and extractors: version in saved models, links to the manual."""

import inspect
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import clone

from sklseq._lib.checks import is_number
from sklseq._lib.version import __version__

# Pages that autosummary generates for docs/api.rst.
PAGE = "https://sklseq.readthedocs.io/en/latest/generated/{page}.html"


def set_fitted(model: Any, fitted: dict[str, Any], stale: Iterable[str] = ()) -> None:
    """Set fitted attributes, and remove those of an earlier fit that are ``stale``.

    In one step: after an interrupt, the model is either unchanged or fitted.
    """
    kept = {name: value for name, value in vars(model).items() if name not in stale}
    model.__dict__ = kept | fitted


def in_native_order(value: Any) -> Any:
    """Return an array or sparse matrix in the byte order of the processor; others as they are."""
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.isnative:
        return value
    if isinstance(value, np.ndarray):
        return value.astype(dtype.newbyteorder("="))
    native = copy(value)
    native.data = in_native_order(value.data)
    return native


class EstimatorBase:
    """Base of every public estimator, before scikit-learn's ``BaseEstimator`` in the list.

    Parameters that a fitted model reads are kept by ``fit`` in the dict ``_fitted_parameters``:
    ``set_params`` changes the next fit only.
    """

    _doc_link_module = "sklseq"
    _doc_link_template = PAGE

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        parts = type(self).__module__.split(".")
        # Estimators are public where their package is: sklseq.CRFTagger, sklseq.features.X.
        package = ".".join(parts[:2] if parts[1] == "features" else parts[:1])
        return {"page": f"{package}.{type(self).__name__}"}

    def __setattr__(self, name: str, value: Any) -> None:
        # Users may assign weights; compiled functions read one byte order.
        super().__setattr__(name, in_native_order(value) if name.endswith("_") else value)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_sklseq_version": __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Parameters that are newer than the saved model get their defaults.
        parameters = inspect.signature(type(self).__init__).parameters.values()
        state = {p.name: p.default for p in parameters if p.default is not p.empty} | state
        check_version(state.pop("_sklseq_version", None), type(self).__name__)
        super().__setstate__({name: in_native_order(value) for name, value in state.items()})


class LabellerBase(EstimatorBase):
    """Base of estimators that label or segment lists of sequences."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        return tags


def as_fitted(estimator: Any) -> Any:
    """The estimator, or after ``set_params`` a copy with the parameters of its last fit."""
    kept = vars(estimator).get("_fitted_parameters", {})
    changed = [k for k in kept if k != "n_jobs" and getattr(estimator, k) is not kept[k]]
    if not changed:
        return estimator
    fitted = copy(estimator)
    vars(fitted).update({name: kept[name] for name in changed})
    return fitted


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Restore the attributes of an estimator if an error or an interrupt leaves the context."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def fitted_parameter(estimator: Any, name: str) -> Any:
    """Value of a parameter in the last fit; the present value if fit did not store it."""
    return getattr(as_fitted(estimator), name)


class fitted_property(property):
    """Property that is computed from the parameters of the last fit."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return super().__get__(None if instance is None else as_fitted(instance), owner)


def check_plain_parameters(estimator: Any) -> None:
    """Raise unless switches are bools, ``verbose`` a count, and ``random_state`` a seed.

    The annotations of ``__init__`` show which parameters are switches.
    """
    for name, parameter in inspect.signature(type(estimator).__init__).parameters.items():
        value = getattr(estimator, name, None)
        is_whole = is_number(value, whole=True) and value >= 0
        if parameter.annotation in (bool, "bool") and not isinstance(value, (bool, np.bool_)):
            raise ValueError(f"{name} must be True or False; got {value!r}.")
        if name == "verbose" and not (is_whole or isinstance(value, bool)):
            raise ValueError(f"verbose must be an integer of at least 0 or a bool; got {value!r}.")
        seeds = (np.random.RandomState, np.random.Generator)
        if name == "random_state" and not (is_whole or value is None or isinstance(value, seeds)):
            raise ValueError(
                f"random_state must be None, an integer of at least 0, a RandomState or a "
                f"Generator; got {value!r}."
            )


def clone_part(estimator: Any, name: str) -> Any:
    """Return an unfitted copy of the estimator in the parameter ``name``."""
    part = getattr(estimator, name)
    if isinstance(part, type) or not hasattr(part, "get_params"):
        raise TypeError(
            f"{name} must be None or an estimator, such as an instance of a class of sklseq; got "
            f"{part!r}."
        )
    return clone(part)


def check_version(saved: str | None, name: str) -> None:
    """Raise for models of a newer major version, whose state may have another meaning."""
    if saved is None or int(saved.split(".")[0]) <= int(__version__.split(".")[0]):
        return
    raise ValueError(
        f"This {name} was saved by sklseq {saved}, whose models sklseq {__version__} cannot read; "
        f"install sklseq {saved.split('.')[0]} or newer, or train again."
    )
