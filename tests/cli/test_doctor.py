"""``accountant doctor`` names each real fault, and changes nothing."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from forked import SERVICE, Ran, ran
from places import Hosted
from support import Clock, World, ask, laplace

from accountant.cli.checkups.finding import Finding
from accountant.cli.doctor import examine
from accountant.config.settings import Settings
from accountant.privacy import engine
from accountant.runtime.clock import ticks, wall_clock
from accountant.store.ledgers import sqlite_path
from accountant.store.snapshots import Snapshots


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with a ledger that is signed and published."""
    found = world().hospital()
    found.publisher.publish("fair")
    return found


def chosen(made: World, **more: Any) -> Settings:
    """The settings of a service, at a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    more = {"origin": "example.org/ledger", "port": port, "database_url": made.url} | more
    return replace(made.settings, **more)


def faults(settings: Settings, *clocks: Callable[[], int]) -> dict[str, Finding]:
    """What is not fine, by the name of the check; each says what to do."""
    found = {one.check: one for one in examine(settings, *clocks) if one.status != "fine"}
    assert all(one.do for one in found.values())
    return found


def test_nothing_is_wrong_with_a_sound_service(made: World) -> None:
    """Every part is named once it was looked at, and nothing is asked of anybody."""
    found = list(examine(chosen(made)))
    assert [one for one in found if one.status != "fine"] == []
    assert {one.check for one in found} == {
        "settings", "disk", "fsync", "vault", "clock", "service", "database", "schema", "rights",
        "keys", "ledger fair",
    }  # fmt: skip


def test_nothing_is_changed(made: World) -> None:
    """Ledgers, vault, snapshots and the database's bytes are as before, while the service runs."""

    def bytes_() -> dict[Path, bytes]:
        found = made.settings.home.rglob("*")
        return {p: p.read_bytes() for p in found if p.is_file() and not p.name.endswith("-shm")}

    before = bytes_()
    list(examine(chosen(made)))
    assert bytes_() == before
    assert made.post("/grants", ask(laplace("0.1"))).status_code == 201


@pytest.mark.parametrize(
    ("more", "text", "status"),
    [
        ({"public_url": "accounts.example.org"}, "ACCOUNTANT_PUBLIC_URL", "wrong"),
        ({"alerts": "/none/alerts.yaml"}, "ACCOUNTANT_ALERTS", "wrong"),
        ({"callback_hosts": "http://"}, "ACCOUNTANT_CALLBACK_HOSTS", "wrong"),
        ({"callback_hosts": "example.org"}, "ACCOUNTANT_CALLBACK_SECRET", "wrong"),
        ({"origin": "localhost"}, "ACCOUNTANT_ORIGIN", "look"),
        ({"host": "0.0.0.0"}, "binds 0.0.0.0", "look"),  # noqa: S104
        ({"owner_url": "postgresql://o@h/d"}, "ACCOUNTANT_OWNER_URL", "look"),
        ({"max_connections": 10**6}, "1000000 connections", "look"),
    ],
)
def test_doubtful_settings_are_named(
    made: World, more: dict[str, Any], text: str, status: str
) -> None:
    """What cannot be, and what is seldom meant, by its variable."""
    found = [one for one in examine(chosen(made, **more)) if one.check == "settings"]
    assert [one.status for one in found] == [status]
    assert text in found[0].text


def test_a_home_that_is_not_there(made: World, tmp_path: Path) -> None:
    """The folder is named."""
    found = faults(chosen(made, home=tmp_path / "nowhere"))
    assert (found["folders"].status, "nowhere" in found["folders"].text) == ("wrong", True)


