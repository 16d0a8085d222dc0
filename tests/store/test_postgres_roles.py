"""PostgreSQL's two fences, each alone: the service's role may only append, and triggers hold even
the owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg
import pytest
from forked import SERVICE, Forked
from places import TABLES, Hosted, everything
from support import World, ask, laplace

from accountant.store import StoreError
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from bench.postgres import Server


@pytest.fixture
def filled(world: Callable[..., World], hosted: Hosted) -> Hosted:
    """A database with a row in every table."""
    made = world(url=hosted.url).hospital()
    assert made.post("/grants", ask(laplace("0.1"), purpose="ops")).status_code == 201
    signed = made.publisher.sign("fair")
    with made.service.ledgers.writing("fair") as writing:
        writing.keep_cosignature("fair", signed.number, "w", "a line\n")
        writing.commit()
    hosted.run(f"INSERT INTO node VALUES ('fair', 1, 0, {hosted.blob('00' * 32)})")
    assert all(everything(hosted).values())
    return hosted


FORBIDDEN = [
    *(f"TRUNCATE {table}" for table in TABLES),
    "TRUNCATE event, ledger_head",
    *(f"DELETE FROM {table}" for table in TABLES if table != "text"),
    *(f"UPDATE {table} SET ledger = ledger" for table in TABLES),
    "UPDATE event SET body = body",
    "MERGE INTO event e USING event o ON e.ledger = o.ledger WHEN MATCHED THEN DELETE",
    "INSERT INTO event SELECT * FROM event"
    " ON CONFLICT (ledger, sequence) DO UPDATE SET body = excluded.body",
]


@pytest.mark.parametrize("role", ["app", "owner"])
def test_each_fence_holds_alone(filled: Hosted, role: str) -> None:
    """What would rewrite a ledger is refused to the service's role for want of the right, before
    any trigger; and to the owner, who has every right, by the triggers.
    """
    before = everything(filled)
    reason = {
        "app": psycopg.errors.InsufficientPrivilege,
        "owner": psycopg.errors.RestrictViolation,
    }
    for statement in FORBIDDEN:
        with pytest.raises(reason[role]):
            filled.run(statement, role=role)
        assert everything(filled) == before, statement


def test_a_replica_session_does_not_pass_the_triggers(filled: Hosted) -> None:
    """Not even a superuser's session that says it applies a replica's changes passes them."""
    before = everything(filled)
    for statement in ("DELETE FROM event", "UPDATE ledger_head SET sequence = 0", "TRUNCATE node"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            filled.run("SET session_replication_role = replica", statement, role="superuser")
    assert everything(filled) == before


def test_the_service_has_no_other_right(filled: Hosted) -> None:
    """The service's role has exactly the rights it needs: it makes nothing and alters nothing."""
    for statement in (
        "CREATE TABLE mine (a int)",
        "DROP TABLE event",
        "ALTER TABLE event DISABLE TRIGGER ALL",
        "DROP TRIGGER event_no_update ON event",
        "CREATE TRIGGER mine BEFORE INSERT ON event EXECUTE FUNCTION accountant_append_only()",
        "CREATE OR REPLACE FUNCTION accountant_append_only() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RETURN NEW; END'",
        "ALTER TABLE text SET (autovacuum_enabled = off)",
        "UPDATE alembic_version SET version_num = '0001'",
        "SET session_replication_role = replica",
        "GRANT UPDATE ON event TO PUBLIC",
        "UPDATE ledger_head SET ledger = 'other'",
    ):
        try:
            filled.run(statement, role="app")
        except psycopg.errors.InsufficientPrivilege:
            continue
        # GRANT without the right to only warns.
        assert statement.startswith("GRANT"), statement
    rights = {
        (table, right)
        for table, right in filled.run(
            "SELECT table_name, privilege_type FROM information_schema.role_table_grants"
            " WHERE grantee IN ('app', 'PUBLIC') AND table_schema = 'public'"
        )
    }
    appended = ("event", "node", "checkpoint", "cosignature", "ledger_head", "text", "data_use")
    assert rights == {(table, right) for table in appended for right in ("SELECT", "INSERT")} | {
        ("text", "DELETE"),
        *(
            (t, right)
            for t in ("callback", "session", "data_read")
            for right in ("SELECT", "INSERT", "DELETE")
        ),
        *((t, r) for t in ("alert", "alert_mute", "key_use") for r in ("SELECT", "INSERT")),
        ("alembic_version", "SELECT"),
    }
    columns = filled.run(
        "SELECT table_name, column_name FROM information_schema.column_privileges"
        " WHERE grantee = 'app' AND privilege_type = 'UPDATE'"
    )
    assert sorted(columns) == [
        ("alert", "attempts"),
        ("alert", "delivered"),
        ("alert", "due"),
        ("alert_mute", "ended"),
        ("alert_mute", "ended_by"),
        ("callback", "attempts"),
        ("callback", "due"),
        ("key_use", "used"),
        ("ledger_head", "peaks"),
        ("ledger_head", "sequence"),
        ("session", "used"),
    ]


