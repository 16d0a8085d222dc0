"""Where a limit stands, worked out once for all that ask as long as nothing happens to it.

In populations of a million cells each reading looks at all of them; and of a thousand accounts
a request changes a few.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.state import AccountKey, Counted, State
from accountant.reporting.desk import Page
from accountant.reporting.following import Followed
from accountant.reporting.statement import Balance, balances


class _Standing(NamedTuple):
    """A balance after the last event that changed it, from one stamp until before another, None if
    time alone does not change it any more.
    """

    changed: int
    now: int
    until: int | None
    totals: tuple[list[int], list[int]]
    """What is booked in the account, and what of it is held: other lists after each booking."""
    balance: Balance

    def holds(self, changed: int, now: int, totals: tuple[list[int], list[int]]) -> bool:
        """Return whether it is the balance at a stamp, too."""
        same = all(one is other for one, other in zip(totals, self.totals, strict=True))
        then = self.now <= now and (self.until is None or now < self.until)
        return then and (same or changed == self.changed)


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
    changed, found = changes.last(key.dataset), known.balances.get(key)
    account = followed.state.seen(key)
    totals = account.bound, account.held
    if found is None or not found.holds(changed, page.now, totals):
        [balance] = balances(followed.state, counted, None, followed.burndowns.held.of)
        until = _until(followed.state, counted, page.now)
        if until == page.now + 1:  # it may change although nothing is booked in it
            totals = [], []
        found = known.balances[key] = _Standing(changed, page.now, until, totals, balance)
    return found.balance


def _until(state: State, counted: Counted, now: int) -> int | None:
    """Return the stamp from which time alone may change the balance of an account; None if never.
    It changes a window when something has passed, and what allotments keep at any time.
    """
    if any(state.keeping(counted.key)) or isinstance(counted.rule, AllotmentRule):
        return now + 1
    return state.seen(counted.key).rises(max(state.time, now))
