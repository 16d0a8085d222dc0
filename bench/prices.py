"""The price of a mechanism that was never seen before, in all currencies, beside Arb by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from flint import arb, ctx, fmpq
from pydantic import TypeAdapter

from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, price

ADAPTER: Final[TypeAdapter[BaseMechanism]] = TypeAdapter(Mechanism)
ORDER: Final = 22
TIMES: Final = 400
Rows = list[dict[str, Any]]
Body = dict[str, Any]

_NOISE: Final[Body] = {"kind": "laplace", "sensitivity": "1", "scale": "5"}
_STEP: Final[Body] = {"kind": "gaussian", "sensitivity": "1"}
_REPLACED: Final = ("gaussian, fixed batches", "gaussian, one unit for another")
KINDS: Final[dict[str, Body]] = {
    "laplace": _NOISE,
    "discrete_laplace": {"kind": "discrete_laplace", "sensitivity": "1"},
    "gaussian": {"kind": "gaussian", "sensitivity": "1"},
    "gaussian, with a delta": {"kind": "gaussian", "sensitivity": "1", "delta": "1e-8"},
    "discrete_gaussian, with a delta": {
        "kind": "discrete_gaussian",
        "sensitivity": "1",
        "delta": "1e-8",
    },
    "exponential": {"kind": "exponential", "sensitivity": "1"},
    "permute_and_flip": {"kind": "permute_and_flip", "sensitivity": "1"},
    "randomized_response": {"kind": "randomized_response"},
    "unary_encoding": {"kind": "unary_encoding", "p": "0.75"},
    "sparse_vector": {
        "kind": "sparse_vector",
        "sensitivity": "1",
        "comparison_scale": "400",
        "max_positives": 10,
    },
    "declared": {"kind": "declared", "delta": "1e-9"},
    "laplace, on a sample": _NOISE | {"sampling": {"poisson": "0.01"}},
    "composed, of ten": {"kind": "composed", "mechanisms": [_NOISE] * 10},
    "gaussian, on a sample": _STEP | {"sampling": {"poisson": "0.01"}},
    "gaussian, two records": _STEP | {"sampling": {"poisson": "0.01"}, "group_size": 2},
    "gaussian, four records": _STEP | {"sampling": {"poisson": "0.01"}, "group_size": 4},
    "gaussian, cut batches": _STEP
    | {"sampling": {"truncated": {"rate": "0.01", "of": 10_000, "at_most": 120}}},
    "gaussian, allocated": _STEP | {"sampling": {"allocation": 1000}},
    "gaussian, fixed batches": _STEP
    | {"sampling": {"without_replacement": {"sample": 100, "of": 10_000}}},
    "gaussian, one unit for another": _STEP
    | {"sampling": {"poisson": "0.01"}, "neighbouring": "add_or_remove_one"},
    "tree_aggregation": {"kind": "tree_aggregation", "sensitivity": "1", "leaves": [1600]},
    "gaussian_mixture": {
        "kind": "gaussian_mixture",
        "moves": [{"by": "0", "chance": "0.99"}, {"by": "1", "chance": "0.01"}],
    },
    "repeat_and_select": {"kind": "repeat_and_select", "mechanism": _NOISE},
}
"""Bodies without the one number that makes each new (``_FRESH``)."""

_FRESH: Final = {
    "randomized_response": "truth_probability",
    "unary_encoding": "q",
    "sparse_vector": "threshold_scale",
    "declared": "epsilon",
    "repeat_and_select": "mean",
}
_SMALL: Final = ("randomized_response", "unary_encoding", "declared")


def _fresh(body: Body, n: int) -> BaseMechanism:
    if body["kind"] == "composed":
        parts = [part | {"scale": f"{10 + i}.{n:04}"} for i, part in enumerate(body["mechanisms"])]
        return ADAPTER.validate_python(body | {"mechanisms": parts})
    whole = 0 if body["kind"] in _SMALL else 10
    name = _FRESH.get(body["kind"], "scale")
    return ADAPTER.validate_python(body | {name: f"{whole}.{5000 + n}"})


def _first(body: Body, order: int = ORDER, *, replaced: bool = False) -> float:
    """Microseconds of a first price, the median of many."""
    mechanisms = [_fresh(body, n) for n in range(TIMES)]
    replaced = replaced or mechanisms[0].local
    found = Relation.REPLACE_ONE if replaced else Relation.ADD_OR_REMOVE_ONE

    def work(n: int) -> Any:
        return price(mechanisms[n], found, (order,))

    return _microseconds(work)


def _microseconds(work: Callable[[int], Any]) -> float:
    taken = []
    for n in range(TIMES):
        began = time.perf_counter_ns()
        work(n)
        taken.append(time.perf_counter_ns() - began)
    return median(taken) / 1e3


def _yardstick(n: int) -> arb:
    """The hardest function of a price by itself, mu of a pure mechanism, to a hundred bits."""
    before, ctx.prec = ctx.prec, 100
    try:
        return (arb(fmpq(n + 1, TIMES)) / 2).tanh().erfinv()
    finally:
        ctx.prec = before


def first_price(_: Path) -> Rows:
    """Price a mechanism of each kind that was not seen before, at one Renyi order."""
    bare = _microseconds(_yardstick)
    rows: Rows = [{"what": "yardstick: tanh and erfinv by Arb", "value": bare, "unit": "µs"}]
    for name, body in KINDS.items():
        taken = _first(body, replaced=name in _REPLACED)
        beside = f"{taken / bare:.1f} yardsticks"
        rows.append(
            {"what": f"first price, {name}", "value": taken, "unit": "µs", "beside": beside}
        )
    return rows


def sampled(_: Path) -> Rows:
    """Price a step of DP-SGD that was not seen before: a sum of as many terms as its order."""
    bare, body = _microseconds(_yardstick), KINDS["gaussian"] | {"sampling": {"poisson": "0.01"}}
    rows: Rows = []
    for order in (22, 176, 1024):
        taken = _first(body, order)
        beside = f"{taken / bare:.1f} yardsticks"
        what = f"first price, sampled gaussian at order {order}"
        rows.append({"what": what, "value": taken, "unit": "µs", "beside": beside})
    return rows
