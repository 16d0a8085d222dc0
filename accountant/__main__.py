"""``accountant``, and ``python -m accountant``."""

from __future__ import annotations

from accountant.garbage import not_looked_for


def main() -> None:
    """Loads the command line, and runs it."""
    with not_looked_for():
        from accountant.cli import main as run  # noqa: PLC0415 this is what is loaded
    run()


if __name__ == "__main__":
    main()
