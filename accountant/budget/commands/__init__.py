"""The commands of a ledger, which are also the request bodies of the HTTP door.

Each event holds the command that it answers. ``to_json`` leaves defaults out: a field added later
does not change old commands, and a default never changes (charter, ledger/events.py).
"""

from __future__ import annotations

import re
from collections.abc import (
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache, partial, reduce
from hashlib import sha256
from operator import or_
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from accountant.budget.custody.custody import FIRST_ENGINE
from accountant.budget.errors import Invalid
from accountant.budget.population.population import (
    MAX_CELLS,
    MOST_DIMENSIONS,
    MOST_LABELS,
    LabelText,
    Membership,
)
from accountant.budget.population.selection import Name, Subjects, checked, stored_only
from accountant.ledger.events import canonical, microseconds, to_keep, written
from accountant.privacy.mechanisms import Mechanism, Relation, SparseVector
from accountant.privacy.mechanisms.base import LARGEST_GROUP, MOST_UNITS
from accountant.privacy.mechanisms.dp_event import DpEvent, read_dp_events
from accountant.privacy.mechanisms.further_units import Unit, Units

DEFAULT_TTL: Final = 3_600
"""Seconds until a grant expires, unless the request states another time."""
MAX_CARRIED: Final = 100
"""Accounts in one event."""
MOST_ITEMS: Final = 4_000
"""Items of one batch."""
MOST_JOINED: Final = 20
"""Datasets that one query reads."""
MOST_PLANS: Final = 5
"""Plans in one request."""
DAY: Final = 86_400
LONGEST_TTL: Final = 30 * DAY
PROPOSAL_DAYS: Final = 7
"""Days that a proposal stays open, unless the request states others; at most 30."""

IDENTIFIER: Final = r"[a-z0-9][a-z0-9_.-]{0,63}"
LONGEST_ID: Final = 64
LONGEST_TEXT: Final = 2_000

Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]
Use = Annotated[str, Field(pattern=f"^{IDENTIFIER}/{IDENTIFIER}$")]
"""A dataset of a population."""
Text = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]


def _ordered(names: list[str]) -> list[str]:
    """Sort names, which must differ: their order does not matter."""
    if len(set(names)) < len(names):
        raise PydanticCustomError("stated_twice", "the same is named twice")
    return sorted(names)


def _plainly(names: str | list[str]) -> str | list[str]:
    """Spell a single one of several as what it is."""
    return names[0] if isinstance(names, list) and len(names) == 1 else names


_ID_SCHEMA: Final = {"type": "string", "pattern": f"^{IDENTIFIER}$"}
_IDS_SCHEMA: Final = {"type": "array", "items": _ID_SCHEMA, "minItems": 1, "uniqueItems": True}
Datasets = Annotated[
    Annotated[Identifier, Tag(":one")]
    | Annotated[
        list[Identifier],
        Field(min_length=1, max_length=MOST_JOINED),
        AfterValidator(_ordered),
        Tag(":several"),
    ],
    Discriminator(lambda value: ":several" if isinstance(value, list) else ":one"),
    AfterValidator(_plainly),
    WithJsonSchema({"anyOf": [_ID_SCHEMA, _IDS_SCHEMA | {"maxItems": MOST_JOINED}]}),
]
"""A dataset, or several that one query reads: in any order, held in the order of their ids."""

STORED: Final = {"stored": True}
"""Validation context for reading events."""


class Sealed(BaseModel, frozen=True, extra="forbid"):
    """A free text as events hold it: SHA-256 of its salt and itself, so that it can be erased."""

    sealed: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


FreeText = Annotated[
    Annotated[Text, Tag(":text")]
    | Annotated[Sealed, stored_only("not_text", "it must be text"), Tag(":sealed")],
    Discriminator(lambda value: ":sealed" if isinstance(value, dict | Sealed) else ":text"),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}),
]
"""Text kept beside the ledger, which holds its salted digest."""


