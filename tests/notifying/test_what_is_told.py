"""What of a ledger is worth an alert, and in which words: from facts alone."""

from __future__ import annotations

from typing import Any

import pytest
from support import SECOND, START

from accountant.config.alerts import KINDS, Terms
from accountant.console.facts.alerts import (
    Facts,
    LimitUse,
    OldGrants,
    OpenProposal,
    alerts,
)
from accountant.ledger.events import rfc3339

DAY = 86_400 * SECOND
USE = LimitUse("visits", "yearly", 3, "", "3", spent="1", held="1", over=False)


def use(**changed: Any) -> LimitUse:
    """A limit's use: a third of it, unless something else is stated."""
    stated = {name: getattr(USE, name) for name in USE.__struct_fields__}
    return LimitUse(**(stated | changed))


def told(*limits: LimitUse, terms: Terms | None = None, **facts: Any) -> list[str]:
    """The sentences, the gravest first."""
    found = alerts("clinic", Facts(START, limits, **facts), terms or Terms())
    return [one.sentence for one in found]


def test_a_witness_that_contradicts() -> None:
    """It is told which, and since when nothing is published; the next contradiction is another."""
    [one] = alerts("clinic", Facts(START, alarm=(17, "w1")), Terms())
    assert one.kind == "witness"
    assert one.sentence == (
        "clinic: the witness w1 contradicts this ledger; nothing has been published since event 17."
    )
    [other] = alerts("clinic", Facts(START, alarm=(29, "w1")), Terms())
    assert one.name != other.name


def test_a_verification_with_findings() -> None:
    """It is told who found how many, without their words; the next one is another."""
    [one] = alerts("clinic", Facts(START, found=((17, "zoe", 1_200, 2),)), Terms())
    assert one.kind == "verification"
    assert one.sentence == (
        "clinic: zoe verified the first 1,200 events and recorded 2 findings (event 17)."
    )
    [other] = alerts("clinic", Facts(START, found=((29, "zoe", 1_200, 2),)), Terms())
    assert one.name != other.name


def test_a_ledger_that_is_not_the_one_that_was_published() -> None:
    """It is a finding of the verification, with how much was signed."""
    [one] = alerts("clinic", Facts(START, diverged=1_200), Terms())
    assert one.kind == "verification"
    assert "its first 1,200 events are not those that were signed" in one.sentence


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"held": "1.4999999"}, None),
        (
            {"held": "1.5"},
            "visits has used 50 % of its limit: 1.500 spent or reserved, 3 allowed (rule yearly).",
        ),
        (
            {"held": "2.8500001", "dataset": "*"},
            "all datasets together have used 96 % of their limit: 2.851 spent or reserved, "
            "3 allowed (rule yearly).",
        ),
        ({"held": "infinite"}, "visits: what is reserved has no bound, 3 allowed (rule yearly)."),
        (
            {"spent": "3.25", "held": "3.25", "over": True},
            "visits is over its limit: 3.250 spent, 3 allowed (rule yearly).",
        ),
        (
            {"spent": "infinite", "held": "infinite", "over": True},
            "visits is over its limit: a loss without any bound was booked, "
            "3 allowed (rule yearly).",
        ),
        (
            {"over": True},
            "visits is over its limit: more delta is spent than it keeps (rule yearly).",
        ),
        ({"limit": "0", "held": "0", "spent": "0"}, None),
    ],
)
def test_how_far_a_limit_is_used(changed: dict[str, Any], sentence: str | None) -> None:
    """At a threshold, not before; losses are rounded up, and both numbers stand in the sentence."""
    assert told(use(**changed)) == ([] if sentence is None else [f"clinic: {sentence}"])


def test_the_highest_threshold_covers_those_below() -> None:
    """And what is over covers all of them, so that nothing is told of them when it falls again."""
    [near] = alerts("clinic", Facts(START, (use(held="2.5"),)), Terms())
    assert (near.name, near.covers) == (
        "threshold/visits/yearly/3/80",
        ("threshold/visits/yearly/3/50",),
    )
    [over] = alerts("clinic", Facts(START, (use(spent="4", held="4", over=True),)), Terms())
    assert over.covers == tuple(f"threshold/visits/yearly/3/{share}" for share in (50, 80, 95))


def test_a_period_of_the_calendar_is_like_an_epoch() -> None:
    """A limit that begins anew each month tells its thresholds each month."""
    names = {
        one.name
        for began in ("1", "2")
        for one in alerts("clinic", Facts(START, (use(held="2", began=began),)), Terms())
    }
    assert len(names) == 2


@pytest.mark.parametrize(("days", "count"), [(13.9, 1), (14.1, 0)])
def test_a_limit_that_runs_out(days: float, count: int) -> None:
    """It is told within so many days."""
    found = told(use(runs_out=rfc3339(START + int(days * DAY)), pace_days=7))
    assert len(found) == count
    assert all("at the pace of the last 7 days (rule yearly)" in text for text in found)


def test_the_gravest_comes_first() -> None:
    """In the order of the kinds; thresholds that nobody wants are not told."""
    facts = Facts(
        START,
        (use(held="2.9"), use(spent="4", held="4", over=True, dataset="labs")),
        proposals=(OpenProposal(9, "Adopt the policy p?", START + DAY),),
        old=(OldGrants("etl", 2, "g7", START + DAY),),
        refused=3,
        broken_at=4,
        alarm=(17, "w1"),
    )
    kinds = [one.kind for one in alerts("clinic", facts, Terms())]
    expected = ["verification", "witness", "overrun", "threshold", "proposal", "orphaned"]
    assert kinds == [*expected, "refusal"]
    assert [KINDS.index(kind) for kind in kinds] == sorted(map(KINDS.index, kinds))
    assert told(use(held="2.9"), terms=Terms(thresholds=())) == []
