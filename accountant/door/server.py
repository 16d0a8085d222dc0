"""The door: accepts connections until a signal ends the service, then answers what it has taken."""

from __future__ import annotations

import asyncio
import errno
import secrets
import signal
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count, islice
from typing import Any, Final

import structlog
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from accountant.auth.keys import Credentials
from accountant.config.settings import Settings
from accountant.door.access_log import AccessLog
from accountant.door.asgi import Requests
from accountant.door.connection import Connection, Exchange
from accountant.door.keys import Attempts, KeyCheck
from accountant.door.messages import Arrived, Reply, Taking
from accountant.door.places import Places, most_connections
from accountant.runtime.measures import Latencies

_AT_ONCE: Final = 64  # Connections accepted in one turn of the loop
_EVICTED: Final = 8  # Connections closed at once to make room
_PAUSE: Final = 0.05  # Seconds until the door accepts again, once others have given back places
_SWEEP: Final = 0.25
_GRACE: Final = 0.2  # Seconds after the end begins in which requests on their way still arrive
STOP_SECONDS: Final = 30.0  # For requests that were taken to be answered when the door closes
_NO_FILES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_log = structlog.get_logger()


class Door:
    """Serves one listening socket on the running event loop."""

    def __init__(
        self,
        requests: Requests,
        keys: Credentials,
        settings: Settings,
        log: AccessLog,
        latencies: Latencies | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.requests, self.settings, self.log = requests, settings, log
        self.latencies = latencies or Latencies()
        self.places = Places(settings)
        self.keys = KeyCheck(keys)
        self.attempts = Attempts()
        self.ids = map(f"{secrets.token_hex(4)}{{:08x}}".format, count(1))
        """Of requests, 16 hex digits. Counted: a random id each would take a system call."""
        self.run = secrets.token_hex(8)
        """How the traces begin of requests that come without one."""
        self.stopping = False
        self._most = most_connections(settings)
        self._open: set[Connection] = set()
        self._opening = 0
        self._leaving = 0  # Connections that were asked to end, to make room
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_read: list[Connection] = []
        self.arrived: list[Arrived] = []
        """Complete requests that are handed on at the end of this turn of the loop."""
        self._replies: deque[tuple[Exchange, Reply]] = deque()
        self._woken = False
        self._listening: socket.socket | None = None
        self._accepting = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def read_soon(self, connection: Connection) -> None:
        """Have a connection read at the end of this turn of the loop, with all others of it."""
        if not self._to_read:
            self._loop.call_soon(self._read)
        self._to_read.append(connection)

    def _read(self) -> None:
        connections, self._to_read = self._to_read, []
        for one in connections:
            one.guarded(one.read)
        self.hand_on()

    def hand_on(self) -> None:
        """Hand on the requests that have arrived."""
        if self.arrived:
            arrived, self.arrived = self.arrived, []
            self.requests.handle(arrived)

    def hand_over(self, exchange: Exchange, reply: Reply) -> None:
        """Have the loop write a reply, with all that come meanwhile. Called in any thread."""
        self._replies.append((exchange, reply))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop has ended, and its clients have gone
                self._loop.call_soon_threadsafe(self._write)

    def _write(self) -> None:
        self._woken = False  # first: a reply that comes too late for this call wakes the loop
        for _ in range(len(self._replies)):
            exchange, reply = self._replies.popleft()
            connection = exchange.connection
            connection.guarded(connection.answer, exchange, reply)

    def lost(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)
        self._leaving = max(0, self._leaving - 1)
        self._accept_again()

    # Accepting

    def listen(self, listening: socket.socket) -> None:
        """Accept connections from now on."""
        listening.setblocking(False)
        self._listening = listening
        self._accept_again()
        self.start(self._sweep())

    def _accept_again(self) -> None:
        if self._listening is not None and not self._accepting:
            self._accepting = True
            self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> bool:
        """Accept some connections; return whether there may be more."""
        if self._listening is None:
            return False
        for _ in range(_AT_ONCE):
            if len(self._open) + self._opening >= self._most:
                self._make_room(_EVICTED)
                return False
            try:
                accepted, address = self._listening.accept()
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._make_room(1)
                return error.errno == errno.ECONNABORTED
            self._opening += 1
            self.start(self._opened(accepted, str(address[0])))
        return True

    def _make_room(self, most: int) -> None:
        """End some connections without a request, and accept again when their places are free."""
        if not self._leaving:
            for victim in list(islice(self.places.victims(), most)):
                self._leaving += 1
                victim.abort()
        if self._listening is not None and self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening)
            self._loop.call_later(_PAUSE, self._accept_again)

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

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            try:
                self.places.sweep()
            except Exception as error:  # noqa: BLE001 the next sweep follows
                _log.error("deadlines could not be kept", exc_info=error)

    # Closing

    async def stop(self) -> None:
        """Accept no more; return when all that was taken is answered, or after ``STOP_SECONDS``."""
        end = self._loop.time() + STOP_SECONDS
        while self._accept():  # connections in the kernel's queue would be reset
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
        """Cut all open connections."""
        self._stop_listening()
        for connection in list(self._open):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        self.keys.close()
        self.log.flush()

    def _stop_listening(self) -> None:
        self.stopping = True
        if self._listening is not None:
            if self._accepting:
                self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None


def run(
    listening: socket.socket,
    make: Callable[[], ASGIApp],
    take: Taking,
    keys: Credentials,
    settings: Settings,
    latencies: Latencies | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then answer the requests that were taken. A second signal ends
    the process at once, like SIGKILL; so does SIGALRM after twice ``STOP_SECONDS``.

    Requests that ``take`` takes are answered at once. ``make`` makes an application for all others,
    in a thread, since that may take a while. Raise what ``make`` raises. ``latencies`` counts how
    long answers take.
    """

    async def serve() -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            for number in _ENDING:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 2 * STOP_SECONDS)
            stopping.set()

        for number in _ENDING:
            loop.add_signal_handler(number, end)
        made = loop.run_in_executor(None, make)
        made.add_done_callback(lambda _: stopping.set() if _failed(made) else None)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await (await asyncio.shield(made))(scope, receive, send)

        door = Door(Requests(app, take), keys, settings, AccessLog(), latencies)
        door.listen(listening)
        await stopping.wait()
        if _failed(made):
            door.close()
            await made
        await door.stop()

    uvloop.run(serve())


def _failed(made: asyncio.Future[ASGIApp]) -> bool:
    return made.done() and not made.cancelled() and made.exception() is not None
