"""DpEvent trees in and out, against dp_accounting's own classes and accountants."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attr
import dp_accounting
import pytest
from dp_accounting import dp_event as theirs
from dp_accounting.rdp import RdpAccountant
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from accountant.api.strict_json import parse as strictly
from accountant.budget.commands import Mechanisms
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, price
from accountant.privacy.mechanisms.dp_event import dp_event_of, mechanisms_of
from accountant.privacy.units import Charge, Currency, total

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
LIST: TypeAdapter[list[BaseMechanism]] = TypeAdapter(Mechanisms)
ADD, REPLACE, ZERO_OUT = Relation
NONE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def written(event: Any) -> dict[str, Any]:
    """One of dp_accounting's events as JSON of the shape that is read here, from its own fields."""
    fields = {}
    for field in attr.fields(type(event)):
        value = getattr(event, field.name)
        if isinstance(value, theirs.DpEvent):
            value = written(value)
        elif isinstance(value, list):
            value = [written(one) for one in value]
        fields[field.name] = value
    return {"class": type(event).__name__, "fields": fields}


def read(event: Any) -> list[BaseMechanism]:
    """What our side makes of it, through real JSON."""
    document = strictly(json.dumps([written(event)]).encode())
    return LIST.validate_python(document)


def rebuilt(tree: dict[str, Any]) -> Any:
    """A written tree as an object of dp_accounting's own, of the classes that it has."""
    fields = {
        name: rebuilt(value)
        if isinstance(value, dict)
        else [rebuilt(one) for one in value]
        if isinstance(value, list)
        else value
        for name, value in tree["fields"].items()
    }
    return getattr(theirs, tree["class"])(**fields)


def charged(event: Any, relation: Relation = ADD, orders: tuple[int, ...] = ()) -> Charge:
    """The total charge of an event."""
    return total(price(mechanism, relation, orders).charge for mechanism in read(event))


EVENTS = [
    theirs.GaussianDpEvent(4.0),
    theirs.LaplaceDpEvent(10.0),
    theirs.SelfComposedDpEvent(theirs.LaplaceDpEvent(20.0), 7),
    theirs.ComposedDpEvent([theirs.GaussianDpEvent(5.0), theirs.LaplaceDpEvent(3.0)]),
    theirs.PoissonSampledDpEvent(0.01, theirs.GaussianDpEvent(1.1)),
    theirs.SelfComposedDpEvent(
        theirs.PoissonSampledDpEvent(0.05, theirs.GaussianDpEvent(2.0)), 500
    ),
    theirs.SelfComposedDpEvent(theirs.ComposedDpEvent([theirs.LaplaceDpEvent(9.0)] * 2), 3),
    theirs.ZCDpEvent(0.05),
    theirs.NoOpDpEvent(),
]


@pytest.mark.parametrize("event", [*EVENTS, theirs.ZCDpEvent(0.05, 0.25)], ids=str)
@pytest.mark.parametrize("order", [2, 9, 40])
def test_events_cost_what_their_own_accountant_says(event: Any, order: int) -> None:
    """At any order the Renyi divergence that we charge is dp_accounting's, never below it."""
    if isinstance(event, theirs.NoOpDpEvent):
        assert mechanisms_of(written(event)) == []
        return
    accountant = RdpAccountant([float(order)], NONE).compose(event)
    [oracle] = accountant._rdp
    tau = charged(event, ADD, (order,)).units(Currency.tau(order))
    assert tau is not None
    assert oracle * (1 - 1e-9) <= tau / 1e15 <= oracle * (1 + 1e-6) + 1e-11


def test_the_count_of_known_bad_events_is_kept() -> None:
    """A hundred randomised responses and a hundred exponential mechanisms cost a hundred times one
    (golden/known_bad: others drop the count).
    """
    coins = theirs.SelfComposedDpEvent(theirs.RandomizedResponseDpEvent(0.5, 2), 100)
    units = charged(coins, REPLACE).units(Currency.EPSILON)
    assert units == 100 * 1_098_612_289
    chosen = {"class": "ExponentialMechanismDpEvent", "fields": {"epsilon": Decimal("0.1")}}
    tree = {"class": "SelfComposedDpEvent", "fields": {"event": chosen, "count": 100}}
    [one] = LIST.validate_python([tree])
    assert price(one, ADD).charge[Currency.EPSILON] == 10**10


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "0"])
def test_a_not_a_number_is_refused(value: str) -> None:
    """A noise multiplier that is no positive number is refused (golden/known_bad: others answer
    epsilon 0 for everything).
    """
    tree = {"class": "GaussianDpEvent", "fields": {"noise_multiplier": Decimal(value)}}
    with pytest.raises(PydanticCustomError, match="noise_multiplier"):
        mechanisms_of(tree)


