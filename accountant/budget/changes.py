"""What the events of requests and grants change: accounts and grants.

Each change can be taken back, so that what was decided before a commit that failed never was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from accountant.budget.accounts.account import Account, Mark
from accountant.budget.grants import AccountKey, Bookings, Ending, Grant
from accountant.budget.population.selection import Selection
from accountant.ledger.events import Entry
from accountant.privacy.units import Charge

if TYPE_CHECKING:
    from accountant.budget.state import State


class Booked(NamedTuple):
    """What was booked in an account, or given back, and how the account was before."""

    key: AccountKey
    account: Account
    created: bool
    mark: Mark
    added: Charge
    """What was added to the selection's cells."""


class Reserve(NamedTuple):
    """A grant is opened. ``grant`` has no bookings yet."""

    grant: Grant

    def fold(self, state: State, entry: Entry) -> list[Booked]:
        """Books the grant's total and keeps the grant."""
        grant = self.grant
        asked = grant.dataset, grant.by, grant.selection, grant.total
        before = _book(state, *asked, reserve=True, now=entry.time)
        state.grants.keep(grant._replace(bookings=_bookings(before)))
        return before

    def undo(self, state: State, before: list[Booked]) -> None:
        """Forgets the grant."""
        state.grants.forget(self.grant.id)
        _take_back(state, self.grant.selection, before)


class Record(NamedTuple):
    """Something is spent that was never reserved."""

    dataset: str
    by: str
    selection: Selection
    charge: Charge

    def fold(self, state: State, entry: Entry) -> list[Booked]:
        """Books it."""
        asked = self.dataset, self.by, self.selection, self.charge
        return _book(state, *asked, reserve=False, now=entry.time)

    def undo(self, state: State, before: list[Booked]) -> None:
        """Takes it back."""
        _take_back(state, self.selection, before)


class End(NamedTuple):
    """A grant ends: ``final`` is spent."""

    grant: str
    ending: Ending
    final: Charge

    def fold(self, state: State, entry: Entry) -> tuple[Grant, list[Booked]]:
        """Turns the reservation into a spending."""
        grant = state.open[self.grant]
        before = []
        for key, booked in grant.bookings:
            account = state.accounts[key]
            mark = account.mark(entry.time)
            spent = account.settle(grant.selection, booked, self.final, entry.time)
            added = _NOTHING if spent is booked else spent - booked
            before.append(Booked(key, account, False, mark, added))
        state.grants.settle(grant, self.ending, entry.sequence)
        return grant, before

    def undo(self, state: State, before: tuple[Grant, list[Booked]]) -> None:
        """Opens the grant again."""
        grant, accounts = before
        state.grants.reopen(grant)
        _take_back(state, grant.selection, accounts)


class Note(NamedTuple):
    """A commit came after the grant had expired: that is noted, and nothing else."""

    grant: str

    def fold(self, state: State, entry: Entry) -> None:
        """Notes it."""
        state.grants.note(self.grant)

    def undo(self, state: State, before: None) -> None:
        """Forgets it."""
        state.grants.note(self.grant, noted=False)


class Count(NamedTuple):
    """A session has given so many answers in all."""

    grant: str
    positives: int
    negatives: int

    def fold(self, state: State, entry: Entry) -> Grant:
        """Counts them."""
        grant = state.open[self.grant]
        counted = grant._replace(positives=self.positives, negatives=self.negatives)
        state.grants.keep(counted)
        return grant

    def undo(self, state: State, before: Grant) -> None:
        """Goes back to the count before."""
        state.grants.keep(before)


class Nothing(NamedTuple):
    """No account and no grant changes: a refusal."""

    def fold(self, state: State, entry: Entry) -> None:
        """Changes nothing."""

    def undo(self, state: State, before: None) -> None:
        """Changes nothing."""


_NOTHING = Charge()
NOTHING = Nothing()


def _book(
    state: State,
    dataset: str,
    by: str,
    selection: Selection,
    charge: Charge,
    *,
    reserve: bool,
    now: int,
) -> list[Booked]:
    before = []
    for key in state.route(dataset, by).keys:
        account = state.accounts.get(key)
        created = account is None
        if account is None:
            account = state.to_change(key)
        mark = account.mark(now)
        booked = account.book(selection, charge, reserve=reserve, now=now)
        before.append(Booked(key, account, created, mark, booked))
    return before


def _bookings(before: list[Booked]) -> Bookings:
    return tuple([(one.key, one.added) for one in before])


def _take_back(state: State, selection: Selection, before: list[Booked]) -> None:
    for key, account, created, mark, added in reversed(before):
        if created:
            del state.accounts[key]
        else:
            account.go_back(mark, selection, added)
