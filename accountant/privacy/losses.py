"""What one invocation costs in every currency, and how losses combine.

All numbers are exact: fractions, or reals as precise as a question needs (``balls``); None stands
for no finite bound. Except with probability ``delta``, which is the mechanism's own, it is
epsilon-private, rho-zCDP, mu-GDP and within its Renyi ``curve``. An (epsilon, delta)-private
mechanism is its pure part and a delta (Kairouz, Oh, Viswanath 2015, Thm 2.5: randomised response
that tells all with probability delta can imitate it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accountant.privacy import balls, curves
from accountant.privacy.balls import Number, Real, ball
from accountant.privacy.conversions import mu_squared_of_pure
from accountant.privacy.curves import NO_CURVE, Combine, Curve, combined, least, most, times

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
    curve: Curve = NO_CURVE
    exact: bool = False

    def __add__(self, other: Loss) -> Loss:
        """Both mechanisms, one after the other, with parameters that were fixed in advance."""
        return composed((self, other))

    def times(self, count: int) -> Loss:
        """Return the loss of ``count`` invocations as one."""
        if count == 1:
            return self
        delta = balls.least(_CERTAIN, self.delta * count)
        return _each(lambda one: times(one[0], count), [self], delta, exact=self.exact)

    def group(self, size: int) -> Loss:
        """Return the loss of ``size`` units together: for data sets ``size`` steps apart.

        Dwork-Roth 2014, Thm 2.2, and Vadhan 2017, Lemma 2.2 (k epsilon, and delta times
        1 + e^eps + ... + e^(k-1)eps); Bun-Steinke 2016, Prop. 1.9 (k^2 rho); Dong, Roth, Su 2022,
        Thm 2.14 (k mu). What holds only beside a delta of the mechanism's own is worked out anew
        from the group's (epsilon, delta).
        """
        if size == 1:
            return self
        epsilon, delta, square = times(self.epsilon, size), self._delta_of(size), size * size
        if not self._sure:
            return Loss(None, delta) if epsilon is None else pure(epsilon, delta)
        found = Loss(
            epsilon,
            delta,
            times(self.squares, square),
            times(self.rho, square),
            times(self.mu_squared, square),
            self.curve.group(size),
            exact=self.exact,
        )
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
        found = replace(self, delta=self.delta * rate)
        if poisson and self.rho is not None and self.mu_squared == 2 * self.rho:
            # Only Gaussian noise has both.
            found = replace(found, curve=curves.sampled_gaussian(self.rho, rate))
        if not self.epsilon:  # there is none, or none to amplify
            return found
        less = pure(balls.kept(partial(_amplified, self.epsilon, rate)))
        squares = least([self.squares, less.squares])
        found = replace(found, epsilon=less.epsilon, squares=squares)
        # What needs no delta stays apart from what does.
        return found if self.exact and self.delta else replace(found._beside(less), exact=False)

    def at_least(self, other: Loss) -> Loss:
        """Return the larger of both in every currency."""
        delta = balls.most(self.delta, other.delta)
        return _each(most, [self, other], delta, exact=self._sure and other._sure)

    @property
    def _sure(self) -> bool:
        return self.exact or not self.delta

    def _beside(self, other: Loss) -> Loss:
        """Return the loss with the smaller rho, mu and curve of two that hold of one mechanism."""
        return replace(
            self,
            rho=least([self.rho, other.rho]),
            mu_squared=least([self.mu_squared, other.mu_squared]),
            curve=combined(least, [self.curve, other.curve]),
        )

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


UNBOUNDED: Final = Loss(None)
"""The loss without a finite bound in any currency."""


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
    delta = balls.least(_CERTAIN, balls.total(loss.delta for loss in losses))
    every = _each(curves.total, losses, delta, exact=all(loss._sure for loss in losses))
    if every._sure or every.epsilon is None:
        return every
    # Its (epsilon, delta) bounds everything else as well, beside that delta.
    return every._beside(pure(every.epsilon))


def pure(
    epsilon: Number,
    delta: Number = _NONE,
    *,
    rho: Number | None = None,
    curve: Curve | None = None,
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
        balls.square(epsilon),
        rho or Real(partial(_rho_of_pure, epsilon)),
        mu_squared_of_pure(epsilon),
        curve or curves.pure(epsilon),
    )


def bounded_range(epsilon: Number) -> Loss:
    """Return all that is known of a mechanism whose log probabilities move by amounts that are at
    most ``epsilon`` apart, as those of the exponential mechanism do: eps^2 / 8 -zCDP.

    Cesar and Rogers, *Bounding, concentrating, and truncating*, 2021, Lemma 3.2; Dong, Durfee,
    Rogers 2020.
    """
    rho = balls.square(epsilon) * Fraction(1, 8)
    curve = combined(least, [curves.concentrated(rho), curves.pure(epsilon)])
    return pure(epsilon, rho=least([rho, Real(partial(_rho_of_pure, epsilon))]), curve=curve)


def concentrated(rho: Number) -> Loss:
    """Return all that is known of a rho-zCDP mechanism."""
    return Loss(None, rho=rho, curve=curves.concentrated(rho))


def gaussian(mu_squared: Fraction, epsilon: Number | None, delta: Number) -> Loss:
    """Return the loss of Gaussian noise of mu = sensitivity / sigma, which is (epsilon,
    delta)-private as well.

    Bun and Steinke 2016, Prop. 1.6 (rho = mu^2 / 2, with equality at every Renyi order); Dong, Roth
    and Su 2022, Thm 2.7.
    """
    rho, square = mu_squared / 2, None if epsilon is None else balls.square(epsilon)
    return Loss(epsilon, delta, square, rho, mu_squared, curves.concentrated(rho), exact=True)


def _rho_of_pure(epsilon: Number) -> arb:
    e = ball(epsilon)
    return e * (e / 2).tanh()


def _amplified(epsilon: Number, rate: Fraction) -> arb:
    """Return ln(q e^eps + 1 - q), with e^eps taken out."""
    e, q = ball(epsilon), ball(rate)
    return e + (q + (1 - q) * (-e).exp()).log()
