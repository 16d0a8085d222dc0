"""The statement: the spent, reserved and remaining amounts of each limit rule and scope, by group.

A group's number is that of its peak cell. Spent amounts are rounded up, remaining ones down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from accountant.budget.accounts.classes import Cell, Classes
from accountant.budget.accounts.epochs import (
    Epoch,
)
from accountant.budget.accounts.part import (
    Integers,
)
from accountant.budget.accounts.sums import Sums
from accountant.budget.accounts.unlocking import (
    unlocked,
)
from accountant.budget.population.selection import ordered
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import ALL, AccountKey, Counted, State, account_key, lifetime
from accountant.ledger.events import rfc3339
from accountant.privacy.filters import BASIC, FILTERS
from accountant.privacy.units import INFINITE, SURE, Currency, amount, show
from accountant.reporting.peak_cell import Columns, Region, Ruler, Worst, as_one, finite, most_of
from accountant.reporting.schema import Account, Amounts, LimitFacts, PeriodFacts, Status

NEAR: Final = 0.8
"""The share of a limit from which on it is nearly used up."""
MOST_NAMED: Final = 5
"""Values of a dimension that the description of a group names."""


class Total(NamedTuple):
    """A lifetime total, as decimal strings or "infinite"."""

    epsilon: str
    delta: str


class Balance(Amounts, frozen=True, kw_only=True):
    """A group's use of a limit, as the API serves it."""

    share: float | None
    """Spent and reserved as a share of the limit, for a picture; None if infinite."""
    over: bool
    """More is spent and reserved than the limit allows."""
    void: bool
    """More is spent than the limit allows: the guarantee is void for this epoch."""

    @property
    def status(self) -> Status:
        """The status in the report."""
        if self.void:
            return "over"
        if self.over:
            return "over_if_reservations_run"
        if self.remaining == "0":
            return "used_up"
        return "near" if self.share is None or self.share >= NEAR else "within"


class Line(Account, frozen=True, kw_only=True):
    """One account of the statement. ``window`` is 30d, 12h or month, or how often the limit
    refreshes; None: the whole epoch. ``period`` is that of the calendar which counts now.
    """

    window: str | None
    period: PeriodFacts | msgspec.UnsetType
    unlocked: str | msgspec.UnsetType
    """The epsilon that is unlocked where least is, of a limit that unlocks gradually."""
    total: Balance
    lifetime: dict[str, str]
    groups: list[Balance]
    ladder: list[dict[str, str]]


def accounts_json(
    state: State, dataset: str | None = None, by: str | None = None, client: str | None = None
) -> dict[str, Any]:
    """Return the statement and the lifetime totals as one document, at a stated sequence; only what
    concerns ``client``, if one is given.
    """
    return {
        "population": state.ledger,
        "sequence": state.last,
        "time": rfc3339(state.time),
        "accounts": msgspec.to_builtins(statement(state, dataset, by, client)),
        "lifetime": lifetime_totals(state, dataset, by),
    }


def statement(
    state: State, dataset: str | None = None, by: str | None = None, client: str | None = None
) -> list[Line]:
    """Return a line for each limit rule and scope, of one ``dataset`` if given, split by the
    dimension ``by``; of those only that requests of ``client`` may count in, if one is given. Raise
    Invalid for an unknown dataset or dimension.
    """
    if dataset is not None:
        state.dataset(dataset)
    axis = state.people().axis(by) if by is not None else None
    wanted = [
        counted
        for counted in (scopes(state) if client is None else _seen_by(state, client))
        if dataset is None or counted.key.dataset in (dataset, ALL)
    ]
    held = state.reserved_of([one.key for one in wanted])
    return [line(state, counted, axis, held.get) for counted in wanted]


def _seen_by(state: State, client: str) -> list[Counted]:
    """Return the accounts that requests of ``client`` may count in, with rules that name no other
    client.
    """
    return [
        one._replace(rule=one.rule.seen_by(client))
        for one in scopes(state)
        if one.rule.concerns(client) and one.key.client in ("", client)
    ]


def scopes(state: State, only: str | None = None) -> list[Counted]:
    """Return every account that a limit rule in force compares now, unused ones included; of one
    rule ``only``.
    """
    if (adopted := state.adopted) is None:
        return []
    used: defaultdict[tuple[str, int], list[AccountKey]] = defaultdict(list)
    for key in state.accounts:
        used[key[:2]].append(key)
    found: dict[AccountKey, Counted] = {}
    datasets = sorted(state.datasets.items())
    for rule in adopted.policy.limits:
        if only not in (None, rule.id):
            continue
        epoch = adopted.epochs[rule.id]
        inside = [name for name, one in datasets if rule.scope.holds(one)]
        compared = {ALL} if rule.across else set(inside)
        named = inside[:1] if rule.across else inside  # across them, all have one account
        keys = [account_key(rule, epoch.number, name, "") for name in named if not rule.per]
        keys += [key for key in sorted(used[rule.id, epoch.number]) if key.dataset in compared]
        found |= {key: Counted(rule, epoch, key) for key in keys}
    return list(found.values())


