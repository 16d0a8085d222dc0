"""An attacker who chooses each next mechanism after seeing the earlier answers.

The attacker plays the game that a privacy filter has to win. Mechanisms are finite distributions
with rational probabilities under the two neighbouring data sets (P and Q). Before each step the
attacker may stop or pick any mechanism of the menu that the gate still admits on the path so far,
where it is charged its true (epsilon, delta) in our units. The best tree is found by exhaustive
search, and its exact delta at the limit's epsilon, the sum over leaves of max(0, P - e^epsilon Q),
is computed from Fractions. A valid gate keeps it at or below the limit's delta; the same search
does beat two gates that are known to be wrong, so it is strong enough to mean something.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accountant.budget.accounts import room, vector
from accountant.privacy.decimals import ln_up
from accountant.privacy.gates import ADVANCED, BASIC, Capacity, Gate, Limit
from accountant.privacy.units import NOTHING, Charge, Currency, Loss, charge_of

Admits = Callable[[Charge, Charge], bool]
"""(used on this path, charge) -> may the mechanism run?"""


@dataclass(frozen=True)
class Finite:
    """A mechanism with finitely many answers: their probabilities on either data set.

    It is (ln ratio, delta)-differentially private both ways; ``exact`` proves it.
    """

    name: str
    p: tuple[Fraction, ...]
    q: tuple[Fraction, ...]
    ratio: Fraction
    delta: Fraction = Fraction(0)

    @property
    def charge(self) -> Charge:
        """The true (epsilon, delta) in units."""
        epsilon = Fraction(0) if self.ratio == 1 else ln_up(self.ratio)
        return charge_of(Loss(epsilon, self.delta), 1)

    def exact(self) -> bool:
        """Both are distributions, and the stated loss bounds them in both directions, exactly."""
        return (
            sum(self.p) == sum(self.q) == 1
            and hockey_stick(self.p, self.q, self.ratio) <= self.delta
            and hockey_stick(self.q, self.p, self.ratio) <= self.delta
        )


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


def gate_of(capacity: Capacity) -> Admits:
    """The product's own admission, on one cell."""

    @cache
    def admits(used: Charge, charge: Charge) -> bool:
        return bool(room(capacity, vector(used).reshape(-1, 1), charge).all())

    return admits


def best_attack(limit: Limit, menu: list[Finite], admits: Admits, depth: int) -> mpmath.mpf:
    """The largest exact delta at the limit's epsilon over all adaptive trees of ``depth``.

    The search compares in floats; the delta of the tree that it chose is then summed exactly.
    """
    threshold = math.exp(float(limit.epsilon))
    moves = [
        (m, m.charge, [(float(a), float(b)) for a, b in zip(m.p, m.q, strict=True)]) for m in menu
    ]

    def value(p: float, q: float, used: Charge, left: int) -> tuple[float, object]:
        best, choice = max(0.0, p - threshold * q), None
        if left == 0 or p == 0.0:
            return best, choice
        for mechanism, charge, outcomes in moves:
            if not admits(used, charge):
                continue
            after = used + charge
            children = [value(p * a, q * b, after, left - 1) for a, b in outcomes]
            total = sum(child[0] for child in children)
            if total > best:
                best, choice = total, (mechanism, [child[1] for child in children])
        return best, choice

    _, tree = value(1.0, 1.0, NOTHING, depth)
    with mpmath.workdps(60):
        epsilon = mpmath.mpf(limit.epsilon.numerator) / limit.epsilon.denominator
        exponential = mpmath.exp(epsilon)
        return mpmath.fsum(
            max(mpmath.mpf(0), real(p) - exponential * real(q)) for p, q in leaves(tree)
        )


def leaves(tree: object) -> list[tuple[Fraction, Fraction]]:
    """(P, Q) of each leaf, exactly."""
    if tree is None:
        return [(Fraction(1), Fraction(1))]
    mechanism, children = tree  # type: ignore[misc]
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


def menu_for(limit: Limit) -> list[Finite]:
    """Mechanisms around the sizes that matter under ``limit``."""
    capacity = ADVANCED.capacity(limit)
    assert capacity.second is not None
    step = math.sqrt(capacity.second / 1e15)
    ratios = {
        Fraction(math.exp(step / math.sqrt(n)) * 0.9999).limit_denominator(997)
        for n in (1, 2, 3, 4)
    }
    ratios.add(Fraction(math.exp(float(limit.epsilon)) * 0.9999).limit_denominator(997))
    ratios = {ratio for ratio in ratios if ratio > 1}
    menu = [response(r) for r in sorted(ratios)]
    menu += [spike(max(ratios), Fraction(1, 10)), spike(min(ratios), Fraction(1, 20))]
    whole, own = limit.delta, limit.own_delta
    menu += [revealing(d) for d in {whole, own, own / 2} if d]
    if own:
        menu.append(both(min(ratios), own / 2))
    return menu


LIMITS = [
    Limit(Fraction("0.5"), Fraction("0.4"), Fraction("0.04")),
    Limit(Fraction(1), Fraction("0.5"), Fraction("0.2")),
    Limit(Fraction(2), Fraction("0.6"), Fraction("0.06")),
    Limit(Fraction("0.1"), Fraction("0.3"), Fraction("0.03")),
]
"""Large deltas, so that the second gate admits what basic does not within four steps."""


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_the_menu_is_what_it_says(limit: Limit) -> None:
    """Every mechanism of the menu has exactly the privacy that it is charged for."""
    assert all(mechanism.exact() for mechanism in menu_for(limit))


