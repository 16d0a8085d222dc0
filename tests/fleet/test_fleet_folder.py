"""The folder that is written: tied to a checkpoint, whole or not there, and read by any engine."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fleets import Fleet, export, service_of
from hypothesis import given
from hypothesis import strategies as st
from support import Book, World, ask, hospital, laplace, root_of

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.sums import Sums as Held
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.budget.state import State
from accountant.cli import main
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import Event
from accountant.ledger.merkle import leaf_hash
from accountant.ledger.notes import parse
from accountant.privacy.units import SURE
from accountant.publishing.fleet.changes import ChargeSums, Picture, applied, differences
from accountant.publishing.fleet.export import write_fleet
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError

ROOT = Path(__file__).resolve().parents[2]


def spent() -> Book:
    """A ledger with a group that is no range."""
    book = hospital(dimensions={"age": ["1", "2", "3", "4"], "sex": ["f", "m"]})
    book.record(laplace("0.1"), subjects={"age": ["1", "2", "4"]})
    book.record(laplace("0.2"), key="k")
    return book


@pytest.fixture
def service(tmp_path: Path, database: str) -> Iterator[Service]:
    """A service with the ledger ``fair``."""
    with service_of(tmp_path, database, [spent()]) as made:
        yield made


def test_the_tables_hold_the_ledger_to_the_byte(service: Service, tmp_path: Path) -> None:
    """The bodies are those that are stored, in order; hashed, they are the tree whose root is in
    ``head``, beside the checkpoint that signs it.
    """
    fleet = export(service, tmp_path / "out")
    rows = fleet.rows("SELECT sequence, body, leaf, asked_by, key FROM event ORDER BY sequence")
    stored = list(service.stream("fair"))
    assert [row[:3] for row in rows] == [tuple(one) for one in stored]
    assert [leaf_hash(row[1]) for row in rows] == [row[2] for row in rows]
    assert ("pipe", "k") in [row[3:] for row in rows]
    [(size, root, note)] = fleet.rows("SELECT size, root, checkpoint FROM head")
    head = Checkpoint.from_text(parse(note.encode()).text)
    assert (size, root) == (head.size, head.root) == (len(rows), root_of(row[1] for row in rows))
    assert fleet.written == [("fair", size, root.hex(), 6)]


def test_a_group_is_its_ranges(service: Service, tmp_path: Path) -> None:
    """A group is stored as ranges of the dimensions that it is restricted on, not as its cells."""
    fleet = export(service, tmp_path / "out")
    rows = fleet.rows("SELECT dimension, low, high, sides FROM selection ORDER BY low")
    assert rows == [("age", 0, 1, 1), ("age", 3, 3, 1)]
    assert fleet.rows("SELECT cell FROM member ORDER BY cell") == [(c,) for c in (0, 1, 2, 3, 6, 7)]


def test_columns_are_typed_and_compressed(service: Service, tmp_path: Path) -> None:
    """Times are timestamps, units integers, bodies bytes; names are in dictionaries, under zstd."""
    folder = export(service, tmp_path / "out").folder
    event, charge = (pq.ParquetFile(folder / name / "fair.parquet") for name in ("event", "charge"))
    kinds = {field.name: str(field.type) for field in event.schema_arrow}
    assert (kinds["time"], kinds["body"]) == ("timestamp[us, tz=UTC]", "binary")
    assert str(charge.schema_arrow.field("units").type) == "int64"
    group = charge.metadata.row_group(0)
    columns = {c.path_in_schema: c for c in (group.column(i) for i in range(group.num_columns))}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "RLE_DICTIONARY" in columns["currency"].encodings


def test_nothing_is_left_of_an_export_that_fails(service: Service, tmp_path: Path) -> None:
    """A folder appears whole or not at all, and none that is there is touched."""
    export(service, tmp_path / "out")
    signed = {"fair": service.ledgers.signed("fair")[-1]}
    before = sorted(tmp_path.iterdir())
    with pytest.raises(FileExistsError, match="there already"):
        write_fleet(tmp_path / "out", service.ledgers, signed)

    def broken(_: int) -> None:
        raise RuntimeError("the disk is full")

    with pytest.raises(StoreError, match="the disk is full"):
        write_fleet(tmp_path / "other", service.ledgers, signed, broken)
    assert sorted(tmp_path.iterdir()) == before


def test_charges_that_do_not_add_up_are_not_written() -> None:
    """What the charges add up to is held to the accounts: one that is lost, doubled, or in an
    account that is not there stops the export.
    """

    def summed(book: Book, *, drop: int = -1, twice: int = -1) -> tuple[ChargeSums, Any]:
        sums, state, number = ChargeSums(), State(book.name), 0
        for body in book.stored:
            for change in applied(state, Event.from_bytes(body)):
                for _ in range(0 if number == drop else 2 if number == twice else 1):
                    sums.add(change)
                number += 1
        return sums, state

    sums, state = summed(spent())
    sums.agree(state)
    for wrong in ({"drop": 0}, {"drop": 4}, {"twice": 1}, {"twice": 5}):
        sums, state = summed(spent(), **wrong)
        with pytest.raises(StoreError, match="do not add up"):
            sums.agree(state)
    sums, state = summed(spent())
    state.accounts.close((next(iter(state.accounts)),))
    with pytest.raises(StoreError, match="in no account"):
        sums.agree(state)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@given(data=st.data(), shape=shapes)
def test_differences_lead_from_one_picture_to_the_other(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    """Whatever an account held before and holds after, its differences, added, make up for it; no
    cell is in two of them, and cells that differ alike are in one.
    """
    few = st.lists(st.integers(0, 9), min_size=2, max_size=2)
    rows = len(SURE)

    def sums(*, flat: bool) -> Held:
        made = Held(rows, shape)
        made.add(EVERYONE, data.draw(few), data.draw(few))
        for cell in () if flat else np.ndindex(shape):
            one = Selection(everyone=False, boxes=(tuple(frozenset([at]) for at in cell),))
            made.add(one, [data.draw(st.integers(0, 2)), 0], [0, data.draw(st.integers(0, 1))])
        return made

    def whole(used: Held, held: Held) -> Any:
        return np.concatenate([held.stacked(), used.stacked() - held.stacked()])

    flat = data.draw(st.booleans())  # the cells of an account never go away again
    first, second = (
        (sums(flat=f), sums(flat=f)) for f in (flat, flat and data.draw(st.booleans()))
    )
    before, after = (
        Picture.of(Account(SURE, used, [0] * rows, [0] * rows), held)
        for used, held in (first, second)
    )
    added, seen, columns = Held(4 * rows, shape), Held(1, shape), []
    for selection, reserved, spent in differences(before, after):
        added.add(selection, reserved + spent, [0] * 4 * rows)
        if not selection.everyone:
            seen.add(selection, [1], [0])
            columns.append((reserved, spent))
    assert np.array_equal(whole(*first) + added.cells(), whole(*second))
    assert seen.cells().max() <= 1
    assert all(columns.count(column) == 1 for column in columns)


# -- the command -----------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, world: World, *words: str) -> int:
    """The exit code of ``accountant …`` on the world's database."""
    monkeypatch.setenv("ACCOUNTANT_HOME", str(world.settings.home))
    monkeypatch.setenv("ACCOUNTANT_DATABASE_URL", world.url)
    monkeypatch.setattr(sys, "argv", ["accountant", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """A world with a ledger."""
    made = World(database).hospital()
    yield made
    made.close()


def test_the_command_writes_every_population(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """``accountant fleet`` signs and writes all ledgers; --json says where and up to what."""
    folder = tmp_path / "out"
    assert run(monkeypatch, world, "fleet", str(folder), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    [ledger] = said["ledgers"]
    assert (said["folder"], ledger["ledger"], ledger["size"]) == (str(folder), "fair", 5)
    assert ledger["root"] == world.head().root.hex()
    assert (folder / "charge" / "fair.parquet").is_file()
    assert run(monkeypatch, world, "fleet", str(folder)) == 2
    assert "there already" in capsys.readouterr().err


def test_misuse_is_one_line(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """An unknown population, and a missing extra, are told with what to do, and exit code 2."""
    assert run(monkeypatch, world, "fleet", str(tmp_path / "out"), "-p", "nobody") == 2
    assert "no population is called 'nobody'" in capsys.readouterr().err
    for name in [name for name in sys.modules if name.startswith("accountant.publishing.fleet.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(monkeypatch, world, "fleet", str(tmp_path / "out")) == 2
    assert "pip install 'privacy-accountant[fleet]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_bodies_replay_to_the_signed_root(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As docs/reference/fleet.md says: the bodies, a line each, replay without a finding to the
    root in ``head``, and to the totals that SQL gives; a body that was changed does not.
    """
    world.post("/invocations", ask(laplace("0.25")))
    folder, lines = tmp_path / "out", tmp_path / "events.jsonl"
    assert run(monkeypatch, world, "fleet", str(folder)) == 0
    page = (ROOT / "docs/reference/fleet.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^ *```python\n(.+?)^ *```", page, re.DOTALL | re.MULTILINE)
    code = textwrap.dedent(block).replace("visitors", "fair")
    monkeypatch.chdir(folder)
    exec(compile(code, "fleet.md", "exec"), {})  # noqa: S102 our own page
    (folder / "events.jsonl").rename(lines)
    [(root,)] = Fleet(folder, {}, []).rows("SELECT lower(hex(root)) FROM head")
    capsys.readouterr()
    assert run(monkeypatch, world, "replay", str(lines), "--root", root, "--json") == 0
    [row, _] = json.loads(capsys.readouterr().out)["totals"]["lifetime"]
    assert (row["dataset"], row["epsilon"]) == ("d", "0.25")
    [(units,)] = Fleet(folder, {}, []).rows(
        "SELECT used FROM total WHERE rule = '' AND dataset = 'd' AND currency = 'epsilon'"
    )
    assert units == 250_000_000
    lines.write_bytes(lines.read_bytes().replace(b'"250000000"', b'"240000000"'))
    assert run(monkeypatch, world, "replay", str(lines), "--root", root) == 1
