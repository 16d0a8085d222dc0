"""The parts of commands: names, texts, mechanisms, subject groups."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, TypeVar

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
from pydantic_core import PydanticCustomError

from accountant.budget.population.selection import Subjects, stored_only
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.mechanisms.dp_event import DpEvent, is_dp_event, mechanisms_of

DAY: Final = 86_400
MOST_PLANS: Final = 5

IDENTIFIER: Final = r"[a-z0-9][a-z0-9_.-]{0,63}"
LONGEST_TEXT: Final = 2_000
LONGEST_TTL: Final = 30 * DAY

Identifier = Annotated[str, Field(pattern=f"^{IDENTIFIER}$")]
Text = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]

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


def read_dp_events(value: Any) -> Any:
    """Replace DpEvent trees among the mechanisms by the mechanisms that they mean."""
    if not isinstance(value, list) or not any(map(is_dp_event, value)):
        return value
    return [
        body for item in value for body in (mechanisms_of(item) if is_dp_event(item) else [item])
    ]


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
