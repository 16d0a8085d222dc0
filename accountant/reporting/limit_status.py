"""Where each limit stands, with what its numbers mean."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from accountant.budget.accounts.window import Window
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import Counted, State
from accountant.reporting.lifetimes import MOST_GROUPS, as_number
from accountant.reporting.shape import (
    LimitFacts,
    Meaning,
    Place,
    RungFacts,
    Split,
    Standing,
    Status,
)
from accountant.reporting.statement import Balance, Line, balances, lifetime_sums, line, scopes
from accountant.reporting.words import formula, meaning, unit_of

NEAR: Final = 0.8
"""The share of a limit from which on a report calls it near."""


def standings(state: State) -> tuple[Standing, ...]:
    """Every limit rule in force on every scope, split by each dimension. A client's sub-limit is
    not split: it promises nothing about groups.
    """
    found = []
    for counted in scopes(state):
        axes = () if counted.rule.per else range(len(state.people().shape))
        splits = tuple(_split(state, counted, axis) for axis in axes)
        found.append(_standing(state, counted.rule, line(state, counted), splits))
    return tuple(found)


def _standing(state: State, rule: LimitRule, row: Line, splits: tuple[Split, ...]) -> Standing:
    total = _place(row.total, (row.lifetime["epsilon"], row.lifetime["delta"]))
    limit = LimitFacts(row.limit["epsilon"], row.limit["delta"], row.limit["own_delta"])
    return Standing(
        rule=row.rule,
        scope=row.scope,
        dataset=row.dataset,
        client=row.client,
        action=row.action,
        gate=row.gate,
        formula=formula(row.gate, type(rule.filter).__doc__)[0],
        limit=limit,
        window=Window.read(row.window).words if row.window else "",
        epoch=row.epoch,
        counted_from=row.counted_from,
        carried=row.carried,
        status=total.status,
        total=total,
        worst_group=row.worst_group,
        meaning=_meaning(limit, total, unit_of(state.people())),
        splits=splits,
        ladder=tuple(RungFacts(r.gate, formula(r.gate, None)[0], r.used) for r in row.ladder),
    )


def _split(state: State, counted: Counted, axis: int) -> Split:
    dimension, values = state.people().dimensions[axis]
    ever = lifetime_sums(state, counted.key.dataset, axis)
    rows = zip(balances(state, counted, axis), ever, strict=True)
    ordered = sorted(rows, key=lambda row: -_weight(row[0]))
    places = tuple(_place(balance, sums) for balance, sums in ordered[:MOST_GROUPS])
    return Split(dimension, len(values), len(values) - len(places), places)


def _weight(balance: Balance) -> float:
    return as_number(balance.spent) + as_number(balance.reserved)


def _place(balance: Balance, ever: tuple[str, str]) -> Place:
    return Place(
        group=balance.group,
        spent=balance.spent,
        reserved=balance.reserved,
        remaining=balance.remaining,
        sum_of_epsilons=balance.sum_of_epsilons,
        spent_delta=balance.spent_delta,
        held_delta=balance.held_delta,
        own_delta=balance.own_delta,
        status=_status(balance),
        lifetime_epsilon=ever[0],
        lifetime_delta=ever[1],
    )


def _status(balance: Balance) -> Status:
    if balance.void:
        return "over"
    if balance.over:
        return "over_if_reservations_run"
    if balance.remaining == "0":
        return "used_up"
    return "near" if balance.share is None or balance.share >= NEAR else "within"


def _meaning(limit: LimitFacts, total: Place, unit: str) -> Meaning:
    promised = meaning(limit.epsilon, limit.delta, unit)
    if total.status == "over":  # only the plain sum is left
        return Meaning(promised, meaning(total.sum_of_epsilons, total.own_delta, unit), "")
    spent = meaning(total.spent, total.spent_delta, unit)
    if total.reserved == "0" and total.held_delta == total.spent_delta:
        return Meaning(promised, spent, "")
    if total.reserved == "infinite":
        return Meaning(promised, spent, meaning("infinite", total.held_delta, unit))
    held = Decimal(total.spent) + Decimal(total.reserved)
    return Meaning(promised, spent, meaning(format(held, "f"), total.held_delta, unit))
