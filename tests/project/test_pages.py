"""Pages: pictures exist and have alternative texts, sentences of the first pages are short."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.rst"))
FIRST = ["index", "start", "guide"]
MAX_WORDS = 30


def pictures(page):
    """(file, options) of each image and plot of a page."""
    pattern = r"^ *\.\. (?:image|figure|plot)::(.*)\n((?: +:.*\n)*)"
    return re.findall(pattern, page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", [p for p in PAGES if pictures(p)], ids=lambda page: page.stem)
def test_pictures_exist_and_have_alternative_texts(page):
    for file, options in pictures(page):
        assert not file or (DOCS / file.strip()).exists(), file
        assert len(re.search(r":alt: (.*)", options)[1].split()) > 4, f"{file} needs :alt:"


# Chapters of the guide: each answers a question, with a picture.
CHAPTERS = [
    "answers", "crf", "evaluation", "features", "hmsvm", "long", "online", "partial_labels",
    "segments", "sklearn", "zscore",
]  # fmt: skip


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapters_open_with_a_question_and_have_a_picture_and_pitfalls(name):
    text = (DOCS / f"{name}.rst").read_text(encoding="utf-8")
    assert re.match(r"(?:\.\. _[\w-]+:\n\n)?.+\n=+\n\n\*\*.+\?\*\*\n\n", text)
    assert pictures(DOCS / f"{name}.rst")
    assert re.search(r"^(?:Pitfalls|Evaluation pitfalls|What does not work.*)$", text, re.MULTILINE)


def test_pictures_of_the_readme_exist_and_have_alternative_texts():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    images = re.findall(r"<img ([^>]*)>", text)
    assert len(images) == 2
    for image in images:
        assert len(re.search(r'alt="([^"]*)"', image)[1].split()) > 4
    for file in re.findall(r'(?:src|srcset)="([^"]*)"', text):
        assert (ROOT / file).exists(), file


def sentences(text):
    """Sentences of the prose: without code, tables, directives, roles and headings."""
    text = re.sub(r"\.\. container:: \w+\n", "", text)
    text = re.sub(r"^ *\.\. [\w:-]+::.*\n(?:(?: {3,}.*)?\n)*", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^.*\n[=-]{3,}\n", "\n", text, flags=re.MULTILINE)  # headings
    text = re.sub(r"^=+ +=+.*?^=+ +=+$\n\n", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r":\w+:`[^`]*`|``[^`]*``", "NAME", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\* )", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))


@pytest.mark.parametrize("name", FIRST)
def test_sentences_of_the_first_pages_are_short(name):
    text = (DOCS / f"{name}.rst").read_text(encoding="utf-8")
    found = list(sentences(text))
    assert len(found) > 10
    assert not [s for s in found if len(s.split()) > MAX_WORDS]


def test_a_long_sentence_is_found():
    long = "word " * 40
    assert any(len(s.split()) == 40 for s in sentences(f"Title\n=====\n\nShort one. {long}\n"))


def test_the_speed_in_alternative_texts_is_that_of_the_benchmark():
    data = json.loads((DOCS / "benchmarks.json").read_text(encoding="utf-8"))
    rows = data["parts"]["crfsuite"]["rows"]
    ours, theirs = zip(*(row[2:4] for row in rows if re.match("dual to.*1 thread", row[0])))
    text = (
        f"{ours[0]:.1f} and {ours[1]:.1f} seconds, CRFsuite in {theirs[0]:.0f} and {theirs[1]:.0f}"
    )
    for page in (DOCS / "index.rst", ROOT / "README.md"):
        assert text in page.read_text(encoding="utf-8"), page


# Phrases that say less than their standard terms; `docs/index.rst` and others had them once.
OLD = [
    "nothing else decides", "every recursion", "what became of", "how it deceives",
    "Training that goes on", "is there with its label", "chosen for neither", "in earnest",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_replaced_phrases_do_not_return(page):
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert not [phrase for phrase in OLD if phrase in text]
