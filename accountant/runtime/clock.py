"""Check the wall clock before a ledger is stamped by it.

Stamps never go back, so one wrong reading lasts for ever: a clock that shows next year for a second
would have charged every open grant. Each reading is checked:

* the first since the start against the ledger's last stamp: not a minute before it, and not so long
  after it that every open grant would have expired; a service that starts (``begin``) doubts the
  clock sooner, if it was not believed for a day;
* later ones against a clock that cannot be set: since the last reading both went on alike, to a
  minute;
* all against the last stamp, which another service may have written: not a minute before it.

While the clock is in doubt the ledger's time stands still, at its last stamp: nothing becomes due,
so nothing expires and nothing is late. Commits, releases and invocations are still taken; requests
for budget are not, for a grant's life would be counted from a wrong stamp. The doubt ends when the
clock is right again, or when an operator's event accepts it (``AcceptTime``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from accountant.budget.commands import AskGrant, Envelope, OpenSparseVector
from accountant.budget.commands.base import DAY
from accountant.budget.errors import Unavailable
from accountant.budget.state import State
from accountant.ledger.events import rfc3339

_SECOND: Final = 1_000_000
APART: Final = 60 * _SECOND
"""How far two clocks may be apart."""
LONGEST: Final = 30 * DAY * _SECOND
"""The longest life of a grant: after a pause of more, all would expire at the first look."""
_TICKING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts the time that a machine sleeps too, where there is such a clock. It cannot be set."""
_log = structlog.get_logger()


def wall_clock() -> int:
    """Return microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


def ticks() -> int:
    """Return microseconds since some moment, whatever is done to the wall clock."""
    return time.clock_gettime_ns(_TICKING) // 1_000


class Doubt(NamedTuple):
    """What the clock shows, what it should, and where the ledger's time stands."""

    ledger: str
    clock: int
    expected: int
    last: int

    def problem(self) -> Unavailable:
        """Return what a request for budget is refused with."""
        numbers = {name: rfc3339(getattr(self, name)) for name in ("clock", "expected", "last")}
        return Unavailable(
            "clock-jumped",
            f"the service's clock shows {numbers['clock']}, and by what {self.ledger} knows it is "
            f"{numbers['expected']}: nothing new is granted and nothing expires until the clock is "
            "right, or, if it is, an operator runs `accountant accept-time --population "
            f"{self.ledger} --reason …`; commits, releases and invocations are still taken",
            **numbers,
        )


class Reading(NamedTuple):
    """The stamp of what is decided now, and whether the clock is in doubt."""

    stamp: int
    doubt: Doubt | None

    def admit(self, asked: Envelope) -> None:
        """Raise Unavailable for a request for budget while the clock is in doubt."""
        commands = asked.items or (asked.command,)
        if self.doubt and any(isinstance(one, AskGrant | OpenSparseVector) for one in commands):
            raise self.doubt.problem()


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last look left: how far the clock is ahead of the ticks, when that was, and the last
    acceptance that was seen.
    """

    ahead: int
    ticks: int
    accepted: int


class TrustedClock:
    """The checked clock of all ledgers. Thread-safe."""

    def __init__(self, clock: Callable[[], int], ticks: Callable[[], int]) -> None:
        self._clock, self._ticks = clock, ticks
        self._known: dict[str, _Known] = {}
        self._doubted: set[str] = set()
        self._lock = threading.Lock()
        self._since: int | None = None
        self._ahead = LONGEST

    def begin(self, since: int, ahead: int) -> None:
        """Start the service: ``since`` is when any ledger was last written to, or the clock last
        believed. A clock more than ``ahead`` microseconds after that is in doubt until an operator
        accepts it.
        """
        with self._lock:
            self._since, self._ahead = since, ahead

    def look(self, state: State, *, believed: bool = False) -> Reading:
        """Read the clock: the stamp of the next event, and whether the clock is in doubt. Remember
        nothing if ``state`` is only ``believed`` to be the ledger's.
        """
        with self._lock:
            now, ticks = self._clock(), self._ticks()
            known = self._known.get(state.ledger)
            expected, latest = self._expected(state, known, ticks)
            earliest = max(expected, _last(state))
            sound = not state.sequence or earliest - APART <= now <= latest
            if not believed and (sound or known):
                ahead = now if sound else expected
                accepted = max(_accepted(state), known.accepted if known else -1)
                self._known[state.ledger] = _Known(ahead - ticks, ticks, accepted)
            doubt = None if sound else Doubt(state.ledger, now, earliest, state.time)
            if not believed:
                self._tell(state.ledger, doubt)
        return Reading(state.time if doubt else now, doubt)

    def _expected(self, state: State, known: _Known | None, ticks: int) -> tuple[int, int]:
        """Between what the clock should show; a minute less will do."""
        accepted = state.custody.accepted
        if known is None:
            last = _last(state)
            since = last if self._since is None else max(last, self._since)
            return last, since + self._ahead
        if accepted is None or accepted.sequence <= known.accepted:
            expected = known.ahead + ticks
            return expected, expected + APART
        # It was accepted at some time since the last look.
        return accepted.clock, accepted.clock + ticks - known.ticks + APART

    def _tell(self, ledger: str, doubt: Doubt | None) -> None:
        """Log when a doubt begins, and when it ends."""
        if doubt and ledger not in self._doubted:
            self._doubted.add(ledger)
            _log.error("the clock is in doubt", ledger=ledger, reason=doubt.problem().detail)
        elif not doubt and ledger in self._doubted:
            self._doubted.remove(ledger)
            _log.warning("the clock is believed again", ledger=ledger)


def _accepted(state: State) -> int:
    return state.custody.accepted.sequence if state.custody.accepted else -1


def _last(state: State) -> int:
    """The ledger's last stamp; if that is ahead of a clock that was accepted, what it showed."""
    accepted = state.custody.accepted
    return accepted.clock if accepted and accepted.time == state.time else state.time


class ClockMark:
    """A file beside the database with the stamp, in microseconds, at which the clock was last
    believed: so a start knows for how long the service was down, also where nothing was written for
    days. A file that is lost or damaged says nothing.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / "clock-believed"

    def read(self) -> int | None:
        """Return the stamp, if there is one."""
        try:
            return int(self._path.read_text("ascii"))
        except (OSError, ValueError):
            return None

    def write(self, stamp: int) -> None:
        """Keep a stamp."""
        new = self._path.with_suffix(".new")
        with suppress(OSError):  # the next start then doubts the clock, where it need not have
            new.write_text(f"{stamp}\n", "ascii")
            os.replace(new, self._path)
