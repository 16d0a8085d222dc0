"""The page of an account, and the accounts of a population."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from browser import signed_in
from deciding import texts
from report_desk import DAY, Desk
from support import SECOND, World, declared, gaussian, laplace

from accountant.console.drawing import FRAMES
from accountant.console.facts.account import AccountFacts, account
from accountant.console.facts.listing import EACH, Listing, listing
from accountant.console.facts.parts import Part, laid_out
from accountant.console.pages import account_words as words
from accountant.console.pages.accounts import told
from accountant.console.pages.group_words import heat
from accountant.console.pages.picture_words import picture
from accountant.reporting.desk import Desk as Following
from accountant.reporting.schema import as_number

PLACES = {"region": ["north", "south", "west"], "age": ["young", "old"]}
TWO = """\
  - {id: a, datasets: d, limit: {epsilon: 3}}
  - {id: all, across: datasets, limit: {epsilon: 2}}
  - {id: month, datasets: d, window: 30d, limit: {epsilon: 1}, action: flag}
  - {id: north, datasets: d, subjects: {region: north}, limit: {epsilon: 2.5}}
  - {id: each, per: client, datasets: d, limit: {epsilon: 1.5}}
  - {id: why, require: [purpose], action: flag}
"""


def facts(desk: Desk, dataset: str = "d", **more: Any) -> AccountFacts:
    """What the page of an account shows now."""
    question = partial(account, dataset=dataset, **more)
    found = Following(desk.ledgers).ask(desk.name, question, desk.clock.now, None, 30)
    assert isinstance(found, AccountFacts)
    return found


def listed(desk: Desk, **more: Any) -> Listing:
    """What the page of all accounts shows now."""
    question = partial(listing, **more)
    found = Following(desk.ledgers).ask(desk.name, question, desk.clock.now, None, 30)
    assert isinstance(found, Listing)
    return found


def test_an_account_says_what_is_left_of_its_tightest_limit(desk: Desk) -> None:
    """Spent, reserved and left are those of the peak cell; a usual request, one that no longer
    fits, and what runs over the limit change the first sentence.
    """
    desk.hospital(dimensions=PLACES)
    assert words.headline(facts(desk)) == "Nothing was spent of 1"
    desk.grant(laplace("0.25"), subjects={"region": ["north"]})
    desk.record(laplace("0.125"))
    found = facts(desk)
    assert found.limit is not None
    total = found.limit.total
    assert (total.spent, total.reserved, total.remaining) == ("0.125", "0.25", "0.625")
    assert words.headline(found).startswith("0.625 of 1 is left, enough for about 2 usual requests")
    assert found.limit.worst == {"region": "north"}
    desk.record(laplace("0.5"))
    desk.grant(laplace("0.5"))
    found = facts(desk)
    assert words.headline(found) == "0.125 of 1 is left, too little for a usual request"
    assert found.burn is not None
    assert len(found.burn.refused) == 1
    desk.record(laplace(2))
    assert words.headline(facts(desk)) == "d is over its limit: 2.625 spent, 1 allowed"
    assert "that of 2.875 does" in words.lede(facts(desk))


def test_a_limit_with_room_is_not_said_to_have_too_little(desk: Desk) -> None:
    """Where another limit refuses the usual request, that is said of none that has room for it."""
    rules = "  - {id: a, limit: {epsilon: 1}}\n  - {id: b, across: datasets, limit: {epsilon: 2}}\n"
    desk.hospital(rules)
    for _ in range(3):
        desk.grant(laplace("0.3"))
    own, whole = facts(desk), facts(desk, "*")
    assert words.headline(own) == "0.100 of 1 is left, too little for a usual request"
    assert "costs 0.300, so the next one about everyone is refused." in words.lede(own)
    assert words.headline(whole) == "1.100 of 2 is left, and yet a usual request is refused"
    assert "is refused, by this rule or another one." in words.lede(whole)


def test_a_dataset_without_a_limit_of_its_own_stands_under_that_on_all(desk: Desk) -> None:
    """It shows the limit on all datasets together; a dataset that nothing covers says so."""
    desk.population()
    desk.dataset("d", "e", "f")
    assert words.headline(facts(desk)) == "No limit covers d"
    assert "no policy is in force" in words.lede(facts(desk))
    desk.policy("  - {id: all, across: datasets, datasets: [d, e], limit: {epsilon: 2}}\n")
    desk.record(laplace("0.5"), dataset="e")
    found = facts(desk)
    assert found.limit is not None
    assert (found.limit.rule, found.limit.shared, found.limit.total.spent) == ("all", True, "0.5")
    assert facts(desk, "f").limit is None
    together = facts(desk, "*")
    assert [p.name for h in together.spending.headings for p in h.parts] == ["e"]
    rows = {row.dataset: row for row in listed(desk).accounts}
    assert (rows["d"].shared, rows["d"].status) == (True, "within")
    assert (rows["f"].status, rows["f"].total) == ("no_limit", None)
    assert (listed(desk).total, listed(desk).unlimited) == (4, 1)


def test_rules_on_all_data_together_are_told_there_only(desk: Desk) -> None:
    """A threshold stands where its limit does; where no limit covers all data, that is said."""
    rules = "  - {id: a, datasets: d, limit: {epsilon: 3}}\n  - {id: near, of: a, at: 80%}\n"
    desk.hospital(rules)
    desk.dataset("e")
    for dataset, shown in (("d", {"a", "near"}), ("e", set()), ("*", set())):
        policy = facts(desk, dataset).policy
        assert policy is not None
        assert {one.id for one in policy.rules} == shown
    assert words.lede(facts(desk, "*")).endswith("no limit of the policy covers it.")


def test_a_pace_begins_with_the_limit(desk: Desk) -> None:
    """A limit of a month that was adopted within it has no pace before a day has passed, and then
    one since its adoption; in the next month the pace is that of the month.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 1}, refresh: monthly}\n")
    now = datetime.fromtimestamp(desk.clock.now / SECOND, UTC)
    assert now.day > 2, "the clock of tests begins within a month"

    def pace() -> tuple[str | None, str]:
        limit = facts(desk).limit
        assert limit is not None
        return limit.forecast.paces[0].a_day, limit.forecast.why

    assert pace() == (None, "nothing was spent yet")
    desk.forward(60)
    desk.record(laplace("0.25"))
    assert pace() == (None, "it has counted for less than a day")
    desk.forward(2 * DAY)
    a_day, _ = pace()
    assert a_day is not None
    assert float(a_day) == pytest.approx(0.125, rel=1e-3)
    desk.forward((31 - now.day) * DAY)
    desk.record(laplace("0.5"))
    begun = datetime.fromtimestamp(desk.clock.now / SECOND, UTC)
    since = begun - begun.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    a_day, _ = pace()
    assert a_day is not None
    assert float(a_day) == pytest.approx(0.5 / (since.total_seconds() / DAY), rel=1e-3)


