"""Limits: the comparison of what is used, what is asked and what may be held, cell by cell.

A finding quotes both sides at the cell where the limit is tightest.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.accounts import Account, charge_from, frontier, room
from accountant.budget.decision import Finding
from accountant.budget.meter import Integers, Sums
from accountant.budget.policy import LimitRule, ThresholdRule
from accountant.budget.request import Request
from accountant.budget.selection import Selection, ordered
from accountant.budget.state import ALL, AccountKey, Counted, State
from accountant.privacy.filters import Capacity, Gate, Limit
from accountant.privacy.units import LARGEST, Axis, Charge, Currency, amount, show

_UNBOUNDED: Final = "{} has no finite cost as stated, neither in epsilon nor under gate {}"
_NAME_A_DELTA: Final = " (Gaussian noise has an epsilon at a delta: add a delta to the mechanism)"


class Reading(NamedTuple):
    """What a rule finds at the cell where it is tightest; amounts are decimal strings."""

    fits: bool
    """Every selected cell can take the charge."""
    group: dict[str, str]
    before: str
    after: str
    used: tuple[str, ...]
    """In each currency that is compared (``compared``)."""
    holds: tuple[bool, ...]


Read = Callable[[State, Request, Counted, Capacity], Reading]


def limit(state: State, request: Request, counted: Counted, read: Read) -> Finding:
    """What a limit rule says of ``request`` in one of its accounts."""
    rule = counted.rule
    reading = read(state, request, counted, counted.epoch.capacity)
    numbers = _numbers(state, request, counted, counted.epoch.capacity, reading)
    text = (
        f"{numbers['scope']}: epsilon {reading.after} of {rule.limit.epsilon} "
        f"would be spent ({reading.before} before)"
    )
    currencies = (Currency.EPSILON, counted.epoch.capacity.second_currency)
    unbounded = [
        mechanism.kind
        for mechanism, priced in zip(request.mechanisms, request.priced, strict=True)
        if all(c is None or priced.charge.is_infinite(c) for c in currencies)
    ]
    if unbounded:
        kinds = ", ".join(dict.fromkeys(unbounded))
        text += "; " + _UNBOUNDED.format(kinds, rule.filter.name)
        text += _NAME_A_DELTA if "gaussian" in kinds else ""
    return Finding(rule.id, rule.action, not reading.fits, "budget-exceeded", text, numbers)


def threshold(
    state: State, request: Request, rule: ThresholdRule, counted: Counted, read: Read
) -> Finding:
    """What a threshold says of ``request`` in one of the accounts of the rule that it watches."""
    of = counted.rule
    capacity = share_of(counted, rule)
    reading = read(state, request, counted, capacity)
    fired = not reading.fits
    numbers = _numbers(state, request, counted, capacity, reading)
    [own] = [c for c in numbers["comparisons"] if c["currency"] == Currency.DELTA]
    text = (
        f"{numbers['scope']}: epsilon {reading.after} of {of.limit.epsilon} would be "
        f"spent, own deltas {own['used']} + {own['charge']}: "
        f"{'above' if fired else 'within'} {rule.at} of what rule {of.id} allows"
    )
    return Finding(rule.id, rule.action, fired, "threshold-passed", text, numbers)


def share_of(counted: Counted, rule: ThresholdRule) -> Capacity:
    """The capacity at which ``rule`` fires, worked out once: it takes long fractions."""
    gate, limit = counted.rule.filter, counted.epoch.limit
    found = limit.shares.get((gate.name, rule.at))
    if found is None:
        found = limit.shares[gate.name, rule.at] = gate.capacity(limit, rule.share)
    return found


def compared(capacity: Capacity) -> list[tuple[Currency, int]]:
    """The currencies that are compared, with the most that a cell may hold."""
    found: list[tuple[Currency, int]] = [
        (Currency.EPSILON, capacity.epsilon),
        (Currency.DELTA, capacity.own_delta),
    ]
    if capacity.second_currency is not None and capacity.second is not None:
        found.append((capacity.second_currency, capacity.second))
    return found


def _numbers(
    state: State, request: Request, counted: Counted, capacity: Capacity, reading: Reading
) -> dict[str, Any]:
    """The numbers of a finding."""
    rule, key = counted.rule, counted.key
    charge = request.total.on(state.axis(counted))
    return {
        "scope": scope_name(key),
        "dataset": key.dataset,
        "client": key.client,
        "group": reading.group,
        "limit": {"epsilon": _plain(rule.limit.epsilon), "delta": _plain(rule.limit.delta)},
        "gate": rule.filter.name,
        "spent_before": reading.before,
        "spent_after": reading.after,
        "comparisons": [
            {
                "currency": str(currency),
                "used": used,
                "charge": charge.amount(currency),
                "capacity": show(most, currency),
                "holds": holds,
            }
            for (currency, most), used, holds in zip(
                compared(capacity), reading.used, reading.holds, strict=True
            )
        ],
    }


def read(state: State, request: Request, counted: Counted, capacity: Capacity) -> Reading:
    """Whether some selected cell cannot take the charge, and the numbers at the tightest cell."""
    rule, epoch, key = counted
    account = state.account(key)
    charge = request.total.on(account.axis)
    cell, used, fits = tightest(account, counted, request.selection, charge, capacity)
    return Reading(
        fits=fits,
        group=state.people().describe(cell) if cell is not None else {},
        before=spent(rule, epoch.limit, used),
        after=spent(rule, epoch.limit, used + charge),
        used=tuple(used.amount(currency) for currency, _ in compared(capacity)),
        holds=tuple(_holds(c, used, charge, most) for c, most in compared(capacity)),
    )


def _holds(currency: Currency, used: Charge, charge: Charge, most: int) -> bool:
    unbounded = used.is_infinite(currency) or charge.is_infinite(currency)
    return not unbounded and used[currency] <= most - charge[currency]


def tightest(
    account: Account, counted: Counted, selection: Selection, charge: Charge, capacity: Capacity
) -> tuple[tuple[int, ...] | None, Charge, bool]:
    """(cell, sums used there, whether all selected cells fit): the cell that has spent most among
    those that do not fit, or among all. The cell is None where everyone has the same.
    """
    found = []
    for box, part in enumerate(account.used.parts(selection)):
        fit = room(capacity, part, charge)
        fits = bool(fit.all())
        at, spent = 0, 0
        if fit.size > 1:
            among = None if fits else np.flatnonzero(~fit)
            at, spent = _most_spent(counted, account.axis, part, among)
        found.append(((not fits, spent), -box, at, part))
    (blocked, _), minus_box, at, part = max(found, key=lambda c: (c[0], c[1]))
    used = charge_from(account.axis, part.column(at))
    return cell_of(account, selection, -minus_box, at, part), used, not blocked


def _most_spent(
    counted: Counted, axis: Axis, part: Sums, among: NDArray[np.intp] | None
) -> tuple[int, int]:
    """(column, units of epsilon spent there) of the cell with the most, of the cells ``among`` or
    all. Where there is no bound, ``LARGEST`` and one for each infinite charge stand for it.
    """
    epsilon = _row(axis, part, Currency.EPSILON, among)
    top = int(epsilon.argmax())
    places = [(int(epsilon[top]), 0, top)]
    currency = counted.epoch.capacity.second_currency
    if currency is not None:
        second = _row(axis, part, currency, among)
        places = [(int(epsilon[top]), int(second[top]), top)]
        if second[top] < second.max():
            places = frontier(epsilon, second)
    gate, limit = counted.rule.filter, counted.epoch.limit

    def spent(e: int, s: int) -> int:
        found = gate.spent(limit, None if e > LARGEST else e, None if s > LARGEST else s)
        return e if found is None else found

    most, minus = max((spent(e, s), -at) for e, s, at in places)
    return -minus if among is None else int(among[-minus]), most


def _row(axis: Axis, part: Sums, currency: Currency, among: NDArray[np.intp] | None) -> Integers:
    i = axis.index(currency)
    finite, infinite = part[i], part[len(axis) + i]
    if among is not None:
        finite, infinite = finite[among], infinite[among]
    if infinite.any():
        finite = np.where(infinite > 0, LARGEST + infinite, finite)
    return finite


def cell_of(
    account: Account, selection: Selection, box: int, at: int, part: Sums
) -> tuple[int, ...] | None:
    """The cell at the position ``at`` of a part; None where everyone has the same."""
    shape = account.used.shape
    if selection.everyone:
        whole = part.size == int(np.prod(shape)) and shape
        return tuple(int(i) for i in np.unravel_index(at, shape)) if whole else None
    sides = [ordered(side) for side in selection.boxes[box]]
    if part.size == 1:
        return tuple(side[0] for side in sides)
    position = np.unravel_index(at, tuple(len(side) for side in sides))
    return tuple(side[int(i)] for side, i in zip(sides, position, strict=True))


def how_many(state: State, request: Request) -> int:
    """How many more requests like this one the blocking limits, of which there must be one, would
    admit.
    """
    charge = request.total
    return min(
        int(_times(part, charge.on(account.axis), epoch.capacity).min())
        for rule, epoch, key in state.limits_on(request.dataset, request.by)
        if rule.action == "block"
        for account in [state.account(key)]
        for part in account.used.parts(request.selection)
    )


def _times(used: Sums, charge: Charge, capacity: Capacity) -> Integers:
    """How many times ``charge`` fits on each cell."""

    def times(currency: Currency, most: int) -> Integers:
        i = charge.axis.index(currency)
        one = charge.finite[i]
        left = np.where(used[len(charge.axis) + i] > 0, -1, min(most, LARGEST) - used[i])
        if charge.infinite[i]:
            return np.zeros_like(left)
        return np.where(left < 0, 0, left // one if one else np.iinfo(np.int64).max)

    basic = times(Currency.EPSILON, capacity.epsilon)
    if capacity.second_currency is not None and capacity.second is not None:
        basic = np.maximum(basic, times(capacity.second_currency, capacity.second))
    return np.minimum(basic, times(Currency.DELTA, capacity.own_delta))


def spent(rule: LimitRule, limit: Limit, used: Charge) -> str:
    """Epsilon spent under the rule's gate, as a decimal string rounded up, or "infinite"."""
    return spent_under(rule.filter, limit, used)


def spent_under(gate: Gate, limit: Limit, used: Charge) -> str:
    """Epsilon spent under ``gate``, as a decimal string rounded up, or "infinite"."""
    currency = gate.currency(limit)
    second = None if currency is None else used.units(currency)
    return amount(gate.spent(limit, used.units(Currency.EPSILON), second), Currency.EPSILON)


def scope_name(key: AccountKey) -> str:
    """What an account is about, in words."""
    data = "a person's total over datasets" if key.dataset == ALL else f"dataset {key.dataset}"
    return f"{data}, client {key.client}" if key.client else data


def _plain(value: Decimal) -> str:
    return format(value, "f")
