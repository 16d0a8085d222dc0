"""The most charged cell, against looking at every cell by itself."""

from __future__ import annotations

import numpy as np
import pytest

from accountant.budget.accounts.epochs import epoch_of
from accountant.budget.rules.limit import LimitRule
from accountant.privacy.filters import FILTERS
from accountant.privacy.units import Axis, Currency
from accountant.reporting.peak_cell import Columns, Ruler


def _cells(rng: np.random.Generator, axis: Axis, n: int, *, infinite: bool) -> np.ndarray:
    """Sums on either side of every gate's capacity."""
    cells = np.zeros((2 * len(axis), n), dtype=np.int64)
    for i, currency in enumerate(axis):
        most = {Currency.EPSILON: 2 * 10**9, Currency.DELTA: 12 * 10**7}.get(currency, 3 * 10**13)
        cells[i] = rng.integers(0, most * (20 if currency.order else 1), n)
    cells[axis.index(Currency.DELTA)] *= rng.integers(0, 2, n)
    if infinite:
        cells[len(axis) :] = rng.integers(0, 30, (len(axis), n)) == 0
    return cells


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize(("delta", "gate"), [("0", "renyi"), *(("0.000001", g) for g in FILTERS)])
def test_a_group_is_charged_what_its_worst_cell_is(
    delta: str, gate: str, *, infinite: bool
) -> None:
    """Reading all cells at once gives the largest of what each cell gives alone."""
    rule = LimitRule.model_validate(
        {"id": "a", "limit": {"epsilon": "1", "delta": delta}, "gate": gate}
    )
    epoch = epoch_of(rule, None, (), 1, 0)
    ruler, rng = Ruler(rule, epoch), np.random.default_rng(7)
    overs = set()
    for _ in range(40):
        n = int(rng.integers(1, 60))
        cells = Columns.stacked(_cells(rng, epoch.axis, n, infinite=infinite))
        whole = ruler.worst(cells)
        alone = ruler.by_value(cells.then(lambda sums: sums.reshape(-1, 1)))
        amounts = [one.epsilon for one in alone]
        largest = None if None in amounts else max(a for a in amounts if a is not None)
        assert whole.epsilon == largest == alone[whole.cell].epsilon
        assert whole.over == any(one.over for one in alone)
        overs |= {one.over for one in alone}
    assert overs == {True, False}


@pytest.mark.parametrize("gate", FILTERS)
def test_a_charge_without_a_bound_is_over_the_largest_limit(gate: str) -> None:
    """Even where what the limit allows, in units, is more than any sum can be."""
    rule = LimitRule.model_validate(
        {"id": "a", "limit": {"epsilon": "1000000", "delta": "0.1"}, "gate": gate}
    )
    epoch = epoch_of(rule, None, (), 1, 0)
    cells = np.zeros((2 * len(epoch.axis), 2), dtype=np.int64)
    cells[len(epoch.axis) :, 1] = 1
    cells[len(epoch.axis) + epoch.axis.index(Currency.DELTA)] = 0
    each = Ruler(rule, epoch).by_value(Columns.stacked(cells).then(lambda sums: sums.reshape(2, 1)))
    assert [(one.over, one.epsilon) for one in each] == [(False, 0), (True, None)]
