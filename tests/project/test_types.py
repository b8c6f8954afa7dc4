"""Types of what is public: every parameter and every answer has one, and it says something."""

import inspect
from typing import Any

from tests.project.test_structure import public_methods, public_objects

# What holds anything by design: sources of blocks, items of a stream as the first step reads them.
ANYTHING = {
    "RowBlocks.source", "RowBlocks.rows", "OnlineStream.item", "OnlineStream.items", "Stream.item",
    "StreamPool.item", "StreamPool.items", "SegmentStream.item", "SegmentStream.items",
}  # fmt: skip


NOTHING = (inspect.Parameter.empty, Any, "Any")


def without_types(function, owner=""):
    """Parameters and "return" without an annotation, or with ``Any``."""
    missing = []
    for name, parameter in inspect.signature(function).parameters.items():
        free = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        known = parameter.annotation not in NOTHING
        if not (known or free or name in ("self", "cls")) and f"{owner}.{name}" not in ANYTHING:
            missing.append(name)
    answer = inspect.signature(function).return_annotation
    if function.__name__ != "__init__" and answer in NOTHING:
        missing.append("return")
    return missing


def functions():
    """(name, function) of functions, constructors and methods."""
    for param in [*public_objects(), *public_methods()]:
        (value,) = param.values
        if inspect.isclass(value):
            value = vars(value).get("__init__")
        if inspect.isfunction(value) and "/sklseq/" in inspect.getsourcefile(value):
            yield param.id, value


def test_public_functions_have_types():
    missing, found = {}, list(functions())
    assert len(found) > 200
    for public_name, function in found:
        owner, _, name = function.__qualname__.rpartition(".")
        if f"{owner}.{name}" not in ANYTHING and (without := without_types(function, owner)):
            missing[public_name] = without
    assert not missing


def test_missing_types_are_found():
    namespace = {}
    source = "from typing import Any\ndef f(a, b: 'Any', c: int, *d, x: Any = 0, **e: 'Any'): ..."
    exec(source, namespace)
    assert without_types(namespace["f"]) == ["a", "b", "x", "return"]
