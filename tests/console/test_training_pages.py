"""Training on the console: steps without an epsilon of their own, told by what bounds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from browser import signed_in
from deciding import texts
from support import NON_PRIVATE, World, ask

from accountant.console.facts.asked import mechanism

STEP = {"kind": "gaussian", "sensitivity": {"l2": "1"}, "scale": "1.1"}
RULES = """  - {id: training, limit: {epsilon: 2, delta: 1e-6}, orders: [10]}
  - {id: near, of: training, at: 80%}
"""


def steps(count: int) -> dict[str, Any]:
    """Steps of DP-SGD."""
    return STEP | {"sampling": {"poisson": "0.01"}, "count": count}


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population with an open run of 900 steps, at an epsilon of 1.913 of 2."""
    one = world()
    one.hospital(RULES, neighbouring="add_or_remove_one")
    assert one.post("/grants", ask(steps(900))).status_code == 201
    return one


def test_a_refused_step_is_told_by_what_it_adds(made: World) -> None:
    """The headline names what was to run, the sentence what the limit counts; nothing of it is
    said to have no bound, for the limit bounds it.
    """
    answer = made.post("/grants", ask(steps(200)))
    assert answer.status_code == 403
    said = texts(signed_in(made).get(f"/console/fair/decisions/{answer.json()['sequence']}"))
    assert "Refused: pipeline asked for gaussian (200 times) on d, which does not fit" in said
    assert "Rule training allows 2 on dataset d: 1.913 was spent or reserved" in said
    assert "sampling poisson 0.01" in said
    assert "reserved none by itself 100.0 %" in said
    told = texts(signed_in(made).get("/console/fair/ledger"))
    assert "pipeline was granted gaussian (900 times) on d" in told
    assert "unbounded" not in told


def test_a_request_without_any_bound_is_called_one(made: World) -> None:
    """What no currency bounds is still said to have no bound; its sentence ends with one stop."""
    event = made.post("/grants", ask(NON_PRIVATE)).json()["sequence"]
    said = texts(signed_in(made).get(f"/console/fair/decisions/{event}"))
    assert "pipeline asked for something without a bound on d" in said
    drawn = STEP | {"sampling": {"without_replacement": {"sample": 5, "of": 50}}}
    event = made.post("/grants", ask(drawn)).json()["sequence"]
    said = texts(signed_in(made).get(f"/console/fair/decisions/{event}"))
    assert "in a replace_one population. 2" in said


def test_a_threshold_is_told_as_a_share_of_its_limit(made: World) -> None:
    """A decision that a threshold flagged names it, and the amount at which it fires."""
    [event] = [n for n, body in enumerate(made.stored()) if b"grant.reserved" in body]
    said = texts(signed_in(made).get(f"/console/fair/decisions/{event}"))
    assert "Rule near fires beyond 1.600, of the 2 that rule training allows, on dataset d" in said
    assert "more than an epsilon of 1.6 would be used" in said


def test_the_account_of_training_has_numbers(made: World) -> None:
    """What an open run reserves is the same in the figures and in the list of open grants."""
    said = texts(signed_in(made).get("/console/fair/accounts/d"))
    assert "1 open grant: 1.913 reserved" in said
    assert "Nothing was spent on it yet" not in said
    listed = said.split("Each holds the epsilon")[1].split("Rules in force")[0]
    assert "no bound" not in listed
    assert "grant g" in listed
    assert " 0.727 " in listed  # what it adds to the 1.186 at which the line of order 10 begins


def test_open_grants_of_training_are_not_without_a_bound(made: World) -> None:
    """In the list of open grants, and on all data together, which no limit covers."""
    browser = signed_in(made)
    said = texts(browser.get("/console/fair/grants"))
    assert "none by itself" in said
    assert "no bound" not in said
    together = texts(browser.get("/console/fair/accounts/*"))
    assert "no bound reserved" not in together


def test_where_training_went_says_what_belongs_to_nobody(made: World) -> None:
    """Parts add up to less than what is spent, by the amount at which the line begins."""
    tree = {"kind": "tree_aggregation", "sensitivity": {"l2": "1"}, "scale": "40", "leaves": [8]}
    assert made.post("/grants", ask(tree)).status_code == 201
    said = texts(signed_in(made).get("/console/fair/accounts/d"))
    assert "What is spent is at 1.186 before the first charge; that part belongs to" in said
    assert "tree aggregation" in said
    assert "tree_aggregation" not in said


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (steps(2), "gaussian, sensitivity l2 1, scale 1.1, sampling poisson 0.01, 2 times"),
        (
            {"kind": "tree_aggregation", "scale": "8", "leaves": [1600, 12]},
            "tree aggregation, scale 8, leaves 1600 and 12, once",
        ),
        (
            STEP | {"sampling": {"truncated": {"rate": "0.1", "of": 90, "at_most": 12}}},
            "gaussian, sensitivity l2 1, scale 1.1, sampling truncated (rate 0.1, of 90, "
            "at most 12), once",
        ),
    ],
)
def test_parameters_are_told_and_not_counted(stated: dict[str, Any], said: str) -> None:
    """How a sample is drawn, and how many leaves a tree has, stand in the words of a request."""
    assert mechanism(stated) == said
