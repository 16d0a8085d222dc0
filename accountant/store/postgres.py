"""PostgreSQL 15 and later, through psycopg 3.

A writer holds the lock of the ledger's head row (SELECT ... FOR UPDATE) from before it reads what
others have appended until its commit, under READ COMMITTED: each statement after the lock sees all
that was committed before it. A writer that knows where the ledger ends appends without that, by a
single statement that does nothing if the ledger ends elsewhere. Nothing else is relied upon. Every
read is one statement, which is a snapshot by itself: it needs no transaction, and no second round
trip.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from accountant.ledger.merkle import Tree
from accountant.store import roles
from accountant.store.arrays import blobs, integers, learn, texts
from accountant.store.database import Ends, Grown, Moved, StoreError, Unknown
from accountant.store.reading import HEAD_OF, Begun, Text, tree_of

T = TypeVar("T")

_Kinds = tuple[Callable[[Any], bytes], ...]
_EVENT: Final[_Kinds] = (integers, texts, integers, blobs, blobs)
_NODE: Final[_Kinds] = (integers, integers, blobs)
_TEXT: Final[_Kinds] = (integers, texts, blobs, texts)

LOCK_MS: Final = 10_000
"""How long a writer waits for the ledger's head."""
STATEMENT_MS: Final = 30_000
IDLE_MS: Final = 30_000
"""A session that holds a transaction open for so long is ended, so that others go on."""
READERS: Final = 8
WRITERS: Final = 4
"""Connections of each kind; a ledger needs at most one writing connection in a process."""
POOL_SECONDS: Final = 10.0
"""How long a request waits for a free connection."""
_NETWORK: Final[dict[str, Any]] = {  # a host that is gone is noticed within half a minute
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_SESSION: Final = {
    "timezone": "UTC",
    "statement_timeout": STATEMENT_MS,
    "lock_timeout": LOCK_MS,
    "idle_in_transaction_session_timeout": IDLE_MS,
}
_STANDBY: Final = text("SELECT pg_is_in_recovery()")
# One statement, hence one message and one answer. Nothing is inserted unless the head is moved.
# COPY would take half the time; but no timeout ends a COPY whose client is frozen, and meanwhile
# no other could write to the ledger.
_ROWS: Final = (
    " RETURNING ledger),"
    " nodes AS (INSERT INTO node (ledger, level, number, hash)"
    " SELECT %b::text, n.* FROM moved, unnest(%b::bigint[], %b::bigint[], %b::bytea[]) AS n),"
    ' texts AS (INSERT INTO text (ledger, sequence, field, salt, "text")'
    " SELECT %b::text, t.* FROM moved,"
    " unnest(%b::bigint[], %b::text[], %b::bytea[], %b::text[]) AS t)"
    " INSERT INTO event (ledger, sequence, type, time, body, leaf)"
    " SELECT %b::text, e.* FROM moved,"
    " unnest(%b::bigint[], %b::text[], %b::bigint[], %b::bytea[], %b::bytea[]) AS e"
)
_BEGUN: Final = (
    "WITH moved AS (INSERT INTO ledger_head (ledger, sequence, peaks) VALUES (%b, %b, %b)"  # noqa: S608 (words of our own)
    + _ROWS
)
_MOVED: Final = (
    "WITH moved AS (UPDATE ledger_head SET sequence = %b, peaks = %b"  # noqa: S608
    " WHERE ledger = %b AND sequence = %b AND peaks = %b" + _ROWS
)
# A transaction of its own: it does not wait for the head, compares where the other ledger ends, and
# is durable whatever the session is set to.
_AT_ONCE: Final = (
    "WITH moved AS (UPDATE ledger_head SET sequence = %b, peaks = %b"  # noqa: S608
    " WHERE ledger = %b AND sequence = %b AND peaks = %b"
    " AND EXISTS (SELECT FROM ledger_head WHERE ledger = %b FOR UPDATE SKIP LOCKED)"
    " AND (SELECT peaks FROM ledger_head WHERE ledger = %b) = %b"
    " AND set_config('synchronous_commit', 'on', true) = 'on'" + _ROWS
)


_BEGIN: Final = sql.SQL(
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
    " SET LOCAL synchronous_commit = on;"
    f" SET LOCAL statement_timeout = {STATEMENT_MS};"
    f" SET LOCAL lock_timeout = {LOCK_MS};"
    f" SET LOCAL idle_in_transaction_session_timeout = {IDLE_MS};"
    f" {HEAD_OF}{{ledger}} FOR UPDATE{{wait}};"
    f" {HEAD_OF}{{beside}}"
)
"""How a transaction that writes begins. Each repeats the settings, for a pooler may hand out a
session that another client has changed. Durability depends on synchronous_commit: a server whose
default is off answers before anything is on disk. A server with fsync=off is not refused: its
operator says so that something below keeps the writes, or that this is a test.
"""


def engine(url: URL, *, pool: int) -> Engine:
    """Return an engine of sessions with our settings, which begin transactions only when told."""
    options = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    mine: dict[str, Any] = {"application_name": "accountant"} | _NETWORK
    arguments = {name: value for name, value in mine.items() if name not in url.query}
    arguments["client_encoding"] = "utf8"  # of arrays.py, whatever the URL or the environment says
    arguments["options"] = f"{options} {url.query.get('options', '')}".strip()
    if "prepare_threshold" in url.query:  # "none" for poolers that cannot follow what is prepared
        times = str(url.query["prepare_threshold"])
        arguments["prepare_threshold"] = int(times) if times.isdigit() else None
    made = create_engine(
        url.difference_update_query(["client_encoding", "options", "prepare_threshold"]),
        isolation_level="AUTOCOMMIT",  # transactions begin where we say BEGIN
        pool_size=pool,
        max_overflow=0,
        pool_timeout=POOL_SECONDS,
        hide_parameters=True,
        connect_args=arguments,
    )
    event.listen(made, "connect", lambda connection, _: learn(connection))
    return made


class Postgres:
    """A database on a server, with a pool for those who read and one for those who write."""

    def __init__(self, url: URL) -> None:
        self._reader = engine(url, pool=READERS)
        self._writer = engine(url, pool=WRITERS)
        self._turns: dict[str, threading.Lock] = {}

    def reading(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work``, done again on a fresh connection if the pooled one was
        dead, so that no read pays for a ping.
        """
        with self._reader.connect() as connection:
            try:
                return work(connection)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
        with self._reader.connect() as connection:
            return work(connection)

    @contextmanager
    def turn(self, ledger: str) -> Iterator[None]:
        """Let one thread of this process write to a ledger, so that those that wait for its head
        do not take the connections that other ledgers need.
        """
        turn = self._turns.setdefault(ledger, threading.Lock())
        if not turn.acquire(timeout=LOCK_MS / 1000):
            raise StoreError("too many requests wait to write")
        try:
            yield
        finally:
            turn.release()

    @contextmanager
    def begun(self, ledger: str, beside: str) -> Iterator[Begun]:
        """Begin a transaction that holds the head's lock."""
        begin = _begin(ledger, beside, "")
        connection, heads = self._connected(lambda raw: _heads(raw, begin))
        with _given_back(connection):
            yield Begun(connection, *heads)

    @contextmanager
    def ready(self) -> Iterator[Connection]:
        """Return a connection that the server has not closed."""
        connection, _ = self._connected(_listened)
        with _given_back(connection):
            yield connection

    @contextmanager
    def begin(self, connection: Connection, ledger: str, beside: str) -> Iterator[Begun]:
        """``begun``, if no other holds the head; other errors come up when one waits for it."""
        try:
            heads = _heads(_raw(connection), _begin(ledger, beside, " NOWAIT"))
        except psycopg.Error as error:
            raise Moved(f"somebody else writes, or nobody can: {error}") from error
        yield Begun(connection, *heads)

    def _connected(self, first: Callable[[psycopg.Connection[Any]], T]) -> tuple[Connection, T]:
        """Return a connection that writes, and the result of ``first``, which must change nothing:
        a connection that proves dead is replaced, and all that are kept may be dead.
        """
        for last in (*repeat(False, WRITERS), True):
            connection = self._writer.connect()
            raw = _raw(connection)
            try:
                return connection, first(raw)
            except BaseException:
                broken = raw.closed
                _release(connection)
                if last or not broken:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def at_once(
        self, connection: Connection, ledger: str, grown: Grown, texts: Sequence[Text], beside: Ends
    ) -> bool:
        """Append by one statement, a transaction of its own: one message and one answer. An error
        over a living connection is the server's word that nothing was done; a transaction that is
        begun then meets the reason.
        """
        held: list[str | bytes] = [ledger, beside.ledger, beside.peaks]
        try:
            done = self._append(connection, _AT_ONCE, held, ledger, grown, texts)
        except psycopg.Error as error:
            if _raw(connection).closed:
                raise Unknown(f"the connection broke while appending: {error}") from error
            return False
        if 0 < done < len(grown.events[0]):
            raise Unknown(f"of {len(grown.events[0])} events {done} were inserted")
        return done > 0

    def append(
        self, connection: Connection, ledger: str, grown: Grown, texts: Sequence[Text]
    ) -> bool:
        """Append in one round trip, whatever the number of rows."""
        done = self._append(connection, _MOVED, [], ledger, grown, texts)
        return done == len(grown.events[0])

    def _append(
        self,
        connection: Connection,
        moved: LiteralString,
        held: Sequence[str | bytes],
        ledger: str,
        grown: Grown,
        texts: Sequence[Text],
    ) -> int:
        """Return how many events were inserted."""
        before, events, nodes, after = grown
        rows = [*_columns(ledger, nodes, _NODE), *_columns(ledger, texts, _TEXT)]
        rows += [ledger, *[column(each) for column, each in zip(_EVENT, events, strict=True)]]
        end, begin = [after.size, grown.peaks], [ledger, before.size, Ends(ledger, before).peaks]
        head = [*end, *begin, *held] if before.size else [ledger, *end]
        statement = moved if before.size else _BEGUN
        return _raw(connection).execute(statement, head + rows).rowcount

    def commit(self, connection: Connection) -> None:
        """Make the transaction durable. An error over a living connection is the server's word that
        it is not; a connection that broke meanwhile says nothing.
        """
        # COMMIT of a failed transaction is answered with ROLLBACK, and no error.
        raw = _raw(connection)
        if raw.info.transaction_status != TransactionStatus.INTRANS:
            raise StoreError("the transaction has failed and was rolled back")
        try:
            raw.commit()
        except psycopg.Error as error:
            if raw.closed:
                raise Unknown(f"the connection broke while committing: {error}") from error
            raise

    def finish_erasing(self) -> bool:
        """Return True: a role that may not vacuum can do no more. The server vacuums the table
        within minutes; docs/how-to/scaling.md says what stays elsewhere.
        """
        return True

    def check(self) -> None:
        """Check that the server takes writes: a standby does not."""
        if self.reading(lambda c: c.execute(_STANDBY).scalar_one()):
            raise StoreError("the server is a standby, which cannot be written to")

    def excess(self) -> list[str]:
        """Return rights of an owner or a superuser."""
        return self.reading(roles.excess)

    def close(self) -> None:
        """Close every connection."""
        self._reader.dispose()
        self._writer.dispose()


@lru_cache(maxsize=1_024)
def _begin(ledger: str, beside: str, wait: LiteralString) -> bytes:
    names = {"ledger": sql.Literal(ledger), "beside": sql.Literal(beside)}
    return _BEGIN.format(**names, wait=sql.SQL(wait)).as_bytes()


def _heads(raw: psycopg.Connection[Any], begin: bytes) -> list[Tree]:
    """Begin, and read where both ledgers end once the first one's head is locked: in one message
    and one answer. Each of the statements sees what was committed before it.
    """
    cursor = raw.execute(begin, prepare=False)  # several statements cannot be
    return [tree_of(cursor.set_result(last).fetchone()) for last in (-2, -1)]


def _listened(raw: psycopg.Connection[Any]) -> None:
    """Raise psycopg.OperationalError if the server has closed the connection, or has sent anything
    unsolicited, such as that it will.
    """
    poll = select.poll()
    poll.register(raw.fileno(), select.POLLIN)
    if poll.poll(0):
        raw.close()
        raise psycopg.OperationalError("the server has sent something unsolicited")


@contextmanager
def _given_back(connection: Connection) -> Iterator[None]:
    """Give the connection back to the pool in the end."""
    try:
        yield
    finally:
        _release(connection)


def _release(connection: Connection) -> None:
    if not connection.invalidated and _raw(connection).closed:
        connection.invalidate()  # broken in the driver's hands: tell the pool
    connection.close()


def _columns(ledger: str, rows: Sequence[tuple[Any, ...]], kinds: _Kinds) -> list[Any]:
    """Return rows of a ledger as the columns that a statement takes."""
    columns = zip(*rows, strict=True) if rows else repeat((), len(kinds))
    return [ledger, *[kind(column) for kind, column in zip(kinds, columns, strict=True)]]


def _raw(connection: Connection) -> psycopg.Connection[Any]:
    raw: Any = connection.connection.driver_connection
    return raw  # type: ignore[no-any-return]
