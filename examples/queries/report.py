"""The table at the end, and the results as files."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.queries.closing import accounts
from examples.queries.results import Results, Row, text

HEADINGS: Final = ("system", "true value", "answer", "95 % error", "asked", "booked", "receipt")

FILES: Final = ("results.json", "results.md")


def show(console: Console, results: Results) -> None:
    """Print the table and the claims."""
    table = Table(title="Every kind of query", title_justify="left", title_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold", min_width=24 if heading == "system" else None)
    source = ""
    for row in results.rows:
        if row.source != source:
            source = row.source
            table.add_section()
            table.add_row(Text(source, "bold"))
        table.add_row(*(Text(cell) for cell in cells(row)))
    console.print(table)
    claims = Table(title="Claims", title_justify="left", title_style="bold")
    for heading in ("holds", "claim", "measured", "can fail with probability"):
        claims.add_column(heading)
    for claim in results.claims:
        holds = Text("yes", "green") if claim.holds else Text("NO", "bold red")
        claims.add_row(holds, Text(claim.text), Text(claim.measured), claim.chance)
    console.print(claims)


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's words under the headings."""
    if row.asked is None:
        return row.system, row.true, row.answer, "none", "nothing", text(int(row.booked)), ""
    error = "" if row.error is None else f"{text(row.error)} {row.unit}"
    sign = {"epsilon": "ε", "rho": "ρ"}[row.currency]
    return (
        row.system, row.true, row.answer, error, f"{sign} {row.asked}", f"{sign} {row.booked}",
        row.receipt,
    )  # fmt: skip


def write(output: Path, results: Results) -> None:
    """Write results.json and results.md."""
    found = {
        "rows": [asdict(row) for row in results.rows],
        "claims": [asdict(claim) for claim in results.claims],
        "accounts": accounts(results),
        "grants": [
            {
                "receipt": f"{each.population}/{each.grant}",
                "account": f"{each.population}/{each.dataset}",
                "charged": each.charged,
            }
            for each in results.booked
        ],
    }
    written = json.dumps(found, indent=1, ensure_ascii=False, default=_plain)
    (output / FILES[0]).write_text(written + "\n", encoding="utf-8")
    (output / FILES[1]).write_text(_markdown(results), encoding="utf-8")


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"{value!r} is no value of the results")


def _markdown(results: Results) -> str:
    lines = ["# Every kind of query", "", _line(["from", *HEADINGS]), _line(["---"] * 8)]
    lines += [_line([row.source, *cells(row)]) for row in results.rows]
    lines += ["", "## Claims", "", _line(["holds", "claim", "measured", "can fail with"])]
    lines += [_line(["---"] * 4)]
    lines += [
        _line(["yes" if each.holds else "**no**", each.text, each.measured, each.chance])
        for each in results.claims
    ]
    notes = [f"* {row.system}: {row.note}." for row in results.rows if row.note]
    return "\n".join([*lines, "", "## What was asked", "", *notes]) + "\n"


def _line(words: list[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |"
