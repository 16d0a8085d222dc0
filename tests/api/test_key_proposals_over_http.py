"""Keys that wait for a second person are read, confirmed and declined over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import Clock, World

from accountant.budget.commands import DAY

KEYS = "/v1/keys/proposals"


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service whose operator has proposed the key of a second officer; its own are old."""
    clock = Clock()
    one = world(clock=clock)
    clock.forward(8 * DAY)
    one.secrets["deputy"] = one.service.credentials.create("deputy", "officer", "operator:ann")
    return one


def call(made: World, method: str, path: str, body: Any = None, who: str = "officer") -> Any:
    """A response of the service to somebody."""
    return made.http.request(method, path, json=body, headers=made.auth(who))


def code(answer: Any) -> str:
    """The code of a problem."""
    return str(answer.json()["type"]).rpartition(":")[2]


def test_a_key_is_valid_once_another_person_confirms_what_they_read(made: World) -> None:
    """By the digest that is shown, to which no secret belongs; a retry is answered alike."""
    assert call(made, "GET", KEYS, who="deputy").status_code == 401
    [one] = call(made, "GET", f"{KEYS}?state=proposed", who="auditor").json()["proposals"]
    shown = call(made, "GET", f"{KEYS}/{one['proposal']}").json()
    assert shown == one
    assert shown["change"] == {"type": "create_key", "name": "deputy", "role": "officer"}
    path = f"{KEYS}/{one['proposal']}/confirm"
    wrong = call(made, "POST", path, {"digest": "0" * 64})
    assert (wrong.status_code, code(wrong)) == (409, "proposal-digest")
    closed = call(made, "POST", path, {"digest": one["digest"]})
    assert (closed.status_code, closed.json()["event"]) == (200, "key.created.v1")
    assert call(made, "POST", path, {"digest": one["digest"]}).json() == closed.json()
    assert call(made, "GET", KEYS, who="deputy").status_code == 200
    assert call(made, "GET", f"{KEYS}?state=proposed").json()["proposals"] == []
    [past] = call(made, "GET", KEYS).json()["proposals"]
    assert (past["state"], past["closed_by"]) == ("confirmed", "officer")
    assert "next" not in past


def test_a_key_is_declined_with_a_reason(made: World) -> None:
    """The reason is needed, and kept beside the event; then nobody confirms the key."""
    [one] = call(made, "GET", KEYS).json()["proposals"]
    path = f"{KEYS}/{one['proposal']}"
    assert call(made, "POST", f"{path}/decline", {}).status_code == 422
    assert call(made, "POST", f"{path}/decline", {"reason": "two are enough"}).status_code == 200
    late = call(made, "POST", f"{path}/confirm", {"digest": one["digest"]})
    assert (late.status_code, code(late)) == (409, "proposal-closed")
    assert call(made, "GET", KEYS, who="deputy").status_code == 401


def test_nobody_makes_themselves_a_key_that_confirms(made: World) -> None:
    """A user of the machine who has a key is one person; pipelines and auditors confirm nothing."""
    made.service.credentials.create("mine", "admin", "operator:officer")
    [mine, _] = call(made, "GET", KEYS).json()["proposals"]
    path, body = f"{KEYS}/{mine['proposal']}/confirm", {"digest": mine["digest"]}
    alone = call(made, "POST", path, body)
    assert (alone.status_code, code(alone)) == (403, "same-person")
    for who in ("pipeline", "auditor"):
        assert code(call(made, "POST", path, body, who)) == "role-not-allowed"
    assert code(call(made, "GET", f"{KEYS}/9999")) == "unknown-proposal"
    assert call(made, "POST", path, body, "admin").status_code == 200
