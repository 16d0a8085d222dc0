"""PostgreSQL whose sessions are not as ours are by default."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from places import Hosted
from support import World, ask, clean, laplace

from accountant.ledger.events import Entry
from accountant.migrate import migrate
from accountant.store.ledgers import Ledgers, Text
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


@pytest.mark.parametrize("times", ["0", "1", "none"])
def test_however_soon_statements_are_prepared(hosted: Hosted, times: str) -> None:
    """The driver's own setting for poolers and for haste changes nothing."""
    mine = Ledgers(f"{hosted.url}?prepare_threshold={times}")
    for size in range(8):
        with mine.writing("a", "b") as writing:
            assert writing.head("a").size == size
            entry = Entry(size, "x.y.v1", size, b"event")
            writing.append("a", [entry], [Text(size, "purpose", b"s", "why")] * (size % 2))
            writing.commit()
    assert len(mine.texts("a", 0, 9)) == 4
    mine.close()
