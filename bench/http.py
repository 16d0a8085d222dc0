"""The HTTP door under load: durable grants beside an empty POST of the same server and framework.

Every server runs in its own process as users run it, and so does the load (``bench.load``). What is
compared is measured by turns on the same machine in the same minute, and a ratio is one of medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import rowlock
from bench.asking import FIVE_RULES, HOT, bodies, grants, register
from bench.core import POLICY
from bench.load import Result, drive
from bench.running import Served, app, served

CONNECTIONS: Final = 64
FEWER_AND_MORE: Final = (32, 128)
SECONDS: Final = 2.0
ROUNDS: Final = 3
DATASETS: Final = [f"d{i}" for i in range(1_000)]
MOST: Final = 30_000
"""Requests a second that are made ready: more than any server here answers."""

Row = dict[str, Any]
_run = count()


@dataclass(frozen=True, slots=True)
class Target:
    """Something that answers, and what it is asked."""

    what: str
    port: int
    path: str
    secret: str
    datasets: list[str]

    def run(self, connections: int, seconds: float, rate: float | None = None) -> Result:
        """One run, with keys that no other run has."""
        wire = self._wire(int((rate or MOST) * seconds))
        return drive(self.port, wire, connections, seconds, rate)

    def warm_up(self, connections: int) -> None:
        """Some requests that are not measured, on connections of their own."""
        drive(self.port, self._wire(5 * connections), connections)

    def _wire(self, count: int) -> list[bytes]:
        headers = {"Authorization": f"Bearer {self.secret}"}
        return grants(self.path, headers, bodies(self.datasets), count, f"run{next(_run)}")


def generator(folder: Path) -> list[Row]:
    """What the load costs itself: against a server that answers bytes to bytes."""
    with app("bare", folder) as port:
        bare = Target("bare", port, "/v1/populations/three/grants", "x", [HOT])
        runs = [bare.run(CONNECTIONS, SECONDS) for _ in range(ROUNDS)]
    rate = median(run.rate for run in runs)
    cost = median(run.busy * run.seconds / run.answers for run in runs)
    return [
        {"what": "load: bare server", "value": rate, "unit": "requests/s"},
        {"what": "load: its own cost", "value": cost * 1e6, "unit": "µs a request"},
    ]


def on_sqlite(folder: Path) -> list[Row]:
    """Durable grants over HTTP on SQLite."""
    home = folder / "http"
    home.mkdir()
    with _beside(folder, home, f"sqlite:///{home}/bench.db") as targets:
        return _measured("SQLite", targets)


def on_postgres(folder: Path, fresh: Callable[[], str]) -> list[Row]:
    """Durable grants over HTTP on PostgreSQL, beside row locks on the same server."""
    url, other = fresh(), fresh()
    home = folder / "http-postgres"
    home.mkdir()
    rowlock.prepare(other, [HOT])
    with (
        _beside(folder, home, url) as targets,
        app("rowlock", folder, other) as port,
    ):
        rows = _measured(
            "PostgreSQL",
            [*targets, Target("row locks", port, "/grants", rowlock.SECRET, [HOT])],
        )
    spent, booked = rowlock.spent_and_booked(other)
    if spent != booked:
        raise RuntimeError(f"the row locks lost count: {spent} spent, {booked} booked")
    return rows


@contextmanager
def _beside(folder: Path, home: Path, url: str) -> Iterator[list[Target]]:
    """The service with three populations, and the empty server."""
    with ExitStack() as stack:
        service: Served = stack.enter_context(served(home, url))
        port = stack.enter_context(app("empty", folder))
        targets = [Target("empty POST", port, "/v1/populations/three/grants", "x" * 48, [HOT])]
        for name, what, policy, datasets in (
            ("three", "grants", POLICY, [HOT]),
            ("five", "grants, five rules", FIVE_RULES, [HOT]),
            ("wide", "grants, 1,000 datasets", POLICY, DATASETS),
        ):
            register(service, name, policy, datasets)
            path = f"/v1/populations/{name}/grants"
            targets.append(Target(what, service.port, path, service.secret, datasets))
        yield targets


def _measured(engine: str, targets: list[Target]) -> list[Row]:
    found = _by_turns(targets, CONNECTIONS, ROUNDS)
    rows = [row for what, runs in found.items() for row in _absolute(f"{engine}: {what}", runs)]
    rate = {what: median(run.rate for run in runs) for what, runs in found.items()}
    compared = [(what, "empty POST") for what in rate if what != "empty POST"]
    compared += [("grants", what) for what in ("grants, 1,000 datasets", "row locks")]
    rows += [
        _ratio(f"{engine}: {what}", rate[what] / rate[beside], beside)
        for what, beside in compared
        if beside in rate
    ]
    for connections in FEWER_AND_MORE:
        some = _by_turns(targets[:2], connections, ROUNDS - 1)
        empty, grants = (median(run.rate for run in runs) for runs in some.values())
        what = f"{engine}: grants, {connections} connections"
        rows += [*_absolute(what, some["grants"]), _ratio(what, grants / empty, "empty POST")]
    half = targets[1].run(CONNECTIONS, SECONDS, rate["grants"] / 2)
    rows += _latencies(f"{engine}: grants at half their rate, due by the clock", [half])
    return rows


def _by_turns(targets: list[Target], connections: int, rounds: int) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {target.what: [] for target in targets}
    for target in targets:
        target.warm_up(connections)
    for _ in range(rounds):
        for target in targets:
            found[target.what].append(target.run(connections, SECONDS))
    return found


def _absolute(what: str, runs: list[Result]) -> list[Row]:
    rate = median(run.rate for run in runs)
    busy = max(run.busy for run in runs)
    beside = f"the load kept {busy:.0%} of a core busy"
    return [
        {"what": what, "value": rate, "unit": "requests/s", "beside": beside},
        *_latencies(what, runs),
    ]


def _latencies(what: str, runs: list[Result]) -> list[Row]:
    return [
        {"what": f"{what}, {name}", "value": median(found) * 1e3, "unit": "ms"}
        for name, found in (("p50", [r.p50 for r in runs]), ("p99", [r.p99 for r in runs]))
    ]


def _ratio(what: str, value: float, beside: str) -> Row:
    return {"what": what, "value": value, "unit": "ratio", "beside": beside}
