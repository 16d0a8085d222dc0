"""Proposals on pages: what would change, who may decide it, and that it happens once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from browser import Browser, signed_in
from deciding import decide, offers, read, texts
from support import Clock, World, ask, clean, laplace

from accountant.auth.links import Links
from accountant.budget.commands import DAY

RULES = "policy: {}\nrules:\n  - {{id: a, limit: {{epsilon: {}, delta: 1e-6}}}}\n"
HOSTILE = "<script>alert(1)</script>\u202e" + "x" * 1900


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A population with a limit of 1, of which a month ago 0.75 was granted and 0.5 refused."""
    clock = Clock()
    one = world(clock=clock)
    clock.forward(60 * DAY)
    one.hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n", {"age": ["1", "2"]})
    clock.forward(DAY)
    assert one.post("/grants", ask(laplace("0.75"))).status_code == 201
    assert one.post("/grants", ask(laplace("0.5"))).status_code == 403
    clock.forward(30)
    return one


def raised(made: World, epsilon: str = "2", who: str = "admin") -> str:
    """The page of a proposal to raise the limit."""
    answer = made.put("/policy", RULES.format("q", epsilon), who=who)
    assert answer.status_code == 202, answer.text
    return f"/console/fair/proposals/{answer.json()['proposal']}"


def shown(made: World, path: str) -> Any:
    """The same proposal as the API shows it."""
    return made.get(f"/proposals/{path.rpartition('/')[2]}").json()


def test_it_says_what_would_change(made: World) -> None:
    """In numbers before and after, rule by rule, what it would have let through, and who could
    confirm: nothing is preselected, and to refuse comes first.
    """
    browser, path = signed_in(made), raised(made)
    while "Being worked out" in (page := browser.get(path)).text:
        time.sleep(0.05)
    said = texts(page)
    assert "Adopt the policy q?" in said
    assert "An even chance becomes at most 74 in 100" in said
    assert "An even chance becomes at most 89 in 100" in said
    assert "a 1 2 0.750 0.750 0.250 1.250" in said  # limit, used and left, each now and then
    assert "− a: On each dataset, one person may lose at most epsilon 1" in said
    assert "a holds up less than before" in said
    assert "refused allowed 1 allowed allowed 1" in said
    assert "refused, would be allowed" in said
    assert "admin admin test" in said
    assert "/console/fair/what-if?rule=a&amp;epsilon=2" in page.text
    assert "No: it is theirs" in said
    assert "checked" not in page.text
    assert page.text.index('value="refuse"') < page.text.index('value="confirm"')


def test_another_person_confirms_once(made: World) -> None:
    """The form is answered by 303 to the page, which says who decided; sent again by the back
    button it does nothing more; another officer who is late is told by whom it was decided.
    """
    path, browser, late = raised(made), signed_in(made), signed_in(made, "bob")
    before, after = read(browser, path, "confirm"), read(late, path, "refuse", "not now")
    size = made.head().size
    answer = browser.post(path, before)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    assert made.head().size == size + 1
    assert shown(made, path)["closed_by"] == "alice"
    assert browser.post(path, before).status_code == 303
    refused = late.post(path, after)
    assert refused.status_code == 409
    assert "was confirmed by alice" in texts(refused)
    assert "You had written: not now" in texts(refused)
    assert made.head().size == size + 1
    assert "alice confirmed it on" in texts(browser.get(path))
    assert offers(browser, path) == set()
    clean(made)


def test_two_officers_at_once(made: World) -> None:
    """One confirms and one refuses in the same moment: one of them decides, the other is told."""
    path = raised(made)
    one, other = signed_in(made), signed_in(made, "bob")
    forms = [(one, read(one, path, "confirm")), (other, read(other, path, "refuse", "no"))]
    size = made.head().size
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda pair: pair[0].post(path, pair[1]).status_code, forms))
    assert sorted(answers) == [303, 409]
    assert made.head().size == size + 1


