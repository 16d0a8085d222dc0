"""PostgreSQL 15 and later, through psycopg 3.

A writer locks the ledger's head row (SELECT ... FOR UPDATE) before it reads, until its commit,
under READ COMMITTED: each statement after the lock sees all that was committed before it. A writer
that knows where the ledger ends appends without the lock, by a single statement that does nothing
if the ledger ends elsewhere. Every read is one statement, hence a snapshot by itself.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import repeat
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from accountant.ledger.merkle import Tree
from accountant.store import Moved, StoreError, Unknown, translated
from accountant.store.ledgers import WAIT_MS, Ledgers, parsed
from accountant.store.queries import HEAD_OF, raw, tree_of
from accountant.store.writing import Growth, Locked

T = TypeVar("T")
Driver = psycopg.Connection[Any]

# Columns of rows are arrays in PostgreSQL's binary format. The driver looks at each element for its
# type, and names the array's type by the largest: the same statement would be planned anew for
# other numbers, and for no rows at all. Here a column has one type with any values, at a tenth of
# the time.
_ARRAY: Final = struct.Struct(">iiIii")  # One dimension, no NULL, type, number, counted from 1
_SIZE: Final = struct.Struct(">i")


class _Array(bytes):
    """An array in binary format. Types are numbered as on every server (pg_type.dat)."""

    element: int
    oid: int

    @classmethod
    def of(cls, values: Sequence[bytes]) -> bytes:
        sized = [part for value in values for part in (_SIZE.pack(len(value)), value)]
        return cls(b"".join([_ARRAY.pack(1, 0, cls.element, len(values), 1), *sized]))


class _Integers(_Array):
    element, oid = 20, 1016


class _Texts(_Array):
    element, oid = 25, 1009


class _Blobs(_Array):
    element, oid = 17, 1001


blobs: Final[Callable[[Sequence[bytes]], bytes]] = _Blobs.of  # Return a bytea[]


def texts(values: Sequence[str]) -> bytes:
    """Return a text[]."""
    return _Texts.of([value.encode() for value in values])


def integers(values: Sequence[int]) -> bytes:
    """Return a bigint[]. Raises struct.error for a value that is no bigint."""
    head = _ARRAY.pack(1, 0, _Integers.element, len(values), 1)
    sized = [part for value in values for part in (8, value)]
    return _Integers(head + struct.pack(">" + "iq" * len(values), *sized))


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return bytes(obj)


_Kinds = tuple[Callable[[Any], bytes], ...]
_EVENT: Final[_Kinds] = (integers, texts, integers, blobs, blobs)
_NODE: Final[_Kinds] = (integers, integers, blobs)
_TEXT: Final[_Kinds] = (integers, texts, blobs, texts)

STATEMENT_MS: Final = 30_000
IDLE_MS: Final = 30_000  # A session that idles in a transaction is ended then
READERS: Final = 8
WRITERS: Final = 4  # Connections; a process needs at most one a ledger to write
POOL_SECONDS: Final = 10.0  # How long a request waits for a free connection
_NETWORK: Final[dict[str, Any]] = {  # a host that is gone is noticed within half a minute
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_LIMITS: Final = {
    "statement_timeout": STATEMENT_MS,
    "lock_timeout": WAIT_MS,
    "idle_in_transaction_session_timeout": IDLE_MS,
}
_STANDBY: Final = text("SELECT pg_is_in_recovery()")
RIGHTS: Final = {
    "event": "SELECT, INSERT",
    "node": "SELECT, INSERT",
    "checkpoint": "SELECT, INSERT",
    "cosignature": "SELECT, INSERT",
    "ledger_head": "SELECT, INSERT, UPDATE (sequence, peaks)",
    "text": "SELECT, INSERT, DELETE",
    "data_use": "SELECT, INSERT",
    "callback": "SELECT, INSERT, UPDATE (due, attempts), DELETE",
    "session": "SELECT, INSERT, UPDATE (used), DELETE",
    "alert": "SELECT, INSERT, UPDATE (due, attempts, delivered)",
    "alert_mute": "SELECT, INSERT, UPDATE (ended, ended_by)",
    "key_use": "SELECT, INSERT, UPDATE (used)",
    "data_read": "SELECT, INSERT, DELETE",
}
"""The rights of the service's role: to append, move a head forward, erase a text, end a callback or
a session, and note what became of an alert.
"""
_REWRITING: Final = ("DELETE", "TRIGGER", "TRUNCATE", "UPDATE")  # Rights to change what is there
_HELD: Final = text(
    "SELECT name, verb FROM unnest(CAST(:names AS text[])) AS name,"
    " unnest(CAST(:verbs AS text[])) AS verb"
    " WHERE has_table_privilege(CAST(name AS regclass), verb) ORDER BY name, verb"
)
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
_NEW_HEAD: Final = (
    "WITH moved AS (INSERT INTO ledger_head (ledger, sequence, peaks) VALUES (%b, %b, %b)"  # noqa: S608 (words of our own)
    + _ROWS
)
_MOVE: Final = (
    "WITH moved AS (UPDATE ledger_head SET sequence = %b, peaks = %b"
    " WHERE ledger = %b AND sequence = %b AND peaks = %b"
)
_MOVED: Final = _MOVE + _ROWS
# A transaction of its own: it does not wait for the head, compares where the other ledger ends, and
# is durable under any setting of the session.
_APPEND_NOW: Final = (
    _MOVE + " AND EXISTS (SELECT FROM ledger_head WHERE ledger = %b FOR UPDATE SKIP LOCKED)"  # noqa: S608
    " AND (SELECT peaks FROM ledger_head WHERE ledger = %b) = %b"
    " AND set_config('synchronous_commit', 'on', true) = 'on'" + _ROWS
)
_LOCK: Final = sql.SQL(
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
    " SET LOCAL synchronous_commit = on;"
    + "".join(f" SET LOCAL {name} = {limit};" for name, limit in _LIMITS.items())
    + f" {HEAD_OF}{{ledger}} FOR UPDATE{{wait}};"
    f" {HEAD_OF}{{beside}}"
)
"""The beginning of a transaction that writes. It repeats the settings, for a pooler may hand out a
session that another client has changed. Durability depends on synchronous_commit: a server whose
default is off answers before anything is on disk. A server with fsync=off is not refused.
"""


def engine(url: URL, *, pool: int) -> Engine:
    """Return an engine of sessions with our settings, which begin transactions only when told."""
    session = {"timezone": "UTC"} | _LIMITS
    options = " ".join(f"-c {name}={value}" for name, value in session.items())
    mine: dict[str, Any] = {"application_name": "accountant"} | _NETWORK
    arguments = {name: value for name, value in mine.items() if name not in url.query}
    arguments["client_encoding"] = "utf8"  # as arrays are encoded
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

    @event.listens_for(made, "connect")
    def _register_arrays(connection: Driver, _: Any) -> None:
        for kind in (_Integers, _Texts, _Blobs):
            dumper = type(f"{kind.__name__}Dumper", (_AsItIs,), {"oid": kind.oid})
            connection.adapters.register_dumper(kind, dumper)

    return made


class Postgres(Ledgers):
    """A database on a server, with a pool for readers and one for writers."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        found = parsed(url)
        self._reader, self._writer = engine(found, pool=READERS), engine(found, pool=WRITERS)

    @translated()
    def _read(self, work: Callable[[Connection], T]) -> T:
        """Return the result of ``work``, done again if the pooled connection was dead."""
        with self._reader.connect() as connection:
            try:
                return work(connection)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
        with self._reader.connect() as connection:
            return work(connection)

    @contextmanager
    def lock(self, ledger: str, beside: str) -> Iterator[Locked]:
        """Begin a transaction that holds the head's lock."""
        statement = _lock_statement(ledger, beside, "")
        with self._living(lambda driver: _heads(driver, statement)) as (connection, heads):
            yield Locked(connection, *heads)

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """Return a connection that the server has not closed."""
        with self._living(_listened) as (connection, _):
            yield connection

    @contextmanager
    def lock_now(self, connection: Connection, ledger: str, beside: str) -> Iterator[Locked]:
        """Do as ``lock``, if no other holds the head; other errors show when one waits for it."""
        try:
            heads = _heads(raw(connection), _lock_statement(ledger, beside, " NOWAIT"))
        except psycopg.Error as error:
            raise Moved(f"another process writes, or none can: {error}") from error
        yield Locked(connection, *heads)

    @contextmanager
    def _living(self, first: Callable[[Driver], T]) -> Iterator[tuple[Connection, T]]:
        """Return a connection and the result of ``first``, tried on others while they are dead."""
        for last in (*repeat(False, WRITERS), True):
            connection = self._writer.connect()
            driver = raw(connection)
            try:
                found = first(driver)
                break
            except BaseException:
                broken = driver.closed
                _release(connection)
                if last or not broken:
                    raise
        try:
            yield connection, found
        finally:
            _release(connection)

    def append_now(self, connection: Connection, more: Growth, beside: str, end: Tree) -> bool:
        """Append by one statement, a transaction of its own. An error means: nothing was done."""
        try:
            done = _append(connection, more, _APPEND_NOW, more.ledger, beside, end.packed)
        except psycopg.Error as error:
            if raw(connection).closed:
                raise Unknown(f"the connection broke while appending: {error}") from error
            return False
        if 0 < done < len(more.events[0]):
            raise Unknown(f"of {len(more.events[0])} events {done} were inserted")
        return done > 0

    def append(self, connection: Connection, more: Growth) -> bool:
        """Append any number of rows in one round trip."""
        return _append(connection, more, _MOVED) == len(more.events[0])

    def commit(self, connection: Connection) -> None:
        """Make the transaction durable. Only over a living connection an error says it is not."""
        # COMMIT of a failed transaction is answered with ROLLBACK, and no error.
        driver = raw(connection)
        if driver.info.transaction_status != TransactionStatus.INTRANS:
            raise StoreError("the transaction has failed and was rolled back")
        try:
            driver.commit()
        except psycopg.Error as error:
            if driver.closed:
                raise Unknown(f"the connection broke while committing: {error}") from error
            raise

    # ``finish_erasing`` has nothing to do: the server vacuums the table (docs/how-to/scaling.md).

    def check(self) -> None:
        """Check that the server takes writes: a standby does not."""
        super().check()
        if self._read(lambda c: c.execute(_STANDBY).scalar_one()):
            raise StoreError("the server is a standby, which cannot be written to")

    def excess(self) -> list[str]:
        """Return the rights by which this role could rewrite a ledger, in words."""
        asked = {"names": list(RIGHTS), "verbs": list(_REWRITING)}
        found: dict[str, list[str]] = {}
        for table, verb in self._read(lambda c: c.execute(_HELD, asked).all()):
            if f"{verb}," not in f"{RIGHTS[table]},":  # UPDATE (sequence, peaks) is not UPDATE
                found.setdefault(verb, []).append(table)
        return [f"{verb} on {', '.join(tables)}" for verb, tables in sorted(found.items())]


