"""Every kind of mechanism: its formula, the laws all of them obey, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, get_args

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    FieldSerializationInfo,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_serializer,
    model_validator,
)

from accountant.privacy.balls import Number, above
from accountant.privacy.mechanisms import (
    _BY_KIND,
    KINDS,
    BaseMechanism,
    Mechanism,
    Relation,
    Verdict,
    price,
)
from accountant.privacy.mechanisms.pricing import _price_sampled, derive
from accountant.privacy.units import Currency

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
CLASSES = get_args(get_args(Mechanism)[0])
EXAMPLES = [c.model_config["json_schema_extra"]["examples"][0] for c in CLASSES]
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mechanisms.json").read_text())
KNOWN_BAD = GOLDEN["known_bad"]["rows"]
ADD, REPLACE, ZERO_OUT = Relation


def parse(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that a request body describes."""
    return ADAPTER.validate_python(body)


def epsilon(body: dict[str, Any], relation: Relation = REPLACE) -> Fraction:
    """The finite derived epsilon of one invocation."""
    derived = derive(parse(body), relation).derived
    assert derived is not None
    assert derived.epsilon is not None
    return derived.epsilon


def test_kinds_are_the_members_of_the_union() -> None:
    """KINDS names every member of the union once, in its order."""
    assert tuple(get_args(c.model_fields["kind"].annotation)[0] for c in CLASSES) == KINDS


@pytest.mark.parametrize("body", EXAMPLES, ids=KINDS)
def test_examples_are_valid_and_survive_a_round_trip(body: dict[str, Any]) -> None:
    """Each documented example is accepted, hashable, and reads back equal from its JSON."""
    mechanism = parse(body)
    assert ADAPTER.validate_json(mechanism.model_dump_json()) == mechanism
    short = mechanism.model_dump(mode="json", exclude_defaults=True)
    assert ADAPTER.validate_python(short) == mechanism
    assert hash(parse(body)) == hash(mechanism)


@pytest.mark.parametrize("model", CLASSES, ids=KINDS)
def test_every_field_is_described(model: type[BaseMechanism]) -> None:
    """No field reaches the interface's description without a text."""
    schema = model.model_json_schema()
    fields = schema.get("$defs", {}).get(model.__name__, schema)["properties"]
    assert [name for name, field in fields.items() if not field.get("description")] == []
    assert model.__doc__


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"kind": "laplace", "sensitivity": "1", "scale": "10"}, "1/10"),
        ({"kind": "laplace", "sensitivity": {"l1": "3", "l2": "1"}, "scale": "7"}, "3/7"),
        ({"kind": "discrete_laplace", "sensitivity": {"l1": 2}, "scale": "0.5"}, "4"),
        ({"kind": "exponential", "sensitivity": "1", "scale": "20"}, "1/10"),
    ],
)
def test_exact_formulas(body: dict[str, Any], expected: str) -> None:
    """Sensitivity over scale is an exact fraction, twice that for the exponential mechanism."""
    assert epsilon(body) == Fraction(expected)


def test_monotonic_scores_cost_half_under_add_or_remove() -> None:
    """Monotonic scores halve the price where one unit is added or removed."""
    body = {"kind": "exponential", "sensitivity": "1", "scale": "20", "monotonic": True}
    assert epsilon(body, ADD) == Fraction(1, 20)
    assert price(parse(body), ADD).objections == ()


def test_monotonic_scores_are_objected_to_under_replace_one() -> None:
    """Elsewhere the mark is objected to and the full price is booked."""
    body = {"kind": "exponential", "sensitivity": "1", "scale": "20", "monotonic": True}
    for stated, population in ((None, REPLACE), (REPLACE, REPLACE)):
        priced = price(parse(body | {"neighbouring": stated}), population)
        assert [o.code for o in priced.objections] == ["monotonic-needs-add-or-remove"]
        assert priced.charge[Currency.EPSILON] == 10**8


def test_monotonic_scores_stated_under_add_or_remove_convert() -> None:
    """Stated under add-or-remove, the halved price doubles into a replace-one population."""
    body = {
        "kind": "exponential",
        "sensitivity": "1",
        "scale": "20",
        "monotonic": True,
        "neighbouring": "add_or_remove_one",
    }
    assert epsilon(body, REPLACE) == Fraction(1, 10)
    assert price(parse(body), REPLACE).objections == ()


