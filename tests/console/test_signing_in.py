"""People sign in by a one-time link, have a session, and sign out."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, new_code, signed_in
from here import accountant
from places import Hosted
from support import Clock, World, logged

from accountant.auth.keys import LEDGER
from accountant.console.place import Place


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A service on a clock of its own."""
    return world(clock=Clock())


def events(made: World) -> list[str]:
    """The types of the events about people, in order."""
    stored = made.service.ledgers.read(LEDGER, 0)
    types = [row.body.decode().rpartition('"type":"')[2].partition('"')[0] for row in stored]
    return [one for one in types if not one.startswith("key.")]


def test_a_link_lets_in_once(made: World) -> None:
    """A page without a session leads to the sign-in and back; to open the link uses nothing up, and
    its code works once. Every step is an event, without the code or the token.
    """
    browser, code = Browser(made), new_code(made)
    away = browser.get("/console/session")
    assert (away.status_code, away.headers["location"]) == (
        303, "/console/signin?next=%2Fconsole%2Fsession",
    )  # fmt: skip
    for _ in range(2):
        assert code in browser.get(f"/console/signin/link/{code}").text
    assert events(made) == ["link.proposed.v1", "link.created.v1"]
    fields = {"code": code.upper().replace("-", " "), "next": "/console/session"}
    came = browser.post("/console/signin/code", fields)
    assert (came.status_code, came.headers["location"]) == (303, "/console/session")
    said = came.headers["set-cookie"]
    assert "HttpOnly" in said
    assert "SameSite=lax" in said
    assert "Path=/" in said
    assert "alice with the role officer" in browser.get("/console/session").text
    again = Browser(made).post("/console/signin/code", {"code": code})
    assert (again.status_code, "set-cookie" in again.headers) == (403, False)
    assert browser.post("/console/signout", {"csrf": browser.csrf()}).status_code == 303
    assert events(made)[2:] == ["person.signed_in.v1", "person.signed_out.v1"]
    for row in made.service.ledgers.read(LEDGER, 0):
        assert code not in row.body.decode()


def test_a_stolen_cookie_is_worth_nothing_after_the_sign_out(made: World) -> None:
    """Sign-out ends the session itself, not only the browser's copy of the cookie."""
    browser = signed_in(made)
    thief = Browser(made)
    thief.http.cookies.set("accountant", browser.token or "")
    assert thief.get("/console/session").status_code == 200
    browser.post("/console/signout", {"csrf": browser.csrf()})
    assert thief.get("/console/session").status_code == 303


def test_a_session_is_never_one_that_was_brought(made: World) -> None:
    """Whoever plants a cookie before the sign-in does not know the session's token afterwards; and
    a second sign-in ends the first session of the browser.
    """
    browser = Browser(made)
    browser.http.cookies.set("accountant", "planted")
    browser.post("/console/signin/code", {"code": new_code(made)})
    first = browser.http.cookies.get("accountant", domain="127.0.0.1")
    assert first != "planted"
    browser = signed_in(made)
    old = browser.token
    browser.post("/console/signin/code", {"code": new_code(made, "bob")})
    assert browser.token != old
    thief = Browser(made)
    thief.http.cookies.set("accountant", old or "")
    assert thief.get("/console/session").status_code == 303


def test_sessions_end_by_time(made: World, world: Callable[..., World]) -> None:
    """Idle for half an hour, or after twelve; a clock that went back ends one as well. What one
    process knows of its last use, another does.
    """
    browser, clock = signed_in(made), made.service.credentials._clock
    assert isinstance(clock, Clock)
    for _ in range(3):
        clock.forward(29 * 60)
        assert browser.get("/console/session").status_code == 200
    other = world(clock=clock)
    elsewhere = Browser(other)
    elsewhere.http.cookies.set("accountant", browser.token or "")
    assert elsewhere.get("/console/session").status_code == 200
    clock.forward(29 * 60)
    assert elsewhere.get("/console/session").status_code == 200
    clock.forward(29 * 60)
    assert browser.get("/console/session").status_code == 200
    clock.jump(-3_600)
    assert browser.get("/console/session").status_code == 303
    clock.jump(3_600)
    assert browser.get("/console/session").status_code == 200
    clock.forward(31 * 60)
    assert browser.get("/console/session").status_code == 303
    browser = signed_in(made)
    for _ in range(24):
        assert browser.get("/console/session").status_code == 200
        clock.forward(29 * 60)
    clock.forward(25 * 60)
    assert browser.get("/console/session").status_code == 303


def test_a_link_is_over_after_its_minutes(made: World) -> None:
    """Ten, unless it says otherwise; a clock that goes back does not bring it back."""
    code, clock = new_code(made), made.service.credentials._clock
    assert isinstance(clock, Clock)
    clock.forward(600)
    browser = Browser(made)
    assert browser.post("/console/signin/code", {"code": code}).status_code == 403
    new_code(made)  # an event at this stamp
    clock.jump(-3_600)
    assert browser.post("/console/signin/code", {"code": code}).status_code == 403


