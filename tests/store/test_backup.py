"""Drills: a copy is taken under load, the service dies, and elsewhere all goes on as before."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from forked import ran
from places import Hosted, Place, copied, everything
from support import World, ask, clean, laplace

from accountant.store import StoreError, archive
from accountant.store.archive import BadArchive
from accountant.store.backup import back_up
from accountant.store.folding import BadCopy
from accountant.store.ledgers import sqlite_path
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.restore import checked, restore
from accountant.store.vault import Vault
from bench.postgres import Server

SECRET = b"correct horse battery"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A migrated database of this test's own."""
    if request.param == "sqlite":
        return copied(request.getfixturevalue("empty_database"), tmp_path / "accountant.db")
    found: Place = request.getfixturevalue("hosted")
    return found


@pytest.fixture
def elsewhere(place: Place, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Where nothing is yet: the URL of a database of the same kind, and that of its owner."""
    (tmp_path / "elsewhere").mkdir()
    if place.url.startswith("sqlite:"):
        yield f"sqlite:///{tmp_path}/elsewhere/accountant.db", ""
        return
    server: Server = place.server  # type: ignore[attr-defined]
    name = f"{place.name}_copy"  # type: ignore[attr-defined]
    server.create(name)
    yield server.url("app", name), server.url("owner", name)


def owner(place: Place) -> str:
    """The URL of whom the tables belong to."""
    return str(getattr(place, "owner_url", ""))


def copy_of(place: Place, home: Path, passphrase: bytes | None = None) -> bytes:
    """A backup."""
    file = io.BytesIO()
    back_up(place.url, home, file, version="1", owner_url=owner(place), passphrase=passphrase)
    return file.getvalue()


@pytest.fixture(autouse=True, scope="module")
def _each_key_once() -> Iterator[None]:
    """A key is made of a passphrase once for each salt: that takes a third of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "_key", lru_cache(archive._key))
        yield


