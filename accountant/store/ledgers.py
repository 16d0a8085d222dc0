"""All ledgers of one database. Nothing above this room knows which kind of database that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from accountant.ledger.merkle import Tree
from accountant.store import reading
from accountant.store.engine import database_of
from accountant.store.errors import Moved, StoreError, Unknown, translated
from accountant.store.reading import Signed, Stored, Text
from accountant.store.writing import Writing

__all__ = [
    "Ledgers",
    "Moved",
    "Signed",
    "StoreError",
    "Stored",
    "Text",
    "Unknown",
    "Writing",
]

T = TypeVar("T")


class Ledgers:
    """All ledgers of one database. Every method may raise StoreError."""

    def __init__(self, url: str) -> None:
        self._database = database_of(url)
        self._erased = False

    @contextmanager
    def writing(self, ledger: str, beside: str = "", *, light: bool = False) -> Iterator[Writing]:
        """A write transaction on one ledger, whose head is locked from the beginning; what is not
        committed when it ends is rolled back. On the way it is looked where the ledger ``beside``
        ends. A ``light`` one begins when it has to, perhaps never (``Writing.believe``).

        Raises StoreError if others keep the ledger busy for too long.
        """
        database = self._database
        with translated(), database.turn(ledger), ExitStack() as opened:
            if light:  # whatever has to be waited for is, before anything is decided
                ready = opened.enter_context(database.ready())
                begin = partial(database.begin, ready, ledger, beside)
                writing = Writing(
                    database, ledger, beside, ready, lambda: opened.enter_context(begin())
                )
            else:
                begun = opened.enter_context(database.begun(ledger, beside))
                writing = Writing(database, ledger, beside, begun.connection, lambda: begun)
                writing.begin()
            yield writing
            self._erased |= writing.erased

    def head(self, ledger: str) -> Tree:
        """Where the ledger ends; size 0 if it has no event."""
        return self._read(lambda connection: reading.head(connection, ledger))

    def read(self, ledger: str, first: int = 0, limit: int = 1000) -> list[Stored]:
        """At most ``limit`` events from sequence ``first`` on, in order."""
        return self._read(lambda connection: reading.events(connection, ledger, first, limit))

    def stream(self, ledger: str, first: int = 0) -> Iterator[Stored]:
        """All events from ``first`` on, a page at a time."""
        while page := self.read(ledger, first):
            yield from page
            first = page[-1].sequence + 1

    def terms(self, ledger: str, last: int) -> list[Stored]:
        """The events up to ``last`` that say who the people are and which bounds decide."""
        return self._read(lambda connection: reading.terms(connection, ledger, last))

    def hashes(self, ledger: str, level: int, first: int, count: int) -> list[bytes]:
        """So many kept hashes of a level of the tree, or fewer where it ends."""
        return self._read(
            lambda connection: reading.hashes(connection, ledger, level, first, count)
        )

    def signed(self, ledger: str, first: int = 0, end: int | None = None) -> list[Signed]:
        """The checkpoints from number ``first`` to before ``end``, all that there are if that is
        None, each with the cosignatures that it has.
        """
        return self._read(lambda connection: reading.signed(connection, ledger, first, end))

    def last_signed(self, ledger: str) -> Signed | None:
        """The last checkpoint, without cosignatures."""
        return self._read(lambda connection: reading.last_signed(connection, ledger))

    def texts(self, ledger: str, first: int, last: int) -> list[Text]:
        """The texts of the events from ``first`` to ``last``, as far as they are not erased."""
        return self._read(lambda connection: reading.texts(connection, ledger, first, last))

    def names(self) -> list[str]:
        """All ledgers, in order."""
        return self._read(reading.names)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with translated():
            return self._database.reading(work)

    def finish_erasing(self) -> bool:
        """Removes what the database keeps of erased rows, as far as we can. False if somebody still
        reads what was: then it is to be called again.
        """
        if self._erased:
            with translated():
                self._erased = not self._database.finish_erasing()
        return not self._erased

    def check(self) -> None:
        """Looks whether the database can be read, and as far as that can be seen written to."""
        self.names()
        with translated():
            self._database.check()

    def excess(self) -> list[str]:
        """Rights on the database that this service has and should not have, in words."""
        with translated():
            return self._database.excess()

    def close(self) -> None:
        """Lets go of the database. Raises TimeoutError if another process keeps its file."""
        self._database.close()
