"""The tight totals of a fixed list of mechanisms, from the pairs that dominate them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple, TypeVar

from accountant.privacy.balls import Number, above
from accountant.privacy.composition import closed_forms, pairs
from accountant.privacy.composition.pairs import Pair, Response
from accountant.privacy.composition.pld import Interval, total
from accountant.privacy.conversions import concentrated_epsilon, gaussian_epsilon
from accountant.privacy.mechanisms import additive
from accountant.privacy.mechanisms.base import BaseMechanism, Relation, Sampling
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.mechanisms.selection import Exponential

T = TypeVar("T")

_FOR_RHO: Final = Fraction(1, 10)  # The part of delta at which a rho without a pair is converted


class Tight(NamedTuple):
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
    """Pairs with their counts; normal noise and bare rhos are summed up."""

    pairs: Counter[Pair] = field(default_factory=Counter)
    losses: Counter[tuple[float, float]] = field(default_factory=Counter)
    mu_squared: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def add(self, mechanism: BaseMechanism, population: Relation) -> bool:
        """Add all invocations at the larger of claim and derivation; return false if unbounded."""
        found, count = derive(mechanism, population), mechanism.count
        loss = found.larger
        if loss is None or (loss.epsilon is None and loss.rho is None):
            return False
        pair = None if found.by_claim else _pair(mechanism, population)
        if pair is None and loss.epsilon is None and loss.delta:
            return False  # no pair holds the failure with that delta
        bare = math.inf if loss.epsilon is None else _up(loss.epsilon)
        own = min(1.0, _up(loss.delta))
        self.losses[bare, own] += count
        if isinstance(pair, Fraction):
            self.mu_squared += count * pair
        elif pair is not None or loss.epsilon is not None:
            self.pairs[pair or Response(bare, own)] += count
        elif loss.rho is not None:
            self.rho += count * above(loss.rho)
        return True

    def exact(self, delta: Fraction) -> float | None:
        """Return the exact epsilon of nothing but Gaussian noise, else None. All normal noise is
        one (Dong, Roth, Su 2022, Cor. 3.3; Balle and Wang 2018, Thm 8).
        """
        match list(self.pairs.items()):
            case [] if self.mu_squared and not self.rho:
                return math.nextafter(float(gaussian_epsilon(self.mu_squared, delta)), math.inf)
            case [(pairs.DiscreteGaussian() as pair, 1)] if not (self.mu_squared or self.rho):
                return closed_forms.discrete_epsilon(pair, math.nextafter(float(delta), 0.0))
        return None


def tight(mechanisms: Iterable[BaseMechanism], population: Relation, delta: Fraction) -> Tight:
    """Return the tight totals of ``mechanisms``, all fixed in advance, at ``delta`` > 0."""
    schedule = _Schedule()
    if not all(schedule.add(one, population) for each in mechanisms for one in _apart(each)):
        return Tight()
    listed, renyi_pairs = Counter(schedule.pairs), Counter(schedule.pairs)
    if schedule.mu_squared:
        listed[pairs.Gaussian(_root_up(schedule.mu_squared))] += 1
    if schedule.rho:
        part = delta * _FOR_RHO
        listed[Response(_up(concentrated_epsilon(schedule.rho, part)), _up(part))] += 1
    if gaussian := schedule.mu_squared + 2 * schedule.rho:  # the same divergence at every order
        renyi_pairs[pairs.Gaussian(_root_up(gaussian))] += 1
    at = math.nextafter(float(delta), 0.0)
    losses = schedule.losses
    (one, count), *others = losses.items()
    bounded = all(math.isfinite(epsilon) and own < 1 for epsilon, own in losses)
    return Tight(
        pld=_if_any(lambda: total(listed, at)),
        optimal=None if others else _if_any(lambda: closed_forms.optimal_epsilon(*one, count, at)),
        closed_form=_if_any(lambda: closed_forms.closed_form(losses, at)) if bounded else None,
        renyi=_if_any(lambda: closed_forms.renyi_epsilon(renyi_pairs, at)),
        gaussian=_if_any(lambda: schedule.exact(delta)),
    )


def _apart(mechanism: BaseMechanism) -> Iterator[BaseMechanism]:
    """Yield the parts of a plain composition, each with a pair of its own; else the mechanism."""
    match mechanism:
        case Composed(group_size=1, sampling=None, claimed=None, neighbouring=stated):
            for part in mechanism.mechanisms:
                whole = {"count": part.count * mechanism.count, "neighbouring": stated}
                yield from _apart(part.model_copy(update=whole))
        case _:
            yield mechanism


def _if_any(theorem: Callable[[], T]) -> T | None:
    """Return a theorem's bound; None where its numbers are beyond binary floats."""
    try:
        return theorem()
    except (ArithmeticError, ValueError):
        return None


def _pair(mechanism: BaseMechanism, population: Relation) -> Pair | Fraction | None:
    """Return the pair that is exactly a mechanism's between neighbours of the population, with
    parameters that make it no easier to tell apart; of normal noise, the mu squared. None where no
    pair is proved, or floats do not hold its parameters.
    """
    stated = mechanism.neighbouring or population
    if mechanism.all_objections(stated) or mechanism.local:
        return None
    if stated is Relation.REPLACE_ONE and stated is not population:
        return None
    steps = mechanism.group_size * (1 if stated is population else 2)
    return _if_any(lambda: _between(mechanism, steps, stated))


def _between(mechanism: BaseMechanism, steps: int, stated: Relation) -> Pair | Fraction | None:
    """Return the pair for data sets ``steps`` apart; of vectors, only under normal noise."""
    found: Pair | Fraction | None = None
    match mechanism:
        case additive.Gaussian(sampling=None):
            found = mechanism.ratio**2 * steps**2
        case additive.Gaussian(sampling=Sampling(poisson=Decimal() as q)) if steps == 1 and q != 1:
            found = pairs.SampledGaussian(_root_up(mechanism.ratio**2), _up(Fraction(q)))
        case Exponential(sampling=None):
            found = pairs.Choice(_up(steps * mechanism.epsilon(stated)))
        case additive.Laplace(sampling=None, sensitivity=Decimal()):
            found = pairs.Laplace(_up(steps * mechanism.ratio))
        case additive.DiscreteLaplace(sampling=None, sensitivity=Decimal()):
            rate = _up(1 / Fraction(mechanism.scale))
            found = pairs.DiscreteLaplace(rate, int(steps * mechanism.width))
        case additive.DiscreteGaussian(sampling=None, sensitivity=Decimal()):
            scale = math.nextafter(float(Fraction(mechanism.scale)), 0.0)
            found = pairs.DiscreteGaussian(int(steps * mechanism.width), scale)
    return found


def _up(value: Number) -> float:
    """Return the smallest float that is surely not below ``value``."""
    return math.nextafter(float(above(value)), math.inf) if value else 0.0


def _root_up(value: Fraction) -> float:
    return math.nextafter(math.sqrt(_up(value)), math.inf)
