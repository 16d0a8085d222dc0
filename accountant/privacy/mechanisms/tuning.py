"""Repeating a mechanism at random and keeping the best run: private hyperparameter tuning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal, Self

from flint import arb
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball
from accountant.privacy.curves import NO_CURVE, Curve, Order, least_of, no_curve, remembered
from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms.amounts import NonNegative, Positive
from accountant.privacy.mechanisms.base import (
    KIND,
    Objection,
    Relation,
    body,
    examples,
    forbidden,
)
from accountant.privacy.mechanisms.compound import Compound, Part, cost_of

_ORDERS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 256, 512, 1024)
"""Orders at which the base mechanism's loss is looked at once more."""
_GRID: Final = (*range(2, 65), *(1 << p for p in range(7, 61)))
"""Orders at which a curve is known; in between it is that of the next."""
_HAIR: Final = Fraction(1, 10**9)


class Runs(StrEnum):
    """The distribution of the number of runs."""

    NEGATIVE_BINOMIAL = "negative_binomial"
    POISSON = "poisson"


class RepeatAndSelect(Compound):
    """Runs a mechanism a random number of times and publishes the best run, by its own score.

    Papernot and Steinke, *Hyperparameter tuning with Renyi differential privacy*, 2022. The number
    of runs is drawn from a negative binomial distribution without zero, of mean m and ``shape`` eta
    (1: geometric; 0: logarithmic): their Thm 2, for any two orders a and b,

        tau'(a) = tau(a) + (1 + eta) (1 - 1/b) tau(b) + (1 + eta) ln(1/gamma) / b + ln(m) / (a - 1),

    and (2 + eta) epsilon if the mechanism is pure, with both orders infinite. Or it is Poisson, and
    nothing is published after no runs: their Thm 6, with the mechanism's delta d at an epsilon of
    ln(1 + 1/(a - 1)): tau'(a) = tau(a) + m d + ln(m) / (a - 1). Preconditions: nothing but the best
    run is published, not their number; a run's score is part of its output; no delta of its own.
    """

    model_config = examples(
        body("repeat_and_select", mechanism=body("laplace", sensitivity="1", scale="10"))
        | {"mean": "10"}
    )
    kind: Literal["repeat_and_select"] = Field(description=KIND)
    mechanism: Part = Field(description="One run: training and scoring, all that it costs.")
    mean: Positive = Field(description="The mean number of runs, at least 1.")
    runs: Runs = Runs.NEGATIVE_BINOMIAL
    """How the number of runs is drawn."""
    shape: NonNegative | None = None
    """eta of the negative binomial distribution: 1 (as if absent) is the geometric one, 0 the
    logarithmic one."""
    _no_sampling = forbidden("sampling", "state it for the mechanism that is repeated")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.mean < 1:
            raise PydanticCustomError("runs_mean", "the mean number of runs must be at least 1")
        if self.shape is not None and self.runs is Runs.POISSON:
            raise PydanticCustomError("runs_shape", "shape goes with negative_binomial only")
        if self.shape is not None and self.shape > 1000:
            raise PydanticCustomError("runs_shape", "shape must be at most 1000")
        return self

    def objections(self, stated: Relation) -> tuple[Objection, ...]:
        """Object to a mechanism with a delta of its own."""
        found, base = super().objections(stated), cost_of(self.mechanism, stated)
        if found or not base.delta or base.exact:
            return found
        text = "Nothing is proved of repeating a mechanism that fails with a delta of its own."
        return (Objection("repeated-delta", text),)

    def loss(self, stated: Relation) -> Loss:
        """Return the curve, and the pure loss if the mechanism is pure."""
        base = cost_of(self.mechanism, stated)
        if base.delta and not base.exact:
            return UNBOUNDED
        epsilon = None if base.delta else base.epsilon
        if self.runs is Runs.POISSON:
            return Loss(None, curve=self._poisson(base, epsilon))
        curve = self._negative_binomial(base.curve, epsilon)
        if epsilon is None:
            return Loss(None, curve=curve)
        whole = pure(epsilon * (2 + self.eta))
        return pure(epsilon * (2 + self.eta), curve=least_of([curve, whole.curve]))

    @property
    def eta(self) -> Fraction:
        """The shape of the distribution of the number of runs; 1, geometric, if none is stated."""
        return Fraction(1) if self.shape is None else Fraction(self.shape)

    @cached_property
    def gamma(self) -> Fraction:
        """The parameter that belongs to the mean, rounded down: eta (1 - g) / (g (1 - g^eta)) is
        the mean, (1/g - 1) / ln(1/g) if eta is 0; both fall with g.
        """
        mean, eta = Fraction(self.mean), self.eta
        if eta == 1 or mean == 1:
            return 1 / mean

        def runs(gamma: Fraction) -> Number:
            def value() -> arb:
                g, n = ball(gamma), ball(eta)
                if not eta:
                    return (1 / g - 1) / -g.log()
                return n * (1 - g) / (g * -(n * g.log()).expm1())

            return Real(value)

        low, high = -math.log(float(mean) * 1000 * (1 + float(eta))), 0.0
        for _ in range(60):
            middle = (low + high) / 2
            g = math.exp(middle)
            enough = g < 1 and float(runs(Fraction(g))) >= mean
            low, high = (middle, high) if enough else (low, middle)
        found = Fraction(f"{math.exp(low):.12e}")
        while not runs(found) >= mean:
            found *= 1 - _HAIR
        return found

    def _negative_binomial(self, base: Curve, epsilon: Number | None) -> Curve:
        more, spread = 1 + self.eta, balls.log(1 / self.gamma)

        def again(order: int) -> Number | None:
            """The terms of the second order."""
            tau = base.at(order)
            if tau is None:
                return None
            return (tau * (1 - Fraction(1, order)) + spread * Fraction(1, order)) * more

        found = _best(again) if base is not NO_CURVE else None
        if epsilon is not None:
            found = balls.least(epsilon * more, *([found] if found is not None else []))
        if isinstance(found, Real):
            found = balls.kept(found.ball)  # it is asked for at each order
        return self._with(base, lambda order: found)

    def _poisson(self, base: Loss, epsilon: Number | None) -> Curve:
        mean = Fraction(self.mean)

        def failures(order: Order) -> Number | None:
            return _delta_at(base, epsilon, Fraction(order)) * mean

        return self._with(base.curve, failures)

    def _with(self, base: Curve, more: Callable[[Order], Number | None]) -> Curve:
        base, log = remembered(base), balls.log(Fraction(self.mean))

        def exactly(order: Order) -> Number | None:
            tau, rest = base.at(order), more(order)
            if tau is None or rest is None:
                return None
            return balls.total(tau, rest, log * (1 / (Fraction(order) - 1)))

        def at(order: Order) -> Number | None:
            """A divergence is at most that of a higher order, which costs less at first."""
            return _best(known.at, [b for b in _GRID if b >= order] or [order])

        known = remembered(Curve(exactly, no_curve))
        return remembered(Curve(at, no_curve))


