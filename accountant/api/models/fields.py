"""The types of fields that many answers have."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema
from typing_extensions import TypeAliasType, TypedDict

from accountant.privacy.units import FIXED

REFERENCE: Final = "#/components/schemas/{model}"

Loss = TypeAliasType(
    "Loss",
    Annotated[
        str,
        Field(
            pattern=r"^([0-9]+(\.[0-9]+)?|infinite)$",
            description='A decimal string such as "0.25", or "infinite".',
        ),
    ],
)
_LOSS: Final = {"$ref": REFERENCE.format(model="Loss")}
Charge = TypeAliasType(
    "Charge",
    Annotated[
        dict[str, str],
        WithJsonSchema(
            {
                "type": "object",
                "description": "A privacy loss in every currency that is kept, and, as "
                "`tau_<order>`, the Renyi divergence at each order that a rule in force counts at.",
                "properties": {
                    str(currency): _LOSS | {"description": f"sum of {currency.replace('_', ' ')}"}
                    for currency in FIXED
                },
                "required": [str(currency) for currency in FIXED],
                "patternProperties": {
                    "^tau_[0-9]+$": _LOSS
                    | {"description": "sum of Renyi divergences at that order"}
                },
            }
        ),
    ],
)
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Rules = Annotated[
    list[Any], WithJsonSchema({"type": "array", "items": {"$ref": REFERENCE.format(model="Rule")}})
]

Client = Annotated[str, "the name of the key that asked"]
DatasetIds = Annotated[str | list[str], "the dataset's id; several that one query reads as a list"]
ChargedTo = Annotated[list[str], "all datasets that are charged, if others than those named are"]
DatasetOrAll = Annotated[str, "the dataset's id, or * for the total over all"]
Costs = Annotated[Charge, "the cost of all mechanisms together, per cell"]
ChargePer = Annotated[
    dict[str, Charge], "the cost to one of each further unit, where it is another"
]
FilterName = Annotated[str, "how losses are added up"]
RuleId = Annotated[str, "the rule's id"]
RuleCode = Annotated[str, "the problem code that it stands for"]
CountedIn = Annotated[int, "the last event that is counted in"]
Asked = Annotated[
    dict[str, Any], "the request, defaults left out; a text that was erased is (erased)"
]


class Stamped(TypedDict):
    """The fields of every answer to a command."""

    sequence: Annotated[int, "the event that answers this request"]
    time: Annotated[Time, "when the service stamped that event"]


class Flag(TypedDict):
    """A rule that fired."""

    rule: RuleId
    code: RuleCode
