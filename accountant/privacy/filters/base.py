"""Privacy filters: a limit with its delta split, a capacity in whole units, a line to spend along.

Most filters are lines. A line at one fixed order a says: except with probability delta', at every
time at once, the loss is at most slope x (sum in the filter's own currency) + intercept. It holds
wherever a limit is put on it, and however often that limit moves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import ClassVar

from accountant.privacy.units import Currency, units_down


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
    """A composition that stays valid when every next mechanism, and when to stop, is chosen after
    earlier answers were seen.

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
    def through(
        cls, order: Fraction, slope: Fraction, intercept: Fraction, currency: Currency
    ) -> Line:
        """Draw a line of ``slope`` epsilon for each 1 of ``currency``, from ``intercept`` on."""
        one = Currency.EPSILON.per_one
        slope, intercept = slope * one / currency.per_one, intercept * one
        d = lcm(slope.denominator, intercept.denominator)
        return cls(order, currency, a=int(slope * d), b=int(intercept * d), d=d)

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
