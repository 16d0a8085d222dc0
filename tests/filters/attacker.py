"""An attacker who chooses each next mechanism after seeing the earlier answers.

It plays the game that a privacy filter has to win. Mechanisms are finite distributions with
rational probabilities under the two neighbouring data sets (P and Q), each charged in every
currency the least that is true of it, in our units. Before each step the attacker may stop or run
any mechanism that the filter still admits after the path so far, from a menu, or the largest of a
family that just fits. The best tree is found by search, and its exact delta at the limit's epsilon,
the sum over leaves of max(0, P - e^epsilon Q), is computed at sixty digits. A valid filter keeps
that delta at or below the limit's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Final

import mpmath

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.peak import Reading
from accountant.budget.population.selection import EVERYONE
from accountant.privacy.balls import above, log
from accountant.privacy.filters import Capacity, Filter, Limit
from accountant.privacy.units import SURE, Axis, Charge, Currency, total

SLACK: Final = mpmath.mpf("1e-25")


@dataclass(frozen=True, eq=False)
class Finite:
    """A mechanism with finitely many answers: their probabilities on either data set.

    It is (ln ratio, delta)-private both ways. ``blind`` currencies are not booked at all, as if
    they could not be valued: no honest mechanism has any. Each is equal to itself only: the search
    looks up paths so often that hashing fractions would take half of its time.
    """

    name: str
    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]
    ratio: Fraction
    delta: Fraction = Fraction(0)
    blind: frozenset[Currency] = frozenset()

    def exact(self) -> bool:
        """Both are distributions, and the stated loss bounds them in both directions, exactly."""
        return (
            sum(self.p) == sum(self.q) == 1
            and hockey_stick(self.p, self.q, self.ratio) <= self.delta
            and hockey_stick(self.q, self.p, self.ratio) <= self.delta
        )

    @cached_property
    def floats(self) -> list[tuple[float, float]]:
        """(P, Q) of each answer, for the search."""
        return [(float(a), float(b)) for a, b in zip(self.p, self.q, strict=True)]

    @cached_property
    def epsilon(self) -> Fraction:
        """ln ratio, rounded up."""
        return Fraction(0) if self.ratio == 1 else above(log(self.ratio))

    @cached_property
    def sure(self) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """(P, Q) given that nothing happens that only one of them can do, which delta pays for."""
        both = [(a, b) for a, b in zip(self.p, self.q, strict=True) if a and b]
        return tuple(tuple(row[i] / sum(r[i] for r in both) for row in both) for i in (0, 1))  # type: ignore[return-value]

    @cache  # noqa: B019 few mechanisms, and they live as long as the test
    def divergence(self, order: Fraction) -> Fraction:
        """The Renyi divergence at ``order``, the larger of both directions, rounded up."""
        if len(self.sure[0]) < 2:
            return Fraction(0)
        with mpmath.workdps(40):
            a = real(order)
            sums = [
                mpmath.fsum(real(x) ** a * real(y) ** (1 - a) for x, y in zip(p, q, strict=True))
                for p, q in (self.sure, self.sure[::-1])
            ]
            found = max(mpmath.log(s) for s in sums) / (a - 1)
            return Fraction(int(mpmath.ceil((found + SLACK) * 10**30)), 10**30)

    @cached_property
    def mu(self) -> Fraction:
        """The least mu such that no test tells P from Q better than mu-GDP allows, rounded up."""
        found = mpmath.mpf(0)
        with mpmath.workdps(40):
            for p, q in (self.sure, self.sure[::-1]):
                order = sorted(range(len(p)), key=lambda i: p[i] / q[i])
                alpha = beta = Fraction(0)
                for i in order[:-1]:  # the corners of the trade-off curve, by Neyman and Pearson
                    alpha, beta = alpha + p[i], beta + q[i]
                    found = max(found, quantile(beta) - quantile(alpha))
            return Fraction(int(mpmath.ceil((found + SLACK) * 10**30)), 10**30)


def quantile(p: Fraction) -> mpmath.mpf:
    """Of the normal distribution, at forty digits. P one way round is 1 - P the other."""
    return -_lower_quantile(1 - p) if 2 * p > 1 else _lower_quantile(p)


@cache
def _lower_quantile(p: Fraction) -> mpmath.mpf:
    return mpmath.sqrt(2) * mpmath.erfinv(2 * real(p) - 1)


def hockey_stick(p: tuple[Fraction, ...], q: tuple[Fraction, ...], ratio: Fraction) -> Fraction:
    """The least delta such that P <= ratio Q + delta on every event."""
    return sum((max(a - ratio * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0))


def response(ratio: Fraction) -> Finite:
    """Symmetric randomised response of epsilon ln ``ratio``."""
    p = ratio / (1 + ratio)
    return Finite(f"response {ratio}", (p, 1 - p), (1 - p, p), ratio)


def spike(ratio: Fraction, chance: Fraction) -> Finite:
    """A rare answer whose loss is ln ``ratio``; the common answer says almost nothing."""
    q = chance / ratio
    return Finite(f"spike {ratio} at {chance}", (chance, 1 - chance), (q, 1 - q), ratio)


def revealing(delta: Fraction) -> Finite:
    """Tells the truth with probability ``delta``, else nothing: (0, delta)-private, no better."""
    zero = Fraction(0)
    return Finite(
        f"reveals at {delta}",
        (delta, 1 - delta, zero),
        (zero, 1 - delta, delta),
        Fraction(1),
        delta,
    )


def both(ratio: Fraction, delta: Fraction) -> Finite:
    """The hardest (epsilon, delta) mechanism: reveals with ``delta``, else responds."""
    p = (1 - delta) * ratio / (1 + ratio)
    q = 1 - delta - p
    zero = Fraction(0)
    return Finite(f"both {ratio} {delta}", (delta, p, q, zero), (zero, q, p, delta), ratio, delta)


def responses(limit: Limit) -> list[Finite]:
    """Randomised responses from small to large, as fine as it pays to look."""
    top = float(limit.epsilon) * 3
    return [response(grid(math.exp(top * (i / 48) ** 2))) for i in range(1, 49)]


def spikes(limit: Limit, loss: float) -> list[Finite]:
    """Spikes of one loss, from rare to common."""
    low = math.log(float(limit.delta)) - 4
    ratio = grid(math.exp(loss), 10**9)
    chances = (grid(math.exp(low * (1 - i / 400)), 10**12) for i in range(1, 400))
    return [spike(ratio, chance) for chance in chances if chance < ratio / (1 + ratio)]


def grid(value: float, denominator: int = 10**5) -> Fraction:
    """A rational near ``value``."""
    return Fraction(value).limit_denominator(denominator)


Run = tuple[Finite, ...]
Admits = Callable[[Run, Finite], bool]
"""(what has run on this path, mechanism) -> may it run?"""


def charged(mechanism: Finite, axis: Axis, orders: dict[Currency, Fraction]) -> Charge:
    """The least true charge; rho is what counts at the one order that a filter reads it at."""

    def units(currency: Currency) -> int:
        if currency in mechanism.blind:
            return 0
        if currency == Currency.DELTA:
            value = mechanism.delta
        elif currency == Currency.EPSILON:
            value = mechanism.epsilon
        elif currency == Currency.EPSILON_SQUARED:
            value = mechanism.epsilon**2
        elif currency == Currency.MU_SQUARED:
            value = mechanism.mu**2
        else:
            at = orders[currency]
            value = mechanism.divergence(at) / (at if currency == Currency.RHO else 1)
        return max(int(currency != Currency.DELTA), -(-value * currency.per_one // 1))

    return Charge.over(axis, [units(currency) for currency in axis])


def fits(used: Charge, charge: Charge, capacity: Capacity) -> bool:
    """Whether the product admits ``charge`` to a cell that has ``used``, on the same axis."""
    account = Account.empty((), used.axis)
    account.book(EVERYONE, used, reserve=False, now=0)
    return Reading(account, EVERYONE).fits(charge, capacity)


def admission(filter_: Filter, limit: Limit, capacity: Capacity | None = None) -> Admits:
    """The product's own admission, on one cell."""
    most = capacity or filter_.capacity(limit)
    axis = (*SURE, *most.currencies)  # the others take no part: valuing them would only take time
    orders = {c: Fraction(c.order) for c in axis if c.order is not None}
    if Currency.RHO in axis:
        orders[Currency.RHO] = Fraction(filter_.lines(limit)[0].order)

    @cache
    def charge(mechanism: Finite) -> Charge:
        return charged(mechanism, axis, orders)

    @cache
    def admits(used: Charge, mechanism: Finite) -> bool:
        return fits(used, charge(mechanism), most)

    @cache
    def used(path: Run) -> Charge:
        return (used(path[:-1]) + charge(path[-1]) if path else total(())).on(axis)

    def after(path: Run, mechanism: Finite) -> bool:
        return admits(used(path), mechanism)

    return after


