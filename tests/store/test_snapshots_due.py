"""Which snapshots are made when: of ledgers that have grown, in a small part of the time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import pytest

from accountant.runtime import projections
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault
from bench.asking import endless_grants, open_ledger

LEDGERS = ("one", "three", "two")


@pytest.fixture
def service(
    empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    """A service with three ledgers, each of which has grown enough."""
    monkeypatch.setattr(projections, "_WORTH", 10)
    shutil.copy(empty_database, tmp_path / "accountant.db")
    ledgers = open_ledgers(f"sqlite:///{tmp_path}/accountant.db")
    with closing(Service(ledgers, vault=Vault(tmp_path), snapshots=Snapshots(tmp_path))) as made:
        for ledger in LEDGERS:
            open_ledger(made, ledger)
        grow(made, 10)
        yield made


def grow(service: Service, events: int) -> None:
    """So many grants more in each ledger."""
    for ledger in LEDGERS:
        asked = endless_grants(f"{ledger}-{service.head(ledger).size}-")
        service.execute_all(ledger, list(islice(asked, events)))


def kept(folder: Path) -> dict[str, bytes]:
    """The snapshots, by the name of their ledger."""
    found = folder / "snapshots"
    names = sorted(os.listdir(found)) if found.exists() else []
    return {name.removesuffix(".snapshot"): (found / name).read_bytes() for name in names}


def changed(service: Service, folder: Path) -> set[str]:
    """The ledgers whose snapshots a run of the job makes."""
    before = kept(folder)
    service.keep_snapshots()
    return {name for name, data in kept(folder).items() if before.get(name) != data}


def test_short_snapshots_need_not_wait(service: Service, tmp_path: Path) -> None:
    """All ledgers that have grown are kept in one run, as long as that is short, and none twice."""
    assert changed(service, tmp_path) == set(LEDGERS)
    assert changed(service, tmp_path) == set()
    grow(service, 10)
    assert changed(service, tmp_path) == set(LEDGERS)


def test_all_ledgers_share_one_part_of_the_time(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a snapshot that took long no other is made for a while, of whatever ledger; an end of
    the service waits for nothing.
    """
    monkeypatch.setattr(projections, "_SHARE", 10**9)  # whatever it took was long
    [first] = changed(service, tmp_path)
    assert changed(service, tmp_path) == set()
    service.close()
    assert kept(tmp_path).keys() == set(LEDGERS)
    assert first in LEDGERS


def test_the_oldest_comes_first(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ledgers that grow all the time each has its turn, though one snapshot is all that there is
    time for, and one of them can never be written.
    """
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "three.snapshot").mkdir()
    monkeypatch.setattr(projections, "_SHARE", 10**9)
    for _ in range(6):
        grow(service, 10)
        monkeypatch.setattr(service._projections, "_free", 0.0)
        service.keep_snapshots()
    written = {file.name for file in (tmp_path / "snapshots").iterdir() if file.is_file()}
    assert written == {"one.snapshot", "two.snapshot"}


def test_no_ledger_takes_the_turn_of_the_others(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger whose state fills the memory when it is written is tried last the next time; and the
    end of the service closes the database all the same.
    """
    dump = projections.Copied.dump

    def filling(copied: projections.Copied, breathe: Callable[[], None]) -> list[bytes]:
        if copied.state.ledger == "one":
            raise MemoryError
        return dump(copied, breathe)

    monkeypatch.setattr(projections.Copied, "dump", filling)
    for _ in range(2):
        with suppress(MemoryError):
            service.keep_snapshots()
    assert kept(tmp_path).keys() == {"three", "two"}
    with pytest.raises(MemoryError):
        service.close()
    held = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [file for file in held if file.startswith(str(tmp_path))]
    monkeypatch.undo()
