"""Filters against an attacker who chooses each next mechanism after seeing the earlier answers.

``attacker`` explains the game and the search. Valid filters keep it at or below their delta;
the same search beats filters that are known to be wrong, so it is strong enough to mean something.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import log1p
from pathlib import Path
from typing import Any

import mpmath
import pytest
from attacker import (
    Admits,
    Finite,
    Run,
    admission,
    best_attack,
    both,
    fits,
    grid,
    real,
    response,
    responses,
    revealing,
    spike,
    spikes,
    unvalued,
    within,
)
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accountant.privacy.conversions import intercept
from accountant.privacy.filters import FILTERS, Capacity, Filter, Limit, fixed_order
from accountant.privacy.losses import UNBOUNDED, pure
from accountant.privacy.units import NOTHING, Currency, charge_of, orders_in

BASIC, *SECOND = FILTERS.values()
ADVANCED, ZCDP, RENYI, GDP = SECOND
"""The filters that admit beside basic."""


@cache
def menu_for(limit: Limit) -> list[Finite]:
    """Mechanisms around the sizes that matter under ``limit``, made once: that takes long."""
    [squares] = ADVANCED.capacity(limit).along
    step = math.sqrt(squares / 1e15)
    ratios = {
        Fraction(math.exp(step / math.sqrt(n)) * 0.9999).limit_denominator(997)
        for n in (1, 2, 3, 4)
    }
    ratios.add(Fraction(math.exp(float(limit.epsilon)) * 0.9999).limit_denominator(997))
    ratios = {ratio for ratio in ratios if ratio > 1}
    menu = [response(r) for r in sorted(ratios)]
    menu += [spike(max(ratios), Fraction(1, 10)), spike(min(ratios), Fraction(1, 20))]
    whole, own = limit.delta, limit.own_delta
    menu += [revealing(d) for d in {whole, own, own / 2} if d]
    if own:
        menu.append(both(min(ratios), own / 2))
    return menu


@cache
def families_for(limit: Limit) -> list[list[Finite]]:
    """Families of which the attacker takes the largest member that just fits."""
    epsilon = float(limit.epsilon)
    found = [responses(limit)]
    found += [spikes(limit, loss) for loss in (epsilon * 1.0001, 1.5 * epsilon, 4 * epsilon, 40)]
    return found


@cache
def openers(limit: Limit) -> list[Finite]:
    """First steps that leave the attacker on paths of different likelihood."""
    ratio = grid(math.exp(float(limit.epsilon) * 0.9))
    rare = [Fraction(1, 1000), Fraction(1, 20), limit.delta]
    return [spike(ratio, chance) for chance in rare] + [response(grid(math.sqrt(float(ratio))))]


LIMITS = [
    Limit(Fraction("0.5"), Fraction("0.4"), Fraction("0.04")),
    Limit(Fraction(1), Fraction("0.5"), Fraction("0.2")),
    Limit(Fraction(2), Fraction("0.6"), Fraction("0.06")),
    Limit(Fraction("0.1"), Fraction("0.3"), Fraction("0.03")),
]
"""Large deltas, so that the second filter admits what basic does not within four steps."""

SMALL = [
    Limit(Fraction(1), Fraction("1e-6"), Fraction("1e-7")),
    Limit(Fraction(3), Fraction("1e-3"), Fraction("1e-4")),
    Limit(Fraction("0.3"), Fraction("1e-2"), Fraction("1e-3")),
]
"""Deltas as people use them: what matters there are rare answers that just fit."""


@pytest.mark.parametrize("limit", [*LIMITS, *SMALL], ids=str)
def test_the_menus_are_what_they_say(limit: Limit) -> None:
    """Every mechanism that the attacker may use has the privacy that it is charged for."""
    assert all(m.exact() for m in [*menu_for(limit), *openers(limit)])
    assert all(m.exact() for family in families_for(limit) for m in family)


@pytest.mark.parametrize("filter_", FILTERS.values(), ids=lambda filter_: filter_.name)
@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_no_adaptive_attack_gets_past_the_filter(limit: Limit, filter_: Filter) -> None:
    """The best adaptive tree's exact delta stays within the limit's delta."""
    split = limit if filter_ is not BASIC else Limit(limit.epsilon, limit.delta, limit.delta)
    found = best_attack(limit, menu_for(limit), admission(filter_, split), depth=4)
    assert within(found, limit.delta)
    assert found > 0  # the attacker does get somewhere


@pytest.mark.parametrize("filter_", SECOND, ids=lambda filter_: filter_.name)
@pytest.mark.parametrize("limit", [*LIMITS, *SMALL], ids=str)
def test_no_attack_that_fills_the_filter_gets_past_it(limit: Limit, filter_: Filter) -> None:
    """Filling each path to the brim with what suits it does not pass a filter either."""
    menu = [*openers(limit), revealing(limit.own_delta)]
    found = best_attack(limit, menu, admission(filter_, limit), 3, families_for(limit))
    assert within(found, limit.delta)
    assert not within(found, limit.own_delta * 99 / 100)  # the revealing event reaches that


def min_over_orders(limit: Limit, orders: tuple[int, ...]) -> Admits:
    """The wrong filter of several published schedulers: the best order is taken anew each time."""

    @cache
    def lines() -> list[tuple[Fraction, Fraction]]:
        return [(Fraction(a), intercept(Fraction(a), limit.delta)) for a in orders]

    def admits(path: Run, mechanism: Finite) -> bool:
        run = (*path, mechanism)
        if any(m.delta for m in run):
            return False
        return any(sum(m.divergence(a) for m in run) + c <= limit.epsilon for a, c in lines())

    return admits


def natural(limit: Limit) -> Admits:
    """The wrong filter that composes the privacy loss distribution of the path that was taken."""

    def admits(path: Run, mechanism: Finite) -> bool:
        pairs = [(1.0, 1.0)]
        for m in (*path, mechanism):
            outcomes = [(float(a), float(b)) for a, b in zip(m.p, m.q, strict=True)]
            pairs = [(p * a, q * b) for p, q in pairs for a, b in outcomes]
        bound = math.exp(float(limit.epsilon))
        forth = sum(max(0.0, p - bound * q) for p, q in pairs)
        back = sum(max(0.0, q - bound * p) for p, q in pairs)
        return max(forth, back) <= float(limit.delta)

    return admits


@pytest.mark.parametrize("limit", SMALL[:2], ids=str)
def test_the_attacker_beats_a_minimum_over_orders(limit: Limit) -> None:
    """Continuing while the smallest epsilon over the orders so far is within the limit is no
    filter: the search finds a tree with more than the delta.
    """
    low = fixed_order(limit.epsilon, limit.delta)
    high, loss = 20 * low, 0.05 * float(limit.epsilon)
    # Behind a rare answer many times the delta may be spent, where a high order converts best.
    rare = spike(grid(math.exp(loss)), grid(min(0.3, 2 * high * float(limit.delta))))
    losses = [float(limit.epsilon) - log1p(-1 / a) for a in (low, high)]
    families = [spikes(limit, at) for at in (losses[0], losses[1] - loss)]
    found = best_attack(limit, [rare], min_over_orders(limit, (low, high)), 2, families)
    assert found > 1.3 * real(limit.delta)


@pytest.mark.parametrize("limit", SMALL[:2], ids=str)
def test_orders_that_share_the_delta_withstand_that_attack(limit: Limit) -> None:
    """The same steps, and the largest of each family that just fits, do not get past lines at both
    orders, whose parts of delta' add up to it.
    """
    low = fixed_order(limit.epsilon, limit.delta)
    shared = replace(limit, orders=(20 * low, low))
    loss = 0.05 * float(limit.epsilon)
    rare = spike(grid(math.exp(loss)), grid(min(0.3, 40 * low * float(limit.delta))))
    losses = [float(limit.epsilon) - log1p(-1 / a) for a in (low, 20 * low)]
    families = [spikes(limit, at) for at in (losses[0], losses[1] - loss)]
    menu = [rare, revealing(limit.own_delta)]
    found = best_attack(shared, menu, admission(RENYI, shared), 3, families)
    assert within(found, limit.delta)


@pytest.mark.parametrize("limit", SMALL, ids=str)
def test_the_attacker_beats_a_privacy_loss_distribution(limit: Limit) -> None:
    """Continuing while the path's own composed curve is within delta is no filter."""
    found = best_attack(limit, openers(limit), natural(limit), 2, families_for(limit))
    assert found > 1.5 * real(limit.delta)


