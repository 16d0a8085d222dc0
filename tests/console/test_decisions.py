"""Decisions on pages: each at an address that stays, with what failed and what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Browser, signed_in
from deciding import texts
from support import Clock, World, ask, gaussian, laplace

from accountant.budget.commands import DAY
from accountant.budget.facts import client_in
from accountant.client.command_line.failures import told
from accountant.client.errors import Refused
from accountant.console.facts.decision import decision
from accountant.console.pages import decisions
from accountant.ledger.events import Event
from accountant.reporting import desk
from accountant.reporting.desk import Desk
from accountant.reporting.making import used_up

RULES = """  - {id: whole, limit: {epsilon: 1, delta: 1e-6}}
  - {id: noted, of: whole, at: 50%, action: flag}
  - {id: large, action: approve, at_most: {epsilon: 5}}
"""
HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 1900


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population of two groups, of one of which 0.75 of 1 is used up."""
    clock = Clock()
    one = world(clock=clock)
    one.hospital(RULES, {"age": ["young", "old"]})
    for epsilon in ("0.25", "0.5"):
        body = ask(laplace(epsilon), subjects={"age": ["old"]}, purpose=HOSTILE)
        assert one.post("/grants", body).status_code == 201
    return one


def page(browser: Browser, sequence: int) -> Any:
    """The page of a decision."""
    found = browser.get(f"/console/fair/decisions/{sequence}")
    assert found.status_code == 200, found.text
    assert "<script>alert" not in found.text
    assert "\u202e" not in found.text
    return found


def refused(made: World, *mechanisms: Any, **more: Any) -> int:
    """The event of a refusal."""
    answer = made.post("/grants", ask(*mechanisms, **more))
    assert answer.status_code == 403, answer.text
    return int(answer.json()["sequence"])


def test_a_refusal_says_what_failed_and_what_would_fit(made: World) -> None:
    """The sentence, both sides of the comparison in words and in full, more noise that fits, who
    used it up with shares, every rule's answer, the request.
    """
    answer = page(signed_in(made), refused(made, laplace("0.2501"), purpose=HOSTILE))
    said = texts(answer)
    assert "Refused: pipeline asked for 0.251 on d, and only 0.250 is left" in said
    assert "Rule whole allows 1 on dataset d; age old: 0.750 was spent or reserved" in said
    assert "this request would make it 1.001" in said
    assert "Plain sum of epsilons 0.750 0.251 1.001 1.000 Fails" in said
    assert "Own deltas of the mechanisms 0 0 0" in said
    assert "The same with more noise. With a scale of 1.01 or more it would just fit now" in said
    assert "66.7 %" in said
    assert "33.3 %" in said
    assert "1 account in 1 line" in said
    assert "whole d age: old" in said
    assert "noted" in said
    assert "laplace, scale 1, sensitivity 0.2501, once" in said
    assert "Nothing was released and nothing was spent" in said
    assert "exactly 1.0001" in answer.text
    assert len(answer.content) < 40_000


