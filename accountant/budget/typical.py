"""What limits make of typical work, and what it costs that a changed limit keeps its Renyi orders.

It informs those who write and adopt policies. No decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from accountant.budget.accounts.epochs import Start, adopted_by
from accountant.budget.rules.limit import LimitRule
from accountant.ledger.events import Event
from accountant.privacy.filters import RENYI, Limit, parts_of
from accountant.privacy.inverse import Total, best_order
from accountant.privacy.mechanisms import Mechanism, Relation, price
from accountant.privacy.units import Charge, Currency, decimal_of, orders_in, total

_ONE: Final = {"sensitivity": "1"}
TYPICAL: Final[dict[str, list[dict[str, Any]]]] = {
    "Laplace noise, epsilon 0.01": [{"kind": "laplace", "scale": "100"} | _ONE],
    "Laplace noise, epsilon 0.1": [{"kind": "laplace", "scale": "10"} | _ONE],
    "Gaussian noise, sigma 20": [{"kind": "gaussian", "scale": "20"} | _ONE],
    "a step of DP-SGD, rate 0.01, sigma 1.1": [
        {"kind": "gaussian", "scale": "1.1", "sampling": {"poisson": "0.01"}} | _ONE
    ],
    "a step of DP-SGD, rate 0.001, sigma 0.8": [
        {"kind": "gaussian", "scale": "0.8", "sampling": {"poisson": "0.001"}} | _ONE
    ],
    "a step of DP-SGD, rate 0.1, sigma 4": [
        {"kind": "gaussian", "scale": "4", "sampling": {"poisson": "0.1"}} | _ONE
    ],
}
_ADAPTER: Final[TypeAdapter[list[Mechanism]]] = TypeAdapter(
    list[Mechanism], config=ConfigDict(defer_build=True)
)


def work_of(rule: LimitRule, relation: Relation) -> Iterator[tuple[str, Total]]:
    """Yield typical work by its name, and the rule's own workload, with what a run costs."""
    for name, each in TYPICAL.items():
        yield name, total_of(_ADAPTER.validate_python(each), relation)
    if rule.workload:
        yield "the rule's workload", total_of(rule.workload, relation)


def total_of(mechanisms: Sequence[Mechanism], relation: Relation) -> Total:
    """Return the total cost of mechanisms as a function of the Renyi orders."""
    return lambda orders: total(price(one, relation, orders).charge for one in mechanisms)


def chosen_afresh(rule: LimitRule, relation: Relation) -> Limit:
    """Return the limit of ``rule`` with the orders that it would have if nothing were used."""
    return replace(rule.promise, orders=rule.orders_for(total_of(rule.workload or (), relation)))


def runs(rule: LimitRule, limit: Limit, total_at: Total) -> int:
    """Return how often something fits ``limit`` under the gate of ``rule``."""
    capacity = rule.filter.capacity(limit)
    charge: Charge = total_at(orders_in(capacity.currencies))
    counts = [
        most // units
        for currency, most in capacity.sides
        if currency != Currency.DELTA and (units := charge.units(currency))
    ]
    return max(0, *counts, 0)


def fits(rule: LimitRule, limit: Limit, total_at: Total) -> dict[str, Any]:
    """Return how many runs fit, and how many would at the best order."""
    found: dict[str, Any] = {"fits": runs(rule, limit, total_at)}
    if rule.filter is not RENYI:
        return found
    if (order := best_order(limit, total_at)) is None:
        return found
    best = runs(rule, replace(limit, chosen=None, orders=(order,)), total_at)
    return found | {"best": best, "order": decimal_of(order)}


def orders_of(rule: LimitRule, limit: Limit) -> list[str]:
    """Return the Renyi orders of a limit as decimals."""
    return list(map(decimal_of, orders_in(rule.filter.currencies(limit))))


def kept_orders(adopted: Event, relation: Relation) -> list[dict[str, Any]]:
    """Return, for each limit that goes on at its former Renyi orders under the policy that an event
    ``adopted``, these orders, those that it would choose ``afresh``, and how often typical work
    fits an unused budget with either.
    """
    found, epochs = adopted_by(adopted), adopted.body["epochs"]
    return [
        told
        for rule in found.policy.limits
        if epochs[rule.id]["start"] == Start.CARRIED.name.lower()
        for told in [_kept(rule, found.epochs[rule.id].limit, relation)]
        if told is not None
    ]


def _kept(rule: LimitRule, limit: Limit, relation: Relation) -> dict[str, Any] | None:
    if rule.filter is not RENYI:
        return None
    afresh = chosen_afresh(rule, relation)
    if parts_of(limit) == parts_of(afresh):
        return None
    return {
        "rule": rule.id,
        "orders": orders_of(rule, limit),
        "afresh": orders_of(rule, afresh),
        "work": [
            {
                "name": name,
                "fits": runs(rule, limit, total_at),
                "afresh": runs(rule, afresh, total_at),
            }
            for name, total_at in work_of(rule, relation)
        ],
    }
