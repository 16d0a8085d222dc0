"""What the express way has booked and not written back, and the open grants that it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from accountant.budget.express.forms import Form, Held
from accountant.budget.express.holding import Holding, Rest
from accountant.budget.express.settlements import Settlement
from accountant.budget.express.tallies import Tally
from accountant.budget.grants import Grant
from accountant.budget.limits import compared
from accountant.budget.state import ALL, AccountKey, Counted, State, lifetime
from accountant.privacy.units import LARGEST

_MOST_UNWRITTEN: Final = 50_000
"""Grants on the list of those to write before settled ones are taken off it; more if more are open:
the list is only gone through when half of it may have been settled.
"""


class Mark(NamedTuple):
    """A moment that can be gone back to."""

    booked: int
    """What had been noted until then."""
    sequence: int
    time: int
    answers: int


class _Ended(NamedTuple):
    """A grant that was settled; ``opened`` is what stood of it in the state."""

    settlement: Settlement
    number: int
    held: Held
    opened: Grant | None


class Running:
    """A state, and beside it what changes with every event."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.tallies: dict[AccountKey, Tally] = {}
        self.held = Holding()
        self._unwritten: list[int] = []
        self._most_unwritten = _MOST_UNWRITTEN
        self._noted: list[tuple[Form, int] | _Ended] | None = None
        """All that was booked, while it may be taken back: a form and how often, or what ended."""
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
        return {lifetime(dataset), lifetime(ALL)} <= accounts.keys() and all(
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
        if self._noted is not None:
            self._noted.append((form, times))

    def hold(self, number: int, form: Form, rest: Rest) -> None:
        """The event ``number`` reserves a grant."""
        self.held.put(number, form, rest)
        self._unwritten.append(number)
        if (calendar := self.state.grants.calendar) is not None:
            calendar.put(rest[1], f"g{number}")

    @contextmanager
    def noted(self) -> Iterator[Mark]:
        """What is booked until the end can be taken back, as long as all of it goes this way."""
        first, state = self._noted is None, self.state
        noted = self._noted = [] if self._noted is None else self._noted
        try:
            yield Mark(len(noted), state.sequence, state.time, len(state.answers))
        finally:
            if first:
                self._noted = None

    def take_back(self, mark: Mark) -> None:
        """Goes back to ``mark``, while it is ``noted``: to the unit, and to the key."""
        state, noted = self.state, self._noted
        if noted is None:
            raise ValueError("nobody has noted what is to be taken back")
        for one in noted[mark.booked :]:
            if isinstance(one, _Ended):
                self._reopen(*one)
            else:
                self._discount(*one)
        del noted[mark.booked :]
        for number in range(mark.sequence, state.sequence):
            self.held.drop(number)
            state.open.pop(f"g{number}", None)
        state.answers.take_back(mark.answers)
        state.sequence, state.time = mark.sequence, mark.time
        self.room = 0  # more than before, or less: it is looked for anew

    def _discount(self, form: Form, times: int) -> None:
        form.count.booked -= times
        form.count.reserved -= times * form.reserves
        form.wait()
        for tally, _, _ in form.tallies:
            tally.upset()

    def _reopen(
        self, settlement: Settlement, number: int, held: Held, opened: Grant | None
    ) -> None:
        self.state.grants.reopen(number, opened)
        self.hold(number, held.form, held[1:])
        held.form.count.reserved += 1
        held.form.wait()
        if settlement.parts:
            settlement.count.booked -= 1
            settlement.wait()
            for tally, _, _ in settlement.changes:
                tally.upset()

    def settle(self, settlement: Settlement, about: int, number: int, held: Held) -> None:
        """Ends the grant that was reserved at ``number``."""
        state = self.state
        self.held.drop(number)
        opened = state.open.pop(f"g{number}", None)
        if self._noted is not None:
            self._noted.append(_Ended(settlement, number, held, opened))
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
            numbers = dict.fromkeys(self._unwritten)  # what was taken back may stand there twice
            self._unwritten = [number for number in numbers if number in self.held]
            self._most_unwritten = max(_MOST_UNWRITTEN, 2 * len(self._unwritten))

    def grant(self, number: int) -> None:
        """Writes one open grant to the state."""
        if (held := self.held.get(number)) is not None:
            # Not kept anew: it stands in the calendar since it is held.
            self.state.open[f"g{number}"] = held.form.grant(number, held)

    def write(self) -> None:
        """Writes all that is pending to the state."""
        for tally in self.tallies.values():
            tally.write()
        for number in self._unwritten:
            self.grant(number)
        self._unwritten.clear()
