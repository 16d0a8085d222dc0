"""What a database may fail at, in three kinds that a caller treats differently."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy.exc import SQLAlchemyError

AGAIN: Final = {"40001", "40P01", "23505"}
"""SQLSTATEs of who came second: serialization failure, deadlock, unique violation."""


class StoreError(Exception):
    """The database did not do what was asked. Nothing of the transaction is kept."""


class Moved(StoreError):
    """Somebody else moved the head first: read it again and decide from scratch. If that happens
    again and again with nobody else writing, the database is damaged: an event stands beyond its
    head.
    """


class Unknown(StoreError):
    """Whether the commit happened is unknown: only the head, read back, tells."""


@contextmanager
def translated() -> Iterator[None]:
    """Turns what drivers raise into ours. Drivers never put a password into a message, for it is
    handed to them apart from everything that they print.
    """
    try:
        yield
    except (SQLAlchemyError, psycopg.Error, sqlite3.Error, OSError) as error:
        cause = getattr(error, "orig", None) or error
        kind = Moved if getattr(cause, "sqlstate", None) in AGAIN else StoreError
        raise kind(" ".join(str(cause).split())) from error
