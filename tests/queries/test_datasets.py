"""Tables are read as they are, and what does not fit is refused before anything is spent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from catalogue import BOUNDS, KINDS, LOCAL, people

from accountant import queries
from accountant.client import Client
from accountant.queries import Dataset
from accountant.queries.proposals import median

ROWS = people(50)
BAD: dict[str, tuple[Callable[[Dataset], Any], str]] = {
    "no column": (lambda data: data.mean("z", epsilon=1), "no column 'z'; there are: x, y, age"),
    "no bounds": (lambda data: data.mean("unbounded", epsilon=1), "has no bounds"),
    "text": (lambda data: data.mean("colour", epsilon=1), "not numeric but str"),
    "objects": (lambda data: data.mean("things", epsilon=1), "not numeric but float64, str"),
    "times": (lambda data: data.mean("times", epsilon=1), "not numeric but datetime64"),
    "nan": (lambda data: data.mean("holes", epsilon=1), "2 of 50 values of 'holes' are missing"),
    "none": (lambda data: data.sum("nones", epsilon=1), "1 of 50 values of 'nones' are missing"),
    "two columns": (lambda data: data.pearson("x", "holes", epsilon=1), "2 of 50"),
    "one column": (lambda data: data.pearson("x", "x", epsilon=1), "with itself is 1"),
    "zero": (lambda data: data.mean("x", epsilon=0), "epsilon must be more than 0, not 0"),
    "negative": (lambda data: data.mean("x", epsilon=-1), "epsilon must be more than 0"),
    "infinite": (lambda data: data.mean("x", epsilon=float("inf")), "not a finite number"),
    "not a number": (lambda data: data.mean("x", epsilon=float("nan")), "not a finite number"),
    "true": (lambda data: data.mean("x", epsilon=True), "epsilon: True is not an amount"),
    "words": (lambda data: data.mean("x", epsilon="much"), "epsilon: 'much' is not a number"),
    "no budget": (lambda data: data.mean("x"), "either epsilon, for Laplace noise, or rho"),
    "two budgets": (lambda data: data.mean("x", epsilon=1, rho=1), "either epsilon"),
    "too little": (lambda data: data.mean("x", epsilon="1e-9"), "less than the ledger's unit"),
    "learnt": (lambda data: data.histogram("colour", epsilon=1), "never learnt from the data"),
    "twice": (lambda data: data.histogram("colour", ["red", "red"], epsilon=1), "all different"),
    "same sums": (lambda data: data.sums(["x", "x"], epsilon=1), "all different"),
    "share": (lambda data: data.quantile("x", 1, epsilon=1), "between 0 and 1, not 1"),
    "fine share": (lambda data: data.quantile("x", "0.1234567", epsilon=1), "6 decimal places"),
    "step": (lambda data: data.median("x", epsilon=1, step=0), "the step must be more than 0"),
    "long step": (lambda data: data.median("x", epsilon=1, step=11), "larger than the distance"),
    "points": (lambda data: data.median("x", epsilon=1, step="1e-9"), r"more than 2\^32"),
    "parts": (lambda data: data.correlation("x", "y", epsilon=1, parts=1), "parts is a whole"),
    "few": (lambda data: data.choose([1], len, sensitivity=1, epsilon=1), "two candidates"),
    "reach": (
        lambda data: data.choose([1, 2], len, sensitivity=0, epsilon=1),
        "the sensitivity must be more than 0",
    ),
    "value": (lambda data: data.where(country="XX"), "no value of the dimension 'country'"),
    "nobody": (lambda data: data.where(country=[]), "nobody is selected"),
    "neither": (lambda data: data.where(country="JP").where(country="KR"), "nobody has both"),
    "confidence": (lambda data: data.mean("x", epsilon=1).error(95), "between 0 and 1"),
    "how many": (lambda data: data.mean("x", epsilon=1).error(), "records=1000"),
}


@pytest.fixture(scope="module")
def odd(comes_and_goes: Client) -> Dataset:
    """People with columns that are hard to read."""
    holes = ROWS["x"].copy()
    holes[[3, 4]] = np.nan
    nones = np.array([*ROWS["x"][:-1], None], dtype=object)
    things = np.array([*ROWS["x"][:-1], "many"], dtype=object)
    times = np.array(["2026-01-01"] * 50, dtype="datetime64[D]")
    rows = {**ROWS, "holes": holes, "nones": nones, "things": things, "times": times}
    rows |= {"unbounded": ROWS["x"]}
    bounds = dict.fromkeys(("holes", "nones", "things", "times", "colour"), (0, 10))
    return queries.dataset(comes_and_goes, "visits", rows, bounds=BOUNDS | bounds)


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_asked_is_refused(case: str, odd: Dataset) -> None:
    """It is refused with the reason, and leaves no trace in the ledger."""
    ask, reason = BAD[case]
    before = odd.ledger.accounts().sequence
    with pytest.raises(ValueError, match=reason):
        ask(odd)
    assert odd.ledger.accounts().sequence == before


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"bounds": {"x": (10, 0)}}, "'x' are 10 to 0: the first has to be below"),
        ({"bounds": {"x": (1, 1)}}, "the first has to be below"),
        ({"bounds": {"x": (0, float("inf"))}}, "'x', the largest: inf is not a finite number"),
        ({"bounds": {"x": (1, "1.00000000000000000001")}}, "too close together or too far apart"),
        ({"bounds": {"x": (-1.7e308, 1.7e308)}}, "the least is too large"),
        ({"bounds": {"x": (0, "1e400")}}, "too large"),
        ({"bounds": {"x": 10}}, "are a pair"),
        ({"bounds": {"z": (0, 1)}}, "'z' that is not there"),
        ({"unit": "z"}, "no column 'z'"),
        ({"unit": "country"}, "a person has up to .* rows"),
        ({"unit": "unit", "records_per_unit": 0}, "whole number from 1"),
        ({"records_per_unit": 1.5}, "whole number from 1"),
        ({"missing": "mean"}, 'missing is "refuse" or "drop"'),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    more: dict[str, Any], reason: str, comes_and_goes: Client
) -> None:
    """Bounds, units and the rest are checked when the dataset is made."""
    rows = ROWS | {"unit": np.arange(50)}
    with pytest.raises(ValueError, match=reason):
        queries.dataset(comes_and_goes, "visits", rows, **more)


@pytest.mark.parametrize(
    ("table", "error", "reason"),
    [
        ({}, ValueError, "no columns"),
        ({"x": []}, ValueError, "no rows"),
        ({"x": [1, 2], "y": [1]}, ValueError, "differ in length"),
        ({"x": np.ones((2, 2))}, ValueError, "not one list of values"),
        ([1, 2], TypeError, "list is no table"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), ValueError, "not one list of values"),
        (pd.DataFrame({"x": []}), ValueError, "no rows"),
    ],
)
def test_no_table_is_refused(
    table: Any, error: type[Exception], reason: str, comes_and_goes: Client
) -> None:
    """What is no table of equal columns with rows is refused."""
    bounds = {"x": (0, 1)} if "x" in table else None
    with pytest.raises(error, match=reason):
        queries.dataset(comes_and_goes, "visits", table, bounds=bounds).sum("x", epsilon=1)


def test_a_record_is_in_one_category_at_most(comes_and_goes: Client) -> None:
    """Also where two categories differ, and are both equal to a value as NumPy compares them: else
    one record would change two counts. Categories that are the same are refused.
    """
    for value, categories in (
        (np.float32(0.1), [0.1, 0.1000000001]),
        (np.int64(2**53 + 1), [2**53 + 1, float(2**53)]),
    ):
        data = queries.dataset(comes_and_goes, "visits", {"it": np.array([value])})
        [counts] = data.histogram("it", categories, epsilon=1).values()
        assert counts == [1, 0]
    for same in (
        [0.1, np.float32(0.1)],
        [date(2026, 1, 1), np.datetime64("2026-01-01")],
        [1, True],
    ):
        with pytest.raises(ValueError, match="all different"):
            data.histogram("it", same, epsilon=1)


def test_the_type_of_a_column_that_may_lack_values_changes_no_step(comes_and_goes: Client) -> None:
    """pandas makes real numbers of whole ones where a value is missing: with "drop" one record
    would else choose the points, and the kind of number that is released.
    """
    for ask in (
        lambda data: data.median("x", epsilon=1),
        lambda data: median(data, "x", bound=2, epsilon=1, delta="1e-6"),
    ):
        frames = pd.DataFrame({"x": [1, 2, 3]}), pd.DataFrame({"x": [1, 2, 3, None]})
        one, other = (
            ask(
                queries.dataset(
                    comes_and_goes, "visits", rows, bounds={"x": (0, 10)}, missing="drop"
                )
            )
            for rows in frames
        )
        assert one.steps == other.steps


def test_names_that_are_no_texts_are_read_as_texts(comes_and_goes: Client) -> None:
    """A column is asked for by the text of its name, and two of one text are none."""
    bounds = {"1": (0, 10)}
    for table in (pd.DataFrame({0: [1, 2], 1: [3, 4]}), {0: [1, 2], 1: [3, 4]}):
        assert exact(queries.dataset(comes_and_goes, "visits", table, bounds=bounds), "1") == 7
    for table in (pd.DataFrame({1: [1, 2], "1": [3, 4]}), {1: [1, 2], "1": [3, 4]}):
        data = queries.dataset(comes_and_goes, "visits", table, bounds=bounds)
        with pytest.raises(ValueError, match="not one list of values"):
            data.sum("1", epsilon=1)


def test_masked_values_are_missing(comes_and_goes: Client) -> None:
    """What a masked array of NumPy hides is not read as a value."""
    rows = {"x": np.ma.array([1.0, 2.0], mask=[True, False])}
    data = queries.dataset(comes_and_goes, "visits", rows, bounds={"x": (0, 10)})
    with pytest.raises(ValueError, match="1 of 2 values of 'x' are missing"):
        data.sum("x", epsilon=1)


def test_rows_without_a_unit_or_with_an_unknown_group_are_refused(comes_and_goes: Client) -> None:
    """A row that belongs to nobody, or to a group that is not registered, has no place to be
    charged.
    """
    units = np.array([*range(49), None], dtype=object)
    with pytest.raises(ValueError, match="does not say whose record it is in 1 rows"):
        queries.dataset(comes_and_goes, "visits", ROWS | {"unit": units}, unit="unit")
    countries = np.array([*ROWS["country"][:-1], "XX"])
    data = queries.dataset(comes_and_goes, "visits", ROWS | {"country": countries})
    with pytest.raises(ValueError, match="not registered: 'XX'"):
        data.where(country="JP")


def test_a_unit_in_two_groups_is_refused(comes_and_goes: Client) -> None:
    """Whoever has rows in two cells of a dimension cannot be charged by it."""
    rows = {"unit": [1, 1, 2], "country": ["JP", "KR", "JP"], "x": [1.0, 2.0, 3.0]}
    data = queries.dataset(comes_and_goes, "visits", rows, unit="unit", records_per_unit=2)
    with pytest.raises(ValueError, match="registered as unchanging"):
        data.where(country="JP")


def exact(data: Dataset, column: str) -> float:
    """The sum of a column, as it is before the noise."""
    return float(data.sum(column, epsilon=1).values()[0])


def test_values_are_moved_to_their_bounds(comes_and_goes: Client) -> None:
    """Values outside the bounds count as the bounds, infinite ones too; whole numbers, truth values
    and decimals are numbers.
    """
    rows = {
        "x": [-5.0, 0.5, 99.0, float("inf")],
        "whole": np.array([1, 2, 2**62, -(2**62)]),
        "truth": [True, False, True, True],
        "decimal": np.array([Decimal("0.5"), 1, 2.0, Fraction(1, 2)], dtype=object),
    }
    bounds = {"x": ("0.1", "0.7"), "whole": (0, 3), "truth": (0, 1), "decimal": (0, 1)}
    data = queries.dataset(comes_and_goes, "visits", rows, bounds=bounds)
    assert exact(data, "x") == pytest.approx(0.1 + 0.5 + 0.7 + 0.7)
    assert Fraction(data.numbers("x")[0].max()) <= Fraction("0.7")
    assert [exact(data, name) for name in ("whole", "truth", "decimal")] == [6, 3, 3]


def test_missing_values_are_left_out_if_that_is_said(comes_and_goes: Client) -> None:
    """With "drop" the records that lack a value that is asked about are not counted."""
    holes = ROWS["x"].copy()
    holes[[3, 4]] = np.nan
    rows = ROWS | {"x": holes}
    data = queries.dataset(comes_and_goes, "visits", rows, bounds=BOUNDS, missing="drop")
    assert len(data.numbers("x")[0]) == 48
    assert [len(each) for each in data.numbers("x", "y")] == [48, 48]
    assert len(data.numbers("y")[0]) == 50


def test_later_rows_of_a_unit_are_left_out(comes_and_goes: Client) -> None:
    """Of a unit with too many rows the first ones count, before any selection, whoever else is in
    the table.
    """
    rows = {
        "unit": ["b", "a", "b", "b", "a"],
        "x": [1.0, 2.0, 4.0, 8.0, 16.0],
        "sort": [0, 0, 0, 1, 1],
    }
    data = queries.dataset(
        comes_and_goes, "visits", rows, bounds={"x": (0, 100)}, unit="unit", records_per_unit=2
    )
    assert exact(data, "x") == 1 + 2 + 4 + 16
    assert exact(data.where(sort=1), "x") == 16
    [step] = data.sum("x", epsilon=1).steps
    assert step.sensitivity == 200
    data = queries.dataset(comes_and_goes, "visits", ROWS, bounds=BOUNDS, records_per_unit=2.0)  # type: ignore[arg-type]
    assert isinstance(data.sum("x", epsilon=1).steps[0].sensitivity, Fraction)


def test_selections_by_any_type_of_value(comes_and_goes: Client) -> None:
    """Values are compared as they are; those of dimensions also as texts."""
    data = queries.dataset(comes_and_goes, "visits", ROWS, bounds=BOUNDS)
    assert data.where(age=100).rows() == np.sum(ROWS["age"] == 100)
    assert data.where(age="100").rows() == 0
    assert data.where(colour={"red", "blue"}).rows() == np.sum(ROWS["colour"] != "green")
    assert data.where(country=np.array(["JP", "KR"])).groups == {"country": ("JP", "KR")}
    assert data.where(country=("JP", "KR")).where(country="KR").groups == {"country": ("KR",)}
    both = data.where(country="JP", colour="red")
    assert both.rows() == np.sum((ROWS["country"] == "JP") & (ROWS["colour"] == "red"))


def test_a_function_cannot_change_the_records(comes_and_goes: Client) -> None:
    """A score that sorts a column in place would part values from the units they belong to, for
    all later queries too: it fails, before anything is spent.
    """

    def middle(rows: Any, candidate: Any) -> float:
        rows["x"].sort()
        return float(rows["x"][len(rows["x"]) // 2] == candidate)

    before, ledger = ROWS["x"].copy(), comes_and_goes.accounts().sequence
    for data in (
        queries.dataset(comes_and_goes, "visits", ROWS),
        queries.dataset(comes_and_goes, "visits", ROWS).where(country="JP"),
        queries.dataset(comes_and_goes, "visits", ROWS, missing="drop"),
    ):
        query = data.choose([1, 2], middle, columns=["x"], sensitivity=1, epsilon=1)
        with pytest.raises(ValueError, match="read-only"):
            query.release(purpose="test")
    assert np.array_equal(ROWS["x"], before)
    assert comes_and_goes.accounts().sequence == ledger


SORTED: Any = {"unit": [1, 1, 1, 2, 3], "x": [1.0, 2.0, 4.0, 8.0, 16.0]}
ONE_EACH: Any = {"bounds": {"x": (0, 100)}, "unit": "unit", "records_per_unit": 1}


def test_a_frame_that_is_changed_later_is_read_as_it_was(comes_and_goes: Client) -> None:
    """Rows in another order than that in which the rows that count were chosen would let a unit
    count with more rows than are charged.
    """
    frame = pd.DataFrame(SORTED)
    data = queries.dataset(comes_and_goes, "visits", frame, **ONE_EACH)
    frame["x"] = SORTED["x"][::-1]
    assert exact(data, "x") == 1 + 8 + 16
    frame.loc[0, "x"] = 99.0
    assert exact(data, "x") == 1 + 8 + 16


def test_a_polars_frame_that_is_changed_later_is_read_as_it_was(comes_and_goes: Client) -> None:
    """The same for a column that is replaced."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(SORTED)
    data = queries.dataset(comes_and_goes, "visits", frame, **ONE_EACH)
    frame.replace_column(1, polars.Series("x", SORTED["x"][::-1]))
    assert exact(data, "x") == 1 + 8 + 16


