"""Accounts: what a rule, or the lifetime, has used of one scope in one epoch.

An account holds what was *used*, spent or reserved. What of it is only reserved is the sum of the
bookings of the open grants. Its axis names the currencies that it keeps: a rule's account those
that its gates need, a lifetime only what holds along every path.

**Everyone, and those who come later.** A charge to everyone reaches those who were there, and those
who came while it could still run. ``leave`` brings that about before cells are appended whose
members are attested to be new, that is, in no data before. Claim: what such a cell holds from then
on bounds, in every currency, what its members lose.

*Proof.* Let x be a member, and let two data sets be neighbours that differ in x: in that x is there
(add or remove one), counts as zero (zero out), or is another member of the same cell (replace one,
public membership). What ran before x was there ran on equal data, so the answers have the same
distribution on both: a loss of zero, whatever was asked, and however it was chosen. When the cell
is appended may follow from these answers, as any choice of an adaptive sequence may. What runs on
data with x is a sequence that begins then, and a filter that begins at zero bounds its loss given
the answers before (privacy/filters): Renyi divergence, epsilons and deltas of both parts together
are those of the second. It remains that the cell holds everything of the second part. Whatever has
its end on record ran before: a commit says what was run, a record that it ran, a release that
nothing did, and the end of a session that it answers no more. Beyond these there is

* what open grants hold: it stays with everyone, and is settled or given back there;
* a grant on everyone that has expired: what became of it is unknown, and a command runs on after
  its grant has expired. ``lasting`` keeps it for all cells to come. (One on a group is charged on
  the cells that it reached by then. Whoever attests says that none of these reads the new data.)
* what a recovery lost: perhaps these very cells, appended and charged. Everything that everyone
  has after an account was lifted is ``lasting``, the floor too;
* a correction of the price of what ran (a revaluation): it reaches those who are there when it is
  booked, who are more than those of then; of an expired grant it is ``lasting``.

Not under replace one with private membership: there x may be exchanged for a person who was in an
old cell, so that data differed before. A bound for replacing one says nothing of a person who is
there or not, and the proof that two narrow charges are no more than one doubled counts everyone's
part once, beside the cells (population/population.py). There ``leave`` is not called: new cells
begin with all that everyone was charged, which is no less than what they had before.

Members who are not attested to be new may have been anywhere: their cells inherit the largest sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from operator import add, sub
from typing import Any

import numpy as np
from msgspec import Struct

from accountant.budget.accounts.classes import Space
from accountant.budget.accounts.growing import Growth
from accountant.budget.accounts.sums import Sums
from accountant.budget.population.selection import Selection
from accountant.privacy.units import LARGEST, SURE, Axis, Charge, Currency


class Mark(Struct, frozen=True, gc=False):
    """The state of an account before a booking, for ``go_back``."""

    flat: bool
    bound: list[int]
    held: list[int]
    lasting: tuple[int, ...]
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
    lasting: tuple[int, ...] = field(default=(), init=False)
    """The part of everyone's sums, finite then infinite, that stays for all cells to come: no grant
    holds it, and it may still run. Empty as long as there is none."""

    @classmethod
    def empty(cls, space: Space, axis: Axis = SURE) -> Account:
        """Return an account with nothing in it."""
        n = len(axis)
        return cls(axis, Sums(n, space), [0] * n, [0] * n)

    def book(self, selection: Selection, charge: Charge, *, reserve: bool, now: int) -> Charge:
        """Add ``charge`` to the selected cells at stamp ``now``. Return what was booked: the charge
        in the currencies of this account, infinite where a sum could pass 2**62.
        """
        booked = charge.on(self.axis)
        bound = list(map(add, self.bound, booked.finite))
        if max(bound) > LARGEST:
            booked = self._bounded(booked)
            bound = list(map(add, self.bound, booked.finite))
        self.bound = bound
        if reserve:
            self.held = list(map(add, self.held, booked.finite))
        self.used.add(selection, booked.finite, booked.infinite)
        if selection.lasting:
            self._last(booked)
        return booked

    def _last(self, charge: Charge, sign: int = 1) -> None:
        """Let a charge to everyone, which is in the sums, last for cells to come; or no longer."""
        before = self.lasting or (0,) * (2 * len(self.axis))
        both = zip(before, (*charge.finite, *charge.infinite), strict=True)
        self.lasting = _lasting(a + sign * b for a, b in both)

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
            if selection.lasting:
                self._last(booked)
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
        if selection.lasting:
            self._last(final)
        return final

    @property
    def says_held(self) -> bool:
        """Whether ``held`` says what open grants hold in each cell: all of it is on everyone, and
        nothing of it is without a bound.
        """
        return self.used.flat and not any(self.used.everyone_infinite)

    def reserved(self) -> Sums | None:
        """Return what open grants hold, of an account that ``says_held``; None if it is nothing."""
        if not any(self.held):
            return None
        sums = Sums(len(self.axis), self.used.space)
        sums.everyone = list(self.held)
        return sums

    def mark(self, now: int) -> Mark:
        """Return what ``go_back`` needs to restore the account as it is at stamp ``now``."""
        return Mark(self.used.flat, self.bound, self.held, self.lasting)

    def go_back(self, mark: Mark, selection: Selection, added: Charge) -> None:
        """Undo the last booking or settlement, which added ``added`` to the selected cells."""
        self.bound, self.held, self.lasting = mark.bound, mark.held, mark.lasting
        if added.axis:
            self.used.add(selection, added.finite, added.infinite, -1)
        if mark.flat:  # the cells, if there are any now, were made for what is taken back
            self.used.flatten()

    def at(self, now: int) -> Account:
        """Return the account as it counts at stamp ``now``. Readers must not change it."""
        return self

    def rises(self, after: int) -> int | None:
        """Return the next stamp beyond ``after`` from which a cell holds less because time has
        passed; None if there is none.
        """
        return None

    def widen(self, selection: Selection, booked: Charge) -> None:
        """Extend a reservation of ``booked`` to the cells of ``selection``, which did not inherit
        it.
        """
        self.used.add(selection, booked.finite, booked.infinite)

    def leave(self, held: Sums | None, now: int) -> None:
        """Leave what everyone was charged to the cells that there are, before others are appended;
        but not what may still run: what open grants hold on everyone (``held``), and what lasts.
        """
        kept = self.lasting or (0,) * (2 * len(self.axis))
        if held is not None:
            kept = tuple(_plus(kept, held.everyone + held.everyone_infinite))
        n = len(self.axis)
        self.used.to_cells(kept[:n], kept[n:])

    def extend(self, axis: int, by: int, inherit: bool, growth: Growth | None = None) -> None:
        """Append cells on an axis. What they inherit counts as spent, unless the grant that holds
        it covers them too; so ``bound`` keeps what is given back elsewhere.
        """
        self.used.extend(axis, by, inherit, growth)
        if inherit:
            self.bound = _plus(self.bound, self.held)

    def lift(self, least: Charge, now: int) -> None:
        """Raise the sums of every cell to at least ``least``, which is on the axis of this account.
        No grant may hold anything here: a floor would sink with what it gives back. What everyone
        has then lasts.
        """
        self.used.lift(least.finite, least.infinite)
        self.bound = [max(a, b) for a, b in zip(self.bound, least.finite, strict=True)]
        self.lasting = _lasting(self.used.everyone + self.used.everyone_infinite)

    def release(self, selection: Selection, booked: Charge, now: int) -> None:
        """Count what a grant holds here as spent from ``now`` on: it will not be given back."""
        self.held = _minus(self.held, booked.finite)

    def copy(self) -> Account:
        """Return an independent account with the same sums."""
        return self._like(Account(self.axis, self.used.copy(), self.bound, self.held))

    def frozen(self, *, whole: bool = False) -> Account:
        """Return an account that stays as this one counts now; ``whole``: at later stamps too."""
        return self._like(Account(self.axis, self.used.frozen(), self.bound, self.held))

    def _like(self, twin: Account) -> Account:
        twin.lasting = self.lasting
        return twin

    def gain(self, other: Account, now: int) -> None:
        """Add what ``other``, which keeps the same currencies, has used at stamp ``now``, as spent.
        What could pass 2**62 becomes infinite. What everyone has there lasts here, as open grants
        may hold it.
        """
        self._absorb(other, other.used.everyone + other.used.everyone_infinite, len(self.axis))

    def absorb(self, other: Account, held: Sums | None, rows: int = len(SURE)) -> None:
        """Add what ``other`` has used as spent, in the first ``rows`` currencies: those that every
        account keeps. What could pass 2**62 becomes infinite. What open grants hold there on
        everyone (``held``) will be settled there only: here it lasts.
        """
        more = list(other.lasting) or [0] * 2 * len(other.axis)
        if held is not None:
            more = _plus(more, held.everyone + held.everyone_infinite)
        self._absorb(other, more, rows)

    def charge_with(self, other: Account, held: Sums | None, now: int) -> None:
        """Add what ``other``, which keeps the same currencies, has used at stamp ``now``, as spent;
        what open grants hold there on everyone (``held``) as ``absorb``.
        """
        self.absorb(other, held, len(self.axis))

    def _absorb(self, other: Account, lasting: Sequence[int], rows: int) -> None:
        """Add the first ``rows`` currencies of ``other``, of which so much is ``lasting``."""
        total = _plus(self.bound[:rows], other.bound[:rows])
        over = np.array([t > LARGEST for t in total])
        kept = [b if o else t for t, b, o in zip(total, self.bound, over, strict=False)]
        self.bound = kept + self.bound[rows:]
        self.used.absorb(other.used, over)
        n, m = len(self.axis), len(other.axis)
        mine = list(self.lasting) or [0] * 2 * n
        for i, each in enumerate(over.tolist()):
            mine[i] += 0 if each else lasting[i]
            mine[n + i] += lasting[m + i] + each
        self.lasting = _lasting(mine)

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
        n, lasting = len(self.axis), list(self.lasting) or [0] * 2 * len(self.axis)
        one = lasting[source]
        lasting[i] = 0 if over or per_epsilon is None else int(-(-one * per_epsilon // 1))
        closed = per_epsilon is None and not over and one > 0
        lasting[n + i] = lasting[n + source] + closed + over
        self.lasting = _lasting(lasting)


def _lasting(sums: Iterable[int]) -> tuple[int, ...]:
    """Return the sums, none at all if nothing is in them."""
    found = tuple(sums)
    return found if any(found) else ()


def _plus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return list(map(add, left, right))


def _minus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return list(map(sub, left, right))


def _zip(
    left: Sequence[int], right: Sequence[int], keep: Sequence[bool]
) -> zip[tuple[int, int, bool]]:
    return zip(left, right, keep, strict=True)
