"""The statement: per rule and scope, what is limited, spent, reserved and left, by group.

A group's number is that of its most charged cell (worst.py). Spent amounts are rounded up,
remaining ones down.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal
from math import prod
from typing import Any, Final

import numpy as np

from accountant.budget.accounts.epochs import Adopted
from accountant.budget.accounts.sums import Integers
from accountant.budget.errors import NotFound
from accountant.budget.rules.limit import scope_name
from accountant.budget.state import ALL, AccountKey, Counted, State, account_key, lifetime, matches
from accountant.ledger.events import rfc3339
from accountant.privacy.filters import BASIC, FILTERS
from accountant.privacy.units import INFINITE, SURE, Currency, amount, show
from accountant.reporting.peak_cell import Ruler, Worst

MOST_NAMED: Final = 5
"""Values of a dimension that a group is described by."""


@dataclass(frozen=True, slots=True)
class Balance:
    """One group's place under one limit. Epsilons and deltas are decimal strings."""

    group: str
    spent: str
    reserved: str
    remaining: str
    share: float | None
    """Spent and reserved as a share of the limit, for a picture; None if it is infinite."""
    spent_delta: str
    """The delta that belongs to ``spent``: the mechanisms' own, and the gate's where its number is
    below the plain sum."""
    held_delta: str
    """The delta that belongs to spent and reserved together."""
    own_delta: str
    """The sum of the mechanisms' own deltas, spent or reserved."""
    over: bool
    """More is spent or reserved than the limit allows."""
    void: bool
    """More is spent than the limit allows: the rule's promise is void for this epoch."""
    sum_of_epsilons: str
    """The largest plain sum of what is spent or reserved: true also where the promise is void."""


@dataclass(frozen=True, slots=True)
class Rung:
    """What one gate shows as spent and reserved; "infinite" if it has no number."""

    gate: str
    used: str


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
    window: str | None
    """What it is counted over: 30d, 12h, month; None: the life of the epoch."""
    epoch: int
    counted_from: str
    carried: bool
    total: Balance
    worst_group: dict[str, str]
    lifetime: dict[str, str]
    groups: list[Balance]
    ladder: list[Rung]
    """What the same charges show under each gate."""


def statement(state: State, dataset: str | None = None, by: str | None = None) -> list[Line]:
    """A line for each limit rule and scope; ``dataset`` narrows, ``by`` splits by a dimension.

    Raises Invalid for an unknown dataset or dimension.
    """
    if dataset is not None:
        state.dataset(dataset)
    axis = state.people().axis(by) if by is not None else None
    return [
        line(state, counted, axis)
        for counted in scopes(state)
        if dataset is None or counted.key.dataset in (dataset, ALL)
    ]


def balances(state: State, counted: Counted, axis: int) -> list[Balance]:
    """The balance of each value of a dimension, in declared order."""
    values = state.people().dimensions[axis][1]
    return _balances(state, counted, axis, values)


def lifetime_sums(state: State, dataset: str, axis: int | None) -> list[tuple[str, str]]:
    """(epsilon, delta) ever booked on a dataset (or ALL): per value of a dimension, or one for
    everyone. Path-wise sums at the most charged cell; where those have no bound, what a rule says
    that has counted everything, and over all datasets the sum of that.
    """
    cells = state.seen(lifetime(dataset)).used.stacked()
    columns = _by(cells, axis).max(axis=2).T.tolist()
    sums = [(_show(column, 0), _show(column, 1)) for column in columns]
    for counted in scopes(state) if any(INFINITE in pair for pair in sums) else ():
        if counted.epoch.whole and _same_data(state, counted, dataset):
            used = state.seen(counted.key).used.stacked()
            found = Ruler(counted.rule, counted.epoch).by_value(_by(used, axis))
            sums = [_smaller(pair, worst) for pair, worst in zip(sums, found, strict=True)]
    if dataset == ALL and any(INFINITE in pair for pair in sums):
        each = [lifetime_sums(state, name, axis) for name in sorted(state.datasets)]
        sums = [
            pair if INFINITE not in pair else _together(parts)
            for pair, *parts in zip(sums, *each, strict=True)
        ]
    return sums


def _show(column: list[int], row: int) -> str:
    """One of the sums that hold along every path, of a column of finite and infinite ones."""
    infinite = column[len(SURE) + row] > 0
    return amount(None if infinite else column[row], SURE[row])


def _together(parts: list[tuple[str, str]]) -> tuple[str, str]:
    """The sum of several datasets' numbers, each of which is true at every stopping time.

    With x the amount by which a loss exceeds its number, 1 - e^-(x + y) is at most (1 - e^-x) +
    (1 - e^-y) where both are positive, so that the deltas add up with the epsilons.
    """
    sums = []
    for amounts in zip(*parts, strict=True):
        bounded = INFINITE not in amounts
        sums.append(format(sum(map(Decimal, amounts)), "f") if bounded else INFINITE)
    return sums[0], sums[1]


def _same_data(state: State, counted: Counted, dataset: str) -> bool:
    """True if the account is about all that is booked on ``dataset``, which may be ALL."""
    if counted.rule.per or counted.key.dataset != dataset:
        return False
    return dataset != ALL or all(matches(counted.rule.datasets, d) for d in state.datasets)


def _smaller(pair: tuple[str, str], worst: Worst) -> tuple[str, str]:
    if INFINITE not in pair or worst.over:  # over its limit a rule promises nothing
        return pair
    return amount(worst.epsilon, Currency.EPSILON), amount(worst.delta, Currency.DELTA)


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


