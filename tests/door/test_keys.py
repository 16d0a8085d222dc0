"""The key is looked at before a body is read; keys are kept out of places that are logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from doors import Opened, everything, opened, problem, status, until
from support import World

from accountant.auth.keys import new_secret
from accountant.config.settings import Settings
from accountant.door.keys import Attempts
from accountant.store.opening import open_ledgers

HEAD = b"POST /v1/populations/fair/grants HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"


@pytest.fixture
def door(database: str) -> Iterator[Opened]:
    """A door that echoes requests."""
    with opened(database) as made:
        made.door.attempts = Attempts(seconds=1.5)
        yield made


def wrong() -> bytes:
    """A header with an unknown key."""
    return f"Authorization: Bearer {new_secret()}\r\n".encode()


def test_without_a_key_no_body_is_read(door: Opened) -> None:
    """401 as soon as the head is there, be the key missing or wrong; the connection ends."""
    for header in (b"", wrong(), b"Authorization: Basic abc\r\n", b"Authorization: Bearer\r\n"):
        with door.connect() as connection:
            connection.sendall(HEAD + header + b"Expect: 100-continue\r\n\r\n")
            said = everything(connection)
        assert status(said) == 401, header
        assert b"connection: close" in said
        assert b"www-authenticate: Bearer" in said
        assert b"100 Continue" not in said


def test_a_key_that_was_just_made_is_known(door: Opened, database: str) -> None:
    """A key that another process has just made is valid, also while an address guesses keys."""
    for _ in range(12):
        door.say(HEAD + wrong() + b"\r\n", ends=False)
    ledgers = open_ledgers(database)
    made = type(door.credentials)(ledgers, lambda: time.time_ns() // 1_000)
    secret = made.create("new", "pipeline", "test")
    ledgers.close()
    time.sleep(1.1)
    head = HEAD.replace(b"100000", b"4") + f"Authorization: Bearer {secret}\r\n\r\n".encode()
    assert status(door.say(head, b"body", pause=0.05)) == 200


def test_who_guesses_has_to_wait(door: Opened) -> None:
    """Ten times 401, then 429 with Retry-After; good keys from the same address are taken, and so
    is who has waited.
    """
    said = [door.say(HEAD + wrong() + b"\r\n", ends=False) for _ in range(14)]
    assert [status(one) for one in said] == [401] * 10 + [429] * 4
    assert b"retry-after: " in said[-1]
    assert problem(said[-1])["type"].endswith("too-many-wrong-keys")
    good = HEAD.replace(b"100000", b"4") + door.key + b"\r\nbody"
    assert status(door.say(good)) == 200
    time.sleep(1.6)
    assert status(door.say(HEAD + wrong() + b"\r\n", ends=False)) == 401


def test_guessing_with_small_requests_counts(world: Callable[..., World]) -> None:
    """A wrong key is counted wherever it is found to be wrong."""
    made = world().hospital()
    from accountant.api.app import create_app  # noqa: PLC0415
    from accountant.api.hot import Hot  # noqa: PLC0415

    app = create_app(made.service, made.settings, made.publisher)
    with opened(made.url, Settings(), app, Hot(made.service).take) as door:
        get = b"GET /v1/populations/fair HTTP/1.1\r\nHost: x\r\n"
        said = [status(door.say(get + wrong() + b"\r\n")) for _ in range(12)]
        assert said == [401] * 10 + [429] * 2


@pytest.mark.parametrize("spelled", [str, lambda key: quote(key).replace("acct", "%61cct")])
def test_a_key_in_a_url_is_refused_and_not_logged(
    door: Opened, spelled: Callable[[str], str]
) -> None:
    """400 with a code; neither the path nor the sent X-Request-ID is logged."""
    for path in ("/v1/{}", "/v1?key={}", "/{}/x?y"):
        target = path.format(spelled(door.secret)).encode()
        said = door.say(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(said) == 400
        assert problem(said)["type"].endswith("misplaced-key")
        assert door.secret.encode() not in said
    until(lambda: len(door.lines) == 3)
    assert {line["path"] for line in door.lines} == {""}
    assert door.secret not in str(door.lines)


def test_a_key_as_an_idempotency_key_is_refused(door: Opened) -> None:
    """It would stand in the ledger for ever."""
    small = HEAD.replace(b"100000", b"2") + door.key
    said = door.say(small + f"Idempotency-Key: {door.secret}\r\n\r\n{{}}".encode())
    assert (status(said), problem(said)["type"].rpartition(":")[2]) == (400, "misplaced-key")
    said = door.say(small + f"X-Request-ID: {door.secret}\r\n\r\n{{}}".encode())
    assert status(said) == 200
    assert door.secret.encode() not in said
    until(lambda: len(door.lines) == 2)
    assert door.secret not in str(door.lines)


def test_addresses_are_forgotten() -> None:
    """Many addresses are counted, and not for ever; networks of IPv6 are one."""
    now = [0.0]
    attempts = Attempts(2, 10.0, lambda: now[0])
    for _ in range(2):
        attempts.wrong("2001:db8::1")
    assert attempts.wait("2001:db8::2") == 10
    assert attempts.wait("2001:db8:0:1::1") == 0
    for i in range(10_001):
        attempts.wrong(f"10.0.{i // 256}.{i % 256}")
    assert attempts.wait("2001:db8::2") == 0
    assert len(attempts._seen) == 10_000
    attempts.wrong("10.0.3.3")
    assert attempts.wait("10.0.3.3") == 10
    now[0] = 10.5
    assert attempts.wait("10.0.3.3") == 0
