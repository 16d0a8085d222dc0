"""Batches in the ledger: a header, and directly behind it an event for each item.

A header names client, key, number of items and their digest; an item names its header and has no
key. A commit never leaves a part of a batch in the ledger.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from accountant.budget.commands import ITEMS, Batch, BatchKind, Envelope
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
    body = {name: value for name, value in event.body.items() if name not in ("items", "item")}
    body["command"] = event.body["items"][event.body["item"]]
    return replace(event, type="grant.refused.v1", body=body)