Tree = tuple[Finite, list["Tree"]] | None


def best_attack(
    limit: Limit,
    menu: Iterable[Finite],
    admits: Admits,
    depth: int,
    families: Iterable[list[Finite]] = (),
) -> mpmath.mpf:
    """The largest exact delta at the limit's epsilon over the trees that were searched.

    The search compares in floats; the delta of the tree that it chose is then summed exactly.
    """
    threshold = math.exp(float(limit.epsilon))
    menu, families = list(menu), list(families)

    def moves(path: Run) -> Iterable[Finite]:
        yield from (mechanism for mechanism in menu if admits(path, mechanism))
        for family in families:
            low, high = 0, len(family)  # those below low fit
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if admits(path, family[middle]) else (low, middle)
            if low:
                yield family[low - 1]

    def value(p: float, q: float, path: Run, left: int) -> tuple[float, Tree]:
        best: float = max(0.0, p - threshold * q)
        choice: Tree = None
        if left == 0 or p == 0.0:
            return best, choice
        for mechanism in moves(path):
            children = [
                value(p * a, q * b, (*path, mechanism), left - 1) for a, b in mechanism.floats
            ]
            found = sum(child[0] for child in children)
            if found > best:
                best, choice = found, (mechanism, [child[1] for child in children])
        return best, choice

    _, tree = value(1.0, 1.0, (), depth)
    with mpmath.workdps(60):
        bound = mpmath.exp(real(limit.epsilon))
        return mpmath.fsum(max(mpmath.mpf(0), real(p) - bound * real(q)) for p, q in leaves(tree))


def leaves(tree: Tree) -> list[tuple[Fraction, Fraction]]:
    """(P, Q) of each leaf, exactly."""
    if tree is None:
        return [(Fraction(1), Fraction(1))]
    mechanism, children = tree
    return [
        (a * x, b * y)
        for a, b, child in zip(mechanism.p, mechanism.q, children, strict=True)
        for x, y in leaves(child)
    ]


def within(found: mpmath.mpf, delta: Fraction) -> bool:
    """True if ``found`` is at most ``delta``, but for the last of sixty digits."""
    with mpmath.workdps(60):
        return bool(found <= real(delta) + mpmath.mpf("1e-50"))


def real(value: Fraction) -> mpmath.mpf:
    """The value at the working precision."""
    return mpmath.mpf(value.numerator) / value.denominator


def unvalued(mechanism: Finite, *currencies: Currency) -> Finite:
    """The same, of which these currencies book nothing."""
    return replace(mechanism, name=mechanism.name + " unseen", blind=frozenset(currencies))
