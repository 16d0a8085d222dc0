"""The tables. Every key starts with the ledger, so the schema can be sharded by it.

``event.body`` is the truth; what stands beside it is an index on it or follows from it, but for two
things: signatures, which are kept as they were made, and free texts, which can be erased.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, Text, text
from sqlmodel import Field, SQLModel

TERMS: Final = "type IN ('population.registered.v1', 'population.extended.v1', 'engine.adopted.v1')"
"""The few events that say on what terms a ledger counts. They have an index of their own."""


class EventRow(SQLModel, table=True):
    """One event as its canonical bytes, with its leaf hash in the ledger's tree."""

    __tablename__ = "event"
    __table_args__ = (
        Index(
            "event_terms",
            "ledger",
            "sequence",
            sqlite_where=text(TERMS),
            postgresql_where=text(TERMS),
        ),
    )

    ledger: str = Field(primary_key=True, max_length=64)
    sequence: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    type: str = Field(max_length=64)
    time: int = Field(sa_column=Column(BigInteger, nullable=False))
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    leaf: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class NodeRow(SQLModel, table=True):
    """The hash of a full subtree of 256**level events: what tiles above the lowest consist of."""

    __tablename__ = "node"

    ledger: str = Field(primary_key=True, max_length=64)
    level: int = Field(sa_column=Column(Integer, primary_key=True, autoincrement=False))
    number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class HeadRow(SQLModel, table=True):
    """Where a ledger ends, moved by compare-and-swap in the transaction that appends: the next
    event's sequence, and the tree's peaks one after the other.
    """

    __tablename__ = "ledger_head"

    ledger: str = Field(primary_key=True, max_length=64)
    sequence: int = Field(sa_column=Column(BigInteger, nullable=False))
    peaks: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class CheckpointRow(SQLModel, table=True):
    """A signed checkpoint, kept for ever. ``number`` counts up, so that two cannot both follow."""

    __tablename__ = "checkpoint"

    ledger: str = Field(primary_key=True, max_length=64)
    number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    size: int = Field(sa_column=Column(BigInteger, nullable=False))
    note: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class CosignatureRow(SQLModel, table=True):
    """A witness's signature line under a checkpoint."""

    __tablename__ = "cosignature"

    ledger: str = Field(primary_key=True, max_length=64)
    number: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    witness: str = Field(sa_column=Column(Text, primary_key=True))
    line: str = Field(sa_column=Column(Text, nullable=False))


class TextRow(SQLModel, table=True):
    """A free text of an event, which holds only its salted digest. The only rows that may go."""

    __tablename__ = "text"

    ledger: str = Field(primary_key=True, max_length=64)
    sequence: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    field: str = Field(primary_key=True, max_length=64)
    salt: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    text: str = Field(sa_column=Column(Text, nullable=False))
