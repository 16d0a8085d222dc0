"""Builders of mechanisms, and numbers of any kind: what is sent is what was meant, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.dp_event import DpEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant import client
from accountant.budget.commands import AskGrant
from accountant.client.amounts import DOWN, MOST_DIGITS, UP, exact
from accountant.privacy.mechanisms import BaseMechanism, Mechanism

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
CLASSES = get_args(get_args(Mechanism)[0])
EXAMPLES = [
    (each, example)
    for each in CLASSES
    for example in each.model_config["json_schema_extra"]["examples"]
]


def numbers(body: Any) -> Any:
    """A body with its amounts as numbers of this language, not as strings."""
    if isinstance(body, dict):
        return {name: numbers(value) for name, value in body.items()}
    if isinstance(body, list):
        return [numbers(value) for value in body]
    try:
        return Decimal(body) if isinstance(body, str) else body
    except ArithmeticError:
        return body


@pytest.mark.parametrize(
    ("kind", "example"), EXAMPLES, ids=lambda value: getattr(value, "__name__", "")
)
def test_every_kind_can_be_built_from_numbers(kind: Any, example: dict[str, Any]) -> None:
    """Whatever kinds the service knows, the general builder spells their numbers."""
    built = client.mechanism(**numbers(example))
    assert ADAPTER.validate_python(built) == ADAPTER.validate_python(example)


BUILT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (client.laplace(1, 0.1), {"kind": "laplace", "sensitivity": "1", "scale": "0.1"}),
    (
        client.discrete_laplace(2, Decimal(4), count=3),
        {"kind": "discrete_laplace", "sensitivity": "2", "scale": "4", "count": 3},
    ),
    (
        client.gaussian({"l2": 1}, 4, delta="1e-8"),
        {"kind": "gaussian", "sensitivity": {"l2": "1"}, "scale": "4", "delta": "1e-8"},
    ),
    (
        client.discrete_gaussian(1, 4),
        {"kind": "discrete_gaussian", "sensitivity": "1", "scale": "4"},
    ),
    (
        client.exponential(1, 2, monotonic=True),
        {"kind": "exponential", "sensitivity": "1", "scale": "2", "monotonic": True},
    ),
    (client.permute_and_flip(1, 2), {"kind": "permute_and_flip", "sensitivity": "1", "scale": "2"}),
    (
        client.randomized_response(theta=0.75, categories=4),
        {"kind": "randomized_response", "theta": "0.75", "categories": 4},
    ),
    (client.unary_encoding(0.5, 0.25), {"kind": "unary_encoding", "p": "0.5", "q": "0.25"}),
    (
        client.dp_sgd(1.1, 0.01, 1000, records_per_unit=4),
        {
            "kind": "gaussian",
            "sensitivity": "1",
            "scale": "1.1",
            "count": 1000,
            "sampling": {"poisson": "0.01"},
            "neighbouring": "add_or_remove_one",
            "group_size": 4,
        },
    ),
    (
        client.dp_sgd_of_fixed_batches(1.1, 100, 10_000, 50),
        {
            "kind": "gaussian",
            "sensitivity": "2",
            "scale": "1.1",
            "count": 50,
            "sampling": {"without_replacement": {"sample": 100, "of": 10000}},
            "neighbouring": "replace_one",
        },
    ),
    (
        client.dp_ftrl(8.83, [1600]),
        {
            "kind": "tree_aggregation",
            "sensitivity": {"l2": "1"},
            "scale": "8.83",
            "leaves": [1600],
            "neighbouring": "zero_out",
        },
    ),
    (
        client.repeat_and_select(client.laplace(1, 10), 10),
        {
            "kind": "repeat_and_select",
            "mechanism": {"kind": "laplace", "sensitivity": "1", "scale": "10"},
            "mean": "10",
        },
    ),
    (client.declared(mu=0.5), {"kind": "declared", "mu": "0.5"}),
    (
        client.composed(client.laplace(1, 10), sampling=client.poisson(0.1)),
        {
            "kind": "composed",
            "mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "10"}],
            "sampling": {"poisson": "0.1"},
        },
    ),
    (
        client.plan(client.laplace(1, 100, count=500), epsilon=0.95, delta=1e-6),
        {
            "kind": "plan",
            "mechanisms": [{"kind": "laplace", "sensitivity": "1", "scale": "100", "count": 500}],
            "epsilon": "0.95",
            "delta": "0.000001",
        },
    ),
    (
        client.sparse_vector(
            1, threshold_scale=200, comparison_scale=400, max_positives=10, answer_scale=7
        ),
        {
            "kind": "sparse_vector",
            "sensitivity": "1",
            "threshold_scale": "200",
            "comparison_scale": "400",
            "answer_scale": "7",
            "max_positives": 10,
            "releases": "fresh_noisy_answer",
        },
    ),
]


@pytest.mark.parametrize(("built", "body"), BUILT, ids=lambda value: value["kind"])
def test_builders_make_what_the_service_reads(built: dict[str, Any], body: dict[str, Any]) -> None:
    """Each builder's parameters stand where the service expects them."""
    assert built == body
    ADAPTER.validate_python(built)