def test_whoever_used_it_up_is_looked_for_in_long_ledgers_only_when_asked(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At another address, which stays too; in very long ones the page says where else."""
    browser, event = signed_in(made), refused(made, laplace("0.5"))
    monkeypatch.setattr(decisions, "READ", event - 1)
    found = page(browser, event)
    assert "66.7 %" not in texts(found)
    more = f"/console/fair/decisions/{event}?used=all"
    assert f'href="{more}"' in found.text
    assert "66.7 %" in texts(browser.get(more))
    monkeypatch.setattr(decisions, "MOST", event - 1)
    assert f"/v1/populations/fair/decisions/d{event}" in texts(browser.get(more))


def test_another_process_finds_the_same(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever used a limit up is looked for beside the service where many events lie before."""
    event = made.service.event("fair", refused(made, laplace("0.5")))
    explained = made.service.explain("fair", event).decision
    rules = [one.to_json() for one in explained.findings]
    here = Desk(made.service.ledgers)
    found = used_up(here, made.service, event, rules)
    assert [one["share"] for one in found[0]["events"]][:1] == ["66.7"]
    monkeypatch.setattr(desk, "WORTH", 1)
    assert used_up(here, made.service, event, rules) == found


def test_the_numbers_are_those_of_the_api(made: World) -> None:
    """Whatever the kind of event: the page has the text of every finding, and its digest."""
    browser = signed_in(made)
    refused(made, gaussian("1"))
    refused(made, laplace("9"), allotment=None)
    made.post("/invocations", ask(laplace("2")))
    made.post("/grants", ask(laplace("0.9"), wait="7d"))
    seen = set()
    for body in made.stored():
        event = Event.from_bytes(body)
        answer = made.get(f"/decisions/d{event.sequence}")
        if answer.status_code != 200:
            continue
        seen.add(event.type)
        said = texts(page(browser, event.sequence))
        for rule in answer.json()["rules"]:
            assert " ".join(rule["text"].split()) in said
        assert client_in(event) in said
    assert seen == {
        "grant.reserved.v1", "grant.refused.v1", "invocation.recorded.v1", "grant.waiting.v1",
    }  # fmt: skip


def test_each_kind_of_decision_opens_with_its_answer(made: World) -> None:
    """Granted, flagged, recorded, ran over, waits, timed out, approved, refused in a batch."""
    browser, clock = signed_in(made), made.service.credentials._clock
    assert isinstance(clock, Clock)
    young = {"subjects": {"age": ["young"]}}
    granted = made.post("/grants", ask(laplace("0.1"), **young)).json()["sequence"]
    assert "Let through: pipeline asked for 0.100 on d" in texts(page(browser, granted))
    flagged = made.post("/grants", ask(laplace("0.5"), **young)).json()["sequence"]
    assert "Let through and flagged: pipeline asked for 0.500" in texts(page(browser, flagged))
    items = [{"type": "ask_grant"} | ask(laplace(one)) for one in ("0.01", "0.5")]
    batch = made.post("/batch", {"items": items}).json()
    assert batch["item"] == 1
    said = texts(page(browser, batch["sequence"]))
    assert "Refused: pipeline asked for 0.500 on d, and only" in said
    assert "Nothing was spent" in said
    waits = made.post("/grants", ask(laplace("0.9"), wait="2d")).json()["sequence"]
    said = texts(page(browser, waits))
    assert "Waits for budget: pipeline asked for 0.900" in said
    assert "The request that waits" in said
    ran = made.post("/invocations", ask(laplace("2"))).json()["sequence"]
    said = texts(page(browser, ran))
    assert "Ran against a rule: pipeline had run 2.000 on d" in said
    assert "Ran against it" in said
    clock.forward(3 * DAY)
    made.service.expire_due()
    browser = signed_in(made)
    late = next(n for n, kind in kinds(made) if kind == "grant.timed_out.v1")
    said = texts(page(browser, late))
    assert "Refused: pipeline waited in vain for 0.900 on d" in said
    assert f'href="/console/fair/requests/g{waits}"' in page(browser, late).text


def kinds(made: World) -> Iterator[tuple[int, str]]:
    """The sequence and the type of every event."""
    for body in made.stored():
        event = Event.from_bytes(body)
        yield event.sequence, event.type


def test_events_without_a_decision_lead_on_or_say_so(made: World) -> None:
    """A settlement leads to its grant, a proposal to its page; anything else is no decision."""
    browser = signed_in(made)
    grant = made.post("/grants", ask(laplace("0.1"))).json()["sequence"]
    end = made.post(f"/grants/g{grant}/release", {"reason": "x"}).json()["sequence"]
    away = browser.get(f"/console/fair/decisions/{end}")
    assert away.headers["location"] == f"/console/fair/decisions/{grant}"
    assert browser.get("/console/fair/decisions/2").headers["location"].endswith("/proposals/2")
    assert browser.get("/console/fair/decisions/0").status_code == 404
    assert browser.get("/console/fair/decisions/9999").status_code == 404
    assert browser.get("/console/none/decisions/1").status_code == 404


def test_a_refusal_over_the_api_names_its_page(world: Callable[..., World]) -> None:
    """Where people reach the service at a known address; else it names none."""
    for url in ("", "http://127.0.0.1:8321"):
        made = world(public_url=url)
        if not url:
            made.hospital(RULES)
        for path, body in (
            ("/grants", ask(laplace("3"))),
            ("/batch", {"items": [{"type": "ask_grant"} | ask(laplace("3"))]}),
        ):
            answer = made.post(path, body, key=f"{path}-{url}").json()
            there = f"{url}/console/fair/decisions/{answer['sequence']}" if url else None
            assert answer.get("decision_page") == there
            line, _ = told(Refused(answer))
            assert (f"(decision d{answer['sequence']}: {there})" in line) == bool(url)
            assert made.post(path, body, key=f"{path}-{url}").json() == answer


def test_a_decision_without_any_rule_is_told(world: Callable[..., World]) -> None:
    """Before any policy: what refuses then is not the policy's, and the page is made as ever."""
    made = world()
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    made.put("", people | {"dimensions": {}})
    made.put("/datasets/d", {"namespace": "n", "name": "d"})
    sequence = refused(made, laplace("1"))
    said = texts(page(signed_in(made), sequence))
    assert "Refused by rule" in said
    event = made.service.event("fair", sequence)
    explained = made.service.explain("fair", event)
    facts = decision(event, explained.decision, event.body["command"], {})
    assert facts.policy is None
    assert facts.failed is None
