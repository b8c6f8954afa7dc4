"""The Python of the README runs, block after block, in one namespace."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks(text):
    """The Python blocks of a Markdown text, each behind as many blank lines as stand before it."""
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield "\n" * (text[: match.start(1)].count("\n")) + match[1]


def test_readme_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklseq.estimators.crf.crf_tagger")
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    assert "make_contacts(80" in text
    code = list(blocks(text.replace("make_contacts(80", "make_contacts(32")))  # the same code runs
    assert len(code) >= 3
    names = {"__name__": "readme"}
    for block in code:
        exec(compile(block, str(README), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert float(printed[0]) > 0.8
    assert len(names["labels"]) == 8
    assert "best_params_" in vars(names["search"])
