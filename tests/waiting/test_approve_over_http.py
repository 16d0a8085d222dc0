"""Requests that wait for a person, over HTTP: who sees what, decides what, and is told what."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from served import Served, served
from support import Clock, World, ask, laplace, sparse_vector

from accountant import verify_minimal
from accountant.budget.accounts import growing
from accountant.client import NeedsApproval, Refused, Registrar

__all__ = ["served"]
RULES = "  - {id: a, limit: {epsilon: 4}}\n  - {id: big, action: approve, at_most: {epsilon: 1}}\n"
DAY = 86_400


@pytest.fixture
def clock() -> Clock:
    """The clock of ``made``."""
    return Clock()


@pytest.fixture
def made(world: Callable[..., World], clock: Clock) -> World:
    """A service with one limit of epsilon 4, above 1 of which in a request a person decides."""
    return world(clock).hospital(RULES)


def waits(made: World, **more: Any) -> Any:
    """The answer to a request that needs approval, sent under the key ``k``."""
    return made.post("/grants", ask(laplace(2), **more), key="k")


def test_a_request_waits_until_a_person_approves_it(made: World) -> None:
    """It is told what it waits for, where and until when; an approval is a grant of its client."""
    first = waits(made, purpose="a table")
    found = first.json()
    assert (first.status_code, found["state"], found["waits_for"]) == (202, "waiting", "approval")
    assert (found["asks"], found["id"]) == (["big"], "g4")
    now = found["address"].removeprefix("/v1/populations/fair").removesuffix("?wait=30s")
    assert made.get(now).json()["waits_for"] == "approval"
    [shown] = made.get("/approvals", who="officer").json()["approvals"]
    assert shown == made.get("/approvals/g4", who="auditor").json()
    assert (shown["client"], shown["request"]["purpose"]) == ("pipeline", "a table")
    assert [one["rule"] for one in shown["asks"]] == ["big"]
    assert shown["blocked_by"] == []
    body = {"digest": shown["digest"], "reason": "it is worth it"}
    approved = made.post("/approvals/g4/approve", body, who="officer", key="mine")
    assert (approved.status_code, approved.json()["id"]) == (201, "g5")
    again = made.post("/approvals/g4/approve", body, who="officer", key="mine")
    assert (again.status_code, again.json()) == (201, approved.json())
    assert again.headers["Idempotent-Replay"] == "true"
    mine = waits(made, purpose="a table").json()
    assert (mine["id"], mine["waited_as"], mine["flags"][0]["rule"]) == ("g5", "g4", "big")
    grant = made.get("/grants/g4?wait=30s", who="pipeline").json()
    assert (grant["id"], grant["client"], grant["approved_by"]) == ("g5", "pipeline", "officer")
    assert made.get("/decisions/d5", who="pipeline").json()["outcome"] == "flag"
    assert made.post("/grants/g5/commit").json()["state"] == "committed"
    assert made.get("/approvals").json()["approvals"] == []
    audit = verify_minimal.verify(io.BytesIO(made.get("/evidence").content))
    assert audit["findings"] == []


def test_a_decline_tells_the_client_why(made: World) -> None:
    """A retry gets the reason, for good; the grant is declined."""
    waits(made)
    digest = made.get("/approvals/g4").json()["digest"]
    body = {"digest": digest, "reason": "ask again after the audit"}
    declined = made.post("/approvals/g4/decline", body, who="officer", key="mine")
    assert (declined.status_code, declined.json()["state"]) == (200, "declined")
    assert made.post("/approvals/g4/decline", body, who="officer", key="mine").json() == (
        declined.json()
    )
    told = waits(made)
    assert (told.status_code, told.json()["type"].rsplit(":", 1)[1]) == (403, "approval-declined")
    assert told.json()["reason"] == "ask again after the audit"
    assert told.json()["decision"]["outcome"] == "approve"
    assert made.get("/grants/g4").json()["state"] == "declined"
    assert made.post("/approvals/g4/approve", body, who="officer").status_code == 409


def test_who_may_decide(made: World) -> None:
    """An admin or officer who did not ask; neither a pipeline nor an auditor."""
    made.post("/grants", ask(laplace(2)), who="admin")
    digest = made.get("/approvals/g4").json()["digest"]
    body = {"digest": digest, "reason": "x"}
    for who, code in (
        ("pipeline", "role-not-allowed"),
        ("auditor", "role-not-allowed"),
        ("admin", "same-person"),
    ):
        for what in ("approve", "decline"):
            answer = made.post(f"/approvals/g4/{what}", body, who=who)
            assert answer.status_code == 403
            assert answer.json()["type"].endswith(code)
    assert made.get("/approvals", who="pipeline").status_code == 403
    wrong = made.post("/approvals/g4/approve", {"digest": "0" * 64}, who="officer")
    assert (wrong.status_code, wrong.json()["digest"]) == (409, digest)
    assert made.post("/approvals/g4/approve", body, who="officer").status_code == 201


def test_what_blocks_meanwhile_is_told(made: World) -> None:
    """Whoever looks sees it before, and an approval is refused with both sides."""
    for _ in range(3):
        made.post("/grants", ask(laplace(1)))
    made.post("/grants", ask(laplace(2), wait="1d"))
    shown = made.get("/approvals/g7").json()
    assert [one["rule"] for one in shown["blocked_by"]] == ["a"]
    assert [line["percent_after"] for line in shown["effect"]] == ["125"]
    answer = made.post("/approvals/g7/approve", {"digest": shown["digest"]}, who="officer")
    assert (answer.status_code, answer.json()["rules"]) == (409, ["a"])
    assert "is more than the limit 4" in answer.json()["detail"]
    assert made.get("/grants/g7").json()["state"] == "waiting"


def test_a_person_sees_what_it_would_do(world: Callable[..., World], clock: Clock) -> None:
    """For each account the share of the limit before and with it, and when that would run out.

    Epsilon 1 of 4 was spent in 10 days: 3 are left for 30 days more; less 2 they are for 10.
    """
    rules = RULES + "  - {id: week, action: flag, window: 7d, limit: {epsilon: 8}}\n"
    made = world(clock).hospital(rules, dimensions={"age": ["old", "young"]})
    made.post("/grants", ask(laplace(1), subjects={"age": ["old"]}))
    made.post("/grants/g4/commit")
    clock.forward(10 * DAY)
    made.post("/grants", ask(laplace(2), subjects={"age": ["old"]}), key="old")
    made.post("/grants", ask(laplace(2), subjects={"age": ["young"]}), key="young")
    old, young = (one["effect"] for one in made.get("/approvals").json()["approvals"])
    assert [(one["rule"], one["percent_before"], one["percent_after"]) for one in old] == [
        ("a", "25", "75"),
        ("week", "0", "25"),
    ]
    assert "25 % to 75 %; runs out on" in old[0]["text"]
    assert "instead of" in old[0]["text"]
    assert old[0]["runs_out_after"] < old[0]["runs_out_before"]
    assert "runs_out_before" not in old[1]
    assert (young[0]["percent_before"], young[0]["percent_after"]) == ("0", "50")
    assert young[0]["text"].endswith("0 % to 50 %")
    events = made.get("/accounts").json()
    assert events["accounts"][0]["total"]["reserved"] == "0"  # to look at it reserves nothing


@pytest.mark.parametrize("most", [10**6, 1])
def test_of_a_limit_for_some_people_it_shows_these(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A limit that is about other people than the request is left out, also where sums are kept by
    class.
    """
    monkeypatch.setattr(growing, "MANY", most)
    rules = RULES + "  - {id: few, subjects: {age: [old]}, limit: {epsilon: 5}}\n"
    made = world().hospital(rules, dimensions={"age": ["old", "young"], "sex": ["f", "m"]})
    made.post("/grants", ask(laplace(1), subjects={"age": ["old"], "sex": ["f"]}))
    groups: list[Any] = [{"age": ["young"]}, {"age": ["old"], "sex": ["m"]}, {"sex": ["f"]}]
    for place, group in enumerate(groups):
        made.post("/grants", ask(laplace("1.5"), subjects=group), key=f"k{place}")
    effects = [one["effect"] for one in made.get("/approvals").json()["approvals"]]
    assert [
        [(one["rule"], one["percent_before"], one["percent_after"]) for one in each]
        for each in effects
    ] == [
        [("a", "0", "37.5")],
        [("a", "0", "37.5"), ("few", "0", "30")],
        [("a", "25", "62.5"), ("few", "20", "50")],
    ]


