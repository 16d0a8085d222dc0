"""What an error becomes: one line on standard error, and an exit code."""

from __future__ import annotations

from typing import Final

from accountant.client.command_line.output import visible
from accountant.client.errors import (
    AccountantError,
    Failed,
    MayHaveRun,
    NeedsApproval,
    Refused,
    Unreachable,
)
from accountant.client.files import Incomplete

REFUSED, WRONG = 1, 2
_KINDS: Final = (
    (Unreachable, "no-answer", WRONG),
    (NeedsApproval, "not-approved", REFUSED),
    (MayHaveRun, "may-have-run", REFUSED),
    (Incomplete, "incomplete", WRONG),
    (AccountantError, "failed", WRONG),
    (OSError, "io-error", WRONG),
    (ValueError, "misuse", WRONG),
)
"""The code and the exit code of each kind of error, the first that it is."""


class Misuse(Exception):
    """The command cannot be carried out as it is written, or where it is run."""

    def __init__(self, text: str, code: str = "misuse") -> None:
        super().__init__(text)
        self.code = code


def told(error: Exception) -> tuple[str, int]:
    """Return an error as a line that ends with its code, and the exit code."""
    code, status = _code(error)
    notes = getattr(error, "__notes__", ())
    return f"{visible('; '.join([_text(error), *notes]))} [{code}]", status


def _code(error: Exception) -> tuple[str, int]:
    if isinstance(error, Misuse):
        return error.code, WRONG
    if isinstance(error, Refused):
        return error.code, REFUSED
    if isinstance(error, Failed):  # a second key that is needed is a rule's decision, too
        return error.code, REFUSED if error.code == "approval-needed" else WRONG
    found = [(code, status) for kind, code, status in _KINDS if isinstance(error, kind)]
    return found[0] if found else ("unexpected", WRONG)


def _text(error: Exception) -> str:
    match error:
        case Refused():
            page = f": {error.decision_page}" if error.decision_page else ""
            return f"{error.detail} (decision {error.decision.get('id')}{page})"
        case Failed():
            return _failed(error)
        case UnicodeError():
            return "a text has characters that cannot be sent"
        case OSError():
            return _of_the_system(error)
        case Misuse() | AccountantError() | ValueError():
            return str(error)
    return f"the answer is not what this version of accountant expects ({error!r})"


def _failed(error: Failed) -> str:
    """Return what is wrong; for what no service of ours says, its status as well."""
    detail = error.detail.strip()
    if error.code not in ("unknown", "not-json"):
        return detail or "no explanation came"
    page = detail.lstrip().startswith("<")
    shown = "a web page, perhaps a proxy's" if page else repr(detail)
    return f"the answer is not this service's (status {error.status}): {shown}"


def _of_the_system(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if isinstance(error.filename, str) else reason
