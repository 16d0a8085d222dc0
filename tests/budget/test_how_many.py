"""How often a charge fits on all cells of a selection, against asking of each cell by itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.epochs import epoch_of
from accountant.budget.accounts.peak import Reading, times
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.budget.rules.limit import LimitRule
from accountant.privacy.filters import FILTERS
from accountant.privacy.units import Charge, Currency

SHAPE = (3, 4)


def _charge(draw: np.random.Generator, epoch: object, share: float) -> Charge:
    """A charge of up to a share of each capacity, now and then infinite in a currency."""
    axis, capacity = epoch.axis, epoch.capacity  # type: ignore[attr-defined]
    most = dict(zip(capacity.currencies, capacity.along, strict=True))
    most |= {Currency.EPSILON: capacity.epsilon, Currency.DELTA: capacity.own_delta}
    tops = [int(min(max(0, most.get(one, 0)), 2**55) * share) for one in axis]
    finite = tuple(int(draw.integers(0, top + 1)) for top in tops)
    infinite = tuple(int(draw.integers(0, 40) == 0) for _ in axis)
    return Charge(
        axis, tuple(0 if n else f for f, n in zip(finite, infinite, strict=True)), infinite
    )


@pytest.mark.parametrize("gate", FILTERS)
def test_a_charge_fits_as_often_as_on_the_fullest_cell(gate: str) -> None:
    """On a group it fits as often as on that of its cells on which it fits least often."""
    rule = LimitRule.model_validate(
        {"id": "a", "limit": {"epsilon": "3", "delta": "0.001"}, "gate": gate}
    )
    epoch, draw = epoch_of(rule, None, (), 1, 0), np.random.default_rng(11)
    cells = [
        Selection(everyone=False, boxes=((range(i, i + 1), range(j, j + 1)),))
        for i, j in product(*map(range, SHAPE))
    ]
    seen = set()
    for _ in range(60):
        account = Account.empty(SHAPE, epoch.axis)
        for _ in range(int(draw.integers(0, 6))):
            low, left = (int(draw.integers(0, size)) for size in SHAPE)
            box = range(low, SHAPE[0]), range(left, int(draw.integers(left, SHAPE[1])) + 1)
            where = EVERYONE if draw.integers(0, 5) == 0 else Selection(False, (box,))
            account.book(where, _charge(draw, epoch, 0.2), reserve=False, now=0)
        asked = _charge(draw, epoch, 0.1)
        each = [times(Reading(account, cell), asked, epoch.capacity) for cell in cells]
        assert times(Reading(account, EVERYONE), asked, epoch.capacity) == min(each)
        seen.add(len(set(each)) > 1)
    assert seen == {True, False}
