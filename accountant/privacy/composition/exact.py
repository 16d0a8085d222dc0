"""The epsilon of a fixed schedule in whole numbers: what a declared plan is verified by.

A decision must not hang on the last digits of floats, so the masses of losses are integers here, in
units of 2^-bits. Each starts as a ball that encloses it and is rounded up; from there on there are
only integers: products of polynomials, shifts that round up, and sums. Floats choose the grid and
how far it reaches, coarsely. Whatever they choose, what is found is no less than the truth.

*Connect the dots* (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, PETS 2022): the mass P, Q of a
cell, between losses l and l + h, goes to both ends, the share a = (P - e^l Q) / (1 - e^-h) of P to
the upper one. That keeps its P and Q, and every curve of it lies below that of its ends, as it is
convex in e^epsilon. Three steps raise it further: losses that are less than l by up to a slack s
are raised to l, which leaves e^-s Q at least, so a = (P - e^(l - s) Q) / (1 - e^-h) is enough; mass
below all dots is raised to the lowest; mass above them is raised to infinity.

A block of ``steps`` invocations needs a coarser grid than one, as its losses spread out; mass
between the dots of the coarser grid goes to both sides, as above. A grid that depends on nothing
but the steps makes blocks of all mechanisms fit together.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

import numpy as np
from flint import arb, fmpz, fmpz_poly

from accountant.privacy import balls
from accountant.privacy.balls import ball
from accountant.privacy.composition.lattice import narrowed
from accountant.privacy.composition.pairs import Pair

_POINTS: Final = 32  # Dots in the deviation of an average mechanism
_POINTS_IN_ALL: Final = 512  # Dots in the deviation of the total, if few mechanisms make it up
_MOST_POINTS: Final = 512
_FEWEST: Final = 8  # Dots in a deviation of each of many mechanisms
_MOST_TAILS: Final = 4096  # Dots in a deviation of each, all together: tails take long
_MOST_DOTS: Final = 2**17  # Places on the grid of all mechanisms together,
_MOST_EACH: Final = 2**14  # and of each
_CUT: Final = 18  # Each product may lose 2^-18 of its part of delta at either end
_SPARE_BITS: Final = 40
_FINE: Final = 10**12  # What is found is a multiple of 1e-12
_FURTHEST: Final = 1e6  # Larger losses are only added up
_FINEST: Final = 2.0**-60  # Losses that are smaller are raised to this one
_SHARE_BITS: Final = 64


class Block(NamedTuple):
    """The masses of so many ``steps``: those of a polynomial, from ``first`` on, at multiples of
    the grid of the block; ``lost`` is at infinity.
    """

    steps: int
    first: int
    mass: fmpz_poly
    lost: int


class _Grid(NamedTuple):
    """The ``unit`` of losses of one step, the ``bits`` of masses, and what a schedule may lose."""

    unit: Fraction
    bits: int
    most_lost: int
    steps: int

    def loses(self, steps: int) -> int:
        """Return the mass that a block of so many steps may lose at either end."""
        return self.most_lost * steps // self.steps


def epsilon_of(schedule: Mapping[Pair, int], delta: Fraction) -> Fraction | None:
    """Return an epsilon at ``delta`` of pairs with their counts, whichever of the two neighbours
    was used: a multiple of 1e-12. None where no finite one is found. Raises ValueError for an empty
    schedule, a count below 1 or a delta outside (0, 1); it may raise ArithmeticError where numbers
    are too extreme to be enclosed.
    """
    if not schedule or min(schedule.values()) < 1 or not 0 < delta < 1:
        raise ValueError("a schedule has mechanisms, each at least once, and a delta in (0, 1)")
    turned: Counter[Pair] = Counter()
    for pair, count in schedule.items():
        turned[pair.reverse] += count
    ways = [schedule] if turned == schedule else [schedule, turned]
    found = [_one_way(dict(sorted(way.items(), key=repr)), delta) for way in ways]
    known = [epsilon for epsilon in found if epsilon is not None]
    return max(known) if len(known) == len(found) else None


def _one_way(schedule: dict[Pair, int], delta: Fraction) -> Fraction | None:
    steps = sum(schedule.values())
    spare = float(delta) * 2.0 ** (4 - _CUT) / steps
    spans = [_span(pair, spare) for pair in schedule]
    if any(max(-low, high) > _FURTHEST for low, high in spans):
        return None
    bits = (delta.denominator // delta.numerator).bit_length() + steps.bit_length() + _SPARE_BITS
    whole = _floor(delta * (1 << bits))
    grid = _Grid(_unit(schedule, spans), bits, whole >> _CUT, steps)
    fewest = min(_POINTS, max(_FEWEST, _MOST_TAILS // len(schedule)))
    bases = [_base(pair, span, fewest, grid) for pair, span in zip(schedule, spans, strict=True)]
    return _least(_composed(list(zip(bases, schedule.values(), strict=True)), grid), whole, grid)


def _composed(parts: list[tuple[Block, int]], grid: _Grid) -> Block:
    """Return all parts, so many of each: doubled, one binary digit of all counts after another."""
    so_far: list[Block] = []
    for place in reversed(range(max(count for _, count in parts).bit_length())):
        doubled = [_both(one, one, grid) for one in so_far]
        blocks = deque(base for base, count in parts if count >> place & 1)
        blocks.extend(doubled)
        while len(blocks) > 1:
            blocks.append(_both(blocks.popleft(), blocks.popleft(), grid))
        so_far = list(blocks)
    return so_far[0]


class _Span(NamedTuple):
    low: float
    high: float


def _span(pair: Pair, spare: float) -> _Span:
    """Return losses beyond which P has at most nearly ``spare``, coarsely."""
    low, high = narrowed(pair, spare)
    step = (high - low) / 4
    while step and pair.above(np.array([high]))[0][0] > spare and high < _FURTHEST:
        high += step
    return _Span(-_coarse(-low), _coarse(high))


def _coarse(loss: float) -> float:
    """Return the next larger loss of four binary digits."""
    place = 2.0 ** (math.frexp(loss)[1] - 4)
    return math.ceil(loss / place) * place


def _floor(value: Fraction) -> int:
    return value.numerator // value.denominator


def _unit(schedule: dict[Pair, int], spans: list[_Span]) -> Fraction:
    """Return the grid of one step: a power of two that is fine enough for the average mechanism."""
    steps = sum(schedule.values())
    counted = zip(schedule.items(), spans, strict=True)
    squares = sum(count * _moments(pair, span)[1] for (pair, count), span in counted)
    points = max(_POINTS, _POINTS_IN_ALL / math.sqrt(steps))
    widths = [high - low for low, high in spans]
    fewest = max(sum(widths) / _MOST_DOTS, max(widths) / _MOST_EACH, _FINEST)
    wanted = max(math.sqrt(squares / steps) / points, fewest)
    return Fraction(2) ** math.floor(math.log2(wanted))


def _moments(pair: Pair, span: _Span) -> tuple[float, float]:
    """Return nearly the mean and the variance of the losses within the span."""
    furthest = 1.01 * max(-span.low, span.high, _FINEST)
    sizes = furthest * 2.0 ** -(np.arange(128) / 4)
    edges = np.concatenate([-sizes, sizes[::-1]])
    mass = -np.diff(pair.above(edges)[0])
    losses = (edges[1:] + edges[:-1]) / 2
    whole = float(mass.sum()) or 1.0
    mean, square = float(mass @ losses) / whole, float(mass @ losses**2) / whole
    return mean, max(square - mean**2, square / 256)


def _base(pair: Pair, span: _Span, fewest: int, grid: _Grid) -> Block:
    """Return one invocation, with so many dots at least in a deviation, or all of the grid."""
    unit = grid.unit
    mean, variance = _moments(pair, span)
    low, high = _floor(Fraction(span.low) / unit), -_floor(-Fraction(span.high) / unit)
    fine = min(max(fewest, round(math.sqrt(variance) / unit)), _MOST_POINTS)
    dots = _dots(low, high, min(max(round(mean / unit), low), high), fine)
    with balls.precision(grid.bits + 64 + 2 * unit.denominator.bit_length()):
        slack = ball(unit / 2**40)
        losses = [ball(unit) * dot for dot in dots]
        tails = pair.tails([loss - slack / 2 for loss in losses], slack / 2)
        scale = arb(1 << grid.bits)
        masses = [0] * (dots[-1] - dots[0] + 1)
        (p, q), *others = tails
        masses[0] = _ceiling((1 - arb(pair.infinite) - p) * scale)
        for i, (next_p, next_q) in enumerate(others):
            mass, other = p - next_p, q - next_q
            factor = (losses[i] - slack).exp() * other
            raised = (mass - factor) / -(losses[i] - losses[i + 1]).expm1()
            whole = _ceiling(mass * scale)
            high_share = min(whole, _ceiling(raised * scale))
            masses[dots[i] - dots[0]] += whole - high_share
            masses[dots[i + 1] - dots[0]] += high_share
            p, q = next_p, next_q
        lost = _ceiling((arb(pair.infinite) + p) * scale)
    return Block(1, dots[0], fmpz_poly(masses), lost)


def _dots(low: int, high: int, centre: int, fine: int) -> list[int]:
    """Return places from ``low`` to ``high``, every one near the centre, ever fewer far from it."""

    def reach(goal: int, way: int) -> list[int]:
        found, far = [], 0
        while way * (goal - centre) > far:
            far += max(1, 1 << (far // fine).bit_length() >> 1)
            found.append(centre + way * far)
        return found

    return [*reversed(reach(low, -1)), centre, *reach(high + 1, 1)]


def _ceiling(value: arb) -> int:
    """Return the least integer >= 0 that is surely not below ``value``."""
    found = value.ceil().unique_fmpz()
    if found is None:
        found = value.upper().ceil().unique_fmpz()
    if found is None:
        raise ArithmeticError("a mass is too extreme to be enclosed")
    return max(int(found), 0)


def _level(steps: int) -> int:
    """Return how often the grid of so many steps is doubled: 4 times the steps, once more."""
    return max(0, (steps.bit_length() - 1) // 2 - 1)


def _both(one: Block, other: Block, grid: _Grid) -> Block:
    """Return the composition of two blocks."""
    level = max(_level(one.steps), _level(other.steps))
    one, other = _at_level(one, level, grid), _at_level(other, level, grid)
    steps = one.steps + other.steps
    product = _shifted(one.mass * other.mass, grid.bits)
    found = _cut(Block(steps, one.first + other.first, product, one.lost + other.lost), grid)
    for at in range(level, _level(steps)):
        found = _coarser(found, at, grid)
    return found


def _at_level(block: Block, level: int, grid: _Grid) -> Block:
    for at in range(_level(block.steps), level):
        block = _coarser(block, at, grid)
    return block


def _shifted(mass: fmpz_poly, bits: int) -> fmpz_poly:
    """Return all masses divided by 2^bits, rounded up."""
    return -(-mass // (1 << bits))


def _coarser(block: Block, level: int, grid: _Grid) -> Block:
    """Return a block on a grid of twice the step. Of the mass between two dots at a distance of 2 h
    goes 1 / (1 + e^-h) up, rounded up, and the rest down.
    """
    first, masses = block.first, block.mass.coeffs()
    if first % 2:
        first, masses = first - 1, [fmpz(0), *masses]
    even, odd = fmpz_poly(masses[::2]), fmpz_poly(masses[1::2])
    up = _shifted(odd * _share_up(grid.unit * 2**level), _SHARE_BITS)
    return block._replace(first=first // 2, mass=even + (odd - up) + up.left_shift(1))


@lru_cache(maxsize=256)
def _share_up(h: Fraction) -> int:
    with balls.precision(2 * _SHARE_BITS + 2 * h.denominator.bit_length()):
        return _ceiling(arb(1 << _SHARE_BITS) / (1 + (-ball(h)).exp()))


def _cut(block: Block, grid: _Grid) -> Block:
    """Raise the ends of a block that hold next to nothing: to the lowest loss, and to infinity."""
    room, masses = grid.loses(block.steps), block.mass.coeffs()
    start = min(_within(masses, room), len(masses) - 1)
    end = max(len(masses) - _within(reversed(masses), room), start + 1)
    below, above = (int(sum(part)) for part in (masses[:start], masses[end:]))
    kept = fmpz_poly(masses[start:end]) + fmpz_poly([below])
    return Block(block.steps, block.first + start, kept, block.lost + above)


def _within(masses: Iterable[fmpz], room: int) -> int:
    """Return how many masses at the beginning add up to no more than ``room``."""
    return sum(1 for _ in takewhile(room.__ge__, accumulate(map(int, masses))))


def _least(block: Block, delta: int, grid: _Grid) -> Fraction | None:
    """Return the epsilon at which the curve falls to ``delta``.

    From a dot l to the next it is A - e^(x - l') C, with A the mass beyond l and at infinity and C
    the sum of masses times e^(l' - loss), l' being the next dot.
    """
    room = delta - block.lost
    if room <= 0:
        return None
    step = grid.unit * 2 ** _level(block.steps)
    masses = block.mass.coeffs()
    with balls.precision(grid.bits + 64):
        fade, least = (-ball(step)).exp(), arb(0)
        beyond, weighed = 0, arb(0)
        for i, mass in reversed(list(enumerate(masses))):
            if beyond > room and not beyond - fade * weighed <= room:
                least = ball((block.first + i) * step)
                break
            beyond, weighed, next_loss = beyond + int(mass), int(mass) + fade * weighed, i
        if beyond <= room:
            return Fraction(0)
        found = ball((block.first + next_loss) * step) + ((beyond - room) / weighed).log()
        return Fraction(_ceiling(found.max(least) * _FINE), _FINE)