def _few_plans(mechanisms: list[Mechanism]) -> list[Mechanism]:
    """Bound the time of a request: composing a plan may take a second or more."""
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
    Field(ge=1, le=LONGEST_TTL, description="seconds until an open grant expires, and is charged"),
]

LONGEST_WAIT: Final = 30 * DAY
APPROVAL_WAIT: Final = 7 * DAY
"""Seconds that a request waits for a person, unless it says for how long it waits."""
_SPAN: Final = re.compile(r"([1-9][0-9]{0,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": DAY}


def seconds_in(value: Any) -> Any:
    """Read 7d, 12h, 30m or 45s as seconds."""
    found = _SPAN.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else int(found[1]) * _UNITS[found[2]]


Wait = Annotated[
    StrictInt,
    BeforeValidator(seconds_in, json_schema_input_type=int | str),
    Field(ge=1, le=LONGEST_WAIT),
]
"""How long a request waits, in seconds."""

Role = Literal["admin", "pipeline", "officer", "auditor"]


Moment = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"),
    AfterValidator(partial(checked, datetime.fromisoformat)),  # there is no month 13
]
Stamp = Annotated[str, AfterValidator(partial(checked, microseconds))]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Values = Annotated[list[Name], Field(min_length=1, max_length=MAX_CELLS)]
Reasons = Annotated[dict[Identifier, Text], Field(max_length=MOST_DIMENSIONS)]
Count = Annotated[StrictInt, Field(ge=0, le=10**9)]


class Command(BaseModel, frozen=True, extra="forbid"):
    """Base of all commands. ``needs_key``: without an idempotency key a retry would spend twice."""

    command: ClassVar[str]
    needs_key: ClassVar[bool] = False

    def __init_subclass__(cls, name: str = "", *, needs_key: bool | None = None) -> None:
        if needs_key is not None:
            cls.needs_key = needs_key
        if name:
            cls.command = name
            COMMANDS[name] = cls

    def to_json(self) -> dict[str, Any]:
        """Return the type, and the fields that differ from the defaults, as events hold them."""
        body = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return {"type": self.command} | body


COMMANDS: Final[dict[str, type[Command]]] = {}
"""All commands by name."""
M = TypeVar("M", bound=BaseModel)


def construct(kind: type[M], fields: dict[str, Any]) -> M:
    """Make a model of valid ``fields``, which it keeps, faster than ``model_construct``."""
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", _defaults(kind) | fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(fields))
    object.__setattr__(made, "__pydantic_extra__", None)
    object.__setattr__(made, "__pydantic_private__", None)
    return made


@lru_cache
def _defaults(kind: type[BaseModel]) -> dict[str, Any]:
    fields = kind.model_fields.items()
    return {name: field.default for name, field in fields if not field.is_required()}


class KeyMade(BaseModel, frozen=True, extra="forbid"):
    """What was known of the API key of whoever confirmed: its role, who made it, and when."""

    role: Role
    by: list[str]
    time: Stamp


class Confirmation(BaseModel, frozen=True, extra="forbid"):
    """The proposal that a command was confirmed as. ``key`` is the confirmer's, ``proposed_with``
    the proposer's; each is absent where no API key bears the name, as beside the database.
    """

    proposal: Annotated[StrictInt, Field(ge=0)]
    digest: Digest
    proposer: str
    key: KeyMade | None = None
    proposed_with: KeyMade | None = None


class Change(Command):
    """Base of commands that take a second person if they loosen (decide/proposing.py)."""

    proposal_days: Annotated[StrictInt, Field(ge=1, le=30)] = Field(
        PROPOSAL_DAYS, description="days that it can be confirmed, if it takes a second person"
    )
    confirms: SkipJsonSchema[
        Annotated[
            Confirmation | None,
            stored_only("not_here", "a second person confirms in a request of their own"),
        ]
    ] = None


_Known = SkipJsonSchema[
    Annotated[KeyMade | None, stored_only("not_here", "the service knows the key")]
]


