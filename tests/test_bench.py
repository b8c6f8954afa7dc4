"""The benchmark runs, and compares the same models."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pycrfsuite")
PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "bench_crfsuite.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_crfsuite", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