def test_a_disk_that_is_full(made: World, tmp_path: Path) -> None:
    """No room, and a write that does not reach the disk, are found before a grant fails."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk may not be mounted here")
    try:
        (small / "rest").write_bytes(bytes(64 << 10))
        found = faults(chosen(made, home=small))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert (found["disk"].status, found["fsync"].status) == ("wrong", "wrong")
    assert "0 MiB" in found["disk"].text


def test_secrets_that_others_may_read(made: World) -> None:
    """A key that is open to others is named with its mode."""
    [key] = (made.settings.home / "vault" / "fair").glob("*.key")
    key.chmod(0o644)
    found = faults(chosen(made))
    assert f"chmod 600 {key}" in found["vault"].do
    assert found["ledger fair"].status == "wrong"


def test_a_database_that_is_not_there(made: World, tmp_path: Path) -> None:
    """Neither is one made, nor is it looked into."""
    there = tmp_path / "none.db"
    found = faults(chosen(made, database_url=f"sqlite:///{there}"))
    assert (found["database"].status, there.exists()) == ("wrong", False)
    there.write_bytes(b"no database at all, but some text" * 99)
    found = faults(chosen(made, database_url=f"sqlite:///{there}"))
    assert found["database"].status == "wrong"


@pytest.mark.parametrize(
    ("version", "text"), [("0007", "needs"), ("9999", "does not know"), (None, "no tables")]
)
def test_a_schema_of_another_version(
    made: World, tmp_path: Path, version: str | None, text: str
) -> None:
    """An older one is to be migrated, a newer one needs a newer program."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        if version is not None:
            with closing(sqlite3.connect(sqlite_path(made.url))) as ours:
                ours.backup(database)
            known = database.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            older = {"0007": f"{int(known) - 1:04}"}.get(version, version)
            database.execute("UPDATE alembic_version SET version_num = ?", (older,))
            database.commit()
    found = faults(chosen(made, database_url=f"sqlite:///{other}"))
    assert (found["schema"].status, text in found["schema"].text) == ("wrong", True)


def test_a_database_that_went_back(made: World, tmp_path: Path) -> None:
    """A database that does not continue what the vault has signed is found by reading it."""
    older = tmp_path / "older.db"
    with (
        closing(sqlite3.connect(sqlite_path(made.url))) as now,
        closing(sqlite3.connect(older)) as copy,
    ):
        now.backup(copy)
    made.post("/grants", ask(laplace("0.1")))
    made.publisher.publish("fair")
    found = faults(chosen(made, database_url=f"sqlite:///{older}"))
    assert "does not continue" in found["ledger fair"].text


def test_a_vault_that_is_lost(made: World, tmp_path: Path) -> None:
    """A home without the vault, beside a database that was signed, is found; so is a lost key."""
    empty = tmp_path / "empty"
    empty.mkdir()
    found = faults(chosen(made, home=empty))
    assert "put the vault back" in found["ledger fair"].text
    [key] = (made.settings.home / "vault" / "fair").glob("*.key")
    key.unlink()
    assert "is not there" in faults(chosen(made))["ledger fair"].text


def test_people_who_are_missing(world: Callable[..., World]) -> None:
    """Without an admin nobody can begin, and one alone cannot change anything that loosens."""
    made = world()
    made.service.credentials.revoke("officer", "test")
    assert faults(chosen(made))["keys"].status == "look"
    made.service.credentials.revoke("admin", "test")
    assert faults(chosen(made))["keys"].status == "wrong"


def test_a_key_that_ends(made: World) -> None:
    """A key that ends within two weeks is named, so that no pipeline stops unawares."""
    made.service.credentials.create("late", "pipeline", "test", days=60)
    assert "keys" not in faults(chosen(made))
    made.service.credentials.create("soon", "pipeline", "test", days=7)
    one = faults(chosen(made))["keys"]
    assert (one.status, "soon" in one.text, "renew" in one.do) == ("look", True, True)


@pytest.mark.parametrize(
    ("seconds", "status", "text"),
    [(-3_600, "wrong", "before its last event"), (30 * 86_400, "look", "will doubt it")],
)
def test_a_clock_that_is_wrong(made: World, seconds: float, status: str, text: str) -> None:
    """What a start would say of the clock is said before."""
    found = faults(chosen(made), lambda: wall_clock() + int(seconds * 1e6), ticks)
    one = found["ledger fair"]
    assert (one.status, text in one.text + one.do) == (status, True)