def test_of_two_who_use_a_link_at_once_one_comes_in(made: World) -> None:
    """The ledger decides."""
    code, answers = new_code(made), list[Any]()
    browsers = [Browser(made) for _ in range(4)]
    ready = threading.Barrier(len(browsers))

    def use(browser: Browser) -> None:
        ready.wait()
        answers.append(browser.post("/console/signin/code", {"code": code}).status_code)

    threads = [threading.Thread(target=use, args=(one,)) for one in browsers]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(answers) == [303, 403, 403, 403]


def test_revoking_a_name_ends_its_links_and_sessions(made: World) -> None:
    """A role that is taken away is away at once."""
    browser, code = signed_in(made), new_code(made)
    made.service.credentials.revoke("alice", "operator:ann")
    assert browser.get("/console/session").status_code == 303
    assert browser.post("/console/signin/code", {"code": code}).status_code == 403


def test_wrong_codes_are_bounded(made: World) -> None:
    """After ten in a minute none is looked at from that address, not even a right one; the log
    says how many, and never which. The code of a link is not in the log of requests.
    """
    code, browser = new_code(made), Browser(made)
    with logged() as lines:
        browser.get(f"/console/signin/link/{code}")
        for _ in range(10):
            assert browser.post("/console/signin/code", {"code": "wrong-one"}).status_code == 403
        late = browser.post("/console/signin/code", {"code": code})
    assert late.status_code == 429
    assert 0 < int(late.headers["retry-after"]) <= 60
    assert code not in str(lines)
    assert "wrong-one" not in str(lines)
    paths = {line["path"] for line in lines if line["event"] == "request"}
    assert paths == {"/console/signin/link/", "/console/signin/code"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_forms_of_other_sites_do_nothing(made: World, headers: dict[str, str]) -> None:
    """Neither a sign-out nor a sign-in, which would make a visitor somebody else."""
    browser, code = signed_in(made), new_code(made, "mallory")
    csrf, token = browser.csrf(), browser.token
    headers = {"Origin": "", "Sec-Fetch-Site": ""} | headers
    for path, fields in (
        ("/console/signout", {"csrf": csrf}),
        ("/console/signin/code", {"code": code}),
    ):
        plain = browser.http.build_request("POST", f"{path}", data=fields)
        for name, value in headers.items():
            if value:
                plain.headers[name] = value
        assert browser.http.send(plain).status_code == 403
    assert browser.get("/console/session").status_code == 200
    assert browser.token == token


def test_a_form_needs_the_token_of_its_session(made: World) -> None:
    """Another session's is none, and neither is the cookie."""
    browser, other = signed_in(made), signed_in(made, "bob")
    for csrf in (other.csrf(), "", browser.token):
        answer = browser.post("/console/signout", {"csrf": csrf})
        assert answer.status_code == 403
    assert browser.get("/console/session").status_code == 200


def test_a_form_is_read_strictly(made: World) -> None:
    """Unknown, doubled and missing fields, other types and large bodies are refused."""
    browser = signed_in(made)
    csrf = browser.csrf()
    form = "application/x-www-form-urlencoded"
    for body, media, status in (
        (f"csrf={csrf}&more=1", form, 400),
        (f"csrf={csrf}&csrf={csrf}", form, 400),
        ("", form, 400),
        (f"csrf={csrf}&&", form, 400),
        (f"csrf={csrf}%ff", form, 400),
        (b"csrf=\xff", form, 400),
        ("&".join(f"f{n}=1" for n in range(40)), form, 400),
        (f"csrf={csrf}&x={'y' * 70_000}", form, 413),
        (f'{{"csrf": "{csrf}"}}', "application/json", 415),
        (f"csrf={csrf}", "multipart/form-data", 415),
    ):
        headers = {"Content-Type": media, "Origin": browser.origin}
        answer = browser.http.post("/console/signout", content=body, headers=headers)
        assert answer.status_code == status, (body[:40], answer.text)
    assert browser.get("/console/session").status_code == 200


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example", "//evil.example", "/\\evil.example", "/%5cevil.example",
        "/console/../../x", "/%2f/evil.example", "javascript:alert(1)", "/console/signin", "/docs",
        "/console\r\nx: y", "/consoles", "",
    ],
)  # fmt: skip
def test_nobody_is_sent_elsewhere_after_the_sign_in(made: World, target: str) -> None:
    """``next`` leads to pages of the console only."""
    browser = Browser(made)
    answer = browser.post("/console/signin/code", {"code": new_code(made), "next": target})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


