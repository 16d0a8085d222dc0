"""The command line. Exit code 0: fine; 1: the thing checked is wrong, or refused; 2: misuse."""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from typing import Final

from pydantic import ValidationError

from accountant.budget.errors import Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.cli.common import app, errors
from accountant.garbage import not_looked_for
from accountant.store.ledgers import StoreError

__all__ = ["COMMANDS", "app", "load", "main"]

COMMANDS: Final = {
    "asking": {"accounts", "preview", "report"},
    "composing": {"compose"},
    "custody": {
        "accept-time",
        "erase",
        "publish",
        "receipt",
        "recover",
        "resume-publication",
        "revalue",
    },
    "evidence": {"export", "verify"},
    "fitting": {"fit"},
    "fleet": {"fleet"},
    "importing": {"import"},
    "replaying": {"replay"},
    "serving": {"keys", "migrate", "serve"},
    "translating": {"dp-event"},
}
"""The commands, by the module that adds them."""


def main() -> None:
    """Runs the command line; a known error is one readable line, never a traceback."""
    try:
        load(sys.argv[1:])
        app()
    except Problem as problem:
        _fail(f"{problem.detail} [{problem.code}]")
    except ValidationError as error:
        _fail(in_one_line(reasons(error), "the document"))
    except StoreError as error:
        hint = "; has `accountant migrate` run?" if "no such table" in str(error) else ""
        _fail(f"the database cannot be used: {error}{hint}")
    except (OSError, ValueError) as error:
        _fail(str(error))


def load(words: Collection[str]) -> None:
    """Adds the commands whose names are among ``words``, or all if none is. All of them take a
    third longer to load, and while a service starts everybody waits.
    """
    named = [module for module, names in COMMANDS.items() if not names.isdisjoint(words)]
    with not_looked_for():
        for module in named or COMMANDS:
            import_module(f"accountant.cli.{module}")


def _fail(text: str) -> None:
    errors.print(f"accountant: {text}", markup=False, highlight=False)
    sys.exit(2)
