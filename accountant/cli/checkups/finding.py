"""What a check has found."""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["fine", "look", "wrong"]


class Finding(NamedTuple):
    """What a check has found, and what to do. ``look``: it works, and somebody should look at it;
    ``wrong``: something does not work, or will not at the next start.
    """

    check: str
    status: Status
    text: str
    do: str = ""


def fine(check: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding(check, "fine", text)


def look(check: str, text: str, do: str) -> Finding:
    """Return what somebody should look at."""
    return Finding(check, "look", text, do)


def wrong(check: str, text: str, do: str) -> Finding:
    """Return what is wrong."""
    return Finding(check, "wrong", text, do)
