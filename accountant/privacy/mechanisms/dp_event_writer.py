"""Mechanisms written as DpEvent trees of the dp_accounting library, their meaning kept.

What has a class of its own there is written as that; anything else as the (epsilon, delta) or the
rho that it costs. Numbers are rounded towards more privacy loss. Noise is relative to a bound on
what one record adds, so what is stated for replacing one is written with half of its sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from accountant.privacy.balls import Number, above
from accountant.privacy.losses import UNBOUNDED
from accountant.privacy.mechanisms.additive import DiscreteLaplace, Laplace
from accountant.privacy.mechanisms.base import BaseMechanism, norm
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.gaussian import DiscreteGaussian, Gaussian
from accountant.privacy.mechanisms.local import RandomizedResponse
from accountant.privacy.mechanisms.pricing import Verdict, derive
from accountant.privacy.mechanisms.relations import Relation
from accountant.privacy.mechanisms.selection import Exponential, PermuteAndFlip

Tree = dict[str, Any]

_DOWN: Final = -math.inf
_UP: Final = math.inf
_NOISE: Final = {
    "LaplaceDpEvent",
    "GaussianDpEvent",
    "DiscreteLaplaceDpEvent",
    "DiscreteGaussianDpEvent",
}


def dp_event_of(mechanisms: Sequence[BaseMechanism], population: Relation) -> Tree:
    """All of ``mechanisms`` as one DpEvent, for an accountant with the population's relation."""
    events = [_counted(mechanism, population) for mechanism in mechanisms]
    return events[0] if len(events) == 1 else _event("ComposedDpEvent", events=events)


def _counted(mechanism: BaseMechanism, population: Relation) -> Tree:
    stated = mechanism.neighbouring or population
    larger = derive(mechanism, population).verdict is Verdict.CONSERVATIVE
    tree = None if larger else _sampled(mechanism, stated)
    if tree is None or not (stated is population or _is_noise(tree)):
        tree = _by_cost(mechanism, population)
    if mechanism.count == 1:
        return tree
    return _event("SelfComposedDpEvent", event=tree, count=mechanism.count)


def _is_noise(tree: Tree) -> bool:
    """True if the event says under which relation it is meant: relative to what a record adds."""
    return tree["class"] in _NOISE


def _sampled(mechanism: BaseMechanism, stated: Relation) -> Tree | None:
    """With its own class, or None: a group of a sample is not the sample of a group."""
    sampling = mechanism.sampling
    if sampling is None:
        return _plain(mechanism, stated)
    tree = _plain(mechanism, stated) if mechanism.group_size == 1 else None
    if tree is None or sampling.misplaced(stated):
        return None
    if sampling.without_replacement is None:
        rate = _number(sampling.rate, _UP)
        return _event("PoissonSampledDpEvent", sampling_probability=rate, event=tree)
    drawn = sampling.without_replacement
    return _event(
        "SampledWithoutReplacementDpEvent",
        source_dataset_size=drawn.of,
        sample_size=drawn.sample,
        event=tree,
    )


def _plain(mechanism: BaseMechanism, stated: Relation) -> Tree | None:
    """Without its sampling; None where no class says the same."""
    half = mechanism.group_size / Fraction(2 if stated is Relation.REPLACE_ONE else 1)
    match mechanism:
        case Laplace() | Gaussian() | DiscreteLaplace() | DiscreteGaussian():
            return _noise(mechanism, half)
        case Exponential() | PermuteAndFlip():
            chosen = isinstance(mechanism, Exponential)
            name = "ExponentialMechanismDpEvent" if chosen else "PermuteAndFlipDpEvent"
            epsilon = mechanism.epsilon(stated) * mechanism.group_size
            return _event(name, epsilon=_number(epsilon, _UP))
        case RandomizedResponse(truth_probability=Decimal() as truth, group_size=1):
            noise = _number(1 - Fraction(truth), _DOWN)
            buckets = mechanism.categories
            return _event("RandomizedResponseDpEvent", noise_parameter=noise, num_buckets=buckets)
        case Composed(group_size=1):
            return _event(
                "ComposedDpEvent", events=[_counted(p, stated) for p in mechanism.mechanisms]
            )
    return None


def _noise(
    mechanism: Laplace | Gaussian | DiscreteLaplace | DiscreteGaussian, factor: Fraction
) -> Tree | None:
    """Noise on an answer whose records are bounded by ``factor`` times the sensitivity."""
    wanted = "l1" if isinstance(mechanism, Laplace | DiscreteLaplace) else "l2"
    bound = (norm(mechanism.sensitivity, wanted) or Fraction(0)) * factor
    scale = Fraction(mechanism.scale)
    if isinstance(mechanism, DiscreteGaussian):
        sigma, width = _number(scale, _DOWN), _number(bound, _UP)
        return _event("DiscreteGaussianDpEvent", sigma=sigma, sensitivity=width)
    if not isinstance(mechanism, DiscreteLaplace):
        name = "LaplaceDpEvent" if isinstance(mechanism, Laplace) else "GaussianDpEvent"
        return _event(name, noise_multiplier=_number(scale / bound, _DOWN))
    if bound.denominator != 1:
        return None
    parameter = _number(1 / scale, _UP)
    return _event("DiscreteLaplaceDpEvent", noise_parameter=parameter, sensitivity=int(bound))


def _by_cost(mechanism: BaseMechanism, population: Relation) -> Tree:
    """What one invocation costs there, the claim if that is larger. Raises ValueError for what is
    neither (epsilon, delta) nor rho.
    """
    found = derive(mechanism, population)
    larger = found.derived is None or found.verdict is Verdict.CONSERVATIVE
    loss = (found.claimed if larger else found.derived) or UNBOUNDED
    if loss.epsilon is not None:
        epsilon, delta = _number(loss.epsilon, _UP), _number(loss.delta, _UP)
        return _event("EpsilonDeltaDpEvent", epsilon=epsilon, delta=delta)
    if loss.rho is not None and not loss.delta:
        return _event("ZCDpEvent", rho=_number(loss.rho, _UP), xi=0.0)
    if mechanism.kind == "non_private":
        return _event("NonPrivateDpEvent")
    raise ValueError(f"no DpEvent says what {mechanism.kind} costs as it is stated here")


def _event(name: str, **fields: Any) -> Tree:
    return {"class": name, "fields": fields}


def _number(value: Number, towards: float) -> float:
    """The float whose shortest spelling is ``value`` or the next one ``towards``."""
    value = above(value)
    found = float(value)
    sign = 1 if towards > 0 else -1
    while sign * (Fraction(repr(found)) - value) < 0:
        found = math.nextafter(found, towards)
    return found
