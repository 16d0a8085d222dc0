"""Steps: each is one description from which both the charge and the sampler are made.

A step is a kind, a sensitivity and a scale. ``mechanism`` is what is sent to the service;
``ready(value)`` is the draw, with noise of at least that scale. Nothing else says how noisy an
answer is, so that what is charged is what is executed.

Noise comes from OpenDP's integer samplers, which are exact (Canonne, Kamath, Steinke 2020): the
probabilities are those of the formula, for the float that is given as the scale. Three roundings
are left, and each goes to the safe side:

* The *stated* scale is a decimal of at most 40 digits, rounded up from sensitivity / epsilon, so
  that the charge is never above the epsilon that was asked for.
* The *drawn* scale is the least float at or above the stated one: there is never less noise than
  is charged.
* Answers that are no whole numbers are rounded to a lattice before the noise is added, always half
  up. Such rounding commutes with whole steps of the lattice, so a difference of at most M steps
  before it is one of at most M steps after it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar, Final

from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries import samplers
from accountant.queries.exact import decimal_above, float_above, root_above
from accountant.queries.samplers import WholeNoise

FINE: Final = 32
"""Noise on a lattice has a scale of about 2^32 steps: the answers look continuous."""
_LARGEST: Final = 2**62
"""No value on a lattice may be larger. The samplers cut at 2^63, after the noise."""

Draw = Callable[[], Any]


@dataclass(frozen=True)
class Step(ABC):
    """One draw of noise. All numbers are exact."""

    kind: ClassVar[str]

    sensitivity: Fraction
    """The most by which one privacy unit changes the exact value: in L1 for Laplace noise, in L2
    for Gaussian noise, any one score for a choice."""
    scale: Fraction
    """The scale that is stated; at least this much is drawn."""
    neighbouring: str | None = None
    """The relation under which it is stated, if that is not the population's."""

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""

    @abstractmethod
    def ready(self, value: Any) -> Draw:
        """Return the draw of this step on an exact value; all that can fail fails here. Raise
        ValueError for a value that the step cannot take.
        """

    @abstractmethod
    def within(self, beta: float) -> float:
        """Return how far off the draw is, except with probability ``beta``: in units of the answer
        for noise, of every entry at once; in units of the score for a choice.
        """

    def many(self, value: Any, times: int) -> Sequence[Any]:
        """Return independent draws, to look at their distribution. Each would cost anew."""
        draw = self.ready(value)
        return [draw() for _ in range(times)]


@dataclass(frozen=True)
class Noise(Step):
    """Noise added to a number, or with ``size`` to each entry of a list of so many numbers."""

    size: int | None = None

    @property
    def entries(self) -> int:
        """How many numbers there are."""
        return 1 if self.size is None else self.size

    @property
    @abstractmethod
    def lattice(self) -> Fraction | None:
        """The distance of two points of the lattice on which it draws, in units of the answer; None
        for whole numbers, which stay what they are.
        """

    @property
    @abstractmethod
    def drawn(self) -> float:
        """The scale that OpenDP is given, in steps of the lattice."""

    @abstractmethod
    def sampler(self) -> WholeNoise:
        """Return the noise of ``drawn`` on whole numbers."""

    def ready(self, value: Any) -> Draw:
        """Return the draw on an exact number, or on a list of them."""
        values = [value] if self.size is None else list(value)
        if len(values) != self.entries:
            raise ValueError(f"a step on {self.entries} numbers got {len(values)}")
        sampler, places = self.sampler(), [self._place(each) for each in values]

        def draw() -> Any:
            noisy = self._read(sampler(places))
            return noisy[0] if self.size is None else noisy

        return draw

    def many(self, value: Any, times: int) -> Sequence[Any]:
        """Return independent draws, all by one call of the sampler."""
        values = [value] if self.size is None else list(value)
        noisy = self._read(self.sampler()([self._place(each) for each in values] * times))
        if self.size is None:
            return noisy
        return [noisy[i : i + self.size] for i in range(0, len(noisy), self.size)]

    def _place(self, value: Any) -> int:
        """Return the point of the lattice next to an exact value, half up."""
        place = math.floor(Fraction(value) / (self.lattice or 1) + Fraction(1, 2))
        if abs(place) > _LARGEST:
            raise ValueError(
                f"{float(value)} is too large beside noise of scale {float(self.scale)}: take "
                "narrower bounds, or fewer rows"
            )
        return place

    def _read(self, places: Sequence[int]) -> list[Any]:
        lattice = self.lattice
        return list(places) if lattice is None else [float(place * lattice) for place in places]

    def _off(self, steps: float) -> float:
        """Return so many steps and half a one, for the rounding, in units of the answer."""
        return steps if self.lattice is None else float(self.lattice) * (steps + 0.5)

    @property
    def _norm(self) -> str:
        return "l1"

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        amount: Any = decimal_above(self.sensitivity)
        return mechanism(
            self.kind,
            sensitivity=amount if self.size is None else {self._norm: amount},
            scale=self.scale,
            neighbouring=self.neighbouring,
            sampler=samplers.library(),
        )


