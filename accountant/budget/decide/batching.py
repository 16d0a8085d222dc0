"""Decide batches: all or nothing, each item as it would be alone, after those before it."""

from __future__ import annotations

from typing import Final

import orjson

from accountant.budget.apply import apply, savepoint
from accountant.budget.batches import OPENED, REFUSED, OpenBatch
from accountant.budget.changes import arrival
from accountant.budget.commands import (
    AskGrant,
    Batch,
    CommitGrant,
    Envelope,
    ExpireGrant,
    digest_of,
)
from accountant.budget.decide.proposing import SecondNeeded
from accountant.budget.decide.spending import SPENDING, expire
from accountant.budget.decide.waiting import SYSTEM
from accountant.budget.errors import Invalid, Problem
from accountant.budget.outcome import REFUSED as REFUSED_GRANT
from accountant.budget.outcome import Change, Outcome, outcome
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event

MOST_BYTES: Final = 48 * 1024
"""Bytes of the items of a batch that rules may refuse, as one of its items asks for a grant: then
one event holds all of them, and the decision. Of other batches each item has its own event.
"""


def batch(state: State, asked: Envelope, command: Batch, now: int) -> list[Outcome]:
    """Return the header and an event for each item, or one refusal. Raises the Problem of the first
    item that cannot be answered, with its place; then nothing is recorded.

    A grant whose time has passed is expired before the batch begins, so that each item has exactly
    one event.
    """
    if not asked.items:  # read back from its event: the items are decided as they come
        return [_opened(state, asked, command, now)]
    _check(command, asked)
    expired: list[Outcome] = []
    taken: list[Outcome] = []
    with savepoint(state):  # each item is decided after those before it, folded in until the end
        for name in [item.grant for item in asked.items if isinstance(item, CommitGrant)]:
            if (grant := state.open.get(name)) and grant.due(now):
                due = ExpireGrant(grant=name)
                expired += expire(state, Envelope(SYSTEM, due), due, now)
                apply(state, expired[-1])
        header = _opened(state, asked, command, now)
        apply(state, header)
        for place, part in enumerate(asked.parts):
            try:
                [one] = SPENDING[type(part.command)](state, part, part.command, now)
            except SecondNeeded as needed:
                problem = needed.alone()
                problem.numbers["item"] = place
                raise problem from None
            except Problem as problem:
                problem.numbers["item"] = place
                raise
            if one.entry.type == REFUSED_GRANT:
                judged = [each.command for each in asked.parts[: place + 1]]
                change = arrival(state, asked.by, judged)
                return [*expired, _refused(header, state.ledger, asked, place, one, change)]
            taken.append(one)
            apply(state, one)
    return [*expired, header, *taken]


def _opened(state: State, asked: Envelope, command: Batch, now: int) -> Outcome:
    change = OpenBatch(state.sequence, now, asked.by, command)
    return outcome(state, asked, OPENED, now, {}, change)


def _check(command: Batch, asked: Envelope) -> None:
    """Raise Invalid if these are not the items, or a refusal could not hold them."""
    items = [part.canonical for part in asked.parts]
    if (len(items), digest_of(items)) != (command.size, command.digest):
        raise Invalid("batch-digest", "the batch does not consist of the items that it names")
    size = sum(map(len, items))
    if size > MOST_BYTES and any(isinstance(item, AskGrant) for item in asked.items):
        raise Invalid(
            "batch-too-large",
            f"the items take {size} bytes of the ledger, the most is {MOST_BYTES} where one asks "
            "for a grant: split the batch, or settle in one of its own",
        )


def _refused(
    header: Outcome, ledger: str, asked: Envelope, place: int, one: Outcome, change: Change
) -> Outcome:
    """Return one event that holds the whole batch and the decision on the refused item."""
    body = dict(one.event().body)
    del body["batch"]
    body["command"] = asked.document
    body |= {"items": [orjson.loads(part.canonical) for part in asked.parts], "item": place}
    if asked.key is not None:
        body["key"] = asked.key
    at = header.entry
    event = Event(ledger, at.sequence, REFUSED, at.time, asked.by, body)
    return Outcome(Entry.of(event), asked.by, asked.key, asked.canonical, change)
