"""Commands of ``sklseq``: the answers of the estimators; pipes, errors and exit codes."""

import errno
import gzip
import io
import os
import pickle
import re
import shlex
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import PredefinedSplit
from sklearn.pipeline import make_pipeline

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    SemiCRFSegmenter,
    ZScoreTagger,
    labels_to_segments,
    segments_to_labels,
)
from sklseq.__main__ import _sparsify, main
from sklseq._lib.drafts import draft
from sklseq.datasets import make_contacts, read_conll, write_conll
from sklseq.datasets._conll_batches import conll_batches
from sklseq.deployment import input_columns
from sklseq.features import (
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
    column_features,
)
from sklseq.inspection import feature_names, spans
from sklseq.metrics import sequence_accuracy, span_report, token_accuracy

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
TEMPLATES = "# words\nU00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\nU02:\u2028x:%x[0,1]\n\nB\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Column files of words, line starts and labels in IOB2; a template file; two models."""
    folder = tmp_path_factory.mktemp("files")
    X, y = make_contacts(24, random_state=0)
    y = [["O" if label == "NOTCONTACT" else f"I-{label}" for label in labels] for labels in y]
    write_conll(folder / "train.txt", X[:16], y[:16])
    write_conll(folder / "test.txt.xz", X[16:], y[16:])
    write_conll(folder / "plain.txt", X[16:])
    write_conll(folder / "words.txt", [{"w": x["w"]} for x in X[:16]], y[:16])
    (folder / "templates").write_text(TEMPLATES)
    train = ["train", "--set", "max_iter=20", "-m"]
    assert main([*train, f"{folder}/two", "--columns", "w,newline", f"{folder}/train.txt"]) == 0
    words = [*train, f"{folder}/one", "--export", f"{folder}/one.sklseq", "--columns", "w"]
    assert main([*words, "--features", "TokenFeatures", f"{folder}/words.txt"]) == 0
    (folder / "bad").write_text("U:%x[0,0]\nU:%y\n")
    (folder / "latin").write_bytes(b"a\nna\xefve\n")
    (folder / "utf16").write_bytes("a O\n".encode("utf-16"))
    (folder / "tokens.txt").write_text("a\nb\n")
    (folder / "comment").write_text("# names and more\n" + (folder / "words.txt").read_text())
    (folder / "commas").write_text("a,O\nb,O\n")
    (folder / "tab_first").write_text("a\tO\nb O\n")
    (folder / "empty").write_text("\n\n")
    (folder / "text").write_text("Ann sings in New York .\n")
    (folder / "ragged").write_text("Ann sings in New York .\nBob rains .\n")
    margin = make_pipeline(TemplateFeatures(columns=["w", "newline"]), HMSVMTagger(max_iter=2))
    (folder / "margin").write_bytes(pickle.dumps(margin.fit(X, y)))
    segments = make_pipeline(SegmentFeatures(columns="w", max_length=4), SemiCRFSegmenter(tol=0.1))
    triples = [labels_to_segments(labels) for labels in y[:6]]
    (folder / "segments").write_bytes(
        pickle.dumps(segments.fit([{"w": x["w"]} for x in X[:6]], triples))
    )
    return folder


@pytest.fixture
def run(files, monkeypatch, capfdbinary):
    """Run a command in the folder of the files: (exit code, standard output, errors)."""

    def run(command, stdin=b"", encoding="utf-8"):
        monkeypatch.chdir(files)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(shlex.split(command))
        out, err = capfdbinary.readouterr()
        return (code, out.decode(encoding), err.decode()) if encoding else (code, out, err)

    return run


def read(files, name, columns=("w", "newline")):
    return read_conll(files / name, columns=list(columns))


def labels_of(text):
    return read_conll(io.StringIO(text))[1]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert_array_equal(a, b)


