"""Local reports: they keep the definition at what they are charged, and not at less; their
estimates are unbiased, and as near as theory says.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
import pytest
from empirical import lower_bound
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from accountant.client import Client, Refused
from accountant.queries.definition import check, worst
from accountant.queries.local import (
    RandomizedResponse,
    Reports,
    UnaryEncoding,
    survey_coins,
)

STEPS: dict[str, Reports] = {
    "two coins": RandomizedResponse.of(2, truth_probability="0.5"),
    "theta": RandomizedResponse.of(2, theta="0.6"),
    "less true than not": RandomizedResponse.of(2, theta="0.2"),
    "k categories": RandomizedResponse.of(4, theta="0.7"),
    "k categories by coins": RandomizedResponse.of(3, truth_probability="0.5"),
    "response at an epsilon": RandomizedResponse.of(3, epsilon="1.1"),
    "unary": UnaryEncoding.of(3, p="0.75", q="0.25"),
    "unary at an epsilon": UnaryEncoding.of(4, epsilon="1.1"),
}


def chances(step: Reports, place: int) -> dict[Any, Fraction]:
    """The probability of each report for an answer, by the paper's formula."""
    if isinstance(step, RandomizedResponse):
        k = step.categories
        return {i: step.theta if i == place else (1 - step.theta) / (k - 1) for i in range(k)}
    assert isinstance(step, UnaryEncoding)
    found = {}
    for report in product((False, True), repeat=step.categories):
        each = [step.p if i == place else step.q for i in range(step.categories)]
        found[report] = math.prod(
            (p if bit else 1 - p for p, bit in zip(each, report, strict=True)), start=Fraction(1)
        )
    return found


def finite(step: Reports) -> dict[Any, Mapping[Any, Any]]:
    """The mechanism of one report as the definition sees it; -1 is none of the categories."""
    least = -1 if isinstance(step, UnaryEncoding) else 0
    return {place: chances(step, place) for place in range(least, step.categories)}


def reports(step: Reports, place: int, times: int) -> list[Any]:
    """Independent reports of one answer."""
    drawn = replace(step, people=times).ready(np.full(times, place))()
    return [tuple(row) for row in drawn.tolist()] if drawn.ndim == 2 else drawn.tolist()


@pytest.mark.parametrize("name", STEPS)
def test_the_charge_is_the_epsilon_of_the_definition(name: str, replaces: Client) -> None:
    """The definition holds at what the service charges for a report, and fails at 1e-8 less: no
    number in between is charged.
    """
    step = STEPS[name]
    charge = replaces.preview("visits", [step.mechanism], purpose="test").charge["epsilon"]
    assert check(finite(step), charge).holds
    assert not check(finite(step), float(charge) - 1e-8).holds
    ratio = worst(finite(step)).ratio
    assert ratio is not None
    assert float(charge) == pytest.approx(math.log(ratio), abs=2e-9)


@pytest.mark.parametrize("name", STEPS)
def test_reports_are_drawn_as_stated(name: str) -> None:
    """Reports of each answer come as often as the formula says."""
    step, times = STEPS[name], 4000
    for place, row in finite(step).items():
        counted = Counter(reports(step, place, times))
        assert set(counted) <= set(row)
        seen, expected = [counted[each] for each in row], [times * float(p) for p in row.values()]
        assert chisquare(seen, expected).pvalue > 1e-6


def losses(step: Reports, drawn: list[Any], one: int, other: int) -> np.ndarray[Any, Any]:
    """The privacy loss of each report that the step states, for two answers."""
    rows = finite(step)
    loss = {each: math.log(rows[one][each] / rows[other][each]) for each in rows[one]}
    return np.array([loss[each] for each in drawn])


def refuted(stated: Reports, runs: Reports, times: int) -> float:
    """The epsilon that reports of ``runs`` refute on the answers 0 and 1, by the events that tell
    most if ``stated`` is what runs.
    """
    one, other = (losses(stated, reports(runs, place, times), 0, 1) for place in (0, 1))
    return lower_bound(one, other)


WEAK: dict[str, Reports] = {
    "two coins": RandomizedResponse.of(2, truth_probability="0.7"),
    "k categories": RandomizedResponse.of(4, theta="0.85"),
    "unary": UnaryEncoding.of(3, p="0.85", q="0.15"),
    "unary at an epsilon": UnaryEncoding.of(4, p="0.6", q="0.15"),
}


