"""``Writing``: a transaction that appends to one ledger, and to the tables beside its events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, delete, func, insert, select, tuple_, update

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Node, Tree, leaf_hash
from accountant.store import Moved, StoreError, translated
from accountant.store.queries import (
    NEVER,
    AlertRow,
    Callback,
    DataRead,
    Mute,
    Queries,
    SessionRow,
    Signed,
    Text,
    Use,
)
from accountant.store.tables import (
    ALERT,
    CALLBACK,
    CHECKPOINT,
    COSIGNATURE,
    DATA_READ,
    DATA_USE,
    KEY_USE,
    MUTE,
    SESSION,
    TEXT,
)

if TYPE_CHECKING:
    from accountant.store.ledgers import Ledgers

T = TypeVar("T")
_AT_ONCE: Final = 500
"""Values that one statement names."""


class Locked(NamedTuple):
    """A transaction, the end of its ledger under lock, and the end of the ledger beside it."""

    connection: Connection
    head: Tree
    beside: Tree


class Growth(NamedTuple):
    """Rows to append. Events are columns: sequence, type, time, body, leaf."""

    ledger: str
    before: Tree
    after: Tree
    events: list[Sequence[Any]]
    nodes: list[Node]
    texts: Sequence[Text]

    @classmethod
    def of(
        cls, ledger: str, before: Tree, entries: Sequence[Entry], texts: Sequence[Text]
    ) -> Growth:
        """Append entries to ``before``. Raises ValueError if they do not follow each other."""
        columns: list[Sequence[Any]] = list(zip(*entries, strict=True))
        sequences, _, _, bodies = columns
        if sequences != tuple(range(sequences[0], sequences[0] + len(entries))):
            raise ValueError("the events do not follow each other")
        leaves = [leaf_hash(body) for body in bodies]
        after, nodes = before.grown(leaves)
        return cls(ledger, before, after, [*columns, leaves], nodes, texts)


@dataclass(slots=True)
class Writing(Queries):
    """A write transaction on one ledger. Every method may raise StoreError, Moved if another writer
    has moved the head.

    The head is locked by the first call that needs the database. A caller that knows the ends of
    the ledgers may say so before (``believe``): if it asks for nothing else, its events go to the
    database in one step, which fails with Moved if the ledgers do not end there.
    """

    ledgers: Ledgers
    ledger: str
    beside_name: str
    ready: Connection  # The connection of the transaction, or of the one step
    _lock: Callable[[], Locked]
    locked: Locked | None = None  # The transaction, which holds the head's lock, once it has begun
    _believed: tuple[Tree, Tree] | None = None
    _beside_matters: bool = False
    _appended: Growth | None = None  # Goes to the database in one step
    _ended: bool = False
    _head: Tree = field(default_factory=Tree)

    def lock(self) -> Locked:
        """Begin the transaction, once. Raises Moved if the believed ends are wrong."""
        if self.locked is None:
            if self._appended:
                raise StoreError("what was appended is on its way already")
            with self._open():
                locked = self._lock()
            if self._believed is not None:
                head, beside = self._believed
                if locked.head != head or (self._beside_matters and locked.beside != beside):
                    self._ended = True
                    raise Moved(f"{self.ledger} does not end where it did")
            self.locked, self._head = locked, locked.head
        return self.locked

    def believe(self, head: Tree, beside: Tree) -> None:
        """Take the ends as given. Raises ValueError for a new ledger, or after the beginning."""
        if self.locked is not None or not head.size:
            raise ValueError("nothing can be believed of a new ledger, nor after the beginning")
        self._believed, self._head = (head, beside), head

    def head(self, ledger: str) -> Tree:
        """Return the ledger's end, read or believed. Raises ValueError for another ledger."""
        if ledger != self.ledger:
            raise ValueError(f"the transaction is on {self.ledger}, not on {ledger}")
        if self._believed is None:
            self.lock()
        return self._head

    @property
    def beside(self) -> Tree:
        """The end of the ledger beside it; if only believed, the commit checks it."""
        believed = self._believed[1] if self._believed and self.locked is None else Tree()
        found = believed if believed.size else self.lock().beside
        self._beside_matters = True
        return found

    def commit(self) -> None:
        """Make the appended events durable. Raises Unknown if they may or may not be."""
        with self._open():
            self._ended = True
            if self.locked is not None:
                self.ledgers.commit(self.locked.connection)
            elif (more := self._appended) is not None:
                beside, end = self.ledger, more.before  # this ledger itself, if no other matters
                if self._beside_matters and self._believed:
                    beside, end = self.beside_name, self._believed[1]
                if not self.ledgers.append_now(self.ready, more, beside, end):
                    reason = "does not end where it did, or could not be written to"
                    raise Moved(f"{self.ledger} {reason}")

    def append(self, ledger: str, entries: Sequence[Entry], texts: Sequence[Text] = ()) -> Tree:
        """Append events, at least one, with the free texts of which they hold digests. Return the
        new end. Raises Moved if they do not follow the head, ValueError if they do not each other.
        """
        before = self.head(ledger)
        if entries[0].sequence != before.size:
            raise Moved(f"{ledger}/{entries[0].sequence} does not follow {before.size - 1}")
        more = Growth.of(ledger, before, entries, texts)
        with self._open():
            if self.locked is not None:
                if not self.ledgers.append(self.locked.connection, more):
                    raise Moved(f"the head of {ledger} moved while it was locked")
            elif self._appended is not None:
                raise StoreError("only one thing can be appended in one step")
            else:
                self._appended = more
        self._head = more.after
        return more.after

    # -- beside the events ------------------------------------------------------------------

    def keep_signed(self, ledger: str, signed: Signed) -> None:
        """Keep a checkpoint. Raises StoreError if another one has its number already."""
        row = {"ledger": ledger, "number": signed.number, "size": signed.size, "note": signed.note}
        self._execute(insert(CHECKPOINT).values(row))

    def keep_cosignature(self, ledger: str, number: int, witness: str, line: str) -> None:
        """Keep a witness's signature line under a checkpoint."""
        row = {"ledger": ledger, "number": number, "witness": witness, "line": line}
        self._execute(insert(COSIGNATURE).values(row))

    def enter_use(self, digest: bytes, number: int, use: Use) -> None:
        """Enter a dataset as the one of this number that is these data. Raises Moved if another
        writer has entered one meanwhile.
        """
        row = {"digest": digest, "number": number} | use._asdict()
        self._execute(insert(DATA_USE).values(row))

    def keep_callback(self, ledger: str, one: Callback) -> None:
        """Keep where to tell what becomes of a request that begins to wait."""
        self._execute(insert(CALLBACK).values({"ledger": ledger} | one._asdict()))

    def put_off_callbacks(self, ledger: str, later: Sequence[Callback]) -> None:
        """Set when callbacks are due again, and how often they were tried."""
        for one in later:
            which = (CALLBACK.c.ledger == ledger) & (CALLBACK.c.sequence == one.sequence)
            changed = {"due": one.due, "attempts": one.attempts}
            self._execute(update(CALLBACK).where(which).values(changed))

    def end_callbacks(self, ledger: str, sequences: Sequence[int]) -> None:
        """Forget callbacks that were told, or given up."""
        which = (CALLBACK.c.ledger == ledger) & CALLBACK.c.sequence.in_(sequences)
        self._execute(delete(CALLBACK).where(which))

    def keep_alerts(self, ledger: str, rows: Sequence[AlertRow]) -> None:
        """Keep alerts that are new."""
        self._execute(insert(ALERT).values([{"ledger": ledger} | row._asdict() for row in rows]))

    def claim_alert(self, ledger: str, row: AlertRow, due: int) -> bool:
        """Count an attempt to deliver an alert, due again at ``due``. Return False if another
        process has claimed it since ``row`` was read.
        """
        unmoved = (ALERT.c.attempts == row.attempts) & (ALERT.c.due == row.due)
        changed = {"attempts": row.attempts + 1, "due": due}
        which = _alert(ledger, row) & unmoved & (ALERT.c.delivered == 0)
        statement = update(ALERT).where(which).values(changed)
        return bool(self._read(lambda connection: connection.execute(statement).rowcount))

    def end_alert(self, ledger: str, row: AlertRow, delivered: int) -> None:
        """Note when an alert was delivered; 0: it is given up."""
        changed = {"delivered": delivered} if delivered else {"due": NEVER}
        self._execute(update(ALERT).where(_alert(ledger, row)).values(changed))

    def keep_mute(self, ledger: str, one: Mute) -> None:
        """Keep what is muted. Raises Moved if its number is taken."""
        self._execute(insert(MUTE).values({"ledger": ledger} | one._asdict()))

    def end_mute(self, ledger: str, number: int, now: int, by: str) -> None:
        """End what is muted before its time."""
        which = (MUTE.c.ledger == ledger) & (MUTE.c.number == number)
        self._execute(update(MUTE).where(which).values(ended=now, ended_by=by))

    def keep_session(self, ledger: str, digest: bytes, one: SessionRow) -> None:
        """Keep the digest of a new session's token."""
        row = {"ledger": ledger, "digest": digest} | one._asdict()
        self._execute(insert(SESSION).values(row))

    def use_session(self, ledger: str, digest: bytes, now: int) -> None:
        """Note when a session was used."""
        which = (SESSION.c.ledger == ledger) & (SESSION.c.digest == digest)
        self._execute(update(SESSION).where(which).values(used=now))

    def end_sessions(self, ledger: str, digest: bytes, before: int = 0) -> None:
        """Forget a session, and all that were last used before a stamp."""
        which = (SESSION.c.digest == digest) | (SESSION.c.used < before)
        self._execute(delete(SESSION).where(SESSION.c.ledger == ledger, which))

    def note_key_uses(self, ledger: str, digests: Collection[bytes], minute: int) -> None:
        """Note that keys were used, unless another process has noted a later minute."""
        known = self.key_uses(ledger)
        new = [one for one in digests if one not in known]
        later = [one for one in digests if known.get(one, minute) < minute]
        if new:
            rows = [{"ledger": ledger, "digest": one, "used": minute} for one in new]
            self._execute(insert(KEY_USE).values(rows))
        if later:
            which = (KEY_USE.c.ledger == ledger) & KEY_USE.c.digest.in_(later)
            self._execute(update(KEY_USE).where(which).values(used=minute))

    def note_reads(self, ledger: str, rows: Sequence[DataRead], most: int) -> None:
        """Note runs that read data, each in place of what was known of it. Of more than ``most`` of
        a ledger the oldest go, first those that had a grant.
        """
        of_ledger = DATA_READ.c.ledger == ledger
        place = tuple_(DATA_READ.c.dataset, DATA_READ.c.run)
        self._execute(
            delete(DATA_READ).where(of_ledger, place.in_([(one.dataset, one.run) for one in rows]))
        )
        self._execute(insert(DATA_READ).values([{"ledger": ledger} | r._asdict() for r in rows]))
        count = select(func.count()).select_from(DATA_READ).where(of_ledger)
        if (over := self._rows(count)[0][0] - most) > 0:
            order = (DATA_READ.c.granted == "").asc(), DATA_READ.c.last.asc()
            wanted = select(DATA_READ.c.dataset, DATA_READ.c.run).where(of_ledger)
            oldest = self._rows(wanted.order_by(*order).limit(over + most // 20))
            for start in range(0, len(oldest), _AT_ONCE):
                some = [tuple(row) for row in oldest[start : start + _AT_ONCE]]
                self._execute(delete(DATA_READ).where(of_ledger, place.in_(some)))

    def erase_texts(self, ledger: str, sequence: int, fields: Sequence[str]) -> None:
        """Erase texts of one event; with the commit they are gone from the file."""
        which = (TEXT.c.ledger == ledger) & (TEXT.c.sequence == sequence)
        self._execute(delete(TEXT).where(which, TEXT.c.field.in_(fields)))
        self.ledgers.erased = True

    def _execute(self, statement: Any) -> None:
        self._read(lambda connection: connection.execute(statement))

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._open():
            return work(self.lock().connection)

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Raise StoreError after the commit: a later write would be in no transaction."""
        if self._ended:
            raise StoreError("the transaction has ended")
        with translated():
            yield


def _alert(ledger: str, row: AlertRow) -> Any:
    """Return the condition that a row is this alert's."""
    same = (ALERT.c.name == row.name) & (ALERT.c.channel == row.channel)
    return (ALERT.c.ledger == ledger) & same
