"""Memory and time of exporting and verifying a large ledger, each in a process of its own.

``python -m bench.million FOLDER [EVENTS]``: needs some 6 GB of disk for a million events.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

LEDGER = "mixed"
MILLION = 1_000_000
FILL = "import sys; from bench.evidence import fill; fill(sys.argv[1], int(sys.argv[2])).close()"
console = Console(highlight=False)


def main() -> None:
    """Makes the ledger, unless it is there, then runs `accountant export` and `verify`."""
    folder, events = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MILLION
    database, bundle = folder / "accountant.db", folder / "bundle.tar"
    if not database.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Not in this process: a child begins with its parent's peak.
        made = [sys.executable, "-c", FILL, f"sqlite:///{database}", str(events)]
        subprocess.run(made, check=True)  # noqa: S603 our own program
    home = ["--home", str(folder)]
    export = ["export", str(bundle), "-p", LEDGER, "--without-texts"]
    rows = [_run("export", [*home, *export]), _run("verify", ["verify", str(bundle), "--json"])]
    size = bundle.stat().st_size / 1e9
    console.print(f"bundle of {size:.2f} GB; " + json.dumps(rows))


def _run(name: str, arguments: list[str]) -> dict[str, object]:
    started = time.perf_counter()
    command = [sys.executable, "-m", "accountant", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 our own program
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    return {
        "what": name,
        "exit": os.waitstatus_to_exitcode(status),
        "seconds": round(seconds, 1),
        "peak_mb": round(usage.ru_maxrss / 1024, 1),
    }


main()
