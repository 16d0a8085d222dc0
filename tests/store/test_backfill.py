"""SQLite's write-ahead log is copied into the file while others write, and never under a commit."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import Forked
from support import logged

from accountant.ledger.events import Entry, Event
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store import backfill
from accountant.store.backfill import Backfill
from accountant.store.ledgers import Ledgers, sqlite_path
from accountant.store.opening import open_ledgers

PAGE = 4_096
HEADER, FRAME = 32, 24 + PAGE
"""Bytes of the log's header, and of a page in it (sqlite.org, "WAL-mode File Format")."""


@pytest.fixture
def ledgers(database: str) -> Iterator[Ledgers]:
    """A database whose log is copied after some ten commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill, "_EVERY", 100 * PAGE)
        patch.setattr(backfill, "_LONG", 300)
        opened = open_ledgers(database)
        yield opened
        opened.close()


def write(ledgers: Ledgers, ledger: str, commits: int) -> None:
    """So many commits of three events each."""
    for _ in range(commits):
        with ledgers.writing(ledger) as writing:
            first = writing.head(ledger).size
            body = {"text": "x" * 3_000}
            events = [Event(ledger, first + i, "test.v1", 1, "a", body) for i in range(3)]
            writing.append(ledger, [Entry.of(event) for event in events])
            writing.commit()


def log_of(database: str) -> Path:
    """The log's file."""
    return Path(f"{sqlite_path(database)}-wal")


def generation(database: str) -> bytes:
    """What the log's header says, and changes when it is started anew."""
    return log_of(database).read_bytes()[12:24]


