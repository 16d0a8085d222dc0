"""Helper processes of one computation: this program again, one process a core, over pipes.

A message is a pickled object behind its length. One thread does all: ``exchange`` writes what the
pipes take and reads what has come. A helper ends when its pipe does, so none outlives its parent.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, Self

try:
    import fcntl
except ImportError:  # no POSIX
    fcntl = None  # type: ignore[assignment]

_LENGTH: Final = 8
_AT_ONCE: Final = 1 << 20
"""Bytes that are read or written at once; also what a pipe is asked to hold."""
_MOST: Final = 8


class HelperError(ChildProcessError):
    """A helper process ended before its work was done."""


def cores() -> int:
    """Return how many processes may compute at once: 1 where helpers are not possible."""
    if os.name != "posix" or not sys.executable:
        return 1
    usable = getattr(os, "sched_getaffinity", None)
    return min(_MOST, len(usable(0)) if usable else os.cpu_count() or 1)


def packed(message: Any) -> bytes:
    """Return a message as it is sent."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH, "little") + data


class Helper:
    """One helper process: ``module`` is run as a program, and calls ``parent``."""

    def __init__(self, module: str) -> None:
        # -P: the same code, wherever that was found, and nothing of the working directory.
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYDANTIC_DISABLE_PLUGINS": "__all__",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(  # noqa: S603 our own program
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdin is not None  # noqa: S101 for the type checker
        assert self._process.stdout is not None  # noqa: S101
        self.writing, self.reading = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self.writing, self.reading):
            os.set_blocking(end, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # more than this user may have
                fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, _AT_ONCE)
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        self.backlog = 0
        """Bytes that were not written yet."""

    def post(self, message: bytes) -> None:
        """Queue a ``packed`` message."""
        self._unsent.append(memoryview(message))
        self.backlog += len(message)

    def write(self) -> None:
        """Write what the pipe takes. Raises HelperError if nobody reads any more."""
        while self._unsent:
            part = self._unsent[0]
            try:
                count = os.write(self.writing, part[:_AT_ONCE])
            except BlockingIOError:
                return
            except BrokenPipeError:
                raise self._ended() from None
            self.backlog -= count
            if count == len(part):
                self._unsent.popleft()
            else:
                self._unsent[0] = part[count:]

    def read(self) -> Iterator[Any]:
        """Yield the messages that have come. Raises HelperError at the end of the pipe."""
        try:
            while part := os.read(self.reading, _AT_ONCE):
                self._received += part
                if len(part) < _AT_ONCE:
                    break
            else:
                raise self._ended()
        except BlockingIOError:
            pass
        while len(self._received) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._received[:_LENGTH], "little")
            if len(self._received) < end:
                return
            message = bytes(self._received[_LENGTH:end])
            del self._received[:end]
            yield pickle.loads(message)  # noqa: S301 from our own process

    def _ended(self) -> HelperError:
        status = self._process.wait()
        return HelperError(
            f"a helper process ended too early (exit status {status}), so the check is incomplete: "
            "run it again, with --processes 1 if that happens again"
        )

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        self._process.wait()


class Came(NamedTuple):
    """A message of a helper."""

    helper: int
    message: Any


class Helpers:
    """So many helpers, which end with the block."""

    def __init__(self, module: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self.each: list[Helper] = []
        try:
            for number in range(count):
                self.each.append(helper := Helper(module))
                self._selector.register(helper.reading, selectors.EVENT_READ, number)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._selector.close()
        for helper in self.each:
            helper.end()

    def post(self, message: Any, to: int | None = None) -> None:
        """Queue a message for one helper, or for all."""
        data = packed(message)
        for helper in self.each if to is None else [self.each[to]]:
            helper.post(data)

    def exchange(self, *, wait: bool = False) -> list[Came]:
        """Write and read; ``wait``: until anything could be. Raises HelperError."""
        for number, helper in enumerate(self.each):
            helper.write()
            self._watch(helper.writing, helper.backlog > 0, number)
        came = []
        for key, events in self._selector.select(None if wait else 0):
            helper = self.each[key.data]
            if events & selectors.EVENT_READ:
                came += [Came(key.data, message) for message in helper.read()]
            else:
                helper.write()
        return came

    def _watch(self, pipe: int, wanted: bool, number: int) -> None:
        watched = pipe in self._selector.get_map()
        if wanted and not watched:
            self._selector.register(pipe, selectors.EVENT_WRITE, number)
        elif watched and not wanted:
            self._selector.unregister(pipe)


class Parent:
    """The process that this one helps: what it sends, and how to answer."""

    def __init__(self, receiving: IO[bytes], sending: IO[bytes]) -> None:
        self._receiving, self._sending = receiving, sending

    def __iter__(self) -> Iterator[Any]:
        while len(head := self._receiving.read(_LENGTH)) == _LENGTH:
            size = int.from_bytes(head, "little")
            if len(data := self._receiving.read(size)) < size:
                return
            yield pickle.loads(data)  # noqa: S301 from our own process

    def post(self, message: Any) -> None:
        """Send an answer."""
        self._sending.write(packed(message))
        self._sending.flush()


def parent() -> Parent:
    """Return the parent of this helper process. What is printed goes where errors go, and the
    terminal's Ctrl-C is left to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sending = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return Parent(sys.stdin.buffer, sending)
