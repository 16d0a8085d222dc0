"""Answers from files: whole, in little memory, and closed whatever the client does."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from typing import Any

import pytest
from doors import answer, everything, opened, status, until

from accountant.door.sending import PART, FileResponse

WHOLE = bytes(range(256)) * 80_000
SIZE = len(WHOLE)


class Watched(io.BytesIO):
    """A file that tells how far it was read; reading past ``broken`` fails."""

    def __init__(self, broken: int | None) -> None:
        super().__init__(WHOLE)
        self.broken = broken

    def read(self, most: int | None = -1) -> bytes:
        """Read a part."""
        if self.broken is not None and self.tell() >= self.broken:
            raise OSError(5, "Input/output error")
        return super().read(most)


class Files:
    """An application that answers /file with a file, and everything else shortly."""

    def __init__(self, *, broken: int | None = None) -> None:
        self.broken, self.made = broken, list[Watched]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["path"] == "/file":
            self.made.append(Watched(self.broken))
            response = FileResponse(self.made[-1], SIZE, "application/x-tar", {})
            await response(scope, receive, send)
            return
        head = {"status": 200, "headers": [(b"content-length", b"2")]}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": b"ok"})

    def closed(self) -> bool:
        """All files are closed."""
        return all(file.closed for file in self.made)


def ask(*paths: bytes, method: bytes = b"GET") -> bytes:
    """Requests on one connection."""
    return b"".join(b"%b %b HTTP/1.1\r\nHost: x\r\n\r\n" % (method, path) for path in paths)


def narrow(port: int) -> socket.socket:
    """A connection on which little is on its way."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    return client


def test_a_file_is_sent_whole_and_closed(database: str) -> None:
    """Every byte comes, in order, and the connection goes on with what was asked behind it."""
    app = Files()
    with opened(database, app=app) as door:
        said = door.say(ask(b"/file", b"/next", b"/file"))
        for wanted in (WHOLE, b"ok", WHOLE):
            said = said.partition(b"\r\n\r\n")[2]
            assert said[: len(wanted)] == wanted
            said = said[len(wanted) :]
        assert said == b""
        assert app.closed()
        assert [line["status"] for line in door.lines] == [200] * 3


def test_a_slow_client_holds_a_part_of_it(database: str) -> None:
    """No more is read than the client takes, and others are answered meanwhile."""
    app = Files()
    with opened(database, app=app) as door, narrow(door.port) as slow:
        slow.sendall(ask(b"/file"))
        slow.recv(1_000)
        time.sleep(0.3)
        [file] = app.made
        read = file.tell()
        assert read < 5_000_000  # what the system's buffers hold, and a part
        assert all(one.unsent() <= 2 * PART for one in list(door.door.places.unread))
        began = time.monotonic()
        assert all(status(door.asks()) == 200 for _ in range(20))
        assert time.monotonic() < began + 2
        assert file.tell() == read
        got = 1_000
        while got < SIZE:
            more = len(slow.recv(1 << 20))
            assert more
            got += more
        until(app.closed)


def test_a_client_that_goes_leaves_nothing(database: str) -> None:
    """The file is closed when the client has gone, in the middle or at the beginning."""
    app = Files()
    with opened(database, app=app) as door:
        for parts in (0, 1, 50):
            with narrow(door.port) as client:
                client.sendall(ask(b"/file"))
                for _ in range(parts):
                    assert client.recv(65_536)
        until(lambda: len(app.made) == 3 and app.closed())
        until(lambda: not door.door.places.unread)
        assert status(door.asks()) == 200


def test_a_client_that_does_not_read_is_cut(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time for a part of an answer, as with other answers."""
    monkeypatch.setattr("accountant.door.places.WRITE_SECONDS", 0.5)
    app = Files()
    with opened(database, app=app) as door, narrow(door.port) as stuck:
        stuck.sendall(ask(b"/file"))
        until(lambda: bool(app.made) and app.closed())
        assert len(everything(stuck)) < SIZE


def test_a_file_that_cannot_be_read_on_is_cut(database: str) -> None:
    """The client gets fewer bytes than were announced, and others are served."""
    app = Files(broken=3 * PART)
    with opened(database, app=app) as door:
        with door.connect() as client:
            client.sendall(ask(b"/file"))
            said = everything(client)
        assert status(said) == 200
        assert len(said) <= 3 * PART + 1_000
        assert b"content-length: %d" % SIZE in said
        until(app.closed)
        assert status(door.asks()) == 200


def test_the_head_alone_reads_no_file(database: str) -> None:
    """HEAD is told the length, and the connection goes on."""
    app = Files()
    with opened(database, app=app) as door, door.connect() as client:
        client.sendall(ask(b"/file", method=b"HEAD") + ask(b"/next"))
        said = b""
        while not said.endswith(b"ok"):
            said += client.recv(65_536)
        assert b"content-length: %d" % SIZE in said
        assert len(said) < 2_000
        assert app.closed()


def test_who_sends_nothing_more_gets_the_whole_file(database: str) -> None:
    """A client may end its side and read on; the connection then ends behind the file."""
    app = Files()
    with opened(database, app=app) as door:
        said = door.say(ask(b"/file"))
        assert len(said.partition(b"\r\n\r\n")[2]) == SIZE
        until(app.closed)


def test_an_application_hears_that_its_client_has_gone(database: str) -> None:
    """``gone`` is told while the request is worked on, and not of a client that waits."""
    heard: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(500):
            if scope["state"]["gone"]():
                break
            await asyncio.sleep(0.01 if scope["path"] == "/long" else 0)
        heard.append(scope["state"]["gone"]())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    with opened(database, app=app) as door:
        with door.connect() as client:
            client.sendall(ask(b"/short"))
            assert status(answer(client)) == 200
        with door.connect() as client:
            client.sendall(ask(b"/long"))
            time.sleep(0.1)
        until(lambda: len(heard) == 2)
    assert heard == [False, True]


def test_a_door_that_closes_closes_its_files(database: str) -> None:
    """An answer that is still being sent when the service ends is cut."""
    app = Files()
    with opened(database, app=app) as door:
        client = narrow(door.port)
        client.sendall(ask(b"/file"))
        client.recv(1_000)
    until(app.closed)
    client.close()