def test_every_limit_that_a_request_has_to_fit_is_there(desk: Desk) -> None:
    """Other limits are listed with what is left, and have pages of their own; parts of clients are
    told apart; a limit that is about some people shows these only.
    """
    desk.hospital(TWO, PLACES)
    desk.grant(laplace("0.5"), subjects={"region": ["north"]}, purpose="x")
    desk.grant(laplace("0.25"), by="other", purpose="y")
    found = facts(desk)
    assert found.limit is not None
    assert {one.rule for one in found.others} | {found.limit.rule} == {"a", "all", "month", "north"}
    assert [one.total.reserved for one in found.parts] == ["0.5", "0.25"]
    rolling, north = facts(desk, rule="month").limit, facts(desk, rule="north")
    assert rolling is not None
    assert rolling.window == "30 days"
    assert (rolling.forecast.paces[0].runs_out, rolling.action) == (None, "flag")
    assert north.limit is not None
    assert north.groups is not None
    assert north.groups.columns is not None
    assert north.groups.columns.shown == ("north",)
    assert north.limit.about == "region “north”"
    assert [row.rule for row in listed(desk).parts] == ["each", "each"]


def test_a_group_shows_its_worst_person(desk: Desk) -> None:
    """Each place of the heat map is the peak over the other dimensions, whichever two are chosen,
    for few charges and for charges on everyone; one dimension makes one column, none no table.
    """
    three = PLACES | {"job": ["a", "b"]}
    desk.hospital(dimensions=three)
    everyone = facts(desk).groups
    assert everyone is not None
    assert {place.used for row in everyone.places for place in row} == {"0"}
    desk.record(laplace("0.5"), subjects={"region": ["north"], "job": ["a"]})
    desk.record(laplace("0.25"), subjects={"age": ["old"], "job": ["b"]})
    desk.record(laplace("0.125"))
    for by in ((), ("job", "region"), ("age", "nothing", "job")):
        found = facts(desk, by=by).groups
        assert found is not None
        assert found.columns is not None
        names = [*(name for name in by if name in three), "age", "job"]
        assert [found.rows.dimension, found.columns.dimension] == list(dict.fromkeys(names))[:2]
    by_job = facts(desk, by=("region", "job")).groups
    assert by_job is not None
    used = [[place.used for place in row] for row in by_job.places]
    assert used == [["0.625", "0.375"], ["0.125", "0.375"], ["0.125", "0.375"]]
    found = facts(desk, by=("region", "job"))
    assert found.limit is not None
    shown = heat(found.limit, "0.5", by_job)
    assert shown.said == "1 of 6 groups has less left than a usual request costs."
    assert [cell.shade for cell in shown.rows[0][1]] == [5, 1]


