"""Records about the units of a population: which are selected, who pays, and what a query reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np

from accountant.client.calls import Datasets
from accountant.queries import frame
from accountant.queries.arguments import Limits
from accountant.queries.exact import Numbers, clipped
from accountant.queries.frame import Column, Frame, Mask
from accountant.queries.query import Charged
from accountant.queries.same import key
from accountant.queries.unit import Unit

if TYPE_CHECKING:
    from accountant.client.sync import Client

ADD_OR_REMOVE: Final = "add_or_remove_one"
REPLACE: Final = "replace_one"
Missing = Literal["refuse", "drop"]


@dataclass(frozen=True, slots=True)
class Population:
    """What the service says of a population."""

    name: str
    unit: str
    relation: str
    private: bool
    """It is private who is in which cell."""
    dimensions: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Population:
        """Return the population that ``describe`` of the client has read."""
        return cls(
            described["population"],
            described["privacy_unit"],
            described["neighbouring"],
            described["membership"] == "private",
            {name: tuple(values) for name, values in described["dimensions"].items()},
        )


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records about the privacy units of a population, all of them or those of a group."""

    ledger: Client = field(repr=False)
    name: Datasets
    table: Frame = field(repr=False)
    people: Population = field(repr=False)
    limits: Mapping[str, Limits]
    unit_column: str | None
    records_per_unit: int | None
    missing: Missing
    kept: Mask | None = field(default=None, repr=False)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The dimensions by which it was selected, with their values: who is charged."""
    filters: tuple[str, ...] = ()
    """The columns by which it was selected that are no dimensions."""

    def where(self, **equal: Any) -> Self:
        """Return the records whose columns equal the given values, or one of several.

        Where a column is a registered dimension of the population, only the units with these values
        are charged: a dimension is public and never changes, so nobody else can be in the answer.
        Any other column may say something else of anybody, so everyone is charged; ``notes`` of the
        query says so.
        """
        found = self
        for name, values in equal.items():
            one = frame.listed(values)
            if not one:
                raise ValueError(f"no value of {name!r} is given: nobody is selected")
            by = found._of_dimension if name in self.people.dimensions else found._filtered
            found = by(name, one)
        return found

    def _of_dimension(self, name: str, values: tuple[Any, ...]) -> Self:
        known, wanted = self.people.dimensions[name], [str(value) for value in values]
        if strange := [value for value in wanted if value not in known]:
            raise ValueError(
                f"{strange[0]!r} is no value of the dimension {name!r}; its values are: "
                + ", ".join(known)
            )
        column = frame.as_text(self.table.column(name))
        if outside := frame.unknown(column, known):
            raise ValueError(
                f"column {name!r} is a dimension of the population, but holds values that are not "
                f"registered: {', '.join(map(repr, outside))}. Register them, or correct the table"
            )
        self._constant(name, column)
        both = [value for value in self.groups.get(name, wanted) if value in wanted]
        if not both:
            raise ValueError(f"nobody has both {self.groups[name]} and {wanted} as {name!r}")
        return replace(
            self,
            kept=self._and(frame.among(column, both)),
            groups={**self.groups, name: tuple(dict.fromkeys(both))},
        )

    def _constant(self, name: str, column: Column) -> None:
        """Raise ValueError if a unit has several values of a dimension."""
        if self.unit_column is None or self.records_per_unit is None:
            return
        units, values = frame.places(self.table.column(self.unit_column)), frame.places(column)
        pairs = np.unique(units * (values.max() + 1) + values)
        if len(pairs) > units.max() + 1:
            raise ValueError(
                f"a {self.people.unit} has rows with different values of {name!r}, which is "
                "registered as unchanging: such a table cannot be charged by it"
            )

    def _filtered(self, name: str, values: tuple[Any, ...]) -> Self:
        mask = self._and(frame.among(self.table.column(name), values))
        return replace(self, kept=mask, filters=(*self.filters, name))

    def _and(self, mask: Mask) -> Mask:
        return mask if self.kept is None else mask & self.kept

    # -- what a query reads ----------------------------------------------------------------------

    @property
    def narrow(self) -> bool:
        """A part of the population is charged, and who belongs to it is private."""
        return self.people.private and bool(self.groups)

    @property
    def stated(self) -> str | None:
        """The relation under which steps are stated, if that is not the population's. Under
        replace_one a unit may move out of a group whose members are private: such a group is
        charged for a unit that is there or not, and the service books it twice.
        """
        relation = self.people.relation
        if relation == REPLACE:
            return ADD_OR_REMOVE if self.narrow else None
        return None if relation == ADD_OR_REMOVE else ADD_OR_REMOVE

    @property
    def doubled(self) -> bool:
        """The service books what is stated here as twice as much: for a unit that leaves a group
        and one that enters it.
        """
        return self.people.relation == REPLACE and self.stated == ADD_OR_REMOVE

    def unit(self, *, always: bool = False) -> Unit:
        """Return what one privacy unit can change. ``always``: the query counts records whether or
        not their values are missing.
        """
        present = (self.stated or self.people.relation) != REPLACE
        one = self.records_per_unit is None and not self.filters
        fixed = not present and one and (always or self.missing == "refuse")
        return Unit(present, fixed, self.records_per_unit or 1)

    def check_somebody(self) -> None:
        """Raise ValueError where nobody is selected, and that is public: nothing can be learnt, and
        nobody would pay.
        """
        if self.unit(always=True).fixed and not self.rows():
            raise ValueError("the group has no records, which is public: there is nothing to ask")

    @property
    def charged(self) -> Charged:
        """Whose budget pays."""
        groups = {name: list(values) for name, values in self.groups.items()}
        return Charged(self.ledger, self.name, groups or None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a caller should know about who is charged."""
        found = [
            f"{name!r} is no registered dimension of {self.people.name}: the selection by it is "
            f"charged to {'the whole group' if self.groups else 'everyone'}, whatever it selects"
            for name in dict.fromkeys(self.filters)
        ]
        if self.doubled:
            found.append(
                f"who is in a group of {self.people.name} is private: one {self.people.unit} may "
                "leave it and another come, so half of the budget buys each"
            )
        return tuple(found)

    def bounds(self, column: str) -> Limits:
        """Return the bounds of a column. Raise ValueError if it has none."""
        self.table.column(column)
        if column not in self.limits:
            raise ValueError(
                f"column {column!r} has no bounds, so one {self.people.unit} could change the "
                f"answer without limit: say bounds={{{column!r}: (least, largest)}}, from public "
                "knowledge and never from the data"
            )
        return self.limits[column]

    def raw(self, *names: str) -> list[Column]:
        """Return columns of the selected records, read-only: functions of the caller's get them.
        Raise ValueError where values are missing, or leave such records out.
        """
        columns = [self.table.column(name) for name in names]
        if self.kept is not None:
            columns = [column[self.kept] for column in columns]
        gone = [frame.missing(column) for column in columns]
        if self.missing == "drop":
            there = ~np.logical_or.reduce(gone)
            return [frame.locked(column[there]) for column in columns]
        for name, lost in zip(names, gone, strict=True):
            if count := int(lost.sum()):
                raise ValueError(
                    f"{count} of {len(lost)} values of {name!r} are missing: fill them in from "
                    'public knowledge, or say missing="drop" to leave these records out'
                )
        return [frame.locked(column) for column in columns]

    def numbers(self, *names: str) -> list[Numbers]:
        """Return columns of numbers of the selected records, within their bounds."""
        limits = [self.bounds(name) for name in names]
        columns = zip(names, self.raw(*names), limits, strict=True)
        return [clipped(frame.numbers(name, column), *pair) for name, column, pair in columns]

    def whole(self, column: str) -> bool:
        """Return whether a column is one of whole numbers, by its type. That is a matter of the
        schema, but for columns that may lack values: pandas makes real numbers of whole ones where
        one is missing, so there it is False whatever the type is.
        """
        return self.missing == "refuse" and self.table.column(column).dtype.kind in "biu"

    def rows(self) -> int:
        """Return how many records are selected. It is private unless ``unit().fixed``."""
        return self.table.rows if self.kept is None else int(self.kept.sum())

    def categories(self, column: str, given: Sequence[Any] | None) -> tuple[Any, ...]:
        """Return the categories of a column: those given, or the values of the dimension that it
        is. Raise ValueError if there are none: what the data hold is private.
        """
        if given is None and column in self.people.dimensions:
            return self.people.dimensions[column]
        if given is None:
            raise ValueError(
                f"the categories of {column!r} are not known: list them, from public knowledge. "
                "They are never learnt from the data, which would show that somebody has one"
            )
        found = frame.listed(given)
        if not found or len(set(map(key, found))) != len(found):
            raise ValueError("categories are at least one, and all different")
        return found
