"""The definition itself: what it promises, as a picture, and whether a finite mechanism keeps it.

Dwork, McSherry, Nissim, Smith 2006; with a delta: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006.
A mechanism is (epsilon, delta)-private if for all neighbouring inputs x, y and all sets S of
outputs P(M(x) in S) <= e^epsilon P(M(y) in S) + delta. Everything here is exact: probabilities are
fractions, and only e^epsilon is enclosed, by two fractions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import permutations
from typing import Any, Final, NamedTuple

from accountant.client.amounts import Amount, exact

Finite = Mapping[Any, Mapping[Any, Amount]]
"""The probability of each output, for each input. Both may be anything that is hashable."""
Pairs = Iterable[tuple[Hashable, Hashable]]

_DIGITS: Final = 60
_LARGEST: Final = 1000  # e^1000 has 435 digits: no mechanism that anybody runs costs as much


class Worst(NamedTuple):
    """The outcome that tells two neighbours apart best: it is ``ratio`` times as likely for ``one``
    as for ``other``. None: it is impossible for the other, and no epsilon bounds it.
    """

    ratio: Fraction | None
    output: Hashable
    one: Hashable
    other: Hashable


class Verdict(NamedTuple):
    """Whether the definition holds, and the pair of neighbours that is nearest to breaking it: with
    ``delta`` the mechanism is private at the epsilon, between these two.
    """

    holds: bool
    delta: Fraction
    one: Hashable
    other: Hashable


def beliefs(prior: Amount, epsilon: Amount) -> tuple[float, float]:
    """Return the least and the most that somebody believes in a statement about a person after any
    answer of an epsilon-private mechanism, who believed in it with probability ``prior`` before.

    Bayes: the odds change by a factor from e^-epsilon to e^epsilon. Raise ValueError for a prior
    outside [0, 1] or a negative epsilon.
    """
    p, e = _fraction(prior), _fraction(epsilon)
    if not 0 <= p <= 1:
        raise ValueError(f"a prior is a probability from 0 to 1, not {prior}")
    if not 0 <= e <= _LARGEST:
        raise ValueError(f"epsilon must be from 0 to {_LARGEST}, not {epsilon}")
    _, factor = _power(e)
    return float(p / (p + (1 - p) * factor)), float(p * factor / (1 - p + p * factor))


def worst(mechanism: Finite, neighbours: Pairs | None = None) -> Worst:
    """Return the outcome with the largest ratio of probabilities, whose logarithm is the epsilon.

    Without ``neighbours`` any two inputs are. Raise ValueError for what is no finite mechanism.
    """
    rows = _rows(mechanism)
    found: Worst | None = None
    for one, other in _pairs(rows, neighbours):
        for output, p in rows[one].items():
            q = rows[other].get(output, Fraction(0))
            ratio = p / q if q else None
            if p and (found is None or _larger(ratio, found.ratio)):
                found = Worst(ratio, output, one, other)
    if found is None:
        raise ValueError("there are no two neighbouring inputs to compare")
    return found


def check(
    mechanism: Finite, epsilon: Amount, delta: Amount = 0, neighbours: Pairs | None = None
) -> Verdict:
    """Return whether a finite mechanism is (epsilon, delta)-private, between the neighbours that
    are given as pairs, in both directions; without them between any two inputs.

    The delta at an epsilon is the sum of what P exceeds e^epsilon Q by, over all outputs. Where 60
    digits of e^epsilon do not tell, the definition counts as broken. Raise ValueError for what is
    no finite mechanism, a negative epsilon or a delta outside [0, 1).
    """
    e, most = _fraction(epsilon), _fraction(delta)
    if not 0 <= e <= _LARGEST:
        raise ValueError(f"epsilon must be from 0 to {_LARGEST}, not {epsilon}")
    if not 0 <= most < 1:
        raise ValueError(f"delta must be at least 0 and less than 1, not {delta}")
    rows, (factor, _) = _rows(mechanism), _power(e)
    nearest: Verdict | None = None
    for one, other in _pairs(rows, neighbours):
        needed = sum(
            (max(p - factor * rows[other].get(output, Fraction(0)), Fraction(0))
             for output, p in rows[one].items()),
            start=Fraction(0),
        )  # fmt: skip
        if nearest is None or needed > nearest.delta:
            nearest = Verdict(needed <= most, needed, one, other)
    if nearest is None:
        raise ValueError("there are no two neighbouring inputs to compare")
    return nearest


def _larger(one: Fraction | None, other: Fraction | None) -> bool:
    """Compare ratios, None being infinite."""
    if one is None or other is None:
        return other is not None
    return one > other


def _pairs(
    rows: Mapping[Hashable, object], neighbours: Pairs | None
) -> Iterator[tuple[Hashable, Hashable]]:
    if neighbours is None:
        yield from permutations(rows, 2)
        return
    for one, other in neighbours:
        for name in (one, other):
            if name not in rows:
                raise ValueError(f"{name!r} is not an input of the mechanism")
        yield one, other
        yield other, one


def _rows(mechanism: Finite) -> dict[Hashable, dict[Hashable, Fraction]]:
    """Return exact probabilities. Raise ValueError for a row that is no distribution."""
    rows = {
        name: {output: _fraction(value) for output, value in row.items()}
        for name, row in mechanism.items()
    }
    for name, row in rows.items():
        if any(value < 0 for value in row.values()):
            raise ValueError(f"input {name!r} has a negative probability")
        if sum(row.values()) != 1:
            raise ValueError(
                f"the probabilities of input {name!r} add up to {sum(row.values())}, not to 1: "
                "state them as fractions"
            )
    return rows


def _fraction(value: Amount) -> Fraction:
    """Return a number exactly, also one that has no finite decimal."""
    return value if isinstance(value, Fraction) else Fraction(exact(value))


def _power(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return two fractions that enclose e^epsilon."""
    found = []
    for rounding, side in ((ROUND_FLOOR, -1), (ROUND_CEILING, 1)):
        context = Context(prec=_DIGITS + 5, rounding=rounding)
        power = context.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator)).exp(
            context
        )
        # Of decimal's functions exp alone ignores the rounding: it is right to half a unit.
        margin = Decimal(1).scaleb(power.adjusted() - _DIGITS)
        found.append(Fraction(power) + side * Fraction(margin) if epsilon else Fraction(1))
    return found[0], found[1]
