"""The cell that a limit quotes is the one that has spent most, however many there are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.budget.accounts.peak import _spent, _top
from accountant.budget.accounts.sums import Part
from accountant.privacy.filters import Limit, filter_for
from accountant.privacy.units import LARGEST

LIMIT = Limit(Fraction(1), Fraction("1e-6"), Fraction("1e-7"))


@pytest.mark.parametrize("gate", ["renyi", "zcdp", "gdp", "advanced"])
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), crossed=st.booleans(), infinite=st.booleans())
def test_the_peak_is_where_most_is_spent(
    gate: str, seed: int, crossed: bool, infinite: bool
) -> None:
    """Also where hundreds of cells are exceeded by no other in both sums; of equals it is the one
    with the larger sums, then the first.
    """
    dice = np.random.default_rng(seed)
    spent = _spent(filter_for(gate, LIMIT), LIMIT)
    cells = np.zeros((3, 300), dtype=np.int64)
    cells[0], cells[2] = dice.integers(0, 10**9, 300), dice.integers(0, 5 * 10**13, 300)
    if crossed:
        cells[0], cells[2] = -np.sort(-cells[0]), np.sort(cells[2])
    closed = np.zeros_like(cells)
    closed[:, :3] = infinite
    part = Part(cells, closed, [0] * 3, [0] * 3)
    sums = [
        tuple(LARGEST + 1 if closed[row, at] else int(cells[row, at]) for row in (0, 2))
        for at in range(300)
    ]
    *most, minus = max((spent(*one), *one, -at) for at, one in enumerate(sums))
    assert _top(part, 2, spent, None) == (*most, -minus)