@pytest.fixture(scope="module")
def left(
    empty_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """The home of a service on SQLite with a signed head, a text, a tile and two ledgers; and its
    secrets.
    """
    home = tmp_path_factory.mktemp("filled")
    shutil.copy(empty_database, home / "accountant.db")
    made = World(f"sqlite:///{home}/accountant.db").hospital()
    for _ in range(280):
        grant = made.post("/grants", ask(laplace("0.001"), purpose="ops"))
        assert grant.status_code == 201
    made.publisher.sign("fair")
    assert (home / "vault" / "fair" / "signed").exists()
    made.close()
    return home, made.secrets


@pytest.fixture
def filled(left: tuple[Path, dict[str, str]], database: str, tmp_path: Path) -> Iterator[World]:
    """That service on a home of this test's own, in place of the fresh database there."""
    shutil.copytree(left[0], tmp_path, dirs_exist_ok=True)
    made = World(database, secrets=left[1])
    yield made
    made.close()


def backup_of(made: World, passphrase: bytes | None = None) -> bytes:
    """A backup of a world on SQLite."""
    file = io.BytesIO()
    back_up(made.url, made.settings.home, file, version="1", passphrase=passphrase)
    return file.getvalue()


def test_a_drill(
    place: Place, elsewhere: tuple[str, str], world: Callable[..., World], tmp_path: Path
) -> None:
    """A copy that is taken while grants are answered and heads are signed holds every event up to
    one moment; restored elsewhere it has the same bytes, replays, continues what was signed, signs
    with the same key, and grants.
    """
    made = world(url=place.url, home=tmp_path).hospital()
    made.publisher.sign("fair")
    stop = threading.Event()
    answers: list[int] = []

    def load() -> None:
        while not stop.is_set():
            answers.append(made.post("/grants", ask(laplace("0.001"), purpose="ops")).status_code)
            made.publisher.sign("fair")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        copies = [copy_of(place, tmp_path, sealed) for sealed in (None, None, SECRET)]
    finally:
        stop.set()
        thread.join()
    assert set(answers) == {201}
    lived = made.stored()
    key = made.service.state("fair").custody.key
    made.service.close()

    url, owner_url = elsewhere
    home = tmp_path / "elsewhere"
    file = io.BytesIO(copies[-1])
    manifest = restore(url, home, file, owner_url=owner_url, passphrase=SECRET)
    again = world(url=url, home=home)
    size = manifest.ledgers["fair"].size
    assert again.stored() == lived[:size]
    assert again.head().root.hex() == manifest.ledgers["fair"].root
    clean(again)
    assert again.service.state("fair").custody.key == key
    assert again.post("/grants", ask(laplace("0.001"))).status_code == 201
    assert again.publisher.sign("fair").size > size


def test_every_row_is_copied(
    place: Place, elsewhere: tuple[str, str], world: Callable[..., World], tmp_path: Path
) -> None:
    """All rows of all tables come back as they were, and every file of the vault but the
    snapshots' key, copied as the service's own role; a database that is there is never replaced.
    """
    made = world(url=place.url, home=tmp_path).hospital()
    assert made.post("/grants", ask(laplace("0.1"), purpose="ops")).status_code == 201
    made.publisher.publish("fair")
    before = everything(place)
    assert all(before[table] for table in before.keys() - {"node", "cosignature"})
    if owner(place):
        place.run("REVOKE ALL ON alembic_version FROM app", role="owner")  # as 0.2.0 left it
        with pytest.raises(StoreError, match="ACCOUNTANT_OWNER_URL"):
            back_up(place.url, tmp_path, io.BytesIO(), version="1")
        migrate(place.url, owner(place))
    file = io.BytesIO()
    back_up(place.url, tmp_path, file, version="1")
    copy = file.getvalue()
    url, owner_url = elsewhere
    home = tmp_path / "elsewhere"
    restore(url, home, io.BytesIO(copy), owner_url=owner_url)
    if not owner_url:
        assert everything(copied(sqlite_path(url), tmp_path / "read.db")) == before
    else:
        other = type(place)(place.server, url.rpartition("/")[2])  # type: ignore[attr-defined, call-arg]
        assert everything(other) == before
    vaults = [Vault(tmp_path), Vault(home)]
    assert vaults[0].heads() == vaults[1].heads() != {}
    assert vaults[0].keys() == vaults[1].keys() != {}
    with pytest.raises(ValueError, match="never takes the place"):
        restore(url, home, io.BytesIO(copy), owner_url=owner_url)


def test_an_older_copy_than_was_signed_is_refused(filled: World, tmp_path: Path) -> None:
    """Where the vault knows a later head the copy is refused, and says what to do; with --older it
    is put back, the vault keeps the later head, and the service still refuses to write.
    """
    copy = backup_of(filled)
    assert filled.post("/grants", ask(laplace("0.001"))).status_code == 201
    signed = filled.publisher.sign("fair")
    filled.service.close()
    path = sqlite_path(filled.url)
    path.rename(path.with_name("lost.db"))
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    with pytest.raises(BadCopy, match=f"has {signed.size}.*--older.*accountant recover"):
        restore(filled.url, tmp_path, io.BytesIO(copy))
    assert not path.exists()
    restore(filled.url, tmp_path, io.BytesIO(copy), older=True)
    assert Vault(tmp_path).read("fair", "signed") == signed.note
    again = World(filled.url)
    assert again.post("/grants", ask(laplace("0.001"))).status_code == 503
    again.close()


def test_a_newer_head_comes_into_an_older_vault(filled: World, tmp_path: Path) -> None:
    """A vault that is older than the copy learns the copy's heads and keys, so that a later restore
    of what is older still is noticed.
    """
    home = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "vault", home / "vault")
    assert filled.post("/grants", ask(laplace("0.001"))).status_code == 201
    filled.publisher.rotate("fair", "admin")
    signed = filled.publisher.sign("fair")
    restore(f"sqlite:///{home}/accountant.db", home, io.BytesIO(backup_of(filled)))
    assert Vault(home).read("fair", "signed") == signed.note
    assert Vault(home).heads() == Vault(tmp_path).heads()
    assert Vault(home).keys() == Vault(tmp_path).keys()


