"""One connection: requests are read, handed on and answered one after another."""

from __future__ import annotations

import asyncio
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

from accountant.door.body import Chunks, too_large
from accountant.door.head import BROKEN_LINE, END, Head, Refused, read_head
from accountant.door.keys import secret_of
from accountant.door.limits import HEAD_BYTES
from accountant.door.messages import Reply, Request
from accountant.door.places import SMALL, Line
from accountant.door.wire import CONTINUE, refused, too_often, wire

if TYPE_CHECKING:
    from accountant.door.server import Door

_AHEAD: Final = 65_536
"""Bytes that are read before the request before them is answered."""
_PART: Final = 16_384
"""Bytes of its answer that a client reads in time, or it does not read."""
_NO_KEY: Final = "send an API key: Authorization: Bearer <key>; `accountant keys create` makes one"
_WRONG_KEY: Final = "the key in Authorization is not valid, or was revoked"
_BUSY: Final = "too many half-sent requests wait; try again in a moment"


class State(IntEnum):
    """What a connection waits for."""

    HEAD = 0
    BODY = 1
    REPLY = 2
    """Or for a look at its key."""
    READER = 3
    """The client has to read its answer first."""
    END = 4


class Exchange:
    """A request that waits for its reply, which may come in any thread."""

    __slots__ = ("connection", "head", "id", "started")

    def __init__(self, connection: Connection, head: Head | None) -> None:
        self.connection, self.head = connection, head
        self.started = time.perf_counter()
        self.id = (head.request_id if head else "") or connection.door.next_id()

    def __call__(self, reply: Reply) -> None:
        """Takes the reply, in any thread."""
        self.connection.door.replies.put(self, reply)

    def log(self, reply: Reply) -> None:
        """Its line in the log."""
        head = self.head
        method, path = (head.method, head.path) if head and not head.misplaced else ("", "")
        took = time.perf_counter() - self.started
        self.connection.door.note(method, path, reply.status, self.id, reply.client, took)


