"""The statement: per rule and scope, what is limited, spent, reserved and left, by group.

A group's total is the largest of its cells, in each currency (parallel composition over disjoint
cells, population.py). Spent amounts are rounded up, remaining ones down.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from accountant.budget.accounts import Account, Integers, charge_from
from accountant.budget.judge import amount, scope_name
from accountant.budget.policy import LimitRule
from accountant.budget.state import ALL, AccountKey, State, account_key, lifetime, matches
from accountant.ledger.events import rfc3339
from accountant.privacy.units import Charge, Currency, show, units_down


@dataclass(frozen=True, slots=True)
class Balance:
    """One group's place under one limit. Epsilons are decimal strings; deltas are own deltas."""

    group: str
    spent: str
    reserved: str
    remaining: str
    share: float
    """Spent and reserved as a share of the limit, for a picture; infinite losses are 1 or more."""
    own_delta: str
    over: bool
    """More is spent than the limit allows: the rule's promise is void for this epoch."""


@dataclass(frozen=True, slots=True)
class Line:
    """One limit rule on one scope."""

    rule: str
    scope: str
    dataset: str
    client: str
    action: str
    gate: str
    limit: dict[str, str]
    epoch: int
    counted_from: str
    carried: bool
    total: Balance
    worst_group: dict[str, str]
    lifetime: dict[str, str]
    groups: list[Balance]


def statement(state: State, dataset: str | None = None, by: str | None = None) -> list[Line]:
    """A line for each limit rule and scope; ``dataset`` narrows, ``by`` splits by a dimension.

    Raises Invalid for an unknown dataset or dimension.
    """
    if dataset is not None:
        state.dataset(dataset)
    axis = state.people().axis(by) if by is not None else None
    lines = []
    for rule, key in _scopes(state):
        if dataset is None or key.dataset in (dataset, ALL):
            lines.append(_line(state, rule, key, axis))
    return lines


def lifetime_totals(state: State, by: str | None = None) -> list[dict[str, Any]]:
    """The path-wise sums of everything ever booked, per dataset and over all of them."""
    axis = state.people().axis(by) if by is not None else None
    rows = []
    for name in [*sorted(state.datasets), ALL]:
        account = state.account(lifetime(name))
        row: dict[str, Any] = {"dataset": name} | _sums(_largest(account.used.cells(), None)[0][1])
        if axis is not None:
            groups = _largest(account.used.cells(), axis)
            values = state.people().dimensions[axis][1]
            row["groups"] = [{"group": values[i]} | _sums(charge) for i, charge in groups]
        rows.append(row)
    return rows


def accounts_json(
    state: State, dataset: str | None = None, by: str | None = None
) -> dict[str, Any]:
    """The statement and the lifetime totals as one document, at a stated sequence."""
    return {
        "population": state.ledger,
        "sequence": state.sequence,
        "time": rfc3339(state.time),
        "accounts": [asdict(line) for line in statement(state, dataset, by)],
        "lifetime": [
            row
            for row in lifetime_totals(state, by)
            if dataset is None or row["dataset"] in (dataset, ALL)
        ],
    }


def _scopes(state: State) -> list[tuple[LimitRule, AccountKey]]:
    """Every account that a limit rule in force has, also those that nothing was charged to yet."""
    if state.adopted is None:
        return []
    scopes: dict[AccountKey, LimitRule] = {}
    for rule in state.adopted.policy.limits:
        number = state.adopted.epochs[rule.id].number
        for dataset in sorted(state.datasets):
            if matches(rule.datasets, dataset) and not rule.per:
                scopes[account_key(rule, number, dataset, "")] = rule
        for key in sorted(state.accounts):
            if key.rule == rule.id and key.epoch == number:
                scopes[key] = rule
    return [(rule, key) for key, rule in scopes.items()]


