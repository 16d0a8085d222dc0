"""The statement: per rule and scope, what is limited, spent, reserved and left, by group.

A group's number is that of its most charged cell (worst.py). Spent amounts are rounded up,
remaining ones down.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from accountant.budget.accounts import Integers, N, charge_from
from accountant.budget.errors import NotFound
from accountant.budget.limits import amount, scope_name
from accountant.budget.policy import LimitRule
from accountant.budget.state import ALL, AccountKey, Adopted, State, account_key, lifetime, matches
from accountant.ledger.events import rfc3339
from accountant.privacy.units import Currency, show
from accountant.reporting.worst import Ruler, Worst


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
    """More is spent or reserved than the limit allows."""
    void: bool
    """More is spent than the limit allows: the rule's promise is void for this epoch."""
    sum_of_epsilons: str
    """The largest plain sum of what is spent or reserved: true also where the promise is void."""


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
    return [
        line(state, rule, key, axis)
        for rule, key in scopes(state)
        if dataset is None or key.dataset in (dataset, ALL)
    ]


def balances(state: State, rule: LimitRule, key: AccountKey, axis: int) -> list[Balance]:
    """The balance of each value of a dimension, in declared order."""
    values = state.people().dimensions[axis][1]
    return _balances(state, rule, key, axis, values)


def lifetime_sums(state: State, dataset: str, axis: int | None) -> list[tuple[str, str]]:
    """(epsilon, delta) ever booked on a dataset (or ALL): per value of a dimension, or one for
    everyone. Path-wise sums at the most charged cell.
    """
    cells = state.account(lifetime(dataset)).used.cells()
    columns = [charge_from(column) for column in _by(cells, axis).max(axis=2).T]
    return [(amount(c, Currency.EPSILON), amount(c, Currency.DELTA)) for c in columns]


def lifetime_totals(state: State, by: str | None = None) -> list[dict[str, Any]]:
    """The path-wise sums of everything ever booked, per dataset and over all of them."""
    axis = state.people().axis(by) if by is not None else None
    rows = []
    for name in [*sorted(state.datasets), ALL]:
        row: dict[str, Any] = {"dataset": name} | _sums(state, name)
        if axis is not None:
            sums = lifetime_sums(state, name, axis)
            row["groups"] = [
                {"group": value, "epsilon": epsilon, "delta": delta}
                for value, (epsilon, delta) in zip(
                    state.people().dimensions[axis][1], sums, strict=True
                )
            ]
        rows.append(row)
    return rows


def accounts_json(
    state: State, dataset: str | None = None, by: str | None = None
) -> dict[str, Any]:
    """The statement and the lifetime totals as one document, at a stated sequence."""
    return {
        "population": state.ledger,
        "sequence": state.last,
        "time": rfc3339(state.time),
        "accounts": [asdict(line) for line in statement(state, dataset, by)],
        "lifetime": [
            row
            for row in lifetime_totals(state, by)
            if dataset is None or row["dataset"] in (dataset, ALL)
        ],
    }


def scopes(state: State) -> list[tuple[LimitRule, AccountKey]]:
    """Every account that a limit rule in force has, also those that nothing was charged to yet."""
    if state.adopted is None:
        return []
    found: dict[AccountKey, LimitRule] = {}
    for rule in state.adopted.policy.limits:
        number = state.adopted.epochs[rule.id].number
        for dataset in sorted(state.datasets):
            if matches(rule.datasets, dataset) and not rule.per:
                found[account_key(rule, number, dataset, "")] = rule
        for key in sorted(state.accounts):
            if key.rule == rule.id and key.epoch == number:
                found[key] = rule
    return [(rule, key) for key, rule in found.items()]


def adopted(state: State) -> Adopted:
    """The policy in force, where a rule shows that there is one. Raises NotFound otherwise."""
    if state.adopted is None:
        raise NotFound("no-policy", f"no policy is adopted in {state.ledger}")
    return state.adopted


def line(state: State, rule: LimitRule, key: AccountKey, axis: int | None = None) -> Line:
    """One limit rule on one scope, split by a dimension if ``axis`` names one."""
    epoch = adopted(state).epochs[rule.id]
    used = state.account(key).used.cells()
    return Line(
        rule=rule.id,
        scope=scope_name(key),
        dataset=key.dataset,
        client=key.client,
        action=rule.action,
        gate=rule.filter.name,
        limit={
            "epsilon": format(rule.limit.epsilon, "f"),
            "delta": format(rule.limit.delta, "f"),
            "own_delta": show(rule.filter.capacity(rule.promise).own_delta, Currency.DELTA),
        },
        epoch=epoch.number,
        counted_from=rfc3339(epoch.since),
        carried=epoch.carried,
        total=_balances(state, rule, key, None, ("everyone",))[0],
        worst_group=_worst_group(state, rule, used),
        lifetime=_sums(state, key.dataset),
        groups=[] if axis is None else balances(state, rule, key, axis),
    )


def _balances(
    state: State, rule: LimitRule, key: AccountKey, axis: int | None, names: tuple[str, ...]
) -> list[Balance]:
    account, ruler = state.account(key), Ruler(rule)
    used, reserved = account.used.cells(), account.reserved.cells()
    after = ruler.by_value(_by(used, axis))
    before = ruler.by_value(_by(used - reserved, axis)) if reserved.any() else after
    return [_balance(name, ruler, a, b) for name, a, b in zip(names, after, before, strict=True)]


def _balance(group: str, ruler: Ruler, used: Worst, spent: Worst) -> Balance:
    limit = ruler.capacity.epsilon
    own_left = used.own_delta is not None and used.own_delta <= ruler.capacity.own_delta
    if used.epsilon is None or spent.epsilon is None:
        reserved = "0" if spent.epsilon is None else "infinite"
        remaining, share = 0, 1.0
    else:
        reserved = show(max(0, used.epsilon - spent.epsilon), Currency.EPSILON)
        remaining = max(0, limit - used.epsilon) if own_left else 0
        share = used.epsilon / limit if limit else 1.0
    return Balance(
        group=group,
        spent=_amount(spent.epsilon, Currency.EPSILON),
        reserved=reserved,
        remaining=show(remaining, Currency.EPSILON),
        share=share,
        own_delta=_amount(used.own_delta, Currency.DELTA),
        over=used.over,
        void=spent.over,
        sum_of_epsilons=_amount(used.path_sum, Currency.EPSILON),
    )


def _amount(units: int | None, currency: Currency) -> str:
    return "infinite" if units is None else show(units, currency)


def _by(cells: Integers, axis: int | None) -> Integers:
    """The cells as (2N, values of the dimension, rest); one value where there is no ``axis``."""
    if axis is None:
        return cells.reshape(2 * N, 1, -1)
    return np.moveaxis(cells, axis + 1, 1).reshape(2 * N, cells.shape[axis + 1], -1)


def _worst_group(state: State, rule: LimitRule, used: Integers) -> dict[str, str]:
    """The attributes of the cell that has spent most under the rule; empty if all are alike."""
    flat = used.reshape(2 * N, -1)
    if (flat == flat[:, :1]).all():
        return {}
    where = np.unravel_index(Ruler(rule).worst(used).cell, state.people().shape)
    return state.people().describe(tuple(int(i) for i in where))


def _sums(state: State, dataset: str) -> dict[str, str]:
    [(epsilon, delta)] = lifetime_sums(state, dataset, None)
    return {"epsilon": epsilon, "delta": delta}
