"""Densities that are constant on equal cells, and synthetic records drawn from them.

Everything here is made from noisy numbers and public ones only (post-processing). So nothing here
costs anything, and NumPy's generator is good enough for the synthetic records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.queries.exact import Numbers


@dataclass(frozen=True, slots=True)
class Density:
    """A probability density on [low, high], constant on equal cells."""

    low: float
    high: float
    shares: Numbers = field(repr=False)
    """The probability of each cell, from left to right."""

    @classmethod
    def nearest(cls, low: float, high: float, shares: Numbers) -> Density:
        """Return the density whose cells' probabilities are nearest to ``shares``, which may be
        negative or add up to something else.
        """
        return cls(low, high, onto_simplex(np.asarray(shares, dtype=np.float64)))

    @property
    def width(self) -> float:
        """The width of a cell."""
        return (self.high - self.low) / len(self.shares)

    @property
    def edges(self) -> Numbers:
        """The ends of the cells."""
        return np.linspace(self.low, self.high, len(self.shares) + 1)

    @property
    def middles(self) -> Numbers:
        """The middles of the cells."""
        return middles(self.low, self.high, len(self.shares))

    @property
    def heights(self) -> Numbers:
        """The density on each cell."""
        return np.asarray(self.shares / self.width)

    def at(self, points: Any) -> Numbers:
        """Return the density at points; 0 outside [low, high]."""
        found = np.asarray(points, dtype=np.float64)
        inside = (found >= self.low) & (found <= self.high)
        return np.where(
            inside, self.heights[cells(found, self.low, self.high, len(self.shares))], 0
        )

    def sample(self, size: int, seed: int | None = None) -> Numbers:
        """Return so many synthetic records, drawn from the density."""
        draws = np.random.default_rng(seed)
        chosen = draws.choice(len(self.shares), size, p=self.shares)
        return np.asarray(self.low + (chosen + draws.random(size)) * self.width)


def middles(low: float, high: float, size: int) -> Numbers:
    """Return the middles of ``size`` equal cells of [low, high]."""
    return np.asarray(low + (np.arange(size) + 0.5) * ((high - low) / size))


def cells(values: Numbers, low: float, high: float, size: int) -> NDArray[np.int64]:
    """Return the cell of each value; those outside [low, high] go to the first or the last."""
    places = np.floor((values - low) / (high - low) * size)
    return np.clip(places, 0, size - 1).astype(np.int64)


def onto_simplex(values: Numbers) -> Numbers:
    """Return the probabilities that are nearest to ``values`` in Euclidean distance: max(0, value -
    c), with the c for which they add up to 1 (Held, Wolfe, Crowder 1974).

    The nearest point of a convex set: no two lists get farther apart by it, and a list gets no
    farther from any list of probabilities. The density of the noisy values is therefore as near to
    that of the exact ones as the noisy values are to the exact ones, or nearer.
    """
    ordered = np.sort(values)[::-1]
    above = np.cumsum(ordered) - 1
    kept = int(np.flatnonzero(ordered * np.arange(1, len(values) + 1) > above)[-1])
    found = np.maximum(values - above[kept] / (kept + 1), 0)
    return np.asarray(found / found.sum())