@pytest.mark.parametrize("filter_", SECOND, ids=lambda filter_: filter_.name)
@pytest.mark.parametrize("limit", LIMITS[:3], ids=str)
def test_the_attacker_beats_a_filter_without_the_delta_split(limit: Limit, filter_: Filter) -> None:
    """With the full delta for both, "basic or this filter" is no filter; the search shows it."""
    whole = Limit(limit.epsilon, limit.delta, Fraction(0))
    capacity = filter_.capacity(whole)
    unsplit = Capacity(
        capacity.epsilon,
        BASIC.capacity(Limit(limit.epsilon, limit.delta, limit.delta)).own_delta,
        capacity.along,
        capacity.currencies,
    )
    admits, told = admission(filter_, whole, unsplit), revealing(limit.delta)
    found = best_attack(whole, [*openers(limit), told], admits, 3, families_for(limit))
    if within(found, limit.delta):
        found = best_attack(whole, [*menu_for(limit), told], admits, 4)
    assert not within(found, limit.delta)


@pytest.mark.parametrize("filter_", SECOND, ids=lambda filter_: filter_.name)
@pytest.mark.parametrize("delta", ["0.3", "1e-3", "1e-6"])
def test_the_attacker_beats_a_filter_that_skips_what_it_cannot_value(
    delta: str, filter_: Filter
) -> None:
    """A filter that books nothing for a charge without a value in its currency can be overspent."""
    limit = Limit(Fraction(1), Fraction(delta), Fraction(delta) / 10)
    currencies = filter_.currencies(limit)
    largest = max(menu_for(limit), key=lambda mechanism: mechanism.ratio)
    menu = [*menu_for(limit), unvalued(largest, *currencies)]
    assert not within(best_attack(limit, menu, admission(filter_, limit), depth=4), limit.delta)