class _LaplaceNoise(Noise):
    """What Laplace noise and its whole-number form have in common."""

    def sampler(self) -> WholeNoise:
        """Return the noise of ``drawn`` on whole numbers."""
        return samplers.discrete_laplace(self.drawn)

    def within(self, beta: float) -> float:
        """Return the exact quantile: P(|noise| > k) = 2 q^(k + 1) / (1 + q), q = e^(-1/scale)."""
        each = apart(beta, self.entries)
        q = math.exp(-1 / self.drawn)
        steps = max(0, math.ceil(-self.drawn * math.log(each * (1 + q) / 2) - 1))
        return self._off(steps)


@dataclass(frozen=True)
class Laplace(_LaplaceNoise):
    """Laplace noise on real numbers, drawn as whole-number noise on a fine lattice.

    It is stated as ``laplace``, whose cost is that of a density; what runs is discrete. Why that is
    never understated: let a unit move the value by j steps, with noise of scale s in steps, and let
    t = 1/s. At the log ratios jt - 2it, i = 0 .. j, the discrete pair has the hockey-stick
    divergence 1 - e^(-it), exactly that of a Laplace pair of epsilon jt; between two of them it
    lies on the chord in e^(log ratio). With u = the root of e^(log ratio - jt), the chord from u0 =
    e^(-it) to u1 = e^(-(i+1)t) is 1 - (u^2 + u0 u1)/(u0 + u1), and that is at most 1 - u/cosh(t/2).
    A Laplace pair of epsilon jt + 2h has 1 - u e^-h there, and cosh(t/2) <= e^(t^2/8). Hence
    **a Laplace pair of epsilon jt + t^2/4 dominates the discrete one**, in every currency. For a
    list whose entries move by j1, j2, ... steps the epsilons add up, and rounding to the lattice
    adds a step an entry at most. So it is enough that

        M' / s + k / (4 s^2) <= sensitivity / stated scale,    M' = M + k for a list of k, else M

    which ``drawn`` makes true (``tests/queries/test_steps.py`` holds both against exact numbers).
    """

    kind: ClassVar[str] = "laplace"

    @property
    def epsilon(self) -> Fraction:
        """The cost of one draw: sensitivity / scale."""
        return decimal_above(self.sensitivity) / self.scale

    @property
    def width(self) -> int:
        """The sensitivity in steps of the lattice, before the rounding: a power of 2."""
        return int(2 ** max(0, FINE + _log2(self.epsilon)))

    @property
    def lattice(self) -> Fraction:
        """The distance of two points of the lattice."""
        return self.sensitivity / self.width

    @property
    def drawn(self) -> float:
        """The scale in steps: M'/epsilon + k/(4 M'), rounded up to a float. With it 1/s is at most
        epsilon/M', so M'/s + k/(4 s^2) <= (M' + k epsilon/(4 M')) / s <= epsilon.
        """
        steps = self.width + (0 if self.size is None else self.size)
        return float_above(steps / self.epsilon + Fraction(self.entries, 4 * steps))

    @classmethod
    def costing(
        cls,
        epsilon: Fraction,
        sensitivity: Fraction,
        neighbouring: str | None = None,
        size: int | None = None,
    ) -> Laplace:
        """Return the step of this L1 sensitivity that costs at most ``epsilon``."""
        scale = decimal_above(decimal_above(sensitivity) / epsilon)
        return cls(sensitivity, scale, neighbouring, size)