def _line(state: State, rule: LimitRule, key: AccountKey, axis: int | None) -> Line:
    assert state.adopted is not None
    account, people = state.account(key), state.people()
    epoch = state.adopted.epochs[rule.id]
    used = account.used.cells()
    groups = []
    if axis is not None:
        held = dict(_largest(used - account.reserved.cells(), axis))
        groups = [
            _balance(people.dimensions[axis][1][i], rule, charge, held[i])
            for i, charge in _largest(used, axis)
        ]
    [(_, everyone)] = _largest(used, None)
    [(_, spent)] = _largest(used - account.reserved.cells(), None)
    whole = _sums(_largest(state.account(lifetime(key.dataset)).used.cells(), None)[0][1])
    return Line(
        rule=rule.id,
        scope=scope_name(key),
        dataset=key.dataset,
        client=key.client,
        action=rule.action,
        gate=rule.filter.name,
        limit={"epsilon": format(rule.limit.epsilon, "f"), "delta": format(rule.limit.delta, "f")},
        epoch=epoch.number,
        counted_from=rfc3339(epoch.since),
        carried=epoch.carried,
        total=_balance("everyone", rule, everyone, spent),
        worst_group=_worst_group(state, account),
        lifetime=whole,
        groups=groups,
    )


def _balance(group: str, rule: LimitRule, used: Charge, spent: Charge) -> Balance:
    limit = units_down(rule.promise.epsilon, Currency.EPSILON)
    delta = rule.filter.capacity(rule.promise).own_delta
    own = amount(used, Currency.DELTA)
    after, before = _epsilon(rule, used), _epsilon(rule, spent)
    fits = _within(rule, used)
    if after is None:
        held = "0" if before is None else "infinite"
        return Balance(
            group,
            "infinite" if before is None else show(before, Currency.EPSILON),
            held,
            "0",
            1.0,
            own,
            not fits,
        )
    assert before is not None
    room = max(0, limit - after) if used[Currency.DELTA] <= delta else 0
    return Balance(
        group=group,
        spent=show(before, Currency.EPSILON),
        reserved=show(max(0, after - before), Currency.EPSILON),
        remaining=show(room, Currency.EPSILON),
        share=after / limit,
        own_delta=own,
        over=not fits,
    )


def _epsilon(rule: LimitRule, used: Charge) -> int | None:
    if used.is_infinite(Currency.EPSILON):
        return None
    infinite = used.is_infinite(Currency.EPSILON_SQUARED)
    second = None if infinite else used[Currency.EPSILON_SQUARED]
    return rule.filter.spent(rule.promise, used[Currency.EPSILON], second)


def _within(rule: LimitRule, used: Charge) -> bool:
    epsilon = _epsilon(rule, used)
    capacity = rule.filter.capacity(rule.promise)
    own = not used.is_infinite(Currency.DELTA) and used[Currency.DELTA] <= capacity.own_delta
    return own and epsilon is not None and epsilon <= capacity.epsilon


def _largest(cells: Integers, axis: int | None) -> list[tuple[int, Charge]]:
    """The largest sums per value of a dimension, or (axis None) over all cells."""
    flat = cells.reshape(cells.shape[0], -1)
    if axis is None:
        return [(0, charge_from(flat.max(axis=1)))]
    split = np.moveaxis(cells, axis + 1, 1).reshape(cells.shape[0], cells.shape[axis + 1], -1)
    return [(i, charge_from(column)) for i, column in enumerate(split.max(axis=2).T)]


def _worst_group(state: State, account: Account) -> dict[str, str]:
    """The attributes of the most charged cell (by epsilon); empty if all are alike."""
    cells = account.used.cells()
    n = cells.shape[0] // 2
    epsilon, infinite = cells[0].reshape(-1), cells[n].reshape(-1)
    if epsilon.min() == epsilon.max() and infinite.min() == infinite.max():
        return {}
    at = int(np.lexsort((epsilon, infinite))[-1])
    where = np.unravel_index(at, state.people().shape)
    return state.people().describe(tuple(int(i) for i in where))


def _sums(charge: Charge) -> dict[str, str]:
    return {c.value: amount(charge, c) for c in (Currency.EPSILON, Currency.DELTA)}
