"""The loss of one invocation in every currency, and the rules by which losses combine.

All numbers are exact: fractions, or reals as precise as a question needs (``balls``); None stands
for no finite bound. Except with probability ``delta``, which is the mechanism's own, it is
epsilon-private, rho-zCDP, mu-GDP and within its Renyi ``curve``. An (epsilon, delta)-private
mechanism is its pure part and a delta (Kairouz, Oh, Viswanath 2015, Thm 2.5: randomised response
that tells all with probability delta can imitate it).

A curve bounds the Renyi divergence D_order(P || Q) from above at every whole order from 2 on, for
outputs P and Q on two neighbouring data sets (Mironov, *Renyi differential privacy*, CSF 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final, NamedTuple

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball
from accountant.privacy.conversions import MuOfPure, mu_squared_of_pure

_NONE: Final = Fraction(0)
_CERTAIN: Final = Fraction(1)
_LARGE: Final = 10**6  # From here on e^epsilon is not computed: delta times it counts as certain
_MOST_SUMMED: Final = 1024
_FEW: Final = 64  # Up to this order it takes longer to find the terms that count than to add up all

Floats = NDArray[np.float64]
Combine = Callable[[Sequence[Number | None]], Number | None]


def _times(value: Number | None, count: int) -> Number | None:
    return None if value is None else value * count


def _least(values: Sequence[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return balls.least(*known) if known else None


def _of_all(combine: Callable[..., Number]) -> Combine:
    """Return ``combine`` of values, None if there is no bound on one of them."""

    def combined(values: Sequence[Number | None]) -> Number | None:
        known = [value for value in values if value is not None]
        return combine(*known) if len(known) == len(values) else None

    return combined


_total: Final = _of_all(balls.total)
_most: Final = _of_all(balls.most)


Order = int | Fraction
"""The order of a Renyi divergence, above 1; a whole one is an int."""
Orders = tuple[Order, ...]


def order_of(value: Fraction) -> Order:
    """Return ``value`` as an order."""
    return value.numerator if value.denominator == 1 else value


class Curve(NamedTuple):
    """The divergence ``at`` each order, and the curve for data sets ``group`` steps apart."""

    at: Callable[[Order], Number | None]
    group: Callable[[int], Curve]


def combined(combine: Combine, curves: Sequence[Curve]) -> Curve:
    """Return ``combine`` of curves at each order; the sum is for a list (Mironov 2017, Prop. 1)."""
    return Curve(
        lambda order: combine([curve.at(order) for curve in curves]),
        lambda size: combined(combine, [curve.group(size) for curve in curves]),
    )


def _exactly(order: Order) -> int | arb:
    """Return the order as balls are multiplied with it."""
    return order if isinstance(order, int) else ball(order)


NO_CURVE: Final[Curve] = Curve(lambda order: None, lambda size: NO_CURVE)  # No bound at any order


def curve_of_pure(epsilon: Number) -> Curve:
    """Return the curve of any epsilon-private mechanism: that of randomised response, the hardest.

    Kairouz, Oh, Viswanath 2015, Thm 2.5, for the reduction. The divergence of the pair
    (e^eps, 1) / (1 + e^eps) is ln(cosh((a - 1/2) eps) / cosh(eps / 2)) / (a - 1), that is
    eps + (ln(1 + e^-(2a-1)eps) - ln(1 + e^-eps)) / (a - 1).
    """

    def at(order: Order) -> Number:
        def divergence() -> arb:
            e, a = ball(epsilon), _exactly(order)
            more, less = (-(2 * a - 1) * e).exp().log1p(), (-e).exp().log1p()
            return e + (more - less) / (a - 1)

        return Real(divergence)

    return Curve(at, lambda size: curve_of_pure(epsilon * size))


def curve_of_laplace(epsilon: Fraction) -> Curve:
    """Return the curve of Laplace noise of scale sensitivity / ``epsilon``:
    eps + ln((a + (a-1) e^-(2a-1)eps) / (2a-1)) / (a - 1) (Mironov 2017, Prop. 6).

    For a vector of answers with independent noise too: the parts' divergences add up to no more,
    for as a function of epsilon it is convex (the logarithm of a sum of exponentials), zero at 0.
    """

    def at(order: Order) -> Number:
        def divergence() -> arb:
            e, a = ball(epsilon), _exactly(order)
            twice = 2 * a - 1
            share = (a + (a - 1) * (-twice * e).exp()) / twice
            return e + share.log() / (a - 1)

        return Real(divergence)

    return Curve(at, lambda size: curve_of_laplace(epsilon * size))


def curve_of_rho(rho: Number) -> Curve:
    """Return rho times the order (Bun and Steinke 2016, Def. 1.1; Prop. 1.9 for groups)."""
    return Curve(lambda order: rho * order, lambda size: curve_of_rho(rho * size * size))


def curve_of_sampled_gaussian(rho: Number, rate: Fraction) -> Curve:
    """Return the curve of Gaussian noise on a Poisson sample, under add-or-remove-one (DP-SGD).

    Mironov, Talwar, Zhang, *Renyi differential privacy of the sampled Gaussian mechanism*, 2019,
    Thm 4, Cor. 7 and Sec. 3.3: at a whole order a the divergence, the larger of both directions,
    is ln(sum over k of C(a, k) (1 - q)^(a-k) q^k e^((k^2 - k) rho)) / (a - 1), rho = 1 / (2 s^2).
    Each unit is in the sample with probability ``rate`` q, independently and secretly. Never more
    than without sampling, by the joint quasi-convexity of the divergence; beyond
    ``_MOST_SUMMED`` that bound is taken instead of the sum, and for groups too. Between whole
    orders (a - 1) times the divergence, which is convex in a and zero at 1, is at most the chord:
    it is the logarithm of a moment generating function (van Erven, Harremoes 2014, Cor. 2).
    """

    def at(order: Order) -> Number:
        if not isinstance(order, int):
            low = math.floor(order)
            above = at(low + 1) * (low * (order - low) / (order - 1))
            chord = above if low == 1 else above + at(low) * _falling(order, low)
            return balls.least(rho * order, chord)
        whole = order * rho
        if order > _MOST_SUMMED or whole > 10**6 or rate == 1:  # no account holds 10**6
            return whole

        def divergence() -> arb:
            q, r, rest = ball(rate), ball(rho), ball(1 - rate)
            odds, grow, last = q / rest, (2 * r).exp(), -2
            term = factor = total = arb(0)
            for k in _that_count(order, rate, rho):
                if k == last + 1:  # each is the term before times (a - k + 1) / k factor
                    term = term * factor * (order - k + 1) / k
                    factor *= grow
                else:
                    chance = math.comb(order, k) * q**k * rest ** (order - k)
                    term, factor = chance * (k * (k - 1) * r).exp(), odds * (2 * k * r).exp()
                total, last = total + term, k
            rounded = arb(1, arb(2) ** -(ctx.prec + 28))  # for all that were left out
            return (total * rounded).log() / (order - 1)

        return balls.least(whole, balls.kept(divergence))

    return Curve(at, curve_of_rho(rho).group)


def _falling(order: Fraction, low: int) -> Fraction:
    """Return the weight of the divergence at ``low`` in the chord at ``order``."""
    return (low + 1 - order) * (low - 1) / (order - 1)


def _that_count(order: int, rate: Fraction, rho: Number) -> Sequence[int]:
    """Return the k whose terms are at least 2^-(bits + 39) of the largest. Of the others there are
    at most 2^10. The logarithms are right to 1e-5.
    """
    if order <= _FEW:
        return range(order + 1)
    k, ways = _binomial(order)
    logs = ways + k * (math.log(rate) - math.log(1 - rate)) + k * (k - 1) * float(rho)
    kept: list[int] = np.flatnonzero(logs > logs.max() - 0.7 * (ctx.prec + 40)).tolist()
    return kept


@lru_cache(maxsize=64)
def _binomial(order: int) -> tuple[Floats, Floats]:
    """Return k = 0 … order and ln C(order, k)."""
    k = np.arange(order + 1.0)
    logs = np.cumsum(np.log(np.maximum(k, 1.0)))
    return k, logs[-1] - logs - logs[::-1]


def curve_of_stated(points: Sequence[tuple[int, Fraction]]) -> Curve:
    """Return the least divergence that is stated at the order or a higher one: divergences never
    fall with the order (van Erven and Harremoes 2014, Thm 3). Nothing follows for groups.
    """
    return Curve(
        lambda order: min((tau for known, tau in points if known >= order), default=None),
        NO_CURVE.group,
    )


@dataclass(frozen=True, slots=True)
class Loss:
    """One invocation. ``exact``: rho, mu and the curve hold without any probability of failure,
    though ``delta`` is not zero, as those of Gaussian noise do.
    """

    epsilon: Number | None
    delta: Number = _NONE
    squares: Number | None = None
    """The squares of the epsilons that epsilon is the sum of, added up; half of that is a rho."""
    rho: Number | None = None
    mu_squared: Number | None = None
    curve: Curve = NO_CURVE
    exact: bool = False

    def times(self, count: int) -> Loss:
        """Return the loss of ``count`` invocations as one."""
        if count == 1:
            return self
        delta = balls.least(_CERTAIN, self.delta * count)
        return _each(lambda one: _times(one[0], count), [self], delta, exact=self.exact)

    def group(self, size: int) -> Loss:
        """Return the loss of ``size`` units together: for data sets ``size`` steps apart.

        Dwork-Roth 2014, Thm 2.2, and Vadhan 2017, Lemma 2.2 (k epsilon, and delta times
        1 + e^eps + ... + e^(k-1)eps); Bun-Steinke 2016, Prop. 1.9 (k^2 rho); Dong, Roth, Su 2022,
        Thm 2.14 (k mu). What holds only beside a delta of the mechanism's own is worked out anew
        from the group's (epsilon, delta).
        """
        if size == 1:
            return self
        epsilon, delta, square = _times(self.epsilon, size), self._delta_of(size), size * size
        if not self._sure:
            return Loss(None, delta) if epsilon is None else pure(epsilon, delta)
        losses = self.squares, self.rho, self.mu_squared
        squares, rho, mu_squared = (_times(each, square) for each in losses)
        curve = self.curve.group(size)
        found = Loss(epsilon, delta, squares, rho, mu_squared, curve, exact=self.exact)
        return found if epsilon is None or delta else found._beside(pure(epsilon))

    def sampled(self, rate: Fraction, *, poisson: bool) -> Loss:
        """Return the loss on a fresh, secret sample that holds each unit at ``rate``.

        Balle, Barthe, Gaboardi 2018, Thms 8 and 9: (ln(1 + q (e^eps - 1)), q delta), for a Poisson
        sample under add-or-remove-one, or m = q n of a public n without replacement under
        replace-one. No currency costs more than without sampling: on each sample of the others the
        two outputs are those of neighbours or the same, and every divergence is quasi-convex.
        """
        if rate == 1:
            return self
        delta, curve, mu_squared = self.delta and self.delta * rate, self.curve, self.mu_squared
        if poisson and self.rho is not None and self.mu_squared == 2 * self.rho:
            curve = curve_of_sampled_gaussian(self.rho, rate)  # only Gaussian noise has both
        if not self.epsilon:  # there is none, or none to amplify
            return replace(self, delta=delta, curve=curve)
        less = pure(balls.kept(partial(_amplified, self.epsilon, rate)))
        exact = self.exact and bool(self.delta)
        if isinstance(mu_squared, MuOfPure) and not exact:  # both grow with epsilon
            squares, mu_squared = less.squares, less.mu_squared
        else:
            squares = _least([self.squares, less.squares])
        found = Loss(less.epsilon, delta, squares, self.rho, mu_squared, curve, exact=exact)
        # Bounds that need no delta stay apart from those that do.
        return found if exact else found._beside(less)

    def at_least(self, other: Loss) -> Loss:
        """Return the larger of both in every currency."""
        delta = balls.most(self.delta, other.delta)
        return _each(_most, [self, other], delta, exact=self._sure and other._sure)

    @property
    def _sure(self) -> bool:
        return self.exact or not self.delta

    def _beside(self, other: Loss) -> Loss:
        """Return the loss with the smaller rho, mu and curve of two that hold of one mechanism."""
        mu_squared = self.mu_squared
        if mu_squared is not other.mu_squared:
            mu_squared = _least([mu_squared, other.mu_squared])
        curve, rho = combined(_least, [self.curve, other.curve]), _least([self.rho, other.rho])
        return Loss(self.epsilon, self.delta, self.squares, rho, mu_squared, curve, self.exact)

    def _delta_of(self, size: int) -> Number:
        """Return delta (1 + e^eps + ... + e^(k-1)eps)."""
        epsilon = self.epsilon
        if not self.delta:
            return self.delta
        if epsilon is None or epsilon * size >= _LARGE:
            return _CERTAIN
        if not epsilon:
            return balls.least(_CERTAIN, self.delta * size)
        growth = Real(lambda: (ball(epsilon) * size).expm1() / ball(epsilon).expm1())
        return balls.least(_CERTAIN, growth * self.delta)


UNBOUNDED: Final = Loss(None)  # The loss without a finite bound in any currency


def _each(combine: Combine, losses: Sequence[Loss], delta: Number, *, exact: bool) -> Loss:
    """Return the loss that is ``combine`` of ``losses`` in every currency but delta."""
    return Loss(
        combine([loss.epsilon for loss in losses]),
        delta,
        combine([loss.squares for loss in losses]),
        combine([loss.rho for loss in losses]),
        combine([loss.mu_squared for loss in losses]),
        combined(combine, [loss.curve for loss in losses]),
        exact=exact,
    )


def composed(losses: Sequence[Loss]) -> Loss:
    """Return all of ``losses`` in a row, with parameters that were fixed in advance."""
    delta = balls.least(_CERTAIN, balls.total(*(loss.delta for loss in losses)))
    every = _each(_total, losses, delta, exact=all(loss._sure for loss in losses))
    if every._sure or every.epsilon is None:
        return every
    # Its (epsilon, delta) bounds everything else as well, beside that delta.
    return every._beside(pure(every.epsilon))


def pure(
    epsilon: Number, delta: Number = _NONE, *, rho: Number | None = None, curve: Curve | None = None
) -> Loss:
    """Return all that is known of an (epsilon, delta)-private mechanism, whose ``rho`` and Renyi
    ``curve`` may be known better than by this.

    rho = eps tanh(eps / 2): the divergence of randomised response at order a is
    (h((a - 1/2)^2) - h(1/4)) / (a - 1) with h(y) = ln cosh(eps sqrt(y)), which is concave, so that
    it is at most h'(1/4) a (``mu_squared_of_pure`` for mu).
    """
    return Loss(
        epsilon,
        delta,
        epsilon * epsilon,
        rho or Real(partial(_rho_of_pure, epsilon)),
        mu_squared_of_pure(epsilon),
        curve or curve_of_pure(epsilon),
    )


def bounded_range(epsilon: Number) -> Loss:
    """Return all that is known of a mechanism whose log probabilities move by amounts that are at
    most ``epsilon`` apart, as those of the exponential mechanism do: eps^2 / 8 -zCDP (Cesar and
    Rogers, *Bounding, concentrating, and truncating*, 2021, Lemma 3.2; Dong, Durfee, Rogers 2020).
    """
    rho = epsilon * epsilon * Fraction(1, 8)
    curve = combined(_least, [curve_of_rho(rho), curve_of_pure(epsilon)])
    if epsilon > 7:  # below, eps / 8 < tanh(eps / 2)
        rho = balls.least(rho, Real(partial(_rho_of_pure, epsilon)))
    return pure(epsilon, rho=rho, curve=curve)


def gaussian(mu_squared: Fraction, epsilon: Number | None, delta: Number) -> Loss:
    """Return the loss of (epsilon, delta)-private Gaussian noise of mu = sensitivity / sigma.

    Bun, Steinke 2016, Prop. 1.6 (rho = mu^2 / 2, at every order); Dong, Roth, Su 2022, Thm 2.7.
    """
    rho, square = mu_squared / 2, None if epsilon is None else epsilon * epsilon
    return Loss(epsilon, delta, square, rho, mu_squared, curve_of_rho(rho), exact=True)


def _rho_of_pure(epsilon: Number) -> arb:
    e = ball(epsilon)
    return e * (e / 2).tanh()


def _amplified(epsilon: Number, rate: Fraction) -> arb:
    """Return ln(q e^eps + 1 - q), with e^eps taken out."""
    e, q = ball(epsilon), ball(rate)
    return e + (q + (1 - q) * (-e).exp()).log()
