"""A key has an end and a scope: from the one on it is refused, beyond the other nothing exists."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from browser import Browser, signed_in
from fastapi.routing import iter_route_contexts
from support import Clock, World, ask, client_of, laplace

from accountant.api.app import create_app
from accountant.auth.keys import key_digest
from accountant.auth.links import Links
from accountant.budget.commands import DAY
from accountant.console.app import add_console

HOUR = 3_600
GRANT = ask(laplace("0.01"))
OPEN = {"/", "/healthz", "/readyz", "/docs", "/openapi.json"}
"""Calls without a key."""
ENTRY = {"/console/static/{name}"}
OWN = {"/console", "/console/session", "/console/signout", "/v1/keys/rotate", "/api/v1/lineage"}
"""Of no population: the visitor's own, or showing only what their key reaches."""
VALUES = {
    "population": "other",
    "grant": "g4",
    "sequence": "4",
    "decision": "d4",
    "place": "0/000.p/5",
    "dataset": "d",
    "dimension": "sex",
    "proposal": "2",
    "number": "2",
    "event": "4",
}


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """The population ``fair``, and ``other`` with the same dataset; keys of a month ago."""
    clock = Clock()
    one = world(clock=clock)
    clock.forward(30 * DAY)
    one.hospital("  - {id: a, limit: {epsilon: 1}}\n")
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    for path, body in (
        ("", people),
        ("/datasets/d", {"namespace": "n", "name": "d", "also": ["fair/d"]}),
    ):
        sent = one.http.request(
            "PUT", f"/v1/populations/other{path}", json=body, headers=one.auth("admin")
        )
        assert sent.status_code in (200, 202), sent.text
    if sent.status_code == 202:
        told = sent.json()
        confirmed = one.http.request(
            "POST",
            f"/v1/populations/other/proposals/{told['proposal']}/confirm",
            json={"digest": told["digest"]},
            headers=one.auth("officer"),
        )
        assert confirmed.status_code == 200, confirmed.text
    return one


def with_key(made: World, name: str, role: Any = "pipeline", **bounds: Any) -> str:
    """A key with bounds, confirmed if that takes two; its name."""
    keys = made.service.credentials
    made.secrets[name] = keys.create(name, role, "test", **bounds)
    for one in keys.proposals()[0]:
        if one.is_open(keys.now()):
            keys.confirm(one.sequence, one.digest, "test-2")
    return name


def code(answer: Any) -> str:
    """The code of a problem."""
    return str(answer.json()["type"]).rpartition(":")[2]


def test_from_its_end_on_a_key_is_refused(made: World) -> None:
    """On the quick way as on the routes, retries too: 401, which says when it expired and what to
    do; a clock that goes back does not bring it back; another key of the name then may be made.
    """
    who, clock = with_key(made, "short", days=3), made.service.time
    assert isinstance(clock, Clock)
    routes = client_of(made.service, made.settings, made.publisher, hot=False)
    first = made.post("/grants", GRANT, who=who, key="once")
    clock.forward(3 * DAY - 1)
    assert made.post("/grants", GRANT, who=who, key="once").content == first.content
    clock.forward(1)
    before = made.head()
    for _ in range(12):  # whoever has an expired key does not guess
        refused = made.post("/grants", GRANT, who=who, key="once")
        assert (refused.status_code, code(refused)) == (401, "unauthenticated")
        assert "the key of short expired at 2" in refused.json()["detail"]
        assert "accountant keys create" in refused.json()["detail"]
    path = "/v1/populations/fair/grants"
    headers = made.auth(who) | {"Idempotency-Key": "once"}
    assert (
        routes.request("POST", path, json=GRANT, headers=headers).json()["detail"]
        == (refused.json()["detail"])
    )
    long = {"headers": headers, "content": b"{" * 100_000}
    assert "expired at" in made.http.request("POST", path, **long).text
    assert made.head() == before
    assert made.post("/grants", GRANT, who="pipeline").status_code == 201
    clock.jump(-HOUR)
    assert made.get("/accounts", who=who).status_code == 401
    assert made.post("/grants", GRANT, who=who).status_code == 401
    clock.jump(HOUR)
    with_key(made, who)
    assert made.post("/grants", GRANT, who=who, key="once").content == first.content


def test_a_key_that_ends_in_flight_is_refused(made: World) -> None:
    """What waits in the queue when the key expires is not decided, and says why."""
    who, clock = with_key(made, "short", days=1), made.service.time
    assert isinstance(clock, Clock)
    answers: list[Any] = []
    with made.service.ledgers.writing("fair") as writing:
        writing.head("fair")  # so the first waits for the lock, and the second behind it
        sent = threading.Thread(
            target=lambda: answers.append(made.post("/grants", GRANT, who=who, key="late"))
        )
        sent.start()
        sent.join(0.3)
        assert not answers
        clock.forward(DAY)
    sent.join()
    [answer] = answers
    assert (answer.status_code, code(answer)) == (401, "unauthenticated")
    assert "expired at" in answer.json()["detail"]


def test_a_session_ends_with_the_key_it_is_of(made: World) -> None:
    """So does a link that the holder of the key made for themselves."""
    who, clock = with_key(made, "short", "officer", days=1), made.service.time
    assert isinstance(clock, Clock)
    key = made.service.credentials.find(made.secrets[who])
    assert key is not None
    links = Links(made.service.credentials)
    clock.forward(DAY - 60)
    codes = [links.create_own(key_digest(made.secrets[who]))[0] for _ in "12"]
    browser = Browser(made)
    assert browser.post("/console/signin/code", {"code": codes[0]}).status_code == 303
    assert browser.get("/console").status_code == 200
    clock.forward(60)
    assert browser.get("/console").status_code == 303
    assert browser.post("/console/signin/code", {"code": codes[1]}).status_code == 403


