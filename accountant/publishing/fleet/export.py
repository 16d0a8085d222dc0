"""Write signed ledgers as Parquet tables (docs/reference/fleet.md), all of them or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from accountant.budget.facts import grant_of
from accountant.budget.population.population import Population
from accountant.budget.population.selection import EVERYONE, Selection, runs_of
from accountant.budget.reach import Reach, reach_in
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.ledger.merkle import leaf_hash, tree_of
from accountant.publishing.fleet.changes import ChargeRow, ChargeSums, applied
from accountant.publishing.log import Log, complete
from accountant.store.ledgers import Ledgers, Signed, StoreError
from accountant.store.projection import Projection
from accountant.store.whole import sync

SQL: Final = Path(__file__).resolve().parent / "sql"  # Queries to copy beside the tables
_PAGE: Final = 1_000
NOWHERE: Final = Reach((), ())
Progress = Callable[[int], None]  # Called with the number of events that were just written


class Written(NamedTuple):
    """The export of one ledger."""

    ledger: str
    size: int
    root: str
    charges: int


_TYPES: Final = {
    "": pa.string(),
    "whole": pa.int64(),
    "place": pa.int32(),
    "bytes": pa.binary(),
    "time": pa.timestamp("us", tz="UTC"),
    "units": pa.decimal128(38, 0),
}
_COLUMNS: Final = {
    "event": "sequence:whole type time:time asked_by key dataset charged grant_id "
    "body:bytes leaf:bytes",
    "charge": "sequence:whole rule epoch:whole dataset client unit purpose selection:whole held "
    "currency units:whole infinite:whole",
    "selection": "selection:whole box:place sides:place dimension low:place high:place",
    "dimension": "dimension position:place value",
    "cell": "cell:place dimension position:place value",
    "dataset": "dataset namespace name owner labels",
    "rule": "rule epoch:whole counted_from:time datasets owners labels clients purposes across per "
    "unit subjects action gate currency capacity:units",
    "head": "size:whole root:bytes checkpoint",
}
"""Column and type of every table, beside ``ledger``; text where no type is named."""
SCHEMAS: Final[dict[str, pa.Schema]] = {
    table: pa.schema(
        (name, _TYPES[kind])
        for name, _, kind in (column.partition(":") for column in ["ledger", *columns.split()])
    )
    for table, columns in _COLUMNS.items()
}
_UNLIKE: Final = frozenset(("sequence", "key", "body", "leaf", "root", "checkpoint", "grant_id"))
"""Columns that repeat too little for a dictionary."""

_BATCH: Final = {"event": 1 << 14}  # Rows that wait in memory; an event may have 64 KB
_USUAL: Final = 1 << 17


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
    head = signed.head
    with complete():
        tree = tree_of(Log(ledgers, ledger).hashes, head.size)
    if tree.root != head.root:
        raise StoreError(f"the database does not continue the checkpoint of {ledger}")
    with tables_of(part, ledger) as tables:
        writing, events = _Writing(tables, ledger, progress), ledgers.stream(ledger)
        projection = Projection(ledger, lambda: writing, _Writing.follow)
        projection.follow(tree, lambda _: islice(events, _PAGE))
        writing.sums.agree(writing.state)
        describe(tables, writing.state, writing.selections)
        tables["head"].add(head.size, head.root, signed.full.decode())
    return Written(ledger, head.size, head.root.hex(), tables["charge"].rows)


class _Writing:
    """The fold of one ledger, which writes its events and their charges into the tables."""

    def __init__(self, tables: Mapping[str, Table], ledger: str, progress: Progress) -> None:
        self._tables, self._progress = tables, progress
        self.sums = ChargeSums()
        self.state = State(ledger)
        self.selections: dict[Selection, int] = {EVERYONE: 0}  # Charged groups

    def follow(self, data: bytes) -> None:
        """Fold one event in, and write it and its charges."""
        state, event = self.state, Event.from_bytes(data)
        for change in applied(state, event):
            self.sums.add(change)
            self._charge(event.sequence, change)
        body = event.body
        grant, command = grant_of(body, event.sequence, event.type), body.get("command", {})
        found = None if grant is None else state.grants.get(grant)
        on = found.on if found else reach_in(body) if "dataset" in command else NOWHERE
        datasets = (",".join(names) or None for names in on)
        about = (event.time, event.by, body.get("key"), *datasets, grant)
        self._tables["event"].add(event.sequence, event.type, *about, data, leaf_hash(data))
        self._progress(1)

    def _charge(self, sequence: int, change: ChargeRow) -> None:
        key, axis, selection, reserved, spent = change
        table, n = self._tables["charge"], len(axis)
        number = self.selections.setdefault(selection, len(self.selections))
        about = (sequence, *key, number)
        for held, units in (("reserved", reserved), ("spent", spent)):
            for i, currency in enumerate(axis):
                if units[i] or units[n + i]:
                    table.add(*about, held, str(currency), units[i], units[n + i])


class Table:
    """One ledger's part of one table: a file that grows in batches."""

    def __init__(self, folder: Path, name: str, ledger: str) -> None:
        self._schema, self._ledger = SCHEMAS[name], ledger
        self._most = _BATCH.get(name, _USUAL)
        self._waiting: list[tuple[Any, ...]] = []
        self.rows = 0
        (folder / name).mkdir(exist_ok=True)
        self._writer = pq.ParquetWriter(
            folder / name / f"{ledger}.parquet",
            self._schema,
            compression="zstd",
            use_dictionary=[column for column in self._schema.names if column not in _UNLIKE],
        )
        self.close = self._writer.close

    def add(self, *row: Any) -> None:
        """Add a row, without the ledger."""
        self._waiting.append((self._ledger, *row))
        if len(self._waiting) >= self._most:
            self.flush()

    def add_all(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows."""
        for row in rows:
            self.add(*row)

    def flush(self) -> None:
        """Write the rows that wait."""
        if self._waiting:
            columns = zip(*self._waiting, strict=True)
            kinds = zip(columns, self._schema.types, strict=True)
            arrays = [pa.array(column, type=kind) for column, kind in kinds]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
            self.rows += len(self._waiting)
            self._waiting.clear()


@contextmanager
def tables_of(folder: Path, ledger: str) -> Iterator[dict[str, Table]]:
    """Open all tables of one ledger. When the block ends, write what waits; close them anyway."""
    tables = {name: Table(folder, name, ledger) for name in SCHEMAS}
    with ExitStack() as stack:
        for table in tables.values():
            stack.callback(table.close)
        yield tables
        for table in tables.values():
            table.flush()


def describe(
    tables: Mapping[str, Table], state: State, selections: Mapping[Selection, int]
) -> None:
    """Write all that the charges of a ledger refer to, as it is in ``state``."""
    people = state.people()
    tables["selection"].add_all(_ranges(people, selections))
    for dimension, values in people.dimensions:
        tables["dimension"].add_all((dimension, i, value) for i, value in enumerate(values))
    tables["cell"].add_all(_cells(people))
    for dataset in state.datasets.values():
        labels = _in_one((key, (value,)) for key, value in dataset.labels)
        about = dataset.namespace, dataset.name, dataset.owner, labels
        tables["dataset"].add(dataset.id, *about)
    tables["rule"].add_all(_rules(state))


def _ranges(people: Population, selections: Mapping[Selection, int]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each range of values that a box is restricted to. A cell is in a selection
    if ``sides`` ranges of one of its boxes hold the cell's values.
    """
    for selection, number in selections.items():
        for at, box in enumerate(() if selection == EVERYONE else selection.boxes):
            pairs = zip(people.dimensions, box, strict=True)
            sides = [(name, side) for (name, values), side in pairs if len(side) < len(values)]
            sides = sides or [(people.dimensions[0][0], box[0])]  # a range that holds every cell
            for name, side in sides:
                for low, high in runs_of(side):
                    yield number, at, len(sides), name, low, high


def _cells(people: Population) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each dimension of each cell. The last dimension is numbered fastest."""
    for axis, (name, values) in enumerate(people.dimensions):
        step = prod(people.shape[axis + 1 :])
        for cell in range(people.cells):
            position = cell // step % len(values)
            yield cell, name, position, values[position]


def _in_one(labels: Iterable[tuple[str, Sequence[str]]]) -> str | None:
    """Return labels as one text, ``domain=health,risk=high|medium``; None if there are none."""
    return ",".join(f"{key}={'|'.join(values)}" for key, values in labels) or None


def _rules(state: State) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each currency that a limit rule in force compares, with its capacity."""
    if (adopted := state.adopted) is None:
        return
    for rule in adopted.policy.limits:
        epoch = adopted.epochs[rule.id]
        scope = rule.scope
        each = (scope.names, scope.owners, scope.clients, scope.purposes)
        names, owners, clients, purposes = (",".join(part) or None for part in each)
        scoped = names, owners, _in_one(scope.labels), clients, purposes
        group = _in_one((rule.subjects or {}).items())
        parts = rule.across, rule.per, rule.unit or "", group
        about = rule.id, epoch.number, epoch.since, *scoped, *parts
        for currency, units in epoch.capacity.sides:
            yield *about, rule.action, rule.filter.name, str(currency), units
