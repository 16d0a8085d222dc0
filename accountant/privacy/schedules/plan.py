"""A fixed list of mechanisms, as the pairs that dominate them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final

from accountant.privacy import mechanisms as kinds
from accountant.privacy.conversions import concentrated_epsilon
from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms import BaseMechanism, Priced, Relation, Verdict, price
from accountant.privacy.schedules.closed_form import closed_form
from accountant.privacy.schedules.discrete import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.schedules.optimal import optimal_epsilon
from accountant.privacy.schedules.pairs import Choice, Gaussian, Laplace, Pair, Response
from accountant.privacy.schedules.pld import Interval, total
from accountant.privacy.schedules.renyi import renyi_epsilon
from accountant.privacy.schedules.sampled import SampledGaussian

_FOR_RHO: Final = Fraction(1, 10)
"""The part of delta at which a rho that has no pair of its own is converted."""


@dataclass(frozen=True, slots=True)
class Tight:
    """The total of a list that was fixed in advance. ``pld`` and ``renyi`` None: something has no
    bound. ``optimal`` None: the mechanisms are not all alike, or too many. ``closed_form`` None:
    something among them has no (epsilon, delta) of its own.
    """

    pld: Interval | None = None
    optimal: float | None = None
    closed_form: float | None = None
    renyi: float | None = None

    @property
    def upper(self) -> float:
        """The smallest epsilon that is proved."""
        found = (self.pld.upper if self.pld else None, self.optimal, self.closed_form, self.renyi)
        return min((epsilon for epsilon in found if epsilon is not None), default=math.inf)


@dataclass(slots=True)
class _Schedule:
    """Pairs with their counts; Gaussian noise and bare rhos are summed up."""

    pairs: Counter[Pair] = field(default_factory=Counter)
    losses: Counter[tuple[float, float]] = field(default_factory=Counter)
    mu_squared: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def add(self, mechanism: BaseMechanism, priced: Priced, population: Relation) -> bool:
        """Adds all invocations of ``mechanism``; false if nothing bounds them."""
        loss, count = _booked(priced), mechanism.count
        exact = None if priced.verdict is Verdict.CONSERVATIVE else _pair(mechanism, population)
        if loss is None or not (exact or loss.epsilon is not None or loss.rho is not None):
            return False
        bare = math.inf if loss.epsilon is None else _up(loss.epsilon)
        self.losses[bare, _up(loss.delta)] += count
        if isinstance(exact, Gaussian):
            self.mu_squared += count * (loss.mu_squared or 0)
        elif exact is not None:
            self.pairs[exact] += count
        elif loss.epsilon is not None:
            self.pairs[Response(bare, _up(loss.delta))] += count
        else:
            self.rho += count * (loss.rho or 0)
        return True


def tight(mechanisms: Sequence[BaseMechanism], population: Relation, delta: Fraction) -> Tight:
    """The tight totals at ``delta``, which is positive, in ``population``'s relation.

    Precondition: nothing in the list was chosen after seeing an answer.
    """
    schedule = _Schedule()
    for mechanism in _flat(mechanisms):
        if not schedule.add(mechanism, price(mechanism, population), population):
            return Tight()
    pairs, renyi_pairs = schedule.pairs, Counter(schedule.pairs)
    if schedule.mu_squared:
        pairs[Gaussian(_root_up(schedule.mu_squared))] += 1
    if schedule.rho:
        part = delta * _FOR_RHO
        pairs[Response(_up(concentrated_epsilon(schedule.rho, part)), _up(part))] += 1
    if gaussian := schedule.mu_squared + 2 * schedule.rho:  # the same divergence at every order
        renyi_pairs[Gaussian(_root_up(gaussian))] += 1
    at = math.nextafter(float(delta), 0.0)
    losses = schedule.losses
    [(one, count)] = losses.items() if len(losses) == 1 else [((math.inf, 0.0), 0)]
    bounded = all(math.isfinite(epsilon) for epsilon, _ in losses)
    return Tight(
        pld=total(pairs, at),
        optimal=optimal_epsilon(*one, count, at) if math.isfinite(one[0]) else None,
        closed_form=closed_form(losses, at) if bounded else None,
        renyi=renyi_epsilon(renyi_pairs, at),
    )


def _flat(mechanisms: Iterable[BaseMechanism]) -> Iterator[BaseMechanism]:
    """With what is only composed taken apart: each part has a pair of its own."""
    for mechanism in mechanisms:
        plain = isinstance(mechanism, kinds.Composed) and mechanism.group_size == 1
        if plain and mechanism.sampling is None and mechanism.claimed is None:
            for part in mechanism.mechanisms:  # type: ignore[attr-defined]
                count = part.count * mechanism.count
                stated = {"count": count, "neighbouring": mechanism.neighbouring}
                yield from _flat([part.model_copy(update=stated)])
        else:
            yield mechanism


def _pair(mechanism: BaseMechanism, population: Relation) -> Pair | None:
    """The pair that is exactly this mechanism's, where one is proved; for a vector only that of
    normal noise is.
    """
    stated = mechanism.neighbouring or population
    size = mechanism.group_size * (1 if stated is population else 2)
    single = isinstance(getattr(mechanism, "sensitivity", None), Decimal)
    if mechanism.objections(stated) or (mechanism.sampling and size > 1):
        return None
    if isinstance(mechanism, kinds.Exponential) and mechanism.sampling is None:
        return Choice(_up(size * mechanism.epsilon(stated)))
    if isinstance(mechanism, kinds.Gaussian):
        return _sampled(mechanism) if mechanism.sampling else Gaussian(1.0)
    return _single(mechanism, size) if single and mechanism.sampling is None else None


def _single(mechanism: BaseMechanism, size: int) -> Pair | None:
    """The pair of noise on a single number, for a group of ``size``."""
    match mechanism:
        case kinds.Laplace(sensitivity=Decimal() as width):
            return Laplace(_up(size * Fraction(width) / Fraction(mechanism.scale)))
        case kinds.DiscreteLaplace(sensitivity=Decimal() as width):
            return _or_none(DiscreteLaplace, _up(1 / Fraction(mechanism.scale)), int(size * width))
        case kinds.DiscreteGaussian(sensitivity=Decimal() as width):
            scale = math.nextafter(float(mechanism.scale), 0.0)
            return _or_none(DiscreteGaussian, int(size * width), scale)
    return None


def _sampled(mechanism: kinds.Gaussian) -> Pair | None:
    rate = mechanism.sampling.poisson if mechanism.sampling else None
    if rate is None or rate == 1:
        return None
    return _or_none(SampledGaussian, _root_up(mechanism.mu_squared), _up(Fraction(rate)))


def _or_none(kind: type[Pair], *parameters: float) -> Pair | None:
    """The pair, unless its parameters are such that it cannot be computed."""
    try:
        return kind(*parameters)
    except ValueError:
        return None


def _booked(priced: Priced) -> Loss | None:
    """The larger of claim and derivation, where both are there."""
    if priced.derived is None or priced.verdict is Verdict.CONSERVATIVE:
        return priced.claimed
    return priced.derived


def _up(value: Fraction) -> float:
    """The smallest float that is surely not below ``value``."""
    return math.nextafter(float(value), math.inf) if value else 0.0


def _root_up(value: Fraction) -> float:
    return math.nextafter(math.sqrt(_up(value)), math.inf)
