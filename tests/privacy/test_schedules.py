"""Totals of schedules that were fixed in advance, held against exact sums and golden values."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant.privacy.composition.closed_forms import (
    MOST,
    closed_form,
    divergence,
    optimal_epsilon,
    renyi_epsilon,
)
from accountant.privacy.composition.discrete_pairs import DiscreteGaussian
from accountant.privacy.composition.pairs import (
    Gaussian,
    Laplace,
    Pair,
    Response,
)
from accountant.privacy.composition.plan import tight
from accountant.privacy.composition.pld import Interval, total
from accountant.privacy.composition.sampled_pairs import Sampled
from accountant.privacy.inverse import largest_count, smallest_factor
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "schedules.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["kov15_optimal_homogeneous"], ids=str)
def test_the_optimal_total_is_the_golden_one(row: dict[str, Any]) -> None:
    """Never below the exact inversion of the continuous curve, and within 1e-9 of it."""
    epsilon, delta, total_delta = (float(row[k]) for k in ("eps", "delta", "delta_total"))
    truth = float(row["eps_optimal_continuous"])
    found = optimal_epsilon(epsilon, delta, row["k"], total_delta)
    assert found is not None
    assert truth * (1 - 1e-15) <= found <= truth + 1e-9
    inside = total({Response(epsilon, delta): row["k"]}, total_delta)
    assert inside.lower <= truth <= inside.upper


@given(
    st.floats(0.001, 3), st.sampled_from([0.0, 1e-9, 1e-3]), st.integers(1, 60),
    st.sampled_from([1e-12, 1e-6, 1e-2, 0.3]),
)  # fmt: skip
def test_the_optimal_total_inverts_the_exact_curve(
    epsilon: float, delta: float, count: int, at: float
) -> None:
    """At what is returned the exact curve is at most delta; a little below, it is more."""
    found = optimal_epsilon(epsilon, delta, count, at)
    assert found is not None
    with mpmath.workdps(60):
        if found == math.inf:
            assert 1 - (1 - mpmath.mpf(delta)) ** count > at
            return
        assert exact_curve(epsilon, delta, count, found) <= mpmath.mpf(at)
        if found > 1e-6:
            assert exact_curve(epsilon, delta, count, found - 1e-6) > mpmath.mpf(at) * (1 - 1e-9)


def exact_curve(epsilon: float, delta: float, count: int, at: float) -> mpmath.mpf:
    """Delta of k-fold randomised response at an epsilon, exactly."""
    e, x = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(at)
    above = mpmath.mpf(0)
    for i in range(count + 1):
        loss = (count - 2 * i) * mpmath.mpf(epsilon)
        if loss > x:
            p = mpmath.binomial(count, i) * e ** (count - i) / (1 + e) ** count
            above += p * (1 - mpmath.exp(x - loss))
    return 1 - (1 - mpmath.mpf(delta)) ** count * (1 - above)


@pytest.mark.parametrize("bad", [(0, 0, 1, 0.1), (math.nan, 0, 1, 0.1), (1, 1, 1, 0.1),
    (1, 0, 0, 0.1), (1, 0, 1, 1), (1, 0, 1, math.nan), (math.inf, 0, 1, 0.1)])  # fmt: skip
def test_what_is_no_composition_is_an_error(bad: tuple[float, float, int, float]) -> None:
    """Nothing returns zero or NaN for parameters that mean nothing."""
    with pytest.raises(ValueError, match="composition"):
        optimal_epsilon(*bad)


def test_too_many_terms_are_not_guessed() -> None:
    """Beyond what is added up term by term there is no answer, rather than a wrong one."""
    assert optimal_epsilon(0.01, 0, MOST + 1, 1e-6) is None


@pytest.mark.parametrize("row", GOLDEN["gaussian_exact"], ids=str)
def test_gaussian_totals_enclose_the_exact_curve(row: dict[str, Any]) -> None:
    """One Gaussian, and the same in 25 pieces: Balle and Wang's value lies in the interval."""
    mu, delta, truth = float(row["mu"]), float(row["delta"]), float(row["eps"])
    for pieces in (1, 25):
        found = total({Gaussian(mu / math.sqrt(pieces)): pieces}, delta)
        assert found.lower <= truth <= found.upper
        assert found.upper - truth < 1e-3 * max(1.0, truth)


@pytest.mark.parametrize("row", GOLDEN["mv16_optimal_heterogeneous"], ids=str)
def test_unequal_mechanisms_enclose_the_optimum(row: dict[str, Any]) -> None:
    """Murtagh and Vadhan's optimal composition of unequal mechanisms lies in the interval."""
    pairs: dict[Pair, int] = {
        Response(float(e), float(d)): 1 for e, d in zip(row["eps"], row["delta"], strict=True)
    }
    found = total(pairs, float(row["delta_total"]))
    assert found.lower <= float(row["eps_optimal"]) <= found.upper <= found.lower + 2e-3


