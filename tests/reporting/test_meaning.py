"""What an epsilon means in plain words."""

from __future__ import annotations

import re
from decimal import Decimal

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.reporting.words import meaning

ONE = "one person"


@pytest.mark.parametrize(("epsilon", "belief"), [("1.1", "75.1 %"), ("5", "99.34 %")])
def test_known_examples(epsilon: str, belief: str) -> None:
    """At epsilon 1.1 one half becomes 75 %, at epsilon 5 it becomes 99 %."""
    assert meaning(epsilon, "0", ONE).endswith(f" and {belief}.")


@pytest.mark.parametrize("epsilon", ["1000000", "1" + "0" * 30])
def test_enormous_epsilons(epsilon: str) -> None:
    """Nothing overflows: beliefs may become anything."""
    assert "all but certainty" in meaning(epsilon, "0", ONE)


@given(st.decimals("0.000000001", 60, places=9))
def test_sentences_round_outward(epsilon: Decimal) -> None:
    """The printed factor and percentages are never tighter than the truth."""
    text = meaning(format(epsilon, "f"), "0", ONE)
    with mpmath.workdps(50):
        grow = mpmath.exp(mpmath.mpf(str(epsilon)))
        if found := re.search(r"at most ([\d,.]+) times", text):
            assert mpmath.mpf(found[1].replace(",", "")) >= grow
        else:
            assert grow > mpmath.mpf(10) ** 6 * 0.98
            assert "all but certainty" in text
            return
        low, high = (mpmath.mpf(n) for n in re.findall(r"([\d.]+) %", text)[-2:])
        assert 0 < low <= 100 / (1 + grow)
        assert 100 > high >= 100 * grow / (1 + grow)


def test_delta_and_unit_are_named() -> None:
    """A delta is mentioned as such, and the unit is the one that is protected."""
    text = meaning("1", "0.000001", "one person in one week")
    assert "except with probability about 0.000001" in text
    assert "because of the data of one person in one week" in text
    assert "probability" not in meaning("1", "0", ONE)


@pytest.mark.parametrize("amounts", [("infinite", "0"), ("1", "infinite")])
def test_an_unbounded_loss_says_so(amounts: tuple[str, str]) -> None:
    """Without a bound no number is printed."""
    assert "no bound" in meaning(*amounts, ONE)


def test_nothing_spent_says_so() -> None:
    """Without a loss there is nothing to print either; a delta alone is a loss."""
    assert meaning("0", "0", ONE) == "Nothing has been learned about one person yet."
    assert "probability about 0.1" in meaning("0", "0.1", ONE)