ratios = st.builds(lambda n, d: Fraction(n + d, d), st.integers(1, 30), st.integers(10, 40))
chances = st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100)


@settings(max_examples=examples(20), deadline=None)
@given(
    st.sampled_from(SECOND),
    st.lists(st.one_of(ratios.map(response), st.builds(spike, ratios, chances)), max_size=3),
    st.lists(
        st.builds(both, ratios, st.sampled_from([Fraction(1, 50), Fraction(1, 20)])), max_size=2
    ),
    st.fractions(Fraction(1, 5), 2, max_denominator=20),
    st.fractions(Fraction(1, 10), Fraction(7, 10), max_denominator=20),
    st.fractions(Fraction(1, 10), Fraction(9, 10), max_denominator=10),
)
def test_no_random_menu_gets_past_the_filter(
    filter_: Filter,
    pure: list[Finite],
    approximate: list[Finite],
    epsilon: Fraction,
    delta: Fraction,
    part: Fraction,
) -> None:
    """Whatever mechanisms and limit: the best adaptive tree stays within the limit's delta."""
    menu = pure + approximate
    assume(menu)
    assert all(mechanism.exact() for mechanism in menu)
    limit = Limit(epsilon, delta, delta * part)
    assert within(best_attack(limit, menu, admission(filter_, limit), depth=4), delta)


