"""Creating and upgrading the database."""

from __future__ import annotations

import os

from alembic import command
from alembic.config import Config
from sqlalchemy import inspect
from sqlalchemy.exc import SQLAlchemyError

from accountant.shipped import shipped
from accountant.store.engine import file_lock, sqlite_path, writer
from accountant.store.ledgers import StoreError


def migrate(url: str) -> bool:
    """Brings the database at ``url`` to the newest schema; True if there was none before.

    Raises ValueError for a URL that is not supported or a database of something else, OSError or
    StoreError if it fails.
    """
    path = sqlite_path(url)
    if not path.parent.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent.parent}")
    path.parent.mkdir(exist_ok=True)
    new = not path.exists()
    if new:  # nobody else may read it, from the first moment on
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    engine = writer(url)
    try:
        with file_lock(path), engine.begin() as connection:
            names = set(inspect(connection).get_table_names())
            if names and "alembic_version" not in names:
                raise ValueError(f"{path} is the database of something else; name another file")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except SQLAlchemyError as error:
        raise StoreError(str(getattr(error, "orig", None) or error)) from error
    finally:
        engine.dispose()
    return new
