"""What a snapshot refers to by number: texts, charges, selections, bookings, each listed once.

Many grants share one, and those that share nothing are listed in a long list. Such a list stands
among the columns of the snapshot, as integers or as lines of JSON, some items at a time: between
two pieces other threads run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from accountant.budget.bill import Per
from accountant.budget.columns import raw
from accountant.budget.grants import AccountKey, Bookings
from accountant.budget.population.selection import Selection, runs_of, side_from
from accountant.privacy.units import Axis, Charge

K = TypeVar("K")
T = TypeVar("T")
_AT_ONCE: Final = 512
"""Items that are written without a break, within some milliseconds."""

Number = Annotated[int, Field(ge=0)]
"""A count, or a place in a list."""
Run = tuple[Number, Number]
"""The first and the last of numbers that follow each other."""
SelectionRow = tuple[bool, tuple[tuple[tuple[Run, ...], ...], ...], bool]
"""Whether it is everyone; its boxes, each side as runs; whether it lasts."""
BookingsRow = tuple[tuple[int, int], ...]
"""Accounts, and the charges that they hold of a grant."""
PerRow = tuple[tuple[str, Number], ...]
"""Further units, and what they are charged."""


class Lines:
    """A long list of ``row`` values as lines of JSON, each with the next few."""

    def __init__(self, row: Any) -> None:
        self._rows: TypeAdapter[list[Any]] = TypeAdapter(
            list[row], config=ConfigDict(strict=True, defer_build=True)
        )

    def write(self, rows: Iterable[Any], breathe: Callable[[], None]) -> bytes:
        """Return the lines, calling ``breathe`` after each."""
        return b"\n".join(self._rows.dump_json(some) for some in pieces(rows, breathe))

    def read(self, data: bytes) -> list[Any]:
        """Return the rows that ``write`` wrote. Raises ValueError."""
        lines = data.split(b"\n") if data else []
        return [row for line in lines for row in self._rows.validate_json(line)]


_SELECTIONS: Final = Lines(SelectionRow)
_PER: Final = Lines(PerRow)


class Lists:
    """The lists, while a snapshot is written: a number for each item."""

    def __init__(self) -> None:
        self.axes: dict[Axis, int] = {}
        self.charges: dict[Charge, int] = {}
        self.selections: dict[Selection, int] = {}
        self.bookings: dict[BookingsRow, int] = {}
        self.per: dict[PerRow, int] = {}
        self.commands: dict[bytes, int] = {}
        self.texts: dict[str, int] = {}
        self._seen: dict[int, int] = {}
        """Numbers of objects by identity: many grants share one, and hashing it takes long."""
        self._here: list[object] = []
        """The objects of ``_seen``, which keep their identity while they are here."""

    def axis(self, axis: Axis) -> int:
        """Return the number of these currencies."""
        return self.axes.setdefault(axis, len(self.axes))

    def numbers(
        self, table: dict[K, int], items: Sequence[T], key: Callable[[T], K] | None = None
    ) -> list[int]:
        """Return the number of each item in ``table``, which lists ``key`` of it."""
        for item in self._new(items):
            listed: Any = item if key is None else key(item)
            self._seen[id(item)] = table.setdefault(listed, len(table))
            self._here.append(item)
        return list(map(self._seen.__getitem__, map(id, items)))

    def _new(self, items: Sequence[T]) -> list[T]:
        """Return the items that have no number yet, each once."""
        distinct = dict(zip(map(id, items), items, strict=True))
        return [item for place, item in distinct.items() if place not in self._seen]

    def held(self, bookings: Sequence[Bookings], accounts: Mapping[AccountKey, int]) -> list[int]:
        """Return the numbers of bookings; ``accounts`` have numbers too."""
        new = self._new(bookings)
        charges = iter(self.numbers(self.charges, [booked for one in new for _, booked in one]))
        for one in new:
            row = tuple([(accounts[key], next(charges)) for key, _ in one])
            self._seen[id(one)] = self.bookings.setdefault(row, len(self.bookings))
            self._here.append(one)
        return list(map(self._seen.__getitem__, map(id, bookings)))

    def further(self, bills: Sequence[Per]) -> list[int]:
        """Return the numbers of charges to further units."""

        def row(per: Per) -> PerRow:
            charges = self.numbers(self.charges, [charge for _, charge in per])
            return tuple(zip([unit for unit, _ in per], charges, strict=True))

        return self.numbers(self.per, bills, row)

    def columns(self, breathe: Callable[[], None]) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the long lists: charges, bookings, selections, further units. Charges number axes.

        Of a charge there are its axis, the finite sums and the infinite ones; of bookings how many
        there are, then of each the account and the charge.
        """
        charges = ((self.axis(c.axis), *c.finite, *c.infinite) for c in self.charges)
        bookings = ((len(row), *chain.from_iterable(row)) for row in self.bookings)
        selections = (
            (c.everyone, tuple(tuple(map(runs_of, box)) for box in c.boxes), c.lasting)
            for c in self.selections
        )
        return (
            _flat(charges, breathe),
            _flat(bookings, breathe),
            _SELECTIONS.write(selections, breathe),
            _PER.write(self.per, breathe),
        )


