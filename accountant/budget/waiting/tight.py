"""The cells of an account from the least tight to the tightest, to look there first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from accountant.budget.accounts.part import Integers, Part
from accountant.budget.accounts.peak import rows_of, sums_of
from accountant.privacy.units import Currency

if TYPE_CHECKING:
    from collections.abc import Iterator

    from accountant.budget.state import Counted, State


def rankings(state: State, counted: Counted, stamp: int) -> Iterator[Integers]:
    """Yield the places of the cells of an account that hold something beside everyone, the least
    tight first: by what is spent of a limit at ``stamp``; then by delta, if any is. What is locked
    counts as if it were used. No places where sums are kept by class.

    What allotments keep is left out, and floats compare what is spent: nobody is passed over by it.
    """
    rule, epoch, key = counted
    account, capacity = state.account(key).at(stamp), epoch.capacity
    if rule.unlock is not None:
        account = state.lock(counted, stamp).on(account, capacity)
    used = account.used
    touched = used.touched()
    if touched is None or not touched.places.size:
        yield np.zeros(0, dtype=np.int64)
        return
    part = Part(touched.finite, touched.infinite, used.everyone, used.everyone_infinite)
    epsilon, delta, *along = (
        sums_of(part, row)
        for row in rows_of(account.axis, (Currency.EPSILON, Currency.DELTA, *capacity.currencies))
    )
    spent, _ = epoch.gate.roughly(epoch.limit, epsilon, along)
    yield touched.places[np.lexsort((epsilon, spent))]
    if delta.any():
        yield touched.places[np.argsort(delta, kind="stable")]