@given(st.integers(0, 10**6 - 1), st.integers(2, 10**6))
def test_randomized_response(millionths: int, categories: int) -> None:
    """epsilon = ln(1 + k t / (1 - t)), never below and hardly above."""
    truth = Decimal(millionths).scaleb(-6)
    body = {"kind": "randomized_response", "truth_probability": truth, "categories": categories}
    with mpmath.workdps(50):
        t = mpmath.mpf(millionths) / 10**6
        hit, miss = t + (1 - t) / categories, (1 - t) / categories
        _check_above(epsilon(body), mpmath.log(hit / miss))


@given(st.integers(2, 10**6 - 1), st.data())
def test_unary_encoding(high: int, data: st.DataObject) -> None:
    """epsilon = ln(p (1 - q) / ((1 - p) q)), never below and hardly above."""
    low = data.draw(st.integers(1, high - 1))
    body = {"kind": "unary_encoding", "p": Decimal(high).scaleb(-6), "q": Decimal(low).scaleb(-6)}
    with mpmath.workdps(50):
        p, q = mpmath.mpf(high) / 10**6, mpmath.mpf(low) / 10**6
        _check_above(epsilon(body), mpmath.log(p / q) + mpmath.log((1 - q) / (1 - p)))


def _check_above(found: Number, truth: mpmath.mpf) -> None:
    with mpmath.workdps(110):
        bound = above(found)
        difference = mpmath.mpf(bound.numerator) / bound.denominator - truth
        assert mpmath.mpf("-1e-45") <= difference <= mpmath.mpf("1e-45")


def test_two_coins_cost_ln_3() -> None:
    """Truth with probability one half, two answers: ln 3, rounded up to a billionth."""
    body = {"kind": "randomized_response", "truth_probability": "0.5"}
    assert price(parse(body), REPLACE).charge[Currency.EPSILON] == 1098612289


@pytest.mark.parametrize("truth", ["0.000001", "0.5", "0.999999"])
def test_forced_response_is_recognised_and_refused(truth: str) -> None:
    """Tails answers YES, heads truly: P(NO) is t or 0, so no epsilon bounds the ratio, whatever the
    claim. The same numbers entered as theta would be booked as ln 3 and less.
    """
    body = {"kind": "forced_response", "truth_probability": truth}
    for claim in ({}, {"claimed": {"epsilon": "1.0986"}}):
        priced = price(parse(body | claim), REPLACE, (2,))
        assert [o.code for o in priced.objections] == ["forced-response"]
        infinite = dict(zip(priced.charge.axis, priced.charge.infinite, strict=True))
        assert all(infinite[currency] for currency in infinite if currency != Currency.DELTA)
    whole = price(parse({"kind": "composed", "mechanisms": [body]}), REPLACE)
    assert [o.code for o in whole.objections] == ["forced-response"]


def test_a_coin_that_never_tells_the_truth_still_counts() -> None:
    """A mechanism without loss is booked as one unit: nothing that ran is booked as nothing."""
    body = {"kind": "randomized_response", "truth_probability": "0"}
    assert price(parse(body), REPLACE).charge[Currency.EPSILON] == 1


@pytest.mark.parametrize("row", KNOWN_BAD[:2], ids=["randomized_response", "exponential"])
def test_the_count_is_never_lost(row: dict[str, Any]) -> None:
    """A hundred invocations cost a hundred times one (other accountants returned one)."""
    body: dict[str, Any] = {"kind": "randomized_response", "truth_probability": "0.5"}
    if "Exponential" in row["where"]:
        body = {"kind": "exponential", "sensitivity": "1", "scale": "20"}
    charged = price(parse(body | {"count": 100}), REPLACE).charge[Currency.EPSILON]
    assert charged == 100 * price(parse(body), REPLACE).charge[Currency.EPSILON]
    assert charged > row["correct"] * 10**9 > row["returned"] * 10**9


def test_gaussian_at_its_delta() -> None:
    """The point of the exact curve at the named delta, and that delta, are charged."""
    body = {"kind": "gaussian", "sensitivity": {"l2": "1"}, "scale": "1", "delta": "1e-6"}
    charge = price(parse(body), ADD).charge
    assert charge[Currency.EPSILON] == 4886554118
    assert charge[Currency.DELTA] == 10**9


