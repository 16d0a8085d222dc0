"""The evidence bundle over HTTP: the same as beside the database, and a burden to nobody."""

from __future__ import annotations

import gc
import io
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import World, ask, laplace, make

from accountant import verify_minimal
from accountant.auditing.verify import verify
from accountant.budget.commands import Envelope
from accountant.publishing import evidence
from accountant.publishing.export import covering, write_bundle

SLOW = 0.02


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with some hundred events, and texts."""
    made = world().hospital()
    assert made.post("/invocations", ask(laplace("0.1"), purpose="Prüfung ☂")).is_success
    grow(made, 600)
    return made


def grow(made: World, many: int) -> None:
    """Many more events."""
    command = make("record_invocations", dataset="d", mechanisms=[laplace("0.001")])
    for first in range(0, many, 200):
        names = [f"{made.head().size}-{i}" for i in range(min(200, many - first))]
        made.service.execute_all("fair", [Envelope("pipeline", command, name) for name in names])


def code(answer: Any) -> str:
    """The problem's code."""
    return str(answer.json()["type"]).rpartition(":")[2]


def test_it_is_the_bundle_that_export_writes(made: World) -> None:
    """Byte for byte; both verifiers agree with it, and it is named by its checkpoint."""
    answer = made.get("/evidence", who="auditor")
    signed, state = made.publisher.signed_state("fair")
    expected = io.BytesIO()
    source = made.service.ledgers, "fair", signed, state, covering(0, None, signed.size)
    write_bundle(expected, *source)
    assert answer.content == expected.getvalue()
    assert answer.headers["content-type"] == "application/x-tar"
    assert answer.headers["cache-control"] == "no-store"
    assert f'filename="fair-{signed.size}.tar"' in answer.headers["content-disposition"]
    assert verify([io.BytesIO(answer.content)]).findings == []
    assert verify_minimal.verify(io.BytesIO(answer.content))["findings"] == []


def test_a_part_and_without_texts(made: World) -> None:
    """``from`` and ``to`` name events, ``texts=no`` leaves the free texts out."""
    whole = made.get("/evidence").content
    part = made.get("/evidence?from=300&to=310").content
    assert b"tile/entries/001" in part
    assert b"tile/entries/000" not in part
    assert "Prüfung ☂".encode() in whole
    assert b"Pr\xc3\xbcfung" not in made.get("/evidence?texts=no").content
    for query in ("from=9999", "from=3&to=2", "to=9999"):
        answer = made.get(f"/evidence?{query}")
        assert (answer.status_code, code(answer)) == (422, "no-such-events")
    for query in ("from=-1", "to=x", "texts=perhaps", "fromm=1"):
        assert made.get(f"/evidence?{query}").status_code == 422


def test_a_ledger_that_grows_meanwhile_is_exported_as_it_was_signed(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Totals and entries are of one moment, though grants go on; none of them waits for it."""
    monkeypatch.setattr(evidence, "_BREATH", SLOW)
    ended = threading.Event()
    slowest = 0.0

    def spend() -> None:
        nonlocal slowest
        while not ended.is_set():
            began = time.monotonic()
            assert made.post("/invocations", ask(laplace("0.001"))).is_success
            slowest = max(slowest, time.monotonic() - began)

    thread = threading.Thread(target=spend)
    thread.start()
    try:
        for _ in range(4):
            answer = made.get("/evidence", who="officer")
            assert verify([io.BytesIO(answer.content)]).findings == []
    finally:
        ended.set()
        thread.join()
    assert slowest < 2


def begun(made: World, count: int) -> list[socket.socket]:
    """So many clients that have asked for the evidence."""
    found, key = [], f"Authorization: Bearer {made.secrets['auditor']}"
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", made.http.port), timeout=30)
        path = b"/v1/populations/fair/evidence"
        key = made.secrets["auditor"].encode()
        client.sendall(
            b"GET %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % (path, key)
        )
        found.append(client)
    return found


def test_many_at_once_keep_no_other_call_waiting(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are written at a time; those that wait take no thread from accounts and events."""
    monkeypatch.setattr(evidence, "_BREATH", 0.2)
    clients = begun(made, 50)
    began = time.monotonic()
    for _ in range(20):
        assert made.get("/accounts").is_success
    assert time.monotonic() - began < 5
    monkeypatch.setattr(evidence, "_BREATH", 0.0)
    for client in clients:
        assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")
        client.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the service writes its bundles."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def handles(folder: Path) -> int:
    """How many files of this folder this process has open."""
    gc.collect()
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
        except OSError:
            continue
    return count


def until(true: Callable[[], bool]) -> None:
    """Wait."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_client_that_goes_leaves_no_file(
    made: World, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gone while its bundle is written, while it is sent or while it waits for its turn: nothing
    stays in the folder, no file stays open, and the writing stops.
    """
    grow(made, 3_000)
    monkeypatch.setattr(evidence, "_BREATH", 1.0)  # some 14 seconds a bundle, 42 for all
    waiting = begun(made, 6)
    until(lambda: handles(folder) == 2)
    assert list(folder.iterdir()) == []  # the files have no names
    began = time.monotonic()
    for client in waiting:
        client.close()
    until(lambda: handles(folder) == 0)
    assert time.monotonic() - began < 13
    monkeypatch.setattr(evidence, "_BREATH", 0.0)
    [sent] = begun(made, 1)
    assert sent.recv(100).startswith(b"HTTP/1.1 200 ")
    sent.close()
    until(lambda: handles(folder) == 0)
    assert list(folder.iterdir()) == []
    assert made.get("/evidence").is_success


def test_a_full_disk_is_said(made: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that does not fit is an answer at once, not half a file; grants go on."""
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: open("/dev/full", "w+b"))  # noqa: SIM115
    answer = made.get("/evidence")
    assert (answer.status_code, code(answer)) == (507, "evidence-not-written")
    assert "No space left on device" in answer.json()["detail"]
    assert made.post("/grants", ask(laplace("0.001"))).is_success
