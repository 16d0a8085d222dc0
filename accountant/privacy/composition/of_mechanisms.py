"""The dominating pair of a mechanism between neighbours of a population."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeVar

from accountant.privacy.balls import Number, above
from accountant.privacy.composition import discrete_pairs, mixture_pairs, pairs, sampled_pairs
from accountant.privacy.composition.pairs import Pair
from accountant.privacy.mechanisms import additive, learning, local
from accountant.privacy.mechanisms.base import BaseMechanism, Relation, Sampling
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.selection import Exponential
from accountant.privacy.samples import binomial

T = TypeVar("T")
_LEAST: Final = 1e-12  # Smaller rates and mu cost no more than this one
_MOST_RECORDS: Final = 64
_WHOLE: Final = Sampling.model_construct()


@dataclass(frozen=True, slots=True)
class _Normal:
    """Normal noise with the square of its mu, on a sample."""

    mu_squared: Fraction
    sampling: Sampling | None

    @property
    def mu(self) -> float:
        """The mu, rounded up."""
        return max(root_up(self.mu_squared), _LEAST)


def pair_of(mechanism: BaseMechanism, population: Relation) -> Pair | Fraction | None:
    """Return the pair that is exactly a mechanism's between neighbours of the population, with
    parameters that make it no easier to tell apart; of normal noise, the mu squared. None where no
    pair is proved, or floats do not hold its parameters.
    """
    stated = mechanism.neighbouring or population
    if mechanism.all_objections(stated):
        return None
    exchanged = stated.present and population is Relation.REPLACE_ONE
    if stated is not population and not exchanged and population is not Relation.ZERO_OUT:
        return None
    return if_any(lambda: _between(mechanism, stated, exchanged=exchanged))


def if_any(theorem: Callable[[], T]) -> T | None:
    """Return a theorem's bound; None where its numbers are beyond binary floats."""
    try:
        return theorem()
    except (ArithmeticError, ValueError):
        return None


def _between(
    mechanism: BaseMechanism, stated: Relation, *, exchanged: bool
) -> Pair | Fraction | None:
    steps, sampling = mechanism.group_size * (2 if exchanged else 1), mechanism.sampling
    if (noise := _normal(mechanism)) is not None:
        return _of_normal(noise, mechanism.group_size, exchanged=exchanged)
    if isinstance(mechanism, learning.GaussianMixture) and steps == 1:
        step, chances = mechanism.on_grid
        return _mixtures(chances, max(up(step), _LEAST))
    if sampling is None:
        return _plain(mechanism, steps, stated)
    if steps > 1 or not (sampling.poisson or sampling.without_replacement):
        return None
    base = _plain(mechanism, 1, stated)
    if not isinstance(base, Pair) or up(sampling.rate) >= 1:
        return base
    on_sample = sampled_pairs.Sampled(base, max(up(sampling.rate), _LEAST))
    return sampled_pairs.Mirrored(on_sample) if sampling.fixed else on_sample


def _normal(mechanism: BaseMechanism) -> _Normal | None:
    """Return normal noise, a list of it on one sample, or a sample of a sample, as one step."""
    match mechanism:
        case additive.Gaussian():
            return _Normal(mechanism.mu_squared, mechanism.sampling)
        case Composed(sampling=sampling):
            found = [(part.count, _normal(part)) for part in mechanism.mechanisms]
            parts = [(count, noise) for count, noise in found if noise and part_fits(noise)]
            if len(parts) == len(found):
                return _Normal(sum((n * p.mu_squared for n, p in parts), Fraction(0)), sampling)
            match found, sampling:
                case (
                    [(1, _Normal(square, Sampling(poisson=Decimal() as inner)))],
                    Sampling(poisson=Decimal() as outer),
                ):
                    rate = Fraction(inner) * Fraction(outer)
                    return _Normal(square, _WHOLE.model_copy(update={"poisson": rate}))
    return None


def part_fits(noise: _Normal) -> bool:
    """True for noise on all the data that there are."""
    return noise.sampling is None


