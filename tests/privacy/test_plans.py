"""Declared plans: composed tightly, charged as one step, committed as a whole."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from pydantic import TypeAdapter
from support import hospital

from accountant.budget.errors import Invalid
from accountant.privacy.composition.plan import proved, tight
from accountant.privacy.conversions import intercept
from accountant.privacy.filters import RENYI
from accountant.privacy.inverse import least_epsilon
from accountant.privacy.losses import pure
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Relation, price
from accountant.privacy.mechanisms.amounts import millionths_up
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.units import SURE, Currency, charge_of, total

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE, ZERO_OUT = Relation
LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "100"}


def plan(
    *mechanisms: dict[str, Any], epsilon: str = "1", delta: str = "1e-6", **more: Any
) -> dict[str, Any]:
    """The body of a declared plan."""
    stated = {"epsilon": epsilon, "delta": delta}
    return {"kind": "plan", "mechanisms": list(mechanisms)} | stated | more


def parse(body: dict[str, Any]) -> BaseMechanism:
    """The mechanism that a request body describes."""
    return ADAPTER.validate_python(body)


def test_a_plan_admits_what_the_optimum_does() -> None:
    """564 Laplace answers of epsilon 0.01 fit (1, 1e-6) when they are declared as a whole, 565 do
    not (golden/how_many_queries); one by one 492 did.
    """
    assert price(parse(plan(LAPLACE | {"count": 564})), ADD).objections == ()
    [objection] = price(parse(plan(LAPLACE | {"count": 565})), ADD).objections
    assert objection.code == "plan-understated"


def test_a_plan_is_charged_as_one_step() -> None:
    """Epsilon and delta are those of one step; every other currency costs no more than the parts
    do, and no more than one pure mechanism. Two plans cost twice as much.
    """
    parts, orders = LAPLACE | {"count": 500}, (2, 22, 300)
    body = plan(parts)
    found = price(parse(body), ADD, orders).charge
    whole, step = price(parse(parts), ADD, orders).charge, pure(Fraction(1), Fraction(1, 10**6))
    one = charge_of(step, 1, orders)
    assert found.on(SURE) == one.on(SURE)
    for currency in found.axis[2:]:
        assert found[currency] <= min(one[currency], whole[currency])
        assert found[currency] >= min(
            one[currency], whole[currency] - 500
        )  # rounded once, not each
    assert price(parse(body | {"count": 2}), ADD, orders).charge == found + found


def test_a_plan_of_training_is_charged_as_its_steps_where_they_cost_less() -> None:
    """1,000 steps of DP-SGD cost the gate what they cost without a plan, beside its epsilon."""
    steps = {
        "kind": "gaussian",
        "sensitivity": "1",
        "scale": "1.1",
        "sampling": {"poisson": "0.01"},
    }
    found = price(parse(plan(steps | {"count": 1000}, epsilon="2")), ADD, (10,))
    alone = price(parse(steps | {"count": 1000}), ADD, (10,)).charge
    assert found.objections == ()
    assert 0 <= alone[Currency.tau(10)] - found.charge[Currency.tau(10)] <= 1000
    assert found.charge.amount(Currency.EPSILON) == "2"


def test_a_plan_is_charged_as_its_parts_where_gates_know_more() -> None:
    """Of 66 tuned runs no pair is known, and order 37 holds less than the whole orders at which a
    plan is verified: the plan has to state more, and costs the gate no more than its runs.
    """
    run = {"kind": "gaussian", "sensitivity": "1", "scale": "15.82"}
    tuned = {"kind": "repeat_and_select", "mechanism": run, "mean": "10", "count": 66}
    delta = Fraction(1, 10**9)
    needed = proved([parse(tuned)], ADD, delta)
    assert needed is not None
    body = plan(tuned, epsilon=millionths_up(needed), delta="1e-9")
    alone = price(parse(tuned), ADD, (37,)).charge[Currency.tau(37)]
    held = Fraction(alone, 10**15) + intercept(Fraction(37), delta)
    assert held < needed < held * Fraction(10_002, 10_000)
    found = price(parse(body), ADD, (37,))
    assert found.objections == ()
    assert found.charge[Currency.tau(37)] <= alone


def test_a_plan_that_states_more_than_its_parts_costs_what_they_do() -> None:
    """Two answers of epsilon 0.01 in a plan of epsilon 1 cost 0.02, and no delta."""
    parts = [LAPLACE | {"count": 2}]
    found = price(parse(plan(*parts)), ADD, (5,)).charge
    assert found == price(parse({"kind": "composed", "mechanisms": parts}), ADD, (5,)).charge


def test_the_objection_names_an_epsilon_that_will_do() -> None:
    """Stating what the objection asks for is accepted, a thousandth less is not."""
    several = [LAPLACE | {"count": 300}, {"kind": "gaussian", "sensitivity": "1", "scale": "9"}]
    [objection] = price(parse(plan(*several, epsilon="0.1")), ADD).objections
    needed = objection.text.split("costs epsilon ")[1].split(",")[0]
    assert price(parse(plan(*several, epsilon=needed)), ADD).objections == ()
    less = str(Decimal(needed) * Decimal("0.999"))
    assert price(parse(plan(*several, epsilon=less)), ADD).objections


def test_what_has_no_pair_is_added_up_in_divergences() -> None:
    """A choice on truncated samples has a divergence and no pair: a plan of 63 costs their sum."""
    cut = {"truncated": {"rate": "0.5", "of": 10**4, "at_most": 5500}}
    part = {"kind": "exponential", "sensitivity": "1", "scale": "1", "count": 63, "sampling": cut}
    [objection] = parse(plan(part, epsilon="0.1")).all_objections(ADD)
    needed = Decimal(objection.text.split("costs epsilon ")[1].split(",")[0])
    report = tight([parse(part)], ADD, Fraction(1, 10**6))
    assert report.renyi is not None
    assert needed <= Decimal(report.renyi) * Decimal("1.02")
    assert report.pld is not None
    assert needed < Decimal(report.pld.upper) * Decimal("0.8")


def test_what_is_understated_costs_its_parts() -> None:
    """A plan that costs more than it states is refused; recorded after it ran, it is booked as the
    sum of its parts.
    """
    found = price(parse(plan(LAPLACE | {"count": 5000})), ADD)
    assert [objection.code for objection in found.objections] == ["plan-understated"]
    assert found.charge.amount(Currency.EPSILON) == "50"
    assert found.charge.amount(Currency.DELTA) == "0"


def test_a_plan_without_a_bound_says_so() -> None:
    """Divergences alone bound no plan; the objection does not name a number."""
    body = plan({"kind": "non_private"}, epsilon="5")
    with pytest.raises(ValueError, match="non_private"):
        parse(body)
    broken = {
        "kind": "sparse_vector",
        "sensitivity": "1",
        "threshold_scale": "0",
        "comparison_scale": "1",
        "max_positives": 1,
    }
    found = price(parse(plan(broken)), ADD)
    assert "sparse-vector-broken" in [o.code for o in found.objections]


def test_parts_are_read_in_the_relation_of_the_plan() -> None:
    """A plan stated under add-or-remove-one in a replace-one population costs its double."""
    body = plan(LAPLACE | {"count": 500}, neighbouring="add_or_remove_one")
    found = derive(parse(body), REPLACE)
    assert found.objections == ()
    assert found.derived is not None
    assert found.derived.epsilon == 2
    assert found.derived.delta > Fraction(1, 10**6) * 2


def test_order_of_the_parts_does_not_matter() -> None:
    """Neither the order of the list nor how it is nested changes what it costs, beyond the last
    digits of the tight composition.
    """
    one = {"kind": "gaussian", "sensitivity": "1", "scale": "12"}
    other = LAPLACE | {"count": 40}
    last = {"kind": "discrete_laplace", "sensitivity": "2", "scale": "60"}
    lists = [
        [one, other, last],
        [last, one, other],
        [{"kind": "composed", "mechanisms": [one, other]}, last],
    ]
    totals = {
        tight([parse(body) for body in bodies], ADD, Fraction(1, 10**6)).upper for bodies in lists
    }
    assert max(totals) == pytest.approx(min(totals), rel=1e-12)


def test_a_plan_commits_as_a_whole() -> None:
    """A part of a plan is no mechanism that was reserved, so it cannot be committed alone; the
    whole can, and nothing comes back.
    """
    book = hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-5}}\n")
    body = plan(LAPLACE | {"count": 400, "neighbouring": None})
    reserved = book.grant(body)
    grant = f"g{reserved.sequence}"
    with pytest.raises(Invalid, match="reserved 0 of this laplace"):
        book.do("commit_grant", grant=grant, mechanisms=[LAPLACE | {"count": 100}])
    event = book.do("commit_grant", grant=grant, mechanisms=[body])
    assert event.body["charge"]["epsilon"] == "1000000000"
    assert event.body["charge"] == reserved.body["total"]
    assert not book.replayed().findings


def test_a_plan_fits_where_its_parts_do_not() -> None:
    """Declared as a whole, 560 answers are admitted by a limit that refuses them one by one."""
    rules = "  - {id: a, limit: {epsilon: 1, delta: 1.2e-6, own_delta: 1.1e-6}}\n"
    body = LAPLACE | {"count": 560}
    assert hospital(rules).grant(body).type == "grant.refused.v1"
    assert hospital(rules).grant(plan(body)).type == "grant.reserved.v1"


TESTED = {
    "kind": "propose_test_release",
    "distance_scale": "100",
    "threshold": "0",
    "release": {"kind": "gaussian", "sensitivity": "1", "scale": "100"},
}
SAMPLED = {"kind": "gaussian", "sensitivity": "1", "scale": "1", "sampling": {"poisson": "0.01"}}
COINS = {"kind": "randomized_response", "truth_probability": "0.5"}
ONE_OF_MANY = {"without_replacement": {"sample": 1, "of": 100}}


@pytest.mark.parametrize(
    ("part", "relation", "code"),
    [
        (TESTED, ADD, "plan-understated"),
        (SAMPLED, REPLACE, "sampling-relation"),
        ({"kind": "composed", "mechanisms": [SAMPLED]}, REPLACE, "sampling-relation"),
        (
            {"kind": "composed", "mechanisms": [COINS], "sampling": ONE_OF_MANY},
            REPLACE,
            "local-sample",
        ),
        (LAPLACE | {"sampling": ONE_OF_MANY}, ADD, "sampling-relation"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else str(value),
)
def test_a_plan_does_not_lose_what_its_parts_would_book(
    part: dict[str, Any], relation: Relation, code: str
) -> None:
    """A part with a delta that no pair holds, or of which nothing is proved in this relation, makes
    the plan refused, and is booked as it is, delta and all, if it ran.
    """
    found = price(parse(plan(part, epsilon="50", delta="1e-6")), relation)
    assert code in [o.code for o in found.objections]
    assert found.charge.is_infinite(Currency.EPSILON)
    assert found.charge.amounts() == price(parse(part), relation).charge.amounts()


def test_a_sampled_plan_of_local_reports_is_not_amplified() -> None:
    """Whoever collects the reports sees the sample, whatever the reports are wrapped in."""
    found = price(parse(plan(COINS, epsilon="2", sampling=ONE_OF_MANY)), REPLACE)
    assert [o.code for o in found.objections] == ["local-sample"]
    assert found.charge.is_infinite(Currency.EPSILON)


def test_what_is_stated_for_replacing_one_bounds_nothing_elsewhere() -> None:
    """Gaussian noise stated under replace_one is not free in an add-or-remove population: nothing
    bounds a list that holds it.
    """
    stated = {"kind": "gaussian", "sensitivity": "1", "scale": "1", "neighbouring": "replace_one"}
    found = tight([parse(stated), parse(LAPLACE)], ADD, Fraction(1, 10**6))
    assert found.pld is found.renyi is None
    assert found.upper == float("inf")


@pytest.mark.parametrize(
    "parts",
    [
        [{"kind": "randomized_response", "truth_probability": "0"}],
        [TESTED | {"release": LAPLACE, "count": 5}],
        [TESTED | {"release": LAPLACE, "count": 5}, LAPLACE],
        [{"kind": "laplace", "sensitivity": "1", "scale": "1e-9", "count": 10**9}, LAPLACE],
        [
            {
                "kind": "gaussian",
                "sensitivity": "1e6",
                "scale": "100",
                "sampling": {"poisson": "1e-9"},
            }
        ],
        [
            {"kind": "discrete_gaussian", "sensitivity": "1", "scale": str(20_000 + i)}
            for i in range(60)
        ],
        [{"kind": "laplace", "sensitivity": "1", "scale": "1e30", "count": 10**9}],
    ],
    ids=lambda parts: parts[0]["kind"],
)
def test_absurd_plans_have_a_price(parts: list[dict[str, Any]]) -> None:
    """Where a theorem's numbers are beyond binary floats it says nothing; pricing never raises."""
    for relation in Relation:
        found = price(parse(plan(*parts, epsilon="1000")), relation, (22,))
        booked = found.charge.units(Currency.EPSILON)
        alone = [price(parse(part), relation).charge.units(Currency.EPSILON) for part in parts]
        if not found.objections and booked != 1000 * 10**9:  # the parts cost no more
            assert None not in alone
            assert booked is not None
            assert booked <= sum(one or 0 for one in alone)


