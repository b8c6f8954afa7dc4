"""The manual: its code runs, its references resolve, and it names everything that is public."""

import importlib
import inspect
import pickle
import re
import shlex
from pathlib import Path

import pytest

from sklseq.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.rst"))
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
# Blocks that need more than this machine: a cluster, another package.
NOT_RUN = {"answers": 1, "howto": 4, "migration": 8, "scale": 1}

# Data of which a smaller part runs the same code: (page, text there, text in its place).
SMALLER = [
    ("crf", "make_contacts(80", "make_contacts(40"),
    ("partial_labels", "make_contacts(60", "make_contacts(30"),
    ("segments", "make_citations(300", "make_citations(150"),
    ("start", "make_contacts(60", "make_contacts(16"),
]

BLOCK = re.compile(
    r"^\.\. code-block:: python\n"
    r"(?P<options>(?:    :.*\n)*)\n"
    r"(?P<body>(?:(?:    .*)?\n)+)",
    re.MULTILINE,
)


def blocks(text):
    """(options, code at the line where it stands) of each Python block."""
    for match in BLOCK.finditer(text):
        lines = [line[4:] for line in match["body"].splitlines()]
        above = text[: match.start("body")].count("\n")
        yield match["options"], "\n" * above + "\n".join(lines)


def with_code(page):
    return bool(BLOCK.search(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [p for p in PAGES if with_code(p)], ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_code_of_the_page_runs(page, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    names, left, text = {"__name__": "page"}, 0, page.read_text(encoding="utf-8")
    for _, whole, smaller in (row for row in SMALLER if row[0] == page.stem):
        assert whole in text
        text = text.replace(whole, smaller)
    for options, code in blocks(text):
        if "not-run" in options:
            left += 1
        elif "needs-" not in options:
            exec(compile(code, str(page), "exec"), names)
    pyplot.close("all")
    assert left == NOT_RUN.get(page.stem, 0)


# Of `crf_learn -c 5 -e 1e-9 template train.txt model` on the files of the example, CRF++ 0.59.
CRFPP_OBJECTIVE, CRFPP_FEATURES = 1.35291, 69


def test_the_example_beside_crfpp_has_its_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, names = DOCS / "migration.rst", {"__name__": "page"}
    text, _, _ = page.read_text(encoding="utf-8").partition("\nhmmlearn\n")
    for options, code in blocks(text):
        if "not-run" not in options:
            exec(compile(code, str(page), "exec"), names)
    model, X, y = names["model"], names["X"], names["y"]
    (command,) = re.findall(r"^    (sklseq train (?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert main(shlex.split(command.replace("\\\n", ""))[1:]) == 0
    trained = pickle.loads(Path("model").read_bytes())
    lines = Path("template").read_text(encoding="utf-8")
    given = {"templates": lines}  # the program reads the file
    assert trained[0].get_params() == model[0].get_params() | given
    assert trained[1].get_params() == model[1].get_params()
    weights = model[-1].coef_.size + model[-1].transition_.size
    model.set_params(crftagger__tol=1e-9).fit(X, y)
    assert weights == CRFPP_FEATURES
    assert model[-1].objective_ == pytest.approx(CRFPP_OBJECTIVE, abs=1e-5)  # digits printed


@pytest.mark.parametrize("package", ["aeon", "mlflow", "optuna", "sktime"])
@pytest.mark.filterwarnings("ignore")  # of the packages
def test_recipes_with_another_package(package, tmp_path, monkeypatch):
    """They need the first block of the page only."""
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    page, names = DOCS / "howto.rst", {"__name__": "page"}
    (_, first), *others = blocks(page.read_text(encoding="utf-8"))
    (recipe,) = [code for options, code in others if f"needs-{package}" in options]
    for code in (first, recipe):
        exec(compile(code, str(page), "exec"), names)


def test_blocks_are_found_where_they_stand():
    start = ".. code-block:: python\n\n"
    text = f"{start}    a = 1\n\n    b = 2\n\nText\n\n{start}    c = 3\n"
    found = [code for _, code in blocks(text)]
    assert [code.strip().splitlines() for code in found] == [["a = 1", "", "b = 2"], ["c = 3"]]
    assert found[1].splitlines()[10] == "c = 3"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_show_all_code_that_they_need(page):
    assert "testsetup::" not in page.read_text(encoding="utf-8")


# --- Names -----------------------------------------------------------------------------------


def public():
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            if not inspect.ismodule(getattr(importlib.import_module(module), name)):
                yield module, name


def named_in_api():
    """(module, name) of the entries of tables, and of the ``objects`` that are no functions."""
    module, names = "", set()
    for line in (DOCS / "api.rst").read_text(encoding="utf-8").splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"    \w+", line):
            names.add((module, line.strip()))
        else:
            names |= {(module, name) for name in re.findall(r"``(SCORERS|\w+_scorer)``", line)}
    return names


def things(names):
    """What the names stand for: one thing may be in two modules, and is documented once."""
    return {id(getattr(importlib.import_module(module), name)) for module, name in names}


def test_the_api_page_names_everything_public_and_nothing_else():
    named, everything = named_in_api(), set(public())
    assert named <= everything
    documented = things(named)
    assert not [where for where in everything if not things([where]) & documented]


# --- Docstrings ------------------------------------------------------------------------------

# Of numpydoc's validation: sections in order, parameters documented, all of them and in order;
# what is returned; a summary that ends with a full stop.
CODES = {"GL01", "GL02", "GL06", "GL07", "GL08", "PR01", "PR02", "PR03", "PR10"}
CODES |= {"RT01", "SS01", "SS03", "YD01"}
# Methods with the parameters of scikit-learn that everyone knows, in one line.
SHORT = {"PR01", "RT01"}


def subjects():
    """(name, object, codes) of functions, classes and methods."""
    for module, name in public():
        subject = getattr(importlib.import_module(module), name)
        if not (inspect.isclass(subject) or inspect.isfunction(subject)):
            continue
        # Fields of named tuples are documented as attributes.
        codes = CODES - {"PR01"} if hasattr(subject, "_fields") else CODES
        yield f"{module}.{name}", subject, codes
        for member in vars(subject) if inspect.isclass(subject) else ():
            if not member.startswith("_") and inspect.isfunction(getattr(subject, member)):
                yield f"{module}.{name}.{member}", getattr(subject, member), CODES - SHORT


def errors_of(subject):
    """(code, text): of the object, for a name is imported part by part, which builds each time."""
    docscrape = pytest.importorskip("numpydoc.docscrape")
    validate = pytest.importorskip("numpydoc.validate").validate
    return validate(docscrape.get_doc_object(subject))["errors"]


def test_docstrings_are_complete():
    found = list(subjects())
    assert len(found) > 300
    assert not [
        f"{name}: {code}: {text}"
        for name, subject, codes in found
        for code, text in errors_of(subject)
        if code in codes
    ]


def test_fields_of_named_tuples_are_documented():
    for module, name in public():
        subject = getattr(importlib.import_module(module), name)
        fields = getattr(subject, "_fields", ())
        missing = [field for field in fields if not re.search(rf"\b{field}\b", subject.__doc__)]
        assert not missing, (name, missing)


def test_an_incomplete_docstring_is_found(monkeypatch):
    from sklseq.metrics import span_f1

    monkeypatch.setattr(span_f1, "__doc__", span_f1.__doc__.replace("y_pred", "y_predicted"))
    assert {"PR01", "PR02"} <= {code for code, _ in errors_of(span_f1)}


# --- Links -----------------------------------------------------------------------------------


def resolves(target, module="sklseq"):
    """Whether a dotted name means something, as it stands or in the package."""
    for name in (target, f"{module}.{target}"):
        parts = name.split(".")
        try:
            thing = importlib.import_module(parts[0])
            for k, part in enumerate(parts[1:], 2):
                if not hasattr(thing, part):
                    importlib.import_module(".".join(parts[:k]))
                thing = getattr(thing, part)
        except (ImportError, AttributeError):
            continue
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_references_of_the_page_resolve(page):
    text = page.read_text(encoding="utf-8")
    roles = re.findall(r":(class|func|meth|mod|attr):`~?([\w.]+)`", text)
    assert not [name for _, name in roles if not resolves(name)]
    targets = re.findall(r":doc:`(?:[^`<]*<)?([\w/]+)>?`", text)
    for block in re.findall(r"^\.\. toctree::\n((?:    .*\n|\n)*)", text, re.MULTILINE):
        targets += re.findall(r"^    (\w[\w/]*)$", block, re.MULTILINE)
    examples = {f"auto_examples/{p.stem}" for p in (ROOT / "examples").glob("plot_*.py")}
    known = {p.stem for p in PAGES} | examples | {"auto_examples/index"}
    assert set(targets) <= known


def test_every_page_is_reached_from_the_first():
    seen, todo = set(), ["index"]
    while todo:
        page = todo.pop()
        if page in seen or not (DOCS / f"{page}.rst").exists():
            continue
        seen.add(page)
        text = (DOCS / f"{page}.rst").read_text(encoding="utf-8")
        for block in re.findall(r"^\.\. toctree::\n((?:    .*\n|\n)*)", text, re.MULTILINE):
            todo += re.findall(r"^    (\w+)$", block, re.MULTILINE)
    assert seen == {p.stem for p in PAGES}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_files_that_a_text_links_to_exist(name):
    # "../../actions" is where a forge draws the badge of a workflow, of whatever copy one reads.
    outside = r"https?:|#|\.\./\.\./actions/"
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(rf"\]\((?!{outside})([^)#]+)", text)
    assert not [link for link in links if not (ROOT / link).exists()]


def test_programs_that_the_manual_names_exist():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    programs = set(re.findall(r"\b((?:benchmarks|examples)/\w+\.py)", text))
    assert len(programs) > 5
    assert not [program for program in programs if not (ROOT / program).exists()]
