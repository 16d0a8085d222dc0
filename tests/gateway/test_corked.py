"""Answers go out whole and in order, however many writes they are made of."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import uvicorn
import uvloop
from accountant.gateway.corked import Cork, Corked
from uvicorn.server import ServerState

SECONDS = 10


class Recorder(asyncio.Transport):
    """Notes what is done to it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.done: list[bytes | str] = []

    def write(self, data: Any) -> None:
        """Notes a write."""
        self.done.append(bytes(data))

    def close(self) -> None:
        """Notes the end."""
        self.done.append("closed")


def corked(recorder: Recorder) -> asyncio.Transport:
    """A transport before ``recorder``."""
    return cast("asyncio.Transport", Cork(recorder))


def test_what_is_written_within_one_turn_goes_out_in_one_piece() -> None:
    """Head and body are one write, at the end of the turn; what comes in the next is another."""

    async def run() -> list[bytes | str]:
        recorder = Recorder()
        transport = corked(recorder)
        transport.write(b"head ")
        transport.write(b"body")
        assert recorder.done == []
        await asyncio.sleep(0)
        transport.write(b"next")
        await asyncio.sleep(0)
        assert transport.get_extra_info("peername") == ("127.0.0.1", 1)
        return recorder.done

    assert asyncio.run(run()) == [b"head body", b"next"]


def test_nothing_is_lost_by_closing() -> None:
    """What was written before the end goes out before it, once."""

    async def run() -> list[bytes | str]:
        recorder = Recorder()
        transport = corked(recorder)
        transport.write(b"last words")
        transport.close()
        await asyncio.sleep(0)
        return recorder.done

    assert asyncio.run(run()) == [b"last words", "closed"]


def test_a_long_answer_is_not_copied_to_go_out_with_its_head() -> None:
    """It goes out at once, after what came before."""

    async def run() -> list[bytes | str]:
        recorder, long = Recorder(), bytes(100_000)
        transport = corked(recorder)
        transport.write(b"head")
        transport.write(long)
        assert recorder.done == [b"head", long]
        return recorder.done

    asyncio.run(run())


def test_nothing_is_written_to_who_has_gone() -> None:
    """What was to go to a client that is not there any more goes nowhere."""

    async def run() -> list[bytes | str]:
        recorder = Recorder()
        transport = Cork(recorder)
        transport.write(b"too late")
        transport.gone()
        transport.write(b"later still")
        await asyncio.sleep(0)
        return recorder.done

    assert asyncio.run(run()) == []


def test_who_says_that_nothing_more_comes_gets_what_was_written() -> None:
    """Where a client closes its half just when an answer is written, it gets all of that: the event
    loop closes the connection when it has written what it knows of.
    """

    class Answering(Corked):
        """Answers without being asked, in the turn in which the end comes."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_soon(self.answer)

        def answer(self) -> None:
            """Writes when the end is there, and has not been seen yet."""
            client.shutdown(socket.SHUT_WR)
            self.transport.write(b"head and ")
            self.transport.write(b"body")

    async def run() -> None:
        config = uvicorn.Config(_echo, ws="none", lifespan="off", log_config=None)
        state = ServerState()
        config.load()
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: Answering(config, state, {}), server)
        await asyncio.sleep(0.2)

    client, server = socket.socketpair()
    with client:
        uvloop.run(run())
        assert client.recv(100) == b"head and body"


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    body += scope["path"].encode()
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


def answered(*requests: bytes) -> bytes:
    """All that a server says to ``requests``, sent at once, until it closes."""

    async def run() -> bytes:
        door = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(_echo, http=Corked, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[door]))
        reader, writer = await asyncio.open_connection(*door.getsockname())
        writer.write(b"".join(requests))
        said = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        server.should_exit = True
        await asyncio.wait_for(serving, SECONDS)
        return said

    return asyncio.run(run())


def request(path: str, *headers: str, body: bytes = b"") -> bytes:
    """A request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_requests_on_one_connection_are_answered_in_order() -> None:
    """Requests that were sent without waiting are answered one after another, long bodies too."""
    long = bytes(3_000_000)
    said = answered(request("/1"), request("/2", body=long), request("/3", "connection: close"))
    assert said.count(b"HTTP/1.1 200 OK") == 3
    assert said.index(b"\r\n\r\n/1") < said.index(long + b"/2") < said.index(b"\r\n\r\n/3")
    assert said.endswith(b"/3")


def test_who_asks_first_whether_to_send_is_told_to() -> None:
    """``Expect: 100-continue`` is answered before the body is waited for."""
    said = answered(request("/", "expect: 100-continue", "connection: close", body=b"body "))
    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
    assert said.endswith(b"body /")


def test_what_is_no_request_is_told_so() -> None:
    """A line that is no HTTP gets 400, and the connection is closed."""
    said = answered(b"no such thing\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 400 Bad Request")
