"""What holds for every page of the console: who sees it, what it never does, how it is built."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from browser import Browser, signed_in
from fastapi.routing import RouteContext, iter_route_contexts
from support import World, laplace

from accountant.api.app import create_app
from accountant.console.app import add_console
from accountant.reporting import desk, follower

HOSTILE = "<script>alert(1)</script>\"'&\u202e" + "x" * 200
OPEN = {"/console/signin", "/console/signin/link/{code}", "/console/static/{name}"}
"""Pages that need no session."""
ELSEWHERE = {"/console/signin/oidc", "/console/signin/callback"}
"""Steps of the sign-in over a provider, which have tests of their own."""


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service with events of many kinds, and texts that mean harm."""
    here = world()
    here.hospital()
    for path, epsilon in (("/grants", "0.25"), ("/grants", 9), ("/invocations", 5)):
        asked = {"dataset": "d", "mechanisms": [laplace(epsilon)], "purpose": HOSTILE}
        assert here.post(path, asked).status_code < 500
    return here


def routes(made: World) -> Iterator[RouteContext]:
    """Every route of the console."""
    app = create_app(made.service, made.settings, None)
    add_console(app, made.service, made.settings)
    for route in iter_route_contexts(app.routes):
        if route.path is not None and route.path.startswith("/console"):
            yield route


def filled(path: str) -> str:
    """The address of a route, of things that exist."""
    names = {"population": "fair", "event": "5", "dataset": "d", "code": "x"}
    names |= {"name": "console.css", "proposal": "3", "number": "3", "grant": "g5"}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: names[found[1]], path)


class Read(HTMLParser):
    """What a page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps each element."""
        self.tags.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, Any]]:
        """The elements of one kind."""
        return [attrs for name, attrs in self.tags if name == tag]


def looked_at(made: World, browser: Browser) -> Iterator[tuple[str, Any]]:
    """Every page that can be opened, and its answer."""
    for route in routes(made):
        if "GET" in route.methods and route.path not in OPEN | ELSEWHERE:
            path = filled(route.path)
            answer = browser.get(path)
            if answer.status_code == 200 and "text/html" in answer.headers["content-type"]:
                yield path, answer


def test_nobody_sees_a_page_without_a_session(made: World) -> None:
    """Each page leads to the sign-in, and no form is taken."""
    stranger = Browser(made)
    for route in routes(made):
        if route.path in OPEN | ELSEWHERE or route.path == "/console/signin/code":
            continue
        path = filled(route.path)
        if "GET" in route.methods:
            answer = stranger.get(path)
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/console/signin"), path
        else:
            answer = stranger.post(path, {"csrf": "x"})
            assert answer.status_code in (303, 403, 400), path
            assert answer.headers.get("location", "/console/signin").startswith("/console/signin")


