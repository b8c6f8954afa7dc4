"""The benchmark runs, and compares the same models."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pycrfsuite")
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def load():
    """Imports programs of the folder, which import one another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield importlib.import_module


@pytest.fixture(scope="module")
def bench(load):
    return load("bench_crfsuite")


@pytest.fixture
def data(bench, monkeypatch):
    monkeypatch.delenv("SKLSEQ_DATA", raising=False)
    return bench.load(30)


def test_attributes_are_the_same(bench, data):
    X = data[0]
    features = bench.our_features()
    rows = features.fit_transform(X)
    names = features.get_feature_names_out()
    templates = bench.crfsuite_templates()
    theirs = [item for x in X for item in bench.attributes_in_python(x, templates)]
    ours = np.split(names[rows.rows.indices], rows.rows.indptr[1:-1])
    assert [sorted(item) for item in ours] == [sorted(item) for item in theirs]


@pytest.mark.parametrize("states", ["observed", "all"])
def test_objectives_are_the_same(bench, data, states, tmp_path):
    X, y, _, _ = data
    templates = bench.crfsuite_templates()
    items = [bench.attributes_in_python(x, templates) for x in X]
    trainer, _ = bench.train_crfsuite(items, y, states, 200, tmp_path / "model")
    tagger = bench.our_tagger(states, tol=1e-8)
    tagger.fit(bench.our_features().fit_transform(X), y)
    theirs = trainer.logparser.iterations[-1]["loss"]
    np.testing.assert_allclose(tagger.objective_, theirs, rtol=1e-4)


def test_figures_become_a_page(load, tmp_path, capsys):
    report = load("_report")
    row = report.table("answers", "who", "seconds", "good")
    row("one", np.float64(12345.678), np.True_)
    row("two", 0.5, False)
    report.KEPT["answers"]["what"] = "What it says."
    report.keep(tmp_path / "x.json")
    report.write_page(tmp_path / "x.json", tmp_path / "x.rst", {"answers": "x.png"})
    assert "| one | 12,346 | yes |" in capsys.readouterr().out
    kept = json.loads((tmp_path / "x.json").read_text())
    assert kept["parts"]["answers"]["rows"] == [["one", 12345.678, True], ["two", 0.5, False]]
    page = (tmp_path / "x.rst").read_text()
    assert "   * - one\n     - 12,346\n     - yes\n   * - two\n     - 0.5\n     - no\n" in page
    assert "What it says." in page
    assert page.rstrip().endswith(".. image:: x.png\n   :alt: answers")
