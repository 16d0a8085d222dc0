"""Reading and appending events. Nothing above this room knows that there is a database."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store import reading
from accountant.store.engine import BUSY_MS, file_lock, reader, sqlite_path, writer
from accountant.store.reading import (
    CHECKPOINT,
    COSIGNATURE,
    EVENT,
    HEAD,
    NODE,
    TEXT,
    Signed,
    Stored,
    Text,
)

__all__ = ["Ledgers", "Signed", "StoreError", "Stored", "Text", "Writing"]


_PATIENCE_MS: Final = 100


class StoreError(Exception):
    """The database did not do what was asked; whether a commit happened may be unknown."""


class Moved(StoreError):
    """Somebody else moved the head first: read it again and decide from scratch."""


class Unknown(StoreError):
    """Whether the commit happened is unknown: only the head, read back, tells."""


@dataclass(slots=True)
class Writing:
    """An open write transaction. Every method may raise StoreError."""

    connection: Connection
    erased: bool = False
    """Something was, and may still be found in the write-ahead log."""

    def head(self, ledger: str) -> Tree:
        """Where the ledger ends now; nobody else can move it before this transaction ends."""
        with _translated():
            return reading.head(self.connection, ledger)

    def read(self, ledger: str, first: int, limit: int) -> list[Stored]:
        """Events from ``first`` on."""
        with _translated():
            return reading.events(self.connection, ledger, first, limit)

    def commit(self) -> None:
        """Makes what was appended durable. If it raises, that may or may not have happened."""
        with _translated():
            self.connection.commit()

    def append(self, ledger: str, events: list[Entry]) -> Tree:
        """Appends events of one ledger, which must follow its head; returns where it ends then.

        Raises StoreError if they do not follow.
        """
        with _translated():
            return self._append(ledger, events)

    def _append(self, ledger: str, events: list[Entry]) -> Tree:
        before = self.head(ledger)
        rows: list[dict[str, Any]] = []
        for expected, event in enumerate(events, start=before.size):
            if event.sequence != expected:
                raise StoreError(f"{ledger}/{event.sequence} does not follow {expected - 1}")
            body = event.body
            rows.append(
                {
                    "ledger": ledger,
                    "sequence": event.sequence,
                    "type": event.type,
                    "time": event.time,
                    "body": body,
                    "leaf": leaf_hash(body),
                }
            )
        after, nodes = before.grown(row["leaf"] for row in rows)
        self.connection.execute(insert(EVENT), rows)
        if nodes:
            kept = [{"ledger": ledger, **node._asdict()} for node in nodes]
            self.connection.execute(insert(NODE), kept)
        self._move(ledger, before, after)
        return after

    def _move(self, ledger: str, before: Tree, after: Tree) -> None:
        end = {"sequence": after.size, "peaks": b"".join(after.peaks)}
        if before.size == 0:
            self.connection.execute(insert(HEAD), [{"ledger": ledger, **end}])
            return
        moved = self.connection.execute(
            update(HEAD)
            .where(HEAD.c.ledger == ledger, HEAD.c.sequence == before.size)
            .values(**end)
        )
        if moved.rowcount != 1:
            raise StoreError(f"the head of {ledger} moved while it was locked")

    # -- beside the events ------------------------------------------------------------------

    def last_signed(self, ledger: str) -> Signed | None:
        """The last checkpoint that was signed, if there is one."""
        with _translated():
            return reading.last_signed(self.connection, ledger)

    def hashes(self, ledger: str, level: int, first: int, count: int) -> list[bytes]:
        """Kept hashes of a level of the tree."""
        with _translated():
            return reading.hashes(self.connection, ledger, level, first, count)

    def keep_signed(self, ledger: str, signed: Signed) -> None:
        """Keeps a checkpoint. Raises StoreError if another one has its number already."""
        row = {"ledger": ledger, "number": signed.number, "size": signed.size, "note": signed.note}
        with _translated():
            self.connection.execute(insert(CHECKPOINT), [row])

    def keep_cosignature(self, ledger: str, number: int, witness: str, line: str) -> None:
        """Keeps a witness's signature line under a checkpoint."""
        row = {"ledger": ledger, "number": number, "witness": witness, "line": line}
        with _translated():
            self.connection.execute(insert(COSIGNATURE), [row])

    def keep_texts(self, ledger: str, texts: Sequence[Text]) -> None:
        """Keeps free texts of events that hold only their salted digests."""
        rows = [{"ledger": ledger, **text._asdict()} for text in texts]
        with _translated():
            self.connection.execute(insert(TEXT), rows)

    def texts(self, ledger: str, first: int, last: int) -> list[Text]:
        """The texts of the events from ``first`` to ``last``, as far as they are not erased."""
        with _translated():
            return reading.texts(self.connection, ledger, first, last)

    def erase_texts(self, ledger: str, sequence: int, fields: Sequence[str]) -> None:
        """Erases texts of one event; with the commit they are gone from the file."""
        with _translated():
            self.connection.execute(
                delete(TEXT).where(
                    TEXT.c.ledger == ledger,
                    TEXT.c.sequence == sequence,
                    TEXT.c.field.in_(fields),
                )
            )
        self.erased = True


