"""PostgreSQL when connections break, sessions are ended and servers come back: nothing is half
written, nothing hangs, and nothing is answered with a 500.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from places import Hosted, everything
from support import World, ask, clean, hundredth, laplace
from wire import Wire

from accountant import jobs
from accountant.ledger.events import Entry
from accountant.reporting.desk import Desk
from accountant.runtime import projections as shelf
from accountant.store import postgres
from accountant.store.ledgers import Ledgers, StoreError, Unknown
from accountant.store.opening import open_ledgers
from bench.postgres import Server


@pytest.fixture
def database(hosted: Hosted) -> str:
    """Worlds of this file are on PostgreSQL."""
    return hosted.url


@pytest.fixture
def ledgers(hosted: Hosted) -> Iterator[Ledgers]:
    """The ledgers of an empty database."""
    made = open_ledgers(hosted.url)
    yield made
    made.close()


def entry(sequence: int) -> Entry:
    """An event that nobody decided."""
    return Entry(sequence, "x.y.v1", sequence, b"event %d" % sequence)


def end_sessions(hosted: Hosted) -> None:
    """Ends every session of the service, as an administrator does."""
    for pid in hosted.sessions():
        hosted.run(f"SELECT pg_terminate_backend({pid}, 5000)", role="superuser")


def test_nobody_decides_from_a_head_that_is_about_to_move(hosted: Hosted, ledgers: Ledgers) -> None:
    """Whoever asks for the head while another transaction appends waits for its commit, and then
    sees all that it wrote: the race of check and spend cannot be lost under READ COMMITTED.
    """
    other = open_ledgers(hosted.url)
    with ledgers.writing("a") as writing:
        writing.append("a", [entry(0)])
        writing.commit()
    seen: list[Any] = []

    def second() -> None:
        with other.writing("a") as writing:
            seen.append(writing.head("a").size)
            seen.append(len(writing.read("a", 0, 9)))

    waiting = threading.Thread(target=second)
    with ledgers.writing("a") as writing:
        assert writing.head("a").size == 1
        waiting.start()
        time.sleep(0.3)
        writing.append("a", [entry(1)])
        assert seen == []
        writing.commit()
    waiting.join()
    assert seen == [2, 2]
    other.close()


def interrupted(ledgers: Ledgers, meanwhile: Callable[[], None]) -> None:
    """Appends an event; something happens before the commit."""
    with ledgers.writing("a") as writing:
        writing.append("a", [entry(writing.head("a").size)])
        meanwhile()
        writing.commit()


def test_a_session_that_is_ended_leaves_nothing(hosted: Hosted, ledgers: Ledgers) -> None:
    """When the session that holds a ledger is ended in the middle, nothing of its transaction is
    there, who waits goes on at once, and so does who was interrupted.
    """
    other = open_ledgers(hosted.url)
    for size in range(0, 4, 2):
        with pytest.raises(StoreError):
            interrupted(ledgers, lambda: end_sessions(hosted))
        assert (other.head("a").size, len(other.read("a"))) == (size, size)
        interrupted(other, lambda: None)
        interrupted(ledgers, lambda: None)
    assert ledgers.head("a") == other.head("a")
    other.close()


def test_who_stops_in_the_middle_holds_nobody_up_for_long(hosted: Hosted, ledgers: Ledgers) -> None:
    """A writer that is frozen after it has appended is ended by the server, here after half a
    second: others go on, and when it wakes up it is told that nothing of its own is there.
    """
    other = open_ledgers(hosted.url)
    interrupted(ledgers, lambda: None)

    def frozen() -> None:
        with ledgers.writing("a") as writing:
            writing.lock().connection.exec_driver_sql(
                "SET LOCAL idle_in_transaction_session_timeout = 500"
            )
            writing.append("a", [entry(n) for n in range(1, 400)])
            interrupted(other, lambda: None)
            writing.commit()

    with pytest.raises(StoreError):
        frozen()
    assert (ledgers.head("a").size, len(ledgers.read("a"))) == (2, 2)
    other.close()


def test_broken_connections_are_replaced_unnoticed(
    world: Callable[..., World], hosted: Hosted
) -> None:
    """After every session was ended between two requests, the next read and the next write are
    answered as if nothing had been.
    """
    made = world().hospital()
    for i in range(3):
        end_sessions(hosted)
        assert made.get("/accounts").status_code == 200
        end_sessions(hosted)
        assert made.post("/grants", ask(laplace("0.01"))).status_code == 201, i
    clean(made)


def test_however_many_are_broken_the_next_write_works(hosted: Hosted, ledgers: Ledgers) -> None:
    """After every session was ended the first transaction begins, though all that are kept for
    writing are dead.
    """
    names = [f"l{n}" for n in range(postgres.WRITERS)]
    for size in range(3):
        with ExitStack() as stack:
            for name in names:
                writing = stack.enter_context(ledgers.writing(name))
                writing.append(name, [entry(size)])
                writing.commit()
        end_sessions(hosted)
        with ledgers.writing("a") as writing:
            assert writing.head("a").size == size
            writing.append("a", [entry(size)])
            writing.commit()


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_server_that_restarts_is_a_503_at_most(
    world: Callable[..., World], postgres: Server, how: str
) -> None:
    """While the server is away every request is answered 503 in good time, and no job breaks; when
    it is back, after whatever end, everything that was answered is there and the next request
    works.
    """
    made = world().hospital()
    assert made.post("/grants", ask(laplace("0.01")), key="k").status_code == 201
    before = made.stored()
    if how == "kill":
        postgres.kill()
    else:
        postgres.stop(immediate=how == "immediate")
    try:
        for _ in range(2):
            started = time.monotonic()
            assert made.get("/accounts").status_code == 503
            assert made.post("/grants", ask(laplace("0.01")), key="k2").status_code == 503
            assert made.http.get("/readyz").status_code == 503
            assert time.monotonic() - started < 10
        jobs.expire(made.service)
        jobs.publish(made.service, made.publisher)
        folder = made.settings.home / "reports"
        jobs.report(made.service, made.publisher, folder, Desk(made.service.ledgers))
    finally:
        postgres.start()
    assert made.post("/grants", ask(laplace("0.01")), key="k2").status_code == 201
    answer = made.post("/grants", ask(laplace("0.01")), key="k")
    assert answer.headers["idempotent-replay"] == "true"
    assert made.stored()[:-1] == before
    clean(made)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_an_unknown_commit_is_looked_up(
    world: Callable[..., World], hosted: Hosted, cut: str
) -> None:
    """When the connection breaks while a commit is under way, the service reads back whether it
    happened: the request is answered and recorded once, and the ledger is whole.
    """
    wire = Wire(hosted.server.port)
    made = world(url=hosted.url.replace(f":{hosted.server.port}/", f":{wire.port}/"))
    wire.cut = cut
    made.hospital()  # its first event: there is no head yet that could be locked
    assert (wire.cuts, made.head().size) == (1, 4)
    before = made.head().size
    wire.cut = cut
    for cuts in (2, 2):  # what cannot be taken back has a transaction of several steps
        answer = made.put("/datasets/e", {"namespace": "n", "name": "e"})
        assert (wire.cuts, answer.status_code) == (cuts, 200), answer.text
        assert made.head().size == before + 1
    clean(made)
    wire.close()


@pytest.mark.parametrize("cut", ["before", "while", "after"])
def test_an_unknown_light_round_is_looked_up(
    world: Callable[..., World], hosted: Hosted, cut: str
) -> None:
    """When the connection breaks while a round is appended in one step, each of its commands is
    answered once, charged once, and the next round is light again.
    """
    wire = Wire(hosted.server.port, b"grant.reserved")
    made = world(url=hosted.url.replace(f":{hosted.server.port}/", f":{wire.port}/")).hospital()
    for _ in range(2):
        assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    before, wire.cut = made.stored(), cut
    answer = made.post("/grants", ask(laplace("0.01")), key="k")
    assert (answer.status_code, wire.cuts) == (201, 1)
    assert made.stored()[:-1] == before
    again = made.post("/grants", ask(laplace("0.01")), key="k")
    assert (again.json(), again.headers["idempotent-replay"]) == (answer.json(), "true")
    assert made.used()[0][0] == 3 * 10**7
    clean(made)
    wire.close()


@pytest.mark.parametrize("cut", ["before", "while"])
def test_nothing_is_left_of_what_could_not_be_read_back(
    world: Callable[..., World], hosted: Hosted, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the server goes away while a commit is under way, and stays away for a moment, the
    service shows and repeats nothing afterwards but what the ledger holds.
    """
    monkeypatch.setattr(shelf, "_WORTH", 1)  # a snapshot, so that reading back asks the database
    wire = Wire(hosted.server.port, b"grant.reserved")
    made = world(url=hosted.url.replace(f":{hosted.server.port}/", f":{wire.port}/")).hospital()
    assert made.post("/grants", ask(laplace("0.01"))).status_code == 201
    made.service.keep_snapshots()
    wire.refuses, wire.cut = True, cut
    assert made.post("/grants", ask(laplace("0.01")), key="k").status_code == 503
    wire.refuses = False
    assert wire.cuts == 1
    happened = cut == "while"
    spent = (2 if happened else 1) * 10**7
    deadline = time.monotonic() + 5
    while made.used()[0][0] != spent and time.monotonic() < deadline:
        time.sleep(0.01)  # the server may still be committing
    assert made.used()[0][0] == spent
    answer = made.post("/grants", ask(laplace("0.01")), key="k")
    assert answer.status_code == 201, answer.text
    assert ("idempotent-replay" in answer.headers) == happened
    assert made.used()[0][0] == 2 * 10**7
    clean(made)
    wire.close()