def test_a_clock_that_somebody_sets(made: World) -> None:
    """A clock that jumps while it is looked at is found, beside one that cannot be set."""
    shown = iter([wall_clock(), *[wall_clock() + 5_000_000] * 99])
    found = faults(chosen(made), lambda: next(shown), ticks)["clock"]
    assert re.search(r"moved by \+[45]\.\d s", found.text)


def test_a_service_that_is_not_ready(world: Callable[..., World]) -> None:
    """The service that runs says itself what keeps it from granting."""
    clock = Clock(wall_clock())
    made = world(clock).hospital()
    settings = chosen(made, port=made.http.port)
    assert "service" not in faults(settings)
    clock.jump(3_600)
    found = faults(settings)
    assert "not ready" in found["service"].text
    assert "clock shows" in found["service"].text


def test_events_that_nobody_publishes(made: World) -> None:
    """Events that have waited for ten intervals, with the age of the last head."""
    made.post("/grants", ask(laplace("0.1")))
    assert faults(chosen(made)) == {}
    for kind in ("signed", "published"):
        os.utime(made.settings.home / "vault" / "fair" / kind, (0, 0))
    one = faults(chosen(made))["ledger fair"]
    assert one.status == "look"
    assert "1 event is not published" in one.text


def test_a_damaged_snapshot(made: World) -> None:
    """It costs time only; the reason is said."""
    assert Snapshots(made.settings.home).keep("fair", made.head(), [b"state"])
    [snapshot] = made.settings.home.glob("snapshots/*")
    data = bytearray(snapshot.read_bytes())
    data[-40] ^= 1
    snapshot.write_bytes(data)
    one = faults(chosen(made))["ledger fair"]
    assert (one.status, "its snapshot is of no use" in one.text) == ("look", True)


def witness_key() -> str:
    """The key of a witness that nobody runs (C2SP signed-note, type 4)."""
    public = b"\x04" + Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    number = sha256(b"w.example\n" + public).digest()[:4].hex()
    return f"w.example+{number}+{base64.b64encode(public).decode()}"


def test_a_witness_that_does_not_answer(made: World) -> None:
    """It is asked, and named with its address; one that answers anything is there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    policy = "policy: p\nrules:\n  - {id: a, limit: {epsilon: 1}}\npublication:\n  required: 0\n"
    policy += "  witnesses:\n    - {url: '%s', key: '" + witness_key() + "'}\n"
    assert made.policy(policy % nobody).status_code == 200
    one = faults(chosen(made))["ledger fair"]
    assert (one.status, "w.example" in one.text, nobody in one.text) == ("look", True, True)
    assert made.policy(policy % made.http.base_url).status_code == 200
    assert "ledger fair" not in faults(chosen(made))


def test_a_public_address_that_leads_elsewhere(made: World) -> None:
    """The console's address is asked: this service is there, nobody is, or something else."""
    at = f"http://127.0.0.1:{made.http.port}"
    assert faults(chosen(made, public_url=at)) == {}
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "cannot be reached" in faults(chosen(made, public_url=nobody))["public address"].text
    no_tls = faults(chosen(made, public_url=at.replace("http:", "https:")))["public address"]
    assert "SSL" in no_tls.text or "TLS" in no_tls.text or "WRONG" in no_tls.text


