"""Runs every benchmark."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import core, evidence, gates, http, schedules

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    """Prints the table and writes the JSON."""
    console = Console()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for measure in (
            core.decide_flat,
            core.wide_charge,
            core.replay_rate,
            gates.one_cell,
            gates.many_cells,
            gates.first_price,
            schedules.unequal,
            schedules.equal,
            evidence.tree,
            evidence.checking,
            http.durable_grants,
        ):
            console.print(f"{measure.__doc__}", style="dim")
            rows += measure(Path(folder))
    table = Table("what", "value", "unit", "compared with")
    for row in rows:
        table.add_row(row["what"], f"{row['value']:,.3g}", row["unit"], row.get("beside", ""))
    console.print(table)
    RESULTS.parent.mkdir(exist_ok=True)
    machine = {"python": sys.version.split()[0], "machine": platform.machine()}
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    console.print(f"written to {RESULTS}")


main()
