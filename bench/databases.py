"""Fresh databases on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg

from bench.postgres import server


@contextmanager
def databases(url: str | None) -> Iterator[Callable[[], str]]:
    """A function that makes a database and returns its URL. Without the URL of a superuser of some
    server, a server is started. The databases are gone at the end.
    """
    if url is None:
        with server() as own, databases(own.url("superuser", "postgres")) as made:
            yield made
        return
    names: list[str] = []

    def fresh() -> str:
        names.append(f"bench_{len(names)}")
        return _created(url, names[-1])

    try:
        yield fresh
    finally:
        for name in names:
            _run(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _created(url: str, name: str) -> str:
    _run(url, f"CREATE DATABASE {name}")
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
