"""Batches: all or nothing, each item decided as it would be alone, after those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from accountant.budget.apply import OpenedBatch, apply, savepoint
from accountant.budget.batches import OPENED, REFUSED, OpenBatch
from accountant.budget.changes import NOTHING
from accountant.budget.commands import Batch, Command, CommitGrant, Envelope, ExpireGrant, digest_of
from accountant.budget.decide.settling import SYSTEM
from accountant.budget.errors import Invalid, Problem
from accountant.budget.outcome import REFUSED as REFUSED_GRANT
from accountant.budget.outcome import Outcome, outcome
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event

MOST_BYTES: Final = 48 * 1024
"""Of items that may be refused: the refusal holds all of them in one event, with its decision."""

Decider = Callable[[State, Envelope, Any, int], list[Outcome]]


def batch(state: State, asked: Envelope, command: Batch, now: int, each: Decider) -> list[Outcome]:
    """The header and an event for each item, or one refusal. Raises the Problem of the first item
    that cannot be answered, with its place: then nothing is recorded, as for one that is alone.

    A grant whose time has passed is expired before the batch begins, so that each item has exactly
    one event.
    """
    if not asked.items:  # read back from its event: the items are decided as they come
        return [_opened(state, asked, command, now)]
    check(command, [part.canonical for part in asked.parts])
    taken: list[Outcome] = []

    def take(one: Outcome) -> None:
        apply(state, one)
        taken.append(one)

    with savepoint(state):  # each item is decided after those before it, folded in until the end
        for name in _due(state, asked.items, now):
            due = ExpireGrant(grant=name)
            for one in each(state, Envelope(SYSTEM, due), due, now):
                take(one)
        header = _opened(state, asked, command, now)
        take(header)
        for place, part in enumerate(asked.parts):
            try:
                [one] = each(state, part, part.command, now)
            except Problem as problem:
                problem.numbers["item"] = place
                raise
            if one.entry.type == REFUSED_GRANT:
                before = taken[: taken.index(header)]
                return [*before, _refused(header, state.ledger, asked, place, one)]
            take(one)
    return taken


def _opened(state: State, asked: Envelope, command: Batch, now: int) -> Outcome:
    header = OpenBatch(state.sequence, now, asked.by, command)
    return outcome(state, asked, OPENED, now, {}, OpenedBatch(header))


def check(command: Batch, items: list[bytes]) -> None:
    """Raises Invalid if these are not the items, or would not fit into a refusal."""
    if (len(items), digest_of(items)) != (command.size, command.digest):
        raise Invalid("batch-digest", "the batch does not consist of the items that it names")
    size = sum(map(len, items))
    if command.kind == "spending" and size > MOST_BYTES:
        raise Invalid(
            "batch-too-large",
            f"the items take {size} bytes of the ledger, the most is {MOST_BYTES}: split the batch",
        )


def _due(state: State, items: tuple[Command, ...], now: int) -> list[str]:
    """The grants past their time that are to be committed: that is noted, and nothing else."""
    named = dict.fromkeys(item.grant for item in items if isinstance(item, CommitGrant))
    return [name for name in named if (grant := state.open.get(name)) and grant.due(now)]


def _refused(header: Outcome, ledger: str, asked: Envelope, place: int, one: Outcome) -> Outcome:
    """One event that holds the whole batch and what was decided about the item that did not go."""
    body = dict(one.event().body)
    del body["batch"]
    body["command"] = asked.document
    body |= {"items": [orjson.loads(part.canonical) for part in asked.parts], "item": place}
    if asked.key is not None:
        body["key"] = asked.key
    at = header.entry
    event = Event(ledger, at.sequence, REFUSED, at.time, asked.by, body)
    return Outcome(Entry.of(event), asked.by, asked.key, asked.canonical, NOTHING)