def test_beyond_its_scope_nothing_exists_for_a_key(made: World) -> None:
    """Of every route: a population that is out of scope is answered as one that is not there, and
    what is about all populations is refused. A new route that forgets it fails here.
    """
    app = create_app(made.service, made.settings, made.publisher)
    add_console(app, made.service, made.settings)
    for role in ("admin", "officer", "auditor", "pipeline"):
        with_key(made, f"only-{role}", role, populations=["fair", "nowhere"])
    browser = Browser(made)
    secret = made.secrets["only-admin"]
    code_of, _ = Links(made.service.credentials).create_own(key_digest(secret))
    assert browser.post("/console/signin/code", {"code": code_of}).status_code == 303
    csrf, before = browser.csrf(), made.service.head("other")
    seen = set()
    for route in iter_route_contexts(app.routes):
        path = str(route.path_format)
        if path in OPEN | ENTRY or path.startswith("/console/signin"):
            continue
        for method in route.methods or ():
            seen.add(path)
            if path in OWN:
                continue
            if path.startswith("/console"):
                sent = browser.post if method == "POST" else browser.get
                fields = ({"csrf": csrf},) if method == "POST" else ()
                found = [
                    sent(path.format(**VALUES | {"population": name}), *fields)
                    for name in ("other", "not-there")
                ]
                expected = (404,) if "{population}" in path else (403,)
                texts = [one.text.replace("not-there", "other") for one in found]
            else:
                roles = _roles(route.dependant)
                found = [
                    made.http.request(
                        method,
                        path.format(**VALUES | {"population": name}),
                        headers=made.auth(f"only-{roles[-1]}"),
                    )
                    for name in ("other", "not-there")
                ]
                expected = (404,) if "{population}" in path else (403,)
                texts = [one.json()["detail"].replace("not-there", "other") for one in found]
            assert {one.status_code for one in found} == {*expected}, (method, path, texts)
            assert texts[0] == texts[1]
            assert ("no population is called" if "{population}" in path else "") in texts[0].lower()
    assert len(seen) > 50
    assert made.service.head("other") == before


def _roles(dependant: Any) -> list[str]:
    """The roles that a handler's dependencies admit."""
    found: list[str] = []
    for one in dependant.dependencies:
        found += [*getattr(one.call, "roles", ()), *_roles(one)]
    return found


def test_within_its_scope_a_key_does_what_its_role_does(made: World) -> None:
    """On the quick way, too; and of other populations no answer and no page has a word."""
    with_key(made, "mine", populations=["fair"])
    with_key(made, "theirs", populations=["other"])
    assert made.post("/grants", GRANT, who="mine").status_code == 201
    refused = made.post("/grants", GRANT, who="theirs")
    assert (refused.status_code, code(refused)) == (404, "unknown-population")
    with_key(made, "auditor-of-one", "auditor", populations=["fair"])
    for path in ("", "/report?format=json"):
        answer = made.get(path, who="auditor-of-one")
        assert answer.status_code == 200
        assert "other/d" not in answer.text, path
        assert "other/d" in made.get(path, who="auditor").text, path
    browser = signed_in(made, "all", "auditor")
    assert "/console/other" in browser.get("/console").text
    key = made.secrets["auditor-of-one"]
    own, _ = Links(made.service.credentials).create_own(key_digest(key))
    browser = Browser(made)
    browser.post("/console/signin/code", {"code": own})
    assert browser.get("/console").status_code == 200
    assert "/console/other" not in browser.get("/console").text
    assert "/console/other" not in browser.get("/console/fair/accounts").text
    home = browser.get("/console").text
    links = set(re.findall(r'href="(/console[^"?#]*)"', home)) - {"/console/static/console.css"}
    assert "/console/fair/evidence" in links
    assert {browser.get(one).status_code for one in links} == {200}
    made.service.credentials.create("olga", "officer", "operator:zed")
    assert "olga" not in browser.get("/console").text
    overseer = signed_in(made, "all-of-them", "officer")
    home = overseer.get("/console").text
    assert "Make a key of the role officer, olga?" in home
    [place] = set(re.findall(r'href="(/console/-/proposals/\d+)"', home))
    assert "olga" in overseer.get(place).text


def test_the_page_of_keys_shows_what_each_reaches_and_when_it_ends(made: World) -> None:
    """And when it was last used, and that it was rotated, or made lately."""
    with_key(made, "short", days=3, populations=["fair"])
    assert made.post("/grants", GRANT, who="short").status_code == 201
    made.service.credentials.note_uses()
    made.http.request("POST", "/v1/keys/rotate", json={"hours": 2}, headers=made.auth("short"))
    page = signed_in(made, "all", "auditor").get("/console/keys").text
    rows = [row for row in page.split("<tr") if ">short</th>" in row]
    ends = [re.findall(r'data-l="Ends">(.*?)<', row)[0].strip() for row in rows]
    assert len(set(ends)) == 2
    assert "never" not in ends
    assert [row.count(">fair</td>") for row in rows] == [1, 1]
    assert ["Rotated" in row for row in rows].count(True) == 1
    assert [">never</td>" in row for row in rows].count(True) == 1  # the new one was not used
    assert all("Made lately" in row for row in rows)
    officer = next(row for row in page.split("<tr") if ">officer</th>" in row)
    assert "all populations" in officer
    assert "Made lately" not in officer
