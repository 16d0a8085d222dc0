"""Queries on a ledger: one statement each, within a transaction or without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Integer, bindparam, func, select, text

from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.merkle import Tree
from accountant.ledger.notes import BadNote, parse
from accountant.ledger.tiles import HASH
from accountant.store import StoreError
from accountant.store.tables import (
    ALERT,
    CALLBACK,
    CHECKPOINT,
    COSIGNATURE,
    DATA_READ,
    DATA_USE,
    EVENT,
    HEAD,
    KEY_USE,
    MUTE,
    NODE,
    SESSION,
    TERMS,
    TEXT,
)

T = TypeVar("T")
HEAD_OF: Final = "SELECT sequence, peaks FROM ledger_head WHERE ledger = "
"""Every batch and every look at a key reads heads: as SQL for the driver that takes a tenth."""
# Every retry reads events. To put a statement together takes longer than to execute it.
_STORED: Final = (
    select(EVENT.c.sequence, EVENT.c.body, EVENT.c.leaf)
    .where(EVENT.c.ledger == bindparam("ledger"))
    .order_by(EVENT.c.sequence)
)
_EVENTS: Final = _STORED.where(EVENT.c.sequence >= bindparam("first")).limit(
    bindparam("most", type_=Integer)
)
_TERMS: Final = _STORED.where(EVENT.c.sequence <= bindparam("last"), text(TERMS))
_TEXTS: Final = (
    select(TEXT.c.sequence, TEXT.c.field, TEXT.c.salt, TEXT.c.text)
    .where(TEXT.c.ledger == bindparam("ledger"))
    .where(TEXT.c.sequence.between(bindparam("first"), bindparam("last")))
    .order_by(TEXT.c.sequence, TEXT.c.field)
)
_SIGNED: Final = select(CHECKPOINT.c.number, CHECKPOINT.c.size, CHECKPOINT.c.note)
_LAST_SIGNED: Final = (
    _SIGNED.where(CHECKPOINT.c.ledger == bindparam("ledger"))
    .order_by(CHECKPOINT.c.number.desc())
    .limit(1)
)
_AT_ONCE: Final = 500
"""Values that one statement asks for."""
_MAX_NUMBER: Final = 2**63 - 1  # The largest number that the database holds


class Callback(NamedTuple):
    """Where to tell what became of the request at ``sequence``, from which stamp on (0 at first),
    and how often that was tried.
    """

    sequence: int
    url: str
    due: int = 0
    attempts: int = 0


class AlertRow(NamedTuple):
    """An alert for a channel: when it was first seen, from which stamp on it is due (NEVER if it
    was given up), how often it was tried, and when it was delivered (0: not yet). ``said`` is what
    it says, as JSON.
    """

    name: str
    channel: str
    seen: int
    due: int
    attempts: int
    delivered: int
    said: bytes


NEVER: Final = -1
"""Instead of a stamp: it is not due again."""


class Mute(NamedTuple):
    """A kind of alert that is not told: from and until which stamp, by whom, and why; and when it
    was ended before (0: it was not).
    """

    number: int
    kind: str
    since: int
    until: int
    by: str
    reason: str
    ended: int = 0
    ended_by: str = ""

    def holds(self, now: int) -> bool:
        """Return whether it holds at a stamp."""
        return not self.ended and self.since <= now < self.until


class DataRead(NamedTuple):
    """A run that read a dataset, told ``by`` somebody: its id, the job in words, its first and last
    stamp, and the grant that it had, "" if none was found.
    """

    dataset: str
    run: str
    job: str
    by: str
    first: int
    last: int
    granted: str


class SessionRow(NamedTuple):
    """A session that is kept: the sequence of its sign-in, and the stamp of its last use."""

    sequence: int
    used: int


class Stored(NamedTuple):
    """An event as it is kept."""

    sequence: int
    body: bytes
    leaf: bytes


class Signed(NamedTuple):
    """A checkpoint as it was signed, and its cosignatures: witness to signature line."""

    number: int
    size: int
    note: bytes
    cosignatures: tuple[tuple[str, str], ...] = ()

    @property
    def head(self) -> Checkpoint:
        """What it says of the ledger. Raises StoreError if it is damaged."""
        try:
            return Checkpoint.from_text(parse(self.note).text)
        except BadNote as error:
            raise StoreError(f"checkpoint {self.number} is damaged: {error}") from error

    @property
    def full(self) -> bytes:
        """The note with all its cosignatures."""
        return self.note + "".join(line for _, line in self.cosignatures).encode()


class Text(NamedTuple):
    """A free text of an event, with the salt of its digest."""

    sequence: int
    field: str
    salt: bytes
    text: str


class Use(NamedTuple):
    """A dataset of a ledger."""

    ledger: str
    dataset: str

    def __str__(self) -> str:
        return f"{self.ledger}/{self.dataset}"


def tree_of(row: Sequence[Any] | None) -> Tree:
    """Return the tree of a row of HEAD_OF."""
    if row is None:
        return Tree()
    size, kept = row
    return Tree(size, tuple([kept[at : at + HASH] for at in range(0, len(kept), HASH)]))


def raw(connection: Connection) -> Any:
    """Return the driver's connection."""
    return connection.connection.driver_connection


