"""read_crfsuite_model: what python-crfsuite predicts, from its file; damaged files are refused."""

import pickle
import struct

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import sklseq
from sklseq import CRFTagger, read_crfsuite_model
from tests.trials import fuzz_readers

pycrfsuite = pytest.importorskip("pycrfsuite")

ALGORITHMS = ("lbfgs", "l2sgd", "ap", "pa", "arow")
# Both sum the same doubles, in another order.
SAME = {"rtol": 1e-10, "atol": 1e-12}
LABELS = ["O", "B-LOC", "É", "a b", "__x__", "日本", "#", ":"]
WORDS = ["casa", "niño", "日本語", "a:b", "c\\d", " ", "=", "\t", "😀"]


def item(rng, code, form):
    """A dict with weights of every kind, or a collection of attributes."""
    word = WORDS[int(rng.integers(len(WORDS)))]
    hint = f"is{code if rng.random() < 0.7 else 0}"
    if form == "lists":
        kinds = [word, hint, "bias", "bias"], {word, hint}, [], (word,)
        return kinds[int(rng.integers(len(kinds)))]
    kinds = (
        lambda: {"w": word, hint: True, "len": float(rng.normal()), "no": False},
        lambda: {"w": word, "pre": {"1": word[:1], "v": 0.5}, "set": [hint, hint]},
        lambda: {word: 2, hint: 1},
        lambda: {},
    )
    return kinds[int(rng.integers(len(kinds)))]()


def make(seed, n=30, L=8):
    """Sequences of dicts for odd seeds, of lists for even ones."""
    rng, form = np.random.default_rng(seed), ("lists", "dicts")[seed % 2]
    X, y = [], []
    for _ in range(n):
        codes = rng.integers(0, L, size=int(rng.integers(1, 9)))
        X.append([item(rng, code, form) for code in codes])
        y.append([LABELS[code] for code in codes])
    return X, y


def train(path, X, y, algorithm="lbfgs", **params):
    trainer = pycrfsuite.Trainer(algorithm, verbose=False)
    for sequence, labels in zip(X, y):
        trainer.append(sequence, labels)
    trainer.set_params({"max_iterations": 20, **params})
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger


def answers(tagger, X):
    for sequence in X:
        labels = tagger.tag(sequence)
        shape = (len(sequence), len(tagger.labels()))
        proba = [[tagger.marginal(label, t) for label in tagger.labels()] for t in range(shape[0])]
        yield labels, np.reshape(proba, shape), tagger.probability(labels) if labels else 1.0


def assert_same(model, tagger, X):
    assert model.classes_.tolist() == tagger.labels()
    best, proba, p_best = zip(*answers(tagger, X), strict=True)
    log_p = model.predict_log_proba_sequence(X, list(best))
    assert_allclose(np.exp(log_p), p_best, **SAME)
    # Two label sequences can tie: "ap" averages whole numbers, and rand() orders its sequences.
    assert_allclose(model.predict_log_proba_sequence(X, model.predict(X)), log_p, **SAME)
    for ours, theirs in zip(model.predict_proba(X), proba, strict=True):
        assert_allclose(ours, theirs, **SAME)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_predictions_and_marginals_are_those_of_crfsuite(tmp_path, algorithm, seed):
    path = tmp_path / "m.crfsuite"
    tagger = train(path, *make(seed), algorithm)
    assert_same(read_crfsuite_model(path), tagger, make(seed + 100)[0])


@pytest.mark.parametrize(
    "params",
    [
        {"feature.possible_states": True, "feature.possible_transitions": True},
        {"c1": 0.5, "c2": 0.0},
        {"c1": 1000.0},  # no weight is left
        {"feature.minfreq": 3},
    ],
    ids=["all", "sparse", "empty", "frequent"],
)
def test_kinds_of_models(tmp_path, params):
    X, y = make(5)
    tagger = train(tmp_path / "m", X, y, **params)
    model = read_crfsuite_model(tmp_path / "m")
    assert_same(model, tagger, X)
    info = tagger.info()
    assert model.n_features_in_ == len(info.attributes)
    assert np.count_nonzero(model.coef_) == len(info.state_features)
    assert np.count_nonzero(model.transition_) == len(info.transitions)
    assert not model.boundaries


