"""The bound on what any order admits holds, and is the optimum where it says so."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.peers.emulated import Cells, Order, at_once
from bench.peers.optimum import optimum
from bench.peers.pricing import Shares, cells, shares
from bench.peers.workload import Ask, Body, Workload

RENYI = "limit: {epsilon: 1, delta: 1e-6, own_delta: 0}, gate: renyi, orders: [8]"
BASIC = "limit: {epsilon: 1}, gate: basic"
PURE: list[Body] = [
    {"kind": "laplace", "sensitivity": "1", "scale": scale}
    for scale in ("1.5", "2.4", "4.1", "9.3")
]
"""No few of their epsilons add up to the limit, where rounding would decide."""
NORMAL: list[Body] = [
    {"kind": "gaussian", "sensitivity": "1", "scale": scale} for scale in ("3", "5", "8")
]


def asks_of(kinds: list[Body]) -> st.SearchStrategy[tuple[Ask, ...]]:
    """Up to seven requests on some of three blocks."""
    blocks = st.sets(st.integers(0, 2), min_size=1).map(lambda some: ((tuple(sorted(some)),),))
    one = st.builds(Ask, st.just(0), st.sampled_from(kinds), blocks)
    return st.lists(one, min_size=1, max_size=7).map(tuple)


@settings(max_examples=30, deadline=None)
@given(asks_of([*PURE, *NORMAL]))
def test_no_subset_that_fits_is_larger_than_the_bound(asks: tuple[Ask, ...]) -> None:
    """Of all subsets that fit, under a filter of two currencies, none is larger than the bounds."""
    workload = Workload("random", "none", {"block": 3}, RENYI, asks)
    most = _largest(workload, shares(workload))
    assert most <= optimum(workload, (1,), 5).most <= optimum(workload, (1,)).most


@settings(max_examples=30, deadline=None)
@given(asks_of(PURE))
def test_the_integer_program_is_the_optimum_of_one_currency(asks: tuple[Ask, ...]) -> None:
    """Under basic composition the integer program finds the size of the largest subset."""
    workload = Workload("random", "none", {"block": 3}, BASIC, asks)
    found = optimum(workload, (1,), 5)
    assert found.found == found.most == _largest(workload, shares(workload))


@settings(max_examples=20, deadline=None)
@given(asks_of(PURE))
def test_fewer_cells_only_raise_the_bound(asks: tuple[Ask, ...]) -> None:
    """A bound that looks at every second block is no lower."""
    workload = Workload("random", "none", {"block": 3}, BASIC, asks)
    assert optimum(workload, (2,)).most >= optimum(workload, (1,)).most


def test_cells_of_a_coarse_grid_are_those_that_are_kept() -> None:
    """A box of weeks and slots covers the kept cells inside it, counted row by row."""
    workload = Workload("grid", "none", {"block": 4, "slot": 8}, BASIC, ())
    ask = Ask(0, PURE[0], ((range(1, 3), range(5)), (range(1, 3), range(7, 8))))
    assert cells(workload, ask, (1, 4)) == [2, 3, 4, 5]
    assert len(cells(workload, ask, (1, 1))) == 12


def _largest(workload: Workload, priced: Shares) -> int:
    places = range(len(workload.asks))
    for size in range(len(workload.asks), 0, -1):
        for some in combinations(places, size):
            state = Cells(workload, priced)
            if all(map(state.takes, some)):
                return size
    return 0


def test_orders_sort_by_what_they_are_called() -> None:
    """Arrival sorts by place, dominant share by the share of a cell, efficiency by that times the
    number of cells.
    """
    asks = (Ask(0, PURE[0], (((0,),),)), Ask(0, PURE[1], (((0, 1),),)))
    workload = Workload("two", "none", {"block": 3}, BASIC, asks)
    state = Cells(workload, shares(workload))

    def first(order: Order) -> int:
        return min(range(2), key=lambda place: state.key(place, order))

    assert [first(o) for o in ("arrival", "dominant share", "efficiency")] == [0, 1, 0]
    assert at_once(workload, shares(workload)) == [0]
