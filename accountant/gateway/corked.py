"""uvicorn's protocol, for answers that are small and whole: head and body go out in one piece."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class _Corked:
    """A transport that writes at the end of the event loop's turn what was written within it: half
    as many system calls, and whoever asks wakes once.
    """

    __slots__ = ("_loop", "_parts", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Takes what is to be written."""
        self._parts.append(data)
        if len(self._parts) == 1:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Closes after what was written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Corked(HttpToolsProtocol):
    """A connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is open."""
        super().connection_made(cast("asyncio.Transport", _Corked(transport)))