class ConfirmChange(Command, name="confirm_change"):
    """Confirm a proposal. No event holds this command: the change's own has it as ``confirms``."""

    proposal: Annotated[StrictInt, Field(ge=0)]
    digest: Digest = Field(description="the digest of the proposal that you read")
    key: _Known = None
    proposed_with: _Known = None


class DeclineChange(Command, name="decline_change"):
    """Decline a proposal; its proposer withdraws it."""

    proposal: Annotated[StrictInt, Field(ge=0)]
    reason: FreeText = Field(description="the reason, in words")


class FurtherUnit(BaseModel, frozen=True, extra="forbid"):
    """A further unit of privacy: a part of the privacy unit, or a group of it."""

    part_of: Text | None = Field(None, description="the privacy unit, of which it is a part")
    group_of: Text | None = Field(None, description="the privacy unit, of which it is a group")
    at_most: Annotated[StrictInt, Field(ge=1, le=LARGEST_GROUP)] | None = Field(
        None,
        description="of a group: the most units in it; of a part: how many of them one unit has at "
        "most in all the data",
    )
    called: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None, description="one of it in words, such as one person on one day"
    )

    @model_validator(mode="after")
    def _either(self) -> FurtherUnit:
        if (self.part_of is None) == (self.group_of is None):
            raise PydanticCustomError("unit_kind", "give exactly one of part_of and group_of")
        if self.group_of is not None and self.at_most is None:
            raise PydanticCustomError(
                "unit_group", "a group needs at_most: without it nothing bounds what it loses"
            )
        return self


FurtherUnits = Annotated[
    dict[Identifier, FurtherUnit],
    Field(
        max_length=MOST_UNITS,
        description="further units that limits may protect, by name: a part of the privacy unit, "
        'such as {"person-day": {"part_of": "person"}}, or a group of it',
    ),
]


def units_of(stated: Mapping[str, FurtherUnit]) -> Units:
    """Return further units as they were stated, by name."""
    return tuple(
        Unit(name, one.group_of is not None, one.at_most, one.called)
        for name, one in sorted(stated.items())
    )


def stated_of(unit: Unit, of: str) -> FurtherUnit:
    """Return a further unit, of the privacy unit ``of``, as it is stated."""
    part, group = (None, of) if unit.group else (of, None)
    return FurtherUnit(part_of=part, group_of=group, at_most=unit.at_most, called=unit.called)


class RegisterPopulation(Change, name="register_population"):
    """Register a population and open its ledger; values appended later extend a dimension."""

    privacy_unit: Text = Field(description="who or what is protected: person, household, …")
    neighbouring: Relation = Field(description="which two data sets differ by one privacy unit")
    membership: Membership = Field(description="whether it is public who is in which cell")
    dimensions: Annotated[
        dict[Identifier, Values],
        Field(
            max_length=MOST_DIMENSIONS,
            description="unchanging public attributes with all their values",
        ),
    ] = {}
    attested_new: StrictBool = Field(
        False,
        description="when extending: the members of new cells were in no data that anything ran on "
        "before, so they owe nothing of what was spent",
    )
    fixed: Reasons = Field(
        {},
        description="for a dimension that looks like times of events: why it never changes for a "
        "unit, such as `the week a person joined never changes`",
    )
    units: FurtherUnits = {}


class AppendValues(Change, name="append_values"):
    """Append values to a dimension, as many as one request holds. Repeated it changes nothing."""

    dimension: Identifier
    first: Count = Field(
        description="the place of the first of these values in the dimension: how many go before it"
    )
    values: Values = Field(description="values in order; those that are there already are skipped")
    attested_new: StrictBool = Field(
        False, description="as of a registration, of the values that are not there yet"
    )
    fixed: Reasons = Field({}, description="as of a registration")


class ExtendPopulation(Change, name="extend_population"):
    """Append values to dimensions: the event of a registration in parts, or one that extends, and
    what is proposed of an extension that takes a second person.
    """

    added: dict[Identifier, Values]
    attested_new: StrictBool = False
    fixed: Reasons = {}
    units: FurtherUnits = {}