def test_what_was_worked_out_once_is_never_old(desk: Desk) -> None:
    """The same follower tells what an event has changed, what time alone gives back to a window,
    and what an allotment keeps no more once it has ended.
    """
    desk.hospital(
        "  - {id: a, limit: {epsilon: 4}}\n"
        "  - {id: month, window: 30d, limit: {epsilon: 1}}\n"
        "  - {id: part, part_of: a, limit: {epsilon: 1}, clients: [x], until: 2026-12-31}\n"
    )
    following = Following(desk.ledgers)

    def left(rule: str) -> str:
        question = partial(account, dataset="d", rule=rule)
        found = following.ask(desk.name, question, desk.clock.now, None, 30)
        assert isinstance(found, AccountFacts)
        assert found.limit is not None
        return found.limit.total.remaining

    assert (left("a"), left("month")) == ("3", "1")
    desk.record(laplace("0.25"))
    assert (left("a"), left("month")) == ("2.75", "0.75")
    desk.forward(29 * DAY)
    assert (left("a"), left("month")) == ("2.75", "0.75")
    desk.forward(2 * DAY)
    assert (left("a"), left("month")) == ("2.75", "1")
    desk.forward(366 * DAY)
    assert left("a") == "3.75"


def test_of_many_values_the_most_charged_are_shown(desk: Desk) -> None:
    """A dimension of more values than fit shows the worst ones, in their order, and says so."""
    many = [f"v{i:03}" for i in range(100)]
    desk.hospital(dimensions={"v": many})
    desk.record(laplace("0.5"), subjects={"v": ["v077", "v099"]})
    desk.record(laplace("0.25"), subjects={"v": {"from": "v050", "to": "v055"}})
    found = facts(desk).groups
    assert found is not None
    assert found.columns is None
    assert (found.rows.values, found.rows.chosen) == (100, "the most charged")
    assert {"v050", "v055", "v077", "v099"} <= set(found.rows.shown)
    assert list(found.rows.shown) == sorted(found.rows.shown)


