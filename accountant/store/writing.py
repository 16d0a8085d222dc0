"""Appending to a ledger, and what is kept beside its events, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree
from accountant.store import reading
from accountant.store.engine import Database
from accountant.store.entries import grown
from accountant.store.errors import Moved, StoreError, translated
from accountant.store.reading import CHECKPOINT, COSIGNATURE, TEXT, Begun, Signed, Stored, Text


@dataclass(slots=True)
class Writing:
    """An open write transaction on one ledger. Every method may raise StoreError, Moved if somebody
    else has moved the head.
    """

    database: Database
    begun: Begun
    erased: bool = False
    """Something was, and may still be found in what the database keeps for itself."""
    _ended: bool = False
    _head: Tree = field(init=False)

    def __post_init__(self) -> None:
        self._head = self.begun.head

    @property
    def connection(self) -> Connection:
        """The transaction's."""
        return self.begun.connection

    def head(self, ledger: str) -> Tree:
        """Where the ledger ends now; nobody else can move it before this transaction ends. Two may
        both see that a ledger is new: the second to append is told that it Moved. Raises ValueError
        for another ledger.
        """
        if ledger != self.begun.ledger:
            raise ValueError(f"the transaction is on {self.begun.ledger}, not on {ledger}")
        return self._head

    @property
    def beside(self) -> Tree:
        """Where the ledger beside it ended when this transaction began."""
        return self.begun.beside

    def read(self, ledger: str, first: int, limit: int) -> list[Stored]:
        """Events from ``first`` on."""
        with self._open():
            return reading.events(self.connection, ledger, first, limit)

    def commit(self) -> None:
        """Makes what was appended durable. Raises Unknown if that may or may not have happened,
        StoreError if it has not.
        """
        with self._open():
            self._ended = True
            self.database.commit(self.connection)

    def append(self, ledger: str, entries: Sequence[Entry], texts: Sequence[Text] = ()) -> Tree:
        """Appends events, at least one, and keeps free texts of events that hold only their salted
        digests; returns where the ledger ends then. Raises Moved if they do not follow its
        head, ValueError if they do not follow each other.
        """
        before = self.head(ledger)
        if entries[0].sequence != before.size:
            raise Moved(f"{ledger}/{entries[0].sequence} does not follow {before.size - 1}")
        more = grown(before, entries)
        with self._open():
            if not self.database.append(self.connection, ledger, more, texts):
                raise Moved(f"the head of {ledger} moved while it was locked")
        self._head = more.after
        return more.after

    # -- beside the events ------------------------------------------------------------------

    def last_signed(self, ledger: str) -> Signed | None:
        """The last checkpoint that was signed, if there is one."""
        with self._open():
            return reading.last_signed(self.connection, ledger)

    def hashes(self, ledger: str, level: int, first: int, count: int) -> list[bytes]:
        """Kept hashes of a level of the tree."""
        with self._open():
            return reading.hashes(self.connection, ledger, level, first, count)

    def keep_signed(self, ledger: str, signed: Signed) -> None:
        """Keeps a checkpoint. Raises StoreError if another one has its number already."""
        row = {"ledger": ledger, "number": signed.number, "size": signed.size, "note": signed.note}
        with self._open():
            self.connection.execute(insert(CHECKPOINT), [row])

    def keep_cosignature(self, ledger: str, number: int, witness: str, line: str) -> None:
        """Keeps a witness's signature line under a checkpoint."""
        row = {"ledger": ledger, "number": number, "witness": witness, "line": line}
        with self._open():
            self.connection.execute(insert(COSIGNATURE), [row])

    def texts(self, ledger: str, first: int, last: int) -> list[Text]:
        """The texts of the events from ``first`` to ``last``, as far as they are not erased."""
        with self._open():
            return reading.texts(self.connection, ledger, first, last)

    def erase_texts(self, ledger: str, sequence: int, fields: Sequence[str]) -> None:
        """Erases texts of one event; with the commit they are gone from the file."""
        with self._open():
            self.connection.execute(
                delete(TEXT).where(
                    TEXT.c.ledger == ledger,
                    TEXT.c.sequence == sequence,
                    TEXT.c.field.in_(fields),
                )
            )
        self.erased = True

    @contextmanager
    def _open(self) -> Iterator[None]:
        """What is written after the commit would be in no transaction."""
        if self._ended:
            raise StoreError("the transaction has ended")
        with translated():
            yield
