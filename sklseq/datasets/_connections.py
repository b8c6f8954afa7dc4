"""Logs of network connections: a reader for the KDD Cup 1999 files, and a generator."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.checks import check_number
from sklseq._lib.ragged import offsets_of

from ._conll_batches import text_blocks

# Columns of the files by position and type.
CATEGORICAL = {
    1: "protocol_type", 2: "service", 3: "flag", 6: "land", 11: "logged_in", 20: "is_host_login",
    21: "is_guest_login",
}  # fmt: skip
COUNTS = {
    0: "duration", 4: "src_bytes", 5: "dst_bytes", 7: "wrong_fragment", 8: "urgent", 9: "hot",
    10: "num_failed_logins", 12: "num_compromised", 13: "root_shell", 14: "su_attempted",
    15: "num_root", 16: "num_file_creations", 17: "num_shells", 18: "num_access_files",
    19: "num_outbound_cmds", 22: "count", 23: "srv_count", 31: "dst_host_count",
    32: "dst_host_srv_count",
}  # fmt: skip
RATES = {
    24: "serror_rate", 25: "srv_serror_rate", 26: "rerror_rate", 27: "srv_rerror_rate",
    28: "same_srv_rate", 29: "diff_srv_rate", 30: "srv_diff_host_rate",
    33: "dst_host_same_srv_rate", 34: "dst_host_diff_srv_rate", 35: "dst_host_same_src_port_rate",
    36: "dst_host_srv_diff_host_rate", 37: "dst_host_serror_rate", 38: "dst_host_srv_serror_rate",
    39: "dst_host_rerror_rate", 40: "dst_host_srv_rerror_rate",
}  # fmt: skip
N_COLUMNS = 42
# Attacks of the four kinds of the task; other names than these and "normal" become "other".
KINDS = {
    "normal": "normal",
    "dos": "back land neptune pod smurf teardrop apache2 mailbomb processtable udpstorm",
    "probe": "ipsweep nmap portsweep satan mscan saint",
    "r2l": "ftp_write guess_passwd imap multihop phf spy warezclient warezmaster httptunnel named "
    "sendmail snmpgetattack snmpguess worm xlock xsnoop",
    "u2r": "buffer_overflow loadmodule perl rootkit ps sqlattack xterm",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
BLOCK = 1 << 21  # bytes that are read at a time


class Connections(NamedTuple):
    """A log of connections as one sequence.

    Attributes
    ----------
    X : CSR matrix of shape (n_records, n_features)
    y : ndarray of str, shape (n_records,)
        Label of each connection: "normal", or the category of the attack.
    feature_names : list of str
        ``"service=http"``, ``"src_bytes>=256"``, …; pass it to :func:`read_kdd99` to
        read another file into the same columns.
    """

    X: sparse.csr_matrix
    y: np.ndarray
    feature_names: list


def read_kdd99(
    path: str | os.PathLike,
    *,
    feature_names: list | None = None,
    n_records: int | None = None,
) -> Connections:
    """Read connection records in the format of the KDD Cup 1999.

    A line holds 41 comma-separated features and the label. Each value of a category becomes a
    feature, and so does each bin of a number: powers of two for counts, tenths for rates. The file
    is one sequence, with records in the order of time; labels are normal, dos, probe, r2l, u2r, or
    other for the name of an unknown attack.

    Parameters
    ----------
    path : str or path-like
        Plain or gzip.
    feature_names : list of str, optional
        Features of a file read before; other values get no feature.
    n_records : int, optional
        Number of records to read; all by default.

    Returns
    -------
    Connections
        Named tuple ``(X, y, feature_names)``.

    Raises
    ------
    ValueError
        If a parameter is wrong, a line does not have 42 cells, or a numeric cell holds no number.

    References
    ----------
    S. Hettich, S. D. Bay (1999), "The UCI KDD Archive: KDD Cup 1999 data".

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklseq.datasets import read_kdd99
    >>> cells = ["0", "tcp", "http", "SF", "181", "5450", *["0"] * 35, "normal."]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text(",".join(cells) + "\\n")
    ...     X, y, names = read_kdd99(path)
    >>> y.tolist(), X.shape, names[:3]
    (['normal'], (1, 41), ['duration>=0', 'protocol_type=tcp', 'service=http'])
    """
    check_number("n_records", n_records, 1, whole=True, optional=True)
    vocabulary = {name: k for k, name in enumerate(feature_names or [])}
    parts, found = [], []
    for first, cells in _cells(Path(path), n_records):
        columns = _columns(cells, path, first)
        parts.append(_encode(columns, len(cells), vocabulary, grow=feature_names is None))
        found.append(_labels(cells[:, -1]))
    for part in parts:
        part.resize(part.shape[0], len(vocabulary))  # the vocabulary has grown since
    X = sparse.vstack(parts, format="csr") if parts else sparse.csr_matrix((0, len(vocabulary)))
    y = np.concatenate(found) if found else np.zeros(0, dtype=str)
    return Connections(X, y, list(vocabulary))


def _cells(path: Path, n_records: int | None) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (number of the first line, cells) of each block of lines."""
    first = 1
    for text in text_blocks(os.fspath(path), "latin-1", BLOCK):
        lines = text.removesuffix("\n").split("\n")
        lines = lines if n_records is None else lines[: n_records - first + 1]
        for k, line in enumerate(lines):
            if line.count(",") != N_COLUMNS - 1:
                raise ValueError(
                    f"Line {first + k} of {path.name} has {line.count(',') + 1} cells; a "
                    f"record has {N_COLUMNS}, separated by commas, the label last."
                )
        if not lines:
            return
        yield first, np.array(",".join(lines).split(",")).reshape(-1, N_COLUMNS)
        first += len(lines)


