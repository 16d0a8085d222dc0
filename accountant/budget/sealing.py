"""Free texts: what somebody wrote never enters the ledger, only its salted digest does.

A text can then be erased without touching an event. What the rules compare stays in clear: a
purpose that the policy lists is a term of the policy's, and a blank text says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from accountant.budget.commands import Asked, Sealed
from accountant.budget.judge import blank
from accountant.budget.policy import PurposeRule
from accountant.budget.state import State

FIELDS: Final = ("justification", "purpose", "reason")
"""The fields of commands that hold free text."""
SALT_BYTES: Final = 32


class Opened(NamedTuple):
    """A text with the salt of its digest."""

    salt: bytes
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the salt and the text, in hex."""
        return sha256(self.salt + self.text.encode()).hexdigest()


def seal(
    state: State, asked: Asked, new_salt: Callable[[], bytes]
) -> tuple[Asked, dict[str, Opened]]:
    """``asked`` as the ledger may hold it, and the texts to keep beside it, by field."""
    opened: dict[str, Opened] = {}
    for field in FIELDS:
        text = getattr(asked.command, field, None)
        if isinstance(text, str) and not blank(text) and text not in _terms(state, field):
            opened[field] = Opened(new_salt(), text)
    return _with(asked, {field: one.digest for field, one in opened.items()}), opened


def seal_again(asked: Asked, command: Mapping[str, Any], texts: Mapping[str, Opened]) -> Asked:
    """``asked`` as ``command``, which was recorded before, would hold it: the same text gets the
    same digest, so that a retry is known for one. A text that was erased counts as the same.
    """
    digests = {}
    for field in FIELDS:
        text, held = getattr(asked.command, field, None), command.get(field)
        if not isinstance(text, str) or not isinstance(held, dict):
            continue
        kept = texts.get(field)
        if kept is None or (kept.text == text and kept.digest == held["sealed"]):
            digests[field] = held["sealed"]
    return _with(asked, digests)


def _with(asked: Asked, digests: Mapping[str, str]) -> Asked:
    if not digests:
        return asked
    sealed = {field: Sealed.model_construct(sealed=digest) for field, digest in digests.items()}
    return replace(asked, command=asked.command.model_copy(update=sealed))


def _terms(state: State, field: str) -> Collection[str]:
    if field != "purpose" or state.adopted is None:
        return ()
    rules = state.adopted.policy.rules
    return {term for rule in rules if isinstance(rule, PurposeRule) for term in rule.purposes}
