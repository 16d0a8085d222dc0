"""Usage by client, kind and purpose: requests, charges and what was given back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec import Struct

from accountant.budget.reach import Reach
from accountant.privacy.units import NOTHING, SURE, Charge, Currency, amount, show
from accountant.reporting.counting import NO_POLICY, Basis, share
from accountant.reporting.packing import Pack, Unpack, Written
from accountant.reporting.schema import Usage

HEADINGS: Final = ("client", "kind", "purpose")
_ALL: Final = ""
"""The heading of the one row that adds up a dataset."""
MOST_NAMES: Final = 1_000
"""Names under one heading of one dataset; later names share one row."""
UNKNOWN: Final = ""
"""Stands for a purpose that was not stated, and for a kind that an event does not name."""

Parts = dict[str, Charge]
"""A charge by mechanism kind."""


class Names(NamedTuple):
    """The names that a charge is booked under, and its subject group as events hold it."""

    on: Reach
    client: str
    purpose: str = UNKNOWN
    subjects: Any = None
    policy: int = NO_POLICY
    """The event that adopted the policy it was booked under."""


class NamesKept(Struct, frozen=True, array_like=True):
    """Names, to write them down."""

    on: str
    client: str
    purpose: Written
    subjects: Any
    policy: int

    @classmethod
    def of(cls, at: Names, pack: Pack) -> NamesKept:
        """Return names as they are written."""
        return cls(at.on.text, at.client, pack.text(at.purpose), at.subjects, at.policy)

    def names(self, unpack: Unpack) -> Names:
        """Return the names."""
        purpose = unpack.text(self.purpose)
        return Names(Reach.read(self.on), self.client, purpose, self.subjects, self.policy)


class TallyKept(Struct, frozen=True, array_like=True):
    """A tally under a name, to write it down: counts, sums, and charges by policy."""

    dataset: str
    heading: str
    name: Written | None
    sums: tuple[int, int, int, int, int, int, int]
    booked: dict[int, int]
    back: dict[int, int]


@dataclass(slots=True)
class Tally:
    """The requests under one name, and the charges less those given back, in units: the sums that
    hold along every path, and those in all currencies by the policy that they were booked under.
    """

    requests: int = 0
    refused: int = 0
    epsilon: int = 0
    delta: int = 0
    unbounded: int = 0
    given_back: int = 0
    given_back_unbounded: int = 0
    booked: dict[int, Charge] = field(default_factory=dict)
    back: dict[int, Charge] = field(default_factory=dict)
    """What of it was given back."""

    def add(self, change: Charge, policy: int, *, settled: bool = False) -> None:
        """Add a charge under ``policy``, or the change that settling a grant makes."""
        before = self.booked.get(policy)  # the Renyi orders of charges differ over time
        self.booked[policy] = change if before is None else before + change
        if settled:
            self.back[policy] = self.back.get(policy, NOTHING) - change
        change = change.on(SURE)
        (epsilon, delta), (unbounded, _) = change.finite, change.infinite
        self.epsilon += epsilon
        self.delta += delta
        self.unbounded += unbounded
        if settled:
            self.given_back += max(0, -epsilon)
            self.given_back_unbounded += max(0, -unbounded)

    def absorb(self, other: Tally) -> None:
        """Add what was booked under another name; who was refused there was refused there only."""
        self.requests += other.requests
        self.epsilon += other.epsilon
        self.delta += other.delta
        self.unbounded += other.unbounded
        self.given_back += other.given_back
        self.given_back_unbounded += other.given_back_unbounded
        for mine, theirs in ((self.booked, other.booked), (self.back, other.back)):
            for policy, charge in theirs.items():
                mine[policy] = mine.get(policy, NOTHING) + charge

    @property
    def sums(self) -> tuple[int, int, int, int, int, int, int]:
        """The counts and sums, in the order of the fields."""
        back = self.given_back, self.given_back_unbounded
        return self.requests, self.refused, self.epsilon, self.delta, self.unbounded, *back

    def facts(self, name: str | None, basis: Basis, whole: int | None) -> Usage:
        """Return the row of the report, as ``basis`` counts; ``name`` is None for all names that
        have no row, ``whole`` the sum of all rows, None if it has no bound.
        """
        back = None if self.given_back_unbounded else self.given_back
        units, infinite = basis.sum(self.booked)
        return Usage(
            name=str(name or ""),
            other=name is None,
            requests=self.requests,
            refused=self.refused,
            epsilon=show(self.epsilon, Currency.EPSILON),
            delta=show(self.delta, Currency.DELTA),
            unbounded=self.unbounded,
            bounded=all(charge.is_bounded for charge in self.booked.values()),
            given_back=amount(back, Currency.EPSILON),
            counted=amount(None if infinite else units, basis.measure.currency),
            share=None if whole is None or infinite else share(units, whole),
            adds=basis.adds(self.booked),
            took_back=basis.adds(self.back),
        )


class Tallies:
    """The tallies of each dataset, by heading and name; later names share the name None."""

    def __init__(self) -> None:
        self._rows: defaultdict[tuple[str, str], dict[str | None, Tally]] = defaultdict(dict)

    def kept(self, pack: Pack) -> list[TallyKept]:
        """Return the tallies, to write them down."""

        def numbered(charges: dict[int, Charge]) -> dict[int, int]:
            return {policy: pack.charge(charge) for policy, charge in charges.items()}

        return [
            TallyKept(
                *place,
                None if name is None else pack.text(name),
                tally.sums,
                numbered(tally.booked),
                numbered(tally.back),
            )
            for place, rows in self._rows.items()
            for name, tally in rows.items()
        ]

    @classmethod
    def begun(cls, kept: Iterable[TallyKept], unpack: Unpack) -> Tallies:
        """Return what goes on from there."""

        def charges(numbers: dict[int, int]) -> dict[int, Charge]:
            return {policy: unpack.charge(number) for policy, number in numbers.items()}

        made = cls()
        for one in kept:
            name = None if one.name is None else unpack.text(one.name)
            tally = Tally(*one.sums, charges(one.booked), charges(one.back))
            made._rows[one.dataset, one.heading][name] = tally
        return made

    def usages(self, dataset: str, heading: str, basis: Basis) -> tuple[Usage, ...]:
        """Return the rows under one heading, most used first, the row of all other names last."""

        def place(row: tuple[str | None, Tally]) -> tuple[bool, int, int, int, str]:
            name, tally = row
            units, infinite = basis.sum(tally.booked)
            return name is None, -infinite, -units, -tally.epsilon, name or ""

        units, infinite = basis.sum(self._whole(dataset).booked)
        whole = None if infinite else units
        rows = sorted(self._rows[dataset, heading].items(), key=place)
        return tuple(tally.facts(name, basis, whole) for name, tally in rows)

    def total(self, dataset: str, basis: Basis) -> Usage:
        """Return the sum of the whole dataset."""
        units, infinite = basis.sum(self._whole(dataset).booked)
        return self._whole(dataset).facts("", basis, None if infinite else units)

    def _whole(self, dataset: str) -> Tally:
        return self._rows[dataset, _ALL].get("", Tally())

    def of(self, at: Names, charge: Charge, parts: Parts) -> Iterator[tuple[Tally, Charge]]:
        """Yield the tallies that ``charge`` counts in, whose ``parts`` are those of the kinds."""
        for dataset in at.on.charged:
            yield self._tally(dataset, _ALL, ""), charge
            yield self._tally(dataset, "client", at.client), charge
            yield self._tally(dataset, "purpose", at.purpose), charge
            for kind, part in parts.items():
                yield self._tally(dataset, "kind", kind), part

    def take_over(self, dataset: str, other: str) -> None:
        """Count on a dataset, too, what was booked on another that was made from it."""
        for heading in (_ALL, *HEADINGS):
            for name, tally in list(self._rows[other, heading].items()):
                self._tally(dataset, heading, name).absorb(tally)

    def _tally(self, dataset: str, heading: str, name: str | None) -> Tally:
        rows = self._rows[dataset, heading]
        if (found := rows.get(name)) is None:
            found = rows.setdefault(name if len(rows) < MOST_NAMES else None, Tally())
        return found
