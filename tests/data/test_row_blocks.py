"""Sources that are read again: what changed is told before a kernel sees it; models are kept."""

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklseq._lib._checksum import checksum

from sklseq import CRFTagger, HMSVMTagger, RowBlocks, Sequences, ZScoreTagger, ZScoreTaggerCV
from sklseq._lib.checksums import label_checksum, row_checksum
from sklseq.data import input_kinds
from sklseq.data.input_kinds import blocks_of, in_blocks
from sklseq.data.row_blocks import BlockError, iterate_blocks
from sklseq.objectives.scores.score_map import magnitudes

GRADIENTS = ["emp", "forward-backward", "checkpoint"]


def labelled(n=9000, m=5):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.7)
    return X, (X[:, 0] > 0).astype(int)


X9, Y9 = labelled()


class Source:
    """CSR blocks of 1,500 rows; at one visit, of other rows."""

    def __init__(self, visit, change, make=sparse.csr_matrix):
        self.visit, self.change, self.make, self.visits = visit, change, make, 0

    def __iter__(self):
        self.visits += 1
        X = self.change(X9.copy()) if self.visits == self.visit else X9
        return (self.make(X[a : a + 1500]) for a in range(0, len(X), 1500))


def put(row, column, value):
    def change(X):
        X[row, column] = value
        return X

    return change


def far(X):
    rows = sparse.csr_matrix(X)
    indices = rows.indices * 10**6
    return sparse.csr_matrix((rows.data, indices, rows.indptr), shape=(len(X), 5_000_000))


def damaged(X, position=700, column=4_000_000):
    rows = sparse.csr_matrix(X)
    rows.indices[position] = column
    return rows


# ------------------------------------------------------------------------------ rows


def test_random_changes_at_random_visits_are_refused_and_never_crash():
    command = [sys.executable, "-m", "tests.trials.blocks", "250"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-1500:]
    assert "250 sources" in done.stdout


@pytest.mark.parametrize("gradient", ["emp", "forward-backward"])
@pytest.mark.parametrize("visit", [2, 3])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: np.pad(X, ((0, 0), (0, 1))), "Block 0 of sequence 0 has 6 features, the source "
         "had 5 when it was first read"),
        (put(7000, 3, np.nan), r"Rows 4096 to 8191 of sequence 0 \(blocks 2 to 5\) differ from "
         "those that were first read: row 7000 holds nan in column 3; a source must yield"),
        (put(7000, 3, -np.inf), "row 7000 holds -inf in column 3"),
        (put(8500, 3, 0.25), r"Rows 8192 to 8999 of sequence 0 \(block 5\) differ .*other numbers"),
        (lambda X: X[::-1], "Rows 0 to 4095 of sequence 0 .* differ"),
        (lambda X: X[:, ::-1], "Rows 0 to 4095 of sequence 0 .* differ"),
        (lambda X: X.astype(np.float32), "they come as CSR rows of float32, and came as CSR rows "
         "of float64"),
        (lambda X: X[:8000], "Sequence 0 had 9000 rows when it was first read, and 8000 now"),
        (lambda X: X[:0], "Sequence 0 had 9000 rows when it was first read, and 0 now; .* a "
         "function must return a new iterator"),
        (lambda X: np.concatenate([X, X]), "had 9000 rows .* and at least 12288 now"),
    ],
)  # fmt: skip
def test_what_changed_is_named(gradient, visit, change, message):
    tagger = CRFTagger(gradient=gradient, max_iter=3)
    with pytest.raises(BlockError, match=message):
        tagger.fit([Source(visit, change)], [Y9])


@pytest.mark.parametrize("gradient", ["emp", "forward-backward"])
def test_other_blocks_of_the_same_rows_are_the_same(gradient):
    visits = []

    def read():
        visits.append(len(visits))
        cuts = np.random.default_rng(len(visits)).integers(0, 9000, 5)
        return iter(np.split(X9, np.sort(cuts)))

    tagger = CRFTagger(gradient=gradient).fit([read], [Y9])
    expected = CRFTagger(gradient=gradient).fit([lambda: iter([X9])], [Y9])
    np.testing.assert_array_equal(tagger.coef_, expected.coef_)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix], ids=["array", "csr"])
