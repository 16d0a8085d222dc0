"""OpenLineage events: what a run reads, whether it had a grant, and what people are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from browser import signed_in
from support import Clock, World, ask, clean, laplace

from accountant.config.alerts import Terms
from accountant.console.facts.alerted import look
from accountant.ledger.events import rfc3339
from accountant.reporting.desk import Desk

HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 300
INPUT = {"namespace": "postgres://warehouse", "name": "public.visits"}


@pytest.fixture
def clock() -> Clock:
    """A clock that can be moved."""
    return Clock()


@pytest.fixture
def made(world: Callable[..., World], clock: Clock) -> World:
    """A population with a table of visits."""
    made = world(clock).hospital("  - {id: a, limit: {epsilon: 100}}\n")
    assert made.put("/datasets/visits", INPUT).is_success
    return made


def told(made: World, number: str = "", who: str = "pipeline", **more: Any) -> Any:
    """The answer to a run event as OpenLineage's clients send it."""
    about = {"job": {"namespace": "airflow", "name": "nightly"}, "inputs": [INPUT]}
    event = {"eventType": "RUNNING", "eventTime": rfc3339(made.service.time()), "outputs": []}
    event |= {"producer": "https://example.org/p", "schemaURL": "https://openlineage.io/spec/2-0-2"}
    event |= {"run": {"runId": number or str(uuid4()), "facets": {"nominalTime": {"x": 1}}}} | about
    headers = made.auth(who) | {"Content-Type": "application/json"}
    content = json.dumps(event | more)
    return made.http.post("/api/v1/lineage", content=content, headers=headers)


def granted(answer: Any) -> bool:
    """Whether the one read of an event had a grant."""
    assert answer.status_code == 200, answer.text
    [one] = answer.json()["reads"]
    assert (one["population"], one["dataset"]) == ("fair", "visits")
    return bool(one["granted"])


def facet(run: str, *grants: str) -> dict[str, Any]:
    """A run that names its grants."""
    return {"run": {"runId": run, "facets": {"accountant_grants": {"grants": grants}}}}


def reserved(made: World, key: str | None = None, who: str = "pipeline") -> str:
    """A grant on the visits."""
    answer = made.post("/grants", ask(laplace("0.1"), dataset="visits"), key=key, who=who)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def test_a_read_has_the_grant_that_names_it(made: World, clock: Clock) -> None:
    """By the facet of the run, by its id as idempotency key, or by an open grant of who tells; not
    by another's open grant, nor by one that came later, was given back, or is on other data.
    """
    run = str(uuid4())
    assert not granted(told(made, run))
    grant = reserved(made, key=run)
    assert granted(told(made, run))
    assert granted(told(made, str(uuid4())))  # it is open
    assert not granted(told(made, str(uuid4()), who="admin"))
    assert granted(told(made, who="admin", **facet(str(uuid4()), grant)))
    assert granted(told(made, who="admin", **facet(str(uuid4()), f"fair/{grant}", "other/g1")))
    assert made.post(f"/grants/{grant}/commit", {}).is_success
    assert granted(told(made, run))
    assert granted(told(made, who="admin", **facet(str(uuid4()), grant)))
    assert not granted(told(made, str(uuid4())))
    back = reserved(made)
    assert made.post(f"/grants/{back}/release", {"reason": "not run"}).is_success
    other = made.post("/grants", ask(laplace("0.1"))).json()["id"]
    early = rfc3339(clock() - 10**10)
    assert not granted(told(made, eventTime=early, **facet(str(uuid4()), grant)))
    for name in (back, other, "g999", "other/" + grant):
        assert not granted(told(made, who="admin", **facet(str(uuid4()), name))), name
    ran = str(uuid4())
    assert made.post("/invocations", ask(laplace("0.1"), dataset="visits"), key=ran).is_success
    assert granted(told(made, ran))
    clean(made)


