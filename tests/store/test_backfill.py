"""SQLite's write-ahead log is copied into the file while others write, and never under a commit."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support import logged

from accountant.ledger.events import Entry, Event
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store import backfill
from accountant.store.engine import sqlite_path
from accountant.store.ledgers import Ledgers

PAGE = 4_096
HEADER, FRAME = 32, 24 + PAGE
"""Bytes of the log's header, and of a page in it (sqlite.org, "WAL-mode File Format")."""


@pytest.fixture
def ledgers(database: str) -> Iterator[Ledgers]:
    """A database whose log is copied after some ten commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill, "_EVERY", 100 * PAGE)
        patch.setattr(backfill, "_LONG", 300)
        opened = Ledgers(database)
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
    under_way = ledgers._database._backfill._copying
    if under_way is not None:
        under_way.result(timeout=30)


def test_the_log_is_copied_and_stays_short(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is written, the log stays short, and the rows reach the file beside it; seldom
    by who commits.
    """
    copy, committing = backfill._copy, list[bool]()

    def noted(connection: sqlite3.Connection) -> tuple[int, int]:
        committing.append(threading.current_thread() is threading.main_thread())
        time.sleep(0 if committing[-1] else 0.005)  # meanwhile there are commits
        return copy(connection)

    monkeypatch.setattr(backfill, "_copy", noted)
    monkeypatch.setattr(backfill, "_LONG", 600)
    write(ledgers, "a", 400)
    finished(ledgers)
    assert 0 < 4 * sum(committing) <= len(committing)
    assert log_of(database).stat().st_size < HEADER + 1_500 * FRAME
    assert sqlite_path(database).stat().st_size > 1_000 * PAGE
    sound(database, ledgers, "a", 1_200)


def test_nobody_waits_while_it_is_copied(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits go on while the log is copied, which is not begun once more before it has ended."""
    slow = Slow(monkeypatch)
    write(ledgers, "a", 60)
    assert slow.begun.wait(30)
    write(ledgers, "a", 60)
    assert (slow.times, ledgers.head("a").size) == (1, 360)
    slow.go_on.set()
    finished(ledgers)
    sound(database, ledgers, "a", 360)


def test_the_log_is_not_started_anew_while_it_is_copied(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the thread copies, no commit starts the log anew, though somebody else has copied all
    of it; afterwards one does.
    """
    slow, commits = Slow(monkeypatch), 0
    while not slow.begun.wait(0.05):
        write(ledgers, "a", 1)
        commits += 1
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
    sound(database, ledgers, "a", 3 * (commits + 4))


def left(connection: sqlite3.Connection) -> int:
    """Copies the log by hand, as any other program might; how many pages are left."""
    busy, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert not busy
    assert copied > 0
    return int(pages - copied)


class Slow:
    """Holds the thread up when it is about to copy for the first time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.times = threading.Event(), threading.Event(), 0
        copy = backfill._copy

        def held(connection: sqlite3.Connection) -> tuple[int, int]:
            self.times += 1
            self.begun.set()
            assert self.go_on.wait(30)
            return copy(connection)

        patch.setattr(backfill, "_copy", held)


def test_a_copy_that_fails_is_made_by_who_commits(
    database: str, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If copying fails nobody is told that a commit did; it says so in the log, and is tried again
    by who commits.
    """
    copy, threads = backfill._copy, list[bool]()

    def failing(connection: sqlite3.Connection) -> tuple[int, int]:
        threads.append(threading.current_thread() is threading.main_thread())
        if len(threads) < 3:
            raise sqlite3.OperationalError("disk I/O error")
        return copy(connection)

    monkeypatch.setattr(backfill, "_copy", failing)
    with logged() as logs:
        for _ in range(100):
            write(ledgers, "a", 1)
            finished(ledgers)
    assert threads[:4] == [False, True, True, False]
    assert [(one["event"], one["error"]) for one in logs] == [
        ("write-ahead-log-not-copied", "disk I/O error")
    ] * 2
    sound(database, ledgers, "a", 300)


WRITER = """
import sys, time
from accountant.store import backfill
from accountant.store.ledgers import Ledgers
from test_backfill import write
backfill._EVERY, backfill._LONG = 40 * 4096, 120
ledgers, end, commits = Ledgers(sys.argv[1]), time.monotonic() + 2, 0
while time.monotonic() < end:
    write(ledgers, sys.argv[2], 1)
    commits += 1
ledgers.close()
print(commits)
"""


def test_services_that_share_a_file_copy_it_together(database: str, ledgers: Ledgers) -> None:
    """Three processes write and copy as fast as they can: nothing is lost, nothing damaged."""
    folders = os.pathsep.join(map(str, Path(__file__).parents[:2]))
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, database, name],
            env=os.environ | {"PYTHONPATH": folders},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    commits = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    for name, count in zip("abc", commits, strict=True):
        assert count > 20
        sound(database, ledgers, name, 3 * count)
