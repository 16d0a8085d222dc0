"""Local randomisation as steps: each person's report is randomised on its own.

One draw of such a step is one report from each of ``people``, and costs each of them one
invocation, whoever sees the reports. Only an exchange of one answer for another is hidden: the
report itself shows that somebody took part (replace one).

A report counts for some categories. It counts for the true one with probability ``hit`` and for
each other one with probability ``miss``; so with R reports for a category out of n, (R - n miss) /
(hit - miss) is an unbiased estimate of how many have it (Warner 1965; Wang, Blocki, Li, Jha 2017,
whose name for such schemes is "pure").
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount, exact
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries import bits
from accountant.queries.exact import number, positive
from accountant.queries.steps import Draw, Step

Places = NDArray[np.int64]
"""The place of each person's answer in the list of categories; -1 for none of them."""
MOST_CELLS: Final = 2**32
_PLACES: Final = 10**30
_DIGITS: Final = 60
_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """How many of ``people`` gave an answer, estimated without bias from their reports. It may be
    less than 0 or more than ``people``: cutting it off would add a bias.
    """

    count: float
    standard_error: float
    """The root of the variance that the coins add, with the estimate in place of the truth."""
    people: int

    @property
    def share(self) -> float:
        """The same as a share of the people."""
        return self.count / self.people

    @property
    def share_error(self) -> float:
        """The standard error of the share."""
        return self.standard_error / self.people


