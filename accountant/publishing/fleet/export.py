"""Writing signed ledgers as a folder of Parquet tables, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from accountant.budget.facts import grant_of
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.ledger.merkle import leaf_hash, tree_of
from accountant.publishing.fleet.changes import Change, Sums, applied
from accountant.publishing.fleet.tables import Table, describe, tables_of
from accountant.publishing.log import Log, checkpoint_of, complete
from accountant.store.ledgers import Ledgers, Signed, StoreError
from accountant.store.projection import Projection
from accountant.store.whole import sync

SQL: Final = Path(__file__).resolve().parent / "sql"  # Queries to copy beside the tables

_PAGE: Final = 1_000
Progress = Callable[[int], None]  # Called with the number of events that were just written


class Written(NamedTuple):
    """The export of one ledger."""

    ledger: str
    size: int
    root: str
    charges: int


def write_fleet(
    folder: Path,
    ledgers: Ledgers,
    signed: Mapping[str, Signed],
    progress: Progress = lambda _: None,
) -> list[Written]:
    """Write ledgers up to their checkpoints into a new ``folder``. Raises StoreError."""
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: name a folder to be made")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    part.mkdir()
    try:
        written = [_write(part, ledgers, name, head, progress) for name, head in signed.items()]
        shutil.copytree(SQL, part / "sql")
        for path in [*part.rglob("*"), part]:
            sync(path)
        part.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return written


def _write(
    part: Path, ledgers: Ledgers, ledger: str, signed: Signed, progress: Progress
) -> Written:
    head = checkpoint_of(signed)
    with complete():
        tree = tree_of(Log(ledgers, ledger).hashes, head.size)
    if tree.root != head.root:
        raise StoreError(f"the database does not continue the checkpoint of {ledger}")
    with tables_of(part, ledger) as tables:
        writing, events = _Writing(tables, ledger, progress), ledgers.stream(ledger)
        Projection(ledger, lambda: writing).follow(tree, lambda _: islice(events, _PAGE))
        writing.sums.agree(writing.state)
        describe(tables, writing.state, writing.selections)
        tables["head"].add(head.size, head.root, signed.full.decode())
    return Written(ledger, head.size, head.root.hex(), tables["charge"].rows)


class _Writing:
    """The fold of one ledger, which writes its events and their charges into the tables."""

    def __init__(self, tables: Mapping[str, Table], ledger: str, progress: Progress) -> None:
        self._tables, self._progress = tables, progress
        self.sums = Sums()
        self.state = State(ledger)
        self.selections: dict[Selection, int] = {EVERYONE: 0}  # Charged groups

    @property
    def sequence(self) -> int:
        """The sequence of the next event."""
        return self.state.sequence

    def follow(self, data: bytes) -> None:
        """Fold one event in, and write it and its charges."""
        state, event = self.state, Event.from_bytes(data)
        for change in applied(state, event):
            self.sums.add(change)
            self._charge(event.sequence, change)
        body = event.body
        grant, command = grant_of(body, event.sequence, event.type), body.get("command", {})
        found = None if grant is None else state.grants.get(grant)
        dataset = command.get("dataset") if found is None else found.dataset
        about = (event.time, event.by, body.get("key"), dataset, grant)
        self._tables["event"].add(event.sequence, event.type, *about, data, leaf_hash(data))
        self._progress(1)

    def _charge(self, sequence: int, change: Change) -> None:
        key, axis, selection, reserved, spent = change
        table, n = self._tables["charge"], len(axis)
        number = self.selections.setdefault(selection, len(self.selections))
        about = (sequence, *key, number)
        for held, units in (("reserved", reserved), ("spent", spent)):
            for i, currency in enumerate(axis):
                if units[i] or units[n + i]:
                    table.add(*about, held, str(currency), units[i], units[n + i])