def test_ties_go_to_the_label_of_crfsuite(tmp_path):
    tagger = train(tmp_path / "m", [[["a"]], [["b"]]], [["Z"], ["A"]])
    model = read_crfsuite_model(tmp_path / "m")
    assert model.predict([[["unknown"]]])[0] == tagger.tag([["unknown"]]) == ["Z"]


def test_odd_attributes(tmp_path):  # which the dump of python-crfsuite cannot show
    X = [[["x\ny", ""], ["x"], ["\r", "", ""]]]
    tagger = train(tmp_path / "m", X, [["A", "B", "A\nB"]])
    assert_same(read_crfsuite_model(tmp_path / "m"), tagger, X)


def test_one_label_and_many(tmp_path):
    X = [[[f"a{k}"] for k in range(200)]]
    for y in ([["A"] * 200], [[f"label {k}" for k in range(200)]]):
        tagger = train(tmp_path / "m", X, y)
        assert_same(read_crfsuite_model(tmp_path / "m"), tagger, X)


def test_few_weights_of_many_stay_sparse(tmp_path, monkeypatch):
    import sklseq.estimators.crf.crfsuite_model as module

    X, y = make(6)
    tagger = train(tmp_path / "m", X, y)
    monkeypatch.setattr(module, "DENSE_SIZE", 0)
    monkeypatch.setattr(module, "DENSE_SHARE", 1.0)
    model = read_crfsuite_model(tmp_path / "m")
    assert model.coef_.format == "csr"
    assert_same(model, tagger, X)
    assert_same(model.densify(), tagger, X)


def test_a_model_of_sklearn_crfsuite(tmp_path):
    sklearn_crfsuite = pytest.importorskip("sklearn_crfsuite")
    X, y = make(7)
    crf = sklearn_crfsuite.CRF(model_filename=str(tmp_path / "m")).fit(X, y)
    model = read_crfsuite_model(crf.modelfile.name)
    assert model.predict(X) == list(crf.predict(X))


# --- What else a fitted tagger does -------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    X, y = make(8)
    return read_crfsuite_model(tmp_path / "m") if train(tmp_path / "m", X, y) else None, X, y


def test_it_is_a_fitted_tagger(trained):
    model, X, y = trained
    assert isinstance(model, CRFTagger)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(
        np.concatenate(again.predict_proba(X)), np.concatenate(model.predict_proba(X))
    )
    assert model.score(X, y) > 0.5
    assert model.prune().predict(X)[0] == again.predict(X)[0]
    assert list(again.vectorizer_.vocabulary_) == again.feature_names_in_.tolist()


def test_explanations_follow_its_own_order_of_labels(trained):
    model, X, _ = trained
    for row, label, proba in zip(
        model.explain(X[0]), model.predict(X)[0], model.predict_proba(X)[0]
    ):
        assert row.label == label
        assert row.probability == proba[model.classes_.tolist().index(label)]


@pytest.mark.thread_unsafe(reason="trains the one model")
def test_training_goes_on_from_its_weights(trained):
    model, X, y = trained
    before = model.predict_proba(X)
    rows = model.vectorizer_.transform(X)
    model.vectorizer_ = None
    model.set_params(warm_start=True, l2=1.0, max_iter=1, tol=1.0, all_possible_states=True,
                     all_possible_transitions=True)  # fmt: skip
    fresh = CRFTagger(l2=1.0, boundaries=False)
    fresh.fit(rows, y)
    order = np.argsort(model.classes_)
    model.fit(rows, y)
    assert model.classes_.tolist() == sorted(LABELS)
    # Near the optimum at once: CRFsuite's twenty iterations are not lost.
    assert model.loss_curve_[0] < fresh.loss_curve_[0] - 0.9 * (
        fresh.loss_curve_[0] - fresh.objective_
    )
    assert_allclose(before[0][:, order].sum(), len(X[0]))


