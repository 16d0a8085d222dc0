"""What is written cannot be changed by the words that both databases know."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from places import Place, everything
from support import World, ask, laplace


@pytest.fixture
def filled(world: Callable[..., World], place: Place) -> World:
    """A service whose ledger has events, a text, a cosigned checkpoint and a full tile."""
    made = world().hospital()
    assert made.post("/grants", ask(laplace("0.1"), purpose="ops")).status_code == 201
    signed = made.publisher.sign("fair")
    with made.service.ledgers.writing("fair") as writing:
        writing.keep_cosignature("fair", signed.number, "w", "a line\n")
        writing.commit()
    place.run(f"INSERT INTO node VALUES ('fair', 1, 0, {place.blob('00' * 32)})")
    return made


COLUMNS = {
    "event": ("ledger", "sequence", "type", "time", "body", "leaf"),
    "node": ("ledger", "level", "number", "hash"),
    "checkpoint": ("ledger", "number", "size", "note"),
    "cosignature": ("ledger", "number", "witness", "line"),
    "text": ("ledger", "sequence", "field", "salt", "text"),
    "data_use": ("digest", "number", "ledger", "dataset"),
}
KEYS = {
    "event": "ledger, sequence",
    "node": "ledger, level, number",
    "checkpoint": "ledger, number",
    "cosignature": "ledger, number, witness",
    "text": "ledger, sequence, field",
    "data_use": "digest, number",
}


@pytest.mark.parametrize("table", COLUMNS)
def test_rows_are_never_changed_or_replaced(filled: World, place: Place, table: str) -> None:
    """No column of a row is updated, not even to what it is; no row is written over; and no row
    goes, but that of a text.
    """
    before = everything(place)
    assert before[table]
    first = COLUMNS[table][-1]
    same = f"SELECT * FROM {table}"
    statements = [f"UPDATE {table} SET {column} = {column}" for column in COLUMNS[table]]
    statements += [
        f"INSERT INTO {table} {same}",
        f"INSERT INTO {table} {same} WHERE true"
        f" ON CONFLICT ({KEYS[table]}) DO UPDATE SET {first} = excluded.{first}",
    ]
    if table != "text":
        statements += [f"DELETE FROM {table}", f"DELETE FROM {table} WHERE ledger = 'fair'"]
    for statement in statements:
        with pytest.raises(Exception, match=r"append-only|UNIQUE|duplicate key"):
            place.run(statement)
        assert everything(place) == before, statement
    place.run("DELETE FROM text")
    assert everything(place)["text"] == []


HEAD = [
    "DELETE FROM ledger_head",
    "UPDATE ledger_head SET sequence = 0 WHERE ledger = 'fair'",
    "UPDATE ledger_head SET sequence = sequence WHERE ledger = 'fair'",
    "UPDATE ledger_head SET peaks = peaks",
    "INSERT INTO ledger_head SELECT * FROM ledger_head",
    "INSERT INTO ledger_head SELECT * FROM ledger_head WHERE true"
    " ON CONFLICT (ledger) DO UPDATE SET sequence = 0",
]


@pytest.mark.parametrize("statement", HEAD)
def test_a_head_only_goes_forward(filled: World, place: Place, statement: str) -> None:
    """No statement moves a head back, keeps it where it is with other hashes, or removes it."""
    before = everything(place)
    with pytest.raises(Exception, match=r"append-only|UNIQUE|duplicate key"):
        place.run(statement)
    assert everything(place) == before


def test_rows_of_another_size_are_refused(filled: World, place: Place) -> None:
    """A hash has 32 bytes and an event at most 65,535."""
    before = everything(place)
    long, right, short = (place.blob("00" * size) for size in (65_536, 32, 31))
    for statement in (
        f"INSERT INTO event VALUES ('fair', 99, 'x', 0, {long}, {right})",
        f"INSERT INTO event VALUES ('fair', 99, 'x', 0, {right}, {short})",
        f"INSERT INTO node VALUES ('fair', 1, 99, {short})",
    ):
        with pytest.raises(Exception, match=r"(?i)check"):
            place.run(statement)
    assert everything(place) == before
