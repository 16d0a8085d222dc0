"""What a pipeline feels: the client's grant and commit over loopback, seen and unseen requests."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.client import Client, laplace
from bench.asking import HOT, register
from bench.core import POLICY
from bench.running import served

TIMES: Final = 400
LOADS: Final = 15
_EMPTY: Final = "pass"
_CLIENT: Final = "import accountant.client"

Row = dict[str, Any]


def grant_and_commit(folder: Path) -> list[Row]:
    """Milliseconds that a block with a grant adds, its commit included; the median of many."""
    home = folder / "pipeline"
    home.mkdir()
    with served(home, f"sqlite:///{home}/bench.db") as server:
        register(server, "three", POLICY, [HOT])
        url = f"http://127.0.0.1:{server.port}"
        with Client(url, server.secret, "three") as ledger:

            def block(n: int) -> None:
                with ledger.grant(HOT, [laplace(1, n)]):
                    pass

            block(1)
            again = _milliseconds(lambda _: block(100))
            unseen = _milliseconds(lambda n: block(1_000 + n))
    return [
        {"what": "grant and commit", "value": again, "unit": "ms"},
        {"what": "grant and commit, unseen", "value": unseen, "unit": "ms"},
        {"what": "loading the client", "value": _loading(), "unit": "ms"},
    ]


def _milliseconds(work: Callable[[int], None]) -> float:
    taken = []
    for n in range(TIMES):
        began = time.perf_counter()
        work(n)
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e3


def _loading() -> float:
    """Milliseconds by which a process that imports the client is slower than one that does not."""

    def process(program: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 our own program
        return time.perf_counter() - began

    pairs = [(process(_CLIENT), process(_EMPTY)) for _ in range(LOADS)]
    return (median(a for a, _ in pairs) - median(b for _, b in pairs)) * 1e3
