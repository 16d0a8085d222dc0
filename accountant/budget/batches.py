"""Batches in the ledger: a header, and directly behind it an event for each item.

A header names client, key, number of items and their digest; an item names its header and has no
key. A refused batch is one event with all items; where that has no room for them, parts directly
before it hold the others. A commit never leaves a piece of a batch in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace as changed

from accountant.budget.commands import ITEMS, Batch, BatchKind, BatchPart, Envelope, digest_of
from accountant.budget.errors import Conflict
from accountant.budget.outcome import (
    ADMITTED,
    COMMITTED,
    NOTED,
    RECORDED,
    RELEASED,
    RESERVED,
    TIMED_OUT,
    Outcome,
)
from accountant.ledger.events import Entry, Event

if TYPE_CHECKING:
    from accountant.budget.state import State

OPENED: Final = "batch.opened.v1"
REFUSED: Final = "batch.refused.v1"
PART: Final = "batch.part.v1"
_CAME_TO: Final = {ADMITTED: RESERVED, TIMED_OUT: "grant.refused.v1"}
_ITEMS: Final[dict[BatchKind, frozenset[str]]] = {
    "spending": frozenset({RESERVED, COMMITTED, RELEASED, NOTED}),
    "invocations": frozenset({RECORDED}),
}
_COMMANDS: Final = {kind: {one.command for one in ITEMS[kind]} for kind in ITEMS}
_ENDINGS: Final = {
    kind: tuple(b'"type":"%b"}' % name.encode() for name in names)
    for kind, names in _COMMANDS.items()
}
"""The ends of canonical commands: no field's name comes after ``type``."""


class OpenBatch(NamedTuple):
    """A batch of which some items are still to come; also the change that opens it."""

    header: int
    time: int
    by: str
    asked: Batch
    size: int = 0
    """How many items have come so far."""
    digesting: Any = None
    """SHA-256 of the array of their canonical commands, as far as it goes; copied, never updated.
    To keep the commands would take time with the square of their number."""

    @property
    def begins(self) -> int:
        """The sequence of its first event."""
        return self.header

    @property
    def so_far(self) -> tuple[int, str, int, str]:
        """The header, the digest that is due, and how many items have come, with their digest."""
        taken = "" if self.digesting is None else self.digesting.hexdigest()
        return self.header, self.asked.digest, self.size, taken

    def fold(self, state: State, entry: Entry) -> None:
        """Open the batch; its items follow."""
        state.batch = self

    def undo(self, state: State, before: None) -> None:
        """Nothing to do: ``rollback`` restores the batch that was open before."""

    def fits(self, asked: Envelope) -> None:
        """Raise Conflict if ``asked`` cannot be the next item."""
        wrong = asked.by != self.by or asked.key is not None
        if wrong or asked.command.command not in _COMMANDS[self.asked.kind]:
            raise Conflict(
                "batch-open",
                f"the batch at {self.header} has {self.asked.size} items and only "
                f"{self.size} have come: nothing else can follow",
            )

    def taken(self, outcome: Outcome) -> OpenBatch | None:
        """Return the batch with its next item, None after the last. Raises ValueError."""
        entry, at = outcome.entry, outcome.entry.sequence
        if outcome.batch != self.header or type(outcome.batch) is not int:
            raise ValueError(f"event {at} is no item of the batch at {self.header}")
        if (outcome.by, entry.time, outcome.key) != (self.by, self.time, None):
            raise ValueError(f"event {at} differs from its batch in client, time or key")
        if entry.type not in _ITEMS[self.asked.kind]:
            raise ValueError(f"event {at} cannot be an item of such a batch")
        if not outcome.command.endswith(_ENDINGS[self.asked.kind]):
            raise ValueError(f"event {at} answers a command that no such batch holds")
        digesting = sha256(b"[") if self.digesting is None else self.digesting.copy()
        digesting.update(outcome.command)
        if self.size + 1 < self.asked.size:
            digesting.update(b",")
            return self._replace(size=self.size + 1, digesting=digesting)
        digesting.update(b"]")
        if digesting.hexdigest() != self.asked.digest:
            raise ValueError(f"these are not the items that the batch at {self.header} asks for")
        return None


