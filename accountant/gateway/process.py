"""Starting and ending the process that speaks HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from accountant.gateway.inside import Inside, Requests, Taking

_PATIENCE: Final = 15
"""Seconds for the other process to answer what is on its way; it gives up itself after 10."""


class GatewayEnded(OSError):
    """The process that speaks HTTP has ended by itself."""

    def __init__(self, code: int) -> None:
        super().__init__(
            f"the process that speaks HTTP has ended (exit code {code}), so nobody can be answered "
            "any more: start the service again"
        )


class Gateway:
    """The process that speaks HTTP at ``door``, and the channel to it."""

    def __init__(self, door: socket.socket, max_body_bytes: int) -> None:
        self._channel, other = socket.socketpair()
        inherited = door.fileno(), other.fileno()
        command = [sys.executable, "-P", "-m", "accountant.gateway.outside"]
        with door, other:
            self._process = subprocess.Popen(  # noqa: S603
                [*command, *map(str, (*inherited, max_body_bytes))],
                pass_fds=inherited,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C is for us: we end it, after its last answer
            )

    def run(self, make: Callable[[], ASGIApp], take: Taking) -> None:
        """Answers until SIGTERM or SIGINT comes. What ``take`` takes is answered from the first
        moment on; for the rest ``make`` makes an application, in a thread, for it may take a while.
        Raises GatewayEnded, and whatever ``make`` raises.
        """
        uvloop.run(self._run(make, take))

    async def _run(self, make: Callable[[], ASGIApp], take: Taking) -> None:
        loop = asyncio.get_running_loop()
        told, over = asyncio.Event(), asyncio.Event()
        made = loop.run_in_executor(None, make)

        def tell() -> None:
            told.set()
            over.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, tell)
        _, inside = await loop.create_unix_connection(
            lambda: Inside(Requests(_Coming(made), take)), sock=self._channel
        )
        inside.over.add_done_callback(lambda _: over.set())
        made.add_done_callback(lambda _: over.set() if _failed(made) else None)
        await over.wait()
        if _failed(made):
            await made
        if not told.is_set():
            raise GatewayEnded(self._process.wait())
        self._process.terminate()
        await asyncio.wait([inside.over], timeout=_PATIENCE)

    def close(self) -> None:
        """Ends the other process."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


def _failed(made: asyncio.Future[ASGIApp]) -> bool:
    return made.done() and not made.cancelled() and made.exception() is not None


class _Coming:
    """An application that is still being made: who needs it waits."""

    def __init__(self, made: asyncio.Future[ASGIApp]) -> None:
        self._made = made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = await asyncio.shield(self._made)  # who goes away meanwhile ends nothing
        await app(scope, receive, send)


def _environment() -> dict[str, str]:
    """Without our settings, which hold passwords; with all places that modules come from here."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("ACCOUNTANT_")
    }
    return plain | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@contextmanager
def gateway(door: socket.socket, max_body_bytes: int) -> Iterator[Gateway]:
    """A process that speaks HTTP at ``door`` from now on; who asks waits until it is ``run``."""
    opened = Gateway(door, max_body_bytes)
    try:
        yield opened
    finally:
        opened.close()
