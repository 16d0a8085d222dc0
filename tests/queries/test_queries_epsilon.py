"""No event tells neighbouring data apart better than the charge allows; too little noise is found
out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from catalogue import CASES, WITH_RHO, Case, dataset, people, without_first
from empirical import lower_bound, refuted

from accountant.client import Client
from accountant.queries import Query

DRAWS = 2000


def neighbours(case: Case, ledger: Client, **budget: float) -> tuple[Query, Query]:
    """A query with its worst record, and without it."""
    rows = people(40) if case.rows is None else case.rows()
    one, other = (
        case.make(dataset(ledger, each), **budget) for each in (rows, without_first(rows))
    )
    return one, other


@pytest.mark.parametrize("name", CASES)
def test_no_event_refutes_the_epsilon(name: str, comes_and_goes: Client) -> None:
    """What thousands of draws on two neighbouring data sets refute is below what is charged."""
    case = CASES[name]
    one, other = neighbours(case, comes_and_goes, epsilon=case.epsilon)
    assert one.steps == other.steps, "what runs must not depend on the data"
    assert refuted(one.steps, one, other, DRAWS) < case.epsilon


@pytest.mark.parametrize("name", CASES)
def test_too_little_noise_is_found_out(name: str, comes_and_goes: Client) -> None:
    """The same test refutes the charge where the noise that is drawn has half its scale
    (a third, where a unit cannot change the draws as much as is charged for).
    """
    case = CASES[name]
    one, other = neighbours(case, comes_and_goes, epsilon=case.epsilon)
    weak = [replace(step, scale=step.scale / case.broken) for step in one.steps]
    assert refuted(weak, one, other, case.draws) > case.epsilon


@pytest.mark.parametrize("name", ["sum", "variance"])
def test_half_the_sensitivity_is_found_out(name: str, comes_and_goes: Client) -> None:
    """The test refutes the charge of a query that thinks a unit changes it half as much."""
    case = CASES[name]
    one, other = neighbours(case, comes_and_goes, epsilon=case.epsilon)
    weak = [
        replace(step, sensitivity=step.sensitivity / 2, scale=step.scale / 2) for step in one.steps
    ]
    assert refuted(weak, one, other, case.draws) > case.epsilon


@pytest.mark.parametrize("name", CASES)
def test_no_event_refutes_the_epsilon_of_a_replacement(name: str, replaces: Client) -> None:
    """The same, where the first record is exchanged for one at the other end of all bounds."""
    case = CASES[name]
    rows = people(40) if case.rows is None else case.rows()
    low = {"x": 0.0, "y": 5.0, "age": 0, "colour": "blue", "country": rows["country"][0]}
    exchanged = {key: np.r_[[low[key]], column[1:]] for key, column in rows.items()}
    if name == "count":
        pytest.skip("how many there are is public")
    one, other = (
        case.make(dataset(replaces, each), epsilon=case.epsilon) for each in (rows, exchanged)
    )
    assert one.steps == other.steps
    assert refuted(one.steps, one, other, DRAWS) < case.epsilon


RHO, DELTA = 0.5, 0.01
AT_DELTA = RHO + 2 * float(np.sqrt(RHO * np.log(1 / DELTA)))
"""The epsilon of that rho at that delta (Bun and Steinke 2016, Proposition 1.3)."""


@pytest.mark.parametrize("name", WITH_RHO)
def test_no_event_refutes_the_rho(name: str, comes_and_goes: Client) -> None:
    """With normal noise, what is refuted at a delta is below the epsilon that rho has there."""
    one, other = neighbours(CASES[name], comes_and_goes, rho=RHO)
    assert one.steps == other.steps
    assert refuted(one.steps, one, other, DRAWS, DELTA) < AT_DELTA


@pytest.mark.parametrize("name", WITH_RHO)
def test_too_little_normal_noise_is_found_out(name: str, comes_and_goes: Client) -> None:
    """The same test refutes the rho where the noise has a quarter of its scale."""
    one, other = neighbours(CASES[name], comes_and_goes, rho=RHO)
    weak = [replace(step, scale=step.scale / 4) for step in one.steps]
    assert refuted(weak, one, other, 5000, DELTA) > AT_DELTA


def test_the_bound_is_below_the_truth_and_near_it() -> None:
    """Of randomised response with a known epsilon the tester refutes nearly all, and no more."""
    draws = np.random.default_rng(7)
    one, other = (draws.random(20_000) < share for share in (0.9, 0.1))
    found = lower_bound(one.astype(float), other.astype(float))
    assert np.log(9) - 0.3 < found < np.log(9)
    assert lower_bound(one.astype(float), one.astype(float)) == 0
