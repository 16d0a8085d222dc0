"""Mechanisms of which nothing can be derived: on the client's word, or not private at all."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.mechanisms.amounts import NonNegative, Probability
from accountant.privacy.mechanisms.base import KIND, BaseMechanism, Claim
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.units import Loss


class _Stated(BaseMechanism):
    @field_validator("claimed")
    @classmethod
    def _no_claim(cls, value: Claim | None) -> Claim | None:
        if value is not None:
            raise PydanticCustomError(
                "claim_misplaced", "is not allowed here: there is no derivation to compare it with"
            )
        return value


class Declared(_Stated):
    """An (epsilon, delta) on the client's word alone. It is booked as stated, never checked."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "declared", "epsilon": "0.5", "delta": "1e-9"}]}
    )

    kind: Literal["declared"] = Field(description=KIND)
    epsilon: NonNegative = Field(description="Natural-log epsilon of one invocation, as declared.")
    delta: Probability = Field(
        default=Decimal(0), description="Delta of one invocation, as declared."
    )

    def loss(self, stated: Relation) -> None:
        """Nothing can be derived."""
        return

    def claim(self) -> Loss:
        """The declaration itself is the claim."""
        return Loss(Fraction(self.epsilon), Fraction(self.delta))


class NonPrivate(_Stated):
    """A release without noise: its loss is infinite, under every rule and in every currency."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "non_private"}]})
    reason: ClassVar[str] = (
        "Released without noise: whoever sees it may learn everything that the data say about a "
        "person, so no finite epsilon describes it."
    )

    kind: Literal["non_private"] = Field(description=KIND)

    def loss(self, stated: Relation) -> Loss:
        """Unbounded, whatever the relation."""
        return Loss(None)
