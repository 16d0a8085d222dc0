"""What passes between the two processes arrives as it was sent."""

from __future__ import annotations

from itertools import pairwise

from accountant.gateway.frames import Frames, Reply, Request, frame, plain, raw
from hypothesis import given
from hypothesis import strategies as st

LATIN = st.text(st.characters(max_codepoint=255), max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HEADERS = st.lists(st.tuples(LATIN, LATIN), max_size=4)
BODY = st.binary(max_size=200)
REQUESTS = st.builds(Request, LATIN, LATIN, TEXT, LATIN, LATIN, HEADERS, BODY)
REPLIES = st.builds(Reply, st.integers(100, 599), st.none() | LATIN, HEADERS, BODY)
NUMBERED = st.tuples(st.integers(0, 2**64 - 1), REQUESTS | REPLIES)


@given(st.lists(NUMBERED, max_size=5), st.data())
def test_messages_survive_any_cut(
    messages: list[tuple[int, Request | Reply]], data: st.DataObject
) -> None:
    """However the stream is cut on its way, the same messages come out, in order, at the latest
    with their last byte.
    """
    stream = b"".join(frame(number, message) for number, message in messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    frames = Frames()
    found = []
    for first, end in pairwise([0, *sorted(cuts), len(stream)]):
        for number, fields in frames.read(stream[first:end]):
            headers = [tuple(header) for header in fields[-2]]
            found.append((number, [*fields[:-2], headers, fields[-1]]))
    assert found == [(number, list(message)) for number, message in messages]


def test_a_message_of_megabytes_comes_in_pieces() -> None:
    """A long body arrives whole, whatever comes before and behind it."""
    long = Reply(200, None, [("content-type", "x")], bytes(5_000_000))
    short = Reply(201, "me", [], b"{}")
    stream = frame(1, short) + frame(2, long) + frame(3, short)
    frames = Frames()
    found = [
        (number, fields[-1])
        for first in range(0, len(stream), 65_536)
        for number, fields in frames.read(stream[first : first + 65_536])
    ]
    assert found == [(1, b"{}"), (2, long.body), (3, b"{}")]


@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=4))
def test_headers_keep_every_byte(headers: list[tuple[bytes, bytes]]) -> None:
    """Whatever bytes a header has, it has them on the other side."""
    assert raw(plain(headers)) == headers