def test_a_population_of_very_many_cells_is_told_by_class(desk: Desk) -> None:
    """Where sums are kept by the classes of cells, a place is the worst class that it meets."""
    sides = {name: [f"{name}{i}" for i in range(130)] for name in "xyz"}
    desk.hospital(dimensions=sides)
    desk.record(laplace("0.5"), subjects={"x": ["x3"], "y": ["y7", "y100"], "z": ["z0"]})
    desk.record(laplace("0.125"), subjects={"y": ["y7"]})
    found = facts(desk, by=("x", "y")).groups
    assert found is not None
    assert found.columns is not None
    row = found.places[found.rows.shown.index("x3")]
    used = dict(zip(found.columns.shown, (place.used for place in row), strict=True))
    assert (used["y7"], used["y100"]) == ("0.625", "0.5")
    one = found.places[found.rows.shown.index("x0")]
    assert one[found.columns.shown.index("y7")].used == "0.125"


def test_parts_begin_where_those_before_end(desk: Desk) -> None:
    """Shares add up to the whole; what Gaussian noise costs counts in the currency that decides,
    also where it has no epsilon; small parts are put together.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n")
    for by in ("ann", "bob", "ann"):
        desk.record(gaussian("0.2"), by=by)
    [clients, *_] = facts(desk).spending.headings
    assert [part.name for part in clients.parts] == ["ann", "bob"]
    assert [round(part.share or 0) for part in clients.parts] == [67, 33]
    assert clients.parts[1].begins == clients.parts[0].share
    many = [Part(f"p{i}", str(i), str(i), 1) for i in range(20)]
    found = laid_out(many, 5)
    assert [part.name for part in found] == ["p19", "p18", "p17", "p16", "p15", "14 others"]
    assert found[-1].amount == str(sum(range(15)))
    assert abs(sum(part.share or 0 for part in found) - 100) < 1e-9
    unbounded = [Part("x", "infinite", None, 1), Part("y", "1", "1", 1)]
    assert [part.percent for part in laid_out(unbounded, 5)] == ["no bound", "–"]


def test_rules_and_limits_are_told_of_any_day(desk: Desk) -> None:
    """At an event, or on a day, the rules that were in force then are shown with when each began
    to say what it says, and the limit as it was; before the first policy there are none.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n  - {id: why, require: [purpose]}\n")
    first = desk.service.head("clinic").size - 1
    desk.grant(laplace("0.25"), purpose="x")
    desk.forward(3 * DAY)
    desk.policy("  - {id: a, limit: {epsilon: 2}}\n  - {id: why, require: [purpose]}\n")
    last = desk.service.head("clinic").size - 1
    desk.grant(laplace("1.5"), purpose="x")
    now, then = facts(desk), facts(desk, at=str(last - 1))
    assert now.policy is not None
    assert then.policy is not None
    assert (now.policy.number, then.policy.number) == (2, 1)
    assert [(rule.id, rule.since) for rule in now.policy.rules] == [("a", last), ("why", first)]
    assert "epsilon 1," in then.policy.rules[0].sentence
    assert [(one.epsilon, bool(one.until)) for one in now.limits] == [("2", False), ("1", True)]
    assert then.past is not None
    assert then.past.point is not None
    assert (then.past.point.limit, then.past.point.spent_and_reserved) == ("1", "0.25")
    day = facts(desk, at=then.past.point.time[:10])
    assert day.policy == then.policy
    assert facts(desk, at="1999-01-01").policy is None
    assert now.burn is not None
    assert {point.limit for point in now.burn.points} == {"1", "2"}


def test_no_label_covers_another_where_nothing_was_spent(desk: Desk) -> None:
    """What is left stands then where the limit does, and its label below the line."""
    desk.hospital()
    found = facts(desk)
    assert found.limit is not None
    assert found.burn is not None
    drawn = picture("d", None, found.limit, found.burn)
    assert drawn is not None
    for drawing in drawn.drawings:
        limit, left = [one for one in drawing.marks if one.style == "t-b"]
        assert (limit.text, left.text) == ("limit 1", "1.000 left")
        assert left.y - limit.y > left.size


