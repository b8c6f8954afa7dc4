"""Loading of saved models."""

from __future__ import annotations

import inspect

from scipy import sparse
from sklearn.base import BaseEstimator

__all__ = ["trusted_types"]


def trusted_types() -> list[str]:
    """Types that ``skops.io.load`` has to trust for models of this package.

    A model of sklseq consists of its own estimators, scikit-learn's, arrays, strings and numbers.
    skops trusts all of these but the first, and not SciPy's CSR matrix, which ``sparsify`` stores.
    Add the names of functions that you gave to an extractor.

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
