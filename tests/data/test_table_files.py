"""Tables in files, slices, caches and pieces of sequences in blocks."""

import contextlib
import gzip
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from sklseq import CRFTagger, RowBlocks, TimeBlockSplit
from sklseq.data import table_files
from sklseq.data.label_blocks import label_blocks
from sklseq.data.row_blocks import BlockError
from sklseq.data.table_cache import write_blocks

N = 230
X = np.round(np.random.default_rng(0).normal(size=(N, 3)), 3)
Y = np.where(X[:, 0] > 0, "up", "down, or so")
NAMES = ["load", "rest", "disk io"]


def as_csv(delimiter=","):
    lines = [delimiter.join([*NAMES, "state"])]
    lines += [delimiter.join([*map(repr, x.tolist()), f'"{y}"']) for x, y in zip(X, Y)]
    return "\n".join(lines) + "\n\n"


def write(folder, suffix):
    path = folder / f"log{suffix}"
    text = as_csv("\t" if suffix.startswith(".tsv") else ",")
    if suffix.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    elif suffix in (".csv", ".tsv"):
        path.write_text(text)
    else:
        polars = pytest.importorskip("polars")
        table = polars.DataFrame({**dict(zip(NAMES, X.T)), "state": Y.tolist()})
        (table.write_parquet if suffix == ".parquet" else table.write_ipc)(path)
    return path


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(table_files, "TABLE_ROWS", 64)


@pytest.fixture(params=["pyarrow", "polars"])
def library(request, monkeypatch):
    pytest.importorskip(request.param)
    monkeypatch.setattr(table_files, "find_spec", lambda name: name == request.param)


def read_labels(labels, n=N):
    return np.concatenate(list(label_blocks([labels], 1)[0].read("it")))


def whole(rows):
    return np.concatenate(list(rows.read()))


def check_table(path, folder):
    for cache in (None, folder / "cache", folder / "cache"):
        rows, labels = RowBlocks.from_table(path, "state", cache=cache)
        rows, labels = pickle.loads(pickle.dumps((rows, labels)))
        for _ in range(2):
            assert_array_equal(whole(rows), X)
            assert_array_equal(read_labels(labels), Y)
        assert rows.random_access == (cache is not None)
    rows, labels = RowBlocks.from_table(path, columns=["disk io", "load"])
    assert labels is None
    assert_array_equal(whole(rows[70:200]), X[70:200, [2, 0]])
    with pytest.raises(ValueError, match=r"has no column 'disk'; its columns are \['load', 'rest'"):
        RowBlocks.from_table(path, columns=["disk"])
    with pytest.raises(ValueError, match="columns must be a list of names; got the string 'load'"):
        RowBlocks.from_table(path, columns="load")
    with pytest.raises(ValueError, match="columns must not have 'state', the column of the labels"):
        RowBlocks.from_table(path, "state", columns=["load", "state"])
    with pytest.raises(BlockError, match="Block 0 of sequence 0 cannot be read: ValueError"):
        next(RowBlocks(path).read(where="sequence 0"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".tsv.gz"])
