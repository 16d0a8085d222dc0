"""The access log: one JSON line a request, written together at the end of a turn of the event loop.

A line holds the method, the path without its query, and the name of the key: no headers but the
traceparent, no bodies, and nothing of a request with a misplaced key. Where the answer holds a
decision the line says population, outcome, rule and epsilon.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import IO, Any, Final

import orjson

from accountant.door.messages import Facts

_A_LINE: Final = orjson.OPT_APPEND_NEWLINE
_PATHS: Final = "/v1/populations/"


def population_in(path: str) -> str | None:
    """Return the population that a path of the API names."""
    return path.split("/", 4)[3] if path.startswith(_PATHS) else None


class AccessLog:
    """The lines of one turn of the event loop. By default to standard error, as all other logs."""

    def __init__(self, file: IO[bytes] | None = None) -> None:
        self._file = file or sys.stderr.buffer
        self._lines: list[dict[str, Any]] = []

    def note(
        self,
        method: str,
        path: str,
        status: int,
        ids: tuple[str, str],
        client: str | None,
        took: float,
        facts: Facts | None = None,
    ) -> None:
        """Add a line. ``ids``: of the request, and its traceparent; ``took``: seconds; ``facts``:
        of the decision that was answered.
        """
        if not self._lines:
            asyncio.get_running_loop().call_soon(self.flush)
        line = {
            "method": method,
            "path": path,
            "status": status,
            "request_id": ids[0],
            "traceparent": ids[1],
            "client": client,
            "milliseconds": round(took * 1000, 2),
            "event": "request",
            "level": "info",
        }
        if facts is not None:
            line.update(facts, population=population_in(path))
        self._lines.append(line)

    def flush(self) -> None:
        """Write the lines. A log that cannot be written stops no answer."""
        lines, self._lines = self._lines, []
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        for line in lines:
            line["timestamp"] = now
        with suppress(OSError, ValueError):
            self._file.write(b"".join([orjson.dumps(line, option=_A_LINE) for line in lines]))
            self._file.flush()
