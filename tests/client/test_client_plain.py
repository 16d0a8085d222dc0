"""Short requests over plain HTTP: as httpx2 sends and reads them, but each in one write."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import httpx2
import pytest

from accountant.client import Client, Failed, Unreachable
from accountant.client.plain import Plain, opened

GRANTED: Final = b'{"state": "released", "sequence": 7}'
BODY: Final = b"content-length: %d\r\n\r\n%s" % (len(GRANTED), GRANTED)
FINE: Final = b"HTTP/1.1 200 OK\r\n" + BODY
Script = list[tuple[bytes, str]]


class Scripted:
    """A server that answers the requests it gets with given bytes, one after another, whoever sends
    them. After an answer it may ``close`` the connection, ``reset`` it, or say nothing more. For an
    empty answer that means: instead of one. ``drip``: the bytes come one by one.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.pieces: list[int] = []
        """How often had to be read for each request."""
        self.connections = 0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._door.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with line, suppress(OSError):
            while (request := self._read(line)) is not None:
                with self._lock:
                    self.requests.append(request)
                    answer, then = self.script.pop(0) if self.script else (FINE, "")
                for byte in answer if then == "drip" else b"":
                    line.sendall(bytes([byte]))
                    time.sleep(0.002)
                if then != "drip":
                    line.sendall(answer)
                if then == "reset":
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                if then in ("close", "reset"):
                    return

    def _read(self, line: socket.socket) -> bytes | None:
        data, reads = b"", 0
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            _, said, rest = head.lower().partition(b"content-length: ")
            if end and len(body) >= (int(rest.split(b"\r\n")[0]) if said else 0):
                self.pieces.append(reads)
                return data
            more = line.recv(1 << 20)
            if not more:
                return None
            data, reads = data + more, reads + 1

    def close(self) -> None:
        """Takes nobody any more."""
        self._door.close()


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], Scripted]]:
    """Makes servers with a script."""
    made: list[Scripted] = []

    def make(script: Script) -> Scripted:
        made.append(Scripted(script))
        return made[-1]

    yield make
    for one in made:
        one.close()


def caller(url: str, **more: Any) -> Client:
    """A client that waits little."""
    return Client(url, "ak_key", "people", **({"timeout": 0.5, "backoff": 0.001} | more))


GZIPPED: Final = gzip.compress(GRANTED)
ANSWERS: Final[dict[str, tuple[bytes, str]]] = {
    "plain": (FINE, ""),
    "slow": (FINE, "drip"),
    "last": (b"HTTP/1.1 201 Created\r\nConnection: close\r\n" + BODY, "close"),
    "old": (b"HTTP/1.0 200 OK\r\n" + BODY, "close"),
    "without a length": (b"HTTP/1.1 200 OK\r\n\r\n" + GRANTED, "close"),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
    "without a reason": (b"HTTP/1.1 200\r\n" + BODY, ""),
    "in chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"9;x=y\r\n%b\r\n1b\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (GRANTED[:9], GRANTED[9:]),
        "",
    ),
    "compressed": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(GZIPPED), GZIPPED),
        "",
    ),
    "after a hundred": (b"HTTP/1.1 100 Continue\r\n\r\n" + FINE, ""),
    "after a hint": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + FINE, ""),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n" + FINE, ""),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n" + BODY, ""),
    "a problem": (b"HTTP/1.1 403 Forbidden\r\nX-A: \xe4\r\nx-b:c\r\n" + BODY, ""),
    "elsewhere": (b"HTTP/1.1 308 Moved\r\nLocation: https://other.example/\r\n" + BODY, ""),
    "nothing": (b"", "close"),
    "a reset": (b"", "reset"),
    "silence": (b"", ""),
    "half a head": (FINE[:30], "close"),
    "half a body": (FINE[:-9], "close"),
    "half a body, then silence": (FINE[:-9], ""),
    "half a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n24\r\n{", "close"),
    "no chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", "close"),
    "no HTTP": (b"220 mail.example ESMTP\r\n", "close"),
    "no end of its head": (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000, "close"),
    "no gzip": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n" + BODY, ""),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_short_way_reads_what_httpx2_reads(
    scripted: Callable[[Script], Scripted], name: str
) -> None:
    """Whatever a server does, the short way has the same answer as httpx2, or none where that has
    none; the next request is answered all the same.
    """

    def outcome(client: httpx2.Client | Plain) -> Any:
        try:
            found = client.request("POST", url, headers={"X-One": "1"}, content=b"{}")
        except httpx2.RequestError as error:
            return isinstance(error, httpx2.TimeoutException)
        return found.status_code, found.headers.raw, found.content

    server = scripted([ANSWERS[name]] * 2)
    url, options = server.url + "/v1/some", {"timeout": 0.2, "headers": {"X-Two": "2"}}
    with httpx2.Client(**options) as client:
        expected = outcome(client)
    plain = opened(server.url, options)
    assert isinstance(plain, Plain)
    assert outcome(plain) == expected
    assert outcome(plain)[0] == 200
    plain.close()
    (line, theirs, body), (first, ours, same), _ = map(fields, server.requests)
    assert (first, same) == (line, body)
    assert {field.split(b":")[0] for field in theirs - ours} == {b"accept", *LEFT_OUT}
    assert ours < theirs


