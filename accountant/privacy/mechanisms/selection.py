"""Selection of one of several candidates by noisy scores."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, Literal

from pydantic import Field

from accountant.privacy.losses import Loss, bounded_range, pure
from accountant.privacy.mechanisms.amounts import Positive
from accountant.privacy.mechanisms.base import KIND, BaseMechanism, Objection, examples
from accountant.privacy.mechanisms.relations import Relation

MONOTONIC_OBJECTION: Final = Objection(
    "monotonic-needs-add-or-remove",
    "Only adding or removing one unit moves all monotonic answers in the same direction; replacing "
    "one moves them both ways. State the mechanism under add_or_remove_one, or drop `monotonic`.",
)


class _Selection(BaseMechanism):
    sensitivity: Positive = Field(
        description="The most by which one privacy unit can change any one score, in score units."
    )
    scale: Positive = Field(
        description="Divisor of the scores in exp(score / scale), in score units. "
        "epsilon = 2 x sensitivity / scale (McSherry and Talwar 2007; McKenna and Sheldon 2020)."
    )
    monotonic: bool = Field(
        default=False,
        strict=True,
        description="True if one more unit can only raise all scores, or only lower them all, as "
        "with counts; halves epsilon, under add_or_remove_one only.",
    )

    def epsilon(self, stated: Relation) -> Fraction:
        """2 x sensitivity / scale; half of that for monotonic scores under add-or-remove-one."""
        halved = self.monotonic and stated is Relation.ADD_OR_REMOVE_ONE
        return (1 if halved else 2) * Fraction(self.sensitivity) / Fraction(self.scale)

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object to ``monotonic`` under replace-one."""
        misplaced = self.monotonic and stated is not Relation.ADD_OR_REMOVE_ONE
        return (MONOTONIC_OBJECTION,) if misplaced else ()


class Exponential(_Selection):
    """Picks a candidate with probability proportional to exp(score / scale).

    McSherry and Talwar 2007: epsilon = 2 x sensitivity / scale. If adding a unit can only raise all
    scores, or only lower them (``monotonic``), epsilon = sensitivity / scale under
    add-or-remove-one; under replace-one the mark is objected to and the full price is booked. Its
    log probabilities move within a range of epsilon, so rho = eps^2 / 8 (``bounded_range``).
    """

    model_config = examples({"kind": "exponential", "sensitivity": "1", "scale": "20"})

    kind: Literal["exponential"] = Field(description=KIND)

    def loss(self, stated: Relation) -> Loss:
        """Return a bounded range of epsilon."""
        return bounded_range(self.epsilon(stated))


class PermuteAndFlip(_Selection):
    """Visits the candidates in random order and takes one with probability
    exp((score - best) / scale); the same as the best score with exponential noise of ``scale``.

    McKenna and Sheldon 2020; Ding et al. 2021. Purely epsilon-private, as the exponential mechanism
    with the same scale, but not of bounded range. Monotonic scores: raising one score by Delta
    multiplies the chance that it wins by e^(Delta / scale) at most (the tail of exponential noise),
    and raising all the others divides it by no more.
    """

    model_config = examples({"kind": "permute_and_flip", "sensitivity": "1", "scale": "20"})

    kind: Literal["permute_and_flip"] = Field(description=KIND)

    def loss(self, stated: Relation) -> Loss:
        """Return a pure epsilon."""
        return pure(self.epsilon(stated))
