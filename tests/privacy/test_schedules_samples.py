"""Pairs on samples: their masses at high precision, and totals of training held against a peer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from pydantic import TypeAdapter

from accountant.privacy.composition.mixture_pairs import Mixtures
from accountant.privacy.composition.of_mechanisms import pair_of
from accountant.privacy.composition.pairs import (
    Gaussian,
    Laplace,
    Pair,
    Response,
    SampledGaussian,
)
from accountant.privacy.composition.plan import tight
from accountant.privacy.composition.pld import total
from accountant.privacy.composition.sampled_pairs import Blend, Mirrored, Same, Sampled
from accountant.privacy.curves import Orders
from accountant.privacy.filters import FILTERS
from accountant.privacy.inverse import least_epsilon
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, price
from accountant.privacy.units import Charge
from accountant.privacy.units import total as sum_of

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE, ZERO_OUT = Relation
POISSON = {"poisson": "0.01"}
ADDED = {"neighbouring": "add_or_remove_one"}
CUT = {"truncated": {"rate": "0.01", "of": 10**4, "at_most": 120}}


def parse(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that a request body describes."""
    return ADAPTER.validate_python(body)


def noise(scale: str, **more: Any) -> dict[str, Any]:
    """Gaussian noise of sensitivity 1."""
    return {"kind": "gaussian", "sensitivity": "1", "scale": scale} | more


LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "1"}
EXCHANGE = Mixtures(((0.9, 0.0), (0.1, 1.5)), ((0.9, 0.0), (0.1, -1.5)))
TWO = Mixtures(((0.81, 0.0), (0.18, 1.0), (0.01, 2.0)), ((1.0, 0.0),))


def outcome(pair: Mixtures, loss: float) -> Any:
    """The outcome at which P is e^loss times as likely as Q."""

    def log(weights: Any, x: Any) -> Any:
        terms = (w * mpmath.exp(m * x - mpmath.mpf(m) ** 2 / 2) for w, m in weights)
        return mpmath.log(mpmath.fsum(terms))

    low, high = mpmath.mpf(-40), mpmath.mpf(40)
    for _ in range(120):
        middle = (low + high) / 2
        below = log(pair.up, middle) - log(pair.down, middle) < loss
        low, high = (middle, high) if below else (low, middle)
    return low


@pytest.mark.parametrize("pair", [EXCHANGE, TWO, EXCHANGE.reverse, TWO.reverse], ids=repr)
def test_masses_of_mixtures_are_right(pair: Mixtures) -> None:
    """At a loss that is the stated one, up to the error that the grid allows for, the masses beyond
    it are those of the normal distributions beyond one outcome.
    """
    up, down = (pair.down, pair.up) if pair.turned else (pair.up, pair.down)
    low, high = pair.span
    for loss in np.linspace(low, high, 23)[1:-1]:
        (p,), (q,) = pair.above(np.array([loss]))
        with mpmath.workdps(40):
            side = -1 if pair.turned else 1
            x = outcome(pair, side * float(loss))
            for found, weights in ((p, up), (q, down)):
                truth = sum(w * mpmath.ncdf(side * (m - x)) for w, m in weights)
                assert abs(found / truth - 1) < 1e-9