@dataclass(frozen=True)
class DiscreteLaplace(_LaplaceNoise):
    """Whole-number Laplace noise on counts: P(k) in proportion to e^(-|k|/scale), so epsilon =
    sensitivity / scale (Ghosh, Roughgarden, Sundararajan 2009).
    """

    kind: ClassVar[str] = "discrete_laplace"

    @property
    def lattice(self) -> None:
        """None: whole numbers."""

    @property
    def drawn(self) -> float:
        """The stated scale, rounded up to a float."""
        return float_above(self.scale)

    @classmethod
    def costing(
        cls,
        epsilon: Fraction,
        sensitivity: Fraction,
        neighbouring: str | None = None,
        size: int | None = None,
    ) -> DiscreteLaplace:
        """Return the step of this whole L1 sensitivity that costs at most ``epsilon``."""
        return cls(sensitivity, decimal_above(sensitivity / epsilon), neighbouring, size)


@dataclass(frozen=True)
class DiscreteGaussian(Noise):
    """Whole-number normal noise, P(k) in proportion to e^(-k^2 / (2 scale^2)), on a lattice.

    rho = (sensitivity / scale)^2 / 2, coordinate by coordinate for a list (Canonne, Kamath, Steinke
    2020, Theorem 4). Real numbers are rounded to a lattice too, and what is stated is what runs:
    whole-number noise, with sensitivity and scale in steps of the lattice. It is not stated as
    ``gaussian``, whose exact curve it does not keep.
    """

    kind: ClassVar[str] = "discrete_gaussian"

    step: Fraction | None = None

    @property
    def lattice(self) -> Fraction | None:
        """The distance of two points of the lattice; None for whole numbers."""
        return self.step

    @property
    def _norm(self) -> str:
        return "l2"

    @property
    def drawn(self) -> float:
        """The stated scale, rounded up to a float."""
        return float_above(self.scale)

    def sampler(self) -> WholeNoise:
        """Return the noise of ``drawn`` on whole numbers."""
        return samplers.discrete_gaussian(self.drawn)

    def within(self, beta: float) -> float:
        """Return the quantile of normal noise and a step, which bounds that of whole-number noise:
        P(k >= x) <= P(normal >= x - 1), as a sum is below its integral and the sum of all weights
        above theirs (Canonne, Kamath, Steinke 2020).
        """
        quantile = -NormalDist().inv_cdf(apart(beta, self.entries) / 2)
        return self._off(self.drawn * quantile + 1)

    @classmethod
    def costing(
        cls,
        rho: Fraction,
        sensitivity: Fraction,
        neighbouring: str | None = None,
        size: int | None = None,
        *,
        whole: bool,
    ) -> DiscreteGaussian:
        """Return the step of this L2 sensitivity that costs at most ``rho``, on ``whole`` numbers
        or on a lattice of about 2^32 steps to a scale. Rounding a list of k numbers to it adds a
        step to each, hence the root of k to the length.
        """
        root = root_above(1 / (2 * rho))
        steps, step = sensitivity, None
        if not whole:
            width = Fraction(2 ** max(0, FINE - _log2(root)))
            step = sensitivity / width
            steps = width if size is None else width + math.isqrt(size) + 1
        steps = decimal_above(steps)
        return cls(steps, decimal_above(steps * root), neighbouring, size, step)


def apart(beta: float, parts: int) -> float:
    """Return the probability of failure of each of independent ``parts`` that fail together with
    ``beta``.
    """
    return -math.expm1(math.log1p(-beta) / parts)


def _log2(value: Fraction) -> int:
    """Return the whole part of the logarithm of a positive number, to within 1."""
    return value.numerator.bit_length() - value.denominator.bit_length()
