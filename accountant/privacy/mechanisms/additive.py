"""Noise added to a numeric answer: Laplace, its whole-number cousin, and Gaussian."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Literal

from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.mechanisms.amounts import OpenProbability, Positive
from accountant.privacy.mechanisms.base import (
    KIND,
    BaseMechanism,
    Norms,
    Objection,
    Sensitivity,
    norm,
)
from accountant.privacy.mechanisms.gaussian_curve import gaussian_epsilon
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.units import Loss


def _require(sensitivity: Decimal | Norms, wanted: str, noise: str) -> Decimal | Norms:
    if norm(sensitivity, wanted) is None:
        raise PydanticCustomError(
            "sensitivity_norm",
            "{noise} noise needs the {norm} sensitivity: a bare amount for a single number, or an "
            'object with "{norm}" for a vector',
            {"noise": noise, "norm": wanted},
        )
    return sensitivity


class Laplace(BaseMechanism):
    """Noise of density proportional to exp(-|x| / scale): epsilon = l1 sensitivity / scale.

    Dwork, McSherry, Nissim, Smith 2006. Holds for a vector with independent noise on each entry,
    charged once.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "laplace", "sensitivity": {"l1": "1"}, "scale": "10", "count": 5}]
        }
    )

    kind: Literal["laplace"] = Field(description=KIND)
    sensitivity: Sensitivity = Field(
        description="L1 sensitivity for one privacy unit, in the units of the answer: a bare "
        'amount for a single number, {"l1": amount} for a vector.'
    )
    scale: Positive = Field(
        description="Scale b of the Laplace density, in the units of the answer (its standard "
        "deviation is b times the square root of 2). epsilon = sensitivity / b (Dwork, McSherry, "
        "Nissim, Smith 2006)."
    )

    @field_validator("sensitivity")
    @classmethod
    def _l1(cls, value: Decimal | Norms) -> Decimal | Norms:
        return _require(value, "l1", "Laplace")

    def loss(self, stated: Relation) -> Loss:
        """Sensitivity / scale, exactly."""
        return Loss((norm(self.sensitivity, "l1") or Fraction(0)) / Fraction(self.scale))


class DiscreteLaplace(BaseMechanism):
    """Whole-number noise of probability proportional to exp(-|k| / scale), also called geometric.

    epsilon = l1 sensitivity / scale (Ghosh, Roughgarden, Sundararajan 2009), for answers that are
    whole numbers.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "discrete_laplace", "sensitivity": "1", "scale": "10"}]
        }
    )

    kind: Literal["discrete_laplace"] = Field(description=KIND)
    sensitivity: Sensitivity = Field(
        description="L1 sensitivity for one privacy unit, a whole number: a bare amount for a "
        'single count, {"l1": amount} for a vector of counts.'
    )
    scale: Positive = Field(
        description="Scale b of the probabilities exp(-|k| / b), in counts. "
        "epsilon = sensitivity / b (Ghosh, Roughgarden, Sundararajan 2009)."
    )

    @field_validator("sensitivity")
    @classmethod
    def _whole(cls, value: Decimal | Norms) -> Decimal | Norms:
        found = norm(_require(value, "l1", "discrete Laplace"), "l1")
        if found is None or found.denominator != 1:
            raise PydanticCustomError(
                "sensitivity_whole",
                "must be a whole number: discrete Laplace noise protects whole-number answers only",
            )
        return value

    def loss(self, stated: Relation) -> Loss:
        """Sensitivity / scale, exactly."""
        return Loss((norm(self.sensitivity, "l1") or Fraction(0)) / Fraction(self.scale))


class Gaussian(BaseMechanism):
    """Normal noise of standard deviation ``scale``: (epsilon, delta) on the exact curve.

    Balle and Wang 2018, Theorem 8, at the ``delta`` that is named here, or else at the claim's. For
    no finite epsilon is the mechanism purely epsilon-private: with no delta named its epsilon is
    unbounded, and no rule that adds up epsilons admits it. Name a delta to enter those.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"kind": "gaussian", "sensitivity": {"l2": "1"}, "scale": "4", "delta": "1e-8"}
            ]
        }
    )

    kind: Literal["gaussian"] = Field(description=KIND)
    sensitivity: Sensitivity = Field(
        description="L2 sensitivity for one privacy unit, in the units of the answer: a bare "
        'amount for a single number, {"l2": amount} for a vector.'
    )
    scale: Positive = Field(
        description="Standard deviation sigma of the noise, in the units of the answer (Balle and "
        "Wang 2018)."
    )
    delta: OpenProbability | None = Field(
        default=None,
        description="The probability of failure at which epsilon is taken, per invocation. Absent: "
        "the claim's delta; without one epsilon is unbounded.",
    )

    @field_validator("sensitivity")
    @classmethod
    def _l2(cls, value: Decimal | Norms) -> Decimal | Norms:
        return _require(value, "l2", "Gaussian")

    def loss(self, stated: Relation) -> Loss:
        """The point of the exact curve at the named delta."""
        if self.delta is not None:
            return self._at(Fraction(self.delta))
        return self._at(Fraction(self.claimed.delta) if self.claimed else Fraction(0))

    def loss_beside(self, claim: Loss, stated: Relation) -> Loss:
        """The loss at the claim's delta: two points of one curve are the same claim."""
        return self._at(claim.delta) if claim.delta else self.loss(stated)

    def _at(self, delta: Fraction) -> Loss:
        if delta == 0:
            return Loss(None)
        if delta >= 1:
            return Loss(Fraction(0), Fraction(1))
        width = norm(self.sensitivity, "l2") or Fraction(0)
        return Loss(gaussian_epsilon(width / Fraction(self.scale), delta), delta)

    def understated(self, claim: Loss, derived: Loss) -> Objection:
        """Adds what is missing where no delta was named at all."""
        if derived.epsilon is not None:
            return super().understated(claim, derived)
        return Objection(
            "claim-understated",
            "Gaussian noise has no finite epsilon without a delta: name the delta at which the "
            "claimed epsilon is meant.",
        )
