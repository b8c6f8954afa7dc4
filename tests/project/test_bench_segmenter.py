"""The benchmark of segmenters compares equal things; the example of references runs."""

import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench():
    path = ROOT / "benchmarks" / "bench_segmenter.py"
    spec = importlib.util.spec_from_file_location("bench_segmenter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def task(bench, tmp_path, monkeypatch):
    monkeypatch.delenv("SKLSEQ_DATA", raising=False)
    (task,) = bench.tasks(None, True, tmp_path).values()
    return bench.Task(task.X[:60], task.y[:60], task.lexicons, 12)


def test_succinct_and_full_find_the_same(bench, task):
    # No field of these references is longer than L, so both are the same model.
    assert max(j - i for y in task.y for i, j, _ in bench.labels_to_segments(y)) <= 12
    models = {
        "full": lambda: bench.Segment(task, 0.1, 12, full=True),
        "succinct": lambda: bench.Segment(task, 0.1, 12),
        "sequence": lambda: bench.Sequence(task, 0.1),
    }
    found = {name: of[0] for name, of in bench.compare(task, models, 1).items()}
    assert found["full"].ratio == found["succinct"].ratio > 5
    assert found["full"].f1 == pytest.approx(found["succinct"].f1, abs=3)  # longer ones may win
    assert min(result.f1 for result in found.values()) > 60


def test_tables_print_all_methods(bench, task, capsys):
    bench.table1({"generated": task}, 0.1, 1)
    out = capsys.readouterr().out
    for method in ("SequenceBCEU", "SegmentOpt m=1", "Segment L=12", "SegmentOpt m=12"):
        assert re.search(rf"^{method} +\d", out, re.MULTILINE)
    assert "times faster than Segment" in out


def test_too_long_segments_are_cut(bench):
    assert list(bench.cut([(0, 5, "a"), (5, 6, "b")], 2)) == [
        (0, 2, "a"), (2, 4, "a"), (4, 5, "a"), (5, 6, "b"),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_example_runs(monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.setenv("N_REFERENCES", "30")
    names = runpy.run_path(str(ROOT / "examples" / "plot_citations.py"), run_name="__main__")
    assert "span F1" in capsys.readouterr().out
    scores = [
        names["span_f1"](names["test"][1], names["labels_of"](model, names["test"][0]))
        for model in names["models"].values()
    ]
    assert np.min(scores) > 0.8
    pyplot.close("all")
