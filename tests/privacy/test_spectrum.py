"""Sums of losses from their characteristic functions, held against convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.privacy.composition.grids import EVEN, Floats, Grid
from accountant.privacy.composition.spectrum import Parts, composed

Part = tuple[int, Floats, int]


def stacked(parts: Sequence[Part], fine: int = EVEN) -> Parts:
    """Return first slots, masses and counts as what is composed."""
    sizes = np.array([mass.size for _, mass, _ in parts])
    masses = np.concatenate([mass / mass.sum() for _, mass, _ in parts])
    firsts = np.array([part[0] for part in parts])
    counts = np.array([part[2] for part in parts], dtype=np.float64)
    return Parts(masses, np.cumsum(sizes) - sizes, sizes, firsts, counts, fine)


def convolved(parts: Parts, size: int, first: int) -> Floats:
    """Return the mass of the total, one product after another, folded onto ``size`` places."""
    whole, begin, places = np.ones(1), 0, parts.places()
    for i, count in enumerate(parts.counts):
        mass, there = parts.at(places, i)
        dense = np.bincount(there - there[0], mass)
        for _ in range(int(count)):
            whole, begin = np.convolve(whole, dense), begin + int(there[0])
    found = np.zeros(size)
    np.add.at(found, (np.arange(whole.size) + begin - first) % size, whole)
    return found


def uniform(first: int, width: int, count: int = 1) -> Part:
    """Return equal masses."""
    return first, np.ones(width), count


def atoms(distance: int, count: int = 1) -> Part:
    """Return two atoms, whose characteristic function comes back to 1."""
    mass = np.zeros(distance + 1)
    mass[[0, -1]] = 1.0, 3.0
    return -distance // 2, mass, count


some_masses = st.integers(1, 400).flatmap(
    lambda width: st.integers(0, 2**32).map(
        lambda seed: np.random.default_rng(seed).exponential(size=width) + 1e-9
    )
)
some_parts = st.lists(
    st.tuples(st.integers(-500, 500), some_masses, st.integers(1, 3)), min_size=1, max_size=6
)


@settings(max_examples=examples(40), deadline=None)
@given(
    some_parts,
    st.sampled_from([64, 2048, 16384]),
    st.integers(-100, 100),
    st.sampled_from([EVEN, 256]),
)
def test_the_total_is_the_convolution(parts: list[Part], size: int, first: int, fine: int) -> None:
    """Whatever the masses, counts and places, also where they wrap around or are far apart: no mass
    is wrong by more than the bound.
    """
    stack = stacked(parts, fine)
    found, error = composed(stack, size, first, 1e-12)
    assert np.abs(found - convolved(stack, size, first)).max() <= error + 1e-15


MANY: dict[str, list[Part]] = {
    "wide": [uniform(-i // 2, i) for i in range(5, 150)],
    "wide and narrow": [*(uniform(0, i % 7 + 2) for i in range(60)), uniform(3, 9000, 2)],
    "atoms": [atoms(2 * i) for i in range(1, 60)],
    "atoms alike": [atoms(256, 40)],
    "one often": [uniform(-8, 17, 300)],
}


@pytest.mark.parametrize("name", MANY)
def test_frequencies_are_left_out_within_the_bound(name: str) -> None:
    """Of many distributions few frequencies are summed, unless they come back; the bound on the
    error holds, and is not above what was allowed and a rounding for each mass.
    """
    size, stack, allowed = 2**16, stacked(MANY[name]), 1e-9
    found, error = composed(stack, size, -9000, allowed)
    assert np.abs(found - convolved(stack, size, -9000)).max() <= error + 1e-15
    steps = sum(stack.counts)
    assert error <= allowed + 1e-12 * steps * math.sqrt(stack.sizes.max())


@given(st.integers(-(2**50), 2**50), st.sampled_from([2, 256, 2**20, EVEN]))
@example(2 * EVEN + 1, EVEN)
def test_places_are_spaced_as_floats_are(place: int, fine: int) -> None:
    """The slots around a loss have places on either side of it, no further apart than its own
    distance from 0 over ``fine``; all near 0 are there, and a slot has one place.
    """
    grid = Grid(1.0, fine)
    below, above = (int(ends[0]) for ends in grid.around(*np.full((2, 1), float(place))))
    slots = np.arange(below - 3, min(above + 4, below + 40))
    places = grid.places(slots)
    assert places[3] < place < grid.places(np.array([above]))[0]
    widths = np.diff(places)
    assert ((widths > 0) & (widths <= np.maximum(np.abs(places[1:]) // fine, 1) * 2)).all()
    assert above - below <= 4
    near = np.arange(-2 * fine, 2 * fine + 1) if fine < 2**10 else slots[:0]
    assert (grid.places(near) == near).all()
    assert (grid.places(-slots) == -places).all()


def test_a_million_alike_are_a_normal_distribution() -> None:
    """A million steps of one up or down: the middle masses are Stirling's, to six digits."""
    found, error = composed(stacked([(-1, np.array([1.0, 1e-300, 1.0]), 10**6)]), 2**15, 0, 1e-12)
    assert found[0] + found[1] == pytest.approx(math.sqrt(2 / math.pi / 10**6), rel=1e-6)
    assert error < 1e-6
