"""The schema and every statement are such that ledgers can be spread over servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from places import Hosted
from sqlalchemy import BigInteger, Engine, Integer, LargeBinary, String, Text, event
from support import World, ask, laplace

from accountant.store import postgres
from accountant.store.ledgers import parsed
from accountant.store.postgres import RIGHTS
from accountant.store.tables import METADATA

PORTABLE = (BigInteger, Integer, LargeBinary, String, Text)
TABLES = {
    table.name: table for table in METADATA.tables.values() if table.name != "alembic_version"
}
SHARED = {"data_use": "digest"}
"""What is of all ledgers, by what its key starts with."""
WHOLE = {
    "SELECT ledger_head.ledger FROM ledger_head ORDER BY ledger_head.ledger",  # names()
    "SELECT pg_is_in_recovery()",  # check()
}
"""What asks about more than one ledger."""


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_key_starts_with_the_ledger(table: Any) -> None:
    """A table can be sharded by ledger: each key and index starts with it, nothing refers to
    another table, and no value is made by the database. What all ledgers share is on a list.
    """
    assert next(iter(table.primary_key.columns)).name == SHARED.get(table.name, "ledger")
    for index in table.indexes:
        assert next(iter(index.columns)).name == "ledger"
    assert not table.foreign_keys
    for column in table.columns:
        assert type(column.type) in PORTABLE, column
        assert column.server_default is None
        assert column.default is None
        assert column.identity is None
        assert column.autoincrement in (False, "auto")
        if isinstance(column.type, Integer):
            assert not (column.primary_key and column.autoincrement), column


def test_the_service_has_rights_on_every_table() -> None:
    """A new table comes with a decision on what the service may do to it."""
    assert set(RIGHTS) == set(TABLES)


def test_the_database_has_what_the_tables_say(hosted: Hosted) -> None:
    """The migrations make the tables that the code knows, on PostgreSQL with no sequence, and
    every index starts with the ledger there too.
    """
    engine = postgres.engine(parsed(hosted.owner_url), pool=1)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()
    assert hosted.run("SELECT count(*) FROM pg_sequences") == [(0,)]
    firsts = hosted.run(
        "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public'"
    )
    found = {(name, column) for name, column in firsts if name != "alembic_version"}
    assert found == {(name, "ledger") for name in TABLES} | set(SHARED.items())
    unordered = hosted.run(
        "SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " JOIN pg_index i ON i.indrelid = c.oid AND a.attnum = ANY (i.indkey)"
        " JOIN pg_collation o ON o.oid = a.attcollation"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'public' AND c.relname <> 'alembic_version' AND o.collname <> 'C'"
    )
    assert unordered == []


@contextmanager
def statements() -> Iterator[list[str]]:
    """All statements that SQLAlchemy sends meanwhile."""
    seen: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        seen.append(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


def test_every_statement_names_its_ledger(world: Callable[..., World], hosted: Hosted) -> None:
    """Whatever the service does asks about one ledger, so that one shard answers; what does not is
    on a list.
    """
    with statements() as seen:
        made = world(url=hosted.url).hospital()
        grant = made.post("/grants", ask(laplace("0.1"), purpose="ops")).json()["id"]
        made.post(f"/grants/{grant}/commit", {})
        made.publisher.publish("fair")
        made.service.erase("fair", "officer", 4, None, "law")
        for path in ("/accounts", "/events", "/log/checkpoint", "/receipts/4", "/report"):
            made.get(path)
        made.service.expire_due()
        made.service.ready()
    asked = {
        statement
        for statement in seen
        if any(f" {table}" in statement for table in TABLES)
        or statement.startswith("SELECT pg_is_in")
    }
    assert len(asked) > 9
    for statement in {
        one for one in asked - WHOLE if "FROM data_use WHERE data_use.digest" not in one
    }:
        if statement.startswith("INSERT"):
            assert "(ledger," in statement or "data_use (digest," in statement
        else:
            named = ".ledger = %(ledger" in statement or "WHERE ledger = %s" in statement
            assert named, statement
    for statement in (postgres._NEW_HEAD, postgres._MOVED, postgres._APPEND_NOW):
        inserts = statement.count("INSERT INTO")
        assert statement.count("(ledger, ") == inserts
        assert inserts == 4 or "WHERE ledger = %b" in statement
    began = postgres._LOCK.format(ledger="a", beside="b", wait="").as_string()
    assert began.count("SELECT") == began.count("WHERE ledger = '")
