"""Recognition of sparse matrices without an import of SciPy."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_sparse"]


def is_sparse(x: Any) -> bool:
    """Whether ``x`` is a matrix or array of ``scipy.sparse``.

    There is none before SciPy is imported, which takes longer than loading an exported model.
    """
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
    return issparse is not None and issparse(x)
