"""What every report of a period begins with: of what it is, up to which event, proved by what."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from accountant.ledger.events import rfc3339
from accountant.reporting.periods.period import Period
from accountant.reporting.periods.walk import Walked
from accountant.store.ledgers import Signed

FORMAT: Final = 1
"""Of the JSON documents. It changes when a field changes its meaning or goes."""


class CheckpointLine(Struct, frozen=True):
    """A signed checkpoint: its number, the events that it is of, its root, and who cosigned it."""

    number: int
    size: int
    root: str
    origin: str
    witnesses: tuple[str, ...]


class HeadFacts(Struct, frozen=True):
    """The period, and what of the ledger the report is a function of: its first ``events`` events,
    of which ``inside`` lie in the period, the first of them at sequence ``first_event``. ``root``
    is the root of the Merkle tree over all of them. ``checkpoint`` is the earliest published one
    that covers them.
    """

    format: int
    kind: str
    population: str
    unit: str
    first: str
    last: str
    finished: bool
    """The period is over. Otherwise the closing is what counted at the last event."""
    as_of: str
    events: int
    inside: int
    first_event: int | None
    root: str
    checkpoint: CheckpointLine | None


def line_of(signed: Signed | None) -> CheckpointLine | None:
    """Return a checkpoint as the report shows it."""
    if signed is None:
        return None
    head, names = signed.head, tuple(sorted(name for name, _ in signed.cosignatures))
    return CheckpointLine(signed.number, head.size, head.root.hex(), head.origin, names)


def head_of(kind: str, period: Period, walked: Walked, signed: Signed | None) -> HeadFacts:
    """Return the head of a report."""
    state = walked.state
    return HeadFacts(
        format=FORMAT,
        kind=kind,
        population=state.ledger,
        unit=state.people().called() if state.population else "one person",
        first=period.first.isoformat(),
        last=period.last.isoformat(),
        finished=walked.finished,
        as_of=rfc3339(walked.closed),
        events=walked.size,
        inside=walked.inside,
        first_event=walked.first,
        root=walked.tree.root.hex() if walked.size else "",
        checkpoint=line_of(signed),
    )
