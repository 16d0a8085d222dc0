"""The peers' workloads are drawn from the distributions that they published."""

from __future__ import annotations

import math
from collections import Counter
from statistics import mean

import pytest
from dp_accounting import rdp
from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from scipy.stats import norm

from bench.peers import cohere, dpack, privatekube
from bench.peers.workload import Ask, Workload


def test_fairness_claims_have_the_dominant_shares_of_the_example() -> None:
    """Each claim demands its larger amount of both blocks, so the second claim has the smallest
    dominant share and the third the largest.
    """
    asks = privatekube.fairness().asks
    assert [ask.mechanism["sensitivity"] for ask in asks] == ["0.015", "0.01", "0.016"]
    assert all(ask.boxes == ((range(2),),) for ask in asks)


@pytest.mark.parametrize("share", [0, 0.25, 0.5, 0.75, 1])
def test_mice_come_as_often_as_stated(share: float) -> None:
    """Of the arrivals on one block the stated share are mice, within three standard deviations."""
    workload = privatekube.mice_and_elephants(1, share)
    mice = sum(ask.mechanism["sensitivity"] == privatekube.MOUSE for ask in workload.asks)
    apart = 3 * math.sqrt(privatekube.ARRIVALS * share * (1 - share))
    assert abs(mice - share * privatekube.ARRIVALS) <= apart


def test_seeds_of_privatekube_and_dpack_are_pinned() -> None:
    """A seed means the same requests for ever."""
    mice = privatekube.mice_and_elephants()
    assert _first(mice, "sensitivity") == ["0.01", "0.1", "0.1", "0.01", "0.01", "0.01"]
    assert len(mice.asks) == 236
    mixed = dpack.mixed()
    assert [len(ask.boxes[0][0]) for ask in mixed.asks[:8]] == [1, 10, 1, 1, 10, 1, 10, 1]
    assert Counter(len(ask.boxes[0][0]) for ask in mixed.asks) == {1: 1_012, 10: 988}


def test_mixed_requests_are_of_six_kinds_on_one_block_or_ten() -> None:
    """Every kind comes with the chance 1/6, and half of the requests are on one block, spread
    evenly over all.
    """
    asks = dpack.mixed().asks
    kinds = Counter(str(ask.mechanism) for ask in asks)
    assert len(kinds) == 6
    assert all(abs(many - len(asks) / 6) < 60 for many in kinds.values())
    alone = Counter(ask.boxes[0][0][0] for ask in asks if len(ask.boxes[0][0]) == 1)
    assert len(alone) == dpack.BLOCKS
    assert abs(sum(alone.values()) - len(asks) / 2) < 70
    assert all(abs(many - 100) < 35 for many in alone.values())


@pytest.mark.parametrize(("name", "kinds"), [("W1", 1), ("W2", 4), ("W3", 2), ("W4", 6)])
def test_requests_come_every_twenty_minutes_on_the_last_twelve_weeks(name: str, kinds: int) -> None:
    """Gaps average twenty minutes, a request is on the twelve blocks before its week, and each kind
    comes with three epsilons on two samples.
    """
    workload = cohere.workload(name)
    asks = workload.asks
    expected = 40 * cohere.WEEK / cohere.GAP
    assert abs(len(asks) - expected) < 3 * math.sqrt(expected)
    for ask in asks:
        week = ask.at // cohere.WEEK
        assert all(box[0] == range(week, week + 12) for box in ask.boxes)
    prices = {str(ask.mechanism) for ask in asks}
    assert len(prices) == len({k[1:] for k in cohere.KINDS[name]}) * 6
    assert kinds == len(cohere.KINDS[name])


@pytest.mark.parametrize(("name", "share"), [("W1", 1 / 11), ("W3", 1 / 2)])
def test_intervals_have_the_mean_of_their_beta_distribution(name: str, share: float) -> None:
    """The share of the attribute's values that requests are on averages a / (a + b)."""
    widths = [_width(ask) / cohere.SLOTS for ask in cohere.workload(name).asks]
    assert mean(widths) == pytest.approx(share, abs=0.01)


def test_an_interval_wraps_around() -> None:
    """An interval that passes an end goes on at the other, and one that covers all is one range."""
    assert cohere.interval(10, 20 / 256) == [range(21)]
    assert cohere.interval(2, 20 / 256) == [range(13), range(248, 256)]
    assert cohere.interval(254, 20 / 256) == [range(9), range(244, 256)]
    assert cohere.interval(7, 1.0) == [range(256)]
    for centre in (0, 100, 255):
        slots = [at for side in cohere.interval(centre, 0.3) for at in side]
        assert len(slots) == len(set(slots)) == 77


def test_seeds_of_cohere_are_pinned() -> None:
    """A seed means the same requests for ever."""
    found = {name: len(cohere.workload(name).asks) for name in cohere.KINDS}
    assert found == {"W1": 20_079, "W2": 20_020, "W3": 20_066, "W4": 19_943}
    [first, *_] = cohere.workload("W1").asks
    weeks, noise = range(12), {"kind": "gaussian", "sensitivity": "1", "scale": "25.763597"}
    assert first == Ask(
        173_149_277,
        noise | {"sampling": {"poisson": "0.25"}},
        ((weeks, range(14)), (weeks, range(237, 256))),
    )


@pytest.mark.parametrize("epsilon", cohere.EPSILONS)
def test_noise_of_cohere_is_calibrated_to_its_epsilon(epsilon: float) -> None:
    """The normal noise has the stated epsilon at delta 1e-9 on its exact curve (Balle and Wang
    2018, Thm 8), and no less noise has.
    """
    sigma = float(cohere.made("gaussian", epsilon, "1")["scale"])
    assert _delta(epsilon, sigma) <= 1e-9 < _delta(epsilon, sigma * 0.9999)


@pytest.mark.parametrize(
    ("rate", "steps", "sigma", "epsilon", "delta"),
    [
        *((0.005, 1_000, float(s), e, 1e-9) for e, s in cohere.SGD_SIGMAS.items()),
        *((0.001, 50_000, float(s), e, 1e-7) for e, s in dpack.SGD_SIGMAS.items()),
    ],
)
def test_noise_of_training_is_calibrated_to_its_epsilon(
    rate: float, steps: int, sigma: float, epsilon: float, delta: float
) -> None:
    """The steps have the stated epsilon, to one in a hundred, by dp_accounting's Renyi accountant
    at whole orders; DPack's at those that it looks at.
    """
    few, many = [2, 3, 4, 5, 6, 8, 16, 32, 64], [*range(2, 65), *range(66, 257, 2), 512, 1024]
    accountant = rdp.RdpAccountant(few if steps == dpack.SGD_STEPS else many)
    step = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    accountant.compose(SelfComposedDpEvent(step, steps))
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=0.01)


def test_every_workload_has_the_published_numbers_of_its_peer() -> None:
    """What a peer published stands beside the whole workload only, never beside a part of it."""
    assert [row.admitted for row in cohere.workload("W1").published] == [
        12_389.0, 16_162.2, 15_629.6, 16_271.0]  # fmt: skip
    assert cohere.workload("W1", rounds=2).published == ()


def _first(workload: Workload, field: str) -> list[str]:
    return [ask.mechanism[field] for ask in workload.asks[:6]]


def _width(ask: Ask) -> int:
    return sum(len(box[1]) for box in ask.boxes)


def _delta(epsilon: float, sigma: float) -> float:
    over, under = -epsilon * sigma + 0.5 / sigma, -epsilon * sigma - 0.5 / sigma
    return float(norm.cdf(over) - math.exp(epsilon) * norm.cdf(under))
