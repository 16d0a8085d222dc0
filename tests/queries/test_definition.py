"""The definition: beliefs that it bounds, and finite mechanisms that keep it or break it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any
from xml.etree import ElementTree

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.queries.definition import beliefs, check, worst
from accountant.queries.picture import picture

COINS = {
    "yes": {"yes": Fraction(3, 4), "no": Fraction(1, 4)},
    "no": {"yes": Fraction(1, 4), "no": Fraction(3, 4)},
}
FORCED = {"yes": {"yes": 1}, "no": {"yes": Fraction(1, 2), "no": Fraction(1, 2)}}
LN_3 = "1.0986122886681096"  # below ln 3 by less than 1e-15


def geometric(scale: int, truth: int, ends: int = 60) -> dict[int, Fraction]:
    """Two-sided geometric noise of ratio 1/2 on a number, cut to a range."""
    weights = {k: Fraction(1, 2) ** abs(k - truth) for k in range(-ends, ends + 1)}
    whole = sum(weights.values())
    return {k: w / whole for k, w in weights.items()}


@given(st.floats(0, 1), st.floats(0, 20))
def test_beliefs_change_by_no_more_than_e_to_the_epsilon(prior: float, epsilon: float) -> None:
    """The odds after are within a factor e^epsilon of those before, in both directions."""
    least, most = beliefs(prior, epsilon)
    assert least <= prior * (1 + 1e-12)
    assert prior <= most * (1 + 1e-12)
    p, e = mpmath.mpf(prior), mpmath.exp(mpmath.mpf(repr(epsilon)))
    assert math.isclose(most, p * e / (1 - p + p * e), rel_tol=1e-9, abs_tol=1e-300)
    assert math.isclose(least, p / (p + (1 - p) * e), rel_tol=1e-9, abs_tol=1e-300)


def test_beliefs_and_epsilons_may_be_any_fraction() -> None:
    """A third has no finite decimal, and is a prior like any other; so is an epsilon of a third."""
    assert beliefs(Fraction(1, 3), 1) == pytest.approx(
        (1 / (1 + 2 * math.e), math.e / (2 + math.e))
    )
    assert beliefs(0.5, Fraction(1, 3)) == pytest.approx(beliefs(0.5, 1 / 3))
    assert check(COINS, Fraction(10, 9)).holds
    assert not check(COINS, Fraction(9, 10), Fraction(1, 9)).holds


def test_two_coins_cost_ln_three() -> None:
    """Randomised response with two coins is private at ln 3, and not at less."""
    assert worst(COINS).ratio == 3
    assert check(COINS, "1.0986122886681099").holds
    assert not check(COINS, LN_3).holds
    assert check(COINS, LN_3, "1e-15").holds


def test_a_forced_response_has_no_epsilon() -> None:
    """Where NO proves the truth, no epsilon holds, but a delta of one half does."""
    found = worst(FORCED)
    assert (found.ratio, found.output, found.one) == (None, "no", "no")
    assert not check(FORCED, 100).holds
    assert check(FORCED, 0, Fraction(1, 2)).holds
    assert check(FORCED, 0).delta == Fraction(1, 2)


def test_the_delta_is_that_of_all_sets_of_outputs() -> None:
    """The sum of what P exceeds e^epsilon Q by is the largest excess over any set, enumerated."""
    rows = {"a": {1: Fraction(1, 2), 2: Fraction(1, 3), 3: Fraction(1, 6)},
            "b": {1: Fraction(1, 6), 2: Fraction(1, 3), 3: Fraction(1, 2)}}  # fmt: skip
    for epsilon in (0.0, 0.4, 1.0, 1.2):
        sets = [
            [k for k, there in zip((1, 2, 3), bits, strict=True) if there]
            for bits in product((0, 1), repeat=3)
        ]
        excess = max(
            float(sum(rows["a"][k] for k in some))
            - math.exp(epsilon) * float(sum(rows["b"][k] for k in some))
            for some in sets
        )
        assert float(check(rows, epsilon).delta) == pytest.approx(max(excess, 0), abs=1e-12)


def test_only_neighbours_are_compared() -> None:
    """Inputs two apart may differ by twice the epsilon; pairs that are given stand both ways."""
    rows = {k: geometric(2, k) for k in range(3)}
    ratio = worst(rows, [(0, 1), (1, 2)]).ratio
    assert ratio is not None
    assert math.log(2) - 1e-9 <= math.log(ratio) <= math.log(2) + 1e-9
    assert not check(rows, "0.7").holds
    assert check(rows, "0.7", 0, [(0, 1), (1, 2)]).holds


BAD: list[tuple[Any, str]] = [
    ({}, "no two neighbouring"),
    ({"a": {1: 1}}, "no two neighbouring"),
    ({"a": {1: Fraction(1, 2)}, "b": {1: 1}}, "add up to 1/2"),
    ({"a": {1: 2, 2: -1}, "b": {1: 1}}, "negative probability"),
    ({"a": {1: float("nan")}, "b": {1: 1}}, "not a finite number"),
]


@pytest.mark.parametrize(("mechanism", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_what_is_no_mechanism_is_refused(mechanism: Any, reason: str) -> None:
    """Rows that are no distributions, and mechanisms without two inputs, are errors."""
    with pytest.raises(ValueError, match=reason):
        worst(mechanism)
    with pytest.raises(ValueError, match=reason):
        check(mechanism, 1)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1, 0), (1e9, 0), (1, 1), (1, -0.1)])
def test_what_is_no_promise_is_refused(epsilon: float, delta: float) -> None:
    """A negative epsilon and a delta that is no probability are errors."""
    with pytest.raises(ValueError, match="must be"):
        check(COINS, epsilon, delta)


def test_unknown_neighbours_and_priors_are_refused() -> None:
    """A pair that names no input, and a prior that is no probability, are errors."""
    with pytest.raises(ValueError, match="not an input"):
        worst(COINS, [("yes", "perhaps")])
    with pytest.raises(ValueError, match="prior is a probability"):
        beliefs(1.5, 1)
    with pytest.raises(ValueError, match="epsilon must be"):
        beliefs(0.5, -1)


def test_the_picture_is_an_image_with_a_band_an_epsilon() -> None:
    """An SVG that stands alone: one band and one label for each epsilon."""
    image = ElementTree.fromstring(picture(["0.5", 2]))  # noqa: S314 our own image
    tags = [element.tag.rpartition("}")[2] for element in image.iter()]
    assert tags.count("polygon") == 2
    assert {"ε 0.5", "ε 2"} <= {element.text for element in image.iter()}
