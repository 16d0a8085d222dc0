"""The command line. Exit code 0: fine; 1: the thing checked is wrong, or refused; 2: misuse."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from accountant.budget.errors import Problem
from accountant.budget.malformed import in_one_line, reasons
from accountant.cli import (
    asking,
    composing,
    custody,
    evidence,
    fitting,
    fleet,
    importing,
    replaying,
    serving,
    translating,
)
from accountant.cli.common import app, errors
from accountant.store.ledgers import StoreError

__all__ = [
    "app",
    "asking",
    "composing",
    "custody",
    "evidence",
    "fitting",
    "fleet",
    "importing",
    "main",
    "replaying",
    "serving",
    "translating",
]


def main() -> None:
    """Runs the command line; a known error is one readable line, never a traceback."""
    try:
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


def _fail(text: str) -> None:
    errors.print(f"accountant: {text}", markup=False, highlight=False)
    sys.exit(2)