LOOSE: list[dict[str, Any]] = [
    {"kind": "permute_and_flip", "sensitivity": "1", "scale": "4"},
    {"kind": "laplace", "sensitivity": {"l1": "1"}, "scale": "4"},
    {"kind": "declared", "rho": "0.1"},
    {"kind": "gaussian", "sensitivity": "1", "scale": "1"} | {"sampling": {"allocation": 2}},
    {"kind": "gaussian", "sensitivity": "1", "scale": "1"}
    | {"sampling": {"truncated": {"rate": "0.5", "of": 100, "at_most": 50}}},
]


@pytest.mark.parametrize("body", LOOSE, ids=str)
def test_what_has_no_pair_has_no_lower_end(body: dict[str, Any]) -> None:
    """Where something may cost less than what stands for it, the total has no end from below; a
    lower end above another proved epsilon would contradict it. What is declared by its epsilon
    costs what it says.
    """
    other = parse({"kind": "gaussian", "sensitivity": "1", "scale": "9"})
    found = tight([parse(body), other], ADD, Fraction(1, 10**6)).pld
    assert found is not None
    assert found.lower == 0 < found.upper
    known = parse({"kind": "declared", "epsilon": "0.5"})
    whole = tight([known, other], ADD, Fraction(1, 10**6)).pld
    assert whole is not None
    assert 0.5 < whole.lower <= whole.upper


