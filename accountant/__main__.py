"""``accountant``, and ``python -m accountant``.

Commands that ask a service need httpx2 and the standard library, and start without all else. The
others run beside the database.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

OF_A_SERVICE: Final = frozenset(
    {"grant", "commit", "release", "record", "republish"}
    | {"grants", "deliver", "run", "populations"}
)
"""Commands that always ask a service."""
OF_BOTH: Final = frozenset(
    {"accounts", "preview", "explain", "report", "export", "verify", "receipt"}
    | {"proposals", "confirm", "decline", "approvals", "approve"}
)
"""Commands that ask the service at ACCOUNTANT_URL, if it is set, or else the database."""
_FIRST: Final = "accountant.runtime"
"""What is loaded first of the service, and is not in the client's distribution."""


def main() -> None:
    """Load the command line that is meant, and run it."""
    words = sys.argv[1:]
    # While modules load, Ctrl-C simply ends the process: KeyboardInterrupt would be reported as an
    # error of the module that is loading.
    interrupted = signal.signal(signal.SIGINT, signal.SIG_DFL)
    missing = None
    if not asks_a_service(words, os.environ) and (missing := _missing(words)) is None:
        from accountant import cli  # noqa: PLC0415

        signal.signal(signal.SIGINT, interrupted)
        cli.main()
        return
    from accountant.client import command_line  # noqa: PLC0415

    signal.signal(signal.SIGINT, interrupted)
    sys.exit(command_line.main(words, missing))


def asks_a_service(words: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether a command is one of a service's."""
    command = words[0] if words else ""
    if command in OF_BOTH:
        return bool(env.get("ACCOUNTANT_URL")) and "--local" not in words
    return command in OF_A_SERVICE


def _missing(words: Sequence[str]) -> str | None:
    """Load the command line beside the database. Return the package that it lacks, if any."""
    # Pydantic validates requests: no installed plugin may take part, and looking for one is slow.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # Nothing multiplies matrices, so NumPy need not start threads for that.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from accountant.runtime import memory  # noqa: PLC0415

        with memory.collection_paused():
            from accountant import cli  # noqa: PLC0415

            cli.load(words)
            memory.collect_rarely(memory.YOUNG_OF_A_COMMAND)
    except ModuleNotFoundError as missing:
        name = missing.name or ""
        if name == _FIRST:  # there is the client's distribution alone
            return "privacy-accountant"
        if name.startswith("accountant."):
            raise
        return name.partition(".")[0]
    return None


if __name__ == "__main__":
    main()
