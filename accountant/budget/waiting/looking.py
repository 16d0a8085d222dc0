"""Looking at one request that waits: whether the evaluator admits it, and what holds it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from accountant.budget.accounts.peak import rows_of
from accountant.budget.accounts.unlocking import unlocked, whole
from accountant.budget.advice import most_that_fits
from accountant.budget.commands import AskGrant
from accountant.budget.errors import Problem
from accountant.budget.evaluate import Judgement, evaluate
from accountant.budget.request import Request, waited
from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.base import View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import Counted, State
from accountant.budget.waiting.asked import Waiting
from accountant.budget.waiting.queue import WHOLE, Place
from accountant.budget.waiting.tree import Need

if TYPE_CHECKING:
    from accountant.budget.accounts.unlocking import Lock
    from accountant.budget.grants import AccountKey
    from accountant.privacy.filters import Capacity
    from accountant.privacy.units import Charge

ENDLESS: Final = 2**200
"""A need that nothing has left."""
_FICKLE: Final = frozenset({"used", "now", "memory", "back"})
"""What a rule may read that changes without a policy."""


class Admitted(NamedTuple):
    """A request that is to be admitted: what it asks for now, and its judgement."""

    waiting: Waiting
    asks: AskGrant
    request: Request
    judgement: Judgement


class Witness(NamedTuple):
    """Why a request is not admitted: the place that does not have its need left, or none."""

    place: Place | None
    need: Need = ()
    always: bool = False


def look_at(state: State, waiting: Waiting, stamp: int) -> tuple[Admitted | None, Witness]:
    """Ask the evaluator about a request: as much of it as is accepted and fits."""
    few, most = waiting.counts
    try:
        whole = waiting.asks()
        request = waited(state, waiting.by, whole, stamp)
        judgement = evaluate(state, request)
        if judgement.granted:
            return Admitted(waiting, whole, request, judgement), Witness(None)
        if few < most:
            count = max(most_that_fits(state, whole, request.among(1)), few)
            part = waiting.asks(count)
            request = waited(state, waiting.by, part, stamp)
            judgement = evaluate(state, request)
            if judgement.granted:
                return Admitted(waiting, part, request, judgement), Witness(None)
    except Problem:  # as for a rule that no budget helps: it is asked again when terms change
        return None, Witness(None)
    return None, witness_of(state, request, judgement)


def witness_of(state: State, request: Request, judgement: Judgement) -> Witness:
    """Return what holds a request up, which ``judgement`` does not grant. A limit that asks for a
    person's approval stands in the way of an admission like one that blocks.
    """
    holding = judgement.holding
    rules = {rule.id: rule for rule in state.adopted.policy.rules} if state.adopted else {}
    for one in holding:
        rule = rules.get(one.rule)
        if not isinstance(rule, LimitRule):
            fickle = rule is not None and not _FICKLE.isdisjoint(type(rule).reads)
            return Witness(None, always=fickle)
    view = View(state, request)
    route = state.route(request.datasets, request.by, request.purpose, request.allotment)
    name = holding[0].rule
    limit = cast(LimitRule, rules[name])
    for counted, (used, most) in zip(
        route.by_rule.get(name, ()), limit.compared_with(view), strict=True
    ):
        epoch, charge = used.epoch, used.charge
        fits, peak = used.whole.peak(epoch.gate, epoch.limit, charge, most)
        if not fits:
            cell = peak.cell
            if cell is None:  # all cells are alike
                cell = (0,) * len(state.people().shape)
            sides = zip(epoch.capacity.sides, most.sides, strict=True)
            # A context may have more than the usual amount, by which a cell's room is told.
            need = tuple(
                need_of(charge, currency) - max(0, more - usual)
                for (currency, usual), (_, more) in sides
            )
            return Witness((counted.key, cell), need)
    return Witness(None, always=True)  # a kind of limit that compares more than sums


def need_of(charge: Charge, currency: Any) -> int:
    """Return the units of a charge, endless if it is infinite."""
    units = charge.units(currency)
    return ENDLESS if units is None else units


class Room:
    """What cells have left at one stamp; what allotments keep of that is left to the evaluator."""

    def __init__(self, state: State, stamp: int) -> None:
        self._state, self._stamp = state, stamp
        self._known: dict[Place, Callable[[Need], bool]] = {}
        self._locks: dict[AccountKey, Lock] = {}

    def at(self, place: Place) -> Callable[[Need], bool]:
        """Return whether a cell has a need left: epsilon or one of the gate's own, and delta."""
        if (known := self._known.get(place)) is None:
            known = self._known[place] = self._of(place)
        return known

    def _of(self, place: Place) -> Callable[[Need], bool]:
        key, cell = place
        state = self._state
        if state.adopted is None:
            return lambda need: True
        epoch, rule = state.adopted.epochs[key.rule], state.adopted.rule(key.rule)
        capacity = epoch.capacity
        if isinstance(rule, LimitRule) and rule.unlock is not None:
            if (lock := self._locks.get(key)) is None:
                lock = self._locks[key] = state.lock(Counted(rule, epoch, key), self._stamp)
            capacity = unlocked(capacity, lock.share(cell or None))
        used = used_at(state, place, capacity, self._stamp)
        epsilon, delta, *along = (
            -ENDLESS if have is None else most - have
            for have, (_, most) in zip(used, capacity.sides, strict=True)
        )
        others = epsilon, *along

        def left(need: Need) -> bool:
            first, own, *rest = need
            if own > delta:
                return False
            return any(map(_within, (first, *rest), others))

        return left


