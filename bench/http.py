"""The HTTP door under load: durable grants beside empty POSTs of the same server and framework.

Every server runs in its own process as users run it, and so does the load (``bench.load``). What is
compared is measured by turns on the same machine in the same minute, and a ratio is the median of
those of each turn: the machine is not as fast in one minute as in the next.
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
from bench.asking import FIVE_RULES, HOT, bodies, grants, register, unseen
from bench.core import POLICY
from bench.load import Result, drive
from bench.running import Served, app, processor_seconds, served

CONNECTIONS: Final = 64
FEWER_AND_MORE: Final = (32, 128)
SECONDS: Final = 1.0
ROUNDS: Final = 6
MORE_ROUNDS: Final = 14
"""Where three are compared: with six, the median itself scatters by a tenth."""

DATASETS: Final = [f"d{i}" for i in range(1_000)]
MOST: Final = 8_000
"""Requests made ready for each second; a server that answers more is done earlier."""

EMPTY: Final = "empty POST"
"""A server that does nothing: uvicorn and FastAPI in one process, as everybody runs them."""
UNSEEN: Final = "grants, unseen bodies"

PATH: Final = "/v1/populations/three/grants"
NO_SECRET: Final = "-" * 48
"""Where no key is looked at: as long as one."""

Row = dict[str, Any]
_run = count()


@dataclass(frozen=True, slots=True)
class Run:
    """What the load saw, and what the server's process used of a core for each answer."""

    seen: Result
    cost: float


@dataclass(frozen=True, slots=True)
class Target:
    """Something that answers, and what it is asked."""

    what: str
    server: Served
    path: str
    datasets: list[str]
    unseen: bool = False
    """Every body is a new one."""

    def run(self, connections: int, rate: float | None = None) -> Run:
        """One run, with keys that no other run has."""
        before = processor_seconds(self.server.pid)
        wire = self._wire(int((rate or MOST) * SECONDS))
        seen = drive(self.server.port, wire, connections, SECONDS, rate)
        used = processor_seconds(self.server.pid) - before
        return Run(seen, used / seen.answers)

    def warm_up(self, connections: int) -> None:
        """Some requests that are not measured, on connections of their own."""
        least = len(bodies(self.datasets))  # so that every account is there
        count = 10 if self.unseen else max(5 * connections, least)
        drive(self.server.port, self._wire(count), min(count, connections))

    def _wire(self, count: int) -> list[bytes]:
        number = next(_run)
        run = f"run{number}"
        if self.unseen:
            made = unseen(count, number * 2 * MOST)
            return grants(self.path, self.server.headers, made, count, run)
        return grants(self.path, self.server.headers, bodies(self.datasets), count, run)


def generator(folder: Path) -> list[Row]:
    """What the load costs itself: against a server that answers bytes to bytes."""
    with app("bare", folder, NO_SECRET) as server:
        bare = Target("bare server", server, PATH, [HOT])
        runs = [bare.run(CONNECTIONS).seen for _ in range(ROUNDS)]
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
        app("rowlock", folder, rowlock.SECRET, other) as server,
    ):
        rows = _measured(
            "PostgreSQL",
            [*targets, Target("row locks", server, PATH, [HOT])],
        )
    spent, booked = rowlock.spent_and_booked(other)
    if spent != booked:
        raise RuntimeError(f"the row locks lost count: {spent} spent, {booked} booked")
    return rows


@contextmanager
def _beside(folder: Path, home: Path, url: str) -> Iterator[list[Target]]:
    """The empty server, and the service with three populations."""
    with ExitStack() as stack:
        service: Served = stack.enter_context(served(home, url))
        targets = [Target(EMPTY, stack.enter_context(app("empty", folder, NO_SECRET)), PATH, [HOT])]
        for name, what, policy, datasets in (
            ("three", "grants", POLICY, [HOT]),
            ("five", "grants, five rules", FIVE_RULES, [HOT]),
            ("wide", "grants, 1,000 datasets", POLICY, DATASETS),
        ):
            register(service, name, policy, datasets)
            path = f"/v1/populations/{name}/grants"
            targets.append(Target(what, service, path, datasets))
        targets.append(Target(UNSEEN, service, PATH, [HOT], unseen=True))
        yield targets


def _measured(engine: str, targets: list[Target]) -> list[Row]:
    found = _by_turns(targets, CONNECTIONS, ROUNDS)
    rows = [row for what, runs in found.items() for row in _absolute(f"{engine}: {what}", runs)]
    compared = [(what, EMPTY) for what in found if what != EMPTY]
    compared += [("grants", what) for what in ("grants, 1,000 datasets", "row locks")]
    for what, beside in compared:
        if beside in found:
            rows += _ratios(f"{engine}: {what}", found[what], found[beside], beside)
    for connections in FEWER_AND_MORE:
        some = _by_turns(targets[:2], connections, MORE_ROUNDS)
        what = f"{engine}: grants, {connections} connections"
        rows += _absolute(what, some["grants"])
        rows += _ratios(what, some["grants"], some[EMPTY], EMPTY)
    half = targets[1].run(CONNECTIONS, _rate(found["grants"]) / 2)
    rows += _latencies(f"{engine}: grants at half their rate, due by the clock", [half])
    return rows


def _by_turns(targets: list[Target], connections: int, rounds: int) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {target.what: [] for target in targets}
    for target in targets:
        target.warm_up(connections)
    for _ in range(rounds):
        for target in targets:
            found[target.what].append(target.run(connections))
    return found


def _rate(runs: list[Run]) -> float:
    return median(run.seen.rate for run in runs)


def _cost(runs: list[Run]) -> float:
    return median(run.cost for run in runs)


def _absolute(what: str, runs: list[Run]) -> list[Row]:
    busy = f"the load kept {max(run.seen.busy for run in runs):.0%} of a core busy"
    return [
        {"what": what, "value": _rate(runs), "unit": "requests/s", "beside": busy},
        {"what": f"{what}, processor time", "value": _cost(runs) * 1e6, "unit": "µs a request"},
        *_latencies(what, runs),
    ]


def _latencies(what: str, runs: list[Run]) -> list[Row]:
    p50, p99 = (median(getattr(run.seen, name) for run in runs) for name in ("p50", "p99"))
    return [
        {"what": f"{what}, p50", "value": p50 * 1e3, "unit": "ms"},
        {"what": f"{what}, p99", "value": p99 * 1e3, "unit": "ms"},
    ]


def _ratios(what: str, runs: list[Run], others: list[Run], beside: str) -> list[Row]:
    """Of rates, and of processor times, which a busy machine disturbs less."""
    pairs = list(zip(runs, others, strict=True))
    rates = median(run.seen.rate / other.seen.rate for run, other in pairs)
    times = median(run.cost / other.cost for run, other in pairs)
    return [
        {"what": what, "value": rates, "unit": "ratio", "beside": beside},
        {"what": f"{what}, processor time", "value": times, "unit": "ratio", "beside": beside},
    ]
