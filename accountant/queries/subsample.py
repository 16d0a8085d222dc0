"""Subsample and aggregate: a function of any kind, worked out on disjoint blocks of the data.

Nissim, Raskhodnikova, Smith, *Smooth sensitivity and sampling in private data analysis*, STOC 2007;
Dwork and Roth 2014, Sec. 7.3. Each privacy unit lies in one block, and which one depends on nothing
but the unit: a keyed hash of its name, with a public key. (Where units are only ever replaced, and
each has its own row for good, its place in the table will do.) The number of blocks is fixed. So a
unit changes the result of one block, whatever the function is, and the results are aggregated with
noise for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount
from accountant.client.mechanisms import Mechanism, mechanism
from accountant.queries.arguments import pair, real, whole_number
from accountant.queries.budgets import Budget
from accountant.queries.choices import OnLine
from accountant.queries.compounds import part
from accountant.queries.exact import Numbers, clipped, exact_sum
from accountant.queries.frame import Column, listed
from accountant.queries.points import Points
from accountant.queries.quantiles import line
from accountant.queries.query import Error, Query
from accountant.queries.records import REPLACE, Records
from accountant.queries.same import keys
from accountant.queries.steps import Draw, Laplace, Step

MOST_BLOCKS: Final = 10**6
KEY: Final = b"accountant blocks"
"""The public key of the hash."""

Blocks = NDArray[np.int64]
"""The block of each row."""
Function = Callable[[Mapping[str, Column]], Any]
"""A number about the records of a block, which come as columns by name."""


def subsample(
    data: Records,
    function: Function,
    columns: Sequence[str],
    bounds: tuple[Amount, Amount],
    *,
    epsilon: Amount,
    blocks: int,
    aggregate: Literal["mean", "median"] = "mean",
    step: Amount | None = None,
    key: bytes = KEY,
) -> Query:
    """Describe the mean or the median of ``function`` over so many ``blocks`` of the records.

    ``function`` reads the named ``columns`` of one block and returns a number, which is moved to
    within ``bounds``, from public knowledge. A block without records, and a result that is no
    finite number, count as the middle of the bounds. ``step``: the distance of the points among
    which a median is chosen, by default 2^-20 of that of the bounds. ``key``: which records are in
    one block; it is public, and chosen without looking at the data.

    Raise ValueError where a unit's block would depend on other units, and what ``function`` raises;
    nothing is spent then.
    """
    budget, many = Budget.of(data, epsilon), whole_number("blocks", blocks, 1, MOST_BLOCKS)
    low, high = pair("the bounds", bounds)
    if not isinstance(key, bytes):
        raise ValueError(f"the key is made of bytes, as b'key' is, not {key!r}")
    names = listed(columns)
    if not names:
        raise ValueError("say by columns what the function reads")
    amount = budget.amount if data.unit().present else budget.amount / 2
    step_ = _aggregate(aggregate, amount, low, high, many, step, budget.stated)
    results = _results(data, names, function, low, high, assigned(data, many, key), many)

    def bound(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        unit = "units of the result" if aggregate == "mean" else "ranks among the blocks"
        how = f"the noise on the {aggregate} of the blocks' results"
        return Error(step_.within(1 - confidence), confidence, unit, how)

    return Query(
        "subsample", data.charged, (step_,), lambda: [results], lambda drawn: drawn[0], bound,
        data.notes,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Aggregate(Step):
    """What aggregates the blocks' results; a unit replaces one of them. In replace_one, the service
    charges twice for the two units of a replacement, whose blocks may differ.
    """

    kind: ClassVar[str] = "subsample_and_aggregate"

    blocks: int
    aggregator: Step

    @property
    def mechanism(self) -> Mechanism:
        """What is sent to the service."""
        told = part(self.aggregator.mechanism)
        return mechanism(self.kind, aggregator=told, neighbouring=self.neighbouring)

    def within(self, beta: float) -> float:
        """Return how far off the aggregate is."""
        return self.aggregator.within(beta)


@dataclass(frozen=True, kw_only=True)
class Mean(Aggregate):
    """The mean of the results, with Laplace noise; a block's result changes it by (high - low) /
    blocks.
    """

    aggregator: Laplace

    def ready(self, value: Numbers) -> Draw:
        """Return the draw for the results of all blocks."""
        return self.aggregator.ready(exact_sum(value) / self.blocks)


@dataclass(frozen=True, kw_only=True)
class Median(Aggregate):
    """The median of the results, chosen among ``points``. A block's result that is replaced moves
    no rank by more than 1.
    """

    aggregator: OnLine
    points: Points

    def ready(self, value: Numbers) -> Draw:
        """Return the draw for the results of all blocks."""
        places = self.points.nearest(value)
        draw = self.aggregator.ready(line(places, self.points.count, Fraction(1, 2)))
        return lambda: float(self.points.at(draw()))


def _aggregate(
    kind: str,
    epsilon: Fraction,
    low: Fraction,
    high: Fraction,
    blocks: int,
    step: Amount | None,
    stated: str | None,
) -> Aggregate:
    if kind == "mean":
        noise = Laplace.costing(epsilon, (high - low) / blocks)
        reach, scale = noise.sensitivity, noise.scale
        return Mean(reach, scale, stated, blocks=blocks, aggregator=noise)
    if kind != "median":
        raise ValueError(f'aggregate is "mean" or "median", not {kind!r}')
    one, points = Fraction(1), Points.of(low, high, step)
    scale = OnLine.scale_costing(epsilon, one, monotonic=False)
    choice = OnLine(one, scale, outcomes=points.count)
    return Median(one, scale, stated, blocks=blocks, aggregator=choice, points=points)


def assigned(data: Records, blocks: int, salt: bytes) -> Blocks:
    """Return the block of each row of the table, by the unit's name, or by its place where units
    stay in place, which those of a private group do not. Raise ValueError where neither will do.
    """
    if data.unit_column is not None:
        names = keys(data.table.column(data.unit_column))
        return np.array([_hashed(name, blocks, salt) for name in names], dtype=np.int64)
    if data.records_per_unit is None and data.people.relation == REPLACE and not data.narrow:
        return np.arange(data.table.rows, dtype=np.int64) % blocks
    raise ValueError(
        f"which block a {data.people.unit} is in has to depend on nothing else: say by unit= which "
        "column of the dataset names it. (A place in the table depends on who else is there, and "
        "in a group whose members are private anybody may not be.)"
    )


def _hashed(name: Hashable, blocks: int, salt: bytes) -> int:
    """Return the block of the unit whose name has this key: one unit's names all have it."""
    digest = blake2b(repr(name).encode(), digest_size=16, key=salt[:64]).digest()
    return int.from_bytes(digest, "big") % blocks


def _results(
    data: Records,
    names: Sequence[str],
    function: Function,
    low: Fraction,
    high: Fraction,
    blocks: Blocks,
    many: int,
) -> Numbers:
    """Return the result of each block, within the bounds."""
    middle = float((low + high) / 2)
    kept = np.ones(len(blocks), dtype=np.bool_) if data.kept is None else data.kept
    results = np.full(many, middle)
    order = np.argsort(blocks, kind="stable")
    edges = np.searchsorted(blocks[order], np.arange(many + 1))
    for block, (start, end) in enumerate(pairwise(edges)):
        mask = np.zeros(len(blocks), dtype=np.bool_)
        mask[order[start:end]] = True
        columns = replace(data, kept=mask & kept).raw(*names)
        if len(columns[0]):
            found = real(function(dict(zip(names, columns, strict=True))))
            results[block] = found if math.isfinite(found) else middle
    return clipped(results, low, high)