@pytest.mark.parametrize(("cut", "size"), [("before", 0), ("after", 1)])
def test_a_commit_that_broke_is_called_unknown(hosted: Hosted, cut: str, size: int) -> None:
    """The store does not guess: whether the commit took place or not, it says that it is unknown,
    and the head tells.
    """
    wire = Wire(hosted.server.port)
    mine = open_ledgers(hosted.url.replace(f":{hosted.server.port}/", f":{wire.port}/"))
    with pytest.raises(Unknown):
        interrupted(mine, lambda: setattr(wire, "cut", cut))
    deadline = time.monotonic() + 5
    while mine.head("a").size != size and time.monotonic() < deadline:
        time.sleep(0.01)  # the server may not have noticed yet
    assert mine.head("a").size == size
    mine.close()
    wire.close()


def test_what_the_session_is_set_to(hosted: Hosted, ledgers: Ledgers) -> None:
    """A transaction that writes waits for the disk whatever the server's default, and whatever
    somebody has made of a pooled session; nothing waits for ever.
    """

    def shown(connection: Any, name: str) -> str:
        return str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())

    [(default,)] = hosted.run("SHOW synchronous_commit", role="app")
    assert default == "off"
    for _ in range(2):
        with ledgers.writing("a") as writing:
            assert shown(writing.lock().connection, "synchronous_commit") == "on"
            assert shown(writing.lock().connection, "lock_timeout") == "10s"
            assert shown(writing.lock().connection, "statement_timeout") == "30s"
            assert shown(writing.lock().connection, "idle_in_transaction_session_timeout") == "30s"
            assert shown(writing.lock().connection, "transaction_isolation") == "read committed"
            assert shown(writing.lock().connection, "timezone") == "UTC"
            assert shown(writing.lock().connection, "application_name") == "accountant"
            writing.commit()
            raw = writing.lock().connection.connection.driver_connection
            assert raw is not None
            for spoilt in ("synchronous_commit = off", "lock_timeout = 0", "statement_timeout = 0"):
                raw.execute(f"SET SESSION {spoilt}")
    read = ledgers._read
    assert read(lambda c: shown(c, "statement_timeout")) == "30s"


