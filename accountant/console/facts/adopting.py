"""A ledger as another policy would make it if it were adopted now.

It is adopted on a copy of the state, by the same code as live; nothing is recorded. The copy has no
grants, for there may be a hundred thousand: what they hold of each account is kept up as events
come (``burndown.Held``), and an adoption moves it from an account to its successor as a whole, or
leaves it. What of it would last for cells that are appended later is not known of the copy, and
nobody asks it.
"""

from __future__ import annotations

from typing import NamedTuple

from accountant.budget.accounts.epochs import Start, start_of
from accountant.budget.accounts.sums import Sums
from accountant.budget.handlers import is_used
from accountant.budget.policy import Policy
from accountant.budget.state import AccountKey, Counted, State
from accountant.budget.trials.backtest import Backtest
from accountant.reporting.burndown import Held
from accountant.reporting.desk import Page
from accountant.reporting.statement import Balance, balances


class Adopted(NamedTuple):
    """The state, without grants; what they held before; and of each limit the epoch whose accounts
    held it, as far as open grants would hold it in the state, too.
    """

    state: State
    before: Held
    epochs: dict[str, int]

    def held(self, key: AccountKey) -> Sums | None:
        """Return what open grants would hold in an account; None if it is nothing."""
        epoch = self.epochs.get(key.rule)
        return None if epoch is None else self.before.of(key._replace(epoch=epoch))

    def balance(self, counted: Counted) -> Balance:
        """Return the balance that all that a limit is about would have."""
        [total] = balances(self.state, counted, None, self.held)
        return total


def adopted(page: Page, policy: Policy, copy: State) -> Adopted:
    """Return the ledger of a page with ``policy`` in force from now on, made of a ``copy`` of its
    state, which has no grants. Raise Problem if it cannot be adopted.
    """
    state = page.followed.state
    before = state.adopted
    held, epochs = page.followed.burndowns.held, dict[str, int]()
    for rule in policy.limits:
        start = start_of(before, rule, used=is_used(state, rule))
        if before is not None and start in (Start.KEPT, Start.CARRIED):
            epochs[rule.id] = before.epochs[rule.id].number
    if before is None or before.policy != policy:
        Backtest(copy).adopt(policy, max(page.now, state.time))
        copy.now = page.now
    return Adopted(copy, held, epochs)
