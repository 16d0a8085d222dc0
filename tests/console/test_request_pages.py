"""Requests that wait, on pages: what they would do, and that another person decides once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from browser import Browser, signed_in
from deciding import decide, offers, read, texts
from support import Clock, World, ask, clean, laplace

from accountant.budget.commands import DAY

RULES = """  - {id: whole, limit: {epsilon: 4}}
  - {id: large, action: approve, at_most: {epsilon: 1}}
"""
HOSTILE = "<script>alert(1)</script>\u202e survey " + "x" * 1900


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population whose requests beyond 1 a person approves; 1 of 4 was used 20 days ago."""
    clock = Clock()
    one = world(clock=clock)
    clock.forward(60 * DAY)
    one.hospital(RULES, {"age": ["young", "old"]})
    assert one.post("/grants", ask(laplace("1"))).status_code == 201
    clock.forward(20 * DAY)
    return one


def waiting(made: World, epsilon: str = "2", who: str = "pipeline", **more: Any) -> str:
    """The page of a request that waits."""
    answer = made.post("/grants", ask(laplace(epsilon), **more), who=who)
    assert answer.status_code == 202, answer.text
    return f"/console/fair/requests/{answer.json()['id']}"


def state_of(made: World, path: str) -> str:
    """What the API says of the request."""
    return str(made.get(f"/grants/{path.rpartition('/')[2]}").json()["state"])


def test_it_says_what_it_would_do(made: World) -> None:
    """Who asks what for what, before and after in each account, when it runs out, who may decide;
    texts that mean harm are text.
    """
    path = waiting(made, purpose=HOSTILE, subjects={"age": ["old"]})
    page = signed_in(made).get(path)
    said = texts(page)
    assert "Let pipeline spend 2.000 on d? It fits. It waits because rule large leaves" in said
    assert "1.000 of 4 spent or reserved" in said
    assert "3.000 of 4 spent or reserved" in said
    for heard in ("1.000 of 4 spent or reserved", "3.000 of 4 spent or reserved"):
        assert f'aria-label="{heard}"' in page.text
    assert "0.000 left" not in page.text
    assert "An even chance becomes at most 96 in 100" in said
    assert "whole dataset d 25 % 75 %" in said
    assert " instead of " in said
    assert "age: old" in said
    assert "this request alone costs epsilon 2 of at most 1" in said
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text
    assert "checked" not in page.text
    assert offers(signed_in(made), path) == {"refuse", "confirm"}


def test_another_person_approves_once(made: World) -> None:
    """303 to the page, which says who and why; sent again it grants nothing more; whoever comes
    too late is told. The client has its grant.
    """
    path, browser, late = waiting(made), signed_in(made), signed_in(made, "bob")
    fields, other = read(browser, path, "confirm", "it is\r\nfine"), read(late, path, "refuse", "n")
    size = made.head().size
    answer = browser.post(path, fields)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert browser.post(path, fields).status_code == 303
    assert made.head().size == size + 1
    refused = late.post(path, other)
    assert refused.status_code == 409
    assert "waits for nobody: it was admitted as grant" in texts(refused)
    said = texts(browser.get(path))
    assert "alice approved it on" in said
    assert "it is fine" in said
    assert offers(browser, path) == set()
    assert state_of(made, path) == "reserved"
    listed = texts(browser.get("/console/fair/requests"))
    assert "Nobody waits" in listed
    clean(made)


def test_two_officers_at_once(made: World) -> None:
    """One approves and one refuses in the same moment: one of them decides, the other is told."""
    path = waiting(made)
    one, other = signed_in(made), signed_in(made, "bob")
    forms = [(one, read(one, path, "confirm", "y")), (other, read(other, path, "refuse", "n"))]
    size = made.head().size
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda pair: pair[0].post(path, pair[1]).status_code, forms))
    assert sorted(answers) == [303, 409]
    assert made.head().size == size + 1


def test_either_way_takes_a_reason(made: World) -> None:
    """Without one, or without a choice, nothing happens and what was typed is kept. A refusal ends
    the wait, and the client is told the reason.
    """
    path, browser = waiting(made), signed_in(made)
    for decision, reason in (("confirm", " "), ("refuse", ""), ("", "why"), ("x", "why")):
        answer = decide(browser, path, decision, reason)
        assert answer.status_code == 422
        assert "Nothing was decided yet" in texts(answer)
        assert answer.text.count(" checked") == (decision in ("confirm", "refuse"))
        assert f">{reason.strip()}</textarea>" in answer.text
    assert state_of(made, path) == "waiting"
    assert decide(browser, path, "refuse", "after the audit").status_code == 303
    assert state_of(made, path) == "declined"
    assert "alice refused it on" in texts(browser.get(path))
    assert "after the audit" in texts(browser.get(path))


def test_what_is_blocked_meanwhile_can_only_be_refused(made: World) -> None:
    """The page says which rule blocks it; a form that was read before is answered on the page."""
    path, browser = waiting(made), signed_in(made)
    fields = read(browser, path, "confirm", "go on")
    made.post("/invocations", ask(laplace("2.5")))
    assert offers(browser, path) == {"refuse"}
    assert "It does not fit now, whoever approves: rule whole" in texts(browser.get(path))
    answer = browser.post(path, fields)
    assert answer.status_code == 409
    assert "cannot be granted now, whoever approves: rule whole" in texts(answer)
    assert "go on</textarea>" in answer.text
    assert state_of(made, path) == "waiting"


