"""The total of a plan in whole numbers: never below the truth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from effort import HEAVY, examples
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.privacy import balls
from accountant.privacy.composition import exact, shapes
from accountant.privacy.composition.discrete_pairs import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.composition.exact import epsilon_of
from accountant.privacy.composition.mixture_pairs import Mixtures
from accountant.privacy.composition.pairs import (
    Choice,
    Gaussian,
    Laplace,
    Pair,
    Response,
    SampledGaussian,
)
from accountant.privacy.composition.pld import total
from accountant.privacy.composition.sampled_pairs import Blend, Mirrored, Same, Sampled
from accountant.privacy.conversions import gaussian_epsilon

MICRO = Fraction(1, 10**6)
GRID = 1e-3  # Of the floats that are held against it: fine enough, and fast
TRAINING = SampledGaussian(1 / 1.1, 0.01)
PAIRS: list[Pair] = [
    Same(),
    Response(0.3),
    Response(1.0, 1e-9),
    Choice(0.4),
    Laplace(0.25),
    Gaussian(0.7),
    Gaussian(12.0),
    DiscreteGaussian(2, Fraction(9)),
    DiscreteGaussian(1, Fraction("0.4")),
    DiscreteLaplace(0.13, 3),
    DiscreteLaplace(0.5, 1),
    TRAINING,
    TRAINING.reverse,
    Sampled(Laplace(1.0), 0.01),
    Sampled(DiscreteGaussian(2, Fraction(3)), 0.1, adding=True),
    Mirrored(TRAINING),
    Blend(TRAINING, SampledGaussian(2 / 1.1, 0.01), 1e-3),
    Blend(Response(0.5), Same(), 0.25),
    Mixtures(((0.81, 0.0), (0.18, 1.0), (0.01, 2.0)), ((1.0, 0.0),)),
    Mixtures(((0.81, 0.0), (0.18, 1.0), (0.01, 2.0)), ((1.0, 0.0),), turned=True),
    Mixtures(((0.9, 0.0), (0.1, 1.5)), ((0.9, 0.0), (0.1, -1.5))),
    Mixtures(((0.9, 0.0), (0.1, 1.5)), ((0.9, 0.0), (0.1, -1.5)), turned=True),
]


def kinds(kind: type[Pair]) -> Iterator[str]:
    """The names of all kinds of pairs that there are."""
    for each in kind.__subclasses__():
        yield from kinds(each) if each.__subclasses__() else [each.__name__]


def test_every_kind_of_pair_is_among_the_examples() -> None:
    """A new kind of pair gets an example here, and so a proof that its balls are its floats."""
    assert set(kinds(Pair)) == {type(pair).__name__ for pair in PAIRS}


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_balls_are_what_floats_come_near_to(pair: Pair) -> None:
    """The masses above a loss that is no atom are the same in both, and the balls are tiny."""
    low, high = pair.span
    losses = np.linspace(low - 0.01, high + 0.01, 41) + 1e-4 * math.pi
    p, q = pair.above(losses)
    with balls.precision(200):
        slack = arb(2) ** -90
        found = pair.tails([arb(float(loss)) for loss in losses], slack)
        for floats, place in ((p, 0), (q, 1)):
            for near, masses in zip(floats, found, strict=True):
                ball = masses[place]
                assert float(ball.rad()) < 2.0**-100
                assert abs(float(ball.mid()) - near) <= 1e-9 * near + 1e-28


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
@pytest.mark.parametrize("count", [1, 100])
def test_whole_numbers_are_above_the_lower_end_and_near_the_upper(pair: Pair, count: int) -> None:
    """The bound is no less than the float interval's lower end, and barely more than its upper."""
    found, near = epsilon_of({pair: count}, MICRO), total({pair: count}, 1e-6, GRID)
    assert found is not None
    assert near.lower <= float(found) <= near.upper * (1 + 3e-3) + 1e-4