def test_arrays_that_somebody_writes_into_are_noticed(gradient, make, monkeypatch):
    X = make(X9)

    def write(k, value, w):
        if k == 2:
            (X.data if sparse.issparse(X) else X.reshape(-1))[5] = 9.0
        return False

    monkeypatch.setattr("sklseq.estimators.crf.monitor.iteration_hook", lambda *_: write)
    tagger = CRFTagger(gradient=gradient)
    with pytest.raises(BlockError, match=r"sequence 0 .* differ .* model of iteration 2 is kept"):
        tagger.fit([RowBlocks(X)], [Y9])
    assert tagger.n_iter_ == 2


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_file_that_is_cut_off_or_written_again_is_noticed(gradient, tmp_path, monkeypatch):
    for cut, message in ((True, "has been cut off since it was opened"), (False, "differ from")):
        path = tmp_path / "x.npy"
        np.save(path, X9)

        def change(k, value, w, path=path, cut=cut):
            if k == 1:
                with open(path, "r+b") as file:
                    file.truncate(4096) if cut else file.seek(4096)
                    file.write(b"" if cut else b"\1" * 64)
            return False

        monkeypatch.setattr("sklseq.estimators.crf.monitor.iteration_hook", lambda *_, c=change: c)
        with pytest.raises(BlockError, match=message):
            CRFTagger(gradient=gradient).fit([RowBlocks(path)], [Y9])


def no_matrix(block):
    block.indptr[3] = 10**8
    return block


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (lambda: damaged(X9[:1500]), r"Row \d+ of sequence 0 \(row \d+ of block 1\) has an entry "
         "in column 4000000, and there are 5"),
        (lambda: damaged(X9[:1500], 0, -1), r"\(row 0 of block 1\) has an entry in column -1"),
        (lambda: no_matrix(sparse.csr_matrix(X9[:1500])), r"Row 1502 of .* goes from entry \d+ to "
         "100000000 of"),
        (lambda: no_matrix(sparse.csc_matrix(X9[:1500])), "Block 1 of .* is a corrupt csc matrix"),
        (lambda: no_matrix(sparse.bsr_matrix(X9[:1500])), "Block 1 of .* is a corrupt bsr matrix"),
        (lambda: no_matrix_of_places(), "Block 1 of .* is a corrupt coo matrix"),
        (lambda: put(7, 2, np.nan)(X9[:1500].copy()), r"X must be finite; row 1507 of .* \(row 7 "
         r"of block 1\) holds nan in column 2"),
        (lambda: sparse.csr_matrix(put(7, 2, np.inf)(X9[:1500].copy())), "row 1507 .* column 2"),
    ],
)  # fmt: skip
def test_damaged_blocks_are_refused_wherever_they_are_read(block, message):
    tagger = CRFTagger().fit([X9], [Y9])

    def source():
        return iter([sparse.csr_matrix(X9[:1500]), block()])

    for ask in (
        lambda: CRFTagger(gradient="emp").fit([source], [Y9[:3000]]),
        lambda: tagger.predict([source]),
        lambda: tagger.score([source], [Y9[:3000]]),
        lambda: list(tagger.predict_blocks(source)),
        lambda: tagger.partial_fit([source], [Y9[:3000]]),
    ):
        with pytest.raises(BlockError, match=message):
            ask()


def no_matrix_of_places():
    block = sparse.coo_matrix(X9[:1500])
    block.row[0] = 10**8
    return block


def test_the_row_and_column_of_nan_in_a_long_array():
    X = np.zeros((100_000, 3), dtype=np.float32)
    X[99_999, 2] = np.nan
    with pytest.raises(
        ValueError,
        match=r"row 99999 of sequence 0 \(row 1695 of block 24\) holds "
        "nan in column 2",
    ):
        CRFTagger(gradient="emp").fit([RowBlocks(X)], [np.arange(100_000) % 2])


