"""Renyi curves: the divergence of a mechanism at every whole order, never below the truth.

``at(order)`` bounds the Renyi divergence D_order(P || Q) from above, for outputs P and Q on any two
neighbouring data sets, either way round (Mironov, *Renyi differential privacy*, CSF 2017). None
stands for no finite bound. Orders are whole numbers from 2 on. ``group(size)`` is the curve for
data sets that are ``size`` steps apart, or None where nothing follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Protocol

from accountant.privacy.decimals import UP, above, exp_of_minus, ln_up, to_decimal

_ONE: Final = Fraction(1)
_MOST_SUMMED: Final = 1024
_HOPELESS: Final = 10**6
"""A divergence that no account can hold."""


class Curve(Protocol):
    """A bound for every order."""

    def at(self, order: int) -> Fraction | None:
        """The divergence at ``order`` >= 2."""
        ...

    def group(self, size: int) -> Curve | None:
        """The curve of a group of ``size`` units."""
        ...


@dataclass(frozen=True, slots=True)
class Pure:
    """Any epsilon-private mechanism: that of randomised response, the hardest of them.

    Kairouz, Oh, Viswanath 2015, Thm 2.5, for the reduction. The divergence of the pair
    (e^eps, 1) / (1 + e^eps) is ln(cosh((a - 1/2) eps) / cosh(eps / 2)) / (a - 1).
    """

    epsilon: Fraction

    def at(self, order: int) -> Fraction:
        """eps + (ln(1 + e^-(2a-1)eps) - ln(1 + e^-eps)) / (a - 1)."""
        more = ln_up(1 + exp_of_minus((2 * order - 1) * self.epsilon)[1])
        # -ln x = ln 1/x, which rounds up
        less = ln_up(1 / (1 + exp_of_minus(self.epsilon)[0]))
        return min(self.epsilon, self.epsilon + (more + less) / (order - 1))

    def group(self, size: int) -> Pure:
        """Pure privacy adds up."""
        return Pure(self.epsilon * size)


@dataclass(frozen=True, slots=True)
class Laplace:
    """Laplace noise of scale sensitivity / ``epsilon`` (Mironov 2017, Prop. 6).

    For a vector of answers with independent noise too: the parts' divergences add up to no more
    than this one, for as a function of epsilon it is convex (a logarithm of a sum of exponentials)
    and zero at zero.
    """

    epsilon: Fraction

    def at(self, order: int) -> Fraction:
        """eps + ln((a + (a-1) e^-(2a-1)eps) / (2a-1)) / (a - 1)."""
        far = exp_of_minus((2 * order - 1) * self.epsilon)[1]
        share = (order + (order - 1) * far) / (2 * order - 1)
        return max(Fraction(0), self.epsilon + ln_up(min(_ONE, share)) / (order - 1))

    def group(self, size: int) -> Laplace:
        """The same noise at ``size`` times the sensitivity."""
        return Laplace(self.epsilon * size)


@dataclass(frozen=True, slots=True)
class Concentrated:
    """rho-zCDP: rho times the order (Bun and Steinke 2016, Def. 1.1)."""

    rho: Fraction

    def at(self, order: int) -> Fraction:
        """rho a."""
        return self.rho * order

    def group(self, size: int) -> Concentrated:
        """k^2 rho (Bun and Steinke 2016, Prop. 1.9)."""
        return Concentrated(self.rho * size * size)


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """Gaussian noise on a Poisson sample, under add-or-remove-one (DP-SGD).

    Mironov, Talwar, Zhang, *Renyi differential privacy of the sampled Gaussian mechanism*, 2019,
    Thm 4, Cor. 7 and Sec. 3.3: at a whole order a the divergence, the larger of both directions,
    is ln(sum over k of C(a, k) (1 - q)^(a-k) q^k e^((k^2 - k) rho)) / (a - 1), rho = 1 / (2 s^2).
    Each unit is in the sample with probability ``rate`` q, independently and secretly. Never more
    than without sampling, by the joint quasi-convexity of the divergence; beyond
    ``_MOST_SUMMED`` that bound is taken instead of the sum.
    """

    rho: Fraction
    rate: Fraction

    def at(self, order: int) -> Fraction:
        """The sum, or a rho where that is less."""
        whole = order * self.rho
        if order > _MOST_SUMMED or whole > _HOPELESS or self.rate == 1:
            return whole
        rest = 1 - self.rate
        odds = to_decimal(self.rate / rest, UP)
        grow = above(UP.exp(to_decimal(2 * self.rho, UP)))
        # Each term is the one before times (a - k + 1) / k q / (1 - q) e^(2 (k - 1) rho).
        term = total = above(UP.exp(to_decimal(order * ln_up(rest), UP)))
        for k in range(1, order + 1):
            share = UP.divide(UP.multiply(odds, Decimal(order - k + 1)), Decimal(k))
            term = UP.multiply(term, share)
            total = UP.add(total, term)
            odds = UP.multiply(odds, grow)
        return min(whole, Fraction(above(UP.ln(total))) / (order - 1))

    def group(self, size: int) -> Curve | None:
        """Nothing better follows than without sampling."""
        return Concentrated(self.rho).group(size)


@dataclass(frozen=True, slots=True)
class Stated:
    """Divergences stated at some orders. They never fall with the order (van Erven and Harremoes
    2014, Thm 3), so that each order takes the next stated one.
    """

    points: tuple[tuple[int, Fraction], ...]

    def at(self, order: int) -> Fraction | None:
        """The least that is stated at this order or a higher one."""
        return min((tau for known, tau in self.points if known >= order), default=None)

    def group(self, size: int) -> None:
        """Nothing follows at a fixed order."""
        return


@dataclass(frozen=True, slots=True)
class Total:
    """Several mechanisms in a row, each so many times (Mironov 2017, Prop. 1)."""

    parts: tuple[tuple[Curve, int], ...]

    def at(self, order: int) -> Fraction | None:
        """The sum."""
        found = Fraction(0)
        for curve, count in self.parts:
            if (tau := curve.at(order)) is None:
                return None
            found += count * tau
        return found

    def group(self, size: int) -> Total | None:
        """Part by part."""
        parts = [(curve.group(size), count) for curve, count in self.parts]
        known = tuple((curve, count) for curve, count in parts if curve is not None)
        return Total(known) if len(known) == len(parts) else None


@dataclass(frozen=True, slots=True)
class Least:
    """Several bounds of the same mechanism: the least at each order."""

    bounds: tuple[Curve, ...]

    def at(self, order: int) -> Fraction | None:
        """The least finite one."""
        values = [curve.at(order) for curve in self.bounds]
        return min((v for v in values if v is not None), default=None)

    def group(self, size: int) -> Curve | None:
        """The least of what follows from each."""
        found = [curve.group(size) for curve in self.bounds]
        return least(*found)


@dataclass(frozen=True, slots=True)
class Most:
    """The larger of two bounds, where either may be what is right."""

    bounds: tuple[Curve, Curve]

    def at(self, order: int) -> Fraction | None:
        """The larger; None if either has no bound."""
        one, other = (curve.at(order) for curve in self.bounds)
        return None if one is None or other is None else max(one, other)

    def group(self, size: int) -> Curve | None:
        """The larger of what follows from each."""
        return most(*(curve.group(size) for curve in self.bounds))


def least(*bounds: Curve | None) -> Curve | None:
    """The least of some bounds of one mechanism, of which None is no bound."""
    known = tuple(curve for curve in bounds if curve is not None)
    return known[0] if len(known) == 1 else Least(known) if known else None


def most(one: Curve | None, other: Curve | None) -> Curve | None:
    """The larger of two, of which None is no bound."""
    return None if one is None or other is None else Most((one, other))


def repeated(curve: Curve | None, count: int) -> Curve | None:
    """``count`` times the same."""
    if isinstance(curve, Concentrated):
        return Concentrated(curve.rho * count)
    return None if curve is None else Total(((curve, count),))


def together(one: Curve | None, other: Curve | None) -> Curve | None:
    """One after the other."""
    if one is None or other is None:
        return None
    if isinstance(one, Concentrated) and isinstance(other, Concentrated):
        return Concentrated(one.rho + other.rho)
    return Total((*_parts(one), *_parts(other)))


def _parts(curve: Curve) -> tuple[tuple[Curve, int], ...]:
    """Flat, so that a thousand in a row are not a thousand levels."""
    return curve.parts if isinstance(curve, Total) else ((curve, 1),)
