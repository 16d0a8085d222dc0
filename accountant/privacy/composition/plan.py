"""The tight totals of a fixed list of mechanisms, from the pairs that dominate them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from accountant.privacy.balls import Number, above, least, most, total
from accountant.privacy.composition import closed_forms, exact, pairs
from accountant.privacy.composition.discrete_pairs import DiscreteGaussian
from accountant.privacy.composition.of_mechanisms import if_any, pair_of, root_up, up
from accountant.privacy.composition.pairs import Pair, Response
from accountant.privacy.composition.pld import GRID, Interval
from accountant.privacy.composition.pld import total as pld_of
from accountant.privacy.conversions import concentrated_epsilon, gaussian_epsilon, intercept
from accountant.privacy.curves import Curve
from accountant.privacy.losses import Loss
from accountant.privacy.mechanisms.base import BaseMechanism, Relation
from accountant.privacy.mechanisms.compound import Composed
from accountant.privacy.mechanisms.pricing import derive

_APART: Final = Fraction(1, 10)  # The part of delta at which what has no pair is converted
_UNBOUNDED: Final = 10**12  # An epsilon that no account holds


class Tight(NamedTuple):
    """The total of a list that was fixed in advance. ``pld`` and ``renyi`` None: something has no
    bound; ``pld.lower`` 0: something has no pair of its own, and may cost less than what stands for
    it. ``optimal`` None: the mechanisms are not all alike, or too many. ``closed_form`` None:
    something among them has no (epsilon, delta) of its own. ``gaussian`` None: the list is not
    only normal noise, nor a single discrete Gaussian. ``filters``: the sum of rho or of mu^2, if
    everything has one, as the filters zcdp and gdp count it.
    """

    pld: Interval | None = None
    optimal: float | None = None
    closed_form: float | None = None
    renyi: float | None = None
    gaussian: float | None = None
    filters: float | None = None

    @property
    def upper(self) -> float:
        """The smallest epsilon that is proved."""
        pld = self.pld.upper if self.pld else None
        found = (pld, *self[1:])
        return min((epsilon for epsilon in found if epsilon is not None), default=math.inf)


@dataclass(slots=True)
class _Schedule:
    """Pairs with their counts, normal noise summed up, and ``bare`` losses that have no pair;
    ``curved``: what stands for a mechanism in a sum of divergences.
    """

    pairs: Counter[Pair] = field(default_factory=Counter)
    losses: Counter[tuple[float, float]] = field(default_factory=Counter)
    mu_squared: Fraction = Fraction(0)
    bare: list[tuple[Loss, int]] = field(default_factory=list)
    curved: list[tuple[Loss, int]] = field(default_factory=list)
    known: Counter[Pair] = field(default_factory=Counter)
    loose: bool = False
    """Something may cost less than what stands for it: the lower end of the total says nothing."""
    every: list[tuple[Loss, int]] = field(default_factory=list)

    def add(self, mechanism: BaseMechanism, population: Relation) -> bool:
        """Add all invocations at the larger of claim and derivation; return false if unbounded."""
        found, count = derive(mechanism, population), mechanism.count
        loss = found.larger
        if loss is None or (loss.epsilon is None and loss.curve.at(2) is None):
            return False
        pair = None if found.by_claim else pair_of(mechanism, population)
        word = found.by_claim and loss.epsilon is not None
        self.loose |= not word if pair is None else _is_cut(mechanism)
        bare = math.inf if loss.epsilon is None else up(loss.epsilon)
        own = min(1.0, up(loss.delta))
        self.losses[bare, own] += count
        self.every.append((loss, count))
        if isinstance(pair, Fraction):
            self.mu_squared += count * pair
            return True
        if pair is None and loss.epsilon is None:
            self.bare.append((loss, count))
        else:
            self.pairs[pair or Response(bare, own)] += count
        if pair is not None and closed_forms.is_known(pair):
            self.known[pair] += count
        else:
            self.curved.append((loss, count))
        return True

    def listed(self, delta: Fraction) -> Counter[Pair]:
        """Return all pairs; all that is bare is converted at a part of ``delta``, as one."""
        found = Counter(self.pairs)
        if self.mu_squared:
            found[pairs.Gaussian(root_up(self.mu_squared))] += 1
        if self.bare:
            part = delta * _APART
            epsilon, lost = _epsilon_of_curves(self.bare, part), _own(self.bare) + part
            found[Response(up(epsilon), min(1.0, up(lost)))] += 1
        return found

    def pld(self, delta: Fraction, at: float, grid: float) -> Interval:
        """Return the total of all pairs."""
        found = pld_of(self.listed(delta), at, grid)
        return found._replace(lower=0.0) if self.loose else found

    def renyi(self, delta: float) -> float:
        """Return the least epsilon over all orders."""
        known = Counter(self.known)
        if self.mu_squared:
            known[pairs.Gaussian(root_up(self.mu_squared))] += 1
        curves, own = _curves(self.curved), up(_own(self.curved))
        return closed_forms.renyi_epsilon(known, delta, curves, own)

    def filters(self, delta: Fraction) -> float | None:
        """Return the least epsilon of the sums of rho and of mu^2 beside all deltas."""
        spare = delta - above(_own(self.every))
        if spare <= 0:
            return None
        found: list[Number] = []
        if (rho := _sum([(loss.rho, n) for loss, n in self.every])) is not None:
            found.append(concentrated_epsilon(rho, spare))
        if mu_squared := _sum([(loss.mu_squared, n) for loss, n in self.every]):
            found.append(gaussian_epsilon(mu_squared, spare))
        return min(map(up, found), default=None)

    def divergences(self, delta: Fraction) -> Fraction | None:
        """Return the least epsilon of sums of divergences at a whole order, beside all deltas."""
        spare = delta - above(_own(self.every))
        if spare <= 0:
            return None
        found = above(_epsilon_of_curves(self.every, spare))
        return found if found < _UNBOUNDED else None

    def basic(self, delta: Fraction) -> Fraction | None:
        """Return the sum of all epsilons, if their deltas fit."""
        own = total(*(loss.delta * n for loss, n in self.every))
        return _sum([(loss.epsilon, n) for loss, n in self.every]) if own <= delta else None

    def normal(self, delta: Fraction) -> Fraction | None:
        """Return the epsilon of nothing but normal noise, else None. All of it is one (Dong, Roth,
        Su 2022, Cor. 3.3; Balle and Wang 2018, Thm 8).
        """
        alone = self.mu_squared and not (self.pairs or self.bare)
        return gaussian_epsilon(self.mu_squared, delta) if alone else None

    def exact(self, delta: Fraction) -> float | None:
        """Return the exact epsilon of nothing but Gaussian noise, else None."""
        if (normal := self.normal(delta)) is not None:
            return math.nextafter(float(normal), math.inf)
        match list(self.pairs.items()):
            case [(DiscreteGaussian() as pair, 1)] if not (self.mu_squared or self.bare):
                return closed_forms.discrete_epsilon(pair, math.nextafter(float(delta), 0.0))
        return None


def _is_cut(mechanism: BaseMechanism) -> bool:
    """Return true for samples that are cut: their pair bounds how often."""
    return mechanism.sampling is not None and mechanism.sampling.truncated is not None


def _epsilon_of_curves(losses: list[tuple[Loss, int]], delta: Fraction) -> Number:
    """Return the least epsilon >= 0 of sums of divergences, over whole orders, or of rho."""
    found: list[Number] = []
    for order in closed_forms.whole_orders(len(losses)):
        divergence = _sum([(loss.curve.at(order), n) for loss, n in losses])
        if divergence is not None:
            found.append(divergence + intercept(Fraction(order), delta))
    if (rho := _sum([(loss.rho, n) for loss, n in losses])) is not None:
        found.append(concentrated_epsilon(rho, delta))
    return most(Fraction(0), least(*found)) if found else Fraction(_UNBOUNDED)


def _curves(losses: list[tuple[Loss, int]]) -> list[tuple[Curve, int]]:
    return [(loss.curve, count) for loss, count in losses]


def _own(losses: list[tuple[Loss, int]]) -> Number:
    """Return the sum of the deltas beside which rho, mu and curves hold."""
    return total(*(loss.delta * n for loss, n in losses if loss.delta and not loss.exact))


def _sum(amounts: list[tuple[Number | None, int]]) -> Fraction | None:
    """Return a sum, from above; None if something has no bound."""
    known = [value * n for value, n in amounts if value is not None]
    return above(total(*known)) if len(known) == len(amounts) else None


def quick(mechanisms: Iterable[BaseMechanism], population: Relation, delta: Fraction) -> float:
    """Return an epsilon that is proved without numerical composition, infinite if there is none."""
    schedule = _Schedule()
    if not all(schedule.add(one, population) for each in mechanisms for one in _apart(each)):
        return math.inf
    at = math.nextafter(float(delta), 0.0)
    found = if_any(lambda: schedule.renyi(at)), if_any(lambda: schedule.exact(delta))
    return min((epsilon for epsilon in found if epsilon is not None), default=math.inf)


def proved(
    mechanisms: Iterable[BaseMechanism],
    population: Relation,
    delta: Fraction,
    enough: Fraction = Fraction(0),
) -> Fraction | None:
    """Return an epsilon at ``delta`` > 0 of mechanisms that were all fixed in advance, proved by
    balls and whole numbers alone; None if none is found. The first that is ``enough`` will do.
    """
    schedule = _Schedule()
    if not all(schedule.add(one, population) for each in mechanisms for one in _apart(each)):
        return None
    ways: list[Callable[[], Fraction | None]] = [
        lambda: schedule.basic(delta),
        lambda: _exactly(schedule.filters(delta)),
        lambda: schedule.normal(delta),
        lambda: schedule.divergences(delta),
        lambda: exact.epsilon_of(schedule.listed(delta), delta),
    ]
    found: list[Fraction] = []
    for way in ways:
        epsilon = if_any(way)
        if epsilon is not None:
            found.append(epsilon)
            if epsilon <= enough:
                break
    return min(found, default=None)


def _exactly(bound: float | None) -> Fraction | None:
    return None if bound is None or math.isinf(bound) else Fraction(bound)


def tight(
    mechanisms: Iterable[BaseMechanism], population: Relation, delta: Fraction, grid: float = GRID
) -> Tight:
    """Return the tight totals of ``mechanisms``, all fixed in advance, at ``delta`` > 0. ``grid``:
    that of the privacy loss distribution.
    """
    schedule = _Schedule()
    if not all(schedule.add(one, population) for each in mechanisms for one in _apart(each)):
        return Tight()
    at, losses = math.nextafter(float(delta), 0.0), schedule.losses
    (one, count), *others = losses.items()
    bounded = all(math.isfinite(epsilon) and own < 1 for epsilon, own in losses)
    return Tight(
        pld=if_any(lambda: schedule.pld(delta, at, grid)),
        optimal=None if others else if_any(lambda: closed_forms.optimal_epsilon(*one, count, at)),
        closed_form=if_any(lambda: closed_forms.closed_form(losses, at)) if bounded else None,
        renyi=if_any(lambda: schedule.renyi(at)),
        gaussian=if_any(lambda: schedule.exact(delta)),
        filters=if_any(lambda: schedule.filters(delta)),
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
