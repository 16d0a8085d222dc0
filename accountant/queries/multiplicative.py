"""Synthetic data by multiplicative weights: a histogram that is moved towards noisy answers.

All of this is public: it is made from noisy answers alone, and may be rounded as floats are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from accountant.queries.exact import Numbers
from accountant.queries.universe import PARTS, Linear


@dataclass(frozen=True, eq=False, slots=True)
class Synthetic:
    """A number of records for each cell, which are ``total`` in all."""

    total: float
    logarithms: Numbers
    cells: Numbers

    @classmethod
    def uniform(cls, size: int, total: float) -> Self:
        """Return the same number for each cell."""
        return cls._of(np.zeros(size), total)

    @classmethod
    def _of(cls, logarithms: Numbers, total: float) -> Self:
        logarithms = logarithms - logarithms.max()
        weights = np.exp(logarithms)
        return cls(total, logarithms, weights * (total / weights.sum()))

    def answer(self, question: Linear) -> float:
        """Return the answer to a question."""
        return question.on(self.cells) / PARTS

    def moved(self, question: Linear, exponent: float) -> Self:
        """Return the histogram with each cell times e^(exponent * weight), of the same total."""
        return self._of(self.logarithms + exponent * question.shares, self.total)


def average(histograms: list[Synthetic]) -> Synthetic:
    """Return the average of histograms of one total."""
    cells = np.mean([each.cells for each in histograms], axis=0)
    with np.errstate(divide="ignore"):
        return Synthetic(histograms[0].total, np.log(cells), cells)