def _of_normal(noise: _Normal, records: int, *, exchanged: bool) -> Pair | Fraction | None:
    sampling, steps = noise.sampling, records * (2 if exchanged else 1)
    other = sampling and (sampling.truncated or sampling.allocation)
    if sampling is None or (up(sampling.rate) >= 1 and not other):
        return noise.mu_squared * steps**2
    if sampling.allocation is not None:
        return None
    rate = max(up(sampling.rate), _LEAST)
    if sampling.fixed:
        whole = pairs.SampledGaussian(noise.mu, rate)
        return sampled_pairs.Mirrored(whole) if records == 1 else None
    usual = _on_poisson(noise.mu, rate, records, exchanged=exchanged)
    if sampling.truncated is None or usual is None:
        return usual
    cut = sampling.cut
    if records > 1:
        return None
    rare: Pair = pairs.SampledGaussian(2 * noise.mu, rate)
    rare = sampled_pairs.Mirrored(rare) if exchanged else rare
    return sampled_pairs.Blend(usual, rare, min(up(cut), 1.0)) if cut else usual


def _on_poisson(mu: float, rate: float, records: int, *, exchanged: bool) -> Pair | None:
    """Return the pairs of ``privacy/samples.py``."""
    if exchanged:
        up_, down = (((1 - rate, 0.0), (rate, mean)) for mean in (mu, -mu))
        return mixture_pairs.Mixtures(up_, down) if records == 1 else None
    if records == 1:
        return pairs.SampledGaussian(mu, rate)
    if records > _MOST_RECORDS:
        return None
    return _mixtures(binomial(records, Fraction(rate)), mu)


def _mixtures(chances: Sequence[Fraction], step: float) -> Pair:
    """Return the mixture on a grid of means against N(0). Means are rounded up, and so are chances
    but the first, which has what they leave: a mixture that moves further or more often is harder,
    in either direction, as the best test asks whether an outcome is above some place.
    """
    places = [(chance, up(i * Fraction(step))) for i, chance in enumerate(chances) if chance]
    (first, mean), *others = places
    kept = [(float(first), mean), *((up(chance), i) for chance, i in others)]
    while sum(Fraction(chance) for chance, _ in kept[1:]) >= 1:
        del kept[0]
    return mixture_pairs.Mixtures(tuple(kept), ((1.0, 0.0),))


def _plain(mechanism: BaseMechanism, steps: int, stated: Relation) -> Pair | None:
    """Return the pair for data sets ``steps`` apart, without sampling; of vectors, only under
    normal noise.
    """
    match mechanism:
        case Exponential():
            return pairs.Choice(up(steps * mechanism.epsilon(stated)))
        case additive.Laplace(sensitivity=Decimal()):
            return pairs.Laplace(up(steps * mechanism.ratio))
        case additive.DiscreteLaplace(sensitivity=Decimal()):
            rate = up(1 / Fraction(mechanism.scale))
            return discrete_pairs.DiscreteLaplace(rate, int(steps * mechanism.width))
        case additive.DiscreteGaussian(sensitivity=Decimal()):
            width = int(steps * mechanism.width)
            return discrete_pairs.DiscreteGaussian(width, Fraction(mechanism.scale))
        case local.RandomizedResponse() if steps == 1:
            return _of_response(mechanism)
    return None


def _of_response(mechanism: local.RandomizedResponse) -> Pair:
    """Return the pair of the two categories in which two people differ; others tell nothing."""
    same = 1 - sum(mechanism.chances, Fraction(0))
    response = pairs.Response(up(mechanism.epsilon()))
    if not same:
        return response
    return sampled_pairs.Blend(response, sampled_pairs.Same(), math.nextafter(float(same), 0.0))


def up(value: Number) -> float:
    """Return the smallest float that is surely not below ``value``."""
    return math.nextafter(float(above(value)), math.inf) if value else 0.0


def root_up(value: Fraction) -> float:
    """Return a float that is not below the root of ``value``."""
    return math.nextafter(math.sqrt(up(value)), math.inf)