class Gathered(NamedTuple):
    """The parts that have come of a refused batch, whose refusal is still to come, with the other
    items; also the change that the last of them makes.
    """

    begins: int
    time: int
    parts: tuple[Envelope, ...]

    @classmethod
    def after(cls, before: Gathered | None, sequence: int, now: int, asked: Envelope) -> Gathered:
        """Return what is gathered with the part ``asked``. Raises ValueError if it is none."""
        part = asked.command
        if not isinstance(part, BatchPart) or asked.key is not None or not asked.items:
            raise ValueError(f"event {sequence} is no part of a batch")
        if not (before.end if before else 0) <= part.first <= part.size - len(asked.items):
            raise ValueError(f"part {sequence} begins at item {part.first}, out of order")
        if before is None:
            return cls(sequence, now, (asked,))
        return before._replace(parts=(*before.parts, asked))

    @property
    def header(self) -> None:
        """No header: a part names no other event."""
        return

    @property
    def end(self) -> int:
        """The place behind the last item of the last part."""
        last = self.parts[-1]
        return _part_in(last).first + len(last.items)

    @property
    def layout(self) -> list[tuple[int, int]]:
        """Where each part begins, and how many items it has."""
        return [(_part_in(one).first, len(one.items)) for one in self.parts]

    @property
    def so_far(self) -> tuple[int, list[tuple[int, int]], str]:
        """Where it begins, and the items that have come, with their digest."""
        taken = (one.canonical for part in self.parts for one in part.parts)
        return self.begins, self.layout, digest_of(taken)

    def fold(self, state: State, entry: Entry) -> None:
        """Gather the part; another, or the refusal, follows."""
        state.batch = self

    def undo(self, state: State, before: None) -> None:
        """Nothing to do: ``rollback`` restores what was gathered before."""

    def fits(self, asked: Envelope) -> None:
        """Raise Conflict if ``asked`` is neither another part of the batch nor the batch itself."""
        part, command = _part_in(self.parts[0]), asked.command
        same = isinstance(command, Batch | BatchPart) and (
            (command.size, command.digest) == (part.size, part.digest)
        )
        if not same or not asked.items or asked.by != self.parts[0].by:
            raise Conflict(
                "batch-open",
                f"the parts from event {self.begins} on belong to a batch that is refused: only "
                "another part, or its refusal, can follow",
            )

    def taken(self, outcome: Outcome) -> Gathered | None:
        """Return what is gathered before the next event's change, None after the refusal. Raises
        ValueError if another event follows.
        """
        entry, first = outcome.entry, self.parts[0]
        if entry.type not in (PART, REFUSED):
            raise ValueError(f"event {entry.sequence} stands between a batch and its parts")
        if (outcome.by, entry.time, outcome.batch) != (first.by, self.time, None):
            raise ValueError(f"event {entry.sequence} differs from its parts in client or time")
        return None if entry.type == REFUSED else self

    def whole(self, refused: Envelope) -> Envelope:
        """Return a refused batch with the items of its parts. Raises ValueError unless all items
        are there, in order.
        """
        self.fits(refused)
        place = 0  # the first that no part holds: the refusal's own items begin there
        for first, count in self.layout:
            if first > place:
                break
            place += count
        runs = [(place, refused), *((_part_in(one).first, one) for one in self.parts)]
        runs.sort(key=lambda run: run[0])
        listed = tuple(part for _, run in runs for part in run.parts)
        asked, digest = refused.command, digest_of(part.canonical for part in listed)
        if not isinstance(asked, Batch) or (asked.size, asked.digest) != (len(listed), digest):
            raise ValueError(f"the parts from event {self.begins} on are not those of its batch")
        items = tuple(part.command for part in listed)
        return changed(refused, items=items, shown=None, spelled=None, listed=listed)


def _part_in(asked: Envelope) -> BatchPart:
    if not isinstance(asked.command, BatchPart):
        raise TypeError(f"{asked.command.command} is no part of a batch")
    return asked.command


def refused_items(events: Iterable[Event]) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the commands of a refused batch in order, each with the sequence of the event that
    holds it, and its place there. ``events`` are the refusal and its parts, and may be others.
    """
    runs = [(first_of(event), event) for event in events if event.type in (PART, REFUSED)]
    for _, event in sorted(runs, key=lambda run: run[0]):
        for place, command in enumerate(event.body["items"]):
            yield command, event.sequence, place


def first_of(event: Event) -> int:
    """Return the place in its batch of the first item that a refusal, or a part, holds."""
    holds = event.body["command"] if event.type == PART else event.body
    first: int = holds.get("first", 0)
    return first


def as_single(event: Event) -> Event:
    """Return a refused batch as the refusal of the item that failed, and what a request that waited
    came to as its client's own grant or refusal; any other event as it is.
    """
    if event.type in _CAME_TO:
        asked = event.body["command"]
        body = event.body | {"command": asked["request"]}
        return replace(event, type=_CAME_TO[event.type], by=asked["client"], body=body)
    if event.type != REFUSED:
        return event
    beside = "items", "item", "first", "parts"
    body = {name: value for name, value in event.body.items() if name not in beside}
    body["command"] = event.body["items"][event.body["item"]]
    return replace(event, type="grant.refused.v1", body=body)
