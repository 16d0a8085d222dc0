"""The sparse vector technique: its price, its realised loss, and the broken variants."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from accountant.privacy.losses import UNBOUNDED, Loss, pure
from accountant.privacy.mechanisms import Priced, Relation, SparseVector, Verdict, price
from accountant.privacy.mechanisms.pricing import derive
from accountant.privacy.units import Currency, charge_of

ADD, REPLACE, ZERO_OUT = Relation
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mechanisms.json").read_text())
ROWS = GOLDEN["svt_lyu_su_li"]["rows"]
BODY: dict[str, Any] = {
    "kind": "sparse_vector",
    "sensitivity": "1",
    "threshold_scale": "20",
    "comparison_scale": "400",
    "max_positives": 10,
}


def session(**changes: Any) -> SparseVector:
    """A sound session of epsilon 0.05 + 0.05, with ``changes``."""
    return SparseVector.model_validate(BODY | changes)


def same(*losses: Loss | None) -> bool:
    """True if they cost the same in every currency."""
    charges = [charge_of(loss or UNBOUNDED, 1, (2, 40)) for loss in losses]
    return charges.count(charges[0]) == len(charges)


def codes(result: Priced) -> list[str]:
    """The objections' codes, in order."""
    return [o.code for o in result.objections]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"c={row['c']}")
def test_golden_sessions(row: dict[str, Any]) -> None:
    """The golden noise scales give the golden losses, at the start and after each positive."""
    mechanism = session(
        threshold_scale=row["threshold_scale_over_Delta"],
        comparison_scale=row["query_scale_over_Delta"],
        max_positives=row["c"],
    )
    whole = mechanism.loss(ADD).epsilon
    assert whole is not None
    assert abs(whole - Fraction(row["eps"])) < Fraction(1, 10**20)
    for positives, golden in enumerate(row["ex_post_charge_after_j"]):
        loss = mechanism.loss_after(positives, ADD)
        assert loss.epsilon is not None
        assert abs(loss.epsilon - Fraction(golden)) < Fraction(1, 10**20)


def test_above_threshold_of_the_textbook() -> None:
    """Dwork-Roth's AboveThreshold, Lap(2/eps) and Lap(4/eps) with one positive, costs eps."""
    mechanism = session(threshold_scale="20", comparison_scale="40", max_positives=1)
    assert same(mechanism.loss(ADD), mechanism.loss(REPLACE), pure(Fraction(1, 10)))


def test_numeric_answers_are_paid_for() -> None:
    """Numbers with fresh noise add c x sensitivity / answer_scale."""
    mechanism = session(releases="fresh_noisy_answer", answer_scale="100")
    assert same(mechanism.loss(ADD), pure(Fraction(1, 20) + Fraction(1, 20) + Fraction(1, 10)))
    assert same(mechanism.loss_after(1, ADD), pure(Fraction(1, 20) + Fraction(3, 200)))


def test_monotonic_answers_halve_the_comparisons() -> None:
    """Under add-or-remove the comparisons cost half; elsewhere the mark is objected to."""
    mechanism = session(monotonic=True)
    assert same(mechanism.loss(ADD), pure(Fraction(1, 20) + Fraction(1, 40)))
    assert price(mechanism, ADD).objections == ()
    result = price(mechanism, REPLACE)
    assert codes(result) == ["monotonic-needs-add-or-remove"]
    assert result.charge[Currency.EPSILON] == 10**8


@given(st.integers(1, 10**9), st.data())
def test_realised_loss_rises_from_the_threshold_to_the_whole(c: int, data: st.DataObject) -> None:
    """The threshold is charged at once, each positive the same again, the last completes it."""
    mechanism = session(max_positives=c)
    j = data.draw(st.integers(0, c))
    losses = [mechanism.loss_after(n, ADD).epsilon for n in (0, j, c)]
    assert losses[0] == Fraction(1, 20)
    assert losses[1] == Fraction(1, 20) + Fraction(j, 200)
    assert losses[2] == mechanism.loss(ADD).epsilon


def test_realised_loss_follows_the_population() -> None:
    """The realised loss is converted like the whole, and unbounded where that is not derivable."""
    doubled = session(neighbouring="add_or_remove_one")
    assert same(doubled.loss_after(10, REPLACE), derive(doubled, REPLACE).derived)
    assert doubled.loss_after(10, REPLACE).epsilon == Fraction(1, 5)
    assert session(neighbouring="replace_one").loss_after(1, ADD) == UNBOUNDED
    assert session(max_positives=None).loss_after(5, ADD) == UNBOUNDED


