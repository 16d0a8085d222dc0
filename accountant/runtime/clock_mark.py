"""When the clock was last believed, kept beside the database: so a start knows for how long the
service was down, also where nothing was written for days.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class ClockMark:
    """A file with a stamp in microseconds. One that is lost or damaged tells nothing."""

    def __init__(self, home: Path) -> None:
        self._path = home / "clock-believed"

    def read(self) -> int | None:
        """The stamp, if there is one."""
        try:
            return int(self._path.read_text("ascii"))
        except (OSError, ValueError):
            return None

    def write(self, stamp: int) -> None:
        """Keeps a stamp."""
        new = self._path.with_suffix(".new")
        with suppress(OSError):  # a start then asks, where it need not have
            new.write_text(f"{stamp}\n", "ascii")
            os.replace(new, self._path)
