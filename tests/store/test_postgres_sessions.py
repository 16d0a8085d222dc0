"""PostgreSQL whose sessions are not as ours are by default."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from places import Hosted
from support import World, ask, clean, laplace

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree
from accountant.store.ledgers import Ledgers, Moved, Text
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from bench.postgres import Server

WORDS = "für «alle»"


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"])
@pytest.mark.parametrize("client", ["", "LATIN9", "SQL_ASCII"])
def test_texts_are_kept_in_their_own_words(
    postgres: Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    encoding: str,
    client: str,
) -> None:
    """Whatever the database is encoded in, and whatever the environment says of the client, texts
    come back as they were given, and who asks again is answered as before.
    """
    if client:
        monkeypatch.setenv("PGCLIENTENCODING", client)
    name = f"in_{encoding}_{client}".lower()
    with closing(postgres.connect("postgres")) as connection:
        connection.execute(
            f"CREATE DATABASE {name} OWNER owner TEMPLATE template0 ENCODING '{encoding}'"
            " LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    migrate(postgres.url("app", name), postgres.url("owner", name))
    made = World(postgres.url("app", name), home=tmp_path).hospital()
    asked = ask(laplace("0.01"), purpose=WORDS)
    first = made.post("/grants", asked, key="k")
    again = made.post("/grants", asked, key="k")
    assert (first.status_code, again.json()) == (201, first.json())
    [text] = made.service.texts("fair", 0, 99)
    assert text.text == WORDS
    clean(made)
    made.close()


def appended(ledgers: Ledgers, size: int) -> bool:
    """Appends the event number ``size``; in one step, which it says, but for the first."""
    with ledgers.writing("a", light=size > 0) as writing:
        if size:
            writing.believe(ledgers.head("a"), Tree())
        writing.append("a", [Entry(size, "x.y.v1", size, b"event")])
        writing.commit()
        return not writing.locked


def test_a_light_round_is_durable_whatever_the_default(hosted: Hosted) -> None:
    """A server that need not wait for the disk does wait for what is appended in one step."""
    hosted.run(
        f"ALTER DATABASE {hosted.name} SET synchronous_commit = off",
        "CREATE TABLE durable (setting text)",
        "GRANT INSERT ON durable TO PUBLIC",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO durable VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER note AFTER INSERT ON event DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION note()",
        role="superuser",
    )
    mine = open_ledgers(hosted.url)
    for size in range(3):
        assert appended(mine, size) == (size > 0)
    assert hosted.run("SELECT setting FROM durable", role="superuser") == [("on",)] * 3
    mine.close()


def test_what_fails_at_its_commit_was_not_done(hosted: Hosted) -> None:
    """Where the server refuses a light round only when it is to be committed, it has moved, and
    nothing of it is kept; the connection goes on to be used.
    """
    mine = open_ledgers(hosted.url)
    appended(mine, 0)
    hosted.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.sequence = 1 THEN RAISE EXCEPTION 'no'; END IF; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON event DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()",
        role="superuser",
    )
    for _ in range(8):  # prepared or not
        with pytest.raises(Moved):
            appended(mine, 1)
    assert (mine.head("a").size, len(mine.read("a"))) == (1, 1)
    hosted.run("DROP TRIGGER refuse ON event", role="superuser")
    assert appended(mine, 1)
    assert mine.head("a").size == 2
    mine.close()


@pytest.mark.parametrize("times", ["0", "1", "none"])
def test_however_soon_statements_are_prepared(hosted: Hosted, times: str) -> None:
    """The driver's own setting for poolers and for haste changes nothing."""
    mine = open_ledgers(f"{hosted.url}?prepare_threshold={times}")
    for size in range(8):
        with mine.writing("a", "b") as writing:
            assert writing.head("a").size == size
            entry = Entry(size, "x.y.v1", size, b"event")
            writing.append("a", [entry], [Text(size, "purpose", b"s", "why")] * (size % 2))
            writing.commit()
    assert len(mine.texts("a", 0, 9)) == 4
    mine.close()
