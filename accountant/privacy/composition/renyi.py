"""Renyi divergences added up order by order, and the best order taken afterwards.

Mironov, *Renyi differential privacy*, CSF 2017 (Propositions 6 and 7 for Laplace and Gaussian
noise); Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy*, 2020,
Proposition 12, for the conversion; Mironov, Talwar, Zhang, *Renyi differential privacy of the
sampled Gaussian mechanism*, 2019. The best order may be taken after the fact only for a schedule
that was fixed in advance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from scipy.special import gammaln, logsumexp

from accountant.privacy.composition import pairs
from accountant.privacy.composition.pairs import Floats, Pair

ORDERS: Final[Floats] = np.union1d(1 + np.geomspace(1e-3, 1e4, 2000), np.arange(2.0, 129.0))
"""They include those that a filter may fix, so this is never above what the filter shows."""
_LARGEST: Final = 256
"""The divergence of a sampled Gaussian is summed up to this order."""
_SLACK: Final = 1e-9


def renyi_epsilon(schedule: Mapping[Pair, int], delta: float) -> float:
    """Return the smallest epsilon over all orders at ``delta`` in (0, 1), rounded up. The mass of
    the pairs at infinity is taken from delta first.
    """
    lost = -math.expm1(math.fsum(n * math.log1p(-p.infinite) for p, n in schedule.items()))
    if lost >= delta:
        return math.inf
    total = np.zeros_like(ORDERS)
    for pair, count in schedule.items():
        total += count * divergence(pair, ORDERS)
    spare = delta - lost
    converted = total + np.log1p(-1 / ORDERS) - np.log(ORDERS * spare) / (ORDERS - 1)
    return max(0.0, float(converted.min())) * (1 + _SLACK)


def divergence(pair: Pair, a: Floats) -> Floats:
    """Return the Renyi divergence of a pair at the orders ``a`` > 1, given that nothing infinite
    happens, rounded up.
    """
    match pair:
        case pairs.Gaussian():
            return np.asarray(a * pair.mu**2 / 2 * (1 + _SLACK))
        case pairs.DiscreteGaussian():
            # As the continuous one's (Canonne, Kamath, Steinke 2020).
            return np.asarray(a * (pair.sensitivity / pair.scale) ** 2 / 2 * (1 + _SLACK))
        case pairs.SampledGaussian():
            return _sampled(pair, a)
        case pairs.DiscreteLaplace():
            terms = _geometric(pair, a)
        case pairs.Laplace():
            ahead = np.log(a / (2 * a - 1)) + (a - 1) * pair.epsilon
            behind = np.log((a - 1) / (2 * a - 1)) - a * pair.epsilon
            terms = [ahead, behind]
        case pairs.Choice():
            concentrated = a * pair.epsilon**2 / 8 * (1 + _SLACK)  # Cesar and Rogers 2021
            return np.minimum(divergence(pairs.Response(pair.epsilon), a), concentrated)
        case pairs.Response():
            # ln(p^a q^(1-a) + q^a p^(1-a)) with p = e^epsilon q
            likely = -np.logaddexp(0.0, -pair.epsilon)
            terms = [likely + (a - 1) * pair.epsilon, likely - a * pair.epsilon]
        case _:
            raise TypeError(f"no divergence is known for {type(pair).__name__}")
    error = 1e-15 * (1 + a * pair.epsilon)  # of the functions; it dominates near order 1
    found = np.logaddexp.reduce(terms)
    return np.asarray((np.maximum(found, 0.0) + error) / (a - 1))


def _geometric(pair: pairs.DiscreteLaplace, a: Floats) -> list[Floats]:
    """Return ln of P^a Q^(1-a) on the outcomes up to 0, from the sensitivity on, and in between: a
    finite geometric series with the ratio e^(-(2 a - 1) step).
    """
    step, most = pair.epsilon_per_step, pair.epsilon
    likely = -np.logaddexp(0.0, -step)
    ahead, behind = likely + (a - 1) * most, likely - a * most
    if pair.sensitivity == 1:
        return [ahead, behind]
    ratio = (2 * a - 1) * step
    series = np.log(np.expm1((1 - pair.sensitivity) * ratio) / np.expm1(-ratio)) - ratio
    return [ahead, behind, ahead + math.log(-math.expm1(-step)) + series]


def _sampled(pair: pairs.SampledGaussian, a: Floats) -> Floats:
    """Return the divergence of a sampled Gaussian at the orders ``a``.

    Mironov, Talwar, Zhang 2019, section 3.3, at integer orders; by Theorem 5 there the other
    direction is never more. In between, (a - 1) times the divergence is convex in the order (van
    Erven, Harremoës 2014, Corollary 2), so it lies below its chords; without sampling it is more.
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
    return np.asarray(np.minimum(sampled, plain) * (1 + _SLACK))