def test_text(suffix, tmp_path):
    check_table(write(tmp_path, suffix), tmp_path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_arrow(suffix, tmp_path, library):
    check_table(write(tmp_path, suffix), tmp_path)


def test_tables_train_and_predict_as_arrays(tmp_path):
    path = write(tmp_path, ".csv")
    rows, labels = RowBlocks.from_table(path, "state")
    tagger = CRFTagger(gradient="emp", tol=1e-6).fit([rows], [labels])
    expected = CRFTagger(gradient="emp", tol=1e-6).fit([X], [Y])
    assert_array_equal(tagger.coef_, expected.coef_)
    assert_allclose(tagger.predict_proba([rows])[0], expected.predict_proba([X])[0], atol=1e-12)
    assert tagger.score([rows], [labels]) == expected.score([X], [Y])


def test_without_a_library_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    path.write_bytes(b"")
    monkeypatch.setattr(table_files, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="neither is installed; pip install pyarrow"):
        RowBlocks(path)


def test_hostile_text(tmp_path):
    path = write(tmp_path, ".csv")
    lines = as_csv().splitlines(keepends=True)
    for k, line, message in [
        (150, "1,2\n", r"line 151 of .*log.csv has 2 cells, but the first line .* names 4 columns"),
        (150, "1,'2,3,up,", r"line 151 of .*log.csv holds .\\?'2. in column 'rest', which is not"),
    ]:
        path.write_text("".join([*lines[:k], line, *lines[k:]]))
        rows, _ = RowBlocks.from_table(path, "state")
        with pytest.raises(BlockError, match=message):
            whole(rows)
    path.write_text("".join([*lines[:9], "nan,0,0,up\n"]))
    with pytest.raises(BlockError, match=r"row 8 of the sequence .* holds nan in column 0"):
        whole(RowBlocks.from_table(path, "state")[0])
    path.write_text("")
    with pytest.raises(ValueError, match="is empty; its first line must name the columns"):
        RowBlocks(path)
    path.write_text("state\nup\n")
    with pytest.raises(ValueError, match=r"No column of .* is left to read"):
        RowBlocks.from_table(path, "state")
    with pytest.raises(ValueError, match=r"Tables are read from files .csv, .*; got '.*log.txt'"):
        RowBlocks.from_table(tmp_path / "log.txt")
    with pytest.raises(FileNotFoundError):
        RowBlocks(tmp_path / "none.csv")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("line", [1, 2, 100, N + 1])
def test_text_that_is_not_utf8_is_an_error_that_names_the_line(line, suffix, tmp_path):
    lines = as_csv().encode().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b",", b"\xe9,", 1)
    text, path = b"".join(lines), tmp_path / f"log{suffix}"
    path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    with pytest.raises(ValueError, match=rf"Line {line} of .*log.csv.* is not UTF-8 \(invalid"):
        whole(RowBlocks.from_table(path, "state")[0])


def test_a_table_that_is_no_whole_gzip_file_is_an_error_that_names_it(tmp_path):
    path, data = tmp_path / "log.csv.gz", gzip.compress(as_csv().encode())
    for wrong in (as_csv().encode(), data[:12], data[:-200], data[:-6] + b"\0" * 6):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=r"log.csv.gz is not a whole gzip file \("):
            whole(RowBlocks.from_table(path, "state")[0])


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz"])
def test_a_byte_order_mark_belongs_to_no_name(suffix, tmp_path):
    path = write(tmp_path, suffix)
    data = path.read_bytes()
    zipped = suffix.endswith(".gz")
    text = b"\xef\xbb\xbf" + (gzip.decompress(data) if zipped else data)
    path.write_bytes(gzip.compress(text) if zipped else text)
    rows, _ = RowBlocks.from_table(path, "state", columns=NAMES)
    assert_array_equal(whole(rows), X)


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz"])
def test_errors_name_the_line_and_the_column_of_any_cell(suffix, tmp_path):
    rng, path = np.random.default_rng(3), tmp_path / f"log{suffix}"
    mark, opened = ("\t", gzip.open) if "tsv" in suffix else (",", open)
    whys = {
        "": "has no value in column",
        " ": "has no value",
        "1,5": "holds '1,5' in",
        "?": "holds",
    }
    for cell, why in whys.items():
        lines = as_csv(mark).splitlines(keepends=True)
        for k in rng.integers(1, N, 5):
            lines.insert(k, "\n")
        k, j = int(rng.integers(1, N)), int(rng.integers(3))
        while not lines[k].strip():
            k += 1
        cells = lines[k].split(mark, 3)
        cells[j] = f'"{cell}"' if "," in cell else cell
        lines[k] = mark.join(cells)
        with opened(path, "wt") as file:
            file.writelines(lines)
        rows, labels = RowBlocks.from_table(path, "state", columns=rng.permutation(NAMES).tolist())
        with pytest.raises(BlockError, match=rf"line {k + 1} of .*log.* {why}.*{NAMES[j]!r}"):
            whole(rows)
        assert len(read_labels(labels)) == N


