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

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import lcm
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from accountant.privacy import balls
from accountant.privacy.conversions import best_order_within, intercept, most_mu_squared
from accountant.privacy.curves import Order, Orders
from accountant.privacy.units import LARGEST, SURE, Axis, Currency, units_down

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ORDERS: Final[Orders] = (
    *(1 + Fraction(step, 8 << p) for p in range(16, 0, -1) for step in range(8, 16)),
    *range(2, 65),
    *(step << p for p in range(3, 11) for step in range(9, 17)),
)
"""The candidates: eight to each doubling of a - 1 below order 2, every integer to 64, then eight to
each doubling, to 16,384."""
_ERROR: Final = 1e-8  # Of a float beside the terms that it is the sum of; some 1e-10 at the first
FLAT: Final = Fraction(7, 10)  # The part of delta' for the first of two orders
_STEEP: Final = Fraction(13, 20)  # The second order as a part of the first
_FOR_SPENT: Final = Fraction(1, 10)  # The part of delta' for the line of the spent epsilon
FOR_CAPACITY: Final = 1 - _FOR_SPENT  # The part of delta' for the capacity


@dataclass(frozen=True)
class Limit:
    """The promise of a rule: (epsilon, delta), of which ``own_delta`` is kept for own deltas.

    ``chosen``, if given, is the (epsilon, delta') of the limit whose spending this one carries on:
    orders are fixed before the first charge that counts, so this limit keeps that one's. ``orders``
    are the Renyi orders that a policy states; without any they are chosen too.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    own_delta: Fraction = Fraction(0)
    chosen: tuple[Fraction, Fraction] | None = None
    orders: Orders = ()

    lines: dict[str, tuple[Line, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The lines of each filter that has drawn them, by its name."""
    shares: dict[tuple[str, str], Capacity] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """Capacities at a share of this limit."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Found once, as a fraction's takes a microsecond; of numbers, so that it holds in every
        process.
        """
        return hash((self.epsilon, self.delta, self.own_delta, self.orders))

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
    """The most that a cell may hold, in units. A charge fits if its own delta does, and its epsilon
    or one of its sums ``along`` the filter's lines, in their ``currencies``.
    """

    epsilon: int
    own_delta: int
    along: tuple[int, ...] = ()
    currencies: Axis = ()

    @property
    def sides(self) -> list[tuple[Currency, int]]:
        """The currencies that are compared, with the most that a cell may hold."""
        own = (Currency.EPSILON, self.epsilon), (Currency.DELTA, self.own_delta)
        return [*own, *zip(self.currencies, self.along, strict=True)]


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

    def lines(self, limit: Limit) -> tuple[Line, ...]:
        """Return the filter's lines under ``limit``."""
        return ()

    def currencies(self, limit: Limit) -> Axis:
        """Return the currencies of the filter's lines under ``limit``."""
        return tuple([line.currency for line in self.lines(limit)])

    def spent(self, limit: Limit, epsilon: int | None, along: Sequence[int | None]) -> int | None:
        """Return the epsilon spent, in units and rounded up: valid at every stopping time.

        ``epsilon`` and ``along`` are the sums of epsilons and in the currencies of the lines. None,
        also as the result, stands for a sum with an infinite charge in it.
        """
        return epsilon

    def roughly(
        self, limit: Limit, epsilon: Integers, along: Sequence[Integers]
    ) -> tuple[Floats, float]:
        """Return ``spent`` of many cells in floats, and how far any may be from the truth. A sum
        above ``LARGEST`` stands for one with an infinite charge; with no other to go by it is the
        result.
        """
        return (found := epsilon.astype(np.float64)), _slack(found)

    def per_epsilon(self, line: Line) -> Fraction | None:
        """Return the units along a line that stand for one unit of epsilon already spent, when the
        filter starts on data that were used before; None if nothing can.
        """
        return None


@dataclass(frozen=True, slots=True)
class Line:
    """epsilon <= (a S + b) / d in units of ``currency``, with whole a, b and d; ``order`` is where
    it is drawn. Up to a sum of ``first`` epsilon is at most ``most`` as well.
    """

    order: Order
    currency: Currency
    a: int
    b: int
    d: int
    first: int = -1
    most: int = 0

    @classmethod
    def through(cls, order: Order, slope: Fraction, start: Fraction, currency: Currency) -> Line:
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

    def roughly(self, second: Integers) -> Floats:
        """Return ``spent`` of many sums in floats; infinity above ``LARGEST``."""
        units: Floats = np.maximum(np.ceil(second * (self.a / self.d) + self.b / self.d), 0.0)
        if self.first >= 0:
            units = np.where(second <= self.first, np.minimum(units, self.most), units)
        return np.where(second > LARGEST, np.inf, units)

    def reaches(self, epsilon: Fraction) -> int:
        """Return the largest sum at which the line is at most ``epsilon``; if none, below zero."""
        return (units_down(epsilon, Currency.EPSILON) * self.d - self.b) // self.a


