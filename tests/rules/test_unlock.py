"""A limit that unlocks gradually: with time, or by each request for a cell. It only tightens.

The models keep, for each cell, what is used and how many requests have asked for it, or when it
came; they divide in fractions, and share nothing with what they check.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pydantic import ValidationError
from support import SECOND, START, Book, declared, gaussian, laplace, make

from accountant.budget.advice import in_words, would_fit
from accountant.budget.apply import drop_journal, fold, keep_journal, rollback
from accountant.budget.commands import AskGrant
from accountant.budget.evaluate import evaluate
from accountant.budget.request import prepare
from accountant.budget.rules.limit import LimitRule
from accountant.budget.snapshot import dump, load
from accountant.budget.waiting.looking import Room, when
from accountant.budget.waiting.queue import Place
from accountant.ledger.events import Event, microseconds, rfc3339
from accountant.reporting.statement import accounts_json

HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND


def unlocks(how: str, more: str = "", epsilon: str = "10") -> str:
    """One limit that unlocks."""
    return f"  - {{id: a, limit: {{epsilon: {epsilon}}}, unlock: {{{how}}}{more}}}\n"


def opened(rules: str, dimensions: dict[str, list[str]] | None = None) -> Book:
    """A ledger on which two people adopted the rules."""
    book = Book()
    book.register(dimensions)
    book.dataset("d")
    book.policy(rules, confirmed_by="officer")
    return book


def allowed(event: Event) -> bool:
    """Whether a request was granted."""
    return event.type == "grant.reserved.v1"


def text(book: Book, event: Event) -> str:
    """What the decision says of the limit."""
    [found] = [one["text"] for one in book.decision(event)["rules"] if one["rule"] == "a"]
    return str(found)


# -- models ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unlock",
    [
        {},
        {"over": "30d", "per_request": "1/10"},
        {"over": "month"},
        {"over": "0d"},
        {"per_request": "0"},
        {"per_request": "2"},
        {"per_request": "3/2"},
        {"per_request": "1/0"},
        {"per_request": "-1/2"},
        {"per_request": "nan"},
    ],
)
def test_what_is_no_way_to_unlock_is_refused(unlock: dict[str, str]) -> None:
    """One of the two ways, with a span or a share above 0 and up to 1."""
    with pytest.raises(ValidationError):
        LimitRule.model_validate({"id": "a", "limit": {"epsilon": 1}, "unlock": unlock})


@pytest.mark.parametrize(
    ("every", "over"), [("monthly", "29d"), ("weekly", "8d"), ("daily", "25h")]
)
def test_a_budget_that_would_never_be_unlocked_is_refused(every: str, over: str) -> None:
    """A period of the calendar begins locked, and has to be long enough to unlock."""
    rules = f"  - {{id: a, refresh: {every}, limit: {{epsilon: 1}}, unlock: {{over: {over}}}}}\n"
    with pytest.raises(Exception, match="it would never be unlocked"):
        opened(rules)


# -- per request -----------------------------------------------------------------------------


def test_each_request_unlocks_a_fair_share_and_refused_ones_do_too() -> None:
    """PrivateKube's DPF-N: on arrival a block unlocks a share of its budget, whatever becomes of
    the request; with a budget of 10 and 1/10 a request of 2 is refused once and then fits.
    """
    book = opened(unlocks('per_request: "1/10"'))
    assert not allowed(book.grant(laplace("2")))
    assert allowed(book.grant(laplace("2")))
    assert allowed(book.grant(laplace("1")))
    assert not allowed(book.grant(laplace("1.000000001")))
    assert allowed(book.grant(laplace("2")))
    assert book.replayed().findings == []


def test_a_request_unlocks_only_the_cells_that_it_asks_for() -> None:
    """A block that nobody demands stays locked."""
    book = opened(unlocks("per_request: 1/2"), {"age": ["1", "2"]})
    assert allowed(book.grant(laplace("5"), subjects={"age": ["1"]}))
    assert not allowed(book.grant(laplace("5.1"), subjects={"age": ["2"]}))
    assert allowed(book.grant(laplace("5"), subjects={"age": ["1"]}))
    assert not allowed(book.grant(laplace("5.1")))  # the second week has its whole now
    assert allowed(book.grant(laplace("10"), subjects={"age": ["2"]}))


def test_neither_a_retry_nor_a_preview_nor_a_record_unlocks() -> None:
    """A retry is the same request, a preview none, and what has run has not asked; it is judged by
    the whole limit, which it keeps within.
    """
    book = opened(unlocks("per_request: 1/10"))
    for _ in range(3):
        book.do("ask_grant", key="same", dataset="d", mechanisms=[laplace("9")])
    recorded = book.record(laplace("0.5"))
    assert "fired" not in recorded.body
    assert "overrun" not in recorded.body
    counts = book.state.arrivals[book.key()].counts
    assert counts.everyone == [1]


def test_a_batch_counts_each_request_that_was_judged() -> None:
    """Granted: all; refused: those up to the one that failed, which did arrive."""
    book = opened(unlocks("per_request: 1/10"))
    small, large = (make("ask_grant", dataset="d", mechanisms=[laplace(e)]) for e in ("0.5", "9"))
    book.batch(small, small)
    assert book.state.arrivals[book.key()].counts.everyone == [2]
    book.batch(small, large, small)
    assert book.state.arrivals[book.key()].counts.everyone == [4]
    assert book.replayed().findings == []


def test_new_cells_begin_locked() -> None:
    """Whoever asked for everyone before has not asked for them."""
    book = opened(unlocks("per_request: 1/2"), {"age": ["1"]})
    for _ in range(2):
        book.grant(laplace("0.1"))
    book.register({"age": ["1", "2"]}, attested_new=True)
    assert not allowed(book.grant(laplace("6")))
    assert allowed(book.grant(laplace("6"), subjects={"age": ["1"]}))


def test_every_order_of_a_gate_unlocks() -> None:
    """The same share in each currency that is compared: of N Gaussians that all fit unlocked, the
    first of twice the fair share is refused.
    """
    limit = "{epsilon: 1, delta: 1e-6}"
    rules = "  - {id: a, limit: " + limit + ", gate: zcdp, unlock: {per_request: 1/4}}\n"
    most = opened("  - {id: a, limit: " + limit + ", gate: zcdp}\n").state.adopted
    assert most is not None
    [along] = most.epochs["a"].capacity.along
    mu = (Fraction(along, 10**15) * 2) ** Fraction(1, 2)
    book = opened(rules)
    assert not allowed(book.grant(gaussian(f"{float(mu) * 0.51:.6f}")))
    assert allowed(book.grant(gaussian(f"{float(mu) * 0.49:.6f}")))


def test_own_deltas_unlock_too() -> None:
    """A share of the limit is a share of its delta."""
    rules = (
        "  - {id: a, limit: {epsilon: 10, delta: 1e-6}, gate: basic, unlock: {per_request: 1/4}}\n"
    )
    book = opened(rules)
    assert not allowed(book.grant(declared("0.1", "0.0000003")))
    assert allowed(book.grant(declared("0.1", "0.0000003")))


# -- over time -------------------------------------------------------------------------------


def test_it_grows_evenly_from_the_adoption_and_to_the_unit() -> None:
    """At each stamp the part of the span that has passed, rounded down; all of it at its end."""
    book = opened(unlocks("over: 10h"))
    assert not allowed(book.grant(laplace("0.000000001")))
    book.now = START + HOUR - 1
    assert not allowed(book.grant(laplace("1")))
    book.now += 1
    assert allowed(book.grant(laplace("1")))
    book.now = START + 10 * HOUR - 1
    assert not allowed(book.grant(laplace("9")))
    book.now += 1
    assert allowed(book.grant(laplace("9")))
    assert book.replayed().findings == []


def test_a_value_that_is_added_later_unlocks_from_then_on() -> None:
    """A cell is as old as its youngest value."""
    book = opened(unlocks("over: 10h"), {"age": ["1"], "sex": ["f", "m"]})
    book.now = START + 5 * HOUR
    book.register({"age": ["1", "2"], "sex": ["f", "m"]}, attested_new=True)
    book.now = START + 6 * HOUR
    assert not allowed(book.grant(laplace("1.1"), subjects={"age": ["2"]}))
    assert allowed(book.grant(laplace("1"), subjects={"age": ["2"]}))
    assert allowed(book.grant(laplace("6"), subjects={"age": ["1"]}))
    book.now = START + 7 * HOUR
    assert not allowed(book.grant(laplace("1.1")))
    assert allowed(book.grant(laplace("1")))
    assert book.replayed().findings == []


def test_a_period_begins_locked() -> None:
    """A limit that refreshes unlocks anew in each period, with time and by request."""
    for how, ask in (("over: 12h", 12 * HOUR), ("per_request: 1/2", 0)):
        rules = f"  - {{id: a, refresh: daily, limit: {{epsilon: 10}}, unlock: {{{how}}}}}\n"
        book = opened(rules)
        book.now = (START // DAY + 1) * DAY + ask
        if not ask:
            book.grant(laplace("0.000000001"))
        assert allowed(book.grant(laplace("9.9")))
        book.now = (START // DAY + 2) * DAY
        assert not allowed(book.grant(laplace("5.1")))
        assert book.replayed().findings == []


# -- policies --------------------------------------------------------------------------------


def test_what_unlocks_faster_takes_two_people() -> None:
    """To add a lock, or a slower one, tightens; to take it off, or a faster one, loosens."""
    plain = "  - {id: a, limit: {epsilon: 10}}\n"
    slow, fast = unlocks("over: 30d"), unlocks("over: 3d")
    book = opened(plain)
    book.policy(fast)
    book.policy(slow)
    for rules in (fast, plain, unlocks("per_request: 1/100")):
        assert book.policy(rules)[-1].body["effect"]["loosens"] == ["a is raised or changed"]
    book = opened(unlocks("per_request: 1/10"))
    book.policy(unlocks("per_request: 1/20"))
    [proposed] = book.policy(unlocks("per_request: 1/19"))
    assert proposed.body["effect"]["loosens"] == ["a is raised or changed"]


def test_a_changed_limit_keeps_what_was_unlocked() -> None:
    """The same share of the new limit: neither locked anew nor unlocked at once."""
    for how in ("over: 10h", "per_request: 1/10"):
        book = opened(unlocks(how))
        book.now += 4 * HOUR
        for _ in range(4):
            book.grant(laplace("0.000000001"))
        book.policy(unlocks(how, epsilon="20"), confirmed_by="officer")
        share = 8 + 2 * how.startswith("per")  # the request that asks unlocks another tenth
        assert not allowed(book.grant(laplace(str(share))))
        assert allowed(book.grant(laplace("7.9")))
        assert book.replayed().findings == []


def test_a_rule_that_was_there_before_is_as_old_as_it_is() -> None:
    """A limit that begins to unlock with time has begun when it was adopted first: what has been
    usable for longer than the span is not locked anew.
    """
    book = opened("  - {id: a, limit: {epsilon: 10}}\n")
    book.now += 5 * HOUR
    book.policy(unlocks("over: 10h"))
    assert not allowed(book.grant(laplace("5.1")))
    assert allowed(book.grant(laplace("5")))


# -- what is said ----------------------------------------------------------------------------


def test_a_refusal_says_how_much_is_unlocked_and_what_is_left_of_the_whole() -> None:
    """Of the limit, of the whole, and both sides."""
    book = opened(unlocks("per_request: 1/10"))
    book.grant(laplace("0.4"))
    said = text(book, book.grant(laplace("3")))
    assert "epsilon 2 of 10 is unlocked here so far, by 1/10 with each request for a cell" in said
    assert "epsilon 0.4 used + 3 asked = 3.4 is more than 2" in said
    assert "of the whole limit 9.6 is left" in said
    book = opened(unlocks("over: 10h"))
    book.now += 5 * HOUR
    said = text(book, book.grant(laplace("1")))
    assert "epsilon 5 of 10 is unlocked here so far, evenly over 10 hours" in said
    assert "epsilon 0 used + 1 asked = 1 is within 5" in said


# -- models ----------------------------------------------------------------------------------

WEEKS = ["1", "2", "3"]
HOWS = ("over: 10h", "per_request: 1/7")


class Model(RuleBasedStateMachine):
    """Requests on some weeks, beside what each week has used, and how much of it is unlocked."""

    @initialize(how=st.sampled_from(HOWS))
    def open(self, how: str) -> None:
        """Begins."""
        self.how = how
        self.book = opened(unlocks(how, epsilon="1"), {"age": WEEKS[:1]})
        self.weeks = 1
        self.used, self.asked, self.born = [0] * 3, [0] * 3, [START] * 3
        self.open_grants: list[tuple[str, list[int], int]] = []
        self.most = 10**9

    def share(self, week: int) -> Fraction:
        """How much of a week is unlocked."""
        if self.how == HOWS[0]:
            return min(Fraction(self.book.now - self.born[week], 10 * HOUR), Fraction(1))
        return min(Fraction(self.asked[week], 7), Fraction(1))

    def fits(self, weeks: list[int], units: int) -> bool:
        """Whether so much fits on these."""
        return all(self.used[w] + units <= int(self.most * self.share(w)) for w in weeks)

    @rule(units=st.integers(1, 600_000_000), weeks=st.sets(st.integers(0, 2), min_size=1))
    def ask(self, units: int, weeks: set[int]) -> None:
        """Granted if and only if it fits once it has arrived."""
        mine = sorted(w for w in weeks if w < self.weeks) or [0]
        for week in mine:
            self.asked[week] += 1
        fits = self.fits(mine, units)
        subjects = {"age": [WEEKS[w] for w in mine]}
        event = self.book.grant(laplace(f"{units / 10**9:.9f}"), subjects=subjects)
        assert allowed(event) is fits
        if fits:
            self.open_grants.append((f"g{event.sequence}", mine, units))
            for week in mine:
                self.used[week] += units

    @rule(units=st.integers(1, 400_000_000))
    def everyone(self, units: int) -> None:
        """A request on all weeks that there are."""
        self.ask(units, set(range(self.weeks)))

    @rule(minutes=st.integers(0, 55))
    def release(self, minutes: int) -> None:
        """The oldest comes back, unless it has expired."""
        if self.open_grants:
            name, weeks, units = self.open_grants.pop(0)
            if not self.book.state.open[name].due(self.book.now):
                self.book.do("release_grant", grant=name, reason="never run")
                for week in weeks:
                    self.used[week] -= units

    @rule(minutes=st.sampled_from([1, 17, 60, 240]))
    def wait(self, minutes: int) -> None:
        """Time passes."""
        self.book.now += minutes * 60 * SECOND

    @rule()
    def grow(self) -> None:
        """Another week comes."""
        if self.weeks < 3:
            self.born[self.weeks] = self.book.now
            self.weeks += 1
            self.book.register({"age": WEEKS[: self.weeks]}, attested_new=True)

    @rule(most=st.sampled_from([1, 2]))
    def raised(self, most: int) -> None:
        """Another limit, with the same share unlocked."""
        self.book.policy(unlocks(self.how, epsilon=str(most)), confirmed_by="officer")
        self.most = most * 10**9

    @rule(units=st.integers(1, 400_000_000))
    def undone(self, units: int) -> None:
        """What is decided and taken back never was."""
        before, size, keys = self.book.state.frozen(), len(self.book.stored), self.book.keys
        keep_journal(self.book.state)
        self.book.grant(laplace(f"{units / 10**9:.9f}"))
        assert rollback(self.book.state)
        drop_journal(self.book.state)
        del self.book.stored[size:]
        self.book.keys = keys
        assert self.book.state.accounts == before.accounts
        assert self.book.state.arrivals == before.arrivals

    @rule()
    def restarted(self) -> None:
        """A snapshot goes on as the state does."""
        self.book.state = load(self.book.name, b"".join(dump(self.book.state)))

    def teardown(self) -> None:
        """Replay, and a fold, come to the same."""
        if hasattr(self, "book"):
            assert self.book.replayed().findings == []
            folded = fold("fair", map(Event.from_bytes, self.book.stored))
            assert folded.arrivals == self.book.state.arrivals


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(40), stateful_step_count=25)


class Twins(RuleBasedStateMachine):
    """Whatever is granted with a lock would be granted without it, in the same state."""

    @initialize(
        gate=st.sampled_from(["basic", "zcdp", "renyi", "gdp", "advanced"]),
        how=st.sampled_from(HOWS),
    )
    def open(self, gate: str, how: str) -> None:
        """Two ledgers that differ in the lock."""
        more = f", gate: {gate}"
        limit = "  - {{id: a, limit: {{epsilon: 1, delta: 1e-5}}{}}}\n"
        self.tight = opened(limit.format(more + f", unlock: {{{how}}}"), {"age": WEEKS})
        self.loose = opened(limit.format(more), {"age": WEEKS})

    @rule(
        stated=st.sampled_from(
            [laplace("0.05"), gaussian("0.05"), gaussian("0.02", "1e-7"), declared("0.3")]
        ),
        week=st.sampled_from([None, *WEEKS]),
        minutes=st.integers(0, 90),
    )
    def ask(self, stated: dict[str, Any], week: str | None, minutes: int) -> None:
        """The loose one follows what the tight one grants."""
        for book in (self.tight, self.loose):
            book.now += minutes * 60 * SECOND
        subjects = {"age": [week]} if week else None
        if allowed(self.tight.grant(stated, subjects=subjects)):
            assert allowed(self.loose.grant(stated, subjects=subjects))


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=examples(30), stateful_step_count=20)


# -- when it would fit -----------------------------------------------------------------------


def advice(book: Book, *mechanisms: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a refusal advises."""
    command = make("ask_grant", dataset="d", mechanisms=list(mechanisms), **more)
    assert isinstance(command, AskGrant)
    return would_fit(book.state.about("d", "pipe", book.now), "pipe", command, book.now)