@pytest.mark.parametrize("positives", [-1, 11])
def test_a_session_has_at_most_c_positives(positives: int) -> None:
    """Asking for the loss after fewer than no or more than c positives is an error."""
    with pytest.raises(ValueError, match="from 0 to 10"):
        session().loss_after(positives, ADD)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"comparison_scale": "0"}, "comparisons have no noise"),
        ({"threshold_scale": "0"}, "threshold has no noise"),
        ({"releases": "noisy_comparison"}, "compared is itself released"),
        ({"max_positives": None}, "no cut-off"),
        ({"releases": "fresh_noisy_answer", "answer_scale": "0"}, "no noise (answer_scale 0)"),
    ],
)
def test_broken_variants_are_recognised(changes: dict[str, Any], reason: str) -> None:
    """Each variant without a bound is refused with its own reason, and booked as infinite."""
    for claim in (None, {"epsilon": "0.1"}):
        result = price(session(**changes, claimed=claim), ADD)
        assert codes(result) == ["sparse-vector-broken"]
        assert reason in result.objections[0].text
        assert result.charge.is_infinite(Currency.EPSILON)
        assert result.verdict is (Verdict.UNDERSTATED if claim else Verdict.UNCLAIMED)


def test_a_session_without_cut_off_survives_a_round_trip() -> None:
    """A recorded session with max_positives null reads back from its shortest form."""
    mechanism = session(max_positives=None)
    assert SparseVector.model_validate(mechanism.model_dump(exclude_defaults=True)) == mechanism


def test_several_defects_are_all_named() -> None:
    """A variant that is broken twice gets both reasons."""
    result = price(session(comparison_scale="0", max_positives=None), ADD)
    assert codes(result) == ["sparse-vector-broken"] * 2


@pytest.mark.parametrize(
    ("threshold", "comparison", "claim"),
    [
        ("20", "40", "0.1"),
        ("20", "40", "0.09999"),
        ("40", "13.33333333", "0.1"),
    ],
    ids=["factor-2", "rounded", "lee-clifton"],
)
def test_comparison_noise_that_does_not_grow_with_c(
    threshold: str, comparison: str, claim: str
) -> None:
    """A claim that pays for one positive of ten gets the specific reason; the whole is booked."""
    result = price(
        session(threshold_scale=threshold, comparison_scale=comparison, claimed={"epsilon": claim}),
        ADD,
    )
    assert result.verdict is Verdict.UNDERSTATED
    assert codes(result) == ["sparse-vector-broken"]
    assert "every one of the 10 positives" in result.objections[0].text
    whole = Fraction(1) / Fraction(threshold) + 20 / Fraction(comparison)
    assert result.charge[Currency.EPSILON] >= whole * 10**9 > result.charge[Currency.EPSILON] - 1


def test_a_merely_low_claim_is_understated() -> None:
    """A claim below even one positive, or with a single positive, is an ordinary understatement."""
    assert codes(price(session(claimed={"epsilon": "0.01"}), ADD)) == ["claim-understated"]
    single = session(comparison_scale="40", max_positives=1, claimed={"epsilon": "0.09"})
    assert codes(price(single, ADD)) == ["claim-understated"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"threshold_scale": "-1"}, "threshold_scale"),
        ({"comparison_scale": "-1"}, "comparison_scale"),
        ({"comparison_scale": Decimal("NaN")}, "comparison_scale"),
        ({"answer_scale": "5"}, "answer_scale"),
        ({"answer_scale": "5", "releases": "noisy_comparison"}, "answer_scale"),
        ({"releases": "fresh_noisy_answer"}, "answer_scale"),
        ({"max_positives": 0}, "max_positives"),
        ({"max_positives": 1.5}, "max_positives"),
        ({"max_positives": True}, "max_positives"),
        ({"sensitivity": {"l1": "1"}}, "sensitivity"),
        ({"monotonic": 1}, "monotonic"),
        ({"releases": "everything"}, "releases"),
    ],
)
def test_bad_parameters_are_refused_by_name(changes: dict[str, Any], field: str) -> None:
    """Negative scales, misplaced answers and loose types are refused, with the field named."""
    with pytest.raises(ValidationError, match=field):
        session(**changes)