def test_a_refusal_needs_a_reason_which_is_shown(made: World) -> None:
    """Without one nothing happens, and what was chosen is kept; texts that mean harm are text."""
    path, browser = raised(made), signed_in(made)
    for decision, reason, wrong in (
        ("refuse", "  ", "say why"),
        ("", "why", "choose one of the two"),
        ("maybe", "why", "choose one of the two"),
        ("refuse", "y" * 2001, "Nothing was decided"),
    ):
        answer = decide(browser, path, decision, reason)
        assert answer.status_code == 422
        assert wrong in texts(answer)
        assert ('value="refuse" required checked' in answer.text) == (decision == "refuse")
        assert reason.strip() in answer.text
    assert shown(made, path)["state"] == "proposed"
    assert decide(browser, path, "refuse", HOSTILE).status_code == 303
    page = browser.get(path)
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text
    assert "alice refused it" in texts(page)
    assert "x" * 300 in page.text
    listed = browser.get("/console/fair/proposals").text
    assert "&lt;script&gt;alert" in listed
    assert len(listed) < 10_000


def test_a_confirmation_says_why_and_shows_the_words_of_the_change(made: World) -> None:
    """The reason that was given with it stands on the page, and with a key's; a release that two
    people decided keeps the words of whoever asked for it, in the ledger too.
    """
    browser, path = signed_in(made), raised(made)
    assert decide(browser, path, "confirm", HOSTILE).status_code == 303
    page = browser.get(path)
    assert "Why, in alice’s words" in texts(page)
    assert "&lt;script&gt;alert(1)" in page.text
    assert "\u202e" not in page.text
    Links(made.service.credentials).create("olga", "officer", "operator:zed")
    found, _ = made.service.credentials.proposals()
    keys = f"/console/-/proposals/{found[0].sequence}"
    assert decide(browser, keys, "confirm", "she is the new officer").status_code == 303
    assert "she is the new officer" in texts(browser.get(keys))
    word = "  - {id: a, limit: {epsilon: 2, delta: 1e-6}}\n  - {id: word, trusted: {epsilon: 0}}\n"
    assert made.policy(f"policy: w\nrules:\n{word}").status_code == 200
    grant = made.post("/grants", ask(laplace("0.1"))).json()["id"]
    given = made.post(f"/grants/{grant}/release", {"reason": "the disk was full"})
    assert given.status_code == 202, given.text
    assert made.confirm(given, who="officer").status_code == 200
    assert "“the disk was full”" in texts(
        browser.get(f"/console/fair/ledger/{made.head().size - 1}")
    )


def test_who_may_not_decide_sees_why(made: World) -> None:
    """The proposer may withdraw it and not confirm, nor with a key that they made lately; an
    auditor reads; a pipeline sees nothing. The service, not the page, decides: forms that are sent
    all the same do nothing.
    """
    path = raised(made, who="admin")
    officer = signed_in(made)
    fields = read(officer, path, "confirm")
    lately, own = _by_admin(made), signed_in(made, "admin", "admin")
    for browser, what, why in (
        (own, {"refuse"}, "admin proposed this, so another admin or officer has to confirm it"),
        (lately, {"refuse"}, "admin made the key of mine"),
        (signed_in(made, "zoe", "auditor"), set(), "You have the role auditor"),
    ):
        assert offers(browser, path) == what
        said = texts(browser.get(path))
        assert why in said, said[-900:]
        token = browser.csrf("/console/fair/proposals")
        assert browser.post(path, fields | {"csrf": token}).status_code == 403
    assert shown(made, path)["state"] == "proposed"
    said = texts(officer.get(path))
    assert "Before you decide admin, who proposed this, lately made" in said
    assert "mine officer admin and somebody who proposed this" in said
    assert decide(own, path, "refuse", "a mistake").status_code == 303
    assert "admin withdrew it" in texts(own.get(path))


def _by_admin(made: World) -> Browser:
    """A browser in which somebody signed in by a link that the proposer made."""
    credentials, browser = made.service.credentials, Browser(made)
    code, event = Links(credentials).create("mine", "officer", "admin")
    one, _ = credentials.proposal(event.sequence)
    credentials.confirm(one.sequence, one.digest, "somebody")
    assert browser.post("/console/signin/code", {"code": code}).status_code == 303
    return browser