class RegisterDataset(Change, name="register_dataset"):
    """Register a dataset under a short id."""

    id: Identifier
    namespace: Text = Field(description="OpenLineage namespace, e.g. postgres://warehouse")
    name: Text = Field(description="OpenLineage name, e.g. public.visits")
    owner: Text | None = Field(None, description="the owner of the data")
    labels: Annotated[dict[LabelText, LabelText], Field(max_length=MOST_LABELS)] | None = Field(
        None,
        description="labels that rules may be about, such as risk: high; those of before if left "
        "out",
    )
    parents: list[Text] = Field([], max_length=100, description="the datasets it was made from")
    also: Annotated[list[Use], AfterValidator(_ordered)] = Field(
        [], max_length=100, description="the datasets of other populations that are the same data"
    )


class AdoptPolicy(Change, name="adopt_policy"):
    """Adopt a policy. ``policy`` is the parsed file with all defaults written out; ``closes`` are
    the limit rules that may begin closed for good.
    """

    policy: dict[str, Any]
    source_digest: str
    closes: list[Annotated[str, Field(max_length=64)]] = Field([], max_length=200)


class _Request(Command, needs_key=True):
    dataset: Datasets = Field(description="the dataset's short id; several of one query as a list")
    subjects: SubjectsField = None
    purpose: FreeText | None = Field(None, description="what the answer is for, in a few words")
    justification: FreeText | None = Field(None, description="why it is worth its privacy")
    allotment: Identifier | None = Field(
        None, description="the allotment to draw from; absent: the common part"
    )


class AskGrant(_Request, name="ask_grant"):
    """Ask for budget before anything runs."""

    mechanisms: Mechanisms
    ttl_seconds: Ttl = DEFAULT_TTL

    wait: Wait | None = Field(
        None,
        description="how long it may wait for budget, or for a person's approval, in seconds or as "
        "7d, 12h or 30m; without it a request that does not fit is refused at once, and one that "
        "needs approval waits for 7 days",
    )
    at_least: Annotated[StrictInt, Field(ge=1, le=10**9)] | None = Field(
        None,
        description="of a request of one mechanism that waits: the least count that is accepted",
    )
    callback: Annotated[str, Field(max_length=500)] | None = Field(
        None,
        exclude=True,  # no event holds it: it decides nothing, and may hold a secret
        description="an address to which is told what became of the request, if it waits",
    )

    @model_validator(mode="after")
    def _waits(self) -> AskGrant:
        if self.at_least is None:
            return self
        counts = [mechanism.count for mechanism in self.mechanisms]
        if self.wait is None or len(counts) > 1 or self.at_least >= counts[0]:
            raise PydanticCustomError(
                "not_fewer",
                "at_least is for a request that waits, of one mechanism with a larger count",
            )
        return self


class OpenSparseVector(_Request, name="open_sparse_vector"):
    """Open a sparse vector session: reserve its whole cost, then count its answers."""

    mechanism: SparseVector = Field(description="the session")
    ttl_seconds: Ttl = DEFAULT_TTL


class RecordInvocations(_Request, name="record_invocations"):
    """Record invocations that have already run without a grant, also those over budget."""

    mechanisms: Mechanisms
    ran_at: Moment | None = Field(None, description="when it ran, RFC 3339 UTC; information only")


class _OnGrant(Command):
    grant: str = Field(description="the grant's id")


class _Returning(Change):
    grant: str = Field(description="the grant's id")


class CommitGrant(_Returning, name="commit_grant"):
    """State which mechanisms ran: all that were reserved, or a listed part."""

    mechanisms: Mechanisms | None = Field(None, description="the part that was run, as asked for")


class RepublishAnswer(_OnGrant, name="republish_answer", needs_key=True):
    """State that an answer of a committed grant is published again, unchanged, at no charge."""

    dataset: Datasets = Field(description="the datasets that the grant names")
    answer: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the answer as it was published, in hex"
    )


