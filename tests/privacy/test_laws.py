"""Laws that every kind of mechanism obeys, and what the prices mean, from first principles."""

from __future__ import annotations

import itertools
import math
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant.privacy.mechanisms import (
    KINDS,
    BaseMechanism,
    Exponential,
    Mechanism,
    Relation,
    SparseVector,
    price,
)
from accountant.privacy.units import LARGEST, NOTHING, Charge, Currency, charge_of

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE = Relation
PATIENCE = 0.5
"""Seconds that any one price may take, on a slow machine too."""


def parse(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that a request body describes."""
    return ADAPTER.validate_python(body)


amounts = st.builds(
    lambda digits, exponent: f"{digits}e{exponent}", st.integers(1, 999), st.integers(-9, 9)
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Legal mechanisms of every kind, over a range of scales from 1e-9 to 1e12."""
    kind, width, scale = draw(st.sampled_from(KINDS)), draw(amounts), draw(amounts)
    maybe = st.sampled_from([{}, {"neighbouring": "replace_one"}, {"neighbouring": str(ADD)}])
    body: dict[str, Any] = {"kind": kind} | draw(maybe)
    if kind not in ("declared", "non_private") and draw(st.booleans()):
        body |= {"claimed": {"epsilon": draw(amounts), "delta": "1e-7"}}
    match kind:
        case "laplace":
            body |= {"sensitivity": width, "scale": scale}
        case "discrete_laplace":
            body |= {"sensitivity": draw(st.integers(1, 10**9)), "scale": scale}
        case "gaussian":
            body |= {"sensitivity": width, "scale": scale}
            body |= {"delta": draw(st.sampled_from([None, "1e-30", "1e-9", "0.3"]))}
        case "exponential":
            body |= {"sensitivity": width, "scale": scale, "monotonic": draw(st.booleans())}
        case "randomized_response":
            body |= {"truth_probability": draw(st.sampled_from(["0", "0.3", "0." + "9" * 30]))}
        case "unary_encoding":
            body |= {"p": draw(st.sampled_from(["0.5", "0." + "9" * 30])), "q": "1e-9"}
        case "sparse_vector":
            body |= {
                "sensitivity": width,
                "threshold_scale": draw(st.sampled_from(["0", scale])),
                "comparison_scale": draw(amounts),
                "max_positives": draw(st.sampled_from([None, 1, 10, 10**9])),
                "monotonic": draw(st.booleans()),
            }
        case "declared":
            body |= {"epsilon": scale, "delta": draw(st.sampled_from(["0", "1e-9", "1"]))}
    return body


@settings(max_examples=300, deadline=None)
@given(bodies(), st.sampled_from(list(Relation)), st.integers(1, 10**9))
def test_every_legal_mechanism_has_a_price(
    body: dict[str, Any], population: Relation, count: int
) -> None:
    """Pricing never raises, takes under half a second, and stays within the largest sum."""
    began = time.perf_counter()
    priced = price(parse(body | {"count": count}), population)
    assert time.perf_counter() - began < PATIENCE
    assert all(0 <= units <= LARGEST for units in priced.charge.finite)
    assert priced.charge[Currency.EPSILON] >= 1 or priced.charge.is_infinite(Currency.EPSILON)
    for loss in (priced.derived, priced.claimed):
        if loss is not None:
            assert charge_of(loss, count).within(priced.charge)


@settings(max_examples=150, deadline=None)
@given(bodies(), st.sampled_from(list(Relation)), st.integers(1, 30))
def test_a_count_is_a_loop(body: dict[str, Any], population: Relation, count: int) -> None:
    """Count n charges in every currency what n charges of count 1 add up to."""
    one = price(parse(body), population).charge
    many = price(parse(body | {"count": count}), population).charge
    total: Charge = NOTHING
    for _ in range(count):
        total = total + one
    for currency in Currency:
        assert many.is_infinite(currency) or many[currency] == total[currency]
        assert many.is_infinite(currency) == (
            total.is_infinite(currency) or total[currency] > LARGEST
        )


@settings(max_examples=200, deadline=None)
@given(bodies(), st.sampled_from(list(Relation)), st.integers(2, 10**6))
def test_more_noise_never_costs_more(
    body: dict[str, Any], population: Relation, factor: int
) -> None:
    """Multiplying every scale lowers the charge or leaves it as it is."""
    if body["kind"] in ("declared", "unary_encoding", "randomized_response", "non_private"):
        return
    scales = [name for name in body if name.endswith("scale")]
    noisier = body | {name: Decimal(body[name]) * factor for name in scales}
    assert price(parse(noisier), population).charge.within(price(parse(body), population).charge)


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
