"""The access log: one JSON line a request, written together at the end of a turn of the event loop.

A line holds the method, the path without its query, and the name of the key: no headers, no bodies,
and nothing of a request with a misplaced key.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Any

import orjson


class AccessLog:
    """The lines of one turn of the event loop. By default to standard error, as all other logs."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file or sys.stderr.buffer
        self._lines: list[dict[str, Any]] = []

    def note(
        self, method: str, path: str, status: int, request_id: str, client: str | None, took: float
    ) -> None:
        """Add a line. ``took``: seconds."""
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        line = {"method": method, "path": path, "status": status, "request_id": request_id}
        line |= {"client": client, "milliseconds": round(took * 1000, 2)}
        self._lines.append(line | {"event": "request", "level": "info"})

    def flush(self) -> None:
        """Write the lines. A log that cannot be written stops no answer."""
        lines, self._lines = self._lines, []
        now = {"timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z")}
        with suppress(OSError, ValueError):
            self._file.write(b"".join(orjson.dumps(line | now) + b"\n" for line in lines))
            self._file.flush()
