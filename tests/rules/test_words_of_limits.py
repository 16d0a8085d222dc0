"""A refusal names the comparison that failed, with both sides, and what is left."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import NON_PRIVATE, Book, declared, gaussian, hospital, laplace

from accountant.privacy.filters import FILTERS
from accountant.privacy.units import INFINITE

DELTA = "limit: {epsilon: 4, delta: 1e-6}"


def said(book: Book, *mechanisms: dict[str, Any], rule: str = "a") -> str:
    """The text of a rule that fires on a request for these mechanisms."""
    [found] = [r for r in book.decision(book.grant(*mechanisms))["rules"] if r["rule"] == rule]
    assert found["fired"]
    text: str = found["text"]
    return text


@pytest.mark.parametrize("gate", FILTERS)
def test_an_own_delta_that_does_not_fit_is_named(gate: str) -> None:
    """Where epsilon has room only the own delta is said, with what the limit keeps and has left."""
    keeps, left = ("0.000001", "0.0000004") if gate == "basic" else ("0.0000001", "0.00000004")
    book = hospital(f"  - {{id: a, gate: {gate}, {DELTA}}}\n")
    book.record(declared("0.1", "6e-7" if gate == "basic" else "6e-8"))
    text = said(book, declared("0.1", "2e-6"))
    assert text.startswith("own delta 0.0000006" if gate == "basic" else "own delta 0.00000006")
    assert f" is more than the {keeps} that this limit keeps for it" in text
    assert text.endswith(f"; {left} of the own delta is left")
    assert "epsilon" not in text


def test_a_window_and_a_threshold_name_it_too() -> None:
    """A window says over what it counts; a threshold of which rule's part it is a share."""
    wide = "  - {id: wide, limit: {epsilon: 99, delta: 1e-3}}\n"
    book = hospital(wide + f"  - {{id: a, window: 30d, {DELTA}}}\n")
    text = said(book, declared("0.1", "2e-7"))
    assert text.startswith("own delta 0 used + 0.0000002 asked = 0.0000002 is more than the 0.0")
    assert text.endswith("; counted over 30 days, not over the lifetime")
    book = hospital(f"  - {{id: a, {DELTA}}}\n  - {{id: half, of: a, at: 50%}}\n")
    text = said(book, declared("0.1", "6e-8"), rule="half")
    assert "is more than 50% of what rule a keeps, 0.00000005, for it (dataset d)" in text


def test_both_are_named_where_both_fail() -> None:
    """Epsilon first, then the own delta."""
    text = said(hospital(f"  - {{id: a, {DELTA}}}\n"), declared("5", "2e-6"))
    assert text.startswith("epsilon 0 used + 5 asked = 5 is more than the limit 4 and own delta 0 ")


def test_a_currency_without_a_bound_is_named() -> None:
    """Whether the request has none or what was booked before, and what is missing."""
    basic, gdp = (f"  - {{id: a, gate: {gate}, {DELTA}}}\n" for gate in ("basic", "gdp"))
    text = said(hospital(basic), gaussian("0.1"))
    assert "gaussian has no finite epsilon as stated, and gate basic counts no more" in text
    assert "add a delta to the mechanism" in text
    text = said(hospital("  - {id: a, limit: {epsilon: 4}}\n"), gaussian("0.1"))
    assert "add a delta" not in text
    assert "this limit keeps none for mechanisms" in text
    text = said(hospital(gdp), NON_PRIVATE)
    assert "and it has no bound in mu_squared, of which 0 of 0.69" in text
    assert text.endswith("non_private has no finite epsilon as stated, nor mu_squared")
    book = hospital(gdp)
    book.record(NON_PRIVATE)
    text = said(book, laplace("0.1"))
    assert text.endswith(
        "what was booked before has no bound in the plain sum of epsilons and mu_squared, so "
        "nothing fits"
    )
    book = hospital(gdp)
    book.record(gaussian("0.1"))
    text = said(book, NON_PRIVATE)
    assert text.endswith(
        "no bound in the plain sum of epsilons, so only what is finite in mu_squared fits"
    )
    assert not re.search(r"[0-9.]{13}", text)  # billionths at most, in whatever currency


def test_too_many_invocations_are_no_mechanism_without_a_bound() -> None:
    """A mechanism that has a bound is not said to have none because it is asked for so often."""
    text = said(hospital(f"  - {{id: a, {DELTA}}}\n"), gaussian("1", count=10_000))
    assert text.endswith("so many invocations cost more than any sum holds")


COSTS = st.sampled_from(
    [
        laplace("0.7"),
        laplace("2", 3),
        declared("0.1", "4e-8"),
        declared("3", "3e-7"),
        gaussian("0.4"),
        gaussian("0.5", "2e-8"),
        gaussian("0.5", "1e-5"),
        NON_PRIVATE,
    ]
)


@pytest.mark.parametrize("gate", FILTERS)
@given(st.lists(COSTS, max_size=6), COSTS)
def test_what_is_said_to_fail_fails(
    gate: str, before: list[dict[str, Any]], asked: dict[str, Any]
) -> None:
    """Own delta is named if and only if it does not fit; epsilon if and only if neither it nor the
    gate's currency does, and then what would be spent is more than the limit.
    """
    book = hospital(f"  - {{id: a, gate: {gate}, {DELTA}}}\n")
    for each in before:
        book.record(each)
    [found] = [r for r in book.decision(book.grant(asked))["rules"] if r["rule"] == "a"]
    epsilon, own, *along = found["comparisons"]
    over = not any(one["holds"] for one in (epsilon, *along))
    assert found["fired"] == (over or not own["holds"])
    if found["fired"]:
        assert ("own delta" in found["text"]) == (not own["holds"])
        assert found["text"].startswith("epsilon") == over
        after = found["spent_after"]
        assert over == (after == INFINITE or float(after) > 4)
