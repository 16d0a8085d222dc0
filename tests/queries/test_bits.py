"""Coins and whole numbers have exactly the probabilities that they are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from accountant.queries.bits import Source, below, coins

ALL_WORDS = np.arange(2**16, dtype=np.uint16).tobytes()


def given_out(*words: bytes) -> tuple[Source, list[int]]:
    """A source that returns these bytes in turn, and how many were asked for each time."""
    rest: Iterator[bytes] = iter(words)
    asked: list[int] = []

    def source(size: int) -> bytes:
        asked.append(size)
        found = next(rest)
        assert len(found) == size
        return found

    return source, asked


@given(st.fractions(0, 1, max_denominator=10**30))
def test_a_coin_has_its_probability_exactly(probability: Fraction) -> None:
    """Over all words of 16 bits, floor(2^16 p) of them decide for 1 and at most one goes on: with
    the rest as its probability, which is decided in the same way.
    """
    if probability == 1:
        assert coins(probability, 3).all()
        return
    whole, rest = divmod(probability * 2**16, 1)
    if rest >= Fraction(1, 2**16):  # then the word 0 decides for 1 in the second round
        source, asked = given_out(ALL_WORDS, b"\x00\x00")
        assert coins(probability, 2**16, source).sum() == whole + 1
        assert asked == [2**17, 2]
    if 0 < rest < 1 - Fraction(1, 2**16):  # and the last word for 0
        source, asked = given_out(ALL_WORDS, b"\xff\xff")
        assert coins(probability, 2**16, source).sum() == whole
        assert asked == [2**17, 2]
    if not rest:
        assert coins(probability, 2**16, given_out(ALL_WORDS)[0]).sum() == whole


def test_ties_go_on_for_as_long_as_they_last() -> None:
    """A third is 0x5555... in base 2^16: three equal words, and the fourth decides."""
    third, tie = Fraction(1, 3), b"\x55\x55"
    for last, expected in ((b"\x54\x55", True), (b"\x56\x55", False)):
        source, asked = given_out(tie, tie, tie, last)
        assert coins(third, 1, source).tolist() == [expected]
        assert asked == [2, 2, 2, 2]


@pytest.mark.parametrize("words", [(0x8000,), (3,), (0x1234, 0x8000), (0, 7), (5, 0, 0xFFFF)])
def test_the_last_word_of_a_probability_decides_for_zero(words: tuple[int, ...]) -> None:
    """Where a probability has a last word, a number that is equal to it so far is not below it, and
    one with the word before is.
    """
    probability = sum(
        (Fraction(word, 2 ** (16 * place)) for place, word in enumerate(words, 1)), Fraction(0)
    )
    for last, expected in ((words[-1], False), (words[-1] - 1, True)):
        drawn = [np.uint16(word).tobytes() for word in (*words[:-1], last)]
        assert coins(probability, 1, given_out(*drawn)[0]).tolist() == [expected]


def test_each_place_keeps_its_own_bits() -> None:
    """Places that are decided later are put where they belong."""
    words = np.array([0x5555, 0, 0x5555, 0xFFFF], dtype=np.uint16).tobytes()
    source, _ = given_out(words, np.array([0, 0xFFFF], dtype=np.uint16).tobytes())
    assert coins(Fraction(1, 3), 4, source).tolist() == [True, True, False, False]


def test_coins_of_the_system_fall_as_often_as_stated() -> None:
    """With the system's bits, across several calls of the source, p holds within five deviations,
    and neighbours are independent.
    """
    size, p = 2**22 + 1000, Fraction(1, 7)
    found = coins(p, size)
    slack = 5 * (float(p * (1 - p)) / size) ** 0.5
    assert abs(found.mean() - float(p)) < slack
    assert abs((found[1:] & found[:-1]).mean() - float(p) ** 2) < slack
    assert not coins(Fraction(0), 5).any()


def test_whole_numbers_are_equally_likely() -> None:
    """Words beyond the last whole run are drawn anew: of 2^64 words, as many for each number."""
    bound = 3  # 2^64 = 3 * 6148914691236517205 + 1, so that one word is left over
    words = np.array([0, 2**64 - 1, 4], dtype=np.uint64).tobytes()
    source, asked = given_out(words, np.array([2**64 - 2], dtype=np.uint64).tobytes())
    assert below(bound, 3, source).tolist() == [0, (2**64 - 2) % 3, 1]
    assert asked == [24, 8]
    counted = np.bincount(below(11, 20_000, os.urandom), minlength=11)
    assert chisquare(counted).pvalue > 1e-6
    assert below(1, 4).tolist() == [0, 0, 0, 0]


def test_what_is_no_probability_is_refused() -> None:
    """Numbers outside [0, 1], and bounds below 1 or above 2^32, are refused."""
    for wrong in (Fraction(-1, 10), Fraction(11, 10)):
        with pytest.raises(ValueError, match="from 0 to 1"):
            coins(wrong, 1)
    for bound in (0, 2**32 + 1):
        with pytest.raises(ValueError, match="a bound is"):
            below(bound, 1)
