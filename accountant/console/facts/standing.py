"""Where a limit stands, worked out once for all that ask as long as nothing happens to it.

In populations of a million cells each reading looks at all of them; and of a thousand accounts
a request changes a few.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.state import AccountKey, Counted
from accountant.reporting.desk import Page
from accountant.reporting.following import Followed
from accountant.reporting.statement import Balance, balances


class _Standing(NamedTuple):
    """A balance after the last event that changed it, and at a stamp, if it changes with time."""

    changed: int
    now: int
    balance: Balance


class _Known:
    """The balances of a ledger since ``everything``, the last event that changed all accounts."""

    def __init__(self, everything: int) -> None:
        self.everything = everything
        self.balances: dict[AccountKey, _Standing] = {}


_KNOWN: Final[WeakKeyDictionary[Followed, _Known]] = WeakKeyDictionary()


def balance_of(page: Page, counted: Counted) -> Balance:
    """Return the balance of all that a limit in force is about, at the stamp of the page."""
    followed, key = page.followed, counted.key
    changes, known = followed.changes, _KNOWN.get(followed)
    if known is None or known.everything != changes.everything:
        known = _KNOWN[followed] = _Known(changes.everything)
    # Time alone changes a window, and what allotments keep.
    timed = counted.epoch.window is not None or any(followed.state.keeping(key))
    now = page.now if timed or isinstance(counted.rule, AllotmentRule) else 0
    at, found = (changes.last(key.dataset), now), known.balances.get(key)
    if found is None or found[:2] != at:
        [balance] = balances(followed.state, counted, None)
        found = known.balances[key] = _Standing(*at, balance)
    return found.balance
