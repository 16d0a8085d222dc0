"""Copying SQLite's write-ahead log into the database file while others go on writing.

SQLite calls it a checkpoint (a word that means a signed head here), and leaves it by default to
whoever commits: a third of the time that writing takes, and everybody waits for it. Here a thread
does it, and the one who commits only if the log gets long nevertheless.

Before SQLite 3.51.3 a checkpoint may lose a commit that starts the log anew meanwhile (sqlite.org,
"Write-Ahead Logging", section "The WAL-Reset Bug"). The log is started anew only where all of it
has been copied and nobody reads from it (``walRestartLog`` in SQLite's wal.c). So somebody reads
from it whenever the thread copies: a snapshot that is opened by who has committed just now and
still keeps everybody else from writing. That commit cannot have been copied yet, for whatever else
copies has a snapshot of its own, which is older, and comes no further; therefore this snapshot is
one of the log, and not of the database file alone, and the log goes on until it is closed.
"""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import structlog

_PAGE: Final = 4_096
_EVERY: Final = 1_000 * _PAGE
"""Bytes written to the log before it is copied, as far as we can tell: SQLite's own measure."""
_COMMIT: Final = 6 * _PAGE
"""What a commit writes beside the rows: the last pages of tables and of their indexes."""
_LONG: Final = 4_000
"""Pages in the log from which on it is not copied beside: then it can be started anew."""
_log = structlog.get_logger()


class Backfill:
    """Of one database file, for the one connection of this process that writes to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "backfill")
        self._copying: Future[None] | None = None
        self._snapshot: sqlite3.Connection | None = None
        self._copier: sqlite3.Connection | None = None
        self._bytes = 0
        self._pages = 0
        """In the log when it was copied last; none if the next commit starts it anew."""

    def wrote(self, size: int) -> None:
        """Rows of so many bytes are about to be committed."""
        self._bytes += size

    def committed(self, writer: sqlite3.Connection) -> None:
        """To be called after each commit by who still keeps everybody else from writing. It never
        fails: what was not copied this time is copied another time.
        """
        self._bytes += _COMMIT
        if self._bytes < _EVERY or (self._copying is not None and not self._copying.done()):
            return
        self._bytes = 0
        try:
            if self._pages >= _LONG:
                pages, left = _copy(writer)
                self._pages = pages if left else 0
            else:
                self._open_snapshot()
                self._copying = self._thread.submit(self._copy_beside)
        except (sqlite3.Error, RuntimeError) as error:  # of the database, or of a thread
            self._failed(error)

    def close(self) -> None:
        """Ends what is under way. Whoever closes the last connection has to keep others out."""
        self._thread.shutdown()
        self._forget()

    def _open_snapshot(self) -> None:
        if self._snapshot is None or self._copier is None:
            self._snapshot, self._copier = self._connection(), self._connection()
        self._snapshot.execute("BEGIN")
        self._snapshot.execute("SELECT count(*) FROM ledger_head").fetchone()

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _copy_beside(self) -> None:
        try:
            if self._copier is not None and self._snapshot is not None:
                self._pages, _ = _copy(self._copier)
                self._snapshot.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        _log.warning("write-ahead-log-not-copied", error=str(error))
        self._pages = _LONG  # the next time it is tried by who commits
        self._forget()

    def _forget(self) -> None:
        """Closes its connections, and with them the snapshot."""
        for connection in (self._snapshot, self._copier):
            if connection is not None:
                connection.close()
        self._snapshot = self._copier = None


def _copy(connection: sqlite3.Connection) -> tuple[int, int]:
    """Copies what no snapshot forbids; nothing if another process is at it. How many pages are in
    the log, and how many of them are left to copy.
    """
    _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return pages, pages - copied
