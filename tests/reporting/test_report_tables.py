"""The report for scripts and spreadsheets: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from typing import Any

from report_desk import Desk
from support import NON_PRIVATE, laplace

from accountant.reporting.files import COLUMNS, LIFETIME, NUMBERS, rendered, to_csv
from accountant.reporting.model import build_report
from accountant.reporting.safely import visible

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1"]


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_no_cell_is_a_formula_and_numbers_stay_plain(desk: Desk) -> None:
    """Text that a spreadsheet would run gets an apostrophe; number columns hold numbers only."""
    desk.hospital(
        "  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n"
        "  - {id: c, per: client, limit: {epsilon: 1}}\n",
        {"country": FORMULAS},
    )
    for value in FORMULAS:
        desk.do(
            "record_invocations", value, dataset="d", mechanisms=[laplace("0.125")],
            subjects={"country": [value]},
        )  # fmt: skip
    desk.record(NON_PRIVATE, subjects={"country": ["+1"]})
    rows = _rows(to_csv(desk.report()))
    assert {row["group"] for row in rows} >= {f"'{value}" for value in map(visible, FORMULAS)}
    assert {row["client"] for row in rows} >= {f"'{value}" for value in map(visible, FORMULAS)}
    for row in rows:
        for name, cell in row.items():
            if name in NUMBERS:
                assert cell in ("", "inf") or Decimal(cell) >= 0
            else:
                assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝"))


def test_the_table_has_a_row_for_every_rule_scope_and_group(desk: Desk) -> None:
    """One tidy table: each rule on each dataset, whole and by every value of every dimension."""
    desk.hospital(
        "  - {id: a, limit: {epsilon: 1}}\n  - {id: p, across: datasets, limit: {epsilon: 3}}\n",
        {"c": ["x", "y"], "w": ["1", "2", "3"]},
    )
    desk.dataset("e")
    rows = _rows(to_csv(desk.report()))
    assert list(rows[0]) == list(COLUMNS)
    scopes = [("a", "d"), ("a", "e"), ("p", "*"), (LIFETIME, "d"), (LIFETIME, "e"), (LIFETIME, "*")]
    groups = [("", "everyone"), ("c", "x"), ("c", "y"), ("w", "1"), ("w", "2"), ("w", "3")]
    found = [(r["rule"], r["dataset"], r["dimension"], r["group"]) for r in rows]
    assert sorted(found) == sorted((*s, *g) for s in scopes for g in groups)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def test_json_is_strict_and_has_no_floats(desk: Desk) -> None:
    """The JSON report is read back; amounts are decimal strings, never floats."""
    desk.hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n", {"c": ["x", "y"]})
    desk.grant(laplace("0.1"), subjects={"c": ["x"]}, purpose="é \u2028 \ud7ff")
    desk.record(NON_PRIVATE)
    document = json.loads(rendered(desk.report(), "json"))
    leaves = _leaves(document)
    assert {type(leaf) for leaf in leaves} <= {str, int, bool, type(None)}
    assert "é \u2028 \ud7ff" in leaves
    assert document["format"] == "accountant.report.v1"
    assert document["limits"][0]["total"]["spent"] == "infinite"


def test_the_names_that_scripts_rely_on_are_there(desk: Desk) -> None:
    """Names of the JSON report are only ever added to."""
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n", {"c": ["x"]})
    desk.grant(laplace("0.1"))
    document = json.loads(rendered(desk.report(), "json"))
    assert set(document) >= {
        "format", "ledger_name", "verdict", "population", "datasets", "limits", "lifetimes",
        "series", "notable", "policy", "formulas", "notes", "ledger",
    }  # fmt: skip
    assert set(document["limits"][0]) >= {
        "rule", "scope", "dataset", "client", "action", "gate", "formula", "limit", "epoch",
        "counted_from", "carried", "status", "total", "worst_group", "meaning",
        "splits",
    }  # fmt: skip
    assert set(document["limits"][0]["splits"][0]["groups"][0]) >= {
        "group", "spent", "reserved", "remaining", "sum_of_epsilons", "own_delta", "status",
        "lifetime_epsilon", "lifetime_delta",
    }  # fmt: skip
    assert set(document["datasets"][0]) >= {
        "id", "status", "rule", "booked", "by_client", "by_kind", "by_purpose", "reservations",
        "counts",
    }  # fmt: skip


def test_tables_of_nothing_are_tables(desk: Desk) -> None:
    """An empty ledger has a header and a JSON document, not an error."""
    assert _rows(to_csv(build_report("x", []))) == []
    assert json.loads(rendered(build_report("x", []), "json"))["population"] is None
    desk.population()
    assert [row["rule"] for row in _rows(to_csv(desk.report()))] == [LIFETIME]
