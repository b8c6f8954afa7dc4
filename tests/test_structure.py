"""The shape of the package: imports point one way, docstrings name what exists."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "sklseq"

# folder: what nothing in it may import. Estimators are the modules beside the folders.
ESTIMATORS = [
    "sklseq.crf",
    "sklseq.hmsvm",
    "sklseq.zscore",
    "sklseq.semicrf",
    "sklseq._kernels",
    "sklseq._hmsvm_parameters",
    "sklseq._zscore_cv",
    "sklseq._zscore_solve",
    "sklseq._separate",
    "sklseq._warm_start",
    "sklseq._base",
    "sklseq._slim",
    "sklseq.online",
    "sklseq._stream",
    "sklseq._decode_blocks",
    "sklseq._cluster",
    "sklseq._fit_shards",
    "sklseq._shards",
]
FORBIDDEN = {
    "inference": ["sklearn", "sklseq.solvers", "sklseq.objectives", "sklseq.features", *ESTIMATORS],
    "solvers": ["sklearn", "sklseq.inference", "sklseq.objectives", "sklseq.features", *ESTIMATORS],
    "objectives": ["sklseq.solvers", "sklseq.features", *ESTIMATORS],
    "features": ["sklseq.inference", "sklseq.objectives", "sklseq.solvers", *ESTIMATORS],
    "datasets": ["sklseq.inference", "sklseq.objectives", "sklseq.solvers", *ESTIMATORS],
}


def absolute_name(path, level, module):
    """The module that `from <level dots><module>` names in the file `path`."""
    if level == 0:
        return module
    package = path.relative_to(ROOT.parent).parts[:-1]
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def imports_of_python(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute_name(path, node.level, node.module or "")
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def imports_of_cython(path):
    text = re.sub(r"\\\n|\((?:[^()]*)\)", lambda m: m[0].replace("\n", " "), path.read_text())
    for match in re.finditer(r"^\s*from\s+(\.*)([\w.]*)\s+c?import\s+(.+)$", text, re.MULTILINE):
        module = absolute_name(path, len(match[1]), match[2])
        yield module
        for name in re.findall(r"(\w+)(?:\s+as\s+\w+)?", match[3]):
            yield f"{module}.{name}"
    for match in re.finditer(r"^\s*c?import\s+(.+)$", text, re.MULTILINE):
        yield from (part.split()[0] for part in match[1].split(",") if part.strip(" ()"))


def imports_of(path):
    return set(imports_of_python(path) if path.suffix == ".py" else imports_of_cython(path))


def sources(folder):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".pyx", ".pxd"})


@pytest.mark.thread_unsafe(reason="ast of Python 3.11 is not safe: python/cpython#106905")
@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_point_one_way(folder):
    files = sources(folder)
    assert files
    for path in files:
        for name in imports_of(path):
            for forbidden in FORBIDDEN[folder]:
                where = f"{path.relative_to(ROOT.parent)} imports {name}"
                assert not f"{name}.".startswith(f"{forbidden}."), where


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".py", "from ..solvers import owlqn", "sklseq.solvers.owlqn"),
        (".py", "from . import chain", "sklseq.inference.chain"),
        (".py", "def f():\n    import sklearn.base", "sklearn.base"),
        (".pyx", "from sklseq.solvers cimport _vectors as v", "sklseq.solvers._vectors"),
        (".pyx", "cimport sklearn.utils", "sklearn.utils"),
        (".pyx", "from sklearn.utils import (\n    a,\n    b,\n)", "sklearn.utils.b"),
    ],
)
def test_imports_are_found(suffix, text, expected, tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path / "sklseq")
    path = tmp_path / "sklseq" / "inference" / f"module{suffix}"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert expected in imports_of(path)


# --- Docstrings ---------------------------------------------------------------------------------

MODULES = [
    "sklseq",
    "sklseq.inference",
    "sklseq.features",
    "sklseq.metrics",
    "sklseq.online",
    "sklseq.datasets",
    "sklseq.deployment",
    "sklseq.display",
    "sklseq.inspection",
    "sklseq.testing",
]


def public_objects():
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):  # scorers, modules
                continue
            yield pytest.param(value, id=f"{module_name}.{name}")


def is_named_tuple(value):
    return inspect.isclass(value) and issubclass(value, tuple)


def documented(value, section):
    """Names in a section of a numpydoc docstring, in order."""
    lines = inspect.getdoc(value).splitlines()
    names = []
    inside = False
    for line, below in zip(lines, [*lines[1:], ""]):
        if line and re.fullmatch(r"-{3,}", below):
            inside = line == section
        elif inside and line and not line.startswith((" ", "---")):
            names += [name.strip(" *") for name in line.split(" :")[0].split(",")]
    return names


def signature_of(value):
    parameters = list(inspect.signature(value).parameters)
    return [name for name in parameters if name != "self"]


@pytest.mark.parametrize("value", list(public_objects()))
def test_docstring_names_the_parameters(value):
    doc = inspect.getdoc(value)
    assert doc, "no docstring"
    assert doc.splitlines()[0].rstrip().endswith((".", "?")), "the first line is a sentence"
    if is_named_tuple(value):
        fields = documented(value, "Parameters") + documented(value, "Attributes")
        assert fields == list(value._fields)
    else:
        assert sorted(documented(value, "Parameters")) == sorted(signature_of(value))
        if inspect.isfunction(value) and signature_of(value):
            assert documented(value, "Returns") or "None" in str(inspect.signature(value))


def public_methods():
    for param in public_objects():
        (value,) = param.values
        if not inspect.isclass(value) or is_named_tuple(value):
            continue
        for name, method in vars(value).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                yield pytest.param(method, id=f"{param.id}.{name}")


@pytest.mark.parametrize("method", list(public_methods()))
def test_method_docstring_names_the_parameters(method):
    assert inspect.getdoc(method), "no docstring"
    parameters = documented(method, "Parameters")
    if parameters or len(signature_of(method)) > 1:
        assert sorted(parameters) == sorted(signature_of(method))


def test_all_is_sorted_and_exists():
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        assert sorted(module.__all__) == sorted(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__), module_name


@pytest.mark.parametrize("value", list(public_objects()))
def test_constructor_stores_its_parameters(value):
    if inspect.isclass(value) and hasattr(value, "get_params"):
        assert sorted(value().get_params()) == sorted(signature_of(value))
