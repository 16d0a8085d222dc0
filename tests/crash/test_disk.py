"""A disk that is full, read-only, or fails: refused cleanly, nothing lost, nothing to repair."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.checker import check, verified
from harness.deployment import Deployment, Running, copied, on_sqlite
from harness.effort import HEAVY, SEED, effort
from harness.faults import failing, full, mountable, read_only, small_disk
from harness.pipelines import DATASETS, POLICY, Pipeline, at_work, pipelines, settled
from harness.programs import Launcher
from harness.steward import Steward

OFTEN = {"ACCOUNTANT_CHECKPOINT_SECONDS": "0.15"}
TIMES = effort(1, 8)
"""How often the disk fails in one life of a service."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    if not mountable(tmp_path / "try"):
        pytest.skip("this user may not mount a file system in memory")
    with small_disk(tmp_path / "disk", "16m") as folder:
        yield folder


@pytest.fixture
def on_disk(disk: Path, template: Deployment, launcher: Launcher) -> Deployment:
    """A deployment on it."""
    made = copied(template, on_sqlite(disk / "home", launcher))
    made.output = disk.with_name("output")
    return made


def refused(clients: list[Pipeline], seconds: float) -> None:
    """Lets the clients work until each was told that it cannot be done."""
    before = [client.failures for client in clients]
    deadline = time.monotonic() + 60
    time.sleep(seconds)
    while any(c.failures == was for c, was in zip(clients, before, strict=True)):
        assert time.monotonic() < deadline, "nobody was refused"
        time.sleep(0.05)


def readers_go_on(deployment: Deployment, service: Running) -> None:
    """What only reads is answered."""
    for path in ("/accounts", "/events?limit=5", "/log/checkpoint"):
        status, _ = deployment.call(service.port, "GET", path)
        assert status == 200, path


def published_all(deployment: Deployment, service: Running) -> None:
    """The head is signed and published within a few seconds, up to the last event."""
    deadline = time.monotonic() + 60
    while True:
        status, note = deployment.call(service.port, "GET", "/log/checkpoint")
        _, listed = deployment.call(service.port, "GET", "/events?after=9007199254740992")
        if status == 200 and int(note.split(b"\n")[1]) == listed["last"] + 1:
            return
        assert time.monotonic() < deadline, "the head is not published"
        time.sleep(0.1)


def begin(deployment: Deployment, service: Running) -> list[Pipeline]:
    """Clients who have worked for a moment, and a first published checkpoint."""
    deployment.register(service.port, POLICY, *DATASETS)
    clients = pipelines(deployment, 3, random.Random(SEED))
    with at_work(clients, [service.port]):
        time.sleep(0.3)
    published_all(deployment, service)
    return clients


def test_a_full_disk(on_disk: Deployment, disk: Path, tmp_path: Path) -> None:
    """While the disk is full, writing is refused with a 503 that says when to try again, the
    service is not ready, and reading goes on. With space it all goes on, without a restart; heads
    are signed again too, and ancestors that were registered meanwhile are charged to the unit.
    """
    dice = random.Random(SEED)
    with on_disk.serving(**OFTEN) as service:
        clients, steward = begin(on_disk, service), Steward(on_disk)
        for _ in range(TIMES):
            with at_work(clients, [service.port], patient=True), steward.at_work(service.port):
                with full(disk, leave=dice.randrange(0, 40_000)):
                    refused(clients, 0.3)
                    readers_go_on(on_disk, service)
                    assert service.ready() == 503
                assert service.ready() == 200
                time.sleep(0.2)
            settled(clients, service.port)
            steward.settle(service.port)
        published_all(on_disk, service)
        steward.compare(check(on_disk, clients))
    if HEAVY:
        verified(on_disk, tmp_path)