@pytest.mark.parametrize("packed", [False, True])
def test_matrices_in_memory_that_lead_out_of_memory_are_refused(packed):
    tagger = CRFTagger().fit([sparse.csr_matrix(X9)], [Y9])
    whole = sparse.csr_matrix(X9[:10])
    for column in (-1, 5, 4_000_000):
        X = damaged(X9[:20], 33, column)
        X = Sequences(X, [0, 5, 20]) if packed else [whole, X]
        with pytest.raises(
            ValueError,
            match=rf"row \d+ of sequence 1 has an entry in column "
            rf"{column}, and there are 5",
        ):
            tagger.predict(X)
        with pytest.raises(ValueError, match=f"column {column}, and"):
            HMSVMTagger().fit(X, [Y9[:5], Y9[5:20]] if packed else [Y9[:10], Y9[:20]])


# ------------------------------------------------------------------------------ labels


@pytest.mark.parametrize(
    ("again", "message"),
    [
        (
            np.where(np.arange(9000) == 5000, 1 - Y9, Y9),
            "differ from those that were first read "
            r"\(blocks? \d.*, labels 4096 and on\)",
        ),
        (Y9[:8000], "labels 4096 and on|fewer labels|labels 8192 and on"),
        (Y9[:4096], "fewer labels than the 3 blocks first read"),
        (np.append(Y9, [0] * 4096), "labels 8192 and on"),
        (Y9.astype(str), "labels 0 and on"),
        (Y9 + 7, "labels 0 and on"),
    ],
)
def test_labels_that_change_are_named(again, message):
    reads = []

    def read():
        reads.append(again if reads else Y9)
        return iter([reads[-1][:700], reads[-1][700:]])

    tagger = CRFTagger(gradient="emp")
    with pytest.raises(ValueError, match=rf"labels of sequence 0 .*{message}|{message}"):
        tagger.fit([X9], [read])
    assert not hasattr(tagger, "coef_")


def test_labels_in_wider_strings_and_other_blocks_are_the_same():
    labels, reads = np.array(["a", "bcd"])[Y9], []

    def read():
        reads.append(0)
        parts = np.split(labels, [17, 4000] if len(reads) == 1 else [8000])
        return iter([part.astype(f"U{8 * len(reads)}") for part in parts])

    tagger = CRFTagger(gradient="emp").fit([X9], [read])
    assert tagger.classes_.tolist() == ["a", "bcd"]


# ------------------------------------------------------------------------------ what is kept


@pytest.mark.parametrize("gradient", ["emp", "forward-backward"])
def test_a_reader_that_fails_late_leaves_the_model_of_the_last_iteration(gradient):
    visits = []

    def read(fail_at):
        visits.append(0)
        for a in range(0, 9000, 3000):
            if len(visits) >= fail_at and a == 6000:
                raise OSError("disk gone")
            yield X9[a : a + 3000]

    tagger = CRFTagger(gradient=gradient, tol=0.0, verbose=0)
    with pytest.raises(
        BlockError,
        match=r"Block 2 of sequence 0 cannot be read: OSError: disk gone"
        r".*The model of iteration \d+ is kept; remove",
    ) as told:
        tagger.fit([lambda: read(15)], [Y9])
    assert str(told.value).lower().count("repair the source") == 1
    k = tagger.n_iter_
    assert 2 <= k < 15
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = CRFTagger(gradient=gradient, tol=0.0, max_iter=k).fit([X9], [Y9])
    np.testing.assert_allclose(tagger.coef_, same.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(tagger.objective_, same.objective_, rtol=1e-9)
    assert tagger.score([X9], [Y9]) > 0.9
    before = tagger.objective_
    tagger.set_params(warm_start=True, tol=1e-5).fit([lambda: read(10**9)], [Y9])
    assert tagger.loss_curve_[0] == pytest.approx(before, rel=1e-9)
    early = CRFTagger(gradient=gradient)
    visits.clear()
    with pytest.raises(BlockError, match=r"Repair the source\.$"):
        early.fit([lambda: read(1)], [Y9])
    assert not hasattr(early, "coef_")


# ------------------------------------------------------------------------------ files and maps


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda b: RowBlocks(b)])
def test_copies_and_pickles_name_the_file(tmp_path, duplicate):
    np.save(tmp_path / "x.npy", X9)
    source = RowBlocks(tmp_path / "x.npy")
    assert len(pickle.dumps(duplicate(source))) < 1000
    again = pickle.loads(pickle.dumps(duplicate(source)))
    assert isinstance(again.source, np.memmap)
    assert again.random_access
    np.testing.assert_array_equal(np.concatenate(list(again.read())), X9)


