"""The index of equations: every object that it names exists and cites its numbers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "equations.rst"
PAPERS = ("Narasimhan", "Ilić", "Altun", "Sarawagi", "Ricci")
KINDS = "Equation|Algorithm|Figure|Lemma|Proposition|Table"


def rows():
    text = PAGE.read_text(encoding="utf-8")
    for row in re.findall(
        r"^    \* - (.+)\n      - .+\n      - (.+)\n      - (.+)$", text, re.MULTILINE
    ):
        if row[1] != "object":
            numbers, name, file = (cell.strip("`") for cell in row)
            yield pytest.param(numbers, name, file, id=f"{name}: {numbers}")


def statement(source, name):
    """The docstring or the comment that belongs to an object, on one line."""
    start = 0
    if name != "opening":
        pattern = rf"^ *(?:def|class|cdef|cpdef)\b(?:[^(\n]*[ *])?{name}\b"
        match = re.search(pattern, source, re.MULTILINE)
        assert match, f"{name} is not defined"
        start = match.end()
    text = re.search(r'"""(.*?)"""|((?:^ *#.*\n)+)', source[start:], re.DOTALL | re.MULTILINE)[0]
    return " ".join(re.sub(r"^ *# ?", "", text, flags=re.MULTILINE).split())


def cited(numbers):
    """Every single citation: "Equations 4 and 5, §3" is Equation 4, Equation 5 and §3."""
    kind = ""
    for word in re.findall(rf"(?:{KINDS})|§[\d.]+\d|§\d|\d+", numbers):
        if word.startswith("§"):
            yield word
        elif word.isdigit():
            yield f"{kind} {word}"
        else:
            kind = word


@pytest.mark.parametrize(("numbers", "name", "file"), list(rows()))
def test_the_object_cites_the_number(numbers, name, file):
    folder = ROOT if file.startswith("tests/") else ROOT / "sklseq"
    text = statement((folder / file).read_text(encoding="utf-8"), name)
    for citation in cited(numbers):
        if citation.startswith("§"):
            pattern = rf"{re.escape(citation)}(?!\.?\d)"
        else:
            kind, number = citation.split()
            several = r"(?:\d+(?: \(\w+\))?(?:,| and| to) )*"  # 73 (start), 75 and 76 (recursion)
            pattern = rf"{kind}s? {several}{number}\b"
        assert re.search(pattern, text), f"{citation}: {text}"


@pytest.mark.parametrize("paper", PAPERS)
def test_what_cites_a_paper_is_in_the_index(paper):
    page = PAGE.read_text(encoding="utf-8")
    names = paper if paper != "Ilić" else "Ili[cć]"
    for path in sorted((ROOT / "sklseq").rglob("*")):
        if path.suffix in {".py", ".pyx", ".pxd"}:
            text = " ".join(path.read_text(encoding="utf-8").split())
            if re.search(rf"{names}[^.]*(?:Equation|Algorithm|Proposition)s? \d", text):
                assert path.relative_to(ROOT / "sklseq").as_posix() in page, path


def test_citations_are_read():
    assert list(cited("Algorithm 2, Equations 73, 75 and 76, §3.3.1")) == [
        "Algorithm 2",
        "Equation 73",
        "Equation 75",
        "Equation 76",
        "§3.3.1",
    ]
