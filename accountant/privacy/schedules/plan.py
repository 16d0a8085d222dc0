"""A fixed list of mechanisms, as the pairs that dominate them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from accountant.privacy.mechanisms import Mechanism, Priced, Relation, Verdict
from accountant.privacy.mechanisms.additive import Gaussian as GaussianNoise
from accountant.privacy.mechanisms.additive import Laplace as LaplaceNoise
from accountant.privacy.mechanisms.base import norm
from accountant.privacy.schedules.closed_form import closed_form
from accountant.privacy.schedules.optimal import optimal_epsilon
from accountant.privacy.schedules.pairs import Gaussian, Laplace, Pair, Response
from accountant.privacy.schedules.pld import Interval, total
from accountant.privacy.schedules.renyi import renyi_epsilon
from accountant.privacy.units import Loss


@dataclass(frozen=True, slots=True)
class Tight:
    """The total of a list that was fixed in advance. ``pld`` and ``renyi`` None: something has no
    bound. ``optimal`` None: the mechanisms are not all alike, or too many. ``closed_form`` None: a
    Gaussian among them has no (epsilon, delta) of its own.
    """

    pld: Interval | None = None
    optimal: float | None = None
    closed_form: float | None = None
    renyi: float | None = None


def tight(
    mechanisms: Sequence[Mechanism],
    priced: Sequence[Priced],
    population: Relation,
    delta: Fraction,
) -> Tight:
    """The tight totals at ``delta``, which is positive. ``priced`` is in ``population``'s relation.

    Precondition: nothing in the list was chosen after seeing an answer.
    """
    pairs: Counter[Pair] = Counter()
    losses: Counter[tuple[float, float]] = Counter()
    square = Fraction(0)
    for mechanism, price in zip(mechanisms, priced, strict=True):
        loss = _booked(price)
        if isinstance(mechanism, GaussianNoise) and price.verdict is not Verdict.CONSERVATIVE:
            square += mechanism.count * _mu(mechanism, population) ** 2
            losses[math.inf, 0.0] += mechanism.count
            continue
        if loss is None or loss.epsilon is None:
            return Tight()
        epsilon, own = _up(loss.epsilon), _up(loss.delta)
        losses[epsilon, own] += mechanism.count
        # For a vector no pair is proved here but the hardest of its epsilon.
        single = isinstance(mechanism, LaplaceNoise) and isinstance(mechanism.sensitivity, Decimal)
        pure = single and price.verdict is not Verdict.CONSERVATIVE
        pairs[Laplace(epsilon) if pure else Response(epsilon, own)] += mechanism.count
    if square:
        pairs[Gaussian(math.nextafter(math.sqrt(_up(square)), math.inf))] += 1
    at = math.nextafter(float(delta), 0.0)
    [(one, count)] = losses.items() if len(losses) == 1 else [((math.inf, 0.0), 0)]
    return Tight(
        pld=total(pairs, at),
        optimal=optimal_epsilon(*one, count, at) if math.isfinite(one[0]) else None,
        closed_form=None if square else closed_form(losses, at),
        renyi=renyi_epsilon(pairs, at),
    )


def _booked(price: Priced) -> Loss | None:
    """The larger of claim and derivation, where both are there."""
    if price.derived is None or price.verdict is Verdict.CONSERVATIVE:
        return price.claimed
    return price.derived


def _mu(mechanism: GaussianNoise, population: Relation) -> Fraction:
    width = norm(mechanism.sensitivity, "l2") or Fraction(0)
    stated = mechanism.neighbouring or population
    doubled = stated is Relation.ADD_OR_REMOVE_ONE and population is Relation.REPLACE_ONE
    return (2 if doubled else 1) * width / Fraction(mechanism.scale)


def _up(value: Fraction) -> float:
    """The smallest float that is surely not below ``value``."""
    return math.nextafter(float(value), math.inf) if value else 0.0
