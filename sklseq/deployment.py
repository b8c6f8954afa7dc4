"""Saving and loading trained models."""

from __future__ import annotations

import inspect

from scipy import sparse
from sklearn.base import BaseEstimator

__all__ = ["trusted_types"]


def trusted_types() -> list[str]:
    """The types that ``skops.io.load`` has to trust, and no others.

    A model of sklseq holds nothing but its own estimators, scikit-learn's, arrays, strings and
    numbers; skops trusts all of those but the first by itself, and SciPy's CSR matrix, which
    ``sparsify`` stores, not. Functions that you gave to an extractor are yours to trust, by name.

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
    import sklseq
    import sklseq.features

    names = {f"{sparse.csr_matrix.__module__}.csr_matrix"}
    for module in (sklseq, sklseq.features):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, BaseEstimator):
                names.add(f"{value.__module__}.{value.__qualname__}")
    return sorted(names)