LEFT_OUT: Final = {b"accept-encoding", b"connection"}
"""Fields that httpx2 sends: short answers need no compression, and connections stay open anyway."""


def fields(request: bytes) -> tuple[bytes, set[bytes], bytes]:
    """The first line of a request, its fields in any order, and its body."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *rest = head.split(b"\r\n")
    return first, {line.lower() for line in rest}, body


def test_a_request_is_one_write_and_connections_are_used_again(
    scripted: Callable[[Script], Scripted],
) -> None:
    """Short requests go over one connection, each in one piece."""
    server = scripted([])
    with caller(server.url) as client:
        for _ in range(20):
            assert client.release("g1", "not run").state == "released"
    assert server.connections == 1
    assert server.pieces == [1] * 20


@pytest.mark.parametrize("then", ["close", "reset"])
def test_a_connection_that_was_closed_meanwhile_is_not_used(
    scripted: Callable[[Script], Scripted], then: str
) -> None:
    """Where the service has closed an idle connection, the next request takes another at once."""
    server = scripted([(FINE, then), (FINE, ""), (b"", "close"), (FINE, "")])
    with caller(server.url, attempts=1) as client:
        client.release("g1", "not run")
        time.sleep(0.1)
        client.release("g2", "not run")
    assert server.connections == 2
    assert len(server.requests) == 2


def test_a_request_on_a_connection_that_closes_just_then_is_repeated_under_its_key(
    scripted: Callable[[Script], Scripted],
) -> None:
    """An answer that never came, on a connection that had served, is asked for again: the same
    bytes on another connection, with the same idempotency key.
    """
    server = scripted([(FINE, ""), (b"", "close"), (FINE[:40], "reset"), (b"", ""), (FINE, "")])
    with caller(server.url) as client:
        client.release("g1", "not run")
        client.release("g2", "not run")
    _, *tries = server.requests
    assert len(tries) == 4
    assert len(set(tries)) == 1
    assert b"idempotency-key: " in tries[0].lower()


def test_a_refusal_that_comes_before_the_body_is_read(
    scripted: Callable[[Script], Scripted],
) -> None:
    """A server that answers by the head alone and closes is understood, as far as its answer came,
    and one that did not get to answer is out of reach.
    """
    with socket.create_server(("127.0.0.1", 0)) as door:
        nobody = caller(f"http://127.0.0.1:{door.getsockname()[1]}", attempts=2)
    with nobody as client, pytest.raises(Unreachable, match="ConnectError"):
        client.release("g1", "not run")
    server = scripted([(b"HTTP/1.1 413 Large\r\nConnection: close\r\n" + BODY, "close")])
    with caller(server.url) as client, pytest.raises(Failed) as caught:
        client.release("g1", "x" * 60_000)
    assert caught.value.status == 413


def test_what_is_not_plain_is_left_to_httpx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS, a proxy that the environment names, and a transport of the caller's are httpx2's."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200))
    options: dict[str, Any] = {"timeout": 1.0, "verify": False}
    assert isinstance(opened("http://service:8321", options), Plain)
    assert isinstance(opened("https://service", options), httpx2.Client)
    assert isinstance(opened("http://service", options | {"transport": transport}), httpx2.Client)
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert isinstance(opened("http://service:8321", options), httpx2.Client)


def test_long_bodies_queries_and_odd_paths_are_httpx2s(
    scripted: Callable[[Script], Scripted],
) -> None:
    """What the short way does not take arrives as httpx2 sends it."""
    server = scripted([])
    plain = opened(server.url, {"timeout": 1.0})
    for path, more in (
        ("/v1/a", {"content": b"x" * 70_000}),
        ("/v1/a", {"params": {"q": "a b"}}),
        ("/v1/a/../b", {}),
        ("/v1/a%20b?c", {}),
    ):
        assert plain.request("POST", server.url + path, headers={}, **more).status_code == 200
    plain.close()
    lines = [request.split(b" HTTP")[0] for request in server.requests]
    assert lines == [b"POST /v1/a", b"POST /v1/a?q=a+b", b"POST /v1/b", b"POST /v1/a%20b?c"]
    assert len(server.requests[0].partition(b"\r\n\r\n")[2]) == 70_000


def test_threads_share_a_client(scripted: Callable[[Script], Scripted]) -> None:
    """Requests of several threads at once get each its own answer."""
    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
        for text in (b'{"sequence": %d}' % i for i in range(200))
    ]
    server = scripted([(answer, "") for answer in answers])
    plain = opened(server.url, {"timeout": 5.0})

    def several(found: list[int]) -> None:
        for _ in range(25):
            answer = plain.request("POST", f"{server.url}/v1/a", headers={}, content=b"{}")
            found.append(answer.json()["sequence"])

    found: list[int] = []
    threads = [threading.Thread(target=several, args=(found,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain.close()
    assert sorted(found) == list(range(200))
    assert server.connections <= 8
