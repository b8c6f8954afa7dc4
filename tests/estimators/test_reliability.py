"""Same answers anywhere, interrupted work leaves nothing behind, files are whole or refused."""

import json
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.datasets import read_conll, read_kdd99, write_conll
from sklseq.features import SegmentFeatures, TokenFeatures
from tests.sample_data import make_argmax_data
from tests.trials import fuzz_readers

ESTIMATORS = {
    "lbfgs": CRFTagger(solver="lbfgs"),
    "owlqn": CRFTagger(solver="owlqn", l1=0.01),
    "eg": CRFTagger(solver="eg", random_state=3),
    "adagrad": CRFTagger(solver="adagrad", random_state=3),
    "checkpoint": CRFTagger(gradient="checkpoint"),
    "emp": CRFTagger(gradient="emp"),
    "bcfw": HMSVMTagger(random_state=3),
    "working set": HMSVMTagger(solver="working_set", random_state=3),
    "perceptron": HMSVMTagger(solver="perceptron", random_state=3),
    "rbf": HMSVMTagger(kernel="rbf", random_state=3),
    "z-score": ZScoreTagger(),
    "z-score sampling": ZScoreTagger(moments="sampling", n_paths=20, random_state=3),
    "z-score cv": ZScoreTaggerCV(l2s=[0.1, 1.0], cv=2),
    "segmenter": SemiCRFSegmenter(),
    "segmenter short": SemiCRFSegmenter(max_segment_length=4),
    "online": OnlineDecoder(CRFTagger(solver="lbfgs"), latency_cost=0.2),
}


def make_chunks(seed=0, n=30):
    return make_argmax_data(seed, n, longest=19, labels=["O", "B-x", "B-y"])


def weights_of(model):
    model = getattr(model, "estimator_", model)
    names = ("coef_", "dual_coef_", "transition_", "start_", "end_", "objective_")
    return [np.asarray(getattr(model, name)) for name in names if hasattr(model, name)]


def answers_of(model, X):
    labels = [[str(label) for label in path] for path in model.predict(X)]
    proba = model.predict_proba(X) if hasattr(model, "predict_proba") else []
    return labels, proba


def digest_of(model, X):
    labels, proba = answers_of(model, X)
    arrays = [*weights_of(model), *proba]
    return joblib.hash([[a.tobytes() for a in map(np.ascontiguousarray, arrays)], labels])


# --- Determinism --------------------------------------------------------------------------------

FRESH = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from tests.estimators.test_reliability import ESTIMATORS, digest_of, make_chunks
from sklearn.base import clone
X, y = make_chunks(n=12)
print(json.dumps({name: digest_of(clone(model).fit(X, y), X[:9])
                  for name, model in ESTIMATORS.items()}))
"""


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_same_bits_in_a_fresh_process_and_after_pickling():
    root = str(Path(__file__).resolve().parents[2])
    fresh = subprocess.Popen(
        [sys.executable, "-c", FRESH, root],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
    )
    X, y = make_chunks(n=12)
    here = {}
    for name, model in ESTIMATORS.items():
        fitted = pickle.loads(pickle.dumps(clone(model))).fit(X, y)
        here[name] = digest_of(fitted, X[:9])
        assert digest_of(pickle.loads(pickle.dumps(fitted)), X[:9]) == here[name], name
    there = json.loads(fresh.communicate(timeout=300)[0])
    assert there == here


SETS = """
from sklseq import CRFTagger
from sklseq.features import DictFeatures, SegmentFeatures, TokenFeatures

words = [f"w{k}" for k in range(20)]
X = [[{w, "x" + w, "b"} for w in words], [{"k": {w, "y"}, "n": frozenset([w])} for w in words]]
X.append([{w, b"bytes", "b"} for w in words])
several = {"f": lambda x: {str(x), "z", "y"}}
for features, rows in (
    (DictFeatures(), X),
    (TokenFeatures(functions=several), [words]),
    (TokenFeatures(prefixes={1, 2}, suffixes={2, 3}, flags={"digit", "upper"}), [words]),
    (SegmentFeatures(functions=several, min_count=1), [words]),
):
    found = features.fit_transform(rows)
    print(features.get_feature_names_out().tolist())