def test_another_history_is_refused(filled: World, tmp_path: Path) -> None:
    """A copy of a ledger of the same name that the vault has signed otherwise is never put back."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    copy = backup_of(filled)
    Vault(home).put({"fair/signed": b"x\n1\n" + b"A" * 43 + b"=\n\n" + "— x AAAAAAA=\n".encode()})
    with pytest.raises(BadCopy, match="another history"):
        restore(f"sqlite:///{home}/accountant.db", home, io.BytesIO(copy), older=True)
    assert not (home / "accountant.db").exists()


@pytest.mark.parametrize("passphrase", [None, SECRET], ids=["clear", "sealed"])
def test_no_changed_byte_passes(filled: World, tmp_path: Path, passphrase: bytes | None) -> None:
    """A file that is cut off anywhere, or changed in any of its members, is refused, and nothing is
    restored; the file as it was written passes.
    """
    copy = backup_of(filled, passphrase)
    checked(io.BytesIO(copy), passphrase, lambda _: None)
    url = f"sqlite:///{tmp_path}/elsewhere/accountant.db"
    with tarfile.open(fileobj=io.BytesIO(copy)) as tar:
        members = tar.getmembers()
    assert len(members) >= 7
    for one in members:
        changed = bytearray(copy)
        changed[one.offset_data + one.size // 2] ^= 1
        with pytest.raises((ValueError, OSError)):
            restore(url, tmp_path / "elsewhere", io.BytesIO(changed), passphrase=passphrase)
    last = members[-1]
    for end in (0, 511, 5_000, last.offset, last.offset_data, last.offset_data + last.size - 1):
        with pytest.raises(BadArchive):
            restore(url, tmp_path / "elsewhere", io.BytesIO(copy[:end]), passphrase=passphrase)
    left = [one for one in (tmp_path / "elsewhere").rglob("*") if one.is_file()]
    assert [one.name for one in left if not one.name.endswith(".lock")] == []


def test_the_keys_are_sealed(filled: World) -> None:
    """With a passphrase no signing key is in the file, another passphrase opens nothing, and a file
    that is not sealed is not taken for one that is.
    """
    sealed, clear = backup_of(filled, SECRET), backup_of(filled)
    [*keys] = Vault(filled.settings.home).keys().values()
    for key in keys:
        assert b64encode(key)[:-4] in clear
        assert b64encode(key)[:-4] not in sealed
    assert keys
    for copy, passphrase, reason in (
        (sealed, b"another passphrase", "not that of this backup"),
        (sealed, None, "give its --passphrase-file"),
        (clear, SECRET, "is not sealed"),
    ):
        with pytest.raises(BadArchive, match=reason):
            checked(io.BytesIO(copy), passphrase, lambda _: None)


def test_a_damaged_database_is_not_copied(filled: World, tmp_path: Path) -> None:
    """A database with a changed event, or without events that were signed, is refused: its copy
    would take the place of a good one.
    """
    place = copied(sqlite_path(filled.url), tmp_path / "changed.db")
    filled.service.close()
    shutil.copy(sqlite_path(filled.url), place.path)
    place.tamper("UPDATE event SET body = x'7b7d' WHERE ledger = 'fair' AND sequence = 7")
    with pytest.raises(BadCopy, match="event 7 of fair"):
        copy_of(place, tmp_path)
    shutil.copy(sqlite_path(filled.url), place.path)
    place.tamper("DELETE FROM node")
    with pytest.raises(BadCopy, match="level 1"):
        copy_of(place, tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from accountant.store.restore import restore
url, home, file, parts = sys.argv[1:]
left = [int(parts)]
def progress(rows):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
restore(url, Path(home), open(file, "rb"), progress=progress)
"""
FULL = """
import resource, sys
from pathlib import Path
from accountant.store.restore import restore
url, home, file, size = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
restore(url, Path(home), open(file, "rb"))
"""


@pytest.mark.parametrize(
    ("program", "number", "code"), [(KILLED, "3", -9), (FULL, "200000", 1)], ids=["kill", "full"]
)
def test_whole_or_not_at_all(
    filled: World, tmp_path: Path, program: str, number: str, code: int
) -> None:
    """A restore that is killed, or whose disk is full, leaves no database; the next one does all of
    it.
    """
    file, home = tmp_path / "copy.tar", tmp_path / "elsewhere"
    file.write_bytes(backup_of(filled))
    url = f"sqlite:///{home}/accountant.db"
    done = ran(program, url, home, file, number)
    assert done.code == code, done.err
    assert not (home / "accountant.db").exists()
    with file.open("rb") as handle:
        restore(url, home, handle)
    ledgers = open_ledgers(url)
    assert [row.body for row in ledgers.stream("fair")] == filled.stored()
    ledgers.close()
    assert not [one for one in home.iterdir() if one.name.endswith(".restoring")]


def test_a_server_has_all_of_it_or_nothing(filled: World, hosted: Hosted, tmp_path: Path) -> None:
    """A restore to PostgreSQL that is killed leaves no table there; the next one does all of it."""
    server, name = hosted.server, f"{hosted.name}_copy"
    server.create(name)
    file, home = tmp_path / "copy.tar", tmp_path / "elsewhere"
    file.write_bytes(backup_of(filled))
    url = server.url("owner", name)
    assert ran(KILLED, url, home, file, 5).code == -9
    place = Hosted(server, name)
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert place.run(tables) == [(0,)]
    with file.open("rb") as handle:
        restore(place.url, home, handle, owner_url=place.owner_url)
    ledgers = open_ledgers(place.url)
    assert [row.body for row in ledgers.stream("fair")] == filled.stored()
    ledgers.close()


def test_a_log_that_lies_about_is_not_played(filled: World, tmp_path: Path) -> None:
    """Where the log of a lost database file lies, nothing is restored: SQLite would play it into
    the new file.
    """
    home = tmp_path / "elsewhere"
    home.mkdir()
    (home / "accountant.db-wal").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"accountant\.db-wal"):
        restore(f"sqlite:///{home}/accountant.db", home, io.BytesIO(backup_of(filled)))


def test_a_file_of_either_kind_restores_to_the_other(
    filled: World, request: pytest.FixtureRequest, world: Callable[..., Any], tmp_path: Path
) -> None:
    """A copy of a SQLite file restores to a server: the way from the one to the other."""
    server: Server = request.getfixturevalue("postgres")
    server.drop("moved")
    server.create("moved")
    url, home = server.url("app", "moved"), tmp_path / "elsewhere"
    copy = io.BytesIO(backup_of(filled))
    restore(url, home, copy, owner_url=server.url("owner", "moved"))
    again = world(url=url, home=home)
    assert again.stored() == filled.stored()
    assert again.post("/grants", ask(laplace("0.001"))).status_code == 201
    again.close()
    server.drop("moved")
