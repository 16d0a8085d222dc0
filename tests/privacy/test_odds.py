"""What an epsilon means in plain words."""

from __future__ import annotations

import re
from decimal import Decimal

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.privacy.odds import in_plain_words, most_likely

epsilons = st.decimals(0, 60, places=9)


@given(st.just(0.0) | st.floats(1e-9, 1), epsilons)
def test_posterior_bounds_hold(prior: float, epsilon: Decimal) -> None:
    """The bounds never lie inside Bayes' rule, and within a part in 1e11 of it."""
    with mpmath.workdps(50):
        p, grow = mpmath.mpf(prior), mpmath.exp(mpmath.mpf(str(epsilon)))
        high = p * grow / (1 - p + p * grow)
        assert high <= most_likely(prior, epsilon) <= high * (1 + mpmath.mpf("1e-11"))


@pytest.mark.parametrize(
    ("prior", "epsilon", "percent"), [(0.5, "1.1", 75.03), (0.1, "5", 94.29), (0.3, "0", 30)]
)
def test_known_examples(prior: float, epsilon: str, percent: float) -> None:
    """At epsilon 1.1 one half becomes 75 %, at epsilon 5 one tenth becomes 94 %."""
    assert most_likely(prior, Decimal(epsilon)) == pytest.approx(percent / 100, abs=1e-4)


@pytest.mark.parametrize("epsilon", [Decimal(10) ** 6, Decimal(10) ** 30, None])
def test_enormous_and_unbounded_epsilons(epsilon: Decimal | None) -> None:
    """Nothing overflows: beliefs may become anything, except what was certain before."""
    assert (most_likely(0, epsilon), most_likely(0.5, epsilon)) == (0, 1)
    assert in_plain_words(epsilon, Decimal(0))


@pytest.mark.parametrize("prior", [-0.1, 1.1, float("nan")])
def test_a_prior_is_a_probability(prior: float) -> None:
    """A prior outside 0 to 1 is an error."""
    with pytest.raises(ValueError, match="prior"):
        most_likely(prior, Decimal(1))


@given(epsilons)
def test_sentences_round_outward(epsilon: Decimal) -> None:
    """The printed factor and percentages are never tighter than the truth."""
    text = in_plain_words(epsilon, Decimal(0))
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
    text = in_plain_words(Decimal(1), Decimal("0.000001"), "one person in one week")
    assert "except with probability about 0.000001" in text
    assert "because of the data of one person in one week" in text
    assert "probability" not in in_plain_words(Decimal(1), Decimal(0))


def test_an_unbounded_loss_says_so() -> None:
    """Without a bound no number is printed."""
    assert "no bound" in in_plain_words(None, Decimal(0))