def sound(database: str, ledgers: Ledgers, ledger: str, events: int) -> None:
    """All is there, as it was hashed, and SQLite finds nothing wrong with the file."""
    stored = list(ledgers.stream(ledger))
    assert len(stored) == events
    assert Tree().grown(leaf_hash(one.body) for one in stored)[0] == ledgers.head(ledger)
    with closing(sqlite3.connect(sqlite_path(database))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def finished(ledgers: Ledgers) -> None:
    """Waits until nothing is under way."""
    ledgers._backfill.wait()


class Slow:
    """Holds the thread up when it is about to copy for the first time, until it may ``go_on``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.times = threading.Event(), threading.Event(), 0
        copy = Backfill._copy

        def held(backfill: Backfill, connection: sqlite3.Connection) -> None:
            self.times += 1
            self.begun.set()
            assert self.go_on.wait(30)
            copy(backfill, connection)

        patch.setattr(Backfill, "_copy", held)


@pytest.fixture
def slow(ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    """The thread, held up just after the commit that made it begin."""
    made = Slow(monkeypatch)
    while not made.begun.wait(0.05):
        write(ledgers, "a", 1)
    yield made
    made.go_on.set()


def test_the_log_is_copied_and_stays_short(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is written, the log stays short, and the rows reach the file beside it; seldom
    by who commits. What copies synchronises.
    """
    copy, committing = Backfill._copy, list[bool]()

    def noted(self: Backfill, connection: sqlite3.Connection) -> None:
        committing.append(threading.current_thread() is threading.main_thread())
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        time.sleep(0 if committing[-1] else 0.005)  # meanwhile there are commits
        copy(self, connection)

    monkeypatch.setattr(Backfill, "_copy", noted)
    monkeypatch.setattr(backfill, "_LONG", 600)
    write(ledgers, "a", 400)
    finished(ledgers)
    assert 0 < 2 * sum(committing) <= len(committing)
    assert log_of(database).stat().st_size < HEADER + 1_500 * FRAME
    assert sqlite_path(database).stat().st_size > 1_000 * PAGE
    sound(database, ledgers, "a", 1_200)


def test_who_commits_does_not_copy_by_itself(database: str, ledgers: Ledgers) -> None:
    """SQLite's own copying is off where ours is on."""
    with ledgers.writing("a") as writing:
        found = writing.lock().connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar()
    assert found == 0


def test_readers_do_not_keep_the_log_long(database: str, ledgers: Ledgers) -> None:
    """A log that somebody reads from is not started anew; once nobody does it is."""
    with closing(sqlite3.connect(sqlite_path(database), isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM ledger_head").fetchone()
        write(ledgers, "a", 200)
        assert log_of(database).stat().st_size > HEADER + 600 * FRAME
        before = generation(database)
        other.execute("ROLLBACK")
    write(ledgers, "a", 20)
    assert generation(database) != before


def test_what_processes_that_ended_have_left_is_copied(database: str, ledgers: Ledgers) -> None:
    """Many who commit once, beside one who idles, do not leave the log to nobody."""
    write(ledgers, "a", 1)
    for _ in range(80):
        other = open_ledgers(database)
        write(other, "a", 1)
        other.close()
    assert log_of(database).stat().st_size < HEADER + 200 * FRAME
    sound(database, ledgers, "a", 243)


def test_nobody_waits_while_it_is_copied(database: str, ledgers: Ledgers, slow: Slow) -> None:
    """Commits go on while the log is copied, which is not begun once more before it has ended."""
    before = ledgers.head("a").size
    write(ledgers, "a", 60)
    assert (slow.times, ledgers.head("a").size) == (1, before + 180)
    slow.go_on.set()
    finished(ledgers)
    sound(database, ledgers, "a", before + 180)


def test_the_log_is_not_started_anew_while_it_is_copied(
    database: str, ledgers: Ledgers, slow: Slow
) -> None:
    """While the thread copies, no commit starts the log anew, though somebody else has copied all
    of it; afterwards one does.
    """
    before = generation(database)
    with closing(sqlite3.connect(sqlite_path(database))) as other:
        assert left(other) == 0
        for _ in range(3):
            write(ledgers, "a", 1)
            assert generation(database) == before
            assert left(other) > 0  # what the snapshot does not see
        slow.go_on.set()
        finished(ledgers)
        assert left(other) == 0
        write(ledgers, "a", 1)
    assert generation(database) != before
    sound(database, ledgers, "a", ledgers.head("a").size)


def left(connection: sqlite3.Connection) -> int:
    """Copies the log by hand, as any other program might; how many pages are left."""
    busy, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert not busy
    assert copied > 0
    return int(pages - copied)


def test_closing_waits_for_what_is_under_way(ledgers: Ledgers, slow: Slow) -> None:
    """Whoever closes the last connection copies too: the thread has to be done by then."""
    closer = threading.Thread(target=ledgers.close)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    slow.go_on.set()
    closer.join(30)
    assert not closer.is_alive()


def test_what_was_erased_leaves_a_log_that_is_copied(
    database: str, ledgers: Ledgers, slow: Slow
) -> None:
    """The log is emptied after an erasure also when the thread is at work just then."""
    with ledgers.writing("a") as writing:
        writing.erase_texts("a", 0, ["reason"])
        writing.commit()
    threading.Timer(0.2, slow.go_on.set).start()
    assert ledgers.finish_erasing()
    assert log_of(database).stat().st_size == 0
    sound(database, ledgers, "a", ledgers.head("a").size)


def test_a_copy_that_fails_fails_no_commit(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If copying fails nobody is told that a commit did, even if that cannot be logged; and it is
    tried again.
    """
    copy, times = Backfill._copy, 0

    def failing(self: Backfill, connection: sqlite3.Connection) -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise sqlite3.OperationalError("disk I/O error")
        copy(self, connection)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Backfill, "_copy", failing)
    with logged() as logs:
        while times < 1:
            write(ledgers, "a", 1)
            finished(ledgers)
    assert [(one["event"], one["error"]) for one in logs] == [
        ("write-ahead-log-not-copied", "disk I/O error")
    ]
    with monkeypatch.context() as patch:
        patch.setattr(backfill, "_log", SimpleNamespace(warning=full))
        patch.setattr(ledgers._backfill, "_pages", 10_000)
        write(ledgers, "a", 1)  # who commits copies, in vain
        assert times == 2
    while times < 4:
        write(ledgers, "a", 1)
        finished(ledgers)
    sound(database, ledgers, "a", ledgers.head("a").size)


def test_a_thread_that_cannot_begin_fails_no_commit(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has no room for a thread, commits go on; later the log is copied."""
    start, refused = threading.Thread.start, list[str]()

    def no_room(self: threading.Thread) -> None:
        refused.append(self.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_room)
    write(ledgers, "a", 60)
    assert set(refused) == {"backfill"}
    finished(ledgers)
    monkeypatch.setattr(threading.Thread, "start", start)
    before = sqlite_path(database).stat().st_size
    write(ledgers, "a", 60)
    finished(ledgers)
    assert sqlite_path(database).stat().st_size > before
    sound(database, ledgers, "a", 360)


WRITER = """
import sys, time
from accountant.store import backfill
from accountant.store.ledgers import Ledgers
from accountant.store.opening import open_ledgers
from test_backfill import write
backfill._EVERY, backfill._LONG = 40 * 4096, 120
ledgers, end, commits = open_ledgers(sys.argv[1]), time.monotonic() + 2, 0
while time.monotonic() < end:
    write(ledgers, sys.argv[2], 1)
    commits += 1
ledgers.close()
print(commits)
"""


def test_services_that_share_a_file_copy_it_together(database: str, ledgers: Ledgers) -> None:
    """Three processes write and copy as fast as they can: nothing is lost, nothing damaged."""
    writers = [Forked(WRITER, database, name) for name in "abc"]
    commits = [int(writer.communicate()[0]) for writer in writers]
    for name, count in zip("abc", commits, strict=True):
        assert count > 20
        sound(database, ledgers, name, 3 * count)
