"""Accounts of a window: what was spent stops counting when the window has passed it.

What a grant holds counts for as long as it is open; what was spent counts from the event that
spent it. Each read moves an account to its stamp, forward or back. So what has passed is taken off
once, however many reads there are, and an event is still decided by its own stamp alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from accountant.budget.accounts.account import Account, Mark
from accountant.budget.accounts.part import (
    Integers,
)
from accountant.budget.accounts.spans import (
    Window,
)
from accountant.budget.accounts.sums import (
    Sums,
)
from accountant.budget.population.selection import EVERYONE, LASTING, Selection, side_of
from accountant.privacy.units import LARGEST, Axis, Charge


class Passing(NamedTuple):
    """What stops counting at one stamp: charges by the cells that they were spent on."""

    ends: int
    charges: dict[Selection, Charge]


@dataclass(slots=True)
class WindowAccount(Account):
    """An account whose spending passes. Its sums are without what has ``passed``."""

    window: Window
    passing: deque[Passing] = field(default_factory=deque)
    """What is spent and counts, in the order in which it ends."""
    passed: list[Passing] = field(default_factory=list, compare=False, repr=False)
    """What has ended since the last change, in that order: looked at earlier it counts again."""
    _entered: list[tuple[Selection, Charge | None]] = field(
        default_factory=list, compare=False, repr=False
    )
    """Where something was entered since ``mark``, and what stood there before."""

    def at(self, now: int) -> Account:
        """Advance the sums to stamp ``now``, or back to it, and return the account."""
        passing, passed = self.passing, self.passed
        gone, back = [], []
        while passing and passing[0].ends <= now:
            gone.append(passing.popleft())
        while passed and passed[-1].ends > now:
            back.append(passed.pop())
        if gone:
            passed += gone
            self._count(gone, -1)
        if back:
            passing.extendleft(back)
            self._count(back, 1)
        return self

    @property
    def stamps(self) -> int:
        """How many stamps there are at which something passes, or has passed since a change."""
        return len(self.passing) + len(self.passed)

    def rises(self, after: int) -> int | None:
        """Return the next stamp beyond ``after`` at which something has passed."""
        soonest = None
        for part in reversed(self.passed):
            if part.ends <= after:
                break
            soonest = part.ends
        if soonest is not None:
            return soonest
        return next((part.ends for part in self.passing if part.ends > after), None)

    def _count(self, parts: Iterable[Passing], sign: int) -> None:
        """Add parts to the sums, or subtract them; parts on the same cells in one step."""
        on: dict[Selection, list[Charge]] = {}
        for part in parts:
            for cells, charge in part.charges.items():
                on.setdefault(cells, []).append(charge)
        for cells, charges in on.items():
            finite = _total(charge.finite for charge in charges)
            infinite = _total(charge.infinite for charge in charges)
            self.used.add(cells, finite, infinite, sign)
            if cells.lasting:
                self._last(Charge(self.axis, tuple(finite), tuple(infinite)), sign)
            raised = _total(_raised(charge.finite) for charge in charges)
            self.bound = [a + sign * b for a, b in zip(self.bound, raised, strict=True)]

    def entries(self) -> Iterator[tuple[int, Selection, Charge]]:
        """Yield the spending that counts, in order: when it ends, its cells, the charge."""
        for part in self.passing:
            for cells, charge in part.charges.items():
                yield part.ends, cells, charge

    def entered(self, entries: Iterable[tuple[int, Selection, Charge]]) -> None:
        """Load what ``entries`` yielded into an account whose sums include it already."""
        for ends, cells, charge in entries:
            if not self.passing or self.passing[-1].ends != ends:
                self.passing.append(Passing(ends, {}))
            self.passing[-1].charges[cells] = charge

    def book(self, selection: Selection, charge: Charge, *, reserve: bool, now: int) -> Charge:
        """Book a charge. Unless it is only reserved it counts from ``now``."""
        self._change(now)
        booked = Account.book(self, selection, charge, reserve=reserve, now=now)
        if not reserve:
            self._enter(selection, booked, now)
        return booked

    def settle(self, selection: Selection, booked: Charge, final: Charge, now: int) -> Charge:
        """Settle a reservation. What is spent counts from ``now``."""
        self._change(now)
        spent = Account.settle(self, selection, booked, final, now)
        if any(spent.finite) or any(spent.infinite):
            self._enter(selection, spent, now)
        return spent

    def release(self, selection: Selection, booked: Charge, now: int) -> None:
        """Count what a grant holds here as spent from ``now`` on."""
        self._change(now)
        Account.release(self, selection, booked, now)
        self._enter(selection, booked, now)

    def leave(self, held: Sums | None, now: int) -> None:
        """Leave what everyone was charged to the cells that there are: when it has passed it is
        taken off these, and not off cells to come.
        """
        self._change(now)
        Account.leave(self, held, now)
        there = tuple(range(size) for size in self.used.shape)
        self._turn(EVERYONE, Selection(everyone=False, boxes=(there,)))

    def _turn(self, before: Selection, after: Selection) -> None:
        """Let what is entered for ``before`` be for ``after``, where the sums have it already.
        Copies share the entries: they stay as they are.
        """
        nothing = Charge().on(self.axis)
        for place, part in enumerate(self.passing):
            if (charge := part.charges.get(before)) is not None:
                others = {cells: c for cells, c in part.charges.items() if cells != before}
                known = others.get(after, nothing)
                both = others[after] = known + charge
                self.passing[place] = part._replace(charges=others)
                counted = zip(
                    self.bound, *(_raised(c.finite) for c in (both, known, charge)), strict=True
                )
                self.bound = [b + now - was - more for b, now, was, more in counted]

    def inherit(self, new: Selection, held: Sums | None, now: int) -> None:
        """Count what the appended cells of ``new`` have inherited as spent at ``now``, except what
        open grants hold there: these will spend it or give it back.
        """
        part = self.used.beyond(held, new)
        # What a floor put for everyone is taken off where more was used; new cells go without that.
        for selection, short in list(_charges(self.axis, self.used, np.maximum(-part, 0))):
            self.used.add(selection, short.finite, short.infinite)
        for selection, more in list(_charges(self.axis, self.used, np.maximum(part, 0))):
            self._spend(selection, more, now)

    def lift(self, least: Charge, now: int) -> None:
        """Raise every cell to at least ``least``; the difference counts as spent at ``now``."""
        self._change(now)
        before, bound = self.used.copy(), self.bound
        Account.lift(self, least, now)
        self.bound = bound
        self._turn(EVERYONE, LASTING)
        for selection, more in _more(self.axis, before, self.used):
            self._spend(selection, more, now)

    def gain(self, other: Account, now: int) -> None:
        """Add what counts in ``other`` at ``now``, as spent at ``now``; what everyone has lasts."""
        self._change(now)
        nothing = Sums(other.used.rows, other.used.space)
        for cells, gained in _more(self.axis, nothing, other.at(now).used):
            selection, more = cells.to_last(), gained
            if any(a + b > LARGEST for a, b in zip(self.bound, gained.finite, strict=True)):
                more = self._bounded(gained)
            self.used.add(selection, more.finite, more.infinite)
            if selection.lasting:
                self._last(more)
            self._spend(selection, more, now)

    def charge_with(self, other: Account, held: Sums | None, now: int) -> None:
        """Add what counts in ``other`` at ``now``, as ``gain``."""
        self.gain(other, now)

    def mark(self, now: int) -> Mark:
        """Return what ``go_back`` needs to restore the account as it is at stamp ``now``."""
        self.at(now)
        passed, self.passed, self._entered = self.passed, [], []
        window = now, passed, self._entered
        return Mark(self.used.flat, self.bound, self.held, self.lasting, window)

    def go_back(self, mark: Mark, selection: Selection, added: Charge) -> None:
        """Undo the last booking or settlement, with the entries that it made."""
        now, passed, entered = mark.window
        self.at(now)
        for cells, before in reversed(entered):
            self._withdraw(cells, before)
        Account.go_back(self, mark, selection, added)
        self.passed = passed

    def _change(self, now: int) -> None:
        """Advance to ``now`` for good, before a change."""
        self.at(now)
        self.passed = []

    def _spend(self, selection: Selection, charge: Charge, now: int) -> None:
        """Count what was added to the cells without a booking as spent at ``now``."""
        self.bound = [a + b for a, b in zip(self.bound, charge.finite, strict=True)]
        self._enter(selection, charge, now)

    def _enter(self, selection: Selection, charge: Charge, now: int) -> None:
        """Enter a charge, already in the sums and in ``bound``, as spent at ``now``."""
        ends = self.window.ends(now)
        if not self.passing or self.passing[-1].ends != ends:
            self.passing.append(Passing(ends, {}))
        charges = self.passing[-1].charges
        before = charges.get(selection)
        if before is None:
            selection = selection.bare()  # it is kept for as long as the window
        after = charges[selection] = charge if before is None else before + charge
        self._entered.append((selection, before))
        if min(after.finite) < 0 or (before is not None and min(before.finite) < 0):
            # Once all else has passed, no cell holds more than what was entered above zero.
            was = (0,) * len(self.axis) if before is None else _raised(before.finite)
            columns = zip(self.bound, _raised(after.finite), was, charge.finite, strict=True)
            self.bound = [a + b - c - d for a, b, c, d in columns]

    def _withdraw(self, selection: Selection, before: Charge | None) -> None:
        charges = self.passing[-1].charges
        if before is not None:
            charges[selection] = before
            return
        del charges[selection]
        if not charges:
            self.passing.pop()

    def copy(self) -> Account:
        """Return an independent account with the same sums."""
        return self._twin(self.used.copy())

    def frozen(self, *, whole: bool = False) -> Account:
        """Return an account that stays as this one counts now. Only ``whole`` it has what is to
        pass, which may be as long as the ledger.
        """
        return self._twin(self.used.frozen()) if whole else Account.frozen(self)

    def _twin(self, used: Sums) -> Account:
        passing, passed = deque(self.passing), list(self.passed)
        for parts in (passing, passed):
            if parts:  # only the last one may still grow
                parts[-1] = Passing(parts[-1].ends, dict(parts[-1].charges))
        held = self.axis, used, self.bound, self.held
        return self._like(WindowAccount(*held, self.window, passing, passed))


def _total(columns: Iterable[Sequence[int]]) -> list[int]:
    return list(map(sum, zip(*columns, strict=True)))


def _raised(amounts: Sequence[int]) -> Sequence[int]:
    """Return the amounts, negative ones as zero. A negative charge only takes off what another one,
    which ends at the same stamp, has added for everyone.
    """
    return amounts if min(amounts) >= 0 else [max(0, amount) for amount in amounts]


def _more(axis: Axis, before: Sums, after: Sums) -> Iterator[tuple[Selection, Charge]]:
    """Yield what ``after``, which was lifted, holds more than ``before``, by group."""
    everyone = [b - a for a, b in zip(before.everyone, after.everyone, strict=True)]
    infinite = [
        b - a for a, b in zip(before.everyone_infinite, after.everyone_infinite, strict=True)
    ]
    if any(everyone) or any(infinite):
        yield LASTING, Charge(axis, tuple(everyone), tuple(infinite))
    if not (before.flat and after.flat):
        yield from _charges(axis, after, after.beyond(before))


def _charges(axis: Axis, sums: Sums, cells: Integers) -> Iterator[tuple[Selection, Charge]]:
    """Sums per cell, or per class of ``sums``, as charges to groups of cells."""
    n = len(axis)
    for boxes, column in sums.groups(cells):
        values = column.tolist()
        sides = tuple(tuple(map(side_of, box)) for box in boxes)
        charge = Charge(axis, tuple(values[:n]), tuple(values[n:]))
        yield Selection(everyone=False, boxes=sides), charge
