"""What open grants hold in each account, kept up with the events.

To add it up anew for each point of a picture would take as long as there are open grants.
"""

from __future__ import annotations

from typing import Final

from accountant.budget.accounts.sums import Sums
from accountant.budget.facts import grant_in
from accountant.budget.grants import AccountKey, Grant
from accountant.budget.outcome import RESERVED
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.reporting.history import SETTLING

_ANYWHERE: Final = frozenset(
    (
        "population.extended.v1",
        "policy.adopted.v1",
        "ledger.carried_over.v1",
        "ledger.recovered.v1",
    )
)
"""What may change any open grant."""


class Held:
    """Fed with every event after the state has folded it in."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._sums: dict[AccountKey, Sums] = {}

    def add(self, state: State, event: Event) -> None:
        """Keeps up with one event."""
        if event.type == RESERVED:
            grant = state.open[grant_in(event)]
            self._grants[grant.id] = grant
            self._book(state, grant, 1)
        elif event.type in SETTLING:
            self._book(state, self._grants.pop(grant_in(event)), -1)
        elif event.type in _ANYWHERE:
            self._grants, self._sums = dict(state.open), {}
            for grant in self._grants.values():
                self._book(state, grant, 1)

    def of(self, key: AccountKey) -> Sums | None:
        """What open grants hold in one account; None if that is nothing."""
        sums = self._sums.get(key)
        return (
            sums if sums is not None and (any(sums.most()) or any(sums.most_infinite())) else None
        )

    def _book(self, state: State, grant: Grant, sign: int) -> None:
        for key, booked in grant.bookings:
            if (sums := self._sums.get(key)) is None:
                shape = state.accounts[key].used.shape
                sums = self._sums[key] = Sums(len(booked.axis), shape)
            sums.add(grant.selection, booked.finite, booked.infinite, sign)
