"""One connection: reads requests, hands them on and answers them, one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from accountant.door.keys import NO_KEY, secret_of
from accountant.door.messages import CONTINUE, Refused, Reply, Request, shown, wire
from accountant.door.places import SMALL, Line, busy
from accountant.door.reading import END, HEAD_BYTES, Chunks, Head, check_begun
from accountant.door.sending import Sending

if TYPE_CHECKING:
    from accountant.door.server import Door

_AHEAD: Final = 65_536  # Bytes of later requests that are read before the present one is answered
_PART: Final = 16_384  # Bytes of an answer that a client must read in time; else it is cut
_HEADER: Final = "Authorization"
_GUESSED: Final = "too many wrong API keys came from this address; come again in {} seconds"
_UNREADABLE: Final = "the database cannot be read; try again with the same Idempotency-Key"
_log = structlog.get_logger()


class State(IntEnum):
    """The event that a connection waits for."""

    HEAD = 0
    BODY = 1
    REPLY = 2  # Or a lookup of the key
    READER = 3  # The client reads its answer
    END = 4


class Exchange:
    """A request that waits for its reply. Called with the reply, in any thread."""

    __slots__ = ("connection", "head", "id", "started", "trace")

    def __init__(self, connection: Connection, head: Head | None) -> None:
        self.connection, self.head = connection, head
        self.started = time.perf_counter()
        self.id, self.trace = (head.request_id, head.trace) if head else ("", "")
        if not (self.id and self.trace):
            own = next(connection.door.ids)
            self.id = self.id or own
            self.trace = self.trace or f"00-{connection.door.run}{own}-{own}-00"

    def __call__(self, reply: Reply) -> None:
        """Hand the reply to the loop's thread."""
        self.connection.door.hand_over(self, reply)

    @property
    def address(self) -> str:
        """The address of the client."""
        return self.connection.address

    def gone(self) -> bool:
        """Return whether the client has ended its side, for work of minutes: it will hardly wait.
        Called in any thread.
        """
        return self.connection.ended