# --- The answers of the estimators ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ("", lambda: make_pipeline(column_features(["w", "newline"]), CRFTagger())),
        (
            "--features TemplateFeatures --set features__min_count=2",
            lambda: make_pipeline(
                TemplateFeatures(columns=["w", "newline"], min_count=2), CRFTagger()
            ),
        ),
        (
            "--templates templates --set features__boundary=mark --set decode=marginal",
            lambda: make_pipeline(
                TemplateFeatures(TEMPLATES, columns=["w", "newline"], boundary="mark"),
                CRFTagger(decode="marginal"),
            ),
        ),
        (
            "--features TokenFeatures --set features__before=2",
            lambda: make_pipeline(
                WindowFeatures(TokenFeatures(columns=["w"]), before=2), CRFTagger()
            ),
        ),
        (
            "--templates templates --tagger ZScoreTagger",
            lambda: make_pipeline(
                TemplateFeatures(TEMPLATES, columns=["w", "newline"]), ZScoreTagger()
            ),
        ),
        (
            "--tagger HMSVMTagger --set loss=zero_one --set random_state=0 --set max_iter=5",
            lambda: make_pipeline(
                column_features(["w", "newline"]),
                HMSVMTagger(loss="zero_one", random_state=0, max_iter=5),
            ),
        ),
    ],
)
def test_trained_and_tagged_as_by_the_estimators(files, run, options, model):
    assert run(f"train -m m --columns w,newline {options} train.txt") == (0, "", "")
    expected = model().fit(*read(files, "train.txt"))
    X, y = read(files, "test.txt.xz")
    code, tagged, err = run("tag -m m test.txt.xz")
    assert (code, err) == (0, "")
    assert_same(labels_of(tagged), expected.predict(X))
    read_back = read_conll(io.StringIO(tagged), columns=["w", "newline", "true"])[0]
    assert_same([x["true"] for x in read_back], y)
    assert repr(pickle.loads((files / "m").read_bytes())[-1]) == repr(expected[-1])


def test_a_development_set_stops_training(files, run):
    command = "train -m m --columns w,newline --set l2=0.01 --dev test.txt.xz train.txt"
    assert run(command)[0] == 0
    (X, y), (X_dev, y_dev) = read(files, "train.txt"), read(files, "test.txt.xz")
    split = PredefinedSplit([-1] * len(X) + [0] * len(X_dev))
    tagger = CRFTagger(l2=0.01, early_stopping=True, validation_fraction=split)
    expected = make_pipeline(column_features(["w", "newline"]), tagger)
    expected.fit(X + X_dev, y + y_dev)
    model = pickle.loads((files / "m").read_bytes())
    assert_array_equal(model[-1].densify().coef_, tagger.coef_)
    assert model.score(X_dev, y_dev) == max(tagger.validation_scores_)


@pytest.mark.parametrize(("n_values", "times"), [(100, 20), (101, 20), (100, 19), (2, 30)])
def test_few_values_that_occur_often_are_symbols(files, run, n_values, times):
    symbols = [f"{k}a" for k in range(n_values)] * times
    X = [{"c0": symbols[k : k + 60]} for k in range(0, len(symbols), 60)]
    y = [["odd" if int(s[:-1]) % 2 else "even" for s in x["c0"]] for x in X]
    write_conll(files / "symbols", X, y)
    code, _, err = run("train -v -m m --set max_iter=2 symbols")
    features = pickle.loads((files / "m").read_bytes())[0]
    are_symbols = n_values <= 100 and times >= 20
    assert (code, isinstance(features, TemplateFeatures)) == (0, are_symbols)
    assert f"Sequences: {len(X)}; tokens: {len(symbols)}; labels: 2; columns: c0.\n" in err
    assert ("symbols" if are_symbols else "words") in err.split("\n")[1]


def test_measurements_are_no_words(files, run):
    X = [{"x": [f"{k / 7:.4f}" for k in range(s, s + 40)], "w": ["a"] * 40} for s in (0, 40, 80)]
    write_conll(files / "numbers", X, [["low", "high"] * 20] * 3)
    warnings.simplefilter("always")
    code, _, err = run("train -m m --columns x,w numbers")
    assert (code, err.count("\n")) == (0, 1)
    assert "Column x holds 120 different numbers; each is read as a word" in err
    for x in X:
        x["v"], x["u"] = x["x"], x["x"][::-1]
    write_conll(files / "numbers", X, [["low", "high"] * 20] * 3)
    code, _, err = run("train -m m numbers")
    assert (code, err.count("\n")) == (0, 1)
    assert "Column c0 holds 120 different numbers, and so do columns c2, c3; each" in err
    for x in X:
        x["x"][3] = "n/a"
        del x["v"], x["u"]
    write_conll(files / "numbers", X, [["low", "high"] * 20] * 3)
    assert run("train -m m --columns x,w numbers") == (0, "", "")


def test_labels_in_the_first_column_are_noticed(files, run):
    words = [f"w{k}" for k in range(120)]
    write_conll(files / "first", [{"l": ["A", "B"] * 60}], [words])
    warnings.simplefilter("always")
    _, _, err = run("train -m m --set max_iter=2 first")
    assert "The last column of first, that of labels, has 120 different values at 120 tokens" in err