def test_noise_is_stated_for_adding_a_record() -> None:
    """Replacing one moves a sum of bounded records twice as far (golden/known_bad: one accountant
    doubles, another does not).
    """
    gaussian = theirs.GaussianDpEvent(1.0)
    added, replaced = charged(gaussian, ADD), charged(gaussian, REPLACE)
    assert replaced[Currency.RHO] == 4 * added[Currency.RHO]
    drawn = theirs.SampledWithoutReplacementDpEvent(1000, 10, theirs.LaplaceDpEvent(2.0))
    [mechanism] = read(drawn)
    assert mechanism.neighbouring is REPLACE
    cost = mechanism.cost(REPLACE)
    assert cost is not None
    assert cost.epsilon is not None
    assert float(cost.epsilon) == pytest.approx(math.log(1 + 0.01 * (math.exp(1) - 1)), rel=1e-12)


def test_what_runs_on_one_sample_is_amplified_once() -> None:
    """A composition inside a sample is one mechanism; a count inside it too."""
    inner = theirs.ComposedDpEvent([theirs.LaplaceDpEvent(1.0)] * 5)
    for event in (inner, theirs.SelfComposedDpEvent(theirs.LaplaceDpEvent(1.0), 5)):
        [mechanism] = read(theirs.PoissonSampledDpEvent(0.01, event))
        cost = mechanism.cost(ADD)
        assert cost is not None
        assert cost.epsilon is not None
        assert round(float(cost.epsilon), 3) == 0.906


BAD: list[tuple[Any, str]] = [
    ({"class": "os.system", "fields": {"command": "true"}}, "no meaning here"),
    ({"class": "UnsupportedDpEvent"}, "loss is not known"),
    ({"class": "SampledWithReplacementDpEvent", "fields": {}}, "several times"),
    ({"class": "RepeatAndSelectDpEvent", "fields": {}}, "is {"),
    ({"class": "GaussianDpEvent", "fields": {"noise_multiplier": "1", "x": 1}}, "no field x"),
    ({"class": "GaussianDpEvent"}, "noise_multiplier"),
    ({"class": "GaussianDpEvent", "fields": [], "more": 1}, "is {"),
    ({"class": "ZCDpEvent", "fields": {"rho": "0.1", "xi": "-0.1"}}, "xi"),
    (
        {
            "class": "MixtureOfGaussiansDpEvent",
            "fields": {"standard_deviation": 1, "sensitivities": [1], "sampling_probs": ["0.5"]},
        },
        "add up to 1",
    ),
    ({"class": "SelfComposedDpEvent", "fields": {"event": {"class": "NoOpDpEvent"}}}, "count"),
    ({"class": "SelfComposedDpEvent", "fields": {"count": 3}}, "is {"),
    ({"class": "PoissonSampledDpEvent", "fields": {"sampling_probability": 2}}, "sampling_prob"),
    (
        {
            "class": "PoissonSampledDpEvent",
            "fields": {
                "sampling_probability": "0.1",
                "event": {"class": "EpsilonDeltaDpEvent", "fields": {"epsilon": 1, "delta": 0}},
            },
        },
        "no amplification",
    ),
]


@pytest.mark.parametrize(("tree", "text"), BAD, ids=[text for _, text in BAD])
def test_unknown_and_malformed_events_are_refused(tree: Any, text: str) -> None:
    """Only listed classes with exactly their fields are read; the refusal says what is wrong."""
    with pytest.raises(PydanticCustomError, match=text.replace("{", r"\{")):
        mechanisms_of(tree)
    with pytest.raises(ValidationError):
        LIST.validate_python([tree])


def test_bombs_of_events_are_refused() -> None:
    """Nested counts that multiply past the largest count, and deep trees, are refused at once."""
    tree: dict[str, Any] = {"class": "LaplaceDpEvent", "fields": {"noise_multiplier": 1}}
    for _ in range(3):
        tree = {"class": "SelfComposedDpEvent", "fields": {"event": tree, "count": 10**9}}
    with pytest.raises(ValidationError):
        LIST.validate_python([tree])
    for _ in range(50):
        tree = {"class": "ComposedDpEvent", "fields": {"events": [tree]}}
    with pytest.raises(PydanticCustomError, match="deeply"):
        mechanisms_of(tree)


