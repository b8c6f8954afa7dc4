"""Versions and settings for problem reports."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from sklseq._lib.cpu import cpu_level
from sklseq._lib.version import __version__

REQUIRED = ("numpy", "scipy", "scikit-learn", "joblib")
OPTIONAL = ("matplotlib", "pandas", "polars", "pooch", "dask", "rapidfuzz", "rich", "skops")
VARIABLES = ("SKLSEQ_CPU", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def show_versions() -> None:
    """Print versions of sklseq, Python and dependencies, the processor level and thread limits.

    Paste the output into problem reports.

    Examples
    --------
    >>> import sklseq
    >>> sklseq.show_versions()
    sklseq        ...
    Python        ...
    """
    settings = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    rows = {
        "sklseq": __version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "processor": f"{cpu_level()} kernels, {os.cpu_count()} processors",
        **{name: installed_version(name) or "missing" for name in REQUIRED},
        **{name: found for name in OPTIONAL if (found := installed_version(name))},
        **settings,
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")


def installed_version(name: str) -> str | None:
    """The version of an installed package, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
