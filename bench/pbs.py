"""Many small budgets at once: a request charges some 75 of 100,000 budget keys.

That is the shape of a privacy budget service for attribution, where a key is an origin, a device
cohort or an hour. Here a key is a value of one dimension, and the keys of a request are a subject
group. A tenth of the requests are sent twice, word for word, as clients do that heard nothing; what
is spent in the end has to be the same as without them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from accountant.budget.state import AccountKey
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers
from bench.asking import HOT, register
from bench.core import POLICY
from bench.load import drive, request
from bench.running import Served, served

KEYS: Final = 100_000
WIDEST: Final = 20_000
"""Keys of the widest requests."""

REQUESTS: Final = 1_000
WIDE_EVERY: Final = 200
RETRIED: Final = 0.1
LATER: Final = 100
"""A retry follows so many requests after the first try: some of those are still on their way."""

CONNECTIONS: Final = 64
POPULATION: Final = "keys"
MECHANISM: Final = {"kind": "laplace", "sensitivity": "1", "scale": "100"}

Row = dict[str, Any]


def on_sqlite(folder: Path) -> list[Row]:
    """Grants over some 75 budget keys each on SQLite, a tenth of them sent twice."""
    homes = [folder / name for name in ("pbs-once", "pbs-retried")]
    return _measured("SQLite", homes, [f"sqlite:///{home}/bench.db" for home in homes])


def on_postgres(folder: Path, fresh: Callable[[], str]) -> list[Row]:
    """Grants over some 75 budget keys each on PostgreSQL, a tenth of them sent twice."""
    homes = [folder / name for name in ("pbs-postgres-once", "pbs-postgres-retried")]
    return _measured("PostgreSQL", homes, [fresh(), fresh()])


def _measured(engine: str, homes: list[Path], urls: list[str]) -> list[Row]:
    rows, balances = [], []
    for home, url, retried in zip(homes, urls, (0.0, RETRIED), strict=True):
        home.mkdir()
        with served(home, url) as service:
            keys = [f"{i:05d}" for i in range(KEYS)]
            register(service, POPULATION, POLICY, [HOT], {"key": keys})
            asked = _requests(keys, REQUESTS)
            wire = _with_retries([_wire(service, *one) for one in enumerate(asked)], retried)
            result = drive(service.port, wire, CONNECTIONS)
        rate = sum(map(len, asked)) / result.seconds
        what = f"{engine}: charging, {retried:.0%} sent twice"
        of = f"of {len(keys):,} keys, up to {max(map(len, asked)):,} a request"
        rows.append({"what": what, "value": rate, "unit": "keys/s", "beside": of})
        balances.append(_balances(url))
    if balances[0] != balances[1]:
        raise RuntimeError("requests that were sent twice have changed what was spent")
    return rows


def _requests(keys: list[str], count: int) -> list[list[str]]:
    """The keys of each request: 75 give or take 20, and now and then very many."""
    draw = random.Random(1)  # noqa: S311 no secret
    sizes = [max(1, round(draw.gauss(75, 20))) for _ in range(count)]
    sizes[WIDE_EVERY - 1 :: WIDE_EVERY] = [WIDEST] * (count // WIDE_EVERY)
    return [draw.sample(keys, size) for size in sizes]


def _wire(service: Served, number: int, keys: list[str]) -> bytes:
    body = {"dataset": HOT, "subjects": {"key": keys}, "mechanisms": [MECHANISM]}
    headers = service.headers | {"Idempotency-Key": f"request-{number}"}
    return request("POST", f"/v1/populations/{POPULATION}/grants", body, headers)


def _with_retries(wire: list[bytes], share: float) -> list[bytes]:
    """Each with this chance once more, LATER requests after the first time."""
    draw = random.Random(2)  # noqa: S311 no secret
    sent, again = [], deque[tuple[int, bytes]]()
    for number, one in enumerate(wire):
        sent.append(one)
        if draw.random() < share:
            again.append((number + LATER, one))
        while again and again[0][0] <= number:
            sent.append(again.popleft()[1])
    return sent + [one for _, one in again]


def _balances(url: str) -> dict[AccountKey, bytes]:
    """What every cell of every account has used, read back from the database."""
    with closing(Service(open_ledgers(url))) as service:
        state = service.state(POPULATION)
        return {key: account.used.cells().tobytes() for key, account in state.accounts.items()}
