"""The table of inputs in the manual is what the estimators do, with every package of tables."""

import re

import pytest

from tests.project.inputs_table import ESTIMATORS, PAGE, forms, outcome, page


def test_the_page_is_what_the_cells_do():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.project.inputs_table"


def test_every_error_is_short_and_says_what_to_do():
    errors = re.findall(r"^[0-9]+\. ``(.*)``$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(errors) > 5
    for error in errors:
        assert len(error) < 300
        assert re.search("[.;:,] (?:or )?[A-Z]?[a-z]+", error)
        assert error.endswith((".", "]."))


@pytest.mark.parametrize("package", ["pandas.DataFrame", "polars.DataFrame", "pyarrow.table"])
def test_all_packages_of_tables_are_read_alike(package):
    name, make = package.split(".")
    of_package = forms(getattr(pytest.importorskip(name), make))
    for form, X in forms().items():
        if "table" in form or "frame" in form:
            for estimators in ESTIMATORS.values():
                expected, found = outcome(estimators, X), outcome(estimators, of_package[form])
                assert (found is None) == (expected is None), (form, found, expected)


def series(package, values):
    """A Series of pandas whose index does not begin at 0, its array, or a Series of polars."""
    made = pytest.importorskip(package.split(".")[0]).Series(values)
    if package == "pandas.array":
        return made.astype("string" if isinstance(values[0], str) else object).array
    return made.set_axis(range(7, 7 + len(values))) if package == "pandas" else made


@pytest.mark.parametrize("package", ["pandas", "pandas.array", "polars"])
def test_a_sequence_may_be_a_column(package):
    for form, X in forms().items():
        if not form.startswith("lists of"):
            continue
        columns = [series(package, list(x)) for x in X]
        for estimators in ESTIMATORS.values():
            expected, found = outcome(estimators, X), outcome(estimators, columns)
            assert (found is None) == (expected is None), (form, found, expected)
            mixed = outcome(estimators, [columns[0], *X[1:]])
            assert (mixed is None) == (expected is None), (form, mixed, expected)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_column_of_sequences_is_a_list(package):
    Series = pytest.importorskip(package).Series
    for form in ("lists of strings", "lists of dicts of strings", "2-D arrays"):
        X = forms()[form]
        if package == "polars" and form == "2-D arrays":
            continue  # polars keeps no list of matrices
        for estimators in ESTIMATORS.values():
            assert (outcome(estimators, X) is None) == (outcome(estimators, Series(X)) is None)
