"""The part of the report's shape (shape.py) that is about the ledger itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The last head of the ledger that was signed and published. ``key`` is the signing key's id.
    Of the policy's ``witnesses`` ``cosigned`` have confirmed it, and ``required`` have to.
    ``continued``: the events that the report was made from are those that were signed.
    """

    origin: str
    size: int
    key: str
    witnesses: int
    cosigned: int
    required: int
    continued: bool


@dataclass(frozen=True, slots=True)
class AlarmFacts:
    """A witness's answer that stopped publication; ``size``: of the ledger that it was shown."""

    sequence: int
    time: str
    witness: str
    status: int
    detail: str
    size: int


@dataclass(frozen=True, slots=True)
class ResumedFacts:
    """Somebody's word that an alarm was looked into. ``alarm`` is its event."""

    sequence: int
    time: str
    by: str
    alarm: int
    reason: str


@dataclass(frozen=True, slots=True)
class LostFacts:
    """A signed head that the ledger no longer continues."""

    origin: str
    size: int
    root: str


@dataclass(frozen=True, slots=True)
class RecoveryFacts:
    """The ledger went on with the ``left`` events that were there, after others had been lost.
    ``charged``: grants that were open; ``carried``: accounts that got back what was signed as used.
    """

    sequence: int
    time: str
    by: str
    reason: str
    left: int
    lost: tuple[LostFacts, ...]
    charged: int
    carried: int


@dataclass(frozen=True, slots=True)
class AcceptedFacts:
    """Somebody's word that a clock which was in doubt is right. ``clock`` is what it showed; since
    ``before``, the stamp of the event before, the ledger's time had stood still.
    """

    sequence: int
    time: str
    by: str
    clock: str
    before: str
    reason: str


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Where in the ledger the report stands, and what became of it. ``root`` is the hash of the
    tree of its events, in hex; ``broken_at`` the first event whose stored hash is not that of its
    bytes; ``alarm`` the one that publication is stopped by; ``erasures`` of free texts. Of
    ``resumed``, ``recoveries`` and ``accepted`` the latest are listed, the last first.
    """

    events: int
    last_sequence: int | None
    last_time: str | None
    root: str
    broken_at: int | None
    checkpoint: CheckpointFacts | None
    alarm: AlarmFacts | None
    alarms: int
    resumed: tuple[ResumedFacts, ...]
    recovered: int
    recoveries: tuple[RecoveryFacts, ...]
    erasures: int
    accepted: tuple[AcceptedFacts, ...]
