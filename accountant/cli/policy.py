"""policy lint, policy adopt: what limits make of typical work, and adoption by an operator.

The other commands of the group are imported, so that they are there with these.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from accountant.budget.commands import AdoptPolicy, Envelope
from accountant.budget.decide.adopting import (
    not_reset,
)
from accountant.budget.depletion import (
    bounds,
    relaxed_in_words,
    told_of,
)
from accountant.budget.facts import opened_by
from accountant.budget.outcome import (
    PROPOSED,
)
from accountant.budget.policy import (
    Policy,
)
from accountant.budget.policy_file import parse_policy
from accountant.budget.rules.limit import LimitRule
from accountant.budget.typical import chosen_afresh, fits, kept_orders, orders_of, work_of
from accountant.cli import common
from accountant.cli.backtesting import backtest
from accountant.cli.comparing import show_differences
from accountant.cli.policies import File, policy
from accountant.cli.proposing import proposal_of, show_proposal
from accountant.cli.trying import try_cases
from accountant.privacy.mechanisms import Relation

__all__ = ["backtest", "policy", "show_differences", "try_cases"]


@policy.command()
def lint(
    file: File,
    neighbouring: Annotated[
        Relation, typer.Option(help="the population's neighbouring relation")
    ] = Relation.ADD_OR_REMOVE_ONE,
    json: common.JsonOption = False,
) -> None:
    """Show how often typical work fits each limit of a policy, and its own workload; and how much
    of a limit those that divide it can use up at most.

    Beside it stands how often it would fit at the Renyi order that is best for it, which the rule
    can state, or leave to a `workload`. A limit that is changed keeps the orders that it has in the
    ledger; `policy adopt` shows what that costs.
    """
    found, _ = parse_policy(common.read_bytes(file).decode())
    rows = [_row(rule, neighbouring) for rule in found.limits]
    scopes = {rule.id: rule.data for rule, _ in found.scopes}
    asks = [rule.id for rule in found.rules if rule.action == "approve"]
    if json or not common.out.is_terminal:
        document: dict[str, Any] = {"neighbouring": neighbouring.value, "limits": rows}
        document |= {"about": scopes, "approve": asks}
        common.print_json(document | {"depletion": [], "relaxed": []} | told_of(found))
        return
    for name, about in scopes.items():
        common.show(f"{name} is about {about}")
    if asks:
        common.show(f"a person decides about what fires {', '.join(asks)}")
    _show_told(found)
    for row in rows:
        orders = f" (orders: {', '.join(row['orders'])})" if row["orders"] else ""
        unlocks = f", unlocked {row['unlocks']}" if row["unlocks"] else ""
        title = f"{row['rule']}: {row['gate']}{orders}{unlocks}"
        table = Table("work", "fits", "at its best order", "worth stating", title=title)
        for one in row["work"]:
            best = f"{one['best']:,} at {one['order']}" if "best" in one else ""
            worth = f"orders: [{one['order']}]" if one.get("best", 0) > 2 * one["fits"] else ""
            table.add_row(one["name"], f"{one['fits']:,}", best, worth)
        common.show_table(table)


def _show_told(found: Policy) -> None:
    for told in relaxed_in_words(found):
        common.show(told)
    for one in bounds(found):
        common.show(one.in_words())


def _row(rule: LimitRule, relation: Relation) -> dict[str, Any]:
    limit = chosen_afresh(rule, relation)
    return {
        "rule": rule.id,
        "gate": rule.filter.name,
        "orders": orders_of(rule, limit),
        "unlocks": rule.unlock.words if rule.unlock else None,
        "work": [
            {"name": name} | fits(rule, limit, total) for name, total in work_of(rule, relation)
        ],
    }


@policy.command()
def adopt(
    file: File,
    population: common.PopulationOption,
    closes: Annotated[
        list[str] | None,
        typer.Option(help="a limit rule that may begin closed for good; for each of several"),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Adopt a policy file for a population.

    The first policy, and one that loosens the policy in force, are only proposed: another person
    confirms (accountant confirm). A limit in which nothing would fit any more, because of what was
    used, has to be named by --closes.
    """
    found, digest = parse_policy(common.read_bytes(file).decode())
    command = AdoptPolicy(policy=found.to_json(), source_digest=digest, closes=closes or [])
    with common.local_service() as service:
        events = service.execute(population, Envelope(common.operator(), command)).events
        state = service.state(population)
    if events and events[0].type == PROPOSED:
        show_proposal(proposal_of(events[0]), population, json=json)
        return
    kept = kept_orders(events[0], state.people().relation) if events else []
    opened = opened_by(events[0].body) if events else []
    goes_on = not_reset(state, opened)
    if json:
        document: dict[str, Any] = {"adopted": bool(events), "opens_epoch": opened}
        document |= {"kept_orders": kept} | ({"not_reset": goes_on} if goes_on else {})
        document |= told_of(found)
        common.print_json(document)
        return
    common.show("adopted" if events else "this policy is in force already")
    if opened:
        common.show(f"new epochs: {', '.join(opened)}")
    for each in goes_on:
        common.show(f"{each['rule']}: {each['reason']}")
    _show_told(found)
    for one in kept:
        common.show(
            f"{one['rule']} goes on at the orders {', '.join(one['orders'])} of what it has used; "
            f"chosen afresh they would be {', '.join(one['afresh'])}. In an unused budget would fit"
        )
        for work in one["work"]:
            common.show(f"  {work['name']}: {work['fits']:,}, afresh {work['afresh']:,}")
