"""Proposals: changes that wait for a second person. ``decide/proposing.py`` says what they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final, Literal

from accountant.budget.outcome import DECLINED, PROPOSED
from accountant.ledger.events import Event, microseconds

CONFIRMING: Final = b'"confirms":{"digest":"'  # the first of its fields by name
"""In the canonical bytes of every command that confirms. Texts have escaped quotes."""

Status = Literal["open", "confirmed", "declined"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that ``by`` proposed at ``sequence``. Once closed it no longer holds the change."""

    sequence: int
    by: str
    time: int
    expires: int
    """The stamp from which on it cannot be confirmed, in microseconds."""
    digest: str
    """SHA-256 of the event's bytes, in hex."""
    command: Mapping[str, Any] = field(default_factory=dict)
    """The change, as its event holds it."""
    effect: Mapping[str, Any] = field(default_factory=dict)
    """What takes a second person, as computed when it was proposed."""
    status: Status = "open"
    closed: int | None = None
    """The sequence of the event that confirmed or declined it, and by whom."""
    closed_by: str | None = None

    def expired(self, now: int) -> bool:
        """Return whether its time has passed."""
        return now >= self.expires

    def is_open(self, now: int) -> bool:
        """Return whether it can be confirmed."""
        return self.status == "open" and not self.expired(now)


def in_order(found: Iterable[Proposal], now: int) -> list[Proposal]:
    """Return proposals, those that can be confirmed first, then the latest."""
    return sorted(found, key=lambda one: (not one.is_open(now), -one.sequence))


def digest_of(data: bytes) -> str:
    """Return the digest that names a proposal, of the bytes of its event."""
    return sha256(data).hexdigest()


def after(before: Mapping[int, Proposal], event: Event) -> dict[int, Proposal]:
    """Return the proposals after an event that proposes, declines or confirms."""
    command = event.body["command"]
    if event.type == PROPOSED:
        opened = Proposal(
            sequence=event.sequence,
            by=event.by,
            time=event.time,
            expires=microseconds(event.body["expires"]),
            digest=digest_of(event.to_bytes()),
            command=command,
            effect=event.body["effect"],
        )
        past = {n: _emptied(one) for n, one in before.items() if one.expired(event.time)}
        return {**before, **past, event.sequence: opened}
    named = command if event.type == DECLINED else command.get("confirms")
    number = named.get("proposal") if isinstance(named, dict) else None
    if not isinstance(number, int) or number not in before:
        return dict(before)  # forged: the replay reports it
    status: Status = "declined" if event.type == DECLINED else "confirmed"
    closed = replace(before[number], status=status, closed=event.sequence, closed_by=event.by)
    return {**before, number: _emptied(closed)}


def _emptied(one: Proposal) -> Proposal:
    return replace(one, command={}, effect={}) if one.command else one