def test_killed_on_a_full_disk(on_disk: Deployment, disk: Path, tmp_path: Path) -> None:
    """A service that is killed while the disk is full loses nothing, and starts again when there is
    space.
    """
    with on_disk.serving(**OFTEN) as service:
        clients = begin(on_disk, service)
    for _ in range(effort(1, 10)):
        with on_disk.serving(**OFTEN) as service:
            settled(clients, service.port)
            with at_work(clients, [service.port], patient=True), full(disk):
                refused(clients, 0.2)
                service.kill()
    with on_disk.serving() as service:
        settled(clients, service.port)
    check(on_disk, clients)
    if HEAVY:
        verified(on_disk, tmp_path)


def test_a_disk_that_is_read_only_at_the_start(on_disk: Deployment, disk: Path) -> None:
    """A service does not start on files that it could not write to; it says so in one line."""
    with read_only(disk):
        code, printed = on_disk.run("serve", "--port", "0")
    assert code == 2
    assert "read-only" in printed.lower() or "cannot be written" in printed
    assert "Traceback" not in printed


def test_a_vault_on_a_full_disk(
    deployment: Deployment, disk: Path, tmp_path: Path, launcher: Launcher
) -> None:
    """A head that could not be kept outside the database is shown to nobody: another one could be
    signed in its place if the database were put back. Spending goes on, and so does signing when
    there is space.
    """
    (disk / "vault").mkdir(mode=0o700)
    (deployment.home / "vault").symlink_to(disk / "vault")
    with deployment.serving(**OFTEN) as service:
        clients = begin(deployment, service)
        with full(disk):
            with at_work(clients, [service.port]):
                time.sleep(0.5)
            kept = (disk / "vault" / "fair" / "signed").read_bytes()
            _, shown = deployment.call(service.port, "GET", "/log/checkpoint")
            assert shown.startswith(kept)
            status, answer = deployment.call(service.port, "GET", f"/receipts/{last(clients)}")
            assert status == 503, answer
        assert sum(client.failures for client in clients) == 0
        published_all(deployment, service)
    check(deployment, clients)
    if HEAVY:
        verified(deployment, tmp_path)


def test_a_first_key_on_a_full_disk(deployment: Deployment, disk: Path) -> None:
    """A key that could not be written whole leaves nothing behind; with space one is made."""
    vault = disk / "vault"
    vault.mkdir(mode=0o700)
    (deployment.home / "vault").symlink_to(vault)
    with deployment.serving(**OFTEN) as service:
        with full(disk):
            deployment.register(service.port, POLICY, *DATASETS)
            time.sleep(0.6)
        published_all(deployment, service)
    assert len(list(vault.glob("*/*.key"))) == 1


def last(clients: list[Pipeline]) -> int:
    """The newest event that a client was told of."""
    return max(json.loads(r.answer).get("sequence", 0) for c in clients for r in c.requests)


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize(
    ("calls", "error"),
    effort(
        [("fsync,fdatasync", "EIO"), ("pwrite64", "EIO")],
        [
            ("fsync,fdatasync", "EIO"),
            ("pwrite64", "EIO"),
            ("pwrite64,openat", "EROFS"),
            ("pwrite64", "ENOSPC"),
            ("ftruncate,rename,unlink", "EIO"),
            ("pread64", "EIO"),
        ],
    ),
)
def test_a_disk_that_fails(on_file: Deployment, tmp_path: Path, calls: str, error: str) -> None:
    """While the system returns errors, nothing wrong is answered; afterwards the service goes on,
    or does so when started again, without a repair.
    """
    with on_file.serving(**OFTEN) as service:
        clients = begin(on_file, service)
        for _ in range(effort(1, 5)):
            with (
                at_work(clients, [service.port], patient=True),
                failing(service.process, calls, error),
            ):
                if "pwrite64" in calls or "fsync" in calls:
                    refused(clients, 0.2)
                else:  # what is not needed for a commit may fail unnoticed
                    time.sleep(0.5)
            settled(clients, service.port)
        with at_work(clients, [service.port], patient=True), failing(service.process, calls, error):
            time.sleep(0.3)
            service.kill()
    with on_file.serving(**OFTEN) as service:
        settled(clients, service.port)
        published_all(on_file, service)
    check(on_file, clients)
    if HEAVY:
        verified(on_file, tmp_path)
