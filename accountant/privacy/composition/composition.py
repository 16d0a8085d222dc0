"""The composed distribution of the total loss, and the epsilon between two bounds that it shows.

The upper end: every mass is raised by the bound on its error, and delta is reduced by what lies
above the window. What lies below the window wraps around, and matters only for a smaller epsilon.

The lower end: see lattice.py for the pairs that the mechanisms dominate. Their total loss is the
lattices' minus the sum of the drops, which is more than a ``fall`` only with a probability bounded
by Chernoff, jointly with the total loss being above epsilon. That, what wraps around, and the
doubtful masses are taken off the curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from scipy.signal import lfilter

from accountant.privacy.composition.lattice import UNIT
from accountant.privacy.composition.pairs import Floats
from accountant.privacy.composition.stacked import Stack
from accountant.privacy.composition.transform import Part, composed

OUTSIDE: Final = 1e-13
"""How much of the tilted total may lie beyond either end of the window."""
_CAP: Final = 600.0
"""Exponents are cut here: such a mass is more than any delta."""


@dataclass(frozen=True, slots=True)
class Composition:
    """Masses at ``losses``, multiplied by e^(tilt * loss - exponent). Each is wrong by at most
    ``error``, beside a relative ``rounding``.
    """

    stack: Stack
    tilt: float
    exponent: float
    rounding: float
    losses: Floats
    mass: Floats
    error: float

    @classmethod
    def of(
        cls, stack: Stack, counts: Sequence[int], tilt: float, window: tuple[float, float]
    ) -> Self:
        """The lattices, each so many times. All but ``OUTSIDE`` of the tilted total lies above the
        window's lower end, and all but that below its upper end.
        """
        low, high = window
        first = math.floor(low / stack.grid)
        size = 1 << math.ceil(math.log2(high / stack.grid - first + 2))
        weights, logs = stack.tilted(tilt)
        each = zip(stack.lattices, np.split(weights, stack.starts[1:]), counts, strict=True)
        deviation = math.sqrt(stack.moments(tilt)[2])
        allowed = 1e-7 * min(1.0, stack.grid / max(deviation, stack.grid))
        parts = [Part(lattice.first, mass, count) for lattice, mass, count in each]
        mass, error = composed(parts, size, first, allowed)
        losses = np.asarray((first + np.arange(size)) * stack.grid, dtype=np.float64)
        exponent = float(stack.counts @ logs)
        reach = abs(exponent) + tilt * float(np.abs(losses[[0, -1]]).max())
        rounding = stack.rounding(tilt) + UNIT * (8 * reach + 8 * size)
        return cls(stack, tilt, exponent, rounding, losses, mass, error)

    def curve(self, sign: int) -> tuple[Floats, Floats, Floats]:
        """The positive losses; the curve at each, from above or below by the sign; its slope to
        the left: at x between l - grid and l it is that of l plus slope * (1 - e^(x - l)).

        The curve is added up from its slopes, so nothing is a difference of larger numbers.
        """
        losses = self.losses[self.losses > 0]
        raised = np.maximum(self.mass[self.losses > 0] + sign * self.error, 0.0)
        exponents = self.exponent + sign * self.rounding - self.tilt * losses
        mass = raised * np.exp(np.minimum(exponents, _CAP))
        fade = math.exp(-self.stack.grid)
        slope = lfilter([1.0], [1.0, -fade], mass[::-1])[::-1]  # of Q beyond, times e^loss
        steps = -math.expm1(-self.stack.grid) * slope
        return losses, np.append(np.cumsum(steps[:0:-1])[::-1], 0.0), slope


def upper_end(total: Composition, delta: float, window: tuple[float, float]) -> float:
    """The smallest epsilon >= 0 in the window at which the curve is at most ``delta``; one below
    the window is 0 if that is enough, or raised to the window's lower end.
    """
    stack, (low, high) = total.stack, window
    chernoff = total.exponent + total.rounding
    if high < stack.extremes[1]:
        delta -= OUTSIDE * math.exp(min(chernoff - total.tilt * high, _CAP))
    losses, curve, slope = total.curve(+1)
    if delta <= 0 or losses.size == 0:
        return simple_bound(stack, total.tilt, delta)
    wrong = stack.wrong
    # No curve falls faster than 1; what is below the window is at most that at 0.
    at_zero = float(curve[0] - slope[0] * math.expm1(-losses[0])) + wrong
    if at_zero + (OUTSIDE * math.exp(min(chernoff, _CAP)) if low > 0 else 0.0) <= delta:
        return 0.0
    passed = np.flatnonzero(np.append(math.inf, curve[:-1]) > delta)
    j = int(passed[-1])
    share = max(0.0, delta - float(curve[j])) / float(slope[j])
    found = float(losses[j]) + (math.log1p(-share) if share < 1 else -math.inf)
    found = max(found, low, 0.0) + wrong + 4 * UNIT * (1 + float(losses[j]))
    return min(found, simple_bound(stack, total.tilt, delta))


def simple_bound(stack: Stack, tilt: float, delta: float) -> float:
    """Chernoff's bound on the epsilon at ``delta``, or the largest loss there is."""
    most = stack.extremes[1]
    if delta > 0:
        exponent = stack.exponent(tilt) + stack.rounding(tilt)
        least = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
        most = min(most, (exponent + least - math.log(delta)) / tilt)
    return max(0.0, most * (1 + 8 * UNIT) + stack.wrong)


def lower_end(total: Composition, delta: float, surely: float) -> float:
    """A loss of the grid at which the curve is surely more than ``delta``, minus a fall. ``surely``
    is the mass at infinity.
    """
    stack, tilt = total.stack, total.tilt
    weights, _ = stack.tilted(tilt)
    doubts = np.concatenate([part.doubt for part in stack.lattices])
    taken = 2 * OUTSIDE + float(stack.counts @ stack.each(weights * doubts))
    rest = delta - surely * (1 - 1e-12)
    chance = delta * min(max(tilt * stack.grid, 1e-9), 1e-3)  # costs about one step of the grid
    losses, curve, _ = total.curve(-1)
    chernoff = total.exponent + total.rounding - tilt * losses
    sure = np.flatnonzero(curve - taken * np.exp(np.minimum(chernoff, _CAP)) >= rest + chance)
    if sure.size == 0:
        return 0.0
    j = int(sure[-1])
    goal = max(float(chernoff[j]) - math.log(chance), 0.0) + total.rounding
    return max(0.0, float(losses[j]) * (1 - 8 * UNIT) - _fall(stack, weights, goal))


def _fall(stack: Stack, weights: Floats, goal: float) -> float:
    """What the sum of the drops exceeds with a chance of at most e^(-goal), under the weights."""
    drops = np.concatenate([part.drop for part in stack.lattices])
    squares = float(stack.counts @ stack.each(weights * drops**2))
    guess = min(math.sqrt(2 * goal / max(squares, 1e-300)), 32 / stack.grid)
    fall = math.inf
    for t in (guess / 2, guess, 2 * guess):
        moments = np.log(stack.each(weights * np.exp(t * drops)))
        fall = min(fall, (goal + float(stack.counts @ moments)) / t)
    return fall