@pytest.mark.parametrize(
    ("general", "special"),
    [
        (Sampled(Gaussian(0.8), 0.1), SampledGaussian(0.8, 0.1)),
        (Mixtures(((0.9, 0.0), (0.1, 0.8)), ((1.0, 0.0),)), SampledGaussian(0.8, 0.1)),
        (
            Blend(SampledGaussian(0.8, 0.1), SampledGaussian(2.0, 0.1), 0.0),
            SampledGaussian(0.8, 0.1),
        ),
        (Sampled(Response(1.5), 0.2), Sampled(Response(1.5), 0.2)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("count", [1, 50])
def test_pairs_that_are_the_same_have_the_same_total(
    general: Pair, special: Pair, count: int
) -> None:
    """A sample, as a general pair or a mixture, and a blend of nothing, is what it is."""
    one, other = total({general: count}, 1e-5), total({special: count}, 1e-5)
    assert abs(one.upper - other.upper) < 1e-6
    assert one.lower <= other.upper


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@pytest.mark.parametrize("rate", [0.01, 0.5])
def test_a_response_on_a_fixed_sample_is_its_three_outcomes(epsilon: float, rate: float) -> None:
    """On a sample of fixed size randomised response has a likely outcome, its mirror image and one
    that tells nothing: less than the smaller response that its amplified epsilon stands for.
    """
    pair = Mirrored(Sampled(Response(epsilon), rate))
    q = 1 / (1 + math.exp(epsilon))
    p = (1 - rate) * q + rate * (1 - q)
    assert abs(total({pair: 1}, p / 10**4).upper - math.log(0.9999 * p / q)) < 1e-3
    smaller = Response(math.log1p(rate * math.expm1(epsilon)))
    assert total({pair: 20}, 1e-6).upper < total({smaller: 20}, 1e-6).upper


def test_nothing_is_lost_where_both_are_the_same() -> None:
    """A pair that is the same loses nothing; half of the time the same, a response costs less."""
    assert total({Same(): 5}, 1e-6).upper < 1e-3
    half = total({Blend(Response(1.0), Same(), 0.5): 1}, 1e-6).upper
    assert half < total({Response(1.0): 1}, 1e-6).upper


ROWS: list[tuple[str, dict[str, Any], int, Relation, float, float]] = [
    # name, step, steps, relation, dp_accounting's PLD at 1e-6, and by how much ours may differ
    ("Poisson, replaced", noise("1.1", sampling=POISSON, **ADDED), 1000, REPLACE, 2.80071, 1e-4),
    ("two records", noise("1.1", sampling=POISSON, group_size=2), 1000, ADD, 3.75956, 1e-4),
    ("four records", noise("2", sampling=POISSON, group_size=4), 1000, ADD, 3.26989, 1e-4),
    ("cut", noise("1.1", sampling=CUT), 1000, ADD, 5.13740, 0.002),
    ("cut, replaced", noise("1.1", sampling=CUT, **ADDED), 1000, REPLACE, 5.50065, 0.01),
    ("sampled Laplace", LAPLACE | {"sampling": POISSON}, 1000, ADD, 1.28642, 1e-4),
    ("emptied", noise("1.1", sampling=POISSON, **ADDED), 1000, ZERO_OUT, 1.75299, 1e-4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "steps", "population", "oracle", "room"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_plans_of_training_agree_with_another_implementation(
    body: dict[str, Any], steps: int, population: Relation, oracle: float, room: float
) -> None:
    """The tight total of training is dp_accounting's (0.6, grid 1e-4), and never above the gate."""
    plan = [parse(body | {"count": steps})]
    found = tight(plan, population, Fraction(1, 10**6))
    assert found.pld is not None
    assert found.pld.lower * 0.999 <= oracle * (1 + room)
    assert abs(found.upper / oracle - 1) < room + 1e-4


def test_a_fixed_batch_costs_less_than_a_bound_for_any_mechanism() -> None:
    """100 of 10^4, sigma 1.1, a thousand steps: 12.6, where the general bound says 17.9."""
    sampling = {"without_replacement": {"sample": 100, "of": 10**4}}
    plan = [parse(noise("0.55", sampling=sampling, count=1000))]
    assert 12.6 < tight(plan, REPLACE, Fraction(1, 10**6)).upper < 12.61


def test_a_fixed_sample_of_real_data_is_within_its_pair() -> None:
    """Two of four numbers are summed with normal noise; one number is replaced. The curve of the
    two mixtures, at several epsilons, is at most that of the mirrored pair.
    """
    data, other = [0.0, 0.3, 1.0, 1.0], [0.0, 0.3, 1.0, 0.0]
    pair = Mirrored(SampledGaussian(1.0, 0.5))
    ours, theirs = (
        [values[i] + values[j] for i in range(4) for j in range(i + 1, 4)]
        for values in (data, other)
    )
    xs = np.linspace(-12, 14, 200_001)

    def density(means: list[float]) -> Any:
        return (
            sum(np.exp(-((xs - m) ** 2) / 2) for m in means) / len(means) / math.sqrt(2 * math.pi)
        )

    p, q = density(ours), density(theirs)
    for epsilon in (0.01, 0.2, 0.6):
        (above_p,), (above_q,) = pair.above(np.array([epsilon]))
        bound = above_p - math.exp(epsilon) * above_q
        for one, two in ((p, q), (q, p)):
            delta = np.maximum(one - math.exp(epsilon) * two, 0).sum() * (xs[1] - xs[0])
            assert delta <= bound + 1e-9


def test_four_questions_on_one_sample_are_one_step() -> None:
    """A list of normal noise on one sample has the pair of the step that it is; so has a sample of
    a sample.
    """
    parts = [noise("2.2", count=2), noise("2.2"), noise("2.2")]
    together = parse({"kind": "composed", "mechanisms": parts, "sampling": POISSON})
    one = parse(noise("1.1", sampling=POISSON))
    assert pair_of(together, ADD) == pair_of(one, ADD)
    inner = noise("1.1", sampling={"poisson": "0.1"})
    nested = parse({"kind": "composed", "mechanisms": [inner], "sampling": {"poisson": "0.1"}})
    assert pair_of(nested, ADD) == pair_of(one, ADD)


GATED: list[tuple[dict[str, Any], Relation]] = [
    (noise("1.1", sampling={"poisson": "1e-30"}, count=10**6), ADD),
    (noise("1.1", sampling={"poisson": "1"}, count=10), ADD),
    (noise("1.1", sampling={"allocation": 100}, count=10), ADD),
    (noise("3", sampling=POISSON, group_size=1000, count=10), ADD),
    ({"kind": "laplace", "sensitivity": {"l1": "1"}, "scale": "4", "count": 50}, ADD),
    ({"kind": "randomized_response", "theta": "0.4", "categories": 10, "count": 20}, REPLACE),
    ({"kind": "exponential", "sensitivity": "1", "scale": "20", "count": 100}, ADD),
    ({"kind": "declared", "renyi": {"8": "0.05", "32": "0.3"}, "count": 3}, ADD),
    ({"kind": "declared", "mu": "0.3", "count": 3}, ADD),
    ({"kind": "declared", "rho": "0.01", "delta": "1e-9", "count": 3}, ADD),
    ({"kind": "repeat_and_select", "mean": "10", "mechanism": noise("4")}, ADD),
    ({"kind": "tree_aggregation", "sensitivity": "1", "scale": "8", "leaves": [99]}, ZERO_OUT),
]


@pytest.mark.parametrize(("body", "population"), GATED, ids=lambda value: str(value)[:60])
def test_no_report_is_above_the_gate_beside_it(body: dict[str, Any], population: Relation) -> None:
    """Whatever a filter proves of a list, the tight total proves too: it is never more."""
    plan, delta, own = [parse(body)], Fraction(1, 10**6), Fraction(1, 10**7)
    found = tight(plan, population, delta).upper

    def total_at(orders: Orders) -> Charge:
        return sum_of(price(one, population, orders).charge for one in plan)

    for name, filter_ in FILTERS.items():
        if name == "basic":
            continue
        epsilon = least_epsilon(filter_, delta, own, total_at)
        assert epsilon is None or found <= float(epsilon) * (1 + 1e-6)


def test_a_sample_of_everything_costs_no_less_than_a_part() -> None:
    """From rare samples to all of the data the tight total rises, and ends where there is none."""
    rates = ["1e-30", "1e-9", "0.001", "0.5", "0.999999", "1"]
    found = [
        tight(
            [parse(noise("1.1", sampling={"poisson": rate}, count=20))], ADD, Fraction(1, 10**6)
        ).upper
        for rate in rates
    ]
    whole = tight([parse(noise("1.1", count=20))], ADD, Fraction(1, 10**6)).upper
    assert found == sorted(found)
    assert found[-1] == whole


def test_discrete_noise_on_a_sample_has_its_own_total() -> None:
    """Discrete Gaussian noise on a sample costs within a percent of its lower end."""
    body = {"kind": "discrete_gaussian", "sensitivity": "1", "scale": "1.1", "sampling": POISSON}
    found = tight([parse(body | {"count": 1000})], ADD, Fraction(1, 10**6))
    assert found.pld is not None
    assert found.upper <= found.pld.lower * 1.01
    assert isinstance(pair_of(parse(body), ADD), Sampled)
    vector = {"kind": "laplace", "sensitivity": {"l1": "1"}, "scale": "1", "sampling": POISSON}
    assert pair_of(parse(vector), ADD) is None
    assert isinstance(pair_of(parse(vector | {"sensitivity": "1"}), ADD), Sampled)
    assert Sampled(Laplace(1.0), 0.01).reverse.span[1] == -Sampled(Laplace(1.0), 0.01).span[0]
