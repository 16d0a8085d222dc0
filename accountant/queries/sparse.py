"""The sparse vector technique: many comparisons with one noisy threshold, of which few cost.

``SparseVector`` describes a session and is what the service is told; ``begin`` draws the threshold
and returns the session itself. It is Algorithm 7 of Lyu, Su, Li, *Understanding the sparse vector
technique for differential privacy*, PVLDB 10(6), 2017: the threshold's noise is drawn once, every
comparison has fresh noise of a scale that grows with the number of positives, a number that is
published has noise of its own, and the session ends with its last positive.

**Noise on a lattice.** Answers, threshold and all noise are whole numbers of steps of one lattice,
of which the sensitivity has a whole number W. The proof of Theorem 4 then holds as it stands, with
sums for integrals. It replaces the threshold's noise z by z + W, which takes whole numbers to whole
numbers and changes no probability by more than e^(W / scale): eps1. A neighbour's answers are at
most W steps away, so every negative is at least as likely there; and a positive by e^(2W / scale)
less likely at most: c of them are eps2. For monotonic answers it is e^(W / scale): if the
neighbour's answers are the lower ones z stays, else the shift of the threshold is all.

**Rounding.** An answer is rounded to the lattice half up. That commutes with whole steps, so that
answers one sensitivity apart stay at most W steps apart, and those that all rise still all rise.
The threshold is public, and rounded up. Noise of 64 bits is cut at its ends: scales above 2^50
steps are refused, so that a cut has a probability below e^(-2^12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from accountant.client import mechanisms
from accountant.client.mechanisms import Mechanism
from accountant.queries import samplers
from accountant.queries.exact import decimal_above, float_above
from accountant.queries.steps import FINE, DiscreteLaplace

FOR_NUMBERS: Final = Fraction(1, 3)
"""The part of epsilon that numbers get where they are asked for. Comparisons have noise of twice
the size at the same epsilon, so that both are then about equally noisy."""
_AT_ONCE: Final = 64
_LARGEST: Final = 2**60
_WIDEST: Final = 2**50
_PARTS: Final = 10**9

Fresh = Callable[[], int]
"""Returns noise that was returned to nobody before."""


class SessionOver(RuntimeError):
    """The last positive was given, or an answer could not be counted: nothing more is answered."""


@dataclass(frozen=True)
class SparseVector:
    """A session of comparisons, with at most so many ``positives``. All numbers are exact."""

    sensitivity: Fraction
    """The most by which one privacy unit changes any one answer."""
    threshold_scale: Fraction
    comparison_scale: Fraction
    positives: int
    answer_scale: Fraction | None = None
    """The scale of the noise on numbers; None if no numbers are published."""
    monotonic: bool = False
    """One more unit can only raise all answers, or only lower them all."""
    neighbouring: str | None = None
    """The relation under which it is stated, if that is not the population's."""
    whole: bool = False
    """All answers are whole numbers."""

    @classmethod
    def costing(
        cls,
        epsilon: Fraction,
        sensitivity: Fraction,
        positives: int,
        *,
        numbers: bool = False,
        monotonic: bool = False,
        neighbouring: str | None = None,
        whole: bool = False,
    ) -> SparseVector:
        """Return the session that costs at most ``epsilon``. What is left after numbers is divided
        as 1 : (2c)^(2/3) between threshold and comparisons, c^(2/3) for monotonic answers, which
        makes the noise of a comparison least (Lyu, Su, Li 2017, Sec. 4.2).
        """
        numeric = epsilon * FOR_NUMBERS if numbers else Fraction(0)
        times = (1 if monotonic else 2) * positives
        part = max(1, round(_PARTS / (1 + times ** (2 / 3))))
        once = (epsilon - numeric) * Fraction(part, _PARTS)
        compared = epsilon - numeric - once
        reach = decimal_above(sensitivity)
        return cls(
            sensitivity,
            decimal_above(reach / once),
            decimal_above(times * reach / compared),
            positives,
            decimal_above(positives * reach / numeric) if numbers else None,
            monotonic,
            neighbouring,
            whole,
        )

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        return mechanisms.sparse_vector(
            decimal_above(self.sensitivity),
            threshold_scale=self.threshold_scale,
            comparison_scale=self.comparison_scale,
            max_positives=self.positives,
            answer_scale=self.answer_scale,
            monotonic=self.monotonic,
            neighbouring=self.neighbouring,
            sampler=samplers.library(),
        )

    @property
    def width(self) -> int:
        """The sensitivity in steps of the lattice: itself for whole numbers, else a power of 2 at
        which the least scale has about 2^32 steps.
        """
        if self.whole:
            return int(self.sensitivity)
        scales = (self.threshold_scale, self.comparison_scale, self.answer_scale)
        ratio = self.sensitivity / min(scale for scale in scales if scale is not None)
        power = FINE + ratio.numerator.bit_length() - ratio.denominator.bit_length()
        return int(2 ** max(0, power))

    @property
    def lattice(self) -> Fraction:
        """The distance of two points of the lattice."""
        return self.sensitivity / self.width

    def noise(self, scale: Fraction, draws: int | None = None) -> DiscreteLaplace:
        """Return the noise of a stated scale in steps of the lattice: W / drawn is at most the
        stated sensitivity / scale.
        """
        steps = float_above(self.width * scale / decimal_above(self.sensitivity))
        return DiscreteLaplace(Fraction(self.width), Fraction(steps), size=draws)

    def begin(self, threshold: Fraction) -> Running:
        """Draw the threshold's noise, which reads no data, and return the session. All samplers are
        made ready. Raise ValueError for numbers that the lattice cannot hold.
        """
        placed = self.place(threshold, up=True)
        once, compared = self._fresh(self.threshold_scale), self._fresh(self.comparison_scale)
        numeric = None if self.answer_scale is None else self._fresh(self.answer_scale)
        return Running(self, placed + once(), compared, numeric)

    def _fresh(self, scale: Fraction) -> Fresh:
        noise = self.noise(scale)
        if noise.drawn > _WIDEST:
            raise ValueError(
                f"noise of a scale of {noise.drawn:.3g} steps is more than 64 bits hold: take "
                "fewer positives, a larger epsilon, or fewer records a unit"
            )
        return fresh(noise)

    def place(self, value: Fraction | int, *, up: bool = False) -> int:
        """Return the point of the lattice next to an exact value, half up, or the next ``up``."""
        steps = Fraction(value) / self.lattice
        found = math.ceil(steps) if up else math.floor(steps + Fraction(1, 2))
        if abs(found) > _LARGEST:
            raise ValueError(
                f"{float(value)} is too large beside noise of scale {float(self.threshold_scale)}"
            )
        return found

    def within(self, beta: float, questions: int, sessions: int = 1) -> float:
        """Return a distance from the threshold at which so many ``questions`` are all compared
        right, except with probability ``beta``: half of it for the noise of the threshold, of all
        ``sessions``, half for the largest noise of the comparisons (Dwork and Roth 2014, Theorem
        3.24, with the quantiles of the noise that is drawn).
        """
        once = self.noise(self.threshold_scale, sessions).within(beta / 2)
        compared = self.noise(self.comparison_scale, questions).within(beta / 2)
        return float(self.lattice) * (once + compared + (0 if self.whole else 2))

    def numbers_within(self, beta: float, sessions: int = 1) -> float:
        """Return how far off the published numbers are, all at once, except with probability
        ``beta``. Raise ValueError if there are none.
        """
        if self.answer_scale is None:
            raise ValueError("this session publishes no numbers")
        steps = self.noise(self.answer_scale, self.positives * sessions).within(beta)
        return float(self.lattice) * (steps + (0 if self.whole else 1))