def test_a_run_keeps_the_grant_that_it_had(made: World) -> None:
    """What began under an open grant ends after it was committed: it is no finding, and was never
    one; what was a finding and has a grant since is none any more.
    """
    run = str(uuid4())
    grant = reserved(made)
    assert granted(told(made, run, eventType="START"))
    assert made.post(f"/grants/{grant}/commit", {}).is_success
    assert granted(told(made, run, eventType="COMPLETE"))
    assert made.service.ledgers.ungranted("fair") == []
    late = str(uuid4())
    assert not granted(told(made, late))
    assert len(made.service.ledgers.ungranted("fair")) == 1
    reserved(made, key=late)
    assert granted(told(made, late))
    assert made.service.ledgers.ungranted("fair") == []


def test_the_same_data_are_found_under_any_spelling(made: World) -> None:
    """Names are compared in their normal form, as in a registration; data that nobody registered,
    or of populations beyond the key, are passed over; so are events without a run.
    """
    spelled = {"namespace": "postgresql://WAREHOUSE:5432", "name": '"public"."visits"'}
    assert not granted(told(made, inputs=[spelled, INPUT]))
    assert told(made, inputs=[{"namespace": "s3://x", "name": "y"}]).json() == {"reads": []}
    made.secrets["theirs"] = made.service.credentials.create(
        "theirs", "pipeline", "test", populations=["other"]
    )
    assert told(made, who="theirs").json() == {"reads": []}
    dataset = json.dumps({"eventTime": rfc3339(made.service.time()), "dataset": INPUT})
    passed = made.http.post("/api/v1/lineage", content=dataset, headers=made.auth("pipeline"))
    assert passed.json() == {"reads": []}


@pytest.mark.parametrize(
    "wrong",
    [
        {"eventTime": "2026-09-21T09:00:00"},
        {"eventTime": "2099-01-01T00:00:00Z"},
        {"eventTime": "1901-01-01T00:00:00Z"},
        {"eventType": "STOPPED"},
        {"run": {"runId": "<b>"}},
        {"run": {"runId": "x" * 65}},
        {"run": {"runId": "x", "facets": {"accountant_grants": {"grants": ["17"]}}}},
        {"job": {"namespace": "n"}},
        {"job": {"namespace": "n", "name": "x" * 2001}},
        {"inputs": [{"namespace": "n"}]},
        {"inputs": [INPUT] * 501},
        {"inputs": INPUT},
    ],
)
def test_what_is_no_run_event_is_refused(made: World, wrong: dict[str, Any]) -> None:
    """With the field that is wrong; an auditor sends none, and nobody without a key."""
    answer = told(made, **wrong)
    assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (422, "invalid-request")
    assert next(iter(wrong)) in answer.text
    assert told(made, who="auditor").status_code == 403
    assert made.http.post("/api/v1/lineage", json={}).status_code == 401
    assert made.service.ledgers.ungranted("fair") == []


def test_people_are_told_of_reads_without_a_grant(made: World) -> None:
    """On Home, among the findings and as an alert, where hostile names are text; nothing of it is
    in the ledger.
    """
    size, browser = made.head().size, signed_in(made, "ada", "auditor")
    assert "Read without a grant" not in browser.get("/console/fair/findings").text
    for _ in range(2):
        told(made, job={"namespace": "n", "name": HOSTILE})
    home, page = browser.get("/console").text, browser.get("/console/fair/findings").text
    assert "read visits without a grant in 2 runs" in home
    assert "2 findings in this ledger" in page
    assert "Read without a grant" in page
    for text in (home, page):
        assert "<script>alert(1)" not in text
        assert "\u202e" not in text
        assert "&lt;script&gt;" in text
    desk = Desk(made.service.ledgers)
    try:
        found = dict(look(made.service, made.publisher, desk, Terms(), lambda _: True))["fair"]
    finally:
        desk.close()
    assert [one.sentence for one in found if one.kind == "read"] == [
        "fair: 2 runs told by pipeline read visits without a grant."
    ]
    assert made.head().size == size
    clean(made)


def test_a_name_that_nobody_can_read_is_refused(made: World) -> None:
    """One that is encoded over and over would hold up the service."""
    answer = told(made, inputs=[INPUT | {"name": "%" + "25" * 900}])
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("invalid-request")
