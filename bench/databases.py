"""Fresh databases on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from urllib.parse import urlsplit

import psycopg

from accountant.store.ledgers import Ledgers


@contextmanager
def postgres(url: str | None) -> Iterator[Callable[[], str] | None]:
    """A function that makes a database on the server of ``url`` and returns its URL; None if there
    is no server, or the service cannot use it. The databases are dropped at the end.
    """
    if url is None or not _usable(url):
        yield None
        return
    made: list[str] = []
    numbers = count()

    def fresh() -> str:
        name = f"bench_{next(numbers)}"
        _run(url, f"CREATE DATABASE {name}")
        made.append(name)
        return urlsplit(url)._replace(path=f"/{name}").geturl()

    try:
        yield fresh
    finally:
        for name in made:
            _run(url, f"DROP DATABASE {name} WITH (FORCE)")


def _run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def _usable(url: str) -> bool:
    try:
        Ledgers(url)
    except ValueError:
        return False
    return True
