"""The cell that a limit quotes is the one that has spent most, however many there are."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.budget.accounts.peak import most_spent
from accountant.privacy.filters import Limit, filter_for
from accountant.privacy.units import LARGEST

LIMIT = Limit(Fraction(1), Fraction("1e-6"), Fraction("1e-7"))
FOUR = Limit(Fraction(1), Fraction("1e-6"), orders=(40, 23, 10, 4))


@pytest.mark.parametrize("gate", ["basic", "renyi", "four orders", "zcdp", "gdp", "advanced"])
@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 10**6),
    cells=st.sampled_from([5, 1_500]),
    crossed=st.booleans(),
    infinite=st.booleans(),
    most=st.sampled_from([3, 10**9, 2**62]),
)
def test_the_peak_is_where_most_is_spent(
    gate: str, seed: int, cells: int, crossed: bool, infinite: bool, most: int
) -> None:
    """In few cells and in many, also where hundreds are exceeded by no other in all sums; of equals
    it is the one with the larger sums, then the first.
    """
    dice = np.random.default_rng(seed)
    limit = FOUR if gate == "four orders" else LIMIT
    filter_ = filter_for("renyi" if gate == "four orders" else gate, limit)
    rows = 1 + len(filter_.lines(limit))
    columns = [dice.integers(0, most, cells, endpoint=True) for _ in range(rows)]
    columns[1:] = [column * min(50_000, LARGEST // most) for column in columns[1:]]
    if crossed:
        columns = [-np.sort(-columns[0]), *map(np.sort, columns[1:])]
    for column in columns if infinite else ():
        column[dice.integers(0, cells, 5)] = LARGEST + dice.integers(1, 3, 5)

    def spent(sums: tuple[int, ...]) -> int:
        finite = [None if one > LARGEST else one for one in sums]
        found = filter_.spent(limit, finite[0], finite[1:])
        return sums[0] if found is None else found

    each = list(zip(*[column.tolist() for column in columns], strict=True))
    *key, minus = max((spent(sums), *sums, -at) for at, sums in enumerate(each))
    assert most_spent(filter_, limit, columns) == (*key, -minus)
