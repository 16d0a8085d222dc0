"""``accountant``, and ``python -m accountant``."""

from __future__ import annotations

import os

from accountant.garbage import not_looked_for


def main() -> None:
    """Loads the command line, and runs it."""
    # Pydantic reads what is asked: no plugin that happens to be installed has a say in that, nor is
    # one looked for, which takes a while.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # Nothing multiplies matrices: NumPy's threads for that would only take time while all waits.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with not_looked_for():
        from accountant.cli import main as run  # noqa: PLC0415 this is what is loaded
    run()


if __name__ == "__main__":
    main()
