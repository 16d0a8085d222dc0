"""Choosing one of several candidates by noisy scores."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, Literal

from pydantic import ConfigDict, Field

from accountant.privacy.mechanisms.amounts import Positive
from accountant.privacy.mechanisms.base import KIND, BaseMechanism, Objection
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.units import Loss

MONOTONIC_OBJECTION: Final = Objection(
    "monotonic-needs-add-or-remove",
    "Only adding or removing one unit moves all monotonic answers in the same direction; replacing "
    "one moves them both ways. State the mechanism under add_or_remove_one, or drop `monotonic`.",
)


class Exponential(BaseMechanism):
    """Picks a candidate with probability proportional to exp(score / scale).

    McSherry and Talwar 2007: epsilon = 2 x sensitivity / scale. If adding a unit can only raise all
    the scores, or only lower them (``monotonic``), epsilon = sensitivity / scale, but only under
    add-or-remove-one; elsewhere the mark is objected to and the full price is booked.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "exponential", "sensitivity": "1", "scale": "20"}]}
    )

    kind: Literal["exponential"] = Field(description=KIND)
    sensitivity: Positive = Field(
        description="The most by which one privacy unit can change any one score, in score units."
    )
    scale: Positive = Field(
        description="Divisor of the scores in the weights exp(score / scale), in score units. "
        "epsilon = 2 x sensitivity / scale (McSherry and Talwar 2007)."
    )
    monotonic: bool = Field(
        default=False,
        strict=True,
        description="True if one more unit can only raise all scores, or only lower them all, as "
        "with counts; halves epsilon, under add_or_remove_one only.",
    )

    def loss(self, stated: Relation) -> Loss:
        """2 x sensitivity / scale; half of that for monotonic scores under add-or-remove-one."""
        halved = self.monotonic and stated is Relation.ADD_OR_REMOVE_ONE
        return Loss((1 if halved else 2) * Fraction(self.sensitivity) / Fraction(self.scale))

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Objects to ``monotonic`` under replace-one."""
        misplaced = self.monotonic and stated is not Relation.ADD_OR_REMOVE_ONE
        return (MONOTONIC_OBJECTION,) if misplaced else ()