y = [["a", "b"] * 10] * 3
print(CRFTagger().fit(DictFeatures().fit_transform(X), y).coef_.tolist())
"""


def test_the_order_of_sets_does_not_depend_on_the_process(capsys):
    exec(SETS, {})
    there = subprocess.run(
        [sys.executable, "-c", SETS],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "12345"},
    )
    assert there.stdout == capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [n for n in ESTIMATORS if "n_jobs" in ESTIMATORS[n].get_params()])
def test_numbers_of_threads_agree(name):
    X, y = make_chunks(1, n=140)
    one, again, three = (clone(ESTIMATORS[name]).set_params(n_jobs=n).fit(X, y) for n in (1, 3, 3))
    assert digest_of(again, X) == digest_of(three, X)
    for a, b in zip(weights_of(one), weights_of(three)):
        # Sums of another order; the solvers' paths then differ by rounding, times their condition.
        assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    labels, proba = answers_of(one, X)
    other_labels, other_proba = answers_of(three, X)
    assert labels == other_labels
    for a, b in zip(proba, other_proba):
        assert_allclose(a, b, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_fits_and_answers_in_parallel_threads(name):
    X, y = make_chunks(2, n=20)
    expected = digest_of(clone(ESTIMATORS[name]).fit(X, y), X)
    shared = clone(ESTIMATORS[name]).fit(X, y)
    barrier = threading.Barrier(4)

    def work(k):
        barrier.wait()
        return [digest_of(clone(ESTIMATORS[name]).fit(X, y) if k % 2 else shared, X)] * 2

    with ThreadPoolExecutor(4) as pool:
        assert {d for pair in pool.map(work, range(4)) for d in pair} == {expected}


# --- Interrupts ---------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import numpy as np
from tests.estimators.test_reliability import ESTIMATORS, digest_of, make_chunks
from sklearn.base import clone

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
X, y = make_chunks(n=12)
rng = np.random.default_rng(0)


def fit(model, at):
    # Sends SIGINT at call number ``at`` of a Python or compiled function; returns their number.
    # A clock would send it after the fit where a machine is busy.
    n = 0

    def count(frame, event, argument):
        nonlocal n
        if event in ("call", "c_call"):
            n += 1
            if n == at:
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(count)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
    return n


for name, model in ESTIMATORS.items():
    expected, hits = digest_of(clone(model).fit(X, y), X), 0
    calls = fit(clone(model), -1)
    for _ in range(int(sys.argv[2])):
        model = clone(model)
        parameters = {k: repr(v) for k, v in model.get_params(deep=False).items()}
        try:
            fit(model, int(rng.uniform(0.02, 0.9) * calls))
        except KeyboardInterrupt:
            hits += 1
            fitted = [a for a in vars(model) if a.endswith("_") and not a.startswith("_")]
            assert not fitted, (name, fitted)
        assert {k: repr(v) for k, v in model.get_params(deep=False).items()} == parameters
    assert digest_of(model.fit(X, y), X) == expected, name
    assert threading.active_count() == 1, name
    print(name, hits, flush=True)
"""


def interrupt(n):
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, root, str(n)],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    return {name: int(hits) for name, hits in lines}


def test_ctrl_c_in_fit_leaves_an_unfitted_clean_estimator():
    hits = interrupt(2)
    assert hits.keys() == ESTIMATORS.keys()
    # Python drops an interrupt that meets a destructor or a callback of the collector.
    assert sum(hits.values()) > len(ESTIMATORS)


class Interruption:
    """Raises KeyboardInterrupt before line number ``at`` of the estimators' modules, if given."""

    def __init__(self, at=None):
        self.at, self.n = at, 0

    def __call__(self, frame, event, argument):
        if f"{os.sep}estimators{os.sep}" not in frame.f_code.co_filename:
            return None if event == "call" else self
        if event == "line":
            self.n += 1
            if self.n == self.at:
                raise KeyboardInterrupt
        return self

    def fit(self, model, X, y):
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return model.fit(X, y)
        finally:
            sys.settrace(before)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_interrupt_at_the_end_of_a_second_fit_leaves_one_model_or_the_other(name):
    X, y = make_chunks(0, n=8)
    first = pickle.dumps(clone(ESTIMATORS[name]).fit(X[:5], y[:5]))
    whole = Interruption()
    either = {
        digest_of(pickle.loads(first), X),
        digest_of(whole.fit(pickle.loads(first), X, y), X),
    }
    assert len(either) == 2
    for at in range(whole.n - 24, whole.n + 1):
        model = pickle.loads(first)
        with pytest.raises(KeyboardInterrupt):
            Interruption(at).fit(model, X, y)
        assert digest_of(model, X) in either


