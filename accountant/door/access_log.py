"""One line a request, as JSON; the lines of one turn of the event loop are written together.

A line holds the method, the path without its query, and the name of the key that asked: no headers,
no bodies, and nothing of a request that shows a key where none belongs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson


def to_standard_error(data: bytes) -> None:
    """Writes where all other lines go."""
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


class AccessLog:
    """Lines that are written when the turn ends (``flush``)."""

    def __init__(self, write: Callable[[bytes], None] = to_standard_error) -> None:
        self._write = write
        self._lines: list[dict[str, Any]] = []

    def note(
        self, method: str, path: str, status: int, request_id: str, client: str | None, took: float
    ) -> bool:
        """Keeps a line; whether it is the first since they were written."""
        self._lines.append(
            {
                "method": method,
                "path": path,
                "status": status,
                "request_id": request_id,
                "client": client,
                "milliseconds": round(took * 1000, 2),
                "event": "request",
                "level": "info",
            }
        )
        return len(self._lines) == 1

    def flush(self) -> None:
        """Writes what was kept. A log that cannot be written stops no answer."""
        lines, self._lines = self._lines, []
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        data = b"".join(orjson.dumps(line | {"timestamp": now}) + b"\n" for line in lines)
        try:
            self._write(data)
        except (OSError, ValueError):
            return
