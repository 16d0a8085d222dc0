"""Fully adaptive advanced composition."""

from __future__ import annotations

from fractions import Fraction

from flint import arb

from accountant.privacy import balls
from accountant.privacy.balls import Real, ball
from accountant.privacy.filters.base import Limit, Line, LineFilter
from accountant.privacy.units import Currency


class Advanced(LineFilter):
    """a S/2 + ln(1/delta')/(a-1) <= epsilon, where S is the sum of the squares of all epsilons,
    the new request's included. At the best order a it is sqrt(2 ln(1/delta') S) + S/2 <= epsilon.

    Source: Whitehouse, Ramdas, Rogers, Wu, "Fully adaptive composition in differential privacy",
    ICML 2023, Theorem 1. Preconditions: delta' > 0; each mechanism is (eps_i, delta_i)-DP given its
    past, its delta_i paid from ``own_delta``.

    The filter is the line that Ville's inequality gives at one order a: except with probability
    delta', at every time at once, loss <= a S/2 + ln(1/delta')/(a-1). The order is the one that is
    best when S reaches its capacity V = (sqrt(2L + 2 epsilon) - sqrt(2L))^2, L = ln(1/delta'):
    a - 1 = sqrt(2L/V), so that the line meets epsilon exactly there.

    The order has to be fixed before the first charge that S counts. Converting S afresh at a moment
    chosen after seeing answers is *not* valid, be it at each step or when a limit is changed
    (five well-timed raises reach 2.2 delta'). So ``spent`` stays on the line; a changed limit that
    carries on S keeps its order; and a limit adopted on used data counts earlier use as a sure sum
    of epsilons (E counts as S = 2 E / a) and draws its line from there.
    """

    name = "advanced"
    own = Currency.EPSILON_SQUARED

    def draw(self, limit: Limit) -> Line:
        """Draw slope a/2 and intercept ln(1/delta')/(a-1), rounded up."""
        order = _best_order(*limit.chosen_for)
        intercept = balls.above(balls.log(1 / limit.filter_delta)) / (order - 1)
        return Line.through(order, order / 2, intercept, self.own)


def _best_order(epsilon: Fraction, filter_delta: Fraction) -> Fraction:
    """Return 1 + sqrt(2L/V), V = (2 epsilon / (sqrt(2L + 2 epsilon) + sqrt(2L)))^2, in the form
    that does not cancel. Any order a > 1 gives a valid line.
    """
    log, twice = balls.log(1 / filter_delta), 2 * epsilon

    def excess() -> arb:
        two_l, two_e = 2 * ball(log), ball(twice)
        return two_l.sqrt() * ((two_l + two_e).sqrt() + two_l.sqrt()) / two_e

    return 1 + balls.above(Real(excess))