def _slack(found: Floats, *starts: float) -> float:
    """Return what floats may be wrong by, where lines begin at ``starts``: some roundings, and two
    units.
    """
    return 2 + (float(found.max()) + max(map(abs, starts), default=0.0)) * 2**-40


class LineFilter(Filter, ABC):
    """A filter that admits up to where one of its lines meets epsilon.

    Several lines share delta' between them (a union bound): all of them hold at all times at once,
    so that the lowest counts at every moment.
    """

    own: ClassVar[Currency]  # The line runs along it, if along the same under every limit

    @abstractmethod
    def draw(self, limit: Limit) -> tuple[Line, ...]:
        """Draw the lines of ``limit``, at the orders chosen for ``limit.chosen_for``."""

    def lines(self, limit: Limit) -> tuple[Line, ...]:
        """Return the lines of ``limit``, drawn once, as those of its equals are."""
        if (lines := limit.lines.get(self.name)) is None:
            lines = limit.lines[self.name] = _drawn(self, limit)
        return lines

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Return basic's capacity, and the sums at which the lines meet ``share`` of epsilon."""
        sure, epsilon = super().capacity(limit, share), limit.epsilon * share
        along = tuple([line.reaches(epsilon) for line in self.lines(limit)])
        return Capacity(sure.epsilon, sure.own_delta, along, self.currencies(limit))

    def spent(self, limit: Limit, epsilon: int | None, along: Sequence[int | None]) -> int | None:
        """Return the smallest of the path-wise sum and the lines."""
        least = epsilon
        for line, second in zip(self.lines(limit), along, strict=True):
            if second is not None:
                units = line.spent(second)
                least = units if least is None or units < least else least
        return least

    def roughly(
        self, limit: Limit, epsilon: Integers, along: Sequence[Integers]
    ) -> tuple[Floats, float]:
        """Return the smallest of the path-wise sum and the lines, in floats."""
        lines = self.lines(limit)
        least: Floats = np.where(epsilon > LARGEST, np.inf, epsilon)
        for line, second in zip(lines, along, strict=True):
            least = np.minimum(least, line.roughly(second))
        found: Floats = np.where(np.isinf(least), epsilon, least)
        return found, _slack(found, *(line.b / line.d for line in lines))

    def per_epsilon(self, line: Line) -> Fraction | None:
        """Return as many units as make the line rise by one unit of epsilon: a sum that was sure
        before shifts the line by itself, and Ville's inequality starts from there.
        """
        return Fraction(line.d, line.a)


@lru_cache(maxsize=1024)
def _drawn(gate: LineFilter, limit: Limit) -> tuple[Line, ...]:
    return gate.draw(limit)


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

    def draw(self, limit: Limit) -> tuple[Line, ...]:
        """Draw slope a/2 and intercept ln(1/delta')/(a-1), rounded up."""
        epsilon, filter_delta = limit.chosen_for
        twice, log = 2 * epsilon, balls.log(1 / filter_delta)
        # sqrt(2L/V) without cancellation: V = (2 epsilon / (sqrt(2L + 2 epsilon) + sqrt(2L)))^2
        root = balls.sqrt(2 * log)
        excess = balls.above(root * (balls.sqrt(2 * log + twice) + root) / twice)
        at_none = balls.above(balls.log(1 / limit.filter_delta)) / excess
        return (Line.through(1 + excess, (1 + excess) / 2, at_none, self.own),)


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

    def draw(self, limit: Limit) -> tuple[Line, ...]:
        """Draw slope a and intercept ln(1 - 1/a) - ln(a delta')/(a-1)."""
        order = best_order_within(*limit.chosen_for)
        at_none = intercept(order, limit.filter_delta)
        return (Line.through(order, order, at_none, self.own),)


