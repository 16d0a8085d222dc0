"""Serving until a signal comes."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable

import uvloop
from starlette.types import ASGIApp

from accountant.door.asgi import Coming, Requests
from accountant.door.keys import Keys
from accountant.door.limits import Limits
from accountant.door.messages import Taking
from accountant.door.server import Door


def run(
    listening: socket.socket,
    make: Callable[[], ASGIApp],
    take: Taking,
    keys: Keys,
    limits: Limits,
) -> None:
    """Answers until SIGTERM or SIGINT comes, then what was taken; a second signal ends that too.

    What ``take`` takes is answered from the first moment on; for the rest ``make`` makes an
    application, in a thread, for it may take a while. Raises whatever ``make`` raises.
    """
    uvloop.run(_run(listening, make, take, keys, limits))


async def _run(
    listening: socket.socket,
    make: Callable[[], ASGIApp],
    take: Taking,
    keys: Keys,
    limits: Limits,
) -> None:
    loop = asyncio.get_running_loop()
    told, insisted = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (insisted if told.is_set() else told).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    made = loop.run_in_executor(None, make)
    made.add_done_callback(lambda _: told.set() if _failed(made) else None)
    door = Door(Requests(Coming(made), take), keys, limits)
    door.listen(listening)
    await told.wait()
    if _failed(made):
        door.close()
        await made
    stopping = asyncio.create_task(door.stop())
    insisting = asyncio.create_task(insisted.wait())
    await asyncio.wait([stopping, insisting], return_when=asyncio.FIRST_COMPLETED)
    insisting.cancel()
    if not stopping.done():
        stopping.cancel()
        door.close()


def _failed(made: asyncio.Future[ASGIApp]) -> bool:
    return made.done() and not made.cancelled() and made.exception() is not None
