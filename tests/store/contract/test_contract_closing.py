"""No connection stays open once the ledgers are closed, whichever database they are in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from places import Place
from sqlalchemy import event
from sqlalchemy.pool import Pool

from accountant.store.opening import open_ledgers


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """The connections of the driver that are opened from now on."""
    found: list[Any] = []

    def note(connection: Any, _: Any) -> None:
        found.append(connection)

    event.listen(Pool, "connect", note)
    yield found
    event.remove(Pool, "connect", note)


def is_open(connection: Any) -> bool:
    """Whether a connection of a driver is open."""
    if not isinstance(connection, sqlite3.Connection):
        return not connection.closed
    try:
        connection.total_changes  # noqa: B018 it raises if it is closed
    except sqlite3.ProgrammingError:
        return False
    return True


def test_what_is_in_use_is_closed_once_it_is_given_back(place: Place, opened: list[Any]) -> None:
    """A thread that reads while the ledgers are closed reads to its end, and leaves nothing."""
    ledgers = open_ledgers(place.url)
    assert ledgers.names() == []

    def read(connection: Any) -> object:
        ledgers.close()
        return connection.exec_driver_sql("SELECT count(*) FROM ledger_head").scalar()

    assert ledgers._read(read) == 0
    assert opened
    assert not any(map(is_open, opened))


def test_who_reads_afterwards_leaves_nothing_open(place: Place, opened: list[Any]) -> None:
    """A job that comes late is answered, and so is one that writes; no connection is kept."""
    ledgers = open_ledgers(place.url)
    ledgers.close()
    ledgers.close()
    assert ledgers.names() == []
    assert ledgers.head("a").size == 0
    with ledgers.writing("a") as writing:
        assert writing.head("a").size == 0
    assert len(opened) > 1
    assert not any(map(is_open, opened))
