"""Answers about ledgers, and reports of them, made beside the service.

A question is a function of a ledger as it was followed (``follower.py``). Those about long ledgers
are answered by a process of its own, so that the service answers grants meanwhile. Whoever asks
about a ledger that is not read to its end within their patience is told how far that is; the
process reads on. What takes long, as a report does that reads the whole ledger, is work for
another process, whose memory ends with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from time import monotonic, process_time
from typing import Any, Final, NamedTuple, TypeVar

from accountant.budget.errors import Problem, Unavailable
from accountant.budget.rules import home_made
from accountant.reporting.follower import (
    Asked,
    Behind,
    Follower,
    Page,
    Question,
    Seen,
    kept_in,
)
from accountant.reporting.progress import Progress, silent
from accountant.runtime import cores
from accountant.runtime.memory import collect_rarely
from accountant.store import Damaged, StoreError
from accountant.store.ledgers import Ledgers, Signed
from accountant.store.opening import open_ledgers
from accountant.workers.helpers import HelperError, Helpers, Parent

__all__ = ["Behind", "Desk", "Page", "Question", "Seen", "Work"]

WORTH: Final = 10_000
"""Events from which on a process of its own follows a ledger, or reads it for a report."""
MANY_CELLS: Final = 100_000
"""Cells from which on it follows one that is not read to its end at once: each event takes long."""
PATIENCE: Final = 0.15
"""Seconds that a page waits for events to be read."""
_LEAVE: Final = 5.0
"""Seconds that the process has to keep what it has followed."""
_LOWER: Final = 10
"""How much later than the service a process gets its turn on a busy machine (``nice``)."""
_LONGEST_REST: Final = 0.5
"""Seconds that it rests at most between two pieces that it reads, for as long as it had to wait for
a core: where grants keep all cores busy it takes still less of them from these.
"""
T = TypeVar("T")
Work = Callable[[Ledgers, Progress], T]
"""Pickled as questions are. It may raise Problem, StoreError, or ValueError if it is damaged."""


class Desk:
    """Answers questions about the ledgers of a service, and does work on them. Thread-safe. What is
    followed of long ledgers is kept in ``home``, if there is one.
    """

    def __init__(self, ledgers: Ledgers, home: Path | None = None) -> None:
        self._ledgers, self._home = ledgers, home
        self._near, self._here = Follower(ledgers), Lock()
        self._helpers: Helpers | None = None
        self._apart, self._long, self._short = Lock(), Lock(), Lock()
        self._working: list[Helpers] = []
        """The processes that are at work."""
        self._stopping = False
        self._slow = set[str]()
        """Populations that a process follows although they have few events."""

    def ask(
        self,
        population: str,
        question: Question[T],
        now: int,
        published: Signed | None = None,
        patience: float = PATIENCE,
    ) -> T | Behind:
        """Return what ``question`` says of a ledger at stamp ``now``, or how far it was read after
        ``patience`` seconds. Raise StoreError, or the problem that the question raises.
        """
        seen: Seen[T] = self._seen(Asked(population, question, published, now, patience))
        found: Any = seen.found if seen.behind is None else seen.behind
        return found  # type: ignore[no-any-return]

    def look(
        self, population: str, question: Question[T], now: int, published: Signed | None = None
    ) -> Seen[T]:
        """Return as ``ask`` does, but of a ledger that is not read to its end what is known so far,
        and how far that is.
        """
        return self._seen(Asked(population, question, published, now, PATIENCE, early=True))

    def work(
        self,
        population: str,
        work: Work[T],
        events: int | None = None,
        progress: Progress = silent,
    ) -> T:
        """Return what ``work`` makes of a ledger, one after another: each needs a core. What reads
        only a number of ``events`` for a page does not wait for reports. Raise StoreError, or the
        problem that it raises.
        """
        if self._is_near(population, events):
            with _damage():
                return work(self._ledgers, progress)
        try:
            with self._long if events is None else self._short, self._at_work() as helpers:
                found: T = _exchanged(helpers, work, progress)
        except HelperError as error:
            self._check_stopping()
            raise StoreError(f"the report was not made: {error}") from error
        return found

    def stop(self) -> None:
        """End the processes that are at work. From now on ``work`` on long ledgers raises
        Unavailable, also for those that wait for it.
        """
        self._stopping = True
        for helpers in list(self._working):
            helpers.kill()

    def close(self) -> None:
        """End all processes; that which follows ledgers, once it has kept what it has followed."""
        self.stop()
        with self._apart:
            if self._helpers is not None:
                self._helpers.leave(_LEAVE)
            self._end()

    @contextmanager
    def _at_work(self) -> Iterator[Helpers]:
        with self._helper() as helpers:
            self._working.append(helpers)
            try:
                self._check_stopping()  # after it can be found: ``stop`` may look meanwhile
                yield helpers
            finally:
                self._working.remove(helpers)

    def _check_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("service-stopping", "the service is stopping; ask again soon")

    def _is_near(self, population: str, events: int | None = None) -> bool:
        events = self._ledgers.head(population).size if events is None else events
        return events < WORTH or _only_here()

    def _seen(self, asked: Asked) -> Seen[Any]:
        if self._is_near(asked.population) and asked.population not in self._slow:
            with self._here, _damage():
                seen = self._near.answer(asked)
                many = self._near.cells(asked.population) >= MANY_CELLS
                if seen.behind is not None and many and not _only_here():
                    self._slow.add(asked.population)
                    self._near.forget(asked.population)
                return seen
        with self._apart:
            try:
                if self._helpers is None:
                    self._helpers = self._helper()
                found: Seen[Any] = _exchanged(self._helpers, asked)
            except HelperError as error:
                self._end()
                raise StoreError(f"the page was not made: {error}") from error
        return found

    def _helper(self) -> Helpers:
        helpers = Helpers("accountant.reporting.desk", 1)
        try:
            helpers.post(_Place(self._ledgers.url, cores.USABLE, self._home))
        except HelperError:
            helpers.close()
            raise
        return helpers

    def _end(self) -> None:
        if self._helpers is not None:
            self._helpers.close()
            self._helpers = None


def _only_here() -> bool:
    """Return whether no other process can do it."""
    return home_made() or os.name != "posix"


class _Place(NamedTuple):
    """The database, the cores, and where to keep what was followed: the first message."""

    url: str
    cores: Collection[int]
    home: Path | None


class _Wrong(NamedTuple):
    """An error, to send it: exceptions with several arguments cannot be pickled."""

    kind: type[Problem] | type[StoreError]
    code: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> _Wrong:
        """Return an error as it is sent; one that is not foreseen as one of the store."""
        if isinstance(error, Problem):
            return cls(type(error), error.code, error.detail)
        if isinstance(error, StoreError):
            return cls(Damaged if isinstance(error, Damaged) else StoreError, "", str(error))
        return cls(StoreError, "", f"{type(error).__name__}: {error}")

    @property
    def error(self) -> Exception:
        """The error."""
        if issubclass(self.kind, Problem):
            return self.kind(self.code, self.text)
        return self.kind(self.text)


class _Read(NamedTuple):
    """So many more events were read for the work that is going on."""

    events: int


def _exchanged(helpers: Helpers, message: Any, progress: Progress = silent) -> Any:
    """Return the answer of a process, and tell of its progress. Raise HelperError if it ends, or
    the error that it sends.
    """
    helpers.post(message)
    while True:
        for _, answer in helpers.exchange(wait=True):
            if isinstance(answer, _Wrong):
                raise answer.error
            if not isinstance(answer, _Read):
                return answer
            progress(answer.events)


@contextmanager
def _damage() -> Iterator[None]:
    """Tell a damaged ledger by an error of the store."""
    try:
        yield
    except ValueError as error:
        raise Damaged(str(error)) from error


def _answer(answering: Callable[[], Any]) -> Any:
    try:
        with _damage():
            return answering()
    except Exception as error:  # noqa: BLE001 the parent says it
        return _Wrong.of(error)


def help_service() -> None:
    """Answer what the parent asks, and read on meanwhile; or do the work that it asks for."""
    parent = Parent()
    messages: Iterator[Any] = iter(parent)
    place: _Place = next(messages)
    _be_modest(place.cores)
    collect_rarely()  # what was followed stays: to look through it again and again takes long
    ledgers = open_ledgers(place.url)
    follower = Follower(ledgers, None if place.home is None else kept_in(place.home))

    def told(events: int) -> None:
        parent.post(_Read(events))

    try:
        for message in messages:
            if isinstance(message, Asked):
                parent.post(_answer(partial(follower.answer, message)))
                while not parent.waiting and (rest := _read_on(follower)) is not None:
                    parent.rest(rest)
            else:
                parent.post(_answer(partial(message, ledgers, told)))
        follower.keep()
    finally:
        ledgers.close()


def _read_on(follower: Follower) -> float | None:
    """Do a small piece of what is left to do. Return for how many seconds to rest before the next:
    for as long as it waited for a core that others wanted, or until nobody has asked for a while;
    None if nothing is left.
    """
    begun, used = monotonic(), process_time()
    if not follower.read_on():
        return follower.quiet_for
    return min(_LONGEST_REST, max(0.0, monotonic() - begun - (process_time() - used)))


def _be_modest(usable: Collection[int]) -> None:
    """Take later turns than the service, on any core: the thread that asks may be kept on one."""
    os.nice(_LOWER)
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, usable)


if __name__ == "__main__":
    # Messages name their classes by the module, which must not be called __main__ here.
    import_module("accountant.reporting.desk").help_service()
