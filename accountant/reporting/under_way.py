"""Reports that are being made for people who wait for them, each with how far it is.

A report reads the whole ledger, so that one of a long ledger takes seconds. Whoever asks is told
how many events were read, and asks again. What was made is kept for some minutes, and no longer
than nothing was erased: nobody is shown a text that is not there any more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, TypeVar

from accountant.budget.errors import Unavailable
from accountant.reporting.following import ERASED
from accountant.reporting.progress import Progress
from accountant.store.ledgers import Ledgers

T = TypeVar("T")
KEPT: Final = 300.0
"""Seconds for which a report is kept for who asked for it."""
MOST: Final = 16
"""Reports that are made, or wait for their turn, at a time; and as many that are kept."""
_PAGE: Final = 1_000
_ERASURE: Final = f'"type":"{ERASED}"'.encode()


class Wanted(NamedTuple, Generic[T]):
    """A report: what tells it from others, whom it is for included; of which population; how many
    ``events`` are read for it; and how it is made.
    """

    key: Hashable
    population: str
    events: Callable[[], int]
    make: Callable[[Progress], T]


class Making(NamedTuple):
    """A report that is being made: how many of the events that it takes were read."""

    read: int
    events: int


class _Job:
    """A report in the making, or made."""

    def __init__(self, wanted: Wanted[Any], size: int) -> None:
        self.wanted, self.size = wanted, size
        """As long as the ledger was when it began."""
        self.read, self.events = 0, wanted.events()
        self.ended: float | None = None
        self.future: Future[Any] = Future()

    def advance(self, events: int) -> None:
        """Count events that were read."""
        self.read = min(self.events, self.read + events)

    def run(self) -> None:
        """Make the report, and tell whoever waits: the report, or the error."""
        try:
            found = self.wanted.make(self.advance)
        except BaseException as error:  # noqa: BLE001 whoever waits is told
            self.ended = monotonic()
            self.future.set_exception(error)
        else:
            self.ended = monotonic()
            self.future.set_result(found)


class UnderWay:
    """The reports of a service that are under way. Thread-safe."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers, self._lock = ledgers, Lock()
        self._jobs: dict[Hashable, _Job] = {}

    def ask(self, wanted: Wanted[T], patience: float) -> T | Making:
        """Return a report, or how far it is after ``patience`` seconds; begin it, if nobody has.
        Raise what making it raises, or Unavailable if too many are being made.
        """
        with self._lock:
            self._forget()
            job = self._jobs.get(wanted.key)
            if job is None or self._outdated(job):
                if sum(one.ended is None for one in self._jobs.values()) >= MOST:
                    raise Unavailable(
                        "not-ready",
                        f"{MOST} reports are being made: ask again when some are done",
                    )
                job = self._jobs[wanted.key] = _Job(
                    wanted, self._ledgers.head(wanted.population).size
                )
                Thread(target=job.run, daemon=True).start()
        try:
            found: T = job.future.result(timeout=patience)
        except NotYet:
            if not job.future.done():
                return Making(job.read, job.events)
            raise  # what making it raised
        except BaseException:
            self.take(wanted.key)
            raise
        return found

    def take(self, key: Hashable) -> None:
        """Forget a report that was handed out: who asks again gets it as it is then."""
        with self._lock:
            if (job := self._jobs.get(key)) is not None and job.ended is not None:
                del self._jobs[key]

    def _forget(self) -> None:
        now = monotonic()
        for key, job in list(self._jobs.items()):
            if job.ended is not None and now - job.ended >= KEPT:
                del self._jobs[key]
        made = [key for key, job in self._jobs.items() if job.ended is not None]
        for key in made[: max(0, len(made) - MOST)]:
            del self._jobs[key]

    def _outdated(self, job: _Job) -> bool:
        """Return whether a text was erased since a report was begun that is made."""
        if job.ended is None:
            return False
        at = job.size
        while page := self._ledgers.read(job.wanted.population, at, _PAGE):
            if any(_ERASURE in row.body for row in page):
                return True
            at = page[-1].sequence + 1
        return False
