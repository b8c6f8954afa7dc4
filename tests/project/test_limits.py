"""Limits of the sources: private names, late imports, length and arguments of functions, constants
that stand once."""

import ast
import functools
import re

import pytest

from tests.project.test_structure import ROOT, folders, sources, thread_unsafe, tree_of

# Underscores that are no privacy: methods of named tuples.
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
MOST_PYTHON, MOST_COMPILED = 8, 12


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES


@functools.cache
def names_of_modules():
    return {path.stem for path in sources()} | set(folders())


def defined_in(tree):
    """Names of functions, classes, variables and of attributes that a module gives its objects."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def is_own(value):
    return (isinstance(value, ast.Name) and value.id in ("self", "cls")) or (
        isinstance(value, ast.Call) and ast.unparse(value.func) == "super"
    )


def private_calls(text):
    """Private names of other modules that a module imports, and private attributes that it reads of
    objects that are not its own."""
    tree = tree_of(text)
    own, modules = set(defined_in(tree)), names_of_modules()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} - modules
            yield from filter(is_private, names)
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            yield from () if node.attr in own or is_own(node.value) else (node.attr,)


def private_imports_of_cython(text):
    for match in re.finditer(r"^from [\w.]+ c?import (\([^)]*\)|.+)$", text, re.MULTILINE):
        yield from filter(is_private, re.findall(r"(\w+)(?: as \w+)?", match[1]))


def place(path):
    return path.relative_to(ROOT).as_posix()


@thread_unsafe
def test_private_names_stay_in_their_module():
    found = set()
    for path in sources():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found |= {(place(path), name) for name in private_calls(text)}
        else:
            names = set(private_imports_of_cython(text)) - names_of_modules()
            found |= {(place(path), name) for name in names}
    assert found == set()


@thread_unsafe
def test_text_is_cut_at_line_ends_only():
    # str.splitlines also cuts at U+2028, form feeds and others, which tokens may hold.
    cut = {
        place(path)
        for path in sources()
        if path.suffix == ".py"
        for node in ast.walk(tree_of(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    }
    assert not cut


def signatures(text):
    """(name, number of arguments) of functions, without self and public constructors."""
    for owner in ast.walk(tree_of(text)):
        for node in ast.iter_child_nodes(owner):
            if not isinstance(node, ast.FunctionDef):
                continue
            in_class = isinstance(owner, ast.ClassDef)
            if in_class and node.name == "__init__" and not owner.name.startswith("_"):
                continue
            a = node.args
            n = len(a.posonlyargs + a.args + a.kwonlyargs) + bool(a.vararg) + bool(a.kwarg)
            static = any(ast.unparse(d) == "staticmethod" for d in node.decorator_list)
            yield node.name, n - (in_class and not static)


# A function of Cython, or of C in a string or header: its name and the opening bracket.
COMPILED = re.compile(
    r"^[ \t]*(?:cp?def|def|static|inline|ctypedef)\b[^\n(=#:]*?(\w+)\((?!\*)", re.MULTILINE
)


def compiled_signatures(text):
    text = re.sub(r"#.*|//.*", "", text)
    for match in COMPILED.finditer(text):
        depth, n, i = 1, 1, match.end()
        while depth and i < len(text):
            depth += (text[i] in "([{") - (text[i] in ")]}")
            n += depth == 1 and text[i] == "," and bool(text[i + 1 :].lstrip(" \n\\")[:1] != ")")
            i += 1
        yield match[1], n


def public_functions():
    # Their keywords are for users to name.
    return {"decode_online", "expected_features", "lbfgs", "span_fbeta"}


def long_signatures():
    for path in [*sources(), *ROOT.rglob("*.h")]:
        text = path.read_text(encoding="utf-8")
        compiled = path.suffix != ".py"
        most = MOST_COMPILED if compiled else MOST_PYTHON
        for name, n in (compiled_signatures if compiled else signatures)(text):
            if n > most and name not in public_functions():
                yield place(path), name


@thread_unsafe
def test_functions_have_few_arguments():
    assert set(long_signatures()) == set()


MOST_LINES = 40  # of the body of a function, without its docstring


def found_in_python(find):
    """(module, each item of ``find(text)``) of modules in Python."""
    for path in sources():
        if path.suffix == ".py":
            yield from ((place(path), item) for item in find(path.read_text(encoding="utf-8")))


def bodies(text):
    """(name, number of lines of the body) of functions."""
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1:2] if ast.get_docstring(node) is not None else node.body
            yield node.name, node.end_lineno - first[0].lineno + 1 if first else 0


@thread_unsafe
def test_functions_are_short():
    found = {(at, name) for at, (name, n) in found_in_python(bodies) if n > MOST_LINES}
    assert found == set()


# Packages that sklseq works without.
OPTIONAL = {"dask", "distributed", "matplotlib", "pandas", "polars", "pooch", "pyarrow", "requests"}


def late_imports(text):
    """Imports in functions, of other packages than these, for which neither a comment nor the
    docstring of the module gives a reason."""
    tree, lines = tree_of(text), text.split("\n")
    if "Imports in functions:" in (ast.get_docstring(tree) or ""):
        return
    nodes = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            name = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            above = (line.strip() for line in lines[node.lineno - 2 :: -1])
            above = next(line for line in above if not line.startswith(("from ", "import ")))
            said = "#" in lines[node.lineno - 1] or above.startswith("#")
            if not said and name.split(".")[0] not in OPTIONAL:
                yield name


@thread_unsafe
def test_late_imports_give_their_reason():
    assert set(found_in_python(late_imports)) == set()


# Thresholds of arithmetic, and in how many places each may be written down.
CONSTANTS = {"1e-280": 1, "1e-290": 1}


@pytest.mark.parametrize("constant", CONSTANTS)
def test_constants_stand_in_one_place(constant):
    # As a number, not in comments and docstrings.
    places = []
    for path in [*sources(), *ROOT.rglob("*.h")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(rf"(?<![\w.]){constant}\b", re.split(r"#|//|\"\"\"", line)[0]):
                places.append(place(path))
    assert len(places) <= CONSTANTS[constant], places


# --- The rules find what they forbid -------------------------------------------------------------


def test_private_calls_are_found():
    text = (
        "from .chain import _check, other, _chain\n"
        "def f(self, tagger):\n    self._own = tagger._solve()\n    return tagger._own, x._fields\n"
    )
    assert sorted(private_calls(text)) == ["_check", "_solve"]
    assert list(private_imports_of_cython("from a.b cimport _c, d")) == ["_c"]


def test_arguments_are_counted():
    text = "class A:\n    def __init__(self, a, b): ...\n    def f(self, a, *, b=1, **c): ...\n"
    assert list(signatures(text)) == [("f", 3)]
    text = "cdef double f(\n    lanes* tag, const double[:, ::1] x,  # (m, n), C\n    int n,\n):\n"
    assert list(compiled_signatures(text)) == [("f", 3)]
    assert list(compiled_signatures("static inline void g(double *a, int (*h)(int, int))\n")) == [
        ("g", 2)
    ]


def test_lines_of_bodies_are_counted():
    text = 'def f():\n    """Text."""\n    a = 1\n\n    return a\n\n\ndef g():\n    """Text."""\n'
    assert list(bodies(text)) == [("f", 3), ("g", 0)]


def test_late_imports_are_found():
    text = (
        '"""Text."""\nimport a\ndef f():\n    import b\n    import c  # start-up\n    import dask\n'
        "    # Start-up.\n    import d\n    from e import g\n    x = 1\n    from h.i import j\n"
    )
    assert sorted(late_imports(text)) == ["b", "h.i"]
    assert list(late_imports(text.replace("Text.", "Imports in functions: start-up."))) == []
