"""The tables. Every key but one starts with the ledger, so the schema can be sharded by it.

``event.body`` is the truth. All else is an index on it or follows from it, but for signatures,
which are kept as they were made, free texts, which can be erased, addresses of callbacks, the
tokens of sessions, and alerts.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

from accountant.budget.outcome import REGISTRATIONS

METADATA: Final = MetaData()
_TERMS: Final = (
    *("population.registered.v1", "population.extended.v1", "engine.adopted.v1"),
    *REGISTRATIONS,
)
TERMS: Final = f"type IN ({', '.join(map(repr, _TERMS))})"
"""The few events that define the population, its datasets or the bounds. They have an index of
their own.
"""
_NAME: Final = String(64)


def _key(name: str, kind: type[TypeEngine[Any]] | String) -> Column[Any]:
    """Return a column of the primary key, whose value is never made by the database."""
    return Column(name, kind, primary_key=True, nullable=False, autoincrement=False)


def _column(name: str, kind: type[TypeEngine[Any]] | String) -> Column[Any]:
    """Return a column that is not null."""
    return Column(name, kind, nullable=False)


EVENT: Final = Table(
    "event",
    METADATA,
    _key("ledger", _NAME),
    _key("sequence", BigInteger),
    _column("type", _NAME),
    _column("time", BigInteger),
    _column("body", LargeBinary),
    _column("leaf", LargeBinary),
    Index("event_terms", "ledger", "sequence"),  # where TERMS: to say so loads both dialects
)
"""One event as its canonical bytes, with its leaf hash in the ledger's tree."""

NODE: Final = Table(
    "node",
    METADATA,
    _key("ledger", _NAME),
    _key("level", Integer),
    _key("number", BigInteger),
    _column("hash", LargeBinary),
)
"""The hash of a full subtree of 256**level events: tiles above the lowest consist of them."""

HEAD: Final = Table(
    "ledger_head",
    METADATA,
    _key("ledger", _NAME),
    _column("sequence", BigInteger),
    _column("peaks", LargeBinary),
)
"""The end of a ledger: the next sequence and the tree's peaks, moved by compare-and-swap."""

CHECKPOINT: Final = Table(
    "checkpoint",
    METADATA,
    _key("ledger", _NAME),
    _key("number", BigInteger),
    _column("size", BigInteger),
    _column("note", LargeBinary),
)
"""A signed checkpoint, kept for ever. ``number`` counts up, so that two cannot both follow."""

COSIGNATURE: Final = Table(
    "cosignature",
    METADATA,
    _key("ledger", _NAME),
    _key("number", BigInteger),
    _key("witness", Text),
    _column("line", Text),
)
"""A witness's signature line under a checkpoint."""

TEXT: Final = Table(
    "text",
    METADATA,
    _key("ledger", _NAME),
    _key("sequence", BigInteger),
    _key("field", _NAME),
    _column("salt", LargeBinary),
    _column("text", Text),
)
"""A free text of an event, which holds only its salted digest. The only rows that may go."""

DATA_USE: Final = Table(
    "data_use",
    METADATA,
    _key("digest", LargeBinary),
    _key("number", BigInteger),
    _column("ledger", _NAME),
    _column("dataset", _NAME),
    Index("data_use_ledger", "ledger"),
)
"""A dataset by its data, the only rows that are of all ledgers: ``number`` counts the datasets that
are the same data, so that two cannot both be registered as the first.
"""

CALLBACK: Final = Table(
    "callback",
    METADATA,
    _key("ledger", _NAME),
    _key("sequence", BigInteger),
    _column("url", Text),
    _column("due", BigInteger),
    _column("attempts", Integer),
)
"""Where to tell what became of a request that waits: until it was told, or given up."""

SESSION: Final = Table(
    "session",
    METADATA,
    _key("ledger", _NAME),
    _key("digest", LargeBinary),
    _column("sequence", BigInteger),
    _column("used", BigInteger),
)
"""The digest of a session's token, the event of its sign-in, and when it was last used. Whose it is
and whether it was ended, the ledger says.
"""

ALERT: Final = Table(
    "alert",
    METADATA,
    _key("ledger", _NAME),
    _key("name", String(250)),
    _key("channel", _NAME),
    _column("seen", BigInteger),
    _column("due", BigInteger),
    _column("attempts", Integer),
    _column("delivered", BigInteger),
    _column("said", LargeBinary),
)
"""What is told once to a channel, and how far that is. It stays, so that it is not told again."""

MUTE: Final = Table(
    "alert_mute",
    METADATA,
    _key("ledger", _NAME),
    _key("number", Integer),
    _column("kind", _NAME),
    _column("since", BigInteger),
    _column("until", BigInteger),
    _column("by", Text),
    _column("reason", Text),
    _column("ended", BigInteger),
    _column("ended_by", Text),
)
"""A kind of alert that is not told for a while: until when, who said so, and why."""

KEY_USE: Final = Table(
    "key_use",
    METADATA,
    _key("ledger", _NAME),
    _key("digest", LargeBinary),
    _column("used", BigInteger),
)
"""When the key of a digest was last used, to the minute. It decides nothing."""

DATA_READ: Final = Table(
    "data_read",
    METADATA,
    _key("ledger", _NAME),
    _key("dataset", _NAME),
    _key("run", _NAME),
    _column("job", Text),
    _column("by", Text),
    _column("first", BigInteger),
    _column("last", BigInteger),
    _column("granted", _NAME),
)
"""A run that read a dataset, by the word of whoever told so: when, and under which grant."""