def scopes(state: State) -> list[Counted]:
    """Every account that a limit rule in force has, also those that nothing was charged to yet."""
    found: dict[AccountKey, Counted] = {}
    for rule in state.adopted.policy.limits if state.adopted else ():
        epoch = adopted(state).epochs[rule.id]
        keys = [
            account_key(rule, epoch.number, dataset, "")
            for dataset in sorted(state.datasets)
            if matches(rule.datasets, dataset) and not rule.per
        ]
        keys += [k for k in sorted(state.accounts) if (k.rule, k.epoch) == (rule.id, epoch.number)]
        found |= {key: Counted(rule, epoch, key) for key in keys}
    return list(found.values())


def adopted(state: State) -> Adopted:
    """The policy in force, where a rule shows that there is one. Raises NotFound otherwise."""
    if state.adopted is None:
        raise NotFound("no-policy", f"no policy is adopted in {state.ledger}")
    return state.adopted


def line(state: State, counted: Counted, axis: int | None = None) -> Line:
    """One limit rule on one scope, split by a dimension if ``axis`` names one."""
    rule, epoch, key = counted
    used = state.seen(key).used.stacked()
    dataset, client = key.dataset, key.client
    return Line(
        rule=rule.id,
        scope=scope_name(dataset, client),
        dataset=key.dataset,
        client=key.client,
        action=rule.action,
        gate=rule.filter.name,
        limit={
            "epsilon": format(rule.limit.epsilon, "f"),
            "delta": format(rule.limit.delta, "f"),
            "own_delta": show(epoch.capacity.own_delta, Currency.DELTA),
        },
        window=rule.span,
        epoch=epoch.number,
        counted_from=rfc3339(epoch.since),
        carried=epoch.carried,
        total=_balances(state, counted, None, ("everyone",))[0],
        worst_group=_worst_group(state, counted, used),
        lifetime=_sums(state, key.dataset),
        groups=[] if axis is None else balances(state, counted, axis),
        ladder=_ladder(counted, used),
    )


def _ladder(counted: Counted, used: Integers) -> list[Rung]:
    """Every gate reads the same charges, along the line that was fixed with the limit."""
    rule, epoch, _ = counted
    gates = FILTERS.values() if epoch.axis != SURE else [BASIC]
    worst = [(gate.name, Ruler(rule, epoch, gate).worst(used).epsilon) for gate in gates]
    return [Rung(name, amount(epsilon, Currency.EPSILON)) for name, epsilon in worst]


def _balances(
    state: State, counted: Counted, axis: int | None, names: tuple[str, ...]
) -> list[Balance]:
    account, ruler = state.seen(counted.key), Ruler(counted.rule, counted.epoch)
    used, reserved = account.used.stacked(), state.reserved().get(counted.key)
    before = after = ruler.by_value(_by(used, axis))
    if reserved is not None:
        before = ruler.by_value(_by(used - reserved.stacked(), axis))
    return [_balance(name, ruler, a, b) for name, a, b in zip(names, after, before, strict=True)]


def _balance(group: str, ruler: Ruler, used: Worst, spent: Worst) -> Balance:
    limit = ruler.capacity.epsilon
    own_left = used.own_delta is not None and used.own_delta <= ruler.capacity.own_delta
    if used.epsilon is None or spent.epsilon is None:
        reserved = "0" if spent.epsilon is None else "infinite"
        remaining, share = 0, None
    else:
        reserved = show(max(0, used.epsilon - spent.epsilon), Currency.EPSILON)
        remaining = max(0, limit - used.epsilon) if own_left else 0
        share = used.epsilon / limit if limit else 1.0
    return Balance(
        group=group,
        spent=amount(spent.epsilon, Currency.EPSILON),
        reserved=reserved,
        remaining=show(remaining, Currency.EPSILON),
        share=share,
        spent_delta=amount(spent.delta, Currency.DELTA),
        held_delta=amount(used.delta, Currency.DELTA),
        own_delta=amount(used.own_delta, Currency.DELTA),
        over=used.over,
        void=spent.over,
        sum_of_epsilons=amount(used.path_sum, Currency.EPSILON),
    )


def _by(cells: Integers, axis: int | None) -> Integers:
    """The cells as (rows, values of the dimension, rest); one value where there is no ``axis``."""
    if axis is None:
        return cells.reshape(len(cells), 1, -1)
    return np.moveaxis(cells, axis + 1, 1).reshape(len(cells), cells.shape[axis + 1], -1)


def _worst_group(state: State, counted: Counted, used: Integers) -> dict[str, str]:
    """What the cells have in common that have spent most under the rule; empty if all are alike.

    Cells that stand exactly alike are one group if they are all combinations of some values.
    """
    flat = used.reshape(len(used), -1)
    if not state.people().dimensions:
        return {}
    worst = Ruler(counted.rule, counted.epoch).worst(used).cell
    alike = (flat == flat[:, worst : worst + 1]).all(axis=0).reshape(used.shape[1:])
    sides = [np.unique(side) for side in alike.nonzero()]
    if prod(map(len, sides)) != alike.sum():
        sides = [np.array([i]) for i in np.unravel_index(worst, alike.shape)]
    return {
        name: _some([values[i] for i in side])
        for (name, values), side in zip(state.people().dimensions, sides, strict=True)
        if len(side) < len(values)
    }


def _some(values: list[str]) -> str:
    more = len(values) - MOST_NAMED
    return ", ".join(values[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _sums(state: State, dataset: str) -> dict[str, str]:
    [(epsilon, delta)] = lifetime_sums(state, dataset, None)
    return {"epsilon": epsilon, "delta": delta}
