"""The changes that requests and grants make to accounts and grants, each with its exact inverse.

After a failed commit ``undo`` takes back what was applied before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from accountant.budget.accounts.account import Mark
from accountant.budget.accounts.accounts import Accounts, Keys
from accountant.budget.accounts.sums import Sums
from accountant.budget.accounts.unlocking import Arrivals
from accountant.budget.bill import Bill, Per
from accountant.budget.commands import AskGrant, Command, OpenSparseVector
from accountant.budget.grants import AccountKey, Bookings, Ending, Grant
from accountant.budget.population.selection import Selection
from accountant.budget.proposals import digest_of
from accountant.budget.request import selected
from accountant.budget.waiting.asked import Waiting
from accountant.ledger.events import Entry
from accountant.privacy.units import Charge

if TYPE_CHECKING:
    from accountant.budget.state import Route, State


class Booked(Struct, frozen=True, gc=False):
    """A booking in one account, and how the account was before."""

    keys: Keys
    """The keys that hold the account."""
    mark: Mark | None
    """None outside of a transaction: nothing will be taken back."""
    added: Charge
    """What was added to the selection's cells."""


class Before(Struct, frozen=True):
    """What taking a charge back needs."""

    opened: Keys
    """The accounts that were opened for it."""
    booked: list[Booked]
    arrived: Sequence[Counted] = ()
    """What the arrival of the request has unlocked."""


class Nothing(NamedTuple):
    """A refusal: no account and no grant changes."""

    def fold(self, state: State, entry: Entry) -> None:
        """Change nothing."""

    def undo(self, state: State, before: None) -> None:
        """Change nothing."""


NOTHING = Nothing()


class Arriving(NamedTuple):
    """A request that arrives, whatever becomes of it."""

    datasets: tuple[str, ...]
    """All that it would be charged to."""
    by: str
    purpose: object
    selection: Selection
    """The cells that it asks for."""


class Counted(NamedTuple):
    """A request that was counted in an account, and how that was before."""

    key: AccountKey
    selection: Selection
    before: Arrivals | None
    after: Arrivals
    flat: bool


class Arrive(NamedTuple):
    """Requests arrive and are granted nothing: each unlocks its part of the limits that requests
    unlock.
    """

    requests: tuple[Arriving, ...]

    def fold(self, state: State, entry: Entry) -> list[Counted]:
        """Count them."""
        return [each for one in self.requests for each in _arrive(state, one, entry.time)]

    def undo(self, state: State, before: list[Counted]) -> None:
        """Take them back."""
        _leave(state, before)


class Reserve(Struct, frozen=True, gc=False):
    """Open a grant for ``purpose``, from ``allotment`` if it names one; ``grant`` has no bookings
    yet.
    """

    grant: Grant
    purpose: object = None
    allotment: str | None = None
    arriving: Selection | None = None
    """The cells for which it has yet to arrive; None if no request unlocks anything."""

    def fold(self, state: State, entry: Entry) -> Before:
        """Book the grant's total and keep the grant, as the request arrives."""
        grant, arrived = self.grant, list[Counted]()
        if self.arriving is not None:
            asked = Arriving(grant.on.charged, grant.by, self.purpose, self.arriving)
            arrived = _arrive(state, asked, entry.time)
        route = state.route(grant.on.charged, grant.by, self.purpose, self.allotment)
        before = _book(state, route, grant.selection, grant.bill, entry.time, reserve=True)
        state.grants.keep(grant.holding(_bookings(state.accounts, route, before.booked)))
        return replace(before, arrived=arrived) if arrived else before

    def undo(self, state: State, before: Before) -> None:
        """Forget the grant."""
        state.grants.forget(self.grant.id)
        _take_back(state, self.grant.selection, before)
        _leave(state, before.arrived)