def test_settings_of_the_url_pass_through(hosted: Hosted) -> None:
    """What the URL says of TLS, options and names reaches the driver, and wins."""
    mine = open_ledgers(f"{hosted.url}?sslmode=require")
    with pytest.raises(StoreError, match="SSL"):
        mine.names()
    mine.close()
    mine = open_ledgers(f"{hosted.url}?application_name=two&options=-c%20statement_timeout%3D77")
    with mine.writing("a") as writing:
        shown = writing.lock().connection.exec_driver_sql("SHOW application_name").scalar_one()
        assert shown == "two"
    timeout = mine._read(lambda c: c.exec_driver_sql("SHOW statement_timeout").scalar())
    assert timeout == "77ms"
    mine.close()
    port = hosted.server.port
    start, end = hosted.url.replace(f"@127.0.0.1:{port}/", "@/"), "target_session_attrs=read-write"
    mine = open_ledgers(
        f"{start}?host=127.0.0.1:1&host=127.0.0.1:{port}&{end}&prepare_threshold=none"
    )
    assert mine.names() == []
    with mine.writing("a") as writing:
        raw: Any = writing.lock().connection.connection.driver_connection
        assert raw.prepare_threshold is None
    mine.close()


def test_connections_are_bounded(hosted: Hosted, ledgers: Ledgers) -> None:
    """However many read and write at once, a process has a fixed number of sessions."""
    with ledgers.writing("a") as writing:
        writing.append("a", [entry(0)])
        writing.commit()
    most: list[int] = []

    def work(n: int) -> None:
        for _ in range(15):
            ledgers.read("a")
            with ledgers.writing(f"l{n}") as writing:
                at = writing.head(f"l{n}").size
                writing.append(f"l{n}", [entry(at)])
                writing.commit()

    threads = [threading.Thread(target=work, args=[n]) for n in range(16)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most.append(len(hosted.sessions()))
    assert max(most) <= postgres.READERS + postgres.WRITERS
    assert len(ledgers.names()) == 17


def test_another_database_is_refused(
    world: Callable[..., World], hosted: Hosted, postgres: Server, tmp_path: Path
) -> None:
    """A database that does not continue the head that the vault knows is not written to, whatever
    stands in it.
    """
    made = world().hospital()
    made.publisher.sign("fair")
    postgres.create("other", "migrated")
    other = Hosted(postgres, "other")
    strange = world(url=other.url, home=tmp_path / "elsewhere").hospital()
    hundredth(strange.service, "p", "k")
    before = everything(other)
    confused = World(other.url, home=tmp_path)
    answer = confused.post("/grants", ask(laplace("0.01")))
    assert (answer.status_code, answer.json()["type"].split(":")[-1]) == (503, "ledger-diverged")
    after = everything(other)
    for table in before:
        rows = [[row for row in each[table] if row[0] == "fair"] for each in (before, after)]
        assert rows[0] == rows[1]
    confused.close()
    strange.close()
    postgres.drop("other")