def test_who_may_not_decide_sees_why(made: World) -> None:
    """Whoever asked, or made the key that asked, does not approve; an auditor reads; forms that are
    sent all the same do nothing.
    """
    own = waiting(made, who="admin")
    made.secrets["mine"] = made.new_key("mine", "pipeline", "operator:admin")
    theirs = waiting(made, who="mine")
    admin, auditor, officer = (
        signed_in(made, "admin", "admin"),
        signed_in(made, "zoe", "auditor"),
        signed_in(made),
    )
    for browser, path, what, why in (
        (admin, own, set(), "You cannot approve this: admin asked for this"),
        (admin, theirs, {"refuse"}, "admin made the key of mine"),
        (auditor, own, set(), "You have the role auditor"),
    ):
        assert offers(browser, path) == what
        assert why in texts(browser.get(path))
        sent = read(officer, path, "confirm", "x")
        token = browser.csrf("/console/fair/requests")
        assert browser.post(path, sent | {"csrf": token}).status_code == 403
        assert state_of(made, path) == "waiting"
    assert decide(officer, own, "confirm", "ok").status_code == 303


def test_only_a_form_of_this_session_counts(made: World) -> None:
    """Another session's token, another site's form, another request's digest change nothing; nor
    does the form of somebody whose role was taken away.
    """
    path, second = waiting(made), waiting(made, "1.5")
    browser, other = signed_in(made), signed_in(made, "bob")
    fields = read(browser, path, "confirm", "x")
    assert other.post(path, fields).status_code == 403
    away = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert browser.post(path, fields, headers=away).status_code == 403
    wrong = browser.post(path, fields | {"digest": read(browser, second, "x")["digest"]})
    assert wrong.status_code == 409
    assert "has the digest" in texts(wrong)
    made.service.credentials.revoke("alice", "test")
    assert browser.post(path, fields).headers["location"].startswith("/console/signin")
    assert Browser(made).post(path, fields).status_code == 303  # to sign in
    assert (state_of(made, path), state_of(made, second)) == ("waiting", "waiting")


def test_who_waits_for_what(made: World) -> None:
    """Those for a person come first, then those for budget, each with what holds it up; a wait for
    budget alone is nobody's decision; after its time it is over.
    """
    made.post("/invocations", ask(laplace("2.25")))
    budget = waiting(made, "0.9", wait="2d", purpose="for <b>budget</b>")
    person = waiting(made, "1.5", wait="7d")
    browser = signed_in(made)
    page = browser.get("/console/fair/requests")
    said = texts(page)
    assert "1 request waits for a person 2 requests wait in all" in said
    first, second = (page.text.index(f'href="{path}"') for path in (person, budget))
    assert first < second
    assert "&lt;b&gt;budget&lt;/b&gt;" in page.text
    assert "whole epsilon 3.25 used + 0.9 asked = 4.15 is more than the limit 4" in said
    assert "No person can let it in" in texts(browser.get(budget))
    assert offers(browser, budget) == set()
    made.service.credentials._clock.forward(3 * DAY)  # type: ignore[attr-defined]
    browser = signed_in(made)
    assert "Its time has passed" in texts(browser.get(budget))
    made.service.expire_due()
    assert "It waited in vain" in texts(browser.get(budget))


def test_what_can_no_longer_be_judged_says_why(made: World) -> None:
    """As where the allotment that it draws from is gone: it can only lapse, and nobody decides."""
    part = "  - {id: part, part_of: whole, limit: {epsilon: 2}}\n"
    assert made.policy("policy: p\nrules:\n" + RULES + part).status_code == 200
    path, browser = waiting(made, "1.5", allotment="part"), signed_in(made)
    assert offers(browser, path) == {"refuse", "confirm"}
    fields = read(browser, path, "confirm", "x")
    assert made.policy("policy: p\nrules:\n" + RULES).status_code == 200
    assert "It cannot be let in as things are now: " in texts(browser.get(path))
    assert offers(browser, path) == set()
    answer = browser.post(path, fields)
    assert answer.status_code in (409, 422)
    assert "Nothing was decided: " in texts(answer)
    assert "part" in texts(browser.get("/console/fair/requests"))
    assert browser.get(f"/console/fair/decisions/{path.rpartition('g')[2]}").status_code == 200


def test_the_order_of_the_policy_is_shown(made: World) -> None:
    """Under another order than arrival those that need least come first."""
    made.post("/invocations", ask(laplace("2.8")))
    rules = RULES.replace("epsilon: 1}", "epsilon: 9}")
    assert made.policy("policy: p\norder: efficiency\nrules:\n" + rules).status_code == 200
    large, small = (waiting(made, one, wait="7d") for one in ("0.9", "0.5"))
    page = signed_in(made).get("/console/fair/requests")
    assert page.text.index(small) < page.text.index(large)
    assert "those that need least first" in texts(page)


def test_grants_that_never_waited_lead_to_their_decision(made: World) -> None:
    """And one that was let in leads to the request that waited."""
    path, browser = waiting(made), signed_in(made)
    grant = made.post("/grants", ask(laplace("0.1"))).json()["id"]
    away = browser.get(f"/console/fair/requests/{grant}")
    assert away.headers["location"] == f"/console/fair/decisions/{grant[1:]}"
    decide(browser, path, "confirm", "ok")
    admitted = f"g{made.head().size - 1}"
    assert browser.get(f"/console/fair/requests/{admitted}").headers["location"] == path
    assert browser.get("/console/fair/requests/g9999").status_code == 404
