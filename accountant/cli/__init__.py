"""The command line. Exit code 0: fine; 1: the thing checked is wrong, or refused; 2: misuse."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from pydantic import ValidationError

from accountant.budget.errors import Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.cli.common import app, errors
from accountant.runtime.memory import not_looked_for
from accountant.store.ledgers import StoreError

__all__ = ["COMMANDS", "app", "load", "main"]

COMMANDS: Final = {
    "asking": {"accounts", "explain", "preview", "report"},
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
_OPTIONS: Final = {"--home", "--database-url"}
"""Those of all commands that have a value."""


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


def load(words: Sequence[str]) -> None:
    """Adds the command that ``words`` begin with, after options of all commands; or all commands if
    they begin with none. All take a third longer to load, and while a service starts everybody
    waits.
    """
    first = 0
    while words[first : first + 1] and words[first].partition("=")[0] in _OPTIONS:
        first += 1 if "=" in words[first] else 2
    command = "".join(words[first : first + 1])
    named = [module for module, names in COMMANDS.items() if command in names]
    with not_looked_for():
        for module in named or COMMANDS:
            import_module(f"accountant.cli.{module}")


def _fail(text: str) -> None:
    errors.print(f"accountant: {text}", markup=False, highlight=False)
    sys.exit(2)
