"""The command line on a clock that the benchmark sets: ``python -m bench.peers.clockwork FILE
serve …``.

Everything else is the service as users run it. The file holds the microseconds since 1970, as eight
bytes; both of the service's clocks read it, so that they agree.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from types import SimpleNamespace
from typing import Final

_STAMP: Final = Struct("<q")


class Clock:
    """A stamp in a file that several processes share."""

    def __init__(self, path: Path, stamp: int | None = None) -> None:
        if stamp is not None:
            path.write_bytes(_STAMP.pack(stamp))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _STAMP.size)

    def set(self, stamp: int) -> None:
        """Set the clock."""
        self._shared[:] = _STAMP.pack(stamp)

    def nanoseconds(self, *_: int) -> int:
        """Return what ``time.time_ns`` and ``clock_gettime_ns`` return."""
        return int(_STAMP.unpack(self._shared)[0]) * 1_000


def main() -> None:
    """Run the command line."""
    from accountant.runtime import clock  # noqa: PLC0415 before the command line takes its time

    read: Callable[..., int] = Clock(Path(sys.argv.pop(1))).nanoseconds
    vars(clock)["time"] = SimpleNamespace(time_ns=read, clock_gettime_ns=read)
    from accountant.__main__ import main as command_line  # noqa: PLC0415

    command_line()


if __name__ == "__main__":
    main()
