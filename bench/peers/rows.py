"""The rows of the comparison: a workload, how its limit unlocks, and what is looked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, cast

from accountant.budget.policy import Policy
from bench.peers import cohere, dpack, emulated, privatekube
from bench.peers.optimum import optimum
from bench.peers.pricing import Shares, shares
from bench.peers.serving import at_once, planned, waiting
from bench.peers.workload import SECOND, Workload

WAITS: Final = "order" in Policy.model_fields
"""Whether this service lets requests wait."""
THEIRS, ROUNDS = "their rule", "in rounds"
"""Before an order: what the peer's scheduler admits of our requests, by its own rule and by the
filter of this service."""


class Row(NamedTuple):
    """A workload to be run. ``wait`` is how long a request waits; ``rounds`` is the peer's
    scheduler, and ``theirs`` what its own rule lets a request take; ``seconds`` is the time for the
    integer program, 0 for the linear one over every ``every``-th cell.
    """

    name: str
    make: Callable[[], Workload]
    unlock: str
    wait: str = "30d"
    rounds: Callable[[Workload, Shares, emulated.Order], list[int]] | None = None
    theirs: tuple[float, float, tuple[int, ...]] | None = None
    every: tuple[int, ...] = (1,)
    seconds: float = 0


def _dpack(workload: Workload, shares: Shares, order: emulated.Order) -> list[int]:
    """All requests at once, in order, as DPack offline."""
    return emulated.in_rounds(workload, shares, order, len(workload.asks) * SECOND)


def _cohere(workload: Workload, shares: Shares, order: emulated.Order) -> list[int]:
    """Weekly rounds, with the slack that was published."""
    week, weeks = cohere.WEEK, cohere.WINDOW
    return emulated.in_rounds(workload, shares, order, week, weeks, cohere.SLACK)


_BLOCK: Final = (10.0, 1e-7, emulated.ORDERS)
_USERS: Final = (3.0, 1e-7, emulated.COHERE_ORDERS)
_A_BLOCK: Final = "per_request: 1/1100"
"""Of DPack's 2,000 requests a block is asked by some 1,100: by each that asks all, and a tenth of
the others. What all of them unlock is the whole.
"""
_WEEKS: Final = f"over: {7 * cohere.WINDOW}d"
ROWS: Final[dict[str, Row]] = {
    row.name: row
    for row in (
        Row("fairness", privatekube.fairness, "per_request: 1/100", seconds=10),
        Row("mice", privatekube.mice_and_elephants, "per_request: 1/100", seconds=10),
        Row("mice-200", privatekube.mice_and_elephants, "per_request: 1/200", seconds=10),
        Row("mixed", dpack.mixed, _A_BLOCK, rounds=_dpack, theirs=_BLOCK),
        *(
            Row(name, partial(cohere.workload, name), _WEEKS, "7d", _cohere, _USERS, (1, 16))
            for name in cohere.KINDS
        ),
    )
}
_PLANNED: Final = 2_000
"""The most requests for which ``accountant plan`` is asked."""


def measured(row: Row, column: str, folder: Path) -> int | None:
    """Return the number of one column: of requests, or of those that are admitted. None where the
    column says nothing about the row, or the service lets nothing wait.
    """
    workload = row.make()
    head, _, order = column.partition(", ")
    if order:
        return _in_rounds(row, workload, head == THEIRS, cast(emulated.Order, order))
    found: dict[str, Callable[[], int | None]] = {
        "requests": lambda: len(workload.asks),
        "one by one": lambda: len(at_once(workload, folder).admitted),
        "no more than": lambda: optimum(workload, row.every, row.seconds).most,
        "planned": lambda: _planned(workload, folder),
    }
    return found[column]() if column in found else _waiting(row, column.replace(" ", "_"), folder)


def _planned(workload: Workload, folder: Path) -> int | None:
    many = len(workload.asks)
    return len(planned(workload, folder)["admitted"]) if many <= _PLANNED else None


def _in_rounds(row: Row, workload: Workload, theirs: bool, order: emulated.Order) -> int | None:
    if row.rounds is None or row.theirs is None:
        return None
    taken = emulated.any_order(workload, *row.theirs) if theirs else shares(workload)
    return len(row.rounds(workload, taken, order))


def _waiting(row: Row, order: str, folder: Path) -> int | None:
    if not WAITS:
        return None
    return len(waiting(row.make(), folder, order, row.unlock, row.wait).admitted)