class Queries:
    """The queries on a database, or in a transaction on it. Every method may raise StoreError."""

    __slots__ = ()

    def _read(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work``: one statement, a snapshot by itself. It may run twice."""
        raise NotImplementedError

    def _rows(self, statement: Any, **asked: Any) -> Sequence[Any]:
        return self._read(lambda connection: connection.execute(statement, asked).all())

    def read(self, ledger: str, first: int = 0, limit: int = 1000) -> list[Stored]:
        """Return at most ``limit`` events from sequence ``first`` on, in order."""
        rows = self._rows(_EVENTS, ledger=ledger, first=first, most=limit)
        return [Stored(*row) for row in rows]

    def terms(self, ledger: str, last: int) -> list[Stored]:
        """Return the events up to ``last`` on the population, its datasets and the bounds."""
        return [Stored(*row) for row in self._rows(_TERMS, ledger=ledger, last=last)]

    def hashes(self, ledger: str, level: int, first: int, count: int) -> list[bytes]:
        """Return ``count`` kept hashes of a level, or fewer: up to the end, or a gap."""
        if level == 0:
            place, wanted, which = EVENT.c.sequence, EVENT.c.leaf, EVENT.c.ledger == ledger
        else:
            place, wanted = NODE.c.number, NODE.c.hash
            which = (NODE.c.ledger == ledger) & (NODE.c.level == level)
        statement = select(place, wanted).where(which, place >= first, place < first + count)
        rows = self._rows(statement.order_by(place))
        return [row[1] for expected, row in enumerate(rows, start=first) if row[0] == expected]

    def signed(self, ledger: str, first: int = 0, end: int | None = None) -> list[Signed]:
        """Return checkpoints ``first`` to before ``end``, by one statement, hence of one moment."""
        last = _MAX_NUMBER if end is None else end - 1
        same = (COSIGNATURE.c.ledger == CHECKPOINT.c.ledger) & (
            COSIGNATURE.c.number == CHECKPOINT.c.number
        )
        rows = self._rows(
            _SIGNED.add_columns(COSIGNATURE.c.witness, COSIGNATURE.c.line)
            .outerjoin_from(CHECKPOINT, COSIGNATURE, same)
            .where(CHECKPOINT.c.ledger == ledger, CHECKPOINT.c.number.between(first, last))
            .order_by(CHECKPOINT.c.number, COSIGNATURE.c.witness)
        )
        return [
            Signed(
                number, size, note, tuple((row[3], row[4]) for row in group if row[4] is not None)
            )
            for (number, size, note), group in groupby(rows, lambda row: tuple(row[:3]))
        ]

    def last_signed(self, ledger: str) -> Signed | None:
        """Return the checkpoint with the largest number, without cosignatures."""
        rows = self._rows(_LAST_SIGNED, ledger=ledger)
        return Signed(*rows[0]) if rows else None

    def texts(self, ledger: str, first: int, last: int) -> list[Text]:
        """Return the texts of events ``first`` to ``last`` that are not erased, in order."""
        rows = self._rows(_TEXTS, ledger=ledger, first=first, last=last)
        return [Text(*row) for row in rows]

    def callbacks(self, ledger: str, now: int) -> list[Callback]:
        """Return the callbacks that are due at stamp ``now``, in order: also of requests that wait
        still.
        """
        columns = CALLBACK.c.sequence, CALLBACK.c.url, CALLBACK.c.due, CALLBACK.c.attempts
        due = (CALLBACK.c.ledger == ledger) & (CALLBACK.c.due <= now)
        rows = self._rows(select(*columns).where(due).order_by(CALLBACK.c.sequence))
        return [Callback(*row) for row in rows]

    def alerts(self, ledger: str, most: int = 1_000) -> list[AlertRow]:
        """Return the alerts of a ledger, the latest first."""
        return self._alerts(ALERT.c.ledger == ledger, most)

    def known_alerts(self, ledger: str, names: Sequence[str]) -> set[tuple[str, str]]:
        """Return, of some names of alerts, which were entered: with the channel."""
        found: set[tuple[str, str]] = set()
        for first in range(0, len(names), _AT_ONCE):
            some = ALERT.c.name.in_(names[first : first + _AT_ONCE])
            wanted = select(ALERT.c.name, ALERT.c.channel).where(ALERT.c.ledger == ledger, some)
            found |= {(row[0], row[1]) for row in self._rows(wanted)}
        return found

    def open_alerts(self, ledger: str, most: int = 1_000) -> list[AlertRow]:
        """Return the alerts that are neither delivered nor given up."""
        wanted = (ALERT.c.ledger == ledger) & (ALERT.c.delivered == 0) & (ALERT.c.due != NEVER)
        return self._alerts(wanted, most)

    def _alerts(self, wanted: Any, most: int) -> list[AlertRow]:
        columns = [ALERT.c[name] for name in AlertRow._fields]
        order = ALERT.c.seen.desc(), ALERT.c.name, ALERT.c.channel
        rows = self._rows(select(*columns).where(wanted).order_by(*order).limit(most))
        return [AlertRow(*row) for row in rows]

    def mutes(self, ledger: str) -> list[Mute]:
        """Return what was muted, also in the past, in order."""
        columns = [MUTE.c[name] for name in Mute._fields]
        rows = self._rows(select(*columns).where(MUTE.c.ledger == ledger).order_by(MUTE.c.number))
        return [Mute(*row) for row in rows]

    def session(self, ledger: str, digest: bytes) -> SessionRow | None:
        """Return the session whose token has this digest."""
        which = (SESSION.c.ledger == ledger) & (SESSION.c.digest == digest)
        rows = self._rows(select(SESSION.c.sequence, SESSION.c.used).where(which))
        return SessionRow(*rows[0]) if rows else None

    def key_uses(self, ledger: str) -> dict[bytes, int]:
        """Return when keys were last used, by digest: stamps of whole minutes."""
        wanted = select(KEY_USE.c.digest, KEY_USE.c.used).where(KEY_USE.c.ledger == ledger)
        return {bytes(row[0]): row[1] for row in self._rows(wanted)}

    def reads_of(self, ledger: str, run: str) -> list[DataRead]:
        """Return what a run has read."""
        return self._reads((DATA_READ.c.ledger == ledger) & (DATA_READ.c.run == run), 1_000)

    def ungranted(self, ledger: str, since: int = 0, most: int = 1_000) -> list[DataRead]:
        """Return the reads without a grant that went on after a stamp, the latest first."""
        without = (DATA_READ.c.ledger == ledger) & (DATA_READ.c.granted == "")
        return self._reads(without & (DATA_READ.c.last >= since), most)

    def count_ungranted(self, ledger: str) -> int:
        """Return how many reads without a grant are kept."""
        without = (DATA_READ.c.ledger == ledger) & (DATA_READ.c.granted == "")
        [(count,)] = self._rows(select(func.count()).select_from(DATA_READ).where(without))
        return int(count)

    def _reads(self, wanted: Any, most: int) -> list[DataRead]:
        columns = [DATA_READ.c[name] for name in DataRead._fields]
        order = DATA_READ.c.last.desc(), DATA_READ.c.dataset, DATA_READ.c.run
        rows = self._rows(select(*columns).where(wanted).order_by(*order).limit(most))
        return [DataRead(*row) for row in rows]

    def uses(self, digest: bytes) -> list[Use]:
        """Return the datasets of all ledgers that are the data of this digest, the first first."""
        wanted = select(DATA_USE.c.ledger, DATA_USE.c.dataset).where(DATA_USE.c.digest == digest)
        return [Use(*row) for row in self._rows(wanted.order_by(DATA_USE.c.number))]

    def digests(self, ledger: str) -> set[tuple[bytes, str]]:
        """Return the digests of data under which the datasets of a ledger are entered."""
        wanted = select(DATA_USE.c.digest, DATA_USE.c.dataset).where(DATA_USE.c.ledger == ledger)
        return {(row[0], row[1]) for row in self._rows(wanted)}

    def elsewhere(self, ledger: str) -> dict[str, list[Use]]:
        """Return, by dataset of a ledger, the datasets of other ledgers that are the same data."""
        other = DATA_USE.alias()
        same = (other.c.digest == DATA_USE.c.digest) & (other.c.ledger != DATA_USE.c.ledger)
        rows = self._rows(
            select(DATA_USE.c.dataset, other.c.ledger, other.c.dataset)
            .join_from(DATA_USE, other, same)
            .where(DATA_USE.c.ledger == ledger)
            .order_by(DATA_USE.c.dataset, other.c.ledger, other.c.dataset)
            .distinct()
        )
        found: dict[str, list[Use]] = {}
        for dataset, *use in rows:
            found.setdefault(dataset, []).append(Use(*use))
        return found

    def names(self) -> list[str]:
        """Return the names of all ledgers, in order."""
        return [row[0] for row in self._rows(select(HEAD.c.ledger).order_by(HEAD.c.ledger))]
