"""The shape of the package: imports point one way, docstrings name what exists."""

import ast
import functools
import importlib
import inspect
import re
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

from tests.mutations import FAULTS, TESTS

ROOT = Path(__file__).resolve().parents[2] / "sklseq"
# Single modules beside the folders that estimators use; what other modules may import is free.
MODULES_BELOW_ESTIMATORS = {"metrics": {"_lib", "data"}}


@functools.cache
def tree_of(text):
    """The syntax tree of a text; a worker parses each file once."""
    return ast.parse(text)


def absolute_name(path, level, module):
    """The module that `from <level dots><module>` names in the file `path`."""
    if level == 0:
        return module
    package = path.relative_to(ROOT.parent).parts[:-1]
    return ".".join([*package[: len(package) - level + 1], *([module] if module else [])])


def imports_of_python(path):
    for node in ast.walk(tree_of(path.read_text(encoding="utf-8"))):
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


def sources(folder="."):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in {".py", ".pyx", ".pxd"})


def folders():
    return sorted(p.parent.name for p in ROOT.glob("*/__init__.py"))


def rule_of(folder):
    """(folders it may import, packages it must not) from the line `Imports:` of its docstring."""
    doc = ast.get_docstring(tree_of((ROOT / folder / "__init__.py").read_text(encoding="utf-8")))
    match = re.search(r"^Imports: ([\w, ]+)(?:; never (\w+))?\.$", doc or "", re.MULTILINE)
    assert match, f"sklseq/{folder}/__init__.py must say what the folder imports: 'Imports: a, b.'"
    allowed = set() if match[1] == "nothing" else set(match[1].split(", "))
    assert allowed <= {*folders(), "deployment", "inspection", "metrics", "runtime"}, (
        f"{folder} names what does not exist: {allowed}"
    )
    return allowed, match[2]


thread_unsafe = pytest.mark.thread_unsafe(
    reason="ast of Python 3.11 is not safe: python/cpython#106905"
)


def check_imports(path, own, allowed, never):
    for name in imports_of(path):
        first, _, rest = name.partition(".")
        where = f"{path.relative_to(ROOT.parent)} imports {name}"
        assert first != never, where
        if first == "sklseq" and rest:
            assert rest.split(".")[0] in {own, *allowed}, where


@thread_unsafe
@pytest.mark.parametrize("folder", folders())
def test_imports_point_one_way(folder):
    allowed, never = rule_of(folder)
    for path in sources(folder):
        check_imports(path, folder, allowed, never)


@thread_unsafe
@pytest.mark.parametrize("module", MODULES_BELOW_ESTIMATORS)
def test_modules_below_estimators_import_what_lies_below_them(module):
    check_imports(ROOT / f"{module}.py", module, MODULES_BELOW_ESTIMATORS[module], None)


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph():
    """Module: modules of the package that it imports, late imports among them."""
    names = {module_name(path) for path in sources()}
    graph = {name: set() for name in names}
    for path in sources():
        graph[module_name(path)] |= imports_of(path) & names - {module_name(path), "sklseq"}
    return graph


def circles(graph):
    """Modules that reach themselves."""
    reach = {name: set(targets) for name, targets in graph.items()}
    for middle in reach:
        for name in reach:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    return sorted(name for name in reach if name in reach[name])


@thread_unsafe
def test_no_import_circle():
    graph = import_graph()
    for name in [name for name in graph if any(name == k.rpartition(".")[0] for k in graph)]:
        # A package that gathers what its own modules define is not a circle.
        graph[name] = {target for target in graph[name] if not target.startswith(f"{name}.")}
    assert circles(graph) == []


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]


def test_no_two_modules_of_one_name():
    # `_x.pyx` beside `x.py` is the same thing, compiled; `x.pxd` its declarations. Modules of the
    # packages in `compat` have the names that other packages chose.
    places = {}
    for path in sources():
        if path.stem != "__init__" and path.parent.parent != ROOT / "compat":
            places.setdefault(path.stem, set()).add(path.parent.relative_to(ROOT).as_posix())
    assert {stem: found for stem, found in places.items() if len(found) > 1} == {}


def test_top_level_is_what_a_user_names_or_a_folder():
    entries = {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    # 14 that hold the package and its tools; `runtime` is what a deployed model imports, `compat`
    # what a program of another package imports; `__main__` is the command line.
    assert len(entries - {"__init__", "__main__"}) <= 16
    private = {e for e in entries if e.startswith("_")} - {"__init__", "__main__"}
    assert private == {"_lib"}


def test_faults_of_mutations_can_be_put_in():
    lost = [fault for fault in FAULTS if fault[1] not in (ROOT / fault[0]).read_text("utf-8")]
    assert not lost
    assert all(list(TESTS.rglob(f"{fault[3]}.py")) for fault in FAULTS)


def test_tests_stand_in_folders_of_the_same_names():
    tests = ROOT.parent / "tests"
    found = {p.parent.name for p in tests.glob("*/test_*.py")}
    assert found <= {*folders(), "differential", "online", "project"}
    alone = {p.stem.removeprefix("test_") for p in tests.glob("test_*.py")}
    assert alone <= {
        "command_line",
        "contract",
        "deployment",
        "inspection",
        "metrics",
        "runtime",
    }  # testing: its contract
    assert all((p.parent / "__init__.py").exists() for p in tests.glob("*/test_*.py"))


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
    "sklseq.compat.pycrfsuite",
    "sklseq.compat.sklearn_crfsuite",
    "sklseq.compat.sklearn_crfsuite.metrics",
    "sklseq.compat.sklearn_crfsuite.scorers",
    "sklseq.compat.sklearn_crfsuite.utils",
    "sklseq.inspection",
    "sklseq.runtime",
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


def test_only_public_modules_and_packages_list_their_names():
    public = {name.replace(".", "/") + ".py" for name in [*MODULES, "sklseq.data.types"]}
    paths = (path.relative_to(ROOT.parent).as_posix() for path in ROOT.rglob("*.py"))
    private = [p for p in paths if p not in public and not p.endswith("__init__.py")]
    assert [p for p in private if "\n__all__ =" in (ROOT.parent / p).read_text("utf-8")] == []


def test_all_is_sorted_and_exists():
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        assert sorted(module.__all__) == sorted(set(module.__all__))
        assert all(hasattr(module, name) for name in module.__all__), module_name


def test_constructors_store_their_parameters():
    values = [value for param in public_objects() for value in param.values]
    estimators = [v for v in values if inspect.isclass(v) and issubclass(v, BaseEstimator)]
    assert len(estimators) > 15
    for estimator in estimators:
        assert sorted(estimator().get_params()) == sorted(signature_of(estimator)), estimator