def test_partial_fit_keeps_its_order_of_labels(trained):
    model, X, y = trained
    rows = model.vectorizer_.transform(X)
    order = model.classes_.tolist()
    model.partial_fit(rows, y, classes=LABELS)
    assert model.classes_.tolist() == order
    assert model.score(rows, y) > 0.5


def test_another_encoding(tmp_path):
    train(tmp_path / "m", [[["ni\xf1o".encode("latin-1")], ["b"]]], [["A", "B"]])
    with pytest.raises(ValueError, match=r"entry 0 of the attributes, at byte \d+, is not utf-8.*"):
        read_crfsuite_model(tmp_path / "m")
    assert "niño" in read_crfsuite_model(tmp_path / "m", encoding="latin-1").feature_names_in_
    with pytest.raises(LookupError):
        read_crfsuite_model(tmp_path / "m", encoding="no such")


# --- Damaged files ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "m"
    train(path, *make(9, n=12, L=4))
    return path.read_bytes()


def put(data, at, value):
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def at(data, name):
    """Where a section begins."""
    names = ("features", "labels", "attributes", "labels' features", "attributes' features")
    return struct.unpack_from("<I", data, 28 + 4 * names.index(name))[0]


def number(data, byte):
    return struct.unpack_from("<I", data, byte)[0]


def first_list(data):
    return number(data, at(data, "attributes' features") + 12)


def first_hash(data):
    """Where the first hash of the labels stands."""
    begin = at(data, "labels")
    tables = range(begin + 24, begin + 24 + 8 * 256, 8)
    begin += next(number(data, table) for table in tables if number(data, table + 4))
    return next(slot for slot in range(begin, len(data), 8) if number(data, slot + 4))


