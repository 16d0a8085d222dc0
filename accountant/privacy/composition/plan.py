"""A fixed list of mechanisms, as the pairs that dominate them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeVar

from accountant.privacy import mechanisms as kinds
from accountant.privacy.balls import Number, above
from accountant.privacy.composition.closed_form import closed_form
from accountant.privacy.composition.discrete import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.composition.exact import discrete_epsilon, normal_epsilon
from accountant.privacy.composition.optimal import optimal_epsilon
from accountant.privacy.composition.pairs import Choice, Gaussian, Laplace, Pair, Response
from accountant.privacy.composition.pld import Interval, total
from accountant.privacy.composition.renyi import renyi_epsilon
from accountant.privacy.composition.sampled import SampledGaussian
from accountant.privacy.conversions import concentrated_epsilon
from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms import BaseMechanism, Priced, Relation, Verdict, price

T = TypeVar("T")

_FOR_RHO: Final = Fraction(1, 10)
"""The part of delta at which a rho that has no pair of its own is converted."""


@dataclass(frozen=True, slots=True)
class Tight:
    """The total of a list that was fixed in advance. ``pld`` and ``renyi`` None: something has no
    bound. ``optimal`` None: the mechanisms are not all alike, or too many. ``closed_form`` None:
    something among them has no (epsilon, delta) of its own. ``gaussian`` None: the list is not
    only normal noise, nor a single discrete Gaussian.
    """

    pld: Interval | None = None
    optimal: float | None = None
    closed_form: float | None = None
    renyi: float | None = None
    gaussian: float | None = None

    @property
    def upper(self) -> float:
        """The smallest epsilon that is proved."""
        pld = self.pld.upper if self.pld else None
        found = (pld, self.optimal, self.closed_form, self.renyi, self.gaussian)
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
        if loss is None or (loss.epsilon is None and loss.rho is None):
            return False
        size = 0 if priced.verdict is Verdict.CONSERVATIVE else _size(mechanism, population)
        normal = isinstance(mechanism, kinds.Gaussian) and mechanism.sampling is None
        pair = _pair(mechanism, population, size) if size and not normal else None
        if pair is None and not (normal and size) and loss.epsilon is None and loss.delta:
            return False  # what fails with that delta is in no pair
        bare = math.inf if loss.epsilon is None else _up(loss.epsilon)
        own = min(1.0, _up(loss.delta))
        self.losses[bare, own] += count
        if normal and size:
            self.mu_squared += count * mechanism.mu_squared * size**2  # type: ignore[attr-defined]
        elif pair is not None:
            self.pairs[pair] += count
        elif loss.epsilon is not None:
            self.pairs[Response(bare, own)] += count
        elif loss.rho is not None:
            self.rho += count * above(loss.rho)
        return True


def tight(mechanisms: Sequence[BaseMechanism], population: Relation, delta: Fraction) -> Tight:
    """The tight totals at ``delta``, which is positive, in ``population``'s relation.

    Precondition: nothing in the list was chosen after seeing an answer.
    """
    schedule = _Schedule()
    for mechanism in _flat(mechanisms):
        if not schedule.add(mechanism, price(mechanism, population), population):
            return Tight()
    pairs, renyi_pairs = Counter(schedule.pairs), Counter(schedule.pairs)
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
    bounded = all(math.isfinite(epsilon) and own < 1 for epsilon, own in losses)
    alike = 0 < one[0] < math.inf and one[1] < 1
    return Tight(
        pld=_if_any(lambda: total(pairs, at)),
        optimal=_if_any(lambda: optimal_epsilon(*one, count, at)) if alike else None,
        closed_form=_if_any(lambda: closed_form(losses, at)) if bounded else None,
        renyi=_if_any(lambda: renyi_epsilon(renyi_pairs, at)),
        gaussian=_if_any(lambda: _exact(schedule, delta)),
    )


def _exact(schedule: _Schedule, delta: Fraction) -> float | None:
    """Where Gaussian noise is all there is."""
    if schedule.rho:
        return None
    if schedule.mu_squared:
        return normal_epsilon(schedule.mu_squared, delta) if not schedule.pairs else None
    match list(schedule.pairs.items()):
        case [(DiscreteGaussian() as pair, 1)]:
            return discrete_epsilon(pair, math.nextafter(float(delta), 0.0))
    return None


def _if_any(theorem: Callable[[], T]) -> T | None:
    """What a theorem says; nothing where its numbers are beyond binary floats."""
    try:
        return theorem()
    except (ArithmeticError, ValueError):
        return None


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


def _size(mechanism: BaseMechanism, population: Relation) -> int:
    """How many of the mechanism's own steps lie between neighbours of the population; 0 where
    nothing follows from its parameters.
    """
    stated = mechanism.neighbouring or population
    if mechanism.all_objections(stated) or mechanism.local:
        return 0
    if stated is population:
        return mechanism.group_size
    return 2 * mechanism.group_size if stated is Relation.ADD_OR_REMOVE_ONE else 0


def _pair(mechanism: BaseMechanism, population: Relation, size: int) -> Pair | None:
    """The pair that is exactly this mechanism's for ``size`` steps, where one is proved: for noise
    on a single number, a choice, and normal noise on a sample.
    """
    if isinstance(mechanism, kinds.Gaussian):
        return _sampled(mechanism) if size == 1 else None
    if mechanism.sampling is not None:
        return None
    if isinstance(mechanism, kinds.Exponential):
        return Choice(_up(size * mechanism.epsilon(mechanism.neighbouring or population)))
    return _single(mechanism, size)


def _single(mechanism: BaseMechanism, size: int) -> Pair | None:
    """The pair of noise on a single number; a vector has none but the hardest of its epsilon."""
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


def _up(value: Number) -> float:
    """The smallest float that is surely not below ``value``."""
    return math.nextafter(float(above(value)), math.inf) if value else 0.0


def _root_up(value: Fraction) -> float:
    return math.nextafter(math.sqrt(_up(value)), math.inf)
