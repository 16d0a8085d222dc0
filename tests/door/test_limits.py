"""Limits on what clients hold, and for how long: no client blocks the others."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack

import pytest
from doors import Opened, answer, everything, in_threads, opened, problem, status, until

from accountant.config.settings import Settings
from accountant.door.reading import HEAD_BYTES

HEAD = b"POST /x HTTP/1.1\r\nHost: x\r\n"


def test_a_head_has_an_end(database: str) -> None:
    """More than 64 KiB before the blank line are 431, as are too many fields; while it comes others
    are answered at once.
    """
    with opened(database) as door, door.connect() as endless:
        endless.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        for _ in range(HEAD_BYTES // 1_024 - 1):
            endless.sendall(b"a" * 1_024)
            began = time.monotonic()
            assert status(door.asks()) == 200
            assert time.monotonic() < began + 1
        endless.sendall(b"a" * 2_048)
        assert status(everything(endless)) == 431
        fields = b"".join(b"a%d: b\r\n" % i for i in range(200))
        assert status(door.say(b"GET / HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n")) == 431
        just = b"GET / HTTP/1.1\r\nHost: x\r\nA: "
        just += b"a" * (HEAD_BYTES - len(just) - 4) + b"\r\n\r\n"
        assert status(door.say(just)) == 200


def test_empty_lines_have_an_end(database: str) -> None:
    """Empty lines before a request count as its head: some are skipped, 64 KiB of them are 431."""
    with opened(database) as door:
        few = b"\r\n" * (HEAD_BYTES // 4)
        for _ in range(4):  # each request may have as many
            few += few[: HEAD_BYTES // 2] + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        assert door.say(few).count(b" 200 ") == 4
        with door.connect() as endless:
            endless.sendall(b"\r\n" * (HEAD_BYTES // 2 + 1))
            assert status(everything(endless)) == 431


def test_an_endless_header_byte_by_byte_costs_little(database: str) -> None:
    """Each byte is looked at once."""
    with opened(database) as door, door.connect() as endless:
        endless.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        endless.sendall(b"GET / HTTP/1.1\r\nA: ")
        began = time.process_time()
        for _ in range(20_000):
            endless.sendall(b"a")
        assert time.process_time() < began + 5
        assert status(door.asks()) == 200


def test_what_begins_has_to_come(database: str) -> None:
    """A head or a body that comes too slowly is 408, however busily it drips."""
    settings = Settings(head_seconds=0.6, body_seconds=0.6)
    with opened(database, settings) as door:
        for begun in (HEAD, HEAD + door.key + b"Content-Length: 50\r\n\r\n"):
            with door.connect() as slow:
                slow.sendall(begun)
                began = time.monotonic()
                slow.settimeout(0.1)
                said = b""
                while not said and time.monotonic() < began + 5:
                    try:
                        slow.sendall(b"a")
                        said = slow.recv(65_536)
                    except TimeoutError:
                        continue
                assert status(said) == 408
                assert 0.5 < time.monotonic() - began < 2
                assert problem(said)["type"].endswith("request-timeout")


def test_what_is_idle_is_closed(database: str) -> None:
    """After a while without a request, quietly, be it before the first one or after."""
    with opened(database, Settings(idle_seconds=0.5)) as door:
        with door.connect() as silent:
            assert everything(silent) == b""
        with door.connect() as idle:
            idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status(answer(idle)) == 200
            assert everything(idle) == b""


def test_a_body_has_a_size(database: str) -> None:
    """413 before it is read if its size is told, else when it is passed."""
    with opened(database, Settings(max_body_bytes=1_000)) as door:
        told = HEAD + door.key + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n"
        assert status(door.say(told, ends=False)) == 413
        chunks = HEAD + door.key + b"Transfer-Encoding: chunked\r\n\r\n" + b"200\r\n" + b"a" * 512
        said = door.say(chunks + b"\r\n200\r\n" + b"a" * 512 + b"\r\n0\r\n\r\n")
        assert problem(said)["type"].endswith("body-too-large")
        long = HEAD + door.key + b"Content-Length: 9000000\r\n\r\n" + b"a" * 9_000_000
        assert status(door.say(long, ends=False)) == 413  # it is read, and no reset overtakes it


def test_half_sent_bodies_hold_little(database: str) -> None:
    """Where they hold too much the oldest is told to come again; small requests go on."""
    with opened(database, Settings(max_held_bytes=2_000_000)) as door, ExitStack() as stack:
        halves = [stack.enter_context(door.connect()) for _ in range(8)]
        for half in halves:
            half.sendall(HEAD + door.key + b"Content-Length: 900000\r\n\r\n" + b"a" * 600_000)
            time.sleep(0.05)
        until(lambda: door.door.places.held <= 2_000_000)
        assert status(door.asks()) == 200
        for half in halves[:5]:
            assert status(everything(half)) == 503
        halves[-1].sendall(b"a" * 300_000)
        assert status(answer(halves[-1])) == 200
    until(lambda: not door.door.places.held)


def test_silent_connections_make_room(database: str) -> None:
    """Where no more connections are to be had, those go first that wait for nothing: more than
    there is room for stop nobody, and what is under way is never cut.
    """
    with opened(database, Settings(max_connections=40)) as door, ExitStack() as stack:
        mine = stack.enter_context(door.connect())
        mine.sendall(HEAD + door.key + b"Content-Length: 4\r\n\r\nbo")
        kept = stack.enter_context(door.connect())
        kept.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(answer(kept)) == 200
        for kind in (b"", b"GET / HT"):
            for _ in range(100):
                silent = stack.enter_context(door.connect())
                silent.sendall(kind)
            time.sleep(1.2)
            for _ in range(50):
                assert status(door.asks()) == 200
        mine.sendall(b"dy")
        assert status(answer(mine)) == 200


def test_no_more_files_reset_nobody(database: str) -> None:
    """While the process can open no file, new connections wait, and open ones go on."""
    with opened(database) as door, door.connect() as mine:
        mine.sendall(HEAD + door.key + b"Content-Length: 4\r\n\r\nbo")
        time.sleep(0.1)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as late:
            late.settimeout(10)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
                late.connect(("127.0.0.1", door.port))
                late.sendall(b"GET /2 HTTP/1.1\r\nHost: x\r\n\r\n")
                time.sleep(0.3)
                mine.sendall(b"dy")
                found = answer(mine)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            assert status(found) == 200
            assert status(answer(late)) == 200


def unread(door: Opened, size: int) -> socket.socket:
    """A client that asks and does not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    client.settimeout(10)
    client.connect(("127.0.0.1", door.port))
    client.sendall(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % size * 3)
    return client


