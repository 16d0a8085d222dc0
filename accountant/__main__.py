"""``accountant``, and ``python -m accountant``."""

from __future__ import annotations

import gc


def main() -> None:
    """Loads the command line, and runs it. What is loaded is no garbage: looking for some in it
    would take a sixth of the time.
    """
    gc.disable()
    from accountant.cli import main as run  # noqa: PLC0415 this is what is loaded

    gc.enable()
    run()


if __name__ == "__main__":
    main()