def same_as_arrays(table: Any, ledger: Client) -> None:
    """Checks that a table is read as the same columns in arrays are."""
    one, other = (
        queries.dataset(ledger, "visits", each, bounds=BOUNDS, unit="unit")
        for each in (table, ROWS | {"unit": np.arange(50)})
    )
    for name in ("x", "y", "age"):
        assert exact(one, name) == exact(other, name)
    colours = ["red", "green"]
    assert (
        one.histogram("colour", colours, epsilon=1).values()
        == other.histogram("colour", colours, epsilon=1).values()
    )
    assert one.where(country="JP").rows() == other.where(country="JP").rows()
    assert one.median("age", epsilon=1).steps == other.median("age", epsilon=1).steps


def test_pandas_frames(comes_and_goes: Client) -> None:
    """A pandas DataFrame is read, with its own types and its own signs for missing values."""
    frame = pd.DataFrame(ROWS | {"unit": np.arange(50)})
    same_as_arrays(frame, comes_and_goes)
    own = frame.assign(colour=frame["colour"].astype("category"), age=frame["age"].astype("Int64"))
    same_as_arrays(own, comes_and_goes)
    own.loc[7, "age"] = pd.NA
    data = queries.dataset(comes_and_goes, "visits", own, bounds=BOUNDS)
    with pytest.raises(ValueError, match="1 of 50 values of 'age' are missing"):
        data.mean("age", epsilon=1)


