"""The comparison of ledgers: exact, unless somebody says in what they may differ."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from comparing import EXACT, Slack, differences, in_comparisons

SMALLER = Slack(mu_squared=Fraction(2, 10**10))
TIES = Slack(ties=True)
ROW: dict[str, Any] = {
    "rule": "a",
    "fits": True,
    "scope": ["d", ""],
    "spent": 5,
    "used": {"epsilon": 5, "delta": 0, "rho": 3},
    "cell": [0, 1],
}


def compared(more: dict[str, Any], slack: Slack, *, union: bool = False) -> int:
    """How many fields of a comparison differ."""
    return len(list(in_comparisons([[ROW]], [[ROW | more]], slack, union=union)))


def test_a_difference_names_its_field() -> None:
    """What differs is named by its path, with both values."""
    [found] = differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]})
    assert str(found) == "a[1].b: expected 2, got 3"


@pytest.mark.parametrize("got", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": [2]}])
def test_what_is_missing_or_new_is_a_difference(got: Any) -> None:
    """A field that was not there, or is not any more, or is of another form, is named."""
    assert len(list(differences({"a": 1, "b": 2}, got))) == 1


@pytest.mark.parametrize(("less", "alike"), [(0, True), (200, True), (202, False), (-1, False)])
def test_mu_squared_may_be_a_little_smaller(less: int, alike: bool) -> None:
    """Only smaller, and only within the stated part."""
    before = {"mu_squared": [10**12, 5 * 10**12, "digest"]}
    after = {"mu_squared": [10**12 - less, 5 * (10**12 - less), "another"]}
    assert (list(differences(before, after, SMALLER)) == []) is alike
    assert list(differences(before, after, EXACT)) != []


def test_nothing_else_may_be_smaller() -> None:
    """Another currency, and how often mu squared is infinite, have to be as they were."""
    assert list(differences({"rho": "1000"}, {"rho": "999"}, SMALLER)) != []
    before, after = {"used_infinite": {"mu_squared": [1]}}, {"used_infinite": {"mu_squared": [0]}}
    assert list(differences(before, after, SMALLER)) != []


def test_another_cell_may_be_quoted_among_equals() -> None:
    """The sums of another cell that has spent as much are no difference; more than that is one."""
    other = {"cell": [1, 1], "used": {"epsilon": 5, "delta": 1, "rho": 2}}
    assert compared(other, EXACT) == 3
    assert compared(other, TIES) == 0
    assert compared(other | {"fits": False}, TIES) == 1
    assert compared(other | {"spent": 6}, TIES) == 4
    assert compared(other | {"spent": 6}, TIES, union=True) == 0
    assert compared(other | {"spent": 4}, TIES, union=True) == 4
    assert compared({"used": {"epsilon": 6, "delta": 0, "rho": 3}}, TIES) == 1
