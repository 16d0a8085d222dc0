"""The mechanism catalogue: the cost of each kind of randomised answer, derived from its parameters.

There is one file a family. A new kind is a model in the file of its family, and a line in
``AnyKind``; ``price`` asks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, get_args

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializationInfo,
    TypeAdapter,
    ValidationInfo,
)
from pydantic_core import CoreSchema, core_schema

from accountant.privacy.mechanisms import (
    additive,
    compound,
    learning,
    local,
    plan,
    selection,
    stated,
    tuning,
)
from accountant.privacy.mechanisms.amounts import Amount, plain, plain_amount
from accountant.privacy.mechanisms.base import MOST_INVOCATIONS, BaseMechanism, Relation
from accountant.privacy.mechanisms.pricing import Priced, Verdict, price
from accountant.privacy.mechanisms.selection import SparseVector

__all__ = [
    "KINDS",
    "MOST_INVOCATIONS",
    "PLAIN",
    "Amount",
    "BaseMechanism",
    "Mechanism",
    "Priced",
    "Relation",
    "SparseVector",
    "Verdict",
    "plain",
    "plain_amount",
    "price",
    "warm",
]

AnyKind = Annotated[
    additive.Laplace
    | additive.DiscreteLaplace
    | additive.Gaussian
    | additive.DiscreteGaussian
    | selection.Exponential
    | selection.PermuteAndFlip
    | local.RandomizedResponse
    | local.UnaryEncoding
    | local.ForcedResponse
    | selection.SparseVector
    | compound.Composed
    | compound.SubsampleAndAggregate
    | compound.ProposeTestRelease
    | compound.MultiplicativeWeights
    | compound.Boosting
    | compound.ReusableHoldout
    | learning.TreeAggregation
    | learning.GaussianMixture
    | tuning.RepeatAndSelect
    | plan.Plan
    | stated.Declared
    | stated.NonPrivate,
    Field(discriminator="kind"),
]

_CLASSES: Final = get_args(get_args(AnyKind)[0])

KINDS: Final = tuple(get_args(each.model_fields["kind"].annotation)[0] for each in _CLASSES)

PLAIN: Final = {name: each for name, each in zip(KINDS, _CLASSES, strict=True) if each.plain}
"""Kinds that need nothing but positive amounts."""

compound.PartOfAnyKind.kinds = AnyKind
_ANY: Final[TypeAdapter[BaseMechanism]] = TypeAdapter(AnyKind, config=ConfigDict(defer_build=True))
_BY_KIND: Final = dict(zip(KINDS, _CLASSES, strict=True))


class _ByKind:
    """Reads a mechanism by the model of its kind, the only one that has to be made ready for it;
    what has none is left to the union of all kinds, which says why.
    """

    @staticmethod
    def read(value: Any, info: ValidationInfo) -> BaseMechanism:
        """Return the mechanism. Raises pydantic's errors."""
        if isinstance(value, BaseMechanism):
            return value
        kind = value.get("kind") if isinstance(value, dict) else None
        model: type[BaseMechanism] | None = _BY_KIND.get(kind) if isinstance(kind, str) else None
        if model is None:
            return _ANY.validate_python(value, context=info.context)
        return model.model_validate(value, context=info.context)

    @staticmethod
    def write(value: BaseMechanism, info: SerializationInfo) -> dict[str, Any]:
        """Return the mechanism as what holds it is written."""
        return value.model_dump(
            mode=info.mode,
            context=info.context,
            by_alias=info.by_alias,
            exclude_unset=info.exclude_unset,
            exclude_defaults=info.exclude_defaults,
            exclude_none=info.exclude_none,
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(cls.write, info_arg=True)
        return core_schema.with_info_plain_validator_function(cls.read, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(_ANY.core_schema)


Mechanism = Annotated[AnyKind, _ByKind]
"""A mechanism of any kind, as a field of requests and policies."""


def warm() -> Iterator[str]:
    """Make the kinds ready, one after another: read and price the first example of each, and yield
    its name. The first of a kind takes milliseconds, of a compound one some ten. A plan is only
    read: each is verified anew, and few services have any.
    """
    for kind, model in _BY_KIND.items():
        example: Any = model.model_config["json_schema_extra"]
        mechanism = model.model_validate(example["examples"][0])
        if not isinstance(mechanism, plan.Plan):
            for relation in Relation:
                price(mechanism, relation)
        yield kind
