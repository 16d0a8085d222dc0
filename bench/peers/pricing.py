"""What each request of a workload costs a cell, as shares of what the cell may hold.

Prices and capacities are the service's own; ``bench.peers.optimum`` adds them up by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.budget.commands import (
    AskGrant,
)
from accountant.budget.request import prepare
from accountant.budget.rules.base import View
from accountant.budget.state import State
from bench.asking import PEOPLE
from bench.mixed import START, begun
from bench.peers.workload import DATASET, Ask, Workload

Floats = NDArray[np.float64]


class Shares(NamedTuple):
    """Of each request (a row) the share of a cell's capacity in each of ``currencies``, of which
    one has to fit; infinite where the request has no finite loss.
    """

    currencies: tuple[str, ...]
    of: Floats

    @property
    def least(self) -> Floats:
        """Of each request its least share: what is admitted never adds up to more than one in it,
        since the shares of the currency that fits do not.
        """
        return np.asarray(self.of.min(axis=1))


def shares(workload: Workload) -> Shares:
    """Return the shares of a cell on which nothing was spent. Own deltas have to be none."""
    state, known = _opened(workload), dict[str, Floats]()
    found, currencies = [], tuple[str, ...]()
    for ask in workload.asks:
        name = json.dumps(ask.mechanism, sort_keys=True)
        if name not in known:
            currencies, known[name] = _of(state, workload, ask)
        found.append(known[name])
    return Shares(currencies, np.array(found))


def _of(state: State, workload: Workload, ask: Ask) -> tuple[tuple[str, ...], Floats]:
    request = prepare(state, "bench", AskGrant.model_validate(workload.body(ask)), START)
    [rule] = state.adopted.policy.limits if state.adopted else ()
    [used] = View(state, request).used(rule.id)
    charge = request.total.on(used.reading.account.axis)
    sides = {str(name): (charge.units(name), most) for name, most in used.epoch.capacity.sides}
    own, _ = sides.pop("delta")
    if own:
        raise ValueError(f"{ask.mechanism} has a delta of its own")
    share = [np.inf if units is None else units / most for units, most in sides.values()]
    return tuple(sides), np.array(share)


def _opened(workload: Workload) -> State:
    people = PEOPLE | {"dimensions": workload.values}
    return begun(people, DATASET, workload.policy, "peers", START)


def cells(workload: Workload, ask: Ask, every: Sequence[int]) -> list[int]:
    """Return the places of a request's cells in a grid that keeps each ``every``-th value of each
    dimension, in the order of the dimensions.
    """
    kept = [
        -(-many // step) for many, step in zip(workload.dimensions.values(), every, strict=True)
    ]
    found: list[int] = []
    for box in ask.boxes:
        places = np.zeros(1, dtype=np.int64)
        for side, many, step in zip(box, kept, every, strict=True):
            inside = np.array([at // step for at in side if at % step == 0], dtype=np.int64)
            places = (places[:, None] * many + inside).ravel()
        found += places.tolist()
    return found