def test_a_thousand_unequal_mechanisms() -> None:
    """500 Laplace and 500 Gaussian mechanisms, scales from 30 to 150: within 1e-3 of 2.625."""
    scales = np.geomspace(30, 150, 500)
    mu = math.sqrt(sum((1 / s) ** 2 for s in scales))
    schedule: dict[Pair, int] = {Laplace(1 / s): 1 for s in scales}
    found = total(schedule | {Gaussian(mu): 1}, 1e-6)
    assert 2.6245 <= found.upper <= 2.626
    assert found.lower <= 2.625


@given(st.floats(0.01, 5), st.floats(1e-9, 0.5))
def test_one_laplace_mechanism_is_its_closed_form(epsilon: float, delta: float) -> None:
    """delta = 1 - e^((x - epsilon)/2) lies in the interval."""
    truth = max(0.0, epsilon + 2 * math.log1p(-delta))
    found = total({Laplace(epsilon): 1}, delta, grid=1e-3)
    assert found.lower - 1e-12 <= truth <= found.upper + 1e-12


responses = st.dictionaries(
    st.builds(Response, st.floats(0.01, 2), st.sampled_from([0.0, 1e-4])),
    st.integers(1, 2), min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=examples(30))
@given(responses, st.sampled_from([1e-6, 1e-3, 0.1]))
def test_small_schedules_enclose_the_enumerated_truth(
    schedule: dict[Response, int], delta: float
) -> None:
    """Every outcome of a few unequal responses, enumerated: the truth lies in the interval."""
    rows = [(0.0, 1.0)]
    hidden = 1.0
    for pair in (p for p, n in schedule.items() for _ in range(n)):
        up = 1 / (1 + math.exp(-pair.epsilon))
        steps = [(pair.epsilon, up), (-pair.epsilon, 1 - up)]
        rows = [(a + b, p * q) for (a, p), (b, q) in product(rows, steps)]
        hidden *= 1 - pair.infinite

    def curve(x: float) -> float:
        return 1 - hidden + hidden * sum(p * -math.expm1(x - a) for a, p in rows if a > x)

    found = total(dict(schedule), delta, grid=1e-3)
    if found.upper < math.inf:
        assert curve(found.upper) <= delta * (1 + 1e-9)
    if 0 < found.lower < math.inf:
        assert curve(found.lower) >= delta * (1 - 1e-9)


@cache
def straight(count: int) -> Interval:
    """The total of some unequal mechanisms in one order."""
    return total(dict(unequal(count)), 1e-6, grid=1e-3)


def unequal(count: int) -> list[tuple[Pair, int]]:
    """So many of each."""
    return [(Laplace(0.1 * (i + 1)), count) for i in range(5)] + [(Gaussian(0.3), 1)]


@given(st.permutations(range(6)), st.sampled_from([1, 6, 40]))
def test_order_never_matters(order: list[int], count: int) -> None:
    """The same schedule in another order has the very same total, to the last bit."""
    items = unequal(count)
    assert total(dict(items[i] for i in order), 1e-6, grid=1e-3) == straight(count)


