"""Checks the wall clock before it stamps a ledger.

Stamps never go back, so one wrong reading lasts for ever: a clock that shows next year for a second
would charge every open grant. Each reading is checked:

* the first since the start against the ledger's last stamp: not a minute before it, and not so long
  after it that every open grant would have expired. A service that starts (``start``) doubts the
  clock sooner, if it was not believed for a day;
* later ones against a clock that cannot be set: both agree, to a minute, since the last reading;
* all against the last stamp, which another service may have written: not a minute before it.

While the clock is in doubt the ledger's time stands still at its last stamp: no grant expires.
Commits, releases and invocations are taken; requests for budget are not, since the life of a grant
would count from a wrong stamp. The doubt ends when the clock is right again, or when two people
accept it (``AcceptTime``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from accountant.budget.commands import DAY, ApproveGrant, AskGrant, Envelope, OpenSparseVector
from accountant.budget.errors import Unavailable
from accountant.budget.state import State
from accountant.config.logs import logger
from accountant.ledger.events import rfc3339

_SECOND: Final = 1_000_000
APART: Final = 60 * _SECOND  # The most by which two clocks may differ
LONGEST: Final = 30 * DAY * _SECOND
"""The longest life of a grant: after a longer pause all would expire at the first reading."""
_TICKING: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that cannot be set, and counts the machine's sleep where the system has such a clock."""
_GRANTS: Final = AskGrant | OpenSparseVector | ApproveGrant
"""Commands by which somebody gets budget."""
_log = logger()


def wall_clock() -> int:
    """Return microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


def ticks() -> int:
    """Return microseconds of a clock that cannot be set."""
    return time.clock_gettime_ns(_TICKING) // 1_000


class Doubt(NamedTuple):
    """The reading in doubt, the expected one, and the ledger's last stamp."""

    ledger: str
    clock: int
    expected: int
    last: int

    def problem(self) -> Unavailable:
        """Return the problem of a request for budget."""
        numbers = {name: rfc3339(getattr(self, name)) for name in ("clock", "expected", "last")}
        return Unavailable(
            "clock-jumped",
            f"the service's clock shows {numbers['clock']}, and by ledger {self.ledger} it is "
            f"{numbers['expected']}: nothing new is granted and nothing expires until the clock is "
            "right, or, if it is, two people accept it with `accountant accept-time --population "
            f"{self.ledger} --reason …`; commits, releases and invocations are still taken",
            **numbers,
        )


class CheckedTime(NamedTuple):
    """The stamp of the next event, and the doubt about the clock, if there is one."""

    stamp: int
    doubt: Doubt | None

    def admit(self, asked: Envelope) -> None:
        """Raise Unavailable for a request for budget while the clock is in doubt."""
        commands = asked.items or (asked.command,)
        if self.doubt and any(isinstance(one, _GRANTS) for one in commands):
            raise self.doubt.problem()


class _Known(NamedTuple):
    """The last reading: the clock's lead over the ticks, the ticks, the last acceptance."""

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
        self.latest = 0
        """The latest stamp that any ledger got, or would have got, here."""

    def start(self, since: int, ahead: int) -> None:
        """Start the service: ``since`` is when a ledger was last written to, or the clock last
        believed. A clock more than ``ahead`` microseconds after that is in doubt until an operator
        accepts it.
        """
        with self._lock:
            self._since, self._ahead = since, ahead

    def look(self, state: State, *, believed: bool = False) -> CheckedTime:
        """Read and check the clock. Remember nothing if ``state`` is only ``believed``."""
        with self._lock:
            now, ticks = self._clock(), self._ticks()
            known = self._known.get(state.ledger)
            expected, latest = self._expected(state, known, ticks)
            earliest = max(expected, _last(state))
            sound = not state.sequence or earliest - APART <= now <= latest
            if not believed and (sound or known):
                ahead = now if sound else expected
                accepted = state.custody.accepted.sequence if state.custody.accepted else -1
                accepted = max(accepted, known.accepted if known else -1)
                self._known[state.ledger] = _Known(ahead - ticks, ticks, accepted)
            doubt = None if sound else Doubt(state.ledger, now, earliest, state.time)
            if not believed:
                self._log_doubt(state.ledger, doubt)
            stamp = state.time if doubt else now
            self.latest = max(self.latest, stamp, state.time)
        return CheckedTime(stamp, doubt)

    def _expected(self, state: State, known: _Known | None, ticks: int) -> tuple[int, int]:
        """Return the bounds of a sound reading; a minute before the first is sound too."""
        accepted = state.custody.accepted
        if known is None:
            last = _last(state)
            since = last if self._since is None else max(last, self._since)
            return last, since + self._ahead
        if accepted is None or accepted.sequence <= known.accepted:
            expected = known.ahead + ticks
            return expected, expected + APART
        # It was accepted at some time since the last reading.
        return accepted.clock, accepted.clock + ticks - known.ticks + APART

    def _log_doubt(self, ledger: str, doubt: Doubt | None) -> None:
        """Log when a doubt begins, and when it ends."""
        if doubt and ledger not in self._doubted:
            self._doubted.add(ledger)
            _log.error("the clock is in doubt", population=ledger, reason=doubt.problem().detail)
        elif not doubt and ledger in self._doubted:
            self._doubted.remove(ledger)
            _log.warning("the clock is believed again", population=ledger)


def _last(state: State) -> int:
    """Return the ledger's last stamp, or the accepted clock if that stamp is of its acceptance."""
    accepted = state.custody.accepted
    return accepted.clock if accepted and accepted.time == state.time else state.time


class ClockMark:
    """A file beside the database with the stamp, in microseconds, at which the clock was last
    believed. It tells a start for how long the service was down, even if nothing was written for
    days. A lost or damaged file does no harm.
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
        with suppress(OSError):  # the next start may then doubt a clock that is right
            new.write_text(f"{stamp}\n", "ascii")
            os.replace(new, self._path)