@pytest.mark.parametrize("name", STEPS)
def test_no_event_refutes_the_epsilon(name: str) -> None:
    """What thousands of reports refute is below the epsilon, and most of it."""
    step = STEPS[name]
    ratio = worst(finite(step)).ratio
    assert ratio is not None
    found = refuted(step, step, 20_000)
    assert 0.5 * math.log(ratio) < found < math.log(ratio)


@pytest.mark.parametrize("name", WEAK)
def test_too_little_noise_is_found_out(name: str) -> None:
    """The same test refutes the epsilon where the reports are true more often than stated."""
    step = STEPS[name]
    ratio = worst(finite(step)).ratio
    assert ratio is not None
    assert refuted(step, WEAK[name], 20_000) > math.log(ratio)


def test_one_bit_that_is_kept_is_found_out() -> None:
    """The same test refutes an encoding that flips no bits that are set (p = 1)."""
    step, times = UnaryEncoding.of(3, p="0.75", q="0.25"), 20_000
    keeps = replace(step, p=Fraction(1))
    assert refuted(step, keeps, times) > math.log(9)


epsilons = st.fractions(Fraction(1, 10**6), 60, max_denominator=10**9)


@given(epsilons, st.integers(2, 1000))
def test_an_epsilon_is_never_exceeded(epsilon: Fraction, categories: int) -> None:
    """What is made for an epsilon costs at most that, and hardly less."""
    mpmath.mp.dps = 80
    allowed = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)
    response = RandomizedResponse.of(categories, epsilon=epsilon)
    unary = UnaryEncoding.of(categories, epsilon=epsilon)
    ratios = (
        response.hit / response.miss,
        unary.p * (1 - unary.q) / ((1 - unary.p) * unary.q),
    )
    for ratio in ratios:
        value = mpmath.mpf(ratio.numerator) / ratio.denominator
        assert allowed * (1 - mpmath.mpf("1e-3")) < value <= allowed


PEOPLE = 3000
ANSWERS = np.repeat([0, 1, 2], [1500, 1200, 300])


@pytest.mark.parametrize(
    "step",
    [
        RandomizedResponse.of(3, PEOPLE, theta="0.6"),
        RandomizedResponse.of(3, PEOPLE, theta="0.1"),
        UnaryEncoding.of(3, PEOPLE, p="0.6", q="0.3"),
        UnaryEncoding.of(3, PEOPLE, epsilon="3"),
    ],
    ids=["response", "inverted", "unary", "optimised"],
)
def test_estimates_are_unbiased_with_their_standard_error(step: Reports) -> None:
    """Over many collections the mean is the truth, the spread that of theory, root(n_c hit (1 -
    hit) + (n - n_c) miss (1 - miss)) / |hit - miss|, and so is the standard error that is told; the
    95 % bounds hold as often as stated, before and after the draw.
    """
    times, truth = 600, np.bincount(ANSWERS)
    drawn = step.many(ANSWERS, times)
    found = [step.estimates(each) for each in drawn]
    counts = np.array([[each.count for each in row] for row in found])
    hit, miss = float(step.hit), float(step.miss)
    spread = np.sqrt(truth * hit * (1 - hit) + (PEOPLE - truth) * miss * (1 - miss))
    spread /= abs(hit - miss)
    assert (np.abs(counts.mean(axis=0) - truth) < 5 * spread / math.sqrt(times)).all()
    assert counts.std(axis=0) == pytest.approx(spread, rel=0.15)
    told = np.array([[each.standard_error for each in row] for row in found]).mean(axis=0)
    assert told == pytest.approx(spread, rel=0.05)
    off = np.abs(counts - truth).max(axis=1)
    before, after = step.within(0.05), [step.within_of(each, 0.05) for each in drawn]
    assert max(after) <= before
    assert np.mean(off > after) < 0.05
    assert np.median(after) < 4 * spread.max()
    assert found[0][0].share == found[0][0].count / PEOPLE
    assert found[0][0].share_error == found[0][0].standard_error / PEOPLE