def test_pickles_of_other_sources_hold_them():
    for source in (X9[:50], sparse.csr_matrix(X9[:50])):
        again = pickle.loads(pickle.dumps(RowBlocks(source)))
        rows = [b.toarray() if sparse.issparse(b) else b for b in again.read()]
        np.testing.assert_array_equal(np.concatenate(rows), X9[:50])


def test_slices_of_one_map_are_read_in_blocks_together(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X9)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    X, y = np.split(x, 10), np.split(Y9, 10)
    tagger = CRFTagger().fit(X, y)
    assert not in_blocks(X)
    monkeypatch.setattr(input_kinds, "LARGE_MAP", x.nbytes)
    assert in_blocks(X)
    assert not in_blocks(X[:9])
    for rows, source in zip(X, blocks_of(X)):
        assert np.shares_memory(rows, source.source)
    read = []
    monkeypatch.setattr(Sequences, "from_list", lambda *_: read.append(1))
    tagged = CRFTagger().fit(X, y)
    predicted = tagger.predict(X)
    assert not read
    monkeypatch.undo()
    np.testing.assert_allclose(tagged.objective_, tagger.objective_, rtol=1e-6)
    assert predicted == tagger.predict(X)
    monkeypatch.setattr(input_kinds, "LARGE_MAP", 1)
    assert len(tagger.predict_proba(X)) == 10  # as large as X whatever is done


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
def test_a_list_of_blocks_is_refused_with_what_to_do(make):
    tagger = CRFTagger().fit([X9], [Y9])
    X = [[make(X9[:10]), make(X9[10:30])]]
    for ask in (tagger.predict, tagger.predict_proba, lambda X: CRFTagger().fit(X, [Y9[:30]])):
        with pytest.raises(
            ValueError,
            match=r"Sequence 0 of X is a list of blocks, the first of "
            r"shape \(10, 5\); pass RowBlocks\(blocks\) to CRFT",
        ):
            ask(X)


# ------------------------------------------------------------------------------ checksums