def line(
    state: State,
    counted: Counted,
    axis: int | None = None,
    held: Callable[[AccountKey], Sums | None] | None = None,
) -> Line:
    """Return the line of one limit rule in one scope, split by the dimension ``axis`` if given;
    ``held`` as of ``balances``.
    """
    rule, epoch, key = counted
    used = state.seen(key).used
    [total] = balances(state, counted, None, held)
    [ever] = lifetime_sums(state, key.dataset, None, key.unit)
    return Line(
        rule=rule.id,
        scope=rule.place_in_words((key.dataset, key.client, key.purpose), state.people()),
        dataset=key.dataset,
        client=key.client,
        purpose=key.purpose,
        relaxed=f"{rule.most.epsilon:f}" if rule.relaxed else "",
        unit=key.unit,
        action=rule.action,
        gate=rule.filter.name,
        limit=LimitFacts(
            format(rule.limit.epsilon, "f"),
            format(rule.limit.delta, "f"),
            show(epoch.capacity.own_delta, Currency.DELTA),
        ),
        window=rule.span,
        period=period(state, epoch),
        unlocked=unlocked_part(state, counted),
        epoch=epoch.number,
        counted_from=rfc3339(epoch.since),
        carried=epoch.carried,
        total=total,
        worst_group=worst_group(state, counted, used),
        lifetime=ever._asdict(),
        groups=[] if axis is None else balances(state, counted, axis, held),
        ladder=ladder(state, counted, used),
    )


def ladder(state: State, counted: Counted, account: Sums) -> list[dict[str, str]]:
    """Return what each filter makes of the sums of an account."""
    rule, epoch, _ = counted
    about = _about(state, rule)
    used = as_one(account) if about.box is None else about.of(Columns.of(account))
    # Without a delta of its limit only the plain sum means anything.
    filters = FILTERS.values() if epoch.axis != SURE else [BASIC]
    worst = [(one.name, Ruler(rule, epoch, one).worst(used).epsilon) for one in filters]
    return [{"gate": name, "used": amount(n, Currency.EPSILON)} for name, n in worst]


def period(state: State, epoch: Epoch) -> PeriodFacts | msgspec.UnsetType:
    """Return the period of the calendar that a limit counts in now."""
    found = epoch.window.period(max(state.time, state.now)) if epoch.window else None
    return msgspec.UNSET if found is None else PeriodFacts(*map(rfc3339, found))


def unlocked_part(state: State, counted: Counted) -> str | msgspec.UnsetType:
    """Return the epsilon that is unlocked where least is, of a limit that unlocks gradually."""
    if counted.rule.unlock is None:
        return msgspec.UNSET
    lock = state.lock(counted, max(state.time, state.now))
    part = unlocked(counted.epoch.capacity, min(lock.shares))
    return show(max(0, part.epsilon), Currency.EPSILON)


def _about(state: State, rule: LimitRule) -> Region:
    """Return the cells that a limit is about."""
    return Region(state.classes, None if rule.subjects is None else rule.box(state.people()))


def _values(state: State, rule: LimitRule) -> list[tuple[str, Sequence[str]]]:
    """Return each dimension with those of its values that a limit is about."""
    dimensions: list[tuple[str, Sequence[str]]] = [*state.people().dimensions]
    if rule.subjects is None:
        return dimensions
    pairs = zip(dimensions, rule.box(state.people()), strict=True)
    return [(name, [values[at] for at in ordered(side)]) for (name, values), side in pairs]