@pytest.mark.parametrize("event", EVENTS[:-1], ids=str)
def test_what_is_written_is_what_was_read(event: Any) -> None:
    """Reading an event and writing it again keeps every charge; dp_accounting understands it."""
    mechanisms = read(event)
    tree = dp_event_of(mechanisms, ADD)
    again = LIST.validate_python(strictly(json.dumps([tree]).encode()))
    for orders in ((2,), (30,)):
        before = total(price(m, ADD, orders).charge for m in mechanisms)
        after = total(price(m, ADD, orders).charge for m in again)
        assert before == after
    [one] = RdpAccountant([8.0], NONE).compose(rebuilt(tree))._rdp
    [other] = RdpAccountant([8.0], NONE).compose(event)._rdp
    assert one == pytest.approx(other, rel=1e-12)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "discrete_gaussian", "sensitivity": "3", "scale": "7"},
        {"kind": "discrete_laplace", "sensitivity": "2", "scale": "7"},
        {"kind": "exponential", "sensitivity": "1", "scale": "3", "monotonic": True},
        {"kind": "permute_and_flip", "sensitivity": "1", "scale": "3", "group_size": 3},
        {"kind": "laplace", "sensitivity": "1", "scale": "3", "neighbouring": "replace_one"},
        {"kind": "gaussian", "sensitivity": "1", "scale": "3", "group_size": 3},
        {"kind": "gaussian", "sensitivity": "1", "scale": "3", "sampling": {"poisson": "0.3"}},
        {"kind": "declared", "epsilon": "0.7", "delta": "1e-9", "count": 4},
        {"kind": "declared", "rho": "0.3"},
        {
            "kind": "sparse_vector",
            "sensitivity": "1",
            "threshold_scale": "20",
            "comparison_scale": "400",
            "max_positives": 10,
        },
        {"kind": "non_private"},
    ],
    ids=str,
)
def test_a_written_event_never_costs_less(body: dict[str, Any]) -> None:
    """Whatever is written and read again costs at least what it did, and hardly more where the
    library has a class for it.
    """
    mechanism = ADAPTER.validate_python(body)
    relation = mechanism.neighbouring or ADD
    tree = dp_event_of([mechanism], relation)
    again = LIST.validate_python(strictly(json.dumps([tree]).encode()))
    before = price(mechanism, relation, (8,)).charge
    after = total(price(m, relation, (8,)).charge for m in again)
    for currency in (Currency.EPSILON, Currency.DELTA, Currency.RHO, Currency.tau(8)):
        was, now = before.units(currency), after.units(currency)
        assert now is None or (was is not None and was <= now)
        known = body["kind"] != "sparse_vector" and "neighbouring" not in body
        if was is not None and known and now is not None:
            assert Fraction(now) <= Fraction(was) * (1 + Fraction(1, 10**9)) + 2 * mechanism.count


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "exponential", "sensitivity": "1", "scale": "20"},
        {"kind": "declared", "rho": "0.1"},
        {"kind": "declared", "epsilon": "0.1", "delta": "1e-9"},
        {"kind": "laplace", "sensitivity": "1", "scale": "3"},
        {
            "kind": "composed",
            "mechanisms": [{"kind": "exponential", "sensitivity": "1", "scale": "20"}],
        },
        {"kind": "laplace", "sensitivity": "1", "scale": "1", "claimed": {"epsilon": "5"}},
    ],
    ids=str,
)
def test_what_is_written_is_meant_for_the_population(body: dict[str, Any]) -> None:
    """What is stated under add-or-remove-one costs a replace-one population its double, also after
    it was written and read; and a larger claim stays.
    """
    mechanism = ADAPTER.validate_python(body | {"neighbouring": "add_or_remove_one"})
    tree = dp_event_of([mechanism], REPLACE)
    again = LIST.validate_python(strictly(json.dumps([tree]).encode()))
    before = price(mechanism, REPLACE).charge
    after = total(price(m, REPLACE).charge for m in again)
    for currency in (Currency.EPSILON, Currency.RHO):
        was, now = before.units(currency), after.units(currency)
        assert now is None or (was is not None and was <= now)


def test_numbers_of_events_are_read_exactly() -> None:
    """No digit of a parameter is lost to a decimal context: less noise than stated is never read
    as more.
    """
    noise = {"noise_parameter": Decimal("5.1e-29"), "num_buckets": 2}
    [mechanism] = LIST.validate_python([{"class": "RandomizedResponseDpEvent", "fields": noise}])
    cost = mechanism.cost(REPLACE)
    assert cost is not None
    assert cost.epsilon is not None
    assert float(cost.epsilon) == pytest.approx(math.log(1 + 2 / 5.1e-29), rel=1e-12)


def test_what_has_no_class_is_not_written() -> None:
    """Renyi divergences alone have no DpEvent: an error, not a guess."""
    declared = ADAPTER.validate_python({"kind": "declared", "renyi": {"8": "0.1"}})
    with pytest.raises(ValueError, match="no DpEvent"):
        dp_event_of([declared], ADD)
