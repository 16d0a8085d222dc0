"""The command line. Exit code 0: success; 1: a check failed or a request is refused; 2: misuse."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import getdoc
from typing import Final

from pydantic import ValidationError
from typer import Typer

from accountant.budget.errors import Problem
from accountant.cli.common import app, say
from accountant.runtime.memory import collection_paused
from accountant.store import StoreError, hint

__all__ = ["COMMANDS", "app", "load", "main"]

COMMANDS: Final = {
    "alerts": {"alerts"},
    "applying": {"apply"},
    "approving": {"approvals", "approve"},
    "asking": {"accounts", "explain", "preview"},
    "asking_service": {"commit", "deliver", "grant", "grants", "populations", "record"}
    | {"release", "republish", "run"},
    "backing_up": {"backup", "restore"},
    "composing": {"compose", "dp-event", "fit"},
    "custody": {"accept-time", "erase", "recover", "revalue"}
    | {"fleet", "publish", "receipt", "resume-publication"},
    "doctor": {"doctor"},
    "evidence": {"export", "replay", "verify"},
    "importing": {"import"},
    "planning": {"plan"},
    "policy": {"policy"},
    "proposing": {"confirm", "decline", "proposals"},
    "reporting": {"checklist", "registry", "report"},
    "serving": {"keys", "migrate", "serve"},
    "signing_in": {"signin-link"},
}
"""The commands by the module that defines them."""
_OPTIONS: Final = {"--home", "--database-url"}
"""The options of the program itself that take a value."""


def main() -> None:
    """Run the command line. A known error is printed on one line, never as a traceback."""
    try:
        load(sys.argv[1:])
        app()
        return
    except Problem as problem:
        reason = f"{problem.detail} [{problem.code}]"
    except ValidationError as error:
        from accountant.budget.malformed import in_one_line, reasons  # noqa: PLC0415 (loads much)

        reason = in_one_line(reasons(error), "the document")
    except StoreError as error:
        reason = f"the database cannot be used: {error}{hint(error)}"
    except (OSError, ValueError) as error:
        reason = str(error)
    say(f"accountant: {reason}")
    sys.exit(2)


def load(words: Sequence[str]) -> None:
    """Import the module of the command that ``words`` name after the program's own options, or all
    modules if they name none. Importing all delays the start of a service by a third.
    """
    first = 0
    while words[first : first + 1] and words[first].partition("=")[0] in _OPTIONS:
        first += 1 if "=" in words[first] else 2
    command = "".join(words[first : first + 1])
    named = [module for module, names in COMMANDS.items() if command in names]
    with collection_paused():
        for module in named or COMMANDS:
            import_module(f"accountant.cli.{module}")
    _let_flow(app)


def _let_flow(commands: Typer) -> None:
    """Take the line ends of the source out of the paragraphs of help, which a terminal breaks."""
    for command in commands.registered_commands:
        paragraphs = (command.help or getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(one.split()) for one in paragraphs)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _let_flow(group.typer_instance)