def test_only_a_form_of_this_session_counts(made: World) -> None:
    """Another session's token, another site's form, a digest of something else, a field more, and a
    pipeline's key change nothing.
    """
    path, browser, other = raised(made), signed_in(made), signed_in(made, "bob")
    fields = read(browser, path, "confirm")
    size = made.head().size
    assert other.post(path, fields).status_code == 403
    away = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert browser.post(path, fields, headers=away).status_code == 403
    stale = browser.post(path, fields | {"digest": "0" * 64})
    assert stale.status_code == 409
    assert "has the digest" in texts(stale)
    assert browser.post(path, fields | {"digest": "x"}).status_code == 422
    assert browser.post(path, fields | {"key": "y"}).status_code == 400
    assert browser.post(path, {n: v for n, v in fields.items() if n != "digest"}).status_code == 400
    headers = made.auth("officer") | {"Origin": browser.origin, "Sec-Fetch-Site": "same-origin"}
    assert Browser(made).post(path, fields, headers=headers).status_code == 303  # to sign in
    assert made.head().size == size


def test_a_role_that_was_taken_away_decides_nothing(made: World) -> None:
    """A page that was opened before is of no use afterwards."""
    path, browser = raised(made), signed_in(made)
    fields = read(browser, path, "confirm")
    made.service.credentials.revoke("alice", "test")
    answer = browser.post(path, fields)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/console/signin")
    assert shown(made, path)["state"] == "proposed"


def test_what_is_outdated_or_has_lapsed_can_only_be_refused(made: World) -> None:
    """If another policy came between, the page says so; after its time it is closed."""
    path, browser = raised(made), signed_in(made)
    fields = read(browser, path, "confirm")
    assert made.put("/policy", RULES.format("r", "0.9")).status_code == 200
    assert offers(browser, path) == {"refuse"}
    assert "would do has changed since" in texts(browser.get(path))
    answer = browser.post(path, fields)
    assert answer.status_code == 409
    assert "would do has changed since" in texts(answer)
    made.service.credentials._clock.forward(8 * DAY)  # type: ignore[attr-defined]
    page = signed_in(made).get(path)
    assert "It lapsed: nobody decided by" in texts(page)
    assert 'name="decision"' not in page.text
    assert "Lapsed" in texts(signed_in(made).get("/console/fair/proposals"))


def test_other_changes_tell_their_facts(made: World) -> None:
    """New values that owe nothing: which, and what was charged then and by now."""
    body = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    body |= {"dimensions": {"age": ["1", "2", HOSTILE[:60]]}, "attested_new": True}
    answer = made.put("", body)
    assert answer.status_code == 202
    made.post("/invocations", ask(laplace("0.125")))
    path = f"/console/fair/proposals/{answer.json()['proposal']}"
    browser = signed_in(made)
    said = texts(browser.get(path))
    assert "Add age whose members owe nothing so far?" in said
    assert "d 0.750 0.875" in said
    assert "Attested new yes" in said
    assert "<script>alert" not in browser.get(path).text
    assert decide(browser, path, "confirm").status_code == 303
    assert made.service.state("fair").people().cells == 3


def test_a_first_policy_is_new_in_all_its_rules(world: Callable[..., World]) -> None:
    """Nothing is there that it could loosen; and an empty list says so."""
    made = world()
    people = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    made.put("", people | {"dimensions": {}})
    browser = signed_in(made)
    assert "No proposal waits" in texts(browser.get("/console/fair/proposals"))
    path = raised(made)
    said = texts(browser.get(path))
    assert "would be its first" in said
    assert "+ a: On each dataset" in said
    assert "holds up less" not in said


def test_keys_are_decided_alike(made: World) -> None:
    """A further officer's key is confirmed by another person, once; its maker cannot."""
    made.service.credentials.create("eve", "officer", "admin")
    browser = signed_in(made)
    listed = browser.get("/console/-/proposals").text
    [number] = set(re.findall(r'href="/console/-/proposals/(\d+)"', listed.split("Closed")[0]))
    path = f"/console/-/proposals/{number}"
    assert "Make a key of the role officer, eve?" in texts(browser.get(path))
    assert "Let alice sign in as officer?" in listed
    own = signed_in(made, "admin", "admin")
    assert offers(own, path) == {"refuse"}
    fields = read(browser, path, "confirm")
    stolen = fields | {"csrf": own.csrf("/console/-/proposals")}
    assert own.post(path, stolen).status_code == 403
    assert browser.post(path, fields | {"digest": "0" * 64}).status_code == 409
    assert made.service.credentials.named("eve") is None
    assert browser.post(path, fields).status_code == 303
    assert browser.post(path, fields).status_code == 303
    assert made.service.credentials.named("eve") is not None
    assert "alice confirmed it" in texts(browser.get(path))
    assert browser.get("/console/-/proposals/99999").status_code == 404
