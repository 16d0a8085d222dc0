"""A limit that refreshes begins anew with each period of the calendar, and never before.

The model is a list of what was spent on which date; what it knows of calendars is Python's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError
from support import SECOND, Book, Clock, World, cells_of, hospital, laplace

from accountant.budget.accounts.spans import Window
from accountant.budget.decide import SYSTEM
from accountant.budget.outcome import PROPOSED
from accountant.budget.policy_file import parse_policy
from accountant.budget.rules.refresh import RefreshRule
from accountant.budget.rules.window import WindowRule
from accountant.budget.state import State
from accountant.ledger.events import Event, microseconds
from accountant.publishing.fleet.changes import ChargeSums, applied
from accountant.reporting.files import report_of
from accountant.reporting.page import to_html
from accountant.reporting.policy_diff import differences
from accountant.reporting.statement import accounts_json

DAY = 86_400 * SECOND
WIDE = "  - {id: wide, limit: {epsilon: 1000}}\n"


def stamp(text: str) -> int:
    """Microseconds since 1970 of a moment to the second."""
    return microseconds(text if "." in text else text.replace("Z", ".000000Z"))


def refresh(every: str = "monthly", epsilon: str = "1", more: str = "") -> str:
    """One rule that refreshes, beside a wide limit of the lifetime."""
    return f"  - {{id: w, refresh: {every}, limit: {{epsilon: {epsilon}}}{more}}}\n" + WIDE


def opened(rules: str, at: str = "2026-09-01T00:00:00Z", **more: Any) -> Book:
    """A ledger on which two people adopted the rules at a moment."""
    book = Book(now=stamp(at))
    book.register(**more)
    book.dataset("d")
    book.policy(rules, confirmed_by="officer")
    return book


def spend(book: Book, epsilon: str) -> None:
    """Asks and commits at once."""
    granted = book.grant(laplace(epsilon))
    book.do("commit_grant", grant=f"g{granted.sequence}")


def allowed(event: Event) -> bool:
    """Whether a request was granted."""
    return event.type == "grant.reserved.v1"


def used(book: Book) -> int:
    """Units of epsilon that count now."""
    return cells_of(book.state.frozen(book.now).seen(book.key("w")).used)[0][0]


# -- the calendar ----------------------------------------------------------------------------

MONDAY = datetime(1970, 1, 5, tzinfo=UTC)


def period_of(every: str, day: date) -> tuple[int, ...]:
    """Which period a date is in, by Python's calendar."""
    week = day.isocalendar()
    periods: dict[str, tuple[int, ...]] = {
        "daily": (day.year, day.month, day.day),
        "weekly": (week.year, week.week),
        "monthly": (day.year, day.month),
        "quarterly": (day.year, (day.month - 1) // 3),
        "yearly": (day.year,),
    }
    return periods[every]


def date_of(at: int) -> date:
    """The date of a stamp in UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)).date()


every = st.sampled_from(["daily", "weekly", "monthly", "quarterly", "yearly"])


@settings(max_examples=examples(300))
@given(every, st.integers(0, 8_000_000_000 * SECOND))
def test_a_period_is_all_stamps_of_its_dates_and_no_other(name: str, at: int) -> None:
    """It begins and ends at a midnight: the microsecond before is of the period before."""
    period = Window.read(name).period(at)
    assert period is not None
    mine = period_of(name, date_of(at))
    assert period.start <= at < period.end
    assert period.start % DAY == period.end % DAY == 0
    assert period_of(name, date_of(period.start)) == mine
    assert period_of(name, date_of(period.end - 1)) == mine
    assert period_of(name, date_of(period.end)) != mine
    assert period.start == 0 or period_of(name, date_of(period.start - 1)) != mine
    assert Window.read(name).ends(at) == period.end
    assert Window.read(name).length <= period.end - period.start


def test_the_last_period_of_all_dates_ends_with_them() -> None:
    """The end of the year 9999 has no date after it, and is an end all the same."""
    last = stamp("9999-12-31T23:59:59.999999Z")
    assert {Window.read(name).ends(last) for name in ("monthly", "quarterly", "yearly")} == {
        last + 1
    }


def test_a_leap_second_is_of_the_day_that_the_clock_shows() -> None:
    """Stamps count no leap seconds: they have no 23:59:60, and a day has 86,400 seconds."""
    before = stamp("2016-12-31T23:59:59.999999Z")
    assert Window.read("yearly").ends(before) == before + 1 == stamp("2017-01-01T00:00:00Z")
    with pytest.raises(ValueError, match="is no stamp"):
        stamp("2016-12-31T23:59:60Z")


@pytest.mark.parametrize("text", ["month", "hourly", "Monthly", "30d", "", "biweekly"])
def test_what_is_no_period_is_refused(text: str) -> None:
    """And a period is no window: the policy says refresh."""
    with pytest.raises(ValidationError):
        RefreshRule.model_validate({"id": "w", "refresh": text, "limit": {"epsilon": 1}})
    with pytest.raises(ValidationError, match="say refresh: monthly"):
        WindowRule.model_validate({"id": "w", "window": "monthly", "limit": {"epsilon": 1}})


# -- what counts -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "boundary"),
    [
        ("daily", "2026-09-02T00:00:00Z"),
        ("weekly", "2026-09-07T00:00:00Z"),
        ("monthly", "2026-10-01T00:00:00Z"),
        ("quarterly", "2026-10-01T00:00:00Z"),
        ("yearly", "2027-01-01T00:00:00Z"),
    ],
)
def test_it_refreshes_at_the_boundary_and_not_a_microsecond_before(
    name: str, boundary: str
) -> None:
    """All is spent: the period's last microsecond refuses, the first of the next one grants."""
    book = opened(refresh(name))
    spend(book, "1")
    book.now = stamp(boundary) - 1
    assert not allowed(book.grant(laplace("0.000000001")))
    book.now += 1
    assert used(book) == 0
    assert allowed(book.grant(laplace("1")))
    assert not allowed(book.grant(laplace("0.000000001")))
    assert book.replayed().findings == []


def test_many_periods_may_pass_between_two_events() -> None:
    """A clock that jumps over ten periods leaves one whole budget, not ten."""
    book = opened(refresh("weekly"))
    spend(book, "1")
    book.now += 70 * DAY
    spend(book, "0.4")
    assert used(book) == 400_000_000
    assert not allowed(book.grant(laplace("0.7")))
    assert book.replayed().findings == []


def test_an_open_grant_counts_in_both_periods_and_is_charged_where_it_ends() -> None:
    """It may run now, whenever it was asked for; once it commits it counts to the end of that
    period and no longer.
    """
    book = opened(refresh(), at="2026-09-30T23:00:00Z")
    granted = book.grant(laplace("0.6"), ttl_seconds=86_400)
    assert not allowed(book.grant(laplace("0.5")))
    book.now = stamp("2026-10-01T01:00:00Z")
    assert used(book) == 600_000_000
    assert not allowed(book.grant(laplace("0.5")))
    book.do("commit_grant", grant=f"g{granted.sequence}")
    assert not allowed(book.grant(laplace("0.5")))
    assert allowed(book.grant(laplace("0.4"), ttl_seconds=60))
    book.now = stamp("2026-11-01T00:00:00Z")
    assert used(book) == 400_000_000  # nobody has ended it yet


def test_what_came_back_over_a_boundary_frees_both() -> None:
    """A release says that nothing ran in either period."""
    book = opened(refresh(), at="2026-09-30T23:00:00Z")
    granted = book.grant(laplace("1"), ttl_seconds=86_400)
    book.now = stamp("2026-10-01T01:00:00Z")
    book.do("release_grant", grant=f"g{granted.sequence}", reason="never run")
    assert allowed(book.grant(laplace("1")))


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 60), st.booleans()), max_size=25))
def test_whoever_waits_for_boundaries_gets_no_more_in_any_period(
    steps: list[tuple[int, int, bool]],
) -> None:
    """An attacker asks for the most that fits, again and again around midnight, and holds grants
    over it: what was open or spent at some moment of a day never exceeds the limit.
    """
    book = opened(refresh("daily"), at="2026-09-01T23:00:00Z")
    lives: list[list[int]] = []  # tenths, from, to
    for tenths, minutes, at_once in steps:
        book.now += minutes * 60 * SECOND
        asked = book.grant(laplace(f"{tenths / 10}"), ttl_seconds=40 * 3_600)
        if allowed(asked):
            lives.append([tenths, book.now, book.now if at_once else -asked.sequence])
            if at_once:
                book.do("commit_grant", grant=f"g{asked.sequence}")
        for life in [life for life in lives if life[2] < 0][:1] if minutes % 2 else []:
            book.do("commit_grant", grant=f"g{-life[2]}")
            life[2] = book.now
    for life in lives:
        life[2] = book.now if life[2] < 0 else life[2]
    for day in range(lives[0][1] // DAY if lives else 0, book.now // DAY + 1):
        met = [tenths for tenths, start, end in lives if start // DAY <= day <= end // DAY]
        assert sum(met) <= 10
    assert book.replayed().findings == []


class Model(RuleBasedStateMachine):
    """Requests, endings and time in any order, beside a list of what was spent when."""

    def __init__(self) -> None:
        super().__init__()
        self.every = "daily"
        self.book = opened(refresh(self.every), at="2026-12-28T20:00:00Z")
        self.spent: list[tuple[int, int]] = []
        self.held: dict[str, int] = {}
        self.since = self.book.now

    def counts(self) -> int:
        """Thousandths that count now."""
        today = period_of(self.every, date_of(self.book.now))
        mine = [a for at, a in self.spent if period_of(self.every, date_of(at)) == today]
        return sum(mine) + sum(self.held.values())

    @rule(amount=st.integers(1, 700))
    def ask(self, amount: int) -> None:
        """Granted if and only if it fits beside what counts."""
        fits = self.counts() + amount <= 1_000
        asked = self.book.grant(laplace(f"{amount / 1000}"), ttl_seconds=10**6)
        assert allowed(asked) is fits
        if fits:
            self.held[f"g{asked.sequence}"] = amount

    @precondition(lambda self: self.held)
    @rule(commits=st.booleans())
    def end(self, commits: bool) -> None:
        """The oldest grant ends; one that is past its time has expired."""
        name, amount = next(iter(self.held.items()))
        del self.held[name]
        late = self.book.state.open[name].due(self.book.now)
        if late:
            self.book.do("expire_grant", SYSTEM, grant=name)
        elif commits:
            self.book.do("commit_grant", grant=name)
        if late or commits:
            self.spent.append((self.book.now, amount))
        else:
            self.book.do("release_grant", grant=name, reason="never run")

    @rule(amount=st.integers(1, 300))
    def record(self, amount: int) -> None:
        """What has run counts from its event."""
        self.book.record(laplace(f"{amount / 1000}"), ran_at="2026-12-01T00:00:00Z")
        self.spent.append((self.book.now, amount))

    @rule(jump=st.sampled_from([1, 3_600, 14_400, 43_200, 86_400, 950_400]), less=st.integers(0, 1))
    def wait(self, jump: int, less: int) -> None:
        """Time passes."""
        self.book.now += jump * SECOND - less

    @rule(name=st.sampled_from(["daily", "weekly", "monthly"]), epsilon=st.sampled_from(["1"]))
    def adopt(self, name: str, epsilon: str) -> None:
        """Another period begins with nothing; the same goes on."""
        self.book.policy(refresh(name, epsilon), confirmed_by="officer")
        if name != self.every:
            self.every, self.spent, self.held = name, [], {}

    @invariant()
    def agrees(self) -> None:
        """The account is what the list adds up to."""
        assert used(self.book) == self.counts() * 10**6

    def teardown(self) -> None:
        """Replay and the fleet's tables come to the same."""
        assert self.book.replayed().findings == []
        state, sums = State("fair"), ChargeSums()
        for event in map(Event.from_bytes, self.book.stored):
            for change in applied(state, event):
                sums.add(change)
        sums.agree(state)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(30), stateful_step_count=25)


# -- policies --------------------------------------------------------------------------------


def test_two_people_adopt_it_once() -> None:
    """It takes a second name to adopt it, and none at a boundary, nor for what does not loosen."""
    book = hospital(WIDE)
    [proposed] = book.policy(refresh())
    assert proposed.body["effect"]["loosens"] == ["w begins anew monthly"]
    book.policy(refresh(), confirmed_by="officer")
    spend(book, "0.6")
    adopted = book.policy(refresh(epsilon="0.5") + "  - {id: nearly, of: w, at: 80%}\n")
    assert adopted[-1].body["epochs"]["w"]["start"] == "carried"
    assert used(book) == 600_000_000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  - {id: w, limit: {epsilon: 1}}\n" + WIDE, refresh()),
        (refresh("monthly"), refresh("weekly")),
        (refresh("weekly"), refresh("monthly")),
        (refresh(epsilon="1"), refresh(epsilon="2")),
        ("  - {id: w, window: 30d, limit: {epsilon: 1}}\n" + WIDE, refresh()),
        (WIDE, refresh()),
    ],
    ids=["from-none", "shorter", "longer", "higher", "from-window", "added"],
)
def test_what_loosens_takes_two_people(old: str, new: str) -> None:
    """From a limit of the lifetime to a period, to another period, to a higher limit; and the words
    of a comparison say so too.
    """
    book = opened(old)
    spend(book, "0.1")
    [proposed] = book.policy(new)
    assert proposed.type == PROPOSED
    book.policy(new, confirmed_by="officer")
    policies = [parse_policy("policy: p\nrules:\n" + rules)[0] for rules in (old, new)]
    [changed] = differences(*policies, None)
    assert changed.loosens


