"""HTTP/1.1 as clients speak it."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from doors import Opened, answer, opened, status
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import accountant


@pytest.fixture(scope="module")
def door(empty_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A door that echoes requests."""
    path = tmp_path_factory.mktemp("door") / "accountant.db"
    path.write_bytes(empty_database.read_bytes())
    with opened(f"sqlite:///{path}") as made:
        yield made


def request(door: Opened, path: str, body: bytes = b"", *headers: str) -> bytes:
    """A request as bytes, with a key."""
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, ""]).encode() + door.key + b"\r\n" + body


def bodies(said: bytes) -> list[dict[str, Any]]:
    """The bodies of the answers, in order."""
    found = []
    while said:
        head, _, said = said.partition(b"\r\n\r\n")
        size = next(int(x[15:]) for x in head.split(b"\r\n") if x.startswith(b"content-length"))
        found.append(json.loads(said[:size]))
        said = said[size:]
    return found


def test_requests_on_one_connection_are_answered_in_order(door: Opened) -> None:
    """Requests that were sent without waiting are answered one after another, long bodies too;
    also where the client has said that nothing more comes.
    """
    long = b"x" * 900_000
    said = door.say(request(door, "/1"), request(door, "/2a", long), request(door, "/3a"))
    assert [one["path"] for one in bodies(said[said.index(b"HTTP", 9) :])] == ["/2a", "/3a"]
    many = door.say(b"".join(request(door, f"/n{i}", b"%d" % i) for i in range(500)))
    assert [one["body"] for one in bodies(many)] == [str(i) for i in range(500)]


@settings(max_examples=examples(15))
@given(data=st.data())
def test_requests_survive_any_cut(door: Opened, data: st.DataObject) -> None:
    """However they are cut on their way."""
    chunked = b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + door.key
    stream = (
        request(door, "/a", b"one") + chunked + b"\r\n3\r\ntwo\r\n0\r\n\r\n" + request(door, "/b")
    )
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    parts = [stream[a:b] for a, b in pairwise([0, *sorted(cuts), len(stream)])]
    said = bodies(door.say(*parts, pause=0.002))
    found = [(one["path"], one["body"]) for one in said]
    assert found == [("/a", "one"), ("/c", "two"), ("/b", "")]


def test_who_asks_first_whether_to_send_is_told_to(door: Opened) -> None:
    """``Expect: 100-continue`` is answered before the body is waited for."""
    with door.connect() as connection:
        connection.sendall(request(door, "/e", b"body", "expect: 100-continue")[:-4])
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"body")
        assert b'"body": "body"' in answer(connection)


def test_head_is_a_get_without_a_body(door: Opened) -> None:
    """The fields say how long the body would be."""
    said = door.say(b"HEAD /h HTTP/1.1\r\nHost: x\r\n\r\nGET /g HTTP/1.1\r\nHost: x\r\n\r\n")
    first, _, second = said.partition(b"\r\n\r\n")
    assert b"content-length: 43" in first
    assert second.startswith(b"HTTP/1.1 200")
    assert b'"path": "/g"' in second
    until_logged = [line["method"] for line in door.lines if line["path"] == "/h"]
    assert until_logged == ["HEAD"]


def test_http_1_0_is_spoken(door: Opened) -> None:
    """It closes, unless it is asked not to."""
    said = door.say(b"GET /o HTTP/1.0\r\n\r\n", ends=False)
    assert b'"path": "/o"' in said
    assert b"connection: close" in said
    old = b"GET /o HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    assert door.say(old + old).count(b"connection: keep-alive") == 2


def test_addresses_and_escapes(door: Opened) -> None:
    """A target may be an address, and have escapes; empty lines before it are skipped."""
    said = door.say(
        b"\r\nGET http://x/a%20b?c HTTP/1.1\r\nHost: x\r\n\r\n"
        b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert [one["path"] for one in bodies(said)] == ["/a b", "/"]


def test_who_closes_its_half_is_answered(door: Opened) -> None:
    """The end may come with the request, or while it is answered."""
    with door.connect() as connection:
        connection.sendall(request(door, "/500000"))
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.05)
        assert answer(connection).endswith(bytes(500_000))


def test_half_a_request_is_none(door: Opened) -> None:
    """A request whose client leaves before its end is not handed on."""
    whole = request(door, "/half", b"body")
    for end in (1, 20, len(whole) - 5, len(whole) - 1):
        assert door.say(whole[:end]) == b""
    assert [line for line in door.lines if line["path"] == "/half"] == []


def test_an_encoded_body_is_refused(door: Opened) -> None:
    """415, and the connection lives on if the body was there."""
    said = door.say(request(door, "/z", b"body", "content-encoding: gzip") + request(door, "/y"))
    assert status(said) == 415
    assert b'"path": "/y"' in said


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python 3.11.0 to 3.11.4, which Debian 12 has, does not match such a pattern where the group
    holds repetitions: the door refused every request (gh-106052).
    """
    possessive = re.compile(r"\)(?:[*+?]|\{[\d,]+\})\+")
    sources = {path: path.read_text() for path in Path(accountant.__file__).parent.rglob("*.py")}
    assert len(sources) > 100
    assert [str(path) for path, text in sources.items() if possessive.search(text)] == []
