"""Rule kinds, one file each. A new kind is a file here and a line in ``KINDS``.

A rule of a policy is of the kind whose ``field`` it has.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Union

from pydantic import PlainValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from accountant.budget.rules.at_most import AtMostRule
from accountant.budget.rules.base import Rule
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.mechanism import MechanismRule
from accountant.budget.rules.purpose import PurposeRule
from accountant.budget.rules.require import RequireRule
from accountant.budget.rules.threshold import ThresholdRule
from accountant.budget.rules.window import WindowRule

__all__ = ["KINDS", "RULE", "AnyRule", "read_rule"]

KINDS: Final[dict[str, type[Rule]]] = {
    kind.field: kind
    for kind in (
        WindowRule,
        LimitRule,
        AtMostRule,
        ThresholdRule,
        MechanismRule,
        RequireRule,
        PurposeRule,
    )
}
"""By their field; a rule is of the first kind whose field it has."""


def read_rule(value: Any) -> Rule:
    """A rule of a policy, of whatever kind it is. Raises pydantic's errors."""
    if isinstance(value, Rule):
        return value
    named = [field for field in KINDS if isinstance(value, dict) and field in value]
    if not named:
        raise PydanticCustomError("rule_kind", "a rule has one of: {kinds}", {"kinds": _listed()})
    return KINDS[named[0]].model_validate(value)


def _listed() -> str:
    return ", ".join(KINDS)


RULE: Final[Any] = Union[tuple(KINDS.values())]  # noqa: UP007 (of a tuple, at run time)
"""All kinds as one type, for the API's description."""

AnyRule = SerializeAsAny[Annotated[Rule, PlainValidator(read_rule, json_schema_input_type=RULE)]]
"""A rule of any kind, as a field of the policy."""
