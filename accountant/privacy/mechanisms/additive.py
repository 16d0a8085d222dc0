"""Noise added to a numeric answer: Laplace and Gaussian noise, and their whole-number forms."""

from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Literal

from flint import arb
from msgspec.structs import replace
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from accountant.privacy import balls, conversions
from accountant.privacy.balls import Number, Real, ball
from accountant.privacy.curves import curve_of_laplace
from accountant.privacy.losses import Loss, gaussian, pure
from accountant.privacy.mechanisms.amounts import OpenProbability, Positive
from accountant.privacy.mechanisms.base import (
    KIND,
    Norms,
    Objection,
    Relation,
    Sensitive,
    Sensitivity,
    body,
    examples,
    norm,
)
from accountant.privacy.samples import curve_of_gaussian


class Noise(Sensitive):
    """The base of all noise, whose sensitivity must be known in its norm."""

    noise: ClassVar[str]

    scale: Positive

    @field_validator("sensitivity")
    @classmethod
    def _known(cls, value: Decimal | Norms) -> Decimal | Norms:
        if norm(value, cls.norm) is None:
            raise PydanticCustomError(
                "sensitivity_norm",
                "{noise} noise needs the {norm} sensitivity: a bare amount for a single number, or "
                'an object with "{norm}" for a vector',
                {"noise": cls.noise, "norm": cls.norm},
            )
        return value

    @property
    def width(self) -> Fraction:
        """The sensitivity in the norm of the noise."""
        return norm(self.sensitivity, self.norm) or Fraction(0)

    @property
    def vector(self) -> bool:
        """True if there may be several answers with noise of their own."""
        return isinstance(self.sensitivity, Norms)

    @property
    def ratio(self) -> Fraction:
        """Sensitivity / scale."""
        stated = self.sensitivity
        if isinstance(stated, Norms):
            stated = getattr(stated, self.norm)
        width, scale = stated.as_integer_ratio(), self.scale.as_integer_ratio()
        return balls.ratio(width[0] * scale[1], width[1] * scale[0])


class Laplace(Noise):
    """Noise of density proportional to exp(-|x| / scale): epsilon = l1 sensitivity / scale.

    Dwork, McSherry, Nissim, Smith 2006. rho = eps + e^-eps - 1 (Harrison and Manurangsi, FORC 2026,
    arXiv 2510.25746). Holds for a vector with independent noise on each entry, charged once: rho is
    convex in epsilon, zero at zero, as Renyi divergences are, so the entries add up to no more.
    """

    model_config = examples(body("laplace", sensitivity={"l1": "1"}, scale="10", count=5))
    plain = ("sensitivity", "scale")
    norm, noise = "l1", "Laplace"
    kind: Literal["laplace"] = Field(description=KIND)
    sensitivity: Sensitivity
    """L1 sensitivity for one privacy unit, in the units of the answer: a bare amount for a single
    number, {"l1": amount} for a vector."""
    scale: Positive
    """Scale b of the Laplace density, in the units of the answer (its standard deviation is b times
    the square root of 2). epsilon = sensitivity / b (Dwork, McSherry, Nissim, Smith 2006)."""

    def loss(self, stated: Relation) -> Loss:
        """Return a pure loss of sensitivity / scale, exactly."""
        epsilon = self.ratio

        def rho() -> arb:
            e = ball(epsilon)
            return e + (-e).expm1()

        return pure(epsilon, rho=Real(rho), curve=curve_of_laplace(epsilon, vector=self.vector))


class DiscreteLaplace(Noise):
    """Whole-number noise of probability proportional to exp(-|k| / scale), also called geometric.

    epsilon = l1 sensitivity / scale (Ghosh, Roughgarden, Sundararajan 2009), for answers that are
    whole numbers. At sensitivity 1 it is randomised response followed by noise that depends on
    nothing, so all its currencies are those of a pure mechanism, not of Laplace noise.
    """

    model_config = examples(body("discrete_laplace", sensitivity="1", scale="10"))
    norm, noise = "l1", "discrete Laplace"
    kind: Literal["discrete_laplace"] = Field(description=KIND)
    sensitivity: Sensitivity
    """L1 sensitivity for one privacy unit, a whole number: a bare amount for a single count, {"l1":
    amount} for a vector of counts."""
    scale: Positive
    """Scale b of the probabilities exp(-|k| / b), in counts. epsilon = sensitivity / b (Ghosh,
    Roughgarden, Sundararajan 2009)."""

    @field_validator("sensitivity")
    @classmethod
    def _whole(cls, value: Decimal | Norms) -> Decimal | Norms:
        if (norm(value, cls.norm) or Fraction(0)).denominator != 1:
            raise PydanticCustomError(
                "sensitivity_whole",
                "must be a whole number: discrete Laplace noise protects whole-number answers only",
            )
        return value

    def loss(self, stated: Relation) -> Loss:
        """Return a pure loss of sensitivity / scale, exactly."""
        return pure(self.ratio)


