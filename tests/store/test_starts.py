"""Starting again after a kill: a snapshot changes how long that takes, and nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from forked import ran
from structlog.testing import LogCapture
from support import START, hospital, laplace, make

from accountant import jobs
from accountant.budget.commands import Envelope
from accountant.budget.errors import Problem, Unavailable
from accountant.budget.snapshot import dump
from accountant.cli import main
from accountant.config.settings import Settings
from accountant.publishing.publisher import Publisher
from accountant.reporting.desk import Desk
from accountant.reporting.statement import accounts_json
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault

pytestmark = pytest.mark.xdist_group("starts")
"""In one worker: what they share takes long to make."""

SNAPSHOT, END = 2_300, 2_450
"""Events in the snapshot, and in the ledger when the service was killed."""
LIVED = """
import os, signal, sqlite3, sys
from itertools import islice
from pathlib import Path
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault
from bench.asking import endless_grants, open_ledger

home, (start, early, snapshot, end) = Path(sys.argv[1]), map(int, sys.argv[2:])
database = home / "accountant.db"
kept = Snapshots(home)
service = Service(open_ledgers(f"sqlite:///{database}"), lambda: start, Vault(home), kept)
open_ledger(service, "fair")
asked = endless_grants("k")

def go_on(size):
    more = size - service.head("fair").size
    service.execute_all("fair", list(islice(asked, more)))

go_on(early)
with sqlite3.connect(database) as whole, sqlite3.connect(home / "backup.db") as backup:
    whole.backup(backup)
go_on(snapshot - 1)
Publisher(service, Vault(home), "test").sign("fair")  # one event: the first key
service.keep_snapshots()
go_on(end)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a service that was killed, with a snapshot, some events after it, a signed head
    of the snapshot's size and a backup of the database from before.
    """
    home = tmp_path_factory.mktemp("killed")
    shutil.copy(empty_database, home / "accountant.db")
    done = ran(LIVED, home, START, 1_500, SNAPSHOT, END)
    assert done.code == -signal.SIGKILL, done.err
    assert (home / "snapshots" / "fair.snapshot").exists()
    return home


@pytest.fixture
def home(killed: Path, tmp_path: Path) -> Path:
    """A copy of that home for one test."""
    return shutil.copytree(killed, tmp_path / "home")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    """What is logged about snapshots."""
    seen, every = LogCapture(), structlog.make_filtering_bound_logger(logging.INFO)
    for module in ("accountant.store.snapshots", "accountant.runtime.projections"):
        logger = structlog.wrap_logger(None, [seen], wrapper_class=every)
        monkeypatch.setattr(f"{module}._log", logger)
    return seen


@contextmanager
def started(home: Path) -> Iterator[Service]:
    """A service at ``home``."""
    chosen = Settings(home=home)
    ledgers = open_ledgers(f"sqlite:///{home / 'accountant.db'}")
    service = Service(ledgers, lambda: START, Vault(chosen.home), Snapshots(chosen.home))
    try:
        yield service
    finally:
        service.close()


class Said(NamedTuple):
    """What a service answers after a start: the accounts, and events or problems."""

    accounts: dict[str, Any]
    answers: list[Any]


def said(home: Path) -> Said:
    """Old keys again, with what they were asked with and with something else; grants from before
    and after the snapshot settled; new grants, and one that is too much.
    """
    anew = make("ask_grant", dataset="data", mechanisms=[laplace("0.5", count=7)])
    much = make("ask_grant", dataset="data", mechanisms=[laplace(900_000, count=2)])
    settled = [make("commit_grant", grant=f"g{number}") for number in (5, 1_400, 2_200, 2_420)]
    released = make("release_grant", grant="g6", reason="never run")
    asked = [
        *(Envelope("bench", anew, key) for key in ("k3", "k2400", "new-1", "new-1", "new-2")),
        *(Envelope("bench", command) for command in (*settled, settled[0])),
        Envelope("bench", much, "much"),
        Envelope("bench", make("register_dataset", id="later", namespace="n", name="later")),
    ]
    with started(home) as service:
        state = service.state("fair")
        accounts = accounts_json(state)
        answers = [answered(service, one) for one in asked]
        assert service.execute("fair", Envelope("bench", released)).events
        return Said(accounts, answers)


def answered(service: Service, asked: Envelope) -> Any:
    """The bytes of the events, and whether they are an answer from before; or the problem."""
    try:
        answer = service.execute("fair", asked)
    except Problem as problem:
        return problem.code, problem.detail
    return [event.to_bytes() for event in answer.events], answer.repeated


def snapshot_of(home: Path) -> Path:
    """The file of the snapshot."""
    return home / "snapshots" / "fair.snapshot"


def nothing(home: Path) -> None:
    """Leaves the home as it is."""


def torn(home: Path) -> None:
    """Half a snapshot."""
    data = snapshot_of(home).read_bytes()
    snapshot_of(home).write_bytes(data[: len(data) // 2])


def changed(home: Path) -> None:
    """A snapshot with another bit near its end, where the columns are."""
    data = bytearray(snapshot_of(home).read_bytes())
    data[-200] ^= 1
    snapshot_of(home).write_bytes(bytes(data))


def another_ledgers(home: Path) -> None:
    """A snapshot of this service, of another ledger."""
    other = hospital()
    snapshots = Snapshots(home)
    with started(home) as service:
        tree = service.head("fair")
    assert snapshots.keep("other", tree, dump(other.state))
    (home / "snapshots" / "other.snapshot").rename(snapshot_of(home))


def restored(home: Path) -> None:
    """The database from before the snapshot, and no head that was signed."""
    for path in home.glob("accountant.db*"):
        path.unlink()
    (home / "backup.db").rename(home / "accountant.db")
    shutil.rmtree(home / "vault" / "fair")


def gone_on(home: Path) -> None:
    """That database, which has gone on past the snapshot in another way."""
    restored(home)
    kept = snapshot_of(home).read_bytes()
    anew = make("ask_grant", dataset="data", mechanisms=[laplace("0.25")])
    with started(home) as service:
        more = [
            Envelope("bench", anew, f"other{i}") for i in range(END - service.head("fair").size)
        ]
        service.execute_all("fair", more)
    snapshot_of(home).write_bytes(kept)


CASES: list[tuple[Callable[[Path], None], str]] = [
    (nothing, "begun from a snapshot"),
    (torn, "it is torn"),
    (changed, "it was changed"),
    (another_ledgers, "another ledger"),
    (restored, "does not continue it"),
    (gone_on, "does not continue it"),
]


@pytest.mark.parametrize(
    ("happened", "told"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_snapshot_changes_no_answer(
    home: Path, tmp_path: Path, log: LogCapture, happened: Callable[[Path], None], told: str
) -> None:
    """Whatever is in the snapshot's place, a start answers to the byte what it would without."""
    happened(home)
    without = shutil.copytree(home, tmp_path / "without")
    shutil.rmtree(without / "snapshots")
    log.entries.clear()
    found = said(home)
    assert told in str(log.entries)
    log.entries.clear()
    assert found == said(without)
    assert [entry.get("reason") for entry in log.entries] == ["there is none"]


