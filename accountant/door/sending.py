"""Answers that are sent from a file, as fast as the client reads them.

The file is read in a thread, a part at a time, so that neither a slow disk nor a slow client keeps
others waiting, and of a long answer only a part is in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import IO, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

FILE: Final = "accountant.file"  # The message by which the application hands over a file
PART: Final = 262_144  # Bytes that are read at once


class FileResponse(Response):
    """A response whose body are the ``size`` bytes of ``file`` from where it stands. The file is
    closed once they are sent, or cannot be.
    """

    def __init__(
        self, file: IO[bytes], size: int, media_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(None, 200, {**headers, "Content-Length": str(size)}, media_type)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the head and the file to the door."""
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        await send({"type": FILE, "file": self._file})


class Sending:
    """A file on its way to a client."""

    def __init__(self, transport: asyncio.Transport, file: IO[bytes]) -> None:
        self._transport, self._file = transport, file
        self._room = asyncio.Event()
        self._room.set()

    def wait(self) -> None:
        """The client does not read: write no more for now."""
        self._room.clear()

    def go_on(self) -> None:
        """The client reads again, or is gone."""
        self._room.set()

    async def run(self) -> bool:
        """Write all, and close the file. Return false if the client has gone meanwhile."""
        loop = asyncio.get_running_loop()
        with self._file:
            while part := await loop.run_in_executor(None, self._file.read, PART):
                if self._transport.is_closing():
                    return False
                self._transport.write(part)
                await self._room.wait()
        return not self._transport.is_closing()
