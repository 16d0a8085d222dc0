"""Laws that every kind of mechanism obeys, and what the prices mean, from first principles."""

from __future__ import annotations

import itertools
import math
import time
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant.privacy.mechanisms import (
    KINDS,
    BaseMechanism,
    Mechanism,
    Relation,
    SparseVector,
    price,
)
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.mechanisms.selection import Exponential
from accountant.privacy.units import LARGEST, NOTHING, SURE, Charge, Currency, charge_of, total

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE, ZERO_OUT = Relation
PATIENCE = 0.5
"""Seconds that any one price may take, on a slow machine too."""


def parse(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that a request body describes."""
    return ADAPTER.validate_python(body)


amounts = st.builds(
    lambda digits, exponent: f"{digits}e{exponent}", st.integers(1, 999), st.integers(-9, 9)
)


rates = st.sampled_from(["1e-9", "0.01", "0.5", "0.999", "1"])
LEAVES = ("laplace", "discrete_laplace", "gaussian", "discrete_gaussian", "exponential")
LOCAL = ("unary_encoding", "randomized_response", "forced_response")
NO_SCALE = ("declared", "non_private", *LOCAL)
STEPS = ("gaussian_mixture", "tree_aggregation")
UNSAMPLED = (*NO_SCALE, *STEPS, "repeat_and_select")
leaves = st.sampled_from([1, 2, 1600, 10**6])
ORDERS = (2, 22, 700)


@st.composite
def noises(draw: st.DrawFn, kinds: tuple[str, ...] = LEAVES) -> dict[str, Any]:
    """The fields of mechanisms that only have noise, over scales from 1e-9 to 1e12."""
    kind, width, scale = draw(st.sampled_from(kinds)), draw(amounts), draw(amounts)
    body: dict[str, Any] = {"kind": kind, "sensitivity": width, "scale": scale}
    match kind:
        case "discrete_laplace":
            body["sensitivity"] = draw(st.integers(1, 10**9))
        case "gaussian" | "discrete_gaussian":
            body["delta"] = draw(st.sampled_from([None, "1e-30", "1e-9", "0.3"]))
            if kind == "discrete_gaussian":
                body["sensitivity"] = draw(st.integers(1, 10**9))
        case "exponential" | "permute_and_flip":
            body["monotonic"] = draw(st.booleans())
    return body


@st.composite
def sessions(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of sparse vector sessions, sound and broken."""
    return {
        "kind": "sparse_vector",
        "sensitivity": draw(amounts),
        "threshold_scale": draw(st.sampled_from(["0", draw(amounts)])),
        "comparison_scale": draw(amounts),
        "max_positives": draw(st.sampled_from([None, 1, 10, 10**9])),
        "monotonic": draw(st.booleans()),
    }


@st.composite
def compounds(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """The fields of mechanisms that are made of others."""
    part, body = draw(noises()), {"kind": kind}
    match kind:
        case "composed":
            inner = part | draw(st.sampled_from([{}, {"sampling": {"poisson": "0.1"}}]))
            body |= {"mechanisms": [inner, draw(noises() | sessions()), part | {"count": 7}]}
        case "subsample_and_aggregate":
            body |= {"aggregator": part, "blocks_per_unit": draw(st.sampled_from([1, 3, 10**6]))}
        case "propose_test_release":
            body |= {"distance_scale": draw(amounts), "threshold": draw(amounts), "release": part}
        case "multiplicative_weights":
            offline = {"rounds": draw(st.sampled_from([1, 10**6])), "selection": part}
            offline["measurement"] = draw(noises())
            answers = {"releases": "fresh_noisy_answer", "answer_scale": draw(amounts)}
            online = {"updates": draw(sessions()) | answers}
            body |= draw(st.sampled_from([offline, online]))
        case "boosting":
            body |= {"rounds": 20, "draws": draw(st.sampled_from([1, 10**6])), "base": part}
            body |= {"draw": draw(noises(("exponential",)))}
        case "repeat_and_select":
            runs = draw(
                st.sampled_from([{}, {"shape": "0"}, {"shape": "7.5"}, {"runs": "poisson"}])
            )
            body |= {"mechanism": part, "mean": draw(st.sampled_from(["1", "10", "1e9"]))} | runs
        case "reusable_holdout":
            names = ("sensitivity", "threshold_scale", "comparison_scale", "answer_scale")
            body |= {name: draw(amounts) for name in names}
            body |= {"budget": draw(st.sampled_from([1, 50, 10**9]))}
    return body


@st.composite
def steps(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """The fields of steps of learning."""
    scale = draw(amounts)
    if kind == "gaussian_mixture":
        moves = [{"by": "0", "chance": "0.5"}, {"by": draw(amounts), "chance": "0.5"}]
        return {"scale": scale, "moves": moves}
    trees = {"leaves": [1, draw(leaves)], "leaves_per_unit": draw(st.sampled_from([1, 3]))}
    return {"sensitivity": draw(amounts), "scale": scale} | trees


@st.composite
def samples(draw: st.DrawFn) -> dict[str, Any]:
    """Every way of sampling."""
    rate = draw(rates)
    cut = {"rate": rate, "of": 10**6, "at_most": draw(st.sampled_from([3, 10_500, 10**6]))}
    ways = [
        {"without_replacement": {"sample": 3, "of": 10**6}},
        {"poisson": rate},
        {"truncated": cut},
        {"allocation": draw(leaves)},
    ]
    return draw(st.sampled_from(ways))


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Legal mechanisms of every kind but plans, over a range of scales from 1e-9 to 1e12."""
    kind, scale = draw(st.sampled_from([k for k in KINDS if k != "plan"])), draw(amounts)
    body: dict[str, Any] = {"kind": kind}
    match kind:
        case "randomized_response":
            body |= draw(
                st.sampled_from(
                    [
                        {"truth_probability": "0"},
                        {"truth_probability": "0." + "9" * 30, "categories": 10**9},
                        {"theta": "0.3"},
                        {"theta": "1e-30", "categories": 5},
                    ]
                )
            )
        case "forced_response":
            body |= {"truth_probability": draw(st.sampled_from(["1e-30", "0.5"]))}
        case "unary_encoding":
            body |= {"p": draw(st.sampled_from(["0.5", "0." + "9" * 30])), "q": "1e-9"}
            memory = {"memoised": "0.5", "reports": 10**9, "hashes": 2}
            body |= draw(st.sampled_from([{}, memory]))
        case "declared":
            word = {"epsilon": scale, "delta": draw(st.sampled_from(["0", "1e-9", "1"]))}
            body |= draw(
                st.sampled_from(
                    [
                        word,
                        {"rho": scale, "delta": word["delta"]},
                        {"mu": scale},
                        {"renyi": {"2": "0", "64": scale}},
                    ]
                )
            )
        case "sparse_vector":
            body = draw(sessions())
        case "non_private":
            pass
        case _ if kind in (*LEAVES, "permute_and_flip"):
            body = draw(noises((kind,)))
        case _:
            body |= draw(steps(kind) if kind in STEPS else compounds(kind))
    body |= draw(st.sampled_from([{}, *({"neighbouring": str(relation)} for relation in Relation)]))
    if kind not in ("declared", "non_private") and draw(st.booleans()):
        body |= {
            "claimed": {"epsilon": draw(amounts), "delta": draw(st.sampled_from(["0", "1e-7"]))}
        }
    if kind not in UNSAMPLED and draw(st.booleans()):
        body |= {"sampling": draw(samples())}
    return body | {"group_size": draw(st.sampled_from([1, 1, 2, 5, 10**6]))}


def cost(body: dict[str, Any], population: Relation, **more: Any) -> Charge:
    """The price of ``body`` in every currency, at a low, a middling and a high order."""
    return price(parse(body | more), population, ORDERS).charge


def within(one: Charge, other: Charge) -> bool:
    """True if ``one`` is at most ``other`` in every currency."""
    other = other.on(one.axis)
    ours = zip(one.infinite, one.finite, strict=True)
    theirs = zip(other.infinite, other.finite, strict=True)
    return all(mine <= more for mine, more in zip(ours, theirs, strict=True))


relations = st.sampled_from(list(Relation))


@settings(max_examples=examples(500), deadline=None)
@given(bodies(), relations, st.integers(1, 10**9))
def test_every_legal_mechanism_has_a_price(
    body: dict[str, Any], population: Relation, count: int
) -> None:
    """Pricing never raises, takes under half a second, costs something in every currency but
    delta, and stays within the largest sum. It costs no less than what is derived; a larger claim
    with a delta is charged that delta, and beside it the other currencies may cost less than what
    is derived without any.
    """
    began = time.process_time()
    mechanism = parse(body | {"count": count})
    priced = price(mechanism, population, ORDERS)
    assert time.process_time() - began < PATIENCE
    for currency in priced.charge.axis:
        units = priced.charge.units(currency)
        assert units is None or 0 <= units <= LARGEST
        assert units != 0 or currency == Currency.DELTA
    found = derive(mechanism, population)
    for loss in (found.derived, found.claimed):
        if loss is not None and not priced.charge.is_infinite(Currency.EPSILON):
            stated = charge_of(loss, count).on(SURE)
            assert within(stated, priced.charge)
    if found.derived is not None and not priced.objections:
        beside = found.derived.exact and found.claimed is not None and found.claimed.delta
        derived = charge_of(found.derived, count, ORDERS)
        assert within(derived.on(SURE) if beside else derived, priced.charge)


@settings(max_examples=examples(200), deadline=None)
@given(bodies(), relations, st.integers(1, 30))
def test_a_count_is_a_loop(body: dict[str, Any], population: Relation, count: int) -> None:
    """Count n charges in every currency what n charges of count 1 add up to."""
    one, many = cost(body, population), cost(body, population, count=count)
    looped: Charge = NOTHING
    for _ in range(count):
        looped = looped + one
    for currency in many.axis:
        assert many.is_infinite(currency) or many[currency] == looped[currency]
        assert many.is_infinite(currency) == (
            looped.is_infinite(currency) or looped[currency] > LARGEST
        )


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(bodies(), min_size=2, max_size=4), relations, st.randoms(use_true_random=False))
def test_the_order_never_matters(
    several: list[dict[str, Any]], population: Relation, random: Any
) -> None:
    """Any order of charging gives the same total, to the unit, infinities included."""
    charges = [cost(body, population) for body in several]
    shuffled = random.sample(charges, len(charges))
    assert total(charges) == total(shuffled)


def noisier(value: Any, factor: int, name: str = "") -> Any:
    """The same with every scale of noise multiplied, in the parts too; but for the noise on a
    distance that is tested, which also makes a wrong release more likely.
    """
    if isinstance(value, dict):
        return {key: noisier(one, factor, key) for key, one in value.items()}
    if isinstance(value, list):
        return [noisier(one, factor) for one in value]
    scale = name.endswith("scale") and name != "distance_scale"
    return Decimal(value) * factor if scale else value


@settings(max_examples=examples(300), deadline=None)
@given(bodies(), relations, st.integers(2, 10**6))
def test_more_noise_never_costs_more(
    body: dict[str, Any], population: Relation, factor: int
) -> None:
    """Multiplying every scale lowers the charge in each currency, or leaves it as it is."""
    if body["kind"] in NO_SCALE or "claimed" in body:
        return
    assert within(cost(noisier(body, factor), population), cost(body, population))


@settings(max_examples=examples(200), deadline=None)
@given(bodies(), relations, rates, rates)
def test_more_sampling_never_costs_less(
    body: dict[str, Any], population: Relation, one: str, other: str
) -> None:
    """A larger sample costs at least as much in each currency, and none more than all the data."""
    if body["kind"] in UNSAMPLED or "claimed" in body:
        return
    body["neighbouring"] = "add_or_remove_one"
    low, high = sorted((one, other), key=Decimal)
    smaller = cost(body, population, sampling={"poisson": low})
    larger = cost(body, population, sampling={"poisson": high})
    assert within(smaller, larger)
    assert within(larger, cost(body, population, sampling=None))


@settings(max_examples=examples(200), deadline=None)
@given(bodies(), relations, st.integers(1, 1000), st.integers(1, 1000))
def test_larger_groups_never_cost_less(
    body: dict[str, Any], population: Relation, size: int, more: int
) -> None:
    """A privacy unit that owns more records loses at least as much in each currency."""
    if "claimed" in body:
        return
    smaller = cost(body, population, group_size=size)
    assert within(smaller, cost(body, population, group_size=size + more))


@settings(max_examples=examples(300), deadline=None)
@given(bodies(), relations)
def test_a_pair_costs_at_least_twice_what_one_does(
    body: dict[str, Any], population: Relation
) -> None:
    """In every currency: what lets the largest cell bound a person who moves between two
    (budget/population/population.py).
    """
    if "claimed" in body:
        return
    one, two = cost(body, population, group_size=1), cost(body, population, group_size=2)
    check_twice(one, two)
    if body.get("neighbouring") == str(ADD) and population is REPLACE:
        check_twice(cost(body, ADD), cost(body, REPLACE))


def check_twice(one: Charge, two: Charge) -> None:
    """Check that a charge is at least twice another."""
    for currency in one.axis:
        single, double = one.units(currency), two.units(currency)
        moot = two.is_infinite(Currency.EPSILON) or double == currency.per_one
        certain = currency == Currency.DELTA and moot
        assert double is None or certain or (single is not None and 2 * single <= double + 2)


HUGE = {"kind": "exponential", "sensitivity": "29", "scale": "0.1", "monotonic": False}


@settings(max_examples=examples(200), deadline=None)
@given(bodies(), relations, st.integers(2, 10**5), st.integers(2, 10**5))
@example(HUGE | {"group_size": 5}, Relation.ADD_OR_REMOVE_ONE, 2, 2)
def test_renyi_divergences_do_not_fall_with_the_order(
    body: dict[str, Any], population: Relation, one: int, other: int
) -> None:
    """tau at a higher order is at least tau at a lower one, and never above epsilon; a unit is
    allowed for, as each is rounded up by itself.
    """
    low, high = sorted((one, other))
    charge = price(parse(body), population, (low, high) if low < high else (low,)).charge
    below, above = charge.units(Currency.tau(low)), charge.units(Currency.tau(high))
    assert above is None or (below is not None and below <= above + 1)
    epsilon = charge.units(Currency.EPSILON)
    if epsilon is not None and not charge.units(Currency.DELTA) and above is not None:
        assert above <= epsilon * 10**6 + 1


@settings(max_examples=examples(250), deadline=None)
@given(bodies(), relations, st.sampled_from(["1e-3", "10", "1000000"]))
def test_a_plan_of_one_part_costs_no_less_than_can_be_proved(
    body: dict[str, Any], population: Relation, epsilon: str
) -> None:
    """Inside a plan no part is cheaper than is proved: what has no bound has none, a delta of its
    own that no pair holds is not lost, and a plan that is refused costs what its part does.
    """
    if body["kind"] in ("declared", "non_private"):
        return
    part = {k: v for k, v in body.items() if k not in ("claimed", "neighbouring", "group_size")}
    plan = {"kind": "plan", "mechanisms": [part], "epsilon": epsilon, "delta": "1e-6"}
    direct, found = derive(parse(part), population), price(parse(plan), population)
    loss = direct.derived
    assert loss is not None
    own = Fraction(0) if loss.exact else loss.delta
    assert found.objections or not direct.objections
    bounds = (loss.epsilon, loss.rho, loss.curve.at(2))
    if bounds == (None, None, None) or own > Fraction("1e-6"):
        assert found.objections or loss.epsilon is not None
    if [objection.code for objection in found.objections] == ["plan-understated"]:
        assert found.charge == price(parse(part), population).charge
    if not found.objections and loss.rho is None:
        assert loss.epsilon is not None or loss.curve.at(2) is not None


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.floats(0, 1)), min_size=2, max_size=5),
    st.booleans(),
)
def test_the_exponential_mechanism_keeps_its_bound(
    scores: list[tuple[int, float]], monotonic: bool
) -> None:
    """No candidate's probability moves by more than e^epsilon between neighbours, either way."""
    mechanism = Exponential(
        kind="exponential", sensitivity=Decimal(1), scale=Decimal(3), monotonic=monotonic
    )
    moves = [m if monotonic else 2 * m - 1 for _, m in scores]
    before = [math.exp(score / 3) for score, _ in scores]
    after = [math.exp((score + move) / 3) for (score, _), move in zip(scores, moves, strict=True)]
    bound = mechanism.loss(ADD).epsilon
    assert bound is not None
    for one, other in zip(before, after, strict=True):
        assert abs(math.log(one / sum(before) / (other / sum(after)))) <= float(bound) + 1e-9


def transcript_probability(
    answers: tuple[int, ...], positives: tuple[bool, ...], threshold: float, comparison: float
) -> float:
    """The probability of a transcript, by integrating over the noisy threshold (around 0)."""
    grid = np.linspace(-60 * threshold, 60 * threshold, 120_001)
    density = np.exp(-np.abs(grid) / threshold) / (2 * threshold)
    for answer, positive in zip(answers, positives, strict=True):
        gap = (answer - grid) / comparison
        tail = np.exp(-np.abs(gap)) / 2
        above = np.where(gap > 0, 1 - tail, tail)
        density = density * (above if positive else 1 - above)
    return float(np.trapezoid(density, grid))


@pytest.mark.parametrize("monotonic", [False, True])
def test_the_realised_loss_of_a_sparse_vector_holds_along_every_path(monotonic: bool) -> None:
    """For each transcript, neighbours differ by at most the loss after its positives."""
    mechanism = SparseVector(
        kind="sparse_vector",
        sensitivity=Decimal(1),
        threshold_scale=Decimal(2),
        comparison_scale=Decimal(3),
        max_positives=3,
        monotonic=monotonic,
    )
    moves = [(1, 1, 1), (0, 1, 0)] if monotonic else [(1, 1, -1), (-1, -1, 1), (1, -1, 1)]
    answers = (0, 2, -1)
    for positives, move in itertools.product(itertools.product((False, True), repeat=3), moves):
        moved = tuple(a + m for a, m in zip(answers, move, strict=True))
        pair = [transcript_probability(a, positives, 2.0, 3.0) for a in (answers, moved)]
        bound = mechanism.loss_after(sum(positives), ADD).epsilon
        assert bound is not None
        assert abs(math.log(pair[0] / pair[1])) <= float(bound) + 1e-6


CUT = {"truncated": {"rate": "0.5", "of": 100, "at_most": 50}}
NOISE = {"kind": "laplace", "sensitivity": "1", "scale": "3"}
NESTED: dict[str, dict[str, Any]] = {
    "runs": {"kind": "repeat_and_select", "mean": "3"},
    "Poisson runs": {"kind": "repeat_and_select", "mean": "3", "runs": "poisson"},
    "cut samples": {"kind": "composed", "sampling": CUT},
    "samples": {"kind": "composed", "sampling": {"poisson": "0.5"}},
}


@pytest.mark.parametrize("population", [ADD, REPLACE])
@pytest.mark.parametrize("name", NESTED)
def test_nesting_takes_no_longer_than_it_must(name: str, population: Relation) -> None:
    """Mechanisms five levels deep are priced in under two seconds: each divergence of each level is
    worked out once, not once for every order at which the next level looks at it.
    """
    body: dict[str, Any] = NOISE
    for _ in range(5):
        outer = NESTED[name]
        repeats = outer["kind"] == "repeat_and_select"
        body = outer | ({"mechanism": body} if repeats else {"mechanisms": [body, NOISE]})
    began = time.process_time()
    found = cost(body | {"neighbouring": "add_or_remove_one"}, population)
    assert time.process_time() - began < PATIENCE * 4
    assert found.units(Currency.tau(22)) != 0
