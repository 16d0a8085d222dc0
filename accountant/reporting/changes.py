"""Which accounts an event may have changed, so that what was worked out of the others still holds.

What every event of a type leaves as it was is stated here; any other type may change all accounts.
"""

from __future__ import annotations

from typing import Final

from accountant.budget.batches import OPENED, as_single
from accountant.budget.facts import grant_in
from accountant.budget.outcome import (
    ADMITTED,
    ANSWERED,
    CANCELLED,
    CLOSED,
    COMMITTED,
    DECLINED,
    EXPIRED,
    NOT_APPROVED,
    NOTED,
    PROPOSED,
    RECORDED,
    REFUSED,
    RELEASED,
    REPUBLISHED,
    RESERVED,
    TIMED_OUT,
    WAITING,
)
from accountant.budget.reach import reach_in
from accountant.budget.rules.scope import ALL
from accountant.budget.state import State
from accountant.ledger.events import Event

_ASKED: Final = frozenset({RESERVED, RECORDED, REFUSED, WAITING, ADMITTED, TIMED_OUT})
"""They are about the datasets of a request: refused ones too, as they count as arrived."""
_ENDED: Final = frozenset({COMMITTED, RELEASED, EXPIRED, CLOSED})
"""They are about the datasets of a grant."""
_NONE: Final = frozenset(
    {
        *(OPENED, NOTED, ANSWERED, PROPOSED, DECLINED, REPUBLISHED, CANCELLED, NOT_APPROVED),
        *("text.erased.v1", "report.filed.v1", "publication.stopped.v1"),
        *("publication.resumed.v1", "signing_key.adopted.v1", "ledger.verified.v1"),
    }
)
"""They change no account."""


class Changes:
    """After which event each dataset's accounts may have changed last."""

    def __init__(self) -> None:
        self.everything = -1
        """The last event that may have changed all accounts."""
        self._any = -1
        self._datasets: dict[str, int] = {}

    def add(self, state: State, event: Event) -> None:
        """Take an event that the state has folded in."""
        event = as_single(event)
        if event.type in _NONE:
            return
        self._any = event.sequence
        if event.type in _ASKED:
            charged = reach_in(event.body).charged
        elif event.type in _ENDED:
            charged = state.grant(grant_in(event)).on.charged
        else:
            self.everything = event.sequence
            return
        for dataset in charged:
            self._datasets[dataset] = event.sequence

    def last(self, dataset: str) -> int:
        """Return the last event that may have changed an account of a dataset, or of all together;
        -1 if there is none.
        """
        return (
            self._any if dataset == ALL else max(self.everything, self._datasets.get(dataset, -1))
        )
