"""The gate by itself: admit an event and say what remains, beside accounting libraries."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import diffprivlib
import dp_accounting
import opendp.prelude as dp
from dp_accounting.rdp import RdpAccountant
from pydantic import TypeAdapter

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.peak import Reading
from accountant.budget.population.population import Membership, Population
from accountant.budget.population.selection import EVERYONE, Range, Selection, select
from accountant.privacy.filters import RENYI, Limit, axis_under
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, price

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
    reading = Reading(account, selection)
    if not reading.fits(charge, CAPACITY):
        raise AssertionError("the limit is meant to be large enough")
    account.book(selection, charge, reserve=False, now=0)
    after = Reading(account, selection)
    _, peak = after.peak(RENYI, LIMIT, charge, CAPACITY)
    spent = RENYI.spent(LIMIT, peak.used[0], peak.used[2:])
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
            account.book(EVERYONE, charge, reserve=False, now=0)
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
    """Admit one event on 50,000 of 100,000 cells and give the smallest remaining budget: as a range
    of values and as scattered ones, compiled as requests are, each time by its own names.
    """
    values = [str(i) for i in range(1_000)]
    people = Population(
        "bench",
        "person",
        Relation.ADD_OR_REMOVE_ONE,
        Membership.PUBLIC,
        (("one", tuple(values)), ("two", tuple(map(str, range(100))))),
    )
    rows, mechanism = [], _laplace()
    for name, most, subjects in (
        ("a range", 1.5, {"one": Range.model_validate({"from": "250", "to": "749"})}),
        ("scattered values", 3, {"one": values[::2]}),
    ):
        account = Account.empty(people.shape, AXIS)
        work = partial(_selected, account, people, subjects, mechanism)
        work()
        seconds = _each(work, 50)
        what = f"gate, 50,000 of 100,000 cells, {name}"
        rows.append(
            {"what": what, "value": seconds * 1e3, "unit": "ms", "beside": f"{most} at most"}
        )
    return rows


def _selected(account: Account, people: Population, subjects: Any, mechanism: BaseMechanism) -> int:
    return _admit(account, select(people, subjects), mechanism)
