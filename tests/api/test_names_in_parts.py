"""Values of a dimension, appended in as many requests as it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import Book, World, ask, hospital, laplace, make

from accountant.budget.errors import Conflict, Invalid
from accountant.ledger.events import MAX_BYTES

NAMES = [f"{number:05d}" + "x" * 69 for number in range(20_000)]


def append(book: Book, first: int, values: list[str], **more: Any) -> list[Any]:
    """The events of one request."""
    asked = make("append_values", dimension="id", first=first, values=values, **more)
    return list(book.ask(asked, "admin", confirmed_by="officer"))


def values_of(book: Book) -> tuple[str, ...]:
    """The values of the dimension."""
    return dict(book.state.people().dimensions)["id"]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), max_size=12))
def test_parts_in_any_order_never_make_another_list(parts: list[tuple[int, int]]) -> None:
    """Whatever is repeated, overlaps or comes too early: the values are the first of the list, and
    an event is written only where some were not there.
    """
    names, book = [f"n{number}" for number in range(20)], Book()
    book.register({"id": names[:2]})
    for first, size in parts:
        before = len(values_of(book))
        if first > before:
            with pytest.raises(Conflict) as refusal:
                append(book, first, names[first : first + size])
            assert refusal.value.numbers["values"] == before
            continue
        events = append(book, first, names[first : first + size])
        assert bool(events) == (first + size > before)
        assert values_of(book) == tuple(names[: max(before, first + size)])
    assert book.replayed().findings == []


def test_another_value_in_its_place_is_refused() -> None:
    """A list that differs from what is there says where, and a value stands once."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n", {"id": ["a", "b", "c"]})
    with pytest.raises(Conflict, match="has 'b' at place 1, not 'x'"):
        append(book, 0, ["a", "x"])
    with pytest.raises(Invalid, match="lists a value twice"):
        append(book, 3, ["a"])
    with pytest.raises(Invalid, match="has no dimension"):
        book.ask(make("append_values", dimension="age", first=0, values=["1"]), "admin")


def test_a_charge_between_parts_is_inherited() -> None:
    """Values count as soon as they are there: later ones inherit as those of any extension do."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n", {"id": ["a"]})
    book.record(laplace("0.7"), subjects={"id": ["a"]})
    append(book, 1, ["b"])
    append(book, 2, ["c"], attested_new=True)
    left = {name: book.grant(laplace("0.5"), subjects={"id": [name]}).type for name in "bc"}
    assert left == {"b": "grant.refused.v1", "c": "grant.reserved.v1"}
    assert book.replayed().findings == []


def test_a_dimension_does_not_become_times_by_its_later_parts() -> None:
    """What looks like times of events says why it never changes, in whatever part it comes."""
    book = hospital("  - {id: a, limit: {epsilon: 1}}\n", {"id": ["other"]})
    weeks = [f"2026-W{week}" for week in range(10, 40)]
    with pytest.raises(Invalid) as refusal:
        append(book, 1, weeks)
    assert refusal.value.code == "times-of-events"
    assert append(book, 1, weeks, fixed={"id": "the week of joining never changes"})


def test_twenty_thousand_long_names(world: Callable[..., World]) -> None:
    """A megabyte and a half of names goes in parts; each event stays within its size, and a grant
    on thousands of them is decided.
    """
    made = world().hospital("  - {id: a, limit: {epsilon: 1}}\n", {"id": NAMES[:1]})
    for first in range(0, len(NAMES), 5_000):
        part = {"first": first, "values": NAMES[first : first + 5_000]}
        answer = made.post("/dimensions/id/values", part, who="admin")
        assert answer.status_code == 200, answer.text
        assert answer.json()["values"] == first + 5_000
    size = len(made.stored())
    assert made.post("/dimensions/id/values", part, who="admin").json()["cells"] == 20_000
    assert len(made.stored()) == size
    assert max(map(len, made.stored())) <= MAX_BYTES
    asked = ask(laplace("0.5"), subjects={"id": NAMES[3:9_000:3]})
    assert made.post("/grants", asked).status_code == 201
    assert made.post("/grants", asked | {"purpose": "again"}).status_code == 201
    assert made.post("/grants", asked | {"purpose": "once more"}).status_code == 403