class ReleaseGrant(_Returning, name="release_grant"):
    """Attest that nothing of a grant was executed on the data."""

    reason: FreeText = Field(description="the reason, in words")


class ExpireGrant(_OnGrant, name="expire_grant"):
    """Charge a grant that has expired. Only the service sends this command."""


class _Waited(_OnGrant):
    client: str = Field(description="the client that asked for it")
    request: dict[str, Any] = Field(description="the request, with the count that is decided on")


class Approval(BaseModel, frozen=True, extra="forbid"):
    """What an approval was made by: the digest of the event that was read, and what was known of
    the API key of whoever approves, if one bears the name.
    """

    digest: Digest
    key: KeyMade | None = None


class AdmitGrant(_Waited, name="admit_grant"):
    """Grant a request that has waited. Nobody sends this command: it follows from the ledger, or
    from an ``approval`` (``ApproveGrant``).
    """

    approval: Approval | None = None
    reason: FreeText | None = None


class _OnApproval(_OnGrant):
    digest: Digest = Field(description="the digest of the request that you read")
    key: SkipJsonSchema[
        Annotated[KeyMade | None, stored_only("not_here", "the service knows the key")]
    ] = None


class ApproveGrant(_OnApproval, name="approve_grant"):
    """Approve a request that waits for a person. No event holds this command: the admission has it
    as ``approval``.
    """

    reason: FreeText | None = Field(None, description="the reason, in words")


class DeclineGrant(_OnApproval, name="decline_grant"):
    """Decline a request that waits for a person, which ends it."""

    reason: FreeText = Field(description="the reason, which the client is told")


class TimeOutGrant(_Waited, name="time_out_grant"):
    """Refuse a request that has waited long enough. Only the service sends this command."""


class CountAnswers(_OnGrant, name="count_answers", needs_key=True):
    """Count the answers that a session has given since the last count."""

    positives: Count = Field(description="positive answers since the last count")
    negatives: Count = Field(description="negative answers since the last count; they are free")


class CloseSparseVector(_Returning, name="close_sparse_vector"):
    """Close a session. The epsilon of positives that it did not use comes back."""


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


class AcceptTime(Command, name="accept_time"):
    """Accept the time that the clock shows; an operator states why it is right."""

    clock: Stamp
    reason: FreeText

    @property
    def stamp(self) -> int:
        """The time that the clock shows, in microseconds."""
        return microseconds(self.clock)


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
    booked_per: dict[str, dict[str, Any]] = {}
    reason: FreeText


BatchKind = Literal["spending", "invocations"]
ITEMS: Final[dict[BatchKind, tuple[type[Command], ...]]] = {
    "spending": (CommitGrant, ReleaseGrant, AskGrant),
    "invocations": (RecordInvocations,),
}
"""The commands that a batch of each kind may hold."""