@pytest.mark.parametrize(("mu", "count"), [(0.5, 1), (0.1, 30), (0.01, 5000), (2.0, 7)])
@pytest.mark.parametrize("delta", [Fraction(1, 10), MICRO, Fraction(1, 10**40)], ids=float)
def test_many_steps_of_normal_noise_are_one(mu: float, count: int, delta: Fraction) -> None:
    """Composed step by step, it is not below the closed form of all steps as one, and near it."""
    found = epsilon_of({Gaussian(mu): count}, delta)
    truth = gaussian_epsilon(count * Fraction(mu) ** 2, delta)
    assert found is not None
    assert truth - Fraction(1, 10**9) <= found <= truth * (1 + Fraction(1, 1000))


responses = st.dictionaries(
    st.builds(Response, st.floats(0.01, 2), st.sampled_from([0.0, 1e-4])),
    st.integers(1, 2), min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=examples(40))
@given(responses, st.sampled_from([MICRO, Fraction(1, 1000), Fraction(1, 10)]))
def test_it_is_never_below_an_enumerated_truth(
    schedule: dict[Response, int], delta: Fraction
) -> None:
    """Every outcome of a few unequal responses, enumerated: delta is kept at the bound."""
    with mpmath.workdps(40):
        rows, hidden = [(mpmath.mpf(0), mpmath.mpf(1))], mpmath.mpf(1)
        for pair in (pair for pair, count in schedule.items() for _ in range(count)):
            epsilon = mpmath.mpf(pair.epsilon)
            up = 1 / (1 + mpmath.exp(-epsilon))
            steps = [(epsilon, up), (-epsilon, 1 - up)]
            rows = [(a + b, p * q) for (a, p), (b, q) in product(rows, steps)]
            hidden *= 1 - mpmath.mpf(pair.infinite)
        found = epsilon_of(dict(schedule), delta)
        if found is None:
            assert 1 - hidden > mpmath.mpf(delta.numerator) / delta.denominator * (1 - 1e-4)
        else:
            x = mpmath.mpf(found.numerator) / found.denominator
            kept = mpmath.fsum(p * -mpmath.expm1(x - a) for a, p in rows if a > x)
            assert 1 - hidden + hidden * kept <= mpmath.mpf(delta.numerator) / delta.denominator


several = st.lists(
    st.tuples(st.sampled_from(PAIRS), st.integers(1, 300)), min_size=1, max_size=4,
    unique_by=lambda item: item[0],
)  # fmt: skip