def grant(connection: Connection, role: str) -> None:
    """Give ``role`` its rights on our tables and revoke all others; for the owner to call."""
    quoted = connection.dialect.identifier_preparer.quote_identifier
    name, here = quoted(role), connection.execute(text("SELECT current_schema()")).scalar_one()
    schema = quoted(here)
    for statement in (
        f"REVOKE ALL ON SCHEMA {schema} FROM {name}",
        f"GRANT USAGE ON SCHEMA {schema} TO {name}",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}, PUBLIC",
        *(f"GRANT {rights} ON {schema}.{table} TO {name}" for table, rights in RIGHTS.items()),
        f"GRANT SELECT ON {schema}.alembic_version TO {name}",  # backup and doctor ask for it
    ):
        connection.exec_driver_sql(statement)


@lru_cache(maxsize=1_024)
def _lock_statement(ledger: str, beside: str, wait: LiteralString) -> bytes:
    names = {"ledger": sql.Literal(ledger), "beside": sql.Literal(beside)}
    return _LOCK.format(**names, wait=sql.SQL(wait)).as_bytes()


def _heads(driver: Driver, statement: bytes) -> list[Tree]:
    """Begin, and read where both ledgers end under the lock, in one message and one answer."""
    cursor = driver.execute(statement, prepare=False)  # several statements cannot be
    return [tree_of(cursor.set_result(last).fetchone()) for last in (-2, -1)]


