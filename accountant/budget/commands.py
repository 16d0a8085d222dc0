"""What can be asked of a ledger. Each event holds the command that it answers.

The models are the request bodies of the HTTP door, one schema for the door, the command line and
the ledger. ``to_json`` leaves defaults out: a field added later does not change old commands, and
a field's default never changes (charter, ledger/events.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    TypeAdapter,
    field_validator,
)
from pydantic_core import PydanticCustomError

from accountant.budget.population import Membership
from accountant.budget.selection import Name, Subjects
from accountant.ledger.events import canonical
from accountant.privacy.mechanisms import Mechanism, Relation, SparseVector
from accountant.privacy.mechanisms.dp_event import DpEvent, is_dp_event, mechanisms_of

DAY: Final = 86_400
MOST_PLANS: Final = 5

Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=2_000)]


def read_dp_events(value: Any) -> Any:
    """DpEvent trees among the mechanisms stand for the mechanisms that they mean."""
    if not isinstance(value, list) or not any(map(is_dp_event, value)):
        return value
    return [
        body for item in value for body in (mechanisms_of(item) if is_dp_event(item) else [item])
    ]


def _few_plans(mechanisms: list[Mechanism]) -> list[Mechanism]:
    """A plan may take a second or more to compose, and a request has an end."""
    if sum(mechanism.kind == "plan" for mechanism in mechanisms) > MOST_PLANS:
        raise PydanticCustomError(
            "too_many_plans", "at most {most} plans in a request", {"most": MOST_PLANS}
        )
    return mechanisms


Mechanisms = Annotated[
    list[Mechanism],
    BeforeValidator(read_dp_events, json_schema_input_type=list[Mechanism | DpEvent]),
    AfterValidator(_few_plans),
    Field(min_length=1, max_length=200, description="what will run, or ran, on the data"),
]
SubjectsField = Annotated[
    Subjects | None,
    Field(description="the subject group; absent means everyone; a list is a union of groups"),
]
Ttl = Annotated[
    StrictInt,
    Field(ge=1, le=30 * DAY, description="seconds until an open grant expires, and is charged"),
]


class Command(BaseModel):
    """Base of all commands. ``needs_key``: asking twice would spend twice without a key."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    command: ClassVar[str]
    needs_key: ClassVar[bool] = False

    def to_json(self) -> dict[str, Any]:
        """As events hold it: its type and what differs from the defaults."""
        body = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"type": self.command} | body


class RegisterPopulation(Command):
    """Registers a population and opens its ledger; values appended later extend a dimension."""

    command: ClassVar[str] = "register_population"
    privacy_unit: Text = Field(description="who or what is protected: person, household, …")
    neighbouring: Relation = Field(description="which two data sets differ by one privacy unit")
    membership: Membership = Field(description="whether it is public who is in which cell")
    dimensions: Annotated[
        dict[Identifier, Annotated[list[Name], Field(min_length=1, max_length=100_000)]],
        Field(max_length=8, description="unchanging public attributes with all their values"),
    ] = {}
    attested_new: StrictBool = Field(
        False, description="when extending: the members of new cells were in no data before"
    )


class RegisterDataset(Command):
    """Registers a dataset under a short id."""

    command: ClassVar[str] = "register_dataset"
    id: Identifier
    namespace: Text = Field(description="OpenLineage namespace, e.g. postgres://warehouse")
    name: Text = Field(description="OpenLineage name, e.g. public.visits")
    owner: Text | None = None
    parents: Annotated[list[Text], Field(max_length=100)] = []


class AdoptPolicy(Command):
    """Adopts a policy. ``policy`` is the parsed file with all defaults written out."""

    command: ClassVar[str] = "adopt_policy"
    policy: dict[str, Any]
    source_digest: str
    approved_by: str | None = None


class _Request(Command):
    needs_key: ClassVar[bool] = True
    dataset: Identifier
    subjects: SubjectsField = None
    purpose: Text | None = Field(None, description="what the answer is for, in a few words")
    justification: Text | None = Field(None, description="why it is worth its privacy")


class AskGrant(_Request):
    """Asks for budget before anything runs."""

    command: ClassVar[str] = "ask_grant"
    mechanisms: Mechanisms
    ttl_seconds: Ttl = 3_600


class OpenSparseVector(_Request):
    """Opens a sparse vector session: reserves its whole cost, then counts its answers."""

    command: ClassVar[str] = "open_sparse_vector"
    mechanism: SparseVector
    ttl_seconds: Ttl = 3_600


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
    """What was really run: all that was reserved, or a listed part."""

    command: ClassVar[str] = "commit_grant"
    grant: str
    mechanisms: Mechanisms | None = None


class ReleaseGrant(Command):
    """Attests that none of it was executed on the data."""

    command: ClassVar[str] = "release_grant"
    grant: str
    reason: Text


class ExpireGrant(Command):
    """Charges a grant whose time has passed; the service asks for it itself."""

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


COMMANDS: Final[dict[str, type[Command]]] = {
    kind.command: kind
    for kind in (
        RegisterPopulation,
        RegisterDataset,
        AdoptPolicy,
        AskGrant,
        OpenSparseVector,
        RecordInvocations,
        CommitGrant,
        ReleaseGrant,
        ExpireGrant,
        CountAnswers,
        CloseSparseVector,
    )
}


def command_from_json(body: dict[str, Any]) -> Command:
    """Reads what ``to_json`` wrote. Raises ValueError (pydantic's) for anything else."""
    fields = dict(body)
    kind = COMMANDS.get(fields.pop("type", None))
    if kind is None:
        raise ValueError(f"no command is called {body.get('type')!r}")
    return TypeAdapter(kind).validate_python(fields)


@dataclass(frozen=True)
class Asked:
    """A command with the name of who asks, and the idempotency key, if any."""

    by: str
    command: Command
    key: str | None = None

    @cached_property
    def document(self) -> dict[str, Any]:
        """The command as events hold it."""
        return self.command.to_json()

    @cached_property
    def canonical(self) -> bytes:
        """Its canonical bytes."""
        return canonical(self.document)

    @property
    def fingerprint(self) -> str:
        """Two requests with the same key must have the same fingerprint."""
        return sha256(self.canonical).hexdigest()


Role = Literal["admin", "pipeline", "officer", "auditor"]