def test_checksums_differ_where_one_bit_or_place_does():
    rng = np.random.default_rng(0)
    for n in [*range(40), 127, 128, 129, 1000]:
        values = rng.integers(0, 256, n).astype(np.uint8)
        seen = {checksum(values), checksum(values, 1), checksum(np.append(values, np.uint8(0)))}
        for bit in rng.integers(0, 8 * n, 20) if n else []:
            other = values.copy()
            other[bit // 8] ^= 1 << (bit % 8)
            seen.add((checksum(other), bit))
            assert checksum(other) != checksum(values)
        assert len({x for x in seen if isinstance(x, int)}) == 3
    # Indicators, of which only upper bits are set, at any distance of each other.
    x = np.zeros(200_000)
    sums = set()
    for at in (0, 1, 16, 4096, 16 * 4096, 2 * 16 * 4096):
        x[:] = 0
        x[at] = 1
        sums.add(row_checksum(x[:, None]))
    assert len(sums) == 6


def test_checksums_of_labels_are_of_their_text():
    a = np.array(["a", "b", ""])
    assert label_checksum(a) == label_checksum(a.astype("U9"))
    assert label_checksum(a) != label_checksum(a[::-1])
    assert label_checksum(np.array(["ab"])) != label_checksum(np.array(["a", "b"]))
    assert label_checksum(np.array([1, 2])) == label_checksum(np.array([1, 2], dtype=np.int8))


def test_checkpoints_are_compared_span_by_span():
    with sklearn.config_context(working_memory=1):
        tagger = CRFTagger(gradient="checkpoint").fit([RowBlocks(X9)], [Y9])
    assert tagger.score([X9], [Y9]) > 0.9


def test_rows_without_features_wait_for_the_last_label_too():
    X = np.ones((9000, 1))
    X[3000:5000] = 0
    tagger = CRFTagger(gradient="emp").fit([lambda: iter([sparse.csr_matrix(X)])], [Y9])
    expected = CRFTagger(gradient="forward-backward").fit([X], [Y9])
    assert tagger.objective_ == pytest.approx(expected.objective_, rel=1e-6)


# ------------------------------------------------------------------------------ kinds of numbers


@pytest.mark.parametrize("dtype", ["?", "b", "B", "h", "H", "q", "Q", "e", "f", "d", "g"])
def test_blocks_of_any_numbers_train_as_float64(tmp_path, dtype):
    rng, y = np.random.default_rng(0), np.arange(12) % 2
    X = rng.integers(0, 2, size=(12, 3)).astype(dtype)
    if dtype in "bhq":
        X[3, 1] = np.iinfo(dtype).min  # minus it is no such number
    if dtype in "BHQ":
        X[:, 2] += 1  # minus the least is a large one
    np.save(tmp_path / "x.npy", X)
    sources = [X, [X[:5], X[5:]], lambda: iter([X]), tmp_path / "x.npy"]
    sources += [np.load(tmp_path / "x.npy", mmap_mode="r")]
    if dtype not in "eg":
        sources += [sparse.csr_matrix(X), [sparse.csr_matrix(X[:7]), sparse.csr_matrix(X[7:])]]
    wide = X.astype(np.float64)
    scale = np.abs(wide).max(axis=0)
    for source in sources:
        for block, _ in iterate_blocks(RowBlocks(source), 4, "the sequence"):
            rows = block.toarray() if sparse.issparse(block) else block
            largest = magnitudes(block)
            if largest is not None:
                np.testing.assert_array_equal(largest, np.abs(rows.astype(float)).max(axis=0))
        if scale.max() < 100:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tagger = CRFTagger().fit([RowBlocks(source)], [y])
                whole = CRFTagger().fit([wide], [y])
            np.testing.assert_allclose(tagger.coef_, whole.coef_, rtol=1e-3, atol=1e-4)
            np.testing.assert_array_equal(
                tagger.predict([RowBlocks(source)])[0], whole.predict([wide])[0]
            )


@pytest.mark.parametrize("tagger", [HMSVMTagger(), ZScoreTagger(), ZScoreTaggerCV()])
def test_who_does_not_train_on_blocks_says_so(tagger):
    X, y = np.eye(2)[[0, 1, 0]], [0, 1, 0]
    for source in (RowBlocks(X), lambda: iter([X]), RowBlocks([X[:1], X[1:]])):
        with pytest.raises(ValueError, match="blocks, which this method does not read; pass"):
            tagger.fit([source], [y])
    blocks = RowBlocks([X[:1], X[1:]])
    tagger.fit(2 * [np.concatenate(list(blocks.read()))], [y, y])  # as the message says
    np.testing.assert_array_equal(tagger.predict([blocks])[0], tagger.predict([X])[0])


@pytest.mark.parametrize("gradient", ["auto", "emp", "checkpoint"])
def test_no_rows_is_one_message(gradient):
    for X in (np.zeros((0, 2)), RowBlocks(np.zeros((0, 2)))):
        with pytest.raises(ValueError, match=r"^X must hold at least one row; got 1 seq"):
            CRFTagger(gradient=gradient).fit([X], [[]])
    for X in (np.eye(2), RowBlocks(np.eye(2))):
        with pytest.raises(ValueError, match="2 rows in X but 0 labels in y"):
            CRFTagger(gradient=gradient).fit([X], [[]])


def test_blocks_of_blocks_are_the_same_blocks():
    x = np.eye(3)
    blocks = RowBlocks(RowBlocks(x))
    assert blocks.source is x
    assert repr(blocks) == "RowBlocks(ndarray)"


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool])
def test_magnitudes_of_many_rows(n, order, dtype):
    X = np.random.default_rng(n).normal(0, 9, (n, 3)).astype(dtype, order=order)
    X[-1, 0] = 100
    np.testing.assert_array_equal(magnitudes(X), np.abs(X.astype(float)).max(axis=0))
    np.testing.assert_array_equal(magnitudes(X[:, :0]), [])


