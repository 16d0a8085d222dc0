"""Renyi curves: the divergence of a mechanism at every whole order.

``at(order)`` bounds the Renyi divergence D_order(P || Q) from above, for outputs P and Q on any two
neighbouring data sets, either way round (Mironov, *Renyi differential privacy*, CSF 2017). None
stands for no finite bound. Orders are whole numbers from 2 on. ``group(size)`` is the curve for
data sets that are ``size`` steps apart, or None where nothing follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from typing import Final, Protocol

from flint import arb

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball

_MOST_SUMMED: Final = 1024
_HOPELESS: Final = 10**6
"""A divergence that no account can hold."""


class Curve(Protocol):
    """A bound for every order."""

    def at(self, order: int) -> Number | None:
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

    epsilon: Number

    def at(self, order: int) -> Number:
        """eps + (ln(1 + e^-(2a-1)eps) - ln(1 + e^-eps)) / (a - 1)."""

        def divergence() -> arb:
            e = ball(self.epsilon)
            more, less = (-(2 * order - 1) * e).exp().log1p(), (-e).exp().log1p()
            return e + (more - less) / (order - 1)

        return Real(divergence)

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

    def at(self, order: int) -> Number:
        """eps + ln((a + (a-1) e^-(2a-1)eps) / (2a-1)) / (a - 1)."""

        def divergence() -> arb:
            e, twice = ball(self.epsilon), 2 * order - 1
            share = (order + (order - 1) * (-twice * e).exp()) / twice
            return e + share.log() / (order - 1)

        return Real(divergence)

    def group(self, size: int) -> Laplace:
        """The same noise at ``size`` times the sensitivity."""
        return Laplace(self.epsilon * size)


@dataclass(frozen=True, slots=True)
class Concentrated:
    """rho-zCDP: rho times the order (Bun and Steinke 2016, Def. 1.1)."""

    rho: Number

    def at(self, order: int) -> Number:
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

    rho: Number
    rate: Fraction

    def at(self, order: int) -> Number:
        """The sum, or a rho where that is less."""
        whole = order * self.rho
        if order > _MOST_SUMMED or whole > _HOPELESS or self.rate == 1:
            return whole

        def divergence() -> arb:
            rest = ball(1 - self.rate)
            factor, grow = ball(self.rate) / rest, (2 * ball(self.rho)).exp()
            # Each term is the one before times (a - k + 1) / k q / (1 - q) e^(2 (k - 1) rho).
            term = total = rest**order
            for k in range(1, order + 1):
                term = term * factor * (order - k + 1) / k
                total += term
                factor *= grow
            return total.log() / (order - 1)

        return balls.least(whole, balls.kept(divergence))

    def group(self, size: int) -> Curve | None:
        """Nothing better follows than without sampling."""
        return Concentrated(self.rho).group(size)


@dataclass(frozen=True, slots=True)
class Stated:
    """Divergences stated at some orders. They never fall with the order (van Erven and Harremoes
    2014, Thm 3), so that each order takes the next stated one.
    """

    points: tuple[tuple[int, Fraction], ...]

    def at(self, order: int) -> Number | None:
        """The least that is stated at this order or a higher one."""
        return min((tau for known, tau in self.points if known >= order), default=None)

    def group(self, size: int) -> None:
        """Nothing follows at a fixed order."""
        return


@dataclass(frozen=True, slots=True)
class Total:
    """Several mechanisms in a row, each so many times (Mironov 2017, Prop. 1)."""

    parts: tuple[tuple[Curve, int], ...]

    def at(self, order: int) -> Number | None:
        """The sum."""
        found = [(curve.at(order), count) for curve, count in self.parts]
        known = [tau * count for tau, count in found if tau is not None]
        return balls.total(known) if len(known) == len(found) else None

    def group(self, size: int) -> Total | None:
        """Part by part."""
        parts = [(curve.group(size), count) for curve, count in self.parts]
        known = tuple((curve, count) for curve, count in parts if curve is not None)
        return Total(known) if len(known) == len(parts) else None


@dataclass(frozen=True, slots=True)
class Least:
    """Several bounds of the same mechanism: the least at each order."""

    bounds: tuple[Curve, ...]

    def at(self, order: int) -> Number | None:
        """The least finite one."""
        values = [tau for curve in self.bounds if (tau := curve.at(order)) is not None]
        return balls.least(*values) if values else None

    def group(self, size: int) -> Curve | None:
        """The least of what follows from each."""
        found = [curve.group(size) for curve in self.bounds]
        return least(*found)


@dataclass(frozen=True, slots=True)
class Most:
    """The larger of two bounds, where either may be what is right."""

    bounds: tuple[Curve, Curve]

    def at(self, order: int) -> Number | None:
        """The larger; None if either has no bound."""
        one, other = (curve.at(order) for curve in self.bounds)
        return None if one is None or other is None else balls.most(one, other)

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


def together(curves: Sequence[Curve | None]) -> Curve | None:
    """One after the other."""
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves):
        return None
    if all(isinstance(curve, Concentrated) for curve in known):
        return Concentrated(balls.total(c.rho for c in known if isinstance(c, Concentrated)))
    parts = (c.parts if isinstance(c, Total) else ((c, 1),) for c in known)
    return Total(tuple(chain.from_iterable(parts)))