def test_a_database_that_went_back_is_refused_all_the_same(
    home: Path, tmp_path: Path, log: LogCapture
) -> None:
    """A head that was signed is not forgotten for a snapshot: without the events up to it nothing
    is read or written, and the reason is the same.
    """
    signed = shutil.copytree(home / "vault" / "fair", tmp_path / "signed")
    restored(home)
    shutil.copytree(signed, home / "vault" / "fair")
    without = shutil.copytree(home, tmp_path / "without")
    shutil.rmtree(without / "snapshots")
    reasons = []
    for each in (home, without):
        with started(each) as service, pytest.raises(Unavailable) as refused:
            service.known("fair")
        assert refused.value.code == "ledger-diverged"
        reasons.append(refused.value.detail)
    assert reasons[0] == reasons[1]
    assert f"{SNAPSHOT} events" in reasons[0]


def test_a_snapshot_is_made_by_the_job_and_at_the_end(home: Path, log: LogCapture) -> None:
    """The service keeps one while it runs, and one of everything when it ends."""
    snapshot_of(home).unlink()
    with started(home) as service:
        service.known("fair")
        chosen = Settings(home=home)
        publisher = Publisher(service, Vault(chosen.home), "test")
        scheduler = jobs.start(service, publisher, chosen, Desk(service.ledgers))
        try:
            scheduler.get_job("snapshots").func()
        finally:
            scheduler.shutdown()
        assert snapshot_of(home).exists()
        snapshot_of(home).unlink()
    with started(home) as service:
        service.known("fair")
    log.entries.clear()
    with started(home) as service:
        service.known("fair")
        size = service.head("fair").size
    assert [(e["event"], e["events"]) for e in log.entries] == [("begun from a snapshot", size)]


def test_commands_begin_from_it_too(
    home: Path, log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command on a large ledger reads the service's snapshot; its output is the same without."""
    monkeypatch.setenv("ACCOUNTANT_HOME", str(home))
    monkeypatch.setenv("ACCOUNTANT_DATABASE_URL", f"sqlite:///{home / 'accountant.db'}")
    monkeypatch.setattr(sys, "argv", ["accountant", "accounts", "-p", "fair", "--json"])
    printed = []
    for told in ("begun from a snapshot", "no snapshot"):
        with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit):
            main()
        assert [entry["event"] for entry in log.entries] == [told]
        printed.append(json.loads(out.getvalue()))
        log.entries.clear()
        snapshot_of(home).unlink()
    assert printed[0] == printed[1]
    assert printed[0]["sequence"] == END - 1