def test_gaussian_without_a_delta_is_unbounded() -> None:
    """No finite epsilon holds without a delta; that is no ground to object."""
    priced = price(parse({"kind": "gaussian", "sensitivity": "1", "scale": "1"}), ADD)
    assert priced.charge.is_infinite(Currency.EPSILON)
    assert priced.objections == ()


def test_a_not_a_number_is_never_free() -> None:
    """A NaN noise scale is refused (one accountant answers epsilon 0 for everything)."""
    assert KNOWN_BAD[2]["returned"] == 0
    with pytest.raises(ValidationError, match="scale"):
        parse({"kind": "gaussian", "sensitivity": "1", "scale": Decimal("NaN")})


def test_no_noise_is_infinite() -> None:
    """A release without noise is infinite under both relations, and says why."""
    for relation in Relation:
        priced = price(parse({"kind": "non_private", "count": 3}), relation)
        assert priced.verdict is Verdict.UNCLAIMED
        assert priced.objections == ()
        assert priced.charge.is_infinite(Currency.EPSILON)
    assert "no finite epsilon" in " ".join(CLASSES[-1].model_json_schema()["description"].split())


def test_what_passes_the_largest_sum_is_infinite() -> None:
    """Amounts beyond 2^62 units are booked as infinite, never wrapped or clipped."""
    body = {"kind": "laplace", "sensitivity": "5", "scale": "1", "count": 10**9}
    charge = price(parse(body), ADD).charge
    assert charge.is_infinite(Currency.EPSILON)
    assert charge[Currency.EPSILON] == 0


def test_prices_are_remembered_within_bounds() -> None:
    """An equal mechanism that takes long is priced once, and the memory is bounded."""
    sampling = {"poisson": "0.01"}
    body = {"kind": "gaussian", "sensitivity": "1", "scale": "3.14159", "sampling": sampling}
    first = price(parse(body), ADD)
    assert price(parse(body | {"scale": Decimal("3.141590")}), ADD) is first
    assert _price_sampled.cache_info().maxsize


LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "1"}
GAUSSIAN = {"kind": "gaussian", "sensitivity": "1", "scale": "1"}
DISCRETE = {"kind": "discrete_laplace", "sensitivity": "1", "scale": "1"}
RESPONSE = {"kind": "randomized_response", "truth_probability": "0.5"}
UNARY = {"kind": "unary_encoding", "p": "0.5", "q": "0.25"}
COMPOSED = {"kind": "composed"}
PLAN = {"kind": "plan", "mechanisms": [LAPLACE], "epsilon": "1", "delta": "1e-6"}
SESSION = {
    "kind": "sparse_vector",
    "sensitivity": "1",
    "threshold_scale": "20",
    "comparison_scale": "400",
    "max_positives": 10,
}


