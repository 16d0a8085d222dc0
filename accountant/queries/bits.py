"""Many coins at once, and exact: bits and whole numbers made of the operating system's random bits.

What is exact: if the bytes that ``os.urandom`` returns are independent and uniform, each coin here
is 1 with a probability of exactly the fraction that is given, and each whole number below a bound
is equally likely. No probability passes through a floating point number.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Source = Callable[[int], bytes]
"""Returns so many random bytes."""

_WORD: Final = 16
"""The bits of a number in [0, 1) that are drawn at once: few, as one word decides nearly always."""
_AT_ONCE: Final = 2**22


def coins(probability: Fraction, size: int, source: Source = os.urandom) -> Bits:
    """Return ``size`` independent bits, each 1 with exactly this probability. Raise ValueError for
    one that is not between 0 and 1.

    A bit says whether a uniform number in [0, 1) is below a/b. The number is revealed in words of
    16 bits. With w = floor(2^16 a / b), a word below w decides for 1 and one above it for 0. Where
    they are equal the rest of the number is compared with the rest, (2^16 a mod b) / b, in the same
    way: for one in 65536 of the bits, and so on until all are decided.
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"a probability is from 0 to 1, not {probability}")
    if probability == 1:
        return np.ones(size, dtype=np.bool_)
    found = np.empty(size, dtype=np.bool_)
    for start in range(0, size, _AT_ONCE):
        some = found[start : start + _AT_ONCE]
        some[:] = _some(probability, len(some), source)
    return found


def _some(probability: Fraction, size: int, source: Source) -> Bits:
    found, open_places, rest = np.zeros(size, dtype=np.bool_), None, probability
    while rest and (open_places is None or len(open_places)):
        wanted = size if open_places is None else len(open_places)
        words = np.frombuffer(source(wanted * _WORD // 8), dtype=np.uint16)
        shifted = rest.numerator << _WORD
        word, rest = (
            shifted // rest.denominator,
            Fraction(shifted % rest.denominator, rest.denominator),
        )
        equal = np.flatnonzero(words == word)
        if open_places is None:
            found, open_places = words < word, equal
        else:
            found[open_places] = words < word
            open_places = open_places[equal]
    return found


def below(bound: int, size: int, source: Source = os.urandom) -> NDArray[np.int64]:
    """Return ``size`` independent whole numbers from 0, each below ``bound`` equally likely. Raise
    ValueError for a bound that is not from 1 to 2^32.

    Words of 64 bits from the last incomplete run of ``bound`` numbers are drawn anew.
    """
    if not 1 <= bound <= 2**32:
        raise ValueError(f"a bound is from 1 to 2^32, not {bound}")
    last = 2**64 - 2**64 % bound - 1
    found, wanted = np.empty(size, dtype=np.int64), np.arange(size)
    while len(wanted):
        words = np.frombuffer(source(8 * len(wanted)), dtype=np.uint64)
        taken = words <= last
        found[wanted[taken]] = (words[taken] % np.uint64(bound)).astype(np.int64)
        wanted = wanted[~taken]
    return found
