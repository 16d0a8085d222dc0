"""Create and upgrade the database.

Each migration names its ``phase``: ``pre`` if the version of the program before works on with it,
``post`` if it is only for when that version is gone, ``stopped`` if no version may run meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, inspect

from accountant.config import shipped
from accountant.store import postgres, translated
from accountant.store.ledgers import parsed, shown, sqlite_path
from accountant.store.sqlite import file_lock, reader, writer
from accountant.store.tables import METADATA
from accountant.store.whole import made_folder

Phase = Literal["all", "pre", "post"]
PHASES: Final = ("all", "pre", "post")
_NEWEST: Final = "head"
_READABLE: Final = "SELECT has_table_privilege(to_regclass('alembic_version'), 'SELECT')"
"""NULL where there is no such table."""


def migrate(url: str, owner_url: str = "", phase: Phase = "all") -> bool:
    """Bring the database at ``url`` to the newest schema. Return True if there was none before.

    On PostgreSQL the role of ``owner_url``, if given, owns the tables, and that of ``url`` gets the
    rights of the service. ``pre`` does only what the version before works on with, ``post`` the
    rest. Raises ValueError for a URL or database of something else, or where another phase comes
    first; OSError, StoreError.
    """
    with changing(url, owner_url) as schema:
        new = schema.revision is None
        schema.upgrade(_NEWEST if new else schema.end_of(phase))
        return new


@dataclass(frozen=True)
class Schema:
    """The schema of a database in a transaction that changes it."""

    connection: Connection

    @property
    def revision(self) -> str | None:
        """The last migration that was run; None in an empty database."""
        return MigrationContext.configure(self.connection).get_current_revision()

    def upgrade(self, to: str = _NEWEST) -> None:
        """Run the migrations up to ``to``. Raises ValueError for one that is not known."""
        _known(to)
        config = _config()
        config.attributes["connection"] = self.connection
        command.upgrade(config, to)

    def end_of(self, phase: Phase) -> str:
        """Return the last migration of a phase. Raises ValueError where another comes first."""
        waiting = _after(self.revision)
        if phase == "all" or not waiting:
            return _NEWEST
        kinds = [one.module.phase for one in waiting]
        if "stopped" in kinds:
            raise ValueError(
                f"migration {waiting[kinds.index('stopped')].revision} is for when no service runs "
                "on this database: stop all of them, then run `accountant migrate` without --phase"
            )
        first = kinds.index("post") if "post" in kinds else len(kinds)
        if phase == "post":
            if first > 0:
                raise ValueError(
                    f"migration {waiting[0].revision} comes first: run `accountant migrate --phase "
                    "pre`, start the new version everywhere, then run this again"
                )
            return _NEWEST
        if "pre" in kinds[first:]:
            raise ValueError(
                f"migration {waiting[first].revision} ends an earlier upgrade and comes first: "
                "upgrade one release at a time, or stop every service and run `accountant migrate`"
            )
        return waiting[first - 1].revision if first else self.revision or _NEWEST


@contextmanager
def changing(url: str, owner_url: str = "") -> Iterator[Schema]:
    """Open a transaction that may change the schema; it is kept if the block ends well, else none
    of it is. Of two at once, one waits. Raises as ``migrate``.
    """
    engine = _changing_server if parsed(url).get_backend_name() != "sqlite" else _changing_file
    with engine(url, owner_url) as schema:
        yield schema


@contextmanager
def _changing_file(url: str, _: str) -> Iterator[Schema]:
    path = sqlite_path(url)
    if not path.parent.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent.parent}")
    made_folder(path.parent)
    if not path.exists():  # from the first moment on only the owner may read it
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    engine = writer(url)
    try:
        with translated(), file_lock(path), engine.begin() as connection:
            yield _ours(connection, str(path))
    finally:
        engine.dispose()


@contextmanager
def _changing_server(url: str, owner_url: str) -> Iterator[Schema]:
    role, owner = parsed(url).username, parsed(owner_url or url)
    engine = postgres.engine(owner, pool=1)
    try:
        with translated(), engine.begin() as connection:
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # as long as it takes
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('accountant'))")
            yield _ours(connection, shown(owner_url or url))
            if role and role != owner.username:
                postgres.grant(connection, role)
    finally:
        engine.dispose()


def _ours(connection: Connection, place: str) -> Schema:
    names = set(inspect(connection).get_table_names())
    if names and "alembic_version" not in names:
        raise ValueError(f"{place} is the database of something else; name another one")
    return Schema(connection)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    return config


def _known(revision: str) -> None:
    if revision != _NEWEST and revision not in {one.revision for one in _all()}:
        raise ValueError(
            f"the database format {revision} is newer than this version of the program knows: use "
            "the version that wrote it, or a later one"
        )


def _all() -> list[Script]:
    """Return every migration, the first one first."""
    return list(ScriptDirectory.from_config(_config()).walk_revisions())[::-1]


def _after(revision: str | None) -> list[Script]:
    """Return the migrations that were not run. Raises ValueError for a database that is newer."""
    if revision is not None:
        _known(revision)
    scripts = _all()
    done = [one.revision for one in scripts]
    return scripts[0 if revision is None else done.index(revision) + 1 :]


class Found(NamedTuple):
    """What was found of a database's schema."""

    version: str | None
    """Its last migration; None if it has none, or if ``missing`` says what could be seen."""
    known: list[str]
    """The migrations of this program, the newest first."""
    missing: list[str] | None = None
    """Where this role may not read the version, as 0.2.0 left the service's on PostgreSQL: the
    tables and columns of this program that are not there.
    """


def schema_of(url: str) -> Found:
    """Look at the schema of the database at ``url``. Raises ValueError, StoreError."""
    known = [one.revision for one in reversed(_all())]
    server = parsed(url).get_backend_name() != "sqlite"
    engine = postgres.engine(parsed(url), pool=1) if server else reader(url)
    try:
        with translated(), engine.connect() as connection:
            if server and connection.exec_driver_sql(_READABLE).scalar_one() is False:
                return Found(None, known, _missing(connection))
            return Found(MigrationContext.configure(connection).get_current_revision(), known)
    finally:
        engine.dispose()


def _missing(connection: Connection) -> list[str]:
    """Name the tables and columns of this program that a database has not."""
    tables = inspect(connection).get_multi_columns()
    there = {table: {one["name"] for one in columns} for (_, table), columns in tables.items()}
    needed = {table.name: [one.name for one in table.columns] for table in METADATA.sorted_tables}
    missing: list[str] = []
    for table, columns in needed.items():
        if table not in there:
            missing.append(table)
        else:
            missing += [f"{table}.{name}" for name in columns if name not in there[table]]
    return missing
