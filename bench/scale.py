"""Whether a long ledger decides as fast as a short one, and what it takes in memory.

``python -m bench.scale URL`` measures in a process of its own, so that nothing else is counted.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.budget.commands import CommitGrant, Envelope
from accountant.config.settings import Settings
from accountant.runtime.service import Service
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault
from bench.asking import HOT, bodies, endless_grants, open_ledger
from bench.running import processor_seconds, serving

SHORT: Final = 1_000
LONG: Final = 100_000
MILLION: Final = 1_000_000
ROUNDS: Final = 20
EACH: Final = 25
"""Grants a round on each ledger, with one commit each and with one for all."""

RESTARTS: Final = 9
"""One alone scatters by a third, so that the median of a few says little."""

PAGE: Final = 1_000
COMMITTED: Final = 0.95

Row = dict[str, Any]


def long_ledger(folder: Path) -> list[Row]:
    """Grants after 10^5 events, beside 10^3, the memory that events take, and a restart."""
    return _measured(folder, LONG)


def million(folder: Path) -> list[Row]:
    """Grants after 10^6 events, beside 10^3, the memory that events take, and a restart."""
    return _measured(folder, MILLION)


def _measured(folder: Path, events: int) -> list[Row]:
    home = folder / f"scale{events}"
    chosen, url = Settings(home=home), f"sqlite:///{home}/accountant.db"
    home.mkdir()
    migrate(url)
    made = Service(open_ledgers(url), vault=Vault(chosen.home), snapshots=Snapshots(chosen.home))
    with closing(made) as service:
        secret = service.credentials.create("bench", "admin", "bench")
        _fill(service, "short", SHORT)
        _fill(service, "long", events)
    done = subprocess.run(  # noqa: S603 our own program
        [sys.executable, "-m", "bench.scale", url], stdout=subprocess.PIPE, check=True
    )
    found = json.loads(done.stdout)
    past = f"{events:,} events"
    rows = [
        {"what": f"reading back {past}", "value": found["read"], "unit": "events/s"},
        {"what": "memory of 10^6 events", "value": found["memory"], "unit": "MB", "beside": past},
    ]
    for what in ("deciding a grant", "a durable grant"):
        short, long = found[what]
        beside = f"{SHORT:,} events"
        rows += [
            {"what": f"{what} after {past}", "value": long * 1e6, "unit": "µs"},
            {
                "what": f"{what} after {past}",
                "value": long / short,
                "unit": "ratio",
                "beside": beside,
            },
        ]
    return rows + _restarts(home, url, secret, past)


def _restarts(home: Path, url: str, secret: str, past: str) -> list[Row]:
    """What a start takes until the service has answered a grant, and says that it is ready."""
    taken = [_restart(home, url, secret, run) for run in range(RESTARTS)]
    granted, used, loaded = zip(*taken, strict=True)
    beside = f"{RESTARTS} restarts"
    return [
        {"what": f"restart after {past}, to {what}", "value": value, "unit": unit, "beside": beside}
        for what, value, unit in (
            ("the first grant", median(granted), "s"),
            ("the first grant", median(used), "s of a core"),
            ("the first grant, the slowest", max(granted), "s"),
            ("ready and all loaded", median(loaded), "s"),
        )
    ]


def _restart(home: Path, url: str, secret: str, run: int) -> tuple[float, float, float]:
    started = time.perf_counter()
    with serving(home, url, secret) as made, made.client() as client:
        client.post(
            "/v1/populations/long/grants",
            json=bodies([HOT])[0],
            headers={"Idempotency-Key": f"restart{run}"},
        ).raise_for_status()
        granted, used = time.perf_counter() - started, processor_seconds(made.pid)
        client.get("/readyz").raise_for_status()
        client.get("/v1/populations/long").raise_for_status()
        return granted, used, time.perf_counter() - started


def _fill(service: Service, ledger: str, events: int) -> None:
    """A ledger of grants, almost all of them committed."""
    open_ledger(service, ledger)
    asked = endless_grants("k")
    while (left := events - service.head(ledger).size) > 0:
        answers = service.execute_all(ledger, list(islice(asked, min(PAGE, left))))
        done = answers[: min(int(PAGE * COMMITTED), left - len(answers))]
        commits = [CommitGrant(grant=f"g{answer.entries[0].sequence}") for answer in done]
        service.execute_all(ledger, [Envelope("bench", commit) for commit in commits])


def _measure(url: str) -> dict[str, Any]:
    with closing(Service(open_ledgers(url))) as service:
        service.known("short")
        before = _resident()
        started = time.perf_counter()
        service.known("long")
        seconds = time.perf_counter() - started
        events = service.head("long").size
        found: dict[str, Any] = {
            "read": events / seconds,
            "memory": (_resident() - before) / events,
        }
        asked = endless_grants("scale")
        times: dict[str, dict[str, list[float]]] = {
            what: {"short": [], "long": []} for what in ("deciding a grant", "a durable grant")
        }
        for _ in range(ROUNDS):
            for ledger in ("short", "long"):
                with service.writing(ledger) as turn:
                    deciding = _timed(turn.answer, list(islice(asked, EACH)))
                durable = _timed(partial(service.execute, ledger), list(islice(asked, EACH)))
                times["deciding a grant"][ledger] += deciding
                times["a durable grant"][ledger] += durable
        return found | {what: [*map(median, each.values())] for what, each in times.items()}


def _timed(once: Callable[[Envelope], object], page: list[Envelope]) -> list[float]:
    """The seconds that each took."""
    moments = [time.perf_counter()]
    for one in page:
        once(one)
        moments.append(time.perf_counter())
    return [after - before for before, after in pairwise(moments)]


def _resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(sys.argv[1])))