def test_polars_frames(comes_and_goes: Client) -> None:
    """A polars DataFrame is read, and its nulls are missing values."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(ROWS | {"unit": np.arange(50)})
    same_as_arrays(frame, comes_and_goes)
    ages = polars.Series([None, *ROWS["age"][1:].tolist()])
    colours = polars.Series([None, *ROWS["colour"][1:].tolist()])
    data = queries.dataset(
        comes_and_goes, "visits", frame.with_columns(age=ages, colour=colours), bounds=BOUNDS
    )
    with pytest.raises(ValueError, match="1 of 50 values of 'age' are missing"):
        data.mean("age", epsilon=1)
    with pytest.raises(ValueError, match="1 of 50 values of 'colour' are missing"):
        data.histogram("colour", ["red"], epsilon=1)


def test_monotonic_scores_cost_half_where_units_come_and_go(
    comes_and_goes: Client, replaces: Client
) -> None:
    """``monotonic`` halves the scale there, and is refused where units are exchanged."""

    def ask(ledger: Client, *, monotonic: bool) -> Any:
        data = queries.dataset(ledger, "visits", ROWS)
        score = lambda rows, age: float(np.sum(rows["age"] < age))  # noqa: E731
        more = {"columns": ["age"], "monotonic": monotonic}
        return data.choose([20, 40], score, sensitivity=1, epsilon=1, **more)

    assert ask(comes_and_goes, monotonic=True).steps[0].scale == 1
    assert ask(comes_and_goes, monotonic=False).steps[0].scale == 2
    answer = ask(comes_and_goes, monotonic=True).release(purpose="test")
    assert answer.receipt.charge["epsilon"] == 1
    with pytest.raises(ValueError, match="leave monotonic out"):
        ask(replaces, monotonic=True)


def test_a_public_group_without_records_is_refused(replaces: Client) -> None:
    """Where it is public that nobody is there, there is nothing to ask."""
    rows = ROWS | {"country": np.array(["CH"] * 50)}
    data = queries.dataset(replaces, "visits", rows, bounds=BOUNDS)
    with pytest.raises(ValueError, match="no records, which is public"):
        data.where(country="JP").mean("x", epsilon=1)
    private = data.where(colour="mauve").mean("x", epsilon=1)
    assert len(private.steps) == 2


def test_loading_queries_loads_neither_opendp_nor_frames() -> None:
    """Importing the package imports no OpenDP, pandas or polars, nor any room of the service."""
    program = "import sys, accountant.queries; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"opendp", "pandas", "polars", "scipy", "pydantic", "accountant.ledger"} & set(found)


@pytest.mark.parametrize("name", [*KINDS, *LOCAL])
def test_a_public_group_without_records_is_asked_nothing(
    name: str, replaces: Client, comes_and_goes: Client
) -> None:
    """Every kind of query refuses a group of which it is public that nobody is in it; one where
    that is private is answered like any other.
    """
    rows = ROWS | {"country": np.array(["CH"] * 50), "unit": np.arange(50)}
    ask = (KINDS | LOCAL)[name]
    for missing in ("refuse", "drop"):
        more: Any = {"bounds": BOUNDS, "missing": missing, "unit": "unit"}
        data = queries.dataset(replaces, "visits", rows, **more)
        if missing == "refuse" or name in KINDS:
            with pytest.raises(ValueError, match="no records, which is public"):
                ask(data.where(country="JP"))
        if name in KINDS:
            assert ask(queries.dataset(comes_and_goes, "visits", rows, **more).where(country="JP"))
