"""Gaussian noise added to a numeric answer, and discrete Gaussian noise for integers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from accountant.privacy import balls
from accountant.privacy.balls import Number
from accountant.privacy.conversions import concentrated_epsilon
from accountant.privacy.gaussian_curve import (
    MU_SQUARED_UNIT,
    gaussian_epsilon,
    most_mu_squared,
    private,
)
from accountant.privacy.losses import Loss, gaussian
from accountant.privacy.mechanisms.additive import require
from accountant.privacy.mechanisms.amounts import OpenProbability, Positive
from accountant.privacy.mechanisms.base import (
    KIND,
    BaseMechanism,
    Norms,
    Objection,
    Sensitivity,
    examples,
    norm,
)
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.steps import NamedPair


class _GaussianNoise(BaseMechanism):
    sensitivity: Sensitivity = Field(
        description="L2 sensitivity for one privacy unit, in the units of the answer: a bare "
        'amount for a single number, {"l2": amount} for a vector.'
    )
    scale: Positive = Field(
        description="The parameter sigma of the noise, in the units of the answer: the standard "
        "deviation of normal noise. sensitivity / sigma = mu, mu^2 / 2 = rho."
    )
    delta: OpenProbability | None = Field(
        default=None,
        description="The probability of failure at which epsilon is taken, per invocation. Absent: "
        "the claim's delta; without one epsilon is unbounded, and only the filters zcdp, renyi "
        "and gdp (for normal noise) admit it.",
    )

    @field_validator("sensitivity")
    @classmethod
    def _l2(cls, value: Decimal | Norms) -> Decimal | Norms:
        return require(value, "l2", "Gaussian")

    @property
    def mu_squared(self) -> Fraction:
        """(sensitivity / sigma)^2."""
        return ((norm(self.sensitivity, "l2") or Fraction(0)) / Fraction(self.scale)) ** 2

    def loss(self, stated: Relation) -> Loss:
        """Return rho, and the point of the curve at the named delta, else the claim's."""
        if self.delta is not None:
            return self.loss_at(Fraction(self.delta), stated)
        rate = self.sampling.rate if self.sampling else Fraction(1)
        claimed = Fraction(self.claimed.delta) if self.claimed else Fraction(0)
        return self._at(min(Fraction(1), claimed / rate))

    def loss_at(self, delta: Number, stated: Relation) -> Loss:
        """Return the point at ``delta``: two points of one curve are the same claim."""
        return self._at(delta)

    def _at(self, delta: Number) -> Loss:
        mu_squared, epsilon = self.mu_squared, None
        if delta:
            epsilon = Fraction(0) if delta >= 1 else self.epsilon_at(mu_squared, delta)
        return gaussian(mu_squared, epsilon, delta)

    @abstractmethod
    def epsilon_at(self, mu_squared: Fraction, delta: Number) -> Number:
        """Return the epsilon at 0 < ``delta`` < 1, rounded up."""

    def worth(self, claim: Loss, derived: Loss) -> Loss:
        """Return the loss of noise with a sensitivity that is larger in the proportion of the
        epsilons: at one delta epsilon grows faster than mu (the a of Balle and Wang's curve never
        falls as mu grows).
        """
        alone = self.sampling is None and self.group_size == 1 and claim.delta and claim.epsilon
        epsilon = self._at(claim.delta).epsilon if alone else None
        if not epsilon or not claim.epsilon:
            return super().worth(claim, derived)
        factor = balls.above(balls.most(Fraction(1), claim.epsilon / epsilon))
        larger = self.at_claim(self.mu_squared * factor**2, claim)
        return gaussian(larger, claim.epsilon, claim.delta)

    def at_claim(self, mu_squared: Fraction, claim: Loss) -> Fraction:
        """Return ``mu_squared``, or the larger one of noise that costs the whole claim."""
        return mu_squared

    def understated(self, claim: Loss, derived: Loss) -> Objection:
        """Ask for a delta where none was named at all."""
        if derived.epsilon is not None:
            return super().understated(claim, derived)
        return Objection(
            "claim-understated",
            "Gaussian noise has no finite epsilon without a delta: name the delta at which the "
            "claimed epsilon is meant.",
        )