def used_at(state: State, place: Place, capacity: Capacity, stamp: int) -> list[int | None]:
    """Return what is used of a cell, in the order of the capacity's sides; None is infinite."""
    key, cell = place
    account = state.account(key).at(stamp)
    rows = rows_of(account.axis, tuple(currency for currency, _ in capacity.sides))
    found = (account.used.of(row, cell or None) for row in rows)
    return [None if infinite else finite for finite, infinite in found]


def _within(need: int, left: int) -> bool:
    return need <= left


def when(state: State, place: Place, need: Need, after: int) -> int | None:
    """Return the first stamp beyond ``after`` from which a place may have a need left because time
    has passed, while nothing else happens; of all cells of an account (``WHOLE``) the next at which
    something comes back to it. None if there is none.
    """
    key, cell = place
    limit = state.adopted.rule(key.rule) if state.adopted else None
    if cell == WHOLE:
        return _comes_back(state, key, after)
    if not isinstance(limit, LimitRule) or limit.unlock is None or limit.unlock.over is None:
        return None
    assert state.adopted is not None  # noqa: S101 for the type checker
    return _unlocks(state, Counted(limit, state.adopted.epochs[limit.id], key), cell, need, after)


def _comes_back(state: State, key: AccountKey, after: int) -> int | None:
    account, adopted = state.accounts.get(key), state.adopted
    stamps = [None if account is None else account.rises(after)]
    if adopted is not None:
        limit, epoch = adopted.rule(key.rule), adopted.epochs.get(key.rule)
        window = epoch.window if epoch and limit and limit.unlock else None
        if window is not None and window.calendar:
            stamps.append(window.ends(after))  # and locks again
        parts = (one for one in adopted.policy.limits if isinstance(one, AllotmentRule))
        stamps += [one.ends for one in parts if one.part_of == key.rule]
    return min((one for one in stamps if one is not None and one > after), default=None)


def _unlocks(
    state: State, counted: Counted, cell: tuple[int, ...], need: Need, after: int
) -> int | None:
    """Return when a cell has a need unlocked, of a limit that unlocks over a span: ``floor(most *
    share) >= used + need`` from ``share * length >= (used + need) * length / most`` on.
    """
    rule, epoch, key = counted
    assert rule.unlock is not None  # noqa: S101 for the type checker
    length, capacity = rule.unlock.length, whole(epoch.capacity)
    share = state.lock(counted, after).share(cell or None)
    if share >= 1:
        return None
    if share <= 0:  # it may begin to unlock later
        return after + 1
    begun, used = after - int(share * length), used_at(state, (key, cell), capacity, after)

    def stamp(have: int | None, more: int, most: int) -> int | None:
        if have is None or have + more > max(most, 0):
            return None
        return after if have + more <= 0 else begun - (-(have + more) * length // most)

    each = zip(used, need, (most for _, most in capacity.sides), strict=True)
    epsilon, own, *along = (stamp(*one) for one in each)
    found = [one for one in (epsilon, *along) if one is not None]
    return None if own is None or not found else max(own, min(found), after + 1)
