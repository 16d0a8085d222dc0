"""Steps that choose: the exponential mechanism over a list, and over the points of a line.

Both draw with probabilities in exact proportion to e^(score / scale), and cost epsilon = 2
sensitivity / scale (McSherry and Talwar 2007), half of that for monotonic scores.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries import samplers
from accountant.queries.exact import decimal_above, float_above
from accountant.queries.steps import Draw, Step

_BITS: Final = 64
_DIGITS: Final = 30
_SLACK: Final = 1 + 2.0**-20
"""Over the error of weights in floats, which is below 2^-40 (see ``Weights``)."""
_FULL: Final = 2.0**60


@dataclass(frozen=True)
class Choice(Step):
    """A choice among ``outcomes`` by their scores."""

    kind: ClassVar[str] = "exponential"

    outcomes: int = 1
    monotonic: bool = False

    def within(self, beta: float) -> float:
        """Return by how much the chosen score may fall short of the best one: each of N outcomes
        that is t short has at most e^(-t/scale) times the probability of the best one, so scale *
        ln(N / beta) (McSherry and Talwar 2007; Dwork and Roth 2014, Theorem 3.11).
        """
        return float(self.scale) * math.log(self.outcomes / beta)

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        return mechanism(
            self.kind,
            sensitivity=decimal_above(self.sensitivity),
            scale=self.scale,
            monotonic=self.monotonic or None,
            neighbouring=self.neighbouring,
            sampler=self.sampled_by,
        )

    @property
    def sampled_by(self) -> dict[str, str] | None:
        """The software that draws."""
        return None

    @classmethod
    def scale_costing(
        cls, epsilon: Fraction, sensitivity: Fraction, *, monotonic: bool
    ) -> Fraction:
        """Return the scale at which a choice costs at most ``epsilon``."""
        return decimal_above((1 if monotonic else 2) * decimal_above(sensitivity) / epsilon)


@dataclass(frozen=True)
class Exponential(Choice):
    """One place of a list of scores, which OpenDP draws. The scores are floats, taken as they are;
    the scale is the least float at or above the stated one.
    """

    @property
    def sampled_by(self) -> dict[str, str] | None:
        """The software that draws."""
        return samplers.library()

    @property
    def drawn(self) -> float:
        """The scale that OpenDP is given."""
        return float_above(self.scale)

    def ready(self, value: Sequence[float]) -> Draw:
        """Return the draw of a place in a list of finite scores."""
        scores = [float(score) for score in value]
        if len(scores) != self.outcomes:
            raise ValueError(f"a choice among {self.outcomes} got {len(scores)} scores")
        if not np.isfinite(scores).all():
            raise ValueError("a score is not a finite number: scores have to be")
        chooser = samplers.exponential(self.drawn)
        return lambda: chooser(scores)


@dataclass(frozen=True)
class Line:
    """The points 0 .. N - 1 of a line, cut into runs of equal score: ``lengths`` of the runs from
    left to right, and by how much the score of each falls ``short`` of 0, in whole ``parts`` of 1.
    """

    lengths: NDArray[np.int64]
    short: NDArray[np.int64]
    parts: int = 1


@dataclass(frozen=True)
class OnLine(Choice):
    """One point of a line with up to 2^32 of them, by scores that are equal on long runs.

    No library samples this one. A run is proposed by whole-number weights that are at least C times
    its true weight, length * e^(score/scale), and taken with probability C * true / proposed; else
    all begins anew. So the runs are drawn in exact proportion to their true weights, whatever error
    is in the floats from which the proposal was made; they only decide how often it begins anew. A
    point within the run is uniform. Both uniform draws are whole numbers from the operating system
    (``secrets``), and the comparison with e^(score/scale) takes as many bits and digits as it needs
    (``below``). The scale is a fraction, so the stated one is the drawn one.
    """

    def ready(self, value: Line) -> Draw:
        """Return the draw of a point of the line."""
        if int(value.lengths.sum()) != self.outcomes:
            raise ValueError(f"a line of {self.outcomes} points got {value.lengths.sum()}")
        weights = Weights.of(value, self.scale)
        begins = np.cumsum(value.lengths) - value.lengths

        def draw() -> int:
            run = weights.draw()
            return int(begins[run]) + secrets.randbelow(int(value.lengths[run]))

        return draw


@dataclass(frozen=True)
class Weights:
    """Whole-number weights of runs, each at least ``factor`` times its true weight.

    The floats from which they are made are off by less than 2^-40 of themselves: an exponent x <=
    700 has an error of at most 2^-52 x, and NumPy's exp and product a few units in the last place.
    Where x is larger the true weight times the factor is below 1, which is the least that a run
    gets. ``draw`` checks the inequality for every run that it proposes.
    """

    line: Line
    scale: Fraction
    upto: NDArray[np.int64]
    factor: Fraction

    @classmethod
    def of(cls, line: Line, scale: Fraction) -> Weights:
        """Return the weights of a line's runs. Only differences of scores count: the best is 0."""
        line = replace(line, short=line.short - line.short.min())
        floats = line.lengths * np.exp(-line.short * float(1 / (line.parts * scale)))
        factor = _FULL / float(floats.sum())
        proposed = np.maximum(np.ceil(floats * (factor * _SLACK)), 1).astype(np.int64)
        return cls(line, scale, np.cumsum(proposed), Fraction(factor))

    def draw(self) -> int:
        """Return the number of a run, drawn with exactly its probability: by proposals, each of
        which is taken or drawn again.
        """
        while True:
            place = secrets.randbelow(int(self.upto[-1]))
            run = int(np.searchsorted(self.upto, place, side="right"))
            proposed = int(self.upto[run]) - (int(self.upto[run - 1]) if run else 0)
            if below(*self.true(run, proposed)):
                return run

    def true(self, run: int, proposed: int) -> tuple[Fraction, Fraction]:
        """Return (c, x), where c * e^-x is the true weight of a run beside the proposed one."""
        exponent = Fraction(int(self.line.short[run]), self.line.parts) / self.scale
        return self.factor * int(self.line.lengths[run]) / proposed, exponent


def below(
    ceiling: Fraction, exponent: Fraction, bits: Callable[[int], int] = secrets.randbits
) -> bool:
    """Return True with probability ceiling * e^-exponent, exactly. Raise ArithmeticError if that is
    more than 1.

    A uniform number is revealed bit by bit, beside ever closer bounds of the product, until it is
    on one side of them.
    """
    places, digits, uniform = _BITS, _DIGITS, bits(_BITS)
    while True:
        low, high = _bounds(ceiling, exponent, digits)
        if low > 1:
            raise ArithmeticError("a proposed weight is below the true one")
        if Fraction(uniform + 1, 2**places) <= low:
            return True
        if Fraction(uniform, 2**places) >= high:
            return False
        uniform = uniform << _BITS | bits(_BITS)
        places, digits = places + _BITS, digits + _DIGITS


def _bounds(ceiling: Fraction, exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return bounds of ceiling * e^-exponent. Decimal's exp is rounded correctly; far out e^-x is
    below 2^-x, which is all that has to be known.
    """
    far = 10 * digits
    if exponent > far:
        return Fraction(0), ceiling / 2**far

    def power(rounding: str) -> tuple[Decimal, Context]:
        context = Context(prec=digits, rounding=rounding)
        minus = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
        return context.exp(minus), context

    least, downwards = power(ROUND_FLOOR)
    most, upwards = power(ROUND_CEILING)
    low, high = downwards.next_minus(least), upwards.next_plus(most)
    return ceiling * Fraction(low), ceiling * Fraction(high)
