"""What all connections hold together: places, bytes, time. Who waits for longest goes first."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from accountant.door.limits import Limits

if TYPE_CHECKING:
    from accountant.door.connection import Connection

Line = dict["Connection", float]
"""Connections in the order in which they came, each with when that was."""
SMALL: Final = 16_384
"""Bytes of a whole request that are not counted: it is answered in a moment."""
_SLOW: Final = 1.0
"""Seconds after which a head that has begun is late in coming."""


class Places:
    """Where connections wait, each in one line at most. While one is answered it is in none."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.silent: Line = {}
        """Nothing was ever received."""
        self.idle: Line = {}
        """All that was asked is answered."""
        self.heads: Line = {}
        self.bodies: Line = {}
        self.unread: Line = {}
        """The client does not read its answer."""
        self.lingering: Line = {}
        """The last answer is written; what still comes is thrown away."""
        self.held = 0

    def move(self, connection: Connection, line: Line | None) -> None:
        """Puts a connection at the end of a line."""
        if connection.line is not None:
            connection.line.pop(connection, None)
        connection.line = line
        if line is not None:
            line[connection] = time.monotonic()

    def hold(self, connection: Connection, size: int) -> None:
        """Says how much a connection holds now; if all hold too much, some are refused."""
        more = size - connection.held
        connection.held = size
        self.held += more
        while more > 0 and self.held > self.limits.held_bytes:
            victim = next(iter(self.bodies), None) or next(iter(self.heads), None)
            if victim is None:
                return
            victim.give_up()

    def room_for(self, size: int) -> bool:
        """Whether a whole request of that size may be answered now."""
        while self.held + size > self.limits.held_bytes and self.bodies:
            next(iter(self.bodies)).give_up()
        return self.held + size <= self.limits.held_bytes

    def victims(self) -> Iterator[Connection]:
        """Connections that can be closed without anybody losing an answer, best first."""
        late = time.monotonic() - _SLOW
        slow = [one for one, since in self.heads.items() if since < late]
        for line in (list(self.silent), slow, list(self.idle), list(self.heads)):
            yield from (one for one in line if not received(one))

    def sweep(self) -> None:
        """Ends what has waited for too long."""
        limits, now = self.limits, time.monotonic()
        lines: list[tuple[Line, float, Callable[[Connection], None]]] = [
            (self.silent, limits.idle_seconds, _close),
            (self.idle, limits.idle_seconds, _close),
            (self.heads, limits.head_seconds, _late),
            (self.bodies, limits.body_seconds, _late),
            (self.unread, limits.write_seconds, self._unread),
            (self.lingering, limits.linger_seconds, self._lingering),
        ]
        for line, seconds, end in lines:
            for connection, since in list(line.items()):
                if since + seconds > now:
                    break
                if connection.line is line:
                    end(connection)

    def relieve_unread(self) -> None:
        """Cuts off who has not read for longest, while more is unread than may be."""
        unread = {one: one.unsent() for one in self.unread}
        total = sum(unread.values())
        for connection, size in unread.items():
            if total <= self.limits.unsent_bytes:
                return
            total -= size
            connection.abort()

    def _unread(self, connection: Connection) -> None:
        if connection.reads_on():
            self.move(connection, self.unread)
        else:
            connection.abort()

    def _lingering(self, connection: Connection) -> None:
        if connection.unsent():
            self.move(connection, self.unread)
        else:
            connection.abort()


def received(connection: Connection) -> bool:
    """Something has come that nobody has read yet, perhaps a request."""
    poll = select.poll()
    poll.register(connection.fileno, select.POLLIN)
    return any(events & select.POLLIN for _, events in poll.poll(0))


def _close(connection: Connection) -> None:
    if not received(connection):
        connection.close()


def _late(connection: Connection) -> None:
    connection.too_late()
