"""The service as it is run: attacked, stopped under load, beside a stopped neighbour."""

from __future__ import annotations

import json
import resource
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path

import pytest
from doors import answer, status, until
from forked import SERVICE, Forked
from support import Clock, World, ask, laplace

from accountant.auth.keys import new_secret

DAY = 86_400
GRANT = json.dumps(ask(laplace("0.0001"))).encode()
HOLDING = {
    "the lock beside the file": """
import sys, time
from pathlib import Path
from accountant.store.sqlite import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
""",
    "a transaction": """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(1000)
""",
}
"""Programs that keep everybody from writing to a SQLite file."""
WAIT = 3
IMPATIENT = f"""
from accountant.store import ledgers, sqlite
ledgers.WAIT_MS = sqlite.WAIT_MS = {WAIT * 1_000}
from accountant.__main__ import main
main()
"""
"""The service, but that it waits for the file so many seconds and not ten."""


class Service:
    """``accountant serve`` in a process, with a key of its pipeline."""

    def __init__(self, process: Forked, port: int, secret: str, log: Path) -> None:
        self.process, self.port, self.secret, self.log = process, port, secret, log

    def connect(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def grant(self, key: str, population: str = "fair") -> bytes:
        """A grant's bytes."""
        head = (
            f"POST /v1/populations/{population}/grants HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self.secret}\r\nIdempotency-Key: {key}\r\n"
            f"Content-Length: {len(GRANT)}\r\n\r\n"
        )
        return head.encode() + GRANT

    def asks(self, data: bytes) -> bytes:
        """One request is answered."""
        with self.connect() as connection:
            connection.sendall(data)
            return answer(connection)

    def ready(self) -> int:
        """The answer of /readyz."""
        return status(self.asks(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"))

    def rss(self) -> int:
        """Megabytes of memory."""
        fields = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(fields.split("VmRSS:")[1].split()[0]) // 1_024


@contextmanager
def serving(
    url: str, secret: str, home: Path, files: int = 4_096, program: str = SERVICE
) -> Iterator[Service]:
    """The service; killed at the end if it has not ended."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    log = home / "serve.log"
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = ("--home", home, "--database-url", url, "serve", "--port", port)
    process = Forked(program, *command, errors=log)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, most))
    service = Service(process, port, secret, log)
    try:

        def up() -> bool:
            assert process.poll() is None, log.read_text()
            with suppress(OSError):
                return service.ready() > 0
            return False

        until(up, 30)
        yield service
    finally:
        process.close()


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population with a limit that is never reached."""
    return world().hospital("  - {id: a, limit: {epsilon: 1000000}}\n")


@pytest.fixture
def service(made: World, tmp_path: Path) -> Iterator[Service]:
    """The service on it, that may open few files."""
    with serving(made.url, made.secrets["pipeline"], tmp_path, files=1_024) as one:
        yield one


@pytest.fixture
def impatient(made: World, tmp_path: Path) -> Iterator[Service]:
    """The service on it, that does not wait for a file for long."""
    with serving(made.url, made.secrets["pipeline"], tmp_path, program=IMPATIENT) as one:
        yield one


def keys_in(made: World) -> set[str]:
    """The keys of all grants in the ledger."""
    bodies = [json.loads(body) for body in made.stored()]
    return {body["key"] for body in bodies if body["type"] == "grant.reserved.v1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_taken_is_answered(made: World, service: Service, number: int) -> None:
    """Stopped under load, every request that was taken gets its answer, every grant that was
    acknowledged is in the ledger, and the process ends well.
    """
    acknowledged: list[str] = []
    cut: list[str] = []

    def work(name: int) -> None:
        with suppress(OSError), service.connect() as connection:
            for i in range(100_000):
                key = f"k{name}-{i}"
                connection.sendall(service.grant(key))
                said = answer(connection)
                if not said:
                    cut.append(key)
                    return
                assert status(said) == 201, said
                acknowledged.append(key)
                if b"connection: close" in said:
                    return

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    service.process.send_signal(number)
    for thread in threads:
        thread.join(30)
    assert service.process.wait(30) == 0
    assert len(acknowledged) > 50
    assert cut == []
    assert set(acknowledged) <= keys_in(made)


def test_silent_connections_and_few_files(service: Service) -> None:
    """1,020 silent connections where 1,024 files may be open: grants are given."""
    with ExitStack() as stack:
        for _ in range(1_020):
            stack.enter_context(service.connect())
        said = [status(service.asks(service.grant(f"s{i}"))) for i in range(20)]
        assert said == [201] * 20
        assert service.ready() == 200


def test_half_bodies_hold_little(service: Service) -> None:
    """600 bodies of a megabyte, each sent but for its end, with a good key."""
    head = service.grant("half").partition(b"Content-Length")[0]
    head += b"Content-Length: 1000000\r\n\r\n" + b"a" * 900_000
    before = service.rss()
    with ExitStack() as stack:
        for _ in range(600):
            half = stack.enter_context(service.connect())
            half.settimeout(0.5)
            with suppress(OSError):
                half.sendall(head)
        assert service.rss() - before < 160  # what the sockets read ahead included
        assert status(service.asks(service.grant("whole"))) == 201


def test_no_secret_is_logged(service: Service) -> None:
    """The log holds no key, valid or not."""
    mine, other = service.secret, new_secret()
    for data in (
        service.grant(mine),
        service.grant("x").replace(mine.encode(), other.encode()),
        f"GET /v1/{mine} HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
        f"GET /docs?k={mine} HTTP/1.1\r\nHost: x\r\nX-Request-ID: {mine}\r\n\r\n".encode(),
        f"GET /{mine}\nHost".encode() + b"\r\n\r\n",
    ):
        assert 400 <= status(service.asks(data)) < 500
    until(lambda: service.log.read_text().count('"event":"request"') >= 6)
    logged = service.log.read_text()
    assert mine not in logged
    assert other not in logged


@contextmanager
def stopped(held: str, path: Path) -> Iterator[None]:
    """A neighbour that is stopped while it holds the file."""
    with Forked(HOLDING[held], path) as neighbour:
        assert neighbour.stdout.readline() == "held\n"
        neighbour.send_signal(signal.SIGSTOP)
        yield


@pytest.mark.parametrize("held", HOLDING)
def test_a_stopped_neighbour_costs_one_wait(
    made: World, impatient: Service, tmp_path: Path, held: str
) -> None:
    """After one wait for the file everybody is told at once, and when it is free all goes on."""
    with stopped(held, tmp_path / "accountant.db"):
        began = time.monotonic()
        assert status(impatient.asks(impatient.grant("n0"))) == 503
        assert WAIT / 2 < time.monotonic() - began < WAIT + 4
        began = time.monotonic()
        for i in range(20):
            assert status(impatient.asks(impatient.grant(f"n{i}"))) == 503
        assert time.monotonic() - began < 3
        assert impatient.ready() == 503
    assert status(impatient.asks(impatient.grant("n0"))) == 201
    assert impatient.ready() == 200
    assert "n0" in keys_in(made)


@pytest.mark.parametrize("signals", [1, 2])
def test_stopped_beside_a_stopped_neighbour(
    made: World, impatient: Service, tmp_path: Path, signals: int
) -> None:
    """A request that waits for the file is answered before the service ends; or, if a second signal
    comes, not any more. What was not answered did not happen.
    """
    said: list[bytes] = []
    with stopped("the lock beside the file", tmp_path / "accountant.db"):
        waiting = threading.Thread(target=lambda: said.append(impatient.asks(impatient.grant("w"))))
        waiting.start()
        time.sleep(0.5)
        began = time.monotonic()
        for _ in range(signals):
            impatient.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert impatient.process.wait(60) == (0 if signals == 1 else -signal.SIGTERM)
        assert time.monotonic() - began < (30 if signals == 1 else 1)
        waiting.join(30)
    assert [status(one) for one in said] == [503 if signals == 1 else 0]
    assert keys_in(made) == set()


DAMAGE = (
    "UPDATE event SET body = x'00' WHERE ledger = ? AND sequence = 1",
    "UPDATE ledger_head SET peaks = x'00' WHERE ledger = ?",
    "DELETE FROM event WHERE ledger = ? AND sequence = 1",
    "UPDATE ledger_head SET sequence = 1 WHERE ledger = ?",
    "UPDATE ledger_head SET sequence = 'x' WHERE ledger = ?",
    "",  # of the vault instead
)


def test_a_damaged_ledger_stops_no_other(made: World, tmp_path: Path) -> None:
    """The service starts, and grants on the others; those that are damaged are refused."""
    bad = [f"bad-{number}" for number in range(len(DAMAGE))]
    for name in bad:
        for path, body in (
            ("", {"privacy_unit": "p", "neighbouring": "replace_one", "membership": "public"}),
            ("/datasets/d", {"namespace": name, "name": "d"}),
        ):
            url = f"/v1/populations/{name}{path}"
            assert made.http.put(url, json=body, headers=made.auth("admin")).status_code == 200
    with closing(sqlite3.connect(tmp_path / "accountant.db")) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        triggers = raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            raw.execute(f"DROP TRIGGER {name}")
        for name, damage in zip(bad, DAMAGE, strict=True):
            if damage:
                assert raw.execute(damage, (name,)).rowcount > 0
        raw.commit()
    (tmp_path / "vault" / bad[-1]).mkdir(parents=True, mode=0o700)
    (tmp_path / "vault" / bad[-1] / "signed").write_bytes(b"damaged")
    with serving(made.url, made.secrets["pipeline"], tmp_path) as service:
        for name in bad:
            assert status(service.asks(service.grant("a", name))) in (403, 500, 503), name
        assert status(service.asks(service.grant("a"))) == 201
        assert service.ready() == 200
        service.process.terminate()
        assert service.process.wait(30) == 0


def test_a_start_asks_before_it_believes_the_clock(world: Callable[..., World]) -> None:
    """A clock that is a day ahead of all that was written, and of when it was last believed, is in
    doubt until it is accepted; a short pause is none. /readyz says what grants would be told.
    """
    clock = Clock()
    made = world(clock).hospital()
    grant = ask(laplace("0.01"))
    for ahead, believed, doubted in (
        (DAY + 60, None, True),
        (DAY - 60, None, False),
        (40 * DAY, 40 * DAY - 3_600, False),
    ):
        later = world(Clock(clock.now + ahead * 10**6))
        mark = None if believed is None else clock.now + believed * 10**6
        later.service.start(mark, DAY * 10**6)
        size = len(later.stored())
        assert later.http.get("/readyz").status_code == (503 if doubted else 200)
        if doubted:
            assert later.post("/grants", grant).status_code == 503
            assert later.service.expire_due() == 0
            assert len(later.stored()) == size
    assert made.http.get("/readyz").status_code == 200


def test_readiness_sees_a_full_disk(made: World, tmp_path: Path) -> None:
    """Where nothing more can be written the service is not ready (here: by a limit on files)."""
    assert made.http.get("/readyz").status_code == 200
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, before[1]))
        answered = made.http.get("/readyz").status_code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert answered == 503
    assert made.http.get("/readyz").status_code == 200


class Page(HTMLParser):
    """Note every element that a strict Content-Security-Policy would block."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes a tag."""
        if tag in ("script", "img", "iframe", "link", "object", "embed", "base", "form", "video"):
            self.stopped.append(tag)
        for name, value in attrs:
            fetched = name in ("src", "srcset", "data", "action", "xlink:href")
            fetched = fetched or (tag == "use" and not str(value).startswith("#"))
            if fetched or name.startswith("on"):
                self.stopped.append(f"{tag} {name}")


def test_the_report_renders_under_its_policy(made: World) -> None:
    """It may run nothing and fetch nothing, and it does not: its style stands within."""
    made.post("/grants", ask(laplace("0.01")))
    answered = made.get("/report")
    assert "default-src 'none'" in answered.headers["Content-Security-Policy"]
    assert "style-src 'unsafe-inline'" in answered.headers["Content-Security-Policy"]
    assert answered.headers["X-Content-Type-Options"] == "nosniff"
    assert answered.headers["Cache-Control"] == "no-store"
    page = Page()
    page.feed(answered.text)
    assert page.stopped == []
    assert "@import" not in answered.text
    assert "url(http" not in answered.text
