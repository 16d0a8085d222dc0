"""policy lint: what the limits of a policy make of typical work, before anybody adopts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

import typer
from pydantic import TypeAdapter
from rich.table import Table

from accountant.budget.policy_file import parse_policy
from accountant.budget.rules.limit import LimitRule, sides
from accountant.cli import common
from accountant.privacy.filters import RENYI, Limit
from accountant.privacy.inverse import Total, best_order
from accountant.privacy.mechanisms import Mechanism, Relation, price
from accountant.privacy.units import Charge, Currency, decimal_of, orders_in, total

policy = typer.Typer(help="Look at policy files.", no_args_is_help=True)
common.app.add_typer(policy, name="policy")

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
_ADAPTER: Final[TypeAdapter[list[Mechanism]]] = TypeAdapter(list[Mechanism])


@policy.command()
def lint(
    file: Annotated[str, typer.Argument(help="a policy file; - reads standard input")],
    neighbouring: Annotated[
        Relation, typer.Option(help="the population's neighbouring relation")
    ] = Relation.ADD_OR_REMOVE_ONE,
    json: common.JsonOption = False,
) -> None:
    """Show how often typical work fits each limit of a policy, and its own workload.

    Beside it stands how often it would fit at the Renyi order that is best for it, which the rule
    can state, or leave to a `workload`.
    """
    found, _ = parse_policy(common.read_bytes(file).decode())
    rows = [_row(rule, neighbouring) for rule in found.limits]
    if json or not common.out.is_terminal:
        common.print_json({"neighbouring": neighbouring.value, "limits": rows})
        return
    for row in rows:
        orders = f" (orders: {', '.join(row['orders'])})" if row["orders"] else ""
        title = f"{row['rule']}: {row['gate']}{orders}"
        table = Table("work", "fits", "at its best order", "worth stating", title=title)
        for one in row["work"]:
            best = f"{one['best']:,} at {one['order']}" if "best" in one else ""
            worth = f"orders: [{one['order']}]" if one.get("best", 0) > 2 * one["fits"] else ""
            table.add_row(one["name"], f"{one['fits']:,}", best, worth)
        common.out.print(table)


def _row(rule: LimitRule, relation: Relation) -> dict[str, Any]:
    limit, own = rule.promise, {"the rule's workload": rule.workload} if rule.workload else {}
    work = {name: _ADAPTER.validate_python(each) for name, each in TYPICAL.items()} | own
    if rule.orders or rule.workload:
        limit = replace(limit, orders=rule.orders_for(_total(rule.workload or [], relation)))
    return {
        "rule": rule.id,
        "gate": rule.filter.name,
        "orders": list(map(decimal_of, orders_in(rule.filter.currencies(limit)))),
        "work": [
            {"name": name} | _fits(rule, limit, _total(mechanisms, relation))
            for name, mechanisms in work.items()
        ],
    }


def _total(mechanisms: list[Mechanism], relation: Relation) -> Total:
    return lambda orders: total(price(one, relation, orders).charge for one in mechanisms)


def _fits(rule: LimitRule, limit: Limit, total_at: Total) -> dict[str, Any]:
    """Return how many runs fit, and how many would at the best order."""
    found: dict[str, Any] = {"fits": _runs(rule, limit, total_at)}
    if rule.filter is not RENYI:
        return found
    if (order := best_order(limit, total_at)) is None:
        return found
    best = _runs(rule, replace(limit, orders=(order,)), total_at)
    return found | {"best": best, "order": decimal_of(order)}


def _runs(rule: LimitRule, limit: Limit, total_at: Total) -> int:
    capacity = rule.filter.capacity(limit)
    charge: Charge = total_at(orders_in(capacity.currencies))
    counts = [
        most // units
        for currency, most in sides(capacity)
        if currency != Currency.DELTA and (units := charge.units(currency))
    ]
    return max(0, *counts, 0)
