"""The power goes at any moment, and with it whatever was written and not synchronised.

What a service writes is recorded while clients are at work, and done again on a disk that forgets.
Nothing that anybody was told before that moment may be missing afterwards.
"""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import os
import random
import shutil
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
from harness.checker import check, stored, verified
from harness.deployment import POPULATION, Deployment, copied, on_sqlite
from harness.disk import FOLDER, Disk
from harness.effort import SEED, effort
from harness.pipelines import Pipeline, Request, at_work
from harness.programs import Launcher
from harness.recording import Recording, Told, record
from harness.tracing import cut_off, read

from accountant.auth.keys import LEDGER as KEYS
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

LOSSES = effort(8, 160)
"""Moments at which the power goes; at each, three times with different luck."""
STARTED = effort(1, 12)
"""After how many of these the service is started and worked with."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is there from the beginning, for what is recorded to lie in."""
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """Where what is left lies: in memory, if it can, for it is written and read many times."""
    memory = Path("/dev/shm")  # noqa: S108 (a folder of its own in it)
    folder = Path(mkdtemp(dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield folder / "left"
    shutil.rmtree(folder)


@pytest.mark.usefixtures("strace")
def test_nothing_that_was_told_is_lost(root: Path, left: Path, launcher: Launcher) -> None:
    """Whatever a disk forgets that was not synchronised, every acknowledged event, key and signed
    head is there, the next head can be signed, and the service goes on.
    """
    new = on_sqlite(root / "home", launcher)
    new.output = root.with_name("output")
    recording = record(new, root, launcher, effort(0.6, 8.0))
    started = 0
    for number, (after, told) in enumerate(losses(recording, left, LOSSES)):
        survived(recording, after, told)
        if told.events and number > (started + 1) * 3 * LOSSES // (STARTED + 2):
            goes_on(recording, after, told)
            started += 1
    assert started >= STARTED


def test_a_call_that_was_cut_off_is_known_for_one(tmp_path: Path) -> None:
    """Of a call that a kill cut off the record tells the files, and not that it took place; of one
    that came back later it tells all.
    """
    hexed = {
        name: "".join(f"\\x{ord(c):02x}" for c in name)
        for name in ("/new", "/old", "/wal", "/gone")
    }
    (tmp_path / "record").write_text(
        f'7 rename("{hexed["/new"]}", "{hexed["/old"]}" <unfinished ...>\n'
        f"8 fsync(3<{hexed['/wal']}> <unfinished ...>\n"
        "8 <... fsync resumed>) = 0\n"
        f"9 fsync(3<{hexed['/wal']}> <unfinished ...>\n"
        "7 <... rename resumed>) = ?\n"
        "7 +++ killed by SIGKILL +++\n"
        f'8 unlink("{hexed["/gone"]}") = ?\n'
        "8 +++ killed by SIGKILL +++\n"
    )
    assert cut_off(tmp_path / "record") == {"/new", "/old", "/gone"}
    calls = [(call.name, call.ended) for call in read(tmp_path / "record")]
    assert calls == [("fsync", False), ("fsync", True)]


@pytest.mark.usefixtures("strace")
def test_weaker_commits_are_caught(
    root: Path, left: Path, template: Deployment, launcher: Launcher
) -> None:
    """If the database did not synchronise each commit, the same comparison would say so."""
    made = copied(template, on_sqlite(root / "home", launcher))
    made.output = root.with_name("output")
    recording = record(made, root, launcher, 0.3, CRASH_SYNCHRONOUS="NORMAL")
    found = losses(recording, left, 20)
    with pytest.raises(AssertionError, match="lost: event"):
        deque(survived(recording, after, told) for after, told in found)


def losses(recording: Recording, left: Path, number: int) -> Iterator[tuple[Deployment, Told]]:
    """Loses the power at so many moments, thrice each, and yields what is left below ``left``, and
    what had been told by then. The moments are those at which something is told or synchronised.
    """
    dice, disk = random.Random(SEED), recording.disk
    telling = dict(recording.told())
    synced = [i for i, call in enumerate(recording.calls) if call.name in ("fsync", "fdatasync")]
    moments = dice.sample([*telling, *synced], min(number, len(telling) + len(synced)))
    told = Told(set(), 0, 0, 0)
    for place, call in enumerate(recording.calls):
        told = telling.get(place, told)
        if place in moments:
            for luck in (None, random.Random(dice.random()), random.Random(dice.random())):
                shutil.rmtree(left, ignore_errors=True)
                left.mkdir()
                disk.power_loss(left, luck)
                url = f"sqlite:///{left}/home/accountant.db"
                yield replace(recording.deployment, home=left / "home", database_url=url), told
        disk.do(call)
    whole(disk, recording.cut_off)


def whole(disk: Disk, cut_off: set[str]) -> None:
    """The record was complete: done again without a loss it gives what really lies there, but for
    files whose last call was cut off.
    """
    for path, file in disk.names.items():
        if file is not FOLDER and path not in cut_off:
            file.synced(len(file.pending))
            assert Path(path).read_bytes() == bytes(file.durable), path


def survived(recording: Recording, after: Deployment, told: Told) -> None:
    """All that was told is there, and nothing that never was; the log goes on from what was
    signed, with the key that the ledger names.
    """
    try:
        bodies, keys = (stored(after.database_url, name)[0] for name in (POPULATION, KEYS))
    except (OSError, StoreError) as error:
        if told.keys:
            raise AssertionError(f"lost: the database, {told.keys} keys in it") from error
        return
    assert len(bodies) >= told.events, f"lost: event {told.events - 1}, there are {len(bodies)}"
    assert len(keys) >= told.keys, "lost: a key"
    assert bodies == recording.events[: len(bodies)]
    assert keys == recording.keys[: len(keys)]
    if bodies:
        signed_on(after, bodies, told)


def signed_on(after: Deployment, bodies: list[bytes], told: Told) -> None:
    """Every head that is kept is one of this history, and another one can be signed."""
    ledgers, vault = open_ledgers(after.database_url), Vault(after.home)
    try:
        heads = [Checkpoint.from_text(notes.parse(s.note).text) for s in ledgers.signed(POPULATION)]
        assert max((head.size for head in heads), default=0) >= told.published, "lost: a head"
        for head in (*heads, *vault.known(POPULATION)):
            assert head.size <= len(bodies), "lost: events that were signed"
            assert Tree().grown(map(leaf_hash, bodies[: head.size]))[0].root == head.root
        Publisher(Service(ledgers, vault=vault), vault, "localhost").sign(POPULATION)
    finally:
        ledgers.close()


def goes_on(recording: Recording, after: Deployment, told: Told) -> None:
    """The clients get the same answers again, go on with their work, and nothing is wrong."""
    clients = [
        replace(client, requests=list(sent(client, told)), grants=[])
        for client in recording.clients
    ]
    with after.serving() as service:
        for client in clients:
            client.connect(service.port)
            client.settle()
            client.repeat(len(client.requests))
        with at_work(clients, [service.port]):
            pass
    check(after, clients)
    verified(after, after.home.parent)


def sent(client: Pipeline, told: Told) -> Iterator[Request]:
    """The requests of a client that were answered by then, and the one that was under way."""
    for request in client.requests:
        if f"{client.who}:{request.key}" not in told.requests:
            yield replace(request, status=None, answer=b"")
            return
        yield replace(request)
