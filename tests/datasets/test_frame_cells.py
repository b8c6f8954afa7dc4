"""Cells of any kinds in one long table: kept as they are, or refused by the name of the column."""

from decimal import Decimal

import numpy as np
import pytest

from sklseq import Sequences
from sklseq.datasets import from_frame, from_rows

POOLS = {
    "string": ["a", "1", ""], "boolean": [True, False], "integer": [0, 1, -3, 2**60],
    "numpy": [np.int64(4), np.int8(1)], "float": [0.5, 2.0], "missing": [None, float("nan")],
    "decimal": [Decimal("1.5")], "list": [[1], [1, 2], ["a"], np.ones(2)],
}  # fmt: skip
NUMBERS = bool | int | float | np.integer | Decimal


def missing(value):
    return value is None or (isinstance(value, float) and value != value)


def as_objects(cells):
    return np.fromiter(cells, dtype=object, count=len(cells))


def frame_of(kind, **columns):
    if kind == "list":
        return columns
    columns = {name: as_objects(column) for name, column in columns.items()}
    return columns if kind == "array" else pytest.importorskip("pandas").DataFrame(columns)


def expected_labels(cells):
    """Labels, or None if they are refused."""
    if any(isinstance(cell, list | np.ndarray) for cell in cells):
        return None
    cells = [int(c) if isinstance(c, float) and c.is_integer() else c for c in cells]
    cells = [None if missing(cell) else cell for cell in cells]
    kinds = {
        str: "string", bool: "boolean", int: "integer", np.int64: "integer", np.int8: "integer"
    }  # fmt: skip
    found = {kinds[type(cell)] for cell in cells if type(cell) in kinds}
    return cells if len(found) < 2 else None


def same(a, b):
    return a is b or (missing(a) and missing(b)) or (type(a) is type(b) and a == b)


def draw(rng):
    some = rng.choice(list(POOLS), size=rng.integers(1, 4))
    pool = [value for name in some for value in POOLS[name]]
    return [pool[k] for k in rng.integers(len(pool), size=rng.integers(1, 6))]


def check(seed):
    rng = np.random.default_rng(seed)
    kind, cells = ("list", "array", "pandas")[seed % 3], draw(rng)
    n, numbers = len(cells), [float(k) for k in range(len(cells))]

    labels, frame = expected_labels(cells), frame_of(kind, s=[1] * n, x=numbers, y=cells)
    if labels is None:
        with pytest.raises(ValueError, match="Column 'y' must h"):
            from_frame(frame, "s", "y")
    else:
        (found,) = from_frame(frame, "s", "y")[1]
        whole = set(map(type, found)) <= {bool, int}
        assert found == labels if whole else all(map(same, found, labels))

    X, _ = from_frame(frame_of(kind, s=[1] * n, x=cells), "s")
    known = [cell for cell in cells if not missing(cell)]
    if known and all(isinstance(cell, NUMBERS) for cell in known):
        assert isinstance(X, Sequences)
        wanted = [np.nan if missing(cell) else float(cell) for cell in cells]
        np.testing.assert_array_equal(X.rows[:, 0].astype(float), wanted)
    else:
        assert all(map(same, X[0]["x"], cells))

    if any(isinstance(cell, Decimal) for cell in cells):  # not comparable with NumPy's integers
        return
    frame = frame_of(kind, s=cells, x=numbers)
    if any(isinstance(cell, list | np.ndarray) for cell in cells):
        with pytest.raises(ValueError, match="Column 's' must have one value a row; row"):
            from_frame(frame, "s")
    elif any(map(missing, cells)):
        with pytest.raises(ValueError, match=r"has no value in \['s'\]|begin at row"):
            from_frame(frame, "s")


@pytest.mark.parametrize("part", range(10))
def test_cells_are_kept_or_refused(part):
    for seed in range(40 * part, 40 * part + 40):
        check(seed)


