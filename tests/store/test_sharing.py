"""One file, several services: in threads, in processes, after restarts and failed commits."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support import START, Clock, World, ask, laplace, last_replay, make, root_of, snapshot

from accountant.budget.commands import Asked
from accountant.budget.errors import Unavailable
from accountant.ledger.events import Entry
from accountant.service import Service
from accountant.store.engine import file_lock, sqlite_path
from accountant.store.ledgers import Ledgers, StoreError

RACER = """
import json, sys
from accountant.budget.commands import Asked, command_from_json
from accountant.service import Service
from accountant.store.ledgers import Ledgers

url, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
service = Service(Ledgers(url))
sys.stdin.readline()  # all start together
got = []
for i in range(rounds):
    command = command_from_json({"type": "ask_grant", "dataset": "d", "mechanisms": [
        {"kind": "laplace", "sensitivity": "0.01", "scale": "1"}]})
    event = service.execute("fair", Asked(name, command, f"{name}-{i}")).events[-1]
    if event.type == "grant.reserved.v1":
        got.append(event.body["grant"])
print(json.dumps(got))
"""


def hundredth(service: Service, by: str, key: str) -> Any:
    """Asks for epsilon 0.01; the answer's event."""
    command = make("ask_grant", dataset="d", mechanisms=[laplace("0.01")])
    return service.execute("fair", Asked(by, command, key)).events[-1]


def clean(world: World) -> None:
    """The whole ledger replays without a finding, and the memory agrees with it."""
    result = last_replay("fair", world.stored())
    assert result.findings == []
    with world.service.state("fair") as state:
        assert snapshot(state) == snapshot(result.state)
        assert root_of(world.stored()) == world.head().root


def test_processes_race_for_one_budget(world: Callable[..., World]) -> None:
    """Four processes that ask for 160 hundredths of one get exactly a hundred: none over, none
    lost, none given twice.
    """
    made = world().hospital()
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, made.url, f"racer{n}", "40"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    got = [grant for racer in racers for grant in json.loads(racer.communicate(timeout=60)[0])]
    assert len(got) == len(set(got)) == 100
    assert made.used()[0][0] == 10**9
    assert made.head().size == 3 + 160
    clean(made)


def test_threads_and_services_race_for_one_budget(world: Callable[..., World]) -> None:
    """Two services in one process, with eight threads each, share a budget to the last unit."""
    made = world().hospital()
    other = Service(Ledgers(made.url))
    got: list[str] = []
    start = threading.Barrier(16)

    def race(n: int) -> None:
        service = (made.service, other)[n % 2]
        start.wait()
        for i in range(10):
            event = hundredth(service, f"t{n}", f"{n}-{i}")
            if event.type == "grant.reserved.v1":
                got.append(event.body["grant"])

    threads = [threading.Thread(target=race, args=[n]) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 100
    assert made.used()[0][0] == 10**9
    clean(made)
    with other.state("fair") as mine, made.service.state("fair") as theirs:
        assert snapshot(mine) == snapshot(theirs)
    other.ledgers.close()


def test_a_key_counts_in_every_process(world: Callable[..., World]) -> None:
    """A retry that arrives at another service is answered with the first answer."""
    made = world().hospital()
    other = Service(Ledgers(made.url))
    first = hundredth(made.service, "p", "k")
    answer = other.execute(
        "fair", Asked("p", make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), "k")
    )
    assert answer.repeated
    assert answer.events == (first,)
    assert other.credentials.find(made.secrets["auditor"]) is not None
    other.credentials.revoke("auditor", "test")
    assert made.service.credentials.find(made.secrets["auditor"]) is None
    other.ledgers.close()


def test_a_restart_rebuilds_the_same_state(world: Callable[..., World]) -> None:
    """A new service on the same file has the same state, and goes on where the old one ended."""
    clock = Clock()
    made = world(clock).hospital(
        "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n", {"sex": ["f", "m"]}
    )
    grants = [
        made.post("/grants", ask(laplace("0.1"), subjects={"sex": [sex]}, ttl_seconds=60)).json()[
            "id"
        ]
        for sex in ("f", "m", "f")
    ]
    made.post(f"/grants/{grants[0]}/commit", {})
    made.post(f"/grants/{grants[1]}/release", {"reason": "x"})
    with made.service.state("fair") as state:
        before = snapshot(state)
    again = Service(Ledgers(made.url), Clock(START + 10**9))
    with again.state("fair") as state:
        assert snapshot(state) == before
    assert again.expire_due() == 1
    again.ledgers.close()
    clean(made)


