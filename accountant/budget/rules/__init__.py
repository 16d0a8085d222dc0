"""Rule kinds, one file each. To add a kind, add a file here and a line to ``KINDS``."""

from __future__ import annotations

from typing import Annotated, Any, Final, Union

from pydantic import GetJsonSchemaHandler, PlainValidator, SerializeAsAny, TypeAdapter
from pydantic_core import CoreSchema, PydanticCustomError

from accountant.budget.rules.allotment import AllotmentRule
from accountant.budget.rules.at_most import AtMostRule
from accountant.budget.rules.base import Rule
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.mechanism import MechanismRule
from accountant.budget.rules.purpose import PurposeRule
from accountant.budget.rules.refresh import RefreshRule
from accountant.budget.rules.require import RequireRule
from accountant.budget.rules.threshold import ThresholdRule
from accountant.budget.rules.trusted import TrustedRule
from accountant.budget.rules.window import WindowRule

KINDS: Final[dict[str, type[Rule]]] = {
    kind.field: kind
    for kind in (
        WindowRule,
        RefreshRule,
        AllotmentRule,
        LimitRule,
        AtMostRule,
        ThresholdRule,
        MechanismRule,
        RequireRule,
        PurposeRule,
        TrustedRule,
    )
}
"""Rule kinds by their field. A rule is of the first kind whose field it has and that knows all its
fields; if none knows all, of the first whose field it has. Policies are read, and their JSON schema
is written, by the kinds that are registered at that moment.
"""


def home_made() -> bool:
    """Return whether this process has registered a kind of its own, which its helpers lack."""
    return any(not kind.__module__.startswith("accountant.") for kind in KINDS.values())


def read_rule(value: Any) -> Rule:
    """Read a rule of a policy as its kind's model. Raises pydantic's errors."""
    if isinstance(value, Rule):
        return value
    fields = set(value) if isinstance(value, dict) else set()
    named = [kind for field, kind in KINDS.items() if field in fields]
    if not named:
        text = "this program does not know its kind: a rule has one of: {kinds}"
        raise PydanticCustomError("rule_kind", text, {"kinds": ", ".join(KINDS)})
    whole = (kind for kind in named if fields <= kind.model_fields.keys())
    return next(whole, named[0]).model_validate(value)


class _Described:
    """Describes a rule, in a JSON schema, as one of the registered kinds."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        union: Any = Union[tuple(KINDS.values())]  # noqa: UP007 (of a tuple, at run time)
        return handler(TypeAdapter(union).core_schema)


AnyRule = SerializeAsAny[Annotated[Rule, PlainValidator(read_rule), _Described]]
"""A rule of any kind, as a field of the policy."""
