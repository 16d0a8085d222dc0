"""Put a backup where there is no database, whole or not at all.

The rows go into tables of the format that they were copied from, which are then brought to the
newest. Of SQLite a file beside the place takes the name in the end; on PostgreSQL all of it is one
transaction. Files of the vault are put before that: repeated after a kill, it ends the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import Connection, column, insert, table

from accountant.ledger.checkpoints import Known
from accountant.store import StoreError
from accountant.store.archive import Archive, Manifest
from accountant.store.backup import Check, Progress, by_ledger, ends
from accountant.store.folding import BadCopy, Folding
from accountant.store.ledgers import parsed, shown, sqlite_path
from accountant.store.migrate import Schema, changing
from accountant.store.sqlite import file_lock
from accountant.store.vault import Vault, known_of
from accountant.store.whole import made_folder, sync

_INSERTED: Final = 2_000  # Rows by one statement


def checked(file: IO[bytes], passphrase: bytes | None, progress: Progress) -> Manifest:
    """Check a backup without a database: each digest, each event, each head. Raises ValueError."""
    archive = Archive(file, passphrase)
    folding = Folding(by_ledger(known_of(archive.manifest.vault, "the backup")))
    _fill(archive, folding, None, progress)
    _whole(archive.manifest, folding)
    return archive.manifest


def restore(
    url: str,
    home: Path,
    file: IO[bytes],
    *,
    owner_url: str = "",
    passphrase: bytes | None = None,
    older: bool = False,
    progress: Progress = lambda _: None,
) -> Manifest:
    """Make the database at ``url`` and the vault in ``home`` from a backup; return what it holds.

    A vault that is there has the say: a copy that lacks events that it knows as signed is refused,
    unless ``older``. Raises ValueError (BadArchive and BadCopy are), StoreError and OSError, and
    then leaves no database.
    """
    archive, vault = Archive(file, passphrase), Vault(home)
    folding = Folding(_known(archive.manifest, vault))
    with _place(url, owner_url) as schema:
        schema.upgrade(archive.manifest.revision)
        _fill(archive, folding, schema.connection, progress)
        lost = _whole(archive.manifest, folding)
        if lost and not older:
            [(ledger, head), *_] = lost
            size = folding.trees[ledger].size if ledger in folding.trees else 0
            raise BadCopy(
                f"the backup is older than what was signed: it has {size} events of {ledger}, and "
                f"{head.whose} in {home / 'vault'} has {head.size}. Restore a newer backup; where "
                "there is none, restore this one with --older, and `accountant recover` carries "
                "over what was spent since"
            )
        schema.upgrade()
        home.mkdir(parents=True, exist_ok=True)
        vault.put(archive.manifest.vault)
    return archive.manifest


def _known(manifest: Manifest, vault: Vault) -> dict[str, list[Known]]:
    """Return the heads that the events have to continue: of the vault there, and of the backup."""
    known = by_ledger(known_of(vault.heads(), "the vault"))
    for ledger, heads in by_ledger(known_of(manifest.vault, "the backup")).items():
        known.setdefault(ledger, []).extend(heads)
    return known


def _fill(
    archive: Archive, folding: Folding, connection: Connection | None, progress: Progress
) -> None:
    """Read all rows, hold them to each other, and insert them, if there is a ``connection``."""
    check = Check(folding)
    for name, columns in archive.manifest.tables.items():
        statement = insert(table(name, *[column(one) for one in columns.names]))
        for rows in archive.rows(name):
            seen: list[Any] = list(check.seen(name, iter(rows)))
            for first in range(0, len(seen) if connection is not None else 0, _INSERTED):
                some = seen[first : first + _INSERTED]
                values = [dict(zip(columns.names, row, strict=True)) for row in some]
                if connection is not None:
                    connection.execute(statement, values)
            progress(len(seen))
    check.end()


def _whole(manifest: Manifest, folding: Folding) -> list[tuple[str, Known]]:
    """Return the heads that the copy is too old for. Raises BadCopy if it is not what it says."""
    found = ends(folding)
    for ledger in sorted(found.keys() | manifest.ledgers.keys()):
        if found.get(ledger) != manifest.ledgers.get(ledger):
            raise BadCopy(
                f"the rows of {ledger} end as {found.get(ledger)}, and the manifest says "
                f"{manifest.ledgers.get(ledger)}: take another copy"
            )
    return folding.lost()


@contextmanager
def _place(url: str, owner_url: str) -> Iterator[Schema]:
    """Return an empty schema, which becomes the database at ``url`` if the block ends well."""
    if parsed(url).get_backend_name() == "sqlite":
        with _file(sqlite_path(url)) as part, changing(f"sqlite:///{part}") as schema:
            yield schema
        return
    with changing(url, owner_url) as schema:
        if schema.revision is not None:
            raise ValueError(
                f"there are tables at {shown(owner_url or url)}: a backup never takes the place of "
                "a database; name an empty one"
            )
        yield schema


@contextmanager
def _file(path: Path) -> Iterator[Path]:
    """Return the path of a file that gets the name ``path`` if the block ends well."""
    if not path.parent.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent.parent}")
    made_folder(path.parent)
    with file_lock(path, 0):
        # SQLite would play a log that was left there into the new file.
        for there in (path, *(Path(f"{path}{end}") for end in ("-wal", "-shm", "-journal"))):
            if there.exists():
                raise ValueError(
                    f"{there} is there: a backup never takes the place of a database; move it away "
                    "first, or name another place with --database-url"
                )
        part = path.with_name(f".{path.name}.restoring")
        _remove(part)  # what a killed one left
        try:
            yield part
            if Path(f"{part}-wal").exists():
                raise StoreError(f"SQLite left a log beside {part}: try again")
            with part.open("rb+") as written:
                os.fsync(written.fileno())
            part.rename(path)
            sync(path.parent)
        finally:
            _remove(part)


def _remove(part: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal", ".lock"):
        Path(f"{part}{end}").unlink(missing_ok=True)
