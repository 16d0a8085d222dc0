"""The open grants of known forms, in tables that a garbage collector has nothing to look for in.

There may be hundreds of thousands of them, and a full collection that looked into each would stop
everybody for a tenth of a second. So what stands in the tables are forms, of which there are few,
and plain tuples of texts and numbers, which Python soon knows to be no part of any cycle.
"""

from __future__ import annotations

from collections.abc import Iterator

from accountant.budget.express.forms import Form, Held

Rest = tuple[str, int, int, tuple[bytes, ...]]
"""The fields of what is held beside its form, in their order."""


class Holding:
    """Open grants by the sequence that reserved them."""

    __slots__ = ("_forms", "_rest")

    def __init__(self) -> None:
        self._forms: dict[int, Form] = {}
        self._rest: dict[int, Rest] = {}

    def __len__(self) -> int:
        return len(self._rest)

    def __contains__(self, number: object) -> bool:
        return number in self._rest

    def get(self, number: int) -> Held | None:
        """What is held."""
        form = self._forms.get(number)
        return None if form is None else Held(form, *self._rest[number])

    def put(self, number: int, form: Form, rest: Rest) -> None:
        """Holds it from now on."""
        self._forms[number] = form
        self._rest[number] = rest

    def drop(self, number: int) -> None:
        """Holds it no longer, if it did."""
        self._forms.pop(number, None)
        self._rest.pop(number, None)

    def expires(self, number: int) -> int | None:
        """When it does; None if it is not held."""
        rest = self._rest.get(number)
        return None if rest is None else rest[1]

    def all(self) -> Iterator[tuple[int, int]]:
        """When each expires, and its number."""
        return ((expires, number) for number, (_, expires, _, _) in self._rest.items())