class Wait(NamedTuple):
    """Let a request wait. It holds no budget. ``witness``: what was found to hold up all of it, by
    whoever has just decided (waiting/due.py).
    """

    waiting: Waiting
    witness: Any = None
    arriving: Arrive | Nothing = NOTHING
    """It arrives all the same."""

    def fold(self, state: State, entry: Entry) -> list[Counted] | None:
        """Keep the request, as it arrives."""
        state.waiting.keep(self.waiting._replace(digest=digest_of(entry.body)))
        return self.arriving.fold(state, entry)

    def undo(self, state: State, before: list[Counted] | None) -> None:
        """Forget it."""
        _leave(state, before or [])
        state.waiting.forget(self.waiting.id)


class Leave(NamedTuple):
    """Let a request wait no longer: it timed out, or was cancelled or declined."""

    sequence: int
    ending: Ending

    def fold(self, state: State, entry: Entry) -> Waiting:
        """End the wait. Raises KeyError if the request does not wait."""
        waiting = state.waiting.forget(f"g{self.sequence}")
        state.grants.settle(waiting, self.ending, entry.sequence)
        return waiting

    def undo(self, state: State, before: Waiting) -> None:
        """Let it wait again."""
        state.grants.unsettle(self.sequence)
        state.waiting.keep(before)


class Admit(NamedTuple):
    """Open the grant of the request that has waited since the event at ``sequence``."""

    sequence: int
    reserve: Reserve

    def fold(self, state: State, entry: Entry) -> tuple[Waiting, Before]:
        """Book the grant, and end the wait. Raises KeyError if the request does not wait."""
        waiting = state.waiting.forget(f"g{self.sequence}")
        state.grants.settle(waiting, "admitted", entry.sequence)
        return waiting, self.reserve.fold(state, entry)

    def undo(self, state: State, before: tuple[Waiting, Before]) -> None:
        """Forget the grant, and let the request wait again."""
        waiting, booked = before
        self.reserve.undo(state, booked)
        state.grants.unsettle(self.sequence)
        state.waiting.keep(waiting)


class Record(NamedTuple):
    """Book a spending that was never reserved."""

    datasets: tuple[str, ...]
    """All that it is charged to."""
    by: str
    selection: Selection
    charge: Charge
    purpose: object = None
    allotment: str | None = None
    corrects: bool = False
    """It is the difference to an earlier charge."""
    per: Per = ()
    """The charges to further units, where they differ."""

    def fold(self, state: State, entry: Entry) -> Before:
        """Book the charge."""
        find = state.correction if self.corrects else state.route
        route = find(self.datasets, self.by, self.purpose, self.allotment)
        bill = Bill(self.charge, self.per)
        return _book(state, route, self.selection, bill, entry.time, reserve=False)

    def undo(self, state: State, before: Before) -> None:
        """Take the charge back."""
        _take_back(state, self.selection, before)


class End(NamedTuple):
    """End a grant: ``final`` is spent, the rest comes back, on the client's word."""

    grant: str
    ending: Ending
    final: Charge
    per: Per = ()
    """What is spent of further units, where it differs."""

    def fold(self, state: State, entry: Entry) -> tuple[Grant, list[Booked]]:
        """Turn the reservation into a spending."""
        grant, undoable = state.open[self.grant], state.journal is not None
        expired = self.ending == "expired"  # and may run on
        selection = grant.selection.to_last() if expired else grant.selection
        final, before = Bill(self.final, self.per), []
        for account, keys, booked in state.accounts.holding(grant.bookings):
            mark, unit = account.mark(entry.time) if undoable else None, keys[0].unit
            cells = state.cells(unit, selection)
            cells = cells.to_last() if expired else cells
            spent = account.settle(cells, booked, final.to(unit), entry.time)
            if undoable:
                added = _NOTHING if spent is booked else spent - booked
                before.append(Booked(keys, mark, added))
        state.grants.settle(grant, self.ending, entry.sequence)
        return grant, before

    def back(self, before: tuple[Grant, list[Booked]]) -> Charge | None:
        """Return what came back, after ``fold`` returned ``before``; None if nothing did."""
        back = before[0].total - self.final
        return back if any(back.finite) or any(back.infinite) else None

    def undo(self, state: State, before: tuple[Grant, list[Booked]]) -> None:
        """Open the grant again."""
        grant, accounts = before
        state.grants.reopen(grant)
        _take_back(state, grant.selection, Before((), accounts))


