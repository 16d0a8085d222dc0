"""The totals that a bundle carries for other verifiers to compare: of each used account in force,
the largest sum of any cell in each currency and, under a rule, the most epsilon that is spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.epochs import Epoch
from accountant.budget.accounts.peak import most_spent, rows_of, sums_of
from accountant.budget.grants import AccountKey
from accountant.budget.population.selection import EVERYONE
from accountant.budget.state import State
from accountant.ledger.events import canonical
from accountant.privacy.units import INFINITE, LARGEST, Charge, Currency


def in_force(state: State) -> Iterator[tuple[AccountKey, Epoch | None, Account]]:
    """Yield the accounts in force by key, as they are now, with the epoch if a rule has them."""
    epochs = state.adopted.epochs if state.adopted else {}
    for key, account in sorted(state.accounts.items()):
        epoch = epochs.get(key.rule)
        if not key.rule or (epoch is not None and epoch.number == key.epoch):
            yield key, epoch, account.at(state.time)


def totals_of(state: State) -> bytes:
    """Return the content of ``totals.json``, canonical."""
    found: list[dict[str, Any]] = []
    for key, epoch, account in in_force(state):
        used = most_of(account)
        if any(used.finite) or any(used.infinite):
            entry = key.to_json() | {"used": used.to_json()}
            found.append(entry | ({"spent": _spent(epoch, account)} if epoch else {}))
    return canonical({"accounts": found})


def most_of(account: Account) -> Charge:
    """Return the largest sum of any cell, in each currency for itself."""
    used = account.used
    return Charge(account.axis, tuple(used.most()), tuple(used.most_infinite()))


def _spent(epoch: Epoch, account: Account) -> str:
    """Return the epsilon spent by the cell that has spent most, in units rounded up."""
    [part] = account.used.parts(EVERYONE)
    rows = rows_of(account.axis, (Currency.EPSILON, *epoch.capacity.currencies))
    spent = most_spent(epoch.gate, epoch.limit, [sums_of(part, row) for row in rows])[0]
    return INFINITE if spent > LARGEST else str(spent)
