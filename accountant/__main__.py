"""``accountant``, and ``python -m accountant``."""

from __future__ import annotations

import os
import signal
import sys

from accountant.runtime.memory import collection_paused


def main() -> None:
    """Load the command line and run it."""
    # Pydantic validates requests: no installed plugin may take part, and looking for one is slow.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # Nothing multiplies matrices, so NumPy need not start threads for that.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # While modules load, Ctrl-C simply ends the process: KeyboardInterrupt would be reported as an
    # error of the module that is loading.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    with collection_paused():
        from accountant import cli  # noqa: PLC0415

        cli.load(sys.argv[1:])
    signal.signal(signal.SIGINT, interrupted)
    cli.main()


if __name__ == "__main__":
    main()
