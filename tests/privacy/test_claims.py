"""Claims beside derivations, and losses under the other neighbouring relation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from accountant.privacy.balls import above
from accountant.privacy.losses import UNBOUNDED, pure
from accountant.privacy.mechanisms import BaseMechanism, Mechanism, Priced, Relation, Verdict, price
from accountant.privacy.mechanisms.base import convert
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.units import Currency

ADAPTER: TypeAdapter[BaseMechanism] = TypeAdapter(Mechanism)
ADD, REPLACE, ZERO_OUT = Relation
LAPLACE = {"kind": "laplace", "sensitivity": "1", "scale": "10"}
COINS = {"kind": "randomized_response", "truth_probability": "0.5"}
UNARY = {"kind": "unary_encoding", "p": "0.5", "q": "0.25"}
GAUSSIAN = {"kind": "gaussian", "sensitivity": "1", "scale": "1"}


def priced(body: dict[str, Any], population: Relation = REPLACE, **claim: str) -> Priced:
    """The price of ``body``, with a claim if one is given."""
    return price(ADAPTER.validate_python(body | ({"claimed": claim} if claim else {})), population)


def codes(result: Priced) -> list[str]:
    """The objections' codes, in order."""
    return [o.code for o in result.objections]


@pytest.mark.parametrize(
    ("claim", "verdict", "nano"),
    [
        ("0.1", Verdict.CONSISTENT, 100_000_000),
        ("0.09999", Verdict.CONSISTENT, 100_000_000),
        ("0.10001", Verdict.CONSISTENT, 100_010_000),
        ("0.0999", Verdict.UNDERSTATED, 100_000_000),
        ("0", Verdict.UNDERSTATED, 100_000_000),
        ("0.2", Verdict.CONSERVATIVE, 200_000_000),
    ],
)
def test_the_larger_of_claim_and_derivation_is_booked(
    claim: str, verdict: Verdict, nano: int
) -> None:
    """The verdict allows for a rounded claim; the booking never falls below either figure."""
    result = priced(LAPLACE, epsilon=claim)
    assert result.verdict is verdict
    assert result.charge[Currency.EPSILON] == nano
    assert codes(result) == (["claim-understated"] if verdict is Verdict.UNDERSTATED else [])


def test_no_claim() -> None:
    """Without a claim there is nothing to compare."""
    result = priced(LAPLACE)
    assert result.verdict is Verdict.UNCLAIMED
    assert derive(ADAPTER.validate_python(LAPLACE), REPLACE).claimed is None


def test_a_rounded_logarithm_is_consistent() -> None:
    """ln 3 claimed as 1.0986 is consistent, and booked in full."""
    result = priced(COINS, epsilon="1.0986")
    assert result.verdict is Verdict.CONSISTENT
    assert result.charge[Currency.EPSILON] == 1098612289


def test_an_understated_claim_is_told_both_numbers() -> None:
    """The objection names the claim, the derivation, and what to do."""
    (objection,) = priced(COINS, epsilon="1").objections
    assert "epsilon 1," in objection.text
    assert "epsilon 1.098612289," in objection.text
    assert "leave the claim out" in objection.text


def test_a_needless_delta_is_conservative() -> None:
    """A claim with a delta that the mechanism does not need is booked with it."""
    result = priced(LAPLACE, epsilon="0.1", delta="1e-9")
    assert result.verdict is Verdict.CONSERVATIVE
    assert result.charge[Currency.DELTA] == 10**6


def test_declared_is_taken_at_its_word() -> None:
    """A bare declaration is booked as stated and marked unverifiable."""
    body = {"kind": "declared", "epsilon": "0.3", "delta": "1e-9"}
    result, found = priced(body), derive(ADAPTER.validate_python(body), REPLACE)
    assert result.verdict is Verdict.UNVERIFIABLE
    assert found.derived is None
    assert found.claimed is not None
    assert found.claimed.epsilon == Fraction(3, 10)
    assert found.claimed.delta == Fraction(1, 10**9)
    assert result.charge[Currency.EPSILON] == 300_000_000
    assert codes(result) == []


@pytest.mark.parametrize("delta", [None, "1e-6", "1e-9"])
def test_a_gaussian_claim_is_judged_at_its_own_delta(delta: str | None) -> None:
    """A claim at another delta is another point of the same curve, not an understatement."""
    result = priced(GAUSSIAN | {"delta": delta}, epsilon="3.1387", delta="1e-3")
    assert result.verdict is Verdict.CONSISTENT
    assert codes(result) == []
    assert result.charge[Currency.DELTA] == 10**12
    assert priced(GAUSSIAN | {"delta": delta}, epsilon="3.13", delta="1e-3").verdict is (
        Verdict.UNDERSTATED
    )