@dataclass(frozen=True, kw_only=True)
class Reports(Step):
    """One report from each of ``people`` about one of so many ``categories``."""

    sensitivity: Fraction = field(default=Fraction(1), init=False)
    """One answer is exchanged for another."""
    scale: Fraction = field(default=Fraction(1), init=False)
    """Unused: ``hit`` and ``miss`` say how noisy a report is."""
    categories: int
    people: int = 1

    @property
    @abstractmethod
    def hit(self) -> Fraction:
        """The probability that a report counts for the true category."""

    @property
    @abstractmethod
    def miss(self) -> Fraction:
        """The probability that it counts for one that is not true."""

    @abstractmethod
    def counts(self, reports: NDArray[Any]) -> list[int]:
        """Return how many reports count for each category."""

    def estimates(self, reports: NDArray[Any]) -> list[Estimate]:
        """Return the estimate for each category."""
        return [self._estimate(count) for count in self.counts(reports)]

    def _estimate(self, count: int) -> Estimate:
        apart = float(self.hit - self.miss)
        found = float((count - self.people * self.miss) / (self.hit - self.miss))
        variance = self.variance(min(max(found, 0.0), float(self.people)))
        return Estimate(found, math.sqrt(variance) / abs(apart), self.people)

    def variance(self, count: float) -> float:
        """Return the variance of the number of reports for a category that ``count`` people have.
        The reports are independent, given the answers.
        """
        hit, miss = float(self.hit), float(self.miss)
        return count * hit * (1 - hit) + (self.people - count) * miss * (1 - miss)

    def within(self, beta: float) -> float:
        """Return how far off all estimates stay, in people, except with probability ``beta``,
        whatever the answers are.
        """
        worst = max(self.variance(0.0), self.variance(float(self.people)))
        return self._reach(worst, beta)

    def within_of(self, reports: NDArray[Any], beta: float) -> float:
        """Return the same for these reports. Where the true numbers can be, the variance is bounded
        by that at the ends; and with that variance they can only be in a smaller range.
        """
        return max(self._around(each.count, beta) for each in self.estimates(reports))

    def _around(self, count: float, beta: float) -> float:
        reach = self.within(beta)
        for _ in range(_ROUNDS):
            ends = [
                min(max(end, 0.0), float(self.people)) for end in (count - reach, count + reach)
            ]
            reach = min(reach, self._reach(max(map(self.variance, ends)), beta))
        return reach

    def _reach(self, variance: float, beta: float) -> float:
        """Return a bound on the error of one estimate, given its reports' variance: the smaller of
        those of Hoeffding (1963) and Bernstein for sums of bits, for each category at beta /
        categories.
        """
        log = math.log(2 * self.categories / beta)
        hoeffding = math.sqrt(self.people * log / 2)
        bernstein = log / 3 + math.sqrt((log / 3) ** 2 + 2 * variance * log)
        return min(hoeffding, bernstein) / abs(float(self.hit - self.miss))

    def _checked(self, value: Any, least: int) -> Places:
        places = np.asarray(value)
        if places.shape != (self.people,) or places.dtype.kind not in "iu":
            raise ValueError(f"a step on the answers of {self.people} people got {places.shape}")
        if len(places) and not least <= places.min() <= places.max() < self.categories:
            raise ValueError(f"an answer is none of the {self.categories} categories")
        return places.astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(Reports):
    """A report is one category: the true one with probability ``theta``, else any of the others,
    all alike (Warner 1965; Kairouz, Oh, Viswanath 2016). epsilon = |ln(theta (k - 1) / (1 -
    theta))| for k categories.

    ``truth``: how it was stated, if as two coins: the truth with this probability, else any
    category, which may hit the truth.
    """

    kind: ClassVar[str] = "randomized_response"

    theta: Fraction
    truth: Fraction | None = None

    @classmethod
    def of(
        cls,
        categories: int,
        people: int = 1,
        *,
        theta: Amount | None = None,
        truth_probability: Amount | None = None,
        epsilon: Amount | None = None,
    ) -> RandomizedResponse:
        """Return the step that is stated by one of these: ``theta``, the two coins, or ``epsilon``,
        which is not exceeded. Raise ValueError for others, and where the reports say nothing.
        """
        given = [each for each in (theta, truth_probability, epsilon) if each is not None]
        if len(given) != 1:
            raise ValueError("give one of theta, truth_probability and epsilon")
        if categories < 2:
            raise ValueError("a response is one of at least two categories")
        truth = None
        if epsilon is not None:
            power = _power_below(positive("epsilon", epsilon))
            share = power / (power + categories - 1)
            stated = Fraction(math.floor(share * _PLACES), _PLACES)
        elif theta is not None:
            stated = probability("theta", theta)
        else:
            truth = probability("truth_probability", truth_probability)
            stated = truth + (1 - truth) / categories
        if stated * categories == 1:
            raise ValueError(
                f"with theta 1/{categories} every category is as likely whatever the truth is: the "
                "reports would say nothing"
            )
        return cls(categories=categories, people=people, theta=stated, truth=truth)

    @property
    def hit(self) -> Fraction:
        """The probability that a report is true."""
        return self.theta

    @property
    def miss(self) -> Fraction:
        """The probability that it is a given other category."""
        return (1 - self.theta) / (self.categories - 1)

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        theta = self.theta if self.truth is None else None
        coins = {"theta": theta, "truth_probability": self.truth}
        return mechanism(self.kind, **coins, categories=self.categories)

    def ready(self, value: Any) -> Draw:
        """Return the draw of a report for each place; each place has to be a category."""
        places = self._checked(value, 0)

        def draw() -> Places:
            others = bits.below(self.categories - 1, len(places))
            others += others >= places
            return np.where(bits.coins(self.theta, len(places)), places, others)

        return draw

    def counts(self, reports: NDArray[Any]) -> list[int]:
        """Return how many reports name each category."""
        found: list[int] = np.bincount(reports, minlength=self.categories).tolist()
        return found


