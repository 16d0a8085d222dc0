"""How many requests any order could admit: linear and integer programs, apart from the service.

Nothing that is admitted adds up to more than one in any cell, if each request counts with its least
share of what the cell may hold (``Shares.least``). The linear program over all requests at once is
therefore an upper bound for every scheduler of these limits, one that knows the future too. Cells
that are left out only raise it. Where the limit counts in one currency, the integer program is the
optimum itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from bench.peers.pricing import cells, shares
from bench.peers.workload import Workload


class Optimum(NamedTuple):
    """No order admits more than ``most``; ``found`` were found to fit together, if it was asked."""

    most: int
    found: int | None


def optimum(workload: Workload, every: Sequence[int], seconds: float = 0) -> Optimum:
    """Return a bound over each ``every``-th cell; with ``seconds``, in whole requests, as near as
    the time allows. Raises RuntimeError if the solver fails.
    """
    priced = shares(workload)
    demands = _matrix(workload, priced.least, every)
    many = len(workload.asks)
    inside, fits = Bounds(0, 1), LinearConstraint(demands, ub=np.ones(demands.shape[0]))
    options = {"time_limit": seconds, "mip_rel_gap": 1e-4} if seconds else {}
    whole = np.full(many, 1 if seconds else 0)
    done = milp(-np.ones(many), bounds=inside, constraints=fits, integrality=whole, options=options)
    if done.x is None:
        raise RuntimeError(done.message)
    if not seconds:
        return Optimum(_floor(-done.fun), None)
    single = np.isfinite(priced.of).sum(axis=1).max() == 1
    return Optimum(_floor(-done.mip_dual_bound), round(-done.fun) if single else None)


def _matrix(workload: Workload, least: np.ndarray, every: Sequence[int]) -> sparse.csr_array:
    """The share of each cell (a row) that each request takes; rows that are alike once."""
    rows: dict[int, list[int]] = {}
    for place, ask in enumerate(workload.asks):
        for cell in cells(workload, ask, every):
            rows.setdefault(cell, []).append(place)
    unlike = list({tuple(row): None for row in rows.values()})
    if not unlike:  # nobody asks for a cell that is kept
        return sparse.csr_array((0, len(least)))
    columns = np.concatenate([np.array(row, dtype=np.int64) for row in unlike])
    starts = np.concatenate([[0], np.cumsum([len(row) for row in unlike])])
    return sparse.csr_array((least[columns], columns, starts), shape=(len(unlike), len(least)))


def _floor(bound: float) -> int:
    """The whole requests below a bound that the solver knows to some 1e-6."""
    return int(bound + 1e-4)
