"""Commands wait in line, one line a ledger; whoever takes them takes many.

One writer that commits a batch at a time is many times faster on a ledger that everybody wants than
one transaction a command, and needs no more of the database than a lock on the ledger's head. A
batch is what came while the one before was being committed: alone a command is answered at once, in
a burst hundreds share a commit.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import structlog

from accountant.budget.commands import Envelope
from accountant.budget.errors import Unavailable
from accountant.config.settings import MOST_WAITING

_log = structlog.get_logger()

MOST_AT_ONCE: Final = 512
"""Commands in one batch."""
_WHOLE: Final = 16
"""Commands in a batch that is never halved."""
_JUDGED: Final = 2
"""Batches after one that was half, at which it shows whether that was in vain: after the others."""
_MANY_VAIN: Final = 8
_MOST_VAIN: Final = 16
"""How often in a row halving may be in vain by chance. From then on it is done half as often each
time, until that is once in 256.
"""
_BREATH: Final = 50e-6
"""Seconds after a batch, in which those who were told go on. Python runs one thread at a time:
their answers would go out, and their next requests come in, only when the next batch is decided.
"""
_IDLE: Final = 5.0
"""Seconds without a command after which a line's thread ends."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A command in line. ``key`` is the digest of the API key that asks, if one does: it has to be
    valid still when the batch is decided. ``tell`` is told the outcome, an answer or an exception,
    by the thread that all wait for.
    """

    asked: Envelope
    tell: Callable[[Any], None]
    key: str | None = None
    outcome: Any = None


Dispatch = Callable[[str, list[Waiting]], None]
"""Gives each command of one ledger its outcome: an answer, or an exception."""


class _Line:
    """The commands that wait for one ledger. ``changed`` tells that there is one more.

    Where many ask again as soon as they are told, they would go on in step: all wait while answers
    go out and requests come in, and then all are decided. So a batch is half of those who ask, and
    the others are decided meanwhile. Where those who were told wait for the others first, as one
    does who asks for many things at once, that is a commit in vain: nobody has come when the others
    are decided too. Then it is seldom tried.
    """

    __slots__ = ("_batches", "_last", "_vain", "_wholes", "changed", "waiting")

    def __init__(self, lock: threading.Lock) -> None:
        self.waiting: deque[Waiting] = deque()
        self.changed = threading.Condition(lock)
        self._last = 0
        """The size of the last batch: so many may ask again at once."""
        self._batches = 0
        """Batches since one was half."""
        self._vain = 0
        """How often in a row that was in vain."""
        self._wholes = 0
        """Batches to be left whole, before one is half again."""

    def batch(self, *, idle: bool) -> list[Waiting]:
        """The next batch, in order. ``idle``: at first nobody was there."""
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
    """The lines of all ledgers. Thread-safe. Each has a thread for as long as something comes."""

    def __init__(self, answering: Dispatch, most_waiting: int = MOST_WAITING) -> None:
        self._answering, self._most = answering, most_waiting
        self._lines: dict[str, _Line] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, ledger: str, waiting: Waiting) -> None:
        """Puts a command in line, which is told the answer, or an exception. Raises Unavailable if
        too many wait already, or the service stops.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("service-stopping", "the service is stopping; ask again soon")
            line = self._lines.get(ledger)
            if line is None:
                line = _Line(self._lock)
                self._start(ledger, line)  # may fail: then nobody waits where nobody comes
                self._lines[ledger] = line
            if len(line.waiting) >= self._most:
                raise Unavailable(
                    "too-many-waiting",
                    f"{self._most} requests wait for {ledger} already; try again in a moment with "
                    "the same Idempotency-Key",
                )
            line.waiting.append(waiting)
            line.changed.notify()

    def close(self) -> None:
        """Answers what waits, then ends; nobody is admitted any more."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            for line in self._lines.values():
                line.changed.notify()
        for thread in threads:
            thread.join()

    def _start(self, ledger: str, line: _Line) -> None:
        name = f"sequencer-{ledger}"
        thread = threading.Thread(target=self._work, args=(ledger, line), name=name, daemon=True)
        thread.start()
        self._threads.add(thread)

    def _work(self, ledger: str, line: _Line) -> None:
        while batch := self._next(ledger, line):
            try:
                self._answering(ledger, batch)
            except BaseException as error:  # noqa: BLE001 nobody is left waiting
                for one in batch:
                    if one.outcome is None:
                        one.outcome = error
            finally:
                tell(batch)
            if line.waiting:
                time.sleep(_BREATH)

    def _next(self, ledger: str, line: _Line) -> list[Waiting]:
        """The next batch; nothing when the thread is to end."""
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
    """Tells every waiter its outcome, and forgets it."""
    for one in batch:
        outcome, one.outcome = one.outcome, None  # an error's traceback may lead back to the batch
        try:
            one.tell(_bearable(outcome) if isinstance(outcome, BaseException) else outcome)
        except Exception as error:  # noqa: BLE001 the others are not to blame
            _log.error("a waiter could not be told", exc_info=error)


def settle(future: Future[Any]) -> Callable[[Any], None]:
    """Tells who waits for ``future``."""

    def told(outcome: Any) -> None:
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    return told


def _bearable(error: BaseException) -> Exception:
    """What a waiter may be told: no future takes a StopIteration, and what ends a program, as
    SystemExit does, would end the event loop that all the others wait in.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    told = RuntimeError(f"the command could not be decided: {error!r}")
    told.__cause__ = error
    return told