STEEP: dict[str, Any] = {"kind": "gaussian", "sensitivity": "0.5", "scale": "0.2961"}
STEEP["sampling"] = {"truncated": {"rate": "0.99", "of": 60_000, "at_most": 60_000}}
CHOICE = {"kind": "permute_and_flip", "sensitivity": "1"}
VECTOR = LAPLACE | {"sensitivity": {"l1": "1"}, "scale": "0.4", "count": 10}
LISTS: list[tuple[list[dict[str, Any]], str]] = [
    ([STEEP | {"count": 10}, CHOICE | {"scale": "0.8"}, VECTOR], "0.001"),
    ([CHOICE | {"scale": str(20 + i)} for i in range(300)], "1e-6"),
    ([CHOICE | {"scale": "0.4", "count": 500, "sampling": {"poisson": "0.01"}}], "0.001"),
]
"""Curves whose best order is below 2; so many that few orders are looked at; and steep ones."""


@pytest.mark.parametrize(("bodies", "delta"), LISTS, ids=["low", "many", "steep"])
def test_a_report_is_not_above_the_gate_beside_it(bodies: list[dict[str, Any]], delta: str) -> None:
    """The least epsilon over orders, for a list fixed in advance, is at most that of the filter
    at its own two orders.
    """
    several = [parse(body) for body in bodies]
    report = tight(several, ADD, Fraction(delta)).renyi
    gate = least_epsilon(
        RENYI, Fraction(delta), Fraction(0),
        lambda orders: total(price(each, ADD, orders).charge for each in several),
    )  # fmt: skip
    assert report is not None
    assert gate is not None
    assert report <= gate


def test_no_epsilon_is_below_zero() -> None:
    """At a delta of 1/2 divergences next to nothing convert to less than 0: what is proved is 0."""
    body = {"kind": "randomized_response", "truth_probability": "0.02", "categories": 1000}
    assert proved([parse(body)], REPLACE, Fraction(1, 2)) == 0