class Batch(Command, name="batch", needs_key=True):
    """Answer many commands with one commit. Holds their number and the digest of the array of their
    commands, which stand in the events of the items (of a refused batch in its own event).
    """

    kind: BatchKind
    size: Annotated[StrictInt, Field(ge=1, le=MOST_ITEMS)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def batch_of(items: Sequence[Command], commands: Iterable[bytes] | None = None) -> Batch:
    """Return the batch of ``items``, whose canonical ``commands`` may be known. Raises Invalid."""
    if not 1 <= len(items) <= MOST_ITEMS:
        raise Invalid(
            "batch-size", f"a batch has 1 to {MOST_ITEMS} items, not {len(items)}: split it"
        )
    kind: BatchKind = "invocations" if isinstance(items[0], RecordInvocations) else "spending"
    for place, item in enumerate(items):
        if any(getattr(item, name, None) is not None for name in ("wait", "callback")):
            raise Invalid(
                "batch-item-waits",
                "a batch is answered as a whole and at once, so no item of it waits: ask for this "
                "grant alone",
                item=place,
            )
        if not isinstance(item, ITEMS[kind]):
            one, other = (", ".join(each.command for each in kinds) for kinds in ITEMS.values())
            raise Invalid(
                "mixed-batch",
                f"{item.command} cannot be here: a batch consists of {one}, or of {other} only",
                item=place,
            )
    if commands is None:
        commands = [canonical(item.to_json()) for item in items]
    return Batch(kind=kind, size=len(items), digest=digest_of(commands))


def digest_of(commands: Iterable[bytes]) -> str:
    """Return SHA-256 of the array of these canonical commands, in hex."""
    return sha256(b"[" + b",".join(commands) + b"]").hexdigest()


def _item(kind: type[Command]) -> type[Command]:
    """Return the model of a command as an item of a batch: it says its type."""
    named: Any = Literal[kind.command], Field(description="which command this item is")
    return create_model(f"{kind.__name__}Item", __base__=kind, __doc__=kind.__doc__, type=named)


_KINDS: list[type[Command]] = [AskGrant, CommitGrant, ReleaseGrant, RecordInvocations]
_Item: Any = reduce(or_, map(_item, _KINDS))


class BatchRequest(BaseModel, frozen=True, extra="forbid"):
    """Commits, releases and grants, all or nothing; or invocations, all recorded."""

    needs_key: ClassVar[bool] = True
    items: Annotated[
        list[Annotated[_Item, Discriminator("type")]],
        Field(min_length=1, max_length=MOST_ITEMS, description="they do not refer to each other"),
    ]

    def commands(self) -> list[Command]:
        """Return the commands of the items, as if each were sent alone."""
        return [
            construct(COMMANDS[item.type], {k: v for k, v in item if k != "type"})
            for item in self.items
        ]


class PreviewRequest(BaseModel, frozen=True, extra="forbid"):
    """Requests that are previewed one after another."""

    items: Annotated[list[AskGrant], Field(min_length=1, max_length=MOST_ITEMS)] = Field(
        description="requests in the order in which they would be sent"
    )


def decided_in(items: Sequence[BaseModel]) -> list[int]:
    """Return the order in which ``items`` are decided: commits and releases come first."""
    return sorted(range(len(items)), key=lambda place: isinstance(items[place], AskGrant))


def command_from_json(body: dict[str, Any]) -> Command:
    """Read the output of ``to_json``. Raises ValueError (pydantic's) for anything else."""
    fields = dict(body)
    kind = COMMANDS.get(fields.pop("type", None))
    if kind is None:
        raise ValueError(f"no command is called {body.get('type')!r}")
    return kind.model_validate(fields, context=STORED)


@dataclass(frozen=True)
class Envelope:
    """A command with the name of its client, and the idempotency key, if any. A batch that a client
    sends has ``items``; one that is read back may have none: they stand in the following events.
    """

    by: str
    command: Command
    key: str | None = None
    items: tuple[Command, ...] = ()
    sound: bool = field(default=False, compare=False)
    """Its ``document`` was given, and is known to be valid in an event."""

    @classmethod
    def together(cls, by: str, parts: Sequence[Envelope], key: str | None) -> Envelope:
        """Make one batch of single requests by ``by``. Raises Invalid if they cannot be one."""
        items = tuple(part.command for part in parts)
        asked = cls(by, batch_of(items, (part.canonical for part in parts)), key, items)
        vars(asked)["parts"] = tuple(parts)
        return asked

    @cached_property
    def parts(self) -> tuple[Envelope, ...]:
        """The items of a batch as single requests, which keep their documents."""
        return tuple(Envelope(self.by, item) for item in self.items)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The command as events hold it."""
        return self.command.to_json()

    @cached_property
    def canonical(self) -> bytes:
        """Its canonical bytes."""
        return to_keep(written(self.document) if self.sound else canonical(self.document))

    @property
    def fingerprint(self) -> bytes:
        """The digest of the command. Requests with the same key must have the same."""
        return sha256(self.canonical).digest()
