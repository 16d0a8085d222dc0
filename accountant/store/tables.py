"""The two tables. Every key starts with the ledger, so the schema can be sharded by it.

``event.body`` is the truth; the other columns are indexes on it. ``ledger_head`` has one row a
ledger, moved by compare-and-swap in the transaction that appends.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, LargeBinary
from sqlmodel import Field, SQLModel


class EventRow(SQLModel, table=True):
    """One event as its canonical bytes, with its link of the chain."""

    __tablename__ = "event"

    ledger: str = Field(primary_key=True, max_length=64)
    sequence: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    type: str = Field(max_length=64)
    time: int = Field(sa_column=Column(BigInteger, nullable=False))
    body: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    link: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class HeadRow(SQLModel, table=True):
    """Where a ledger ends: the next event's sequence and the last link."""

    __tablename__ = "ledger_head"

    ledger: str = Field(primary_key=True, max_length=64)
    sequence: int = Field(sa_column=Column(BigInteger, nullable=False))
    link: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
