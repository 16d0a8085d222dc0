"""Accounts: what a rule, or the lifetime, has used of one scope in one epoch.

An account holds what was *used*, spent or reserved. What of it is only reserved is the sum of the
bookings of the open grants. Its axis names the currencies that it keeps: a rule's account those
that its gates need, a lifetime only what holds along every path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from operator import add, sub
from typing import Any, NamedTuple

import numpy as np

from accountant.budget.accounts.sums import Sums
from accountant.budget.population.selection import Selection
from accountant.privacy.units import LARGEST, SURE, Axis, Charge, Currency


class Mark(NamedTuple):
    """The state of an account before a booking, for ``go_back``."""

    flat: bool
    bound: list[int]
    held: list[int]
    window: Any = None
    """What only an account of a window remembers (window.py)."""


@dataclass(slots=True)
class Account:
    """One accumulator. ``axis`` begins with epsilon and delta."""

    axis: Axis
    used: Sums
    bound: list[int]
    """All that was booked and not given back, per currency, whatever the cells: no cell holds
    more, so that nothing can wrap. Never changed in place."""
    held: list[int]
    """The part of ``bound`` that may still be given back. Never changed in place."""
    holders: int = field(default=1, init=False, compare=False)
    """How many keys hold it (accounts.py)."""

    @classmethod
    def empty(cls, shape: tuple[int, ...], axis: Axis = SURE) -> Account:
        """Return an account with nothing in it."""
        n = len(axis)
        return cls(axis, Sums(n, shape), [0] * n, [0] * n)

    def book(self, selection: Selection, charge: Charge, *, reserve: bool, now: int) -> Charge:
        """Add ``charge`` to the selected cells at stamp ``now``. Return what was booked: the charge
        in the currencies of this account, infinite where a sum could pass 2**62.
        """
        booked = charge if charge.axis is self.axis else charge.on(self.axis)
        bound = list(map(add, self.bound, booked.finite))
        if max(bound) > LARGEST:
            booked = self._bounded(booked)
            bound = list(map(add, self.bound, booked.finite))
        self.bound = bound
        if reserve:
            self.held = list(map(add, self.held, booked.finite))
        self.used.add(selection, booked.finite, booked.infinite)
        return booked

    def _bounded(self, charge: Charge) -> Charge:
        over = [a + b > LARGEST for a, b in zip(self.bound, charge.finite, strict=True)]
        return Charge(
            self.axis,
            tuple(0 if o else a for a, o in zip(charge.finite, over, strict=True)),
            tuple(i + o for i, o in zip(charge.infinite, over, strict=True)),
        )

    def settle(self, selection: Selection, booked: Charge, final: Charge, now: int) -> Charge:
        """Turn a reservation of ``booked`` into a spending of ``final`` at stamp ``now``, giving
        back the rest. Returns what is spent.

        Where a finite sum takes the place of an infinite charge it must fit like any new one;
        otherwise the currency keeps what was booked.
        """
        self.held = list(map(sub, self.held, booked.finite))
        if final.axis is not self.axis:
            final = final.on(self.axis)
        if final is booked or final == booked:
            return booked
        more = _minus(final.finite, booked.finite)
        keep = [m > 0 and b + m > LARGEST for m, b in zip(more, self.bound, strict=True)]
        if any(keep):
            final = Charge(
                self.axis,
                tuple(b if k else f for b, f, k in _zip(booked.finite, final.finite, keep)),
                tuple(b if k else f for b, f, k in _zip(booked.infinite, final.infinite, keep)),
            )
            more = _minus(final.finite, booked.finite)
        self.bound = _plus(self.bound, more)
        self.used.add(selection, more, _minus(final.infinite, booked.infinite))
        return final

    def mark(self, now: int) -> Mark:
        """Return what ``go_back`` needs to restore the account as it is at stamp ``now``."""
        return Mark(self.used.flat, self.bound, self.held)

    def go_back(self, mark: Mark, selection: Selection, added: Charge) -> None:
        """Undo the last booking or settlement, which added ``added`` to the selected cells."""
        self.bound, self.held = mark.bound, mark.held
        if added.axis:
            self.used.add(selection, added.finite, added.infinite, -1)
        if mark.flat:  # the cells, if there are any now, were made for what is taken back
            self.used.flatten()

    def at(self, now: int) -> Account:
        """Return the account as it counts at stamp ``now``. Readers must not change it."""
        return self

    def widen(self, selection: Selection, booked: Charge) -> None:
        """Extend a reservation of ``booked`` to the cells of ``selection``, which did not inherit
        it.
        """
        self.used.add(selection, booked.finite, booked.infinite)

    def extend(self, axis: int, by: int, inherit: bool) -> None:
        """Append cells on an axis. What they inherit counts as spent, unless the grant that holds
        it covers them too; so ``bound`` keeps what is given back elsewhere.
        """
        self.used.extend(axis, by, inherit)
        if inherit:
            self.bound = _plus(self.bound, self.held)

    def lift(self, least: Charge, now: int) -> None:
        """Raise the sums of every cell to at least ``least``, which is on the axis of this account.
        No grant may hold anything here: a floor would sink with what it gives back.
        """
        self.used.lift(least.finite, least.infinite)
        self.bound = [max(a, b) for a, b in zip(self.bound, least.finite, strict=True)]

    def release(self, selection: Selection, booked: Charge, now: int) -> None:
        """Count what a grant holds here as spent from ``now`` on: it will not be given back."""
        self.held = _minus(self.held, booked.finite)

    def copy(self) -> Account:
        """Return an independent account with the same sums."""
        return Account(self.axis, self.used.copy(), self.bound, self.held)

    def frozen(self, *, whole: bool = False) -> Account:
        """Return an account that stays as this one counts now; ``whole``: at later stamps too."""
        return Account(self.axis, self.used.frozen(), self.bound, self.held)

    def absorb(self, other: Account) -> None:
        """Add what ``other`` has used as spent, in the currencies that every account keeps. What
        could pass 2**62 becomes infinite.
        """
        total = _plus(self.bound[: len(SURE)], other.bound[: len(SURE)])
        over = np.array([t > LARGEST for t in total])
        kept = [b if o else t for t, b, o in zip(total, self.bound, over, strict=False)]
        self.bound = kept + self.bound[len(SURE) :]
        self.used.absorb(other.used, over)

    def restate(self, currency: Currency, per_epsilon: Fraction | None) -> None:
        """Replace the sums in ``currency`` by ``per_epsilon`` units, rounded up, for each unit of
        epsilon (without it, by infinity wherever there is any); what could pass 2**62 becomes
        infinite.
        """
        i, source = self.axis.index(currency), self.axis.index(Currency.EPSILON)
        # Everyone's part and the cells' part are rounded apart.
        bound = 0 if per_epsilon is None else -(-self.bound[source] * per_epsilon // 1) + 2
        over = bound > LARGEST
        self.bound = [*self.bound[:i], 0 if over else int(bound), *self.bound[i + 1 :]]
        self.used.restate(i, source, Fraction(0) if over else per_epsilon, over)


def _plus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return list(map(add, left, right))


def _minus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return list(map(sub, left, right))


def _zip(
    left: Sequence[int], right: Sequence[int], keep: Sequence[bool]
) -> zip[tuple[int, int, bool]]:
    return zip(left, right, keep, strict=True)