SPELLED: list[tuple[Any, str]] = [
    (1, "1"),
    (0.1, "0.1"),
    (1e-06, "0.000001"),
    (np.float64(0.1), "0.1"),
    (np.float32(0.1), "0.1"),
    (np.int64(7), "7"),
    (Decimal("0.10"), "0.1"),
    (Decimal("1E+2"), "100"),
    (Fraction(1, 8), "0.125"),
    (Fraction(-3, 2), "-1.5"),
    ("2.50", "2.5"),
    (0.0, "0"),
]


@pytest.mark.parametrize(("value", "text"), SPELLED, ids=repr)
def test_numbers_of_any_kind_are_spelled_exactly(value: Any, text: str) -> None:
    """A number is sent as the decimal that it is, or that it is printed as."""
    assert exact(value) == text


class Shown:
    """A number that prints fewer digits than it has, as those of mpmath do."""

    def __float__(self) -> float:
        return 1 / 3

    def __str__(self) -> str:
        return "0.333"


@pytest.mark.parametrize("value", [np.float32(0.1), np.float32(0.7), np.float16(0.3), Shown()])
def test_what_prints_few_digits_is_sent_on_the_side_that_costs_more(value: Any) -> None:
    """Noise is drawn with the number in the machine: where that is not the printed one, a
    sensitivity is no smaller than both, and a scale no larger.
    """
    both = Fraction(str(value)), Fraction(repr(float(value)))
    assert Fraction(client.laplace(value, 1)["sensitivity"]) == max(both)
    assert Fraction(client.laplace(1, value)["scale"]) == min(both)


def test_an_event_is_sent_on_the_side_that_costs_more() -> None:
    """So is the noise multiplier of a DpEvent, and its sampling probability."""
    single = np.float32(0.7)
    event = dp_event.PoissonSampledDpEvent(single, dp_event.GaussianDpEvent(single))
    fields = client.from_dp_event(event)["fields"]
    both = Fraction("0.7"), Fraction(repr(float(single)))
    assert Fraction(fields["sampling_probability"]) == max(both)
    assert Fraction(fields["event"]["fields"]["noise_multiplier"]) == min(both)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, True, np.bool_(True), "", "one", Decimal("NaN"), None,
              np.float64("nan"), [1], Fraction(1, 3), Decimal(1) / 3 + Decimal("1e-60")],
    ids=repr,
)  # fmt: skip
def test_what_is_no_amount_is_refused(value: Any) -> None:
    """Nothing is guessed: no NaN, no infinity, no boolean, no endless decimal without a side."""
    if isinstance(value, Decimal) and value.is_finite():
        value = Decimal("1." + "1" * MOST_DIGITS)
    with pytest.raises((ValueError, TypeError)):
        exact(value)


@given(st.fractions(Fraction(1, 10**6), 10**6))
def test_an_endless_decimal_is_rounded_to_the_side_that_costs_more(value: Fraction) -> None:
    """Up is never below, down never above, both within 40 digits of the fraction."""
    up, down = Fraction(exact(value, UP)), Fraction(exact(value, DOWN))
    assert down <= value <= up
    assert up - down <= value * Fraction(1, 10 ** (MOST_DIGITS - 2))


@given(st.fractions(Fraction(1, 50), 50), st.fractions(Fraction(1, 50), 50))
def test_no_charge_is_rounded_down(sensitivity: Fraction, scale: Fraction) -> None:
    """The epsilon of what is sent is at least that of what was meant."""
    sent = client.laplace(sensitivity, scale)
    assert Fraction(sent["sensitivity"]) / Fraction(sent["scale"]) >= sensitivity / scale


def test_counts_are_whole() -> None:
    """A count is an integer, and 2.5 of something is refused."""
    assert client.laplace(1, 1, count=np.int64(3))["count"] == 3
    with pytest.raises(ValueError, match="whole number"):
        client.mechanism("randomized_response", theta="0.5", categories=2.5)


EVENTS: list[Callable[[], DpEvent]] = [
    lambda: dp_event.GaussianDpEvent(1.1),
    lambda: dp_event.SelfComposedDpEvent(
        dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(np.float64(1.1))), 1000
    ),
    lambda: dp_event.ComposedDpEvent([dp_event.LaplaceDpEvent(2.0), dp_event.GaussianDpEvent(3)]),
    lambda: dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(5.0), 10.0, math.inf),
    lambda: dp_event.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.9, 0.1]),
]


@pytest.mark.parametrize("make", EVENTS)
def test_events_of_dp_accounting_are_sent_as_trees(make: Callable[[], DpEvent]) -> None:
    """An event is read by the service in place of mechanisms."""
    asked = AskGrant.model_validate(
        {"dataset": "visits", "mechanisms": [client.from_dp_event(make())]}
    )
    assert asked.mechanisms
    with pytest.raises(TypeError, match="not a DpEvent"):
        client.from_dp_event(object())
