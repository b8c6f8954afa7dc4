"""Public names and parameters: equal to the stored list, so that none changes unnoticed.

After an intended change: ``python -m tests.project.test_public_api`` writes the list anew.
"""

import functools
import importlib
import inspect
import re
import tomllib
from pathlib import Path

import sklseq

ROOT = Path(__file__).resolve().parents[2]
STORED = Path(__file__).with_name("public_api.txt")
MODULES = [
    "sklseq",
    "sklseq.compat.pycrfsuite",
    "sklseq.compat.sklearn_crfsuite",
    "sklseq.compat.sklearn_crfsuite.metrics",
    "sklseq.compat.sklearn_crfsuite.scorers",
    "sklseq.compat.sklearn_crfsuite.utils",
    "sklseq.datasets",
    "sklseq.deployment",
    "sklseq.display",
    "sklseq.features",
    "sklseq.inference",
    "sklseq.inspection",
    "sklseq.metrics",
    "sklseq.online",
    "sklseq.runtime",
    "sklseq.testing",
]


def parameters(function):
    return ", ".join(str(p.replace(annotation=p.empty)) for p in of(function) if p.name != "self")


def of(function):
    """Parameters; a default that is an object is "..."."""
    for p in inspect.signature(function).parameters.values():
        plain = p.default is p.empty or isinstance(p.default, (type(None), str, int, float, tuple))
        yield p if plain else p.replace(default=Ellipsis)


def members(cls):
    """Public methods and properties that sklseq defines for the class, inherited ones too."""
    for name in sorted(dir(cls)):
        value = inspect.getattr_static(cls, name)
        value = getattr(value, "__func__", value)
        if name.startswith("_"):
            continue
        if isinstance(value, (property, functools.cached_property)):
            yield name
            continue
        if not (callable(value) or hasattr(value, "reason")):
            continue
        value = getattr(cls, name) if hasattr(value, "reason") else value  # of `missing_if`
        if getattr(value, "__module__", "").startswith("sklseq") and inspect.isfunction(value):
            yield f"{name}({parameters(value)})"


def public_api():
    """A line for each public object and for each of its methods."""
    lines = []
    for module in MODULES:
        for name in sorted(importlib.import_module(module).__all__):
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value) or inspect.isfunction(value):
                lines.append(f"{module}.{name}({parameters(value)})")
            else:
                lines.append(f"{module}.{name}")
            if inspect.isclass(value):
                lines += [f"{module}.{name}.{member}" for member in members(value)]
    return lines


def test_the_public_api_is_the_stored_one():
    stored, now = set(STORED.read_text(encoding="utf-8").splitlines()), set(public_api())
    change = [f"- {line}" for line in sorted(stored - now)]
    change += [f"+ {line}" for line in sorted(now - stored)]
    assert not change, (
        "the public API changed; if that is intended, run `python -m tests.project.test_public_api`"
        " and name the change in CHANGELOG.md:\n" + "\n".join(change)
    )


def test_a_renamed_parameter_is_found(monkeypatch):
    def span_f1(truth, prediction):
        """Renamed parameters."""

    monkeypatch.setattr(sklseq.metrics, "span_f1", span_f1)
    stored = set(STORED.read_text(encoding="utf-8").splitlines())
    assert any(line.startswith("sklseq.metrics.span_f1(y_true") for line in stored)
    assert "sklseq.metrics.span_f1(truth, prediction)" in set(public_api()) - stored


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, pattern in {
        "meson.build": r"version: '(.+)'",
        "CITATION.cff": r"version: (.+)",
    }.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        found = re.findall(rf"^ *{pattern}", text, re.MULTILINE)
        assert sklseq.__version__ in found, name
    assert project["version"] == sklseq.__version__


if __name__ == "__main__":
    STORED.write_text("\n".join(public_api()) + "\n", encoding="utf-8")
