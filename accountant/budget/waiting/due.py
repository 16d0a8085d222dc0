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

from typing import TYPE_CHECKING

from accountant.budget.accounts.peak import Reading
from accountant.budget.errors import Problem
from accountant.budget.evaluate import Judgement
from accountant.budget.request import Request
from accountant.budget.rules.base import Compared, View
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting, least_of
from accountant.budget.waiting.lines import groups_of, lines_of
from accountant.budget.waiting.looking import (
    ENDLESS,
    Admitted,
    Room,
    Witness,
    look_at,
    need_of,
    when,
)
from accountant.budget.waiting.prices import prices_of
from accountant.budget.waiting.queue import PATIENCE, WHOLE, Index, Place, Queue
from accountant.budget.waiting.refiling import filed_anew
from accountant.budget.waiting.shares import ARRIVAL
from accountant.budget.waiting.tree import find

if TYPE_CHECKING:
    from accountant.budget.waiting.tree import Key, Need


def due(state: State, now: int) -> tuple[Admitted, int] | None:
    """Return the next request that the ledger has to admit before anything else is decided at
    stamp ``now``, with the stamp that its admission has; None if there is none.
    """
    queue = state.waiting
    if not queue.requests or state.batch is not None or state.population is None:
        return None
    now = max(now, state.time)
    index = queue.index
    if index is None or index.stamp > now or (index.stamp > state.time and not index.quiet):
        # Nothing is known of it, or something is to be looked at as of a stamp that has passed.
        index = filed_anew(state, state.time)
    for stamp in (state.time, now):
        before, queue.index = index, _at(state, index, stamp)
        if (found := None if queue.index.quiet else _look(state, queue, stamp)) is not None:
            if stamp > state.time:  # it is found again until it is admitted, whoever asks
                queue.index = before
            return found, stamp
        index = queue.index
    return None


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
    line, groups = lines_of(state).of(state, waiting.about), groups_of(state)
    try:
        bill = prices_of(state).of(state, waiting)
        found = None if line is None else line.key(bill, waiting, groups)
    except Problem:
        found = None
    return found or (ENDLESS, waiting.sequence)  # it is not admitted as long as it has no price


def _at(state: State, index: Index, stamp: int) -> Index:
    if index.timed is None or index.timed_from > stamp:
        return index if index.stamp >= stamp else index._replace(stamp=stamp)
    return index.at(stamp, lambda place, need: when(state, place, need, stamp))


def _look(state: State, queue: Queue, stamp: int) -> Admitted | None:
    """Return the first request that is admitted at ``stamp``; look the index through up to it."""
    index = queue.index or Index()
    if index.always is not None:  # what may have changed its mind is looked at once more
        index = index.ask_again()
    room = Room(state, stamp)

    def later(place: Place, need: Need) -> int | None:
        return when(state, place, need, stamp)

    try:
        while True:
            index, key, sequence = index.next(room.at, later)
            if sequence < 0:
                queue.vain, queue.patience = 0, PATIENCE
                return None
            waiting = queue.requests[f"g{sequence}"]
            before, index = index, _in_place(state, index, waiting, key, stamp)
            if index is not before:
                continue
            if (witness := _held_up(state, waiting, room, stamp)) is None:
                found, witness = look_at(state, waiting, stamp)
                if found is not None:
                    return found
            index = _filed(state, index, sequence, key, witness, stamp)
            if witness.place is not None:
                queue.hold(witness.place)
            if queue.impatient():
                index = filed_anew(state, stamp)
    finally:
        queue.index = index


def _in_place(state: State, index: Index, waiting: Waiting, key: Key, stamp: int) -> Index:
    """Return the index with a request, found at ``key``, where all that it costs puts it: it may
    have been filed by a part of that (``Prices.least``), too early and with too small a need. One
    whose time has passed is removed. It is the same index if the request is in place.
    """
    sequence, prices = waiting.sequence, prices_of(state)
    if waiting.due(stamp):
        return index.remove(sequence)
    if prices.stands(waiting):
        return index
    line = lines_of(state).of(state, waiting.about)
    try:
        bill = prices.of(state, waiting)
    except Problem:
        line = None
    if line is None:
        return index.keep(sequence, (ENDLESS, sequence), always=False)
    own, known = place_of(state, waiting), find(index.places, (sequence,))
    place: Place | None = None if known is None else known.value[1]
    if place is None or (within := line.within.get(place[0])) is None:
        return index if own == key else index.remove(sequence).add(own, sequence)
    need, file = within.need(bill, waiting.counts), find(index.files, place)
    filed = None if file is None else find(file.value, key)
    if own == key and filed is not None and filed.need == need:
        return index
    return index.file(sequence, own, place, need)


def _held_up(state: State, waiting: Waiting, room: Room, stamp: int) -> Witness | None:
    """Return a place that does not have left what a request needs, found without reading it: the
    peak of its cells in an account. None if the evaluator is to be asked.
    """
    line, people = lines_of(state).of(state, waiting.about), state.people()
    try:
        bill = prices_of(state).of(state, waiting)
        selection = groups_of(state).selection(waiting.subjects)
    except Problem:
        return None
    for key, within in line.within.items() if line else ():
        rule, epoch, _ = within.counted
        if (about := rule.cells(people, selection)) is None:
            continue
        account, most = (
            state.account(key).at(stamp),
            rule.capacity_for(epoch, waiting.by, waiting.about.purpose),
        )
        charge = least_of(bill.to(key.unit), waiting.counts).on(account.axis)
        reading = Reading(account, state.cells(key.unit, about))
        fits, peak = reading.peak(epoch.gate, epoch.limit, charge, most)
        cell = (0,) * len(people.shape) if peak.cell is None else peak.cell
        need = within.need(bill, waiting.counts)
        if not (fits or room.at((key, cell))(need)):
            return Witness((key, cell), need)
    return None


def _filed(
    state: State, index: Index, sequence: int, key: Key, witness: Witness, stamp: int
) -> Index:
    if witness.place is None:
        return index.keep(sequence, key, always=witness.always).passed(key)
    place, need, every = witness.place, witness.need, (witness.place[0], WHOLE)
    index = index.file(sequence, key, place, need).passed(key)
    index = index.schedule(every, when(state, every, (), stamp))
    return index.schedule(place, when(state, place, need, stamp))


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
            epsilon, delta, *along = (
                need_of(one.charge, currency) <= most for currency, most in capacity.sides
            )
            if not (delta and (epsilon or any(along))):
                found.append(rule.compared(fired=True))
                break
    return found