def test_arrow_errors_name_the_column(tmp_path, library):
    rows = RowBlocks.from_table(write(tmp_path, ".parquet"), columns=["load", "state"])[0]
    with pytest.raises(BlockError, match=r"column 'state' holds '(up|down, or so)', which is not"):
        whole(rows)


@pytest.mark.parametrize("kind", [str, bool, int, float])
@pytest.mark.parametrize("row", [5, 100, N - 1])  # in different blocks
def test_missing_labels_of_arrow_files_are_unknown_or_refused_by_caches(kind, row, tmp_path):
    polars, path = pytest.importorskip("polars"), tmp_path / "log.parquet"
    labels: list = [kind(x > 0) for x in X[:, 0]]
    labels[row] = None
    polars.DataFrame({**dict(zip(NAMES, X.T)), "state": labels}).write_parquet(path)
    model = CRFTagger(l2=100.0, tol=1e-8)  # few passes over the file
    expected = clone(model).fit([X], [labels])

    def check(cache):
        given = [[one] for one in RowBlocks.from_table(path, "state", cache=cache)]
        tagger = clone(model).fit(*given)
        assert_array_equal(tagger.classes_, expected.classes_)
        assert_allclose(tagger.objective_, expected.objective_, rtol=1e-8)

    check(None)
    if kind in (int, float):
        check(tmp_path / "cache")
        return
    message = rf"Row {row} of column 'state' of .*log.parquet holds None, which a cache cannot hold"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            check(tmp_path / "cache")


