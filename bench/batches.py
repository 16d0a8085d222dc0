"""The batch call over HTTP: many grants under one key, beside as many calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.asking import HOT, bodies, grants, register
from bench.core import POLICY
from bench.load import drive, request
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
