"""Creating and upgrading the database."""

from __future__ import annotations

from alembic import command
from alembic.config import Config

from accountant.shipped import shipped
from accountant.store.engine import file_lock, sqlite_path, writer


def migrate(url: str) -> None:
    """Brings the database at ``url`` to the newest schema, creating it if there is none.

    Raises ValueError for a URL that is not supported, OSError or SQLAlchemyError if it fails.
    """
    path = sqlite_path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    config = Config()
    config.set_main_option("script_location", str(shipped("migrations")))
    engine = writer(url)
    with file_lock(path):
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        engine.dispose()
    path.chmod(0o600)
