"""Answers about ledgers, from what was followed of them: each event is read once.

A question is a function of a ledger as it was followed. Those about long ledgers are answered by a
process of its own, so that the service answers grants meanwhile. Whoever asks about a ledger that
is not read to its end within their patience is told how far that is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from accountant.budget.rules import home_made
from accountant.ledger.merkle import Tree
from accountant.reporting.following import Followed
from accountant.reporting.texts import Texts
from accountant.runtime import cores
from accountant.store import Damaged, StoreError
from accountant.store.ledgers import Ledgers, Signed
from accountant.workers.helpers import HelperError, Helpers, Parent

WORTH: Final = 10_000
"""Events from which on a ledger is followed by a process of its own."""
PATIENCE: Final = 0.15
"""Seconds that a page waits for events to be read."""
_SLICE: Final = 200
"""Events that are read before the time is looked at."""
_LOWER: Final = 10
"""How much later than the service the process gets its turn on a busy machine (``nice``)."""
T = TypeVar("T")


class Behind(NamedTuple):
    """A ledger of ``size`` events, of which ``read`` were read so far."""

    read: int
    size: int


class Page(NamedTuple):
    """What a question is asked of: the ledger, its texts, and the present stamp."""

    followed: Followed
    texts: Texts
    now: int


Question = Callable[[Page], T]
"""Asked of a process of its own it is pickled: a function of a module, or a ``partial`` of one."""


class _Asked(NamedTuple):
    population: str
    question: Question[Any]
    published: Signed | None
    now: int
    patience: float


class Follower:
    """The ledgers of one database, each as far as it was followed. Not for several threads."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._followed: dict[str, Followed] = {}

    def answer(self, asked: _Asked) -> Any:
        """Return the answer, or Behind. Raise StoreError, or ValueError for a damaged ledger."""
        name, ledgers = asked.population, self._ledgers
        texts = Texts(partial(ledgers.texts, name))
        try:
            followed = self._follow(asked, texts)
            if followed.outdated:
                del self._followed[name]
                followed = self._follow(asked, texts)
        except Exception:
            self._followed.pop(name, None)  # it may hold half of an event
            raise
        if (size := ledgers.head(name).size) > followed.state.sequence + _SLICE:
            return Behind(followed.state.sequence, size)
        followed.state.now = asked.now
        return asked.question(Page(followed, texts, max(asked.now, followed.state.time)))

    def _follow(self, asked: _Asked, texts: Texts) -> Followed:
        name, until = asked.population, monotonic() + asked.patience
        if (followed := self._followed.get(name)) is None:
            size = self._ledgers.head(name).size  # texts erased by then are in no answer
            followed = self._followed[name] = Followed(name, size)
        events = self._ledgers.stream(name, followed.state.sequence)
        rooted = partial(self._root, name)
        while piece := list(islice(events, _SLICE)):
            followed.follow(piece, texts, asked.published, rooted)
            if monotonic() >= until:
                break
        else:
            followed.follow((), texts, asked.published, rooted)
        return followed

    def _root(self, name: str, size: int) -> bytes:
        """Return the root over the first ``size`` leaves, by their hashes as they are kept."""
        tree = Tree()
        while (left := size - tree.size) and (
            leaves := self._ledgers.hashes(name, 0, tree.size, min(left, 10_000))
        ):
            tree, _ = tree.grown(leaves)
        return tree.root


class Desk:
    """Answers questions about the ledgers of a service. Thread-safe."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._near, self._here = Follower(ledgers), Lock()
        self._helpers: Helpers | None = None
        self._apart = Lock()

    def ask(
        self,
        population: str,
        question: Question[T],
        now: int,
        published: Signed | None = None,
        patience: float = PATIENCE,
    ) -> T | Behind:
        """Return what ``question`` says of a ledger at stamp ``now``, or how far it was read after
        ``patience`` seconds. Raise StoreError.
        """
        asked = _Asked(population, question, published, now, patience)
        found: T | Behind
        if self._ledgers.head(population).size < WORTH or home_made() or os.name != "posix":
            with self._here, _damage():
                found = self._near.answer(asked)
        else:
            with self._apart:
                found = self._far(asked)
        return found

    def close(self) -> None:
        """End the process."""
        with self._apart:
            self._end()

    def _far(self, asked: _Asked) -> Any:
        try:
            if self._helpers is None:
                self._helpers = Helpers("accountant.reporting.desk", 1)
                self._helpers.post((self._ledgers.url, cores.USABLE))
            self._helpers.post(asked)
            [(_, answer)] = self._helpers.exchange(wait=True)
        except HelperError as error:
            self._end()
            raise StoreError(f"the page was not made: {error}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _end(self) -> None:
        if self._helpers is not None:
            self._helpers.close()
            self._helpers = None


def _be_modest(usable: Collection[int]) -> None:
    """Take later turns than the service, on any core: the thread that asks may be kept on one."""
    os.nice(_LOWER)
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, usable)


@contextmanager
def _damage() -> Iterator[None]:
    """Tell a damaged ledger by an error of the store."""
    try:
        yield
    except ValueError as error:
        raise Damaged(str(error)) from error


def _answer(follower: Follower, asked: _Asked) -> Any:
    """Return an answer, or the error: by its message, as not every one can be pickled."""
    try:
        with _damage():
            return follower.answer(asked)
    except Damaged as error:
        return Damaged(str(error))
    except Exception as error:  # noqa: BLE001 the parent says it
        return StoreError(f"{type(error).__name__}: {error}")


def help_service() -> None:
    """Answer what the parent asks."""
    parent = Parent()
    messages: Iterator[Any] = iter(parent)
    url, usable = next(messages)
    _be_modest(usable)
    ledgers = Ledgers(url)
    follower = Follower(ledgers)
    try:
        for asked in messages:
            parent.post(_answer(follower, asked))
    finally:
        ledgers.close()


if __name__ == "__main__":
    # Messages name their classes by the module, which must not be called __main__ here.
    import_module("accountant.reporting.desk").help_service()
