"""Stamps as bytes: a minute is worked out once, its seconds are digits."""

from __future__ import annotations

from typing import Final

from accountant.ledger.events import microseconds, rfc3339

LENGTH: Final = len("2026-11-21T11:38:28.500000Z")
_MINUTE: Final = 60_000_000
_TO_THE_MINUTE: Final = len("2026-11-21T11:38:")
_MOST: Final = 4_096
"""Minutes remembered in each direction."""


class Stamps:
    """Reads and writes what ``rfc3339`` writes."""

    __slots__ = ("_read", "_written")

    def __init__(self) -> None:
        self._read: dict[bytes, int] = {}
        self._written: dict[int, bytes] = {}

    def read(self, text: bytes) -> int | None:
        """Microseconds since 1970; None for what ``rfc3339`` would not have written."""
        seconds, parts = text[_TO_THE_MINUTE:-8], text[-7:-1]
        plain = len(text) == LENGTH and text[-8:-7] == b"." and text[-1:] == b"Z"
        if not (plain and seconds.isdigit() and parts.isdigit() and seconds < b"60"):
            return None
        start = self._read.get(text[:_TO_THE_MINUTE])
        if start is None and (start := self._start(text[:_TO_THE_MINUTE])) is None:
            return None
        return start + int(seconds) * 1_000_000 + int(parts)

    def write(self, time: int) -> bytes:
        """What ``rfc3339`` writes."""
        minute, rest = divmod(time, _MINUTE)
        start = self._written.get(minute)
        if start is None:
            if len(self._written) >= _MOST:
                self._written.clear()
            start = rfc3339(minute * _MINUTE).encode()[:_TO_THE_MINUTE]
            self._written[minute] = start
        return b"%s%02d.%06dZ" % (start, *divmod(rest, 1_000_000))

    def _start(self, minute: bytes) -> int | None:
        whole = minute + b"00.000000Z"
        try:
            start = microseconds(whole.decode())
            same = rfc3339(start).encode() == whole
        except (ValueError, OverflowError):
            return None
        if not same:
            return None
        if len(self._read) >= _MOST:
            self._read.clear()
        self._read[minute] = start
        return start
