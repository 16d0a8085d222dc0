"""The batch call: one key, one answer, all or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest
from support import Clock, World, ask, laplace, last_replay


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """A service with one limit of epsilon 1 on dataset d."""
    with closing(World(database)) as made:
        yield made.hospital()


def item(kind: str, **body: Any) -> dict[str, Any]:
    """One item of a batch."""
    return {"type": kind} | body


def grant(epsilon: str, **more: Any) -> dict[str, Any]:
    """A grant as an item."""
    return item("ask_grant", **ask(laplace(epsilon), **more))


def past(epsilon: str, **more: Any) -> dict[str, Any]:
    """An invocation as an item."""
    return item("record_invocations", **ask(laplace(epsilon), **more))


def items(*some: dict[str, Any]) -> dict[str, Any]:
    """The body of a batch."""
    return {"items": list(some)}


def sound(world: World) -> None:
    """The ledger replays without a finding."""
    assert last_replay("fair", world.stored()).findings == []


def test_items_are_answered_as_they_would_be_alone(world: World) -> None:
    """Each item has the same object that its own call would have given, in the order listed."""
    alone = world.post("/grants", ask(laplace("0.1"), purpose="why")).json()
    answer = world.post("/batch", items(grant("0.1", purpose="why"), grant("0.2")))
    assert answer.status_code == 201
    sequence = answer.json()["sequence"]
    first, second = answer.json()["items"]
    assert first.keys() == alone.keys()
    assert first["charge"] == alone["charge"]
    assert [first["id"], second["id"]] == [f"g{sequence + 1}", f"g{sequence + 2}"]
    settle = items(
        grant("0.5"),
        item("release_grant", grant=first["id"], reason="not needed"),
        item("commit_grant", grant=second["id"]),
    )
    states = [one["state"] for one in world.post("/batch", settle).json()["items"]]
    assert states == ["reserved", "released", "committed"]
    assert world.get(f"/grants/{first['id']}").json()["state"] == "released"
    sound(world)


def test_a_retry_gets_the_first_answer_byte_for_byte(world: World) -> None:
    """Admitted or refused, with free texts: the same key and body change nothing any more; another
    body is told so.
    """
    listed = [grant("0.1", purpose="one"), grant("0.2", purpose="two", justification="because")]
    for number, body in enumerate((items(*listed), items(*listed, grant("9", purpose="three")))):
        first = world.post("/batch", body, key=f"k{number}")
        size = len(world.stored())
        again = world.post("/batch", body, key=f"k{number}")
        assert (again.status_code, again.content) == (first.status_code, first.content)
        assert again.headers["Idempotent-Replay"] == "true"
        for other in (items(*listed[:1]), items(*listed[::-1]), items(grant("0.1", purpose="x"))):
            refused = world.post("/batch", other, key=f"k{number}")
            assert refused.status_code == 422
            assert refused.json()["type"].endswith("idempotency-key-reused")
        assert len(world.stored()) == size
    single = world.post("/grants", ask(laplace("0.1")), key="k0")
    assert single.json()["type"].endswith("idempotency-key-reused")
    sound(world)


def test_a_late_commit_answers_a_retry_the_same(database: str) -> None:
    """The expiry that comes before a batch is no part of its answer."""
    clock = Clock()
    with closing(World(database, clock)) as world:
        held = world.hospital().post("/grants", ask(laplace("0.1"), ttl_seconds=1)).json()["id"]
        clock.forward(10**9)
        body = items(item("commit_grant", grant=held), grant("0.1"))
        first = world.post("/batch", body, key="k")
        assert [one["state"] for one in first.json()["items"]] == ["expired", "reserved"]
        assert world.post("/batch", body, key="k").content == first.content


def test_a_refusal_names_the_item_as_it_was_listed(world: World) -> None:
    """403 with that item's decision; nothing of the batch has happened, and the decision can be
    read again with its text.
    """
    held = world.post("/grants", ask(laplace("0.3"))).json()["id"]
    body = items(grant("0.2"), grant("0.9", purpose="much"), item("commit_grant", grant=held))
    answer = world.post("/batch", body)
    assert answer.status_code == 403
    problem = answer.json()
    assert (problem["type"].rsplit(":", 1)[1], problem["item"]) == ("budget-exceeded", 1)
    sides = "epsilon 0.5 used + 0.9 asked = 1.4 is more than the limit 1 (dataset d)"
    assert problem["detail"] == f"item 1: refused by rule a: {sides}"
    assert "would_fit" not in problem
    assert world.get(f"/grants/{held}").json()["state"] == "reserved"
    decision = world.get(f"/decisions/{problem['decision']['id']}").json()
    assert decision["request"]["purpose"] == "much"
    assert decision["used_up_by"][0]["events"][0]["epsilon"] == "0.3"
    report = world.get("/report?format=json").json()
    assert "much" in orjson.dumps(report).decode()
    sound(world)


@pytest.mark.parametrize(
    ("listed", "status", "code", "where"),
    [
        ([grant("0.1"), item("commit_grant", grant="g99")], 404, "unknown-grant", "item 1: "),
        ([grant("0.1"), grant("0.1", dataset="x")], 422, "unknown-dataset", "item 1: "),
        ([grant("0.1"), grant("-1")], 422, "invalid-request", "items[1].mechanisms[0].sens"),
        ([grant("0.1"), item("ask_grant", dataset="d")], 422, "invalid-request", "items[1].mech"),
        ([grant("0.1"), item("nonsense")], 422, "invalid-request", "items[1]: there is no"),
        ([grant("0.1"), {"dataset": "d"}], 422, "invalid-request", "items[1]: must say its 'type'"),
        ([grant("0.1"), past("0.1")], 422, "mixed-batch", "item 0: ask_grant"),
        ([], 422, "invalid-request", "items: must not be empty"),
        ([past("0.1")] * 4_001, 422, "invalid-request", "items: "),
    ],
)
def test_a_bad_batch_leaves_nothing(
    world: World, listed: list[Any], status: int, code: str, where: str
) -> None:
    """A problem names the place of the item, and leaves the key free for the corrected body."""
    size = len(world.stored())
    answer = world.post("/batch", items(*listed), key="k")
    assert (answer.status_code, answer.json()["type"].rsplit(":", 1)[1]) == (status, code)
    assert answer.json()["detail"].startswith(where)
    assert len(world.stored()) == size
    assert world.post("/batch", items(grant("0.1")), key="k").status_code == 201


def test_what_ran_is_always_recorded(world: World) -> None:
    """Hundreds of invocations in one call, flagged where they are over; each has its receipt and
    its decision.
    """
    answer = world.post("/batch", items(*[past("0.01", purpose=f"p{n}") for n in range(300)]))
    assert answer.status_code == 201
    overruns = [one["overrun"] for one in answer.json()["items"]]
    assert overruns == [False] * 100 + [True] * 200
    last = answer.json()["items"][-1]
    assert world.get(f"/decisions/{last['decision']}").json()["request"]["purpose"] == "p299"
    world.publisher.publish("fair")
    assert world.get(f"/receipts/{last['sequence']}").status_code == 200
    sound(world)


def test_only_spenders_send_batches(world: World) -> None:
    """A batch needs a key that may spend, and an Idempotency-Key."""
    assert world.call("POST", "/batch", items(grant("0.1")), who="auditor").status_code == 403
    refused = world.call("POST", "/batch", items(grant("0.1")), who="pipeline", key="")
    assert refused.status_code == 400


def test_texts_of_a_refused_batch_can_be_erased(world: World) -> None:
    """Each item's text is one of the event's, by the item's place; all of them, or some."""
    body = items(grant("0.1", purpose="one"), grant("9", purpose="two"))
    sequence = world.post("/batch", body, key="k").json()["sequence"]
    erase = f"/events/{sequence}/erase"
    some = world.call("POST", erase, {"reason": "r", "fields": ["items.0.purpose"]}, who="admin")
    assert some.json()["erased"] == ["items.0.purpose"]
    rest = world.call("POST", erase, {"reason": "r"}, who="admin")
    assert rest.json()["erased"] == ["items.1.purpose"]
    assert world.get(f"/decisions/d{sequence}").json()["request"]["purpose"] == "(erased)"
    assert world.post("/batch", body, key="k").status_code == 403
    sound(world)
