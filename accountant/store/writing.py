"""Appending to a ledger, and what is kept beside its events, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, insert

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree
from accountant.store import reading
from accountant.store.database import Database, Ends, Grown, Moved, StoreError, grown, translated
from accountant.store.reading import Begun, Signed, Stored, Text
from accountant.store.tables import CHECKPOINT, COSIGNATURE, TEXT


@dataclass(slots=True)
class Writing:
    """A write transaction on one ledger. Every method may raise StoreError, Moved if somebody else
    has moved the head.

    It begins with ``begin``, or with whatever needs the database. Who knows where the ledgers end
    may say so before (``believe``): if nothing but that is asked, what is appended goes to the
    database in one step, and is committed if the ledgers do end there. Else it has Moved.
    """

    database: Database
    ledger: str
    beside_name: str
    ready: Connection
    """Over it the transaction begins, or what is appended goes in one step."""
    _begin: Callable[[], Begun]
    erased: bool = False
    """Something was, and may still be found in what the database keeps for itself."""
    _begun: Begun | None = None
    _believed: tuple[Tree, Tree] | None = None
    _beside_matters: bool = False
    _appended: tuple[Grown, Sequence[Text]] | None = None
    """What is to go to the database in one step."""
    _ended: bool = False
    _head: Tree = field(default_factory=Tree)

    @property
    def begun(self) -> bool:
        """There is a transaction, which holds the head's lock."""
        return self._begun is not None

    def begin(self) -> Begun:
        """Begins the transaction, unless that has happened. Raises Moved if the ledgers do not end
        where they were believed to, or somebody else writes.
        """
        if self._begun is None:
            if self._appended:
                raise StoreError("what was appended is on its way already")
            with self._open():
                begun = self._begin()
            if self._believed is not None and not self._right(begun, *self._believed):
                self._ended = True
                raise Moved(f"{self.ledger} does not end where it did")
            self._begun, self._head = begun, begun.head
        return self._begun

    def _right(self, begun: Begun, head: Tree, beside: Tree) -> bool:
        """What was believed is so, as far as somebody has relied on it."""
        return begun.head == head and (begun.beside == beside or not self._beside_matters)

    def believe(self, head: Tree, beside: Tree) -> None:
        """Says where the ledgers end, instead of looking. Raises ValueError for a new ledger, and
        after the beginning.
        """
        if self._begun is not None or not head.size:
            raise ValueError("nothing can be believed of a new ledger, nor after the beginning")
        self._believed, self._head = (head, beside), head

    @property
    def connection(self) -> Connection:
        """The transaction's."""
        return self.begin().connection

    def head(self, ledger: str) -> Tree:
        """Where the ledger ends now, or is believed to; nobody else can move it before this
        transaction ends, or else that fails. Two may both see that a ledger is new: the second to
        append is told that it Moved. Raises ValueError for another ledger.
        """
        if ledger != self.ledger:
            raise ValueError(f"the transaction is on {self.ledger}, not on {ledger}")
        if self._believed is None:
            self.begin()
        return self._head

    @property
    def beside(self) -> Tree:
        """Where the ledger beside it ended when this transaction began; or where it is believed to
        end, which has to be so when this is committed.
        """
        believed = self._believed[1] if self._believed and self._begun is None else Tree()
        found = believed if believed.size else self.begin().beside
        self._beside_matters = True
        return found

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
            if self._begun is not None:
                self.database.commit(self._begun.connection)
            elif self._appended is not None and not self._at_once(*self._appended):
                raise Moved(f"{self.ledger} does not end where it did, or could not be written to")

    def _at_once(self, more: Grown, texts: Sequence[Text]) -> bool:
        beside = Ends(self.ledger, more.before)  # this ledger itself, if no other matters
        if self._beside_matters and self._believed:
            beside = Ends(self.beside_name, self._believed[1])
        return self.database.at_once(self.ready, self.ledger, more, texts, beside)

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
            if self._begun is not None:
                if not self.database.append(self._begun.connection, ledger, more, texts):
                    raise Moved(f"the head of {ledger} moved while it was locked")
            elif self._appended is not None:
                raise StoreError("only one thing can be appended in one step")
            else:
                self._appended = more, texts
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
