"""Command queues with group commit: a thread for each ledger takes the waiting commands in batches.

On a busy ledger one writer that commits a batch at a time is many times faster than one transaction
a command, and needs only a lock on the ledger's head. A batch holds the commands that arrived while
the last one was committed: a single command is answered at once; in a burst hundreds share one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from accountant.budget.commands import Envelope
from accountant.budget.errors import Unavailable
from accountant.config.logs import logger
from accountant.config.settings import MOST_WAITING

_log = logger()

MOST_AT_ONCE: Final = 512  # Commands in one batch
_WHOLE: Final = 16  # Commands in a batch that is never halved
_JUDGED: Final = 2  # Batches after a half one when the gain shows: the other half is decided then
_MANY_VAIN: Final = 8
_MOST_VAIN: Final = 16
"""How often in a row halving may gain nothing by chance. From then on it is done half as often each
time, down to once in 256.
"""
_BREATH: Final = 50e-6
"""Seconds after a batch in which answered clients go on. Python runs one thread at a time: without
a pause answers would go out, and requests come in, only after the next batch.
"""
_IDLE: Final = 5.0  # Seconds without a command after which a queue's thread ends


@dataclass(eq=False, slots=True)
class Waiting:
    """A command in a queue."""

    asked: Envelope
    tell: Callable[[Any], None]  # Takes the outcome, in the queue's thread
    key: str | None = None  # The digest of its API key, to be valid still when it is decided
    outcome: Any = None  # An answer or an exception


Dispatch = Callable[[str, list[Waiting]], None]
"""Gives each command of one ledger its outcome: an answer, or an exception."""


class _Line:
    """The commands that wait for one ledger. ``changed`` signals a new one.

    Clients that ask again once they are answered would move in step: all would wait while answers
    go out and requests come in. So a batch is half of the clients, and the other half is decided
    while the first goes on. That costs a commit and gains nothing where one client sends many
    requests at once, and waits for all: the queue is empty after the second half. It is seldom
    tried then.
    """

    __slots__ = ("_batches", "_last", "_vain", "_wholes", "changed", "waiting")

    def __init__(self, lock: threading.Lock) -> None:
        self.waiting: deque[Waiting] = deque()
        self.changed = threading.Condition(lock)
        self._last = 0  # The size of the last batch: as many may ask again at once
        self._batches = 0  # Batches since a half one
        self._vain = 0  # How often in a row halving gained nothing
        self._wholes = 0  # Batches to leave whole before the next half one

    def batch(self, *, idle: bool) -> list[Waiting]:
        """Take the next batch, in order. ``idle``: the queue was empty before."""
        self._batches += 1
        if self._batches == _JUDGED:
            self._vain = min(self._vain + 1, _MOST_VAIN) if idle else 0
            self._wholes = 2 ** max(self._vain - _MANY_VAIN, 0) - 1
        size = min(len(self.waiting), MOST_AT_ONCE)
        half = max(-(-(len(self.waiting) + self._last) // 2), _WHOLE)
        if half < size and self._wholes:
            self._wholes -= 1
        elif half < size:
            self._batches, size = 0, half
        self._last = size
        return [self.waiting.popleft() for _ in range(size)]


class CommandQueue:
    """The queues of all ledgers. Thread-safe. Each has a thread while commands arrive."""

    def __init__(self, answering: Dispatch, most_waiting: int = MOST_WAITING) -> None:
        self._answering, self._most = answering, most_waiting
        self._lines: dict[str, _Line] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, ledger: str, waiting: Waiting) -> None:
        """Add a command to its ledger's queue. Raise Unavailable if that is full, or closed."""
        with self._lock:
            if self._closed:
                raise Unavailable("service-stopping", "the service is stopping; ask again soon")
            line = self._lines.get(ledger)
            if line is None:
                line = _Line(self._lock)
                self._start(ledger, line)  # may fail; then the queue has no command either
                self._lines[ledger] = line
            if len(line.waiting) >= self._most:
                raise Unavailable(
                    "too-many-waiting",
                    f"{self._most} requests wait for {ledger} already; try again in a moment with "
                    "the same Idempotency-Key",
                )
            line.waiting.append(waiting)
            if len(line.waiting) == 1:  # the thread waits for a first one only
                line.changed.notify()

    def lengths(self) -> dict[str, int]:
        """Return how many commands wait, by ledger, where any came lately."""
        with self._lock:
            return {ledger: len(line.waiting) for ledger, line in self._lines.items()}

    def close(self) -> None:
        """Answer the waiting commands, then end. No more commands are taken."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            for line in self._lines.values():
                line.changed.notify()
        for thread in threads:
            thread.join()

    def _start(self, ledger: str, line: _Line) -> None:
        name = f"queue-{ledger}"
        thread = threading.Thread(target=self._work, args=(ledger, line), name=name, daemon=True)
        thread.start()
        self._threads.add(thread)

    def _work(self, ledger: str, line: _Line) -> None:
        while batch := self._next(ledger, line):
            try:
                self._answering(ledger, batch)
            except BaseException as error:  # noqa: BLE001 every command gets an outcome
                for one in batch:
                    if one.outcome is None:
                        one.outcome = error
            finally:
                tell(batch)
            if line.waiting:
                time.sleep(_BREATH)

    def _next(self, ledger: str, line: _Line) -> list[Waiting]:
        """Wait for the next batch. An empty one ends the thread."""
        with self._lock:
            idle = not line.waiting
            deadline = time.monotonic() + _IDLE
            while not line.waiting:
                left = deadline - time.monotonic()
                if self._closed or left <= 0:
                    del self._lines[ledger]
                    self._threads.discard(threading.current_thread())
                    return []
                line.changed.wait(left)
            return line.batch(idle=idle)


def tell(batch: Iterable[Waiting]) -> None:
    """Pass each outcome on, and forget it."""
    for one in batch:
        outcome, one.outcome = one.outcome, None  # an error's traceback may lead back to the batch
        try:
            one.tell(_bearable(outcome) if isinstance(outcome, BaseException) else outcome)
        except Exception as error:  # noqa: BLE001 the other commands get their outcomes
            _log.error("an outcome could not be passed on", exc_info=error)


def settle(future: Future[Any]) -> Callable[[Any], None]:
    """Return a function that puts an outcome into ``future``."""

    def put(outcome: Any) -> None:
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    return put


def _bearable(error: BaseException) -> Exception:
    """Return an error that futures and the event loop survive: no StopIteration, no SystemExit."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    instead = RuntimeError(f"the command could not be decided: {error!r}")
    instead.__cause__ = error
    return instead
