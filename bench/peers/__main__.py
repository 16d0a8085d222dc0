"""Runs the peers' workloads, all or those that are named, and prints the tables of
docs/explanation/against-its-peers.md: ``python -m bench.peers [NAME …] [--columns "one; another"]
[--write]``.

Results are kept in bench/results/peers.json, and the tables are made of all that is there, so that
one workload may be run again alone. All of them take hours on two cores.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path

from rich.console import Console

from bench.peers import tables
from bench.peers.rows import ROWS, Row, measured

RESULTS = Path(__file__).parents[1] / "results" / "peers.json"
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "against-its-peers.md"


def main() -> None:
    """Measure, keep, and print or write the tables."""
    parser = ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--columns", help=f"with semicolons, of {'; '.join(tables.COLUMNS)}")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    chosen = parser.parse_args()
    console = Console(highlight=False)
    for name in chosen.names or ROWS:
        for column in chosen.columns.split("; ") if chosen.columns else tables.COLUMNS:
            if (found := _run(ROWS[name], column, console)) is not None:
                _keep(name, column, found)
    text = tables.rendered(_kept())
    if chosen.write:
        PAGE.write_text(tables.replaced(PAGE.read_text(), text))
    console.print(text, soft_wrap=True, markup=False)


def _kept() -> tables.Results:
    found: tables.Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def _keep(name: str, column: str, found: int) -> None:
    results = _kept()  # another process may have added to them
    results.setdefault(name, {})[column] = found
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def _run(row: Row, column: str, console: Console) -> int | None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(row, column, Path(folder) / "home")
    if found is not None:
        console.print(f"{row.name}, {column}: {found} ({time.monotonic() - began:.0f} s)")
    return found


if __name__ == "__main__":
    main()