@pytest.mark.parametrize("gate", [BASIC, ADVANCED], ids=lambda gate: gate.name)
@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_no_adaptive_attack_gets_past_the_gate(limit: Limit, gate: Gate) -> None:
    """The best adaptive tree's exact delta stays within the limit's delta."""
    split = limit if gate is ADVANCED else Limit(limit.epsilon, limit.delta, limit.delta)
    found = best_attack(limit, menu_for(limit), gate_of(gate.capacity(split)), depth=4)
    assert within(found, limit.delta)
    assert found > 0  # the attacker does get somewhere


@pytest.mark.parametrize("limit", LIMITS[:3], ids=str)
def test_the_attacker_beats_a_gate_without_the_delta_split(limit: Limit) -> None:
    """With the full delta for both, "basic or advanced" is no filter, and the search shows it."""
    whole = Limit(limit.epsilon, limit.delta, Fraction(0))
    capacity = ADVANCED.capacity(whole)
    unsplit = Capacity(
        capacity.epsilon,
        BASIC.capacity(Limit(limit.epsilon, limit.delta, limit.delta)).own_delta,
        capacity.second,
        capacity.second_currency,
    )
    found = best_attack(whole, menu_for(limit), gate_of(unsplit), depth=4)
    assert not within(found, limit.delta)


@dataclass(frozen=True)
class Unvalued(Finite):
    """A mechanism whose square is not booked at all, as if it could not be valued."""

    @property
    def charge(self) -> Charge:
        """The true epsilon and delta, nothing in the gate's own currency."""
        true = charge_of(Loss(ln_up(self.ratio), self.delta), 1)
        return Charge(tuple(0 if c is Currency.EPSILON_SQUARED else true[c] for c in Currency))


@pytest.mark.parametrize("delta", ["0.3", "1e-3", "1e-6"])
def test_the_attacker_beats_a_gate_that_skips_what_it_cannot_value(delta: str) -> None:
    """A gate that books nothing for a charge without a value in its currency can be overspent."""
    limit = Limit(Fraction(1), Fraction(delta), Fraction(delta) / 10)
    menu = menu_for(limit)
    largest = max(menu, key=lambda mechanism: mechanism.ratio)
    skipped = Unvalued(largest.name, largest.p, largest.q, largest.ratio, largest.delta)
    admits = gate_of(ADVANCED.capacity(limit))
    assert not within(best_attack(limit, [*menu, skipped], admits, depth=4), limit.delta)


ratios = st.builds(lambda n, d: Fraction(n + d, d), st.integers(1, 30), st.integers(10, 40))
chances = st.fractions(Fraction(1, 100), Fraction(1, 2), max_denominator=100)


@settings(max_examples=25)
@given(
    st.lists(st.one_of(ratios.map(response), st.builds(spike, ratios, chances)), max_size=3),
    st.lists(
        st.builds(both, ratios, st.sampled_from([Fraction(1, 50), Fraction(1, 20)])), max_size=2
    ),
    st.fractions(Fraction(1, 5), 2, max_denominator=20),
    st.fractions(Fraction(1, 10), Fraction(7, 10), max_denominator=20),
    st.fractions(Fraction(1, 10), Fraction(9, 10), max_denominator=10),
)
def test_no_random_menu_gets_past_the_gate(
    pure: list[Finite],
    approximate: list[Finite],
    epsilon: Fraction,
    delta: Fraction,
    part: Fraction,
) -> None:
    """Whatever mechanisms and limit: the best adaptive tree stays within the limit's delta."""
    menu = pure + approximate
    assume(menu)
    assert all(mechanism.exact() for mechanism in menu)
    limit = Limit(epsilon, delta, delta * part)
    found = best_attack(limit, menu, gate_of(ADVANCED.capacity(limit)), depth=4)
    assert within(found, delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "each"),
    [("1", "1e-6", "0.05"), ("0.3", "0.2", "0.05"), ("2", "1e-2", "0.2")],
)
def test_a_long_adaptive_ladder_stays_within_delta(epsilon: str, delta: str, each: str) -> None:
    """Randomised response as often as the gate admits, stopped at the best moment on every path,
    with a revealing event of all the own delta on top, stays within delta.
    """
    whole = Fraction(delta)
    limit = Limit(Fraction(epsilon), whole, whole / 10)
    capacity = ADVANCED.capacity(limit)
    assert capacity.second is not None
    charge = charge_of(Loss(Fraction(each)), 1)
    steps = max(
        capacity.second // charge[Currency.EPSILON_SQUARED],
        capacity.epsilon // charge[Currency.EPSILON],
    )
    with mpmath.workdps(60):
        e = mpmath.exp(real(Fraction(each)))
        up, down = e / (1 + e), 1 / (1 + e)
        bound, own = mpmath.exp(real(limit.epsilon)), real(limit.own_delta)
        # On a path with n answers, u of them up, P = up^u down^(n-u), and Q has u and n-u swapped.
        values = [mpmath.mpf(0)] * (steps + 1)
        for n in range(steps, -1, -1):
            for u in range(n + 1):
                p, q = up**u * down ** (n - u), up ** (n - u) * down**u
                # Stopping here, after asking the revealing event: it tells all with delta'',
                # and otherwise leaves the path as it is.
                stop = own * p + (1 - own) * max(mpmath.mpf(0), p - bound * q)
                go = values[u] + values[u + 1] if n < steps else stop
                values[u] = max(stop, go)
        assert values[0] <= real(whole)
        assert values[0] > own * (1 - own) ** 2  # the revealing event alone reaches that


def test_infinite_charges_never_fit() -> None:
    """A mechanism without any bound is admitted by no gate, however large the limit."""
    for gate in (BASIC, ADVANCED):
        capacity = gate.capacity(Limit(Fraction(10**6), Fraction(9, 10), Fraction(1, 10)))
        column = np.zeros((6, 1), dtype=np.int64)
        assert not room(capacity, column, charge_of(Loss(None), 1)).any()
