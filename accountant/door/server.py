"""The door: accepts connections, lets them go on together, and closes in order."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Final

import structlog

from accountant.door.access_log import AccessLog
from accountant.door.asgi import Requests
from accountant.door.connection import Connection, Exchange
from accountant.door.keys import Attempts, KeyCheck, Keys
from accountant.door.limits import Limits
from accountant.door.messages import Reply
from accountant.door.places import Places

_AT_ONCE: Final = 64
"""Connections that are accepted in one turn of the loop."""
_EVICTED: Final = 8
"""Connections that are closed at once to make room."""
_PAUSE: Final = 0.05
"""Seconds until it is tried again to accept, where that needs what others have to give back."""
_SWEEP: Final = 0.25
_GRACE: Final = 0.2
"""Seconds after the end is announced in which requests that were on their way still come in."""
_NO_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_log = structlog.get_logger()


class Replies:
    """Replies from any thread; those that come together are written together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[tuple[Exchange, Reply]] = deque()
        self._due = False

    def put(self, exchange: Exchange, reply: Reply) -> None:
        """Hands over the reply to one request."""
        self._ready.append((exchange, reply))
        if not self._due:
            self._due = True
            with suppress(RuntimeError):  # the loop has ended, and its clients have gone
                self._loop.call_soon_threadsafe(self._send)

    def _send(self) -> None:
        self._due = False  # first, so that whoever comes too late for this asks for another
        for _ in range(len(self._ready)):
            exchange, reply = self._ready.popleft()
            exchange.connection.answered(exchange, reply)


class Door:
    """Serves one listening socket on the running event loop."""

    def __init__(
        self, requests: Requests, keys: Keys, limits: Limits, log: AccessLog | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.requests, self.limits = requests, limits
        self.replies = Replies(self._loop)
        self.places = Places(limits)
        self.keys = KeyCheck(keys)
        self.attempts = Attempts(limits.wrong_keys, limits.wrong_seconds)
        self.stopping = False
        self._log = log or AccessLog()
        self._ids: Iterator[str] = map(f"{secrets.token_hex(4)}{{:08x}}".format, count())
        self._most = limits.most_connections()
        self._open: set[Connection] = set()
        self._opening = 0
        self._leaving = 0
        """Connections that were asked to end, to make room."""
        self._due: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._accepting = False

    # -- what connections ask of it ----------------------------------------------------------

    def next_id(self) -> str:
        """A fresh id for a request. Counted: a random one each would take a system call."""
        return next(self._ids)

    def go_on(self, connection: Connection) -> None:
        """Lets a connection go on at the end of this turn of the loop."""
        if not connection.due:
            connection.due = True
            self._due.append(connection)
            if len(self._due) == 1:
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        due, self._due = self._due, []
        for connection in due:
            connection.due = False
            try:
                connection.advance()
            except Exception as error:  # noqa: BLE001 the others are not to blame
                _log.error("a connection failed", exc_info=error)
                connection.abort()

    def note(
        self, method: str, path: str, status: int, request_id: str, client: str | None, took: float
    ) -> None:
        """Writes a line in the log at the end of this turn."""
        if self._log.note(method, path, status, request_id, client, took):
            self._loop.call_soon(self._log.flush)

    def check(self, connection: Connection, authorization: str, *, look: bool) -> None:
        """Looks whether a key is valid, and tells the connection (``checked``)."""
        self._start(self._check(connection, authorization, look=look))

    async def _check(self, connection: Connection, authorization: str, *, look: bool) -> None:
        valid: bool | None = self.keys.known(authorization)
        if not valid and (look or self.keys.worth_a_look()):
            try:
                valid = await self.keys.find(authorization)
            except Exception as error:  # noqa: BLE001 it is answered that nobody could look
                _log.error("the keys cannot be read", reason=str(error))
                valid = None
        connection.checked(valid)

    def lost(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        self._leaving = max(0, self._leaving - 1)
        self._accept_again()

    # -- accepting ---------------------------------------------------------------------------

    def listen(self, listening: socket.socket) -> None:
        """Accepts connections from now on."""
        listening.setblocking(False)
        self._listening = listening
        self._accept_again()
        self._start(self._sweeping())

    def _accept_again(self) -> None:
        if self._listening is not None and not self._accepting and not self.stopping:
            self._accepting = True
            self._loop.add_reader(self._listening, self._accept)

    def _accept_later(self) -> None:
        if self._listening is not None and self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening)
            self._loop.call_later(_PAUSE, self._accept_again)

    def _accept(self, most: int = _AT_ONCE) -> bool:
        """Accepts some; whether there may be more."""
        if self._listening is None:
            return False
        for _ in range(most):
            if len(self._open) + self._opening >= self._most and not self._make_room():
                self._accept_later()
                return False
            try:
                accepted, address = self._listening.accept()
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._make_room(1)
                    self._accept_later()
                return error.errno == errno.ECONNABORTED
            self._opening += 1
            self._start(self._opened(accepted, str(address[0])))
        return True

    def _make_room(self, most: int = _EVICTED) -> bool:
        """Ends some that wait for nothing; False, for their places are not free yet."""
        if not self._leaving:
            for victim in list(islice(self.places.victims(), most)):
                self._leaving += 1
                victim.abort()
        return False

    async def _opened(self, accepted: socket.socket, address: str) -> None:
        try:
            accepted.setblocking(False)
            with suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, address, accepted.fileno())
            self._open.add(connection)
            try:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
            except BaseException:
                self._open.discard(connection)
                accepted.close()
                raise
        except OSError as error:
            _log.warning("a connection could not be opened", reason=str(error))
        finally:
            self._opening -= 1

    async def _sweeping(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            try:
                self.places.sweep()
            except Exception as error:  # noqa: BLE001 it is tried again
                _log.error("deadlines could not be kept", exc_info=error)

    # -- closing -----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Takes nobody any more, and returns when all that was taken is answered, at the latest
        after ``stop_seconds``.
        """
        end = self._loop.time() + self.limits.stop_seconds
        if self._listening is not None:
            while self._accept():  # who waits in the kernel's queue would be reset
                await asyncio.sleep(0)
        self._stop_listening()
        if self._open or self._opening:
            await asyncio.sleep(_GRACE)
        while (self._open or self._opening) and self._loop.time() < end:
            for line in (self.places.silent, self.places.idle, self.places.heads):
                for connection in list(line):
                    connection.close()
            await asyncio.sleep(0.01)
        self.close()

    def close(self) -> None:
        """Cuts what is still open."""
        self._stop_listening()
        for connection in list(self._open):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        self.keys.close()
        self._log.flush()

    def _stop_listening(self) -> None:
        self.stopping = True
        if self._listening is not None:
            if self._accepting:
                self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _start(self, work: object) -> None:
        task: asyncio.Task[None] = self._loop.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
