"""Gates: privacy filters, the only rules that may admit or block.

A gate stays valid when pipelines choose every next mechanism, and when to stop, after seeing the
earlier answers. Formulas that assume a schedule fixed in advance (Dwork-Rothblum-Vadhan,
Kairouz-Oh-Viswanath, numerical PLDs, Renyi minimised over orders) are not gates and are not here.

The delta of a limit is split once, when the rule is adopted: ``own_delta`` is kept for the deltas
that mechanisms bring themselves, the rest, delta', belongs to the gate. Under that split
**"basic holds or this gate holds"** is a valid filter: the own-delta failures cost at most
``own_delta`` in all, and outside them paths that end under basic are bounded surely and those under
the gate up to delta'. A limit without a delta is basic only.

Admission compares integers: capacities are rounded down here, charges were rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Final, Protocol

from accountant.privacy.units import Currency, units_down, units_up

_WORK: Final = Context(prec=60, Emin=-(10**6), Emax=10**6)
_SLACK: Final = Fraction(1, 10**45)
"""Relative error allowed for a handful of correctly rounded 60-digit operations (true: < 1e-57)."""


@dataclass(frozen=True)
class Limit:
    """What a rule promises: (epsilon, delta), of which ``own_delta`` is kept for own deltas.

    ``order``, if given, is that of the limit whose spending this one carries on; otherwise a gate
    that has an order takes the best one for (epsilon, delta').
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    own_delta: Fraction = Fraction(0)
    order: Fraction | None = None

    @property
    def gate_delta(self) -> Fraction:
        """delta', the failure probability that the gate itself may use."""
        return self.delta - self.own_delta

    @cached_property
    def line(self) -> Line:
        """The line of the advanced gate."""
        return _line(self)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that a cell may hold, in units. ``second`` is in the gate's own currency."""

    epsilon: int
    own_delta: int
    second: int | None = None
    second_currency: Currency | None = None


class Gate(Protocol):
    """One filter. ``share`` scales the limit: 4/5 gives the capacity at which 80 % is spent."""

    name: str

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """The capacity that keeps the spent epsilon within ``share`` of the limit's."""
        ...

    def spent(self, limit: Limit, epsilon: int, second: int | None) -> int:
        """Epsilon spent, in units and rounded up: valid at every stopping time.

        ``second`` is the sum in the gate's own currency; None if it holds an infinite charge.
        """
        ...

    def order(self, limit: Limit) -> Fraction | None:
        """The order at which the gate reads its own currency; None if it has none."""
        ...

    def per_epsilon(self, limit: Limit) -> Fraction:
        """Units of the gate's own currency that stand for one unit of epsilon already spent,
        when a gate starts on data that were used before it counted.
        """
        ...


class Basic:
    """The sum of epsilons and the sum of deltas.

    Source: Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters", NeurIPS 2016 (fully
    adaptive); Vadhan and Wang 2021, Vadhan and Zhang 2023 (concurrent interactive mechanisms).
    Precondition: none beyond (epsilon_i, delta_i)-DP of each mechanism given its past.
    """

    name = "basic"

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Basic has no failure probability of its own."""
        return Capacity(
            units_down(limit.epsilon * share, Currency.EPSILON),
            units_down(limit.own_delta * share, Currency.DELTA),
        )

    def spent(self, limit: Limit, epsilon: int, second: int | None) -> int:
        """The path-wise sum."""
        return epsilon

    def order(self, limit: Limit) -> Fraction | None:
        """Basic has none."""
        return None

    def per_epsilon(self, limit: Limit) -> Fraction:
        """Basic has no currency of its own."""
        return Fraction(0)


class Advanced:
    """Fully adaptive advanced composition: a S/2 + ln(1/delta')/(a-1) <= epsilon.

    S is the sum of the squares of all epsilons, the new request's included. At the best order a
    that is sqrt(2 ln(1/delta') S) + S/2 <= epsilon.

    Source: Whitehouse, Ramdas, Rogers, Wu, "Fully adaptive composition in differential privacy",
    ICML 2023, Theorem 1. Preconditions: delta' > 0; each mechanism is (eps_i, delta_i)-DP given its
    past, its delta_i paid from ``own_delta``.

    The filter is the line that Ville's inequality gives at one order a: except with probability
    delta', at every time at once, loss <= a S/2 + ln(1/delta')/(a-1). The order is the one that is
    best when S reaches its capacity V, a - 1 = sqrt(2 ln(1/delta')/V), so that the line meets
    epsilon exactly there.

    The order has to be fixed before the first charge that S counts. Converting S afresh at a moment
    chosen after seeing answers is *not* valid, be it at each step or when a limit is changed
    (five well-timed raises reach 2.2 delta'). So ``spent`` stays on the line; a changed limit that
    carries on S keeps its order, for one line holds however often the limit on it moves; and a
    limit adopted on data already used takes what was used as a sure sum of epsilons (E counts as
    S = 2 E / a) and draws its line from there.
    """

    name = "advanced"

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """The S at which the line meets ``share`` of epsilon; at the best order and all of it
        that is V = (sqrt(2L + 2 epsilon) - sqrt(2L))^2, L = ln(1/delta').
        """
        basic = BASIC.capacity(limit, share)
        second = limit.line.most(limit.epsilon * share)
        return Capacity(basic.epsilon, basic.own_delta, second, Currency.EPSILON_SQUARED)

    def spent(self, limit: Limit, epsilon: int, second: int | None) -> int:
        """The smaller of the path-wise sum and the line at the fixed order."""
        if second is None:
            return epsilon
        return min(epsilon, limit.line.spent(second))

    def order(self, limit: Limit) -> Fraction:
        """The order of the line."""
        return limit.line.order

    def per_epsilon(self, limit: Limit) -> Fraction:
        """2 / a: then the line at E turned into S lies E above its intercept."""
        return 2 / limit.line.order * _SQUARE_PER_EPSILON


_SQUARE_PER_EPSILON: Final = Fraction(
    units_up(Fraction(1), Currency.EPSILON_SQUARED), units_up(Fraction(1), Currency.EPSILON)
)
"""Units of a square for one unit of epsilon, where both stand for the same number."""


@dataclass(frozen=True, slots=True)
class Line:
    """epsilon <= (a S + b) / d in units, with whole a, b and d."""

    order: Fraction
    a: int
    b: int
    d: int

    def spent(self, squares: int) -> int:
        """Units of epsilon at a sum of squares, rounded up."""
        return -(-(self.a * squares + self.b) // self.d)

    def most(self, epsilon: Fraction) -> int:
        """The largest sum of squares at which no more than ``epsilon`` is spent; below zero if
        even nothing is more.
        """
        return (units_down(epsilon, Currency.EPSILON) * self.d - self.b) // self.a


def _line(limit: Limit) -> Line:
    """Slope a/2 and intercept ln(1/delta')/(a-1) of the advanced gate.

    Any order a > 1 gives a valid line, so the order needs no rounding; the intercept is rounded up.
    """
    log = _log_inverse(limit.gate_delta)
    order = limit.order or _best_order(limit.epsilon, log)
    slope = order / 2 / _SQUARE_PER_EPSILON
    intercept = Fraction(log) * (1 + _SLACK) / (order - 1) * units_up(Fraction(1), Currency.EPSILON)
    d = lcm(slope.denominator, intercept.denominator)
    return Line(order=order, a=int(slope * d), b=int(intercept * d), d=d)


def _best_order(epsilon: Fraction, log: Decimal) -> Fraction:
    """1 + sqrt(2L/V), V = (2 epsilon / (sqrt(2L + 2 epsilon) + sqrt(2L)))^2, which is the form
    that does not cancel.
    """
    two_l = _WORK.multiply(Decimal(2), log)
    two_e = _WORK.multiply(Decimal(2), _decimal_down(epsilon))
    roots = _WORK.add(_WORK.sqrt(_WORK.add(two_l, two_e)), _WORK.sqrt(two_l))
    root_v = _WORK.divide(two_e, roots)
    return 1 + Fraction(_WORK.divide(_WORK.sqrt(two_l), root_v))


def _log_inverse(delta: Fraction) -> Decimal:
    """ln(1/delta) to 60 digits, for 0 < delta < 1."""
    ratio = _WORK.divide(Decimal(delta.denominator), Decimal(delta.numerator))
    return _WORK.ln(ratio)


def _decimal_down(value: Fraction) -> Decimal:
    floor = Context(prec=60, rounding=ROUND_FLOOR)
    return floor.divide(Decimal(value.numerator), Decimal(value.denominator))


BASIC: Final = Basic()
ADVANCED: Final = Advanced()
GATES: Final[dict[str, Gate]] = {gate.name: gate for gate in (BASIC, ADVANCED)}
DEFAULT_GATE: Final = "advanced"


def gate_for(name: str, limit: Limit) -> Gate:
    """The gate called ``name``; a limit that leaves no delta' is basic only."""
    return GATES[name] if limit.gate_delta > 0 else BASIC


def advanced_epsilon(epsilon_squared: Fraction, gate_delta: Fraction) -> Fraction:
    """The smallest epsilon whose advanced gate admits a sum S of squares: sqrt(2 L S) + S/2,
    L = ln(1/delta'), rounded up. For a question asked in advance; ``Advanced`` says the source.
    """
    log = Fraction(_log_inverse(gate_delta)) * (1 + _SLACK)
    product = 2 * log * epsilon_squared
    ratio = _WORK.divide(Decimal(product.numerator), Decimal(product.denominator))
    return Fraction(_WORK.sqrt(ratio)) * (1 + _SLACK) + epsilon_squared / 2