def nested(levels: int) -> dict[str, Any]:
    """A mechanism inside so many others."""
    body: dict[str, Any] = LAPLACE
    for _ in range(levels):
        body = {"kind": "composed", "mechanisms": [body]}
    return body


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (LAPLACE | {"scale": "0"}, "scale"),
        (LAPLACE | {"scale": "-1"}, "scale"),
        (LAPLACE | {"scale": 0.5}, "scale"),
        (LAPLACE | {"scale": True}, "scale"),
        (LAPLACE | {"scale": Decimal("Infinity")}, "scale"),
        (LAPLACE | {"scale": "1" * 41}, "scale"),
        (LAPLACE | {"sensitivity": "0"}, "sensitivity"),
        (LAPLACE | {"sensitivity": {"l1": "-1"}}, "sensitivity"),
        (LAPLACE | {"sensitivity": {"l2": "1"}}, "sensitivity"),
        (LAPLACE | {"sensitivity": {}}, "sensitivity"),
        (LAPLACE | {"sensitivity": {"l1": "1", "l3": "1"}}, "sensitivity"),
        ({"kind": "laplace", "scale": "1"}, "sensitivity"),
        (LAPLACE | {"count": 0}, "count"),
        (LAPLACE | {"count": 10**9 + 1}, "count"),
        (LAPLACE | {"count": True}, "count"),
        (LAPLACE | {"count": "5"}, "count"),
        (LAPLACE | {"count": Decimal("5")}, "count"),
        (LAPLACE | {"neighbouring": "both"}, "neighbouring"),
        (LAPLACE | {"claimed": {"epsilon": "-1"}}, "epsilon"),
        (LAPLACE | {"claimed": {"epsilon": "1", "delta": "2"}}, "delta"),
        (LAPLACE | {"claimed": "0.1"}, "claimed"),
        (LAPLACE | {"sampler": {"library": "x" * 101, "version": "1"}}, "library"),
        (LAPLACE | {"sampler": {"library": "a\x00b", "version": "1"}}, "library"),
        (LAPLACE | {"extra": 1}, "extra"),
        (GAUSSIAN | {"sensitivity": {"l1": "1"}}, "sensitivity"),
        (GAUSSIAN | {"delta": "0"}, "delta"),
        (GAUSSIAN | {"delta": "1"}, "delta"),
        (DISCRETE | {"sensitivity": "1.5"}, "sensitivity"),
        ({"kind": "exponential", "sensitivity": {"l1": "1"}, "scale": "1"}, "sensitivity"),
        (RESPONSE | {"truth_probability": "1"}, "truth_probability"),
        (RESPONSE | {"categories": 1}, "categories"),
        (RESPONSE | {"sensitivity": "1"}, "sensitivity"),
        (UNARY | {"q": "0"}, "q"),
        (UNARY | {"p": "1"}, "p"),
        (UNARY | {"q": "0.5"}, "q must be less than p"),
        ({"kind": "declared", "epsilon": "1", "claimed": {"epsilon": "1"}}, "claimed"),
        ({"kind": "non_private", "claimed": {"epsilon": "1"}}, "claimed"),
        ({"kind": "declared"}, "epsilon"),
        ({"kind": "declared", "epsilon": "1", "rho": "1"}, "exactly one"),
        ({"kind": "declared", "mu": "1", "delta": "1e-9"}, "delta"),
        ({"kind": "declared", "rho": "-1"}, "rho"),
        ({"kind": "declared", "renyi": {}}, "renyi"),
        ({"kind": "declared", "renyi": 5}, "renyi"),
        ({"kind": "declared", "renyi": [[8, "5"], ["8", "0.1"]]}, "renyi"),
        ({"kind": "declared", "renyi": {"1": "0.1"}}, "renyi"),
        ({"kind": "declared", "renyi": {"2.5": "0.1"}}, "renyi"),
        ({"kind": "declared", "epsilon": "1", "sampling": {"poisson": "0.1"}}, "sampling"),
        ({"kind": "discrete_gaussian", "sensitivity": "1.5", "scale": "1"}, "sensitivity"),
        ({"kind": "permute_and_flip", "sensitivity": "1", "scale": "0"}, "scale"),
        (RESPONSE | {"theta": "0.5"}, "exactly one"),
        ({"kind": "randomized_response", "theta": "1"}, "theta"),
        (RESPONSE | {"sampling": {"poisson": "0.1"}}, "sampling"),
        (UNARY | {"reports": 2}, "reports"),
        (UNARY | {"memoised": "0"}, "memoised"),
        (LAPLACE | {"group_size": 0}, "group_size"),
        (LAPLACE | {"group_size": 10**6 + 1}, "group_size"),
        (LAPLACE | {"sampling": {}}, "exactly one"),
        (LAPLACE | {"sampling": {"poisson": "0"}}, "poisson"),
        (LAPLACE | {"sampling": {"poisson": "1.1"}}, "poisson"),
        (LAPLACE | {"sampling": {"without_replacement": {"sample": 3, "of": 2}}}, "larger than of"),
        (COMPOSED | {"mechanisms": []}, "mechanisms"),
        (COMPOSED | {"mechanisms": [LAPLACE | {"claimed": {"epsilon": "1"}}]}, "claimed"),
        (COMPOSED | {"mechanisms": [LAPLACE | {"neighbouring": "replace_one"}]}, "neighbouring"),
        (COMPOSED | {"mechanisms": [LAPLACE | {"group_size": 2}]}, "group_size"),
        (COMPOSED | {"mechanisms": [{"kind": "non_private"}]}, "non_private"),
        (COMPOSED | {"mechanisms": [PLAN]}, "plan"),
        (PLAN | {"mechanisms": [PLAN]}, "plan"),
        (PLAN | {"delta": "0"}, "delta"),
        (PLAN | {"epsilon": "0"}, "epsilon"),
        (COMPOSED | {"mechanisms": [{"kind": "declared", "epsilon": "1"}]}, "declared"),
        (nested(9), "nested"),
        ({"kind": "multiplicative_weights"}, "either rounds"),
        ({"kind": "multiplicative_weights", "rounds": 2, "selection": LAPLACE}, "either rounds"),
        ({"kind": "multiplicative_weights", "updates": SESSION}, "fresh_noisy_answer"),
        ({"kind": "boosting", "rounds": 1, "draws": 1, "draw": LAPLACE, "base": LAPLACE}, "kind"),
        ({"kind": "guessing"}, "kind"),
        ({}, "kind"),
    ],
)
def test_bad_parameters_are_refused_by_name(body: dict[str, Any], field: str) -> None:
    """What is out of range or of the wrong type is refused, and the message names the field."""
    with pytest.raises(ValidationError) as refusal:
        parse(body)
    errors = refusal.value.errors()
    assert any(field in error["loc"] or field in error["msg"] for error in errors)


