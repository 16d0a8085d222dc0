"""Where a limit stands, worked out once for all that ask as long as nothing happens.

In populations of a million cells each reading looks at all of them.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.state import AccountKey, Counted
from accountant.reporting.desk import Page
from accountant.reporting.following import Followed
from accountant.reporting.statement import Balance, balances


class _Known:
    """The balances of a ledger after ``sequence`` events."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.balances: dict[tuple[AccountKey, int], Balance] = {}


_KNOWN: Final[WeakKeyDictionary[Followed, _Known]] = WeakKeyDictionary()


def balance_of(page: Page, counted: Counted) -> Balance:
    """Return the balance of all that a limit is about, at the stamp of the page."""
    followed = page.followed
    state = followed.state
    known = _KNOWN.get(followed)
    if known is None or known.sequence != state.sequence:
        known = _KNOWN[followed] = _Known(state.sequence)
    # Time alone changes a window, and what allotments keep.
    timed = counted.epoch.window is not None or any(state.keeping(counted.key))
    place = counted.key, page.now if timed or isinstance(counted.rule, AllotmentRule) else 0
    if (found := known.balances.get(place)) is None:
        [found] = balances(state, counted, None)
        known.balances[place] = found
    return found
