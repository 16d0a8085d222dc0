"""What all commands share: their fields, the registry, and what a second person confirms."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from accountant.budget.population.population import (
    MAX_VALUES,
    MOST_DIMENSIONS,
)
from accountant.budget.population.selection import Name, Subjects, checked, stored_only
from accountant.ledger.events import microseconds
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.mechanisms.dp_event import DpEvent, read_dp_events

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
Values = Annotated[list[Name], Field(min_length=1, max_length=MAX_VALUES)]
Reasons = Annotated[dict[Identifier, Text], Field(max_length=MOST_DIMENSIONS)]
Count = Annotated[StrictInt, Field(ge=0, le=10**9)]


class Command(BaseModel, frozen=True, extra="forbid", defer_build=True):
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
    made: M = object.__new__(kind)
    _set_dict(made, _defaults(kind) | fields)
    _set_stated(made, set(fields))
    _set_extra(made, None)
    _set_private(made, None)
    return made


# A model is frozen, but its slots are not: to look each up by its name takes half as long again.
_set_dict, _set_stated, _set_extra, _set_private = (
    BaseModel.__dict__[f"__{name}__"].__set__
    for name in ("dict", "pydantic_fields_set", "pydantic_extra", "pydantic_private")
)


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
    ``shown``: what the clock shows to whoever confirms that it is right. ``reason``: why they did,
    if they said so.
    """

    proposal: Annotated[StrictInt, Field(ge=0)]
    digest: Digest
    proposer: str
    key: KeyMade | None = None
    proposed_with: KeyMade | None = None
    shown: Stamp | None = None
    reason: FreeText | None = None


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
    clock: SkipJsonSchema[
        Annotated[Stamp | None, stored_only("not_here", "a clock is confirmed at the machine")]
    ] = None
    reason: FreeText | None = Field(None, description="the reason, in words")


class DeclineChange(Command, name="decline_change"):
    """Decline a proposal; its proposer withdraws it."""

    proposal: Annotated[StrictInt, Field(ge=0)]
    reason: FreeText = Field(description="the reason, in words")