def test_who_does_not_read_is_cut(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not read for a while are cut off; slow readers are not."""
    monkeypatch.setattr("accountant.door.places.WRITE_SECONDS", 0.7)
    with opened(database) as door:
        stuck, slow = unread(door, 8_000_000), unread(door, 8_000_000)
        with stuck, slow:
            until(lambda: len(door.door.places.unread) == 2)
            assert status(door.asks()) == 200
            got = 0
            began = time.monotonic()
            while got < 8_000_000:
                more = len(slow.recv(65_536))
                assert more
                got += more
                time.sleep(0.005)
            assert time.monotonic() > began + 0.5
            until(lambda: len(door.door.places.unread) <= 1, 5)
            assert len(everything(stuck)) < 8_000_000


def test_unread_answers_hold_little(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If clients leave too much unread, the one that has not read for longest is cut off."""
    most = 30_000_000
    monkeypatch.setattr("accountant.door.places.UNSENT_BYTES", most)
    with opened(database) as door, ExitStack() as stack:
        clients = [stack.enter_context(unread(door, 9_000_000)) for _ in range(6)]
        places = door.door.places

        def relieved() -> bool:
            """Some are cut off, and what is left is little enough; how much the system takes off
            the process's hands differs from machine to machine.
            """
            left = list(places.unread)
            return 0 < len(left) < len(clients) and sum(one.unsent() for one in left) <= most

        until(relieved)
        assert status(door.asks()) == 200
        assert len(everything(clients[0])) < 9_000_000


@pytest.mark.parametrize("count", [60])
def test_all_of_it_at_once(database: str, count: int) -> None:
    """Slow heads, half bodies and silent connections together: proper requests are answered."""
    settings = Settings(
        max_connections=64, max_held_bytes=1_000_000, head_seconds=1, body_seconds=1
    )
    with opened(database, settings) as door, ExitStack() as stack:
        for i in range(count):
            bad = stack.enter_context(door.connect())
            body = HEAD + door.key + b"Content-Length: 900000\r\n\r\n" + b"a" * 100_000
            bad.sendall((b"", b"GET / HTTP/1.1\r\nA: b", body)[i % 3])

        statuses: list[int] = []
        work = [lambda: statuses.extend(status(door.asks()) for _ in range(20))] * 4
        for thread in in_threads(work):
            thread.join()
        assert statuses == [200] * 80
