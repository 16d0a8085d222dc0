"""Ledgers exported as Parquet, and DuckDB on the tables, with the SQL that ships with them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from support import Book, cells_of

from accountant.budget.accounts.sums import Sums as Held
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event
from accountant.publishing.fleet.export import Written, write_fleet
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

PAGE = 500
Sums = dict[tuple[Any, ...], tuple[int, ...]]
"""Account, cell and currency; then used, how many infinite, reserved, how many infinite."""


@dataclass(frozen=True)
class Fleet:
    """An exported folder, and the state of each ledger as the service has it."""

    folder: Path
    states: Mapping[str, State]
    written: list[Written]

    def rows(self, query: str) -> list[Any]:
        """What DuckDB answers to a file of ``sql/``, or to a statement."""
        with duckdb.connect() as engine:
            engine.execute(f"SET file_search_path = '{self.folder}'")
            for name in ("duckdb", "views"):
                engine.execute((self.folder / "sql" / f"{name}.sql").read_text())
            path = self.folder / "sql" / query
            asked = path.read_text() if query.endswith(".sql") else query
            return engine.execute(asked).fetchall()

    def change(self, table: str, ledger: str, changed: str) -> None:
        """Writes a ledger's part of a table anew, as ``changed`` selects it from ``t``."""
        path = self.folder / table / f"{ledger}.parquet"
        shutil.move(path, path.with_suffix(".old"))
        with duckdb.connect() as engine:
            source = f"(SELECT * FROM read_parquet('{path.with_suffix('.old')}')) t"
            engine.execute(
                f"COPY ({changed.replace('FROM t', f'FROM {source}')}) TO '{path}' (FORMAT parquet)"
            )

    def by_sql(self) -> Sums:
        """What the tables say that each cell holds, without what holds nothing."""
        sums = "currency, used, used_infinite, reserved, reserved_infinite"
        key = "ledger, rule, epoch, dataset, client, unit, purpose"
        rows = self.rows(
            f"SELECT {key}, cell, {sums} FROM cell_total "
            f"UNION ALL SELECT {key}, 0, {sums} FROM total "
            "WHERE ledger NOT IN (SELECT ledger FROM cell)"  # one cell, without a name
        )
        return {row[:9]: tuple(map(int, row[9:])) for row in rows if any(row[9:])}

    def by_service(self) -> Sums:
        """What the service says that each cell holds, without what holds nothing."""
        found: Sums = {}
        for ledger, state in self.states.items():
            held = state.reserved()
            for key, account in state.accounts.items():
                n = len(account.axis)
                mine = held.get(key, Held(n, account.used.shape))
                pairs = zip(cells_of(account.used), cells_of(mine), strict=True)
                for cell, (used, reserved) in enumerate(pairs):
                    for i, currency in enumerate(account.axis):
                        sums = (used[i], used[n + i], reserved[i], reserved[n + i])
                        if any(sums):
                            found[ledger, *key, cell, str(currency)] = sums
        return found


def events_of(book: Book) -> list[Event]:
    """All events of a ledger in memory."""
    return [Event.from_bytes(body) for body in book.stored]


@contextmanager
def service_of(folder: Path, database: str, books: Iterable[Book]) -> Iterator[Service]:
    """A service on a database that has the ledgers of ``books``."""
    with stored(folder, database, {book.name: events_of(book) for book in books}) as service:
        yield service


@contextmanager
def stored(
    folder: Path, database: str, ledgers: Mapping[str, Iterable[Event]]
) -> Iterator[Service]:
    """A service on a database with these events, by ledger."""
    store = open_ledgers(database)
    for name, events in ledgers.items():
        every = [Entry.of(event) for event in events]
        for first in range(0, len(every), PAGE):
            with store.writing(name) as writing:
                writing.append(name, every[first : first + PAGE])
                writing.commit()
    try:
        yield Service(store, vault=Vault(folder))
    finally:
        store.close()


def export(service: Service, folder: Path) -> Fleet:
    """Signs and exports every population."""
    assert service.vault is not None
    publisher = Publisher(service, service.vault, "example.org")
    signed = {name: publisher.sign(name) for name in service.populations()}
    written = write_fleet(folder, service.ledgers, signed)
    states = {}
    for name in service.populations():
        state = service.state(name)
        states[name] = state
    return Fleet(folder, states, written)
