"""Logs of connections: the reader, and the generated ones."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from sklseq.datasets import make_connections, read_kdd99
from sklseq.datasets._connections import CATEGORICAL, COUNTS, RATES


def record(label="normal.", **cells):
    names = CATEGORICAL | COUNTS | RATES
    values = dict.fromkeys(names.values(), "0") | {"protocol_type": "tcp", **cells}
    return ",".join([values[names[k]] for k in range(41)] + [label])


def write(folder, *records):
    path = folder / "log.csv"
    path.write_text("".join(f"{line}\n" for line in records))
    return path


def test_every_column_has_one_kind():
    assert sorted([*CATEGORICAL, *COUNTS, *RATES]) == list(range(41))


def test_features_of_each_record(tmp_path):
    path = write(tmp_path, record(src_bytes="181", same_srv_rate="0.29"), record(service="ftp"))
    X, _, names = read_kdd99(path)
    assert X.sum(axis=1).ravel().tolist() == [[41.0, 41.0]]
    first = {names[k] for k in X[0].indices}
    second = {names[k] for k in X[1].indices}
    assert first - second == {"src_bytes>=127", "same_srv_rate>=0.2", "service=0"}
    assert second - first == {"src_bytes>=0", "same_srv_rate>=0.0", "service=ftp"}


def test_labels(tmp_path):
    path = write(tmp_path, *(record(label=x) for x in ("normal.", "smurf.", "perl.", "new.")))
    assert read_kdd99(path).y.tolist() == ["normal", "dos", "u2r", "other"]
    assert len(read_kdd99(path, n_records=2).y) == 2


def test_another_file_gets_the_same_features(tmp_path):
    names = read_kdd99(write(tmp_path, record(service="ftp"))).feature_names
    X, _, again = read_kdd99(write(tmp_path, record(service="new")), feature_names=names)
    assert again == names
    assert X.shape == (1, len(names))
    assert X.nnz == 40


def test_blocks_and_gzip_change_nothing(tmp_path, monkeypatch):
    lines = [record(src_bytes=str(3**k), service=f"s{k % 4}") for k in range(11)]
    path = write(tmp_path, *lines)
    whole = read_kdd99(path)
    monkeypatch.setattr("sklseq.datasets._connections.BLOCK", 400)
    (tmp_path / "log.gz").write_bytes(gzip.compress(path.read_bytes()))
    pieces = read_kdd99(tmp_path / "log.gz")
    assert sorted(pieces.feature_names) == sorted(whole.feature_names)
    order = [pieces.feature_names.index(name) for name in whole.feature_names]
    np.testing.assert_array_equal(pieces.X.toarray()[:, order], whole.X.toarray())


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([record(), "0,tcp"], r"Line 2 of log.csv has 2 cells; a record has 42"),
        ([record(count="many")], "Column 23 of log.csv must hold numbers; one of lines 1 to 1"),
    ],
)
def test_errors(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        read_kdd99(write(tmp_path, *lines))


def test_generated_log():
    X, y, names = make_connections(5000, random_state=3)
    assert X.shape == (5000, len(names))
    assert (X.sum(axis=1) == 4).all()
    assert set(y) == {"normal", "flood", "scan"}
    changes = np.mean(y[1:] != y[:-1])
    assert 0.002 < changes < 0.05  # labels come in runs
    again = make_connections(5000, random_state=3)
    assert (again.X != X).nnz == 0


def test_real_log():
    folder = os.environ.get("SKLSEQ_DATA", "")
    path = Path(folder, "kddcup99", "kddcup.data_10_percent.csv.gz")
    if not folder or not path.exists():
        pytest.skip("needs SKLSEQ_DATA with kddcup99/")
    X, y, names = read_kdd99(path, n_records=3000)
    assert X.shape == (3000, len(names))
    assert set(y) <= {"normal", "dos", "probe", "r2l", "u2r"}
    assert (X.sum(axis=1) == 41).all()