def test_previews_say_that_a_person_would_decide(made: World) -> None:
    """One by one, and several together."""
    found = made.post("/preview", ask(laplace(2))).json()
    assert found["decision"]["outcome"] == "approve"
    assert "wait for a person" in found["note"]
    body = {"items": [ask(laplace(2)), ask(laplace(1))]}
    several = made.post("/preview/batch", body).json()
    assert [one["outcome"] for one in several["items"]] == ["approve", "allow"]
    assert several["granted"] == 1


def test_batches_and_sessions_are_told_to_ask_alone(made: World) -> None:
    """Neither waits: the refusal says so."""
    item = {"type": "ask_grant"} | ask(laplace(2))
    batch = made.post("/batch", {"items": [item]})
    assert batch.status_code == 403
    assert "ask for this grant alone" in batch.json()["detail"]
    session = made.post("/sparse-vector", {"dataset": "d", "mechanism": sparse_vector()})
    assert session.status_code in (201, 403)


def test_what_nobody_decided_times_out(made: World, clock: Clock) -> None:
    """After seven days, or the time that it gave itself; the reason names the rule."""
    waits(made)
    clock.forward(7 * DAY - 1)
    made.service.expire_due()
    assert waits(made).status_code == 202
    clock.forward(1)
    late = waits(made)
    assert (late.status_code, late.json()["type"].rsplit(":", 1)[1]) == (403, "wait-timed-out")
    assert "this request alone costs" in late.json()["detail"]


LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "0.5"}
POLICY = (
    "policy: p\nrules:\n  - {id: a, limit: {epsilon: 4}}\n"
    "  - {id: big, action: approve, at_most: {epsilon: 1}}\n"
)


@pytest.fixture
def asked(served: Served) -> str:
    """A population of a running service, in which a person decides what costs more than 1."""
    population = served.population()
    with Registrar(served.url, served.keys["admin"], population) as steward:
        served.confirm(population, steward.policy(POLICY))
    return population


def test_the_client_says_that_a_person_has_to_approve(served: Served, asked: str) -> None:
    """Without ``wait`` it raises; with it, it returns once somebody has approved."""
    with (
        served.client(asked) as client,
        Registrar(served.url, served.keys["officer"], asked) as officer,
    ):
        with pytest.raises(NeedsApproval, match="asked for by big") as needs:
            client.grant("visits", [LAPLACE], purpose="test", idempotency_key="named")
        [waiting] = officer.approvals()
        assert waiting["id"] == needs.value.id
        officer.approve(waiting["id"], waiting["digest"], "it is worth it")
        grant = client.grant("visits", [LAPLACE], purpose="test", idempotency_key="named")
        assert grant.answer["waited_as"] == waiting["id"]

        def approve() -> None:
            time.sleep(0.5)
            with Registrar(served.url, served.keys["officer"], asked) as other:
                [later] = other.approvals()
                other.approve(later["id"], later["digest"])

        thread = threading.Thread(target=approve)
        thread.start()
        with client.grant("visits", [LAPLACE], purpose="test", wait="1h") as second:
            assert second.id != grant.id
        thread.join()


def test_the_client_raises_why_it_was_declined(served: Served, asked: str) -> None:
    """As a refusal, with the reason and the rule that had asked."""
    with (
        served.client(asked) as client,
        Registrar(served.url, served.keys["officer"], asked) as officer,
    ):
        with pytest.raises(NeedsApproval) as needs:
            client.grant("visits", [LAPLACE], purpose="test", idempotency_key="k")
        [waiting] = officer.approvals()
        officer.decline_grant(waiting["id"], waiting["digest"], "not now")
        with pytest.raises(Refused, match="not now") as refused:
            client.grant("visits", [LAPLACE], purpose="test", idempotency_key="k")
        assert refused.value.rules == ("big",)
        assert client.grant_state(needs.value.id).state == "declined"
