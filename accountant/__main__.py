"""``accountant``, and ``python -m accountant``."""

from __future__ import annotations

import os
import signal
import sys

from accountant.runtime.memory import not_looked_for


def main() -> None:
    """Loads the command line, and runs it."""
    # Pydantic reads what is asked: no plugin that happens to be installed has a say in that, nor is
    # one looked for, which takes a while.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # Nothing multiplies matrices: NumPy's threads for that would only take time while all waits.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Nothing has begun, so Ctrl-C just ends us. Raised in the midst of a module that is loaded, it
    # would come out as that module's error.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    with not_looked_for():
        from accountant import cli  # noqa: PLC0415 this is what is loaded

        cli.load(sys.argv[1:])
    signal.signal(signal.SIGINT, interrupted)
    cli.main()


if __name__ == "__main__":
    main()
