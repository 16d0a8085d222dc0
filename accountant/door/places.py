"""Limits on what clients may hold, and for how long, all together. The longest wait ends first."""

from __future__ import annotations

import resource
import select
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from accountant.config.settings import Settings
from accountant.door.messages import Refused

if TYPE_CHECKING:
    from accountant.door.connection import Connection

SMALL: Final = 16_384  # Bytes of a complete request that is not counted: it is answered in a moment
_SLOW: Final = 1.0  # Seconds after which a head that has begun is late
UNSENT_BYTES: Final = 64 << 20  # Of all answers together that clients do not read
WRITE_SECONDS: Final = 20.0  # Within which a client reads a part of its answer
_LINGER_SECONDS: Final = 2.0  # For a client to read the last answer; what it sends is dropped
_RESERVED: Final = 96  # Files left for the database, its lock, snapshots, reports and the log
_FEWEST: Final = 8

Line = dict["Connection", float]  # Connections in order of arrival, each with its time


def most_connections(settings: Settings) -> int:
    """Return the cap on connections, lowered to the files that the process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return settings.max_connections
    return max(_FEWEST, min(settings.max_connections, files - _RESERVED))


class Places:
    """The lines in which connections wait, each in at most one, in none while it is answered."""

    def __init__(self, settings: Settings) -> None:
        self._most_held = settings.max_held_bytes  # Of unanswered requests, small ones excepted
        self.silent: Line = {}  # Nothing was ever received
        self.idle: Line = {}  # All requests are answered
        self.heads: Line = {}
        self.bodies: Line = {}
        self.unread: Line = {}  # The client does not read its answer
        self.lingering: Line = {}  # The last answer is written; bytes that still arrive are dropped
        self.held = 0
        self._seconds: list[tuple[Line, float]] = [
            (self.silent, settings.idle_seconds),
            (self.idle, settings.idle_seconds),
            (self.heads, settings.head_seconds),
            (self.bodies, settings.body_seconds),
            (self.unread, WRITE_SECONDS),
            (self.lingering, _LINGER_SECONDS),
        ]

    def move(self, member: Connection, line: Line | None) -> None:
        """Put a connection at the end of a line."""
        if member.line is not None:
            member.line.pop(member, None)
        member.line = line
        if line is not None:
            line[member] = time.monotonic()

    def hold(self, member: Connection, size: int) -> None:
        """Note how many bytes a connection holds. If all together hold too many, refuse some."""
        more = size - member.held
        member.held = size
        self.held += more
        while more > 0 and self.held > self._most_held:
            victim = next(iter(self.bodies), None) or next(iter(self.heads), None)
            if victim is None:
                return
            victim.refuse(busy())

    def room_for(self, size: int) -> bool:
        """Make room for a complete request of that size; return whether there is room."""
        while self.held + size > self._most_held and self.bodies:
            next(iter(self.bodies)).refuse(busy())
        return self.held + size <= self._most_held

    def victims(self) -> Iterator[Connection]:
        """Yield connections that can be closed without losing an answer, best first."""
        late = time.monotonic() - _SLOW
        slow = [one for one, since in self.heads.items() if since < late]
        for line in (list(self.silent), slow, list(self.idle), list(self.heads)):
            yield from (one for one in line if not _received(one))

    def sweep(self) -> None:
        """End connections that have waited for too long."""
        now = time.monotonic()
        for line, seconds in self._seconds:
            for member, since in list(line.items()):
                if since + seconds > now:
                    break
                if member.line is line:
                    self._overdue(member, line, seconds)

    def _overdue(self, member: Connection, line: Line, seconds: float) -> None:
        if line is self.heads or line is self.bodies:
            text = f"the request did not come within {seconds:g} seconds"
            member.refuse(Refused("request-timeout", 408, text))
        elif line is self.unread and member.reads_on():
            self.move(member, line)
        elif line is self.lingering and member.unsent():
            self.move(member, self.unread)
        elif line is self.unread or line is self.lingering:
            member.abort()
        elif not _received(member):
            member.close()

    def relieve_unread(self) -> None:
        """While too much is unread, cut the connection that has not read for longest."""
        unread = {one: one.unsent() for one in self.unread}
        total = sum(unread.values())
        for member, size in unread.items():
            if total <= UNSENT_BYTES:
                return
            total -= size
            member.abort()


def busy() -> Refused:
    """Return the refusal of a request whose memory others need."""
    text = "the memory for request bodies is full; try again in a moment"
    return Refused("too-many-waiting", 503, text)


def _received(member: Connection) -> bool:
    """Return whether bytes have arrived that were not read yet, perhaps a request."""
    poll = select.poll()
    poll.register(member.fileno, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))
