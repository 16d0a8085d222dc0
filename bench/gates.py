"""The gate by itself: admit an event and say what remains, beside accounting libraries."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import diffprivlib
import dp_accounting
import opendp.prelude as dp
from dp_accounting.rdp import RdpAccountant
from pydantic import TypeAdapter

from accountant.budget.accounts import Account, room
from accountant.budget.selection import EVERYONE, Selection
from accountant.privacy.filters import RENYI, Limit, axis_under
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, price
from accountant.privacy.units import Currency

LIMIT = Limit(Fraction(10**6), Fraction(1, 10**6), Fraction(1, 10**7))
CAPACITY, AXIS = RENYI.capacity(LIMIT), axis_under(LIMIT)
[ORDER] = (c.order for c in AXIS if c.order is not None)
ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
PEERS_PAST = 10_000
PER_CALL = 2_000

Rows = list[dict[str, Any]]


def _laplace(scale: str = "1000") -> BaseMechanism:
    return ADAPTER.validate_python({"kind": "laplace", "sensitivity": "1", "scale": scale})


def _admit(account: Account, selection: Selection, mechanism: BaseMechanism) -> int:
    """Prices, compares, books, and returns the units of epsilon that remain."""
    charge = price(mechanism, Relation.ADD_OR_REMOVE_ONE, (ORDER,)).charge.on(account.axis)
    for part in account.used.parts(selection):
        if not room(CAPACITY, part, charge).all():
            raise AssertionError("the limit is meant to be large enough")
    account.book(selection, charge, reserve=False)
    currency = CAPACITY.second_currency
    assert currency is not None  # noqa: S101 the limit has a delta of its own
    largest = [part[AXIS.index(currency)].max() for part in account.used.parts(selection)]
    sums = [part[AXIS.index(Currency.EPSILON)].max() for part in account.used.parts(selection)]
    spent = RENYI.spent(LIMIT, int(max(sums)), int(max(largest)))
    return CAPACITY.epsilon - (spent or 0)


def _each(work: Callable[[], Any], times: int) -> float:
    """Seconds of one call, in the best of three rounds."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, (time.perf_counter() - started) / times)
    return best


def one_cell(folder: Path) -> Rows:
    """Admit one event on one cell and give the new remaining budget; peers at 10^4 past events."""
    account, mechanism = Account.empty((), AXIS), _laplace()
    charge = price(mechanism, Relation.ADD_OR_REMOVE_ONE, (ORDER,)).charge
    rows, done, timings = [], 0, {}
    for past in (100, 10_000, 1_000_000):
        for _ in range(past - done):
            account.book(EVERYONE, charge, reserve=False)
        timings[past] = _each(lambda: _admit(account, EVERYONE, mechanism), PER_CALL)
        done = past + 3 * PER_CALL
        what = f"gate, one cell, {past:.0e} past events"
        rows.append({"what": what, "value": timings[past] * 1e6, "unit": "µs"})
    flat = timings[1_000_000] / timings[100]
    rows.append(
        {"what": "gate, flatness", "value": flat, "unit": "ratio", "beside": "10^6 against 10^2"}
    )
    for name, work, times in (
        ("dp-accounting RDP", _rdp(), 200),
        ("OpenDP odometer", _odometer(), 5),
        ("diffprivlib", _budget_accountant(), 5),
    ):
        seconds = _each(work, times)
        rows.append({"what": f"{name}, append and ask", "value": seconds * 1e6, "unit": "µs"})
        rows.append(
            {
                "what": "gate speed",
                "value": seconds / timings[10_000],
                "unit": "ratio",
                "beside": f"{name}, {PEERS_PAST:,} past events",
            }
        )
    return rows


def _rdp() -> Callable[[], float]:
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=relation)
    event = dp_accounting.LaplaceDpEvent(1000.0)
    accountant.compose(event, PEERS_PAST)

    def append_and_ask() -> float:
        accountant.compose(event)
        return float(accountant.get_epsilon(1e-6))

    return append_and_ask


def _odometer() -> Callable[[], float]:
    dp.enable_features("contrib", "honest-but-curious")
    domain, metric = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    counted = dp.t.make_count(domain, metric) >> dp.m.then_laplace(1000.0)
    odometer = dp.c.make_fully_adaptive_composition(domain, metric, dp.max_divergence())
    queryable = odometer([1, 2, 3])
    for _ in range(PEERS_PAST):
        queryable(counted)

    def append_and_ask() -> float:
        queryable(counted)
        return float(queryable.privacy_loss(1))

    return append_and_ask


def _budget_accountant() -> Callable[[], float]:
    accountant = diffprivlib.BudgetAccountant(10**6, 1e-3)
    # Its own spend() looks at all that was spent before: ten thousand of them take a minute.
    vars(accountant)["_BudgetAccountant__spent_budget"] += [(1e-3, 0)] * PEERS_PAST

    def append_and_ask() -> float:
        accountant.spend(1e-3, 0)
        return float(accountant.total()[0])

    return append_and_ask


def many_cells(_: Path) -> Rows:
    """Admit one event on 100,000 subject cells and give the smallest remaining budget."""
    account, mechanism = Account.empty((400, 317), AXIS), _laplace()
    sides = (frozenset(range(316)), frozenset(range(317)))
    wide = Selection(everyone=False, boxes=(sides,))
    _admit(account, wide, mechanism)
    seconds = _each(lambda: _admit(account, wide, mechanism), 50)
    return [{"what": "gate, 100,172 cells of 126,800", "value": seconds * 1e3, "unit": "ms"}]
