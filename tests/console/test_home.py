"""Home: what needs somebody is counted whole, whatever is listed, and nothing is said too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from browser import signed_in
from deciding import decide, texts
from support import World, ask, laplace

from accountant.console.facts.account import WeekFacts
from accountant.console.pages.home import headline, lede
from accountant.console.pages.week_words import week_headline
from accountant.reporting.activity import Ending

RULES = (
    "  - {id: a, limit: {epsilon: 1}}\n  - {id: dear, action: approve, at_most: {epsilon: 0.4}}\n"
)


def test_what_is_not_listed_is_counted(world: Callable[..., World]) -> None:
    """Of twenty-three accounts that are over twenty are listed; the first sentences count all, and
    say where the others stand.
    """
    made = world().hospital()
    for number in range(23):
        name = f"t{number}"
        assert made.put(f"/datasets/{name}", {"namespace": "n", "name": name}).is_success
        assert made.post("/invocations", ask(laplace("2"), dataset=name)).is_success
    page = signed_in(made).get("/console")
    said = texts(page)
    assert "23 matters need you 23 accounts are over their limit." in said
    assert page.text.count("See what ran") == 20
    assert "3 more accounts that are over their limits are not listed here." in said


def test_whoever_waits_for_a_person_comes_first(world: Callable[..., World]) -> None:
    """Also behind more requests that wait for budget than a page has; every page counts the same,
    and Home has it.
    """
    made = world().hospital(RULES)
    assert made.post("/grants", ask(laplace("0.4"))).status_code == 201
    assert made.post("/grants", ask(laplace("0.4"))).status_code == 201
    for number in range(61):
        more = {"wait": "1d", "purpose": f"p{number}"}
        assert made.post("/grants", ask(laplace("0.3"), **more)).status_code == 202
    last = made.post("/grants", ask(laplace("0.5"), wait="1d", purpose="the dear one"))
    assert last.status_code == 202, last.text
    browser = signed_in(made)
    first, second = (texts(browser.get(f"/console/fair/requests?skip={n}")) for n in (0, 60))
    for page in (first, second):
        assert "1 request waits for a person 62 requests wait in all." in page
    assert "the dear one" in first
    assert "the dear one" not in second
    home = texts(browser.get("/console"))
    assert "One matter needs you 1 request waits for a decision." in home


def test_a_request_that_waited_counts_once(world: Callable[..., World]) -> None:
    """It is decided when it is let in, and began to wait before; a plain one is decided, too."""
    made = world().hospital(RULES)
    assert made.post("/grants", ask(laplace("0.1"))).status_code == 201
    waits = made.post("/grants", ask(laplace("0.5"), wait="1d")).json()["id"]
    browser = signed_in(made)
    path = f"/console/fair/requests/{waits}"
    assert decide(browser, path, "confirm", "agreed").status_code == 303
    said = texts(browser.get("/console"))
    assert "Requests decided 2 0 Let through 2 0" in said
    assert "Refused 0 0 Began to wait 1 0" in said


def test_nothing_is_said_before_all_is_read() -> None:
    """While a ledger is read, or cannot be, Home does not say that nothing is needed; accounts that
    go over if reservations run, and datasets without a limit, are no accounts within their limits.
    """
    none = Counter[str]()
    assert headline(0, whole=True) == "Nothing needs you"
    assert headline(0, whole=False) == "Not everything was read yet"
    assert headline(1, whole=False) == "One matter needs you"
    assert "within" not in lede(none, {"within": 3}, whole=False)
    assert lede(none, {"within": 3}, whole=True).startswith("All accounts are within their limits")
    held = lede(none, {"within": 3, "over_if_reservations_run": 1}, whole=True)
    assert held.startswith("1 account is near or at the limit")
    assert lede(none, {"within": 3, "no_limit": 2}, whole=True).startswith(
        "2 datasets have no limit"
    )
    assert lede(none, {"no_limit": 2}, whole=True) == "No dataset has a limit yet."


def test_a_week_counts_requests_and_not_what_is_said_of_them() -> None:
    """Where no amount compares two weeks, the headline of an account has how many were decided:
    not again what of them was flagged, had waited, or expired later.
    """
    this: dict[Ending, int] = {"admitted": 5, "flagged": 3, "waiting": 2, "expired": 1}
    week = WeekFacts(this | {"refused": 1, "recorded": 2}, {"refused": 4, "expired": 7}, None, None)
    assert week_headline(week) == "8 requests decided this week, 4 last week"