def test_a_thousand_parts_are_priced() -> None:
    """A composed list is flat however long it is; doubled as a group, too."""
    parts = [LAPLACE | {"scale": str(30 + i)} for i in range(1000)]
    found = price(parse(COMPOSED | {"mechanisms": parts, "group_size": 2}), ADD, (22,)).charge
    assert not any(found.infinite)


@pytest.mark.parametrize("wrapped", [RESPONSE, UNARY], ids=lambda body: body["kind"])
def test_local_reports_are_not_amplified_inside_anything(wrapped: dict[str, Any]) -> None:
    """A sample of people whose reports are seen by whoever collects them hides nobody."""
    sampling = {"without_replacement": {"sample": 1, "of": 1000}}
    for body in (
        COMPOSED | {"mechanisms": [wrapped], "sampling": sampling},
        COMPOSED | {"mechanisms": [COMPOSED | {"mechanisms": [wrapped], "sampling": sampling}]},
    ):
        found = price(parse(body), REPLACE)
        assert "local-sample" in [o.code for o in found.objections]
        assert found.charge.is_infinite(Currency.EPSILON)


def test_mechanisms_are_immutable() -> None:
    """A parsed mechanism cannot be changed afterwards."""
    with pytest.raises(ValidationError, match="frozen"):
        parse(LAPLACE).count = 2  # type: ignore[misc]


def test_a_mechanism_is_read_and_written_in_the_context_of_what_holds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The context of a validation, and of a serialisation, reaches the model of the kind."""

    class Noted(CLASSES[0]):  # type: ignore[misc, valid-type]
        @model_validator(mode="after")
        def _read(self, info: ValidationInfo) -> Noted:
            seen.append(info.context)
            return self

        @field_serializer("scale")
        def _write(self, value: Decimal, info: FieldSerializationInfo) -> str:
            seen.append(info.context)
            return str(value)

    seen: list[Any] = []
    monkeypatch.setitem(_BY_KIND, "laplace", Noted)
    [found] = TypeAdapter(list[Mechanism]).validate_python([EXAMPLES[0]], context="read")
    TypeAdapter(list[Mechanism]).dump_python([found], context="written")
    assert seen == ["read", "written"]


def test_after_warming_the_first_of_each_kind_is_quick() -> None:
    """In a process that has warmed all kinds, reading and pricing the first mechanism of each takes
    a few milliseconds of the processor at most, whatever it is made of. Plans are only read.
    """
    program = """
import json, sys, time
from accountant.privacy.mechanisms import Mechanism, Relation, price, warm
from pydantic import TypeAdapter
for _ in warm(): pass
reader, taken = TypeAdapter(Mechanism), {}
for body in json.load(sys.stdin):
    before = time.process_time()
    mechanism = reader.validate_python(body)
    if body["kind"] != "plan":
        price(mechanism, Relation.REPLACE_ONE)
    taken[body["kind"]] = time.process_time() - before
print(json.dumps(taken))
"""
    asked = [body | {"count": 3} for body in EXAMPLES]
    run = [sys.executable, "-c", program]
    found = subprocess.run(run, input=json.dumps(asked), capture_output=True, text=True, check=True)
    taken = json.loads(found.stdout)
    assert set(taken) == set(KINDS)
    assert max(taken.values()) < 0.005