def balances(
    state: State,
    counted: Counted,
    axis: int | None,
    held: Callable[[AccountKey], Sums | None] | None = None,
) -> list[Balance]:
    """Return the balance of each value of a dimension that the limit is about, in declared order;
    of all that it is about if None. ``held`` returns what open grants hold in an account, if that
    is known already.
    """
    rule = counted.rule
    names = [rule.whom] if axis is None else _values(state, rule)[axis][1]
    ruler, reserved = Ruler(rule, counted.epoch), (held or state.reserved_in)(counted.key)
    account, about, kept = state.seen(counted.key).used, _about(state, rule), _kept(state, counted)
    if axis is None and about.box is None:
        used = [ruler.peak(account)]
        spent = used if reserved is None else [ruler.peak(account, reserved)]
    else:
        used = spent = ruler.by_value(about.by_axis(Columns.of(account), axis))
        if reserved is not None:
            spent = ruler.by_value(about.by_axis(Columns.of(account, reserved), axis))
    beside, most = used, [0] * len(names)
    if kept is not None:
        beside = ruler.by_value(about.by_axis(Columns.of(account).plus(kept), axis))
        most = [each for [each] in most_of(about.by_axis(Columns(lambda _: kept[0]), axis), [0])]
    if not counted.rule.stands(_now(state)):
        beside = [replace(worst, epsilon=None) for worst in used]
    each = zip(names, used, spent, beside, most, strict=True)
    return [_balance(name, ruler, u, s, b, of_it) for name, u, s, b, of_it in each]


def _now(state: State) -> int:
    return max(state.time, state.now)


def _kept(state: State, counted: Counted) -> Integers | None:
    """Return what allotments keep of an account in each cell (rows, *sides); None without any."""
    found: Integers | None = None
    for one in state.keeping(counted.key):
        if one.rule.stands(_now(state)):
            drawn, sides = state.seen(one.key).used, one.epoch.capacity.sides
            if found is None:
                found = np.zeros((len(counted.epoch.axis), *drawn.sides), dtype=np.int64)
            sums = Columns.of(drawn)
            for row, (_, most) in enumerate(sides):
                found[row] += np.maximum(most - sums[row], 0)  # nothing where a sum is infinite
    return found


def _balance(
    group: str, ruler: Ruler, used: Worst, spent: Worst, beside: Worst, kept: int
) -> Balance:
    limit = ruler.capacity.epsilon
    own_left = beside.own_delta is not None and beside.own_delta <= ruler.capacity.own_delta
    if used.epsilon is None or spent.epsilon is None:
        reserved = "0" if spent.epsilon is None else INFINITE
        remaining, share = 0, None
    else:
        reserved = show(max(0, used.epsilon - spent.epsilon), Currency.EPSILON)
        left = own_left and beside.epsilon is not None
        remaining = max(0, limit - (beside.epsilon or 0)) if left else 0
        share = used.epsilon / limit if limit else 1.0
    return Balance(
        group=group,
        spent=amount(spent.epsilon, Currency.EPSILON),
        reserved=reserved,
        remaining=show(remaining, Currency.EPSILON),
        kept=show(kept, Currency.EPSILON),
        share=share,
        spent_delta=amount(spent.delta, Currency.DELTA),
        held_delta=amount(used.delta, Currency.DELTA),
        own_delta=amount(used.own_delta, Currency.DELTA),
        over=used.over,
        void=spent.over,
        sum_of_epsilons=amount(used.path_sum, Currency.EPSILON),
    )


def worst_group(state: State, counted: Counted, account: Sums) -> dict[str, str]:
    """Describe the cells, of those that the rule is about, that have used most under it, by the
    sums of its account; empty if all have used the same. Cells with the same sums are one group if
    they are all combinations of some values.
    """
    if not state.people().dimensions:
        return {}
    about, ruler = _about(state, counted.rule), Ruler(counted.rule, counted.epoch)
    if about.classes is not None:
        sides, count, first = _worst_classes(about, about.classes, ruler, account.stacked())
    else:
        used = about.of(Columns.of(account))
        shape, worst = used[0].shape, ruler.worst(used).cell
        alike = _alike(account, about, worst)
        places = np.unravel_index(alike, shape)
        sides, count = [np.unique(side) for side in places], len(alike)
        first = tuple(map(int, np.unravel_index(worst, shape)))
    if prod(map(len, sides)) != count:
        sides = [np.array([i]) for i in first]
    found = {}
    for (name, values), side in zip(_values(state, counted.rule), sides, strict=True):
        more = len(side) - MOST_NAMED
        named = ", ".join(values[i] for i in side[:MOST_NAMED])
        if len(side) < len(values):
            found[name] = f"{named} and {more} more" if more > 0 else named
    return found


def _alike(account: Sums, about: Region, worst: int) -> Integers:
    """Return the places, among the cells that a limit is ``about``, of those that hold the same as
    the one at ``worst``, in every row.
    """
    alike: Integers | None = None
    for row, infinite in product(range(account.rows), (False, True)):
        all_ = account.row(row, infinite=infinite)
        if not all_.shape:
            continue  # all cells hold the same
        sums = (all_ if about.box is None else all_[np.ix_(*map(ordered, about.box))]).reshape(-1)
        if alike is None:
            alike = np.flatnonzero(sums == sums[worst])
        else:
            alike = alike[sums[alike] == sums[worst]]
    if alike is None:
        alike = np.arange(prod(map(len, about.box or map(range, account.sides))))
    return alike