def fresh(noise: DiscreteLaplace) -> Fresh:
    """Return a source of fresh noise, for which the sampler is asked many at once."""
    sampler = noise.sampler()

    def drawn() -> Iterator[int]:
        while True:
            yield from sampler([0] * _AT_ONCE)

    return drawn().__next__


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a question of a session. True if it is above."""

    above: bool
    number: float | int | None = None
    """The noisy number, of a positive in a session that publishes numbers."""

    def __bool__(self) -> bool:
        return self.above


@dataclass(slots=True)
class Running:
    """A session that has begun: its noisy threshold, in steps of the lattice, and its noise."""

    what: SparseVector
    threshold: int
    compared: Fresh
    numeric: Fresh | None = None
    positives: int = 0

    @property
    def left(self) -> int:
        """How many positives are left."""
        return self.what.positives - self.positives

    def check(self, values: Sequence[Fraction | int] = ()) -> None:
        """Raise SessionOver after the last positive, and ValueError for answers that the lattice
        cannot hold. Nothing is drawn.
        """
        if not self.left:
            raise SessionOver(f"the session ended with its positive no. {self.what.positives}")
        for value in values:
            self.what.place(value)

    def ask_all(self, values: Sequence[Fraction | int]) -> list[Outcome]:
        """Compare exact answers until the last positive: there may be fewer outcomes."""
        self.check(values)
        return [self.ask(value) for value in values if self.left]

    def ask(self, value: Fraction | int, number: Fraction | int | None = None) -> Outcome:
        """Compare an exact answer with the threshold. A positive is published with fresh noise on
        ``number``, by default the answer itself, which a unit changes by the sensitivity at most
        too. Raise SessionOver after the last positive, ValueError for what the lattice cannot hold.
        """
        self.check()
        place = self.what.place(value)
        told = place if number is None else self.what.place(number)
        if place + self.compared() < self.threshold:
            return Outcome(above=False)
        self.positives += 1
        if self.numeric is None:
            return Outcome(above=True)
        noisy = (told + self.numeric()) * self.what.lattice
        return Outcome(True, int(noisy) if self.what.whole else float(noisy))
