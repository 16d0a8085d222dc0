"""A service that is asked over HTTP admits what the plain model admits."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import cohere, dpack, emulated, privatekube
from bench.peers.clockwork import Clock
from bench.peers.emulated import Order
from bench.peers.pricing import shares
from bench.peers.rows import WAITS
from bench.peers.serving import at_once, waiting
from bench.peers.workload import SECOND, Workload

HOUR = 3_600 * SECOND


@pytest.mark.parametrize(
    "workload",
    [
        privatekube.fairness(),
        privatekube.mice_and_elephants(),
        dpack.mixed(tasks=60),
        cohere.workload("W4", rounds=1),
    ],
    ids=lambda workload: workload.name,
)
def test_requests_one_by_one_are_admitted_as_in_the_model(
    workload: Workload, tmp_path: Path
) -> None:
    """Asked for when it comes, a request is admitted if its shares fit on all its cells."""
    expected = emulated.at_once(workload, shares(workload))
    assert list(at_once(workload, tmp_path / "service").admitted) == expected


def test_the_fairness_example_comes_out_as_published() -> None:
    """Under DPF-N with N = 100 the second claim is granted first, then the first; the third
    waits.
    """
    workload = privatekube.fairness()
    order = emulated.waiting(workload, shares(workload), "dominant share", 1 / privatekube.N)
    assert order == [1, 0]


lets_wait = pytest.mark.skipif(not WAITS, reason="this service lets nothing wait")


@lets_wait
@pytest.mark.parametrize("order", ["arrival", "dominant share", "efficiency"])
def test_requests_that_wait_are_admitted_as_in_the_model(order: Order, tmp_path: Path) -> None:
    """Under a limit that unlocks by the request, those that wait are admitted in the order of the
    model.
    """
    workload = dpack.mixed(tasks=60)
    expected = emulated.waiting(workload, shares(workload), order, 1 / 20)
    name = order.replace(" ", "_")
    found = waiting(workload, tmp_path / "service", name, "per_request: 1/20")
    assert list(found.admitted) == expected


@lets_wait
def test_the_service_grants_the_second_claim_first(tmp_path: Path) -> None:
    """PrivateKube's example over HTTP: grant, grant, wait, and claim 2 before claim 1."""
    workload = privatekube.fairness()
    found = waiting(workload, tmp_path / "service", "dominant_share", "per_request: 1/100")
    assert found.admitted == (1, 0)


@lets_wait
def test_weeks_unlock_as_in_the_model(tmp_path: Path) -> None:
    """Under a limit that unlocks with time, on blocks that come with time, the service admits what
    the model admits.
    """
    workload = cohere.workload("W1", rounds=1)
    expected = emulated.over_time(workload, shares(workload), "dominant share", 3 * 24 * HOUR)
    found = waiting(workload, tmp_path / "weeks", "dominant_share", "over: 84d", "3d")
    assert sorted(found.admitted) == sorted(expected)


def test_a_clock_is_shared(tmp_path: Path) -> None:
    """What one process sets, another reads, in nanoseconds."""
    clock = Clock(tmp_path / "clock", 5)
    other = Clock(tmp_path / "clock")
    clock.set(1_790_000_000_000_001)
    assert other.nanoseconds() == 1_790_000_000_000_001_000