class Renyi(LineFilter):
    """The sum of the Renyi divergences tau_i at one order a, or at a few orders.

    Source: Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021,
    Thm 4.3; Haney et al. 2023 (concurrent, at a fixed order); Canonne, Kamath, Steinke 2020,
    Prop. 12 (the conversion). Preconditions: delta' > 0; each mechanism's divergence at order a is
    at most tau_i given its past, except with a probability delta_i that ``own_delta`` pays; and the
    orders, with the part of delta' that each gets, were fixed before the first charge. Then every
    line holds at all times but for its part of delta', so that the lowest of them counts. Taking
    the smallest epsilon over orders that share one delta' is *not* a filter (golden/counterexample:
    twice the delta).

    Orders that a policy states get equal parts. Without any there are two, chosen from (epsilon,
    delta') alone. The first is the candidate with the largest admissible tau per order, tau / a:
    the best one for Gaussian noise of any size. There the divergence of Gaussian noise on a small
    sample is a hundred times that at a slightly lower order; so a second one, lower by a third, has
    the rest of delta' (docs/adr/0025).
    """

    name = "renyi"

    def draw(self, limit: Limit) -> tuple[Line, ...]:
        """Draw slope 1 and intercept ln(1 - 1/a) - ln(a delta')/(a-1) for each order."""
        return tuple(self.at(order, limit, part) for order, part in parts_of(limit))

    @staticmethod
    def at(order: Order, limit: Limit, part: Fraction) -> Line:
        """Draw the line at one order with a ``part`` of delta'."""
        at_none = intercept(Fraction(order), limit.filter_delta * part)
        return Line.through(order, Fraction(1), at_none, Currency.tau(order))


def parts_of(limit: Limit) -> tuple[tuple[Order, Fraction], ...]:
    """Return the Renyi orders of ``limit``, and the part of delta' that each gets."""
    if limit.orders:
        return tuple((order, Fraction(1, len(limit.orders))) for order in limit.orders)
    return _parts_for(*limit.chosen_for)


@lru_cache(maxsize=4096)
def _parts_for(epsilon: Fraction, filter_delta: Fraction) -> tuple[tuple[Order, Fraction], ...]:
    first = fixed_order(epsilon, filter_delta * FLAT)
    second = round(first * _STEEP)
    if second < 2:
        return ((fixed_order(epsilon, filter_delta), Fraction(1)),)
    return (first, FLAT), (second, 1 - FLAT)


@lru_cache(maxsize=4096)
def fixed_order(epsilon: Fraction, filter_delta: Fraction) -> Order:
    """Return the candidate a with the largest (epsilon - c(a, delta')) / a; the first of equals.

    Floats leave out the candidates that are smaller by far more than floats err.
    """
    log = math.log(filter_delta.numerator) - math.log(filter_delta.denominator)
    orders = np.array(ORDERS, dtype=np.float64)
    at_none = np.log1p(-1 / orders) - (np.log(orders) + log) / (orders - 1)
    about = (float(epsilon) - at_none) / orders
    error = _ERROR * (float(epsilon) + 1 + abs(at_none)) / orders
    likely = np.flatnonzero(about + error >= (about - error).max())
    return max(
        [ORDERS[place] for place in likely],
        key=lambda a: (epsilon - intercept(Fraction(a), filter_delta)) / a,
    )


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

    def draw(self, limit: Limit) -> tuple[Line, ...]:
        """Draw zCDP's line at rho = mu^2 / 2 and a tenth of delta', and the first capacity."""
        epsilon, filter_delta = limit.chosen_for
        order = best_order_within(epsilon, filter_delta * _FOR_SPENT)
        at_none = intercept(order, limit.filter_delta * _FOR_SPENT)
        line = Line.through(order, order / 2, at_none, self.own)
        if limit.filter_delta < filter_delta:
            return (line,)
        first = units_down(most_mu_squared(epsilon, filter_delta * FOR_CAPACITY), self.own)
        return (replace(line, first=first, most=units_down(epsilon, Currency.EPSILON)),)

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Return the capacity; for a share, and below the limit chosen first, that of the line."""
        found = super().capacity(limit, share)
        if share != 1 or limit.epsilon < limit.chosen_for[0]:
            return found
        [line], [along] = self.lines(limit), found.along
        return replace(found, along=(max(along, line.first),))

    def per_epsilon(self, line: Line) -> None:
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
    """Return the currencies of all filters under ``limit``, its Renyi orders too."""
    if limit.filter_delta <= 0:
        return SURE
    found = (currency for each in FILTERS.values() for currency in each.currencies(limit))
    return (*SURE, *found)
