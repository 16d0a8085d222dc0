"""What a ledger's events add up to: the totals that a bundle carries, for other verifiers to meet.

For each account in force the most charged cell: the largest sum in each currency, and under a rule
the epsilon that is spent. An account in which nothing was ever used is left out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.epochs import Epoch
from accountant.budget.accounts.sums import Integers
from accountant.budget.state import State
from accountant.ledger.events import canonical
from accountant.privacy.units import INFINITE, LARGEST, Charge

_INFINITE: Final = LARGEST + 1


def totals_of(state: State) -> bytes:
    """The content of ``totals.json``, canonical."""
    epochs = state.adopted.epochs if state.adopted else {}
    found: list[dict[str, Any]] = []
    for key, kept in sorted(state.accounts.items()):
        epoch = epochs.get(key.rule)
        if key.rule and (epoch is None or epoch.number != key.epoch):
            continue
        account = kept.at(state.time)
        used = most_of(account)
        if any(used.finite) or any(used.infinite):
            entry = key._asdict() | {"used": used.to_json()}
            found.append(entry | ({"spent": _spent(epoch, account)} if epoch else {}))
    return canonical({"accounts": found})


def most_of(account: Account) -> Charge:
    """The largest sum of any cell, in each currency for itself."""
    used = account.used
    return Charge(account.axis, tuple(used.most()), tuple(used.most_infinite()))


def _spent(epoch: Epoch, account: Account) -> str:
    """Units of epsilon spent by the cell that has spent most, rounded up."""
    second = epoch.capacity.second_currency
    epsilons = _row(account, 0)
    seconds = epsilons if second is None else _row(account, account.axis.index(second))
    spent = [
        epoch.gate.spent(epoch.limit, _units(epsilon), None if second is None else _units(along))
        for epsilon, along in _frontier(epsilons, seconds)
    ]
    return INFINITE if None in spent else str(max(units for units in spent if units is not None))


def _row(account: Account, row: int) -> Integers:
    used = account.used
    places = slice(1 if used.flat else None)  # all cells are alike
    finite = used.cells()[row].reshape(-1)[places]
    infinite = used.infinities()[row].reshape(-1)[places]
    return np.where(infinite > 0, _INFINITE, finite)


def _units(sum_: int) -> int | None:
    return None if sum_ == _INFINITE else sum_


def _frontier(epsilons: Integers, seconds: Integers) -> list[tuple[int, int]]:
    """The pairs that no other exceeds in both: what is spent grows with both."""
    order = np.lexsort((-seconds, -epsilons))
    epsilons, seconds = epsilons[order], seconds[order]
    before = np.concatenate([[-1], np.maximum.accumulate(seconds)[:-1]])
    kept = seconds > before
    return list(zip(epsilons[kept].tolist(), seconds[kept].tolist(), strict=True))