def _listened(driver: Driver) -> None:
    """Raise OperationalError if the server has closed the connection, or is about to."""
    poll = select.poll()
    poll.register(driver.fileno(), select.POLLIN)
    if poll.poll(0):
        driver.close()
        raise psycopg.OperationalError("the server has sent something unsolicited")


def _release(connection: Connection) -> None:
    """Give the connection back to the pool."""
    if not connection.invalidated and raw(connection).closed:
        connection.invalidate()  # broken in the driver's hands: tell the pool
    connection.close()


def _append(connection: Connection, more: Growth, move: str, *held: str | bytes) -> int:
    """Append by ``move``, which also compares what is ``held``. Return the events inserted."""
    ledger, before, after, events, nodes, texts = more
    head: list[Any] = [ledger, after.size, after.packed]
    if before.size:
        head = [*head[1:], ledger, before.size, before.packed, *held]
    rows = [*_columns(ledger, nodes, _NODE), *_columns(ledger, texts, _TEXT), ledger]
    rows += [column(each) for column, each in zip(_EVENT, events, strict=True)]
    done: int = raw(connection).execute(move if before.size else _NEW_HEAD, head + rows).rowcount
    return done


def _columns(ledger: str, rows: Sequence[tuple[Any, ...]], kinds: _Kinds) -> list[Any]:
    """Return rows of a ledger as the columns that a statement takes."""
    columns = zip(*rows, strict=True) if rows else repeat((), len(kinds))
    return [ledger, *[kind(column) for kind, column in zip(kinds, columns, strict=True)]]
