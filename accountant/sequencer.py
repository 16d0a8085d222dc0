"""Commands wait in line, one line a ledger; whoever takes them takes all that wait.

One writer that commits a batch at a time is many times faster on a ledger that everybody wants than
one transaction a command, and needs no more of the database than a lock on the ledger's head. A
batch is what came while the one before was being committed: alone a command is answered at once, in
a burst hundreds share a commit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.budget.commands import Asked
from accountant.budget.errors import Unavailable

MOST_WAITING: Final = 4_096
"""Commands in line for one ledger; who comes then is asked to come again."""
MOST_AT_ONCE: Final = 512
"""Commands in one batch."""
_IDLE: Final = 5.0
"""Seconds without a command after which a line's thread ends."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A command in line. ``key`` is the digest of the API key that asks, if one does: it has to be
    valid still when the batch is decided. ``outcome`` is what is told in the end.
    """

    asked: Asked
    future: Future[Any] | asyncio.Future[Any]
    key: str | None = None
    outcome: Any = None


Answering = Callable[[str, list[Waiting]], None]
"""Gives each command of one ledger its outcome: an answer, or an exception."""


@dataclass(eq=False, slots=True)
class _Line:
    """The commands that wait for one ledger."""

    waiting: deque[Waiting] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    thread: threading.Thread | None = None


class Sequencer:
    """The lines of all ledgers. Thread-safe. Each has a thread for as long as something waits."""

    def __init__(self, answering: Answering, most_waiting: int = MOST_WAITING) -> None:
        self._answering, self._most = answering, most_waiting
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, ledger: str, waiting: Waiting) -> None:
        """Puts a command in line; its future gets the answer, or an exception. Raises Unavailable
        if too many wait already, or the service stops.
        """
        line = self._lines.get(ledger)
        if line is None:
            with self._lock:
                line = self._lines.setdefault(ledger, _Line())
        with line.changed:
            if self._closed:
                raise Unavailable("stopping", "the service is stopping; ask again in a moment")
            if len(line.waiting) >= self._most:
                raise Unavailable(
                    "too-many-waiting",
                    f"{self._most} requests wait for {ledger} already; try again in a moment with "
                    "the same Idempotency-Key",
                )
            line.waiting.append(waiting)
            if line.thread is None:
                name = f"sequencer-{ledger}"
                line.thread = threading.Thread(target=self._work, args=(ledger, line), name=name)
                line.thread.daemon = True
                line.thread.start()
            line.changed.notify()

    def close(self) -> None:
        """Answers what waits, then ends; nobody is admitted any more."""
        with self._lock:
            self._closed = True
            lines = list(self._lines.values())
        for line in lines:
            with line.changed:
                thread = line.thread
                line.changed.notify()
            if thread is not None:
                thread.join()

    def _work(self, ledger: str, line: _Line) -> None:
        while batch := self._next(line):
            try:
                self._answering(ledger, batch)
            except BaseException as error:  # noqa: BLE001 nobody is left waiting
                for one in batch:
                    one.outcome = error
            finally:
                tell(batch)

    def _next(self, line: _Line) -> list[Waiting]:
        """All that waits, in order, up to the most; nothing when the thread is to end."""
        with line.changed:
            deadline = time.monotonic() + _IDLE
            while not line.waiting:
                left = deadline - time.monotonic()
                if self._closed or left <= 0:
                    line.thread = None
                    return []
                line.changed.wait(left)
            return [line.waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(line.waiting)))]


def tell(batch: Iterable[Waiting]) -> None:
    """Tells every waiter its outcome; those of an event loop together, in one call."""
    loops: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
    for one in batch:
        if isinstance(one.future, asyncio.Future):
            loops.setdefault(one.future.get_loop(), []).append(one)
        else:
            _resolve(one)
    for loop, several in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, several)
        except RuntimeError:
            continue  # the loop has ended, and who waited in it with it


def _resolve_all(several: list[Waiting]) -> None:
    for one in several:
        _resolve(one)


def _resolve(one: Waiting) -> None:
    future = one.future
    if future.done():
        return  # who asked has gone away
    if isinstance(one.outcome, BaseException):
        future.set_exception(one.outcome)
    else:
        future.set_result(one.outcome)
