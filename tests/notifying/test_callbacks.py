"""Callbacks: to whom they go, what they say, how they are signed, and that they come at all."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from receiving import Receiver
from support import Clock, World, ask, laplace

from accountant.cli.common import callbacks_of
from accountant.config.origins import origins_of, refused
from accountant.config.settings import Settings
from accountant.notifying import callbacks
from accountant.notifying.callbacks import PAUSES, Callbacks
from accountant.notifying.webhook import Message, secret_of, signed

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
RULES = "  - {id: a, limit: {epsilon: 2}}\n"


@pytest.fixture
def clock() -> Clock:
    """The clock of ``made``."""
    return Clock()


@pytest.fixture
def made(
    world: Callable[..., World], clock: Clock, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> World:
    """A service whose one limit is used up by the grant g4, and that may call the receiver."""
    made = world(clock).hospital(RULES)
    made.service.callbacks = origins_of(receiver.url)
    monkeypatch.setattr(callbacks, "wall_clock", clock)
    assert made.post("/grants", ask(laplace(2))).json()["id"] == "g4"
    return made


def waits(made: World, receiver: Receiver, **more: Any) -> Any:
    """The answer to a request that waits, and is called back."""
    body = ask(laplace(1), wait="1h", callback=f"{receiver.url}/hook?token=private", **more)
    return made.post("/grants", body, key="k")


def sending(made: World) -> Callbacks:
    """What a job runs."""
    return Callbacks(made.service, made.service.callbacks, secret_of(SECRET))


def test_a_client_is_told_what_became_of_its_wait(made: World, receiver: Receiver) -> None:
    """The id, the outcome and the address, signed; once it was taken nothing more comes."""
    assert waits(made, receiver).status_code == 202
    job = sending(made)
    assert job.send_due() == 0
    made.post("/grants/g4/release", {"reason": "not run"})
    assert job.send_due() == 1
    [(headers, body)] = receiver.got
    told = json.loads(body)
    assert told["type"] == "grant.decided"
    assert told["data"] == {
        "id": "g5",
        "outcome": "admitted",
        "address": "/v1/populations/fair/grants/g5",
    }
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(KEY, content, sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert job.send_due() == 0
    assert made.service.ledgers.callbacks("fair", 2**62) == []


def test_no_event_holds_the_address(made: World, receiver: Receiver) -> None:
    """It stands beside the ledger, and a retry with another one, or none, is the same request."""
    first = waits(made, receiver).json()
    [kept] = made.service.ledgers.callbacks("fair", 2**62)
    assert kept.url.startswith(receiver.url)
    assert b"private" not in made.get("/events").content
    again = made.post("/grants", ask(laplace(1), wait="1h"), key="k")
    assert (again.status_code, again.json()) == (202, first)
    assert len(made.service.ledgers.callbacks("fair", 2**62)) == 1


@pytest.mark.parametrize(
    ("status", "again"), [(500, True), (302, True), (404, True), (410, False), (200, False)]
)
def test_what_was_not_taken_comes_again(
    made: World, receiver: Receiver, clock: Clock, status: int, again: bool
) -> None:
    """After a pause, with the same id and another stamp; a redirect is not followed."""
    waits(made, receiver)
    made.post("/grants/g4/release", {"reason": "not run"})
    receiver.status = status
    job = sending(made)
    job.send_due()
    assert len(receiver.got) == 1
    job.send_due()
    assert len(receiver.got) == 1
    clock.forward(PAUSES[0])
    receiver.status = 204
    job.send_due()
    assert len(receiver.got) == 1 + again
    ids = {headers["webhook-id"] for headers, _ in receiver.got}
    assert len(ids) == 1
    assert made.service.ledgers.callbacks("fair", 2**62) == []


def test_it_is_given_up_after_days(made: World, receiver: Receiver, clock: Clock) -> None:
    """Pauses grow up to six hours; then nobody is asked any more."""
    waits(made, receiver)
    made.post("/grants/g4/release", {"reason": "not run"})
    receiver.status = 503
    job = sending(made)
    for pause in (*PAUSES, 0):
        job.send_due()
        clock.forward(pause)
    assert len(receiver.got) == len(PAUSES) + 1
    assert made.service.ledgers.callbacks("fair", 2**62) == []
    assert list(PAUSES) == sorted(PAUSES)


def test_a_receiver_that_is_away_holds_up_no_grant(
    made: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a message is under way the ledger is written to."""
    waits(made, receiver)
    made.post("/grants/g4/release", {"reason": "not run"})

    def during(*_: Any) -> None:
        assert made.post("/grants", ask(laplace("0.1"))).status_code == 201

    monkeypatch.setattr(callbacks, "post", during)
    assert sending(made).send_due() == 1


