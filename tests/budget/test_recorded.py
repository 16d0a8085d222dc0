"""What is read of an event's bytes alone, for replay, is what is read of the event."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest
from support import SECOND, Book, hospital, laplace, last_replay, sparse_vector

from accountant.budget.commands.recorded import asked_in
from accountant.budget.facts import grant_in
from accountant.budget.state import envelope_of
from accountant.ledger.events import Event


def spent() -> Book:
    """A ledger in which all commands that are read plainly, and some others, were answered."""
    book = hospital(
        "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n", {"sex": ["f", "m", "männlich"]}
    )
    book.dataset("e")
    first = grant_in(book.grant(laplace("0.3", 2), subjects={"sex": ["f"]}, purpose="x"))
    book.do("commit_grant", grant=first, mechanisms=[laplace("0.3")], key="commit")
    second = grant_in(book.grant(laplace("0.1"), subjects={"sex": ["männlich"]}, ttl_seconds=600))
    book.do("release_grant", grant=second, reason='she said "no"\x01')
    third = grant_in(book.grant(laplace("0.1"), dataset=["d", "e"], justification="why"))
    book.do("commit_grant", grant=third)
    late = grant_in(book.grant(laplace("0.05"), ttl_seconds=5))
    book.now += 9 * SECOND
    book.do("expire_grant", grant=late, by="accountant")
    book.grant(laplace("5"))
    book.do("open_sparse_vector", dataset="e", mechanism=sparse_vector())
    book.record(laplace("0.2"), subjects=[{"sex": ["f"]}, {"sex": ["m"]}])
    book.grant(laplace("0.2"))
    return book


BOOK = spent()
STORED = list(BOOK.stored)
PLAIN = {at for at, body in enumerate(STORED) if asked_in(body) is not None}


def test_it_is_what_the_whole_event_says() -> None:
    """The command, its canonical bytes, its client, key and stamp are those of the event."""
    for at in PLAIN:
        event = Event.from_bytes(STORED[at])
        whole, found = envelope_of(event), asked_in(STORED[at])
        assert found == (whole, event.time)
        [asked, _] = found
        assert (asked.canonical, asked.document) == (whole.canonical, whole.document)
        assert (asked.again, asked.everyone) == (whole.again, whole.everyone)


def test_commands_that_spend_are_read_so() -> None:
    """Requests, records and settlements are: all but what has texts with a backslash."""
    plain = {"ask_grant", "record_invocations", "commit_grant", "release_grant", "expire_grant"}
    wanted = {
        at
        for at, body in enumerate(STORED)
        if orjson.loads(body)["command"]["type"] in plain and b"\\" not in body
    }
    assert wanted == PLAIN
    assert {orjson.loads(STORED[at])["command"]["type"] for at in PLAIN} >= plain - {
        "release_grant"
    }


def _command(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    begins = body.index(b'"command":{') + len(b'"command":')
    return body[:begins] + change(body[begins:])


SPELLED: dict[str, Callable[[bytes], bytes]] = {
    "a space at the end": lambda body: body + b" ",
    "a space before a field": lambda body: body.replace(b',"type"', b', "type"', 1),
    "a space in the command": lambda body: _command(body, lambda rest: b"{ " + rest[1:]),
    "a key of the command twice": lambda body: _command(
        body, lambda rest: b'{"type":"ask_grant",' + rest[1:]
    ),
    "an empty field": lambda body: _command(body, lambda rest: b'{"allotment":null,' + rest[1:]),
    "an unknown field of the command": lambda body: _command(
        body, lambda rest: b'{"a":1,' + rest[1:]
    ),
    "an unknown field": lambda body: b'{"a":1,' + body[1:],
    "a field twice": lambda body: b'{"by":"x",' + body[1:],
    "the type first": lambda body: _first(body, b'"type":'),
    "an escaped letter": lambda body: _escaped(body, b"by"),
    "an escaped letter of the command": lambda body: _escaped(body, b"type"),
    "a stamp without microseconds": lambda body: _stamp(body, lambda stamp: stamp[:19] + b"Z"),
    "a stamp of another zone": lambda body: _stamp(body, lambda stamp: stamp[:-1] + b"+00:00"),
    "a stamp without a zone": lambda body: _stamp(body, lambda stamp: stamp[:-1]),
    "a mark at the beginning": lambda body: b"\xef\xbb\xbf" + body,
    "no UTF-8": lambda body: body.replace(b'"by":"', b'"by":"\xff', 1),
    "a key of the event that is empty": lambda body: b'{"key":null,' + body[1:],
}
"""Changes of the spelling, and fields that say nothing: the same to a careless reader."""


def _escaped(body: bytes, field: bytes) -> bytes:
    """Escape the first letter of a field."""
    at = body.index(b'"' + field + b'":"') + len(field) + 4
    return body[:at] + b"\\u%04x" % body[at] + body[at + 1 :]


def _first(body: bytes, name: bytes) -> bytes:
    """Move the last field to the beginning."""
    at = body.rindex(b"," + name)
    return b"{" + body[at + 1 : -1] + b"," + body[1:at] + b"}"


def _stamp(body: bytes, change: Callable[[bytes], bytes]) -> bytes:
    at = body.index(b'"time":"') + len(b'"time":"')
    end = body.index(b'"', at)
    return body[:at] + change(body[at:end]) + body[end:]


@pytest.mark.parametrize("change", SPELLED.values(), ids=SPELLED)
def test_any_other_spelling_is_found(change: Callable[[bytes], bytes]) -> None:
    """An event is its canonical bytes: spelled otherwise, it is a finding at its place."""
    for at in PLAIN:
        bodies = [*STORED[:at], change(STORED[at]), *STORED[at + 1 :]]
        found = last_replay(BOOK.name, bodies).findings
        assert found
        assert found[0].sequence == at


@pytest.mark.parametrize("number", [b"600.0", b"6e2", b"0600", b"+600", b'"600"', b"3600"])
def test_numbers_are_spelled_in_one_way(number: bytes) -> None:
    """A number with a point, an exponent, a sign or quotes, and a default, are findings."""
    [at] = [at for at, body in enumerate(STORED) if b'"ttl_seconds":600' in body]
    body = STORED[at].replace(b'"ttl_seconds":600', b'"ttl_seconds":' + number)
    found = last_replay(BOOK.name, [*STORED[:at], body, *STORED[at + 1 :]]).findings
    assert found[0].sequence == at


@pytest.mark.parametrize(
    ("kind", "field"), [("ask_grant", b'"subjects"'), ("commit_grant", b'"mechanisms"')]
)
def test_a_long_field_that_is_null_is_found(kind: str, field: bytes) -> None:
    """A group, or a list of mechanisms, is left out where there is none: null is not canonical."""
    named = b'"type":"%b"' % kind.encode()
    at = next(at for at in PLAIN if named in STORED[at] and field not in STORED[at])
    body = STORED[at].replace(named, field + b":null," + named)
    found = last_replay(BOOK.name, [*STORED[:at], body, *STORED[at + 1 :]]).findings
    assert found[0].sequence == at
