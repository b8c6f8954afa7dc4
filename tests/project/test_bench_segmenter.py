"""The benchmark of segmenters compares equal things; the example of references runs."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bench(load):
    return load("bench_segmenter")


@pytest.fixture
def task(bench, tmp_path, monkeypatch):
    monkeypatch.delenv("SKLSEQ_DATA", raising=False)
    (task,) = bench.tasks(None, True, tmp_path).values()
    return bench.Task(task.X[:60], task.y[:60], task.lexicons, 12)


def test_without_a_limit_succinct_and_full_are_one_model(bench, task):
    # No reference is longer than L, so no segment is: the same predictions, not similar ones.
    longest = max(map(len, task.X))
    task = task._replace(X=task.X[:40], y=task.y[:40], longest=longest)

    def precise(**form):
        segment = bench.Segment(task, 0.1, longest, **form)
        segment.model.set_params(tol=1e-8)  # both forms end at one optimum, on different ways
        return segment

    models = {"full": lambda: precise(full=True), "succinct": precise}
    full, succinct = (of[0] for of in bench.compare(task, models, 1).values())
    assert full[:3] == succinct[:3]
    assert full.ratio == succinct.ratio > 5
    assert full.f1 > 75
    assert full.extraction == succinct.extraction > 0  # features are extracted once for both


class Answers:
    """A model that notes what it is trained on, and predicts the labels that it is told."""

    class Features:
        def get_params(self, deep):
            return {}

        def fit_transform(self, X):
            return X

        transform = fit_transform

    def __init__(self, labels):
        self.labels, self.features = labels, self.Features()
        self.model = SimpleNamespace(coef_=np.zeros((2, 3)))

    def fit(self, X, y):
        self.seen = X, y

    def predict(self, X):
        self.asked = X
        return [self.labels[" ".join(x)] for x in X]

    def ratio(self, seen, longest):
        assert seen is self.seen[0]
        return longest


def test_scores_are_of_references_that_training_has_not_seen(bench, task):
    right = {" ".join(x): y for x, y in zip(task.X, task.y)}
    wrong = {x: ["O"] * len(y) for x, y in right.items()}
    models = {"right": Answers(right), "wrong": Answers(wrong)}
    found = bench.compare(task, {name: lambda m=m: m for name, m in models.items()}, 1)
    assert found["right"][0][:3] == (100, 100, 100)
    assert found["wrong"][0][:3] == (0, 0, 0)
    assert found["right"][0].ratio == task.longest
    seen, labels = models["right"].seen
    assert len(seen) == pytest.approx(0.3 * len(task.X), abs=1)
    assert [right[" ".join(x)] for x in seen] == labels
    words = [sorted(map(tuple, part)) for part in (seen, models["right"].asked, task.X)]
    assert sorted(words[0] + words[1]) == words[2]


def test_the_sequence_model_has_labels_of_begin_continue_end_unique(bench, task):
    model = bench.Sequence(task, 0.1)
    model.fit(model.features.fit_transform(task.X), task.y)
    assert {label[:1] for label in model.model.classes_} == {"B", "E", "I", "O", "S"}
    iobes = bench.as_iobes([["B-a", "I-a", "I-a", "O", "B-a"]])
    assert iobes == [["B-a", "I-a", "E-a", "O", "S-a"]]


def test_tables_print_all_methods(bench, task, capsys):
    bench.table1({"generated": task}, 0.1, 1)
    out = capsys.readouterr().out
    for method in ("SequenceBCEU", "SegmentOpt m=1", "Segment L=12", "SegmentOpt m=12"):
        assert re.search(rf"^{method} +\d", out, re.MULTILINE)
    assert "times faster than Segment" in out


def test_curves_calibration_and_reranking_print_all_models(bench, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SKLSEQ_DATA", raising=False)
    monkeypatch.setattr(bench, "SIZES", (5, 10, 200))  # 200: fewer others than that are left
    monkeypatch.setattr(bench, "CALIBRATED", (10,))
    (task,) = bench.tasks(None, True, tmp_path).values()
    task = bench.Task(task.X[:30], task.y[:30], task.lexicons, 12)
    bench.curves({"some": task}, 0.1, 2, figure=tmp_path / "curves.png")
    told = capsys.readouterr().out.splitlines()
    assert told[1].split()[-2:] == ["5", "10"]
    f1 = {line[:32].strip(): re.findall(r"[+-]?\d+\.\d(?= ±|  |$)", line) for line in told[2:]}
    best = max(float(f1[name][0]) for name in f1 if name.startswith("tagger"))
    gain = float(f1["segmenter - best tagger"][0])
    assert gain == pytest.approx(float(f1["segmenter"][0]) - best, abs=0.11)
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    bench.calibration({"some": task}, 0.1, 1)
    assert capsys.readouterr().out.count("10 references, l2=") == 4
    bench.rerank({"some": task}, 0.1, 1)
    assert re.search(r"segmenter .*\nreranked ", capsys.readouterr().out)


def test_defaults_are_among_the_settings_that_are_compared(bench, task, capsys):
    task = bench.Task(task.X[:40], task.y[:40], task.lexicons, 12)  # about 200 tokens in 10 of them
    bench.defaults({"some": task}, 0.1, 1)
    told = capsys.readouterr().out.splitlines()
    assert told[1].startswith("some: 10 sequences, ")
    figures = {line[:20].strip(): line[20:].split() for line in told[2:]}
    f1, error = ({kind: of[k] for kind, of in figures.items() if len(of) > k} for k in (0, 2))
    assert len(f1) == 8
    assert len(error) == 7  # not of the tagger
    assert f1["defaults"] == f1["min_count=2, l2=0.1"]
    assert error["defaults"] == error["min_count=2, l2=0.1"]
    assert len(set(error.values())) > 4


def test_too_long_segments_are_cut(bench):
    assert list(bench.cut([(0, 5, "a"), (5, 6, "b")], 2)) == [
        (0, 2, "a"),
        (2, 4, "a"),
        (4, 5, "a"),
        (5, 6, "b"),
    ]


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


def test_hidden_segments_that_touch_are_one_stretch_and_known_runs_lie_between(bench):
    class Draws:
        def __init__(self, *draws):
            self.draws = iter(draws)

        def random(self):
            return next(self.draws)

    segments = [(0, 2, "a"), (2, 3, "b"), (3, 5, "a"), (6, 7, "b"), (7, 8, "a")]
    some = bench.hide(segments, 0.5, Draws(0.1, 0.9, 0.9, 0.9, 0.1))
    assert some == [(0, 2, "a"), (2, 5, None), (6, 7, None), (7, 8, "a")]
    X, y = bench.known_runs(["abcdefgh"], [some])
    assert X == ["ab", "f", "h"]
    assert y == [[(0, 2, "a")], [], [(0, 1, "a")]]
