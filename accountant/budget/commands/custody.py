"""Commands about the ledger itself, of the service and of operators."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt

from accountant.budget.commands.base import (
    Command,
    FreeText,
    Identifier,
    Mechanisms,
    SubjectsField,
    Text,
)
from accountant.budget.custody.custody import FIRST_ENGINE
from accountant.ledger.events import microseconds

MAX_CARRIED: Final = 100
"""Accounts in one event."""


def _stamp(text: str) -> str:
    microseconds(text)
    return text


class AdoptSigningKey(Command):
    """The ledger is signed with this key from now on."""

    command: ClassVar[str] = "adopt_signing_key"
    key: Annotated[str, Field(max_length=400, description="a verifier key: name+hash+base64")]


class StopPublication(Command):
    """A witness contradicts the ledger: nothing more is published until somebody has looked."""

    command: ClassVar[str] = "stop_publication"
    witness: Text
    status: StrictInt
    detail: Text
    size: Annotated[StrictInt, Field(ge=0)]


class ResumePublication(Command):
    """Somebody has looked, and says why publication may go on."""

    command: ClassVar[str] = "resume_publication"
    reason: FreeText


class AcceptTime(Command):
    """Somebody has looked at the clock, which shows this, and says why it is right."""

    command: ClassVar[str] = "accept_time"
    clock: Annotated[str, AfterValidator(_stamp)]
    reason: FreeText

    @property
    def stamp(self) -> int:
        """What the clock shows, in microseconds."""
        return microseconds(self.clock)


class CarriedAccount(BaseModel):
    """What an account had used by the head that was lost, at its most charged cell."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rule: str
    epoch: StrictInt
    dataset: Annotated[str, Field(max_length=64)]
    client: str
    used: dict[str, Any]


class CarryOver(Command):
    """No cell has used less than this: what was spent by events that are lost stays spent."""

    command: ClassVar[str] = "carry_over"
    accounts: Annotated[list[CarriedAccount], Field(min_length=1, max_length=MAX_CARRIED)]


class Recover(Command):
    """Opens a new epoch after the database was put back to an older state. ``lost`` is the signed
    checkpoint that it no longer continues.
    """

    command: ClassVar[str] = "recover"
    reason: FreeText
    lost: Annotated[list[Annotated[str, Field(max_length=4_000)]], Field(max_length=2)]


class EraseText(Command):
    """Erases free texts of an event; the salted digests that stay in it tell nothing any more."""

    command: ClassVar[str] = "erase_text"
    event: Annotated[StrictInt, Field(ge=0)]
    fields: Annotated[list[Identifier], Field(min_length=1, max_length=1_000)]
    reason: FreeText


class AdoptEngine(Command):
    """From now on another version of the bounds decides (privacy/engine.py)."""

    command: ClassVar[str] = "adopt_engine"
    version: Annotated[StrictInt, Field(ge=FIRST_ENGINE)]


class Revalue(Command):
    """Books what an earlier event should have cost beyond what it was booked at. Everything but the
    reason is as in that event: ``by`` spent ``booked`` on ``subjects`` for ``mechanisms``.
    """

    command: ClassVar[str] = "revalue"
    event: Annotated[StrictInt, Field(ge=0)]
    by: str
    dataset: Identifier
    subjects: SubjectsField = None
    everyone: StrictBool = False
    mechanisms: Mechanisms
    booked: dict[str, Any]
    reason: FreeText
