"""Which of several requests to admit, so that as much as possible fits: advice, never a decision.

Each request has a weight. The requests that are admitted together are found by asking the rules,
one request after another, on a state that is rolled back: the gates decide, not a formula. What is
looked for is a good order, since a rule knows no other way to choose.

*Efficiency* is the order of DPack (Tholoniat, Kostopoulou, Chowdhury, Cidon, Geambasu, Lecuyer,
Yang, "DPack: Efficiency-Oriented Privacy Budget Scheduling", EuroSys 2025): weight for each unit of
scarce budget, where of each account that currency counts under which most of what is asked for
fits. *Dominant share* is that of PrivateKube (Luo, Pan, Tholoniat, Cidon, Geambasu, Lecuyer,
"Privacy Budget Scheduling", OSDI 2021): those first whose largest share of any account is smallest.
Up to ``MOST_EXACT`` requests all subsets are tried, less those that cannot be better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

from accountant.budget.apply import apply, savepoint
from accountant.budget.commands import AskGrant, Envelope
from accountant.budget.decide import decide
from accountant.budget.errors import Problem
from accountant.budget.outcome import RESERVED, Outcome
from accountant.budget.request import prepare
from accountant.budget.rules.base import Used, View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State
from accountant.budget.waiting.queue import Queue
from accountant.budget.waiting.shares import cells_in
from accountant.privacy.units import Currency, show, units_down

MOST_EXACT: Final = 14
"""Requests of which every subset may be tried."""
_NEXT_TO_NOTHING: Final = 1e-300

Account = tuple[str, str]
"""A rule, and the dataset of its account."""
Shares = dict[tuple[Account, Currency], float]
"""The share of what is left, at the fullest of the cells, that a request would take."""


class Demand(NamedTuple):
    """What a request would take of each account, on how many ``cells``."""

    shares: Shares
    cells: int


class Wish(NamedTuple):
    """A request of a client, and what it is worth."""

    client: str
    ask: AskGrant
    weight: int = 1


class Found(NamedTuple):
    """The places of the requests to admit, in an order in which all of them fit; their ``weight``;
    the name of the order that found them, and whether nothing better exists.
    """

    admitted: tuple[int, ...]
    weight: int
    order: str
    best: bool


def choose(state: State, wishes: Sequence[Wish], now: int) -> Found:
    """Return which of ``wishes`` to admit at stamp ``now``; the state is as it was in the end.
    Raises Problem for a request that is malformed for this ledger.
    """
    found: list[Found] = []
    state = replace(state, waiting=Queue())  # what waits takes no part
    with savepoint(state):
        for name, places in orders(state, wishes, now).items():
            taken = tuple(_admit(state, wishes, places, now))
            found.append(Found(taken, _weight(wishes, taken), name, best=len(taken) == len(wishes)))
    greedy = max(found, key=lambda one: one.weight)
    if greedy.best or len(wishes) > MOST_EXACT:
        return greedy
    taken = _Search(state, wishes, now, greedy).run()
    order = greedy.order if taken == greedy.admitted else "all subsets"
    return Found(taken, _weight(wishes, taken), order, best=True)


def orders(state: State, wishes: Sequence[Wish], now: int) -> dict[str, list[int]]:
    """Return the places of ``wishes`` in each order; the first is that of arrival."""
    demands = [_demand(state, wish, now) for wish in wishes]
    scarce = _scarce([demand.shares for demand in demands])
    shares = [[one.shares[key] for key in scarce if key in one.shares] for one in demands]
    places = range(len(wishes))
    dominant = [max(each, default=0.0) for each in shares]
    taken = [math.fsum(each) * one.cells for each, one in zip(shares, demands, strict=True)]
    efficiency = [wishes[i].weight / max(taken[i], _NEXT_TO_NOTHING) for i in places]
    return {
        "arrival": list(places),
        "dominant share": sorted(places, key=lambda i: (dominant[i], i)),
        "efficiency": sorted(places, key=lambda i: (-efficiency[i], i)),
    }


def _demand(state: State, wish: Wish, now: int) -> Demand:
    """Return what a request would take. The blocks that DPack adds over are cells of accounts."""
    request = prepare(state, wish.client, wish.ask, now)
    found: Shares = {}
    for rule, one in _blocking(state, View(state, request)):
        axis = one.reading.account.axis
        charge, account = one.charge.on(axis), (rule.id, one.dataset)
        for currency, most in one.epoch.capacity.sides:
            units, used = charge.units(currency), one.reading.most(axis.index(currency))
            left = 0 if used is None else most - used
            never = units is None or units > left
            found[account, currency] = math.inf if never else (units or 0) / max(left, 1)
    return Demand(found, cells_in(request.selection, state.people().shape))


def _scarce(demands: Sequence[Shares]) -> set[tuple[Account, Currency]]:
    """Return by which currency each account counts: of epsilon and the gate's own, of which one has
    to fit, that under which most requests fit one by one, the smallest first; and delta beside.
    """
    by_account: dict[Account, dict[Currency, list[float]]] = {}
    for demand in demands:
        for (key, currency), share in demand.items():
            by_account.setdefault(key, {}).setdefault(currency, []).append(share)
    found = set()
    for key, currencies in by_account.items():
        others = [currency for currency in currencies if currency != Currency.DELTA]
        found.add((key, max(others, key=lambda c: (_fit(currencies[c]), -others.index(c)))))
        found.add((key, Currency.DELTA))
    return found


def _fit(shares: list[float]) -> int:
    """Return how many shares fit into one, the smallest first."""
    total, count = 0.0, 0
    for share in sorted(shares):
        total += share
        if total > 1:
            break
        count += 1
    return count


def _admit(state: State, wishes: Sequence[Wish], order: Sequence[int], now: int) -> Iterator[int]:
    """Yield the places of what fits, asked in ``order``; everything is taken back afterwards."""
    with savepoint(state):
        for place in order:
            if (outcome := _granted(state, wishes, place, now)) is not None:
                apply(state, outcome)
                yield place


def _granted(state: State, wishes: Sequence[Wish], place: int, now: int) -> Outcome | None:
    wish = wishes[place]
    asked = Envelope(wish.client, wish.ask, f"planned-{state.sequence}-{place}")
    try:
        outcomes = decide(state, asked, now)
    except Problem:
        return None
    found = outcomes[0] if isinstance(outcomes, list) and outcomes else None
    return found if found is not None and found.entry.type == RESERVED else None


def _weight(wishes: Sequence[Wish], taken: Sequence[int]) -> int:
    return sum(wishes[place].weight for place in taken)


class _Search:
    """All subsets, in the order of efficiency; a branch ends where it cannot be better."""

    def __init__(self, state: State, wishes: Sequence[Wish], now: int, start: Found) -> None:
        self._state, self._wishes, self._now = state, wishes, now
        self._order = orders(state, wishes, now)["efficiency"]
        self._best, self._weight = start.admitted, start.weight
        weights = [wishes[place].weight for place in self._order]
        self._rest = [sum(weights[at:]) for at in range(len(weights) + 1)]

    def run(self) -> tuple[int, ...]:
        """Return the heaviest subset that fits."""
        with savepoint(self._state):
            self._try(0, (), 0)
        return self._best

    def _try(self, at: int, taken: tuple[int, ...], weight: int) -> None:
        if weight > self._weight:
            self._best, self._weight = taken, weight
        if at == len(self._order) or weight + self._rest[at] <= self._weight:
            return
        place = self._order[at]
        if (outcome := _granted(self._state, self._wishes, place, self._now)) is not None:
            with savepoint(self._state):
                apply(self._state, outcome)
                self._try(at + 1, (*taken, place), weight + self._wishes[place].weight)
        self._try(at + 1, taken, weight)


def left_after(state: State, wishes: Sequence[Wish], found: Found, now: int) -> dict[str, str]:
    """Return the least epsilon that each blocking limit has left, in any cell that is asked for,
    once all that is admitted is reserved.
    """
    least: dict[str, int] = {}
    state = replace(state, waiting=Queue())
    with savepoint(state):
        for place in found.admitted:
            if (outcome := _granted(state, wishes, place, now)) is not None:
                apply(state, outcome)
        for wish in wishes:
            view = View(state, prepare(state, wish.client, wish.ask, now))
            for rule, one in _blocking(state, view):
                left = _left(rule, one)
                least[rule.id] = min(left, least.get(rule.id, left))
    return {rule: show(units, Currency.EPSILON) for rule, units in least.items()}


def _blocking(state: State, view: View) -> Iterator[tuple[LimitRule, Used]]:
    for rule in state.adopted.policy.limits if state.adopted else ():
        if rule.action == "block":
            for one in view.used(rule.id):
                yield rule, one


def _left(rule: LimitRule, one: Used) -> int:
    axis, reading = one.reading.account.axis, one.reading
    sums = [reading.most(axis.index(currency)) for currency, _ in one.epoch.capacity.sides]
    spent = rule.filter.spent(one.epoch.limit, sums[0], sums[2:])
    limit = units_down(Fraction(rule.limit.epsilon), Currency.EPSILON)
    return 0 if spent is None else max(limit - spent, 0)