@dataclass(frozen=True, kw_only=True)
class UnaryEncoding(Reports):
    """A report is one bit a category: 1 with probability ``p`` if it is the true one, else ``q``.

    Two answers differ in two bits, hence epsilon = ln(p (1 - q) / ((1 - p) q)) (Wang, Blocki, Li,
    Jha 2017). Somebody who has none of the categories reports bits that are all drawn with ``q``,
    which differ from another's in one.
    """

    kind: ClassVar[str] = "unary_encoding"

    p: Fraction
    q: Fraction

    @classmethod
    def of(
        cls,
        categories: int,
        people: int = 1,
        *,
        p: Amount | None = None,
        q: Amount | None = None,
        epsilon: Amount | None = None,
    ) -> UnaryEncoding:
        """Return the step that is stated by ``p`` and ``q``, or by ``epsilon``, which is not
        exceeded: then p = 1/2 and q = 1 / (e^epsilon + 1), the "optimised" encoding, whose
        estimates have the least variance where few people have a category (Wang et al. 2017).
        """
        if (epsilon is None) == (p is None) or (p is None) != (q is None):
            raise ValueError("give either epsilon, or both p and q")
        if categories < 1:
            raise ValueError("an encoding has at least one category")
        if people * categories > MOST_CELLS:
            raise ValueError(
                f"{people} reports of {categories} bits are more than 2^32 bits: collect from "
                "fewer at once, by a dimension, or take fewer categories"
            )
        if epsilon is not None:
            power = _power_below(positive("epsilon", epsilon))
            high, low = Fraction(1, 2), Fraction(math.ceil(_PLACES / (power + 1)), _PLACES)
        else:
            high, low = probability("p", p), probability("q", q)
        if low >= high:
            raise ValueError(
                f"q = {float(low)} has to be less than p = {float(high)}: a bit has to be more "
                "likely where it is true"
            )
        return cls(categories=categories, people=people, p=high, q=low)

    @property
    def hit(self) -> Fraction:
        """The probability of a 1 at the true category."""
        return self.p

    @property
    def miss(self) -> Fraction:
        """The probability of a 1 at another."""
        return self.q

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        return mechanism(self.kind, p=self.p, q=self.q)

    def ready(self, value: Any) -> Draw:
        """Return the draw of a row of bits for each place; -1 is none of the categories."""
        places = self._checked(value, -1)
        there = np.flatnonzero(places >= 0)
        true = places[there] * self.people + there  # all bits of a category lie side by side

        def draw() -> bits.Bits:
            flat = bits.coins(self.q, self.categories * self.people)
            flat[true] = bits.coins(self.p, len(true))
            return flat.reshape(self.categories, self.people).T

        return draw

    def counts(self, reports: NDArray[Any]) -> list[int]:
        """Return how many reports have a 1 at each category."""
        return [int(np.count_nonzero(column)) for column in reports.T]


def survey_coins(truth: Amount, yes: Amount, no: Amount) -> Fraction:
    """Return the ``truth_probability`` of a survey design for two answers: with probability
    ``truth`` a person answers truly, with ``yes`` says yes whatever is true, with ``no`` says no.

    Raise ValueError for a forced response, where one of the answers is never forced, and where the
    two are not forced alike.
    """
    given = [Fraction(exact(each)) for each in (truth, yes, no)]
    if min(given) < 0 or sum(given) != 1:
        raise ValueError(f"truth, yes and no are probabilities that add up to 1, not {sum(given)}")
    honest, forced_yes, forced_no = given
    for name, other, forced in (("no", "yes", forced_no), ("yes", "no", forced_yes)):
        if not forced and honest:
            raise ValueError(
                f"this is a forced response: nobody says {name} unless it is true, so a {name} "
                f"proves the truth. P({name}) is {float(honest + forced)} where it is true and 0 "
                "where it is not; no epsilon bounds their ratio, whatever the coin, and nothing is "
                f"hidden from who sees a {name}. Let tails pick {other} or {name} by a second "
                "coin: truth 0.5, yes 0.25, no 0.25 costs ln 3"
            )
    if forced_yes != forced_no:
        raise ValueError(
            "yes and no have to be forced alike, so that the design is randomized response: take "
            f"{float((forced_yes + forced_no) / 2)} for each"
        )
    return honest


def probability(name: str, value: Amount) -> Fraction:
    """Return a probability between 0 and 1 as it is sent: a decimal of at most 40 digits. Raise
    ValueError for others.
    """
    found = number(name, value)
    if not 0 < found < 1:
        raise ValueError(f"{name} is a probability between 0 and 1, not {value}")
    try:
        return Fraction(exact(found))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _power_below(epsilon: Fraction) -> Fraction:
    """Return a fraction below e^epsilon; Decimal's exp is rounded correctly. Beyond e^100 nothing
    is hidden any more, and e^100 is below it too.
    """
    epsilon = min(epsilon, Fraction(100))
    context = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    exponent = context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    return Fraction(context.next_minus(context.exp(exponent)))
