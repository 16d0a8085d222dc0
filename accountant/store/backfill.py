"""Copy SQLite's write-ahead log into the database file while others go on writing.

SQLite calls this a checkpoint, and by default the committing thread does it: a third of the time
that writing takes. Here a thread of its own does it, and a commit only where the log gets long.

Before SQLite 3.51.3 a checkpoint may lose a commit that starts the log anew while it begins
(sqlite.org, "Write-Ahead Logging", section "The WAL-Reset Bug"). So while the thread copies, a
snapshot of the same database holds one of SQLite's read locks. If that is one of the log (locks 1
to 4), no commit can start the log anew, for that takes all of these (``walRestartLog`` in wal.c).
If all of the log had been copied, it is the one of the database file (lock 0), and nothing is
copied, for that takes lock 0 (``walCheckpoint``). A commit copies under the lock beside the file.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from accountant.config.logs import logger

_PAGE: Final = 4_096
_EVERY: Final = 1_000 * _PAGE  # Bytes written before the log is copied: SQLite's measure
_COMMIT: Final = 6 * _PAGE  # Bytes beside the rows: last pages of tables and indexes
_LONG: Final = 4_000  # Pages from which on a commit copies, so that the log starts anew
_log = logger()


class Backfill:
    """Copies one database file's log, for the one connection of this process that writes to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: threading.Thread | None = None
        self._bytes = 0  # Written since it was copied last, as far as is known
        with suppress(OSError):  # the log that ended processes may have left
            self._bytes = Path(f"{path}-wal").stat().st_size
        self._pages = 0  # In the log when it was copied last

    def wrote(self, size: int) -> None:
        """Note that ``size`` bytes of rows are about to be committed."""
        self._bytes += size

    def committed(self, writer: sqlite3.Connection) -> None:
        """Copy if it is time, after a commit, under the lock. Never raises: it is tried again."""
        self.wrote(_COMMIT)
        if self._thread is not None and self._thread.is_alive():
            return
        try:
            if self._pages >= _LONG:
                self._copy(writer)
            elif self._bytes >= _EVERY:
                self._bytes = 0
                self._thread = threading.Thread(target=self._copy_beside, name="backfill")
                self._thread.start()
        except Exception as error:  # noqa: BLE001 (of the database, for want of memory or a thread)
            self._thread = None
            self._failed(error)

    def wait(self) -> None:
        """Wait until the thread has ended. No new one begins before the next commit."""
        if self._thread is not None:
            self._thread.join()

    def _copy_beside(self) -> None:
        try:
            with closing(self._connection()) as copier, closing(self._connection()) as snapshot:
                # The first time leaves pages that are committed meanwhile. The second finds few and
                # mostly copies them before there are more: then SQLite synchronises the file too.
                for _ in range(2):
                    snapshot.execute("BEGIN")
                    snapshot.execute("SELECT count(*) FROM ledger_head").fetchone()
                    self._copy(copier)
                    snapshot.execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001 (as above)
            self._failed(error)

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _copy(self, connection: sqlite3.Connection) -> None:
        """Copy the pages that no snapshot forbids; none if another process is copying."""
        busy, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not busy:
            self._pages = pages

    def _failed(self, error: Exception) -> None:
        self._bytes = self._pages = 0
        with suppress(Exception):  # where the log is written there may be no room either
            _log.warning("write-ahead-log-not-copied", error=str(error))
