"""What a mechanism costs a part of the first unit, or a group of them (further_units.py)."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support import declared, gaussian, laplace, mechanism, sparse_vector

from accountant.privacy.mechanisms import Priced, Relation, price
from accountant.privacy.mechanisms.further_units import Unit
from accountant.privacy.units import Charge, Currency

DAY = Unit("person-day", group=False, at_most=31)
HOME = Unit("household", group=True, at_most=6)
REPLACE, ADD, ZERO = Relation.REPLACE_ONE, Relation.ADD_OR_REMOVE_ONE, Relation.ZERO_OUT


def priced(body: dict[str, Any], relation: Relation, *units: Unit) -> Priced:
    """The price, also at the Renyi orders 4 and 16."""
    return price(mechanism(body), relation, (4, 16), None, units)


def no_more(left: Charge, right: Charge) -> bool:
    """Whether a charge is at most another in each currency."""
    sums = zip(left.finite, left.infinite, right.finite, right.infinite, strict=True)
    return all(i <= j and (j or n <= m) for n, i, m, j in sums)


def apart(epsilon: float, mu: float) -> float:
    """The exact delta of two normal distributions of deviation 1 that are ``mu`` apart."""
    phi = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    return phi(-epsilon / mu + mu / 2) - math.exp(epsilon) * phi(-epsilon / mu - mu / 2)


AMOUNTS = st.sampled_from(["0.01", "0.3", "1", "2.5"])
WORK = st.one_of(
    st.builds(laplace, AMOUNTS, st.integers(1, 3)),
    st.builds(gaussian, AMOUNTS, st.sampled_from([None, "1e-9"])),
    st.builds(declared, AMOUNTS, st.sampled_from(["0", "1e-6"])),
    st.builds(lambda a: {"kind": "declared", "rho": a}, AMOUNTS),
    st.builds(lambda a: {"kind": "exponential", "sensitivity": a, "scale": "4"}, AMOUNTS),
    st.builds(lambda a: {"kind": "composed", "mechanisms": [laplace(a), gaussian(a)]}, AMOUNTS),
    st.builds(lambda a: sparse_vector(sensitivity=a), AMOUNTS),
    st.just({"kind": "non_private"}),
)


@given(WORK)
def test_a_part_never_costs_more_than_the_whole_where_one_is_replaced(body: dict[str, Any]) -> None:
    """Two data sets that differ in a part of a person differ in that person."""
    found = priced(body, REPLACE, DAY)
    assert found.per == (found.charge,)


@given(WORK, st.sampled_from([ADD, ZERO]))
def test_a_part_costs_two_steps_where_the_whole_is_there_or_not(
    body: dict[str, Any], relation: Relation
) -> None:
    """A person with one day less is neither the same person nor none: it costs what a replacement
    costs in a replace_one population.
    """
    [part] = priced(body, relation, DAY).per
    replaced = priced(body | {"neighbouring": "add_or_remove_one"}, REPLACE).charge
    assert part == replaced
    assert no_more(priced(body, relation).charge, part)


def test_two_steps_are_tight() -> None:
    """A sum of values from -1 to 1, one for each person, moves by 2 when a person's last day turns
    1 into -1, though by 1 when a person comes or goes: the exact loss of that is what is charged.
    """
    found = priced(gaussian("1", "1e-6"), ADD, DAY)
    [part] = found.per
    assert part.amount(Currency.MU_SQUARED) == "4"
    assert part.amount(Currency.RHO) == "2"
    claimed = float(part.amount(Currency.EPSILON))
    delta = float(part.amount(Currency.DELTA))
    assert apart(claimed, 2) <= delta * (1 + 1e-9)
    one = float(found.charge.amount(Currency.EPSILON))
    assert apart(one, 2) > 1e-6  # what one person costs is too little


@given(WORK, st.sampled_from(list(Relation)), st.integers(1, 20))
def test_a_group_never_costs_less_than_one(
    body: dict[str, Any], relation: Relation, most: int
) -> None:
    """A group of at most k costs no less than one, nor less than a smaller group."""
    units = Unit("one", True, 1), Unit("some", True, most), Unit("more", True, most + 1)
    found = priced(body, relation, *units)
    one, some, more = found.per
    assert one == found.charge
    assert no_more(one, some)
    assert no_more(some, more)


@given(st.sampled_from(["0.05", "0.5", "1.5"]), st.sampled_from(["0", "1e-8"]), st.integers(2, 8))
def test_a_group_of_a_declared_loss_costs_the_textbook_bound(
    epsilon: str, delta: str, most: int
) -> None:
    """k epsilon, and delta times 1 + e^epsilon + ... + e^((k-1) epsilon); k^2 rho of zCDP."""
    [group] = priced(declared(epsilon, delta), REPLACE, Unit("g", True, most)).per
    assert Fraction(group.amount(Currency.EPSILON)) == most * Fraction(epsilon)
    factor = sum(math.exp(j * float(epsilon)) for j in range(most))
    assert float(group.amount(Currency.DELTA)) == pytest.approx(float(delta) * factor, abs=2e-15)
    [group] = priced({"kind": "declared", "rho": epsilon}, REPLACE, Unit("g", True, most)).per
    assert Fraction(group.amount(Currency.RHO)) == most**2 * Fraction(epsilon)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_group_costs_what_dp_accounting_says_of_so_many_times_the_sensitivity(kind: str) -> None:
    """The price of a group bounds the exact loss of noise with k times the sensitivity."""
    if kind == "laplace":
        [group] = priced(laplace("0.2"), REPLACE, HOME).per
        exact = privacy_loss_distribution.from_laplace_mechanism(1 / 0.2, sensitivity=6)
    else:
        [group] = priced(gaussian("0.2", "1e-9"), REPLACE, HOME).per
        exact = privacy_loss_distribution.from_gaussian_mechanism(1 / 0.2, sensitivity=6)
    epsilon = float(group.amount(Currency.EPSILON))
    assert exact.get_delta_for_epsilon(epsilon) <= float(group.amount(Currency.DELTA)) + 1e-9


def test_a_divergence_of_which_no_group_is_known_is_refused() -> None:
    """Divergences that are declared at an order say nothing of a group: it has no bound."""
    found = priced({"kind": "declared", "renyi": {"16": "0.1"}}, REPLACE, HOME, DAY)
    home, day = found.per
    assert home.is_infinite(Currency.tau(16))
    assert not day.is_infinite(Currency.tau(16))


STATED = [
    laplace("7"),
    {"kind": "discrete_laplace", "sensitivity": "7", "scale": "10"},
    gaussian("7", "1e-9"),
    {"kind": "discrete_gaussian", "sensitivity": "7", "scale": "10"},
    {"kind": "exponential", "sensitivity": "7", "scale": "10"},
    {"kind": "permute_and_flip", "sensitivity": "7", "scale": "10"},
    sparse_vector(sensitivity="7"),
]


@pytest.mark.parametrize(("body", "relation"), list(product(STATED, Relation)))
def test_a_stated_sensitivity_costs_what_the_mechanism_costs_with_it(
    body: dict[str, Any], relation: Relation
) -> None:
    """The charge to a further unit is the price with its sensitivity, under any relation."""
    found = priced(body | {"sensitivity_per": {"person-day": "1", "household": "9"}}, relation, DAY)
    assert found.per == (priced(body | {"sensitivity": "1"}, relation).charge,)
    assert found.charge == priced(body, relation).charge


@given(AMOUNTS, AMOUNTS, st.sampled_from(list(Relation)))
def test_a_smaller_statement_never_costs_more(one: str, other: str, relation: Relation) -> None:
    """Stating a smaller sensitivity for a part costs no more, and never more than stating none."""
    low, high = sorted((one, other), key=Fraction)

    def part(stated: dict[str, str] | None) -> Charge:
        return priced(laplace(high) | {"sensitivity_per": stated}, relation, DAY).per[0]

    assert no_more(part({"person-day": low}), part({"person-day": high}))
    assert no_more(part({"person-day": high}), part(None))


def test_a_list_states_a_sensitivity_if_all_its_parts_do() -> None:
    """A list is priced with the sensitivities of its parts, or else from the whole."""
    stated = laplace("2", sensitivity_per={"person-day": "0.5"})
    whole = {"kind": "composed", "mechanisms": [stated, stated]}
    [part] = priced(whole, REPLACE, DAY).per
    assert part.amount(Currency.EPSILON) == "1"
    found = priced({"kind": "composed", "mechanisms": [stated, laplace("2")]}, REPLACE, DAY)
    assert found.per == (found.charge,)


@pytest.mark.parametrize(
    ("relation", "part", "refused"),
    [(REPLACE, "1", False), (REPLACE, "1.1", True), (ADD, "2", False), (ADD, "2.1", True)],
)
def test_a_part_with_more_than_the_whole_is_a_contradiction(
    relation: Relation, part: str, refused: bool
) -> None:
    """By the triangle inequality a part moves an answer by the person's sensitivity, or twice."""
    found = priced(laplace("1", sensitivity_per={"person-day": part}), relation, DAY)
    assert [one.code for one in found.objections] == ["sensitivities-contradict"] * refused
    group = laplace(part, sensitivity_per={"household": "1"})
    codes = [one.code for one in priced(group, relation, HOME).objections]
    assert codes == ["sensitivities-contradict"] * refused


