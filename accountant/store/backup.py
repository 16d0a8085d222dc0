"""Copy a database and its vault to one file, while services go on writing.

All rows are read in one transaction that sees one moment: of SQLite a reader of the write-ahead
log, of PostgreSQL REPEATABLE READ. Heads are read from the vault before that moment, so the rows
continue them; keys after it, so none that a row names is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, LargeBinary, Table, select

from accountant.ledger.checkpoints import Known
from accountant.ledger.merkle import Node, Tree
from accountant.store import StoreError, postgres, translated
from accountant.store.archive import ArchiveWriter, Columns, End, Manifest, Row
from accountant.store.folding import BadCopy, Folding
from accountant.store.ledgers import parsed, sqlite_path
from accountant.store.queries import tree_of
from accountant.store.sqlite import file_lock, reader
from accountant.store.tables import EVENT, HEAD, METADATA, NODE, SESSION
from accountant.store.vault import Vault, known_of

TABLES: Final = tuple(table for table in METADATA.sorted_tables if table is not SESSION)
"""What is copied. A session that was ended since would live again: people sign in anew."""
_PAGE: Final = 2_000
Progress = Callable[[int], object]
"""Is told of so many more rows."""


def back_up(
    url: str,
    home: Path,
    file: IO[bytes],
    *,
    version: str,
    owner_url: str = "",
    passphrase: bytes | None = None,
    progress: Progress = lambda _: None,
) -> Manifest:
    """Write the database at ``url`` and the vault in ``home`` to ``file``; return what was written.

    Every event is hashed on the way. Raises BadCopy if the database is damaged, or lacks events
    that were signed: then its copy should not take the place of an older one. Raises StoreError,
    OSError.
    """
    vault = Vault(home)
    files = vault.heads()
    folding = Folding(by_ledger(known_of(files, "the vault")))
    check = Check(folding)
    with _moment(url, owner_url) as connection:
        revision = _revision(connection)
        files |= vault.keys()
        written = ArchiveWriter(file)
        tables = {table.name: columns_of(table) for table in TABLES}
        for table in TABLES:
            rows = check.seen(table.name, _rows(connection, table, progress))
            written.table(table.name, tables[table.name], rows)
    check.end()
    if lost := folding.lost():
        [(ledger, head), *_] = lost
        raise BadCopy(
            f"the database lacks events of {ledger} that were signed: {head.whose} has {head.size}"
            ". Nothing was written: put the right database back, or see `accountant recover`"
        )
    manifest = Manifest(
        version=version,
        revision=revision,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        tables=tables,
        parts=tuple(written.parts),
        ledgers=ends(folding),
        vault=files,
    )
    written.close(manifest, passphrase)
    return manifest


class Check:
    """Holds rows to each other as they pass, in the order of ``Columns``."""

    def __init__(self, folding: Folding) -> None:
        self._folding = folding
        self._heads: dict[str, Tree] = {}
        self._nodes: set[tuple[str, Node]] = set()

    def seen(self, table: str, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows of a table."""
        for row in rows:
            if table == EVENT.name:
                ledger, sequence, _, _, body, leaf = row
                self._folding.event(ledger, sequence, body, leaf)
            elif table == HEAD.name:
                self._heads[row[0]] = tree_of((row[1], row[2]))
            elif table == NODE.name:
                self._nodes.add((row[0], Node(*row[1:])))
            yield row

    def end(self) -> None:
        """Raise BadCopy unless all that passed belongs together."""
        self._folding.compare(self._heads, self._nodes)


def by_ledger(known: dict[str, Known]) -> dict[str, list[Known]]:
    """Return known heads by their ledger instead of by their path."""
    found: dict[str, list[Known]] = {}
    for name, head in known.items():
        found.setdefault(name.partition("/")[0], []).append(head)
    return found


def ends(folding: Folding) -> dict[str, End]:
    """Return where each ledger ends."""
    return {
        name: End(size=tree.size, root=tree.root.hex())
        for name, tree in sorted(folding.trees.items())
    }


def columns_of(table: Table) -> Columns:
    """Return the columns of a table."""
    binary = frozenset(one.name for one in table.columns if isinstance(one.type, LargeBinary))
    return Columns(names=tuple(one.name for one in table.columns), binary=binary)


@contextmanager
def _moment(url: str, owner_url: str) -> Iterator[Connection]:
    """Return a connection whose reads all see the moment of the first one."""
    path: Path | None = None
    if parsed(url).get_backend_name() == "sqlite":
        path = sqlite_path(url)
        if not path.exists():
            raise FileNotFoundError(f"there is no database at {path}")
        engine = reader(url)
    else:
        engine = postgres.engine(parsed(owner_url or url), pool=1)
    with ExitStack() as opened:
        opened.callback(_close, engine, path)
        with translated():
            connection = opened.enter_context(engine.begin())
            if engine.dialect.name != "sqlite":
                connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = 0")  # as long as it takes
        yield connection  # what fails while the file is written is not the database's error


def _close(engine: Engine, path: Path | None) -> None:
    with file_lock(path) if path else nullcontext():  # closing a file may checkpoint
        engine.dispose()


def _revision(connection: Connection) -> str:
    try:
        with translated():
            found = MigrationContext.configure(connection).get_current_revision()
    except StoreError as error:
        raise StoreError(
            f"the format of the database cannot be read ({error}): run `accountant migrate` again, "
            "which lets the service's role read it, or set ACCOUNTANT_OWNER_URL as for `migrate`"
        ) from error
    if found is None:
        raise StoreError("the database has no tables: create them with `accountant migrate`")
    return found


def _rows(connection: Connection, table: Table, progress: Progress) -> Iterator[Any]:
    """Yield all rows in the order of the key, a page in memory at a time."""
    statement = select(table).order_by(*table.primary_key.columns)
    with translated():
        pages = connection.execution_options(yield_per=_PAGE).execute(statement).partitions()
    while True:
        with translated():
            page = next(pages, None)
        if page is None:
            return
        yield from page
        progress(len(page))
