"""Renyi curves: the divergence of a mechanism at every whole order.

A curve bounds the Renyi divergence D_order(P || Q) from above, for outputs P and Q on any two
neighbouring data sets, either way round (Mironov, *Renyi differential privacy*, CSF 2017). Orders
are whole numbers from 2 on. None stands for no finite bound, here and in every currency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from flint import arb

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball

_MOST_SUMMED: Final = 1024
_HOPELESS: Final = 10**6
"""A divergence that no account can hold."""

Combine = Callable[[Sequence[Number | None]], Number | None]


def times(value: Number | None, count: int) -> Number | None:
    """Return ``count`` times a bound."""
    return None if value is None else value * count


def total(values: Sequence[Number | None]) -> Number | None:
    """Return the sum of some bounds."""
    known = _known(values)
    return balls.total(known) if len(known) == len(values) else None


def least(values: Sequence[Number | None]) -> Number | None:
    """Return the least of some bounds of one quantity."""
    known = _known(values)
    return balls.least(*known) if known else None


def most(values: Sequence[Number | None]) -> Number | None:
    """Return the largest of some bounds, of which any may be the right one."""
    known = _known(values)
    return balls.most(*known) if len(known) == len(values) else None


def _known(values: Iterable[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]


class Curve(NamedTuple):
    """The divergence ``at`` each order, and the curve for data sets ``group`` steps apart."""

    at: Callable[[int], Number | None]
    group: Callable[[int], Curve]


def combined(combine: Combine, curves: Sequence[Curve]) -> Curve:
    """Return ``combine`` of curves at each order; the sum is for a list (Mironov 2017, Prop. 1)."""
    return Curve(
        lambda order: combine([curve.at(order) for curve in curves]),
        lambda size: combined(combine, [curve.group(size) for curve in curves]),
    )


NO_CURVE: Final[Curve] = Curve(lambda order: None, lambda size: NO_CURVE)
"""No bound at any order."""


def pure(epsilon: Number) -> Curve:
    """Return the curve of any epsilon-private mechanism: that of randomised response, the hardest.

    Kairouz, Oh, Viswanath 2015, Thm 2.5, for the reduction. The divergence of the pair
    (e^eps, 1) / (1 + e^eps) is ln(cosh((a - 1/2) eps) / cosh(eps / 2)) / (a - 1), that is
    eps + (ln(1 + e^-(2a-1)eps) - ln(1 + e^-eps)) / (a - 1).
    """

    def at(order: int) -> Number:
        def divergence() -> arb:
            e = ball(epsilon)
            more, less = (-(2 * order - 1) * e).exp().log1p(), (-e).exp().log1p()
            return e + (more - less) / (order - 1)

        return Real(divergence)

    return Curve(at, lambda size: pure(epsilon * size))


def laplace(epsilon: Fraction) -> Curve:
    """Return the curve of Laplace noise of scale sensitivity / ``epsilon``:
    eps + ln((a + (a-1) e^-(2a-1)eps) / (2a-1)) / (a - 1) (Mironov 2017, Prop. 6).

    For a vector of answers with independent noise too: the parts' divergences add up to no more
    than this one, for as a function of epsilon it is convex (a logarithm of a sum of exponentials)
    and zero at zero.
    """

    def at(order: int) -> Number:
        def divergence() -> arb:
            e, twice = ball(epsilon), 2 * order - 1
            share = (order + (order - 1) * (-twice * e).exp()) / twice
            return e + share.log() / (order - 1)

        return Real(divergence)

    return Curve(at, lambda size: laplace(epsilon * size))


def concentrated(rho: Number) -> Curve:
    """Return rho times the order (Bun and Steinke 2016, Def. 1.1; Prop. 1.9 for groups)."""
    return Curve(lambda order: rho * order, lambda size: concentrated(rho * size * size))


def sampled_gaussian(rho: Number, rate: Fraction) -> Curve:
    """Return the curve of Gaussian noise on a Poisson sample, under add-or-remove-one (DP-SGD).

    Mironov, Talwar, Zhang, *Renyi differential privacy of the sampled Gaussian mechanism*, 2019,
    Thm 4, Cor. 7 and Sec. 3.3: at a whole order a the divergence, the larger of both directions,
    is ln(sum over k of C(a, k) (1 - q)^(a-k) q^k e^((k^2 - k) rho)) / (a - 1), rho = 1 / (2 s^2).
    Each unit is in the sample with probability ``rate`` q, independently and secretly. Never more
    than without sampling, by the joint quasi-convexity of the divergence; beyond
    ``_MOST_SUMMED`` that bound is taken instead of the sum, and for groups too.
    """

    def at(order: int) -> Number:
        whole = order * rho
        if order > _MOST_SUMMED or whole > _HOPELESS or rate == 1:
            return whole

        def divergence() -> arb:
            rest = ball(1 - rate)
            factor, grow = ball(rate) / rest, (2 * ball(rho)).exp()
            # Each term is the one before times (a - k + 1) / k q / (1 - q) e^(2 (k - 1) rho).
            term = total = rest**order
            for k in range(1, order + 1):
                term = term * factor * (order - k + 1) / k
                total += term
                factor *= grow
            return total.log() / (order - 1)

        return balls.least(whole, balls.kept(divergence))

    return Curve(at, concentrated(rho).group)


def stated(points: Sequence[tuple[int, Fraction]]) -> Curve:
    """Return the least divergence that is stated at the order or a higher one: divergences never
    fall with the order (van Erven and Harremoes 2014, Thm 3). Nothing follows for groups.
    """
    return Curve(
        lambda order: min((tau for known, tau in points if known >= order), default=None),
        NO_CURVE.group,
    )
