"""The epsilon of a fixed schedule in whole numbers: what a declared plan is verified by.

A decision must not hang on the last digits of floats, so the masses of losses are integers here, in
units of 2^-bits. Each starts as a ball that encloses it and is rounded up; from there on there are
only integers: products of polynomials, shifts that round up, and sums. The grid is chosen by balls
and fractions too (``shapes.py``). So every machine finds the same, and no less than the truth.

*Connect the dots* (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, PETS 2022): the mass P, Q of a
cell, between losses l and l + h, goes to both ends, the share a = (P - e^l Q) / (1 - e^-h) of P to
the upper one. That keeps its P and Q, and every curve of it lies below that of its ends, as it is
convex in e^epsilon. Three steps raise it further: losses that are less than l by up to a slack s
are raised to l, which leaves e^-s Q at least, so a = (P - e^(l - s) Q) / (1 - e^-h) is enough; mass
below all dots is raised to the lowest; mass above them is raised to infinity.

A grid fits the deviation of what is on it: 32 steps or more of it for one invocation, 64 for a
block, more for what makes up most of the total. As losses spread out with each product, a block
needs a coarser grid than its parts; mass between the dots of the coarser one goes to both sides, as
above. All grids are powers of two, so blocks of all mechanisms fit together: those that spread the
least come first.

The work is counted as it is done. What would take longer than some seconds is given up, by every
machine at the same place.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

from flint import arb, fmpz, fmpz_poly

from accountant.privacy import balls
from accountant.privacy.balls import ball
from accountant.privacy.composition.pairs import Pair
from accountant.privacy.composition.shapes import FINEST, Shape, floor_log2, shape_of, tails_of

_DOTS_OF_EACH: Final = 5  # 2^5 dots in a deviation of a mechanism,
_DOTS_OF_BASE: Final = 9  # but of few mechanisms 2^9 in a deviation of the total
_DOTS_OF_BLOCK: Final = 6  # 2^6 in a deviation of a product,
_DOTS_OF_TOTAL: Final = 8  # and 2^8 in one of the total
_MOST_TAILS: Final = 2**13  # Terms of tails, for a deviation of each, all together
_FEWEST: Final = 8  # Dots in a deviation of each, if there are many
_USUAL: Final = 128  # Dots of a mechanism
_TAILS_OF_SHAPE: Final = 40  # Losses that are looked at to find a shape, or a few more
_MOST_DOTS: Final = 2**17  # Places on the grids of all mechanisms together,
_MOST_EACH: Final = 14  # and 2^14 of each
_MOST_WORK: Final = 2**18  # In pairs of normal tails, of some 15 microseconds each
_WORK_OF_PRODUCT: Final = 11  # 2^11 bits of the factors of a product take as long as one of them
_CUT: Final = 18  # Each product may lose 2^-18 of its part of delta at either end
_SPARE_BITS: Final = 40
_MORE_BITS: Final = 64  # Of balls, beyond those of masses
_SLACK_BITS: Final = 30  # A loss may be taken for one that is larger by 2^-30 of the grid
_FINE: Final = 10**12  # What is found is a multiple of 1e-12
_SHARE_BITS: Final = 64


class Block(NamedTuple):
    """The masses of so many ``steps``: those of a polynomial, from ``first`` on, at multiples of
    2^``exponent``; ``lost`` is at infinity. Their ``variance`` is about that of a ``Shape``.
    """

    steps: int
    variance: Fraction
    exponent: int
    first: int
    mass: fmpz_poly
    lost: int


_Parts = list[tuple[Block, int]]


class _Work:
    """Counts what has been done, in pairs of normal tails, and stops what takes too long."""

    def __init__(self) -> None:
        self.done = 0

    def add(self, work: int) -> None:
        self.done += work
        if self.done > _MOST_WORK:
            raise ArithmeticError("the schedule takes too long to compose")


class _Frame(NamedTuple):
    """What all blocks of a schedule have in common: the ``bits`` of masses, the mass that all
    ``steps`` may lose at either end, and the level of the ``total``, the base-2 logarithm of its
    deviation.
    """

    bits: int
    most_lost: int
    steps: int
    total: int
    work: _Work

    def loses(self, steps: int) -> int:
        """Return the mass that a block of so many steps may lose at either end."""
        return self.most_lost * steps // self.steps

    def exponent_of(self, variance: Fraction) -> int:
        """Return the grid that is fine enough for a block."""
        return min(_deviation(variance) - _DOTS_OF_BLOCK, self.total - _DOTS_OF_TOTAL)


def epsilon_of(schedule: Mapping[Pair, int], delta: Fraction) -> Fraction | None:
    """Return an epsilon at ``delta`` of pairs with their counts, whichever of the two neighbours
    was used: a multiple of 1e-12. None where no finite one is found. Raises ValueError for an empty
    schedule, a count below 1 or a delta outside (0, 1); ArithmeticError where numbers are too
    extreme to be enclosed, or the schedule takes too long.
    """
    if not schedule or min(schedule.values()) < 1 or not 0 < delta < 1:
        raise ValueError("a schedule has mechanisms, each at least once, and a delta in (0, 1)")
    turned: Counter[Pair] = Counter()
    for pair, count in schedule.items():
        turned[pair.reverse] += count
    ways = [schedule] if turned == schedule else [schedule, turned]
    work = _Work()
    found = [_one_way(sorted(way.items(), key=repr), delta, work) for way in ways]
    known = [epsilon for epsilon in found if epsilon is not None]
    return max(known) if len(known) == len(found) else None


def _one_way(parts: list[tuple[Pair, int]], delta: Fraction, work: _Work) -> Fraction | None:
    steps = sum(count for _, count in parts)
    bits = (delta.denominator // delta.numerator).bit_length() + steps.bit_length() + _SPARE_BITS
    shapes, variance = [], Fraction(0)
    for pair, count in parts:
        work.add(pair.cost(_TAILS_OF_SHAPE))
        with balls.precision(bits + _MORE_BITS):
            shape = shape_of(pair, delta / steps / 2 ** (_CUT - 4))
        if shape is None:
            return None
        shapes.append(shape)
        variance += count * shape.variance
    whole = _floor(delta * (1 << bits))
    frame = _Frame(bits, whole >> _CUT, steps, _deviation(variance), work)
    blocks = [_composed(alike, frame) for alike in _bases(parts, shapes, frame)]
    return _least(_merged(blocks, frame), whole, frame)


def _bases(parts: list[tuple[Pair, int]], shapes: list[Shape], frame: _Frame) -> list[_Parts]:
    """Return one invocation of each part with its count, those on the same grid together."""
    found: dict[int, _Parts] = defaultdict(list)
    dots = _MOST_TAILS * _USUAL // sum(pair.cost(_USUAL) for pair, _ in parts)
    for (pair, count), shape, exponent in zip(parts, shapes, _grids(shapes, frame), strict=True):
        found[exponent].append((_base(pair, shape, exponent, max(dots, _FEWEST), frame), count))
    return list(found.values())


def _deviation(variance: Fraction) -> int:
    """Return the base-2 logarithm of a deviation, rounded down."""
    return floor_log2(variance) // 2


def _grids(shapes: list[Shape], frame: _Frame) -> list[int]:
    """Return the exponent of each grid: fine enough for what it holds and for the total, and not so
    fine that there are too many places.
    """
    found = []
    for shape in shapes:
        wanted = _deviation(shape.variance) - _DOTS_OF_EACH, frame.total - _DOTS_OF_BASE
        least = floor_log2(shape.high - shape.low) + 1 - _MOST_EACH
        found.append(max(min(wanted), least, FINEST))
    while sum(map(_places, shapes, found)) > _MOST_DOTS:
        found = [exponent + 1 for exponent in found]
    return found


def _places(shape: Shape, exponent: int) -> int:
    return _floor((shape.high - shape.low) / Fraction(2) ** exponent)


def _merged(blocks: list[Block], frame: _Frame) -> Block:
    """Return all blocks as one, beginning with those that spread the least."""
    waiting = sorted(blocks, key=lambda block: block.variance)
    while len(waiting) > 1:
        one, other, *waiting = waiting
        insort(waiting, _both(one, other, frame), key=lambda block: block.variance)
    return waiting[0]


def _composed(parts: _Parts, frame: _Frame) -> Block:
    """Return all parts, so many of each: doubled, one binary digit of all counts after another."""
    so_far: list[Block] = []
    for place in reversed(range(max(count for _, count in parts).bit_length())):
        doubled = [_both(one, one, frame) for one in so_far]
        blocks = deque(base for base, count in parts if count >> place & 1)
        blocks.extend(doubled)
        while len(blocks) > 1:
            blocks.append(_both(blocks.popleft(), blocks.popleft(), frame))
        so_far = list(blocks)
    return so_far[0]


def _floor(value: Fraction) -> int:
    return value.numerator // value.denominator


def _base(pair: Pair, shape: Shape, exponent: int, most: int, frame: _Frame) -> Block:
    """Return one invocation, with at most so many dots in a deviation of its losses."""
    unit = Fraction(2) ** exponent
    low, high = _floor(shape.low / unit), -_floor(-shape.high / unit)
    fine = min(1 << max(_deviation(shape.variance) - exponent, _DOTS_OF_EACH), most)
    dots = _dots(low, high, min(max(round(shape.mean / unit), low), high), fine)
    frame.work.add(pair.cost(len(dots)))
    with balls.precision(frame.bits + _MORE_BITS + 2 * abs(exponent)):
        slack = unit / 2**_SLACK_BITS
        losses = [ball(unit) * dot for dot in dots]
        tails = tails_of(pair, losses, slack)
        scale, least = arb(1 << frame.bits), ball(slack)
        masses = [0] * (dots[-1] - dots[0] + 1)
        (p, q), *others = tails
        masses[0] = _ceiling((1 - arb(pair.infinite) - p) * scale)
        for i, (next_p, next_q) in enumerate(others):
            mass, other = p - next_p, q - next_q
            factor = (losses[i] - least).exp() * other
            raised = (mass - factor) / -(losses[i] - losses[i + 1]).expm1()
            whole = _ceiling(mass * scale)
            high_share = min(whole, _ceiling(raised * scale))
            masses[dots[i] - dots[0]] += whole - high_share
            masses[dots[i + 1] - dots[0]] += high_share
            p, q = next_p, next_q
        lost = _ceiling((arb(pair.infinite) + p) * scale)
    return Block(1, shape.variance, exponent, dots[0], fmpz_poly(masses), lost)


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


def _both(one: Block, other: Block, frame: _Frame) -> Block:
    """Return the composition of two blocks."""
    exponent = max(one.exponent, other.exponent)
    one, other = _on_grid(one, exponent), _on_grid(other, exponent)
    steps, variance = one.steps + other.steps, one.variance + other.variance
    frame.work.add((len(one.mass) + len(other.mass)) * frame.bits >> _WORK_OF_PRODUCT)
    product = _shifted(one.mass * other.mass, frame.bits)
    first, lost = one.first + other.first, one.lost + other.lost
    found = _cut(Block(steps, variance, exponent, first, product, lost), frame)
    return _on_grid(found, max(exponent, frame.exponent_of(variance)))


def _on_grid(block: Block, exponent: int) -> Block:
    while block.exponent < exponent:
        block = _coarser(block)
    return block


def _shifted(mass: fmpz_poly, bits: int) -> fmpz_poly:
    """Return all masses divided by 2^bits, rounded up."""
    return -(-mass // (1 << bits))


def _coarser(block: Block) -> Block:
    """Return a block on a grid of twice the step. Of the mass between two dots at a distance of 2 h
    goes 1 / (1 + e^-h) up, rounded up, and the rest down.
    """
    first, masses = block.first, block.mass.coeffs()
    if first % 2:
        first, masses = first - 1, [fmpz(0), *masses]
    even, odd = fmpz_poly(masses[::2]), fmpz_poly(masses[1::2])
    up = _shifted(odd * _share_up(block.exponent), _SHARE_BITS)
    mass = even + (odd - up) + up.left_shift(1)
    return block._replace(exponent=block.exponent + 1, first=first // 2, mass=mass)


@lru_cache(maxsize=256)
def _share_up(exponent: int) -> int:
    with balls.precision(2 * _SHARE_BITS + 2 * abs(exponent)):
        step = ball(Fraction(2) ** exponent)
        return _ceiling(arb(1 << _SHARE_BITS) / (1 + (-step).exp()))


def _cut(block: Block, frame: _Frame) -> Block:
    """Raise the ends of a block that hold next to nothing: to the lowest loss, and to infinity."""
    room, masses = frame.loses(block.steps), block.mass.coeffs()
    start = min(_within(masses, room), len(masses) - 1)
    end = max(len(masses) - _within(reversed(masses), room), start + 1)
    below, above = (int(sum(part)) for part in (masses[:start], masses[end:]))
    kept = fmpz_poly(masses[start:end]) + fmpz_poly([below])
    return block._replace(first=block.first + start, mass=kept, lost=block.lost + above)


def _within(masses: Iterable[fmpz], room: int) -> int:
    """Return how many masses at the beginning add up to no more than ``room``."""
    return sum(1 for _ in takewhile(room.__ge__, accumulate(map(int, masses))))


def _least(block: Block, delta: int, frame: _Frame) -> Fraction | None:
    """Return the epsilon at which the curve falls to ``delta``.

    From a dot l to the next it is A - e^(x - l') C, with A the mass beyond l and at infinity and C
    the sum of masses times e^(l' - loss), l' being the next dot.
    """
    room = delta - block.lost
    if room <= 0:
        return None
    step = Fraction(2) ** block.exponent
    masses = block.mass.coeffs()
    with balls.precision(frame.bits + _MORE_BITS):
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