def test_an_exception_in_the_midst_of_training_leaves_the_last_model(monkeypatch):
    X, y = make_chunks()
    for name in ("lbfgs", "adagrad", "eg"):
        model = clone(ESTIMATORS[name]).fit(X, y)
        before = digest_of(model, X)

        def stop(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("sklseq.estimators.crf.crf_problem.CRFProblem.solve", stop)
            with pytest.raises(KeyboardInterrupt):
                model.fit(X[:20], y[:20])
        assert digest_of(model, X) == before


# --- Full disks and cut files -------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved():
    X, y = make_chunks()
    return CRFTagger().fit(X, y), Sequences.from_list(X), y


def write_model(model, path):
    joblib.dump(model, path)


def write_pickle(model, path):
    with open(path, "wb") as file:
        pickle.dump(model, file)


def write_skops(model, path):
    pytest.importorskip("skops.io").dump(model, path)


def read_pickle(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def read_skops(path):
    from sklseq.deployment import trusted_types

    return pytest.importorskip("skops.io").load(path, trusted=trusted_types())


FORMATS = {
    "joblib": (write_model, joblib.load),
    "pickle": (write_pickle, read_pickle),
    "skops": (write_skops, read_skops),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMATS)
def test_a_cut_model_file_never_loads(saved, form, tmp_path):
    write, read = FORMATS[form]
    path = tmp_path / f"model.{form}"
    write(saved[0], path)
    whole = path.read_bytes()
    for size in {*range(0, len(whole), max(1, len(whole) // 12)), len(whole) - 1}:
        path.write_bytes(whole[:size])
        with pytest.raises(Exception):  # noqa: B017
            read(path)


def full_disk(n_bytes, work):
    """Run ``work`` in a child whose files cannot grow above ``n_bytes``; its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails with EFBIG, an OSError
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
    try:
        work()
        os._exit(0)
    except OSError:
        os._exit(7)
    except BaseException:
        os._exit(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("n_bytes", [0, 100, 1000, 5000])
def test_a_full_disk_leaves_the_old_sequences(saved, tmp_path, n_bytes):
    _, X, y = saved
    path = tmp_path / "x.npz"
    X[:2].save(path, y[:2])
    before = path.read_bytes()
    assert full_disk(n_bytes, lambda: X.save(path, y)) == 7
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.npz"]
    text = tmp_path / "x.txt"
    columns = [{"w": ["word"] * len(one)} for one in y]
    write_conll(text, columns[:1], y[:1])
    old = text.read_bytes()
    if n_bytes <= 1000:
        assert full_disk(n_bytes, lambda: write_conll(text, columns * 9, y * 9)) == 7
        assert text.read_bytes() == old
        assert sorted(os.listdir(tmp_path)) == ["x.npz", "x.txt"]
    assert read_conll(text)[1] == [y[0].tolist()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("form", FORMATS)
def test_a_full_disk_never_leaves_a_model_that_loads(saved, tmp_path, form):
    write, read = FORMATS[form]
    whole = tmp_path / "whole"
    write(saved[0], whole)
    for n_bytes in (0, 10, whole.stat().st_size // 2, whole.stat().st_size - 1):
        path = tmp_path / f"{n_bytes}"
        assert full_disk(n_bytes, lambda path=path: write(saved[0], path)) == 7
        if path.exists():
            with pytest.raises(Exception):  # noqa: B017
                read(path)


# --- Readers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", fuzz_readers.readers())
def test_readers_survive_mutated_files(name, tmp_path):
    n = 30 if name == "Shards" else 300
    outcomes, wrong = fuzz_readers.fuzz(name, n, seed=20, folder=tmp_path)
    assert not wrong, wrong[0]
    assert outcomes["read"] > 0
    assert outcomes["refused"] > n // 20


def test_labels_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    Sequences(np.ones((2, 1)), [0, 2]).save(path, [["a", "b"]])
    text = np.array(["a", "b"]).tobytes()
    data = path.read_bytes()
    assert text in data
    changed = b"a\0\0\xff" + text[4:]
    new = data.replace(text, changed)
    with zipfile.ZipFile(path) as file:  # with a checksum that fits, as another writer would
        old_sum = file.getinfo("classes.npy").CRC
        member = file.read("classes.npy")
    new_sum = zlib.crc32(member.replace(text, changed))
    path.write_bytes(new.replace(struct.pack("<I", old_sum), struct.pack("<I", new_sum)))
    with pytest.raises(ValueError, match="labels are not text"):
        Sequences.load(path)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ["classes", "shape"])
def test_a_changed_label_or_width_is_noticed_through_a_map_too(name, mmap, tmp_path):
    path, rows = tmp_path / "x.npz", sparse.csr_matrix(np.eye(2, 5))
    Sequences(rows, [0, 2]).save(path, [["a", "b"]])
    data = path.read_bytes()
    old = {"classes": np.array(["a", "b"]), "shape": np.array([2, 5])}[name].tobytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, old[:-8] + b"\x07" + old[-7:]))
    with pytest.raises(ValueError, match=rf"Array '{name}' of .*cannot be read: Bad CRC-32"):
        Sequences.load(path, mmap=mmap)


def test_a_header_that_ends_in_a_bracket_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    Sequences(np.ones((2, 1)), [0, 2]).save(path)
    data = path.read_bytes()
    assert b"'shape': (2, 1), }" in data
    path.write_bytes(data.replace(b"'shape': (2, 1), }", b"'shape': (2, 1,((("))
    with pytest.raises(ValueError, match=r"Array 'rows' of .* cannot be read"):
        Sequences.load(path)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    ("old", "new"), [(b"(2, 1), }", b"(2L,1), }"), (b"{'descr", b" {'desc"), (b"<f8", b"|a8")]
)
def test_headers_that_numpy_warns_of_are_refused(old, new, mmap, tmp_path):
    path = tmp_path / "x.npz"
    Sequences(np.ones((2, 1)), [0, 2]).save(path)
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    with pytest.raises(ValueError, match=r"Array '\w+' .*be read"):
        Sequences.load(path, mmap=mmap)


def test_what_numpy_compressed_or_another_writer_wrote_is_read_too(tmp_path):
    X = Sequences(np.arange(8.0).reshape(4, 2), [0, 1, 4])
    X.save(tmp_path / "x.npz", [["a"], ["b", "a", "b"]])
    with np.load(tmp_path / "x.npz") as file:
        np.savez_compressed(tmp_path / "z.npz", **file)
    for mmap in (False, True):
        Z, y = Sequences.load(tmp_path / "z.npz", mmap=mmap, return_y=True)
        assert_array_equal(Z.rows, X.rows)
        assert y == [["a"], ["b", "a", "b"]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"indptr": np.array([0, 1, 1])}, "indptr, indices and data do not fit together"),
        ({"data": np.array([1.0])}, "indptr, indices and data do not fit together"),
        ({"indptr": np.array([0, 2, 1])}, "indptr does not rise"),
        ({"indices": np.array([0, 5])}, "column numbers out of range"),
        ({"codes": np.array([0], np.uint8)}, "1 labels for 2 rows"),
        ({"codes": np.array([0, 2], np.uint8)}, "labels out of range"),
        ({"offsets": np.array([0, 3])}, "offsets end at 3 instead of 2"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(tmp_path, changed, message):
    path = tmp_path / "x.npz"
    Sequences(sparse.csr_matrix(np.diag([2.0, 3.0])), [0, 2]).save(path, [["a", "b"]])
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, **changed})
    with pytest.raises(ValueError, match=f"is corrupt: {message}"):
        Sequences.load(path)


def test_labels_that_a_saved_shard_does_not_use_are_left_out(tmp_path):
    path = tmp_path / "x.npz"
    Sequences(np.eye(3), [0, 3]).save(path, [["a", "b", "c"]])
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "codes": np.array([0, 2, 2], np.uint8)})
    assert CRFTagger().fit(Shards([path])).classes_.tolist() == ["a", "c"]


@pytest.mark.parametrize("cell", ["nan", "inf", "-1e300", "1e400"])
def test_numbers_of_connections_are_finite(cell, tmp_path):
    path = tmp_path / "log.csv"
    cells = ["0", "tcp", "http", "SF", "181", cell, *["0"] * 35, "normal."]
    path.write_text(fuzz_readers.KDD + ",".join(cells) + "\n", encoding="ascii")
    message = r"Column 6 of log.csv must hold finite numbers; line 2 has "
    with pytest.raises(ValueError, match=message):
        read_kdd99(path)


# --- Streams ------------------------------------------------------------------------------------


def test_a_stream_holds_only_what_is_pending():
    X, y = make_chunks()
    stream = clone(ESTIMATORS["online"]).fit(X, y).stream()
    rows, sizes = np.concatenate(X), []
    n = 0
    for k in range(6):
        for row in rows[np.random.default_rng(k).permutation(len(rows))]:
            n += len(stream.push(row))
        sizes.append(len(pickle.dumps(stream)) if k else 0)
    n += len(stream.flush())
    assert n == 6 * len(rows)
    assert max(sizes[1:]) <= 1.5 * min(sizes[1:])


# --- Segment features in pipelines --------------------------------------------------------------


def test_a_segmenter_pipeline_is_deterministic_too():
    X = [["the", "New", "York", "Times"], ["in", "Ohio"]]
    y = [["O", "B-x", "I-x", "I-x"], ["O", "B-y"]]
    make = lambda: make_pipeline(SegmentFeatures(TokenFeatures(), max_length=3), SemiCRFSegmenter())  # noqa: E731
    a, b = make().fit(X, y), pickle.loads(pickle.dumps(make().fit(X, y)))
    assert_array_equal(a[-1].coef_, b[-1].coef_)
    assert a.predict(X) == b.predict(X)
