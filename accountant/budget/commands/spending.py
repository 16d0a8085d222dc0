"""Commands that spend: asking for budget, recording what ran, settling grants."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Final

from pydantic import (
    Field,
    StrictInt,
    field_validator,
)

from accountant.budget.commands.base import (
    Command,
    FreeText,
    Identifier,
    Mechanisms,
    SubjectsField,
    Ttl,
)
from accountant.privacy.mechanisms import SparseVector

DEFAULT_TTL: Final = 3_600
"""Seconds that a grant is open, unless it asks for another time."""


class _Request(Command):
    needs_key: ClassVar[bool] = True
    dataset: Identifier
    subjects: SubjectsField = None
    purpose: FreeText | None = Field(None, description="what the answer is for, in a few words")
    justification: FreeText | None = Field(None, description="why it is worth its privacy")


class AskGrant(_Request):
    """Asks for budget before anything runs."""

    command: ClassVar[str] = "ask_grant"
    mechanisms: Mechanisms
    ttl_seconds: Ttl = DEFAULT_TTL


class OpenSparseVector(_Request):
    """Opens a sparse vector session: reserves its whole cost, then counts its answers."""

    command: ClassVar[str] = "open_sparse_vector"
    mechanism: SparseVector
    ttl_seconds: Ttl = DEFAULT_TTL


class RecordInvocations(_Request):
    """Records what has already run, without a grant. Always recorded, over budget or not."""

    command: ClassVar[str] = "record_invocations"
    mechanisms: Mechanisms
    ran_at: (
        Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$")] | None
    ) = Field(None, description="when it ran, RFC 3339 UTC; information only")

    @field_validator("ran_at")
    @classmethod
    def _moment(cls, text: str | None) -> str | None:
        if text is not None:
            datetime.fromisoformat(text)  # raises ValueError for a month 13
        return text


class CommitGrant(Command):
    """States what ran: all that was reserved, or a listed part."""

    command: ClassVar[str] = "commit_grant"
    grant: str
    mechanisms: Mechanisms | None = None


class ReleaseGrant(Command):
    """Attests that none of it was executed on the data."""

    command: ClassVar[str] = "release_grant"
    grant: str
    reason: FreeText


class ExpireGrant(Command):
    """Charges a grant that has expired; the service sends it itself."""

    command: ClassVar[str] = "expire_grant"
    grant: str


class CountAnswers(Command):
    """Counts answers that a session has given since the last count."""

    command: ClassVar[str] = "count_answers"
    needs_key: ClassVar[bool] = True
    grant: str
    positives: Annotated[StrictInt, Field(ge=0, le=10**9)]
    negatives: Annotated[StrictInt, Field(ge=0, le=10**9)]


class CloseSparseVector(Command):
    """Closes a session; epsilon for positives that were not used comes back."""

    command: ClassVar[str] = "close_sparse_vector"
    grant: str
