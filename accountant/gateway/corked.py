"""uvicorn's protocol, for answers that are small and whole: head and body go out in one piece."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LONG: Final = 65_536
"""Bytes that are not worth copying to go out with others."""


class Cork:
    """A transport that writes at the end of the event loop's turn what was written within it: half
    as many system calls, and whoever asks wakes once.
    """

    __slots__ = ("_gone", "_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []
        self._gone = False

    def write(self, data: bytes) -> None:
        """Takes what is to be written; nothing any more after the end."""
        if self._gone:
            return
        if len(data) > _LONG:
            self.flush()
            self._transport.write(data)
            return
        self._parts.append(data)
        if len(self._parts) == 1:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Writes what was taken."""
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)

    def close(self) -> None:
        """Closes after what was written."""
        self.flush()
        self._transport.close()

    def gone(self) -> None:
        """Nobody is at the other end: what was taken has nowhere to go."""
        self._gone = True
        self._parts.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Corked(HttpToolsProtocol):
    """A connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is open."""
        self._cork = Cork(transport)
        super().connection_made(cast("asyncio.Transport", self._cork))

    def eof_received(self) -> None:
        """No more will be asked. The transport closes when it has written all that it knows of."""
        self._cork.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._cork.gone()
        super().connection_lost(exc)
