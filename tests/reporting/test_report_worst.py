"""The most charged cell, against looking at every cell by itself."""

from __future__ import annotations

import numpy as np
import pytest

from accountant.budget.accounts import N
from accountant.budget.epochs import next_epoch
from accountant.budget.policy import LimitRule
from accountant.privacy.units import AXIS, Currency
from accountant.reporting.worst import Ruler


def _cells(rng: np.random.Generator, n: int, *, infinite: bool) -> np.ndarray:
    cells = np.zeros((2 * N, n), dtype=np.int64)
    cells[AXIS[Currency.EPSILON]] = rng.integers(0, 2 * 10**9, n)
    cells[AXIS[Currency.DELTA]] = rng.integers(0, 12 * 10**7, n)
    cells[AXIS[Currency.EPSILON_SQUARED]] = rng.integers(0, 3 * 10**13, n)
    if infinite:
        cells[N:] = rng.integers(0, 30, (N, n)) == 0
    return cells


@pytest.mark.parametrize("infinite", [False, True])
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_a_group_is_charged_what_its_worst_cell_is(delta: str, *, infinite: bool) -> None:
    """Reading all cells at once gives the largest of what each cell gives alone."""
    rule = LimitRule.model_validate({"id": "a", "limit": {"epsilon": "1", "delta": delta}})
    ruler, rng = Ruler(rule, next_epoch(None, rule, 1, 0)), np.random.default_rng(7)
    for _ in range(40):
        n = int(rng.integers(1, 60))
        cells = _cells(rng, n, infinite=infinite)
        whole = ruler.worst(cells)
        alone = ruler.by_value(cells.reshape(2 * N, n, 1))
        amounts = [one.epsilon for one in alone]
        largest = None if None in amounts else max(a for a in amounts if a is not None)
        assert whole.epsilon == largest == alone[whole.cell].epsilon
        assert whole.over == any(one.over for one in alone)
