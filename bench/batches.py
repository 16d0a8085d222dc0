"""The batch call over HTTP: many grants under one key, beside as many calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.budget.commands import MOST_ITEMS
from bench.asking import HOT, bodies, grants, register
from bench.core import POLICY
from bench.load import Result, drive, request
from bench.running import Served, served

SIZE: Final = 200
CONNECTIONS: Final = 4
ALONE: Final = 64
"""Connections on which grants are asked for one by one."""
GRANTS: Final = 8_000
ROUNDS: Final = 3
PATH: Final = "/v1/populations/three"

Row = dict[str, Any]


def on_sqlite(folder: Path) -> list[Row]:
    """Grants in batches over HTTP on SQLite."""
    home = folder / "batches"
    return _measured("SQLite", home, f"sqlite:///{home}/bench.db")


def on_postgres(folder: Path, fresh: Callable[[], str]) -> list[Row]:
    """Grants in batches over HTTP on PostgreSQL."""
    return _measured("PostgreSQL", folder / "batches-postgres", fresh())


def large(folder: Path) -> list[Row]:
    """Batches of as many items as there may be, and how long others wait meanwhile: who reads, and
    who asks for a grant on another ledger of the file, which has one writer.
    """
    home = folder / "large-batches"
    home.mkdir()
    with served(home, f"sqlite:///{home}/bench.db") as service:
        register(service, "three", POLICY, [HOT])
        register(service, "beside", POLICY, [HOT])
        quiet = {who: ask(service, "quiet").p99 * 1e3 for who, ask in BESIDE.items()}
        before = _most_memory(service.pid)
        found = []
        for what, wire in (
            ("invocations", _asked(service, "record_invocations")),
            ("grants", _asked(service, "ask_grant")),
            ("commits", _settled(service)),
        ):
            done = drive(service.port, wire[:2], 1)
            name = f"a batch of {MOST_ITEMS:,} {what}"
            found.append({"what": name, "value": done.seconds / 2 * 1e3, "unit": "ms"})
            for part, (who, ask) in zip((wire[2:4], wire[4:]), BESIDE.items(), strict=True):
                with ThreadPoolExecutor() as threads:
                    waiting = threads.submit(ask, service, what)
                    drive(service.port, part, 1)
                row = {"what": f"{name}: {who} meanwhile, p99", "unit": "ms"}
                p99, alone = waiting.result().p99 * 1e3, f"{quiet[who]:.1f} ms without"
                found.append(row | {"value": p99, "beside": alone})
        more = (_most_memory(service.pid) - before) / 2**20
        return [*found, {"what": "memory that these batches add", "value": more, "unit": "MiB"}]


def _asking(service: Served, run: str) -> Result:
    """Grants on another ledger, fifty a second for four seconds."""
    path = "/v1/populations/beside/grants"
    asked = grants(path, service.headers, bodies([HOT]), 200, run)
    return drive(service.port, asked, 4, rate=50)


def _reading(service: Served, _: str) -> Result:
    """The same of reads."""
    asked = request("GET", "/v1/populations/beside", b"", service.headers)
    return drive(service.port, [asked] * 200, 4, rate=50)


BESIDE: Final = {"a read of another ledger": _reading, "a grant on another ledger": _asking}


def _asked(service: Served, kind: str) -> list[bytes]:
    """Batches of one kind of command."""
    each = ({"type": kind} | body for body in cycle(bodies([HOT])))
    return [_batch(service, f"{kind}{n}", list(islice(each, MOST_ITEMS))) for n in range(6)]


def _settled(service: Served) -> list[bytes]:
    """Batches that commit grants, which are asked for here."""
    wire = grants(f"{PATH}/grants", service.headers, bodies([HOT]), 6 * MOST_ITEMS, "open")
    drive(service.port, wire, ALONE)
    with service.client() as client:
        opened, after = list[str](), 0
        while len(opened) < 6 * MOST_ITEMS:
            page = client.get(f"{PATH}/grants", params={"limit": 1_000, "after": after}).json()
            opened += [one["id"] for one in page["grants"]]
            after = int(opened[-1][1:])
    parts = (opened[first : first + MOST_ITEMS] for first in range(0, len(opened), MOST_ITEMS))
    return [
        _batch(service, f"end{number}", [{"type": "commit_grant", "grant": one} for one in part])
        for number, part in enumerate(parts)
    ]


def _batch(service: Served, key: str, items: list[Row]) -> bytes:
    headers = service.headers | {"Idempotency-Key": key}
    return request("POST", f"{PATH}/batch", {"items": items}, headers)


def _most_memory(pid: int) -> int:
    """The most memory that a process has ever used, in bytes (Linux)."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in one]
    return int(line.split()[1]) * 1_024


def _measured(engine: str, home: Path, url: str) -> list[Row]:
    home.mkdir()
    with served(home, url) as service:
        register(service, "three", POLICY, [HOT])
        batches, rates = _batches(service), dict[str, list[float]](batch=[], alone=[])
        for turn in range(-1, ROUNDS):
            wire = list(islice(batches, GRANTS // SIZE))
            one_by_one = grants(
                f"{PATH}/grants", service.headers, bodies([HOT]), GRANTS, f"turn{turn}"
            )
            seconds = {
                "batch": drive(service.port, wire, CONNECTIONS).seconds,
                "alone": drive(service.port, one_by_one, ALONE).seconds,
            }
            for name in seconds if turn >= 0 else ():  # the first one warms up
                rates[name].append(GRANTS / seconds[name])
    rate = {name: median(found) for name, found in rates.items()}
    what = f"{engine}: grants over HTTP, {SIZE} a call"
    alone = f"one a call, {ALONE} connections"
    return [
        {"what": what, "value": rate["batch"], "unit": "grants/s"},
        {"what": what, "value": rate["batch"] / rate["alone"], "unit": "ratio", "beside": alone},
    ]


def _batches(service: Served) -> Iterator[bytes]:
    asked = cycle(bodies([HOT]))
    for number in count():
        items = [{"type": "ask_grant"} | body for body in islice(asked, SIZE)]
        headers = service.headers | {"Idempotency-Key": f"batch{number}"}
        yield request("POST", f"{PATH}/batch", {"items": items}, headers)
