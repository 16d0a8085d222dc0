"""A ledger as it is followed: its state, and what reports and pages collect beside it.

Whoever follows reads each event once. Those that come later are added, so that the next report, or
page, costs only what has happened since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec.structs import replace

from accountant.budget.apply import apply
from accountant.budget.reading import read
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.reporting.activity import Activity
from accountant.reporting.burndown import Burndowns
from accountant.reporting.changes import Changes
from accountant.reporting.custody import CustodyHistory
from accountant.reporting.history import ADOPTED, History
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Signed, Stored

ERASED: Final = "text.erased.v1"
MOST_ADOPTIONS: Final = 200


def _unknown(_: int) -> bytes | None:
    return None


class Followed:
    """A ledger after its first ``state.sequence`` events.

    ``size``: how many events it had when following it began. ``outdated``: a text was erased since,
    which may have been read. Follow the ledger anew, so that it is forgotten.
    """

    def __init__(self, ledger: str, size: int = 0) -> None:
        self.state, self._size = State(ledger), size
        self.history, self.burndowns = History(), Burndowns()
        self.activity, self.changes = Activity(), Changes()
        self.custody = CustodyHistory()
        self.adoptions = deque[Event](maxlen=MOST_ADOPTIONS)
        """The latest events that adopted policies."""
        self.outdated = False

    def follow(
        self,
        stored: Iterable[Stored],
        texts: Texts,
        published: Signed | None = None,
        rooted: Callable[[int], bytes | None] = _unknown,
    ) -> None:
        """Add the next events, read once, in order. ``published`` is the last published checkpoint;
        ``rooted`` returns the root of the first so many events, of fewer than were added before.
        Raise ValueError if an event is not canonical or does not follow the one before.
        """
        self.custody.expect(published, rooted)
        state = self.state
        for row in stored:
            event = Event.from_bytes(row.body)
            outcome = read(state, event, row.body)
            # Nobody asks here again, so that the state need not keep idempotency keys.
            apply(state, outcome if outcome.batch is not None else replace(outcome, key=None))
            opened = texts.opened(event)
            self.history.add(state, opened)
            self.custody.add(opened, row)
            self.burndowns.add(state, event)
            self.activity.add(event)
            self.changes.add(state, event)
            if event.type == ADOPTED:
                self.adoptions.append(event)
            self.outdated |= event.type == ERASED and event.sequence >= self._size