def pieces(items: Iterable[T], breathe: Callable[[], None]) -> Iterator[list[T]]:
    """Yield the items, some at a time, calling ``breathe`` after each time."""
    rest = iter(items)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
        breathe()


def _flat(rows: Iterable[Sequence[int]], breathe: Callable[[], None]) -> bytes:
    found = bytearray()
    for some in pieces(rows, breathe):
        found += raw(np.array([*chain.from_iterable(some)], dtype=np.int64))
    return bytes(found)


def _integers(data: memoryview) -> list[int]:
    found: list[int] = np.frombuffer(data, dtype="<i8").tolist()
    return found


def charges_in(data: memoryview, axes: Sequence[Axis]) -> list[Charge]:
    """Return the charges of a snapshot. Raises ValueError or LookupError."""
    found, at, flat = list[Charge](), 0, _integers(data)
    while at < len(flat):
        axis = axes[flat[at]]
        middle, end = at + 1 + len(axis), at + 1 + 2 * len(axis)
        if end > len(flat):
            raise ValueError("a charge is not as long as its axis")
        found.append(Charge(axis, tuple(flat[at + 1 : middle]), tuple(flat[middle:end])))
        at = end
    return found


def bookings_in(
    data: memoryview, keys: Sequence[AccountKey], charges: Sequence[Charge]
) -> list[Bookings]:
    """Return the bookings of a snapshot. Raises ValueError or LookupError."""
    found, at, flat = list[Bookings](), 0, _integers(data)
    while at < len(flat):
        end = at + 1 + 2 * flat[at]
        if not at < end <= len(flat):
            raise ValueError("bookings are not as many as they say")
        pairs = zip(flat[at + 1 : end : 2], flat[at + 2 : end : 2], strict=True)
        found.append(tuple([(keys[key], charges[booked]) for key, booked in pairs]))
        at = end
    return found


def selections_in(data: memoryview, shape: Sequence[int]) -> list[Selection]:
    """Return the selections of a snapshot. Raises ValueError."""
    return [_selection(row, shape) for row in _SELECTIONS.read(bytes(data))]


def _selection(row: SelectionRow, shape: Sequence[int]) -> Selection:
    everyone, boxes, lasting = row
    sides = (tuple(side_from(*each) for each in zip(box, shape, strict=True)) for box in boxes)
    return Selection(everyone, tuple(sides), lasting)


def per_in(data: memoryview, charges: Sequence[Charge]) -> list[Per]:
    """Return the charges to further units of a snapshot. Raises ValueError or LookupError."""
    rows = _PER.read(bytes(data))
    return [tuple((unit, charges[number]) for unit, number in row) for row in rows]