class Gaussian(_GaussianNoise):
    """Normal noise of standard deviation ``scale``: mu-GDP with mu = l2 sensitivity / scale, and
    (epsilon, delta) on the exact curve.

    Bun and Steinke 2016, Prop. 1.6, for rho = mu^2 / 2; Dong, Roth, Su 2022, Thm 2.7; Balle and
    Wang 2018, Theorem 8, at the ``delta`` that is named here, or else at the claim's. For no finite
    epsilon is it purely epsilon-private: with no delta named it enters no sum of epsilons. On a
    Poisson sample it is the step of DP-SGD (scale = noise multiplier times clipping norm).
    """

    model_config = examples(
        {"kind": "gaussian", "sensitivity": {"l2": "1"}, "scale": "4", "delta": "1e-8"},
        {
            "kind": "gaussian",
            "sensitivity": {"l2": "1"},
            "scale": "1.1",
            "sampling": {"poisson": "0.01"},
            "count": 1000,
        },
    )

    plain = ("sensitivity", "scale")

    kind: Literal["gaussian"] = Field(description=KIND)

    def at_claim(self, mu_squared: Fraction, claim: Loss) -> Fraction:
        """Return a larger one where the proportion is too small: at an epsilon of mere rounding."""
        epsilon = balls.above(claim.epsilon or Fraction(0))
        if not private(mu_squared, epsilon, claim.delta):
            return mu_squared
        return most_mu_squared(epsilon, claim.delta) + MU_SQUARED_UNIT

    def pair(self, size: int, stated: Relation) -> NamedPair | None:
        """Return normal noise, on a vector too; on a Poisson sample for a single step."""
        if self.sampling is None:
            return NamedPair("gaussian", (self.mu_squared * size**2,))
        rate = self.sampling.poisson
        if size != 1 or rate is None or rate == 1:
            return None
        return NamedPair("sampled_gaussian", (self.mu_squared, Fraction(rate)))

    def epsilon_at(self, mu_squared: Fraction, delta: Number) -> Number:
        """Return the point of Balle and Wang's exact curve."""
        return gaussian_epsilon(mu_squared, delta)


class DiscreteGaussian(_GaussianNoise):
    """Integer noise of probability proportional to exp(-k^2 / (2 scale^2)).

    Canonne, Kamath, Steinke 2020: rho = mu^2 / 2 as for normal noise (Thm 4, and coordinate by
    coordinate for a vector), but it is not mu-GDP, and its exact delta may be twice the normal one.
    The epsilon at a delta is that of its rho. The answers are integers.
    """

    model_config = examples(
        {"kind": "discrete_gaussian", "sensitivity": "1", "scale": "10", "delta": "1e-8"}
    )

    kind: Literal["discrete_gaussian"] = Field(description=KIND)

    @field_validator("sensitivity")
    @classmethod
    def _whole(cls, value: Decimal | Norms) -> Decimal | Norms:
        if not isinstance(value, Norms) and Fraction(value).denominator != 1:
            raise PydanticCustomError(
                "sensitivity_whole",
                "must be a whole number for a single answer: discrete Gaussian noise protects "
                "whole-number answers only",
            )
        return value

    def _at(self, delta: Number) -> Loss:
        return replace(super()._at(delta), mu_squared=None)

    def pair(self, size: int, stated: Relation) -> NamedPair | None:
        """Return the pair of noise on a single count."""
        if self.sampling is not None or isinstance(self.sensitivity, Norms):
            return None
        parameters = (size * Fraction(self.sensitivity), Fraction(self.scale))
        return NamedPair("discrete_gaussian", parameters)

    def epsilon_at(self, mu_squared: Fraction, delta: Number) -> Number:
        """Return the epsilon of its rho."""
        return concentrated_epsilon(mu_squared / 2, delta)
