"""Create and upgrade the database."""

from __future__ import annotations

import os

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect

from accountant.config import shipped
from accountant.store import postgres, translated
from accountant.store.ledgers import parsed, shown, sqlite_path
from accountant.store.sqlite import file_lock, writer
from accountant.store.whole import made_folder


def migrate(url: str, owner_url: str = "") -> bool:
    """Bring the database at ``url`` to the newest schema. Return True if there was none before.

    On PostgreSQL the role of ``owner_url``, if given, owns the tables, and that of ``url`` gets the
    rights of the service. Raises ValueError for a URL or database of something else, OSError,
    StoreError.
    """
    if parsed(url).get_backend_name() != "sqlite":
        return _migrate_server(url, owner_url or url)
    path = sqlite_path(url)
    if not path.parent.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent.parent}")
    made_folder(path.parent)
    if not path.exists():  # from the first moment on only the owner may read it
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    engine = writer(url)
    try:
        with translated(), file_lock(path), engine.begin() as connection:
            return _upgrade(connection, str(path))
    finally:
        engine.dispose()


def _migrate_server(url: str, owner_url: str) -> bool:
    """Migrate in one transaction: one that fails leaves nothing. Of two at once, one waits."""
    role, owner = parsed(url).username, parsed(owner_url)
    engine = postgres.engine(owner, pool=1)
    try:
        with translated(), engine.begin() as connection:
            connection.exec_driver_sql("BEGIN")
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # as long as it takes
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('accountant'))")
            new = _upgrade(connection, shown(owner_url))
            if role and role != owner.username:
                postgres.grant(connection, role)
            return new
    finally:
        engine.dispose()


def _upgrade(connection: Connection, place: str) -> bool:
    names = set(inspect(connection).get_table_names())
    if names and "alembic_version" not in names:
        raise ValueError(f"{place} is the database of something else; name another one")
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return not names