DAMAGES = {
    "rows cut off": ("rows.npy", lambda data: data[: len(data) // 2]),
    "rows empty": ("rows.npy", lambda data: b""),
    "other magic": ("rows.npy", lambda data: b"?" + data[1:]),
    "other header": ("rows.npy", lambda data: data.replace(b"<f8", b"<q8", 1)),
    "other shape": ("rows.npy", lambda data: data.replace(b"(230, 3)", b"(230, 9)", 1)),
    "fewer rows": ("rows.npy", lambda data: data.replace(b"(230, 3)", b"(229, 3)", 1)),
    "labels cut off": ("labels.npy", lambda data: data[:-40]),
    "fewer labels": ("labels.npy", lambda data: data.replace(b"(230,)", b"(229,)", 1)),
    "stamp cut off": ("table.json", lambda data: data[:20]),
}


@pytest.mark.parametrize("same_time", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_is_written_again(damage, same_time, tmp_path):
    path, (name, change) = write(tmp_path, ".csv"), DAMAGES[damage]
    ask = {"label": "state", "cache": tmp_path / "cache"}
    RowBlocks.from_table(path, **ask)
    file = tmp_path / "cache" / name
    before, data = file.stat(), file.read_bytes()
    assert change(data) != data
    file.write_bytes(change(data))
    if same_time:  # as after an error of the disk
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    rows, labels = RowBlocks.from_table(path, **ask)
    assert_array_equal(whole(rows), X)
    assert_array_equal(read_labels(labels), Y)
    assert file.read_bytes() == data or name == "table.json"


def test_a_cache_of_another_table_is_written_again(tmp_path):
    path, cache = write(tmp_path, ".csv"), tmp_path / "cache"
    RowBlocks.from_table(path, "state", columns=["load"], cache=cache)
    stamp = (cache / "table.json").read_bytes()
    RowBlocks.from_table(path, "state", columns=["rest"], cache=cache)
    (cache / "table.json").write_bytes(stamp)  # as if the two calls had run at the same time
    assert_array_equal(
        whole(RowBlocks.from_table(path, "state", columns=["load"], cache=cache)[0]), X[:, :1]
    )
    before = path.stat()
    path.write_text(as_csv().replace(",rest,", ",load,").replace("load,", "rest,", 1))
    assert path.stat().st_size == before.st_size  # the same name and size, another time
    rows, _ = RowBlocks.from_table(path, "state", columns=["load"], cache=cache)
    assert_array_equal(whole(rows), X[:, 1:2])


def test_drafts_of_killed_writers_are_removed_but_not_those_of_others(tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    path, cache = write(tmp_path, ".csv"), tmp_path / "cache"
    cache.mkdir()
    for name in ("rows.npy", "labels.npy", "table.json"):
        (cache / f"{name}.4194304.part").write_bytes(b"left")
    (cache / "rows.npy.txt").write_text("of the user")
    plain, parts, writing = table_files.TableRows.__iter__, [], threading.Event()

    def slowly(rows):
        parts.append(len(list(cache.glob("*.part"))))
        writing.set()
        time.sleep(0.1)  # for the other writers to reach the lock
        yield from plain(rows)
        parts.append(len(list(cache.glob("*.part"))))

    monkeypatch.setattr(table_files.TableRows, "__iter__", slowly)
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(RowBlocks.from_table, path, "state", columns=columns, cache=cache)
            for columns in (None, None, ["rest"])
        ]
        for one in asked:
            one.result()
    assert set(parts) == {1}  # of the only writer at that time
    assert len(parts) <= 6
    assert sorted(p.name for p in cache.iterdir()) == [
        "labels.npy", "rows.npy", "rows.npy.txt", "table.json",
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"text", b"cut"])
def test_files_that_are_no_arrays_are_named(data, tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    path.write_bytes(path.read_bytes()[:500] if data == b"cut" else data)
    with pytest.raises(ValueError, match=r"rows.npy is not a complete .npy file .* write it again"):
        RowBlocks(path)


def test_a_cache_is_written_once_and_again_after_changes(tmp_path, monkeypatch):
    path, reads = write(tmp_path, ".csv"), []
    plain = table_files.TableRows.__iter__
    monkeypatch.setattr(table_files.TableRows, "__iter__", lambda x: reads.append(1) or plain(x))
    ask = {"label": "state", "cache": tmp_path / "cache"}
    for n_reads, columns in [(1, None), (1, None), (2, ["load"]), (2, ["load"]), (3, None)]:
        RowBlocks.from_table(path, columns=columns, **ask)
        assert len(reads) == n_reads
    path.write_text(as_csv() + "1,2,3,up\n")
    assert len(whole(RowBlocks.from_table(path, **ask)[0])) == N + 1
    assert len(reads) == 4
    path.write_text(as_csv() + "1,2,x,up\n")
    with pytest.raises(
        ValueError, match=f"line {N + 3} of .*log.csv holds 'x' in column 'disk io'"
    ):
        RowBlocks.from_table(path, **ask)
    assert not (tmp_path / "cache" / "table.json").exists()
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == ["labels.npy", "rows.npy"]


# ------------------------------------------------------------------------------ slices, pieces


def sources(folder):
    np.save(folder / "rows.npy", X)
    sparse.save_npz(folder / "rows.npz", sparse.csr_matrix(X))
    return [
        RowBlocks(X),
        RowBlocks(sparse.csr_matrix(X)),
        RowBlocks(list(np.split(X, [0, 50, 51]))),
        RowBlocks(lambda: map(sparse.csc_matrix, np.split(X, [33, 42, 51, 107]))),
        RowBlocks(folder / "rows.npy"),
        RowBlocks(folder / "rows.npz"),
        RowBlocks.from_table(write(folder, ".csv"), "state")[0],
    ]


def dense(rows):
    blocks = [b.toarray() if sparse.issparse(b) else b for b in rows.read(17)]
    return np.concatenate([np.zeros((0, 3)), *blocks])


def test_slices_are_those_of_arrays(tmp_path):
    rng = np.random.default_rng(1)
    for rows in sources(tmp_path):
        for _ in range(12):
            a, b, c, d = rng.integers(0, N + 20, 4)
            b, d = max(a, b), max(c, d)
            assert_array_equal(dense(rows[a:b]), X[a:b])
            part = rows[a:b][c:d]
            assert_array_equal(dense(part), X[a:b][c:d])
            assert_array_equal(dense(part[:7][2:]), X[a:b][c:d][:7][2:])
            if not callable(rows.source):
                part = pickle.loads(pickle.dumps(part))
                assert_array_equal(dense(part), X[a:b][c:d])
        assert_array_equal(dense(RowBlocks(rows[5:])), X[5:])


def test_slices_of_files_are_pickled_by_name(tmp_path):
    np.save(tmp_path / "rows.npy", np.tile(X, (100, 1)))
    assert len(pickle.dumps(RowBlocks(tmp_path / "rows.npy")[40:20_000])) < 500


@pytest.mark.parametrize("key", [slice(-3, None), slice(5, 3), slice(0.5, 2), slice(0, -1)])
def test_slices_that_are_none(key):
    with pytest.raises(ValueError, match="A slice of RowBlocks needs rows of at least 0, in order"):
        RowBlocks(X)[key]


def test_other_keys():
    for key in (3, slice(0, 9, 2), [1, 2], "a"):
        with pytest.raises(TypeError, match="RowBlocks are cut by slices"):
            RowBlocks(X)[key]
    with pytest.raises(ValueError, match="The source is an iterator"):
        RowBlocks(iter([X]))[:3]


def test_save_reads_once(tmp_path):
    for k, rows in enumerate(sources(tmp_path)):
        sparse_rows = any(sparse.issparse(b) for b in rows.read())
        before = rows.n_reads
        if sparse_rows:
            with pytest.raises(ValueError, match="save writes dense rows"):
                rows.save(tmp_path / f"{k}.npy")
            assert not (tmp_path / f"{k}.npy").exists()
            continue
        saved = rows.save(tmp_path / f"{k}.npy")
        assert rows.n_reads == before + 1
        assert saved.random_access
        assert_array_equal(np.load(tmp_path / f"{k}.npy"), X)
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(ValueError, match="There are no rows to write"):
        RowBlocks([]).save(tmp_path / "none.npy")
    with pytest.raises(ValueError, match=r"Rows are saved as .npy files; got '.*rows.csv'"):
        RowBlocks(X).save(tmp_path / "rows.csv")


@pytest.mark.parametrize("seed", range(8))
def test_saved_rows_are_those_of_the_blocks(seed, tmp_path):
    # Blocks of random lengths, some empty, and types: saved as they are, or refused.
    rng = np.random.default_rng(seed)
    types = rng.choice([bool, np.int64, np.float32, np.float64], size=1 + seed % 2)
    blocks = [
        (rng.normal(size=(n, 2)) * 3).astype(rng.choice(types)) for n in rng.integers(3, size=6)
    ]
    blocks.insert(int(rng.integers(7)), np.ones((1, 2), types[0]))
    filled = [block for block in blocks if len(block)]
    path, rows = tmp_path / "rows.npy", np.concatenate(filled)
    if np.result_type(*filled) == filled[0].dtype:
        write_blocks(str(path), iter(blocks))
        assert_array_equal(np.load(path), rows)
    else:
        with pytest.raises(ValueError, match="yield blocks of one type, for instance float64"):
            write_blocks(str(path), iter(blocks))
        assert not list(tmp_path.iterdir())


def test_rows_of_a_wider_type_later_are_not_rounded(tmp_path):
    blocks = [np.ones((5000, 2), np.int64), np.full((5000, 2), 0.5)]
    with pytest.raises(ValueError, match=r"The rows before row .* are int64"):
        RowBlocks(lambda: iter(blocks)).save(tmp_path / "rows.npy")


def test_threads_that_save_to_one_path(tmp_path):
    def save(value):
        for _ in range(20):
            RowBlocks(np.full((20_000, 2), value)).save(tmp_path / "rows.npy")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save, (0.0, 1.0)))
    assert len(np.unique(np.load(tmp_path / "rows.npy"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


def test_pieces_are_consecutive(tmp_path):
    for rows in sources(tmp_path):
        parts, labels = rows.pieces(40, Y)
        assert_array_equal(np.concatenate([dense(part) for part in parts]), X)
        assert_array_equal(np.concatenate(labels), Y)
        assert [len(x) for x in labels] == [40] * 5 + [30]
    with pytest.raises(ValueError, match="The sequence has 230 rows but 9 labels"):
        RowBlocks(X).pieces(40, Y[:9])
    with pytest.raises(ValueError, match="n_rows must be an integer of at least 1; got 0"):
        RowBlocks(X).pieces(0, Y)
    with pytest.raises(ValueError, match="labels must be one array"):
        RowBlocks(X).pieces(40, lambda: iter([Y]))


# ------------------------------------------------------------------------------ folds


@pytest.mark.parametrize("past_only", [False, True])
def test_folds_are_contiguous_with_a_gap(past_only):
    for n in range(2, 25):
        for k in range(2, 6):
            for gap in (0, 1, 3):
                check_folds(n, TimeBlockSplit(k, gap=gap, past_only=past_only))


def check_folds(n, splitter):
    past, gap = splitter.past_only, splitter.gap
    size = n // (splitter.n_splits + past)
    if size == 0 or size <= gap:  # some of these are refused
        with contextlib.suppress(ValueError):
            list(splitter.split(np.zeros(n)))
        return
    folds = list(splitter.split(np.zeros(n)))
    assert len(folds) == splitter.get_n_splits()
    tested = np.concatenate([test for _, test in folds])
    assert_array_equal(tested, np.arange(tested[0], n))
    assert past or tested[0] == 0
    for train, test in folds:
        a, b = test[0] - gap, test[-1] + gap
        expected = [t for t in range(n) if t < a or (t > b and not past)]
        assert_array_equal(train, expected)
    sizes = [len(test) for _, test in folds]
    assert max(sizes) - min(sizes) <= 1


def test_folds_without_gap_are_those_of_sklearn():
    ours, theirs = TimeBlockSplit(4).split(np.zeros(12)), KFold(4).split(np.zeros(12))
    for one, other in zip(ours, theirs, strict=True):
        assert_array_equal(one[0], other[0])
        assert_array_equal(one[1], other[1])


def test_search_over_time(tmp_path):
    rows, labels = RowBlocks.from_table(write(tmp_path, ".csv"), "state", cache=tmp_path / "c")
    parts, y = rows.pieces(23, labels)
    memory = [X[a : a + 23] for a in range(0, N, 23)]
    cv = TimeBlockSplit(3, gap=1, past_only=True)
    grid = {"l2": [0.01, 1.0, 100.0]}
    found = GridSearchCV(CRFTagger(), grid, cv=cv).fit(parts, y)
    expected = GridSearchCV(CRFTagger(), grid, cv=cv).fit(memory, y)
    assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=0.01
    )
    assert found.best_params_ == expected.best_params_


@pytest.mark.parametrize(
    ("splitter", "message"),
    [
        (TimeBlockSplit(1), "n_splits must be an integer of at least 2; got 1"),
        (TimeBlockSplit(gap=-1), "gap must be an integer of at least 0; got -1"),
        (TimeBlockSplit(past_only="no"), "past_only must be True or False; got 'no'"),
        (TimeBlockSplit(7), "n_splits=7 needs at least 7 sequences; got 6"),
        (TimeBlockSplit(6, past_only=True), "at least 7 sequences, the first to train on only"),
        (TimeBlockSplit(2, gap=5), "gap=5 leaves no sequence to train on beside 0 to 2 of 6"),
    ],
)
def test_wrong_folds(splitter, message):
    with pytest.raises(ValueError, match=message):
        list(splitter.split([None] * 6))
