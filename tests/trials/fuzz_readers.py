"""Mutated files for every reader: python -m tests.trials.fuzz_readers [N] [SEED] [NAME ...].

A reader may only return, or raise a ValueError (or ShardError, which is one). Anything else is
printed with the number that makes it again: another exception, a warning, a hang, or an answer
that breaks a promise. Exit code 1 if there was one.
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

from sklseq import CRFTagger, Sequences, Shards, read_crfsuite_model
from sklseq.datasets import read_conll, read_conllu, read_kdd99, read_tagged
from sklseq.features import TemplateFeatures

CONLL = "He PRP B-NP\nran VBD B-VP\n\n-DOCSTART- x O\n# note\nStop\tVB\tB-VP\r\nÄß € O\n" * 3
CONLLU = (
    "# sent_id = 1\n1-2\tä b" + "\t_" * 8 + "\n1" + "\tä\tx" * 4 + "\t_\n2" + "\tb\t_" * 4 + "\t_\n"
)
CONLLU = (CONLLU + "2.1" + "\t_" * 9 + "\n\n") * 3
TAGGED = "<author> A. Smith </author> in <city>New York</city> a < b\n<x></x> word\n" * 3
KDD = ",".join(["0", "tcp", "http", "SF", "181", "5450", *["0.5"] * 35, "normal."]) + "\n"
PIECES = [b"\0", b"\n", b"\r", b"\t", b" ", b"<", b">", b"</", b",", b"nan", b"inf", b"-1",
          b"1e999", b"\xff", b"\xef\xbb\xbf", b"\x1f\x8b", b"9" * 40, b"-DOCSTART-",
          b"\xe2\x80\xa8", b"%x[0,0]", b"U00:%x[-1,0]/%x[99999999999,0]", b"PK\x05\x06",
          b"\x93NUMPY"]  # fmt: skip


def mutate(rng: np.random.Generator, data: bytes) -> bytes:
    """One to eight changes: bits, cuts, repeats, pieces put in, runs of bytes removed."""
    out = bytearray(data)
    for _ in range(min(8, rng.geometric(0.5))):
        at = int(rng.integers(0, len(out) + 1))
        kind = rng.integers(0, 7)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << int(rng.integers(0, 8))
        elif kind == 1:
            out[at:at] = PIECES[rng.integers(0, len(PIECES))]
        elif kind == 2:
            del out[at : at + int(rng.integers(1, 30))]
        elif kind == 3 and rng.random() < 0.3:
            del out[at:]
        elif kind == 4:
            out[at:at] = out[at : at + int(rng.integers(1, 40))]
        elif kind == 5 and out:
            out[at % len(out)] = int(rng.integers(0, 256))
        elif kind == 6 and len(out) > 8:
            value = rng.choice([0, 1, 2**31 - 1, 2**32 - 1]).astype("<u4").tobytes()
            at = at % (len(out) - 4)
            out[at : at + 4] = value
    return bytes(out)


def mutate_in_place(rng: np.random.Generator, data: bytes) -> bytes:
    """One to four changes that leave every part where it was, in a file of CRFsuite.

    Nine times of ten its header gives the right length.
    """
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        # Half of the changes in what is no data: headers and tables of numbers.
        byte = int(rng.integers(len(out) if rng.random() < 0.5 else min(200, len(out))))
        kind = rng.integers(4)
        if kind == 0:
            out[byte] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            out[byte : byte + 4] = rng.bytes(4)
        elif kind == 2:
            out[byte : byte + 4] = struct.pack("<I", int(rng.choice([0, 1, 2**31, 2**32 - 1])))
        else:
            source = int(rng.integers(len(out)))
            out[byte : byte + 64] = out[source : source + 64]
    if rng.random() < 0.9:
        out[4:8] = struct.pack("<I", len(out))
    return bytes(out)


def mutate_model(rng: np.random.Generator, data: bytes) -> bytes:
    """Mostly in place; one of four times any bytes move."""
    return mutate_in_place(rng, data) if rng.random() < 0.75 else mutate(rng, data)


def models() -> list[bytes]:
    """Model files of CRFsuite; none where python-crfsuite is not installed."""
    try:
        import pycrfsuite
    except ImportError:
        return []
    files = []
    for algorithm in ("lbfgs", "ap"):
        trainer = pycrfsuite.Trainer(algorithm, verbose=False)
        trainer.append([["a", "b"], ["b", "é:1"], ["c"]], ["X", "Y", "Ż"])
        trainer.append([{"a": 0.5, "c": 2.0}, ["b"]], ["Y", "X"])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model")
            trainer.train(str(path))
            files.append(path.read_bytes())
    return files


def stored() -> list[bytes]:
    """Small files of every layout that ``Sequences.save`` writes."""
    rng = np.random.default_rng(0)
    rows, files = rng.normal(size=(7, 3)), []
    y = [["a", "b"], ["b", "b", "a", "c"], ["a"]]
    for form in (
        rows,
        sparse.csr_matrix(rows * (rows > 0)),
        sparse.csr_matrix(rows > 0, dtype=float),
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.npz")
            Sequences(form, [0, 2, 6, 7]).save(path, y, [1.0, 0.0, 2.0])
            files.append(path.read_bytes())
    return files


def check_conll(path: Path, data: bytes) -> None:
    X, y = read_conll(io.BytesIO(data), comment="#")
    for x, labels in zip(X, y, strict=True):
        assert {len(column) for column in x.values()} <= {len(labels)}


def check_conllu(path: Path, data: bytes) -> None:
    X, y, metadata = read_conllu(io.BytesIO(data), columns=["form", "misc"], return_metadata=True)
    assert len(X) == len(y) == len(metadata)
    for x, labels in zip(X, y):
        assert len(x["form"]) == len(x["misc"]) == len(labels) > 0
        assert "" not in labels


def check_tagged(path: Path, data: bytes) -> None:
    X, y = read_tagged(io.BytesIO(data))
    assert [len(x) for x in X] == [len(labels) for labels in y]


def check_kdd(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    X, y, names = read_kdd99(path)
    assert X.shape == (len(y), len(names))
    assert np.isfinite(X.data).all()


def check_load(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    refused = None
    for mmap in (False, True):  # checksums are verified without a map only: each is a reader
        try:
            X, y = Sequences.load(path, mmap=mmap, return_y=True)
        except ValueError as error:
            refused = error
            continue
        assert X.offsets[-1] == X.n_rows
        assert y is None or [len(one) for one in y] == X.lengths.tolist()
        with np.errstate(all="ignore"):  # a number may have become any other, unnoticed
            X.rows @ np.zeros(X.shape[1])  # touches every row
    if refused is not None:
        raise refused


def check_shards(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence
        CRFTagger(max_iter=2).fit(Shards([path])).predict(Shards([path]))


def check_template(path: Path, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    TemplateFeatures(text).fit_transform([["a", "b"], ["c"]])


def check_model(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        tagger = read_crfsuite_model(path)
    except ValueError as error:
        if str(path) not in str(error):
            raise RuntimeError("the message does not name the file") from error
        raise
    n_labels = len(set(tagger.classes_.tolist()))
    assert n_labels == len(tagger.classes_) == tagger.coef_.shape[1]
    assert np.isfinite(tagger.transition_).all()
    try:
        X = [[["a"], ["c", "a"]]]
        labels, proba = tagger.predict(X)[0], tagger.predict_proba(X)[0]
    except ValueError:  # weights of 1e300 overflow in sums, as they may in any model
        assert max(abs(tagger.coef_).max(), abs(tagger.transition_).max()) > 1e100
    else:
        assert len(labels) == 2
        assert np.abs(proba.sum(axis=1) - 1).max() < 1e-9


def readers() -> dict:
    """(what to check, files to start from, how they are mutated) by name."""
    texts = {"read_conll": (check_conll, CONLL), "read_tagged": (check_tagged, TAGGED)}
    texts["read_conllu"] = (check_conllu, CONLLU)
    texts["read_kdd99"] = (check_kdd, KDD * 3)
    found = {
        name: (check, [text.encode(), gzip.compress(text.encode(), mtime=0)], mutate)
        for name, (check, text) in texts.items()
    }
    template = b"U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\nB\n# c\n"
    found["TemplateFeatures"] = check_template, [template], mutate
    if starts := models():
        found["read_crfsuite_model"] = check_model, starts, mutate_model
    found["Sequences.load"] = check_load, stored(), mutate
    found["Shards"] = check_shards, stored(), mutate
    return found


def fuzz(name: str, n: int, seed: int = 0, folder: str | None = None) -> tuple[Counter, list]:
    """Outcomes of ``n`` inputs, and what went wrong: (number, exception)."""
    check, starts, change = readers()[name]
    outcomes, wrong = Counter(), []
    with tempfile.TemporaryDirectory(dir=folder) as folder:
        path = Path(folder, "file.npz")
        for k in range(n):
            rng = np.random.default_rng([seed, k])
            data = change(rng, starts[k % len(starts)])
            # A hang; far longer than any file takes, for a process may be stopped in between.
            faulthandler.dump_traceback_later(1800, exit=True, file=sys.__stderr__)
            start = time.process_time()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    check(path, data)
                outcomes["read"] += 1
            except ValueError as error:
                # Ours are sentences that end; others would be of NumPy's or zipfile's making.
                if str(error).rstrip().endswith((".", '"', ")")):
                    outcomes["refused"] += 1
                else:
                    wrong.append((k, error))
            except Exception as error:
                wrong.append((k, error))
            finally:
                faulthandler.cancel_dump_traceback_later()
            if (took := time.process_time() - start) > 10:
                wrong.append((k, RuntimeError(f"it took {took:.0f} s")))
    return outcomes, wrong


def main() -> int:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed, chosen = 0, sys.argv[3:]
    for name in chosen or readers():
        start = time.perf_counter()
        outcomes, wrong = fuzz(name, n, seed)
        kinds = Counter(f"{type(error).__name__}: {str(error)[:90]}" for _, error in wrong)
        print(
            f"{name:18} {n} inputs, {time.perf_counter() - start:.0f} s: {dict(outcomes)}, "
            f"{len(wrong)} wrong",
            flush=True,
        )
        for kind, times in kinds.most_common(12):
            first = next(k for k, e in wrong if f"{type(e).__name__}: {str(e)[:90]}" == kind)
            print(f"    {times} x {kind} (first: {first})", flush=True)
        failed += len(wrong)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
