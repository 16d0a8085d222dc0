"""Databases of earlier formats, and the phases in which they come to the newest."""

from __future__ import annotations

import re
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from here import accountant
from support import MIGRATIONS, Clock, World, ask, hospital, laplace

from accountant.budget.outcome import CHARGING
from accountant.ledger.events import Event
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store.migrate import PHASES, Schema, _all, changing, migrate
from accountant.store.tables import TERMS
from bench.postgres import Server

EVENTS = 300
"""More than a tile holds."""


@pytest.fixture(scope="module")
def bodies() -> Sequence[bytes]:
    """The events of a ledger."""
    book = hospital("  - {id: a, limit: {epsilon: 100}}\n")
    while len(book.stored) < EVENTS:
        book.grant(laplace("0.001"))
    return tuple(book.stored)


def first_format(path: Path, bodies: Sequence[bytes]) -> str:
    """A file as the first version left it: events in a hash chain. Its URL."""
    with changing(f"sqlite:///{path}") as schema:
        schema.upgrade("0001")
    with closing(sqlite3.connect(path)) as raw:
        link = bytes(32)
        for sequence, body in enumerate(bodies):
            link, event = sha256(link + body).digest(), Event.from_bytes(body)
            row = ("fair", sequence, event.type, event.time, body, link)
            raw.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", row)
        raw.execute("INSERT INTO ledger_head VALUES ('fair', ?, ?)", (len(bodies), link))
        raw.commit()
    return f"sqlite:///{path}"


def second_format(server: Server, name: str, bodies: Sequence[bytes]) -> str:
    """A database as the first version on PostgreSQL left it. The URL of its owner."""
    url = server.url("owner", name)
    with changing(url) as schema:
        schema.upgrade("0002")
        tree, nodes = Tree().grown(map(leaf_hash, bodies))
        run = schema.connection.exec_driver_sql
        for sequence, body in enumerate(bodies):
            event = Event.from_bytes(body)
            row = ("fair", sequence, event.type, event.time, body, leaf_hash(body))
            run("INSERT INTO event VALUES (%s, %s, %s, %s, %s, %s)", row)
        for node in nodes:
            run("INSERT INTO node VALUES ('fair', %s, %s, %s)", tuple(node))
        run("INSERT INTO ledger_head VALUES ('fair', %s, %s)", (tree.size, tree.packed))
    return url


@pytest.fixture
def server(postgres: Server) -> Iterator[tuple[Server, str]]:
    """A server, and the name of an empty database on it."""
    name = f"u_{secrets.token_hex(6)}"
    postgres.create(name)
    yield postgres, name
    postgres.drop(name)


def revision(url: str) -> str | None:
    """The last migration that was run."""
    with changing(url) as schema:
        return schema.revision


def goes_on(made: World, bodies: Sequence[bytes]) -> None:
    """The service has every event of before, byte for byte, under the right root, and grants."""
    assert made.stored() == list(bodies)
    assert made.head() == Tree().grown(map(leaf_hash, bodies))[0]
    assert made.post("/grants", ask(laplace("0.001"))).status_code == 201
    assert made.publisher.sign("fair").size == len(bodies) + 2


def test_the_first_format_on_sqlite(
    bodies: Sequence[bytes], world: Callable[..., World], tmp_path: Path
) -> None:
    """A file of the first version is only brought forth with every service stopped, which whoever
    opens it before is told, and then a service goes on with it.
    """
    url = first_format(tmp_path / "old.db", bodies)
    asked = accountant("--database-url", url, "keys", "list")
    assert (asked.code, "has `accountant migrate` run?" in asked.err) == (2, True), asked
    for phase in ("pre", "post"):
        with pytest.raises(ValueError, match="0002 is for when no service runs"):
            migrate(url, phase=phase)
        assert revision(url) == "0001"
    assert not migrate(url)
    goes_on(world(Clock(), url=url), bodies)