def test_a_limit_in_place_of_a_period_counts_the_lifetime() -> None:
    """A rule that no longer refreshes starts from what the data have ever used."""
    book = opened(refresh("daily"))
    for _ in range(3):
        spend(book, "0.9")
        book.now += DAY
    adopted = book.policy("  - {id: w, limit: {epsilon: 3}}\n" + WIDE, confirmed_by="officer")
    assert adopted[-1].body["epochs"]["w"]["start"] == "brought"
    assert used(book) == 2_700_000_000


# -- what is shown ---------------------------------------------------------------------------


def test_a_decision_says_the_period_and_what_is_left() -> None:
    """From when to when, what was left in it, and when it refreshes."""
    book = opened(refresh(), at="2026-11-10T12:00:00Z")
    spend(book, "0.8")
    [said] = [one for one in book.decision(book.grant(laplace("0.3")))["rules"] if one["fired"]]
    assert "2026-11-01 to 2026-12-01, epsilon 0.2 was left" in said["text"]
    assert "refreshes on 2026-12-01" in said["text"]
    assert said["period"] == {
        "start": "2026-11-01T00:00:00.000000Z",
        "end": "2026-12-01T00:00:00.000000Z",
        "left": "0.2",
    }


@pytest.mark.parametrize(
    "rules", [refresh(), WIDE + "  - {id: w, window: month, limit: {epsilon: 1}}\n"]
)
def test_accounts_show_the_period_and_the_lifetime(rules: str) -> None:
    """What is left is left in the period; the lifetime total stands beside it."""
    book = opened(rules, at="2026-11-10T12:00:00Z")
    spend(book, "0.8")
    for at, left, start in ((book.now, "0.2", "2026-11"), (book.now + 30 * DAY, "1", "2026-12")):
        document = accounts_json(book.state.frozen(at))
        [line] = [one for one in document["accounts"] if one["rule"] == "w"]
        assert line["total"]["remaining"] == left
        assert line["period"]["start"] == f"{start}-01T00:00:00.000000Z"
        assert line["lifetime"]["epsilon"] == "0.8"


