"""Short requests over plain HTTP, each in one write.

For an ``http:`` address that is called without a proxy, ``Plain`` stands before httpx2's client. It
sends a short request with h11 alone, which speaks the protocol for httpx2 too. That takes half of
the processor time, and wakes the service once: httpx2 writes head and body apart. Everything else
(TLS, proxies, queries, long bodies, answers that go into a file) is left to httpx2. An answer is an
``httpx2.Response`` either way, and a failure one of its errors. Cookies are not kept.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from typing import Any, Final
from urllib.request import getproxies

import h11
import httpx2

_SHORT: Final = 65_536  # Bytes of a body
_PART: Final = 65_536  # Bytes that are read at once
_HEAD: Final = 102_400  # Bytes of an answer's head, as in httpx2
_IDLE: Final = 5.0  # Seconds after which a silent connection is not used again, as in httpx2
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")  # Written as it is in any case

Fields = list[tuple[bytes, bytes]]


def opened(url: str, options: Mapping[str, Any]) -> httpx2.Client | Plain:
    """Return what calls the service at ``url``, with these options of ``httpx2.Client``."""
    simple = isinstance(options["timeout"], float | int | None) and "transport" not in options
    if simple and url.startswith("http:") and not getproxies().keys() & {"http", "all"}:
        return Plain(url, options)
    return httpx2.Client(**options)


class Plain:
    """Calls the service at ``url``: for short requests itself, by httpx2 for all others. Like
    httpx2's client it may be shared by threads: a request under way has a connection of its own.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        parsed = httpx2.URL(url)
        self._options, self._seconds = options, options["timeout"]
        self._place = parsed.raw_host.decode(), parsed.port or 80
        self._root = "http://" + url.removeprefix("http://").partition("/")[0]
        agent = b"python-httpx2/" + httpx2.__version__.encode()
        given = _encoded(options.get("headers", {}))
        self._always = [(b"Host", parsed.netloc), (b"User-Agent", agent), *given]
        self._idle: list[_Line] = []
        self._other: httpx2.Client | None = None
        self._lock = Lock()

    @property
    def _others(self) -> httpx2.Client:
        """The client of all other requests, made for the first: that takes longer than sending."""
        with self._lock:
            self._other = self._other or httpx2.Client(**self._options)
            return self._other

    def stream(self, **request: Any) -> AbstractContextManager[httpx2.Response]:
        """Send a request by httpx2, whose answer is read in parts."""
        return self._others.stream(**request)

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None = None,
        **more: Any,
    ) -> httpx2.Response:
        """Send a request, and return its answer with the body. Raise httpx2.RequestError."""
        path = url.removeprefix(self._root)
        if more or not _PATH.fullmatch(path) or len(content or b"") > _SHORT:
            return self._others.request(method, url, headers=headers, content=content, **more)
        fields = [*self._always, *_encoded(headers)]
        if content is not None:
            fields.append((b"Content-Length", b"%d" % len(content)))
        line = self._line()
        try:
            head, body = line.ask(method, path, fields, content or b"")
        except BaseException:
            line.close()
            raise
        if line.goes_on():
            self._idle.append(line)
        else:
            line.close()
        answer = httpx2.Response(
            head.status_code, headers=head.headers.raw_items(), stream=httpx2.ByteStream(body)
        )
        answer.read()
        if not answer.is_success:  # a problem is told without the key of its request
            answer.request = httpx2.Request(method, url, headers=fields)
        return answer

    def _line(self) -> _Line:
        """Return a connection that is open, as far as is known, or a new one."""
        while (line := self._waiting()) is not None:
            if line.silent():
                return line
            line.close()
        with _told(httpx2.ConnectTimeout, httpx2.ConnectError):
            opened = socket.create_connection(self._place, self._seconds)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Line(opened, self._seconds)

    def _waiting(self) -> _Line | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def close(self) -> None:
        """Close the connections."""
        while (line := self._waiting()) is not None:
            line.close()
        if self._other is not None:
            self._other.close()


class _Line:
    """A connection, and what was said on it."""

    def __init__(self, opened: socket.socket, seconds: float | None) -> None:
        self._socket, self._seconds = opened, seconds
        self._said = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD)
        self._used = 0.0

    def ask(
        self, method: str, path: str, fields: Fields, content: bytes
    ) -> tuple[h11.Response, bytes]:
        """Return the head and the body of the answer. Raise httpx2.TransportError."""
        with _told(httpx2.WriteTimeout, httpx2.WriteError):
            asked = h11.Request(method=method, target=path, headers=fields)
            events = asked, h11.Data(data=content), h11.EndOfMessage()
            written = b"".join([self._said.send(event) or b"" for event in events])
            with suppress(ConnectionError):  # the service may have refused it, and said why
                self._socket.sendall(written)
        with _told(httpx2.ReadTimeout, httpx2.ReadError):
            while isinstance(head := self._next(), h11.InformationalResponse):
                pass
            parts = []
            while isinstance(part := self._next(), h11.Data):
                parts.append(part.data)
        self._used = time.monotonic()
        return head, b"".join(parts)

    def _next(self) -> Any:
        while (event := self._said.next_event()) is h11.NEED_DATA:
            data = self._socket.recv(_PART)
            if not data and self._said.their_state is h11.SEND_RESPONSE:
                raise httpx2.RemoteProtocolError("the service closed without an answer")
            self._said.receive_data(data)
        return event

    def goes_on(self) -> bool:
        """Make ready for the next request; return whether there can be one."""
        if not (self._said.our_state is self._said.their_state is h11.DONE):
            return False
        self._said.start_next_cycle()
        return True

    def silent(self) -> bool:
        """Return whether nothing has come since the last answer, neither bytes nor the end."""
        if time.monotonic() > self._used + _IDLE:
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            self._socket.settimeout(self._seconds)
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _encoded(headers: Mapping[str, str]) -> Fields:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@contextmanager
def _told(late: type[httpx2.TimeoutException], failed: type[httpx2.NetworkError]) -> Iterator[None]:
    """Raise the errors of sockets and of the protocol as httpx2's."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise failed(str(error)) from error
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError(str(error)) from error
    except h11.RemoteProtocolError as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
