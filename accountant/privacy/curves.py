"""Renyi curves: the divergence of one mechanism at every order.

A curve bounds D_order(P || Q) from above, for outputs P and Q on two neighbouring data sets
(Mironov, *Renyi differential privacy*, CSF 2017). As a function of the order a, (a - 1) D is the
logarithm of a moment generating function, so convex, and zero at 1 (van Erven and Harremoes 2014,
Cor. 2): between two whole orders it lies below their chord.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Final

from flint import arb, ctx
from msgspec import Struct
from msgspec.structs import replace

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball, kept

Combine = Callable[[Sequence[Number | None]], Number | None]
Order = int | Fraction
"""The order of a Renyi divergence, above 1; a whole one is an int."""
Orders = tuple[Order, ...]

_MOST_MOMENTS: Final = 128
"""The largest order at which moments on a sample are added up, one divergence for each."""


def order_of(value: Fraction) -> Order:
    """Return ``value`` as an order."""
    return value.numerator if value.denominator == 1 else value


class Curve(Struct, frozen=True):
    """The divergence ``at`` each order, and the curves that follow from it."""

    at: Callable[[Order], Number | None]
    group: Callable[[int], Curve]
    """The curve for so many units that are added together, or removed, or replaced."""
    exchanged: Callable[[], Curve] | None = None
    """The curve for one unit removed and another added, where it is not that for two units."""
    mirror: Callable[[], Curve] | None = None
    """The curve of a pair that dominates it and is its own mirror image (``on_sample``)."""
    again: Callable[[Fraction], Curve] | None = None
    """The curve on a Poisson sample of that rate, of what is a sample already."""

    @property
    def replaced(self) -> Curve:
        """The curve for data sets that differ by one replacement, two steps apart; at least twice
        that of one step, which a person who moves between groups needs (population.py).
        """
        if self.exchanged is None:
            return self.group(2)
        return combined(most, [self.exchanged(), repeated(self, 2)])

    def sampled(self, rate: Fraction) -> Curve:
        """Return the curve on a Poisson sample of ``rate``, under add-or-remove-one. Never more
        than without sampling, by the joint quasi-convexity of the divergence.
        """
        if self.again:
            return self.again(rate)
        return least_of([on_sample(self.mirror(), rate), self]) if self.mirror else self


def least_known(values: Sequence[Number | None]) -> Number | None:
    """Return the smallest bound that there is."""
    known = [value for value in values if value is not None]
    return balls.least(*known) if known else None


def of_all(combine: Callable[..., Number]) -> Combine:
    """Return ``combine`` of values, None if there is no bound on one of them."""

    def combined_of(values: Sequence[Number | None]) -> Number | None:
        known = [value for value in values if value is not None]
        return combine(*known) if len(known) == len(values) else None

    return combined_of


total: Final = of_all(balls.total)
most: Final = of_all(balls.most)


def combined(combine: Combine, curves: Sequence[Curve]) -> Curve:
    """Return ``combine`` of curves at each order."""
    return Curve(
        lambda order: combine([curve.at(order) for curve in curves]),
        lambda size: combined(combine, [curve.group(size) for curve in curves]),
        exchanged=lambda: combined(combine, [curve.replaced for curve in curves]),
    )


def least_of(curves: Sequence[Curve]) -> Curve:
    """Return the least of several curves of one mechanism."""
    mirror = next((curve.mirror for curve in curves if curve.mirror), None)
    return replace(combined(least_known, curves), mirror=mirror)


def sum_of(curves: Sequence[Curve]) -> Curve:
    """Return the curve of a list: the sum at each order (Mironov 2017, Prop. 1).

    The product of dominating pairs dominates the list, also if later parts depend on earlier
    answers (Zhu, Dong, Wang 2022, Thm 10); the mirror images of pairs make that of the product.
    """
    return curves[0] if len(curves) == 1 else _of_list(total, curves)


def repeated(curve: Curve, count: int) -> Curve:
    """Return the curve of ``count`` times the same."""
    return _of_list(lambda one: None if one[0] is None else one[0] * count, [curve])


def _of_list(combine: Combine, curves: Sequence[Curve]) -> Curve:
    mirrors = [curve.mirror for curve in curves if curve.mirror]
    found = combined(combine, curves)
    if len(mirrors) < len(curves):
        return found
    return replace(found, mirror=lambda: _of_list(combine, [mirror() for mirror in mirrors]))


def no_curve(size: int = 1) -> Curve:
    """Return the curve without a bound at any order."""
    return NO_CURVE


NO_CURVE: Final[Curve] = Curve(lambda order: None, no_curve)


def blended(usual: Curve, rare: Curve, chance: Number) -> Curve:
    """Return the curve of what is ``rare`` with a secret probability ``chance``, and else
    ``usual``, the same for both neighbours: moments are jointly convex.
    """
    usual, rare = remembered(usual), remembered(rare)

    def at(order: Order) -> Number | None:
        first, second = usual.at(order), rare.at(order)
        if first is None or second is None:
            return None

        return kept(lambda: _of_both(ball(first), ball(second), ball(chance), exactly(order) - 1))

    exchanged = cache(lambda: blended(usual.replaced, rare, chance))
    return remembered(Curve(at, no_curve, exchanged=exchanged))


def remembered(curve: Curve) -> Curve:
    """Return the same curve, each divergence of which is worked out once. One that looks at others
    at many orders would take that many times as long for each level of nesting.
    """
    found: dict[Order, Number | None] = {}

    def at(order: Order) -> Number | None:
        if order not in found:
            value = curve.at(order)
            found[order] = kept(value.ball) if isinstance(value, Real) else value
        return found[order]

    return replace(curve, at=at)


def exactly(order: Order) -> int | arb:
    """Return the order as balls are multiplied with it."""
    return order if isinstance(order, int) else around(order)[0]


_around: dict[int, tuple[Order, int, tuple[arb, arb, arb]]] = {}
"""The orders that were asked for last, by identity, each with the bits and what ``around`` found: a
policy asks at the same ones for as long as it is in force.
"""
_MOST_AROUND: Final = 64


def around(order: Order) -> tuple[int | arb, int | arb, int | arb]:
    """Return the order a, a - 1 and 2 a - 1, as balls are multiplied with them."""
    if isinstance(order, int):
        return order, order - 1, 2 * order - 1
    known = _around.get(id(order))
    if known is not None and known[0] is order and known[1] == ctx.prec:
        return known[2]
    a = ball(order)
    found = a, a - 1, 2 * a - 1
    if len(_around) >= _MOST_AROUND:
        _around.clear()
    _around[id(order)] = order, ctx.prec, found
    return found


def along_chords(whole: Callable[[int], Number | None]) -> Callable[[Order], Number | None]:
    """Return the curve that ``whole`` gives at whole orders, on chords between them."""

    def at(order: Order) -> Number | None:
        if isinstance(order, int):
            return whole(order)
        low = math.floor(order)
        high = whole(low + 1)
        if high is None:
            return None
        chord = high * (low * (order - low) / (order - 1))
        if low == 1:
            return chord
        lower = whole(low)
        return (
            None if lower is None else chord + lower * ((low + 1 - order) * (low - 1) / (order - 1))
        )

    return at


def _of_both(usual: arb, rare: arb, chance: arb, less: int | arb) -> arb:
    more = (rare * less).expm1() * chance + (usual * less).expm1() * (1 - chance)
    return more.log1p() / less


def mirrored(at: Callable[[Order], Number | None], group: Callable[[int], Curve]) -> Curve:
    """Return the curve of a pair that is its own mirror image."""
    return Curve(at, group, mirror=lambda: mirrored(at, group))


def on_sample(curve: Curve, rate: Fraction) -> Curve:
    """Return the curve on a Poisson sample of ``rate`` q, under add-or-remove-one.

    With a unit more the output is (1 - q) Q + q P in place of Q (Zhu, Dong, Wang 2022, Thm 11), so
    that at a whole order a the moment is the sum over k of C(a, k) (1 - q)^(a-k) q^k E_Q[(P/Q)^k],
    and E_Q[(P/Q)^k] is at most e^((k-1) D_k). Precondition: P and Q are mirror images: some
    bijection exchanges them, as x -> shift - x does for any symmetric noise. Then the other
    direction is never more (Mironov, Talwar, Zhang, *Renyi differential privacy of the sampled
    Gaussian mechanism*, 2019, Thm 5, which uses nothing else of the noise).
    """

    def whole(order: int) -> Number | None:
        if order > _MOST_MOMENTS:
            return curve.at(order)
        divergences = [tau for k in range(2, order + 1) if (tau := curve.at(k)) is not None]
        if len(divergences) < order - 1:
            return None

        def divergence() -> arb:
            q, rest = ball(rate), ball(1 - rate)
            found = rest**order + order * rest ** (order - 1) * q
            for k, tau in enumerate(divergences, start=2):
                chance = math.comb(order, k) * rest ** (order - k) * q**k
                found += chance * (ball(tau) * (k - 1)).exp()
            return found.log() / (order - 1)

        return kept(divergence)

    return Curve(along_chords(whole), curve.group)


def curve_of_pure(epsilon: Number) -> Curve:
    """Return the curve of any epsilon-private mechanism: that of randomised response, the hardest.

    Kairouz, Oh, Viswanath 2015, Thm 2.5, for the reduction. The divergence of the pair
    (e^eps, 1) / (1 + e^eps) is ln(cosh((a - 1/2) eps) / cosh(eps / 2)) / (a - 1), that is
    eps + (ln(1 + e^-(2a-1)eps) - ln(1 + e^-eps)) / (a - 1).
    """

    def at(order: Order) -> Number:
        def divergence() -> arb:
            e, (_, less_one, twice) = ball(epsilon), around(order)
            more, less = (-twice * e).exp().log1p(), (-e).exp().log1p()
            return e + (more - less) / less_one

        return Real(divergence)

    return mirrored(at, lambda size: curve_of_pure(epsilon * size))


def curve_of_laplace(epsilon: Fraction, *, vector: bool = False) -> Curve:
    """Return the curve of Laplace noise of scale sensitivity / ``epsilon``:
    eps + ln((a + (a-1) e^-(2a-1)eps) / (2a-1)) / (a - 1) (Mironov 2017, Prop. 6).

    For a ``vector`` of answers with independent noise too: the parts' divergences add up to no
    more, for as a function of epsilon it is convex (the logarithm of a sum of exponentials), zero
    at 0. But that this pair dominates a vector's is not proved: its mirror is the pure one.
    """

    def at(order: Order) -> Number:
        def divergence() -> arb:
            e, (a, less_one, twice) = ball(epsilon), around(order)
            share = (a + less_one * (-twice * e).exp()) / twice
            return e + share.log() / less_one

        return Real(divergence)

    found = mirrored(at, lambda size: curve_of_laplace(epsilon * size, vector=vector))
    return replace(found, mirror=lambda: curve_of_pure(epsilon)) if vector else found


def curve_of_rho(rho: Number) -> Curve:
    """Return rho times the order (Bun and Steinke 2016, Def. 1.1; Prop. 1.9 for groups)."""
    return Curve(lambda order: rho * order, lambda size: curve_of_rho(rho * size * size))


def curve_of_range(epsilon: Number) -> Curve:
    """Return the curve of a mechanism whose losses lie within a range of ``epsilon``.

    For losses in [t - eps, t], with u = e^-loss of mean 1 under P, the moment E_P[u^(1-a)] is
    convex in u, so the two ends are hardest (Dong, Durfee, Rogers 2020). As a function of y = e^t
    it is y^(a-1) ((e^eps - r) - y (1 - r)) / (e^eps - 1), r = e^-(a-1)eps, with its largest value,
    y^(a-1) (e^eps - r) / (a (e^eps - 1)), at y = (a - 1) (e^eps - r) / (a (1 - r)).
    """
    pure = curve_of_pure(epsilon)

    def at(order: Order) -> Number:
        if not epsilon:
            return Fraction(0)

        def divergence() -> arb:
            e, a = ball(epsilon), exactly(order)
            # Both factors without e^eps: e^eps - r = e^eps s, where s = 1 - e^(-a eps).
            s, rest, less = -(-a * e).expm1(), -(-(a - 1) * e).expm1(), -(-e).expm1()
            log = e + ((a - 1) * s / (a * rest)).log()
            return log + (s / (a * less)).log() / (a - 1)

        return Real(divergence)

    return Curve(at, lambda size: curve_of_range(epsilon * size), mirror=pure.mirror)


def curve_of_response(epsilon: Number, chance: Number) -> Curve:
    """Return the curve of a pair that is randomised response of ``epsilon`` with probability
    ``chance``, and else the same: one of k categories, where the others tell nothing.
    """

    def at(order: Order) -> Number | None:
        inner = curve_of_pure(epsilon).at(order)

        def divergence() -> arb:
            a = exactly(order)
            return (((a - 1) * ball(inner or Fraction(0))).expm1() * ball(chance)).log1p() / (a - 1)

        return Real(divergence)

    return mirrored(at, curve_of_pure(epsilon).group)


def curve_of_stated(points: Sequence[tuple[int, Fraction]]) -> Curve:
    """Return the least divergence that is stated at the order or a higher one: divergences never
    fall with the order (van Erven and Harremoes 2014, Thm 3). Nothing follows for groups.
    """
    return Curve(
        lambda order: min((tau for known, tau in points if known >= order), default=None), no_curve
    )
