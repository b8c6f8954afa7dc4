"""Choice between the builds of a compiled module: baseline or x86-64-v3.

Each kernel is compiled from one source for the baseline of the platform and, on x86-64, again
for the x86-64-v3 level (AVX2 and FMA). The choice is made at import. The environment variable
``SKLSEQ_CPU=baseline`` forces the baseline build, for comparisons. A build with the option
``-Dprocessors=this``, as the Makefile makes them, has only the level of the machine that made it.
"""

import importlib
import importlib.util
import os
from types import ModuleType

from sklseq._lib._cpu_features import has_x86_64_v3


def cpu_level() -> str:
    """The build in use: "x86-64-v3" or "baseline"."""
    wanted = os.environ.get("SKLSEQ_CPU", "auto")
    if wanted not in ("auto", "baseline"):
        raise ValueError(f"SKLSEQ_CPU must be 'auto' or 'baseline'; got {wanted!r}.")
    return "x86-64-v3" if wanted == "auto" and has_x86_64_v3() else "baseline"


def load_kernel(name: str) -> ModuleType:
    """Import the best build of the compiled module ``name`` for this processor."""
    if cpu_level() == "x86-64-v3":
        try:
            return importlib.import_module(name + "_v3")
        except ModuleNotFoundError:  # not built for this platform
            pass
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if importlib.util.find_spec(name + "_v3") is None:
            raise
        raise ImportError(
            f"{name} is compiled for x86-64-v3 processors only, and the baseline was asked for "
            "(an older processor, or SKLSEQ_CPU=baseline): build with -Dprocessors=all."
        ) from error
