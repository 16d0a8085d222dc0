"""What the express way has booked and not written back, and the open grants that it knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accountant.budget.express.forms import Form, Held
from accountant.budget.express.holding import Holding, Rest
from accountant.budget.express.settlements import Settlement
from accountant.budget.express.tallies import Tally
from accountant.budget.limits import compared
from accountant.budget.state import AccountKey, Counted, State, lifetime
from accountant.privacy.units import LARGEST

_MOST_UNWRITTEN: Final = 50_000
"""Grants on the list of those to write before settled ones are taken off it; more if more are open:
the list is only gone through when half of it may have been settled.
"""


class Running:
    """A state, and beside it what changes with every event."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.tallies: dict[AccountKey, Tally] = {}
        self.held = Holding()
        self._unwritten: list[int] = []
        self._most_unwritten = _MOST_UNWRITTEN
        self.room = LARGEST
        """No sum reaches ``LARGEST`` before charges of this many units have been booked."""

    def tally(self, key: AccountKey, counted: Counted | None) -> Tally:
        """The tally of an account that there is."""
        tally = self.tallies.get(key)
        if tally is None:
            tally = self.tallies[key] = Tally(self.state.accounts[key], counted)
            self.room = min(self.room, tally.room)
        return tally

    def comparable(self, dataset: str, by: str) -> bool:
        """All accounts of such an event are there, and keep all that is compared."""
        accounts = self.state.accounts
        return lifetime(dataset) in accounts and all(
            key in accounts and all(c in accounts[key].axis for c, _ in compared(epoch.capacity))
            for _, epoch, key in self.state.limits_on(dataset, by)
        )

    def ready(self, form: Form) -> bool:
        """The form's accounts can be compared, and have room for one more."""
        if self.room < form.weight:
            self.write()
            self.room = min((t.room for t in self.tallies.values()), default=LARGEST)
        people = self.state.people()
        for tally, selection, _ in form.tallies:
            if tally.odd or not (tally.fresh or tally.look(people)) or not tally.apart(selection):
                return False
        return self.room >= form.weight

    def grew(self, units: int) -> None:
        """Something of so many units was booked at length."""
        self.room -= units

    def book(self, form: Form, held: Held | None) -> None:
        """Books what the next event of ``form`` charges, reserved for a grant or spent."""
        self.count(form, 1)
        for tally, selection, charge in form.tallies:
            tally.book(selection, charge)
        if held is not None:
            self.hold(self.state.sequence, form, held[1:])

    def count(self, form: Form, times: int) -> None:
        """Books what so many events of ``form`` charge, but for what the tallies compare."""
        self.room -= times * form.weight
        form.count.booked += times
        if form.reserves:
            form.count.reserved += times
        form.wait()

    def hold(self, number: int, form: Form, rest: Rest) -> None:
        """The event ``number`` reserves a grant."""
        self.held.put(number, form, rest)
        self._unwritten.append(number)

    def unbook(self, booked: Sequence[Form], first: int, time: int) -> None:
        """Takes back ``booked``, the forms of all events since the one at ``first``; ``time`` is
        the stamp before it. The room that they took is found again when it is looked for.
        """
        for form in booked:
            form.count.booked -= 1
            form.count.reserved -= form.reserves
            form.wait()
            for tally, _, _ in form.tallies:
                tally.upset()
        for number in range(first, self.state.sequence):
            self.held.drop(number)
            self.state.open.pop(f"g{number}", None)
        self.state.sequence, self.state.time = first, time

    def settle(self, settlement: Settlement, about: int, number: int, held: Held) -> None:
        """Ends the grant that was reserved at ``number``."""
        state = self.state
        self.held.drop(number)
        state.open.pop(f"g{number}", None)
        state.grants.write(number, about, held.expires, state.sequence)
        held.form.count.reserved -= 1
        held.form.wait()
        if settlement.parts:
            settlement.count.booked += 1
            settlement.wait()
            for tally, selection, change in settlement.changes:
                if tally.fresh:
                    tally.book(selection, change)

    def answered(self, by: str, key: str, fingerprint: bytes, now: int) -> None:
        """The event at the state's sequence is folded in, and answers ``key``, if that is one."""
        if key:
            self.state.answers.put(by, key, fingerprint, self.state.sequence)
        self.passed(1, now)

    def passed(self, events: int, now: int) -> None:
        """So many events at the state's sequence are folded in."""
        self.state.sequence += events
        self.state.time = now
        if len(self._unwritten) > self._most_unwritten:
            self._unwritten = [number for number in self._unwritten if number in self.held]
            self._most_unwritten = max(_MOST_UNWRITTEN, 2 * len(self._unwritten))

    def grant(self, number: int) -> None:
        """Writes one open grant to the state."""
        if (held := self.held.get(number)) is not None:
            self.state.grants.keep(held.form.grant(number, held))

    def write(self) -> None:
        """Writes all that is pending to the state."""
        for tally in self.tallies.values():
            tally.write()
        for number in self._unwritten:
            self.grant(number)
        self._unwritten.clear()
