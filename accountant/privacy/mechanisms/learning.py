"""Mechanisms of private learning that are more than a noisy answer: trees and mixtures of noise."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property, reduce
from math import gcd, lcm
from typing import Annotated, ClassVar, Final, Literal, Self

from msgspec.structs import replace
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy.losses import Loss, gaussian
from accountant.privacy.mechanisms.additive import Gaussian
from accountant.privacy.mechanisms.amounts import NonNegative, Positive, Probability, Record
from accountant.privacy.mechanisms.base import (
    KIND,
    LARGEST_GROUP,
    BaseMechanism,
    Relation,
    SmallCount,
    body,
    examples,
    forbidden,
)
from accountant.privacy.samples import curve_of_mixture

_MOST_STEPS: Final = 1_000
"""A mixture lies on a grid: the furthest move has at most as many steps, or is taken for all."""


class TreeAggregation(Gaussian):
    """Running sums of a stream by binary trees of noisy partial sums (DP-FTRL).

    Dwork, Naor, Pitassi, Rothblum 2010; Chan, Shi, Song 2011; Kairouz et al. 2021, App. D. Each
    tree sums up 1, 2, 4, … consecutive leaves with fresh normal noise of ``scale``; a unit with one
    leaf is in one sum of each size, floor(log2 leaves) + 1 in all, so mu = sensitivity / scale x
    the root of that, of the largest tree. A unit with several leaves, in any trees: so many times
    that, or less with ``leaves_between`` (``_squares``). Precondition: where a unit's leaves are
    does not depend on the others, as under zero_out.
    """

    model_config = examples(
        body("tree_aggregation", sensitivity={"l2": "1"}, scale="8.83", leaves=[1600])
        | {"neighbouring": "zero_out"}
    )
    plain: ClassVar[tuple[str, ...]] = ()
    kind: Literal["tree_aggregation"] = Field(description=KIND)  # type: ignore[assignment]
    leaves: Annotated[tuple[SmallCount, ...], Field(min_length=1, max_length=1000)]
    """The number of leaves of each tree: steps between two restarts."""
    leaves_per_unit: SmallCount = Field(default=1, description="Leaves of one unit, at most.")
    leaves_between: Annotated[int, Field(strict=True, ge=0, le=LARGEST_GROUP)] | None = None
    """So many leaves or more lie between two of one unit in a tree, as where a device rests before
    it takes part again. Absent: they may be anywhere."""
    _no_sampling = forbidden("sampling", "every unit has its leaves")
    _no_units = forbidden("sensitivity_per", "how many leaves a further unit has is not stated")

    @property
    def mu_squared(self) -> Fraction:
        """The squares of the sums that a unit is in, added up."""
        if self.leaves_between is not None:
            return self.ratio**2 * self._squares(self.leaves_between)
        return self.ratio**2 * self.leaves_per_unit**2 * max(self.leaves).bit_length()

    def _squares(self, between: int) -> int:
        """Return at least the sum of c^2 over all sums, c being a unit's leaves in one.

        A sum of 2^h consecutive leaves holds at most m = ceil(2^h / (between + 1)) of a unit's,
        and those of one size at most all that it has. A sum of squares is convex, so it is largest
        where as many as possible hold m. The exact maximum (Kairouz et al. 2021, App. D.3) looks at
        all sizes at once; in production it was 79 where this is 82.
        """
        found, unit = 0, self.leaves_per_unit
        for level in range(max(self.leaves).bit_length()):
            most = min(unit, -(-(1 << level) // (between + 1)))
            there = sum(leaves >> level for leaves in self.leaves)
            full = min(unit // most, there)
            rest = unit - full * most if full < there else 0
            found += full * most**2 + rest**2
        return found


class Move(Record):
    """One of the ways in which a unit may change an answer."""

    by: NonNegative = Field(description="The length of the change (L2), in units of the answer.")
    chance: Probability = Field(description="Its probability.")


class GaussianMixture(BaseMechanism):
    """Normal noise on an answer that one unit changes by a random amount, unknown to the observer.

    The most general step of private learning on samples (Ganesh, *Tight group-level DP guarantees
    for DP-SGD with sampling via mixture of Gaussians mechanisms*, 2024): N(0) against a mixture of
    N(move). The moves are drawn anew for each invocation, independently of everything else.
    """

    model_config = examples(
        body("gaussian_mixture", scale="1.1")
        | {"moves": [{"by": "0", "chance": "0.99"}, {"by": "1", "chance": "0.01"}]}
    )
    kind: Literal["gaussian_mixture"] = Field(description=KIND)
    scale: Positive = Field(description="Standard deviation of the noise, in units of the answer.")
    moves: Annotated[tuple[Move, ...], Field(min_length=1, max_length=200)]
    """The amounts by which a unit may change the answer; their chances add up to 1."""
    _no_sampling = forbidden("sampling", "state it as chances of the moves")

    @field_validator("moves")
    @classmethod
    def _some(cls, moves: tuple[Move, ...]) -> tuple[Move, ...]:
        if not any(move.by for move in moves):
            raise PydanticCustomError("moves_none", "some move must be greater than 0")
        return moves

    @model_validator(mode="after")
    def _certain(self) -> Self:
        if sum(Fraction(move.chance) for move in self.moves) != 1:
            raise PydanticCustomError("moves_chances", "the chances of the moves must add up to 1")
        return self

    @cached_property
    def on_grid(self) -> tuple[Fraction, tuple[Fraction, ...]]:
        """The step of a grid on which all moves lie, in deviations, and the chance of each place.
        Without a grid of few steps, moves go up to the next of ``_MOST_STEPS``.
        """
        lengths = [Fraction(move.by) / Fraction(self.scale) for move in self.moves]
        shared = lcm(*(length.denominator for length in lengths))
        step = Fraction(reduce(gcd, (int(length * shared) for length in lengths)), shared)
        if max(lengths) > step * _MOST_STEPS:
            step = max(lengths) / _MOST_STEPS
        places = [-(-length // step) for length in lengths]
        chances = [Fraction(0)] * (max(places) + 1)
        for place, move in zip(places, self.moves, strict=True):
            chances[place] += Fraction(move.chance)
        return step, tuple(chances)

    def loss(self, stated: Relation) -> Loss:
        """Return the loss of the largest move, with the curve of the mixture."""
        step, chances = self.on_grid
        whole = gaussian((step * (len(chances) - 1)) ** 2, None, Fraction(0))
        if not chances[0]:
            return whole
        return replace(whole, curve=curve_of_mixture(step * step / 2, chances))