def test_every_page_has_the_headers(made: World) -> None:
    """Also refusals and redirects: nothing is kept, framed, scripted or sent elsewhere."""
    browser = Browser(made)
    answers = [
        browser.get("/console/signin"),
        browser.get("/console/session"),
        browser.post("/console/signout"),
        browser.post("/console/signin/code", {"code": "x"}),
    ]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "same-origin"
    assert [answer.status_code for answer in answers] == [200, 303, 303, 403]


def test_a_session_is_no_key_and_a_key_no_session(made: World) -> None:
    """Calls of programs take no cookie, and pages no key."""
    browser = signed_in(made, role="admin")
    assert browser.get("/v1/keys/proposals").status_code == 401
    assert Browser(made).get("/console/session", headers=made.auth("admin")).status_code == 303


def test_over_https_the_cookie_is_of_this_host_alone(world: Callable[..., World]) -> None:
    """With the prefix that browsers enforce; and an Origin is the public one."""
    made = world(public_url="https://accounts.example.org")
    browser = Browser(made, "https://accounts.example.org")
    answer = browser.post("/console/signin/code", {"code": new_code(made)})
    assert answer.status_code == 303
    said = answer.headers["set-cookie"]
    assert said.startswith("__Host-accountant=")
    assert "Secure" in said
    assert "Domain" not in said
    wrong = Browser(made).post("/console/signin/code", {"code": new_code(made)})
    assert wrong.status_code == 403


def test_the_console_is_not_served_in_clear_over_a_network(made: World) -> None:
    """Without a public address only this machine's own names are taken, so no other name of it
    (which somebody else may have in their zone) is.
    """
    for host in (
        "accounts.example.org",
        "10.0.0.7",
        "127.0.0.1.evil.example",
        "[::1",
        "localhost@x",
    ):
        answer = Browser(made).get("/console/signin", headers={"Host": host})
        assert (answer.status_code, "ACCOUNTANT_PUBLIC_URL" in answer.text) == (403, True)
    assert Browser(made).get("/console/signin", headers={"Host": "localhost:80"}).status_code == 200


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://A.example.org", "https://a.example.org"),
        ("https://a.example.org:443/", "https://a.example.org"),
        ("https://a.example.org:8443", "https://a.example.org:8443"),
        ("http://localhost:8321", "http://localhost:8321"),
        ("http://[::1]:8321", "http://[::1]:8321"),
        ("http://a.example.org", None),
        ("https://a.example.org/accounts", None),
        ("https://ann@a.example.org", None),
        ("ftp://localhost", None),
        ("a.example.org", None),
    ],
)
def test_a_public_address_is_https_or_of_this_machine(url: str, origin: str | None) -> None:
    """Any other is refused when the service starts."""
    if origin is None:
        with pytest.raises(ValueError, match="must be like https"):
            Place.of(url)
    else:
        assert Place.of(url).origin == origin


def test_a_form_may_come_in_parts(made: World) -> None:
    """Browsers send the head of a form before its body, and have no key."""
    body = f"code={new_code(made)}".encode()
    with socket.create_connection(("127.0.0.1", made.http.port)) as connection:
        connection.sendall(
            b"POST /console/signin/code HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n"
            b"Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        time.sleep(0.05)
        connection.sendall(body)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 303")


def test_sessions_are_kept_on_postgresql(world: Callable[..., World], hosted: Hosted) -> None:
    """By the service's role, which may do no more: a sign-in, a use, a sign-out."""
    clock = Clock()
    browser = signed_in(world(clock=clock, url=hosted.url))
    for _ in range(2):
        clock.forward(20 * 60)
        assert browser.get("/console/session").status_code == 200
    assert len(hosted.run("SELECT * FROM session")) == 1
    assert browser.post("/console/signout", {"csrf": browser.csrf()}).status_code == 303
    assert hosted.run("SELECT * FROM session") == []


def test_the_command_prints_the_address_of_a_link(tmp_path: Path) -> None:
    """For a named person, or for the holder of a key; the address alone on standard output."""
    home = {"ACCOUNTANT_HOME": str(tmp_path), "ACCOUNTANT_PUBLIC_URL": "https://a.example.org"}

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        done = accountant(*words, **home)
        assert done.code == code, done.err
        return done.out.strip(), done.err

    address = re.compile(
        r"https://a\.example\.org/console/signin/link/([a-z2-7]{4}-){7}[a-z2-7]{4}"
    )
    run("migrate")
    for name in ("alice", "bob"):
        said, _ = run("signin-link", "--name", name, "--role", "officer")
        assert address.fullmatch(said)
    said, beside = run("signin-link", "--name", "carol", "--role", "admin")
    assert address.fullmatch(said)
    assert "confirm 2 --keys --digest" in beside
    (tmp_path / "key").write_text(run("keys", "create", "--name", "eve", "--role", "auditor")[0])
    assert address.fullmatch(run("signin-link", "--key-file", str(tmp_path / "key"))[0])
    for wrong in (["--name", "x"], [], ["--name", "x", "--role", "boss"]):
        run("signin-link", *wrong, code=2)
