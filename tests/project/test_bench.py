"""The benchmark runs, and compares the same models."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pycrfsuite")


@pytest.fixture(scope="module")
def bench(load):
    return load("bench_crfsuite")


@pytest.fixture(scope="module")
def data(load):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SKLSEQ_DATA", raising=False)
        return load("_corpora").tagged_or_generated(n=30)


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
    X, y = (part[:12] for part in data[:2])
    templates = bench.crfsuite_templates()
    items = [bench.attributes_in_python(x, templates) for x in X]
    trainer, _ = bench.train_crfsuite(items, y, states, 140, tmp_path / "model")  # to 1e-5
    tagger = bench.our_tagger(states, tol=1e-6)
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
    bench.part_columns(True)
    assert [cells[5] for cells in load("_report").KEPT["columns"]["rows"]] == [100, 100]
    bench.part_gaps(True)
    assert max(cells[3] for cells in load("_report").KEPT["gaps"]["rows"]) <= 1
    load("_report").KEPT.clear()


def test_the_tables_of_the_margin_paper_are_made(load, tmp_path, monkeypatch, capsys):
    words = [f"w{k % 7}" for k in range(10)]
    spanish = "\n".join(f"{w} N {'B-x' if w == 'w3' else 'O'}" for w in words)
    english = "\n".join(f"{w}\t{'V' if w == 'w3' else 'N'}" for w in words)
    for folder, name, text in (
        ("conll2002", "esp.train.gz", spanish),
        ("ptb-wsj-sample", "train.tsv.gz", english),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(gzip.compress("\n\n".join([text] * 8).encode()))
    monkeypatch.setenv("SKLSEQ_DATA", str(tmp_path))
    bench = load("bench_hmsvm")
    monkeypatch.setattr("sys.argv", ["bench_hmsvm.py", "entities", "tagging", "--quick"])
    bench.main()
    rows = [line[2:].split(" | ") for line in capsys.readouterr().out.splitlines()]
    rows = [cells for cells in rows if cells[0] in bench.searches(True)]
    assert [cells[0] for cells in rows] == 2 * list(bench.searches(True))
    assert {cells[1] for cells in rows if cells[0].startswith(("CRF", "HM-SVM"))} == {"0.00"}


def test_which_estimator_is_measured_and_drawn(load, corpora, tmp_path, monkeypatch, capsys):
    bench = load("bench_which")
    (tmp_path / "_static").mkdir()
    argv = ["bench_which.py", "conll2000", "ncbi-disease", "--sequences", "9"]
    monkeypatch.setattr("sys.argv", [*argv, "--folder", str(tmp_path)])
    bench.main()
    out = capsys.readouterr().out
    assert "conll2000: chunks, English; 9 sequences" in out
    assert "ncbi-disease" in out.splitlines()[-1]  # without its data, it says so
    names, figures = (tmp_path / "which_estimator.csv").read_text().splitlines()
    assert names.startswith("corpus,z-score,averaged perceptron,HM-SVM,CRF")
    assert figures.startswith("conll2000,100.0 (")
    assert (tmp_path / "_static" / "which_estimator.png").stat().st_size > 1000


def test_transition_features_are_measured(load, corpora, monkeypatch, capsys):
    bench = load("bench_transitions")
    argv = ["bench_transitions.py", "cost", "scores", "peers", "--task", "conll2000"]
    absent = ["--wapiti", "no-such-command", "--crfpp", "none"]
    monkeypatch.setattr("sys.argv", [*argv, "--sentences", "16", *absent])
    bench.main()
    out = capsys.readouterr().out
    rows = [line[2:-2].split(" | ") for line in out.splitlines() if line.startswith("| ")]
    costs = [cells for cells in rows if cells[0] in ("none", *bench.PAIRS)]
    assert [cells[1] for cells in costs] == ["-", *["seen"] * 4, *["all"] * 4]
    assert all(int(seen[2]) < int(full[2]) for seen, full in zip(costs[1:5], costs[5:]))
    scores = [cells for cells in rows if cells[0] == "conll2000"]
    assert [int(cells[3]) > 0 for cells in scores] == [False, False, True, True, True, True]
    assert {cells[-1] for cells in scores} == {"100.00"}
    assert "peers: there is no command no-such-command or none; see --help" in out


def test_contacts_of_the_benchmark_are_spans(load):
    (X, y), _ = load("bench_transitions").contacts(2)
    assert [len(x["w"]) for x in X] == [len(labels) for labels in y]
    assert {label[:2] for labels in y for label in labels} == {"O", "I-"}


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


def test_spans_beside_labels(load, monkeypatch, capsys):
    bench = load("bench_spans")
    monkeypatch.setattr(bench, "ROUNDS", 1)
    bench.main(quick=True)
    assert capsys.readouterr().out.count("| predict |") == 2


def test_paths_beside_labels_of_rows(load, monkeypatch, capsys):
    bench = load("bench_decode")
    X = [np.eye(2)[[0, 1, 1]]] * 2
    y = [["B-a", "O", "O"]] * 2
    monkeypatch.setattr(bench, "data", lambda name, n: (X, y, X, y))
    monkeypatch.setattr(bench, "NAMES", ("conll2002", "ocr-letters"))
    bench.main(quick=True)
    assert capsys.readouterr().out.count("| 100.0 | 100.0 |") == 2 * 2 + 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_served_example(load, monkeypatch, tmp_path, capsys):
    bench = load("bench_serving")
    monkeypatch.setattr(bench, "CLIENTS", [1, 3])
    monkeypatch.setattr(bench, "SIZES", [1, 8])
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr("sys.argv", ["bench", "--seconds", "0.3", "--figure", f"{tmp_path}/a.png"])
    bench.main()
    assert capsys.readouterr().out.count("\n") == 2 + 4
    assert (tmp_path / "a.png").stat().st_size > 1000