def test_a_disk_that_is_full_changes_nothing(world: Callable[..., World]) -> None:
    """When a commit fails for want of space the answer is 503, nothing is half done, and after
    room was made the same key gets its answer.
    """
    made = world().hospital()
    hundredth(made.service, "p", "first")
    engine = made.service.ledgers._database._writer
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
            made.service.execute("fair", Asked("p", command, f"k{i}"))
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
    made.service.execute("fair", Asked("p", command, f"k{failed}"))
    answer = made.post("/grants", ask(laplace("1e-6"), justification="j" * 1900), key="again")
    assert answer.status_code == 201
    assert made.head().size == before.size + 2
    clean(made)


FULL = """
import resource, signal, sys
from accountant.budget.commands import Asked, command_from_json
from accountant.budget.errors import Unavailable
from accountant.service import Service
from accountant.store.ledgers import Ledgers

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
service = Service(Ledgers(sys.argv[1]))

def ask(key):
    command = command_from_json({"type": "ask_grant", "dataset": "d", "justification": "j" * 1900,
        "mechanisms": [{"kind": "laplace", "sensitivity": "1e-6", "scale": "1"}]})
    return service.execute("fair", Asked("p", command, key)).events[-1]

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
with service.state("fair") as state:
    assert state.sequence == 4 + done, (state.sequence, done)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert ask(f"k{done}").sequence == 4 + done
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
    run = subprocess.run(
        [sys.executable, "-c", FULL, made.url, str(size + 150_000)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    fresh = world()
    assert fresh.head().size == 4 + int(run.stdout) + 1
    clean(fresh)


def test_a_missing_table_is_no_crash(tmp_path: Path) -> None:
    """A database that was never migrated is reported as unavailable, whatever is asked."""
    service = Service(Ledgers(f"sqlite:///{tmp_path}/empty.db"))
    for call in (
        lambda: hundredth(service, "p", "k"),
        service.ready,
        lambda: service.state("fair").__enter__(),
    ):
        with pytest.raises(Unavailable):
            call()
    service.ledgers.close()


def test_a_missing_table_is_no_crash_at_the_door(tmp_path: Path) -> None:
    """Every call answers 503 when the database cannot be read, authentication included."""
    from support import client_of  # noqa: PLC0415

    service = Service(Ledgers(f"sqlite:///{tmp_path}/empty.db"))
    with client_of(service) as http:
        for path in ("/readyz", "/v1/populations/fair", "/v1/populations/fair/events"):
            answer = http.get(path, headers={"Authorization": "Bearer acct_x"})
            assert answer.status_code == 503, (path, answer.text)
    service.ledgers.close()


def test_a_restored_backup_is_noticed(world: Callable[..., World], tmp_path: Path) -> None:
    """A database that went back in time is not written to from a memory that is ahead of it."""
    made = world().hospital()
    path = sqlite_path(made.url)
    with closing(sqlite3.connect(path)) as raw, closing(sqlite3.connect(tmp_path / "b")) as backup:
        raw.backup(backup)
        hundredth(made.service, "p", "k")
        made.service.ledgers.close()
        backup.backup(raw)
    for _ in range(2):
        diverged(made)  # its memory is the witness that something is missing
    assert made.post("/grants", ask(*[laplace("0.01", i + 1) for i in range(200)] * 3)).is_error
    made.service._books["fair"].drop()  # as after a commit that failed
    diverged(made)
    fresh = world()
    assert hundredth(fresh.service, "p", "k2").sequence == 3
    clean(fresh)


def test_a_history_of_the_same_length_is_noticed(
    world: Callable[..., World], tmp_path: Path
) -> None:
    """A restored database that has grown again is another history, even at the same length."""
    made = world().hospital()
    path = sqlite_path(made.url)
    with closing(sqlite3.connect(path)) as raw, closing(sqlite3.connect(tmp_path / "b")) as backup:
        raw.backup(backup)
        hundredth(made.service, "p", "k")
        made.service.ledgers.close()
        backup.backup(raw)
    other = Service(Ledgers(made.url))
    command = make("ask_grant", dataset="d", mechanisms=[laplace("1")])
    assert other.execute("fair", Asked("q", command, "k")).events[0].type == "grant.reserved.v1"
    other.ledgers.close()
    for _ in range(2):
        diverged(made)
        made.service._books["fair"].drop()
    assert hundredth(world().service, "p", "k2").type == "grant.refused.v1"  # all is spent
    clean(made := world())
    assert made.head().size == 5


def diverged(made: World) -> None:
    """Neither reading nor writing is answered, and nothing is written."""
    before = made.head()
    with pytest.raises(Unavailable) as refusal:
        hundredth(made.service, "p", "k2")
    assert refusal.value.code == "ledger-diverged"
    with pytest.raises(Unavailable), made.service.state("fair"):
        pass
    assert made.post("/grants", ask(laplace("0.01")), key="k2").status_code == 503
    assert made.get("/accounts").status_code == 503
    assert made.head() == before


def test_an_event_that_fails_half_way_is_not_half_applied(world: Callable[..., World]) -> None:
    """If an event cannot be folded to its end, nobody is ever shown what its beginning did."""
    made = world().hospital()
    grant = hundredth(made.service, "p", "k").body["grant"]
    made.service.execute("fair", Asked("p", make("commit_grant", grant=grant)))
    with closing(sqlite3.connect(sqlite_path(made.url))) as raw:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute(
            "UPDATE event SET body = CAST(replace(body, '\"10000000\"', ?) AS BLOB)"
            " WHERE sequence = 4",
            ['"' + "9" * 30 + '"'],
        )
        raw.commit()
    fresh = Service(Ledgers(made.url))
    for _ in range(3):  # a state that was half folded would fail in another way, or not at all
        with pytest.raises(Unavailable, match="event 4"), fresh.state("fair"):
            pass
    fresh.ledgers.close()


def test_a_damaged_event_stops_the_service_not_the_verifier(world: Callable[..., World]) -> None:
    """An event that cannot be folded makes the ledger unavailable; nothing is answered from a
    state that lacks it, before or after a second try.
    """
    made = world().hospital()
    hundredth(made.service, "p", "k")
    with closing(sqlite3.connect(sqlite_path(made.url))) as raw:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute(
            "UPDATE event SET body = CAST(replace(body, 'd3', 'd4') AS BLOB) WHERE sequence = 3"
        )
        raw.execute("UPDATE event SET body = x'7b7d' WHERE sequence = 2")
        raw.commit()
    fresh = Service(Ledgers(made.url))
    for _ in range(2):
        with pytest.raises(Exception, match=r".+"):
            hundredth(fresh, "p", "new")
        with pytest.raises(Exception, match=r".+"), fresh.state("fair"):
            pass
    assert len(last_replay("fair", made.stored()).findings) >= 2
    fresh.ledgers.close()


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


def test_appending_elsewhere_is_refused(world: Callable[..., World]) -> None:
    """The store appends only at the head: a gap or a rewrite is an error and leaves no trace."""
    made = world().hospital()
    ledgers = made.service.ledgers
    event = made.service.event("fair", 2)
    before = made.head()
    for _ in range(2):
        with pytest.raises(StoreError), ledgers.writing("fair") as writing:
            writing.append("fair", [Entry.of(event)])
    assert made.head() == before


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
    probe = [sys.executable, "-c", code, lock]
    with made.service.ledgers.writing("fair"):
        run = subprocess.run(probe, capture_output=True, text=True, check=True)
    assert run.stdout == "locked\n"
    run = subprocess.run(probe, capture_output=True, text=True, check=True)
    assert run.stdout == ""


def test_who_keeps_the_lock_does_not_stop_readers(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process keeps the database, reading goes on and writing ends in a 503."""
    monkeypatch.setattr("accountant.store.sqlite.BUSY_MS", 1_500)
    made = world().hospital()
    answers: list[int] = []
    with file_lock(sqlite_path(made.url)):
        waiting = [
            threading.Thread(
                target=lambda: answers.append(
                    made.post("/grants", ask(laplace("0.01"))).status_code
                )
            )
            for _ in range(5)
        ]
        for thread in waiting:
            thread.start()
        assert made.get("/accounts").status_code == 200
        assert made.http.get("/readyz").status_code == 200
        assert answers == []  # they were still waiting
        for thread in waiting:
            thread.join()
    assert answers == [503] * 5
    assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    clean(made)


def test_names_that_nobody_registered_take_no_memory(world: Callable[..., World]) -> None:
    """Asking about populations that do not exist keeps nothing of them."""
    made = world().hospital()
    for i in range(20):
        assert made.http.get(f"/v1/populations/p{i}", headers=made.auth("admin")).is_error
    assert set(made.service._books) == {"fair"}
