"""Schedulers in plain NumPy: what the service should admit, and what a peer's own rule would.

They share no code with the service. ``Shares`` say what a request takes of a cell: those of
``pricing`` are of the service's filter, those of ``any_order`` of the rule that the peers apply: a
request fits if at *some* Renyi order the sum of its cell stays below the capacity there, and the
order may be another one each time. Under adaptive composition that is no filter: a two-step
counterexample has twice the delta (docs/explanation/privacy-accounting.md). It holds for plans that
are fixed in advance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import numpy as np
from pydantic import TypeAdapter

from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation
from bench.peers.pricing import Floats, Shares
from bench.peers.workload import Box, Workload

ORDERS: Final = (2, 3, 4, 5, 6, 8, 16, 32, 64)
"""The peers' whole orders; at those between 1 and 2 their budgets are nothing."""
COHERE_ORDERS: Final = (*ORDERS, 10**6, 10**10)
NEVER: Final = 1e9
"""A share that fits nowhere, and can be added up."""
_JUST: Final = 1 + 1e-9
_MECHANISM: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)

Order = Literal["arrival", "dominant share", "efficiency"]


def any_order(
    workload: Workload, epsilon: float, delta: float, orders: Sequence[int] = ORDERS
) -> Shares:
    """Return shares of a budget that is epsilon - ln(1/delta)/(a-1) at each order a where that is
    more than nothing, with the service's curves.
    """
    budgets = {a: epsilon - math.log(1 / delta) / (a - 1) for a in orders}
    kept = {a: budget for a, budget in budgets.items() if budget > 0}
    known: dict[str, Floats] = {}
    found = []
    for ask in workload.asks:
        name = json.dumps(ask.mechanism, sort_keys=True)
        if name not in known:
            stated = _MECHANISM.validate_python(ask.mechanism)
            loss = stated.cost(Relation.ADD_OR_REMOVE_ONE)
            taus = [loss.curve.at(a) if loss else None for a in kept]
            each = [math.inf if tau is None else float(tau) * stated.count for tau in taus]
            known[name] = np.array(each) / np.array(list(kept.values()))
        found.append(known[name])
    return Shares(tuple(f"order {a}" for a in kept), np.array(found))


class Cells:
    """What is used of each cell, in each currency."""

    def __init__(self, workload: Workload, shares: Shares) -> None:
        self._of = np.minimum(shares.of, NEVER)
        self._least = shares.least
        self._asks = workload.asks
        shape = tuple(workload.dimensions.values())
        self._used = np.zeros((*shape, len(shares.currencies)))
        self._where = [[_index(box) for box in ask.boxes] for ask in workload.asks]
        self.unlocked = np.ones(shape)
        """The share of each cell's capacity that may be used."""

    def takes(self, place: int) -> bool:
        """Admit a request if on each of its cells some currency fits."""
        share = self._of[place]
        for cells in self._where[place]:
            most = self.unlocked[cells][..., None] * _JUST
            if not (self._used[cells] + share <= most).any(axis=-1).all():
                return False
        for cells in self._where[place]:
            self._used[cells] += share
        return True

    def unlock(self, place: int, share: float) -> None:
        """Unlock a share more of the capacity of a request's cells."""
        for cells in self._where[place]:
            self.unlocked[cells] = np.minimum(self.unlocked[cells] + share, 1)

    def key(self, place: int, order: Order) -> tuple[float, int]:
        """By what requests are sorted: shares of the whole capacity, the smallest first."""
        cells = sum(math.prod(map(len, box)) for box in self._asks[place].boxes)
        by = {"arrival": 0.0, "dominant share": 1.0, "efficiency": float(cells)}[order]
        return by * self._least[place], place


def _index(box: Box) -> Any:
    if all(isinstance(side, range) for side in box):
        return tuple(slice(side[0], side[-1] + 1) for side in box)
    return np.ix_(*box)


def at_once(workload: Workload, shares: Shares) -> list[int]:
    """Return the places of what fits when it comes, without unlocking or waiting."""
    cells = Cells(workload, shares)
    return [place for place in range(len(workload.asks)) if cells.takes(place)]


def in_rounds(
    workload: Workload, shares: Shares, order: Order, length: int, window: int = 0, slack: float = 0
) -> list[int]:
    """Return what is admitted in rounds of so many microseconds, as Cohere does: of the requests
    that came in a round, in order, what fits at its end. With a ``window`` the first dimension
    counts blocks, of which one comes each round and unlocks over that many; there are that many at
    first. With ``slack`` more is unlocked in between.
    """
    cells, admitted = Cells(workload, shares), list[int]()
    for number, places in _by_round(workload, length):
        for block in range(len(cells.unlocked) if window else 0):
            age = min(max(number + window - block, 0), window)
            more = slack * (age if age < window / 2 else window - age)
            cells.unlocked[block] = (age + more) / window
        ordered = sorted(places, key=lambda place: cells.key(place, order))
        admitted += [place for place in ordered if cells.takes(place)]
    return admitted


def _by_round(workload: Workload, length: int) -> Iterator[tuple[int, list[int]]]:
    rounds: dict[int, list[int]] = {}
    for place, ask in enumerate(workload.asks):
        rounds.setdefault(ask.at // length, []).append(place)
    yield from rounds.items()


def waiting(workload: Workload, shares: Shares, order: Order, per_request: float) -> list[int]:
    """Return what is admitted where each request unlocks a share of its cells, then waits for ever
    (DPF-N): after each arrival, in order, whatever fits.
    """
    cells, queue, admitted = Cells(workload, shares), list[int](), list[int]()
    cells.unlocked[...] = 0
    for arrived in range(len(workload.asks)):
        cells.unlock(arrived, per_request)
        queue = sorted([*queue, arrived], key=lambda place: cells.key(place, order))
        taken = {place for place in queue if cells.takes(place)}
        admitted += [place for place in queue if place in taken]
        queue = [place for place in queue if place not in taken]
    return admitted


def over_time(workload: Workload, shares: Shares, order: Order, wait: int) -> list[int]:
    """Return what is admitted where blocks come with time and unlock evenly over their window, and
    a request that does not fit waits for so many microseconds: at each arrival those that wait, in
    order, then the request itself.
    """
    cells, queue, admitted = Cells(workload, shares), list[int](), list[int]()
    length = workload.window * workload.every
    born = (np.arange(len(cells.unlocked)) - (workload.window - 1)) * workload.every
    for arrived, ask in enumerate(workload.asks):
        parts = np.clip((ask.at - born) / length, 0, 1)
        cells.unlocked[...] = parts.reshape(-1, *(1,) * (cells.unlocked.ndim - 1))
        queue = [place for place in queue if ask.at < workload.asks[place].at + wait]
        queue.sort(key=lambda place: cells.key(place, order))
        taken = [place for place in (*queue, arrived) if cells.takes(place)]
        admitted += taken
        queue = [place for place in (*queue, arrived) if place not in taken]
    return admitted
