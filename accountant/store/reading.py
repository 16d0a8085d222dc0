"""What is read of a ledger: one statement each, within a transaction or without."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Integer, bindparam, select, text

from accountant.ledger.merkle import Tree
from accountant.ledger.tiles import HASH
from accountant.store.tables import CHECKPOINT, COSIGNATURE, EVENT, HEAD, NODE, TERMS, TEXT

HEAD_OF: Final = "SELECT sequence, peaks FROM ledger_head WHERE ledger = "
"""Every batch and every look at a key reads heads: in the driver's own words that takes a tenth."""
# Every retry reads events. To put a statement together takes longer than to execute it.
_EVENTS: Final = (
    select(EVENT.c.sequence, EVENT.c.body, EVENT.c.leaf)
    .where(EVENT.c.ledger == bindparam("ledger"), EVENT.c.sequence >= bindparam("first"))
    .order_by(EVENT.c.sequence)
    .limit(bindparam("most", type_=Integer))
)
_TERMS: Final = (
    select(EVENT.c.sequence, EVENT.c.body, EVENT.c.leaf)
    .where(EVENT.c.ledger == bindparam("ledger"), EVENT.c.sequence <= bindparam("last"))
    .where(text(TERMS))
    .order_by(EVENT.c.sequence)
)
_TEXTS: Final = (
    select(TEXT.c.sequence, TEXT.c.field, TEXT.c.salt, TEXT.c.text)
    .where(TEXT.c.ledger == bindparam("ledger"))
    .where(TEXT.c.sequence.between(bindparam("first"), bindparam("last")))
    .order_by(TEXT.c.sequence, TEXT.c.field)
)
_SIGNED: Final = select(CHECKPOINT.c.number, CHECKPOINT.c.size, CHECKPOINT.c.note)
_MAX_NUMBER: Final = 2**63 - 1
"""The largest number that the database holds."""


class Stored(NamedTuple):
    """An event as it is kept."""

    sequence: int
    body: bytes
    leaf: bytes


class Begun(NamedTuple):
    """A transaction on a ledger: where that ends, which no other can move meanwhile, and where the
    ledger beside it ended when it began.
    """

    connection: Connection
    head: Tree
    beside: Tree


class Signed(NamedTuple):
    """A checkpoint as it was signed, and its cosignatures: witness to signature line."""

    number: int
    size: int
    note: bytes
    cosignatures: tuple[tuple[str, str], ...] = ()

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


def head(connection: Connection, ledger: str) -> Tree:
    """Return the tree at the ledger's end."""
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    return tree_of(connection.exec_driver_sql(HEAD_OF + mark, (ledger,)).first())


def tree_of(row: Sequence[Any] | None) -> Tree:
    """Return the tree of a row of HEAD_OF."""
    if row is None:
        return Tree()
    size, kept = row
    return Tree(size, tuple([kept[at : at + HASH] for at in range(0, len(kept), HASH)]))


def events(connection: Connection, ledger: str, first: int, limit: int) -> list[Stored]:
    """Return at most ``limit`` events from ``first`` on, in order."""
    asked = {"ledger": ledger, "first": first, "most": limit}
    return [Stored(*row) for row in connection.execute(_EVENTS, asked)]


def terms(connection: Connection, ledger: str, last: int) -> list[Stored]:
    """Return the events up to ``last`` that say on what terms the ledger counts, in order."""
    return [Stored(*row) for row in connection.execute(_TERMS, {"ledger": ledger, "last": last})]


def hashes(connection: Connection, ledger: str, level: int, first: int, count: int) -> list[bytes]:
    """Return the kept hashes of a level, from ``first`` on without a gap."""
    if level == 0:
        place, wanted, which = EVENT.c.sequence, EVENT.c.leaf, EVENT.c.ledger == ledger
    else:
        place, wanted = NODE.c.number, NODE.c.hash
        which = (NODE.c.ledger == ledger) & (NODE.c.level == level)
    statement = select(place, wanted).where(which, place >= first, place < first + count)
    rows = connection.execute(statement.order_by(place)).all()
    return [row[1] for expected, row in enumerate(rows, start=first) if row[0] == expected]


def signed(connection: Connection, ledger: str, first: int, end: int | None) -> list[Signed]:
    """Return the checkpoints from number ``first`` to before ``end``, with their cosignatures: by
    one statement, so that both are of one moment.
    """
    last = _MAX_NUMBER if end is None else end - 1
    same = (COSIGNATURE.c.ledger == CHECKPOINT.c.ledger) & (
        COSIGNATURE.c.number == CHECKPOINT.c.number
    )
    rows = connection.execute(
        _SIGNED.add_columns(COSIGNATURE.c.witness, COSIGNATURE.c.line)
        .outerjoin_from(CHECKPOINT, COSIGNATURE, same)
        .where(CHECKPOINT.c.ledger == ledger, CHECKPOINT.c.number.between(first, last))
        .order_by(CHECKPOINT.c.number, COSIGNATURE.c.witness)
    ).all()
    return [
        Signed(number, size, note, tuple((row[3], row[4]) for row in group if row[4] is not None))
        for (number, size, note), group in groupby(rows, lambda row: tuple(row[:3]))
    ]


def last_signed(connection: Connection, ledger: str) -> Signed | None:
    """Return the checkpoint with the largest number, without cosignatures."""
    own = _SIGNED.where(CHECKPOINT.c.ledger == ledger)
    row = connection.execute(own.order_by(CHECKPOINT.c.number.desc()).limit(1)).one_or_none()
    return None if row is None else Signed(*row)


def texts(connection: Connection, ledger: str, first: int, last: int) -> list[Text]:
    """Return the texts of the events from ``first`` to ``last``, by sequence, then field."""
    asked = {"ledger": ledger, "first": first, "last": last}
    return [Text(*row) for row in connection.execute(_TEXTS, asked)]


def names(connection: Connection) -> list[str]:
    """Return the names of all ledgers, in order."""
    return list(connection.execute(select(HEAD.c.ledger).order_by(HEAD.c.ledger)).scalars())