def test_a_failed_commit_keeps_no_callback(made: World, receiver: Receiver) -> None:
    """The address is committed with the event, or not at all."""
    with made.service.ledgers.writing("fair") as writing:
        driver = writing.lock().connection
        driver.exec_driver_sql(
            "CREATE TRIGGER full BEFORE INSERT ON event BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        writing.commit()
    assert waits(made, receiver).status_code == 503
    assert made.service.ledgers.callbacks("fair", 2**62) == []


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/hook",
        "http://hooks.example.org/hook",
        "https://hooks.example.org:444/hook",
        "https://user@hooks.example.org/hook",
        "https://hooks.example.org@other.example/hook",
        "https://hooks.example.org\\@other.example/hook",
        "https://hooks.example.org/#a",
        "//hooks.example.org/hook",
        "hooks.example.org/hook",
        "https://hooks.example.org.other.example/",
        "https://hooks.example.org:99999/",
        "https://hööks.example.org/",
        "https://hooks.example.org/a b",
        f"https://hooks.example.org/{'a' * 500}",
    ],
)
def test_only_hosts_that_are_named_are_called(url: str) -> None:
    """Exactly these, over HTTPS, on their ports, without a name in front."""
    allowed = origins_of("hooks.example.org, ops.example.org:8443")
    assert refused("https://HOOKS.example.org/hook?x=1", allowed) is None
    assert refused("https://ops.example.org:8443", allowed) is None
    assert refused(url, allowed)
    assert "names no host" in str(refused("https://hooks.example.org/", frozenset()))


def test_a_service_calls_nobody_by_default(world: Callable[..., World]) -> None:
    """A request that names an address is refused with the reason, and nothing is recorded."""
    made = world().hospital(RULES)
    answer = made.post("/grants", ask(laplace(1), wait="1h", callback="https://a.example/x"))
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("callback-not-allowed")
    assert "ACCOUNTANT_CALLBACK_HOSTS" in answer.json()["detail"]
    item = {"type": "ask_grant"} | ask(laplace(1), callback="https://a.example/x")
    assert made.post("/batch", {"items": [item]}).status_code == 422


def test_settings_that_cannot_be_meant_are_refused() -> None:
    """Hosts without a secret, a secret that is none, and an address in place of a host."""
    for hosts, secret, name in (
        ("a.example", "", "SECRET"),
        ("a.example", "whsec_short", "SECRET"),
        ("a.example", "secret", "SECRET"),
        ("https://a.example/path", SECRET, "HOSTS"),
        ("ftp://a.example", SECRET, "HOSTS"),
    ):
        with pytest.raises(ValueError, match=f"ACCOUNTANT_CALLBACK_{name}") as found:
            callbacks_of(Settings(callback_hosts=hosts, callback_secret=secret))
        assert secret in ("", "secret") or secret not in str(found.value)
    assert callbacks_of(Settings()) == frozenset()
    assert SECRET not in repr(Settings(callback_secret=SECRET))


def test_the_signature_of_the_specification() -> None:
    """The example of Standard Webhooks' documentation, which its libraries test themselves by."""
    key = secret_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    fields = signed(Message("msg_p5jXN8AQM9LWM0D4loKWxJek", body), key, 1_614_265_330)
    assert fields["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("outcome", ["declined", "cancelled", "timed_out"])
def test_every_outcome_is_told(made: World, receiver: Receiver, clock: Clock, outcome: str) -> None:
    """Also that a person declined it, that its client gave it up, and that nothing came of it."""
    asks = RULES + "  - {id: big, action: approve, at_most: {epsilon: 0.5}}\n"
    assert made.policy("policy: p\nrules:\n" + asks).status_code == 200
    made.post("/grants/g4/release", {"reason": "not run"})
    name = waits(made, receiver).json()["id"]
    if outcome == "declined":
        digest = made.get(f"/approvals/{name}").json()["digest"]
        body = {"digest": digest, "reason": "private"}
        assert made.post(f"/approvals/{name}/decline", body, who="officer").status_code == 200
    elif outcome == "cancelled":
        made.post(f"/grants/{name}/release", {"reason": "private"})
    else:
        clock.forward(3_600)
        made.service.expire_due()
    assert sending(made).send_due() == 1
    [(_, body)] = receiver.got  # type: ignore[assignment]
    assert json.loads(body)["data"]["outcome"] == outcome
    assert b"private" not in body  # type: ignore[operator]
