"""What one invocation costs in every currency, and how losses combine.

All numbers are exact: fractions, or reals as precise as a question needs (``balls``); None stands
for no finite bound. Except with
probability ``delta``, which is the mechanism's own, it is epsilon-private, rho-zCDP, mu-GDP and
within its Renyi ``curve``. An (epsilon, delta)-private mechanism is its pure part and a delta
(Kairouz, Oh, Viswanath 2015, Thm 2.5: randomised response that tells all with probability delta
can imitate it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball
from accountant.privacy.curves import (
    Concentrated,
    Curve,
    Pure,
    SampledGaussian,
    least,
    most,
    repeated,
    together,
)
from accountant.privacy.gaussian_curve import mu_squared_of_pure

_NONE: Final = Fraction(0)
_CERTAIN: Final = Fraction(1)
_LARGE: Final = 10**6
"""From this epsilon on e^epsilon is not computed: delta times it is taken to be certain."""


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
    curve: Curve | None = None
    exact: bool = False

    def tau(self, order: int) -> Number | None:
        """The Renyi divergence at a whole ``order`` from 2 on."""
        return None if self.curve is None else self.curve.at(order)

    def __add__(self, other: Loss) -> Loss:
        """Both mechanisms, one after the other, with parameters that were fixed in advance."""
        return composed((self, other))

    def times(self, count: int) -> Loss:
        """``count`` invocations as one."""
        if count == 1:
            return self
        return Loss(
            _of(self.epsilon, count),
            balls.least(_CERTAIN, self.delta * count),
            _of(self.squares, count),
            _of(self.rho, count),
            _of(self.mu_squared, count),
            repeated(self.curve, count),
            exact=self.exact,
        )

    def group(self, size: int) -> Loss:
        """The loss of ``size`` units together, that is, for data sets ``size`` steps apart.

        Dwork-Roth 2014, Thm 2.2, and Vadhan 2017, Lemma 2.2 (k epsilon, and delta times
        1 + e^eps + ... + e^(k-1)eps); Bun-Steinke 2016, Prop. 1.9 (k^2 rho); Dong, Roth, Su 2022,
        Thm 2.14 (k mu). What holds only beside a delta of the mechanism's own is worked out anew
        from the group's (epsilon, delta).
        """
        if size == 1:
            return self
        epsilon, delta = _of(self.epsilon, size), self._delta_of(size)
        if not self._sure:
            return Loss(None, delta) if epsilon is None else pure(epsilon, delta)
        beside = UNBOUNDED if epsilon is None or delta else pure(epsilon)
        return Loss(
            epsilon,
            delta,
            _of(self.squares, size * size),
            _least(_of(self.rho, size * size), beside.rho),
            _least(_of(self.mu_squared, size * size), beside.mu_squared),
            least(self.curve.group(size) if self.curve else None, beside.curve),
            exact=self.exact,
        )

    def sampled(self, rate: Fraction, *, poisson: bool) -> Loss:
        """The loss when it runs on a fresh, secret sample that holds each unit at ``rate``.

        Balle, Barthe, Gaboardi 2018, Thms 8 and 9: (ln(1 + q (e^eps - 1)), q delta), for a Poisson
        sample under add-or-remove-one, or m = q n of a public n without replacement under
        replace-one. No currency costs more than without sampling: on each sample of the others the
        two outputs are those of neighbours or the same, and every divergence is quasi-convex.
        """
        if rate == 1:
            return self
        curve = self.curve
        if poisson and isinstance(curve, Concentrated) and self.mu_squared == 2 * curve.rho:
            curve = SampledGaussian(curve.rho, rate)  # only Gaussian noise has both
        delta = self.delta * rate
        if not self.epsilon:  # there is none, or none to amplify
            return replace(self, delta=delta, curve=curve)
        less = pure(balls.kept(partial(_amplified, self.epsilon, rate)), delta)
        if self.exact and delta:  # what needs no delta stays apart from what does
            square = _least(self.squares, less.squares)
            return replace(self, epsilon=less.epsilon, delta=delta, squares=square, curve=curve)
        return Loss(
            less.epsilon,
            delta,
            _least(self.squares, less.squares),
            _least(self.rho, less.rho),
            _least(self.mu_squared, less.mu_squared),
            least(curve, less.curve),
        )

    def at_least(self, other: Loss) -> Loss:
        """The larger of both in every currency."""
        return Loss(
            _most(self.epsilon, other.epsilon),
            balls.most(self.delta, other.delta),
            _most(self.squares, other.squares),
            _most(self.rho, other.rho),
            _most(self.mu_squared, other.mu_squared),
            most(self.curve, other.curve),
            exact=self._sure and other._sure,
        )

    @property
    def _sure(self) -> bool:
        return self.exact or not self.delta

    def _delta_of(self, size: int) -> Number:
        """delta (1 + e^eps + ... + e^(k-1)eps)."""
        epsilon = self.epsilon
        if not self.delta:
            return self.delta
        if epsilon is None or epsilon * size >= _LARGE:
            return _CERTAIN
        if not epsilon:
            return balls.least(_CERTAIN, self.delta * size)
        growth = Real(lambda: (ball(epsilon) * size).expm1() / ball(epsilon).expm1())
        return balls.least(_CERTAIN, growth * self.delta)


UNBOUNDED: Final = Loss(None)
"""What has no finite bound in any currency."""


def composed(losses: Sequence[Loss]) -> Loss:
    """All of ``losses``, one after the other, with parameters that were fixed in advance."""
    every = Loss(
        _total([loss.epsilon for loss in losses]),
        balls.least(_CERTAIN, balls.total(loss.delta for loss in losses)),
        _total([loss.squares for loss in losses]),
        _total([loss.rho for loss in losses]),
        _total([loss.mu_squared for loss in losses]),
        together([loss.curve for loss in losses]),
        exact=all(loss._sure for loss in losses),
    )
    if every._sure or every.epsilon is None:
        return every
    # Its (epsilon, delta) bounds everything else as well, beside that delta.
    beside = pure(every.epsilon)
    return replace(
        every,
        rho=_least(every.rho, beside.rho),
        mu_squared=_least(every.mu_squared, beside.mu_squared),
        curve=least(every.curve, beside.curve),
    )


def pure(
    epsilon: Number,
    delta: Number = _NONE,
    *,
    rho: Number | None = None,
    curve: Curve | None = None,
) -> Loss:
    """All that is known of an (epsilon, delta)-private mechanism, whose ``rho`` and Renyi ``curve``
    may be known better than by this.

    rho = eps tanh(eps / 2): the divergence of randomised response at order a is
    (h((a - 1/2)^2) - h(1/4)) / (a - 1) with h(y) = ln cosh(eps sqrt(y)), which is concave, so that
    it is at most h'(1/4) a (``mu_squared_of_pure`` for mu).
    """
    return Loss(
        epsilon,
        delta,
        balls.square(epsilon),
        rho or Real(partial(_rho_of_pure, epsilon)),
        mu_squared_of_pure(epsilon),
        curve or Pure(epsilon),
    )


def bounded_range(epsilon: Number) -> Loss:
    """All that is known of a mechanism whose log probabilities move by amounts that are at most
    ``epsilon`` apart, as those of the exponential mechanism do: eps^2 / 8 -zCDP.

    Cesar and Rogers, *Bounding, concentrating, and truncating*, 2021, Lemma 3.2; Dong, Durfee,
    Rogers 2020.
    """
    whole, rho = pure(epsilon), balls.square(epsilon) * Fraction(1, 8)
    return replace(whole, rho=_least(rho, whole.rho), curve=least(Concentrated(rho), whole.curve))


def concentrated(rho: Number) -> Loss:
    """All that is known of a rho-zCDP mechanism."""
    return Loss(None, rho=rho, curve=Concentrated(rho))


def gaussian(mu_squared: Fraction, epsilon: Number | None, delta: Number) -> Loss:
    """Gaussian noise of mu = sensitivity / sigma, which is (epsilon, delta)-private as well.

    Bun and Steinke 2016, Prop. 1.6 (rho = mu^2 / 2, with equality at every Renyi order); Dong, Roth
    and Su 2022, Thm 2.7.
    """
    rho, square = mu_squared / 2, None if epsilon is None else balls.square(epsilon)
    return Loss(epsilon, delta, square, rho, mu_squared, Concentrated(rho), exact=True)


def _rho_of_pure(epsilon: Number) -> arb:
    e = ball(epsilon)
    return e * (e / 2).tanh()


def _amplified(epsilon: Number, rate: Fraction) -> arb:
    """ln(q e^eps + 1 - q), with e^eps taken out."""
    e, q = ball(epsilon), ball(rate)
    return e + (q + (1 - q) * (-e).exp()).log()


def _total(values: list[Number | None]) -> Number | None:
    known = [value for value in values if value is not None]
    return balls.total(known) if len(known) == len(values) else None


def _of(one: Number | None, times: int) -> Number | None:
    return None if one is None else one * times


def _least(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one if other is None else balls.least(one, other)


def _most(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else balls.most(one, other)
