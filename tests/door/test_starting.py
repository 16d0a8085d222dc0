"""The door answers before all is there that could be asked for."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx2
import pytest

SECONDS = 10
SERVING = """
import socket, sys
from starlette.responses import PlainTextResponse
from accountant.door.limits import Limits
from accountant.door.messages import replied
from accountant.door.serve import run

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

def take(request, reply):
    if request.path != "/hot":
        return False
    reply(replied(PlainTextResponse("taken")))
    return True

door = socket.create_server(("127.0.0.1", 0))
print(door.getsockname()[1], flush=True)
run(door, make, take, Nobody(), Limits())
"""


class Served:
    """A service that goes on making its application when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        self.url = f"http://127.0.0.1:{int(process.stdout.readline())}"

    def get(self, path: str) -> str:
        """What is answered."""
        return httpx2.get(self.url + path, timeout=SECONDS).text

    def tell(self, word: str) -> None:
        """Tells it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def ended(self) -> tuple[int, str]:
        """Its exit code, and its last words."""
        _, said = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, said


@contextmanager
def started() -> Iterator[Served]:
    """A service whose application is not made yet."""
    command = [sys.executable, "-c", SERVING]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


def test_what_is_taken_does_not_wait_for_the_application() -> None:
    """Who is taken has an answer at once; who needs the application waits, and gets one too."""
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

        def ask() -> None:
            with suppress(httpx2.TransportError):
                served.get("/cold")

        waiting = threading.Thread(target=ask)
        waiting.start()
        assert served.get("/hot") == "taken"
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