@settings(max_examples=6, deadline=None)
@given(several)
def test_a_mixture_is_near_its_float_interval(items: list[tuple[Pair, int]]) -> None:
    """Any few kinds together, in any numbers: above the lower end, within a percent of the upper;
    and the order of the list changes nothing.
    """
    schedule: dict[Pair, int] = dict(items)
    found, near = epsilon_of(schedule, MICRO), total(schedule, 1e-6, GRID)
    assert found is not None
    assert near.lower <= float(found) <= near.upper * 1.01 + 1e-3
    assert epsilon_of(dict(reversed(items)), MICRO) == found


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_floats_choose_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a search begins may be off by a part in a thousand: it ends at the same number."""
    before = epsilon_of({pair: 2}, MICRO)  # both ways round
    near, outcome = shapes._near, Mixtures._outcome
    monkeypatch.setattr(shapes, "_near", lambda loss: near(loss) - 9)
    monkeypatch.setattr(Mixtures, "_outcome", lambda self, loss: outcome(self, loss) * 1.001)
    assert epsilon_of({pair: 2}, MICRO) == before


UNEQUAL: list[dict[Pair, int]] = [
    {Laplace(20.0): 1, Laplace(1e-3): 10**4},
    {Laplace(20.0): 1, Laplace(1e-9): 10**9},
    {Gaussian(2.0): 1, TRAINING: 1000, Laplace(1e-6): 10**6},
    {Response(1.0): 3, Gaussian(1e-3): 10**5},
]


@pytest.mark.parametrize("schedule", UNEQUAL, ids=str)
def test_unequal_mechanisms_share_no_grid(schedule: dict[Pair, int]) -> None:
    """Few large steps beside very many tiny ones: within a part in a thousand of the floats."""
    found, near = epsilon_of(schedule, MICRO), total(schedule, 1e-6, GRID)
    assert found is not None
    assert near.lower <= float(found) <= near.upper * 1.001 + 1e-4


COSTLY: list[dict[Pair, int]] = [
    {SampledGaussian(1 / 1.1, 0.01): 10**72},
    {Laplace(1e-6 * n): 10**9 - n for n in range(1, 701)},
    {Mixtures(tuple((1e-3, n * m / 1e3) for n in range(1001)), ((1.0, 0.0),)): 1 for m in (1, 2)},
]


@pytest.mark.parametrize("schedule", COSTLY, ids=("counts", "kinds", "moves"))
def test_what_would_take_minutes_is_given_up(
    schedule: dict[Pair, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is counted, not the time: every machine gives up the same schedules. Here after an
    eighth of the seconds that it may take, unless all cases are tried.
    """
    if not HEAVY:
        monkeypatch.setattr(exact, "_MOST_WORK", exact._MOST_WORK // 8)
    with pytest.raises(ArithmeticError, match="too long"):
        epsilon_of(schedule, MICRO)


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_a_shape_has_nearly_all_losses_and_their_moments(pair: Pair) -> None:
    """No more than the spare mass is outside; the variance is right to a factor of a few."""
    spare = Fraction(1, 10**9)
    with balls.precision(200):
        shape = shapes.shape_of(pair, spare)
        assert shape is not None
        [(above, _), (all_but_below, _)] = shapes.tails_of(
            pair, [balls.ball(shape.high), balls.ball(shape.low)], Fraction(1, 2**80)
        )
        assert above <= balls.ball(spare)
        assert 1 - arb(pair.infinite) - all_but_below <= balls.ball(spare)
    edges = np.linspace(float(shape.low) - 1e-9, float(shape.high) + 1e-9, 20001)
    masses = -np.diff(pair.above(edges)[0])
    middles = (edges[1:] + edges[:-1]) / 2
    mean = float(masses @ middles / masses.sum())
    square = float(masses @ middles**2 / masses.sum())
    assert square / 1024 - 1e-20 <= float(shape.variance) <= 2 * square + 1e-20
    assert abs(float(shape.mean) - mean) <= max(-shape.low, shape.high) / 2 + 1e-9


def test_what_reveals_all_more_often_than_delta_has_no_bound() -> None:
    """Where the mass at infinity is more than delta, no epsilon is stated."""
    assert epsilon_of({Response(1.0, 1e-6): 2}, MICRO) is None


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(-1)])
def test_a_delta_is_a_probability(delta: Fraction) -> None:
    """Anything but a probability between 0 and 1 is refused."""
    with pytest.raises(ValueError, match="delta in"):
        epsilon_of({Laplace(1.0): 1}, delta)


def test_a_mass_that_balls_enclose_badly_costs_no_more_than_it_is() -> None:
    """Where Q is tiny beside P the share that goes up is known badly; it is never more than P."""
    pair = DiscreteGaussian(11, Fraction(1))
    found, near = epsilon_of({pair: 1}, MICRO), total({pair: 1}, 1e-6)
    assert found is not None
    assert near.lower <= float(found) <= near.upper * 1.003


EXTREMES: list[dict[Pair, int]] = [
    {Laplace(0.01): 10**9},
    {Laplace(1e-9): 10**9},
    {Laplace(500.0): 3},
    {Gaussian(1e-6): 10**9},
    {Gaussian(30.0): 5},
    {Gaussian(1e6): 1},
    {SampledGaussian(20.0, 1e-5): 1000},
    {SampledGaussian(1e-12, 1e-12): 10**9},
    {DiscreteGaussian(5000, Fraction(3000)): 10},
    {DiscreteGaussian(20, Fraction(1)): 1000},
    {DiscreteGaussian(1, Fraction(1, 16)): 1, Laplace(1e-7): 10**12},
    {DiscreteLaplace(1e-3, 10**9): 2},
    {Response(1e-5): 1, Laplace(50.0): 1},
    {Same(): 1000},
]


@pytest.mark.parametrize("schedule", EXTREMES, ids=str)
def test_absurd_schedules_have_an_answer(schedule: dict[Pair, int]) -> None:
    """Whatever the counts and scales: a bound above the lower end, or none, in bounded time."""
    found = epsilon_of(schedule, MICRO)
    assert found is None or float(found) >= total(schedule, 1e-6, GRID).lower
