"""The short examples, and those of a search and of a server on subsets, run."""

import http.client
import json
import os
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, datasets
from sklseq.datasets import make_citations
from sklseq.deployment import export
from sklseq.features import TokenFeatures

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
    monkeypatch.setenv("N_SENTENCES", "60" if data == "real" else "20")
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    scores = names["search"].cv_results_["mean_test_score"]
    assert len(scores) == 12
    assert 0.1 < scores.max() <= 1
    assert names["search"].best_score_ == scores.max() > scores.min()
    assert "span F1" in capsys.readouterr().out
    pyplot.close("all")


@pytest.mark.parametrize("name", ["first_model", "active_learning", "sensor_stream"])
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_short_examples_run_and_converge(name, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    names = runpy.run_path(str(EXAMPLE.parent / f"plot_{name}.py"), run_name="__main__")
    if name == "active_learning":  # the least certain references are worth more than random ones
        assert names["curves"]["least certain"][3, 1] > names["curves"]["at random"][3, 1] + 0.02
    if name == "sensor_stream":
        assert names["model"].score(names["X"][20:], names["y"][20:]) > names["alone"] + 0.2
    assert capsys.readouterr().out
    pyplot.close("all")


# --- Text of corpora -----------------------------------------------------------------------------
# Its terms forbid to publish it, so the manual, which shows what examples print and draw, has none.

FETCHING = [p for p in sorted(EXAMPLE.parent.glob("plot_*.py")) if "fetch_conll" in p.read_text()]


@pytest.mark.parametrize("example", FETCHING, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_examples_on_downloaded_corpora_show_no_text(example, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    X, y = make_citations(1100, random_state=0)
    X = [{"w": [f"§{word}" for word in words[:3]]} for words in X]
    for name in ("fetch_conll2000", "fetch_conll2002"):
        monkeypatch.setattr(datasets, name, lambda **kwargs: (X, [labels[:3] for labels in y]))
    monkeypatch.delenv("SKLSEQ_DATA", raising=False)
    runpy.run_path(str(example), run_name="__main__")
    out = capsys.readouterr().out
    drawn = [text.get_text() for n in pyplot.get_fignums() for text in texts_of(pyplot.figure(n))]
    assert "CoNLL" in " ".join([out, *drawn])  # the replaced corpus was used
    assert "§" not in " ".join([out, *drawn])
    pyplot.close("all")


def texts_of(figure):
    return figure.findobj(lambda artist: hasattr(artist, "get_text"))


def test_the_manual_does_not_read_corpora_of_the_machine():
    settings = (EXAMPLE.parents[1] / "docs" / "conf.py").read_text(encoding="utf-8")
    assert 'os.environ.pop("SKLSEQ_DATA", None)' in settings


# --- A served model -------------------------------------------------------------------------------

FOLDER = EXAMPLE.parent


@pytest.fixture
def served(tmp_path):
    """The parts of ``tag_server.py``, a server that runs, and the decoder behind it."""
    words = [["Ann", "met", "Bob"], ["she", "left"], ["Bob", "left", "Ann"]]
    labels = [["N", "O", "N"], ["O", "O"], ["N", "O", "N"]]
    model = make_pipeline(TokenFeatures(), CRFTagger()).fit(words, labels)
    export(model, tmp_path / "model.sklseq")
    parts = runpy.run_path(str(FOLDER / "tag_server.py"))
    with parts["new_server"](tmp_path / "model.sklseq") as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield parts, server
        server.shutdown()
        thread.join()


def ask(connection, body, path="/tag"):
    connection.request("POST", path, body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_requests_are_answered_alike_alone_and_together(served):
    _, server = served
    texts = [["Ann"], ["Bob", "left"], ["she", "met", "Bob"], []]
    expected = {json.dumps(x): server.decoder.predict([x]) for x in texts}

    def client(number):
        with closing(http.client.HTTPConnection("127.0.0.1", server.server_port)) as connection:
            for k in range(10):
                x = texts[(k + number) % len(texts)]
                wrong = (k + number) % 5 == 0
                status, answer = ask(connection, "[[3]]" if wrong else json.dumps([x]))
                assert status == (400 if wrong else 200)
                assert wrong or json.loads(answer) == expected[json.dumps(x)]
            assert ask(connection, "{")[0] == 400
            assert ask(connection, "[]") == (200, b"[]")
            assert ask(connection, "[]", "/other")[0] == 404

    with ThreadPoolExecutor(6) as clients:
        list(clients.map(client, range(6)))


def test_waiting_requests_are_one_call(served):
    parts, _ = served
    calls, first = [], threading.Event()

    def predict(sequences):
        calls.append(len(sequences))
        if len(calls) == 1:
            first.wait(10)
        return [f"label of {x}" for x in sequences]

    batches = parts["Batches"](predict, most=4)
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(batches, [k]) for k in range(8)]
        while batches.waiting.qsize() < 7:
            pass
        first.set()
        assert [a.result() for a in answers] == [[f"label of {k}"] for k in range(8)]
    assert calls == [1, 4, 3]


def test_the_example_of_a_server_runs(monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    monkeypatch.setenv("SECONDS", "0.05")
    runpy.run_path(str(FOLDER / "plot_serving.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert float(out[:5]) >= 0.995  # of the labels as by predict
    assert "16 clients" in out
    pyplot.close("all")