class Connection(asyncio.Protocol):
    """A connection with a client at ``address``."""

    __slots__ = (
        "_blocked", "_body", "_buffer", "_chunks", "_eof", "_exchange", "_last_unsent",
        "_paused", "_searched", "_sending", "_skipped", "_state", "_transport", "address", "door",
        "fileno", "held", "line",
    )  # fmt: skip

    def __init__(self, door: Door, address: str, fileno: int) -> None:
        self.door, self.address, self.fileno = door, address, fileno
        self.line: Line | None = None
        self.held = 0
        self._state = State.HEAD
        self._buffer = bytearray()
        self._searched = 0
        self._skipped = 0  # Bytes of empty lines before the request
        self._chunks: Chunks | None = None
        self._body = 0  # Bytes of a large body that is being answered
        self._exchange: Exchange | None = None
        self._sending: Sending | None = None  # An answer that is sent from a file
        self._eof = self._paused = self._blocked = False
        self._last_unsent = 0

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_AHEAD)
        self._wait_in(self.door.places.silent)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._state is State.END:
            return
        self._buffer += data
        if self._state is State.HEAD or self._state is State.BODY:
            self._go_on()
        elif len(self._buffer) > _AHEAD:
            if not self._paused and not self._transport.is_closing():
                self._paused = True
                self._transport.pause_reading()
            self._count()

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still wait for answers."""
        self._eof = True
        waits = self._buffer or self._exchange or self._blocked or self._sending
        if self._state is State.END or not waits:
            return False
        self._go_on()
        return True

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        self._blocked, self._last_unsent = True, self.unsent()
        if self._sending is not None:
            self._sending.wait()
        self._wait_in(self.door.places.unread)
        self.door.places.relieve_unread()

    def resume_writing(self) -> None:
        """The client has read most of its answer."""
        self._blocked = False
        if self._sending is not None:
            self._wait_in(None)
            self._sending.go_on()
        elif self._state is State.END:
            self._wait_in(self.door.places.lingering)
        elif self._state is State.READER:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._state = State.END
        self._buffer.clear()
        self._chunks, self._body = None, 0
        if self._sending is not None:
            self._sending.go_on()
        self._wait_in(None)
        self.door.places.hold(self, 0)
        self.door.lost(self)

    # Reading

    def _go_on(self) -> None:
        """Read at the end of this turn of the loop: requests of one turn are decided together."""
        self.door.read_soon(self)

    def guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do ``work``; if it fails, cut this connection only."""
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001 other connections go on
            _log.error("a connection failed", exc_info=error)
            self.abort()

    def read(self) -> None:
        """Read as far as the received bytes reach."""
        try:
            if self._state is State.HEAD:
                self._read_head()
            elif self._state is State.BODY:
                self._read_body()
        except Refused as refusal:
            self.refuse(refusal)
        if self._eof and self._state in (State.HEAD, State.BODY):
            self.close()  # the rest of the request will not come
        if self._buffer or self.held or self._body or self._chunks is not None:
            self._count()

    def _read_head(self) -> None:
        buffer = self._buffer
        while buffer.startswith(b"\r\n") and self._skipped <= HEAD_BYTES:
            del buffer[:2]
            self._skipped += 2
        end = buffer.find(END, self._searched, HEAD_BYTES)
        if end < 0:
            if max(len(buffer), self._skipped) >= HEAD_BYTES:
                detail = f"the head of a request has at most {HEAD_BYTES} bytes"
                raise Refused("header-too-large", 431, detail)
            if not buffer:
                return
            check_begun(buffer, max(0, self._searched - 1))
            self._searched = max(0, len(buffer) - 3)
            if self.line is not self.door.places.heads:
                self._wait_in(self.door.places.heads)
            return
        self._searched = self._skipped = 0
        head = Head(self._cut(end + len(END)))
        self._exchange = Exchange(self, head)
        self._check(head)

    def _check(self, head: Head) -> None:
        """Check a request before its body is read. Raise Refused."""
        door, length = self.door, head.length
        head.check(door.settings.max_body_bytes)
        whole = length is not None and len(self._buffer) >= length
        limited = bool(head.authorization) and door.attempts.wait(self.address) > 0
        if (whole and not limited) or door.keys.known(head.authorization) or head.is_form():
            self._admit(head)
        elif not secret_of(head.authorization):
            raise Refused("unauthenticated", 401, NO_KEY.format(_HEADER), closes=False)
        else:
            self._wait_for_reply()
            door.start(self._look_up(head, limited=limited))

    async def _look_up(self, head: Head, *, limited: bool) -> None:
        """Admit the request if its key is valid by now."""
        valid = await self.door.keys.valid(head.authorization, limited=limited)
        if self._state is not State.REPLY:
            return
        try:
            if valid is None:
                raise Refused("storage-failed", 503, _UNREADABLE, closes=False)
            if valid:
                self._admit(head)
            elif wait := self.door.attempts.wait(self.address):
                text = _GUESSED.format(wait)
                raise Refused("too-many-wrong-keys", 429, text, closes=False, seconds=wait)
            else:
                text = self.door.keys.why_not(head.authorization)
                raise Refused("unauthenticated", 401, text, closes=False)
        except Refused as refusal:
            self.refuse(refusal)
        self._resume()
        self.guarded(self.read)
        self.door.hand_on()

    def _admit(self, head: Head) -> None:
        """Take the request once its body is there."""
        self._state = State.BODY
        self._chunks = Chunks(self.door.settings.max_body_bytes) if head.length is None else None
        self._read_body()
        if self._state is State.BODY:
            self._wait_in(self.door.places.bodies)
            if head.continues and not self._buffer:
                self._transport.write(CONTINUE)

    def _read_body(self) -> None:
        exchange = self._exchange
        if exchange is None or exchange.head is None:
            return
        if self._chunks is not None:
            if self._chunks.feed(self._buffer):
                body, self._chunks = bytes(self._chunks.body), None
                self._take(exchange, exchange.head, body)
        elif exchange.head.length is not None and len(self._buffer) >= exchange.head.length:
            self._take(exchange, exchange.head, self._cut(exchange.head.length))

    def _cut(self, length: int) -> bytes:
        part = bytes(self._buffer[:length])
        del self._buffer[:length]
        return part

    def _take(self, exchange: Exchange, head: Head, body: bytes) -> None:
        """Hand on a complete request."""
        places = self.door.places
        self._wait_for_reply()
        if len(body) > SMALL:
            places.hold(self, len(self._buffer))
            if not places.room_for(len(body)):
                raise busy()
            self._body = len(body)
        method = "GET" if head.method == "HEAD" else head.method
        request = Request(
            exchange.id, method, head.path, head.raw_path, head.query, head.fields, body,
            exchange.trace,
        )  # fmt: skip
        self.door.arrived.append((request, exchange))

    def _wait_for_reply(self) -> None:
        self._state = State.REPLY
        self._wait_in(None)

    def _wait_in(self, line: Line | None) -> None:
        self.door.places.move(self, line)

    def _count(self) -> None:
        size = len(self._buffer) + self._body
        if self._chunks is not None:
            size += len(self._chunks.body)
        if size or self.held:
            self.door.places.hold(self, size)

    # Answering

    def refuse(self, refusal: Refused) -> None:
        """Answer without reading the body, which is skipped if it is there already."""
        self._exchange = self._exchange or Exchange(self, None)
        head = self._exchange.head
        length, closes = head.length if head else None, refusal.closes
        if closes or length is None or self._state is State.BODY or len(self._buffer) < length:
            self._buffer.clear()
            self._chunks, closes = None, True
        else:
            self._cut(length)
        self._wait_in(None)
        self.answer(self._exchange, refusal.reply(), closes=closes)

    def answer(self, exchange: Exchange, reply: Reply, *, closes: bool = False) -> None:
        """Write a reply, and go on with what has arrived meanwhile."""
        if exchange is not self._exchange:
            reply.drop()
            return
        self._exchange, self._body = None, 0
        head = exchange.head
        method, path = (head.method, shown(head.path)) if head and not head.misplaced else ("", "")
        took = time.perf_counter() - exchange.started
        ids = exchange.id, exchange.trace
        self.door.log.note(method, path, reply.status, ids, reply.client, took, reply.facts)
        self.door.latencies.observe(method, path, reply.status, took)
        sent = head.authorization if head else ""
        if reply.status == 401 and sent and not self.door.keys.expired(sent):
            self.door.attempts.wrong(self.address)
        if self._state is State.END:
            reply.drop()
            return
        self._state = State.READER
        closes = closes or self.door.stopping or head is None or not head.keep_alive
        http11 = head is None or head.http11
        bodiless = head is not None and head.method == "HEAD"
        self._transport.write(
            wire(
                reply,
                exchange.id,
                exchange.trace,
                closes=closes,
                http11=http11,
                bodiless=bodiless,
            )
        )
        if reply.file is not None and not bodiless:
            self._sending = Sending(self._transport, reply.file)
            if self._blocked:
                self._sending.wait()
            self.door.start(self._send(self._sending, closes=closes))
            return
        reply.drop()
        self._sent(closes=closes)

    async def _send(self, sending: Sending, *, closes: bool) -> None:
        """Write the rest of an answer. If it cannot be read, cut it: it would look whole."""
        try:
            whole = await sending.run()
        except Exception as error:  # noqa: BLE001 other connections go on
            _log.error("an answer could not be read", exc_info=error)
            self.abort()
            return
        finally:
            self._sending = None
        if whole and self._state is not State.END:
            self.guarded(partial(self._sent, closes=closes))

    def _sent(self, *, closes: bool) -> None:
        """Go on after an answer that is written."""
        if closes or (self._eof and not self._buffer):
            self._finish()
        elif not self._blocked:
            self._next()

    def _next(self) -> None:
        self._state = State.HEAD
        self._wait_in(self.door.places.idle)
        self._resume()
        if self._buffer or self._eof:
            self._go_on()
        elif self.held:
            self._count()

    def _finish(self) -> None:
        """End after the written bytes. Read on for a while, so that no reset overtakes them."""
        self._state = State.END
        self._buffer.clear()
        self._count()
        if self._eof or self._transport.is_closing():
            self._transport.close()
            return
        self._transport.write_eof()
        self._resume()
        if not self._blocked:
            self._wait_in(self.door.places.lingering)

    # Ending

    @property
    def ended(self) -> bool:
        """Whether the client has gone, or sends nothing more."""
        return self._eof or self._state is State.END

    def unsent(self) -> int:
        """Return the number of bytes that are written and not sent."""
        return self._transport.get_write_buffer_size()

    def reads_on(self) -> bool:
        """Return whether the client has read a part of its answer since the last call."""
        before, self._last_unsent = self._last_unsent, self.unsent()
        return self._last_unsent <= before - min(_PART, before)

    def close(self) -> None:
        """Close a connection on which no request is under way."""
        self._state = State.END
        self._wait_in(None)
        self._transport.close()

    def abort(self) -> None:
        """Cut the connection; unsent bytes are lost."""
        self._state = State.END
        self._wait_in(None)
        self._transport.abort()

    def _resume(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