def _best(
    value: Callable[[Any], Number | None], orders: Sequence[Order] = _ORDERS
) -> Number | None:
    """Return nearly the least value, any of which is valid: along ``orders`` they fall at first."""
    best: Number | None = None
    for order in orders:
        found = value(order)
        if found is None or (best is not None and found > best):
            break
        best = found
    return best


def _delta_at(base: Loss, epsilon: Number | None, order: Fraction) -> Number:
    """Return the delta of the mechanism at an epsilon of ln(1 + 1 / (order - 1)) or less.

    Of a pure mechanism (e^eps - e^e) / (1 + e^eps) (Kairouz, Oh, Viswanath 2015); from a Renyi
    divergence tau at b, e^((b - 1) (tau - e)) (1 - 1/b)^(b - 1) / b (Canonne, Kamath, Steinke 2020,
    Prop. 12, solved for delta).
    """
    allowed = balls.log(1 + 1 / (order - 1))
    if epsilon is not None:
        if epsilon <= allowed:
            return Fraction(0)
        e = epsilon
        return Real(lambda: (ball(e).exp() - ball(allowed).exp()) / (1 + ball(e).exp()))

    def from_divergence(b: int) -> Number | None:
        tau = base.curve.at(b)
        if tau is None:
            return None
        return Real(
            lambda: ((b - 1) * (ball(tau) - ball(allowed))).exp() * (1 - arb(1) / b) ** (b - 1) / b
        )

    found = _best(from_divergence)
    return Fraction(1) if found is None else balls.least(Fraction(1), found)
