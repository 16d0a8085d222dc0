"""From Gaussian noise, rho-zCDP and Renyi divergences to (epsilon, delta), and back.

Canonne, Kamath, Steinke, *The discrete Gaussian for differential privacy*, 2020, Prop. 12 (and
Asoodeh et al. 2021): a mechanism whose Renyi divergence at an order a > 1 is at most tau is
(tau + c, delta)-private with c = ln(1 - 1/a) - ln(a delta) / (a - 1). The proof needs no more than
E[e^((a-1)(loss - tau))] <= 1, which a privacy filter at a fixed order keeps at every stopping time;
so the same c serves filters.

Balle and Wang, *Improving the Gaussian mechanism for differential privacy*, ICML 2018, Theorem 8:
noise N(0, sigma^2) on an answer of L2 sensitivity Delta is (epsilon, delta)-DP if and only if

    delta >= Phi(-a) - e^epsilon Phi(-b)

with mu = Delta / sigma, a = epsilon / mu - mu / 2, b = a + mu. The right side falls with epsilon
and rises with mu, so that the least epsilon and the largest mu^2 are sought among whole units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

from flint import arb, arb_poly, arb_series, ctx

from accountant.privacy import balls
from accountant.privacy.balls import Number, Real, ball

_LARGEST_RHO: Final = 10**12  # From here on order 2 is taken: the other terms are negligible
_ROUGH: Final = Context(prec=24, Emin=MIN_EMIN, Emax=MAX_EMAX)
_PER_EPSILON: Final = 10**9
_PER_MU_SQUARED: Final = 10**15  # The units in which both are booked
MU_SQUARED_UNIT: Final = Fraction(1, _PER_MU_SQUARED)
_MOST_TRIES: Final = 10**6
_PER_CHANCE: Final = 10**25  # More digits take long where the chance is not small
_BITS_OF_CHANCE: Final = (100, 200, 400)
_NO_CHANCE: Final = Fraction(1, 10**30)
_LARGEST_MU_SQUARED: Final = 10**10  # From here on epsilon exceeds 4.9e9, which no account holds
_ROOT_TWO: Final = balls.kept(lambda: arb(2).sqrt())
_SMALL: Final = arb(1) / 8  # Epsilons up to which mu^2 is a short series
_TERMS: Final = 12
_SERIES_BITS: Final = 256
_BITS: Final = 53  # Mostly enough to tell two units of epsilon apart; erfc is slower beyond it


@lru_cache(maxsize=4096)
def intercept(order: Fraction, delta: Fraction) -> Fraction:
    """Return c = ln(1 - 1/a) - ln(a delta) / (a - 1), rounded up; a > 1, 0 < delta < 1."""
    return balls.above(Real(partial(_intercept, order, delta)))


def _intercept(order: Fraction, delta: Number) -> arb:
    a = ball(order)
    return (1 - 1 / a).log() - (a * ball(delta)).log() / (a - 1)


def concentrated_epsilon(rho: Fraction, delta: Number) -> Number:
    """Return the epsilon of any rho-zCDP mechanism at 0 < ``delta`` < 1: the least a rho + c."""
    if rho > _LARGEST_RHO:
        at_two = Real(partial(_intercept, Fraction(2), delta))
        return balls.most(Fraction(0), at_two) + 2 * rho

    def epsilon() -> arb:
        excess = _best_excess(ball(rho), ball(delta))
        order = 1 + excess
        log = (order * ball(delta)).log()
        return order * ball(rho) + (excess / order).log() - log / excess

    return balls.most(Fraction(0), balls.kept(epsilon))


def _best_excess(rho: arb, delta: arb) -> arb:
    """Return a ball around the root x = a - 1 > 0 of rho x^2 + ln(a delta), which rises with x. In
    ln x it is convex, so Newton's steps from the right approach the root. The ball is widened until
    the signs at its ends are decided.
    """
    log = delta.log()

    def excess(x: arb) -> arb:
        return rho * x * x + x.log1p() + log

    x = arb(_rough_excess(float(rho), float(log)))
    for _ in range((ctx.prec // 40).bit_length()):  # each doubles the bits that are right
        slope = 2 * rho * x * x + x / (1 + x)
        x = (x * (-excess(x) / slope).exp()).mid()
    width = arb(2) ** (10 - ctx.prec)
    while not (excess(x * (1 - width)) < 0 < excess(x * (1 + width))):
        width *= 16
    return x * arb(1, width)


def _rough_excess(rho: float, log: float) -> float:
    x = min(math.sqrt(-log / rho), math.exp(min(-log, 700)))
    for _ in range(60):
        step = (rho * x * x + math.log1p(x) + log) / (2 * rho * x * x + x / (1 + x))
        x *= math.exp(-step)
        if abs(step) < 1e-13:
            break
    return x


@lru_cache(maxsize=4096)  # each proposal, confirmation and replay of a policy asks for it again
def best_order_within(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return nearly the order a at which a rho + c <= ``epsilon`` allows the largest rho.

    There it is also the best order for that rho, so a ln(1/(a delta)) / (a - 1)^2 + c = epsilon,
    whose left side falls as a grows. Any order gives a valid bound, so this one needs no proof; but
    it must be the same on every machine, which the specification of ``decimal`` ensures.
    """
    with localcontext(_ROUGH):
        e, d = (Decimal(x.numerator) / x.denominator for x in (epsilon, delta))
        low, high = Decimal("1e-9"), Decimal("1e40")
        while high / low > Decimal("1.0000000001"):
            middle = (low * high).sqrt()
            low, high = (low, middle) if _too_large(middle, e, d) else (middle, high)
    return 1 + Fraction(Context(prec=12).plus(low))


