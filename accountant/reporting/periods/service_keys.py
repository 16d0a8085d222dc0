"""The keys and one-time links that were made, or ended, in a period: from the service's ledger."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from accountant.auth.ring import CREATED, LINKED, REVOKED
from accountant.ledger.events import Event, rfc3339
from accountant.reporting.periods.officer import KeyFacts
from accountant.reporting.periods.period import Period
from accountant.store.ledgers import Stored

MOST: Final = 500
"""Keys that are listed."""
_WHAT: Final = {CREATED: "key made", LINKED: "one-time link made", REVOKED: "key revoked"}


def keys_of(stored: Iterable[Stored], period: Period) -> tuple[tuple[KeyFacts, ...], int]:
    """Return what became of keys in a period, from the events of the service's ledger: the first of
    them, and how many there are.
    """
    found: list[KeyFacts] = []
    total = 0
    for row in stored:
        event = Event.from_bytes(row.body)
        if event.time >= period.end:
            break
        if event.time < period.start or event.type not in _WHAT:
            continue
        total += 1
        if total <= MOST:
            confirms = event.body.get("confirms")
            by = f"{confirms['proposer']} and {event.by}" if confirms else event.by
            role = str(event.body.get("role", ""))
            what = _WHAT[event.type]
            found.append(KeyFacts(rfc3339(event.time), what, event.body["name"], role, by))
    return tuple(found), total
