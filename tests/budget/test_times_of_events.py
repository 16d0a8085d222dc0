"""Dimensions that look like times of events need a reason why they never change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import SECOND, Book, laplace, make

from accountant.budget.errors import Conflict, Invalid
from accountant.budget.population.times import looks_like_times, periodic
from accountant.budget.snapshot import dump, load

WHY = {"week": "the week a person joined never changes"}


def register(book: Book, dimensions: dict[str, list[str]], **more: Any) -> Any:
    """Registers or extends the population; the events."""
    stated = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    return book.ask(
        make("register_population", **(stated | {"dimensions": dimensions} | more)), "a"
    )


NAMES = "week date month day hour quarter year time timestamp event_week visit-date days"
VALUES = [
    ["2026-05-01", "2026-05-02"],
    ["2026-W05", "2026-W6", "2026W07"],
    ["2026-05", "2026-06"],
    ["2026-Q1"],
    ["2026-05-01T10", "2026-05-01T11:30:00Z"],
    ["2026-05-01 23:59"],
    ["08:00", "09:00"],
]
OTHERS = {
    "birthday": ["a"],
    "daylight": ["a"],
    "update": ["a"],
    "candidate": ["a"],
    "country": ["2026", "1999"],
    "joined": ["2024", "2025"],
    "code": ["2026-05-01", "unknown"],
    "zip": ["8001", "8002"],
    "age": ["17", "22"],
    "phone": ["0123-45"],
    "version": ["2026-13"],
}


@pytest.mark.parametrize("name", NAMES.split())
def test_a_name_of_times_is_refused(name: str) -> None:
    """A part of the name is enough, also in the plural."""
    with pytest.raises(Invalid) as caught:
        register(Book(), {name: ["1", "2"]})
    assert caught.value.code == "times-of-events"
    assert list(caught.value.numbers["dimensions"]) == [name]
    assert f'fixed: {{"{name}"' in caught.value.detail


@pytest.mark.parametrize("values", VALUES, ids=lambda values: values[0])
def test_values_that_are_all_times_are_refused(values: list[str]) -> None:
    """Whatever the dimension is called."""
    with pytest.raises(Invalid):
        register(Book(), {"wave": values})
    assert register(Book(), {"wave": [*values, "before"]})


@pytest.mark.parametrize("name", OTHERS)
def test_other_dimensions_need_no_reason(name: str) -> None:
    """Words that only contain such a name, numbers, and values of which some are no times."""
    assert not looks_like_times(name, OTHERS[name])
    assert register(Book(), {name: OTHERS[name]})


@pytest.mark.parametrize(
    "unit", ["person-day", "user_week", "one patient-month", "device hour", "Person-Year"]
)
def test_a_unit_that_names_a_period_has_times(unit: str) -> None:
    """A person-week lies in one week."""
    assert periodic(unit)
    assert register(Book(), {"week": ["1"]}, privacy_unit=unit)


@pytest.mark.parametrize("unit", ["person", "weekday worker", "dayflower", "household"])
def test_a_unit_that_names_none_has_not(unit: str) -> None:
    """A word that only contains a period names none."""
    assert not periodic(unit)


def test_a_reason_stands_in_the_event_and_in_the_state() -> None:
    """It is kept through replay and snapshots, and is stated once."""
    book = Book()
    [event] = register(book, {"week": ["1"], "sex": ["f"]}, fixed=WHY)
    assert event.body["command"]["fixed"] == WHY
    [longer] = register(book, {"week": ["1", "2"], "sex": ["f"]})
    assert longer.body["added"] == {"week": ["2"]}
    assert register(book, {"week": ["1", "2"], "sex": ["f"]}, fixed=WHY) == []
    assert dict(book.state.people().fixed) == WHY
    assert book.replayed().findings == []
    assert load("fair", b"".join(dump(book.state))).population == book.state.population


def test_another_reason_is_none() -> None:
    """What was stated stays; a reason for no dimension is a mistake."""
    book = Book()
    register(book, {"week": ["1"]}, fixed=WHY)
    with pytest.raises(Conflict):
        register(book, {"week": ["1", "2"]}, fixed={"week": "something else"})
    with pytest.raises(Invalid) as caught:
        register(book, {"week": ["1", "2"]}, fixed={"month": "x"})
    assert caught.value.code == "unknown-dimension"


def test_an_extension_by_times_needs_one() -> None:
    """Also where the first values were none; a reason may come with it, or alone."""
    book = Book()
    register(book, {"wave": ["first"]})
    with pytest.raises(Invalid):
        register(book, {"wave": ["first", "2026-05-01"]})
    [event] = register(book, {"wave": ["first"]}, fixed={"wave": "of joining"})
    assert event.body["added"] == {}
    register(book, {"wave": ["first", "2026-05-01"]})
    assert book.replayed().findings == []
    assert book.state.people().shape == (2,)


def test_the_sums_stay_when_a_reason_is_stated() -> None:
    """A reason alone adds no cell."""
    book = Book()
    register(book, {"wave": ["first", "second"]})
    book.dataset("d")
    book.policy("  - {id: a, limit: {epsilon: 1}}\n")
    book.record(laplace("0.1"), subjects={"wave": ["first"]})
    before = book.used()
    book.now += SECOND
    register(book, {"wave": ["first", "second"]}, fixed={"wave": "of joining"})
    assert book.used() == before
    assert book.replayed().findings == []


@given(first_word=st.none() | st.integers(0, 130), stated=st.booleans())
def test_a_registration_in_parts_is_decided_again(first_word: int | None, stated: bool) -> None:
    """Wherever the first value stands that is no time, what several events hold is accepted again:
    a hundred values tell what a dimension is.
    """
    values = [f"2026-05-{n // 1440 + 1:02}T{n // 60 % 24:02}:{n % 60:02}:00Z" for n in range(4_000)]
    if first_word is not None:
        values.insert(first_word, "word")
    book, fixed = Book(), {"wave": "of joining"} if stated else {}
    if not stated and (first_word is None or first_word >= 100):
        with pytest.raises(Invalid):
            register(book, {"wave": values})
        return
    assert len(register(book, {"wave": values}, fixed=fixed)) > 1
    assert book.state.people().shape == (len(values),)
    assert book.replayed().findings == []
