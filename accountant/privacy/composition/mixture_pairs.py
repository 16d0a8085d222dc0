"""Dominating pairs of two mixtures of normal noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb
from scipy.special import ndtr

from accountant.privacy.composition.grids import Floats
from accountant.privacy.composition.pairs import Pair, Span, Tails, normal

_FURTHEST: Final = 40.0  # Deviations beyond which a normal tail is no float
_TABLE: Final = 2**12
_MOST_STEPS: Final = 100
_MOST_HALVINGS: Final = 400
_MOST_NEWTON: Final = 6
_SURELY: Final = 8  # Binary places by which Newton's last step is beyond half of those wanted

Weights = tuple[tuple[float, float], ...]
"""Weights and means of normal distributions of deviation 1."""


@dataclass(frozen=True, slots=True)
class Mixtures(Pair):
    """Normal noise around ``up`` against noise around ``down``, no mean of which is larger. The
    loss rises with the outcome. ``turned``: P and Q exchanged.
    """

    up: Weights
    down: Weights
    turned: bool = False

    @property
    def span(self) -> Span:
        """The losses of 12 deviations to either side of all means of P."""
        means = [mean for _, mean in (self.down if self.turned else self.up)]
        ends = self._losses(np.array([min(means) - 12.0, max(means) + 12.0]))
        low, high = float(ends[0]), float(ends[1])
        return (-high, -low) if self.turned else (low, high)

    def cost(self, losses: int) -> int:
        """Return that of all parts of both mixtures."""
        return losses * (len(self.up) + len(self.down))

    @property
    def reverse(self) -> Mixtures:
        """The other direction."""
        return replace(self, turned=not self.turned)

    def above(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return sums of normal tails beyond the outcome with this loss, found by halving."""
        x = self._outcome(-loss if self.turned else loss)
        if self.turned:
            return _masses(self.down, x), _masses(self.up, x)
        return _masses(self.up, x, -1), _masses(self.down, x, -1)

    def tails(self, losses: Sequence[arb], slack: arb) -> Tails:
        """Return the same, beyond an outcome whose loss is shown to be within the slack."""
        way = -1 if self.turned else 1
        goals = [way * loss for loss in losses]
        near = self._outcome(np.array([float(goal) for goal in goals]))
        solver = _Solver(_exact(self.up), _exact(self.down), slack, way, self._places(slack))
        found = [solver.outcome(goal, float(x)) for goal, x in zip(goals, near, strict=True)]
        p, q = (solver.down, solver.up) if self.turned else (solver.up, solver.down)
        return [(_beyond(p, x, way), _beyond(q, x, way)) for x in found]

    def _places(self, slack: arb) -> int:
        """Return binary places of outcomes that change a loss, which rises by no more than the
        means differ, by an eighth of ``slack`` at most.
        """
        steepest = sum(max(abs(mean) for _, mean in each) for each in (self.up, self.down))
        return math.frexp(steepest)[1] - math.frexp(float(slack))[1] + 4

    def _losses(self, x: Floats) -> Floats:
        return _log(self.up, x)[0] - _log(self.down, x)[0]

    def _outcome(self, loss: Floats) -> Floats:
        """Return the outcome with a loss, or the furthest: between two of a table, by Newton."""
        furthest = _FURTHEST + max(abs(mean) for _, mean in (*self.up, *self.down))
        table = np.linspace(-furthest, furthest, _TABLE)
        losses = _table(replace(self, turned=False), furthest)
        after = np.clip(np.searchsorted(losses, loss), 1, _TABLE - 1)
        low, high = table[after - 1], table[after]
        right = 2.0**-48 * (1 + max(map(abs, self.span)))
        inside = (loss > losses[0]) & (loss < losses[-1])
        x = (low + high) / 2
        for _ in range(_MOST_STEPS):
            (up, rise), (down, fall) = _log(self.up, x), _log(self.down, x)
            wrong = up - down - loss
            if not (inside & (np.abs(wrong) > right)).any():
                break
            low, high = np.where(wrong < 0, x, low), np.where(wrong < 0, high, x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                near = x - wrong / (rise - fall)
            x = np.where((near > low) & (near < high), near, (low + high) / 2)
        return np.where(loss > losses[-1], furthest, np.where(loss < losses[0], -furthest, x))


@lru_cache(maxsize=8)
def _table(pair: Mixtures, furthest: float) -> Floats:
    """Return the losses of outcomes from end to end, which never fall."""
    return np.maximum.accumulate(pair._losses(np.linspace(-furthest, furthest, _TABLE)))


def _log(weights: Weights, x: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of a mixture's density over that of N(0), and its derivative."""
    chances, means = np.array(weights).T
    # A row for each part: NumPy reduces a few long rows much faster than many short ones.
    terms = np.multiply.outer(means, x) + (np.log(chances) - means * means / 2)[:, np.newaxis]
    most = terms.max(axis=0)
    shares = np.exp(terms - most)
    whole = shares.sum(axis=0)
    return most + np.log(whole), (means @ shares) / whole


def _masses(weights: Weights, x: Floats, side: int = 1) -> Floats:
    """Return a mixture's mass below each x, or above for a ``side`` of -1."""
    found: Floats = sum((w * ndtr(side * (x - m)) for w, m in weights), start=np.zeros(np.shape(x)))
    return found


Mixture = list[tuple[arb, arb]]
"""Weights and means, as balls."""


def _exact(weights: Weights) -> Mixture:
    """Return balls of the weights; the first is what the others leave, so that they add up to 1."""
    rest = [(arb(w), arb(mean)) for w, mean in weights[1:]]
    return [(1 - sum((w for w, _ in rest), start=arb(0)), arb(weights[0][1])), *rest]


def _beyond(mixture: Mixture, x: arb | bool, way: int) -> arb:
    """Return a mixture's mass above x, or below for a ``way`` of -1; or all, or none."""
    if isinstance(x, bool):
        return arb(int(x))
    return sum((w * normal(way * (mean - x)) for w, mean in mixture), start=arb(0))


@dataclass(frozen=True, slots=True)
class _Solver:
    """Finds the outcome at which the loss is a goal, or is past it by at most ``slack``: a multiple
    of 2^-``places``, which is near enough.
    """

    up: Mixture
    down: Mixture
    slack: arb
    way: int
    places: int

    def outcome(self, goal: arb, near: float) -> arb | bool:
        """Return an exact outcome; true if the losses of all are past the goal, false if those of
        none are: where both have the same smallest (or largest) mean, there is a limit to them.
        """
        for end in (self.way, -self.way):
            (most, up), (least, down) = (_last(each, end) for each in (self.up, self.down))
            if up == down and end * ((most / least).log() - goal) >= 0:
                return end == self.way
        found = self._by_newton(goal, arb(near))
        return self._by_halving(goal) if found is None else found

    def _by_newton(self, goal: arb, x: arb) -> arb | None:
        """Return an outcome that is the same wherever the steps began, None if they go astray."""
        for _ in range(_MOST_NEWTON):
            loss, rise = self._loss(x)
            step = (loss - goal + self.way * self.slack / 2) / rise
            x = (x - step).mid()
            if abs(step) < arb(2) ** -(self.places // 2 + _SURELY):
                break
        whole = (x * arb(2) ** self.places).floor().unique_fmpz()
        x = arb(whole or 0) / arb(2) ** self.places
        return None if whole is None or self._side(self._loss(x)[0] - goal) else x

    def _by_halving(self, goal: arb) -> arb:
        low, high = arb(-_FURTHEST * 64), arb(_FURTHEST * 64)
        for _ in range(_MOST_HALVINGS):
            x = (low + high) / 2
            if not (side := self._side(self._loss(x)[0] - goal)):
                return x
            low, high = (x, high) if side < 0 else (low, x)
        raise ArithmeticError("no outcome was found that has this loss")

    def _side(self, off: arb) -> int:
        """Return 0 if a loss is ``off`` its goal by what is surely within the slack, else the side
        of the middle of the slack that it is on.
        """
        past = -self.way * off
        if 0 <= past <= self.slack:
            return 0
        return 1 if (off + self.way * self.slack / 2).mid() > 0 else -1

    def _loss(self, x: arb) -> tuple[arb, arb]:
        (up, rise), (down, fall) = (_log_ball(each, x) for each in (self.up, self.down))
        return up - down, rise - fall


def _last(mixture: Mixture, way: int) -> tuple[arb, arb]:
    """Return the part with the smallest mean, or for a ``way`` of -1 the largest."""
    return min(mixture, key=lambda part: way * float(part[1]))


def _log_ball(mixture: Mixture, x: arb) -> tuple[arb, arb]:
    """Return the logarithm of a mixture's density over that of N(0), and its derivative."""
    terms = [w * (mean * (x - mean / 2)).exp() for w, mean in mixture]
    whole = sum(terms, start=arb(0))
    moved = [term * mean for term, (_, mean) in zip(terms, mixture, strict=True)]
    return whole.log(), sum(moved, start=arb(0)) / whole