@pytest.mark.parametrize("separator", ["'\\t'", "tab", "'\t'"])
def test_names_of_tabs(files, run, separator):
    (files / "tabs").write_text("New York\tB-LOC\nis\tO\n\n\tO\nhere\tO\n")
    code, _, err = run(f"train -v -m m --separator {separator} tabs")
    assert code == 0
    assert "Sequences: 2; tokens: 4; labels: 2; columns: c0." in err


def test_column_files_with_labels_and_without(run):
    with_labels, without = run("tag -m two test.txt.xz")[1], run("tag -m two plain.txt")[1]
    assert_same(labels_of(with_labels), labels_of(without))
    assert len(without.split("\n")[0].split()) == 3


def test_pipes_and_compressed_files(files, run):
    train = (files / "train.txt").read_bytes()
    assert run("train -m piped --columns w,newline --set max_iter=20", train)[0] == 0
    plain = (files / "plain.txt").read_bytes()
    tagged = run("tag -m piped", gzip.compress(plain))[1]
    assert tagged == run("tag -m two plain.txt")[1]


def test_text_has_a_sequence_a_line(files, run):
    X, _ = read(files, "words.txt", ["w"])
    text = "\n\n".join(" ".join(x["w"]) for x in X)
    expected = pickle.loads((files / "one").read_bytes()).predict(X)
    for model in ("one", "one.sklseq"):
        assert_same(labels_of(run(f"tag -m {model} --text", text.encode())[1]), expected)
        lines = run(f"tag -m {model} --text --labels", text.encode())[1].split("\n")
        assert_same([line.split() for line in lines[:-1:2]], expected)
        assert set(lines[1::2]) == {""}


def test_text_may_be_compressed_or_in_any_encoding(files, run):
    text = "Call Mary Sm\xefth\nFax: 555-1234\n"
    expected = run("tag -m one.sklseq --text --labels", text.encode())
    assert run("tag -m one.sklseq --text --labels", gzip.compress(text.encode())) == expected
    (files / "wide").write_bytes(text.encode("utf-16"))
    found = run("tag -m one.sklseq --text --labels --encoding utf-16 wide", encoding="utf-16")
    assert found == expected