def test_migrating_again_takes_back_what_was_given(filled: Hosted) -> None:
    """Each run of ``migrate`` leaves the service's role with its rights and no others, and changes
    nothing else.
    """
    before = everything(filled)
    filled.run("GRANT ALL ON ALL TABLES IN SCHEMA public TO app, PUBLIC")
    ledgers = open_ledgers(filled.url)
    assert ledgers.excess()
    assert not migrate(filled.url, filled.owner_url)
    assert ledgers.excess() == []
    assert everything(filled) == before
    ledgers.close()


@pytest.mark.parametrize("role", ["owner", "superuser"])
def test_a_service_that_owns_its_tables_is_told(filled: Hosted, role: str) -> None:
    """Whoever runs the service as the owner or as a superuser is told what that allows."""
    ledgers = open_ledgers(filled.server.url(role, filled.name))
    assert [line.split(" on ")[0] for line in ledgers.excess()] == [
        "DELETE",
        "TRIGGER",
        "TRUNCATE",
        "UPDATE",
    ]
    ledgers.close()


def test_one_role_is_enough_to_begin_with(postgres: Server) -> None:
    """Without an owner of its own the database belongs to the service's role, and works."""
    postgres.create("single")
    url = postgres.url("owner", "single")
    assert migrate(url)
    assert not migrate(url)
    ledgers = open_ledgers(url)
    ledgers.check()
    assert ledgers.names() == []
    ledgers.close()
    postgres.drop("single")


def test_the_database_of_something_else_is_left_alone(postgres: Server) -> None:
    """Tables that are not ours are never mixed with ours; a failed migration leaves nothing."""
    postgres.create("else")
    place = Hosted(postgres, "else")
    place.run("CREATE TABLE cats (name text)")
    with pytest.raises(ValueError, match="something else") as refusal:
        migrate(place.url, place.owner_url)
    assert postgres.owner not in str(refusal.value)
    place.run("DROP TABLE cats")
    with pytest.raises(StoreError, match="nobody-such"):
        migrate(place.url.replace("//app:", "//nobody-such:"), place.owner_url)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert place.run(tables) == [(0,)]
    postgres.drop("else")


def test_two_that_migrate_at_once(postgres: Server) -> None:
    """Of two that migrate an empty database at once one makes the tables, and the other finds
    them made.
    """
    postgres.create("race")
    env = os.environ | {
        "ACCOUNTANT_DATABASE_URL": postgres.url("app", "race"),
        "ACCOUNTANT_OWNER_URL": postgres.url("owner", "race"),
    }
    runs = [Forked(SERVICE, "migrate", environment=env) for _ in range(2)]
    said = ["".join(run.communicate()) for run in runs]
    assert sum("was created" in text for text in said) == 1, said
    assert sum("is up to date" in text for text in said) == 1, said
    ledgers = open_ledgers(postgres.url("app", "race"))
    assert (ledgers.names(), ledgers.excess()) == ([], [])
    ledgers.close()
    postgres.drop("race")


def test_an_erased_text_is_soon_vacuumed(filled: Hosted) -> None:
    """One erased text is reason enough for the server to clean its table, and no text is left in
    the table's pages after that.
    """
    options = filled.run("SELECT reloptions FROM pg_class WHERE relname = 'text'")[0][0]
    assert "autovacuum_vacuum_threshold=0" in options
    assert "autovacuum_vacuum_scale_factor=0" in options
    ledgers = open_ledgers(filled.url)
    [(sequence,)] = filled.run("SELECT sequence FROM text")
    with ledgers.writing("fair") as writing:
        writing.erase_texts("fair", sequence, ["purpose"])
        writing.commit()
    assert ledgers.finish_erasing()
    ledgers.close()
    filled.run("VACUUM text")
    assert filled.run("SELECT pg_relation_size('text')") == [(0,)]
