"""One rule says which values are the same, and all queries keep to it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant import queries
from accountant.client import Client
from accountant.queries import frame
from accountant.queries.features import agreement
from accountant.queries.same import key, keys
from accountant.queries.subsample import assigned
from accountant.queries.universe import Universe


class Colour(str, Enum):  # noqa: UP042
    """A text with a name."""

    RED = "red"


NOON = datetime(2026, 1, 1, 12)
SAME: list[list[Any]] = [
    [1, 1.0, True, np.True_, np.uint8(1), np.float16(1), Decimal("1.00"), Fraction(1)],
    [0.1, np.float64(0.1), np.float32(0.1), np.float16(0.1), Decimal("0.1"), Fraction(1, 10)],
    [0, -0.0, False, np.float32(-0.0)],
    [2**53 + 1, np.int64(2**53 + 1), Decimal(2**53 + 1)],
    [float(2**53), 2**53],
    [float("inf"), np.float32("inf"), Decimal("Infinity")],
    [date(2026, 1, 1), datetime(2026, 1, 1), np.datetime64("2026-01-01"),
     np.datetime64("2026-01-01T00:00", "ns"), pd.Timestamp("2026-01-01"), np.datetime64("2026")],
    [NOON, NOON.replace(tzinfo=UTC), pd.Timestamp(NOON, tz="UTC"), np.datetime64(NOON, "s"),
     datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
    [pd.Timestamp("2026-01-01T12:00:00.000000001"),
     np.datetime64("2026-01-01T12:00:00.000000001")],
    [timedelta(days=1), np.timedelta64(1, "D"), np.timedelta64(24, "h"), pd.Timedelta("1D")],
    [np.timedelta64(12, "M"), np.timedelta64(1, "Y")],
    ["red", np.str_("red"), Colour.RED],
    ["1"],
    [b"1", np.bytes_(b"1")],
    [(1, "a"), (1.0, "a"), (True, np.str_("a"))],
    [86400],
]  # fmt: skip
"""Values that are the same; those of two lists never are."""


def column(*values: Any) -> Any:
    """A column of values as they are."""
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


ALL = column(*(value for some in SAME for value in some))
GROUPS = np.repeat(np.arange(len(SAME)), [len(some) for some in SAME])


def test_the_same_values_have_one_key_and_others_another() -> None:
    """Values of one list have one key, those of two lists two."""
    found = [key(value) for value in ALL]
    for one, group in zip(found, GROUPS, strict=True):
        assert [one == other for other in found] == (group == GROUPS).tolist()
    for wrong in ([1], {1: 2}, np.array([1])):
        with pytest.raises(ValueError, match="no category and no name"):
            key(wrong)


def test_everything_keeps_to_the_rule(comes_and_goes: Client) -> None:
    """Categories, selections, cells, units, blocks and features tell the same values apart."""
    firsts = [some[0] for some in SAME]
    rows = {"it": ALL, "first": column(*(firsts[group] for group in GROUPS))}
    data = queries.dataset(comes_and_goes, "visits", rows, unit="it", records_per_unit=99)
    sizes = np.bincount(GROUPS).tolist()
    assert data.histogram("it", firsts, epsilon=1).values()[0] == sizes
    universe = Universe.of(data, {"it": firsts})
    assert universe.counts(data).tolist() == sizes
    blocks = assigned(data, 2**40, b"salt")
    for group, some in enumerate(SAME):
        assert data.where(it=some[-1:]).rows() == sizes[group]
        assert np.flatnonzero(universe.where(it=some[-1:]).weights).tolist() == [group]
        assert len(set(blocks[group == GROUPS])) == 1
    assert len(set(blocks)) == len(SAME)
    assert np.array_equal(frame.places(ALL), GROUPS)
    assert agreement("it", rows, "first") == len(ALL)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1), st.sampled_from("fd"))
def test_a_column_of_a_type_is_read_as_its_values_are(values: list[float], kind: str) -> None:
    """The keys of a column are those of its entries, and tell apart what its type does."""
    numbers = np.array(values, dtype=kind)
    found = list(keys(numbers))
    assert found == [key(number) for number in numbers]
    assert len(set(found)) == len(np.unique(numbers))
    assert frame.among(numbers, [values[0]])[0] or kind == "f"


@pytest.mark.parametrize("kind", ["f8", "f4", "f2", "i8", "u1"])
def test_few_categories_are_found_among_many_numbers(kind: str) -> None:
    """Looking for the categories among the numbers finds what looking at each number does."""
    random = np.random.default_rng(5)
    numbers = random.integers(0, 250, 5000) if kind == "u1" else random.normal(0, 1000, 5000)
    values = numbers.astype(kind)
    if values.dtype.kind == "f":
        values[:3] = np.inf, -np.inf, np.nan
    wanted = [*values[[0, 1, 99, 50, 20, 2]], 0.1, 10**30, "red", Fraction(1, 3), float(values[7])]
    wanted = list({key(each): each for each in wanted}.values())
    places = {key(each): place for place, each in enumerate(wanted)}
    one_by_one = [places.get(each, -1) for each in keys(values)]
    assert frame.categorised(values, wanted).tolist() == one_by_one
    assert {0, 1, 2, 3, 4, 5} <= set(one_by_one)


def test_times_of_two_types_are_one_unit(comes_and_goes: Client) -> None:
    """A unit named by a time lies in one block, whatever the type of its column."""
    days = ["2026-01-01", "2026-01-02", "2026-01-03"]
    columns = [
        np.array(days, dtype="datetime64[D]"),
        np.array(days, dtype="datetime64[ns]"),
        column(*map(date.fromisoformat, days)),
        column(*map(datetime.fromisoformat, days)),
        column(*map(pd.Timestamp, days)),
    ]
    blocks = [
        assigned(
            queries.dataset(comes_and_goes, "visits", {"who": each}, unit="who"), 10**6, b"salt"
        ).tolist()
        for each in columns
    ]
    assert all(each == blocks[0] for each in blocks)
    assert len(set(blocks[0])) == 3
