"""Reading and appending events. Nothing above this file knows that there is a database."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from accountant.ledger.chain import EMPTY, link
from accountant.ledger.events import Event
from accountant.store.engine import BUSY_MS, file_lock, reader, sqlite_path, writer
from accountant.store.tables import EventRow, HeadRow

_EVENT: Any = EventRow.__table__  # type: ignore[attr-defined]
_HEAD: Any = HeadRow.__table__  # type: ignore[attr-defined]


class StoreError(Exception):
    """The database did not do what was asked; whether a commit happened may be unknown."""


class Head(NamedTuple):
    """The next event's sequence and the last link."""

    sequence: int
    link: bytes


class Stored(NamedTuple):
    """An event as it is kept."""

    sequence: int
    body: bytes
    link: bytes


@dataclass(slots=True)
class Writing:
    """An open write transaction. Every method may raise StoreError."""

    connection: Connection

    def head(self, ledger: str) -> Head:
        """Where the ledger ends now; nobody else can move it before this transaction ends."""
        with _translated():
            return _head(self.connection, ledger)

    def read(self, ledger: str, first: int, limit: int) -> list[Stored]:
        """Events from ``first`` on."""
        with _translated():
            return _read(self.connection, ledger, first, limit)

    def commit(self) -> None:
        """Makes what was appended durable. If it raises, that may or may not have happened."""
        with _translated():
            self.connection.commit()

    def append(self, events: list[Event]) -> Head:
        """Appends events of one ledger, which must follow its head; returns where it ends then.

        Raises StoreError if they do not follow.
        """
        with _translated():
            return self._append(events)

    def _append(self, events: list[Event]) -> Head:
        ledger = events[0].ledger
        head = self.head(ledger)
        rows, last = [], head.link
        for expected, event in enumerate(events, start=head.sequence):
            if event.sequence != expected:
                raise StoreError(f"{ledger}/{event.sequence} does not follow {expected - 1}")
            body = event.to_bytes()
            last = link(last, body)
            rows.append(
                {
                    "ledger": ledger,
                    "sequence": event.sequence,
                    "type": event.type,
                    "time": event.time,
                    "body": body,
                    "link": last,
                }
            )
        self.connection.execute(insert(_EVENT), rows)
        after: dict[str, Any] = {"sequence": head.sequence + len(rows), "link": last}
        if head.sequence == 0:
            self.connection.execute(insert(_HEAD), [{"ledger": ledger, **after}])
            return Head(**after)
        moved = self.connection.execute(
            update(_HEAD)
            .where(_HEAD.c.ledger == ledger, _HEAD.c.sequence == head.sequence)
            .values(**after)
        )
        if moved.rowcount != 1:
            raise StoreError(f"the head of {ledger} moved while it was locked")
        return Head(**after)


class Ledgers:
    """All ledgers of one database. Every method may raise StoreError."""

    def __init__(self, url: str) -> None:
        self._path: Path = sqlite_path(url)
        self._writer = writer(url)
        self._reader = reader(url)
        self._one_at_a_time = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """A write transaction; what is not committed when it ends is rolled back.

        Raises StoreError if others keep the database busy for too long.
        """
        deadline = time.monotonic() + BUSY_MS / 1000
        if not self._one_at_a_time.acquire(timeout=BUSY_MS / 1000):
            raise StoreError("too many requests wait to write")
        try:
            with (
                _translated(),
                file_lock(self._path, max(0.0, deadline - time.monotonic())),
                self._writer.connect() as connection,
            ):
                connection.begin()
                yield Writing(connection)
        finally:
            self._one_at_a_time.release()

    def head(self, ledger: str) -> Head:
        """Where the ledger ends; sequence 0 if it has no event."""
        with _translated(), self._reader.begin() as connection:
            return _head(connection, ledger)

    def read(self, ledger: str, first: int = 0, limit: int = 1000) -> list[Stored]:
        """At most ``limit`` events from sequence ``first`` on, in order."""
        with _translated(), self._reader.begin() as connection:
            return _read(connection, ledger, first, limit)

    def stream(self, ledger: str, first: int = 0) -> Iterator[Stored]:
        """All events from ``first`` on, a page at a time."""
        while page := self.read(ledger, first):
            yield from page
            first = page[-1].sequence + 1

    def check(self) -> None:
        """Looks whether the database can be read, and by its permissions also written to."""
        self.names()
        for place in (self._path, self._path.parent):
            if not os.access(place, os.W_OK):
                raise StoreError("the database cannot be written to")

    def names(self) -> list[str]:
        """All ledgers, in order."""
        with _translated(), self._reader.begin() as connection:
            return list(
                connection.execute(select(_HEAD.c.ledger).order_by(_HEAD.c.ledger)).scalars()
            )

    def close(self) -> None:
        """Lets go of the database file. Raises TimeoutError if another process keeps it."""
        with file_lock(self._path):  # closing may checkpoint
            self._reader.dispose()
            self._writer.dispose()


def _head(connection: Connection, ledger: str) -> Head:
    row = connection.execute(
        select(_HEAD.c.sequence, _HEAD.c.link).where(_HEAD.c.ledger == ledger)
    ).one_or_none()
    return Head(0, EMPTY) if row is None else Head(row.sequence, row.link)


def _read(connection: Connection, ledger: str, first: int, limit: int) -> list[Stored]:
    rows = connection.execute(
        select(_EVENT.c.sequence, _EVENT.c.body, _EVENT.c.link)
        .where(_EVENT.c.ledger == ledger, _EVENT.c.sequence >= first)
        .order_by(_EVENT.c.sequence)
        .limit(limit)
    )
    return [Stored(*row) for row in rows]


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(str(cause)) from error
