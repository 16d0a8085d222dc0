"""What a gate is: a limit with its delta split, a capacity in whole units, a line to spend along.

Most gates are lines. A line at one fixed order a says: except with probability delta', at every
time at once, the loss is at most slope x (sum in the gate's own currency) + intercept. It holds
wherever a limit is put on it, and however often that limit moves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Protocol

from accountant.privacy.units import Currency, units_down, units_up


@dataclass(frozen=True)
class Limit:
    """What a rule promises: (epsilon, delta), of which ``own_delta`` is kept for own deltas.

    ``chosen``, if given, is the (epsilon, delta') of the limit whose spending this one carries on:
    orders are fixed before the first charge that counts, so this limit keeps that one's.
    """

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    own_delta: Fraction = Fraction(0)
    chosen: tuple[Fraction, Fraction] | None = None

    @property
    def filter_delta(self) -> Fraction:
        """delta', the failure probability that the gate itself may use."""
        return self.delta - self.own_delta

    @property
    def chosen_for(self) -> tuple[Fraction, Fraction]:
        """The (epsilon, delta') that all orders are chosen for."""
        return self.chosen or (self.epsilon, self.filter_delta)

    @cached_property
    def lines(self) -> dict[str, Line]:
        """The lines of this limit that have been drawn, by gate."""
        return {}

    @cached_property
    def currencies(self) -> dict[str, Currency]:
        """The currencies of gates under this limit that have been worked out."""
        return {}

    @cached_property
    def firsts(self) -> dict[str, int]:
        """What gates allowed under the limit that was chosen first, where they need it."""
        return {}

    @cached_property
    def shares(self) -> dict[tuple[str, str], Capacity]:
        """The capacities at a share of this limit that have been worked out, by gate."""
        return {}


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most that a cell may hold, in units. ``second`` is in the gate's own currency."""

    epsilon: int
    own_delta: int
    second: int | None = None
    second_currency: Currency | None = None


class Filter(Protocol):
    """One filter. ``share`` scales the limit: 4/5 gives the capacity at which 80 % is spent."""

    name: str

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """The capacity that keeps the spent epsilon within ``share`` of the limit's."""
        ...

    def currency(self, limit: Limit) -> Currency | None:
        """The gate's own currency under ``limit``; None if it has none."""
        ...

    def spent(self, limit: Limit, epsilon: int | None, second: int | None) -> int | None:
        """Epsilon spent, in units and rounded up: valid at every stopping time.

        ``epsilon`` and ``second`` are the sums of epsilons and in the gate's own currency, None if
        there is an infinite charge in them; so is what is returned.
        """
        ...

    def spent_each(
        self, limit: Limit, epsilons: Sequence[int], seconds: Sequence[int]
    ) -> list[int]:
        """``spent`` at many sums, all finite, in a fifth of the time. A gate without a currency of
        its own looks at no ``seconds``.
        """
        ...

    def per_epsilon(self, limit: Limit) -> Fraction | None:
        """Units of the gate's own currency that stand for one unit of epsilon already spent, when
        a gate starts on data that were used before it counted; None if nothing can.
        """
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """epsilon <= (a S + b) / d in units, with whole a, b and d; ``order`` is where it is drawn."""

    order: Fraction
    a: int
    b: int
    d: int

    @classmethod
    def through(
        cls, order: Fraction, slope: Fraction, intercept: Fraction, currency: Currency
    ) -> Line:
        """``slope`` epsilon for each 1 of ``currency``, and ``intercept`` epsilon at none."""
        one = units_up(Fraction(1), Currency.EPSILON)
        slope, intercept = slope * one / currency.per_one, intercept * one
        d = lcm(slope.denominator, intercept.denominator)
        return cls(order=order, a=int(slope * d), b=int(intercept * d), d=d)

    def spent(self, second: int) -> int:
        """Units of epsilon at a sum of ``second``, rounded up."""
        units = -(-(self.a * second + self.b) // self.d)
        return units if units > 0 else 0

    def spent_each(self, seconds: Iterable[int]) -> list[int]:
        """``spent`` at each of many sums."""
        a, b, d = self.a, self.b, self.d
        return [u if (u := -(-(a * second + b) // d)) > 0 else 0 for second in seconds]

    def most(self, epsilon: Fraction) -> int:
        """The largest sum at which no more than ``epsilon`` is spent; below zero if even nothing
        is more.
        """
        return (units_down(epsilon, Currency.EPSILON) * self.d - self.b) // self.a


class LineFilter(ABC):
    """A gate that admits up to where its line meets epsilon."""

    name: str

    @abstractmethod
    def currency(self, limit: Limit) -> Currency:
        """What the line runs along."""

    @abstractmethod
    def draw(self, limit: Limit) -> Line:
        """The line of ``limit``, at the order chosen for ``limit.chosen_for``."""

    def line(self, limit: Limit) -> Line:
        """``draw``, once."""
        if (line := limit.lines.get(self.name)) is None:
            line = limit.lines[self.name] = self.draw(limit)
        return line

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Basic's, and the sum at which the line meets ``share`` of epsilon."""
        sure = sure_capacity(limit, share)
        second = self.line(limit).most(limit.epsilon * share)
        return Capacity(sure.epsilon, sure.own_delta, second, self.currency(limit))

    def spent(self, limit: Limit, epsilon: int | None, second: int | None) -> int | None:
        """The smaller of the path-wise sum and the line."""
        if second is None:
            return epsilon
        along = self.line(limit).spent(second)
        return along if epsilon is None or along < epsilon else epsilon

    def spent_each(
        self, limit: Limit, epsilons: Sequence[int], seconds: Sequence[int]
    ) -> list[int]:
        """``spent`` at each of many sums."""
        each = zip(epsilons, self.line(limit).spent_each(seconds), strict=True)
        return [along if along < epsilon else epsilon for epsilon, along in each]

    def per_epsilon(self, limit: Limit) -> Fraction | None:
        """As many as make the line rise by one unit of epsilon: what was a sure sum before then
        shifts the line by itself, and Ville's inequality starts from there.
        """
        line = self.line(limit)
        return Fraction(line.d, line.a)


def sure_capacity(limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
    """The sums of epsilons and of own deltas that ``share`` of a limit allows."""
    return Capacity(
        units_down(limit.epsilon * share, Currency.EPSILON),
        units_down(limit.own_delta * share, Currency.DELTA),
    )
