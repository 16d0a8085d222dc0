"""Runs the benchmarks: all, or those whose names are given (``http.on_sqlite scale``)."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import (
    batches,
    cells,
    core,
    desk,
    evidence,
    gates,
    http,
    limits,
    pbs,
    pipeline,
    prices,
    queries,
    refusals,
    scale,
    schedules,
    starts,
    waiting,
)
from bench.databases import databases

RESULTS = Path(__file__).parent / "results" / "latest.json"
Rows = list[dict[str, Any]]

EVERYWHERE: list[Callable[[Path], Rows]] = [
    core.deciding,
    core.replay_rate,
    cells.narrow,
    cells.large,
    gates.one_cell,
    gates.many_cells,
    refusals.listing,
    prices.first_price,
    prices.sampled,
    schedules.unequal,
    schedules.mixes,
    schedules.plans,
    schedules.equal,
    evidence.tree,
    evidence.checking,
    limits.disk,
    limits.on_sqlite,
    http.generator,
    http.on_sqlite,
    batches.on_sqlite,
    batches.large,
    pbs.on_sqlite,
    pipeline.grant_and_commit,
    queries.large,
    queries.weights,
    scale.long_ledger,
    desk.pages,
    desk.every,
    desk.readers,
    starts.commands,
    waiting.queue,
    waiting.own,
]
ON_POSTGRES: list[Callable[[Path, Callable[[], str]], Rows]] = [
    limits.on_postgres,
    http.on_postgres,
    batches.on_postgres,
    pbs.on_postgres,
]
"""These take a function that makes a fresh database and returns its URL."""


def main() -> None:
    """Prints the table and writes the JSON."""
    parser = ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", help="modules or functions; all by default")
    parser.add_argument("--postgres", help="URL of a superuser of an empty server to use")
    parser.add_argument("--million", action="store_true", help="also a ledger of 10^6 events")
    chosen = parser.parse_args()
    console = Console()
    rows: Rows = []
    everywhere = EVERYWHERE + ([scale.million, desk.million] if chosen.million else [])
    everywhere = [m for m in everywhere if _wanted(m, chosen.names)]
    on_postgres = [m for m in ON_POSTGRES if _wanted(m, chosen.names)]
    with (
        tempfile.TemporaryDirectory() as folder,
        databases(chosen.postgres) if on_postgres else nullcontext() as fresh,
    ):
        measures = [partial(measure, Path(folder)) for measure in everywhere]
        if fresh is not None:
            measures += [partial(measure, Path(folder), fresh) for measure in on_postgres]
        for measure in measures:
            console.print(f"{measure.func.__doc__}", style="dim")
            rows += (measured := measure())
            console.print(_table(measured))
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": sys.version.split()[0], "machine": platform.machine()}
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    console.print(f"written to {RESULTS}")


def _table(rows: Rows) -> Table:
    table = Table("what", "value", "unit", "compared with")
    for row in rows:
        table.add_row(row["what"], f"{row['value']:,.3g}", row["unit"], row.get("beside", ""))
    return table


def _wanted(measure: Any, names: list[str]) -> bool:
    module = measure.__module__.rpartition(".")[2]
    return not names or module in names or f"{module}.{measure.__name__}" in names


main()
