"""Sparse vector sessions: what is charged runs, answers are counted first, broken ones are found
out.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pytest
from catalogue import dataset, people, without_first
from empirical import Statistic, lower_bound
from hypothesis import given
from hypothesis import strategies as st
from opening import Network, Opens
from priced import epsilon_of, pooled

from accountant.client import Client, Failed, MayHaveRun, Refused, Unreachable
from accountant.queries.exact import decimal_above
from accountant.queries.holdout import reusable_holdout
from accountant.queries.sessions import sparse_vector
from accountant.queries.sparse import Running, SessionOver, SparseVector
from accountant.queries.weights import online_weights

epsilons = st.fractions(Fraction(1, 10**6), 20, max_denominator=10**9)
reaches = st.one_of(st.fractions(Fraction(1, 10**6), 10**6), st.integers(1, 1000).map(Fraction))


# -- what is charged is what runs ------------------------------------------------------------------


@given(epsilons, reaches, st.integers(1, 5000), st.booleans(), st.booleans())
def test_the_noise_is_covered(
    epsilon: Fraction, reach: Fraction, positives: int, numbers: bool, monotonic: bool
) -> None:
    """The service derives at most the epsilon that was asked for, and the noise that is drawn on
    the lattice costs at most that, by Theorem 4 with whole numbers.
    """
    what = SparseVector.costing(epsilon, reach, positives, numbers=numbers, monotonic=monotonic)
    derived = epsilon_of(what.mechanism)
    assert derived <= epsilon
    factor, width = (1 if monotonic else 2), what.width
    assert what.lattice * width == reach
    drawn = [Fraction(what.noise(s).drawn) for s in (what.threshold_scale, what.comparison_scale)]
    cost = width / drawn[0] + positives * factor * width / drawn[1]
    if what.answer_scale is not None:
        cost += positives * width / Fraction(what.noise(what.answer_scale).drawn)
    assert cost <= derived


@given(st.data(), reaches, st.booleans())
def test_rounding_keeps_distance_and_order(
    data: st.DataObject, reach: Fraction, monotonic: bool
) -> None:
    """Answers a sensitivity apart are at most W steps apart on the lattice, in the same order."""
    what = SparseVector.costing(Fraction(1), reach, 3, monotonic=monotonic)
    value = what.lattice * Fraction(data.draw(st.integers(-(10**6), 10**6)), 2)
    part = data.draw(st.fractions(0, 1))
    moved = what.place(value + part * reach) - what.place(value)
    assert 0 <= moved <= what.width


@pytest.mark.parametrize("whole", [False, True])
def test_every_session_draws_a_threshold(whole: bool) -> None:
    """A session begins with noise on its threshold, of the stated scale and of its own."""
    what = SparseVector.costing(Fraction(1, 10), Fraction(2), 3, whole=whole)
    place = what.place(Fraction(7), up=True)
    begun = [what.begin(Fraction(7)).threshold - place for _ in range(600)]
    off = np.array([float(steps * what.lattice) for steps in begun])
    scale = float(what.threshold_scale)
    assert np.abs(off).mean() == pytest.approx(scale, rel=0.25)
    assert abs(off.mean()) < scale / 3
    assert len(set(begun)) > 100


def test_the_charge_is_that_of_the_session(comes_and_goes: Client) -> None:
    """The preview, the reservation and the settlement agree with eps1 + eps2 + eps3."""
    survey = dataset(comes_and_goes, people(50))
    session = sparse_vector(survey, threshold=10, epsilon="0.9", positives=4, numbers=True)
    assert session.cost(purpose="test").charge["epsilon"] <= Decimal("0.9")
    assert session.cost(purpose="test").charge["epsilon"] > Decimal("0.899999")
    with session.open(purpose="test") as opened:
        assert opened.receipt.charge["epsilon"] <= Decimal("0.9")
        assert opened.ask(survey.where(colour="red")) is not None
    assert opened.settlement is not None
    once = decimal_above(session.what.sensitivity) / session.what.threshold_scale
    used = once if opened.positives == 0 else once + (Fraction("0.9") - once) / 4
    assert float(opened.settlement.charged["epsilon"]) == pytest.approx(float(used), abs=1e-8)
    assert opened.receipt.grant


# -- accuracy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("monotonic", [True, False])
def test_questions_beyond_the_bound_are_told_right(monotonic: bool) -> None:
    """In a share of confidence of sessions, every question that is the stated distance from the
    threshold is told right; at a fifth of it, hardly any session is free of errors.
    """
    what = SparseVector.costing(Fraction(1), Fraction(1), 1, monotonic=monotonic, whole=True)
    questions, beta, times = 40, 0.2, 400
    far = math.ceil(what.within(beta, questions))

    def right(distance: int) -> bool:
        running = what.begin(Fraction(0))
        if any(running.ask(-distance) for _ in range(questions - 1)):
            return False
        return bool(running.ask(distance))

    assert np.mean([right(far) for _ in range(times)]) > 1 - beta - 3 * math.sqrt(beta / times)
    assert np.mean([right(far // 5) for _ in range(times)]) < 0.5


def test_the_noise_grows_with_the_positives_as_in_theory() -> None:
    """At the best division the comparisons' noise is c (1 + (2c)^(-2/3)) 2 / epsilon (Lyu, Su, Li
    2017, Sec. 4.2), and monotonic answers have half as much for many positives.
    """
    for positives in (1, 8, 100):
        what = SparseVector.costing(Fraction(1, 2), Fraction(3), positives)
        theory = 2 * positives * 3 / 0.5 * (1 + (2 * positives) ** (-2 / 3))
        assert float(what.comparison_scale) == pytest.approx(theory, rel=1e-6)
    halved = SparseVector.costing(Fraction(1, 2), Fraction(3), 100, monotonic=True)
    assert float(halved.comparison_scale / what.comparison_scale) == pytest.approx(0.5, abs=0.02)


def test_numbers_stay_within_their_bound() -> None:
    """The numbers of all positives are within the stated bound in a share of confidence."""
    what = SparseVector.costing(Fraction(1), Fraction("2.5"), 3, numbers=True)
    bound, off = what.numbers_within(0.2), []
    for _ in range(400):
        running = what.begin(Fraction(-(10**4)))
        told = [running.ask(Fraction(7)) for _ in range(3)]
        off.append(max(abs(float(outcome.number or 0) - 7) for outcome in told))
    assert 0.1 < np.mean(np.array(off) > bound) < 0.3


# -- the empirical epsilon -------------------------------------------------------------------------

EPSILON = Fraction(2)
ASKED = 5


def chances(what: SparseVector, answers: list[int]) -> Statistic:
    """The logarithm of the probability that the first positive is each question, or none, exactly
    as Algorithm 7 has it, for whole numbers and threshold 0.
    """
    once, each = (what.noise(s).drawn for s in (what.threshold_scale, what.comparison_scale))
    z = np.arange(-400, 401)
    q = math.exp(-1 / once)
    level = (1 - q) / (1 + q) * q ** np.abs(z)
    p = math.exp(-1 / each)

    def above(steps: Any) -> Any:  # P(noise >= steps)
        return np.where(
            steps > 0,
            p ** np.maximum(steps, 0) / (1 + p),
            1 - p ** np.maximum(1 - steps, 0) / (1 + p),
        )

    still, found = level, []
    for answer in answers:
        positive = above(z - answer)
        found.append(float(np.sum(still * positive)))
        still = still * (1 - positive)
    return np.log([*found, float(np.sum(still))])


def firsts(make: Any, answers: list[int], times: int) -> Any:
    """Which question is the first positive, in many sessions; the number of questions for none."""
    found = []
    for _ in range(times):
        running = make()
        told = (i for i, answer in enumerate(answers) if running.ask(answer))
        found.append(next(told, len(answers)))
    return np.array(found)


def refuted(what: SparseVector, make: Any, one: list[int], other: list[int], times: int) -> float:
    """The epsilon that so many sessions on two lists of answers refute."""
    loss = chances(what, one) - chances(what, other)
    return lower_bound(loss[firsts(make, one, times)], loss[firsts(make, other, times)])


@pytest.mark.parametrize("monotonic", [True, False])
def test_no_event_refutes_the_epsilon(monotonic: bool) -> None:
    """Thousands of sessions on neighbouring answers refute no more than the charge, and much of it:
    answers that all rise, and answers of which the last falls.
    """
    what = SparseVector.costing(EPSILON, Fraction(1), 1, monotonic=monotonic, whole=True)
    one, other = [0] * ASKED, [1] * ASKED
    if not monotonic:
        one, other = [0] * (ASKED - 1) + [1], [1] * (ASKED - 1) + [0]
    found = refuted(what, pooled(what), one, other, 12_000)
    assert 0.3 < found < float(EPSILON)


def test_a_threshold_without_noise_is_found_out() -> None:
    """The same test refutes the charge where the threshold has no noise: every negative costs."""
    what = SparseVector.costing(EPSILON, Fraction(1), 1, monotonic=True, whole=True)
    source = what.begin(Fraction(0)).compared
    one, other = (
        firsts(lambda: Running(what, 0, source), [answer] * ASKED, 6000) for answer in (-1, 0)
    )
    none = [(each == ASKED).astype(float) for each in (one, other)]
    assert lower_bound(*none) > float(EPSILON)
    sound = [
        (firsts(pooled(what), [answer] * ASKED, 6000) == ASKED).astype(float) for answer in (-1, 0)
    ]
    assert lower_bound(*sound) < float(EPSILON)


def test_reused_noise_is_found_out() -> None:
    """The same test refutes the charge where all comparisons of a session share their noise."""
    what = SparseVector.costing(EPSILON, Fraction(1), 1, whole=True)
    own = pooled(what)

    def reused() -> Running:
        running = own()
        shared = running.compared()
        return replace(running, compared=lambda: shared)

    one, other = firsts(reused, [0, 1], 4000), firsts(reused, [1, 0], 4000)
    assert lower_bound((one == 1).astype(float), (other == 1).astype(float)) > float(EPSILON)


# -- against the service ---------------------------------------------------------------------------


def state(ledger: Client, session: str) -> tuple[str, int, int]:
    """How a session stands in the ledger, and the answers that it has counted."""
    shown = ledger.grant_state(session).body
    return shown["state"], shown["positives"], shown["negatives"]


def test_hundreds_of_questions_are_counted_and_the_rest_comes_back(comes_and_goes: Client) -> None:
    """Negatives are free: 500 questions in one count, closed with what the positives cost; it takes
    little time.
    """
    survey = dataset(comes_and_goes, people(400))
    wide = sparse_vector(survey, threshold=150, epsilon=1, positives=5)
    questions = [survey.where(age=i % 101) for i in range(500)]
    began = time.monotonic()
    with wide.open(purpose="test") as session:
        assert not any(session.ask_all(questions))
        assert session.ask(survey)
        assert state(comes_and_goes, session.receipt.grant) == ("reserved", 1, 500)
    assert time.monotonic() - began < 5
    assert session.settlement is not None
    spent = session.settlement.charged["epsilon"]
    what = wide.what
    once = 1 / what.threshold_scale
    each = 1 / what.comparison_scale
    assert float(spent) == pytest.approx(float(once + each), abs=1e-8)
    with pytest.raises(SessionOver, match="closed"):
        session.ask(survey)


def test_it_stops_after_the_last_positive(comes_and_goes: Client) -> None:
    """A list of questions is answered up to the last positive, and then nothing more is."""
    survey = dataset(comes_and_goes, people(400))
    with sparse_vector(survey, threshold=0, epsilon=1, positives=2).open(purpose="test") as session:
        answers = session.ask_all([survey] * 10)
        assert len(answers) == 2
        assert all(answers)
        with pytest.raises(SessionOver, match=r"positive no\. 2"):
            session.ask(survey)
        assert state(comes_and_goes, session.receipt.grant) == ("reserved", 2, 0)


def test_functions_are_asked_with_numbers(comes_and_goes: Client) -> None:
    """A function of the columns is compared, and its positives come with a number near it."""
    survey = dataset(comes_and_goes, people(400))
    session = sparse_vector(
        survey, threshold=500, epsilon=2, positives=3, numbers=True, sensitivity=10, columns=["x"]
    )
    with session.open(purpose="test") as opened:
        low = opened.ask(lambda rows: float(np.clip(rows["x"], 0, 0.1).sum()))
        high = opened.ask(lambda rows: rows["x"].sum())
    assert (low.above, low.number) == (False, None)
    assert high.number is not None
    assert abs(high.number - people(400)["x"].sum()) < session.numbers(0.999999).amount


def test_an_answer_that_is_not_counted_is_not_shown(comes_and_goes: Client) -> None:
    """Where the service does not count an answer, since the session has expired, there is none, and
    no other later; the session is charged in full.
    """
    survey = dataset(comes_and_goes, people(400))
    short = sparse_vector(survey, threshold=0, epsilon=1, positives=9)
    with short.open(purpose="test", ttl_seconds=1) as session:
        session.ask(survey)
        time.sleep(1.2)
        with pytest.raises(Failed, match="expired"):
            session.ask(survey)
        with pytest.raises(SessionOver, match="could not be counted"):
            session.ask(survey)
    assert state(comes_and_goes, session.receipt.grant) == ("expired", 1, 0)


def test_a_session_with_an_uncounted_answer_gives_nothing_back(opened: Opens) -> None:
    """Where an answer was drawn and could not be counted the session is not closed, since its end
    would give that answer's epsilon back: it expires, charged in full.
    """
    ledger = opened(attempts=1)
    network = Network.of(ledger)
    survey = dataset(ledger, people(400))
    made = sparse_vector(survey, threshold=0, epsilon=1, positives=9)
    with made.open(purpose="test") as session:
        network.cut = True
        with pytest.raises(Unreachable):
            session.ask(survey)
        network.cut = False
        with pytest.raises(SessionOver, match="charged in full"):
            session.close()
    assert session.settlement is None
    assert state(ledger, session.receipt.grant) == ("reserved", 0, 0)


def test_one_session_is_not_answered_twice(comes_and_goes: Client) -> None:
    """A session answers inside its block only, where the end settles it; and there a second session
    under the same idempotency key, with noise of its own, is refused.
    """
    survey = dataset(comes_and_goes, people(400))
    over = {"columns": ["x"], "threshold": 1, "epsilon": 1, "budget": 1, "records": 400}
    weights = online_weights(survey, {"country": None}, records=400, epsilon=1, updates=1)
    for key, opens, question in (
        ("one", sparse_vector(survey, threshold=0, epsilon=1, positives=1).open, survey),
        ("two", weights.open, [1, 0, 0]),
        ("three", partial(weights.open, give_back=True), [1, 0, 0]),
        ("four", reusable_holdout(survey, people(400), **over).open, lambda rows: rows["x"] > 5),
    ):
        first, second = (opens(purpose="test", idempotency_key=key) for _ in range(2))
        for session in (first, second):
            with pytest.raises(SessionOver, match="with"):
                session.ask(question)
        with first:
            assert first.ask(question) is not None
        with pytest.raises(MayHaveRun), second:
            second.ask(question)


def meets(noise: Any, others: Barrier) -> Any:
    """A source of noise that gives other threads the time to draw as well."""

    def drawn() -> Any:
        with suppress(BrokenBarrierError):
            others.wait(0.3)
        return noise()

    return drawn


def test_threads_are_answered_one_after_the_other(comes_and_goes: Client) -> None:
    """Two threads do not get the last positive of a session both: it answers the next question
    when the one before is counted, and the end of its block waits for that too.
    """
    survey = dataset(comes_and_goes, people(400))
    over = {"columns": ["x"], "threshold": "0.01", "epsilon": 20, "budget": 1, "records": 400}
    theirs = people(400) | {"x": np.zeros(400)}
    weights = online_weights(
        survey, {"country": None}, records=1200, epsilon=20, updates=1, threshold=1
    )
    for opens, question in (
        (sparse_vector(survey, threshold=0, epsilon=20, positives=1).open, survey),
        (weights.open, [1, 0, 0]),
        (partial(weights.open, give_back=True), [1, 0, 0]),
        (reusable_holdout(survey, theirs, **over).open, lambda rows: rows["x"] > 5),
    ):
        with opens(purpose="test") as session, ThreadPoolExecutor(2) as threads:
            owner = getattr(session, "_learner", getattr(session, "_checker", session))
            running = getattr(owner, "running", None) or owner._running
            running.compared = meets(running.compared, Barrier(2))
            asked = [threads.submit(session.ask, question) for _ in range(2)]
            ends = [each.exception() for each in asked]
        assert ends.count(None) == 1
        [over_now] = [str(end) for end in ends if end is not None]
        assert "its positive no. 1" in over_now or "used up" in over_now
        assert session.left == 0


def test_many_threads_share_a_session(comes_and_goes: Client) -> None:
    """Every question of many threads is answered, and counted once."""
    survey = dataset(comes_and_goes, people(400))
    made = sparse_vector(survey, threshold=10**4, epsilon=1, positives=1)
    with made.open(purpose="test") as session:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(session.ask, [survey] * 40))
        assert not any(found)
        assert state(comes_and_goes, session.receipt.grant) == ("reserved", 0, 40)


def test_an_exception_leaves_the_session_to_expire(comes_and_goes: Client) -> None:
    """After an exception in the block the whole cost stays reserved."""
    survey = dataset(comes_and_goes, people(400))
    opened = sparse_vector(survey, threshold=0, epsilon=1, positives=9).open(purpose="test")
    with pytest.raises(ZeroDivisionError), opened as session:
        session.ask_all([survey] * (1 // len(session.ask_all([survey])[1:])))
    assert state(comes_and_goes, session.receipt.grant) == ("reserved", 1, 0)
    with pytest.raises(SessionOver, match="inside its block only"):
        opened.ask(survey)
    assert opened.close().state == "committed"


def test_a_session_without_answers_is_given_back(comes_and_goes: Client) -> None:
    """Where no question was asked, or only such as make no sense, nothing is charged."""
    survey = dataset(comes_and_goes, people(400))
    made = sparse_vector(survey, threshold=0, epsilon=1, positives=2, sensitivity=1)
    with made.open(purpose="test") as session, pytest.raises(ValueError, match="finite number"):
        session.ask(partial(always, "many"))
    assert session.settlement is not None
    assert session.settlement.state == "released"
    assert session.receipt.charge["epsilon"] == 0


def test_a_refusal_opens_nothing(opened: Opens) -> None:
    """A session that the policy does not grant raises Refused."""
    survey = dataset(opened(), people(10))
    with pytest.raises(Refused):
        sparse_vector(survey, threshold=1, epsilon=2000, positives=1).open(purpose="test")


def test_replaced_units_have_twice_the_noise(replaces: Client) -> None:
    """Where units are replaced, counts are not monotonic and the comparisons' noise says so; the
    charge is what was asked for.
    """
    survey = dataset(replaces, people(40))
    session = sparse_vector(survey, threshold=1, epsilon=1, positives=3)
    assert not session.what.monotonic
    assert session.cost(purpose="test").charge["epsilon"] == 1


def test_a_private_group_is_charged_twice_and_no_more(opened: Opens) -> None:
    """In a group whose members are private, half of the epsilon buys the session."""
    survey = dataset(opened("replace_one", "private"), people(40)).where(country="CH")
    session = sparse_vector(survey, threshold=1, epsilon=1, positives=3)
    assert session.what.neighbouring == "add_or_remove_one"
    assert session.cost(purpose="test").charge["epsilon"] == 1


def test_bad_questions_cost_nothing(comes_and_goes: Client) -> None:
    """What makes no sense is refused before anything is reserved, or before noise is drawn."""
    rows = people(40)
    survey = dataset(comes_and_goes, rows)
    for wrong, why in (
        ({"threshold": "nan"}, "the threshold"),
        ({"positives": 0}, "positives is a whole number"),
        ({"positives": 1.5}, "positives is a whole number"),
        ({"epsilon": 0}, "epsilon must be more than 0"),
        ({"columns": ["x"]}, "say by sensitivity"),
        ({"sensitivity": -1}, "the sensitivity must be more than 0"),
        ({"sensitivity": 1, "columns": ["nobody"]}, "no column 'nobody'"),
    ):
        with pytest.raises(ValueError, match=why):
            sparse_vector(survey, **{"threshold": 1, "epsilon": 1, "positives": 2} | wrong)
    ours = survey.where(country="CH")
    with sparse_vector(ours, threshold=1, epsilon=1, positives=2).open(purpose="test") as session:
        for question, why in (
            (survey, "charged to CH"),
            (dataset(comes_and_goes, rows).where(country="CH"), "other data"),
            (lambda rows: 1, "counts records"),
        ):
            with pytest.raises(ValueError, match=why):
                session.ask_all([ours, question])
        assert session.left == 2
    assert session.receipt.charge["epsilon"] < 1
    made = sparse_vector(survey, threshold=1, epsilon=1, positives=2, sensitivity=1)
    with made.open(purpose="test") as session:
        for value in (float("nan"), "many", 1e300):
            with pytest.raises(ValueError, match=r"finite number|too large"):
                session.ask(partial(always, value))
        assert (session.positives, session.negatives) == (0, 0)
    with pytest.raises(ValueError, match="64 bits"):
        SparseVector.costing(Fraction(1, 10**9), Fraction(1), 10**6, whole=True).begin(Fraction(0))


def always(value: Any, rows: Any) -> Any:
    """A function with one answer."""
    return value


def test_monotonic_answers_need_units_that_come_and_go(replaces: Client) -> None:
    """Replacing a unit moves answers both ways, so a promise that they are monotonic is refused."""
    survey = dataset(replaces, people(40))
    with pytest.raises(ValueError, match="monotonic only where"):
        sparse_vector(survey, threshold=1, epsilon=1, positives=1, sensitivity=1, monotonic=True)


def test_one_unit_changes_counts_by_its_records(comes_and_goes: Client) -> None:
    """A unit with up to 3 records is worth 3, whatever is selected."""
    rows = people(40) | {"who": np.arange(40) // 3}
    survey = dataset(comes_and_goes, rows, unit="who", records_per_unit=3)
    session = sparse_vector(survey, threshold=1, epsilon=1, positives=1)
    without = dataset(comes_and_goes, without_first(rows), unit="who", records_per_unit=3)
    assert session.what.sensitivity == 3
    assert sparse_vector(without, threshold=1, epsilon=1, positives=1).what == session.what
