"""The benchmark runs, and compares the same models."""

import gzip
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


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """A folder of data that holds 40 short sentences of two words."""
    text = "\n\n".join(["Ada A B-x\nsleeps V O", "the D O\nEve E B-x"] * 20)
    (tmp_path / "conll2000").mkdir()
    for name in ("train.txt.gz", "test.txt.gz"):
        (tmp_path / "conll2000" / name).write_bytes(gzip.compress(text.encode()))
    monkeypatch.setenv("SKLSEQ_DATA", str(tmp_path))


def test_default_runs_have_one_objective(load, corpora, monkeypatch):
    bench = load("bench_defaults")
    monkeypatch.setattr(bench.gc, "collect", lambda: 0)  # slow among the objects of a test run
    data = bench.task("conll2000", False)
    ours, l1, l2 = bench.Ours(0.1, 0.2), 0.1, 0.2
    ours.fit(data.X, data.y)
    found = bench.objective(ours, l1, l2, data.X, data.y)
    np.testing.assert_allclose(found, ours.model[-1].objective_, rtol=1e-6)
    assert bench.score(data.y_test, ours.model.predict(data.X_test)) == 100
    pytest.importorskip("sklearn_crfsuite")
    theirs = bench.Theirs(l1, l2)
    theirs.fit(data.X, data.y)
    found = bench.objective(theirs, l1, l2, data.X, data.y)
    loss = theirs.model.training_log_.iterations[-1]["loss"]
    np.testing.assert_allclose(found, loss, rtol=1e-4)
    bench.OPTIONS.data, bench.OPTIONS.rounds = ["conll2000"], 1
    bench.part_defaults(True)
    bench.part_tagging(True)
    bench.part_gaps(True)
    assert max(cells[3] for cells in load("_report").KEPT["gaps"]["rows"]) <= 1
    load("_report").KEPT.clear()


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
    assert page.rstrip().endswith(
        ".. image:: x.png\n   :alt: Figure of the measurements in part answers of this report."
    )