def test_the_error_of_a_share_falls_with_the_root_of_the_people() -> None:
    """With four times as many people the error of a share is halved."""
    few, many = (UnaryEncoding.of(5, n, epsilon=1).within(0.05) / n for n in (10**4, 4 * 10**4))
    assert few / many == pytest.approx(2, rel=0.02)


def test_a_million_people_report_in_a_second() -> None:
    """A million people over 14 categories are encoded, perturbed, added up and estimated in 1 s."""
    answers = np.random.default_rng(3).integers(0, 14, 10**6)
    taken = []
    for _ in range(3):
        begun = time.process_time()
        step = UnaryEncoding.of(14, 10**6, epsilon=1)
        reports = step.ready(answers)()
        found = step.estimates(reports)
        taken.append(time.process_time() - begun)
    assert min(taken) < 1
    off = np.abs([each.count for each in found] - np.bincount(answers)).max()
    assert off < step.within_of(reports, 1e-6)


@pytest.mark.parametrize(("yes", "no", "sure"), [("0.5", "0", "no"), ("0", "0.5", "yes")])
def test_a_forced_response_is_recognised(yes: str, no: str, sure: str, replaces: Client) -> None:
    """Where an answer is never forced the design is refused, with the reason; the service refuses
    it too, and the definition has no epsilon for it.
    """
    with pytest.raises(ValueError, match=f"a {sure} proves the truth") as refusal:
        survey_coins("0.5", yes, no)
    assert "costs ln 3" in str(refusal.value)
    told = {"kind": "forced_response", "truth_probability": "0.5"}
    with pytest.raises(Refused, match="proves the truth"):
        replaces.grant("visits", [told], purpose="test")
    other = "yes" if sure == "no" else "no"
    design = {other: {other: 1}, sure: {sure: Fraction(1, 2), other: Fraction(1, 2)}}
    assert worst(design).ratio is None


def test_a_survey_that_forces_both_alike_is_two_coins() -> None:
    """Truth 1/2, yes 1/4, no 1/4 is randomised response with two fair coins."""
    truth = survey_coins("0.5", "0.25", "0.25")
    assert RandomizedResponse.of(2, truth_probability=truth).hit == Fraction(3, 4)
    with pytest.raises(ValueError, match="forced alike"):
        survey_coins("0.5", "0.3", "0.2")
    with pytest.raises(ValueError, match="add up to 1"):
        survey_coins("0.5", "0.3", "0.1")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: RandomizedResponse.of(2), "give one of"),
        (lambda: RandomizedResponse.of(2, theta="0.7", epsilon=1), "give one of"),
        (lambda: RandomizedResponse.of(1, theta="0.7"), "at least two"),
        (lambda: RandomizedResponse.of(2, theta="0.5"), "say nothing"),
        (lambda: RandomizedResponse.of(4, theta="0.25"), "say nothing"),
        (lambda: RandomizedResponse.of(2, truth_probability=0), "between 0 and 1"),
        (lambda: RandomizedResponse.of(2, theta=1), "between 0 and 1"),
        (lambda: RandomizedResponse.of(2, theta=math.nan), "finite"),
        (lambda: RandomizedResponse.of(2, theta=Fraction(2, 3)), "40 digits|decimal"),
        (lambda: RandomizedResponse.of(2, epsilon=0), "more than 0"),
        (lambda: UnaryEncoding.of(2, epsilon=-1), "more than 0"),
        (lambda: UnaryEncoding.of(2, p="0.5"), "both p and q"),
        (lambda: UnaryEncoding.of(2, p="0.5", q="0.5"), "less than p"),
        (lambda: UnaryEncoding.of(0, epsilon=1), "at least one"),
        (lambda: UnaryEncoding.of(2**20, 2**20, epsilon=1), "more than 2\\^32"),
        (lambda: STEPS["two coins"].ready(np.array([2])), "none of the 2"),
        (lambda: STEPS["two coins"].ready(np.array([-1])), "none of the 2"),
        (lambda: STEPS["unary"].ready(np.array([0, 1])), "answers of 1 people"),
        (lambda: STEPS["unary"].ready(np.array([0.0])), "answers of 1 people"),
    ],
)
def test_bad_numbers_are_refused(wrong: Any, words: str) -> None:
    """What is no design, and what are no answers, is refused with the reason."""
    with pytest.raises(ValueError, match=words):
        wrong()
