"""The tables. Every key but one starts with the ledger, so the schema can be sharded by it.

``event.body`` is the truth. All else is an index on it or follows from it, but for signatures,
which are kept as they were made, and free texts, which can be erased.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, Text, text
from sqlmodel import Field, SQLModel

TERMS: Final = (
    "type IN ('population.registered.v1', 'population.extended.v1', 'dataset.registered.v1', "
    "'engine.adopted.v1')"
)
"""The few events that define the population, its datasets or the bounds. They have an index of
their own.
"""
_WHERE: Final = text(TERMS)


def _column(kind: Any, *, key: bool = False) -> Any:
    """Return a column that is not null and, if ``key``, a part of the primary key."""
    return Field(sa_column=Column(kind, primary_key=key, nullable=False, autoincrement=False))


class _Row(SQLModel):
    ledger: str = Field(primary_key=True, max_length=64)


class EventRow(_Row, table=True):
    """One event as its canonical bytes, with its leaf hash in the ledger's tree."""

    __tablename__ = "event"
    __table_args__ = (
        Index("event_terms", "ledger", "sequence", sqlite_where=_WHERE, postgresql_where=_WHERE),
    )
    sequence: int = _column(BigInteger, key=True)
    type: str = Field(max_length=64)
    time: int = _column(BigInteger)
    body: bytes = _column(LargeBinary)
    leaf: bytes = _column(LargeBinary)


class NodeRow(_Row, table=True):
    """The hash of a full subtree of 256**level events: tiles above the lowest consist of them."""

    __tablename__ = "node"
    level: int = _column(Integer, key=True)
    number: int = _column(BigInteger, key=True)
    hash: bytes = _column(LargeBinary)


class HeadRow(_Row, table=True):
    """The end of a ledger: the next sequence and the tree's peaks, moved by compare-and-swap."""

    __tablename__ = "ledger_head"
    sequence: int = _column(BigInteger)
    peaks: bytes = _column(LargeBinary)


class CheckpointRow(_Row, table=True):
    """A signed checkpoint, kept for ever. ``number`` counts up, so that two cannot both follow."""

    __tablename__ = "checkpoint"
    number: int = _column(BigInteger, key=True)
    size: int = _column(BigInteger)
    note: bytes = _column(LargeBinary)


class CosignatureRow(_Row, table=True):
    """A witness's signature line under a checkpoint."""

    __tablename__ = "cosignature"
    number: int = _column(BigInteger, key=True)
    witness: str = _column(Text, key=True)
    line: str = _column(Text)


class TextRow(_Row, table=True):
    """A free text of an event, which holds only its salted digest. The only rows that may go."""

    __tablename__ = "text"
    sequence: int = _column(BigInteger, key=True)
    field: str = Field(primary_key=True, max_length=64)
    salt: bytes = _column(LargeBinary)
    text: str = _column(Text)


class DataUseRow(SQLModel, table=True):
    """A dataset by its data, the only rows that are of all ledgers: ``number`` counts the datasets
    that are the same data, so that two cannot both be registered as the first.
    """

    __tablename__ = "data_use"
    digest: bytes = _column(LargeBinary, key=True)
    number: int = _column(BigInteger, key=True)
    ledger: str = Field(max_length=64, index=False)
    dataset: str = Field(max_length=64)

    __table_args__ = (Index("data_use_ledger", "ledger"),)


EVENT, NODE, HEAD, CHECKPOINT, COSIGNATURE, TEXT, DATA_USE = (
    SQLModel.metadata.tables[name]
    for name in ("event", "node", "ledger_head", "checkpoint", "cosignature", "text", "data_use")
)
