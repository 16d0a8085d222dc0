"""Every test of this folder runs on each kind of database."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import Place, copied

from bench.postgres import Server


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A migrated database of this test's own."""
    if request.param == "sqlite":
        empty: Path = request.getfixturevalue("empty_database")
        return copied(empty, tmp_path / "accountant.db")
    hosted: Place = request.getfixturevalue("hosted")
    return hosted


@pytest.fixture
def database(place: Place) -> str:
    """Its URL."""
    return place.url


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database that was never migrated."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    server: Server = request.getfixturevalue("postgres")
    name = f"e_{secrets.token_hex(6)}"
    server.create(name)
    yield server.url("app", name)
    server.drop(name)