class Note(NamedTuple):
    """Note a commit that came after the grant had expired; nothing else changes."""

    grant: str

    def fold(self, state: State, entry: Entry) -> None:
        """Note it."""
        state.grants.note(self.grant)

    def undo(self, state: State, before: None) -> None:
        """Remove the note."""
        state.grants.note(self.grant, noted=False)


class Count(NamedTuple):
    """Set the number of answers that a session has given in all."""

    grant: str
    positives: int
    negatives: int

    def fold(self, state: State, entry: Entry) -> Grant:
        """Set the counts."""
        grant = state.open[self.grant]
        counted = replace(grant, positives=self.positives, negatives=self.negatives)
        state.grants.keep(counted)
        return grant

    def undo(self, state: State, before: Grant) -> None:
        """Restore the counts before."""
        state.grants.keep(before)


_NOTHING = Charge()


def _book(
    state: State, route: Route, selection: Selection, bill: Bill, now: int, *, reserve: bool
) -> Before:
    accounts, undoable = state.accounts, state.journal is not None
    opened: Keys = ()
    booked = []
    for unit, keys in route.by_unit:
        opened += accounts.open(keys, state.account)
        cells = state.cells(unit, selection) if unit else selection
        charge = bill.to(unit)
        for account, holders in accounts.together(keys):
            mark = account.mark(now) if undoable else None
            added = account.book(cells, charge, reserve=reserve, now=now)
            booked.append(Booked(holders, mark, added))
    return Before(opened, booked)


def _bookings(accounts: Accounts, route: Route, booked: Sequence[Booked]) -> Bookings:
    """Return what was just booked in each account of a route."""
    if len(route.by_unit) == 1:
        places = zip(route.keys, accounts.places(route.by_unit[0][1]), strict=True)
        return tuple([(key, booked[place].added) for key, place in places])
    added = {}
    for one in booked:
        for key in one.keys:
            added[key] = one.added
    return tuple(zip(route.keys, map(added.__getitem__, route.keys), strict=True))


def _arrive(state: State, one: Arriving, now: int) -> list[Counted]:
    """Count a request in each account of the limits that it unlocks a part of."""
    found = []
    for rule, epoch, key in state.route(one.datasets, one.by, one.purpose).limits:
        if not rule.per_request:
            continue
        before = state.arrivals.get(key)
        after = None if before is None else before.at(now)
        if after is None:
            period = None if epoch.window is None else epoch.window.period(now)
            after = Arrivals(period and period.end, Sums(1, state.space))
            state.arrivals[key] = after
        found.append(Counted(key, one.selection, before, after, after.counts.flat))
        after.counts.add(one.selection, [1], [0])
    return found


def _leave(state: State, counted: Sequence[Counted]) -> None:
    """Take back what ``_arrive`` has counted."""
    for key, selection, before, after, flat in reversed(counted):
        after.counts.add(selection, [1], [0], -1)
        if flat:
            after.counts.flatten()
        if before is None:
            del state.arrivals[key]
        else:
            state.arrivals[key] = before


def arrival(state: State, by: str, commands: Iterable[Command]) -> Arrive | Nothing:
    """Return the change that refused requests of ``by`` make: they arrive all the same."""
    if state.adopted is None or not state.adopted.policy.unlocking:
        return NOTHING
    asking = [one for one in commands if isinstance(one, AskGrant | OpenSparseVector)]
    return Arrive(
        tuple(
            Arriving(
                state.reach(one.dataset).charged,
                by,
                one.purpose,
                selected(state.people(), one.subjects),
            )
            for one in asking
        )
    )


def _take_back(state: State, selection: Selection, before: Before) -> None:
    for one in reversed(before.booked):
        keys, mark, added = one.keys, one.mark, one.added
        if mark is not None and (not before.opened or keys[0] not in before.opened):
            for account, _ in state.accounts.together(keys):  # some may have parted since
                account.go_back(mark, state.cells(keys[0].unit, selection), added)
    state.accounts.close(before.opened)
