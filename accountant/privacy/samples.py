"""Renyi curves of Gaussian noise on samples of the data: the steps of private learning.

Noise N(0, 1) on an answer that one record moves by at most mu, rho = mu^2 / 2. A record lies in a
sample with probability q, secretly. At a whole order each bound is a finite sum of moments
E_{N(0)}[e^(s (mu x - rho))] = e^((s^2 - s) rho), some of them over a half-line; between whole
orders it is the chord. No curve is above that without sampling, by quasi-convexity.

Two facts hold for vectors and turn them into numbers. *Norms*: N(0) against a mixture of N(d_i) is
no easier to tell apart than N(0) against the mixture of N(r_i) on the line, r_i >= |d_i|: for a
test S with N(0)(S) = Phi(t), by Neyman and Pearson N(d_i)(S) is at least Phi(t - |d_i|) and at
most Phi(t + |d_i|), and a half-line attains that for all i at once. *Advanced joint convexity*
(Balle, Barthe, Gaboardi 2018, Thm 2): where both outputs are A with probability 1 - q, and else B
or C, the curve at e^eps >= 1 is q times that of B against a mixture of A and C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from flint import arb, arb_poly, ctx
from msgspec.structs import replace
from numpy.typing import NDArray

from accountant.privacy import balls
from accountant.privacy.balls import Number, ball, kept
from accountant.privacy.curves import Curve, Order, along_chords, curve_of_rho, least_known

Floats = NDArray[np.float64]

_MOST_SUMMED: Final = 1024
_FEW: Final = 64  # Up to this order it takes longer to find the terms that count than to add up all
_MOST_POWER: Final = 256  # The largest degree of a power of a polynomial
_FAR: Final = 8  # From here on a normal tail is taken as nothing, and what is left as 1
_STEPS: Final = (-8, -5, -3, -2, -1, 0, 1, 3)  # Outcomes between which a factor is taken at one end
_ROOT_TWO: Final = balls.kept(lambda: arb(2).sqrt())


def curve_of_gaussian(rho: Number, *, discrete: bool = False, vector: bool = False) -> Curve:
    """Return the curve of normal noise, or of discrete Gaussian noise: rho times the order.

    Canonne, Kamath, Steinke 2020: of both, e^((s^2 - s) rho) bounds the moment of order s; sums
    over a half-line are known of normal noise only. Of a ``vector`` of discrete noise no pair is
    known that dominates it: by itself it is mirrored on a sample, in a list it is not amplified.
    """
    plain = curve_of_rho(rho)
    return replace(
        plain,
        group=lambda size: curve_of_gaussian(rho * size * size, discrete=discrete, vector=vector),
        mirror=None if discrete and vector else lambda: plain,
        again=lambda rate: curve_of_poisson(rho, rate, discrete=discrete),
    )


def _below(
    whole: Callable[[int], Number | None], rho: Number, most: int
) -> Callable[[Order], Number]:
    """Return the least of ``whole`` along its chords, up to order ``most``, and rho times a."""

    def summed(order: int) -> Number | None:
        plain = rho * order
        return plain if order > most or plain > 10**6 else whole(order)  # no account holds 10**6

    chords = along_chords(summed)
    return lambda order: least_known([chords(order), rho * order]) or Fraction(0)


def curve_of_poisson(
    rho: Number, rate: Fraction, records: int = 1, *, discrete: bool = False
) -> Curve:
    """Return the curve on a Poisson sample, for a unit of so many ``records``, all of them added
    or all removed; each record is in the sample with probability ``rate`` q, independently.

    One record: Mironov, Talwar, Zhang 2019, Thm 4, Cor. 7 and Sec. 3.3: at a whole order a the
    divergence, the larger of both directions, is ln(sum over k of C(a, k) (1 - q)^(a-k) q^k
    e^((k^2 - k) rho)) / (a - 1). Several: N(0) against the mixture of N(i mu) with binomial
    weights (Ganesh 2024); see ``_of_mixture``.
    """
    plain, most = rho * records * records, _MOST_SUMMED if records == 1 else _MOST_POWER // records
    if rate == 1 or (discrete and records > 1):
        return curve_of_gaussian(plain, discrete=discrete, vector=True)

    def whole(order: int) -> Number:
        if records == 1:
            return kept(lambda: _of_sample(order, rho, rate))
        return kept(lambda: _of_mixture(order, rho, binomial(records, rate)))

    at = _below(whole, plain, most)
    return Curve(
        at,
        lambda size: curve_of_poisson(rho, rate, records * size, discrete=discrete),
        exchanged=lambda: curve_of_exchange(rho, Fraction(1) if discrete else rate, records),
        again=lambda other: curve_of_poisson(rho, rate * other, records, discrete=discrete),
    )


def _of_sample(order: int, rho: Number, rate: Fraction) -> arb:
    q, r, rest = ball(rate), ball(rho), ball(1 - rate)
    odds, grow, last = q / rest, (2 * r).exp(), -2
    term = factor = total = arb(0)
    for k in _that_count(order, rate, rho):
        if k == last + 1:  # each is the term before times (a - k + 1) / k factor
            term = term * factor * (order - k + 1) / k
            factor *= grow
        else:
            chance = math.comb(order, k) * q**k * rest ** (order - k)
            term, factor = chance * (k * (k - 1) * r).exp(), odds * (2 * k * r).exp()
        total, last = total + term, k
    rounded = arb(1, arb(2) ** -(ctx.prec + 28))  # for all that were left out
    return (total * rounded).log() / (order - 1)


def _that_count(order: int, rate: Fraction, rho: Number) -> Sequence[int]:
    """Return the k whose terms are at least 2^-(bits + 39) of the largest. Of the others there are
    at most 2^10. The logarithms are right to 1e-5.
    """
    if order <= _FEW:
        return range(order + 1)
    k, ways = _binomial(order)
    logs = ways + k * (math.log(rate) - math.log(1 - rate)) + k * (k - 1) * float(rho)
    kept_: list[int] = np.flatnonzero(logs > logs.max() - 0.7 * (ctx.prec + 40)).tolist()
    return kept_


@lru_cache(maxsize=64)
def _binomial(order: int) -> tuple[Floats, Floats]:
    """Return k = 0 … order and ln C(order, k)."""
    k = np.arange(order + 1.0)
    logs = np.cumsum(np.log(np.maximum(k, 1.0)))
    return k, logs[-1] - logs - logs[::-1]


def binomial(records: int, rate: Fraction) -> list[Fraction]:
    """Return the probabilities that 0, 1, … of so many records are in a sample."""
    ways = (math.comb(records, i) for i in range(records + 1))
    return [n * rate**i * (1 - rate) ** (records - i) for i, n in enumerate(ways)]


def curve_of_mixture(rho: Number, chances: Sequence[Fraction]) -> Curve:
    """Return the curve of N(0) against the mixture of N(i mu) with these ``chances``, both ways."""
    furthest = len(chances) - 1
    plain = rho * furthest * furthest
    at = _below(
        lambda a: kept(lambda: _of_mixture(a, rho, chances)), plain, _MOST_POWER // furthest
    )
    return Curve(at, lambda size: curve_of_rho(plain * size * size))


def _of_mixture(order: int, rho: Number, chances: Sequence[Fraction]) -> arb:
    """Return the divergence of g = sum of w_i e^(i mu x - i^2 rho) times N(0) from N(0), or back.

    E[g^a]: the a-th power of the polynomial with the coefficients w_i e^(-i^2 rho) has at t^s the
    coefficient of e^(s mu x), whose mean is e^(s^2 rho). E[g^(1-a)] with z = g - 1, which rises
    with x: (1 + z)^(1-a) = 1 - (a - 1) z + bend z^2, and bend falls with z. So from ``_STEPS`` to
    the next it is at most what it is at the first, and E[z] = 0.
    """
    r, a = ball(rho), order
    terms = [ball(w) * (-i * i * r).exp() for i, w in enumerate(chances)]
    power = (arb_poly(terms) ** a).coeffs()
    forth = sum((c * (s * s * r).exp() for s, c in enumerate(power)), start=arb(0))
    return forth.max(_back(terms, r, a)).log() / (a - 1)


def _back(terms: Sequence[arb], rho: arb, order: int) -> arb:
    """Return at least E[g^(1-a)] for g = the sum of ``terms`` times e^(i mu x)."""
    mu, total = (2 * rho).sqrt(), arb(1)
    square = arb_poly([terms[0] - 1, *terms[1:]]) ** 2  # z^2
    moments = [c * (s * s * rho).exp() for s, c in enumerate(square.coeffs())]
    left, before = terms[0], [arb(0)] * len(moments)
    for step in (*_STEPS, None):
        below = [_half(step - s * mu) if step is not None else arb(1) for s in range(len(moments))]
        z = left - 1
        bend = (left ** (1 - order) - 1 + (order - 1) * z) / (z * z)
        mass = [m * (now - then) for m, now, then in zip(moments, below, before, strict=True)]
        total += bend * sum(mass, start=arb(0))
        if step is not None:
            left = sum((c * (i * mu * step).exp() for i, c in enumerate(terms)), start=arb(0))
        before = below
    return total


def curve_of_drawn(rho: Number, rate: Fraction) -> Curve:
    """Return the curve on a sample of fixed size, drawn without replacement, under replace-one.

    Whichever unit the replaced one displaces, both outputs are A with probability 1 - q and else B
    or C, no two of them further apart than mu. By advanced joint convexity and norms the curve at
    e^eps >= 1 is at most that of S = (1 - q) N(0) + q N(mu) against Q = N(0), in both directions
    (Dong, Roth, Su 2022, Thm 4.2). The pair with that curve has the likelihood ratio S / Q where
    that is above 1, the inverse on a mirror image of there, and 1 on what is left, so that

        E = E_S[(S/Q)^(a-1); S > Q] + E_Q[(S/Q)^(1-a); S > Q] + 1 - Q(S > Q) - S(S > Q).

    The first is a sum of moments over x > mu / 2. The second is at most Q(S > Q), and at most
    1 - (a - 1) z + a (a - 1) z^2 / 2 of z = S/Q - 1 > 0.
    """
    if rate == 1:
        return curve_of_gaussian(rho)
    at = _below(lambda order: kept(lambda: _of_drawn(order, rho, rate)), rho, _MOST_SUMMED)
    return Curve(at, lambda size: curve_of_rho(rho * size * size))


def _of_drawn(order: int, rho: Number, rate: Fraction) -> arb:
    q, r, rest, a = ball(rate), ball(rho), ball(1 - rate), order
    mu = (2 * r).sqrt()
    total = arb(0)
    for k in _that_count(order, rate, rho):
        chance = math.comb(a, k) * q**k * rest ** (a - k)
        total += chance * (k * (k - 1) * r).exp() * _normal((2 * k - 1) * mu / 2)
    total *= arb(1, arb(2) ** -(ctx.prec + 28))
    low, high = _normal(-mu / 2), _normal(mu / 2)
    here, there = low, rest * low + q * high
    square = q * q * ((2 * r).exp() * _normal(3 * mu / 2) - 2 * high + low)
    second = here - (a - 1) * (there - here) + a * (a - 1) * square / 2
    return (total + second.min(here) + 1 - here - there).log() / (a - 1)


def _normal(x: arb) -> arb:
    """Return Phi(x), or 1 from ``_FAR`` on: never less."""
    return arb(1) if x > _FAR else (-x / _ROOT_TWO.ball()).erfc() / 2


def curve_of_exchange(rho: Number, rate: Fraction, records: int = 1) -> Curve:
    """Return the curve on a Poisson sample for a unit that is replaced by another.

    With probability q the sample holds the unit, which moves the answer by at most mu from what it
    is without: A = N(0), B = N(b) or C = N(c). By advanced joint convexity, moved by -b, and norms
    no b and c are worse than mu and -mu: P = (1 - q) A + q N(mu), Q = (1 - q) A + q N(-mu), and
    the mirror image. For x > 0, (P/Q)^a is the sum over j of C(a, j) (q (B - C) / Q)^j, where Q is
    at least (1 - q) A. For x < 0, P < Q, it is at most P/Q, and at most 1 - a z + a (a - 1) z^2 / 2
    of z = q (C - B) / Q. Units of several records: no more than without sampling.
    """
    plain = 4 * rho * records * records
    if records > 1 or rate == 1:
        return curve_of_rho(plain)
    at = _below(lambda order: kept(lambda: _of_exchange(order, rho, rate)), plain, _MOST_POWER // 2)
    return Curve(at, lambda size: curve_of_rho(plain * size * size))


def _of_exchange(order: int, rho: Number, rate: Fraction) -> arb:
    q, r, rest, a = ball(rate), ball(rho), ball(1 - rate), order
    mu, odds = (2 * r).sqrt(), ball(rate / (1 - rate))
    step = odds * (-r).exp()
    # The sum over j of C(a, j) (q / (1 - q))^j of (B - C)^j A^(1-j) over x > 0, from powers of
    # 1 + step (t - 1 / t), where t^s has the mean e^(s^2 rho) Phi(s mu).
    power = (arb_poly([-step, arb(1), step]) ** a).coeffs()
    half = [(s * s * r).exp() * _half(s * mu) for s in range(-a, a + 1)]
    above = sum((c * h for c, h in zip(power, half, strict=True)), start=arb(0))
    apart = _half(mu) - _half(-mu)  # (B - C)(x > 0)
    high = rest * (above - arb(0.5) - a * odds * apart)  # from j = 2 on
    first = rest / 2 + q * _half(-mu) + a * q * apart  # Q(x > 0) and j = 1
    square = q * q * ((2 * r).exp() - (-2 * r).exp()) / rest
    low = rest / 2 + q * _half(mu) - a * q * apart + a * (a - 1) * square / 2
    return (first + high + low.min(rest / 2 + q * _half(-mu))).log() / (a - 1)


def _half(x: arb) -> arb:
    return (-x / _ROOT_TWO.ball()).erfc() / 2


def curve_of_allocation(rho: Number, steps: int) -> Curve:
    """Return the curve of ``steps`` t in which each unit takes part in exactly one, at random and
    secretly, under add-or-remove-one; queries may depend on earlier answers.

    With the unit there, the density over that without is g = the mean of Y_i, where Y_i is
    e^(<v_i, x_i> - |v_i|^2 / 2) for noise x_i and a v_i of at most mu that the past decides, so
    that E[Y_i^s | past] is at most e^((s^2 - s) rho) for s >= 1 or s <= 0.

    *Forth*: E[g^a] t^a / a! is at most the coefficient of z^a in the t-th power of the sum over k
    of e^((k^2 - k) rho) z^k / k!. *Back*: g is at least the Y_i's geometric mean, so E[g^(1-a)]
    is at most e^((a-1) rho + (a-1)^2 rho / t). Or with z = g - 1: where z > -h it is at most
    1 - (a - 1) z + bend z^2, with E[z^2] <= (e^(2 rho) - 1) / t; that z <= -h has a probability of
    at most e^(-t h^2 / (2 e^(2 rho))) (Y_i >= 0, so E[e^(-s Y_i)] <= e^(-s + s^2 e^(2 rho) / 2)),
    and by Cauchy and Schwarz counts with its root times that of E[g^(2-2a)].
    """
    if steps == 1:
        return curve_of_gaussian(rho)

    def whole(order: int) -> Number:
        return kept(lambda: _of_allocation(order, ball(rho), steps))

    at = _below(whole, rho, _MOST_POWER)
    return Curve(at, lambda size: curve_of_rho(rho * size * size))


def _of_allocation(order: int, rho: arb, steps: int) -> arb:
    a, moments = order, [(k * (k - 1) * rho).exp() for k in range(order + 1)]
    series = arb_poly([m / math.factorial(k) for k, m in enumerate(moments)])
    found, rest = arb_poly([1]), steps
    while rest:
        if rest & 1:
            found = (found * series).truncate(a + 1)
        series, rest = (series * series).truncate(a + 1), rest >> 1
    forth = found.coeffs()[a] * math.factorial(a) / arb(steps) ** a
    return forth.max(_allocated_back(a, rho, steps)).log() / (a - 1)


def _allocated_back(order: int, rho: arb, steps: int) -> arb:
    def by_means(power: int) -> arb:
        return (power * rho + power * power * rho / steps).exp()

    a, second = order, (2 * rho).exp()
    found = by_means(a - 1)
    for h in (arb(1) / 8, arb(1) / 4, arb(1) / 2, arb(3) / 4):
        bend = ((1 - h) ** (1 - a) - 1 - (a - 1) * h) / (h * h)
        beyond = (-steps * h * h / (2 * second)).exp() * by_means(2 * a - 2)
        found = found.min(1 + bend * (second - 1) / steps + beyond.sqrt())
    return found
