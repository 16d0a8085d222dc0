"""A SQLite file: full disks, its lock, and rows that are of no type of ours."""

from __future__ import annotations

import os
import resource
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forked import ran
from support import World, ask, clean, hundredth, laplace, make

from accountant.budget.commands import Envelope
from accountant.budget.errors import Unavailable
from accountant.ledger.events import Entry
from accountant.ledger.merkle import Tree
from accountant.store import sqlite
from accountant.store.ledgers import Unknown, sqlite_path
from accountant.store.opening import open_ledgers


def test_a_disk_that_is_full_changes_nothing(world: Callable[..., World]) -> None:
    """When a commit fails for want of space the answer is 503, nothing is half done, and after
    room was made the same key gets its answer.
    """
    made = world().hospital()
    hundredth(made.service, "p", "first")
    engine = made.service.ledgers._writer
    with engine.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    failed = None
    for i in range(200):
        command = make(
            "ask_grant", dataset="d", mechanisms=[laplace("1e-6")], justification="j" * 1900
        )
        before = made.head()
        try:
            made.service.execute("fair", Envelope("p", command, f"k{i}"))
        except Unavailable:
            failed = i
            break
    assert failed is not None
    assert made.head() == before
    clean(made)
    answer = made.post("/grants", ask(laplace("1e-6"), justification="j" * 1900), key="again")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    made.service.execute("fair", Envelope("p", command, f"k{failed}"))
    answer = made.post("/grants", ask(laplace("1e-6"), justification="j" * 1900), key="again")
    assert answer.status_code == 201
    assert made.head().size == before.size + 2
    clean(made)


FULL = """
import resource, signal, sys
from accountant.budget.commands import Envelope, command_from_json
from accountant.budget.errors import Unavailable
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
service = Service(open_ledgers(sys.argv[1]))

def ask(key):
    command = command_from_json({"type": "ask_grant", "dataset": "d", "justification": "j" * 1900,
        "mechanisms": [{"kind": "laplace", "sensitivity": "1e-6", "scale": "1"}]})
    return service.execute("fair", Envelope("p", command, key)).events[-1]

ask("warm")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
done = 0
try:
    for i in range(10_000):
        ask(f"k{i}")
        done += 1
except Unavailable:
    pass
else:
    raise SystemExit("the limit was never met")
sequence = service.state("fair").sequence
assert sequence == 5 + done, (sequence, done)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert ask(f"k{done}").sequence == 5 + done
print(done)
"""


def test_a_write_that_the_system_cuts_off_changes_nothing(world: Callable[..., World]) -> None:
    """When the operating system refuses a write, the service stays consistent and recovers."""
    made = world().hospital()
    made.service.ledgers.close()
    log = Path(f"{sqlite_path(made.url)}-wal")
    size = max(sqlite_path(made.url).stat().st_size, log.stat().st_size if log.exists() else 0)
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert soft == resource.RLIM_INFINITY
    run = ran(FULL, made.url, size + 150_000)
    assert run.code == 0, run.err
    fresh = world()
    assert fresh.head().size == 5 + int(run.out) + 1
    clean(fresh)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", "text"),
        ("body", 5),
        ("leaf", "text"),
        ("leaf", b"short"),
    ],
)
def test_a_row_of_another_type_stops_the_service(
    world: Callable[..., World], column: str, value: Any
) -> None:
    """A stored row that is no bytes makes the ledger unavailable, in words."""
    made = world().hospital()
    with closing(sqlite3.connect(sqlite_path(made.url))) as raw:
        raw.execute("DROP TRIGGER event_no_update")
        change = f"UPDATE event SET {column} = ? WHERE ledger = 'fair' AND sequence = 1"
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute(change, [value])
        raw.execute("PRAGMA ignore_check_constraints=ON")  # whoever drops triggers knows this too
        raw.execute(change, [value])
        raw.commit()
    fresh = world()
    assert fresh.get("/accounts").status_code == 503
    assert fresh.post("/grants", ask(laplace("0.1"))).status_code == 503
    assert fresh.http.get("/readyz").status_code == 200  # other ledgers are not held up


def test_the_file_is_locked_against_other_writers(world: Callable[..., World]) -> None:
    """While one process writes, another waits for the lock beside the file."""
    made = world().hospital()
    code = (
        "import fcntl, os, sys\n"
        "h = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "try:\n    fcntl.flock(h, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError:\n    print('locked')\n"
    )
    lock = os.fspath(sqlite_path(made.url)) + ".lock"
    with made.service.ledgers.writing("fair"):
        assert ran(code, lock) == (0, "locked\n", "")
    assert ran(code, lock) == (0, "", "")


class Failing:
    """A connection to SQLite that fails when it is to commit, and again when it is to roll back."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def commit(self) -> None:
        """Nobody knows what became of it."""
        raise sqlite3.OperationalError("disk I/O error")

    rollback = commit


def test_a_rollback_that_fails_does_not_hide_what_is_unknown(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of a commit in one step is Unknown, also if undoing it fails as well."""
    with closing(open_ledgers(database)) as ledgers:
        with ledgers.writing("a") as writing:
            writing.append("a", [Entry(0, "x.y.v1", 0, b"event")])
            writing.commit()
        really = sqlite.raw
        monkeypatch.setattr(sqlite, "raw", lambda connection: Failing(really(connection)))
        with ledgers.writing("a", light=True) as writing:
            writing.believe(ledgers.head("a"), Tree())
            writing.append("a", [Entry(1, "x.y.v1", 1, b"event")])
            with pytest.raises(Unknown):
                writing.commit()
        monkeypatch.undo()
        assert ledgers.head("a").size == 1
