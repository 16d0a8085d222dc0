"""Heads are signed in one order, whoever signs, and whenever somebody is killed."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable

import pytest
from forked import Forked, ran
from house import House, numbered, resident
from support import Clock

from accountant.budget.errors import Problem
from accountant.ledger.events import Event
from accountant.store.ledgers import StoreError


def test_threads_sign_at_once(house: Callable[..., House]) -> None:
    """Two services with four threads each sign a growing ledger: one row of checkpoints, no size
    twice, and the head that is kept outside is the last one.
    """
    made = resident(house())
    other = made.again()
    failures: list[BaseException] = []

    def work(mine: House) -> None:
        try:
            for _ in range(8):
                mine.grant()
                mine.sign()
        except BaseException as error:  # noqa: BLE001 for the test to see
            failures.append(error)

    threads = [threading.Thread(target=work, args=[h]) for h in (made, other) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    numbered(made)
    other.close()


SIGNER = """
import sys
from pathlib import Path
from house import House
house = House(Path(sys.argv[1]))
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    house.grant()
    house.sign()
"""


def test_processes_sign_at_once(house: Callable[..., House]) -> None:
    """Three processes on one home that never signed before: one first key, one row of checkpoints;
    every key that was adopted in the race is vouched for.
    """
    made = resident(house())
    workers = [Forked(SIGNER, made.home, 10) for _ in range(3)]
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        _, errors = worker.communicate()
        assert worker.wait() == 0, errors
    numbered(made)


KILLED = """
import os, signal, sys
from pathlib import Path
from house import House
from accountant.store import vault
house = House(Path(sys.argv[1]))
keep = vault.Vault.keep
def dying(self, ledger, kind, data):
    if kind == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    keep(self, ledger, kind, data)
vault.Vault.keep = dying
house.grant()
house.sign()
"""


@pytest.mark.parametrize("before", ["totals", "signed"])
@pytest.mark.parametrize("more", [0, 2], ids=["then nothing", "then more events"])
def test_killed_between_commit_and_vault(
    house: Callable[..., House], before: str, more: int
) -> None:
    """If the process is killed after a signature was committed, before it is kept outside: the head
    in the database stands, and the next signature brings the vault up to it.
    """
    made = resident(house())
    first = made.sign()
    assert ran(KILLED, made.home, before).code == -signal.SIGKILL
    assert made.vault.read("fair", "signed") == first.note
    second = made.service.ledgers.signed("fair")[-1]
    assert second.number == first.number + 1
    again = made.again()
    for _ in range(more):
        again.grant()
    third = again.sign()
    assert (third == second._replace(cosignatures=())) is (more == 0)
    numbered(again)
    totals = json.loads(again.vault.read("fair", "totals") or b"")
    assert totals["checkpoint"] == third.note.decode()
    again.close()


def test_a_vault_that_cannot_be_written(house: Callable[..., House]) -> None:
    """If the head cannot be kept outside, signing fails, and says why; the signature that was made
    stays the only one of its size, and is not shown; grants go on, and once it works again all is
    well.
    """
    made = resident(house())
    shown = made.sign()
    path = made.home / "vault/fair/signed"
    path.rename(path.with_name("aside"))
    path.mkdir()
    made.grant()
    for _ in range(3):
        with pytest.raises((Problem, StoreError), match="signed"):
            made.sign()
    assert made.get(f"/receipts/{made.head().size - 1}").status_code == 503
    path.rmdir()
    path.with_name("aside").rename(path)
    assert made.service.ledgers.signed("fair")[-1] != shown
    assert made.publisher.published("fair") == shown
    made.grant()
    made.sign()
    numbered(made)
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".")]


def test_a_clock_that_jumps(house: Callable[..., House]) -> None:
    """A clock that goes back years, or forward, and back again: stamps never go back, heads are
    signed, and the bundle has no finding.
    """
    clock = Clock()
    made = resident(house(clock=clock))
    for jump in (10**9, -2 * 10**9, 5, -(10**6), 10**8):
        clock.jump(jump)
        made.accept_time("looked at it")
        made.commit(made.grant(ttl_seconds=5, purpose="a text"))
        made.sign()
        made.service.expire_due()
    times = [Event.from_bytes(body).time for body in made.stored()]
    assert times == sorted(times)
    numbered(made)


LOOP = """
import sys
from pathlib import Path
from house import House
house = House(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    house.grant()
    house.publisher.publish("fair")
    print("published", flush=True)
"""


def test_killed_at_any_moment(house: Callable[..., House]) -> None:
    """A process that signs and publishes without pause, killed six times, each after a few rounds
    and at a moment that nobody chose: what it leaves is continued, and nothing that was signed is
    ever replaced.
    """
    made = resident(house())
    signed = [made.publisher.publish("fair")]
    dice = random.Random(20261121)  # noqa: S311
    for _ in range(6):
        worker = Forked(LOOP, made.home)
        assert worker.stdout.readline() == "ready\n"
        for _ in range(dice.randrange(5)):
            assert worker.stdout.readline() == "published\n"
        time.sleep(dice.uniform(0.0, 0.1))
        worker.close()
        again = made.again()
        assert again.publisher.publish("fair") is not None
        numbered(again)
        now = again.service.ledgers.signed("fair")
        assert now[: len(signed)] == signed
        signed = now
        again.close()
    assert len(signed) > 6  # it was not killed before it signed anything