def test_pages_say_up_to_which_event_their_figures_are(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a ledger is read, pages that inform show the figures so far and say so; a page that
    people decide by waits for the end, and says how far it is.
    """
    monkeypatch.setattr(follower, "_LEAST", 0.0)
    monkeypatch.setattr(desk, "PATIENCE", 0.0)
    monkeypatch.setattr(desk.Desk.ask, "__defaults__", (None, 0.0))
    browser, last = signed_in(made, "olive", "officer"), made.service.head("fair").size - 1
    pages = ["/console", "/console/fair/accounts", "/console/fair/accounts/d"]
    said = [browser.get(path) for path in pages]
    parts = [re.search(r"figures up to event (\d+) of (\d+); reading on", one.text) for one in said]
    assert [part and part.groups() for part in parts] == [(str(n), str(last)) for n in range(3)]
    waiting = browser.get("/console/fair/what-if")
    assert waiting.status_code == 503
    assert "The ledger is being read" in waiting.text
    assert {one.headers.get("refresh") for one in said} == {"5"}
    while "reading on" in (page := browser.get("/console/fair/accounts/d")).text:
        pass
    assert page.status_code == 200
    assert "refresh" not in page.headers
    assert browser.get("/console/fair/what-if").status_code == 200


def test_to_look_changes_nothing_and_runs_nothing(made: World) -> None:
    """No page that is opened writes an event; text from outside is text; each page is one document
    with one heading, a title, labels, and less than 100 kB; nothing in it comes from elsewhere.
    """
    browser = signed_in(made, "olive", "officer")
    before = {name: made.service.head(name).size for name in ("fair", "_service")}
    seen = 0
    for path, answer in looked_at(made, browser):
        seen += 1
        page, read = answer.text, Read(answer.text)
        assert len(answer.content) < 100_000, path
        assert "<script>alert" not in page, path
        assert "\u202e" not in page, path
        titles = [one for one in read.of("title") if "id" not in one]  # pictures have titles, too
        assert len(read.of("h1")) == len(titles) == len(read.of("main")) == 1, path
        assert read.of("html") == [{"lang": "en"}], path
        assert not [a for _, a in read.tags if "style" in a or any(n.startswith("on") for n in a)]
        assert all("src" in one for one in read.of("script")), path
        links = [a[n] for _, a in read.tags for n in ("href", "src", "action") if n in a]
        assert all(one.startswith(("/console", "#", "?", "data:,")) for one in links), path
        labelled = {one.get("for") for one in read.of("label")}
        for tag in ("input", "select", "textarea"):
            for one in read.of(tag):
                hidden = one.get("type") in ("hidden", "checkbox", "radio", "submit")
                assert hidden or one.get("id") in labelled, (path, one)
        assert all(one.get("scope") for one in read.of("th")), path
        ids = [a["id"] for _, a in read.tags if "id" in a]
        assert len(ids) == len(set(ids)), path
        for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
            assert name in answer.headers, path
        assert answer.headers["cache-control"] == "no-store", path
    assert seen >= 7
    assert {name: made.service.head(name).size for name in before} == before


def test_who_only_reads_is_offered_no_decision(made: World) -> None:
    """An auditor sees the pages, and no form but to sign out, to look, and to take evidence."""
    browser = signed_in(made, "ada", "auditor")
    for path, answer in looked_at(made, browser):
        for one in Read(answer.text).of("form"):
            ends = one.get("action", "").partition("#")[0].split("/")[-1]
            assert one.get("method", "get") == "get" or ends in ("signout", "bundle", "what-if"), (
                path
            )


def test_no_population_hides_the_proposals_of_keys(made: World) -> None:
    """One may be called "keys": its pages are its own."""
    about = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    headers = made.auth("admin")
    assert made.http.put("/v1/populations/keys", json=about, headers=headers).is_success
    browser = signed_in(made, "olive", "officer")
    assert "From the third key" not in browser.get("/console/keys/proposals").text
    assert "From the third key" in browser.get("/console/-/proposals").text


def test_links_lead_somewhere(made: World) -> None:
    """Each link of each page is answered, by a page or a file."""
    browser = signed_in(made, "olive", "officer")
    links = {
        one["href"]
        for _, answer in looked_at(made, browser)
        for one in Read(answer.text).of("a")
        if one.get("href", "").startswith("/console")
    }
    broken = [path for path in sorted(links) if browser.get(path).status_code not in (200, 303)]
    assert not broken


def test_who_verified_last_stands_on_home_and_evidence(made: World) -> None:
    """Nobody; then who, with how much; findings are an alarm until the same person has none, and
    their words are text.
    """
    browser = signed_in(made, "ada", "auditor")
    assert "nobody has recorded that they verified it" in browser.get("/console").text
    head = made.head()
    said = {"size": head.size, "root": head.root.hex(), "findings": 0, "decided": False}
    assert made.post("/verifications", said, who="auditor").status_code == 200
    home = browser.get("/console").text
    assert f"{head.size} events, without a finding; 1 event since" in home
    found = said | {"findings": 2, "reason": HOSTILE}
    assert made.post("/verifications", found, who="officer").status_code == 200
    assert made.post("/verifications", said, who="auditor").status_code == 200
    home, page = browser.get("/console").text, browser.get("/console/fair/evidence").text
    assert "officer verified this ledger and found something wrong." in home
    assert "A verification found something wrong" in home
    assert "A verification found something wrong" in page
    assert "decisions were not taken again" in page
    for text in (home, page):
        assert "<script>alert(1)" not in text
        assert "\u202e" not in text
    assert made.post("/verifications", said, who="officer").status_code == 200
    assert "found something wrong" not in browser.get("/console").text
