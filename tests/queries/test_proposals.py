"""Propose, test, release: the distance is the true one, and a wrong release is rare."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people, without_first
from empirical import lower_bound
from opening import Opens
from priced import epsilon_of

from accountant.client import Client
from accountant.queries import Query, order
from accountant.queries.proposals import Proposal, interquartile_range, median

MOST, REACH, LARGEST = 3, 1, 9
Values = tuple[int, ...]


def neighbours(values: Values, replaced: bool) -> list[Values]:
    """All data that differ by one unit."""
    less = {values[:i] + values[i + 1 :] for i in range(len(values))}
    if replaced:
        return [tuple(sorted((*rest, new))) for rest in less for new in range(MOST + 1)]
    more = {tuple(sorted((*values, new))) for new in range(MOST + 1)}
    return [*less, *more]


@cache
def distances(share: Fraction, replaced: bool, size: int) -> dict[Values, int]:
    """Return how far all data are, of one size or up to the largest, from such on which a unit
    moves the quantile by more than REACH. A search finds it that begins at these.
    """
    sizes = [size] if replaced else range(LARGEST + 1)
    everything = [v for n in sizes for v in combinations_with_replacement(range(MOST + 1), n)]
    at = {v: order.quantile(np.array(v, dtype=np.int64), share) for v in everything}
    known = set(everything)
    beside = {v: [w for w in neighbours(v, replaced) if w in known] for v in everything}
    broken = [v for v in everything if any(abs(at[v] - at[w]) > REACH for w in beside[v])]
    found, queue = dict.fromkeys(broken, 0), deque(broken)
    while queue:
        values = queue.popleft()
        for other in beside[values]:
            if other not in found:
                found[other] = found[values] + 1
                queue.append(other)
    return found


@pytest.mark.parametrize("share", order.SHARES)
@pytest.mark.parametrize("size", range(1, 8))
def test_the_distance_of_replacements_is_exact(share: Fraction, size: int) -> None:
    """On all small data it is the length of the shortest way to data that break the bound."""
    for values, distance in distances(share, True, size).items():
        assert order.to_replace(np.array(values), share, REACH, MOST) == distance, values


@pytest.mark.parametrize("share", order.SHARES)
def test_the_distance_of_comings_and_goings_is_exact(share: Fraction) -> None:
    """The same where units come and go. Data that are as large as the search goes are left out:
    the shortest way may lead through larger ones.
    """
    seen = 0
    for values, distance in distances(share, False, 0).items():
        if len(values) + distance <= LARGEST - 1:
            found = order.to_add_or_remove(np.array(values, dtype=np.int64), share, REACH, MOST)
            assert found == distance, values
            seen += distance > 0
    assert seen > 50


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("share", order.SHARES)
def test_one_unit_changes_the_distance_by_one(share: Fraction, replaced: bool) -> None:
    """On random data of hundreds of units, a unit changes the distance by 1 at most."""
    numbers = np.random.default_rng(3)
    how = order.to_replace if replaced else order.to_add_or_remove
    for _ in range(60):
        size = int(numbers.integers(1, 300))
        values = np.sort(numbers.normal(500, 200, size).clip(0, 1000).astype(np.int64))
        other = np.delete(values, numbers.integers(size))
        if replaced:
            other = np.sort(np.append(other, numbers.integers(1001)))
        reach = int(numbers.integers(1, 40))
        far = [how(each, share, reach, 1000) for each in (values, other)]
        assert abs(far[0] - far[1]) <= 1


# -- what is charged -------------------------------------------------------------------------------


def ages(low: int, high: int, size: int = 201) -> dict[str, Any]:
    """People, half of them of one age and half of another."""
    return people(size) | {"age": np.array([low] * (size // 2) + [high] * (size - size // 2))}


@pytest.mark.parametrize("ask", [median, interquartile_range])
def test_the_charge_is_what_was_asked_for(ask: Any, comes_and_goes: Client) -> None:
    """The preview shows at most the epsilon and the delta, and nearly these."""
    query = ask(dataset(comes_and_goes, people(60)), "age", bound=4, epsilon=1, delta="1e-9")
    [step] = query.steps
    charge = query.cost(purpose="test").charge
    assert Decimal("0.99") < charge["epsilon"] <= 1
    assert Decimal("0.4e-9") < charge["delta"] <= Decimal("1e-9")  # the threshold is whole
    assert epsilon_of(step.mechanism) <= 1
    assert Fraction(step.test.drawn) == step.test.scale


def test_a_private_group_is_charged_no_more(opened: Opens) -> None:
    """Where who is in a group is private, what the service books for the two is as asked for."""
    survey = dataset(opened("replace_one", "private"), people(60)).where(country="CH")
    query = median(survey, "age", bound=4, epsilon=1, delta="1e-9")
    charge = query.cost(purpose="test").charge
    assert Decimal("0.99") < charge["epsilon"] <= 1
    assert Decimal("0.4e-9") < charge["delta"] <= Decimal("1e-9")  # the threshold is whole


def test_a_dense_median_is_released_within_its_error(comes_and_goes: Client) -> None:
    """Data far from breaking the bound pass, and the median has noise for the bound alone: much
    less than for the whole range.
    """
    numbers = np.random.default_rng(5)
    rows = people(4000) | {"age": np.clip(numbers.normal(40, 10, 4000), 0, 100).astype(int)}
    query = median(dataset(comes_and_goes, rows), "age", bound=2, epsilon=2, delta="1e-9")
    answer = query.release(purpose="test")
    assert abs(answer.value - np.sort(rows["age"])[1999]) <= query.error(0.999999).amount
    assert query.error().amount < 10
    [step] = query.steps
    assert step.far(np.sort(rows["age"])) > step.passes(0.001)
    spread = interquartile_range(
        dataset(comes_and_goes, rows), "age", bound=4, epsilon=2, delta="1e-9"
    )
    found = np.subtract(*np.sort(rows["age"])[[2999, 999]])
    value = spread.release(purpose="test").value
    assert abs(value - found) <= spread.error(0.999999).amount


def test_the_test_passes_as_often_as_stated(replaces: Client) -> None:
    """From the distance that ``passes`` names, nearly all tests pass; at the threshold half do."""
    survey = dataset(replaces, ages(40, 40))
    [step] = median(survey, "age", bound=4, epsilon="0.5", delta="0.01").steps
    assert isinstance(step, Proposal)
    for far, least, most in ((step.passes(0.1), 0.87, 0.97), (step.threshold, 0.2, 0.55)):
        passed = np.array(step.test.many(round(far), 4000)) > step.threshold
        assert least < passed.mean() < most


def test_nothing_is_released_of_data_that_break_the_bound(comes_and_goes: Client) -> None:
    """A median between two far values is not released, and the answer says so; it is charged."""
    rows = ages(10, 90)
    answer = median(dataset(comes_and_goes, rows), "age", bound=4, epsilon=1, delta="1e-9").release(
        purpose="test"
    )
    assert answer.value is None
    assert answer.error.amount == float("inf")
    assert answer.receipt.charge["epsilon"] > Decimal("0.99")


# -- the empirical epsilon -------------------------------------------------------------------------

TIMES = 4000
EPSILON, DELTA = 2.0, 0.05


def drawn(draw: Any, times: int) -> list[float]:
    """So many draws; -1000 for nothing."""
    found = [draw() for _ in range(times)]
    return [-1000.0 if each is None else float(each) for each in found]


def pair(ledger: Client, rows: Any) -> tuple[Query, Query]:
    """The query on data and without their first unit."""
    asked = {"bound": 2, "epsilon": EPSILON, "delta": DELTA}
    one, other = (
        median(dataset(ledger, each), "age", **asked) for each in (rows, without_first(rows))
    )
    assert one.steps == other.steps
    return one, other


def broken() -> Any:
    """People of two ages, as many of each: without the first the median jumps to the other."""
    return people(40) | {"age": np.array([10] * 20 + [90] * 20)}


def dense() -> Any:
    """People of ages two years apart: without the first the median moves by the bound."""
    return people(41) | {"age": np.arange(10, 92, 2)}


@pytest.mark.parametrize("make", [broken, dense])
def test_no_event_refutes_the_charge(make: Any, comes_and_goes: Client) -> None:
    """Thousands of draws on neighbours refute no more than epsilon at delta, whether the data break
    the bound or are far from it.
    """
    one, other = pair(comes_and_goes, make())
    [step] = one.steps
    found = [np.array(drawn(step.ready(*each.values()), TIMES)) for each in (one, other)]
    assert lower_bound(*found, DELTA) < EPSILON


def test_a_release_without_a_test_is_found_out(comes_and_goes: Client) -> None:
    """The same test refutes the charge where everything is released."""
    one, other = pair(comes_and_goes, broken())
    [step] = one.steps
    weak = replace(step, threshold=-(10**6))
    found = [np.array(drawn(weak.ready(*each.values()), TIMES)) for each in (one, other)]
    assert lower_bound(*found, DELTA) > EPSILON


def test_a_test_without_noise_is_found_out(comes_and_goes: Client) -> None:
    """The same test refutes the charge where the distance has no noise: whether there is a release
    then tells the distance.
    """
    rows = people(42) | {"age": np.array([10] * 20 + [90] * 22)}
    one, other = pair(comes_and_goes, rows)
    [step] = one.steps
    far = [step.far(*each.values()) for each in (one, other)]
    assert far[0] != far[1]
    weak = replace(step, threshold=min(far), test=replace(step.test, scale=Fraction(1, 1000)))
    found = [np.array(drawn(weak.ready(*each.values()), TIMES)) for each in (one, other)]
    assert lower_bound(*found, DELTA) > EPSILON


def test_bad_proposals_are_refused(comes_and_goes: Client, opened: Opens) -> None:
    """What makes no sense is refused before anything is asked for."""
    survey = dataset(comes_and_goes, people(40) | {"who": np.arange(40) // 2})
    sound = {"bound": 4, "epsilon": 1, "delta": "1e-9"}
    for wrong, why in (
        ({"bound": 0}, "the bound must be more than 0"),
        ({"bound": "0.5"}, "less than a step"),
        ({"bound": 100}, "no less than the column's bounds allow"),
        ({"delta": 0}, "delta is more than 0"),
        ({"delta": "0.5"}, "less than 1/2"),
        ({"epsilon": 0}, "epsilon must be more than 0"),
        ({"step": -1}, "the step must be more than 0"),
    ):
        with pytest.raises(ValueError, match=why):
            median(survey, "age", **{**sound, **wrong})
    several = dataset(comes_and_goes, people(40), records_per_unit=2)
    with pytest.raises(ValueError, match="units of one record each"):
        median(several, "age", **sound)
    some = dataset(opened("replace_one"), people(40)).where(colour="red")
    with pytest.raises(ValueError, match="may also come or go"):
        median(some, "age", **sound)