def test_over_http_it_refreshes_while_nothing_happens(world: Callable[..., World]) -> None:
    """A report, the accounts and a preview of a quiet ledger are of the period that it is now; a
    clock in doubt stands still, and so does the period.
    """
    clock = Clock()
    there = world(clock=clock)
    there.hospital(WIDE)
    rules = "policy: p\nrules:\n" + refresh("daily")
    answer = there.policy(rules)
    assert answer.status_code == 200, answer.text
    granted = there.post("/grants", {"dataset": "d", "mechanisms": [laplace("0.9")]}).json()
    there.post(f"/grants/{granted['id']}/commit", {})
    asked = {"dataset": "d", "mechanisms": [laplace("0.5")]}
    assert there.post("/preview", asked).json()["decision"]["outcome"] == "block"
    refused = there.post("/grants", asked).json()
    assert refused["lifetime"] == [{"dataset": "d", "epsilon": "0.9", "delta": "0"}]
    assert "over the lifetime: epsilon 0.9 on dataset d" in refused["detail"]
    assert "as it is it fits from 2026-09-22;" in refused["detail"]
    assert refused["would_fit"]["from"] == "2026-09-22T00:00:00.000000Z"
    page = to_html(report_of(there.service.ledgers, "fair", None))
    assert "counted over a calendar day (UTC); bounds no longer time; now " in page
    there.get("/accounts")
    clock.jump(86_400)
    assert there.post("/preview", asked).json()["decision"]["outcome"] == "block"
    clock.jump(-86_400)
    clock.forward(86_400)
    assert there.post("/preview", asked).json()["decision"]["outcome"] == "allow"


# -- a reset that resets nothing -------------------------------------------------------------


def test_a_second_reset_says_that_nothing_was_reset(world: Callable[..., World]) -> None:
    """The same policy again resets nothing, and the answer says so, and how to."""
    there = world()
    there.hospital("  - {id: a, limit: {epsilon: 1}, carry: none}\n")
    granted = there.post("/grants", {"dataset": "d", "mechanisms": [laplace("0.5")]}).json()
    there.post(f"/grants/{granted['id']}/commit", {})
    again = there.put(
        "/policy", "policy: p\nrules:\n  - {id: a, limit: {epsilon: 1}, carry: none}\n"
    )
    assert again.status_code == 200
    [told] = again.json()["not_reset"]
    assert told["rule"] == "a"
    assert "nothing was reset" in told["reason"]
    assert "carry: used, then with carry: none" in told["reason"]