def test_the_picture_has_what_its_table_has(desk: Desk) -> None:
    """There is a drawing for each width, within its frame, with the limit as it was, a cross for a
    refusal, and words for those who do not see it; the table has the same amounts.
    """
    desk.hospital()
    for _ in range(5):
        desk.forward(2 * DAY)
        desk.record(laplace("0.125"))
    desk.grant(laplace(1))
    found = facts(desk)
    assert found.limit is not None
    assert found.burn is not None
    drawn = picture("d", "0.125", found.limit, found.burn)
    assert drawn is not None
    assert [one.frame for one in drawn.drawings] == list(FRAMES)
    for one in drawn.drawings:
        assert sum(mark.style == "l-x" for mark in one.marks) == 1
        texts = [mark for mark in one.marks if mark.text]
        assert {"0.375 left", "limit 1"} <= {mark.text for mark in texts}
        assert all(0 <= m.x <= one.frame.width and 0 <= m.y <= one.frame.height for m in texts)
    assert [row.left for row in drawn.rows[:2]] == ["0.375", "0.5"]
    assert "0.375 now" in drawn.described
    assert "The last refusal was on" in drawn.described


def test_this_week_is_compared_with_the_last(desk: Desk) -> None:
    """What is spent rose by what was charged to the peak, in seven days and the seven before."""
    desk.hospital("  - {id: a, limit: {epsilon: 5}}\n")
    desk.record(laplace("0.25"))
    desk.forward(8 * DAY)
    desk.record(laplace("0.5"))
    desk.grant(laplace(9))
    week = facts(desk).week
    assert (week.spent, week.spent_before) == ("0.5", "0.25")
    assert (week.this, week.last) == ({"recorded": 1, "refused": 1}, {"recorded": 1})
    text = told(facts(desk), {}, exact=False)["week_headline"]
    assert text == "This week took twice as much as last"


def test_accounts_come_worst_first_a_page_at_a_time(desk: Desk) -> None:
    """All accounts are on some page, once; a filter finds a part of a name, whatever its case."""
    desk.population()
    names = [f"set-{i:03}" for i in range(EACH + 5)]
    desk.all([("register_dataset", "admin", {"id": n, "namespace": "n", "name": n}) for n in names])
    desk.policy("  - {id: a, limit: {epsilon: 1}}\n")
    desk.record(laplace("0.9"), dataset="set-117")
    first, second = listed(desk), listed(desk, number=2)
    assert first.accounts[0].dataset == "set-117"
    assert (len(first.accounts), len(second.accounts), second.pages) == (EACH, 5, 2)
    assert sorted(row.dataset for one in (first, second) for row in one.accounts) == names
    assert listed(desk, name="SET-11", number=9).accounts[0].dataset == "set-117"
    assert listed(desk, name="nothing").found == 0


