"""The outcome of a decision: the event's bytes, and the change that applying it makes.

The process that decided applies the outcome as it is; ``read`` (apply.py) makes the same of an
event that another process wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import orjson
from msgspec import Struct

from accountant.ledger.events import MAX_BYTES, Entry, Event, EventTooLarge, rfc3339, written

if TYPE_CHECKING:
    from accountant.budget.commands import Envelope
    from accountant.budget.state import State

RESERVED: Final = "grant.reserved.v1"
REFUSED: Final = "grant.refused.v1"
COMMITTED: Final = "grant.committed.v1"
RELEASED: Final = "grant.released.v1"
EXPIRED: Final = "grant.expired.v1"
NOTED: Final = "grant.noted.v1"
ANSWERED: Final = "sparse_vector.answered.v1"
CLOSED: Final = "sparse_vector.closed.v1"
RECORDED: Final = "invocation.recorded.v1"
PROPOSED: Final = "change.proposed.v1"
DECLINED: Final = "change.declined.v1"
REPUBLISHED: Final = "answer.republished.v1"
WAITING: Final = "grant.waiting.v1"
ADMITTED: Final = "grant.admitted.v1"
TIMED_OUT: Final = "grant.timed_out.v1"
CANCELLED: Final = "grant.cancelled.v1"
NOT_APPROVED: Final = "grant.declined.v1"
REGISTERED: Final = "dataset.registered.v1"
CHARGING: Final = "dataset.registered.v2"
"""The registration of a dataset that charges datasets with what others have used (ancestors.py). A
program that does not know the type stops there, as it would misread the sums (ADR 0068).
"""
REGISTRATIONS: Final = (REGISTERED, CHARGING)
"""The types of events that register a dataset."""


Body = dict[str, Any]
"""The fields of an event that only events of its type have."""


class Change(Protocol):
    """What an event changes in a state."""

    def fold(self, state: State, entry: Entry) -> Any:
        """Change the state as the event of ``entry`` says. Return what ``undo`` needs."""

    def undo(self, state: State, before: Any) -> None:
        """Undo the change, which must be the last one made."""


class Outcome(Struct, frozen=True, gc=False):
    """One event that answers a command, or an item of a batch."""

    entry: Entry
    by: str
    key: str | None
    command: bytes
    """The canonical command that it answers."""
    change: Change
    batch: int | None = None
    """The sequence of the batch that it is an item of."""
    fired: Sequence[Sequence[str]] = ()
    """The rules that fired, each with its code, as the event lists them."""

    @property
    def fingerprint(self) -> bytes:
        """The digest of the command, by which a retry is recognised."""
        return sha256(self.command).digest()

    def event(self) -> Event:
        """Parse the event."""
        return Event.from_bytes(self.entry.body)


class Repeated(NamedTuple):
    """The same request was answered before, by the event at ``sequence``."""

    sequence: int


def outcome(
    state: State, asked: Envelope, kind: str, now: int, body: Body, change: Change, after: int = 0
) -> Outcome:
    """Make the outcome of ``asked``; ``after`` events come before it. Raises EventTooLarge."""
    number, command = state.sequence + after, asked.canonical
    body["by"] = asked.by
    body["command"] = orjson.Fragment(command)
    body["ledger"] = state.ledger
    body["sequence"] = number
    body["time"] = rfc3339(now)
    body["type"] = kind
    if asked.key is not None:
        body["key"] = asked.key
    header = None if state.batch is None else state.batch.header
    if header is not None:
        body["batch"] = header
    data = written(body)
    if len(data) > MAX_BYTES:
        raise EventTooLarge(len(data))
    entry, fired = Entry(number, kind, now, data), body.get("fired", ())
    return Outcome(entry, asked.by, asked.key, command, change, header, fired)