def _too_large(excess: Decimal, epsilon: Decimal, delta: Decimal) -> bool:
    a = excess + 1
    log = (a * delta).ln()
    # a L / x^2 + L / x + ln(x / a) with L = -ln(a delta), x = a - 1
    ratio = a / excess
    return log >= 0 or log / excess * (ratio + 1) + (epsilon + ratio.ln()) > 0


def gaussian_epsilon(mu_squared: Fraction, delta: Number) -> Fraction:
    """Return the least multiple of 1e-9 that is an epsilon of Gaussian noise at 0 < ``delta`` < 1.

    ``mu_squared`` > 0 is (L2 sensitivity over standard deviation)^2. Beyond 1e10 the larger closed
    form of Bun and Steinke 2016, Props. 1.3 and 1.6, is taken: rho + 2 sqrt(rho ln(1/delta)).
    """
    if mu_squared > _LARGEST_MU_SQUARED:
        root = balls.sqrt(Real(lambda: -2 * ball(delta).log() * ball(mu_squared)))
        return Fraction(balls.ceiling(root + mu_squared / 2, _PER_EPSILON), _PER_EPSILON)

    def enough(units: int) -> bool:
        return private(mu_squared, Fraction(units, _PER_EPSILON), delta)

    def least() -> arb:
        excess, fall = _excess(mu_squared, guess, delta)
        return arb.min(-excess, excess + fall * (_PER_EPSILON - 1) / _PER_EPSILON**2)

    rough = _guess(math.sqrt(mu_squared), float(balls.above(delta)))
    guess = Fraction(units := math.ceil(rough * _PER_EPSILON), _PER_EPSILON)
    # One unit h less in epsilon is (h - h^2) e^epsilon less at least in e^epsilon, in which the
    # curve is convex: its tangent shows that it is too little.
    if balls.sign(Real(least), _BITS) > 0:
        return guess
    return Fraction(first_where(enough, units), _PER_EPSILON)


@lru_cache(maxsize=1024)
def most_mu_squared(epsilon: Fraction, delta: Number) -> Fraction:
    """Return the largest multiple of 1e-15 that is an (epsilon, delta)-private mu^2."""

    def too_much(units: int) -> bool:
        return units > 0 and not private(Fraction(units, _PER_MU_SQUARED), epsilon, delta)

    # rho + 2 sqrt(rho L) = epsilon at sqrt(2 rho) = sqrt(2 L + 2 epsilon) - sqrt(2 L)
    log = Real(lambda: -2 * ball(delta).log())
    root = Real(lambda: (ball(log) + 2 * ball(epsilon)).sqrt() - ball(log).sqrt())
    guess = balls.floor(root * root, _PER_MU_SQUARED)
    return Fraction(first_where(too_much, guess) - 1, _PER_MU_SQUARED)


def mu_squared_of_pure(epsilon: Number) -> Number:
    """Return the square of the least mu such that epsilon-privacy is mu-GDP.

    mu = 2 x with Phi(-x) = 1 / (1 + e^epsilon), that is Phi(x) - 1/2 = tanh(epsilon / 2) / 2. The
    trade-off curve of randomised response is made of two straight lines that meet where both errors
    are that number. The curve of mu-GDP is convex and passes through the same ends and the same
    corner, so it lies below (Dong, Roth, Su, *Gaussian differential privacy*, 2022, Sec. 2, for
    both curves). From epsilon 1000 on 8 epsilon, which no account holds: Phi(-x) <= e^(-x^2/2) / 2.
    """

    def mu_squared() -> arb:
        e = ball(epsilon)
        if e < _SMALL and ctx.prec <= balls.FIRST_BITS:
            return _mu_squared_near_zero(e * e)
        if e < 20:
            root = (e / 2).tanh().erfinv()
        elif e < 1000:
            root = (2 / (1 + e.exp())).erfcinv()
        else:
            return 8 * e
        return 8 * root * root

    return MuOfPure(mu_squared)


def _mu_squared_near_zero(y: arb) -> arb:
    """Return the mu^2 of epsilon-privacy by its power series in y = epsilon^2 <= 1/64, a quarter of
    the time of the inverse error function.

    Claim: what the terms from c_13 y^13 on add is at most 2^-70 y. *Proof.* mu^2 = 8 g^2 with
    g = erfinv(tanh(epsilon / 2)). The series of erfinv has no negative coefficient, that of tanh
    has in absolute value those of tan. So for complex epsilons, |epsilon| <= 1, |mu^2| is at most
    8 erfinv(tan(1/2))^2 < 2.25, and by Cauchy's inequality so is each |c_k|. From k = 13 on the
    terms add at most 2.25 y^13 / (1 - y) <= 2.25 (64/63) 2^-72 y.
    """
    series, rest = _series_of_mu_squared()
    return y * (series(y) + rest)


