"""Limits on what clients may hold, and for how long."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 65_536
"""Bytes of a head before the blank line that ends it."""
FIELDS: Final = 128
"""Header fields of a request."""
_RESERVED: Final = 96
"""File descriptors left for the database, its lock, snapshots, reports and the log."""
_FEWEST: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a door."""

    body_bytes: int = 1_000_000
    connections: int = 4_096
    held_bytes: int = 64 << 20
    """Of all requests together that are not answered yet, small ones excepted."""
    unsent_bytes: int = 64 << 20
    """Of all answers together that clients do not read."""
    head_seconds: float = 10.0
    body_seconds: float = 10.0
    idle_seconds: float = 75.0
    """Before the first byte of a request, also of the first one."""
    write_seconds: float = 20.0
    """Within which a client reads a part of its answer."""
    linger_seconds: float = 2.0
    """For a client to read the last answer, while bytes that it still sends are dropped."""
    stop_seconds: float = 30.0
    """For requests that were taken to be answered when the door closes."""
    wrong_keys: int = 10
    """Of an address within ``wrong_seconds``."""
    wrong_seconds: float = 60.0

    def most_connections(self) -> int:
        """Return the cap on connections, lowered to the files that the process may open."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if files == resource.RLIM_INFINITY:
            return self.connections
        return max(_FEWEST, min(self.connections, files - _RESERVED))
