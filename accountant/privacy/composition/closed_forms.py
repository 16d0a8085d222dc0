"""Totals that a theorem gives without a numerical composition, Renyi divergences among them.

Precondition of all: the mechanisms and their parameters were fixed in advance. Only then may the
best order be taken after Renyi divergences were added up order by order (Mironov, *Renyi
differential privacy*, CSF 2017, Props. 6 and 7 for Laplace and Gaussian noise; Canonne, Kamath,
Steinke, *The discrete Gaussian for differential privacy*, 2020, Prop. 12, for the conversion;
Mironov, Talwar, Zhang, *Renyi differential privacy of the sampled Gaussian mechanism*, 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from scipy.special import gammaln, logsumexp

from accountant.privacy import filters
from accountant.privacy.balls import above
from accountant.privacy.composition import mixture_pairs, pairs, sampled_pairs
from accountant.privacy.composition.discrete_pairs import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.composition.grids import Floats
from accountant.privacy.composition.pairs import Pair
from accountant.privacy.curves import Curve, Order

MOST: Final = 10**6  # Most equal mechanisms that ``optimal_epsilon`` adds up terms for
_SLACK: Final = 1e-12  # Relative error of sums of many floats and a handful of functions
_TAIL_SLACK: Final = 1e-9  # Far more than the relative error of a tail and of its loss (Pair.above)
ORDERS: Final[Floats] = np.union1d(1 + np.geomspace(1e-3, 1e4, 2000), np.arange(2.0, 129.0))
"""They include the whole orders to 128."""
_WHOLE: Final = (
    *range(2, 33),
    *range(34, 65, 2),
    *(step << p for p in range(4, 8) for step in (5, 6, 7, 8)),
)
"""Orders at which curves are added up that are known by exact arithmetic, which takes longer."""
_LADDER: Final[Sequence[Order]] = sorted({*filters.ORDERS, *_WHOLE})
_AT_ONCE: Final = 8
_MOST_CURVES: Final = (
    1000  # The most divergences of such curves that are worked out, or ten of each
)
_LARGEST: Final = 256  # The divergence of a sampled Gaussian is summed up to this order
_RENYI_SLACK: Final = 1e-9
_UNKNOWN: Final = (
    sampled_pairs.Blend,
    sampled_pairs.Mirrored,
    mixture_pairs.Mixtures,
    sampled_pairs.Sampled,
)


def closed_form(losses: Mapping[tuple[float, float], int], delta: float) -> float:
    """Return the epsilon at a total ``delta`` of (epsilon, delta) losses with their counts, rounded
    up; infinity if the deltas alone are more.

    Kairouz, Oh, Viswanath, ICML 2015, Theorem 3.5: for every d in [0, 1] the composition of
    mechanisms (e_i, d_i) is (epsilon, 1 - (1 - d) prod(1 - d_i))-DP with epsilon the smallest of

        sum e_i
        sum e_i tanh(e_i / 2) + sqrt(2 S ln(1 / d))
        sum e_i tanh(e_i / 2) + sqrt(2 S ln(e + sqrt(S) / d)),    S = sum e_i^2
    """
    hidden = math.fsum(n * math.log1p(-d) for (_, d), n in losses.items())
    spare = -math.expm1(math.log1p(-delta) - hidden) * (1 - _SLACK)
    basic = math.fsum(n * e for (e, _), n in losses.items())
    if spare < 0:
        return math.inf
    drift = math.fsum(n * e * math.tanh(e / 2) for (e, _), n in losses.items())
    squares = math.fsum(n * e * e for (e, _), n in losses.items())
    bounds = [basic]
    if spare > 0:
        logs = math.log(1 / spare), math.log(math.e + math.sqrt(squares) / spare)
        bounds.append(drift + math.sqrt(2 * squares * min(logs)))
    return min(bounds) * (1 + _SLACK)


def optimal_epsilon(epsilon: float, delta: float, count: int, total_delta: float) -> float | None:
    """Return the epsilon of ``count`` equal (epsilon, delta) mechanisms at ``total_delta``, rounded
    up; infinity if the deltas alone are more; None beyond ``MOST`` terms.

    Kairouz, Oh, Viswanath, *The composition theorem for differential privacy*, ICML 2015, Theorem
    3.3: no k-fold composition of (epsilon, delta)-DP mechanisms loses more than k-fold randomised
    response, whose curve is exact. The theorem states it at the multiples of epsilon; in between
    the curve is linear in e^epsilon, so it is inverted there too. Raises ValueError for an epsilon
    that is not positive and finite, a delta outside [0, 1), or a count below 1.
    """
    if not (0 < epsilon < math.inf and 0 <= delta < 1 and 0 <= total_delta < 1 and count >= 1):
        raise ValueError(f"no composition of {count} times ({epsilon}, {delta}) at {total_delta}")
    if count > MOST:
        return None
    # 1 - (1 - delta)^k (1 - d) <= total: d is left for randomised response itself.
    spare = -math.expm1(math.log1p(-total_delta) - count * math.log1p(-delta))
    if spare < 0:
        return math.inf
    # ln P of each loss (k - 2i) epsilon, i = 0 … k, and the losses, largest first.
    i = np.arange(count + 1)
    losses = (count - 2.0 * i) * epsilon
    up = -np.logaddexp(0.0, -epsilon)
    ways = gammaln(count + 1) - gammaln(i + 1) - gammaln(count - i + 1)
    log_p = ways + (count - i) * up + i * (up - epsilon)
    slack = 1e-15 * (10 + count * math.log(count + 1))  # relative error of a term and of the sums
    above = np.logaddexp.accumulate(log_p) + slack
    below = np.logaddexp.accumulate(log_p - losses) - slack
    # On [losses[j + 1], losses[j]] the curve is e^above[j] - e^(x + below[j]).
    with np.errstate(divide="ignore", over="ignore"):
        at_next = np.exp(above[:-1]) * -np.expm1(losses[1:] + below[:-1] - above[:-1])
    if not (at_next > spare).any():
        return 0.0
    j = int(np.argmax(at_next > spare))
    if spare == 0:
        return float(losses[0]) * (1 + 1e-15)
    room = math.log(spare) - above[j]
    if room >= 0:
        return max(0.0, float(losses[j + 1]))
    found = float(above[j] + np.log(-np.expm1(room)) - below[j])
    return max(0.0, min(found, float(losses[0])) * (1 + 1e-15))


def discrete_epsilon(pair: DiscreteGaussian, delta: float) -> float:
    """Return the exact epsilon of one discrete Gaussian at ``delta``, rounded up, by bisection on
    P(loss > epsilon) - e^epsilon Q(loss > epsilon) (Canonne, Kamath, Steinke 2020, Thm 7).
    """

    def enough(epsilon: float) -> bool:
        (p,), (q,) = pair.above(np.array([epsilon]))
        return float(p * (1 + _TAIL_SLACK) - math.exp(epsilon) * q * (1 - _TAIL_SLACK)) <= delta

    low, high = 0.0, pair.span[1]
    if enough(low):
        return low
    if high > 600 or not enough(high):
        return math.inf
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * (1 + _TAIL_SLACK)


def renyi_epsilon(
    schedule: Mapping[Pair, int],
    delta: float,
    curves: Sequence[tuple[Curve, int]] = (),
    own: float = 0.0,
) -> float:
    """Return the least epsilon over all orders, of pairs and curves with their counts. The mass of
    pairs at infinity, and ``own``, the deltas of what has the curves, are taken from ``delta``.
    """
    lost = own - math.expm1(math.fsum(n * math.log1p(-p.infinite) for p, n in schedule.items()))
    if lost >= delta:
        return math.inf

    def converted(orders: Floats, exact: Sequence[Order]) -> Floats:
        total = np.zeros_like(orders)
        for pair, count in schedule.items():
            total += count * divergence(pair, orders)
        for curve, count in curves:
            total += count * np.array([_at(curve, order) for order in exact])
        found = total + np.log1p(-1 / orders) - np.log(orders * (delta - lost)) / (orders - 1)
        return np.nan_to_num(found, nan=math.inf)

    least = _least_along(converted, len(curves)) if curves else float(converted(ORDERS, ()).min())
    return max(0.0, least) * (1 + _SLACK) + _SLACK


def _least_along(value: Callable[[Floats, Sequence[Order]], Floats], curves: int) -> float:
    """Return nearly the least value along all orders that a gate may have: first at whole ones,
    then between the neighbours of the best, so that a gate is hardly ever below.
    """
    found: dict[int, float] = {}
    some = [_LADDER.index(order) for order in whole_orders(curves)]
    while some:
        orders = [_LADDER[i] for i in some]
        values = value(np.array(list(map(float, orders))), orders)
        found |= zip(some, map(float, values), strict=True)
        best = min(found, key=lambda i: (found[i], i))
        low = max((i for i in found if i < best), default=-1)
        high = min((i for i in found if i > best), default=len(_LADDER))
        left = [*range(low + 1, best), *range(best + 1, high)]
        some = left[:: max(1, -(-len(left) // _AT_ONCE))]
    return min(found.values())


def whole_orders(curves: int) -> Sequence[int]:
    """Return the orders at which so many curves are added up."""
    return _WHOLE[:: max(1, min(len(_WHOLE) // 10, len(_WHOLE) * curves // _MOST_CURVES))]


def _at(curve: Curve, order: Order) -> float:
    """Return a divergence as a float that is not below it."""
    found = curve.at(order)
    return math.inf if found is None else math.nextafter(float(above(found)), math.inf)


def is_known(pair: Pair) -> bool:
    """Return true if ``divergence`` knows the pair."""
    return not isinstance(pair, _UNKNOWN)


def divergence(pair: Pair, a: Floats) -> Floats:
    """Return the divergence at the orders ``a`` > 1 but for infinite losses, rounded up."""
    match pair:
        case pairs.Gaussian():
            return np.asarray(a * pair.mu**2 / 2 * (1 + _RENYI_SLACK))
        case DiscreteGaussian():  # as the continuous one's (Canonne, Kamath, Steinke 2020)
            return divergence(pairs.Gaussian(pair.sensitivity / float(pair.scale)), a)
        case pairs.SampledGaussian():
            return _sampled(pair, a)
        case DiscreteLaplace():
            terms = _geometric(pair, a)
        case pairs.Laplace():
            ahead = np.log(a / (2 * a - 1)) + (a - 1) * pair.epsilon
            behind = np.log((a - 1) / (2 * a - 1)) - a * pair.epsilon
            terms = [ahead, behind]
        case pairs.Choice():
            return _of_range(pair.epsilon, a)
        case pairs.Response():
            # ln(p^a q^(1-a) + q^a p^(1-a)) with p = e^epsilon q
            likely = -np.logaddexp(0.0, -pair.epsilon)
            terms = [likely + (a - 1) * pair.epsilon, likely - a * pair.epsilon]
        case _:
            raise TypeError(f"no divergence is known for {type(pair).__name__}")
    error = 1e-15 * (1 + a * pair.epsilon)  # of the functions; it dominates near order 1
    found = np.logaddexp.reduce(terms)
    return np.asarray((np.maximum(found, 0.0) + error) / (a - 1))


def _of_range(epsilon: float, a: Floats) -> Floats:
    """Return the divergence of ``privacy.curves.curve_of_range``, or what is not below it."""
    concentrated = a * epsilon**2 / 8 * (1 + _RENYI_SLACK)  # Cesar and Rogers 2021
    found = np.minimum(divergence(pairs.Response(epsilon), a), concentrated)
    ends = -np.expm1(-a * epsilon), -np.expm1(-(a - 1) * epsilon)
    hardest = epsilon + np.log((a - 1) * ends[0] / (a * ends[1]))
    hardest += np.log(ends[0] / (a * -math.expm1(-epsilon))) / (a - 1)
    error = 1e-14 * (1 + epsilon) * (1 + 1 / (a - 1))
    return np.asarray(np.minimum(found, np.maximum(hardest, 0.0) + error))


def _geometric(pair: DiscreteLaplace, a: Floats) -> list[Floats]:
    """Return ln of P^a Q^(1-a) on the outcomes up to 0, from the sensitivity on, and between."""
    step, most = pair.epsilon_per_step, pair.epsilon
    likely = -np.logaddexp(0.0, -step)
    ahead, behind = likely + (a - 1) * most, likely - a * most
    if pair.sensitivity == 1:
        return [ahead, behind]
    ratio = (2 * a - 1) * step
    series = np.log(np.expm1((1 - pair.sensitivity) * ratio) / np.expm1(-ratio)) - ratio
    return [ahead, behind, ahead + math.log(-math.expm1(-step)) + series]


def _sampled(pair: pairs.SampledGaussian, a: Floats) -> Floats:
    """Return the divergence of a sampled Gaussian at the orders ``a``: Mironov, Talwar, Zhang 2019,
    Sec. 3.3, at integers; by Thm 5 there the other direction is never more. In between, (a - 1)
    times the divergence is convex in the order (van Erven, Harremoës 2014, Cor. 2), so it lies
    below its chords; without sampling it is more.
    """
    n, k = np.arange(2, _LARGEST + 1)[:, None], np.arange(2, _LARGEST + 1)[None, :]
    ways = gammaln(n + 1) - gammaln(k + 1) - gammaln(np.maximum(n - k, 0) + 1)
    chance = (n - k) * math.log1p(-pair.rate) + k * math.log(pair.rate)
    # The moment minus 1 is the sum of binomial masses times e^x - 1, and x is 0 at k = 0 and 1.
    x = (k * k - k) * pair.mu**2 / 2
    excess = x + np.log(-np.expm1(-x))
    terms = np.where(k <= n, ways + chance + excess, -np.inf)
    moments = np.logaddexp(0.0, logsumexp(terms, axis=1))
    plain = a * pair.mu**2 / 2
    found = np.interp(a, np.arange(1, _LARGEST + 1), np.concatenate([[0.0], moments]))
    sampled = np.where(a <= _LARGEST, found / (a - 1), plain)
    return np.asarray(np.minimum(sampled, plain) * (1 + _RENYI_SLACK))