def test_a_whole_with_more_than_all_its_parts_is_flagged() -> None:
    """31 days of 1 each make at most 31: a sensitivity of 32 for the person is loose, or the other
    is wrong; where days are replaced, each may count twice.
    """
    body = laplace("32", sensitivity_per={"person-day": "1"})
    assert len(priced(body, ADD, DAY).loose) == 1
    assert priced(body, REPLACE, DAY).loose == ()
    assert priced(body | {"sensitivity": "31"}, ADD, DAY).loose == ()
    assert priced(body, ADD, Unit("person-day", False, None)).loose == ()
    group = laplace("1", sensitivity_per={"household": "7"})
    assert len(priced(group, ADD, HOME).loose) == 1


def test_a_unit_that_the_population_does_not_name_is_refused() -> None:
    """A statement for an unknown unit is most likely misspelled."""
    found = priced(laplace("1", sensitivity_per={"person_day": "1"}), REPLACE, DAY)
    assert [one.code for one in found.objections] == ["unit-not-named"]


@pytest.mark.parametrize(
    "body",
    [
        gaussian("1", sensitivity_per={"person-day": "1"}, sampling={"poisson": "0.1"}),
        laplace("1", sensitivity_per={}),
        laplace("1", sensitivity_per={"person-day": "0"}),
        laplace("1", sensitivity_per={"Person Day": "1"}),
        gaussian("1", sensitivity_per={"person-day": {"l1": "1"}}),
        {"kind": "declared", "epsilon": "1", "sensitivity_per": {"person-day": "1"}},
        {"kind": "tree_aggregation", "sensitivity": "1", "scale": "4", "leaves": [8]}
        | {"sensitivity_per": {"person-day": "1"}},
    ],
)
def test_a_statement_without_a_meaning_is_malformed(body: dict[str, Any]) -> None:
    """Samples, other norms and kinds without a sensitivity have none for a further unit."""
    with pytest.raises(ValidationError):
        mechanism(body)


def test_a_sample_does_not_hide_what_a_part_changes() -> None:
    """On a sample of persons a person-day costs what two steps of the sampled mechanism cost; the
    amplified price of its own sensitivity would be too little: the exact delta is larger.
    """
    # With the person in the sample the answer is 10 or 9, without it about 0: who sees 5 or more
    # knows that, and sees normal noise of sensitivity 1, with probability 0.1.
    exact = 0.1 * apart(0.5, 1)
    amplified = privacy_loss_distribution.from_gaussian_mechanism(1, sampling_prob=0.1)
    assert exact > 2 * amplified.get_delta_for_epsilon(0.5)
    body = gaussian("10", sampling={"poisson": "0.1"})
    [part] = priced(body, ADD, DAY).per
    assert part == priced(body | {"neighbouring": "add_or_remove_one"}, REPLACE).charge
