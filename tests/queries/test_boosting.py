"""Boosting for queries: medians are right within the theorem, and draws cost what is charged."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from catalogue import COLOURS, dataset, people
from empirical import lower_bound
from hypothesis import given
from hypothesis import strategies as st
from opening import Opens
from priced import epsilon_of
from scipy.special import logsumexp

from accountant.client import Client
from accountant.queries.boosting import Boosting, boosting
from accountant.queries.universe import PARTS, Linear

CELLS = 16


def masks(number: int, seed: int = 1) -> tuple[Linear, ...]:
    """Some questions about 16 cells."""
    numbers = np.random.default_rng(seed)
    return tuple(Linear(numbers.random(CELLS) < 0.5) for _ in range(number))


def made(epsilon: Any, questions: tuple[Linear, ...], **more: Any) -> Boosting:
    """A step on units that change a question by 1."""
    sizes = {"rounds": 8, "draws": 3, "records": 10**6} | more
    return Boosting.costing(Fraction(epsilon), Fraction(1), None, questions=questions, **sizes)


def test_medians_are_within_the_theorem() -> None:
    """Where the synopses are good on enough of the weight, which is looked up, all medians are
    within fine + width; and they are far better than those of uniform data.
    """
    questions = masks(12)
    counts = np.random.default_rng(2).multinomial(10**6, np.arange(1, 17) ** 2 / 1496)
    step = made(1000, questions, rounds=12, draws=60, fine=Fraction(10_000))
    found = step.ready(counts)()
    true = np.array([question.of(counts) / PARTS for question in questions])
    scores, share = np.zeros(len(true)), []
    for each in found.rounds:
        synopsis = np.array(step._synopsis(CELLS, each.drawn, each.told)) / PARTS
        beyond = np.clip(np.abs(synopsis - true) - float(step.fine), 0, float(step.width))
        weight = np.exp(scores / float(step.draw.scale))
        share.append(float(weight @ (1 - 2 * beyond / float(step.width)) / weight.sum()))
        scores += beyond
    assert min(share) >= 2 * step.edge, "the theorem's condition"
    off = np.abs(np.array(found.answers) - true)
    assert off.max() <= step.within(0.05)
    uniform = np.array(
        [question.on(np.full(CELLS, 10**6 / CELLS)) / PARTS for question in questions]
    )
    assert off.mean() < np.abs(uniform - true).mean() / 5


def test_the_width_grows_as_in_theory() -> None:
    """With twice the epsilon the width is half; with the rounds it grows as T^2 times alpha."""
    one, two = made(1, masks(12)), made(2, masks(12))
    assert float(one.width / two.width) == pytest.approx(2, rel=1e-4)
    more = made(1, masks(12), rounds=32)
    alpha = [np.log((1 + 2 * s.edge) / (1 - 2 * s.edge)) / 2 for s in (one, more)]
    theory = alpha[1] / alpha[0] * (31 * 32) / (7 * 8)
    assert float(more.width / one.width) == pytest.approx(theory, rel=1e-4)


@given(
    st.fractions(Fraction(1, 1000), 50, max_denominator=10**6),
    st.integers(6, 200),
    st.integers(1, 50),
)
def test_the_charge_is_all_rounds(epsilon: Fraction, rounds: int, draws: int) -> None:
    """The service derives at most what was asked for, and nearly that: T (k draws + base)."""
    step = made(epsilon, masks(4), rounds=rounds, draws=draws)
    derived = epsilon_of(step.mechanism)
    assert epsilon * Fraction("0.999999") < derived <= epsilon
    assert step.draw.sensitivity == rounds - 1


def test_questions_are_drawn_by_their_weight() -> None:
    """In the second round a question is drawn as often as e^(score / scale) says, of the scores
    that follow from what the first one published.
    """
    questions = (Linear(np.arange(CELLS) < 8), Linear(np.arange(CELLS) < 12))
    counts = np.full(CELLS, 5)
    counts[0] += 60
    step = made(1, questions, rounds=3, draws=4000, records=80, fine=Fraction(0))
    true = np.array([question.of(counts) for question in questions])
    step = replace(
        step,
        width=Fraction(1000),
        draw=replace(step.draw, scale=Fraction(60)),
        base=replace(step.base, scale=Fraction(1, 100)),
    )
    first, second = step.ready(counts)().rounds[:2]
    synopsis = np.array(step._synopsis(CELLS, first.drawn, first.told))
    scores = [step._beyond(int(error)) / PARTS for error in np.abs(true - synopsis)]
    share = np.mean(np.array(second.drawn) == 0)
    odds = (scores[0] - scores[1]) / 60
    assert 0.3 < abs(odds) < 2
    assert np.log(share / (1 - share)) == pytest.approx(odds, abs=0.2)


def test_it_is_released_from_a_dataset(comes_and_goes: Client, opened: Opens) -> None:
    """The answers come in the order of the questions, for the charge that was asked for."""
    universe_of = {"colour": COLOURS, "country": None}
    survey = dataset(comes_and_goes, people(300))
    asked = [np.arange(9) % 3 == i for i in range(3)]
    query = boosting(survey, universe_of, asked, records=300, epsilon=50, rounds=4, draws=2)
    answer = query.release(purpose="test")
    assert len(answer.value.answers) == 3
    assert len(answer.value.rounds) == 4
    assert Decimal("49.99") < answer.receipt.charge["epsilon"] <= 50
    private = dataset(opened("replace_one", "private"), people(40)).where(country="CH")
    half = boosting(
        private, {"colour": COLOURS}, np.eye(3) > 0, records=40, epsilon=1, rounds=3, draws=2
    )
    assert Decimal("0.999999") < half.cost(purpose="test").charge["epsilon"] <= 1
    with pytest.raises(ValueError, match="rounds are too few"):
        boosting(survey, universe_of, asked, records=300, epsilon=1, rounds=2, draws=2)
    with pytest.raises(ValueError, match="draws is a whole number"):
        boosting(survey, universe_of, asked, records=300, epsilon=1, rounds=9, draws=0)
    with pytest.raises(ValueError, match="fine is an error"):
        boosting(survey, universe_of, asked, records=300, epsilon=1, rounds=9, draws=1, fine=-1)


def test_an_error_says_on_what_it_depends(comes_and_goes: Client) -> None:
    """Where a bound holds on a condition only, the error says so wherever it is read, before the
    release and with the answer; where there is none it says nothing of one.
    """
    survey, cells, asked = dataset(comes_and_goes, people(40)), {"colour": COLOURS}, np.eye(3) > 0
    query = boosting(survey, cells, asked, records=40, epsilon=1, rounds=3, draws=2)
    for error in (query.error(), query.release(purpose="test").error):
        assert "each synopsis is within" in (error.condition or "")
        for told in (str(error), repr(error)):
            assert "0.95" in told
            assert str(error.condition) in told
    shared: Any = {"records": 40, "epsilon": 1}
    for error in (
        survey.mwem(cells, asked, rounds=2, **shared).error(),
        survey.online_weights(cells, updates=2, **shared).error(questions=5),
    ):
        assert error.condition == "there are 40 records"
    proposed = survey.propose_test_release("x", bound=1, epsilon=1, delta="1e-6").error()
    assert proposed.condition == "the test passes"
    plain = survey.sum("x", epsilon=1).error(0.9)
    assert plain.condition is None
    assert str(plain).endswith("units of x with a confidence of 0.9 (the quantile of the noise)")


EPSILON, TIMES = 1.5, 400


def transcripts(step: Boosting, stated: Boosting, counts: Any, both: Any) -> Any:
    """The privacy loss of many transcripts, as the stated step has it: of draws and numbers."""
    draw = step.ready(counts)
    true = [np.array([q.of(each) for q in stated.questions]) for each in both]
    found = []
    for _ in range(TIMES):
        loss, scores = 0.0, [np.zeros(len(exact)) for exact in true]
        for each in draw().rounds:
            logs = [s / float(stated.draw.scale) for s in scores]
            logs = [log - logsumexp(log) for log in logs]
            places = list(each.drawn)
            loss += float(np.sum(logs[0][places] - logs[1][places]))
            far = [np.abs(np.array(each.told) - exact[places] / PARTS).sum() for exact in true]
            loss += float(far[1] - far[0]) / float(stated.base.scale)
            synopsis = stated._synopsis(CELLS, each.drawn, each.told)
            for exact, score in zip(true, scores, strict=True):
                score += [
                    stated._beyond(abs(int(t) - s)) / PARTS
                    for t, s in zip(exact, synopsis, strict=True)
                ]
        found.append(loss)
    return np.array(found)


@pytest.mark.parametrize("weak", [1, 30])
def test_no_event_refutes_the_epsilon(weak: int) -> None:
    """Transcripts on neighbours refute no more than the charge; with hardly any noise, on draws and
    numbers, they do.
    """
    questions = (Linear(np.arange(CELLS) < 8), Linear(np.arange(CELLS) < 12))
    one = np.zeros(CELLS, dtype=np.int64)
    one[0], one[9] = 5, 3
    other = one.copy()
    other[0] -= 1
    stated = made(EPSILON, questions, rounds=3, draws=2, records=8, fine=Fraction(0))
    step = replace(
        stated,
        draw=replace(stated.draw, scale=stated.draw.scale / weak),
        base=replace(stated.base, scale=stated.base.scale / weak),
    )
    found = [transcripts(step, stated, each, (one, other)) for each in (one, other)]
    assert (lower_bound(*found) > EPSILON) == (weak > 1)
