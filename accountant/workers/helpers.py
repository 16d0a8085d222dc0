"""Helper processes: this program again, for what takes another core, or memory that it gives back.

A helper exchanges pickled messages with its parent over a pair of sockets, and ends when its socket
closes. Its receiving thread keeps sending from blocking for long.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Pipe
from multiprocessing.connection import wait as ready
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final

_MOST: Final = 8  # Processes


class HelperError(ChildProcessError):
    """A helper process ended before its work was done."""


def cores() -> int:
    """Return how many processes may compute at once: 1 where helpers are not possible."""
    if os.name != "posix" or not sys.executable:
        return 1
    usable = getattr(os, "sched_getaffinity", None)
    return min(_MOST, len(usable(0)) if usable else os.cpu_count() or 1)


class Helper:
    """One helper process: ``module`` is run as a program, and calls ``Parent``."""

    def __init__(self, module: str) -> None:
        # -P: the same code, wherever that was found, and nothing of the working directory.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYDANTIC_DISABLE_PLUGINS": "__all__",
            "OPENBLAS_NUM_THREADS": "1",
        }
        seldom = map(str, gc.get_threshold())
        self.socket, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 our own program
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), *seldom],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a helper prints goes where errors go
                pass_fds=[theirs.fileno()],
                env=environment,
            )

    def ended(self) -> HelperError:
        """Return the error that the process has ended too early."""
        return HelperError(
            f"a helper process ended too early (exit status {self._process.wait()}), so its work "
            "is not done: try again (a check with --processes 1, if that happens again)"
        )

    def leave(self, seconds: float) -> None:
        """Close the socket, and give the process so long to end by itself."""
        self.socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self) -> None:
        """Kill the process. Called in any thread: whoever waits for its messages is told."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process, and wait until it has ended."""
        self.kill()
        self.socket.close()
        self._process.wait()


class Helpers(ExitStack):
    """A number of helpers, which end with the block."""

    def __init__(self, module: str, count: int) -> None:
        super().__init__()
        self.each: list[Helper] = []
        with ExitStack() as made:
            for _ in range(count):
                self.each.append(Helper(module))
                made.callback(self.each[-1].end)
            self.push(made.pop_all())

    def leave(self, seconds: float) -> None:
        """Let each helper end by itself, for so long; they are killed with the block."""
        for helper in self.each:
            helper.leave(seconds)

    def kill(self) -> None:
        """Kill the processes. Called in any thread: whoever waits for them meets HelperError."""
        for helper in self.each:
            helper.kill()

    def post(self, message: Any, to: int | None = None) -> None:
        """Send a message to one helper, or to all. Raises HelperError."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        for helper in self.each if to is None else [self.each[to]]:
            try:
                helper.socket.send_bytes(data)
            except OSError:
                raise helper.ended() from None

    def exchange(
        self, *, wait: bool = False, patience: float | None = None
    ) -> list[tuple[int, Any]]:
        """Return the messages that came, by helper; ``wait`` for one, for at most ``patience``
        seconds. Raises HelperError.
        """
        came: list[tuple[int, Any]] = []
        sockets = [helper.socket for helper in self.each]
        while found := ready(sockets, patience if wait and not came else 0):
            for number, helper in enumerate(self.each):
                if helper.socket in found:
                    try:
                        came.append((number, helper.socket.recv()))
                    except (EOFError, OSError):
                        raise helper.ended() from None
        return came


class Parent:
    """The process that this one helps. Ctrl-C is left to it. Garbage is collected as seldom as
    there, and never looked for in the modules.
    """

    def __init__(self) -> None:
        gc.freeze()
        gc.set_threshold(*map(int, sys.argv[2:]))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._socket: Connection[Any, Any] = Connection(int(sys.argv[1]))
        self._received: SimpleQueue[Any] = SimpleQueue()
        self._came = Event()
        Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            while True:
                self._received.put(self._socket.recv_bytes())
                self._came.set()
        except (EOFError, OSError):
            self._received.put(None)
            self._came.set()

    def __iter__(self) -> Iterator[Any]:
        while (data := self._received.get()) is not None:
            yield pickle.loads(data)  # noqa: S301 from our own process

    @property
    def waiting(self) -> bool:
        """A message is there, or the end."""
        return not self._received.empty()

    def rest(self, seconds: float) -> None:
        """Do nothing for so long, or until a message is there, or the end."""
        self._came.clear()
        if not self.waiting:
            self._came.wait(seconds)

    def post(self, message: Any) -> None:
        """Send an answer. Where the parent has ended there is nothing left to do: so does this."""
        try:
            self._socket.send(message)
        except (BrokenPipeError, ConnectionResetError):
            sys.exit()