def test_kept_parts_locked_parts_and_further_units_are_told(desk: Desk) -> None:
    """What allotments keep is not left; what is locked is told; a further unit has an account of
    its own, with its own name; whatever is told may come from another process.
    """
    units = {"day": {"part_of": "person", "at_most": 31, "called": "one person on one day"}}
    desk.population(PLACES, units=units)
    desk.dataset("d")
    desk.policy(
        "  - {id: a, limit: {epsilon: 4}}\n"
        "  - {id: part, part_of: a, limit: {epsilon: 1}, clients: [pipe]}\n"
        "  - {id: days, unit: day, limit: {epsilon: 3}}\n"
        "  - {id: slow, unlock: {over: 40d}, limit: {epsilon: 2}}\n"
    )
    desk.record(laplace("0.5"), by="other")
    desk.forward(10 * DAY)
    found = facts(desk, rule="a")
    assert found.limit is not None
    total = found.limit.total
    assert (total.remaining, total.kept) == ("2.5", "1")
    assert "1.000 kept by allotments" in words.figures(found, found.limit)[2].beside
    days, slow = facts(desk, rule="days").limit, facts(desk, rule="slow").limit
    assert days is not None
    assert (days.unit, days.unit_name) == ("one person on one day", "day")
    assert slow is not None
    assert slow.unlocked == "0.5"
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 our own


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A hospital with a request, an overrun and a refusal."""
    here = world()
    here.hospital()
    for path, epsilon in (("/grants", "0.25"), ("/grants", 9), ("/invocations", 5)):
        asked = {"dataset": "d", "mechanisms": [laplace(epsilon)], "purpose": "<i>why</i>"}
        assert here.post(path, asked).status_code < 500
    return here


def test_pages_keep_what_was_asked_and_refuse_what_is_not_there(made: World) -> None:
    """Each view has an address; an unknown dataset, limit or population is a page that says so, and
    whoever only asks for data sees none of them.
    """
    browser = signed_in(made, "olive", "officer")
    page = browser.get("/console/fair/accounts/d?exact=1&at=4").text
    assert "&lt;i&gt;why&lt;/i&gt;" in page
    assert "/console/fair/accounts/d?at=4" in page.replace("&amp;", "&")
    assert "As it was at event 4" in page
    assert browser.get("/console/fair/accounts/%2A").status_code in (200, 404)
    for path in ("/fair/accounts/no", "/fair/accounts/d?rule=no", "/no/accounts", "/no/accounts/d"):
        answer = browser.get(f"/console{path}")
        assert answer.status_code == 404, path
        assert "text/html" in answer.headers["content-type"]
    assert browser.get("/console/fair/accounts?name=%3Cb%3E&page=7").status_code == 200
    for odd in ("at=2026-99-99", "at=-1", "at=999999999999999", "rows=age&columns=age", "rows=%00"):
        answer = browser.get(f"/console/fair/accounts/d?{odd}")
        assert (answer.status_code, "<h1>d</h1>" in answer.text) == (200, True), odd


def test_amounts_that_have_no_bound_are_told_as_such(desk: Desk) -> None:
    """A release without a bound makes the account over, and every number of it is still a page."""
    desk.hospital(dimensions=PLACES)
    desk.record({"kind": "non_private"}, subjects={"region": ["west"]})
    found = facts(desk)
    assert found.limit is not None
    assert found.limit.total.spent == "infinite"
    assert as_number(found.limit.total.spent) == float("inf")
    assert "nothing is promised" in words.lede(found)
    assert found.groups is not None
    shown = heat(found.limit, None, found.groups)
    assert [cell.text for cell in shown.rows[0][1]] == ["0.000", "0.000", "∞"]
    headline = told(found, {}, exact=True)["headline"]
    assert headline.startswith("d is over its limit: a loss without any bound was booked")


def test_an_account_that_is_over_says_by_what(world: Callable[..., World]) -> None:
    """Over by a loss without any bound, or by its delta alone: Home, the account and the report of
    an officer do not state numbers that are within the limit, and promise nothing where nothing is.
    """
    made = world().hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n")
    for name in ("endless", "delta"):
        assert made.put(f"/datasets/{name}", {"namespace": "n", "name": name}).is_success
    endless = {"dataset": "endless", "mechanisms": [{"kind": "non_private"}]}
    assert made.post("/invocations", endless).is_success
    little = {"dataset": "delta", "mechanisms": [declared("0.01", "1e-5")]}
    assert made.post("/invocations", little).is_success
    browser = signed_in(made)
    today = datetime.fromtimestamp(made.service.time() / SECOND, UTC).date().isoformat()
    asked = f"kind=officer&dataset=&first={today}&last={today}&format=html"
    home = texts(browser.get("/console"))
    report = texts(browser.get(f"/console/fair/reports/file?{asked}"))
    over = {
        "endless": "endless is over its limit: a loss without any bound was booked, 1 allowed",
        "delta": "delta is over its limit: more delta is spent than it keeps",
    }
    for name, said in over.items():
        for page in (home, report, texts(browser.get(f"/console/fair/accounts/{name}"))):
            assert said in page, name
    assert "no longer holds; nothing is promised." in home
    assert "pipeline ran a loss without bound, which went over it (event 6)." in home
