"""docs/evidence.md is true: its example is a ledger of the program, and its vectors hold."""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from bundles import canonical, leaf_of, root_of
from documented import SALT, ledger, spent, text_line

from accountant import verify_minimal
from accountant.auditing.totals import totals_of

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "evidence.md").read_text()
EXAMPLE = DOCS[DOCS.index("## An example") :]
BLOCKS = [json.loads(block) for block in re.findall(r"```json\n(.*?)\n```", EXAMPLE, re.DOTALL)]
*EVENTS, TOTALS, TEXT = BLOCKS
ENTRIES = [canonical(event) for event in EVENTS]


def rows(first: str) -> list[tuple[str, ...]]:
    """The rows of a table whose first column is called so."""
    table = EXAMPLE[EXAMPLE.index(f"| {first} |") :].split("\n\n")[0].splitlines()[2:]
    return [tuple(cell.strip(" `") for cell in row.strip("| ").split(" | ")) for row in table]


def test_the_example_is_what_the_program_makes() -> None:
    """Events and totals are, to the byte, what the same commands lead to (documented.py)."""
    book = ledger()
    assert book.stored == ENTRIES
    assert totals_of(book.state) == canonical(TOTALS)


def test_the_hashes_are_those_of_the_bytes() -> None:
    """Lengths, leaf hashes, the root, and the digest of the sealed text."""
    found = [(str(n), str(len(one)), leaf_of(one).hex()) for n, one in enumerate(ENTRIES)]
    assert rows("event") == found
    assert f"`{root_of(list(map(leaf_of, ENTRIES))).hex()}`" in EXAMPLE
    assert text_line() == TEXT
    digest = hashlib.sha256(SALT + TEXT["text"].encode()).hexdigest()
    assert EVENTS[4]["command"]["purpose"] == {"sealed": digest}


def test_the_small_verifier_agrees_with_the_example() -> None:
    """It finds nothing wrong with the events, and adds them up to the same totals."""
    audit = verify_minimal.Audit()
    audit.manifest = {"ledger": "hospital"}
    for entry in ENTRIES:
        audit.entry(entry)
    audit.add_up()
    assert (audit.findings, audit.totals) == ([], TOTALS["accounts"])


def test_what_is_spent_is_what_the_gates_say() -> None:
    """The vectors are what the program's gates have spent."""
    assert rows("gate") == spent()


CURRENCIES = {"advanced": "epsilon_squared", "zcdp": "rho", "gdp": "mu_squared"}


@pytest.mark.parametrize("row", rows("gate"), ids="-".join)
def test_the_formulas_give_the_vectors(row: tuple[str, ...]) -> None:
    """The small verifier, which has nothing but the page's formulas, spends as much."""
    gate, order, epsilon, along, most, expected = row
    orders = [] if order == "-" else order.split(", ")
    told: dict[str, Any] = {"number": 1}
    rule = {"id": "a", "gate": gate, "limit": {"epsilon": "1", "delta": "1e-6"}}
    used = [None if text == "infinite" else int(text) for text in (epsilon, "0")]
    names = [CURRENCIES.get(gate, f"tau_{order}") for order in orders]
    if gate != "basic":
        told["renyi"] = ["23", "15"]
        if gate != "renyi":
            told["orders"] = dict(zip(names, orders, strict=True))
        if gate == "gdp":
            told["capacity"] = most
        used += [None if text == "infinite" else int(text) for text in along.split(", ")]
    limit = verify_minimal.Limit(rule, told, None)
    assert [str(units) for units in limit.capacity()[2:]] == most.split(", ") * (gate != "basic")
    assert limit.spent(used) == int(expected)
    assert list(map(Fraction, orders)) == [limit.orders[name] for name in names]
