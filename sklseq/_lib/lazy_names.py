"""Names of a package whose modules are imported when a name is first used (PEP 562)."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]], folders: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    homes : mapping from module (below the package) to the names that it defines
    folders : names of modules of the package that are attributes themselves
    """
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names}
    folders = set(folders)
    members = vars(sys.modules[package])

    def load(name: str) -> Any:
        if name in home:
            value = getattr(import_module(home[name]), name)
        elif name in folders:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        members[name] = value  # found without this function from now on
        return value

    def names() -> list[str]:
        return sorted({*members, *home, *folders})

    return load, names
