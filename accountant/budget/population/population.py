"""Populations: sets of privacy units, each in exactly one cell for life.

A *dimension* is an unchanging, public attribute of the privacy unit (country of birth, the week of
joining; never the week of an event). A unit then lies in one cell, and charges to disjoint groups
need not be added. A population without dimensions has one cell, "everyone".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Annotated, Final

from pydantic import Field

from accountant.budget.errors import Invalid
from accountant.budget.population.naming import Data, meant_by, normal_form
from accountant.privacy.mechanisms import Relation
from accountant.privacy.mechanisms.further_units import Units

MAX_CELLS: Final = 10**8
"""Of many cells sums are kept by class (accounts/classes.py): four bytes a cell."""
MAX_VALUES: Final = 10**6
"""Values of one dimension, which are held by name."""
MOST_DIMENSIONS: Final = 16
"""Sums have one axis more, and NumPy's arrays at most 32. What costs time and memory are cells."""
MOST_LABELS: Final = 8
LabelText = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
"""The key, or the value, of a label of a dataset."""
LabelPairs = tuple[tuple[str, str], ...]
"""Labels by key, sorted."""


class Membership(StrEnum):
    """Whether it is public in which cell a person lies."""

    PUBLIC = "public"
    PRIVATE = "private"


@dataclass(frozen=True)
class Population:
    """One privacy unit, one neighbouring relation. Dimensions map a name to its values, in order.

    Under replace-one with private membership a person may move between cells. Only mechanisms
    proved under add-or-remove may then charge a part of the population, and they are booked
    doubled (leave one cell, enter another). Those under zero-out may not: they take the number of
    units in the part, and the place of each, as public, and a mover changes both. To give out the
    exact number costs nothing there. A mover between cells A and B pays each narrow charge
    once, which is at most half of its booking: in every currency a pair costs at least twice as
    much as one (tests/privacy/test_laws.py). common + (a + b)/2 <= common + max(a, b): the largest
    cell bounds the loss of such a person too.
    """

    name: str
    privacy_unit: str
    relation: Relation
    membership: Membership
    dimensions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    """Why dimensions that look like times of events never change for a unit (times.py)."""
    grown: tuple[tuple[int, int, int], ...] = ()
    """Values that were appended: their dimension's position, the first one's, and the stamp."""
    units: Units = ()
    """Further units, by name: parts of the privacy unit, or groups of it. A part lies in the cell
    of its whole. The members of a group may lie in several cells, whose charges add up for it: what
    is charged to any cell is charged to every group (``spans``)."""

    def __post_init__(self) -> None:
        if self.cells > MAX_CELLS:
            raise ValueError(f"{self.cells} cells are more than {MAX_CELLS}")

    @cached_property
    def spans(self) -> frozenset[str]:
        """The units that may lie in several cells: groups, if there are several."""
        return frozenset(unit.name for unit in self.units if unit.group)

    @property
    def exchanges(self) -> bool:
        """A neighbouring data set may have a person of another cell in somebody's place."""
        return self.membership is Membership.PRIVATE and self.relation is Relation.REPLACE_ONE

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each dimension."""
        return tuple(len(values) for _, values in self.dimensions)

    @cached_property
    def whole(self) -> tuple[range, ...]:
        """The box of all cells."""
        return tuple(map(range, self.shape))

    @cached_property
    def cells(self) -> int:
        """The number of cells."""
        return prod(self.shape)

    @cached_property
    def _axes(self) -> dict[str, int]:
        return {name: axis for axis, (name, _) in enumerate(self.dimensions)}

    @cached_property
    def _positions(self) -> tuple[dict[str, int], ...]:
        return tuple({value: i for i, value in enumerate(values)} for _, values in self.dimensions)

    def axis(self, dimension: str) -> int:
        """Return the position of ``dimension``. Raises Invalid if there is none of that name."""
        if (axis := self._axes.get(dimension)) is not None:
            return axis
        known = ", ".join(self._axes) or "none"
        raise Invalid(
            "unknown-dimension",
            f"population {self.name} has no dimension {dimension!r}; it has: {known}",
        )

    def indices(self, axis: int, values: Iterable[str]) -> list[int]:
        """Return the positions of ``values`` on ``axis``. Raises Invalid for an unknown value."""
        positions = self._positions[axis]
        try:
            return [positions[value] for value in values]
        except KeyError as missing:
            name, known = self.dimensions[axis]
            raise Invalid(
                "unknown-group",
                f"dimension {name!r} has no value {missing.args[0]!r}; its values are: "
                + ", ".join(known[:20])
                + (" …" if len(known) > 20 else ""),
            ) from None

    def extended(self, dimension: str, values: tuple[str, ...], now: int) -> Population:
        """Return the population with ``values`` appended to ``dimension`` at stamp ``now``."""
        longer, axis = dict(self.dimensions), self.axis(dimension)
        longer[dimension] += values
        grown = (*self.grown, (axis, self.shape[axis], now))
        return replace(self, dimensions=tuple(longer.items()), grown=grown)

    def explained(self, fixed: Mapping[str, str]) -> Population:
        """Return the population with further reasons why dimensions never change."""
        return replace(self, fixed=tuple(sorted((dict(self.fixed) | dict(fixed)).items())))

    def called(self, unit: str | None = None) -> str:
        """Return one of a further unit in words, or of the first one: “one person”."""
        for further in self.units:
            if further.name == unit:
                return further.words
        first, _, rest = self.privacy_unit.partition(" ")
        article = rest and first.lower() in ("a", "an", "one", "each")
        return f"one {rest if article else self.privacy_unit}"

    def stating(self, units: Units) -> Population:
        """Return the population with more further units."""
        return replace(self, units=tuple(sorted((*self.units, *units))))

    def describe(self, cell: tuple[int, ...]) -> dict[str, str]:
        """Return the attribute values of a cell."""
        return {name: values[i] for (name, values), i in zip(self.dimensions, cell, strict=True)}


@dataclass(frozen=True)
class Former:
    """Whose a dataset was, and its labels, until the event at ``until`` changed that."""

    until: int
    owner: str | None
    labels: LabelPairs


@dataclass(frozen=True)
class TookOver:
    """Datasets with whose use the event at ``sequence`` charged one that they were made from."""

    sequence: int
    others: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """Data about a population, under a short id; ``namespace`` and ``name`` as in OpenLineage."""

    id: str
    namespace: str
    name: str
    owner: str | None = None
    parents: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Datasets of other populations that are the same data, as stated at the registration."""
    confirmed_by: str | None = None
    """Who confirmed that."""
    sources: tuple[str, ...] = ()
    """The datasets of this population that the parents are, sorted."""
    labels: LabelPairs = ()
    took_over: tuple[TookOver, ...] = ()
    """What it was charged with when it became known as an ancestor, the earliest first."""
    uncharged: tuple[str, ...] = ()
    """Datasets that were made from it, which is not charged with what they had used before that was
    known: versions before 0.3 registered it."""
    former: tuple[Former, ...] = ()
    """What it was before, the earliest first: decisions of that time are told by it."""

    def as_of(self, sequence: int) -> Dataset:
        """Return the dataset with the owner and the labels that the event at ``sequence`` met."""
        for before in self.former:
            if sequence <= before.until:
                return replace(self, owner=before.owner, labels=before.labels)
        return self

    @cached_property
    def data(self) -> Data:
        """Which data it is, however they are spelled."""
        return normal_form(self.namespace, self.name)

    @cached_property
    def naming(self) -> frozenset[str]:
        """Its parents as they were written, and the data that these mean: what names none of them
        is none of its parents.
        """
        return frozenset({*self.parents, *map(meant_by, self.parents)})
