"""Pairs of mechanisms on samples, made of the pairs of what runs on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from flint import arb

from accountant.privacy.composition.grids import Floats, Integers, spread
from accountant.privacy.composition.pairs import (
    Pair,
    Span,
    Tails,
    above_each,
    of_sample,
    outcome_of_sample,
    ratio_before_sample,
)

_FAR: Final = 1e18  # In place of an infinite loss


@dataclass(frozen=True, slots=True)
class Same(Pair):
    """P and Q are the same."""

    @property
    def span(self) -> Span:
        """The one loss that there is: 0."""
        return 0.0, 0.0

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return 1 for each loss below 0, else 0."""
        found = np.where(loss < 0, 1.0, 0.0)
        return found, found

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same."""
        return [(everything, everything) for everything in (arb(int(x < 0)) for x in losses)]


class Made(Pair):
    """A pair that is made of other pairs. ``above_each`` asks for the masses of the parts of many
    such pairs together.
    """

    __slots__ = ()

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return the masses of one pair."""
        return self.above_each([self], loss, np.array([loss.size]))


@dataclass(frozen=True, slots=True)
class Blend(Made):
    """``rare`` with a secret probability ``chance``, the same for both neighbours, else ``usual``:
    whoever is told which of them it is knows more.
    """

    usual: Pair
    rare: Pair
    chance: float

    def __post_init__(self) -> None:
        if not 0 <= self.chance <= 1:
            raise ValueError(f"no probability: {self.chance}")

    @property
    def infinite(self) -> float:  # type: ignore[override]
        """The mass of P where Q has none, rounded up."""
        found = (1 - self.chance) * self.usual.infinite + self.chance * self.rare.infinite
        return min(found * (1 + 2.0**-50), 1.0)

    @property
    def span(self) -> Span:
        """From the lesser beginning of both spans to the greater end."""
        (low, high), (other_low, other_high) = self.usual.span, self.rare.span
        return min(low, other_low), max(high, other_high)

    def cost(self, losses: int) -> int:
        """Return what both take together."""
        return self.usual.cost(losses) + self.rare.cost(losses)

    @property
    def reverse(self) -> Blend:
        """The blend of both in the other direction."""
        return replace(self, usual=self.usual.reverse, rare=self.rare.reverse)

    @classmethod
    def above_each(
        cls, pairs: Sequence[Self], losses: Floats, sizes: Integers
    ) -> tuple[Floats, Floats]:
        """Return the masses of ``usual`` and ``rare``, each by its probability."""
        p, q = above_each([pair.usual for pair in pairs], losses, sizes)
        other_p, other_q = above_each([pair.rare for pair in pairs], losses, sizes)
        chance = spread(np.array([pair.chance for pair in pairs]), sizes)
        return (1 - chance) * p + chance * other_p, (1 - chance) * q + chance * other_q

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same."""
        chance = arb(self.chance)
        both = zip(self.usual.tails(losses, slack), self.rare.tails(losses, slack), strict=True)
        return [
            ((1 - chance) * p + chance * other_p, (1 - chance) * q + chance * other_q)
            for (p, q), (other_p, other_q) in both
        ]


@dataclass(frozen=True, slots=True)
class Sampled(Made):
    """What runs on a Poisson sample: P is (1 - q) Q + q P of the ``base``, against its Q; or the
    same exchanged (``adding``). Zhu, Dong, Wang 2022, Thm 11.

    Raises ValueError for a base with a mass at infinity, and a rate outside [1e-12, 1).
    """

    base: Pair
    rate: float
    adding: bool = False

    def __post_init__(self) -> None:
        if self.base.infinite or not 1e-12 <= self.rate < 1:
            raise ValueError(f"no sample of {self.base} at a rate of {self.rate}")

    @property
    def span(self) -> Span:
        """The losses of the base, seen through the sample."""
        stay, rate = np.log1p(-self.rate), np.log(self.rate)
        low, high = (float(np.logaddexp(stay, rate + loss)) for loss in self.base.span)
        return (-high, -low) if self.adding else (low, high)

    def cost(self, losses: int) -> int:
        """Return that of the base."""
        return self.base.cost(losses)

    @property
    def reverse(self) -> Sampled:
        """The other direction."""
        return replace(self, adding=not self.adding)

    @classmethod
    def above_each(
        cls, pairs: Sequence[Self], losses: Floats, sizes: Integers
    ) -> tuple[Floats, Floats]:
        """Return the base's masses beyond the loss that the sample turns into this one."""
        rate = spread(np.array([pair.rate for pair in pairs]), sizes)
        way = spread(np.array([-1.0 if pair.adding else 1.0 for pair in pairs]), sizes)
        inner = way * np.clip(outcome_of_sample(way * losses, rate), -_FAR, _FAR)
        p, q = above_each([pair._turned for pair in pairs], inner, sizes)
        still, moved = np.where(way < 0, p, q), np.where(way < 0, q, p)
        return of_sample(still, moved, rate, way)

    @property
    def _turned(self) -> Pair:
        """The base in the same direction."""
        return self.base.reverse if self.adding else self.base

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same; all, or none, beyond the smallest loss there is with a record more."""
        rate, way = arb(self.rate), -1 if self.adding else 1
        ratios = [ratio_before_sample(way * loss, rate) for loss in losses]
        there = [way * ratio.log() for ratio in ratios if ratio is not None]
        found = iter(self._turned.tails(there, arb(0)))
        mixed: Tails = []
        for ratio in ratios:
            p, q = next(found) if ratio is not None else (arb(int(not self.adding)),) * 2
            rest = (1 - rate) * (p if self.adding else q)
            mixed.append((p, rest + rate * q) if self.adding else (rest + rate * p, q))
        return mixed


@dataclass(frozen=True, slots=True)
class Mirrored(Made):
    """What runs on a sample of fixed size, of a ``sampled`` pair S and Q: the likelihood ratio is
    S / Q where that is above 1, and its inverse on a mirror image of there; else 1.

    Dong, Roth, Su 2022, Thm 4.2: the trade-off curve of a sample without replacement, under
    replace-one, is at least the convex one below that of (S, Q) and that of (Q, S).
    """

    sampled: Pair

    @property
    def infinite(self) -> float:  # type: ignore[override]
        """The mass of P where Q has none."""
        return self.sampled.infinite

    @property
    def span(self) -> Span:
        """From minus the largest loss to the largest."""
        high = self.sampled.span[1]
        return -high, high

    def cost(self, losses: int) -> int:
        """Return that of the sampled pair."""
        return self.sampled.cost(losses)

    @classmethod
    def above_each(
        cls, pairs: Sequence[Self], losses: Floats, sizes: Integers
    ) -> tuple[Floats, Floats]:
        """Return the masses of S and Q, below 0 all but the other's beyond the mirror image."""
        here = losses >= 0
        mirrored = np.where(here, losses, -losses * (1 - 2.0**-50))
        p, q = above_each([pair.sampled for pair in pairs], mirrored, sizes)
        return np.where(here, p, 1 - q), np.where(here, q, 1 - p)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same."""
        found = self.sampled.tails([abs(loss) for loss in losses], arb(0))
        return [
            (p, q) if loss >= 0 else (1 - q, 1 - p)
            for loss, (p, q) in zip(losses, found, strict=True)
        ]
