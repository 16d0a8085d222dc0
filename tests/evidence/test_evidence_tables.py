"""What the database keeps beside the events: append-only, and not believed if it is damaged."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from house import House, many, resident

from accountant.budget.errors import Problem
from accountant.store.ledgers import StoreError


def test_a_damaged_tree_is_not_signed(house: Callable[..., House]) -> None:
    """If what the database keeps beside the events is damaged, nothing is signed and no receipt is
    given: an error, never a wrong proof.
    """
    made = many(resident(house()), 300)
    made.sign()
    made.grant()
    for damage in (
        "UPDATE node SET hash = zeroblob(32)",
        "DELETE FROM node",
    ):
        made.raw(damage, guarded=False)
        assert made.get("/receipts/300").status_code == 503
        with pytest.raises((Problem, StoreError), match=r"damaged|does not continue"):
            made.sign()
    made.raw("UPDATE checkpoint SET note = x'00'", guarded=False)
    again = made.again()
    for path in ("/receipts/3", "/log/checkpoint", "/accounts"):
        assert again.get(path).status_code == 503, path
    again.close()


TABLES = {
    "node": "'fair', 1, 0, zeroblob(32)",
    "checkpoint": "'fair', 0, 1, x'00'",
    "cosignature": "'fair', 0, 'w', 'line'",
    "text": "'fair', 4, 'purpose', zeroblob(32), 'x'",
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("recursive", [0, 1])
def test_evidence_is_append_only(house: Callable[..., House], table: str, recursive: int) -> None:
    """No statement changes or replaces what is kept beside the events; only a text can go."""
    made = resident(house())
    made.grant(purpose="a purpose")
    many(made, 300)
    made.sign()
    with made.service.ledgers.writing("fair") as writing:
        writing.keep_cosignature("fair", 0, "w", "line\n")
        writing.commit()
    columns = [row[1] for row in made.raw(f"PRAGMA table_info({table})")]
    before = made.raw(f"SELECT * FROM {table}")
    assert before
    pragma = f"PRAGMA recursive_triggers={recursive}"
    statements = [f"UPDATE {table} SET {column} = {column}" for column in columns]
    statements += [
        f"UPDATE OR REPLACE {table} SET {columns[-1]} = 'x'",
        f"INSERT OR REPLACE INTO {table} VALUES ({TABLES[table]})",
        f"REPLACE INTO {table} VALUES ({TABLES[table]})",
        f"INSERT INTO {table} VALUES ({TABLES[table]})",
        f"INSERT INTO {table} VALUES ({TABLES[table]}) ON CONFLICT DO UPDATE SET ledger = 'x'",
    ]
    if table != "text":
        statements.append(f"DELETE FROM {table}")
    for statement in statements:
        with pytest.raises(Exception, match=re.compile("append-only|UNIQUE|constraint")):
            made.raw(pragma, statement)
        assert made.raw(f"SELECT * FROM {table}") == before, statement
    if table == "text":
        made.raw("DELETE FROM text")
        assert made.raw("SELECT * FROM text") == []
