"""Requests that two programs could read differently are refused, and end the connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from doors import Opened, opened, problem, status
from hypothesis import given
from hypothesis import strategies as st

from accountant.door.messages import Refused
from accountant.door.reading import Chunks, Head

BEHIND = b"GET /behind HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
BAD = {
    "two lengths": POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "the same length twice": POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
    "a list of lengths": POST + b"Content-Length: 4, 4\r\n\r\nabcd",
    "length and chunks": CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "a sign": POST + b"Content-Length: +4\r\n\r\nabcd",
    "a negative length": POST + b"Content-Length: -4\r\n\r\nabcd",
    "hex": POST + b"Content-Length: 0x4\r\n\r\nabcd",
    "no length": POST + b"Content-Length:\r\n\r\nabcd",
    "digits of elsewhere": POST + b"Content-Length: \xb2\r\n\r\nabcd",
    "underscores": POST + b"Content-Length: 1_0\r\n\r\n0123456789",
    "two codings": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks of old": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: x\n\n",
    "bare LF in a head": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "a folded first line": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 4\r\n\r\nabcd",
    "a tab before the colon": POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "no name": b"GET / HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: x\r\nnothing\r\n\r\n",
    "NUL": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "two keys": b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a tab": b"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "no version": b"GET /\r\nHost: x\r\n\r\n",
    "a fragment": b"GET /#a HTTP/1.1\r\nHost: x\r\n\r\n",
    "no path": b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
    "a control character": b"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a method in brackets": b"(GET) / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a size that is none": CHUNKED + b"{key}\r\nxyz\r\n",
    "a size with a sign": CHUNKED + b"{key}\r\n+4\r\nabcd\r\n0\r\n\r\n",
    "a size in Python's spelling": CHUNKED + b"{key}\r\n0x4\r\nabcd\r\n0\r\n\r\n",
    "a size with a space": CHUNKED + b"{key}\r\n 4\r\nabcd\r\n0\r\n\r\n",
    "no size": CHUNKED + b"{key}\r\n\r\nabcd\r\n0\r\n\r\n",
    "a size beyond all": CHUNKED + b"{key}\r\n" + b"f" * 17 + b"\r\nabcd\r\n0\r\n\r\n",
    "a chunk that is too short": CHUNKED + b"{key}\r\n5\r\nabcd\r\n0\r\n\r\n",
    "a chunk that is too long": CHUNKED + b"{key}\r\n3\r\nabcd\r\n0\r\n\r\n",
    "a bare LF behind a size": CHUNKED + b"{key}\r\n4\nabcd\r\n0\r\n\r\n",
    "an endless extension": CHUNKED + b"{key}\r\n4;" + b"a" * 70_000 + b"\r\nabcd\r\n0\r\n\r\n",
    "a bad trailer": CHUNKED + b"{key}\r\n0\r\nno trailer\r\n\r\n",
}
OTHERS = {
    501: POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    505: b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
    417: b"GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n",
}


@pytest.fixture
def door(database: str) -> Iterator[Opened]:
    """A door that echoes requests."""
    with opened(database) as made:
        yield made


@pytest.mark.parametrize("name", BAD)
def test_what_can_be_misread_is_refused(door: Opened, name: str) -> None:
    """400, and nothing that comes behind it is taken for a request."""
    said = door.say(BAD[name].replace(b"{key}\r\n", door.key + b"\r\n") + BEHIND)
    assert status(said) == 400, said
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in said
    assert problem(said)["type"].endswith("http-error")


@pytest.mark.parametrize("code", OTHERS)
def test_what_is_not_spoken_is_said(door: Opened, code: int) -> None:
    """Another version, another coding, another expectation."""
    said = door.say(OTHERS[code] + BEHIND)
    assert status(said) == code
    assert said.count(b"\r\nx-request-id: ") == 1


@given(st.binary(max_size=200), st.booleans())
def test_no_head_is_read_by_accident(data: bytes, ends: bool) -> None:
    """Any bytes are a head or are refused: nothing else is raised."""
    with suppress(Refused):
        head = Head(b"GET / HTTP/1.1\r\nHost: x" + data + (b"\r\n\r\n" if ends else b""))
        assert head.path == "/"


PARTS = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


@given(PARTS, st.data())
def test_chunks_survive_any_cut(parts: list[bytes], data: st.DataObject) -> None:
    """However the stream is cut, the body is the same, and later bytes stay in the buffer."""
    wire = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts)
    wire += b"0\r\nTrailer: x\r\n\r\n"
    cuts = data.draw(st.lists(st.integers(0, len(wire) - 1), max_size=8))
    chunks, buffer, done = Chunks(10_000), bytearray(), False
    for first, end in pairwise([0, *sorted(cuts), len(wire)]):
        buffer += wire[first:end]
        if end == len(wire):
            buffer += b"behind"
        done = done or chunks.feed(buffer)
    assert done
    assert chunks.body == b"".join(parts)
    assert buffer == b"behind"


@given(st.binary(max_size=60), st.data())
def test_no_chunks_are_read_by_accident(stream: bytes, data: st.DataObject) -> None:
    """Any bytes in any pieces are chunks, or are refused, or are incomplete."""
    buffer, chunks = bytearray(), Chunks(1_000)
    cut = data.draw(st.integers(0, len(stream)))
    with suppress(Refused):
        for piece in (stream[:cut], stream[cut:]):
            buffer += piece
            if chunks.feed(buffer):
                break
    assert len(chunks.body) <= 60
