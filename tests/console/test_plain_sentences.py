"""What pages say of one thing and of many, and that no sentence says more than is so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from browser import Browser, new_code, signed_in
from deciding import texts
from support import Clock, World, ask, laplace

from accountant.auth.links import Links


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population of two groups under a limit of 1."""
    return world(clock=Clock()).hospital(dimensions={"age": ["young", "old"]})


def test_an_adopted_policy_is_told_rule_by_rule(made: World) -> None:
    """Its event shows what it changed of the policy before it; a first one shows its rules, and any
    other event none.
    """
    browser = signed_in(made)
    tighter = "policy: q\nrules:\n  - {id: a, limit: {epsilon: 0.5}}\n"
    assert made.policy(tighter).json()["adopted"]
    event = made.head().size - 1
    said = texts(browser.get(f"/console/fair/ledger/{event}"))
    assert "Rule by rule" in said
    assert "− a: On each dataset, one person may lose at most epsilon 1," in said
    assert "+ a: On each dataset, one person may lose at most epsilon 0.5," in said
    first = texts(browser.get("/console/fair/ledger/3"))
    assert "Its rules + a: On each dataset, one person may lose at most epsilon 1," in first
    other = texts(browser.get("/console/fair/ledger/1"))
    assert "Rule by rule" not in other
    assert "Its rules" not in other


def test_open_grants_are_not_taken_for_reported_ones(made: World) -> None:
    """While one is open nothing says that all were reported on; one is told as one."""
    browser = signed_in(made)
    assert "No open grant" in texts(browser.get("/console/fair/findings"))
    assert made.post("/grants", ask(laplace("0.25"))).status_code == 201
    assert "no grant expired without a report" in texts(browser.get("/console/fair/findings"))
    said = texts(browser.get("/console/fair/grants"))
    assert "1 grant is open" in said
    assert "What it holds is reserved" in said
    made.post("/grants", ask(laplace("0.25")))
    assert "What they hold is reserved" in texts(browser.get("/console/fair/grants"))


def test_open_grants_about_others_do_not_count_for_the_most_charged(made: World) -> None:
    """Where grants about several groups are open, the number below what is reserved for the most
    charged says what all of them hold.
    """
    browser = signed_in(made)
    made.post("/grants", ask(laplace("0.5"), subjects={"age": ["old"]}))
    assert "Reserved 0.500 1 open grant Left" in texts(browser.get("/console/fair/accounts/d"))
    made.post("/grants", ask(laplace("0.25"), subjects={"age": ["young"]}))
    said = texts(browser.get("/console/fair/accounts/d"))
    assert "Reserved 0.500 2 open grants, 0.750 about all groups" in said


def test_one_account_is_not_one_of_one(made: World) -> None:
    """The list of a single account says so."""
    made.post("/grants", ask(laplace("0.9")))
    said = texts(signed_in(made).get("/console/fair/accounts"))
    assert "The one account is near, at or over its limit" in said


def test_a_request_without_a_purpose_says_so(made: World) -> None:
    """Whoever reads a decision sees that none was stated."""
    event = made.post("/grants", ask(laplace("0.9"))).json()["sequence"]
    said = texts(signed_in(made).get(f"/console/fair/decisions/{event}"))
    assert "Purpose none was stated" in said


def test_where_nobody_can_confirm_that_is_said(made: World) -> None:
    """Who made all keys lately proposes another: the page says that none of their holders can
    confirm it, and what to do; of what somebody else proposes it does not.
    """
    browser, links = signed_in(made, "eve", "auditor"), Links(made.service.credentials)
    _, event = links.create("carol", "officer", "operator:zoe")
    assert "None of them can" not in texts(browser.get(f"/console/-/proposals/{event.sequence}"))
    _, event = links.create("dora", "officer", "test")
    place = f"/console/-/proposals/{event.sequence}"
    said = texts(browser.get(place))
    assert "None of them can. Refuse it, and let another person than test propose it." in said
    alice = Browser(made)
    alice.post("/console/signin/code", {"code": new_code(made, by="test")})
    why = texts(alice.get(place))
    assert "test made the key of alice at 21 Sep 2026, " in why
    assert " UTC, less than seven days before test proposed this at 21 Sep 2026, " in why
