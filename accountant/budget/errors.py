"""Errors of commands that cannot be answered. None of them leaves a trace in the ledger.

A request that the rules refuse (over budget, understated claim) is no error but an event. So is a
change that takes a second person: it is proposed.
"""

from __future__ import annotations

from typing import Any


class Problem(Exception):
    """A command that cannot be answered. ``code`` names the violated condition, ``detail`` states
    the error and the remedy, ``numbers`` are further fields of the answer.
    """

    def __init__(self, code: str, detail: str, **numbers: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.numbers = numbers


class Invalid(Problem):
    """The command contradicts the registered data, or itself."""


class NotFound(Problem):
    """The command names something that does not exist."""


class Conflict(Problem):
    """The state of a grant, key or other object does not allow the command."""


class Forbidden(Problem):
    """Another client, or a second person, has to send the command."""


class Unavailable(Problem):
    """The ledger cannot answer now; try again later."""
