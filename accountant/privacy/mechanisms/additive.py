"""Laplace noise added to a numeric answer, and its whole-number cousin."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Literal

from flint import arb
from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from accountant.privacy import curves
from accountant.privacy.balls import Real, ball
from accountant.privacy.losses import Loss, pure
from accountant.privacy.mechanisms.amounts import Positive
from accountant.privacy.mechanisms.base import (
    KIND,
    BaseMechanism,
    Norms,
    Sensitivity,
    norm,
)
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.steps import NamedPair


def require(sensitivity: Decimal | Norms, wanted: str, noise: str) -> Decimal | Norms:
    """``sensitivity``, which must be known in the norm ``wanted``. Raises if it is not."""
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

    Dwork, McSherry, Nissim, Smith 2006. rho = eps + e^-eps - 1 (Harrison and Manurangsi, FORC 2026,
    arXiv 2510.25746). Holds for a vector with independent noise on each entry, charged once: rho
    is convex in epsilon and zero at zero, as the Renyi divergences are, so that the entries' parts
    add up to no more.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"kind": "laplace", "sensitivity": {"l1": "1"}, "scale": "10", "count": 5}]
        }
    )

    plain = ("sensitivity", "scale")

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
        return require(value, "l1", "Laplace")

    def loss(self, stated: Relation) -> Loss:
        """Sensitivity / scale, exactly."""
        epsilon = (norm(self.sensitivity, "l1") or Fraction(0)) / Fraction(self.scale)
        rho = Real(partial(_rho_of_laplace, epsilon))
        return pure(epsilon, rho=rho, curve=curves.laplace(epsilon))

    def pair(self, size: int, stated: Relation) -> NamedPair | None:
        """Of noise on a single number; a vector has none but the hardest of its epsilon."""
        if self.sampling is not None or isinstance(self.sensitivity, Norms):
            return None
        return NamedPair("laplace", (size * Fraction(self.sensitivity) / Fraction(self.scale),))


def _rho_of_laplace(epsilon: Fraction) -> arb:
    e = ball(epsilon)
    return e + (-e).expm1()


class DiscreteLaplace(BaseMechanism):
    """Whole-number noise of probability proportional to exp(-|k| / scale), also called geometric.

    epsilon = l1 sensitivity / scale (Ghosh, Roughgarden, Sundararajan 2009), for answers that are
    whole numbers. At sensitivity 1 it is randomised response followed by noise that depends on
    nothing, so all its currencies are those of a pure mechanism, not of Laplace noise.
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
        found = norm(require(value, "l1", "discrete Laplace"), "l1")
        if found is None or found.denominator != 1:
            raise PydanticCustomError(
                "sensitivity_whole",
                "must be a whole number: discrete Laplace noise protects whole-number answers only",
            )
        return value

    def loss(self, stated: Relation) -> Loss:
        """Sensitivity / scale, exactly."""
        return pure((norm(self.sensitivity, "l1") or Fraction(0)) / Fraction(self.scale))

    def pair(self, size: int, stated: Relation) -> NamedPair | None:
        """Of noise on a single count."""
        if self.sampling is not None or isinstance(self.sensitivity, Norms):
            return None
        parameters = (1 / Fraction(self.scale), size * Fraction(self.sensitivity))
        return NamedPair("discrete_laplace", parameters)
