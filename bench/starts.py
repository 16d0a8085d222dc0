"""What a start costs: commands beside the database, and the service until it is ready."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from bench.asking import HOT, open_ledger, unseen
from bench.running import made_keys, processor_seconds, serving

TIMES: Final = 11
LEDGER: Final = "three"
_EMPTY: Final = ("-c", "pass")
_COMMANDS: Final = {
    "accountant preview": ("preview", "request.json", "-p", LEDGER),
    "accountant accounts": ("accounts", "-p", LEDGER, "--dataset", HOT),
    "accountant --help": ("--help",),
}


def commands(folder: Path) -> list[dict[str, Any]]:
    """Processor seconds of a command on a short ledger and of a start, the median of eleven."""
    home = folder / "starts"
    home.mkdir()
    url = f"sqlite:///{home}/bench.db"
    secret, _ = made_keys(home, url)
    service = Service(open_ledgers(url))
    open_ledger(service, LEDGER)
    service.close()
    (home / "request.json").write_text(json.dumps(unseen(1, 0)[0]))
    env = os.environ | {"ACCOUNTANT_HOME": str(home), "ACCOUNTANT_DATABASE_URL": url}
    found = {"an empty program": _processor(_EMPTY, home, env)}
    for what, words in _COMMANDS.items():
        found[what] = _processor(("-m", "accountant", *words), home, env)
    found["accountant serve, until ready"] = median(_ready(home, url, secret) for _ in range(TIMES))
    return [{"what": what, "value": value, "unit": "s"} for what, value in found.items()]


def _processor(words: tuple[str, ...], home: Path, env: dict[str, str]) -> float:
    taken = []
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(  # noqa: S603 our own program
            [sys.executable, *words], cwd=home, env=env, check=True, stdout=subprocess.DEVNULL
        )
        taken.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return median(taken)


def _ready(home: Path, url: str, secret: str) -> float:
    with serving(home, url, secret) as served, served.client() as client:
        client.get("/readyz").raise_for_status()
        return processor_seconds(served.pid)