def test_a_gaussian_claim_without_a_delta_is_understated() -> None:
    """Gaussian noise is never purely private; the objection asks for the delta."""
    result = priced(GAUSSIAN, epsilon="10")
    assert result.verdict is Verdict.UNDERSTATED
    assert "name the delta" in result.objections[0].text
    assert result.charge.is_infinite(Currency.EPSILON)
    result = priced(GAUSSIAN | {"delta": "1e-6"}, epsilon="10")
    assert codes(result) == ["claim-understated"]
    assert result.charge[Currency.EPSILON] == 10 * 10**9


def test_a_gaussian_claim_of_certain_failure_is_harmless() -> None:
    """A claimed delta of 1 says nothing; it is legal, and booked as said."""
    result = priced(GAUSSIAN, epsilon="0", delta="1")
    assert result.verdict is Verdict.CONSISTENT
    assert result.charge[Currency.DELTA] == 10**15


def test_add_or_remove_doubles_into_replace_one() -> None:
    """Derivation and claim alike are doubled, since both were made under the stated relation."""
    body = LAPLACE | {"neighbouring": "add_or_remove_one", "claimed": {"epsilon": "0.1"}}
    result, found = priced(body), derive(ADAPTER.validate_python(body), REPLACE)
    assert result.verdict is Verdict.CONSISTENT
    assert result.charge[Currency.EPSILON] == 200_000_000
    assert found.derived
    assert found.claimed
    assert found.derived.epsilon == found.claimed.epsilon == Fraction(1, 5)


@given(st.fractions(0, 40, max_denominator=1000), st.integers(1, 10**9))
def test_delta_under_the_other_relation(epsilon: Fraction, nano: int) -> None:
    """Group privacy of two: delta (1 + e^epsilon), rounded up, and never more than 1."""
    delta = Fraction(nano, 10**9)
    found = convert(pure(epsilon, delta), ADD, REPLACE)
    assert found is not None
    assert found.epsilon == 2 * epsilon
    with mpmath.workdps(60):
        numbers = (epsilon, delta, above(found.delta))
        e, d, got = (mpmath.mpf(v.numerator) / v.denominator for v in numbers)
        exact = min(mpmath.mpf(1), d * (1 + mpmath.exp(e)))
        assert exact * (1 - mpmath.mpf("1e-50")) <= got <= exact * (1 + mpmath.mpf("1e-50"))


def test_an_enormous_epsilon_converts_at_once() -> None:
    """Where e^epsilon has no sensible size, the converted delta is 1; a pure loss stays pure."""
    vast = Fraction(10**30)
    tiny = Fraction(1, 10**30)
    for delta, doubled in ((tiny, 1), (Fraction(0), 0)):
        converted = convert(pure(vast, delta), ADD, REPLACE)
        assert converted
        assert (converted.epsilon, converted.delta) == (2 * vast, doubled)
    assert convert(UNBOUNDED, ADD, REPLACE) == UNBOUNDED


@pytest.mark.parametrize("body", [LAPLACE, {"kind": "declared", "epsilon": "0.1"}])
def test_replace_one_does_not_convert_back(body: dict[str, Any]) -> None:
    """Nothing follows for add-or-remove-one from replace-one: refused, and booked as infinite."""
    result = priced(body | {"neighbouring": "replace_one"}, ADD)
    assert codes(result) == ["relation-not-derivable"]
    assert result.charge.is_infinite(Currency.EPSILON)
    assert priced(body | {"neighbouring": "replace_one"}, REPLACE).objections == ()


@pytest.mark.parametrize("body", [COINS, UNARY])
@pytest.mark.parametrize(
    ("stated", "population"), [(None, ADD), (ADD, ADD), (REPLACE, ADD), (ADD, REPLACE)]
)
def test_local_kinds_need_replace_one(
    body: dict[str, Any], stated: Relation | None, population: Relation
) -> None:
    """Under add-or-remove a report reveals membership: refused, and booked as infinite."""
    result = priced(body | {"neighbouring": stated}, population)
    assert codes(result) == ["local-needs-replace-one"]
    assert result.charge.is_infinite(Currency.EPSILON)
    assert result.charge.is_infinite(Currency.EPSILON_SQUARED)


@pytest.mark.parametrize("body", [COINS, UNARY])
def test_local_kinds_are_finite_under_replace_one(body: dict[str, Any]) -> None:
    """In their own relation they are priced without objection; both examples cost ln 3."""
    for stated in (None, "replace_one"):
        result = priced(body | {"neighbouring": stated}, REPLACE)
        assert codes(result) == []
        assert result.charge[Currency.EPSILON] == 1098612289