class Connection(asyncio.Protocol):
    """A connection with a client at ``address``."""

    __slots__ = (
        "_blocked", "_body", "_buffer", "_chunks", "_eof", "_exchange", "_last_unsent", "_paused",
        "_searched", "_state", "_transport", "address", "door", "due", "fileno", "held", "line",
    )  # fmt: skip

    def __init__(self, door: Door, address: str, fileno: int) -> None:
        self.door, self.address, self.fileno = door, address, fileno
        self.due = False
        """It goes on in this turn of the loop."""
        self.line: Line | None = None
        self.held = 0
        self._state = State.HEAD
        self._buffer = bytearray()
        self._searched = 0
        self._chunks: Chunks | None = None
        self._body = 0
        """Bytes of a large body that is being answered."""
        self._exchange: Exchange | None = None
        self._eof = self._paused = self._blocked = False
        self._last_unsent = 0

    # -- what the transport says -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_AHEAD)
        self.door.places.move(self, self.door.places.silent)

    def data_received(self, data: bytes) -> None:
        """Bytes have come. All connections go on together at the end of the turn, so that those
        who ask at once are decided at once.
        """
        if self._state is State.END:
            return
        self._buffer += data
        if self._state is State.HEAD or self._state is State.BODY:
            self.door.go_on(self)
        elif len(self._buffer) > _AHEAD:
            self._pause()
            self._count()

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still wait for answers."""
        self._eof = True
        if self._state is State.END or not (self._buffer or self._exchange or self._blocked):
            return False
        self.door.go_on(self)
        return True

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        self._blocked, self._last_unsent = True, self.unsent()
        self.door.places.move(self, self.door.places.unread)
        self.door.places.relieve_unread()

    def resume_writing(self) -> None:
        """It has read most of it."""
        self._blocked = False
        if self._state is State.END:
            self.door.places.move(self, self.door.places.lingering)
        elif self._state is State.READER:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._state = State.END
        self._buffer.clear()
        self._chunks, self._body = None, 0
        self.door.places.move(self, None)
        self.door.places.hold(self, 0)
        self.door.lost(self)

    # -- reading -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Goes on as far as what was received reaches."""
        try:
            if self._state is State.HEAD:
                self._read_head()
            elif self._state is State.BODY:
                self._read_body()
        except Refused as refusal:
            self._refuse(refusal)
        if self._eof and self._state in (State.HEAD, State.BODY):
            self.close()  # what is half there never becomes whole
        self._count()

    def _read_head(self) -> None:
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):
            del buffer[:2]
        if not buffer:
            return
        end = buffer.find(END, self._searched, HEAD_BYTES)
        if end < 0:
            if len(buffer) >= HEAD_BYTES:
                detail = f"the head of a request has at most {HEAD_BYTES} bytes"
                raise Refused("header-too-large", 431, detail)
            if BROKEN_LINE.search(buffer, max(0, self._searched - 1)):
                text = "this is not proper HTTP: a line ends without CRLF"
                raise Refused("http-error", 400, text)
            self._searched = max(0, len(buffer) - 3)
            if self.line is not self.door.places.heads:
                self.door.places.move(self, self.door.places.heads)
            return
        end += len(END)
        data, self._searched = bytes(buffer[:end]), 0
        del buffer[:end]
        head = read_head(data)
        self._exchange = Exchange(self, head)
        self._look(head)

    def _look(self, head: Head) -> None:
        """What can be said of a request before its body is read. Raises Refused."""
        most, length = self.door.limits.body_bytes, head.length
        if head.misplaced:
            raise Refused("misplaced-key", 400, head.misplaced, closes=False)
        if head.encoded:
            text = "send the body as it is, without Content-Encoding"
            raise Refused("encoded-body", 415, text, closes=False)
        if length is not None and length > most:
            raise too_large(most)
        whole = length is not None and len(self._buffer) >= length
        limited = bool(head.authorization) and self.door.attempts.wait(self.address) > 0
        if (whole and not limited) or self.door.keys.known(head.authorization):
            self._admit(head)
        elif not secret_of(head.authorization):
            raise Refused("unauthenticated", 401, _NO_KEY, closes=False)
        else:
            self._wait_for_reply()
            self.door.check(self, head.authorization, look=not limited)

    def checked(self, valid: bool | None) -> None:
        """Whether its key is valid; None if nobody could look."""
        if self._state is not State.REPLY or self._exchange is None:
            return
        try:
            if valid is None:
                text = "the database cannot be read; try again with the same Idempotency-Key"
                raise Refused("storage-failed", 503, text, closes=False)
            if not valid:
                self._refuse_key()
                return
            if self._exchange.head is not None:
                self._admit(self._exchange.head)
        except Refused as refusal:
            self._refuse(refusal)
        self._resume()
        self.advance()

    def _admit(self, head: Head) -> None:
        """Takes the request, or waits for its body."""
        if head.length is not None and len(self._buffer) >= head.length:
            self._take(head, self._cut(head.length))
            return
        self._state = State.BODY
        self._chunks = Chunks(self.door.limits.body_bytes) if head.length is None else None
        self.door.places.move(self, self.door.places.bodies)
        if head.continues and not self._buffer:
            self._transport.write(CONTINUE)
        if self._buffer:
            self._read_body()

    def _read_body(self) -> None:
        head = self._exchange.head if self._exchange else None
        if head is None:
            return
        if self._chunks is not None:
            if self._chunks.feed(self._buffer):
                body, self._chunks = bytes(self._chunks.body), None
                self._take(head, body)
        elif head.length is not None and len(self._buffer) >= head.length:
            self._take(head, self._cut(head.length))

    def _cut(self, length: int) -> bytes:
        if not length:
            return b""
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        return body

    def _take(self, head: Head, body: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        self._wait_for_reply()
        if len(body) > SMALL:
            self.door.places.hold(self, len(self._buffer))
            if not self.door.places.room_for(len(body)):
                raise Refused("too-many-waiting", 503, _BUSY)
            self._body = len(body)
        method = "GET" if head.method == "HEAD" else head.method
        request = Request(
            exchange.id, method, head.path, head.raw_path, head.query, head.fields, body
        )
        self.door.requests.handle(request, exchange)

    def _wait_for_reply(self) -> None:
        self._state = State.REPLY
        self.door.places.move(self, None)

    def _count(self) -> None:
        """Says what is held, for as long as it is not small and about to be answered."""
        size = len(self._buffer) + self._body
        if self._chunks is not None:
            size += len(self._chunks.body)
        if size or self.held:
            self.door.places.hold(self, size)

    # -- answering ---------------------------------------------------------------------------

    def _refuse_key(self) -> None:
        wait = self.door.attempts.wait(self.address)
        if not wait:
            self._refuse(Refused("unauthenticated", 401, _WRONG_KEY, closes=False))
        else:
            self._answer_early(too_often(wait), closes=False)

    def _refuse(self, refusal: Refused) -> None:
        self._answer_early(refused(refusal), closes=refusal.closes)

    def _answer_early(self, reply: Reply, *, closes: bool) -> None:
        """Answers without having read the body, which is skipped if it is there already."""
        self._exchange = self._exchange or Exchange(self, None)
        head = self._exchange.head
        length = head.length if head else None
        if closes or length is None or self._state is State.BODY or len(self._buffer) < length:
            self._buffer.clear()
            self._chunks, closes = None, True
        else:
            self._cut(length)
        self.door.places.move(self, None)
        self.answered(self._exchange, reply, closes=closes)

    def answered(self, exchange: Exchange, reply: Reply, *, closes: bool = False) -> None:
        """Writes a reply, and goes on with what has come meanwhile."""
        if exchange is not self._exchange:
            return
        self._exchange, self._body = None, 0
        exchange.log(reply)
        head = exchange.head
        if reply.status == 401 and head is not None and head.authorization:
            self.door.attempts.wrong(self.address)
        if self._state is State.END:
            return
        self._state = State.READER
        closes = closes or self.door.stopping or head is None or not head.keep_alive
        http11 = head is None or head.http11
        bodiless = head is not None and head.method == "HEAD"
        self._transport.write(
            wire(reply, exchange.id, closes=closes, http11=http11, bodiless=bodiless)
        )
        if closes or (self._eof and not self._buffer):
            self._finish()
        elif not self._blocked:
            self._next()

    def _next(self) -> None:
        self._state = State.HEAD
        self.door.places.move(self, self.door.places.idle)
        self._resume()
        if self._buffer or self._eof:
            self.door.go_on(self)
        elif self.held:
            self._count()

    def _finish(self) -> None:
        """Ends after what was written; reads on for a while, so that no reset overtakes it."""
        self._state = State.END
        self._buffer.clear()
        self._count()
        if self._eof or self._transport.is_closing():
            self._transport.close()
            return
        self._transport.write_eof()
        self._resume()
        if not self._blocked:
            self.door.places.move(self, self.door.places.lingering)

    # -- ending ------------------------------------------------------------------------------

    def too_late(self) -> None:
        """What was begun has not come in time."""
        limits = self.door.limits
        seconds = limits.body_seconds if self._state is State.BODY else limits.head_seconds
        text = f"the request did not come within {seconds:g} seconds"
        self._refuse(Refused("request-timeout", 408, text))

    def give_up(self) -> None:
        """Others need the memory."""
        self._refuse(Refused("too-many-waiting", 503, _BUSY))

    def unsent(self) -> int:
        """Bytes that are written and not sent."""
        return self._transport.get_write_buffer_size()

    def reads_on(self) -> bool:
        """The client has read a part of its answer since this was asked last."""
        before, self._last_unsent = self._last_unsent, self.unsent()
        return self._last_unsent <= before - min(_PART, before)

    def close(self) -> None:
        """Closes a connection on which nothing is under way."""
        self._state = State.END
        self.door.places.move(self, None)
        self._transport.close()

    def abort(self) -> None:
        """Cuts the connection, whatever is unsent."""
        self._state = State.END
        self.door.places.move(self, None)
        self._transport.abort()

    def _pause(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
