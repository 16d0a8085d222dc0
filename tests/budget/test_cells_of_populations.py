"""How many cells a population may have, and what is told of a registration that cannot be."""

from __future__ import annotations

import pytest
from support import Book

from accountant.budget.errors import Problem

LONG = [f"v{n}" for n in range(500)]


def refused(book: Book, dimensions: dict[str, list[str]]) -> Problem:
    """The problem of a registration, which leaves no event."""
    stored = len(book.stored)
    with pytest.raises(Problem) as found:
        book.register(dimensions)
    assert len(book.stored) == stored
    return found.value


def test_there_are_at_most_a_hundred_million_cells() -> None:
    """A population that has more is refused, new or extended, with both numbers."""
    found = refused(Book(), {"a": LONG, "b": LONG, "c": [*LONG]})
    assert (found.code, "125000000 cells, the most is 100000000" in found.detail) == (
        "too-many-cells",
        True,
    )
    book = Book()
    book.register({"a": LONG, "b": LONG, "c": LONG[:400]})
    assert book.state.people().cells == 10**8
    assert refused(book, {"a": LONG, "b": LONG, "c": LONG[:401]}).code == "too-many-cells"
    assert book.replayed().findings == []


@pytest.mark.parametrize(
    ("dimensions", "code"),
    [
        ({"a": ["1", "1"]}, "duplicate-value"),
        ({"a": ["2", "1"]}, "dimensions-append-only"),
        ({"a": ["1", "2"], "b": ["1"]}, "dimensions-append-only"),
        ({}, "dimensions-append-only"),
    ],
)
def test_dimensions_only_grow_at_their_ends(dimensions: dict[str, list[str]], code: str) -> None:
    """A registration that takes away, moves or repeats anything is told what is wrong."""
    book = Book()
    book.register({"a": ["1", "2"]})
    assert refused(book, dimensions).code == code
