"""Why a command cannot be carried out, typed. None of these leaves a trace in the ledger.

A refusal that the rules decide (over budget, understated claim) is no error: it is an event.
"""

from __future__ import annotations

from typing import Any


class Problem(Exception):
    """A command that cannot be answered. ``code`` names the violated condition, ``detail`` tells
    the reader what is wrong and what to do, ``numbers`` carries the facts.
    """

    def __init__(self, code: str, detail: str, **numbers: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.numbers = numbers


class Invalid(Problem):
    """The command contradicts what is registered, or itself."""


class NotFound(Problem):
    """It names something that does not exist."""


class Conflict(Problem):
    """It comes at the wrong moment: the state of what it names does not allow it."""


class Forbidden(Problem):
    """Another name has to do this."""


class Unavailable(Problem):
    """The ledger cannot answer now; try again later."""
