"""The next waiting request to admit: a function of the ledger and a stamp, and of nothing else.

At each event all is looked through that the event may have let in, in the policy's order, before
anything else is decided. So between two events nothing that waits fits, but for what passes with
time; that is looked at first at the stamp of the next event. ``decide`` refuses to go on before it,
live and in replay: a ledger in which a request was skipped, overtaken or admitted twice does not
replay.

Claim: who is admitted does not depend on the index. *Proof.* What ``next`` passes over fails at its
witness: the cell has had no more left since it was filed there (``waking`` marks each event, ``at``
each stamp, from which on it may have), or has less left than is needed. An admission takes budget
and gives none, so what was passed over before it still fails. What is found is asked of
``evaluate``. So the first that is admitted is the first in order, of all that wait, that fits.

A request that waits for a person waits here like any other: while a rule with ``action: approve``
fires on it, it is not granted. The approval is a command (``decide/approving.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from accountant.budget.accounts.peak import Reading, rows_of
from accountant.budget.accounts.unlocking import unlocked
from accountant.budget.advice import most_that_fits
from accountant.budget.commands import AskGrant
from accountant.budget.errors import Problem
from accountant.budget.evaluate import Judgement, evaluate
from accountant.budget.population.selection import Selection
from accountant.budget.request import Request, prepare
from accountant.budget.rises import next_rise
from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.base import Compared, View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import Counted, State
from accountant.budget.waiting.queue import Index, Place, Queue, Waiting
from accountant.budget.waiting.shares import ARRIVAL, key_of
from accountant.budget.waiting.tree import Key, Need

if TYPE_CHECKING:
    from accountant.budget.grants import AccountKey
    from accountant.privacy.units import Charge

_ENDLESS: Final = 2**200
"""A need that nothing has left."""
_FICKLE: Final = frozenset({"used", "now", "memory", "back"})
"""What a rule may read that changes without a policy."""


class Admitted(NamedTuple):
    """A request that is to be admitted: what it asks for now, and its judgement."""

    waiting: Waiting
    asks: AskGrant
    request: Request
    judgement: Judgement


def due(state: State, now: int) -> tuple[Admitted, int] | None:
    """Return the next request that the ledger has to admit before anything else is decided at
    stamp ``now``, with the stamp that its admission has; None if there is none.
    """
    queue = state.waiting
    if not queue.requests or state.batch is not None or state.population is None:
        return None
    now = max(now, state.time)
    index = queue.index
    if index is None or index.stamp > now:  # time went back: what had passed may count again
        index = queue.index = _anew(state, queue)
    for stamp in (state.time, now):
        queue.index = index = _at(state, index, stamp)
        if index.quiet:
            continue
        if (found := _look(state, queue, stamp)) is not None:
            return found, stamp
        index = queue.index
    return None


def _anew(state: State, queue: Queue) -> Index:
    """Return an index in which everything is to be looked at."""
    index = Index()
    for waiting in queue.in_order():
        index = index.add(place_of(state, waiting), waiting.sequence)
    return index


def joined(
    state: State, index: Index, waiting: Waiting, witness: Witness | None, now: int
) -> Index:
    """Return the index with a request that has come at stamp ``now``, filed if its ``witness`` is
    known.
    """
    key = place_of(state, waiting)
    if witness is None:
        return index.add(key, waiting.sequence)
    return _filed(state, index, waiting.sequence, key, witness, now)


def place_of(state: State, waiting: Waiting) -> Key:
    """Return the place of a request that waits in the order that the policy names."""
    order = state.adopted.policy.order if state.adopted else ARRIVAL
    if order == ARRIVAL:
        return (0, waiting.sequence)
    try:
        request = prepare(state, waiting.by, waiting.asks(), state.time)
    except Problem:  # it is not admitted as long as it cannot be priced
        return (_ENDLESS, waiting.sequence)
    return key_of(state, request, waiting.sequence, order)


def _at(state: State, index: Index, stamp: int) -> Index:
    if index.timed is None or index.timed_from > stamp:
        return index if index.stamp >= stamp else index._replace(stamp=stamp)
    return index.at(stamp, lambda key: rises(state, key, stamp), state.people().shape)


def rises(state: State, key: AccountKey, after: int) -> int | None:
    """Return the next stamp beyond ``after`` at which the account of ``key`` has more left because
    time has passed; None if there is none.
    """
    account, adopted = state.accounts.get(key), state.adopted
    stamps = [None if account is None else account.rises(after)]
    if adopted is not None:
        rules = {rule.id: rule for rule in adopted.policy.limits}
        limit = rules.get(key.rule)
        if limit is not None and limit.unlock is not None:
            stamps.append(next_rise(state, Counted(limit, adopted.epochs[limit.id], key), after))
        parts = (one for one in rules.values() if isinstance(one, AllotmentRule))
        stamps += [one.ends for one in parts if one.part_of == key.rule]
    return min((one for one in stamps if one is not None and one > after), default=None)


def _look(state: State, queue: Queue, stamp: int) -> Admitted | None:
    """Return the first request that is admitted at ``stamp``; look the index through up to it."""
    index = queue.index or Index()
    if index.always is not None:  # what may have changed its mind is looked at once more
        index = index.ask_again()
    room = _Room(state, stamp)
    try:
        while True:
            index, key, sequence = index.next(room.at)
            if sequence < 0:
                return None
            waiting = queue.requests[f"g{sequence}"]
            if waiting.due(stamp):
                index = index.remove(sequence)
                continue
            found, witness = _try(state, waiting, stamp)
            if found is not None:
                return found
            index = _filed(state, index, sequence, key, witness, stamp)
    finally:
        queue.index = index


class Witness(NamedTuple):
    """Why a request is not admitted: the place that does not have its need left, or none."""

    place: Place | None
    need: Need = ()
    always: bool = False


def _try(state: State, waiting: Waiting, stamp: int) -> tuple[Admitted | None, Witness]:
    """Ask the evaluator about a request: as much of it as is accepted and fits."""
    few, most = waiting.counts
    try:
        whole = waiting.asks()
        request = prepare(state, waiting.by, whole, stamp).among(0)  # it came before
        judgement = evaluate(state, request)
        if judgement.granted:
            return Admitted(waiting, whole, request, judgement), Witness(None)
        if few < most:
            count = max(most_that_fits(state, waiting.by, whole, stamp), few)
            part = waiting.asks(count)
            request = prepare(state, waiting.by, part, stamp).among(0)
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
        epoch, charge = used.epoch, used.charge.on(used.reading.account.axis)
        fits, peak = used.whole.peak(epoch.gate, epoch.limit, charge, most)
        if not fits:
            cell = peak.cell
            if cell is None:  # all cells are alike
                cell = (0,) * len(state.people().shape)
            sides = zip(epoch.capacity.sides, most.sides, strict=True)
            # A context may have more than the usual amount, by which a cell's room is told.
            need = tuple(
                _need(charge, currency) - max(0, more - usual)
                for (currency, usual), (_, more) in sides
            )
            return Witness((counted.key, cell), need)
    return Witness(None, always=True)  # a kind of limit that compares more than sums


def _need(charge: Charge, currency: Any) -> int:
    units = charge.units(currency)
    return _ENDLESS if units is None else units


def _filed(
    state: State, index: Index, sequence: int, key: Key, witness: Witness, stamp: int
) -> Index:
    if witness.place is None:
        return index.keep(sequence, key, always=witness.always).passed(key)
    account = witness.place[0]
    index = index.file(sequence, key, witness.place, witness.need).passed(key)
    return index.schedule(account, rises(state, account, stamp))


class _Room:
    """What cells have left at one stamp; what allotments keep of that is left to the evaluator."""

    def __init__(self, state: State, stamp: int) -> None:
        self._state, self._stamp = state, stamp
        self._known: dict[Place, Callable[[Need], bool]] = {}

    def at(self, place: Place) -> Callable[[Need], bool]:
        """Return whether a cell has a need left: epsilon or one of the gate's own, and delta."""
        if (known := self._known.get(place)) is None:
            known = self._known[place] = self._of(place)
        return known

    def _of(self, place: Place) -> Callable[[Need], bool]:
        key, cell = place
        state = self._state
        account = state.account(key).at(self._stamp)
        if state.adopted is None:
            return lambda need: True
        epoch = state.adopted.epochs[key.rule]
        [rule] = [one for one in state.adopted.policy.limits if one.id == key.rule]
        capacity = epoch.capacity
        if rule.unlock is not None:
            lock = state.lock(Counted(rule, epoch, key), self._stamp)
            capacity = unlocked(capacity, lock.share(cell or None))
        one = Selection(everyone=False, boxes=(tuple(range(at, at + 1) for at in cell),))
        reading = Reading(account, one if cell else Selection(everyone=True))
        rows = rows_of(account.axis, tuple(currency for currency, _ in capacity.sides))
        used = [reading.most(row) for row in rows]
        epsilon, delta, *along = (
            -_ENDLESS if have is None else most - have
            for have, (_, most) in zip(used, capacity.sides, strict=True)
        )
        others = epsilon, *along

        def left(need: Need) -> bool:
            first, own, *rest = need
            if own > delta:
                return False
            return any(map(_within, (first, *rest), others))

        return left


def _within(need: int, left: int) -> bool:
    return need <= left


def blocks_only_by_limits(state: State, judgement: Judgement) -> bool:
    """Return whether only limits block a request, so that it may fit once budget is free."""
    rules = {rule.id: rule for rule in state.adopted.policy.rules} if state.adopted else {}
    blocking = [one for one in judgement.fired if one.action == "block"]
    return all(isinstance(rules.get(one.rule), LimitRule) for one in blocking)


def never_fits(state: State, request: Request) -> list[Compared]:
    """Return the limits that ``request`` would not fit under on an empty account either."""
    view, found = View(state, request), list[Compared]()
    for rule in state.adopted.policy.limits if state.adopted else ():
        for one, capacity in rule.compared_with(view) if rule.action == "block" else ():
            charge = one.charge.on(one.reading.account.axis)
            epsilon, delta, *along = (
                _need(charge, currency) <= most for currency, most in capacity.sides
            )
            if not (delta and (epsilon or any(along))):
                found.append(rule.compared(fired=True))
                break
    return found