def test_advice_says_from_when_on_it_fits_to_the_microsecond() -> None:
    """With time alone: when enough is unlocked, and not a microsecond before."""
    book = opened(unlocks("over: 10h"))
    assert not allowed(book.grant(laplace("3.3")))
    found = advice(book, laplace("3.3"))
    assert found["from"] == rfc3339(START + 33 * HOUR // 10)
    assert f"it fits from {found['from']}" in in_words(found)
    book.now = microseconds(found["from"]) - 1
    assert not allowed(book.grant(laplace("3.3")))
    book.now += 1
    assert allowed(book.grant(laplace("3.3")))
    assert "from" not in advice(book, laplace("7"))  # more than the whole has left


def test_advice_says_after_how_many_more_requests_it_fits() -> None:
    """To ask again is one of them."""
    book = opened(unlocks("per_request: 1/10"))
    assert not allowed(book.grant(laplace("3.5")))
    found = advice(book, laplace("3.5"))
    assert found["requests"] == 3
    assert "fits after 3 more requests" in in_words(found)
    assert [allowed(book.grant(laplace("3.5"))) for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("rules", "spent", "asked", "stamp"),
    [
        ("refresh: monthly", "0.8", "0.3", "2026-10-01T00:00:00.000000Z"),
        ("refresh: weekly", "0.8", "0.3", "2026-09-28T00:00:00.000000Z"),
        ("refresh: daily, unlock: {over: 24h}", "0.1", "0.5", "2026-09-22T12:00:00.000000Z"),
    ],
)
def test_advice_names_the_next_period(rules: str, spent: str, asked: str, stamp: str) -> None:
    """A refusal in one period says when it fits in the next, and that a date has no time."""
    book = opened(f"  - {{id: a, {rules}, limit: {{epsilon: 1}}}}\n")
    book.record(laplace(spent))
    book.record(laplace("0.45")) if "unlock" in rules else None
    found = advice(book, laplace(asked))
    assert found["from"] == stamp
    assert "fits from 2026-" in in_words(found)
    book.now = microseconds(stamp) - 1
    assert not allowed(book.grant(laplace(asked)))
    book.now += 1
    assert allowed(book.grant(laplace(asked)))


@pytest.mark.parametrize("gate", ["basic", "zcdp"])
@given(data=st.data())
def test_what_waits_is_looked_at_again_when_time_has_unlocked_it(
    gate: str, data: st.DataObject
) -> None:
    """A cell has a need left from the stamp that is told, and at no earlier one."""
    book = opened(
        f"  - {{id: a, gate: {gate}, limit: {{epsilon: 2, delta: 1e-6}}, unlock: {{over: 8h}}}}\n"
    )
    book.now += data.draw(st.integers(1, 3 * HOUR))
    book.record(laplace(data.draw(st.sampled_from(["0.1", "0.25", "0.4"]))))
    book.now += data.draw(st.integers(1, 6 * HOUR))
    [counted] = book.state.limits_on(("d",), "pipe")
    sides = counted.epoch.capacity.sides
    need = tuple(data.draw(st.integers(0, most)) for _, most in sides)
    place: Place = counted.key, (0,) * len(book.state.people().shape)
    stamp = when(book.state, place, need, book.now)
    last = book.now + 9 * HOUR
    assert Room(book.state, last).at(place)(need) == (
        stamp is not None or Room(book.state, book.now).at(place)(need)
    )
    if stamp is not None:
        assert Room(book.state, stamp).at(place)(need)
        earlier = Room(book.state, stamp - 1).at(place)(need)
        assert not earlier or stamp == book.now + 1


def test_one_that_has_waited_does_not_unlock_again() -> None:
    """A request that arrived before is judged without another part."""
    book = opened(unlocks("per_request: 1/10"))
    command = make("ask_grant", dataset="d", mechanisms=[laplace("1")])
    assert isinstance(command, AskGrant)
    request = prepare(book.state, "pipe", command, book.now)
    assert evaluate(book.state, request).outcome == "allow"
    assert evaluate(book.state, request.among(0)).outcome == "block"


# -- PrivateKube's example, and those who would have more ------------------------------------


def test_grant_grant_wait_and_who_comes_second_goes_first() -> None:
    """Two blocks of 10, a fair share of 1 for each request. A claim on both takes its share; a
    larger one on both is refused until more have arrived, while one that comes after it, and needs
    less, is granted; once it asks again after that, the larger one fits too.
    """
    book = opened(unlocks("per_request: 1/10"), {"block": ["1", "2"]})
    assert allowed(book.grant(laplace("1")))
    assert not allowed(book.grant(laplace("2")))
    assert allowed(book.grant(laplace("1"), subjects={"block": ["1"]}))
    assert not allowed(book.grant(laplace("2.5")))  # the first block: 4 less 2
    assert allowed(book.grant(laplace("2")))
    counts = book.state.arrivals[book.key()].counts.cells()[0].tolist()
    assert counts == [5, 4]


def test_whoever_asks_in_a_batch_for_nothing_gains_no_more_than_the_limit() -> None:
    """An attacker who floods a limit with requests unlocks all of it, and no unit more."""
    book = opened(unlocks("per_request: 1/10"))
    tiny = make("ask_grant", dataset="d", mechanisms=[laplace("0.000000001")])
    book.batch(*[tiny] * 30)
    assert not allowed(book.grant(laplace("10")))
    assert allowed(book.grant(laplace("9.99999997")))
    assert not allowed(book.grant(laplace("0.000000001")))


def test_what_is_paid_for_a_decision_does_not_grow_with_the_ledger() -> None:
    """Of a thousand requests a limit keeps one number for each cell, and for everyone none."""
    book = opened(
        unlocks("per_request: 1/1000") + "  - {id: b, limit: {epsilon: 1}}\n", {"x": ["1", "2"]}
    )
    for number in range(60):
        book.grant(laplace("0.0001"), subjects={"x": ["1"]} if number % 2 else None)
    [arrived] = book.state.arrivals.values()
    assert arrived.counts.cells().tolist() == [[60, 30]]


@pytest.mark.parametrize("more", [", across: datasets", ", per: client", ", action: flag"])
def test_it_combines_with_totals_and_sub_limits(more: str) -> None:
    """A request on several datasets counts once in a total; a client unlocks its own share only."""
    book = opened(unlocks("per_request: 1/10", more) + "  - {id: wide, limit: {epsilon: 1000}}\n")
    book.dataset("e")
    asks = [("one", ["d", "e"], "1"), ("one", "d", "1.5"), ("two", "e", "1.2"), ("two", "d", "0.5")]
    said = [
        allowed(book.do("ask_grant", by, dataset=on, mechanisms=[laplace(cost)]))
        for by, on, cost in asks
    ]
    expected = {"across": [True, False, True, True], "per": [True, False, False, True]}
    assert said == expected.get(more.split(":", maxsplit=1)[0][2:], [True] * 4)
    assert book.replayed().findings == []


def test_accounts_show_how_much_is_unlocked() -> None:
    """Of the cell of which least is."""
    book = opened(unlocks("per_request: 1/10"), {"x": ["1", "2"]})
    book.grant(laplace("0.1"), subjects={"x": ["1"]})
    [line] = accounts_json(book.state)["accounts"]
    assert line["unlocked"] == "0"
    book.grant(laplace("0.1"))
    [line] = accounts_json(book.state)["accounts"]
    assert line["unlocked"] == "1"
