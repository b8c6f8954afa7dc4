"""Exported models: the runtime gives what the estimator gives, and reads no other file."""

import copy
import json
import multiprocessing
import pickle
import re
import struct
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, make_pipeline

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, ZScoreTagger, runtime
from sklseq._lib import index_types
from sklseq.data.segment_labels import labels_to_segments
from sklseq.deployment import describe, export
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)

WORDS = ["the", "The", "cat", "dog-like", "1990s", "U.S.", "naïve", "word", "日本", "\ud800x", ""]


def corpus(seed, n=40):
    """Sequences of words and labels that depend on them and on the label before."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words = [WORDS[i] for i in rng.integers(0, len(WORDS), rng.integers(1, 9))]
        labels = ["B-x" if w[:1].isupper() else "I-x" if w.islower() else "O" for w in words]
        X.append(words)
        labels = [label if rng.random() < 0.9 else "O" for label in labels]
        before = ["O", *labels]
        # As IOB2 wants it: a span begins with B.
        y.append([b if b != "I-x" or a != "O" else "B-x" for a, b in zip(before, labels)])
    return X, y


def as_dicts(X):
    return [
        [{"w": w, "n": len(w) / 3, "pre": [w[:1], w[:2]], "up": w.isupper(), b"b": b"\xc3\xa9"}
         for w in x]
        for x in X
    ]  # fmt: skip


def as_rows(X):
    return [[(w, w[:1] or "-") for w in x] for x in X]


def same(X):
    return X


def many_attributes(X):
    # More than are searched for duplicates one by one; each item has two twice.
    return [[[f"{w}{k % 70}" for k in range(80)] + [w] for w in x] for x in X]


TOKENS = TokenFeatures(prefixes=2, suffixes=[1, 3])
JOINED = ["w.lower[-1]|w.lower[0]", (("w.word", 0), ("w.suffix1", 1), ("w.shape", 0))]
LEXICON = LexiconFeatures({"a": ["the cat", "U.S."], "b": ["word"]})
MODELS = {
    "dicts": (CRFTagger(), as_dicts),
    "dicts, constraints": (CRFTagger(constraints="iob2"), as_dicts),
    "dicts, many attributes": (CRFTagger(), many_attributes),
    "dicts, l1 and sparse": (CRFTagger(l1=0.5), as_dicts),
    "dicts, selected": (make_pipeline(DictFeatures(columns=["w", "n"]), CRFTagger()), as_dicts),
    "dicts, hashed": (make_pipeline(DictFeatures(n_features=1 << 8), CRFTagger()), as_dicts),
    "dicts, float32": (make_pipeline(DictFeatures(dtype=np.float32), CRFTagger()), as_dicts),
    "margin": (HMSVMTagger(), as_dicts),
    "z-score": (ZScoreTagger(), as_dicts),
    "tokens": (make_pipeline(TOKENS, CRFTagger()), same),
    "tokens, hashed": (make_pipeline(TokenFeatures(n_features=64), CRFTagger()), same),
    "tokens of a column": (make_pipeline(TokenFeatures(columns=[1]), CRFTagger()), as_rows),
    "windows": (
        make_pipeline(WindowFeatures(TOKENS, before=2, conjoin=JOINED, bias=True), CRFTagger()),
        same,
    ),
    "windows, frequent": (
        make_pipeline(WindowFeatures(TOKENS, conjoin=JOINED, min_count=3), CRFTagger()),
        same,
    ),
    "windows, hashed": (
        make_pipeline(WindowFeatures(TOKENS, conjoin=JOINED, n_features=256), CRFTagger()),
        same,
    ),
    "windows of weights": (make_pipeline(WindowFeatures(DictFeatures()), CRFTagger()), as_dicts),
    "windows after tokens": (make_pipeline(TOKENS, WindowFeatures(after=2), CRFTagger()), same),
    "templates": (
        make_pipeline(TemplateFeatures(["w[0]", "w[-2]|w[0]|w[1]"], bias=True), CRFTagger()),
        same,
    ),
    "templates, marks": (
        make_pipeline(
            TemplateFeatures(
                "U0:%x[-1,0]/%x[0,1]\nU1:%x[2,1]", boundary="mark", min_count=2, bos_eos=False
            ),
            CRFTagger(),
        ),
        as_rows,
    ),
    "templates, hashed": (
        make_pipeline(TemplateFeatures((("c0[0]"), "c1[-1]|c0[0]"), n_features=128), CRFTagger()),
        as_rows,
    ),
    "union": (
        make_pipeline(
            FeatureUnion(
                [
                    ("t", make_pipeline(TOKENS, WindowFeatures())),
                    ("l", LEXICON),
                    ("none", "drop"),
                    ("p", TemplateFeatures(["w[1]"])),
                ]
            ),
            CRFTagger(),
        ),
        same,
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    """A fitted model, its decoder, and sequences that it has not seen."""
    model, form = MODELS[request.param]
    X, y = corpus(0)
    model.fit(form(X), y)
    if request.param.endswith("sparse"):
        model.sparsify()
    path = tmp_path_factory.mktemp("models") / "model.sklseq"
    export(model, path)
    new, _ = corpus(1)
    new += [[], ["never seen", "Nor", "this"]]
    return model, runtime.load(path), form(new)


def test_same_labels_to_the_bit(exported):
    model, decoder, X = exported
    expected = model.predict(X)
    assert decoder.predict(X) == expected
    assert [decoder.predict_single(x) for x in X] == expected
    assert decoder.predict([]) == []


def test_rows_that_need_64_bits(exported, monkeypatch):
    _, decoder, X = exported
    expected = decoder.predict(X)
    monkeypatch.setattr(index_types, "LARGEST", 10)
    assert decoder.predict(X) == expected


def test_same_marginals_to_the_bit(exported):
    model, decoder, X = exported
    if not hasattr(model, "predict_proba"):
        with pytest.raises(ValueError, match=r"has no probabilities.*use predict"):
            decoder.predict_proba(X)
        return
    for found, expected in zip(decoder.predict_proba(X), model.predict_proba(X), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rule", [{}, {"lag": 3}, {"strategy": "step", "latency_cost": 0.3}])
def test_streams_give_the_labels_of_the_online_decoder(exported, rule):
    model, decoder, X = exported
    online = OnlineDecoder(FrozenEstimator(model), **{"strategy": "closure", **rule})
    online.fit(X[:1], [["O"] * len(X[0])])
    stream = decoder.stream(**rule)
    for x, expected in zip(X[:12], online.predict(X[:12])):
        labels = [label for item in x for label in stream.push(item)]
        assert stream.n_seen == len(x)
        assert labels + stream.finish() == list(expected)


def test_a_lag_below_what_features_look_ahead_is_refused(tmp_path):
    X, y = corpus(0)
    export(make_pipeline(WindowFeatures(TOKENS, after=2), CRFTagger()).fit(X, y), tmp_path / "m")
    with pytest.raises(ValueError, match="lag=1 cannot be kept: the features look 2 tokens ahead"):
        runtime.load(tmp_path / "m").stream(lag=1)


def test_spans(exported):
    _, decoder, X = exported
    spans = decoder.predict_spans(X)
    assert len(spans) == len(X)
    for x, labels, found in zip(X, decoder.predict(X), spans):
        inside = {t for start, stop, kind in found for t in range(start, stop)}
        assert inside == {t for t in range(len(x)) if labels[t] != "O"}


@pytest.fixture(scope="module")
def tagger():
    X, y = corpus(0)
    return CRFTagger(l2=0.01).fit(as_dicts(X), y)


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 2e-7), ("float16", 2e-3)])
def test_weights_are_stored_with_the_precision_asked_for(tagger, tmp_path, precision, tolerance):
    sizes = []
    for name in (None, precision):
        export(tagger, tmp_path / "model", precision=name)
        sizes.append((tmp_path / "model").stat().st_size)
    assert sizes[1] < sizes[0]
    X = as_dicts(corpus(2)[0])
    found, expected = runtime.load(tmp_path / "model").predict_proba(X), tagger.predict_proba(X)
    assert max(np.abs(a - b).max() for a, b in zip(found, expected)) < 5 * tolerance


def test_integers_are_off_by_half_a_step_at_most(tagger, tmp_path):
    export(tagger, tmp_path / "model", precision="int8")
    decoder = runtime.load(tmp_path / "model")
    names = tagger.feature_names_in_.tolist()
    step = np.abs(tagger.coef_).max(axis=0) / 127
    for name in names[:40]:  # one attribute alone: its weights are the scores
        found = decoder._scores([[[name]]])[0][0, : len(step)]
        assert (np.abs(found - tagger.coef_[names.index(name)]) <= step * 0.5000001).all()


@pytest.mark.parametrize(
    ("extractor", "form", "table"),
    [
        (DictFeatures(), as_dicts, "_dict_transform.NameTable"),
        (TokenFeatures(), same, "_token_transform.TokenTable"),
        (TemplateFeatures(["w[0]", "w[-1]|w[0]"]), same, "_template_transform.TokenNumbers"),
    ],
)
def test_tables_of_names_are_built_by_load(extractor, form, table, tmp_path, monkeypatch):
    X, y = corpus(0)
    model = make_pipeline(extractor, CRFTagger(l2=0.1)).fit(form(X), y)
    expected = model.predict(form(X))
    export(model, tmp_path / "model")
    decoder = runtime.load(tmp_path / "model")
    monkeypatch.setattr(f"sklseq.features.{table}", None)  # the first call builds none
    assert decoder.predict(form(X)) == expected


def test_numbers_in_place_of_items(tagger, tmp_path):
    export(tagger, tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"got a matrix of numbers, .* already: pass the items, or"
    ):
        runtime.load(tmp_path / "model").predict([np.eye(2)])


def test_other_labels_and_a_tagger_without_weights(tmp_path):
    X, y = as_dicts(corpus(0)[0]), [[len(w) % 3 for w in x] for x in corpus(0)[0]]
    model = CRFTagger(l1=1e4).fit(X, y)
    assert not model.coef_.any()
    export(model, tmp_path / "model")
    decoder = runtime.load(tmp_path / "model")
    assert decoder.classes_ == [0, 1, 2]
    assert decoder.predict(X) == model.predict(X)
    assert repr(decoder) == "<Decoder: 3 labels, 0 features>"


def test_parameters_set_after_fit_change_nothing(tmp_path):
    X, y = corpus(0)
    model = make_pipeline(TokenFeatures(prefixes=2), CRFTagger()).fit(X, y)
    expected = model.predict(X)
    model[0].set_params(prefixes=0)
    export(model, tmp_path / "model")
    assert runtime.load(tmp_path / "model").predict(X) == expected


def is_long(token):
    return len(token) > 3


REFUSED = {
    "functions= of TokenFeatures are code": TokenFeatures(functions=[is_long]),
    "with transformer_weights cannot": FeatureUnion([("a", TOKENS)], transformer_weights={"a": 2}),
    "PerToken cannot be exported": WindowFeatures(PerToken(len, columns=0)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_extractors_that_cannot_be_exported(message, tmp_path):
    X, y = corpus(0)
    model = make_pipeline(REFUSED[message], CRFTagger()).fit(X, y)
    with pytest.raises(ValueError, match=message):
        export(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_taggers_that_cannot_be_exported(tagger, tmp_path):
    X, y = [np.eye(3), np.eye(3)[:2]], [["a", "b", "c"], ["a", "b"]]
    with pytest.raises(ValueError, match=r"rows of numbers.*export a Pipeline"):
        export(CRFTagger().fit(X, y), tmp_path / "model")
    window = WindowFeatures(before=1, after=1)
    for first in (window, FeatureUnion([("window", window)]), make_pipeline(window)):
        with pytest.raises(ValueError, match=r"rows of numbers.*export a Pipeline"):
            export(make_pipeline(first, CRFTagger()).fit(X, y), tmp_path / "model")
    with pytest.raises(ValueError, match="a kernel that is not linear"):
        export(HMSVMTagger(kernel="rbf").fit(X, y), tmp_path / "model")
    with pytest.raises(ValueError, match=r"must be a CRFTagger, .* got TokenFeatures"):
        export(TOKENS, tmp_path / "model")
    with pytest.raises(ValueError, match="precision must be one of"):
        export(tagger, tmp_path / "model", precision="int4")
    assert not list(tmp_path.iterdir())


def test_damage_is_detected(tagger, tmp_path):
    path = tmp_path / "model"
    export(tagger, path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [0, 7, 8, 12, 20, 30, len(data) - 1, *rng.integers(16, len(data), 20)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :])
        with pytest.raises(ValueError, match=r"not an exported model|version|damaged or cut off"):
            runtime.load(path)
    for size in (0, 5, 15, 23, 100, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"not an exported model|cut off"):
            runtime.load(path)
    rest = data[16:]
    path.write_bytes(struct.pack("<8sII", data[:8], 4, zlib.crc32(rest)) + rest)
    with pytest.raises(ValueError, match=r"version 4 of the layout.*install a newer one"):
        runtime.load(path)


def test_the_file_is_json_and_arrays(tagger, tmp_path):
    export(tagger, tmp_path / "model")
    data = (tmp_path / "model").read_bytes()
    (length,) = struct.unpack_from("<Q", data, 16)
    header = json.loads(data[24 : 24 + length])
    assert (24 + length) % 64 == 0
    assert header["model"]["dict"]["classes"] == tagger.classes_.tolist()
    transition = header["model"]["dict"]["transition"]["array"]
    dtype, shape, at = header["arrays"][transition]
    found = np.frombuffer(data, dtype, np.prod(shape), 24 + length + at).reshape(shape)
    np.testing.assert_array_equal(found, tagger.transition_)


def test_neither_scipy_nor_scikit_learn_is_imported(tagger, tmp_path):
    X, y = corpus(0)
    union = FeatureUnion([("a", WindowFeatures(TOKENS)), ("b", LEXICON)])
    templates = make_pipeline(TemplateFeatures(), CRFTagger()).fit(X, y)
    for k, model in enumerate([tagger, templates, make_pipeline(union, CRFTagger()).fit(X, y)]):
        export(model, tmp_path / f"{k}")
    code = """
