"""fit: find how many runs of a list fit a limit, or the noise needed for one."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.peak import Reading
from accountant.budget.errors import Invalid
from accountant.budget.population.selection import EVERYONE
from accountant.budget.rules.limit import LimitRule
from accountant.cli.common import JsonOption, app, out, print_json
from accountant.cli.composing import GroupOption, read_mechanisms
from accountant.cli.totals import FIXED, tight
from accountant.privacy.composition.searching import largest_count, smallest_factor
from accountant.privacy.filters import FILTERS, axis_under
from accountant.privacy.mechanisms import Mechanism, Relation, price
from accountant.privacy.mechanisms.base import MOST_INVOCATIONS
from accountant.privacy.units import total

_DIGITS: Final = Context(prec=20, rounding=ROUND_CEILING)

Fits = Callable[[tuple[Mechanism, ...]], bool]


@app.command()
def fit(
    file: Annotated[str, typer.Argument(help='{"mechanisms": [ … ]}; - reads standard input')],
    epsilon: Annotated[str, typer.Option(help="the limit's epsilon")],
    delta: Annotated[str, typer.Option(help="the limit's delta")] = "0",
    neighbouring: Annotated[
        Relation, typer.Option(help="the relation of the population")
    ] = Relation.ADD_OR_REMOVE_ONE,
    group_size: GroupOption = 1,
    json: JsonOption = False,
) -> None:
    """Find how many runs of a list fit a limit, and the factor by which its noise must grow, or may
    shrink, for one run to fit: under every privacy filter, and for planning also had all of it been
    fixed in advance.
    """
    plan = read_mechanisms(file, group_size)
    ways = ways_to_fit(epsilon, delta, neighbouring)
    document: dict[str, Any] = {
        "limit": {"epsilon": epsilon, "delta": delta},
        "neighbouring": neighbouring.value,
        "fits": {name: _answer(plan, fits) for name, fits in ways.items()},
        "precondition_of_pld": FIXED,
    }
    if json or not out.is_terminal:
        print_json(document)
        return
    table = Table("", "times", "noise factor")
    for name, row in document["fits"].items():
        table.add_row(name, str(row["count"]), row["noise"] or "-")
    out.print(table)
    out.print(f"pld: {FIXED}", highlight=False)


def ways_to_fit(epsilon: str, delta: str, relation: Relation) -> dict[str, Fits]:
    """For each gate, and for the tight total, whether a list stays within the limit."""
    ways: dict[str, Fits] = {}
    for name in FILTERS:
        limit = {"epsilon": epsilon, "delta": delta}
        rule = LimitRule.model_validate({"id": "limit", "limit": limit, "gate": name})
        ways[name] = _gate(rule, relation)
    at = rule.limit.delta
    if at:
        most = float(rule.limit.epsilon)

        def planned(mechanisms: tuple[Mechanism, ...]) -> bool:
            return tight(mechanisms, relation, at).upper <= most

        ways["pld"] = planned
    return ways


def _gate(rule: LimitRule, relation: Relation) -> Fits:
    capacity, axis = rule.filter.capacity(rule.promise), axis_under(rule.promise)
    orders = tuple(c.order for c in axis if c.order is not None)
    nothing = Reading(Account.empty((), axis), EVERYONE)

    def admits(mechanisms: tuple[Mechanism, ...]) -> bool:
        charge = total(price(m, relation, orders).charge for m in mechanisms)
        return nothing.fits(charge.on(axis), capacity)

    return admits


def _answer(plan: tuple[Mechanism, ...], fits: Fits) -> dict[str, Any]:
    most = MOST_INVOCATIONS // max(mechanism.count for mechanism in plan)
    noise = None
    if all(hasattr(mechanism, "scale") for mechanism in plan):
        noise = smallest_factor(lambda factor: fits(tuple(_noisier(m, factor) for m in plan)))
    return {
        "count": largest_count(lambda n: fits(tuple(_repeated(m, n) for m in plan)), most),
        "noise": None if noise is None else format(noise, "f"),
    }


def _repeated(mechanism: Mechanism, times: int) -> Mechanism:
    return mechanism.model_copy(update={"count": mechanism.count * times})


def _noisier(mechanism: Mechanism, factor: Decimal) -> Mechanism:
    if mechanism.claimed is not None:
        raise Invalid("claimed-epsilon", "leave claims out: they do not change with the noise")
    scale = _DIGITS.multiply(mechanism.scale, factor)  # type: ignore[union-attr]
    return mechanism.model_copy(update={"scale": scale})