def _worst_classes(
    about: Region, classes: Classes, ruler: Ruler, cells: Integers
) -> tuple[list[Integers], int, Cell]:
    """Return the places, among the values that a limit is ``about``, of the cells that hold the
    same as the first of those that have used most; how many these are; and the first itself.
    """
    numbers, known = about.numbers, classes.count
    used = cells[:, numbers]
    compared = Columns.stacked(used)
    peaks = numbers[ruler.alike(compared, ruler.worst(compared).cell)]
    worst = classes.number(classes.first(about.selection, peaks, known))
    alike = numbers[(used == cells[:, worst : worst + 1]).all(axis=0)]
    first = classes.first(about.selection, alike, known)
    box = about.box or tuple(map(range, classes.shape))
    sides, count = classes.sides_of(alike, box)
    places = [np.searchsorted(ordered(side), at) for side, at in zip(box, sides, strict=True)]
    starts = (np.searchsorted(ordered(side), at) for side, at in zip(box, first, strict=True))
    return places, count, tuple(map(int, starts))


def lifetime_totals(
    state: State, dataset: str | None = None, by: str | None = None
) -> list[dict[str, Any]]:
    """Return the lifetime total of ``dataset``, or of each, then of all together, by ``by``."""
    axis = state.people().axis(by) if by is not None else None
    rows = []
    for name in [*(sorted(state.datasets) if dataset is None else [dataset]), ALL]:
        row: dict[str, Any] = {"dataset": name} | lifetime_sums(state, name, None)[0]._asdict()
        if axis is not None:
            values, sums = state.people().dimensions[axis][1], lifetime_sums(state, name, axis)
            pairs = zip(values, sums, strict=True)
            row["groups"] = [{"group": value} | total._asdict() for value, total in pairs]
        rows.append(row)
    return rows


def lifetime_sums(state: State, dataset: str, axis: int | None, unit: str = "") -> list[Total]:
    """Return all that was ever booked on a dataset (or ALL) for a unit, per value of a dimension.

    Path-wise sums at the peak cell. Where such a sum has no bound: the number of a limit rule that
    has counted everything; over all datasets, the sum of the datasets' numbers.
    """
    cells, whole = Columns.of(state.seen(lifetime(dataset, unit)).used), Region(state.classes)
    columns = most_of(whole.by_axis(cells, axis), range(len(SURE)))
    sums = [Total(*map(_sure, SURE, column)) for column in columns]
    for counted in scopes(state) if any(INFINITE in total for total in sums) else ():
        if counted.epoch.whole and _same_data(state, counted, dataset, unit):
            used = Columns.of(state.seen(counted.key).used)
            found = Ruler(counted.rule, counted.epoch).by_value(whole.by_axis(used, axis))
            sums = [
                # Over its limit a rule guarantees nothing.
                total if INFINITE not in total or worst.over else _measured(worst)
                for total, worst in zip(sums, found, strict=True)
            ]
    if dataset == ALL and any(INFINITE in total for total in sums):
        each = [lifetime_sums(state, name, axis, unit) for name in sorted(state.datasets)]
        sums = [
            total if INFINITE not in total else Total(*map(_together, *parts))
            for total, *parts in zip(sums, *each, strict=True)
        ]
    return sums


def _sure(currency: Currency, most: int) -> str:
    """Return the largest path-wise sum in a currency, as it was read from columns."""
    return amount(finite(most), currency)


def _same_data(state: State, counted: Counted, dataset: str, unit: str) -> bool:
    """Return True if the account counts all that is booked on ``dataset``, which may be ALL, for a
    unit.
    """
    if counted.rule.divides or counted.rule.subjects:
        return False
    if (counted.key.dataset, counted.key.unit) != (dataset, unit):
        return False
    return dataset != ALL or all(map(counted.rule.scope.holds, state.datasets.values()))


def _measured(worst: Worst) -> Total:
    return Total(amount(worst.epsilon, Currency.EPSILON), amount(worst.delta, Currency.DELTA))


def _together(*amounts: str) -> str:
    """Add up the epsilons or deltas of several datasets, which hold at every stopping time.

    With x the amount by which a loss exceeds its number, 1 - e^-(x + y) is at most (1 - e^-x) +
    (1 - e^-y) where both are positive, so that the deltas add up with the epsilons.
    """
    return INFINITE if INFINITE in amounts else format(sum(map(Decimal, amounts)), "f")
