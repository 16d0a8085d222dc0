"""The ledgers of a database, by the engine that its URL names."""

from __future__ import annotations

from accountant.store.ledgers import Ledgers, parsed


def open_ledgers(url: str) -> Ledgers:
    """Return all ledgers of the database at ``url``. Raise ValueError for another database."""
    if parsed(url).get_backend_name() == "sqlite":
        from accountant.store.sqlite import Sqlite  # noqa: PLC0415 (a driver loads where used)

        return Sqlite(url)
    from accountant.store.postgres import Postgres  # noqa: PLC0415 (its driver loads long)

    return Postgres(url)
