"""The tables and their columns, written as Parquet a batch at a time (docs/reference/fleet.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

_TEXT, _WHOLE, _BYTES = pa.string(), pa.int64(), pa.binary()
_PLACE: Final = pa.int32()

SCHEMAS: Final[dict[str, pa.Schema]] = {
    name: pa.schema([("ledger", _TEXT), *columns])
    for name, columns in {
        "event": [
            ("sequence", _WHOLE),
            ("type", _TEXT),
            ("time", pa.timestamp("us", tz="UTC")),
            ("asked_by", _TEXT),
            ("key", _TEXT),
            ("dataset", _TEXT),
            ("grant_id", _TEXT),
            ("body", _BYTES),
            ("leaf", _BYTES),
        ],
        "charge": [
            ("sequence", _WHOLE),
            ("rule", _TEXT),
            ("epoch", _WHOLE),
            ("dataset", _TEXT),
            ("client", _TEXT),
            ("selection", _WHOLE),
            ("held", _TEXT),
            ("currency", _TEXT),
            ("units", _WHOLE),
            ("infinite", _WHOLE),
        ],
        "selection": [
            ("selection", _WHOLE),
            ("box", _PLACE),
            ("sides", _PLACE),
            ("dimension", _TEXT),
            ("low", _PLACE),
            ("high", _PLACE),
        ],
        "dimension": [("dimension", _TEXT), ("position", _PLACE), ("value", _TEXT)],
        "cell": [("cell", _PLACE), ("dimension", _TEXT), ("position", _PLACE), ("value", _TEXT)],
        "dataset": [("dataset", _TEXT), ("namespace", _TEXT), ("name", _TEXT), ("owner", _TEXT)],
        "rule": [
            ("rule", _TEXT),
            ("epoch", _WHOLE),
            ("counted_from", pa.timestamp("us", tz="UTC")),
            ("datasets", _TEXT),
            ("across", _TEXT),
            ("per", _TEXT),
            ("action", _TEXT),
            ("gate", _TEXT),
            ("currency", _TEXT),
            ("capacity", pa.decimal128(38, 0)),
        ],
        "head": [("size", _WHOLE), ("root", _BYTES), ("checkpoint", _TEXT)],
    }.items()
}
_UNLIKE: Final = frozenset(("sequence", "key", "body", "leaf", "root", "checkpoint", "grant_id"))
"""Columns that repeat too little for a dictionary."""

_BATCH: Final = {"event": 1 << 14}
"""Rows that wait in memory; an event may have 64 KB."""
_USUAL: Final = 1 << 17


class Table:
    """One ledger's part of one table: a file that grows by batches."""

    def __init__(self, folder: Path, name: str, ledger: str) -> None:
        self._schema, self._ledger = SCHEMAS[name], ledger
        self._most = _BATCH.get(name, _USUAL)
        self._columns: list[list[Any]] = [[] for _ in self._schema.names[1:]]
        self.rows = 0
        (folder / name).mkdir(exist_ok=True)
        self._writer = pq.ParquetWriter(
            folder / name / f"{ledger}.parquet",
            self._schema,
            compression="zstd",
            use_dictionary=[column for column in self._schema.names if column not in _UNLIKE],
        )

    def add(self, *row: Any) -> None:
        """Adds a row: everything but the ledger."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        if len(self._columns[0]) >= self._most:
            self._flush()

    def add_many(self, *columns: Sequence[Any]) -> None:
        """Adds rows that are there as columns."""
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)
        self._flush()

    def _flush(self) -> None:
        count = len(self._columns[0])
        columns = [[self._ledger] * count, *self._columns]
        arrays = [
            pa.array(column, type=kind)
            for column, kind in zip(columns, self._schema.types, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self.rows += count
        for column in self._columns:
            column.clear()

    def close(self, *, whole: bool) -> None:
        """Ends the file, with what still waits if it is to be ``whole``."""
        if whole and self._columns[0]:
            self._flush()
        self._writer.close()


class Tables:
    """All tables of one ledger."""

    def __init__(self, folder: Path, ledger: str) -> None:
        self._open = {name: Table(folder, name, ledger) for name in SCHEMAS}

    def __enter__(self) -> Tables:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with ExitStack() as stack:
            for table in self._open.values():
                stack.callback(table.close, whole=kind is None)

    def __getitem__(self, name: str) -> Table:
        return self._open[name]

    def add_all(self, name: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Adds rows to the table called ``name``."""
        for row in rows:
            self[name].add(*row)
