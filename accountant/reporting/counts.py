"""Who used what up: what was booked on each dataset, by client, kind of mechanism and purpose.

Memory grows with distinct names, capped, never with the number of events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from accountant.privacy.units import NOTHING, SURE, Charge

HEADINGS: Final = ("client", "kind", "purpose")
MOST_NAMES: Final = 1_000
"""Names under one heading of one dataset; what comes later is added up under one row."""

Parts = dict[str, Charge]
"""A charge split by mechanism kind."""


class Account(NamedTuple):
    """What a charge is booked under."""

    dataset: str
    client: str
    purpose: str


@dataclass(slots=True)
class Tally:
    """What stands under one name."""

    requests: int = 0
    refused: int = 0
    net: Charge = NOTHING
    given_back: Charge = NOTHING


class Tallies:
    """``totals`` by dataset; ``rows`` by (dataset, heading) and name, None for all further ones."""

    def __init__(self) -> None:
        self.totals: dict[str, Tally] = {}
        self.rows: dict[tuple[str, str], dict[str | None, Tally]] = {}

    def count(self, at: Account, kinds: Iterable[str], *, refused: bool) -> None:
        """Counts a request."""
        for tally in [*self._common(at), *(self._tally(at.dataset, "kind", k) for k in kinds)]:
            tally.refused += refused
            tally.requests += not refused

    def book(self, at: Account, change: Charge, parts: Parts, held: Parts | None = None) -> None:
        """Books ``change``, which is ``parts`` in place of ``held``."""
        before = held or {}
        for tally in self._common(at):
            _add(tally, change, settled=held is not None)
        for kind in parts.keys() | before.keys():
            part = parts.get(kind, NOTHING) - before.get(kind, NOTHING)
            _add(self._tally(at.dataset, "kind", kind), part, settled=held is not None)

    def _common(self, at: Account) -> list[Tally]:
        return [
            self.totals.setdefault(at.dataset, Tally()),
            self._tally(at.dataset, "client", at.client),
            self._tally(at.dataset, "purpose", at.purpose),
        ]

    def _tally(self, dataset: str, heading: str, name: str) -> Tally:
        rows = self.rows.setdefault((dataset, heading), {})
        full = name not in rows and len(rows) >= MOST_NAMES
        return rows.setdefault(None if full else name, Tally())


def _add(tally: Tally, change: Charge, *, settled: bool) -> None:
    change = change.on(SURE)  # the Renyi orders of charges differ over time
    tally.net += change
    if settled:
        tally.given_back += Charge(
            change.axis,
            tuple(max(0, -amount) for amount in change.finite),
            tuple(max(0, -amount) for amount in change.infinite),
        )
