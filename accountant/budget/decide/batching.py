"""Batches: all or nothing, each item decided as it would be alone, after those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from accountant.budget.batches import OPENED, REFUSED
from accountant.budget.commands import (
    Asked,
    Batch,
    Command,
    CommitGrant,
    ExpireGrant,
    digest_of,
)
from accountant.budget.decide.settling import SYSTEM, expire
from accountant.budget.errors import Invalid, Problem
from accountant.budget.folding import apply
from accountant.budget.layer import layer
from accountant.budget.state import State
from accountant.ledger.events import Event

MOST_BYTES: Final = 48 * 1024
"""Of items that may be refused: the refusal holds all of them in one event, with its decision."""

Decider = Callable[[State, Asked, Any, int], list[Event]]


def batch(state: State, asked: Asked, command: Batch, now: int, each: Decider) -> list[Event]:
    """The header and an event for each item, or one refusal. Raises the Problem of the first item
    that cannot be answered, with its place: then nothing is recorded, as for one that is alone.

    A grant whose time has passed is expired before the batch begins, so that each item has exactly
    one event.
    """
    if not asked.items:  # read back from its event: the items are decided as they come
        return [state.next_event(asked, OPENED, now, {})]
    check(command, [part.canonical for part in asked.parts])
    upon, events = layer(state), list[Event]()

    def take(event: Event) -> None:
        apply(upon, event)
        events.append(event)

    for name in _due(state, asked.items, now):
        due = ExpireGrant(grant=name)
        take(*expire(upon, Asked(SYSTEM, due), due, now))
    before = len(events)
    header = upon.next_event(asked, OPENED, now, {})
    take(Event(header.ledger, header.sequence, OPENED, now, asked.by, {"command": asked.document}))
    for place, part in enumerate(asked.parts):
        try:
            [event] = each(upon, part, part.command, now)
        except Problem as problem:
            problem.numbers["item"] = place
            raise
        if event.type == "grant.refused.v1":
            return [*events[:before], _refused(header, asked, place, event)]
        take(event)
    events[before] = header
    return events


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


def _refused(header: Event, asked: Asked, place: int, event: Event) -> Event:
    """One event that holds the whole batch and what was decided about the item that did not go."""
    judged = {k: v for k, v in event.body.items() if k not in ("command", "batch")}
    judged["decision"] = event.body["decision"] | {"id": f"d{header.sequence}"}
    items = [part.document for part in asked.parts]
    body = header.body | judged | {"items": items, "item": place}
    return Event(header.ledger, header.sequence, REFUSED, header.time, header.by, body)
