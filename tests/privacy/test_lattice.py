"""Pairs on a grid, many at once, held against one at a time."""

from __future__ import annotations

import mpmath
import numpy as np
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.privacy.composition.discrete_pairs import DiscreteGaussian, DiscreteLaplace
from accountant.privacy.composition.grids import Grid
from accountant.privacy.composition.lattice import narrowed, on_grid
from accountant.privacy.composition.mixture_pairs import Mixtures
from accountant.privacy.composition.pairs import (
    Choice,
    Gaussian,
    Laplace,
    Pair,
    Response,
    SampledGaussian,
    above_each,
)
from accountant.privacy.composition.sampled_pairs import Blend, Mirrored, Same, Sampled

epsilons = st.floats(-3, 1).map(lambda x: 10**x)
rates = st.floats(-4, -0.1).map(lambda x: 10**x)
plain = st.one_of(
    st.builds(Laplace, epsilons),
    st.builds(Gaussian, epsilons),
    st.builds(Choice, epsilons),
    st.builds(DiscreteGaussian, st.integers(1, 9), st.floats(0.5, 20)),
    st.builds(DiscreteLaplace, st.floats(0.01, 2), st.integers(1, 9)),
)
sampled = st.builds(Sampled, plain, rates, st.booleans())
gaussian = st.builds(SampledGaussian, epsilons, rates, st.booleans())
mixtures = st.builds(
    lambda mean, rate, turned: Mixtures(((1 - rate, 0.0), (rate, mean)), ((1.0, 0.0),), turned),
    st.floats(0.1, 3),
    rates,
    st.booleans(),
)
pairs = st.one_of(
    plain,
    sampled,
    gaussian,
    mixtures,
    st.just(Same()),
    st.builds(Response, epsilons, st.sampled_from([0.0, 1e-6])),
    st.builds(Mirrored, st.builds(Sampled, plain, rates)),
    st.builds(Blend, st.one_of(plain, gaussian), gaussian, rates),
)
schedules = st.lists(pairs, min_size=1, max_size=9)
grids = st.sampled_from([Grid(0.5), Grid(0.01), Grid(1e-3, 2), Grid(1e-3, 256)])
moves = st.lists(
    st.sampled_from([0.0, 0.0, -9.0, -2.0, -0.5, 0.5, 1.0, 4.0]), min_size=9, max_size=9
)
SOME: list[Pair] = [Laplace(0.3), Gaussian(0.2), Laplace(3.0), Response(1.0), Laplace(0.1)]


@settings(max_examples=examples(60), deadline=None)
@given(schedules, st.lists(st.lists(st.floats(-12, 12), max_size=9), min_size=9, max_size=9))
@example(SOME, [[0.1, -0.3], [], [3.0], [-1.0, 1.0, 0.0], [0.1], [], [], [], []])
def test_many_are_above_as_each_is(some: list[Pair], losses: list[list[float]]) -> None:
    """Masses of many pairs, each above losses of its own, are those of each pair alone, bit for
    bit, however their kinds follow one another and however few losses a pair has.
    """
    each = [np.array(mine, dtype=np.float64) for mine, _ in zip(losses, some, strict=False)]
    sizes = np.array([mine.size for mine in each])
    p, q = above_each(some, np.concatenate(each), sizes)
    ends = np.cumsum(sizes)
    for pair, mine, end in zip(some, each, ends, strict=True):
        if mine.size:
            there = slice(end - mine.size, end)
            assert np.array_equal(pair.above(mine), (p[there], q[there]))


@settings(max_examples=examples(40), deadline=None)
@given(schedules, grids, st.floats(-12, -2).map(lambda x: 10**x), moves)
@example(SOME, Grid(0.01), 1e-9, [0.0] * 9)
@example([Response(1.0, 1e-6), Same()], Grid(0.01), 1e-9, [0.0] * 9)
@example([Laplace(1.0), Laplace(1.0), Laplace(0.3)], Grid(0.5), 0.5, [0.0, 1.0, -9.0] * 3)
@example([Laplace(1.0), Laplace(1.0), Laplace(0.3)], Grid(0.01), 1e-9, [-2.0, 0.0, 2.0] * 3)
def test_a_lattice_is_the_same_beside_others(
    some: list[Pair], grid: Grid, spare: float, moved: list[float]
) -> None:
    """The span and the lattice of a pair are those of the pair alone, bit for bit, wherever it is
    cut off: nothing of a neighbour enters its masses, what is lost of it, or how far it is from the
    mechanism. With what is lost they add up to 1.
    """
    spans = narrowed(some, spare)
    each = [narrowed([pair], spare) for pair in some]
    assert np.array_equal(np.concatenate(each, axis=1), spans)
    away = np.array(moved[: len(some)])
    many = on_grid(some, spans + away, grid)
    ends = np.cumsum(many.sizes)
    for i, pair in enumerate(some):
        one = on_grid([pair], each[i] + away[i], grid)
        there = slice(int(ends[i] - many.sizes[i]), int(ends[i]))
        mine = [*(field[[i]] for field in many[:4]), *(field[there] for field in many[4:])]
        assert all(map(np.array_equal, mine, one))
        assert 1 <= one.mass.sum() + one.lost[0] <= 1 + 1e-8


@settings(max_examples=examples(40))
@given(st.floats(0, 4).map(lambda x: 10**x), st.floats(-1, 1))
@example(699.9, 1.0)
@example(10.0**4, -1.0)
def test_laplace_masses_are_right_beside_hardly_any_noise(epsilon: float, part: float) -> None:
    """Beside a pair whose losses are beyond what floats hold the exponential of, the masses of
    another keep the accuracy that Pair.above promises, and so do its own.
    """
    losses = np.array([0.1 * part, epsilon * part, 5e4 * part])
    some = [Laplace(0.1), Laplace(epsilon), Laplace(5e4)]
    found = above_each(some, losses, np.ones(3, np.int64))
    with mpmath.workdps(50):
        for i, (pair, loss) in enumerate(zip(some, losses, strict=True)):
            if not abs(loss) < pair.epsilon:
                continue
            shift = mpmath.mpf(2) ** -46 * (1 + pair.epsilon)
            for mass, sign in zip(found, (-1, 1), strict=True):
                least, most = sorted(
                    mpmath.exp(-(pair.epsilon + sign * (mpmath.mpf(loss) + s)) / 2) / 2
                    for s in (-shift, shift)
                )
                least, most = (1 - most, 1 - least) if sign < 0 else (least, most)
                error = mpmath.mpf(2) ** -48 * (1 - mpmath.log(max(least, 1e-300)) / 4)
                assert least * (1 - error) - 1e-299 <= mass[i] <= most * (1 + error) + 1e-299