@lru_cache(maxsize=1)
def _series_of_mu_squared() -> tuple[arb_poly, arb]:
    """Return the first twelve terms of mu^2 / y as a polynomial in y, and a ball of the others."""
    with balls.precision(_SERIES_BITS):
        before, ctx.cap = ctx.cap, 2 * _TERMS + 2
        try:
            growth = arb_series([0, 1]).exp()
            root = arb_series([0, 1]).erf().reversion()((growth - 1) / (growth + 1))
            square = 8 * root * root
            terms = [square[2 * k] for k in range(1, _TERMS + 1)]
        finally:
            ctx.cap = before
        return arb_poly(terms), arb(0, arb(2) ** -70)


class MuOfPure(Real):
    """The mu^2 of a mechanism of which nothing but its epsilon is known."""

    __slots__ = ()


def private(mu_squared: Fraction, epsilon: Fraction, delta: Number) -> bool:
    """Return true if Gaussian noise is (epsilon, delta)-private; ``epsilon`` >= 0."""
    return balls.sign(Real(lambda: _excess(mu_squared, epsilon, delta)[0]), _BITS) < 0


def _excess(mu_squared: Fraction, epsilon: Fraction, delta: Number) -> tuple[arb, arb]:
    """Return the curve less ``delta``, and by how much it falls for each 1 of epsilon."""
    mu, e, root = ball(mu_squared).sqrt(), ball(epsilon), _ROOT_TWO.ball()
    a = e / mu - mu / 2
    fall = e.exp() * ((a + mu) / root).erfc() / 2
    return (a / root).erfc() / 2 - fall - ball(delta), fall


def first_where(holds: Callable[[int], bool], guess: int) -> int:
    """Return the least n >= 0 at which ``holds``, which stays true; fast if near ``guess``."""
    near = max(guess, 0)
    step = -1 if holds(near) else 1
    far = near + step
    while far >= 0 and holds(far) == (step < 0):
        near, step = far, 2 * step
        far += step
    low, high = (near, far) if step > 0 else (max(far, -1), near)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _guess(mu: float, delta: float) -> float:
    """Return some ten digits, to save time: Newton's method on ln delta of a, which is concave."""
    try:
        log = math.log(delta)
        a = math.sqrt(-2 * log)
        for _ in range(60):
            tail = _mills_ratio(a + mu)
            gap = _mills_ratio(a) - tail
            if gap <= 0:
                break
            # ln delta + ln(1 / phi(a)) - ln gap
            shortfall = log + a * a / 2 + math.log(2 * math.pi) / 2 - math.log(gap)
            step = shortfall * gap / (mu * tail)
            a -= step
            if abs(step) * mu < 1e-12 or a <= -mu / 2:
                break
        return max(0.0, mu * (a + mu / 2))
    except (ArithmeticError, ValueError):
        return mu * mu / 2


def _mills_ratio(x: float) -> float:
    """Return Phi(-x) / phi(x)."""
    if x < 8:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    value = x
    for n in range(40, 0, -1):
        value = x + n / value
    return 1 / value


@lru_cache(maxsize=256)
def at_least(least: int, tries: int, chance: Fraction) -> Fraction:
    """Return the probability of ``least`` or more successes in so many independent ``tries``,
    rounded up: a regularised beta function, or beyond ``_MOST_TRIES`` Chernoff's bound; 1 where
    that is no surprise.
    """
    if least > tries:
        return Fraction(0)
    share = Fraction(least, tries)
    if share <= chance:
        return Fraction(1)

    def chernoff() -> arb:
        p, q = ball(share), ball(chance)
        rest = (1 - p) * ((1 - p) / (1 - q)).log() if share < 1 else arb(0)
        return (-tries * (p * (p / q).log() + rest)).exp()

    most = Real(chernoff)
    if most < _NO_CHANCE:
        return _NO_CHANCE
    if tries > _MOST_TRIES:
        return Fraction(balls.ceiling(most, _PER_CHANCE), _PER_CHANCE)
    a, b = arb(least), arb(tries - least + 1)
    units = _ceiling(lambda: ball(chance).beta_lower(a, b, True) * _PER_CHANCE)
    return Fraction(units, _PER_CHANCE)


def _ceiling(compute: Callable[[], arb]) -> int:
    """Return the least integer that is surely not below a number, as ``balls.ceiling`` does; but
    what 400 bits do not tell from an integer, as of half of all samples, is rounded up at once: a
    beta function takes ten times as long with twice the bits, so minutes with 4096.
    """
    whole = None
    for bits in _BITS_OF_CHANCE:
        with balls.precision(bits):
            found = compute()
            whole = found.ceil().unique_fmpz()
            if whole is None and bits == _BITS_OF_CHANCE[-1]:
                whole = found.upper().ceil().unique_fmpz()
        if whole is not None:
            return int(whole)
    raise ArithmeticError("a chance cannot be enclosed")