def test_text_is_answered_while_it_is_written(files, run, monkeypatch):
    class Slow(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(5)  # less than a word

    text = "Call Mary Sm\xefth\nFax: 555-1234".encode()
    whole = run("tag -m one.sklseq --text", text)
    monkeypatch.setattr(io, "BytesIO", Slow)
    assert run("tag -m one.sklseq --text", text) == whole
    assert whole[0] == 0


def test_evaluation_is_that_of_the_metrics(files, run):
    X, y = read(files, "test.txt.xz")
    predicted = pickle.loads((files / "two").read_bytes()).predict(X)
    code, out, _ = run("evaluate -m two test.txt.xz")
    assert code == 0
    assert out.startswith(span_report(y, predicted, digits=4))
    assert f"sequence accuracy {sequence_accuracy(y, predicted):.4f}" in out
    tagged = run("tag -m two test.txt.xz")[1]
    assert run("evaluate", tagged.encode()) == (0, out, "")


def test_labels_that_are_no_spans_have_accuracies_alone(run):
    _, out, _ = run("evaluate", b"a DT NN\nb NN NN\n")
    accuracy = token_accuracy([["DT", "NN"]], [["NN", "NN"]])
    assert out == f"token accuracy    {accuracy:.4f}\nsequence accuracy 0.0000\n"


@pytest.mark.parametrize("tagger", ["CRFTagger", "HMSVMTagger", "ZScoreTagger"])
def test_inspect_lists_weights(files, run, tagger):
    run(f"train -m seen --templates templates --tagger {tagger} --set max_iter=3 train.txt")
    code, out, _ = run("inspect -m seen -n 3")
    assert code == 0
    assert out.startswith(f"# {tagger} with ")
    assert len(re.findall(r"^ +-?\d+\.\d{4}  \S+  \S", out, re.MULTILINE)) == 6


@pytest.mark.parametrize("tagger", ["CRFTagger", "HMSVMTagger", "SemiCRFSegmenter"])
def test_inspect_lists_weights_of_transition_features(files, run, tagger):
    (files / "pairs").write_text("U:%x[0,0]\n*:%x[-1,0]\n")
    templates = "--templates pairs"
    if tagger == "SemiCRFSegmenter":
        templates = "--set features__transition_features=^start:"
    assert run(f"train -m seen {templates} --tagger {tagger} --set max_iter=3 words.txt")[0] == 0
    code, out, _ = run("inspect -m seen -n 3")
    assert code == 0
    _, heading, listed = out.partition("\n## Largest weights of transition features\n\n")
    model = pickle.loads((files / "seen").read_bytes())
    names = feature_names(model)
    expected = [
        f"{weight:10.4f}  {before}  {label}  {name}"
        for weight, before, label, name in model[-1].top_transition_features(3, feature_names=names)
    ]
    assert heading
    assert listed.splitlines() == expected
    assert len(expected) == 3
    assert run("train -m seen --set max_iter=3 words.txt")[0] == 0
    assert "of transition features" not in run("inspect -m seen -n 3")[1]


def test_confidence_is_the_probability_of_the_label(run, files):
    X, _ = read(files, "test.txt.xz")
    model = pickle.loads((files / "two").read_bytes())
    code, out, _ = run("tag -m two --confidence test.txt.xz")
    assert code == 0
    rows = [line.split() for line in out.splitlines() if line]
    classes = model.classes_.tolist()
    for row, p in zip(rows, np.concatenate(model.predict_proba(X)), strict=True):
        assert row[-3] == f"{p[classes.index(row[-1])]:.4f}"
    exported = run("tag -m one.sklseq --confidence words.txt")
    assert exported == run("tag -m one --confidence words.txt")
    assert exported[0] == 0


def test_confidence_of_segments_is_that_of_the_whole_segment(run, files):
    X, _ = read(files, "words.txt", ["w"])
    model = pickle.loads((files / "segments").read_bytes())
    code, out, _ = run("tag -m segments --confidence words.txt")
    assert code == 0
    found = [[line.split()[-3] for line in one.splitlines()] for one in out.split("\n\n")[:-1]]
    outside = model.classes_.tolist().index("O")
    for column, p, segments in zip(found, model.predict_proba(X), spans(model, X), strict=True):
        expected = [f"{value:.4f}" for value in p[:, outside]]
        for start, stop, _, probability in segments:
            expected[start:stop] = [f"{probability:.4f}"] * (stop - start)
        assert column == expected
    assert any(stop - start > 1 for one in spans(model, X) for start, stop, _, _ in one)


def test_weights_that_are_mostly_zero_take_no_space(run, files):
    X, y = read(files, "train.txt", ["c0", "c1"])
    assert run("train -m saved --set max_iter=5 train.txt")[0] == 0
    saved = pickle.loads((files / "saved").read_bytes())
    expected = make_pipeline(column_features(["c0", "c1"]), CRFTagger(max_iter=5)).fit(X, y)
    assert sparse.issparse(saved[-1].coef_)
    assert saved[-1].coef_.nnz < 0.5 * expected[-1].coef_.size
    assert_array_equal(saved[-1].densify().coef_, expected[-1].coef_)
    dense = CRFTagger().fit([np.eye(2)], [["a", "b"]])
    _sparsify(dense)
    assert isinstance(dense.coef_, np.ndarray)


@pytest.mark.parametrize("name", ["one", "segments"])
def test_confidence_extracts_features_once(run, files, monkeypatch, name):
    first = type(pickle.loads((files / name).read_bytes())[0])
    extract, calls = first._rows_of, []
    monkeypatch.setattr(first, "_rows_of", lambda self, X: calls.append(len(X)) or extract(self, X))
    assert run(f"tag -m {name} --confidence words.txt")[0] == 0
    assert calls == [16]


def test_another_label_outside_segments_is_written_with_its_probability(run, files):
    X = [{"w": ["in", "New", "York"]}, {"w": ["Rome", "calls"]}, {"w": ["so", "it", "is"]}]
    y = [["other", "B-city", "I-city"], ["B-city", "other"], ["other"] * 3]
    write_conll(files / "others", X, y)
    train = "train -m others.model --tagger SemiCRFSegmenter --set outside=other others"
    assert run(train)[0] == 0
    model = pickle.loads((files / "others.model").read_bytes())
    p = model.predict_proba([{"c0": X[2]["w"]}])[0][:, model.classes_.tolist().index("other")]
    rows = [line.split() for line in run("tag -m others.model --confidence others")[1].splitlines()]
    assert [row[-1] for row in rows if row] == [label for labels in y for label in labels]
    assert [row[-3] for row in rows[-4:] if row] == [f"{value:.4f}" for value in p]


def test_standard_input_is_named(run):
    assert "standard input has 1 column, and two reads 2 (w, newl" in run("tag -m two", b"a\n")[2]


def test_comments_are_skipped(run):
    for command in ("tag -m one", "evaluate -m one"):
        assert run(f"{command} --comment '#' comment") == run(f"{command} words.txt")
    assert run("train -m seen --set max_iter=3 --comment '# n' comment")[0] == 0


def test_names_of_columns_may_follow_blanks(run, files):
    assert run("train -m seen --set max_iter=3 --columns 'w, newline' train.txt")[0] == 0
    assert input_columns(pickle.loads((files / "seen").read_bytes())) == ["w", "newline"]


def test_a_separator_that_does_not_occur_is_named(run):
    plain = run("tag -m one", b"a b\n")
    for separator in ("\\t", ";"):
        message = f"standard input has one column if lines are cut at '{separator}', and each"
        warnings.simplefilter("always")
        code, _, err = run(f"tag -m one --separator '{separator}'", b"a b\n")
        assert (code, message in err) == (0, True)
    assert run("tag -m one --separator ' '", b"a b\n") == plain
    assert not plain[2]


@pytest.mark.parametrize("features", ["", "TemplateFeatures", "SegmentFeatures"])
def test_segmenters_are_trained_on_iob2(run, files, features):
    X, y = read(files, "train.txt")
    options = f"--tagger SemiCRFSegmenter {features and '--features'} {features} --set tol=0.1"
    assert run(f"train -m trained {options} --columns w,newline train.txt")[0] == 0
    extractor = TemplateFeatures(columns=["w", "newline"])
    if not features:
        extractor = column_features(["w", "newline"], segments=True)
    if features == "SegmentFeatures":
        extractor = SegmentFeatures(TokenFeatures(columns=["w"]), columns="w")
    model = make_pipeline(extractor, SemiCRFSegmenter(tol=0.1))
    model.fit(X, [labels_to_segments(labels) for labels in y])
    X = read(files, "test.txt.xz")[0]
    expected = [segments_to_labels(s, len(x["w"])) for s, x in zip(model.predict(X), X)]
    assert any((labels != "O").any() for labels in expected)
    code, out, _ = run("tag -m trained test.txt.xz")
    assert code == 0
    assert_same(labels_of(out), expected)
    assert run("evaluate -m trained test.txt.xz")[0] == 0
    assert run("inspect -m trained")[0] == 0


def test_segmenters_write_labels(run, files):
    X, _ = read(files, "words.txt", ["w"])
    model = pickle.loads((files / "segments").read_bytes())
    code, out, _ = run("tag -m segments words.txt")
    assert code == 0
    expected = [segments_to_labels(s, len(x["w"])) for s, x in zip(model.predict(X), X)]
    assert_same(labels_of(out), expected)
    assert run("evaluate -m segments words.txt")[0] == 0


def test_marks_in_raw_text_are_tokens(run):
    code, out, _ = run("tag -m one --text", "\ufeffAnn sings\n-DOCSTART- x\n".encode())
    words = [line.split()[0] for line in out.splitlines() if line]
    assert (code, words) == (0, ["Ann", "sings", "-DOCSTART-", "x"])


# --- Batches -------------------------------------------------------------------------------------


def in_blocks(monkeypatch, size):
    monkeypatch.setattr("sklseq.__main__.conll_batches", partial(conll_batches, block=size))


@pytest.mark.parametrize("options", ["", "--confidence", "--labels", "--separator '\t'"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_batches_of_a_sequence_give_the_output_of_one_batch(
    files, run, monkeypatch, options, encoding, separator
):
    if "separator" in options and separator == " ":
        options = "--separator ' '"
    X, y = read(files, "train.txt")
    if separator == "\t":  # the first space, the first empty cell: the output needs tabs
        X[5]["w"][1] = "New York"
        X[3]["newline"][0] = ""
    X[1]["w"][0] = "\ufeff"
    for n in (16, 3):  # with these cells, and without
        write_conll(files / "mixed", X[:n], y[:n], separator=separator, encoding=encoding)
        command = f"tag -m two --encoding {encoding} {options} mixed"
        whole = run(command, encoding=None)
        in_blocks(monkeypatch, 1)
        assert run(command, encoding=None) == whole
        monkeypatch.undo()
        assert (whole[0], whole[2]) == (0, b"")
        assert len(whole[1]) > 20


def test_an_error_comes_after_the_batches_before_it(files, run, monkeypatch):
    tagged = run("tag -m two", b"Ann 1\nsings 0\n\n")
    assert tagged[0] == 0
    in_blocks(monkeypatch, 16)
    lines = b"Ann 1\nsings 0\n\nBob\n\n"
    code, out, err = run("tag -m two", lines)
    assert (code, out) == (1, tagged[1])
    assert "line 4: expected 2 columns, as in line 1, but got 1 in 'Bob'" in err
    in_blocks(monkeypatch, 1 << 18)
    assert run("tag -m two", lines) == (1, "", err)
    code, out, err = run("tag -m two", b"A 1\n\nB\xff 1\n")
    assert (code, out) == (1, "")
    assert "line 3: byte 0xff is not utf-8 text; give by --encoding the encoding of the" in err


def test_an_error_of_the_model_names_the_line_of_its_batch(files, run, monkeypatch):
    class Refuses:
        def predict(self, X):
            if "B" in X[0]["w"]:
                raise ValueError("Sequence 0 is wrong.")
            return [["O"] * len(x["w"]) for x in X]

    monkeypatch.setattr("sklseq.__main__._load", lambda _: (Refuses(), ["w"]))
    in_blocks(monkeypatch, 3)
    code, out, err = run("tag -m any", b"A\n" + b"\n" * 12 + b"B\n\n\n\n")
    assert (code, out) == (1, "A O\n\n")
    assert (
        err == "sklseq tag: Sequence 0 is wrong. Sequence 0 is that of line 14 of standard input.\n"
    )


def test_columns_are_answered_while_they_are_written(files):
    command = [sys.executable, "-m", "sklseq", "tag", "-m", "one.sklseq"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=files, **pipes) as process:
        process.stdin.write(b"Call\nMary\n\nFax")
        process.stdin.flush()
        answer = [process.stdout.readline() for _ in range(3)]
        assert [line.split(b" ")[0] for line in answer] == [b"Call", b"Mary", b"\n"]
        process.stdout.close()  # as `head` does
        process.stdin.write(b"\n")
        process.stdin.close()
    assert process.returncode == 1


# --- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("", 2, "the following arguments are required: COMMAND"),
        ("train words.txt", 2, "-m/--model"),
        ("train -m m --set l2 words.txt", 2, "NAME=VALUE"),
        ("train -m m --set lambda=1 words.txt", 2, "'lambda' is not one of the parameters"),
        (
            "train -m m --set l22=1 words.txt",
            2,
            "'l22' is not one of the parameters; did you mean l2",
        ),
        (
            "train -m m --set features__min_count=2 words.txt",
            2,
            "did you mean features__templates__min_count or features__letters__min_count or",
        ),
        ("train -m m --separator ;; words.txt", 2, "must be one character, or tab; got ';;'"),
        ("train -m m commas", 1, "commas has one column; give a file with columns of tokens and"),
        ("train -m m commas", 1, "as the last column, or the separator by --separator."),
        (
            "train -m m tab_first",
            1,
            "but got 1 in 'b O'; repair this line or line 1, 'a\\tO', or give by --sep",
        ),
        ("train -m m --encoding utf-9 words.txt", 2, "'utf-9' is not the name of an encoding"),
        ("train -m m --features TokenFeatures --templates templates words.txt", 2, "leave one"),
        ("train -m m --dev words.txt --tagger ZScoreTagger words.txt", 2, "leave one of them out"),
        ("train -m m --features SegmentFeatures words.txt", 2, "SegmentFeatures is for --tagger"),
        ("train -m m --export e --tagger SemiCRFSegmenter words.txt", 2, "leave one of them out"),
        ("train -m m --tagger SemiCRFSegmenter plain.txt", 1, "of the form 'B-type' or 'I-type'"),
        ("train -m m --dev train.txt words.txt", 1, "train.txt has 3 columns, and words.txt 2;"),
        ("train -m m --columns ,pos words.txt", 2, "must be names separated by commas; got ',pos'"),
        (
            "train -m m tokens.txt",
            1,
            "tokens.txt has one column; give a file with columns of tokens",
        ),
        ("evaluate train.txt", 1, "have no label in common; tag the file first"),
        ("train -m m --set l2=-1 words.txt", 1, "l2"),
        ("train -m m --columns w,pos words.txt", 1, "columns names 2 columns"),
        ("train -m no/m words.txt", 1, "The folder 'no' of path 'no/m' is missing; create it."),
        ("train -m m nothing.txt", 1, "nothing.txt: No such file or directory"),
        ("train -m m", 1, "holds no sequences"),
        ("tag -m two words.txt.gz", 1, "words.txt.gz: No such file or directory"),
        ("tag -m templates words.txt", 1, "templates is not a model that can be loaded; give"),
        ("tag -m two --text", 1, "reads the columns w, newline"),
        ("tag -m one train.txt", 1, "train.txt has 3 columns, and one reads 1 (w)"),
        ("tag -m two tokens.txt", 1, "tokens.txt has 1 column, and two reads 2 (w, newline) with"),
        ("tag -m two --encoding hex plain.txt", 2, "'hex' is not the name of an encoding"),
        ("evaluate latin", 1, "utf-8 text; give by --encoding the encoding of the file, such as"),
        ("evaluate utf16", 1, "mark of UTF-16; give by --encoding the encoding utf-16."),
        ("tag -m one utf16", 1, "mark of UTF-16; give by --encoding the encoding utf-16."),
        ("tag -m one text", 1, "has 6 columns, and one reads 1 (w) with or without a label"),
        ("tag -m one text", 1, "If its lines are text, add --text."),
        ("tag -m one ragged", 1, "expected 6 columns, as in line 1, but got 3 in 'Bob rains .'"),
        ("tag -m one ragged", 1, "If its lines are text, add --text."),
        ("tag -m two --confidence --labels plain.txt", 2, "--labels writes no columns; drop one"),
        ("tag -m margin --confidence plain.txt", 1, "has no probabilities of labels"),
        ("tag -m one --text --comment x words.txt", 2, "--comment is for column files, and --te"),
        ("train -m m comment", 1, "comment, line 1: expected 2 columns, as in the lines after it,"),
        ("tag -m one comment", 1, "remove it, skip comments by --comment, or give by --separator"),
        ("train -m m --separator | words.txt", 1, "column if lines are cut at '|'; give a file wi"),
        ("train -m m --separator | words.txt", 1, "last column, or another separator by --separat"),
        ("evaluate --separator | words.txt", 1, "has one column if lines are cut at '|'; the last"),
        ("train -m '' words.txt", 1, "path is empty; give the name of a file."),
        ("tag -m one ''", 1, "'': No such file or directory"),
        ("evaluate -m two plain.txt", 1, "add the true label as the last column"),
        ("evaluate --mode strict --scheme iob2 words.txt", 1, "is not a span label"),
        ("inspect -m one.sklseq", 1, "exported model"),
        ("inspect -m two -n -1", 2, "-n: must be an integer, 0 or more; got '-1'"),
        ("train -m words.txt words.txt", 2, "-m and FILE are the same file, 'words.txt'"),
        ("train -m m --export ./m words.txt", 2, "-m and --export are the same file"),
        ("train -m m --export t.txt --dev t.txt words.txt", 2, "--export and --dev are the same"),
        ("train -m templates --templates templates words.txt", 2, "-m and --templates are the"),
        ("train -m m --templates empty words.txt", 1, "empty holds no templates; add some"),
        ("train -m m --dev empty words.txt", 1, "empty holds no sequences; give a file"),
        ("evaluate -m two empty", 1, "empty holds no sequences"),
        ("train -m m --templates bad --columns w,n train.txt", 1, "bad, line 2: Template 'U:%y'"),
        ("train -m m --templates latin words.txt", 1, "latin, line 2: byte 0xef is not utf-8"),
        ("tag -m one --text latin", 1, "latin, line 2: byte 0xef is not utf-8 text; give by --en"),
        ("evaluate --scheme iob2 words.txt", 2, "--mode strict and --scheme need each other"),
        ("evaluate empty", 1, "empty holds no sequences"),
    ],
)
def test_an_error_is_one_sentence_and_a_code(run, command, code, message):
    found, out, err = run(command)
    assert (found, out) == (code, "")
    assert message in err
    if code == 1:
        assert err.count("\n") == 1
        assert err.startswith(f"sklseq {command.split()[0]}: ")


@pytest.mark.parametrize(
    ("command", "name"),
    [("tag -m two plain.txt", "stdout"), ("tag -m two", "stdin"), ("tag -m one --text", "stdin")],
)
def test_closed_streams_are_named(run, monkeypatch, command, name):
    # Standard input is replaced by ``run``.
    wrapper = (lambda *_: None) if name == "stdin" else io.TextIOWrapper
    monkeypatch.setattr(io, "TextIOWrapper", wrapper)
    if name == "stdout":
        monkeypatch.setattr(sys, "stdout", None)
    code, out, err = run(command)
    assert (code, out) == (1, "")
    assert err.startswith(f"sklseq tag: {name} is closed; ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_models_are_written_behind_links_and_read_from_pipes(files, run):
    os.mkfifo(files / "fifo")
    assert "path 'fifo' is a pipe or a device; give the" in run("train -m fifo words.txt")[2]
    (files / "old").write_bytes(b"")
    (files / "to_old").symlink_to(files / "old")
    assert run("train -m to_old --set max_iter=2 words.txt")[0] == 0
    assert (files / "to_old").is_symlink()
    assert run("inspect -m old -n 0")[0] == 0
    (files / "to_words").symlink_to(files / "words.txt")
    assert "-m and FILE are the same file" in run("train -m to_words words.txt")[2]
    for model in ("two", "one.sklseq"):
        data = f"{'words' if model == 'one.sklseq' else 'plain'}.txt"
        expected = run(f"tag -m {model} {data}")
        writer = threading.Thread(target=write_to, args=(files / "fifo", files / model))
        writer.start()
        assert run(f"tag -m fifo {data}") == expected
        writer.join()


def write_to(pipe, file):
    pipe.write_bytes(file.read_bytes())


def test_an_error_leaves_the_old_model(files, run):
    before = (files / "two").read_bytes()
    assert run("train -m two --set l2=-1 --columns w,newline train.txt")[0] == 1
    assert (files / "two").read_bytes() == before


def test_a_model_without_an_extractor_reads_no_columns(files, run):
    model = CRFTagger().fit([[{"w": "a"}, {"w": "b"}]], [["x", "y"]])
    (files / "dicts").write_bytes(pickle.dumps(model))
    code, _, err = run("tag -m dicts plain.txt")
    assert code == 1
    assert "dicts does not read columns of tokens" in err


def test_warnings_are_one_line(run):
    warnings.simplefilter("always")
    code, _, err = run("train -m m --columns w,newline --set max_iter=1 train.txt")
    assert code == 0
    assert err.startswith("sklseq train: warning: CRFTagger did not converge")
    assert err.count("\n") == 1


def test_progress_is_shown_and_not_saved(files, run):
    pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    code, out, err = run("train -m m --progress --columns w,newline --set max_iter=3 train.txt")
    assert (code, err) == (0, "")
    assert "CRFTagger" in out
    assert b"ProgressBar" not in (files / "m").read_bytes()


def test_help_and_version(run):
    assert run("--version")[0] == 0
    assert "standard input" in run("tag --help")[1]


# --- As a program --------------------------------------------------------------------------------


def test_the_program(files):
    """In a new process; an exported model is loaded without SciPy and scikit-learn."""
    code = (
        "import sys; from sklseq.__main__ import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 10 * ('scipy' in sys.modules or 'sklearn' in sys.modules))"
    )
    options = ["tag", "-m", "one.sklseq", "--text", "--labels"]
    run = {"cwd": files, "input": b"Call Mary\n", "capture_output": True, "check": False}
    done = subprocess.run([sys.executable, "-c", code, *options], **run)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.split()) == 2
    done = subprocess.run([sys.executable, "-m", "sklseq", "tag"], **run)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


PAGES = [ROOT / "README.md", ROOT / "docs" / "command_line.rst"]


def commands_of(text):
    return [
        line.strip()
        for line in text.splitlines()
        if re.match("    sklseq (train|tag|evaluate|inspect) ", line)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_page_run(page, files, run):
    commands = commands_of(page.read_text(encoding="utf-8"))
    assert {c.split()[1] for c in commands} == {"train", "tag", "evaluate", "inspect"}
    X, y = read(files, "train.txt")
    for name in ("train.txt.gz", "test.txt.gz"):
        write_conll(files / name, X, y)
    (files / "mail.txt").write_text("Call Mary\n")
    (files / "template").write_text(TEMPLATES)
    write_conll(files / "names.txt", [{"w": x["w"]} for x in X], y)
    for command in commands:
        command, _, target = command.partition(" > ")
        out = b""
        for part in command.split(" | "):
            code, text, err = run(part.removeprefix("sklseq "), out)
            assert (code, err) == (0, ""), part
            out = text.encode()
        if target:
            (files / target).write_bytes(out)


def test_an_export_that_fails_leaves_the_model(files, run, monkeypatch, tmp_path):
    def full(model, path):
        with draft(path) as file:
            file.write(b"a part")
            raise OSError(errno.ENOSPC, "No space left on device")

    old = tmp_path / "old.model"
    old.write_bytes(b"old")
    monkeypatch.setattr("sklseq.deployment.export", full)
    command = f"train --set max_iter=2 --columns w -m {old} --export {tmp_path}/e words.txt"
    code, out, error = run(command)
    assert (code, out) == (1, "")
    assert error.endswith(f"{tmp_path}/e: No space left on device\n")
    assert old.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["old.model"]
