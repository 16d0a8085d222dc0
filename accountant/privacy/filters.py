"""Privacy filters: the only compositions that may admit or block.

A filter stays valid when pipelines choose every next mechanism, and when to stop, after seeing the
earlier answers. Formulas that assume a schedule fixed in advance (Dwork-Rothblum-Vadhan,
Kairouz-Oh-Viswanath, numerical PLDs, Renyi minimised over orders) are no filters and not here.

The delta of a limit is split once, when the rule is adopted: ``own_delta`` is kept for the deltas
that mechanisms bring themselves, the rest, delta', belongs to the filter. Then **"basic holds or
this filter holds"** is a valid filter: the own-delta failures cost at most ``own_delta`` in all,
and outside them paths that end under basic are bounded surely and those under the filter up to
delta'. Without a delta a limit is basic only. Capacities are rounded down, charges were rounded up.

Most filters are lines. A line at one fixed order a says: except with probability delta', at every
time at once, the loss is at most slope x (sum in the filter's own currency) + intercept. It holds
wherever a limit is put on it, and however often that limit moves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import ClassVar, Final

from accountant.privacy import balls
from accountant.privacy.conversions import best_order_within, intercept, most_mu_squared
from accountant.privacy.units import SURE, Axis, Currency, units_down

ORDERS: Final = (*range(2, 65), *(step << p for p in range(3, 11) for step in range(9, 17)))
"""The candidates: every integer to 64, then eight to each doubling, to 16,384."""
_FOR_SPENT: Final = Fraction(1, 10)
"""The part of delta' that pays for the line, by which the spent epsilon is counted."""
FOR_CAPACITY: Final = 1 - _FOR_SPENT
"""The part of delta' for the capacity."""


@dataclass(frozen=True)
class Limit:
    """The promise of a rule: (epsilon, delta), of which ``own_delta`` is kept for own deltas.

    ``chosen``, if given, is the (epsilon, delta') of the limit whose spending this one carries on:
    orders are fixed before the first charge that counts, so this limit keeps that one's.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    own_delta: Fraction = Fraction(0)
    chosen: tuple[Fraction, Fraction] | None = None

    lines: dict[str, Line] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The line of each filter that has drawn one, by its name."""
    shares: dict[tuple[str, str], Capacity] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Capacities at a share of this limit."""

    @property
    def filter_delta(self) -> Fraction:
        """delta', the failure probability that the filter itself may use."""
        return self.delta - self.own_delta

    @property
    def chosen_for(self) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta') that all orders are chosen for."""
        return self.chosen or (self.epsilon, self.filter_delta)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that a cell may hold, in units. ``second`` is in the filter's own currency."""

    epsilon: int
    own_delta: int
    second: int | None = None
    second_currency: Currency | None = None


class Filter:
    """A composition that stays valid under adaptive choices of mechanisms and of when to stop.

    As it stands here it is basic composition: the sum of epsilons and the sum of deltas. Source:
    Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters", NeurIPS 2016 (fully adaptive);
    Vadhan and Wang 2021, Vadhan and Zhang 2023 (concurrent interactive mechanisms). Precondition:
    none beyond (epsilon_i, delta_i)-DP of each mechanism given its past.
    """

    name = "basic"

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Return the capacity that keeps the spent epsilon within ``share`` of the limit's."""
        return Capacity(
            units_down(limit.epsilon * share, Currency.EPSILON),
            units_down(limit.own_delta * share, Currency.DELTA),
        )

    def currency(self, limit: Limit) -> Currency | None:
        """Return the filter's own currency under ``limit``; None if it has none."""
        return None

    def spent(self, limit: Limit, epsilon: int | None, second: int | None) -> int | None:
        """Return the epsilon spent, in units and rounded up: valid at every stopping time.

        ``epsilon`` and ``second`` are the sums of epsilons and in the filter's own currency. None,
        also as the result, stands for a sum with an infinite charge in it.
        """
        return epsilon

    def per_epsilon(self, limit: Limit) -> Fraction | None:
        """Return the units of the filter's own currency that stand for one unit of epsilon already
        spent, when the filter starts on data that were used before; None if nothing can.
        """
        return Fraction(0)


