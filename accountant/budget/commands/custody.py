"""Commands about the ledger itself: keys, publication, the clock, recovery, texts, bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
    StrictBool,
    StrictInt,
)

from accountant.budget.commands.base import (
    MAX_CARRIED,
    Change,
    Command,
    Datasets,
    Digest,
    FreeText,
    Identifier,
    Mechanisms,
    Stamp,
    SubjectsField,
    Text,
)
from accountant.budget.custody.custody import FIRST_ENGINE
from accountant.ledger.events import microseconds


class AdoptSigningKey(Command, name="adopt_signing_key"):
    """Sign the ledger with this key from now on."""

    key: Annotated[str, Field(max_length=400, description="a verifier key: name+hash+base64")]


class StopPublication(Command, name="stop_publication"):
    """Stop publication: a witness contradicts the ledger, and an operator has to look at it."""

    witness: Text
    status: StrictInt
    detail: Text
    size: Annotated[StrictInt, Field(ge=0)]


class ResumePublication(Command, name="resume_publication"):
    """Resume publication; an operator states why it may go on."""

    reason: FreeText


class AcceptTime(Change, name="accept_time"):
    """Accept the time that the clock shows; an operator states why it is right. Another person says
    what it shows when they confirm it.
    """

    clock: Stamp
    reason: FreeText

    @property
    def stamp(self) -> int | None:
        """The time that the clock showed to whoever confirmed it, in microseconds."""
        if self.confirms is None or self.confirms.shown is None:
            return None
        return microseconds(self.confirms.shown)


class CarriedAccount(BaseModel, frozen=True, extra="forbid"):
    """The sums of an account at its most charged cell, as of the signed head that was lost."""

    rule: str
    epoch: StrictInt
    dataset: Annotated[str, Field(max_length=64)]
    client: str
    unit: str = ""
    purpose: str = ""
    used: dict[str, Any]


class CarryOver(Command, name="carry_over"):
    """Raise every cell to at least these sums, so that spending by lost events stays booked."""

    accounts: Annotated[list[CarriedAccount], Field(min_length=1, max_length=MAX_CARRIED)]


class Recover(Change, name="recover"):
    """Open a new epoch of the log after a restore. ``lost``: the signed heads it contradicts."""

    reason: FreeText
    lost: Annotated[list[Annotated[str, Field(max_length=4_000)]], Field(max_length=2)]


class EraseText(Command, name="erase_text"):
    """Erase free texts of an event. The salted digests that stay in it reveal nothing."""

    event: Annotated[StrictInt, Field(ge=0)]
    fields: Annotated[list[Identifier], Field(min_length=1, max_length=1_000)]
    reason: FreeText


ReportKind = Literal["officer", "statement", "population"]
ReportFormat = Literal["html", "pdf", "csv", "json"]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]


class FileReport(Command, name="file_report"):
    """File a report of a period that is over: the SHA-256 of its bytes, so that what was signed can
    be told from anything else. It rests on the first ``size`` events.
    """

    report: ReportKind
    dataset: Identifier | None = None
    first: Day
    last: Day
    format: ReportFormat
    size: Annotated[StrictInt, Field(ge=0)]
    digest: Digest


class StateVerification(Command, name="state_verification"):
    """State the result of a verification: how many events were verified, by the root over them, and
    how many findings there were. ``reason`` says what was found, or how it was verified.
    """

    size: Annotated[StrictInt, Field(ge=1, le=2**53, description="how many events were verified")]
    root: Digest = Field(description="the root over them, in hex")
    findings: Annotated[StrictInt, Field(ge=0, le=2**53, description="how many there were")]
    decided: StrictBool = Field(description="every decision was taken again")
    reason: FreeText | None = Field(None, description="what was found, in words")


class AdoptEngine(Command, name="adopt_engine"):
    """Price charges by another version of the bounds from now on (privacy/engine.py)."""

    version: Annotated[StrictInt, Field(ge=FIRST_ENGINE)]


class Revalue(Command, name="revalue"):
    """Book the difference between the right cost of an earlier event and its charge. All fields but
    the reason repeat that event: ``by`` spent ``booked`` on ``subjects`` for ``mechanisms``;
    ``dataset`` are all datasets that it was charged to, ``for_purpose`` its purpose if that stands
    in clear, ``for_allotment`` the allotment that it named, ``booked_per`` what it booked for
    further units.
    """

    event: Annotated[StrictInt, Field(ge=0)]
    by: str
    dataset: Datasets
    subjects: SubjectsField = None
    everyone: StrictBool = False
    for_purpose: Text | None = None
    for_allotment: Identifier | None = None
    mechanisms: Mechanisms
    booked: dict[str, Any]
    booked_per: dict[str, dict[str, Any]] = {}  # noqa: RUF012
    reason: FreeText