def _columns(cells: np.ndarray, path: str | os.PathLike, first: int) -> Iterator:
    """Yield (codes of n rows, names of the codes) of each column, in order."""
    for k in range(N_COLUMNS - 1):
        if k in CATEGORICAL:
            values, codes = np.unique(cells[:, k], return_inverse=True)
            yield codes, [f"{CATEGORICAL[k]}={value}" for value in values]
            continue
        try:
            x = cells[:, k].astype(np.float64)
        except ValueError as error:
            raise ValueError(
                f"Column {k + 1} of {Path(path).name} must hold numbers; one of lines {first} to "
                f"{first + len(cells) - 1} does not: {error}."
            ) from error
        wrong = np.flatnonzero(~(np.abs(x) < 1e18))
        if wrong.size:
            raise ValueError(
                f"Column {k + 1} of {Path(path).name} must hold finite numbers; line "
                f"{first + wrong[0]} has {cells[wrong[0], k]!r}."
            )
        scaled = np.log2(1 + np.maximum(x, 0)) if k in COUNTS else 10 * x
        values, codes = np.unique(np.floor(scaled + 1e-9).astype(int), return_inverse=True)
        lowest = [2**b - 1 if k in COUNTS else b / 10 for b in values.tolist()]
        yield codes, [f"{COUNTS.get(k) or RATES[k]}>={value}" for value in lowest]


def _encode(columns: Iterator, n: int, vocabulary: dict, grow: bool) -> sparse.csr_matrix:
    indices = []
    for codes, names in columns:
        if grow:
            for name in names:
                vocabulary.setdefault(name, len(vocabulary))
        indices.append(np.array([vocabulary.get(name, -1) for name in names])[codes])
    codes = np.stack(indices, axis=1).astype(np.int32)
    keep = codes >= 0
    indptr = offsets_of(keep.sum(axis=1))
    shape = (n, len(vocabulary))
    return sparse.csr_matrix((np.ones(keep.sum()), codes[keep], indptr), shape=shape)


def _labels(cells: np.ndarray) -> np.ndarray:
    values, codes = np.unique(cells, return_inverse=True)
    names = [KIND_OF.get(value.rstrip("."), "other") for value in values.tolist()]
    return np.array(names)[codes]


def make_connections(n_records: int = 10_000, random_state: int | None = 0) -> Connections:
    """Generate a log of connections: normal traffic, bursts of floods and slow scans.

    Attacks come in runs, and some of their records look like normal ones, so a model that uses
    neighbouring records predicts better than one that does not.

    Parameters
    ----------
    n_records : int, default=10000
    random_state : int or None, default=0

    Returns
    -------
    Connections
        Named tuple ``(X, y, feature_names)``; 3 labels, 40 features.

    Examples
    --------
    >>> from sklseq.datasets import make_connections
    >>> X, y, names = make_connections(1000)
    >>> X.shape, sorted(set(y.tolist()))
    ((1000, 40), ['flood', 'normal', 'scan'])
    """
    check_number("n_records", n_records, 1, whole=True)
    rng = np.random.default_rng(random_state)
    runs = rng.geometric([1 / 200, 1 / 60, 1 / 25], size=(n_records // 100 + 3, 3))
    # Normal traffic alternates with one of the two attacks.
    kinds = np.stack([np.zeros(len(runs), int), rng.integers(1, 3, len(runs))], axis=1)
    lengths = np.take_along_axis(runs, kinds, axis=1)
    lengths[0] = np.minimum(lengths[0], n_records // 4)
    kinds[:3, 1] = [1, 2, 1]
    code = np.repeat(kinds.ravel(), lengths.ravel())
    code = np.resize(code, n_records)
    names, columns = [], []
    for column, n_values in (("service", 12), ("flag", 8), ("bytes", 12), ("rate", 8)):
        likely = rng.dirichlet(np.full(n_values, 0.6), size=3)
        likely = 0.5 * likely + 0.5 * likely[:1]  # half of the records carry no information
        above = likely.cumsum(axis=1)[code]
        value = (rng.random(n_records)[:, None] > above[:, :-1]).sum(axis=1)
        columns.append(len(names) + value)
        names += [f"{column}={v}" for v in range(n_values)]
    indices = np.stack(columns, axis=1).astype(np.int32).ravel()
    indptr = np.arange(0, 4 * n_records + 1, 4)
    X = sparse.csr_matrix((np.ones(4 * n_records), indices, indptr), (n_records, len(names)))
    return Connections(X, np.array(["normal", "flood", "scan"])[code], names)
