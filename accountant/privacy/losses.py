"""The loss of one invocation in every currency, and the rules by which losses combine.

All numbers are exact: fractions, or reals as precise as a question needs (``balls``); None stands
for no finite bound. Except with probability ``delta``, which is the mechanism's own, it is
epsilon-private, rho-zCDP, mu-GDP and within its Renyi ``curve``. An (epsilon, delta)-private
mechanism is its pure part and a delta (Kairouz, Oh, Viswanath 2015, Thm 2.5: randomised response
that tells all with probability delta can imitate it).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb
from msgspec import Struct
from msgspec.structs import replace

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball
from accountant.privacy.conversions import MuOfPure, mu_squared_of_pure
from accountant.privacy.curves import (
    NO_CURVE,
    Combine,
    Curve,
    blended,
    combined,
    curve_of_pure,
    curve_of_range,
    least_known,
    least_of,
    most,
    repeated,
    sum_of,
    total,
)
from accountant.privacy.samples import curve_of_allocation, curve_of_drawn, curve_of_gaussian

_NONE: Final = Fraction(0)
_CERTAIN: Final = Fraction(1)
_NEGLIGIBLE: Final = Fraction(1, 10**12)  # A failure as unlikely is a delta rather than a case
_LARGE: Final = 10**6  # From here on e^epsilon is not computed: delta times it counts as certain


def _times(value: Number | None, count: int) -> Number | None:
    return None if value is None else value * count


class Loss(Struct, frozen=True):
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
        delta, curve = balls.least(_CERTAIN, self.delta * count), repeated(self.curve, count)
        return _each(lambda one: _times(one[0], count), [self], delta, curve, exact=self.exact)

    def replaced(self) -> Loss:
        """Return the loss for one unit removed and another added, two steps apart."""
        return self.group(2, exchanged=True)

    def group(self, size: int, *, exchanged: bool = False) -> Loss:
        """Return the loss of ``size`` units together: for data sets ``size`` steps apart, all in
        the same direction unless the units are ``exchanged``.

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
        curve = self.curve.replaced if exchanged else self.curve.group(size)
        found = Loss(epsilon, delta, squares, rho, mu_squared, curve, exact=self.exact)
        return found if epsilon is None or delta else found.beside(pure(epsilon))

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
        # Normal noise alone has such a mu and rho, and so has any list of it: it is one.
        normal = self.rho if self.rho is not None and mu_squared == 2 * self.rho else None
        if poisson:
            curve = curve.sampled(rate)
            if normal is not None and not self.curve.again:
                curve = least_of([curve_of_gaussian(normal).sampled(rate), self.curve])
        elif normal is not None:
            curve = curve_of_drawn(normal, rate)
        if not self.epsilon:  # there is none, or none to amplify
            return replace(self, delta=delta, curve=curve)
        less = pure(balls.kept(partial(_amplified, self.epsilon, rate)))
        exact = self.exact and bool(self.delta)
        if isinstance(mu_squared, MuOfPure) and not exact:  # both grow with epsilon
            squares, mu_squared = less.squares, less.mu_squared
        else:
            squares = least_known([self.squares, less.squares])
        found = Loss(less.epsilon, delta, squares, self.rho, mu_squared, curve, exact=exact)
        # Bounds that need no delta stay apart from those that do.
        return found if exact else found.beside(less)

    def truncated(self, rate: Fraction, cut: Number) -> Loss:
        """Return the loss on a Poisson sample of ``rate``, under add-or-remove-one, of which a part
        is drawn without replacement where it is too large: ``cut`` is the most that this is likely
        without the unit. There the unit may displace another, as in a sample of fixed size, with a
        probability of at most ``rate`` (dp_accounting's bound; arXiv 2508.15089).
        """
        usual = self.sampled(rate, poisson=True)
        if cut < _NEGLIGIBLE:
            delta = balls.least(_CERTAIN, usual.delta + cut)
            return replace(usual, delta=delta, exact=False) if cut else usual
        rare = self.replaced().sampled(rate, poisson=False)
        return replace(usual.at_least(rare), curve=blended(usual.curve, rare.curve, cut))

    def allocated(self, steps: int) -> Loss:
        """Return the loss of so many steps, each unit in one of them, under add-or-remove-one. It
        is no more than that of one step: whichever it is, the divergence is quasi-convex.
        """
        if self.rho is None or self.mu_squared != 2 * self.rho:
            return self
        return replace(self, curve=curve_of_allocation(self.rho, steps))

    def at_least(self, other: Loss) -> Loss:
        """Return the larger of both in every currency."""
        delta = balls.most(self.delta, other.delta)
        curve = combined(most, [self.curve, other.curve])
        return _each(most, [self, other], delta, curve, exact=self._sure and other._sure)

    @property
    def _sure(self) -> bool:
        return self.exact or not self.delta

    def beside(self, other: Loss) -> Loss:
        """Return the loss with the smaller rho, mu and curve of two that hold of one mechanism, all
        of ``other`` but with a probability that this delta covers.
        """
        mu_squared = self.mu_squared
        if mu_squared is not other.mu_squared:
            mu_squared = least_known([mu_squared, other.mu_squared])
        curve, rho = least_of([self.curve, other.curve]), least_known([self.rho, other.rho])
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


def _each(
    combine: Combine, losses: Sequence[Loss], delta: Number, curve: Curve, *, exact: bool
) -> Loss:
    """Return the loss with ``curve`` that is ``combine`` of ``losses`` in all else but delta."""
    return Loss(
        combine([loss.epsilon for loss in losses]),
        delta,
        combine([loss.squares for loss in losses]),
        combine([loss.rho for loss in losses]),
        combine([loss.mu_squared for loss in losses]),
        curve,
        exact=exact,
    )


def composed(losses: Sequence[Loss]) -> Loss:
    """Return all of ``losses`` in a row, with parameters that were fixed in advance."""
    delta = balls.least(_CERTAIN, balls.total(*(loss.delta for loss in losses)))
    curve = sum_of([loss.curve for loss in losses])
    every = _each(total, losses, delta, curve, exact=all(loss._sure for loss in losses))
    if every._sure or every.epsilon is None:
        return every
    # Its (epsilon, delta) bounds everything else as well, beside that delta.
    return every.beside(pure(every.epsilon))


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
        balls.square(epsilon),
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
    if epsilon > 7:  # below, eps / 8 < tanh(eps / 2)
        rho = balls.least(rho, Real(partial(_rho_of_pure, epsilon)))
    return pure(epsilon, rho=rho, curve=curve_of_range(epsilon))


def gaussian(mu_squared: Fraction, epsilon: Number | None, delta: Number) -> Loss:
    """Return the loss of (epsilon, delta)-private Gaussian noise of mu = sensitivity / sigma.

    Bun, Steinke 2016, Prop. 1.6 (rho = mu^2 / 2, at every order); Dong, Roth, Su 2022, Thm 2.7.
    """
    rho, square = mu_squared / 2, None if epsilon is None else epsilon * epsilon
    return Loss(epsilon, delta, square, rho, mu_squared, curve_of_gaussian(rho), exact=True)


def _rho_of_pure(epsilon: Number) -> arb:
    e = ball(epsilon)
    return e * (e / 2).tanh()


def _amplified(epsilon: Number, rate: Fraction) -> arb:
    """Return ln(q e^eps + 1 - q), with e^eps taken out."""
    e, q = ball(epsilon), ball(rate)
    return e + (q + (1 - q) * (-e).exp()).log()
