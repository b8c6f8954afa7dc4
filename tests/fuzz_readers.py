"""Mutated files for every reader: python -m tests.fuzz_readers [N] [SEED].

A reader may only return, or raise a ValueError (or ShardError, which is one). Anything else is
printed with the number that makes it again: another exception, a warning, a hang, or an answer
that breaks a promise. Exit code 1 if there was one.
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

from sklseq import CRFTagger, Sequences, Shards
from sklseq.datasets import read_conll, read_kdd99, read_tagged
from sklseq.features import TemplateFeatures

CONLL = "He PRP B-NP\nran VBD B-VP\n\n-DOCSTART- x O\n# note\nStop\tVB\tB-VP\r\nÄß € O\n" * 3
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


def check_tagged(path: Path, data: bytes) -> None:
    X, y = read_tagged(io.BytesIO(data))
    assert [len(x) for x in X] == [len(labels) for labels in y]


def check_kdd(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for numeric in ("binned", "scaled"):
        X, y, names = read_kdd99(path, numeric=numeric)
        assert X.shape == (len(y), len(names))
        assert np.isfinite(X.data).all()


def check_load(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    for mmap in (False, True):
        X, y = Sequences.load(path, mmap=mmap, return_y=True)
        assert X.offsets[-1] == X.n_rows
        assert y is None or [len(one) for one in y] == X.lengths.tolist()
        X.rows @ np.zeros(X.shape[1])  # touches every row


def check_shards(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence
        CRFTagger(max_iter=2).fit(Shards([path])).predict(Shards([path]))


def check_template(path: Path, data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    TemplateFeatures(text).fit_transform([["a", "b"], ["c"]])


def readers() -> dict:
    """(what to check, files to start from) by name."""
    texts = {"read_conll": (check_conll, CONLL), "read_tagged": (check_tagged, TAGGED)}
    texts["read_kdd99"] = (check_kdd, KDD * 3)
    found = {
        name: (check, [text.encode(), gzip.compress(text.encode(), mtime=0)])
        for name, (check, text) in texts.items()
    }
    found["Sequences.load"] = check_load, stored()
    found["Shards"] = check_shards, stored()
    found["TemplateFeatures"] = check_template, [b"U00:%x[0,0]\nU01:%x[-1,0]/%x[0,0]\nB\n# c\n"]
    return found


def fuzz(name: str, n: int, seed: int = 0, folder: str | None = None) -> tuple[Counter, list]:
    """Outcomes of ``n`` inputs, and what went wrong: (number, exception)."""
    check, starts = readers()[name]
    outcomes, wrong = Counter(), []
    with tempfile.TemporaryDirectory(dir=folder) as folder:
        path = Path(folder, "file.npz")
        for k in range(n):
            rng = np.random.default_rng([seed, k])
            data = mutate(rng, starts[k % len(starts)])
            faulthandler.dump_traceback_later(30, exit=True)  # a hang
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    check(path, data)
                outcomes["read"] += 1
            except ValueError as error:
                # Ours are sentences that end; others would be of NumPy's or zipfile's making.
                outcomes[
                    "refused" if str(error).rstrip().endswith((".", '"', ")")) else "bare"
                ] += 1
            except Exception as error:
                wrong.append((k, error))
            finally:
                faulthandler.cancel_dump_traceback_later()
    return outcomes, wrong


def main() -> int:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    for name in readers():
        # The first names are quick; fitting takes longer.
        count, start = n // (10 if name == "Shards" else 1), time.perf_counter()
        outcomes, wrong = fuzz(name, count, seed)
        kinds = Counter(f"{type(error).__name__}: {str(error)[:90]}" for _, error in wrong)
        print(f"{name:18} {count} inputs, {time.perf_counter() - start:.0f} s: {dict(outcomes)}, "
              f"{len(wrong)} wrong", flush=True)  # fmt: skip
        for kind, times in kinds.most_common(12):
            first = next(k for k, e in wrong if f"{type(e).__name__}: {str(e)[:90]}" == kind)
            print(f"    {times} x {kind} (first: {first})", flush=True)
        failed += len(wrong)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