# ------------------------------------------------------------------------------ readers that refill


def refilled(rows, size, form="array"):
    """Yield blocks of ``size`` rows, all in the memory of the first one."""
    if form == "csr":
        kept = [rows[:size].data.copy(), rows[:size].indices.copy(), rows[:size].indptr.copy()]
    else:
        buffer = np.empty((size, *rows.shape[1:]), dtype=rows.dtype)
    for a in range(0, rows.shape[0], size):
        block = rows[a : a + size]
        n = block.shape[0]
        if form == "csr":
            for own, new in zip(kept, (block.data, block.indices, block.indptr)):
                own[: len(new)] = new
            shape = (n, rows.shape[1])
            data, indices, ends = kept[0][: block.nnz], kept[1][: block.nnz], kept[2][: n + 1]
            yield sparse.csr_matrix((data, indices, ends), shape=shape, copy=False)
        else:
            buffer[:n] = block
            yield memoryview(buffer[:n]) if form == "memoryview" else buffer[:n]


@pytest.mark.parametrize("size", [100, 1000, 4096, 5000])
@pytest.mark.parametrize("form", ["array", "memoryview", "csr"])
def test_readers_may_fill_the_same_memory_again(form, size):
    X = X9
    if form == "csr":  # as many values in each row
        X = sparse.csr_matrix((X9[:, :2].ravel(), np.tile([1, 3], 9000), np.arange(0, 18001, 2)))
    tagger = CRFTagger().fit([X], [Y9])
    given = [lambda: refilled(X, size, form)]
    labels = [lambda: refilled(Y9, size)]
    np.testing.assert_array_equal(tagger.predict(given)[0], tagger.predict([X])[0])
    proba = np.concatenate(list(tagger.predict_proba(given)))
    np.testing.assert_allclose(proba, tagger.predict_proba([X])[0], atol=1e-10)
    assert tagger.score(given, labels) == tagger.score([X], [Y9])
    same = CRFTagger(gradient="emp", max_iter=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = copy.copy(same).fit([RowBlocks(X)], [Y9])
        np.testing.assert_allclose(same.fit(given, labels).coef_, expected.coef_, rtol=1e-6)
        same = CRFTagger().partial_fit(given, labels, classes=[0, 1])
        expected = CRFTagger().partial_fit([RowBlocks(X)], [Y9], classes=[0, 1])
    np.testing.assert_allclose(same.coef_, expected.coef_, rtol=1e-6)
    blocks = list(RowBlocks(given[0]).read())
    rows = sparse.vstack(blocks).toarray() if form == "csr" else np.concatenate(blocks)
    np.testing.assert_array_equal(rows, X.toarray() if form == "csr" else X)


@pytest.mark.parametrize("n", [1, 299, 301, 8999, 9001, 12000])
def test_pieces_lose_no_rows_that_have_no_label(n):
    rows = RowBlocks(lambda: iter([X9]))
    pieces = rows.pieces(300, np.resize(Y9, n))
    with pytest.raises(ValueError, match=r"rows in X but .*\d+ labels? in y; each row"):
        CRFTagger().fit(*pieces)


def test_masks_are_not_lost():
    masked = np.ma.masked_greater(X9, 1)
    for source in (masked, [X9, masked], lambda: iter([X9, masked])):
        with pytest.raises(ValueError, match=r"is a masked array, whose mask .* fill it"):
            list(RowBlocks(source).read())
