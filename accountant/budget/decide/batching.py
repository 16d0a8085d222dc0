"""Decide batches: all or nothing, each item as it would be alone, after those before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import orjson

from accountant.budget.apply import apply, savepoint
from accountant.budget.batches import OPENED, PART, REFUSED, Gathered, OpenBatch
from accountant.budget.changes import arrival
from accountant.budget.commands import (
    Batch,
    BatchPart,
    Command,
    CommitGrant,
    Envelope,
    ExpireGrant,
    digest_of,
)
from accountant.budget.decide.proposing import SecondNeeded
from accountant.budget.decide.spending import SPENDING, expire
from accountant.budget.decide.waiting import SYSTEM
from accountant.budget.errors import Conflict, Invalid, Problem
from accountant.budget.outcome import REFUSED as REFUSED_GRANT
from accountant.budget.outcome import Body, Change, Outcome, outcome
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event, EventTooLarge

MOST_BYTES: Final = 48 * 1024
"""Bytes of items that one event of a refused batch holds: beside them the refusal has room for the
decision, as a rule.
"""


class _Refused(NamedTuple):
    """The item of a batch that was refused: its place and its outcome, and what that changes."""

    place: int
    one: Outcome
    change: Change


def batch(state: State, asked: Envelope, command: Batch, now: int) -> list[Outcome]:
    """Return the header and an event for each item, or one refusal, with the parts that it needs.
    Raises the Problem of the first item that cannot be answered, with its place; then nothing is
    recorded.

    A grant whose time has passed is expired before the batch begins, so that each item has exactly
    one event. No decision reads at which sequence it is taken, so that a refusal is the same before
    its parts, where it is taken first, and behind them, where it stands.
    """
    if not asked.items:  # read back from its event: the items are decided as they come
        return [_opened(state, asked, command, now)]
    if isinstance(state.batch, Gathered):
        asked = state.batch.whole(asked)
    _check(command, asked)
    expired: list[Outcome] = []
    taken: list[Outcome] = []
    with _parts_aside(state), savepoint(state):  # each item is folded in until the end
        for name in [item.grant for item in asked.items if isinstance(item, CommitGrant)]:
            if (grant := state.open.get(name)) and grant.due(now):
                due = ExpireGrant(grant=name)
                expired += expire(state, Envelope(SYSTEM, due), due, now)
                apply(state, expired[-1])
        header = _opened(state, asked, command, now)
        apply(state, header)
        refused = _decide(state, asked, now, taken)
    if refused is None:
        return [*expired, header, *taken]
    return [*expired, *_refusal(state, asked, command, now, refused, len(expired))]


@contextmanager
def _parts_aside(state: State) -> Iterator[None]:
    """Lay the parts of a refused batch aside while it is decided as if it came without them."""
    gathered, state.batch = state.batch, None
    try:
        yield
    finally:
        state.batch = gathered


def _decide(state: State, asked: Envelope, now: int, taken: list[Outcome]) -> _Refused | None:
    """Decide each item after those before it, which are folded in; add their outcomes to ``taken``.
    Returns the first item that is refused. Raises Problem.
    """
    for place, item in enumerate(asked.parts):
        try:
            [one] = SPENDING[type(item.command)](state, item, item.command, now)
        except SecondNeeded as needed:
            problem = needed.alone()
            problem.numbers["item"] = place
            raise problem from None
        except Problem as problem:
            problem.numbers["item"] = place
            raise
        if one.entry.type == REFUSED_GRANT:
            judged = [each.command for each in asked.parts[: place + 1]]
            return _Refused(place, one, arrival(state, asked.by, judged))
        taken.append(one)
        apply(state, one)
    return None


def part(state: State, asked: Envelope, _: BatchPart, now: int) -> list[Outcome]:
    """Return the event of a part of a refused batch. Raises ValueError if none can stand here."""
    before = state.batch if isinstance(state.batch, Gathered) else None
    return [_part(state, asked, now, Gathered.after(before, state.sequence, now, asked))]


def _part(state: State, asked: Envelope, now: int, change: Gathered, after: int = 0) -> Outcome:
    body: Body = {"items": [orjson.Fragment(item.canonical) for item in asked.parts]}
    return outcome(state, asked, PART, now, body, change, after)


def _opened(state: State, asked: Envelope, command: Batch, now: int) -> Outcome:
    change = OpenBatch(state.sequence, now, asked.by, command)
    return outcome(state, asked, OPENED, now, {}, change)


def _check(command: Batch, asked: Envelope) -> None:
    """Raise Invalid if these are not the items."""
    items = [item.canonical for item in asked.parts]
    if (len(items), digest_of(items)) != (command.size, command.digest):
        raise Invalid("batch-digest", "the batch does not consist of the items that it names")


def _refusal(
    state: State, asked: Envelope, command: Batch, now: int, refused: _Refused, after: int
) -> list[Outcome]:
    """Return the refusal, with all items where it has room for them. Else it holds the refused item
    and parts directly before it hold the others; it comes alone where those have been gathered.
    ``after`` events come before. Raises EventTooLarge if an item has no room even so.
    """
    items, place = asked.parts, refused.place
    if sum(len(item.canonical) for item in items) <= MOST_BYTES:
        with suppress(EventTooLarge):  # a decision may be long, too
            return [_refused(state, asked, now, refused, range(len(items)), after)]
    runs = [*_runs(items[:place], 0), *_runs(items[place + 1 :], place + 1)]
    parts: list[Outcome] = []
    if isinstance(state.batch, Gathered):
        if state.batch.layout != [(first, len(run)) for first, run in runs]:
            raise Conflict("batch-digest", "the batch is not parted as its refusal would part it")
    else:
        gathered: Gathered | None = None
        for before, (first, run) in enumerate(runs, start=after):
            each = _part_of(asked, command, first, run)
            gathered = Gathered.after(gathered, state.sequence + before, now, each)
            parts.append(_part(state, each, now, gathered, before))
    mine = range(place, place + 1)
    return [*parts, _refused(state, asked, now, refused, mine, after + len(parts), len(runs))]


def _runs(items: Sequence[Envelope], first: int) -> list[tuple[int, list[Envelope]]]:
    """Return items, from place ``first`` of their batch on, by the parts that hold them, each with
    the place where it begins: as many as a part has room for, but one at least.
    """
    runs: list[tuple[int, list[Envelope]]] = []
    left = 0
    for place, item in enumerate(items, start=first):
        size = len(item.canonical)
        if size > left:
            runs.append((place, []))
            left = max(size, MOST_BYTES)
        runs[-1][1].append(item)
        left -= size
    return runs


def _refused(
    state: State,
    asked: Envelope,
    now: int,
    refused: _Refused,
    mine: range,
    after: int,
    parts: int = 0,
) -> Outcome:
    """Return one event with the decision on the refused item, which holds the items of the places
    ``mine``; ``after`` events come before, and the last of them are ``parts``.
    """
    body: Body = dict(refused.one.event().body)
    del body["batch"]
    body["command"] = asked.document
    body["items"] = [orjson.loads(asked.parts[place].canonical) for place in mine]
    body["item"] = refused.place - mine.start
    if parts:
        body |= {"first": mine.start, "parts": parts}
    if asked.key is not None:
        body["key"] = asked.key
    entry = Entry.of(Event(state.ledger, state.sequence + after, REFUSED, now, asked.by, body))
    fired = body.get("fired", ())
    return Outcome(entry, asked.by, asked.key, asked.canonical, refused.change, fired=fired)


def _part_of(asked: Envelope, batch: Batch, first: int, items: Sequence[Envelope]) -> Envelope:
    """Return what asks for the part of a batch that holds ``items``, from place ``first`` on."""
    command = BatchPart(size=batch.size, digest=batch.digest, first=first)
    commands = tuple(item.command for item in items)
    return Envelope(asked.by, command, None, commands, listed=tuple(items))


BATCHES: Final[dict[type[Command], Callable[[State, Envelope, Any, int], list[Outcome]]]] = {
    Batch: batch,
    BatchPart: part,
}