class _Health(BaseHTTPRequestHandler):
    """What a proxy hands on of the service, and what an identity provider of another name says."""

    def do_GET(self) -> None:
        """Answers as /healthz."""
        body = b'{"status":"ok","issuer":"https://localhost"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def proxy(folder: Path, days: int) -> Iterator[int]:
    """A server with TLS, whose certificate ends in some days; its port."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days, hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.pem").write_bytes(secret + made.public_bytes(Encoding.PEM))
    (folder / "trusted.pem").write_bytes(made.public_bytes(Encoding.PEM))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Health)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(("days", "status"), [(3, "look"), (60, "fine")])
def test_a_certificate_that_ends_soon(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, status: str
) -> None:
    """How many days the certificate at the public address is valid is said before it ends."""
    with proxy(tmp_path, days) as port:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
        found = examine(chosen(made, public_url=f"https://localhost:{port}"))
        [one] = [one for one in found if one.check == "certificate"]
    assert (one.status, f"for {days} days" in one.text) == (status, True)


def test_an_identity_provider(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is away, and one that calls itself otherwise, are found before people sign in."""
    with proxy(tmp_path, 60) as port:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
        at = f"https://localhost:{port}"
        assert "not 'https" in faults(chosen(made, oidc_issuer=at))["identity provider"].text
    found = faults(chosen(made, oidc_issuer=at))
    assert "cannot be reached" in found["identity provider"].text
    assert "ACCOUNTANT_OIDC" in found["settings"].text


def test_a_program_that_is_too_old(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger whose bounds are newer than the program's needs a newer program."""
    monkeypatch.setattr(engine, "CURRENT", 0)
    one = faults(chosen(made))["ledger fair"]
    assert (one.status, "bounds are version 1" in one.text) == ("wrong", True)


def test_a_role_that_could_rewrite(made: World, hosted: Hosted) -> None:
    """A service that reaches PostgreSQL as the owner of the tables is told what to set."""
    one = faults(chosen(made, database_url=hosted.owner_url))["rights"]
    assert (one.status, "could rewrite" in one.text) == ("look", True)
    found = {one.check: one.status for one in examine(chosen(made, database_url=hosted.url))}
    assert (found["database"], found["schema"], found["rights"]) == ("fine", "fine", "fine")


def test_a_schema_that_the_role_may_not_ask_for(made: World, hosted: Hosted) -> None:
    """Where the service's role cannot read the schema's version, as 0.2.0 left it on PostgreSQL,
    what the tables lack is named.
    """
    hosted.run("REVOKE ALL ON alembic_version FROM app", role="owner")
    assert faults(chosen(made, database_url=hosted.url)).keys() == {"keys"}
    hosted.run("DROP TABLE session", "ALTER TABLE alert DROP COLUMN due", role="owner")
    one = faults(chosen(made, database_url=hosted.url))["schema"]
    assert (one.status, one.text) == ("wrong", "it lacks alert.due, session")
    assert "accountant migrate" in one.do


@pytest.fixture
def shell(made: World) -> Callable[..., Ran]:
    """``accountant doctor`` as a process of its own."""

    def run(*words: str, **more: str) -> Ran:
        env = {k: v for k, v in os.environ.items() if not k.startswith("ACCOUNTANT_")}
        settings = chosen(made)
        env |= {
            "ACCOUNTANT_HOME": str(settings.home),
            "ACCOUNTANT_DATABASE_URL": settings.database_url,
            "ACCOUNTANT_ORIGIN": settings.origin,
            "ACCOUNTANT_PORT": str(settings.port),
        } | more
        return ran(SERVICE, "doctor", *words, environment=env)

    return run


def test_the_command(made: World, shell: Callable[..., Ran]) -> None:
    """Exit code 0 if nothing is wrong, else 1; with --json a document. Into a pipe each finding is
    one line, however long.
    """
    done = shell()
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert max(map(len, lines)) > 80
    assert all(re.match(r"(fine|look|wrong) +\w.*: |       |\d+ checks: ", one) for one in lines)
    assert lines[-1].endswith(" 0 wrong, 0 to look at")
    shutil.rmtree(made.settings.home / "vault" / "fair")
    done = shell("--json", ACCOUNTANT_ORIGIN="localhost")
    found = json.loads(done.out)
    assert (done.code, found["wrong"]) == (1, 1)
    assert {one["check"] for one in found["findings"] if one["status"] == "wrong"} == {
        "ledger fair"
    }
    assert {one["check"] for one in found["findings"] if one["status"] == "look"} == {"settings"}