@given(st.floats(0.01, 2), st.integers(1, 200), st.floats(1.05, 2))
def test_more_noise_never_costs_more(epsilon: float, count: int, factor: float) -> None:
    """Less epsilon each, or fewer of them, is never shown to cost clearly more."""
    whole = total({Laplace(epsilon): count}, 1e-6, grid=1e-3)
    for less in ({Laplace(epsilon / factor): count}, {Laplace(epsilon): max(1, count // 2)}):
        assert total(dict(less), 1e-6, grid=1e-3).lower <= whole.upper


EXTREMES: list[dict[Pair, int]] = [
    {Laplace(0.01): 10**9},
    {Laplace(1e-9): 10**9},
    {Laplace(500.0): 3},
    {Gaussian(1e-6): 10**9},
    {Gaussian(30.0): 5},
    {Response(1.0, 0.5): 1000},
    {Response(1e-5): 1, Laplace(50.0): 1},
    {Response(90_000.0): 1, Sampled(DiscreteGaussian(1, 4.5), 1e-12): 1000},
]


@pytest.mark.parametrize("schedule", EXTREMES, ids=str)
def test_absurd_schedules_have_an_answer(schedule: dict[Pair, int]) -> None:
    """Whatever the counts and scales: an interval, in bounded time, never NaN or negative."""
    found = total(schedule, 1e-6)
    assert 0 <= found.lower <= found.upper


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_a_delta_is_a_probability(delta: float) -> None:
    """Anything but a probability between 0 and 1 is refused."""
    with pytest.raises(ValueError, match="delta"):
        total({Laplace(1.0): 1}, delta)


@pytest.fixture(scope="module")
def peer() -> Any:
    """Another implementation, as an oracle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting.pld import privacy_loss_distribution  # noqa: PLC0415
    return privacy_loss_distribution


@pytest.mark.parametrize(
    ("laplace", "gaussian"), [((20.0, 50), (10.0, 20)), ((2.0, 3), (5.0, 1)), ((100.0, 900), None)]
)
def test_totals_agree_with_another_implementation(
    peer: Any, laplace: tuple[float, int], gaussian: tuple[float, int] | None
) -> None:
    """dp-accounting's upper bound is not below our interval, and hardly above it."""
    schedule: dict[Pair, int] = {Laplace(1 / laplace[0]): laplace[1]}
    theirs = peer.from_laplace_mechanism(laplace[0], value_discretization_interval=1e-4)
    theirs = theirs.self_compose(laplace[1])
    if gaussian:
        schedule[Gaussian(1 / gaussian[0])] = gaussian[1]
        more = peer.from_gaussian_mechanism(gaussian[0], value_discretization_interval=1e-4)
        theirs = theirs.compose(more.self_compose(gaussian[1]))
    for delta in (1e-4, 1e-6, 1e-9):
        found, other = total(schedule, delta), float(theirs.get_epsilon_for_delta(delta))
        assert found.lower <= other
        assert abs(found.upper - other) < (1e-3 if delta > 1e-8 else 1e-2 * other)


def test_a_count_is_never_forgotten() -> None:
    """100 answers by two coins cost 94.29; a well-known accountant once charged them as one."""
    found = optimal_epsilon(math.log(3), 0.0, 100, 1e-6)
    assert found == pytest.approx(94.29, abs=0.01)
    inside = total({Response(math.log(3)): 100}, 1e-6)
    assert inside.lower <= found <= inside.upper


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_largest_count_is_found(truth: int, most: int) -> None:
    """The last count that fits, none beyond what is asked about."""
    assert largest_count(lambda n: n <= truth, most) == min(truth, max(most, 1))


@given(st.decimals("1e-9", "1e9", places=9))
def test_the_smallest_factor_is_rounded_up(truth: Decimal) -> None:
    """What is returned fits, and is at most a part in a million more than needed."""
    found = smallest_factor(lambda factor: factor >= truth)
    assert found is not None
    assert truth <= found <= truth * (1 + Decimal("1e-6"))
    assert smallest_factor(lambda factor: False) is None


@pytest.mark.parametrize("row", GOLDEN["kov15_heterogeneous_closed_form"], ids=lambda r: r["name"])
def test_the_closed_form_is_the_golden_one(row: dict[str, Any]) -> None:
    """Never below the theorem's value, and within 1e-9 of it."""
    each = row["eps"] if isinstance(row["eps"], list) else [row["eps"]] * row["k"]
    losses = Counter((float(e), float(row["delta"])) for e in each)
    found = closed_form(losses, float(row["delta_total"]))
    assert float(row["eps_min"]) * (1 - 1e-15) <= found <= float(row["eps_min"]) + 1e-9


@pytest.mark.parametrize("row", GOLDEN["mechanism_rdp"], ids=lambda r: f"{r['eps']} {r['alpha']}")
def test_divergences_are_the_golden_ones(row: dict[str, Any]) -> None:
    """Laplace noise, and randomised response for any pure mechanism: from above, within 1e-9."""
    order = np.array([float(row["alpha"])])
    for pair, name in ((Laplace, "laplace"), (Response, "pure_dp_tight_RR")):
        [found] = divergence(pair(float(row["eps"])), order)
        assert float(row[name]) * (1 - 1e-15) <= found <= float(row[name]) + 1e-9


def test_how_many_queries_each_theorem_allows() -> None:
    """Laplace queries of 0.01 within (1, 1e-6): as many as golden, and one more is too much."""
    ways: list[tuple[Callable[[int], bool], int]] = [
        (lambda n: closed_form({(0.01, 0.0): n}, 1e-6) <= 1, 393),
        (lambda n: renyi_epsilon({Laplace(0.01): n}, 1e-6) <= 1, 492),
        (lambda n: (optimal_epsilon(0.01, 0.0, n, 1e-6) or 2.0) <= 1, 562),
        (lambda n: total({Laplace(0.01): n}, 1e-6).upper <= 1, 564),
    ]
    for fits, truth in ways:
        assert fits(truth)
        assert not fits(truth + 1)


@given(st.floats(0.01, 3), st.integers(1, 300), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_theorems_agree_on_who_is_tighter(epsilon: float, count: int, delta: float) -> None:
    """No looser theorem is below the lower end of what is exact."""
    exact = optimal_epsilon(epsilon, 0.0, count, delta)
    assert exact is not None
    assert closed_form({(epsilon, 0.0): count}, delta) >= exact * (1 - 1e-9)
    assert renyi_epsilon({Response(epsilon): count}, delta) >= exact * (1 - 1e-9)
    laplace = total({Laplace(epsilon): count}, delta, grid=1e-3)
    assert laplace.lower <= min(exact, renyi_epsilon({Laplace(epsilon): count}, delta))


def test_the_closed_form_is_right_where_an_odometer_is_wrong() -> None:
    """The two published slips of smartnoise-sql's odometer: the deltas multiply as 1 - prod(1 - d),
    and the logarithm has e, not epsilon, in it (golden/known_bad).
    """
    delta_row, epsilon_row = GOLDEN["known_bad_odometer"]["rows"]
    right, wrong = delta_row["correct_delta"], delta_row["returned_delta"]
    hundred = {(0.1, 0.01): 100}
    assert math.isfinite(closed_form(hundred, right))
    assert closed_form(hundred, wrong) == math.inf  # less than the mechanisms' own deltas
    whole = 1 - (1 - 5e-4) * 0.999**1000
    found = closed_form({(0.01, 1e-3): 1000}, whole)
    assert epsilon_row["returned_eps"] < epsilon_row["correct_eps"] <= found
    assert found == pytest.approx(epsilon_row["correct_eps"], rel=1e-11)


@pytest.mark.parametrize("row", GOLDEN["gaussian_exact"], ids=str)
def test_only_normal_noise_has_its_exact_curve(row: dict[str, str]) -> None:
    """A list of nothing but normal noise is one Gaussian of the summed mu^2: never below the golden
    value, above it by a billionth at most.
    """
    noise = parse({"kind": "gaussian", "sensitivity": row["mu"], "scale": "2", "count": 4})
    delta, golden = Fraction(row["delta"]), Fraction(row["eps"])
    found = tight([noise], Relation.ADD_OR_REMOVE_ONE, delta).gaussian
    assert found is not None
    assert 0 <= Fraction(found) - golden <= Fraction(2, 10**9)


@pytest.mark.parametrize(
    "parts",
    [
        ({"kind": "gaussian", "scale": "2"}, {"kind": "laplace", "scale": "9"}),
        ({"kind": "discrete_gaussian", "scale": "2", "count": 2},),
    ],
    ids=["beside another", "two discrete ones"],
)
def test_other_lists_have_no_exact_curve(parts: tuple[dict[str, Any], ...]) -> None:
    """Normal noise beside anything else, and discrete normal noise twice, have no closed number."""
    listed = [parse({"sensitivity": "1"} | part) for part in parts]
    assert tight(listed, Relation.ADD_OR_REMOVE_ONE, Fraction("1e-6")).gaussian is None


@pytest.mark.parametrize(("width", "scale"), [(1, "1"), (1, "1.0625"), (2, "0.7"), (5, "40")])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-12"])
def test_a_discrete_gaussian_has_its_exact_curve(width: int, scale: str, delta: str) -> None:
    """One discrete Gaussian: the sum over whole numbers at the epsilon found is within delta, and
    a millionth less of it is not.
    """
    body = {"kind": "discrete_gaussian", "sensitivity": str(width), "scale": scale}
    found = tight([parse(body)], Relation.ADD_OR_REMOVE_ONE, Fraction(delta)).gaussian
    assert found is not None
    with mpmath.workdps(40):
        s = mpmath.mpf(scale)
        reach = int(40 * s) + 20
        mass = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s)) for k in range(-reach, reach + 1)]
        whole = mpmath.fsum(mass)

        def curve(epsilon: mpmath.mpf) -> mpmath.mpf:
            pairs = zip(mass + [0] * width, [0] * width + mass, strict=True)
            bound = mpmath.exp(epsilon)
            return mpmath.fsum(max(0, p - bound * q) for p, q in pairs) / whole

        assert curve(mpmath.mpf(found)) <= mpmath.mpf(delta)
        assert curve(mpmath.mpf(found) * (1 - mpmath.mpf("1e-6"))) > mpmath.mpf(delta)


def parse(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that a request body describes."""
    return TypeAdapter(Mechanism).validate_python(body)
