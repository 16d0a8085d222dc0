"""The tight totals of a fixed list of mechanisms, from the pairs that dominate them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeVar

from accountant.privacy.balls import Number, above
from accountant.privacy.composition import closed_forms, pairs
from accountant.privacy.composition.pairs import DiscreteGaussian, Gaussian, Pair, Response
from accountant.privacy.composition.pld import Interval, total
from accountant.privacy.composition.renyi import renyi_epsilon
from accountant.privacy.conversions import concentrated_epsilon
from accountant.privacy.gaussian_curve import gaussian_epsilon
from accountant.privacy.steps import NamedPair, Step

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

    def add(self, step: Step) -> bool:
        """Add all invocations of ``step``; return false if nothing bounds them."""
        loss, count = step.loss, step.count
        if loss is None or (loss.epsilon is None and loss.rho is None):
            return False
        normal = step.pair is not None and step.pair.name == "gaussian"
        pair = None if step.pair is None or normal else _pair(step.pair)
        if pair is None and not normal and loss.epsilon is None and loss.delta:
            return False  # no pair holds the failure with that delta
        bare = math.inf if loss.epsilon is None else _up(loss.epsilon)
        own = min(1.0, _up(loss.delta))
        self.losses[bare, own] += count
        if step.pair is not None and normal:
            self.mu_squared += count * step.pair.parameters[0]
        elif pair is not None:
            self.pairs[pair] += count
        elif loss.epsilon is not None:
            self.pairs[Response(bare, own)] += count
        elif loss.rho is not None:
            self.rho += count * above(loss.rho)
        return True

    def exact(self, delta: Fraction) -> float | None:
        """Return the exact epsilon of a list of nothing but Gaussian noise, else None.

        All normal noise is one (Dong, Roth, Su 2022, Cor. 3.3; Balle and Wang 2018, Thm 8).
        """
        match list(self.pairs.items()):
            case [] if self.mu_squared and not self.rho:
                return math.nextafter(float(gaussian_epsilon(self.mu_squared, delta)), math.inf)
            case [(DiscreteGaussian() as pair, 1)] if not (self.mu_squared or self.rho):
                return closed_forms.discrete_epsilon(pair, math.nextafter(float(delta), 0.0))
        return None


def tight(steps: Sequence[Step], delta: Fraction) -> Tight:
    """Return the tight totals at ``delta``, which is positive.

    Precondition: nothing in the list was chosen after an answer was seen.
    """
    schedule = _Schedule()
    if not all(map(schedule.add, steps)):
        return Tight()
    listed, renyi_pairs = Counter(schedule.pairs), Counter(schedule.pairs)
    if schedule.mu_squared:
        listed[Gaussian(_root_up(schedule.mu_squared))] += 1
    if schedule.rho:
        part = delta * _FOR_RHO
        listed[Response(_up(concentrated_epsilon(schedule.rho, part)), _up(part))] += 1
    if gaussian := schedule.mu_squared + 2 * schedule.rho:  # the same divergence at every order
        renyi_pairs[Gaussian(_root_up(gaussian))] += 1
    at = math.nextafter(float(delta), 0.0)
    losses = schedule.losses
    [(one, count)] = losses.items() if len(losses) == 1 else [((math.inf, 0.0), 0)]
    bounded = all(math.isfinite(epsilon) and own < 1 for epsilon, own in losses)
    alike = 0 < one[0] < math.inf and one[1] < 1
    return Tight(
        pld=_if_any(lambda: total(listed, at)),
        optimal=_if_any(lambda: closed_forms.optimal_epsilon(*one, count, at)) if alike else None,
        closed_form=_if_any(lambda: closed_forms.closed_form(losses, at)) if bounded else None,
        renyi=_if_any(lambda: renyi_epsilon(renyi_pairs, at)),
        gaussian=_if_any(lambda: schedule.exact(delta)),
    )


def _if_any(theorem: Callable[[], T]) -> T | None:
    """Return a theorem's bound; None where its numbers are beyond binary floats."""
    try:
        return theorem()
    except (ArithmeticError, ValueError):
        return None


def _pair(named: NamedPair) -> Pair | None:
    """Return the pair, or None if it cannot be computed at its parameters."""
    try:
        return _PAIRS[named.name](*named.parameters)
    except ValueError:
        return None


def _up(value: Number) -> float:
    """Return the smallest float that is surely not below ``value``."""
    return math.nextafter(float(above(value)), math.inf) if value else 0.0


def _root_up(value: Fraction) -> float:
    return math.nextafter(math.sqrt(_up(value)), math.inf)


def _discrete_gaussian(width: Fraction, scale: Fraction) -> Pair:
    return DiscreteGaussian(int(width), math.nextafter(float(scale), 0.0))


_PAIRS: Final[dict[str, Callable[..., Pair]]] = {
    "laplace": lambda epsilon: pairs.Laplace(_up(epsilon)),
    "choice": lambda epsilon: pairs.Choice(_up(epsilon)),
    "discrete_laplace": lambda rate, width: pairs.DiscreteLaplace(_up(rate), int(width)),
    "discrete_gaussian": _discrete_gaussian,
    "sampled_gaussian": lambda mu_squared, q: pairs.SampledGaussian(_root_up(mu_squared), _up(q)),
}
"""Pairs by their names, each at parameters that make it no easier to tell apart."""