def test_kinds_of_labels_are_named():
    frame = {"s": [1, 1, 1], "x": [1, 2, 3], "y": [None, 1, "1"]}
    message = r"Column 'y' must hold labels of one kind; row 1 holds 1 \(integer\) and row 2 '1' "
    with pytest.raises(ValueError, match=message):
        from_frame(frame, "s", "y")


def test_structs_and_arrays_of_polars_are_no_numbers():
    polars = pytest.importorskip("polars")
    arrays = polars.Series([[1, 2], [3, 4]], dtype=polars.Array(polars.Int64, 2))
    for cells in (polars.Series([{"a": 1}, {"a": 2}]), arrays):
        frame = polars.DataFrame({"doc": [1, 1], "w": ["x", "y"], "l": cells})
        with pytest.raises(ValueError, match="Column 'l' must have one label a row; row 0 holds"):
            from_frame(frame, "doc", "l")
        with pytest.raises(ValueError, match="Column 'l' must have one value a row; row 0 holds"):
            from_frame(frame, "l")
        (x,) = from_frame(frame, "doc", columns=["l"])[0]
        assert x["l"] == cells.to_list()


def test_groups_that_cannot_be_compared():
    with pytest.raises(
        ValueError, match=r"Column 's' must have one value a row; row 0 holds \{1\}"
    ):
        from_frame({"s": [{1}, {1}], "w": ["x", "y"]}, "s")
    for cells in ([np.int64(4), Decimal("1.5")], [([1],), ([1],)]):
        with pytest.raises(TypeError, match=r"the group \['s'\] cannot be compared \(.*; convert"):
            from_frame({"s": cells, "w": ["x", "y"]}, "s")


def test_whole_floats_are_integers_with_and_without_missing_ones():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"s": [1, 1, 1], "w": ["a", "b", "c"], "y": [1, 2, np.nan]})
    assert from_frame(frame, "s", "y")[1] == [[1, 2, None]]
    for known in (frame.dropna(), frame.dropna().to_dict("list")):
        (labels,) = from_frame(known, "s", "y")[1]
        assert labels == [1, 2]
        assert set(map(type, labels)) == {int}


def test_a_column_is_labels_or_something_else():
    frame = {"s": [1, 1], "w": ["x", "y"], "label": ["A", "B"]}
    rows = [{"w": ["x", "y"], "label": ["A", "B"]}]
    message = "Column '{}' is named as y and again in group or columns"
    with pytest.raises(ValueError, match=message.format("label")):
        from_frame(frame, "s", "label", columns=["w", "label"])
    with pytest.raises(ValueError, match=message.format("s")):
        from_frame(frame, ["s", "w"], "s")
    with pytest.raises(ValueError, match=message.format("label")):
        from_rows(rows, "label", columns=["w", "label"])


def test_ignored_labels_are_not_known():
    labels = [[-100, 1], np.array([2, -100])]
    rows = [{"tokens": ["a", "b"], "ner_tags": label} for label in labels]
    assert from_rows(rows, "ner_tags")[1] == [[None, 1], [2, None]]
    rows[0]["tokens"] = [-100, 1]
    assert from_rows(rows)[0][0] == {"tokens": [-100, 1]}


@pytest.mark.parametrize("name", ["s", "x", "y"])
def test_two_dimensions_are_refused(name):
    frame = {"s": [1, 1], "x": [1, 2], "y": [1, 2], name: np.ones((2, 3))}
    with pytest.raises(ValueError, match=rf"Column '{name}' must have one dimension; .*\(2, 3\)"):
        from_frame(frame, "s", "y")


def test_columns_of_several_kinds_of_numbers_are_one_matrix():
    pandas = pytest.importorskip("pandas")
    frame = {"s": [1, 1], "a": pandas.array([1, None], dtype="Int64"), "b": [True, False]}
    X, _ = from_frame(pandas.DataFrame(frame), "s")
    np.testing.assert_array_equal(X.rows, [[1, 1], [np.nan, 0]])


def test_no_group():
    for frame in ({"s": [1], "x": [2]}, {"x": [2]}):
        with pytest.raises(ValueError, match=r"group must name the column .*; got None"):
            from_frame(frame, None)
