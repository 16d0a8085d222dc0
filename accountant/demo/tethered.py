"""Runs the accountant's command line for as long as the parent lives.

Standard input is a pipe that the parent holds open. When the parent is gone, however it went, the
pipe closes and this process ends itself: a killed demonstration leaves no service behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from accountant.cli import main


def end_with_parent() -> None:
    """Starts the watch."""

    def wait() -> None:
        # Not through sys.stdin: its lock, held here, would stop the interpreter from ending.
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def _end(number: int, frame: FrameType | None) -> None:
    """Ends by an exception, so that the database is closed on the way out.

    While the service is served, the door takes the signal itself.
    """
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    end_with_parent()
    main()