@dataclass(frozen=True, slots=True)
class Line:
    """epsilon <= (a S + b) / d in units of ``currency``, with whole a, b and d; ``order`` is where
    it is drawn. Up to a sum of ``first`` epsilon is at most ``most`` as well.
    """

    order: Fraction
    currency: Currency
    a: int
    b: int
    d: int
    first: int = -1
    most: int = 0

    @classmethod
    def through(cls, order: Fraction, slope: Fraction, start: Fraction, currency: Currency) -> Line:
        """Draw a line of ``slope`` epsilon for each 1 of ``currency``, from ``start`` on."""
        one = Currency.EPSILON.per_one
        slope, start = slope * one / currency.per_one, start * one
        d = lcm(slope.denominator, start.denominator)
        return cls(order, currency, a=int(slope * d), b=int(start * d), d=d)

    def spent(self, second: int) -> int:
        """Return the units of epsilon at a sum of ``second``, rounded up."""
        units = -(-(self.a * second + self.b) // self.d)
        if second <= self.first and units > self.most:
            return self.most
        return units if units > 0 else 0

    def reaches(self, epsilon: Fraction) -> int:
        """Return the largest sum at which the line is at most ``epsilon``; if none, below zero."""
        return (units_down(epsilon, Currency.EPSILON) * self.d - self.b) // self.a


class LineFilter(Filter, ABC):
    """A filter that admits up to where its line meets epsilon."""

    own: ClassVar[Currency]
    """The currency that the line runs along, if it is the same under every limit."""

    def currency(self, limit: Limit) -> Currency:
        """Return the currency that the line runs along."""
        return self.own

    @abstractmethod
    def draw(self, limit: Limit) -> Line:
        """Draw the line of ``limit``, at the order chosen for ``limit.chosen_for``."""

    def line(self, limit: Limit) -> Line:
        """Return the line of ``limit``, drawn once."""
        if (line := limit.lines.get(self.name)) is None:
            line = limit.lines[self.name] = self.draw(limit)
        return line

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Return basic's capacity, and the sum at which the line meets ``share`` of epsilon."""
        sure, line = super().capacity(limit, share), self.line(limit)
        second = line.reaches(limit.epsilon * share)
        return Capacity(sure.epsilon, sure.own_delta, second, line.currency)

    def spent(self, limit: Limit, epsilon: int | None, second: int | None) -> int | None:
        """Return the smaller of the path-wise sum and the line."""
        if second is None:
            return epsilon
        along = self.line(limit).spent(second)
        return along if epsilon is None or along < epsilon else epsilon

    def per_epsilon(self, limit: Limit) -> Fraction | None:
        """Return as many units as make the line rise by one unit of epsilon: a sum that was sure
        before shifts the line by itself, and Ville's inequality starts from there.
        """
        line = self.line(limit)
        return Fraction(line.d, line.a)


class Advanced(LineFilter):
    """a S/2 + ln(1/delta')/(a-1) <= epsilon, where S is the sum of the squares of all epsilons,
    the new request's included. At the best order a it is sqrt(2 ln(1/delta') S) + S/2 <= epsilon.

    Source: Whitehouse, Ramdas, Rogers, Wu, "Fully adaptive composition in differential privacy",
    ICML 2023, Theorem 1 (Ville's inequality at one order). Preconditions: delta' > 0; each
    mechanism is (eps_i, delta_i)-DP given its past, its delta_i paid from ``own_delta``.

    The order is the one that is best when S reaches its capacity V = (sqrt(2L + 2 epsilon) -
    sqrt(2L))^2, L = ln(1/delta'): a - 1 = sqrt(2L/V), so that the line meets epsilon exactly there.
    It has to be fixed before the first charge that S counts. Converting S afresh at a moment chosen
    after seeing answers is *not* valid, be it at each step or when a limit is changed (five
    well-timed raises reach 2.2 delta'). So ``spent`` stays on the line; a changed limit that
    carries on S keeps its order; and a limit adopted on used data counts earlier use as a sure sum
    of epsilons (E counts as S = 2 E / a) and draws its line from there.
    """

    name = "advanced"
    own = Currency.EPSILON_SQUARED

    def draw(self, limit: Limit) -> Line:
        """Draw slope a/2 and intercept ln(1/delta')/(a-1), rounded up."""
        epsilon, filter_delta = limit.chosen_for
        twice, log = 2 * epsilon, balls.log(1 / filter_delta)
        # sqrt(2L/V) without cancellation: V = (2 epsilon / (sqrt(2L + 2 epsilon) + sqrt(2L)))^2
        root = balls.sqrt(2 * log)
        excess = balls.above(root * (balls.sqrt(2 * log + twice) + root) / twice)
        at_none = balls.above(balls.log(1 / limit.filter_delta)) / excess
        return Line.through(1 + excess, (1 + excess) / 2, at_none, self.own)


class ZCDP(LineFilter):
    """The sum of rho_i, converted at the order that is best when the sum reaches its capacity.

    Source: Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021,
    and Whitehouse, Ramdas, Rogers, Wu 2023, Theorem 1 (the filter); Canonne, Kamath, Steinke 2020,
    Prop. 12 (the conversion); Lyu 2022 (concurrent). Preconditions: delta' > 0; each mechanism is
    rho_i-zCDP given its past, except with a probability delta_i that ``own_delta`` pays.

    rho_i-zCDP is Renyi privacy of a rho_i at every order a, so this is the Renyi filter at one
    order, which need not be a whole number.
    """

    name = "zcdp"
    own = Currency.RHO

    def draw(self, limit: Limit) -> Line:
        """Draw slope a and intercept ln(1 - 1/a) - ln(a delta')/(a-1)."""
        order = best_order_within(*limit.chosen_for)
        at_none = intercept(order, limit.filter_delta)
        return Line.through(order, order, at_none, self.own)


class Renyi(LineFilter):
    """The sum of the Renyi divergences tau_i at one integer order a.

    Source: Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021,
    Thm 4.3; Haney et al. 2023 (concurrent, at a fixed order); Canonne, Kamath, Steinke 2020,
    Prop. 12 (the conversion). Preconditions: delta' > 0; each mechanism's divergence at order a is
    at most tau_i given its past, except with a probability delta_i that ``own_delta`` pays; and the
    order was fixed before the first charge. Taking the smallest epsilon over several orders anew
    at each request is *not* a filter (golden/counterexample: twice the delta).

    The order is the candidate with the largest admissible tau per order, tau / a, chosen from
    (epsilon, delta') alone: the best one for Gaussian noise of any size.
    """

    name = "renyi"

    def currency(self, limit: Limit) -> Currency:
        """Return tau at the order."""
        return self.line(limit).currency

    def draw(self, limit: Limit) -> Line:
        """Draw slope 1 and intercept ln(1 - 1/a) - ln(a delta')/(a-1)."""
        order = fixed_order(*limit.chosen_for)
        at_none = intercept(Fraction(order), limit.filter_delta)
        return Line.through(Fraction(order), Fraction(1), at_none, Currency.tau(order))


@lru_cache(maxsize=4096)
def fixed_order(epsilon: Fraction, filter_delta: Fraction) -> int:
    """Return the candidate a with the largest (epsilon - c(a, delta')) / a; the first of equals."""
    order: int = max(ORDERS, key=lambda a: (epsilon - intercept(Fraction(a), filter_delta)) / a)
    return order


class GDP(LineFilter):
    """The sum of mu_i^2, up to the largest mu^2 whose Gaussian curve is (epsilon, delta')-private.

    Source: Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy",
    2022; Koskela, Tobaben, Honkela, "Individual privacy accounting with Gaussian differential
    privacy", ICLR 2023; Balle and Wang 2018, Thm 8 (the curve). Preconditions: delta' > 0; each
    mechanism is mu_i-GDP given its past, except with a probability delta_i that ``own_delta`` pays.

    Below the limit no number is true at every stopping time without a price: any boundary that is
    lower than epsilon somewhere before the capacity has to be higher at it. A tenth of delta'
    therefore pays for a line (mu^2 / 2 is a rho), the rest for the capacity, and the spent epsilon
    is the smallest of the sum of epsilons, the line and the limit itself.

    The capacity is paid for once, at the limit that was chosen first: a limit that is moved after
    seeing answers would need it again (thirty well-timed raises reach 1.2 delta'). So a raised
    limit goes along the line beyond the capacity of the first.
    """

    name = "gdp"
    own = Currency.MU_SQUARED

    def draw(self, limit: Limit) -> Line:
        """Draw zCDP's line at rho = mu^2 / 2 and a tenth of delta', and the first capacity."""
        epsilon, filter_delta = limit.chosen_for
        order = best_order_within(epsilon, filter_delta * _FOR_SPENT)
        at_none = intercept(order, limit.filter_delta * _FOR_SPENT)
        line = Line.through(order, order / 2, at_none, self.own)
        if limit.filter_delta < filter_delta:
            return line
        first = units_down(most_mu_squared(epsilon, filter_delta * FOR_CAPACITY), self.own)
        return replace(line, first=first, most=units_down(epsilon, Currency.EPSILON))

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Return the capacity; for a share, and below the limit chosen first, that of the line."""
        along = super().capacity(limit, share)
        if share != 1 or along.second is None or limit.epsilon < limit.chosen_for[0]:
            return along
        return replace(along, second=max(along.second, self.line(limit).first))

    def per_epsilon(self, limit: Limit) -> None:
        """Return None: epsilon that was spent surely has no mu that adds up with later ones."""
        return


BASIC: Final = Filter()
RENYI: Final = Renyi()
FILTERS: Final[dict[str, Filter]] = {f.name: f for f in (BASIC, Advanced(), ZCDP(), RENYI, GDP())}
DEFAULT_FILTER: Final = RENYI.name


def filter_for(name: str, limit: Limit) -> Filter:
    """Return the filter called ``name``; under a limit that leaves no delta', basic."""
    return FILTERS[name] if limit.filter_delta > 0 else BASIC


def axis_under(limit: Limit) -> Axis:
    """Return the currencies of all filters under ``limit``: one Renyi order, fixed with it."""
    if limit.filter_delta <= 0:
        return SURE
    found = (each.currency(limit) for each in FILTERS.values())
    return (*SURE, *(currency for currency in found if currency is not None))
