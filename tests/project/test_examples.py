"""The example of a search runs, on a subset."""

import os
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plot_ner_search.py"
DATA = Path(os.environ.get("SKLSEQ_DATA", "no data")) / "conll2002"


@pytest.mark.parametrize("data", ["generated", "real"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_search_runs(data, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    if data == "real" and not DATA.is_dir():
        pytest.skip("SKLSEQ_DATA names no folder that holds conll2002")
    if data == "generated":
        monkeypatch.delenv("SKLSEQ_DATA", raising=False)
    monkeypatch.setenv("N_SENTENCES", "120" if data == "real" else "20")
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    scores = names["search"].cv_results_["mean_test_score"]
    assert len(scores) == 12
    assert 0.1 < scores.max() <= 1
    assert names["search"].best_score_ == scores.max() > scores.min()
    assert "span F1" in capsys.readouterr().out
    pyplot.close("all")
