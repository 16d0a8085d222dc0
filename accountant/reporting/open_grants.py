"""The open grants of a ledger: by name, by dataset, and the sum of what they were granted.

There may be a hundred thousand; a page reads a few, and how many there are and what they come to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

from accountant.budget.reach import Reach
from accountant.budget.state import ALL, Grant
from accountant.privacy.units import NOTHING, Axis, Charge
from accountant.reporting.tallies import Names, Parts


class OpenGrant(NamedTuple):
    """An open grant, the names that it is booked under, and its charge by kind."""

    grant: Grant
    at: Names
    parts: Parts


class _On:
    """The open grants that are charged to a dataset, and their charges by policy. The sums are kept
    by axis too, on which what is taken away again is exact.
    """

    __slots__ = ("grants", "sums")

    def __init__(self) -> None:
        self.grants: dict[str, OpenGrant] = {}
        self.sums: dict[tuple[int, Axis], Charge] = {}

    def add(self, one: OpenGrant) -> None:
        self.grants[one.grant.id] = one
        key, total = (one.at.policy, one.grant.total.axis), one.grant.total
        self.sums[key] = self.sums.get(key, NOTHING) + total

    def remove(self, one: OpenGrant) -> None:
        del self.grants[one.grant.id]
        key, total = (one.at.policy, one.grant.total.axis), one.grant.total
        left = self.sums.pop(key, NOTHING) - total
        if any(left.finite) or any(left.infinite):
            self.sums[key] = left


class OpenGrants:
    """Open grants in the order in which they were opened."""

    def __init__(self) -> None:
        self._on: defaultdict[str, _On] = defaultdict(_On)

    def add(self, one: OpenGrant) -> None:
        """Add a grant that was opened after all others."""
        for dataset in (ALL, *one.at.on.charged):
            self._on[dataset].add(one)

    def pop(self, name: str) -> OpenGrant:
        """Remove a grant and return it. Raise KeyError."""
        one = self._on[ALL].grants[name]
        for dataset in (ALL, *one.at.on.charged):
            self._on[dataset].remove(one)
        return one

    def charge(self, dataset: str, other: str) -> None:
        """Charge to a dataset, too, those that are charged to another that was made from it."""
        for one in list(self._on[other].grants.values()):
            on = one.at.on
            if dataset in on.charged:
                continue
            both = Reach(on.named, tuple(sorted((*on.charged, dataset))))
            more = one._replace(at=one.at._replace(on=both))
            self._on[dataset].add(more)
            for name in (ALL, *on.charged):  # each in its place
                self._on[name].grants[one.grant.id] = more

    def clear(self) -> None:
        """Remove all."""
        self._on.clear()

    def copy(self) -> OpenGrants:
        """Return others that go on from these."""
        found = OpenGrants()
        for one in self:
            found.add(one)
        return found

    def __len__(self) -> int:
        return self.number(ALL)

    def __iter__(self) -> Iterator[OpenGrant]:
        return iter(self._on[ALL].grants.values())

    def number(self, dataset: str) -> int:
        """Return how many are charged to a dataset, or to any (ALL)."""
        return len(self._on[dataset].grants) if dataset in self._on else 0

    def booked(self, dataset: str) -> dict[int, Charge]:
        """Return the sum of their charges, by the policy that they were granted under."""
        found = dict[int, Charge]()
        for (policy, _), charge in (self._on[dataset].sums if dataset in self._on else {}).items():
            found[policy] = found.get(policy, NOTHING) + charge
        return found

    def soonest(self, dataset: str, most: int) -> list[OpenGrant]:
        """Return at most ``most`` of them, those first that expire first."""
        on = self._on[dataset].grants.values() if dataset in self._on else ()
        return nsmallest(most, on, key=lambda one: (one.grant.expires, one.grant.sequence))

    def oldest(self) -> Grant | None:
        """Return the grant that has been open for longest; None if there is none."""
        first = next(iter(self), None)
        return None if first is None else first.grant