def test_the_first_format_on_postgresql(
    bodies: Sequence[bytes],
    server: tuple[Server, str],
    world: Callable[..., World],
    tmp_path: Path,
) -> None:
    """A database of the first version there is brought forth with every service stopped, as 0.3
    needs (ADR 0068), which gives the service's role its rights; ``post`` then finds nothing to do.
    """
    host, name = server
    owner_url = second_format(host, name, bodies)
    app_url = host.url("app", name)
    asked = accountant("--database-url", owner_url, "keys", "list")
    assert (asked.code, "has `accountant migrate` run?" in asked.err) == (2, True), asked
    with pytest.raises(ValueError, match="0012 is for when no service runs"):
        migrate(app_url, owner_url, "pre")
    assert not migrate(app_url, owner_url)
    after = revision(owner_url)
    assert after == _all()[-1].revision
    assert not migrate(app_url, owner_url, "post")
    assert revision(owner_url) == after
    made = world(Clock(), url=app_url, home=tmp_path)
    goes_on(made, bodies)
    assert made.service.ledgers.excess() == []


MADE = """
from alembic import op
revision, down_revision, phase = "{revision}", "{before}", "{phase}"
def upgrade():
    op.execute("CREATE TABLE t{revision} (x INTEGER)")
"""


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes migrations of the given phases beyond those that are shipped."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder)
    monkeypatch.setattr("accountant.store.migrate.shipped", lambda _: folder)

    def make(*phases: str) -> None:
        before = _all()[-1].revision
        for phase in phases:
            name = f"{int(before) + 1:04}"
            text = MADE.format(revision=name, before=before, phase=phase)
            (folder / "versions" / f"{name}_made.py").write_text(text)
            before = name

    return make


def test_each_phase_does_its_part(database: str, chain: Callable[..., None]) -> None:
    """``pre`` stops before what needs the version before gone, ``post`` does the rest and refuses
    while ``pre`` has something to do.
    """
    before = revision(database)
    assert before is not None
    first, second, third = (f"{int(before) + n:04}" for n in (1, 2, 3))
    chain("pre", "pre", "post")
    with pytest.raises(ValueError, match=f"{first} comes first: .*--phase pre"):
        migrate(database, phase="post")
    assert revision(database) == before
    migrate(database, phase="pre")
    assert revision(database) == second
    migrate(database, phase="pre")
    assert revision(database) == second
    migrate(database, phase="post")
    assert revision(database) == third


def test_no_release_is_skipped_while_one_runs(database: str, chain: Callable[..., None]) -> None:
    """Where an earlier release has a ``post`` that was never run, ``pre`` of a later one is refused
    and names it; with all services stopped everything runs.
    """
    before = revision(database)
    chain("pre", "post", "pre")
    with pytest.raises(ValueError, match="ends an earlier upgrade and comes first"):
        migrate(database, phase="pre")
    assert revision(database) == before
    migrate(database)
    assert revision(database) == _all()[-1].revision


def test_the_index_on_terms_has_all_of_them(server: tuple[Server, str], tmp_path: Path) -> None:
    """The migrations leave an index on just the events that are looked for: in a database of 0.2.0
    it lacks the registrations that charge, of which that knows nothing.
    """
    host, name = server
    wanted = quoted(TERMS)
    for url in (f"sqlite:///{tmp_path}/a.db", host.url("owner", name)):
        with changing(url) as schema:
            schema.upgrade("0011")
            assert sorted(indexed(schema), key=wanted.index) == wanted[:-1]
        migrate(url)
        with changing(url) as schema:
            assert indexed(schema) == wanted
    assert wanted[-1] == CHARGING


INDEXES = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE name = 'event_terms'",
    "postgresql": "SELECT indexdef FROM pg_indexes WHERE indexname = 'event_terms'",
}


def indexed(schema: Schema) -> list[str]:
    """The types of the events that have an index of their own."""
    connection = schema.connection
    return quoted(connection.exec_driver_sql(INDEXES[connection.dialect.name]).scalar_one())


def quoted(text: str) -> list[str]:
    """The texts in a statement."""
    return re.findall("'([^']+)'", text)


def test_every_migration_has_a_phase() -> None:
    """Whoever adds a migration says when it may run."""
    assert {one.module.phase for one in _all()} <= {*PHASES[1:], "stopped"}


def test_a_newer_database_is_left(database: str, chain: Callable[..., None]) -> None:
    """A program refuses a database that a later one has migrated, and says why."""
    chain("pre")
    migrate(database)
    with changing(database) as schema:
        schema.connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for phase in PHASES[1:]:
        with pytest.raises(ValueError, match="9999 is newer than this version"):
            migrate(database, phase=phase)
