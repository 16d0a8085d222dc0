"""What was charged so far, as a second person is told it."""

from __future__ import annotations

from typing import Final

from accountant.budget.state import State
from accountant.privacy.units import Currency, amount

MOST_TOLD: Final = 20
"""Datasets that are told, those that were charged most."""


def owed(state: State) -> dict[str, str]:
    """Return by dataset the epsilon that one of the privacy unit was charged or has reserved in its
    lifetime, at the most charged cell; "infinite" if that has no bound. ``*`` is all data together.
    Empty only if nothing was charged. At most ``MOST_TOLD``, the largest first.
    """
    found: list[tuple[int | None, str]] = []
    for key, account in state.accounts.items():
        if key.rule or key.unit:
            continue
        most, infinite = account.used.most(), account.used.most_infinite()
        if any(most) or any(infinite):
            found.append((None if infinite[0] else most[0], key.dataset))
    found.sort(key=lambda one: (one[0] is not None, -(one[0] or 0), one[1]))
    return {name: amount(units, Currency.EPSILON) for units, name in found[:MOST_TOLD]}
