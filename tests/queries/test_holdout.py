"""The reusable holdout: it tells what was overfitted, with noise of its own each time."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people
from empirical import lower_bound
from opening import Opens
from priced import epsilon_of, pooled

from accountant.client import Client, Refused
from accountant.queries.holdout import Checker, Holdout, reusable_holdout
from accountant.queries.sparse import SessionOver

SOUND = {"columns": ["x"], "threshold": "0.1", "epsilon": 5, "budget": 3, "records": 2000}


def high(records: Any) -> Any:
    """A question: the share of records above the middle."""
    return records["x"] > 5


def low(records: Any) -> Any:
    """A question: the mean of what is left to the upper bound, of numbers from 0 to 1."""
    return (10 - records["x"]) / 10


def training(shift: float) -> Any:
    """Training data of other people, moved."""
    return {"x": np.clip(people(2000, seed=9)["x"] + shift, 0, 10)}


def test_it_tells_what_was_overfitted(comes_and_goes: Client) -> None:
    """Where training and holdout agree the training value comes back; else the holdout's does,
    with little noise, until the budget is used up.
    """
    survey = dataset(comes_and_goes, people(2000))
    truth = float(np.mean(high(people(2000))))
    same = reusable_holdout(survey, training(0), **SOUND)
    with same.open(purpose="test") as holdout:
        for _ in range(50):
            verdict = holdout.ask(high)
            assert not verdict.overfitted
            assert verdict.value == pytest.approx(np.mean(high(training(0))))
    other = reusable_holdout(survey, training(3), **SOUND)
    with other.open(purpose="test") as holdout:
        for _ in range(3):
            verdict = holdout.ask(high)
            assert verdict.overfitted
            assert abs(verdict.value - truth) < other.error(0.999999, questions=3).amount
        with pytest.raises(SessionOver, match="used up"):
            holdout.ask(low)
    assert Decimal("4.999") < holdout.receipt.charge["epsilon"] <= 5


def test_answers_are_within_their_error(comes_and_goes: Client) -> None:
    """In a share of confidence of holdouts all answers are within the stated error of the holdout's
    own means; the noise falls with its size and grows with the budget, both in proportion.
    """
    survey = dataset(comes_and_goes, people(2000))
    truth = float(np.mean(high(people(2000))))
    missed = []
    what = reusable_holdout(survey, training(0.5), **SOUND)
    bound = what.error(0.8, questions=5).amount
    for _ in range(40):
        checker = Checker(what)
        means = checker.means(high)
        told = [checker.ask(*means).value for _ in range(5) if checker.left]
        missed.append(max(abs(value - truth) for value in told) > bound)
    assert np.mean(missed) < 0.4
    twice = reusable_holdout(survey, training(0), **SOUND | {"records": 4000, "budget": 6})
    assert twice.what.comparison_scale == pytest.approx(what.what.comparison_scale)


def test_the_charge_is_the_budget(comes_and_goes: Client, opened: Opens) -> None:
    """The service derives what was asked for, as so many sessions of one positive."""
    for ledger, where in (
        (comes_and_goes, {}),
        (opened("replace_one"), {}),
        (opened("replace_one", "private"), {"country": "CH"}),
    ):
        survey = dataset(ledger, people(200)).where(**where)
        what = reusable_holdout(survey, training(0), **SOUND | {"epsilon": "0.6"})
        charge = what.cost(purpose="test").charge["epsilon"]
        assert Decimal("0.599999") < charge <= Decimal("0.6")
        [told] = what.mechanisms
        session = {k: v for k, v in what.what.mechanism.items() if k != "neighbouring"}
        assert epsilon_of(told) == 3 * epsilon_of(session)
    fixed = dataset(opened("replace_one"), people(200))
    without = {k: v for k, v in SOUND.items() if k != "records"}
    assert reusable_holdout(fixed, training(0), **without).size == 200


# -- the empirical epsilon -------------------------------------------------------------------------

EPSILON, TIMES = 1.5, 3000


def second_only(what: Holdout, times: int, *, reused: bool) -> Any:
    """Return 1 for each holdout in which only the second of two questions is overfitted, else 0.
    With ``reused`` noise the comparisons share theirs.
    """
    checker, begin, found = Checker(what), pooled(what.what, what.threshold), []
    means = [checker.means(lambda records, name=name: records[name]) for name in ("x", "y")]
    for _ in range(times):
        checker.left, checker.running = 1, begin()
        if reused:
            shared = checker.running.compared()
            checker.running = replace(checker.running, compared=lambda noise=shared: noise)
        first = checker.ask(*means[0]).overfitted
        found.append(float(not first and checker.ask(*means[1]).overfitted))
    return np.array(found)


@pytest.mark.parametrize("reused", [False, True])
def test_no_event_refutes_the_epsilon(reused: bool, replaces: Client) -> None:
    """Answers on neighbours refute no more than the charge; with noise that serves two comparisons
    they do. The one record is at 0 or at 1, and differs from training on one of two questions.
    """
    asked = {"columns": ["x", "y"], "threshold": "0.5", "epsilon": EPSILON, "budget": 1}
    theirs = {"x": np.array([0.0]), "y": np.array([1.0])}
    pair = []
    for at in (0.0, 1.0):
        rows = people(1) | {"x": np.array([at]), "y": np.array([at])}
        pair.append(reusable_holdout(dataset(replaces, rows), theirs, **asked))
    assert pair[0].what == pair[1].what
    found = [second_only(what, TIMES, reused=reused) for what in pair]
    assert (lower_bound(*found) > EPSILON) == reused


def test_bad_holdouts_are_refused(comes_and_goes: Client, opened: Opens) -> None:
    """What makes no sense is refused before anything is asked for, or before noise is drawn."""
    survey = dataset(comes_and_goes, people(200))
    for wrong, why in (
        ({"records": None}, "how many records the holdout has is private"),
        ({"budget": 0}, "budget is a whole number"),
        ({"threshold": 0}, "the threshold must be more than 0"),
        ({"columns": []}, "what the questions read"),
        ({"columns": ["y"]}, "no column 'y'"),
    ):
        with pytest.raises(ValueError, match=why):
            reusable_holdout(survey, training(0), **{**SOUND, **wrong})
    nobody = dataset(opened("replace_one"), people(20) | {"country": np.array(["CH"] * 20)})
    with pytest.raises(ValueError, match="no records"):
        reusable_holdout(nobody.where(country="JP"), training(0), **SOUND | {"records": None})
    with pytest.raises(Refused):
        reusable_holdout(survey, training(0), **SOUND | {"epsilon": 2000}).open(purpose="test")
    ledger = opened()
    made = reusable_holdout(dataset(ledger, people(200)), training(0), **SOUND)
    with made.open(purpose="test") as holdout:
        for question in (lambda r: 1, lambda r: r["x"] * np.nan, lambda r: r["x"][:3]):
            with pytest.raises(ValueError, match=r"one number a record|not finite"):
                holdout.ask(question)
    assert ledger.grant_state(holdout.receipt.grant).state == "released"