@pytest.mark.parametrize("filter_", SECOND, ids=lambda filter_: filter_.name)
@pytest.mark.parametrize(
    ("epsilon", "delta", "each"),
    [("1", "1e-6", "0.05"), ("0.3", "0.2", "0.05"), ("2", "1e-2", "0.2")],
)
def test_a_long_adaptive_ladder_stays_within_delta(
    epsilon: str, delta: str, each: str, filter_: Filter
) -> None:
    """Randomised response as often as the filter admits, stopped at the best moment on every path,
    with a revealing event of all the own delta on top, stays within delta.
    """
    whole = Fraction(delta)
    limit = Limit(Fraction(epsilon), whole, whole / 10)
    capacity = filter_.capacity(limit)
    charge = charge_of(pure(Fraction(each)), 1, orders_in(capacity.currencies))
    along = zip(capacity.currencies, capacity.along, strict=True)
    steps = max(
        capacity.epsilon // charge[Currency.EPSILON],
        *(most // charge[currency] for currency, most in along),
    )
    with mpmath.workdps(60):
        e = mpmath.exp(real(Fraction(each)))
        up, down = e / (1 + e), 1 / (1 + e)
        bound, own = mpmath.exp(real(limit.epsilon)), real(limit.own_delta)
        # On a path with n answers, u of them up, P = up^u down^(n-u), and Q has u and n-u swapped.
        values = [mpmath.mpf(0)] * (steps + 1)
        for n in range(steps, -1, -1):
            for u in range(n + 1):
                p, q = up**u * down ** (n - u), up ** (n - u) * down**u
                # Stopping here, after asking the revealing event: it tells all with delta'',
                # and otherwise leaves the path as it is.
                stop = own * p + (1 - own) * max(mpmath.mpf(0), p - bound * q)
                go = values[u] + values[u + 1] if n < steps else stop
                values[u] = max(stop, go)
        assert values[0] <= real(whole)
        assert values[0] > own * (1 - own) ** 2  # the revealing event alone reaches that


GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "counterexamples.json").read_text())


def stored(pair: dict[str, list[float]]) -> Finite:
    """A stored mechanism of two answers."""
    (a, _), (b, _) = (list(map(Fraction, pair[side])) for side in ("p", "q"))
    ratios = [a / b, b / a, (1 - a) / (1 - b), (1 - b) / (1 - a)]
    return Finite(str(pair), (a, 1 - a), (b, 1 - b), max(ratios))


@pytest.mark.parametrize("tree", GOLDEN["trees"], ids=lambda tree: tree["name"])
def test_a_stored_counterexample_is_refused_by_every_filter(tree: dict[str, Any]) -> None:
    """A two-step tree that has twice the delta passes the wrong filter on every path. No filter of
    ours admits all of its paths.
    """
    epsilon, delta = Fraction(GOLDEN["epsilon"]), Fraction(GOLDEN["delta"])
    first, seconds = stored(tree["first"]), [stored(pair) for pair in tree["second"]]
    slack = Fraction(1000001, 10**6)
    loose = Limit(epsilon * slack, delta * slack)
    orders = tuple(tree.get("orders", ()))
    wrong = min_over_orders(loose, orders) if orders else natural(loose)
    assert wrong((), first)
    assert all(wrong((first,), second) for second in seconds)
    bound = math.exp(float(epsilon))
    reached = sum(
        max(0.0, float(a * x) - bound * float(b * y))
        for a, b, second in zip(first.p, first.q, seconds, strict=True)
        for x, y in zip(second.p, second.q, strict=True)
    )
    assert reached / float(delta) == pytest.approx(tree["ratio"], rel=1e-6)
    for filter_ in SECOND:
        admits = admission(filter_, Limit(epsilon, delta))
        assert not (admits((), first) and all(admits((first,), m) for m in seconds))


def test_infinite_charges_never_fit() -> None:
    """A mechanism without any bound is admitted by no filter, however large the limit."""
    for filter_ in FILTERS.values():
        limit = Limit(Fraction(10**6), Fraction(9, 10), Fraction(1, 10))
        charge = charge_of(UNBOUNDED, 1, orders_in(filter_.currencies(limit)))
        assert not fits(NOTHING.on(charge.axis), charge, filter_.capacity(limit))
