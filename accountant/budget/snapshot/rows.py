"""The head of a snapshot: everything of a state but its columns, as one JSON document.

Currencies, charges, selections and texts are listed once and referred to by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer

from accountant.budget.custody.custody import Custody
from accountant.budget.grants import AccountKey, Bookings, Legend
from accountant.budget.population.population import Dataset, Population
from accountant.budget.population.selection import Selection, Side, side_of
from accountant.privacy.units import FIXED, Axis, Charge, Currency

K = TypeVar("K")
T = TypeVar("T")
Big = Annotated[
    int,
    BeforeValidator(lambda value: int(value) if isinstance(value, str) else value),
    PlainSerializer(str, return_type=str),
]
"""A whole number of any size: a string, as in events."""
Number = Annotated[int, Field(ge=0)]
"""A count, or a place in one of the head's lists."""
Run = tuple[Number, Number]
"""The first and the last of numbers that follow each other."""
BookingsRow = tuple[tuple[Number, Number], ...]
"""Accounts, and the charges that they hold of a grant."""


@dataclass(frozen=True, slots=True)
class ChargeRow:
    """A charge on a listed axis."""

    axis: Number
    finite: tuple[Big, ...]
    infinite: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """A selection, each side of its boxes as runs."""

    everyone: bool
    boxes: tuple[tuple[tuple[Run, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class AccountRow:
    """An account without its sums."""

    rule: str
    epoch: int
    dataset: str
    client: str
    axis: Number
    bound: tuple[Big, ...]
    held: tuple[Big, ...]
    kept: Annotated[int, Field(ge=0, le=2)]
    """How many arrays of cells there are (``Sums.parts_kept``)."""
    window: str | None
    passing: Number
    """How many entries are to leave the window: each is a row among the columns."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """The part of an epoch that does not follow from its rule."""

    number: int
    since: Big
    chosen: tuple[Fraction, Fraction] | None
    carried: bool
    whole: bool


@dataclass(frozen=True, slots=True)
class AdoptedRow:
    """The policy as its event has it, and the epochs of its limit rules in their order."""

    policy: dict[str, Any]
    digest: str
    sequence: int
    epochs: tuple[EpochRow, ...]


class Head(BaseModel, frozen=True, extra="forbid", strict=True):
    """Everything but the columns. Dictionaries are lists, which keep their order."""

    ledger: str
    sequence: Number
    time: Big
    population: Population | None
    datasets: tuple[Dataset, ...]
    adopted: AdoptedRow | None
    last_epoch: tuple[tuple[str, int], ...]
    custody: Custody
    revalued: tuple[tuple[int, int], ...]
    memories: tuple[tuple[str, Any], ...]
    axes: tuple[tuple[str, ...], ...]
    charges: tuple[ChargeRow, ...]
    selections: tuple[SelectionRow, ...]
    bookings: tuple[BookingsRow, ...]
    commands: Number
    """How many bytes the commands take, which stand among the columns, a line each."""
    texts: tuple[str, ...]
    accounts: tuple[AccountRow, ...]
    open: Number
    """How many grants are open: each is a row among the columns."""
    named: tuple[()] = ()
    """Kept for the format."""
    settled: Legend
    answers: Number


class Lists:
    """The head's lists, while it is written: a number for each item."""

    def __init__(self) -> None:
        self.axes: dict[Axis, int] = {}
        self.charges: dict[Charge, int] = {}
        self.selections: dict[Selection, int] = {}
        self.bookings: dict[BookingsRow, int] = {}
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
        for place, item in dict(zip(map(id, items), items, strict=True)).items():
            if place not in self._seen:
                listed: Any = item if key is None else key(item)
                self._seen[place] = table.setdefault(listed, len(table))
                self._here.append(item)
        return list(map(self._seen.__getitem__, map(id, items)))

    def held(self, bookings: Sequence[Bookings], accounts: Mapping[AccountKey, int]) -> list[int]:
        """Return the numbers of bookings; ``accounts`` have numbers too."""

        def row(held: Bookings) -> BookingsRow:
            charges = self.numbers(self.charges, [booked for _, booked in held])
            return tuple(zip([accounts[key] for key, _ in held], charges, strict=True))

        return self.numbers(self.bookings, bookings, row)

    def rows(self) -> dict[str, Any]:
        """Return the lists, as fields of the head."""
        charges = tuple(
            ChargeRow(self.axis(charge.axis), charge.finite, charge.infinite)
            for charge in self.charges
        )
        selections = tuple(
            SelectionRow(cells.everyone, tuple(tuple(map(_runs, box)) for box in cells.boxes))
            for cells in self.selections
        )
        return {
            "axes": tuple(tuple(map(str, axis)) for axis in self.axes),
            "charges": charges,
            "selections": selections,
            "bookings": tuple(self.bookings),
            "texts": tuple(self.texts),
        }


def axis_from(names: tuple[str, ...]) -> Axis:
    """Return the currencies of these names. Raises ValueError for an unknown one."""
    axis = tuple(map(Currency, names))
    if unknown := [c for c in axis if c not in FIXED and c.order is None]:
        raise ValueError(f"no currency is called {unknown[0]!r}")
    return axis


def charge_from(row: ChargeRow, axes: list[Axis]) -> Charge:
    """Return the charge of a row. Raises ValueError if it is not as long as its axis."""
    charge = Charge(axes[row.axis], row.finite, row.infinite)
    if {len(charge.finite), len(charge.infinite)} != {len(charge.axis)}:
        raise ValueError("a charge is not as long as its axis")
    return charge


def selection_from(row: SelectionRow, shape: tuple[int, ...]) -> Selection:
    """Return the selection of a row. Raises ValueError if it leaves the population."""
    boxes = (
        tuple(_side(runs, most) for runs, most in zip(box, shape, strict=True)) for box in row.boxes
    )
    return Selection(row.everyone, tuple(boxes))


def _runs(side: Side) -> tuple[Run, ...]:
    if isinstance(side, range):
        return ((side[0], side[-1]),)
    values = np.fromiter(side, dtype=np.int64, count=len(side))
    values.sort()
    ends = np.flatnonzero(np.diff(values) != 1)
    firsts, lasts = values[[0, *(ends + 1)]], values[[*ends, -1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _side(runs: tuple[Run, ...], most: int) -> Side:
    if not runs or max(last for _, last in runs) >= most:
        raise ValueError("a side of a box is empty or too long")
    if len(runs) == 1:
        [(first, last)] = runs
        return side_of(range(first, last + 1))
    return side_of({at for first, last in runs for at in range(first, last + 1)})