class Ledgers:
    """All ledgers of one database. Every method may raise StoreError."""

    def __init__(self, url: str) -> None:
        self._path: Path = sqlite_path(url)
        self._writer = writer(url)
        self._reader = reader(url)
        self._one_at_a_time = threading.Lock()
        self._erased = False

    @contextmanager
    def writing(self, ledger: str) -> Iterator[Writing]:
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
                writing = Writing(connection)
                yield writing
                self._erased |= writing.erased
        finally:
            self._one_at_a_time.release()

    def head(self, ledger: str) -> Tree:
        """Where the ledger ends; size 0 if it has no event."""
        with _translated(), self._reader.begin() as connection:
            return reading.head(connection, ledger)

    def read(self, ledger: str, first: int = 0, limit: int = 1000) -> list[Stored]:
        """At most ``limit`` events from sequence ``first`` on, in order."""
        with _translated(), self._reader.begin() as connection:
            return reading.events(connection, ledger, first, limit)

    def stream(self, ledger: str, first: int = 0) -> Iterator[Stored]:
        """All events from ``first`` on, a page at a time."""
        while page := self.read(ledger, first):
            yield from page
            first = page[-1].sequence + 1

    def hashes(self, ledger: str, level: int, first: int, count: int) -> list[bytes]:
        """So many kept hashes of a level of the tree, or fewer where it ends."""
        with _translated(), self._reader.begin() as connection:
            return reading.hashes(connection, ledger, level, first, count)

    def signed(self, ledger: str, first: int = 0, end: int | None = None) -> list[Signed]:
        """The checkpoints from number ``first`` to before ``end``, all that there are if that is
        None, each with the cosignatures that it has.
        """
        with _translated(), self._reader.begin() as connection:
            return reading.signed(connection, ledger, first, end)

    def last_signed(self, ledger: str) -> Signed | None:
        """The last checkpoint, without cosignatures."""
        with _translated(), self._reader.begin() as connection:
            return reading.last_signed(connection, ledger)

    def texts(self, ledger: str, first: int, last: int) -> list[Text]:
        """The texts of the events from ``first`` to ``last``, as far as they are not erased."""
        with _translated(), self._reader.begin() as connection:
            return reading.texts(connection, ledger, first, last)

    def finish_erasing(self) -> bool:
        """Leaves nothing of erased rows in the write-ahead log. False if somebody still reads what
        was: then it is to be called again.
        """
        if not self._erased:
            return True
        with self.writing("") as writing:
            writing.connection.rollback()
            raw: Any = writing.connection.connection.driver_connection
            raw.execute(f"PRAGMA busy_timeout={_PATIENCE_MS}")  # others wait to write meanwhile
            [busy, *_] = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            raw.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        self._erased = bool(busy)
        return not self._erased

    def check(self) -> None:
        """Looks whether the database can be read, and by its permissions also written to."""
        self.names()
        for place in (self._path, self._path.parent):
            if not os.access(place, os.W_OK):
                raise StoreError("the database cannot be written to")

    def names(self) -> list[str]:
        """All ledgers, in order."""
        with _translated(), self._reader.begin() as connection:
            return list(connection.execute(select(HEAD.c.ledger).order_by(HEAD.c.ledger)).scalars())

    def close(self) -> None:
        """Lets go of the database file. Raises TimeoutError if another process keeps it."""
        with file_lock(self._path):  # closing may checkpoint
            self._reader.dispose()
            self._writer.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        cause = getattr(error, "orig", None) or error
        raise StoreError(str(cause)) from error
