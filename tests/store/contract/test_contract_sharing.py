"""One database, several services: in threads, in processes, after restarts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from forked import Forked
from places import File, Place
from support import START, Clock, World, ask, clean, hundredth, laplace, make, snapshot

from accountant.budget.commands import Envelope
from accountant.budget.facts import grant_in
from accountant.ledger.events import Entry, Event
from accountant.runtime.service import Service
from accountant.store import ledgers, postgres, sqlite
from accountant.store.opening import open_ledgers

SHORT_WAIT_MS = 2_000
PEOPLE = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
RACER = """
import json, sys
from accountant.budget.commands import Envelope, command_from_json
from accountant.budget.facts import grant_in
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers

url, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
service = Service(open_ledgers(url))
sys.stdin.readline()  # all start together
got = []
for i in range(rounds):
    command = command_from_json({"type": "ask_grant", "dataset": "d", "mechanisms": [
        {"kind": "laplace", "sensitivity": "0.01", "scale": "1"}]})
    event = service.execute("fair", Envelope(name, command, f"{name}-{i}")).events[-1]
    if event.type == "grant.reserved.v1":
        got.append(grant_in(event))
print(json.dumps(got))
"""


def test_processes_race_for_one_budget(world: Callable[..., World]) -> None:
    """Four processes that ask for 160 hundredths of one get exactly a hundred: none over, none
    lost, none given twice.
    """
    made = world().hospital()
    racers = [Forked(RACER, made.url, f"racer{n}", 40) for n in range(4)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    got = [grant for racer in racers for grant in json.loads(racer.communicate()[0])]
    assert len(got) == len(set(got)) == 100
    assert made.used()[0][0] == 10**9
    assert made.head().size == 4 + 160
    clean(made)


def test_threads_and_services_race_for_one_budget(world: Callable[..., World]) -> None:
    """Two services in one process, with eight threads each, share a budget to the last unit."""
    made = world().hospital()
    other = Service(open_ledgers(made.url))
    got: list[str] = []
    start = threading.Barrier(16)

    def race(n: int) -> None:
        service = (made.service, other)[n % 2]
        start.wait()
        for i in range(10):
            event = hundredth(service, f"t{n}", f"{n}-{i}")
            if event.type == "grant.reserved.v1":
                got.append(grant_in(event))

    threads = [threading.Thread(target=race, args=[n]) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 100
    assert made.used()[0][0] == 10**9
    clean(made)
    assert snapshot(other.state("fair")) == snapshot(made.service.state("fair"))
    other.ledgers.close()


def test_a_key_counts_in_every_process(world: Callable[..., World]) -> None:
    """A retry that arrives at another service is answered with the first answer."""
    made = world().hospital()
    other = Service(open_ledgers(made.url))
    first = hundredth(made.service, "p", "k")
    answer = other.execute(
        "fair", Envelope("p", make("ask_grant", dataset="d", mechanisms=[laplace("0.01")]), "k")
    )
    assert answer.repeated
    assert answer.events == (first,)
    assert other.credentials.find(made.secrets["auditor"]) is not None
    other.credentials.revoke("auditor", "test")
    assert made.service.credentials.find(made.secrets["auditor"]) is None
    other.ledgers.close()


def test_what_a_later_version_wrote_stops_its_ledger_alone(world: Callable[..., World]) -> None:
    """A service that meets a type of event that it does not know decides nothing more on that
    ledger, and says which; on others it goes on.
    """
    made = world().hospital()
    made.service.execute("east", Envelope("admin", make("register_population", **PEOPLE)))
    other = Service(open_ledgers(made.url))
    hundredth(other, "p", "k")
    event = Event.from_bytes(made.stored()[-1])
    later = replace(event, sequence=event.sequence + 1, type="dataset.registered.v3")
    with other.ledgers.writing("fair") as writing:
        writing.append("fair", [Entry.of(later)])
        writing.commit()
    answer = made.post("/grants", ask(laplace("0.01")))
    assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (503, "storage-failed")
    assert "the unknown type 'dataset.registered.v3'. Start the version" in answer.json()["detail"]
    assert made.head().size == later.sequence + 1
    named = {"namespace": "n", "name": "other"}
    asked = make("register_dataset", id="other", **named)
    assert made.service.execute("east", Envelope("admin", asked)).events
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
    state = made.service.state("fair")
    before = snapshot(state)
    again = Service(open_ledgers(made.url), Clock(START + 10**9))
    state = again.state("fair")
    assert snapshot(state) == before
    assert again.expire_due() == 1
    again.ledgers.close()
    clean(made)


def test_who_keeps_the_lock_does_not_stop_readers(
    world: Callable[..., World], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process keeps the database, reading goes on and writing ends in a 503. Who
    still waits when it lets go is answered; but where a file has one writer, one has waited for
    all, and the others are told at once.
    """
    for module in (ledgers, sqlite):  # as they are used, so that nobody waits for ten seconds
        monkeypatch.setattr(module, "WAIT_MS", SHORT_WAIT_MS)
    monkeypatch.setitem(postgres._LIMITS, "lock_timeout", SHORT_WAIT_MS)
    made, one_writer = world().hospital(), isinstance(place, File)
    answers: list[int] = []

    def post() -> None:
        answers.append(made.post("/grants", ask(laplace("0.01"))).status_code)

    waiting = [threading.Thread(target=post) for _ in range(5)]
    with place.hold("fair"):
        for thread in waiting:
            thread.start()
            time.sleep(0.1)  # the first is a batch of its own
        assert made.get("/accounts").status_code == 200
        assert made.http.get("/readyz").status_code == 200
        assert answers == []  # they were still waiting
        for thread in waiting if one_writer else waiting[:1]:
            thread.join()
    for thread in waiting:
        thread.join()
    assert answers == [503] + [503 if one_writer else 201] * 4
    assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    clean(made)


def test_names_that_nobody_registered_take_no_memory(world: Callable[..., World]) -> None:
    """Asking about populations that do not exist keeps nothing of them."""
    made = world().hospital()
    for i in range(20):
        assert made.http.get(f"/v1/populations/p{i}", headers=made.auth("admin")).is_error
    assert set(made.service._projections._all) == {"fair"}