class GaussianNoise(Noise):
    """The base of normal noise and its whole-number form."""

    norm, noise = "l2", "Gaussian"

    sensitivity: Sensitivity
    """L2 sensitivity for one privacy unit, in the units of the answer: a bare amount for a single
    number, {"l2": amount} for a vector."""
    scale: Positive
    """The parameter sigma of the noise, in the units of the answer: the standard deviation of
    normal noise. sensitivity / sigma = mu, mu^2 / 2 = rho."""
    delta: OpenProbability | None = None
    """The probability of failure at which epsilon is taken, per invocation. Absent: the claim's
    delta; without one epsilon is unbounded, and only the filters zcdp, renyi and gdp (for normal
    noise) admit it."""

    def loss(self, stated: Relation) -> Loss:
        """Return rho, and the point of the curve at the named delta, else the claim's."""
        if self.delta is not None:
            return self._at(Fraction(self.delta))
        rate = self.sampling.rate if self.sampling else Fraction(1)
        claimed = Fraction(self.claimed.delta) if self.claimed else Fraction(0)
        return self._at(min(Fraction(1), claimed / rate))

    def loss_at(self, delta: Number, stated: Relation) -> Loss:
        """Return the point at ``delta``: two points of one curve are the same claim."""
        return self._at(delta)

    @property
    def mu_squared(self) -> Fraction:
        """The square of sensitivity / scale."""
        return self.ratio**2

    def _at(self, delta: Number) -> Loss:
        mu_squared, epsilon = self.mu_squared, None
        if delta:
            epsilon = Fraction(0) if delta >= 1 else self.epsilon_at(mu_squared, delta)
        return gaussian(mu_squared, epsilon, delta)

    @abstractmethod
    def epsilon_at(self, mu_squared: Fraction, delta: Number) -> Number:
        """Return the epsilon at 0 < ``delta`` < 1, rounded up."""

    def worth(self, claim: Loss, derived: Loss) -> Loss:
        """Return the loss of noise with a sensitivity larger in the proportion of the epsilons: at
        one delta epsilon grows faster than mu (the a of Balle and Wang never falls with mu).
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


class Gaussian(GaussianNoise):
    """Normal noise of standard deviation ``scale``: mu-GDP with mu = l2 sensitivity / scale, and
    (epsilon, delta) on the exact curve.

    Bun and Steinke 2016, Prop. 1.6, for rho = mu^2 / 2; Dong, Roth, Su 2022, Thm 2.7; Balle and
    Wang 2018, Theorem 8, at the ``delta`` that is named here, or else at the claim's. For no finite
    epsilon is it purely epsilon-private: with no delta named it enters no sum of epsilons. On a
    Poisson sample it is the step of DP-SGD (scale = noise multiplier times clipping norm).
    """

    model_config = examples(
        body("gaussian", sensitivity={"l2": "1"}, scale="4", delta="1e-8"),
        body("gaussian", sensitivity={"l2": "1"}, scale="1.1")
        | {"sampling": {"poisson": "0.01"}, "count": 1000},
    )
    plain: ClassVar[tuple[str, ...]] = ("sensitivity", "scale")
    kind: Literal["gaussian"] = Field(description=KIND)

    def epsilon_at(self, mu_squared: Fraction, delta: Number) -> Number:
        """Return the point of Balle and Wang's exact curve."""
        return conversions.gaussian_epsilon(mu_squared, delta)

    def at_claim(self, mu_squared: Fraction, claim: Loss) -> Fraction:
        """Return a larger one where the proportion is too small: at an epsilon of mere rounding."""
        epsilon = balls.above(claim.epsilon or Fraction(0))
        if not conversions.private(mu_squared, epsilon, claim.delta):
            return mu_squared
        return conversions.most_mu_squared(epsilon, claim.delta) + conversions.MU_SQUARED_UNIT


class DiscreteGaussian(GaussianNoise):
    """Integer noise of probability proportional to exp(-k^2 / (2 scale^2)).

    Canonne, Kamath, Steinke 2020: rho = mu^2 / 2 as for normal noise (Thm 4, and coordinate by
    coordinate for a vector), but it is not mu-GDP, and its exact delta may be twice the normal one.
    The epsilon at a delta is that of its rho. The answers are integers.
    """

    model_config = examples(body("discrete_gaussian", sensitivity="1", scale="10", delta="1e-8"))
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
        curve = curve_of_gaussian(self.ratio**2 / 2, discrete=True, vector=self.vector)
        return replace(super()._at(delta), mu_squared=None, curve=curve)

    def epsilon_at(self, mu_squared: Fraction, delta: Number) -> Number:
        """Return the epsilon of its rho."""
        return conversions.concentrated_epsilon(mu_squared / 2, delta)