DAMAGE = {
    "empty": (lambda d: b"", "is not a model of CRFsuite: it begins with b''"),
    "magic": (lambda d: b"PK\3\4" + d[4:], r"it begins with b'PK\\x03\\x04', not b'lCRF'"),
    "header": (lambda d: d[:40], "cut off in its header: it has 40 of 48 bytes"),
    "cut": (lambda d: d[:-1], r"it has \d+ bytes, and its header \(byte 4\) says \d+"),
    "longer": (lambda d: d + b"\0", "cut off or damaged"),
    "type": (lambda d: d[:8] + b"TREE" + d[12:], "type b'TREE' and version 100"),
    "version": (lambda d: put(d, 12, 101), "version 101 .byte 8.; only type b'FOMC', version 100"),
    "counts": (lambda d: put(d, 16, 3), r"\d+ features; the header says 3"),
    "no labels": (lambda d: put(d, 20, 0), "has 0 labels .byte 20."),
    "too many labels": (lambda d: put(d, 20, 2**31), "has 2147483648 labels"),
    "more labels": (lambda d: put(d, 20, 400), "section of labels, at byte .* goes beyond it"),
    "fewer labels": (lambda d: put(d, 20, 3), "at a label or attribute|leads to a label"),
    "more attributes": (lambda d: put(d, 24, 2**32 - 1), "section of attributes.*goes beyond it"),
    "fewer attributes": (lambda d: put(d, 24, 1), "begins at a label or attribute that is not"),
    "offset": (lambda d: put(d, 28, 2**32 - 1), "section of features, at byte 4294967295"),
    "no mark": (lambda d: put(d, 32, 48), "section of labels, at byte 48: it must begin with"),
    "size": (lambda d: put(d, 52, 2**32 - 1), "its size, 4294967295, goes beyond the file"),
    "overlap": (lambda d: put(d, 36, at(d, "labels")), "overlaps with that of"),
    "number": (lambda d: put(d, 56, 5), "5 features do not fill"),
    "kind": (lambda d: put(d, 60, 2), "feature 0 is neither of a state"),
    "label": (lambda d: put(d, 68, 4), "feature 0 leads to a label that is not there"),
    "weight": (lambda d: put(put(d, 72, 0), 76, 0x7FF80000), "a weight that is not finite"),
    "byte order": (lambda d: put(d, at(d, "labels") + 12, 0x71534462), "another order"),
    "table": (lambda d: put(d, at(d, "labels") + 20, 1 << 20), "goes beyond it"),
    "entry": (
        lambda d: put(d, at(d, "labels") + number(d, at(d, "labels") + 20), 1 << 20),
        "entry 0 lies outside",
    ),
    "entry number": (lambda d: put(d, at(d, "labels") + 2072, 9), "entry 0 has another number"),
    "entry size": (lambda d: put(d, at(d, "labels") + 2076, 1 << 20), "does not fit"),
    "no zero": (lambda d: put(d, at(d, "labels") + 2076, 1), "does not end with its only zero"),
    "hash tables": (lambda d: put(d, at(d, "labels") + 28, 4), "hash tables"),
    "hash": (
        lambda d: put(d, first_hash(d), number(d, first_hash(d)) ^ 1),
        "a hash stands in the table of another",
    ),
    "twice": (lambda d: d.replace(b"is1\0", b"is0\0"), "attribute 'is0' occurs twice"),
    "few bytes": (lambda d: put(d, at(d, "labels") + 4, 100), "100 bytes are too few for 256"),
    "lists": (lambda d: put(d, at(d, "labels' features") + 8, 4), "it must have 6 lists"),
    "list": (lambda d: put(d, at(d, "attributes' features") + 12, 7), "list 0 lies outside, at 7"),
    "long list": (lambda d: put(d, first_list(d), 2**32 - 1), "its lists name"),
    "listed": (lambda d: put(d, first_list(d) + 4, 10**9), "do not name every feature once"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(tmp_path, whole, kind):
    damage, message = DAMAGE[kind]
    path = tmp_path / "m"
    path.write_bytes(damage(whole))
    with pytest.raises(ValueError, match=message) as error:
        read_crfsuite_model(path)
    assert str(path) in str(error.value)


def test_a_label_too_long_for_an_array_is_refused(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(
        "sklseq.estimators.crf.crfsuite_model.MAX_LETTERS", 19
    )  # four labels, the longest of five
    (tmp_path / "m").write_bytes(whole)
    with pytest.raises(ValueError, match=r"has a label of 5 letters: too long\."):
        read_crfsuite_model(tmp_path / "m")


def test_every_prefix_is_refused(tmp_path, whole):
    path = tmp_path / "m"
    for n in range(0, len(whole), 97):
        path.write_bytes(whole[:n])
        with pytest.raises(ValueError, match=r"cut off|not a model"):
            read_crfsuite_model(path)


def fuzz(whole, path, rng, n):
    """(refused, read) of n files; anything but a ValueError that names the file passes through."""
    refused = 0
    for _ in range(n):
        path.write_bytes(fuzz_readers.mutate_in_place(rng, whole))
        try:
            model = read_crfsuite_model(path)
        except ValueError as error:
            if str(path) not in str(error):
                raise
            refused += 1
        else:  # a changed weight or letter
            assert len(model.classes_) == len(set(model.classes_.tolist())) == model.coef_.shape[1]
            assert np.isfinite(model.transition_).all()
    return refused, n - refused


@pytest.mark.parametrize("seed", range(3))
def test_fuzzed_files_are_refused_or_read(tmp_path, whole, seed):
    refused, read = fuzz(whole, tmp_path / "m", np.random.default_rng(seed), 150)
    assert refused > 75
    assert refused + read == 150


def test_the_public_name_is_loaded_when_used():
    assert sklseq.read_crfsuite_model is read_crfsuite_model
    assert "read_crfsuite_model" in dir(sklseq)