import sys, sklseq
from sklseq import runtime
for k, x in enumerate([[{"w": "a"}], ["a", "b"], ["a", "b"]]):
    decoder = runtime.load(sys.argv[1] + f"/{k}")
    stream = decoder.stream()
    labels = [label for item in x for label in stream.push(item)] + stream.finish()
    assert labels == decoder.predict_single(x)
    decoder.predict_proba([x]), decoder.predict_spans([x])
print([name for name in ("scipy", "sklearn", "joblib", "pandas") if name in sys.modules])
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout.strip() == "[]", answer.stderr


# ------------------------------------------------------------------------------- pickles and copies


def test_pickles_and_copies_give_the_same(exported):
    _, decoder, X = exported
    expected = decoder.predict(X)
    assert pickle.loads(pickle.dumps(decoder)).predict(X) == expected
    assert copy.deepcopy({"decoder": decoder})["decoder"] is copy.copy(decoder) is decoder


def pickled(stream):
    return pickle.loads(pickle.dumps(stream))


@pytest.mark.parametrize("twin_of", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("rule", [{}, {"lag": 3}, {"strategy": "step", "latency_cost": 0.1}])
def test_a_stream_goes_on_from_its_copy(exported, rule, twin_of):
    _, decoder, X = exported
    for x in X[:8]:
        wanted = decoder.stream(**rule)
        labels = [wanted.push(item) for item in x]
        end, stream = wanted.finish(), decoder.stream(**rule)
        for item, expected in zip(x, labels):
            before, stream = stream, twin_of(stream)
            assert stream.push(item) == expected
            assert stream.n_seen == before.n_seen + 1  # that before has not changed
        assert stream.finish() == end


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_get_decoders(token_model, method):
    decoder, x = runtime.Decoder(describe(token_model)), ["Ann", "left"]
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("the system has no such processes")
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(decoder.predict_single, [x]) == decoder.predict_single(x)


def test_a_pickle_is_loaded_without_scikit_learn(tagger, tmp_path):
    decoder, x = runtime.Decoder(describe(tagger)), [{"w": "a"}, {"w": "b"}]
    (tmp_path / "p").write_bytes(pickle.dumps([decoder.stream(), decoder, x]))
    code = """
import pickle, sys
stream, decoder, x = pickle.load(open(sys.argv[1], "rb"))
labels = [label for item in x for label in stream.push(item)] + stream.finish()
assert labels == decoder.predict_single(x)
print([name for name in ("scipy", "sklearn", "joblib", "pandas") if name in sys.modules])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "p")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout.strip() == "[]", answer.stderr


# ------------------------------------------------------------------------------- wrong calls


def with_weight(tagger, name, at, value):
    changed = pickle.loads(pickle.dumps(tagger))
    weights = getattr(changed, name).copy()
    weights[at] = value
    setattr(changed, name, weights)
    return changed


@pytest.mark.parametrize(
    ("precision", "value", "message"),
    [
        ("float16", 7e4, "is 70000, and float16 holds numbers up to 65504; give another precision"),
        ("float32", -1e39, "is -1e.39, and float32 holds numbers"),
        ("int8", np.nan, "is nan; fit the model again"),
        (None, np.inf, "is inf; fit the model again"),
    ],
)
def test_weights_that_a_file_would_not_hold(tagger, tmp_path, precision, value, message):
    name, label = tagger.vectorizer_.get_feature_names_out()[2], tagger.classes_[1]
    where = re.escape(f"feature {name!r} and label '{label}' ")
    path = tmp_path / "model"
    with pytest.raises(ValueError, match=where + message):
        export(with_weight(tagger, "coef_", (2, 1), value), path, precision=precision)
    assert not path.exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_transitions_that_are_not_finite(tagger, tmp_path, value):
    a, b = tagger.classes_[:2]
    with pytest.raises(ValueError, match=f"transition_ of '{a}' to '{b}' is {value}"):
        export(with_weight(tagger, "transition_", (0, 1), value), tmp_path / "model")
    with pytest.raises(ValueError, match=f"start_ of '{b}' is {value}"):
        export(with_weight(tagger, "start_", 1, value), tmp_path / "model")


@pytest.fixture(scope="module")
def token_model():
    X, y = [["Ann", "met", "Bob"], ["she", "left"]], [["B-PER", "O", "B-PER"], ["O", "O"]]
    return make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger()).fit(X, y)


def test_a_wrong_item_leaves_a_stream_as_it_was(token_model):
    decoder = runtime.Decoder(describe(token_model))
    items = ["Ann", "left", "Bob", "met"]
    for at in range(len(items)):
        stream, labels = decoder.stream(), []
        for t, item in enumerate(items):
            if t == at:
                for wrong in (None, 3, ("a", "b")):
                    with pytest.raises(
                        ValueError, match=r"of X|X must hold|TokenFeatures was fitted on 1"
                    ):
                        stream.push(wrong)
                    assert stream.n_seen == t
            labels += stream.push(item)
        assert labels + stream.finish() == decoder.predict_single(items)
    with pytest.raises(TypeError, match="'nope' is not a parameter of a stream; they are"):
        decoder.stream(nope=1)


def test_log_probabilities_of_sequences(tagger):
    X, y = corpus(0)
    X = as_dicts(X)
    decoder = runtime.Decoder(describe(tagger))
    y = [list(labels) for labels in y]
    y[0][0] = "unknown"
    found, expected = (m.predict_log_proba_sequence(X, y) for m in (decoder, tagger))
    assert found[0] == -np.inf
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert (found <= 0).all()
    n = len(X[1])
    for wrong, message in (
        (None, "y must be a list of label sequences; got NoneType"),
        (["O" * len(x) for x in X], "Sequence 0 of y must be a list"),
        (y[:-1], f"got {len(X)} in X and {len(X) - 1} in y"),
        ([y[0], ["O"] * (n + 1), *y[2:]], f"Sequence 1 has {n} rows in X but {n + 1} labels"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            decoder.predict_log_proba_sequence(X, wrong)


def test_spans_are_those_of_the_labels(exported):
    _, decoder, X = exported
    expected = [labels_to_segments(labels) for labels in decoder.predict(X)]
    assert decoder.predict_spans(X) == expected


@pytest.mark.parametrize(
    "labels",
    [
        ["S-x", "B-x", "I-x", "E-x", "O"],
        ["U-x", "B-y", "I-y", "L-y", "O"],
        ["B-x", "I-x", "walk", "O"],
        ["rest", "walk", "run"],
        [0, 1, 2],
        [False, True],
    ],
)
def test_spans_are_those_of_the_tagger_whatever_the_labels(labels):
    rng = np.random.default_rng(len(labels))
    X = [[[f"a{k}", f"b{k % 2}"] for k in rng.integers(0, 4, n)] for n in rng.integers(0, 9, 60)]
    y = [rng.choice(np.array(labels), len(x)).tolist() for x in X]
    tagger = CRFTagger().fit(X, y)
    expected = [[span[:3] for span in spans] for spans in tagger.predict_spans(X)]
    decoder = runtime.Decoder(describe(tagger))
    assert decoder.predict_spans(X) == expected
    assert [decoder.predict_spans([x])[0] for x in X] == expected
    assert decoder.predict_spans([]) == []


def test_wrong_paths(tagger, tmp_path):
    for wrong in (None, 3, b"bytes"):
        for call in (runtime.load, lambda path: export(tagger, path)):
            with pytest.raises(TypeError, match="path must be the name of a file"):
                call(wrong)
    missing = str(tmp_path / "no" / "model")
    with pytest.raises(FileNotFoundError, match=re.escape(f"of path {missing!r} is missing")):
        export(tagger, missing)
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a file in it"):
        export(tagger, tmp_path)
    assert not list(tmp_path.iterdir())


def test_threads_may_begin_with_the_same_question(tagger):
    stored = describe(tagger)
    X = as_dicts(corpus(5)[0])
    wanted = runtime.Decoder(stored).predict_proba(X)
    for _ in range(5):
        decoder, barrier = runtime.Decoder(stored), threading.Barrier(4)

        def ask(_, decoder=decoder, barrier=barrier):
            barrier.wait()
            return decoder.predict_proba(X)

        with ThreadPoolExecutor(4) as pool:
            for found in pool.map(ask, range(4)):
                assert all(map(np.array_equal, found, wanted))


@pytest.mark.parametrize("rule", [{}, {"lag": 0}, {"lag": 2}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_item_whose_scores_overflow_leaves_a_stream_as_it_was(rule, dtype):
    tagger = CRFTagger().fit([[{"w": 1.0}, {"v": 1.0}]] * 2, [["x", "y"]] * 2)
    for name in ("coef_", "transition_", "start_", "end_"):
        setattr(tagger, name, getattr(tagger, name).astype(dtype))
    decoder, large = runtime.Decoder(describe(tagger)), float(np.finfo(dtype).max)
    tagger.coef_ *= 1e5
    wrong = runtime.Decoder(describe(tagger)).stream(**rule)
    stream = decoder.stream(**rule)
    for item in ({"w": large / 10}, {"w": large / 10, "v": large / 10}):
        with pytest.raises(ValueError, match=r"Label '[xy]' of row 0 has the score -?(inf|nan)"):
            wrong.push(item)
        assert wrong.n_seen == 0
        assert wrong.finish() == []
    labels = [label for w in "wvw" for label in stream.push({w: 1.0})] + stream.finish()
    assert labels == ["x", "y", "x"]


@pytest.mark.parametrize("rule", [{}, {"lag": 0}, {"lag": 2}])
def test_items_without_a_label_leave_a_stream_as_it_was(rule):
    tagger = CRFTagger().fit([[{"w": "a"}, {"w": "b"}]] * 2, [["x", "y"]] * 2)
    tagger.transition_ = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])  # y ends a sequence
    decoder = runtime.Decoder(describe(tagger))
    stream = decoder.stream(**rule)
    labels = stream.push({"w": "a"}) + stream.push({"w": "b"})
    for _ in range(3):
        with pytest.raises(ValueError, match="row 2"):
            stream.push({"w": "a"})
        assert stream.n_seen == 2
    assert labels + stream.finish() == ["x", "y"]
    tagger.end_ = np.array([0.0, -np.inf])  # and may not
    stream = runtime.Decoder(describe(tagger)).stream(lag=2)
    for item in "ab":
        stream.push({"w": item})
    for _ in range(2):
        with pytest.raises(ValueError, match="row 1"):
            stream.finish()
        assert stream.n_seen == 2


def test_a_measure_that_fails_leaves_a_stream_as_it_was(tagger):
    broken, failed = [], 0

    def measure(p):
        return float("nan") if broken else 1 - p.max()

    decoder = runtime.Decoder(describe(tagger))
    rule = {"strategy": "step", "latency_cost": 0.05, "uncertainty": measure}
    stream, twin = decoder.stream(**rule), decoder.stream(**rule)
    for item in as_dicts(corpus(5)[0])[0]:
        expected = twin.push(item)
        broken.append(1)
        try:
            found = stream.push(item)
        except ValueError:
            failed += 1
            broken.clear()
            found = stream.push(item)
        broken.clear()
        assert found == expected
    assert failed
    assert stream.finish() == twin.finish()


@pytest.mark.parametrize("form", ["dict", "list"])
def test_an_item_of_a_stream_may_be_filled_again(form, tmp_path):
    X = [[{"w": "ab"[k % 2]} for k in range(n)] for n in (3, 4)]
    y = [["xy"["ab".index(item["w"])] for item in x] for x in X]
    if form == "list":
        X = [[[f"w={item['w']}"] for item in x] for x in X]
    window = WindowFeatures(DictFeatures(), before=1, after=1)
    decoder = runtime.Decoder(describe(make_pipeline(window, CRFTagger(l2=0.01)).fit(X, y)))
    stream, found, one = decoder.stream(), [], type(X[0][0])()
    for item in X[1]:
        one.clear()
        one.update(item) if form == "dict" else one.extend(item)
        found += stream.push(one)
    assert found + stream.finish() == y[1]


@pytest.mark.parametrize("inner", ["push", "finish", "copy", "pickle"])
def test_a_measure_cannot_use_its_own_stream(inner, tagger):
    calls = {
        "push": lambda: stream.push({"w": "a"}),
        "finish": lambda: stream.finish(),
        "copy": lambda: copy.copy(stream),
        "pickle": lambda: pickle.dumps(stream),
    }
    refused = []

    def measure(p):
        with pytest.raises(RuntimeError, match="the stream is busy"):
            calls[inner]()
        refused.append(inner)
        return 1 - p.max()

    decoder = runtime.Decoder(describe(tagger))
    rule = {"strategy": "step", "latency_cost": 0.05}
    stream, twin = decoder.stream(uncertainty=measure, **rule), decoder.stream(**rule)
    for item in as_dicts(corpus(5)[0])[0]:
        stream.push(item), twin.push(item)
    assert refused
    assert len(stream.finish()) + stream.n_seen >= len(twin.finish())
