"""The door answers before all is there that could be asked for."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx2
import pytest
from forked import Forked

SECONDS = 10
SERVING = """
import socket, sys, threading, time
from starlette.responses import PlainTextResponse
from accountant.config.settings import Settings
from accountant.door import server
from accountant.door.messages import replied

class Nobody:
    def remembered(self, digest):
        return None
    def refresh(self):
        pass

def make():
    told = sys.stdin.readline()
    if told != "go on\\n":
        raise RuntimeError(told)
    return PlainTextResponse("made")

def take(arrived):
    return [one for one in arrived if not taken(*one)]

def taken(request, reply):
    if request.path == "/thread":  # not a daemon: the interpreter waits for it
        threading.Thread(target=time.sleep, args=(1_000,)).start()
    if request.path in ("/never", "/thread"):
        return True
    if request.path != "/hot":
        return False
    reply(replied(PlainTextResponse("taken")))
    return True

door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
server.STOP_SECONDS = float(sys.argv[1])
server.run(door, make, take, Nobody(), Settings())
"""


class Served:
    """A service that goes on making its application when it is told to."""

    def __init__(self, process: Forked) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def get(self, path: str) -> str:
        """The answer."""
        return httpx2.get(self.url + path, timeout=SECONDS).text

    def ask(self, path: str) -> threading.Thread:
        """Send a request that is never answered; return when the service has taken it."""

        def ask() -> None:
            with suppress(httpx2.TransportError):
                self.get(path)

        waiting = threading.Thread(target=ask)
        waiting.start()
        time.sleep(0.3)
        assert self.get("/hot") == "taken"
        return waiting

    def tell(self, word: str) -> None:
        """Tells it."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def ended(self) -> tuple[int, str]:
        """Its exit code, and its last words."""
        _, said = self.process.communicate(SECONDS)
        return self.process.wait(), said


@contextmanager
def started(stop_seconds: float = 30.0) -> Iterator[Served]:
    """A service whose application is not made yet."""
    with Forked(SERVING, stop_seconds) as process:
        yield Served(process)


def test_what_is_taken_does_not_wait_for_the_application() -> None:
    """The hot path answers at once; other requests wait for the application."""
    with started() as served:
        answers: list[str] = []
        waiting = threading.Thread(target=lambda: answers.append(served.get("/cold")))
        waiting.start()
        assert served.get("/hot") == "taken"
        assert answers == []
        served.tell("go on")
        waiting.join(SECONDS)
        assert answers == ["made"]
        served.process.send_signal(signal.SIGTERM)
        assert served.ended()[0] == 0


def test_without_an_application_it_ends() -> None:
    """If the application cannot be made the service ends and says why, and nobody goes on
    waiting.
    """
    with started() as served:
        waiting = served.ask("/cold")
        served.tell("a module is missing")
        code, said = served.ended()
        assert code == 1
        assert "a module is missing" in said
        waiting.join(SECONDS)
        assert not waiting.is_alive()
        with pytest.raises(httpx2.ConnectError):
            served.get("/hot")


def test_it_can_be_ended_before_the_application_is_made() -> None:
    """A service manager that changes its mind need not kill."""
    with started() as served:
        assert served.get("/hot") == "taken"
        served.process.send_signal(signal.SIGTERM)
        served.tell("go on")
        assert served.ended()[0] == 0


def test_a_second_signal_ends_it_at_once() -> None:
    """After the first signal waiting requests are answered, after the second they are not."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with started() as served:
            served.tell("go on")
            waiting = served.ask("/never")
            served.process.send_signal(number)
            time.sleep(0.5)
            assert served.process.poll() is None
            began = time.monotonic()
            served.process.send_signal(number)
            assert served.ended()[0] == -number
            assert time.monotonic() < began + 1
            waiting.join(SECONDS)


@pytest.mark.parametrize(("path", "code", "least"), [("/never", 0, 1), ("/thread", -14, 2)])
def test_it_ends_within_its_time(path: str, code: int, least: int) -> None:
    """Requests not answered in time are cut; a busy thread is killed with the process."""
    with started(stop_seconds=1) as served:
        served.tell("go on")
        waiting = served.ask(path)
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.ended()[0] == code
        assert least <= time.monotonic() - began < least + 1.5
        waiting.join(SECONDS)
