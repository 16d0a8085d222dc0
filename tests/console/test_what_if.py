"""What-if: another limit, or a whole policy, before anybody proposes it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from hashlib import sha256
from html import unescape
from time import monotonic, sleep
from typing import Any

import pytest
from browser import Browser, signed_in
from report_desk import DAY, Desk
from support import World, gaussian, laplace

from accountant.budget.policy_file import parse_policy
from accountant.console.facts.account import account
from accountant.console.facts.changing import KEEP, LIFETIME, Change, changed, ladder
from accountant.console.facts.what_if import MOST_TEXT, Mistake, Tried, what_if
from accountant.console.pages import what_if_words as words
from accountant.reporting import trying
from accountant.reporting.desk import Desk as Following
from accountant.reporting.numbers import even_chance
from accountant.reporting.trying import Asked, Failed, Looked, Trials, Trier

RULES = """\
  - {id: a, datasets: [d, e], limit: {epsilon: 1}}
  - {id: all, across: datasets, limit: {epsilon: 8}}
"""
POLICY = "policy: p\nrules:\n" + RULES


def tried(desk: Desk, change: Change | None = None, **more: Any) -> Tried:
    """What another limit, or a policy, would change."""
    question = partial(what_if, change=change, **more)
    found = Following(desk.ledgers).ask(desk.name, question, desk.clock.now, None, 30).found
    assert isinstance(found, Tried), found
    return found


def mistake(desk: Desk, change: Change | None = None, **more: Any) -> str:
    """Why something cannot be tried."""
    question = partial(what_if, change=change, **more)
    found = Following(desk.ledgers).ask(desk.name, question, desk.clock.now, None, 30).found
    assert isinstance(found, Mistake), found
    return found.text


def used(desk: Desk) -> Desk:
    """Eight days in which a limit of 1 was charged 0.75, with a refusal at the end."""
    desk.population()
    desk.dataset("d", "e")
    desk.policy(RULES)
    for _ in range(3):
        desk.record(laplace("0.25"))
        desk.forward(2 * DAY)
    desk.grant(laplace("0.5"))
    return desk


def test_what_would_be_left_is_what_the_policy_leaves_once_it_is_adopted(desk: Desk) -> None:
    """The same amounts as after the adoption itself; what was followed is as it was."""
    used(desk)
    following = Following(desk.ledgers)
    page = partial(account, dataset="d", rule="a")
    before = following.ask(desk.name, page, desk.clock.now, None, 30)
    question = partial(what_if, change=Change("a", "3"), account="d")
    found = following.ask(desk.name, question, desk.clock.now, None, 30).found
    assert following.ask(desk.name, page, desk.clock.now, None, 30) == before
    assert found.focus.now.total.remaining == "0.25"
    desk.policy(RULES.replace("epsilon: 1}", "epsilon: 3}"))
    after = following.ask(desk.name, page, desk.clock.now, None, 30)
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 it may come from a process
    assert after.limit.total.remaining == found.focus.then.total.remaining == "2.25"
    assert found.loosens
    assert words.answer(found).startswith("It would last until ")
    assert found.usual_then.more == after.usual.more == 9


def test_a_smaller_limit_is_over_at_once_and_needs_one_person(desk: Desk) -> None:
    """It says by how much; the limits beside it are tried as well, the smallest first."""
    used(desk)
    found = tried(desk, Change("a", "0.5"), account="d")
    assert words.answer(found).startswith("It would be over at once: 0.7500 is spent, 0.5 would")
    assert not found.loosens
    assert [(one.limit, one.name) for one in found.rungs] == [
        ("0.25", ""), ("0.5", "tried"), ("0.75", ""), ("1", "in force"), ("1.25", ""),
    ]  # fmt: skip
    assert words.rung(found.rungs[1], None, found.focus).runs_out == "Over at once, by 0.2500"
    assert tried(desk, Change("a", "1")).same


def test_each_limit_beside_is_told_as_if_it_were_the_one_tried(desk: Desk) -> None:
    """What a limit beside the one that is tried would leave, and when nothing would be left, is
    what its own page says; with a delta and a window that were typed, and on all data together.
    """
    used(desk)
    every = (Change("a", "3"), Change("all", "4.50"), Change("a", "2", "1e-7", "60d"))
    for change in every:
        found = tried(desk, change)
        assert [one.name for one in found.rungs].count("tried") == 1
        for rung in found.rungs:
            own = tried(desk, change._replace(epsilon=rung.limit))
            if rung.name == "in force":
                own = tried(desk, Change(change.rule))
            assert own.focus is not None
            assert own.focus.then is not None
            there = own.focus.then
            assert (rung.total, rung.usual) == (there.total, own.usual_then), rung.limit
            assert (rung.limit, rung.paces) == (there.limit, there.paces)


def test_a_window_begins_anew_and_takes_two_people(desk: Desk) -> None:
    """Other windows, refreshes and deltas are policies like any other."""
    used(desk)
    for window in ("30d", "month", "weekly"):
        found = tried(desk, Change("a", window=window), account="d")
        assert found.focus is not None
        assert found.focus.then is not None
        assert (found.focus.then.total.remaining, found.focus.then.window != "") == ("1", True)
        assert found.loosens
    assert tried(desk, Change("a", delta="1e-6")).focus is not None


def test_the_limit_that_binds_first_is_named(desk: Desk) -> None:
    """A higher limit is of no use where another one on the same data leaves less."""
    used(desk)
    assert tried(desk, Change("a", "5"), account="d").binding is None
    found = tried(desk, Change("a", "20"), account="d").binding
    assert found is not None
    assert (found.rule, found.dataset, found.left) == ("all", "*", "7.25")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change("a", "many"), "epsilon is 'many', which is no number"),
        (Change("a", "-1"), "epsilon must be "),
        (Change("a", delta="2"), "delta must be "),
        (Change("a", "1e999999999999"), "which is no number"),
        (Change("a", "NaN"), "which is no number"),
        (Change("b", "1"), "no limit called 'b'"),
        (Change("a", window="3 moons"), "no window"),
    ],
)
def test_what_cannot_be_a_limit_is_told_in_words(desk: Desk, change: Change, said: str) -> None:
    """The reason is that of the policy file, without its lines, which nobody has written."""
    desk.hospital()
    told = mistake(desk, change)
    assert said in told
    assert "line" not in told


def test_a_policy_that_cannot_be_read_is_told_by_line(desk: Desk) -> None:
    """Errors name the line; texts that are too long, and a ledger without a policy, are told."""
    desk.population()
    assert "No policy is in force" in mistake(desk, text=POLICY)
    desk.dataset("d")
    desk.policy(RULES)
    assert "line 3" in mistake(desk, text="policy: p\nrules:\n  - {id: a, limt: {epsilon: 1}}\n")
    assert "characters" in mistake(desk, text=POLICY + "#" * 50_000)
    assert "unit" in mistake(
        desk, text=POLICY + "  - {id: u, unit: household, limit: {epsilon: 1}}\n"
    )
    found = tried(desk, text=POLICY + "  - {id: why, require: [purpose]}\n")
    assert [(one.rule, one.what) for one in found.changes] == [("why", "added")]
    assert (found.loosens, found.focus) == ((), None)


def test_a_limit_that_would_close_for_good_is_told(desk: Desk) -> None:
    """Under a gate in which what was booked has no bound, nothing would ever fit again."""
    desk.hospital("  - {id: a, limit: {epsilon: 3, delta: 1e-6}}\n")
    desk.record(gaussian("0.2"))
    text = "policy: p\nrules:\n  - {id: a, gate: basic, limit: {epsilon: 3, delta: 1e-6}}\n"
    found = tried(desk, text=text)
    assert "nothing would ever fit again" in found.closes
    [effect] = found.effects
    assert effect.then is not None
    assert effect.then.total.spent == "infinite"
    assert words.effect(effect.now, effect.then).would_be_over


def test_a_limit_of_a_long_policy_can_be_tried(desk: Desk) -> None:
    """Only what somebody sends is bounded, not the policy in force."""
    desk.population()
    desk.dataset("d")
    name = "asks-what-a-request-is-for-and-for-whom-it-is-good"
    rule = "  - {{id: {}-{}, require: [purpose, justification], action: flag}}\n"
    named = "".join(rule.format(name, i) for i in range(190))
    desk.policy(RULES + named)
    policy = desk.service.state("clinic").adopted
    assert policy is not None
    long = changed(policy.policy, Change("a", "2"))
    assert len(long) > MOST_TEXT
    desk.record(laplace("0.5"))
    found = tried(desk, Change("a", "2"))
    assert (found.text, found.focus is not None) == (long, True)
    assert [one.rule for one in found.changes] == ["a"]


def test_only_the_numbers_that_were_named_change() -> None:
    """A changed policy is the one in force but for the limit; what is empty stays as it is."""
    policy, _ = parse_policy(POLICY)
    same, _ = parse_policy(changed(policy, Change("a")))
    assert same == policy
    other, _ = parse_policy(changed(policy, Change("a", "2", "1e-6", "30d")))
    assert [rule for rule in other.rules if rule.id != "a"] == [policy.rules[1]]
    assert (other.limits[0].span, other.limits[0].limit.epsilon) == ("30d", Decimal(2))
    back, _ = parse_policy(changed(other, Change("a", "1", "0", LIFETIME)))
    assert back == policy
    assert Change("a").window == KEEP


def test_limits_beside_are_few_positive_and_in_order() -> None:
    """Whatever two limits are compared, there are at most five, both among them."""
    for now, then in (("1", "3"), ("3", "3"), ("0.001", "8"), ("8", "0.000001"), ("3", "3.1")):
        found = ladder(Decimal(now), Decimal(then))
        assert found == sorted(set(found))
        assert len(found) <= 5
        assert found[0] > 0
        assert {Decimal(now), Decimal(then)} <= set(found)


def test_a_trial_decides_the_requests_again(desk: Desk) -> None:
    """Under the policy in force every answer is the same; under another one those differ that it
    decides otherwise.
    """
    used(desk)
    since = desk.clock.now - 5 * DAY * 1_000_000
    trier = Trier(desk.ledgers)
    same, larger, smaller = (
        trier.answer(Asked("clinic", POLICY.replace("epsilon: 1}", f"epsilon: {limit}}}"), since))
        for limit in ("1", "3", "0.5")
    )
    assert isinstance(same, Looked)
    assert isinstance(larger, Looked)
    assert isinstance(smaller, Looked)
    assert (same.requests, same.refused_then, same.refused_now, same.differ) == (3, 1, 1, 0)
    assert (larger.refused_now, larger.moved["block allow"]) == (0, 1)
    assert smaller.moved == {"allow allow": 1, "allow flag": 1, "block block": 1}
    assert smaller.on == {"d": (3, 1, 1)}
    assert same.whole


def test_a_trial_ends_in_bounded_time(desk: Desk, monkeypatch: Any) -> None:
    """Where the time is over it says so, or how far it looked; what fails is told in words; so many
    trials wait and no more.
    """
    used(desk)
    trier = Trier(desk.ledgers)
    monkeypatch.setattr(trying, "LONGEST", -1)
    late = trier.answer(Asked("clinic", POLICY, desk.clock.now))
    assert isinstance(late, Failed)
    assert "policy backtest" in late.why
    monkeypatch.setattr(trying, "LONGEST", 30)
    trier.answer(Asked("clinic", POLICY, 0))
    monkeypatch.setattr(trying, "LONGEST", -1)  # what was before is known by now
    cut = trier.answer(Asked("clinic", POLICY, 0))
    assert isinstance(cut, Looked)
    assert (cut.whole, cut.requests) == (False, 0)
    trials = Trials(desk.ledgers)
    monkeypatch.setattr(trials, "_work", lambda _: sleep(0.2) or Failed("slow"))
    begun = monotonic()
    found = [trials.ask(Asked("clinic", POLICY, number), 0) for number in range(12)]
    assert monotonic() - begun < 5
    assert sum(isinstance(one, Failed) for one in found) == 12 - trying.MOST_WAITING


@pytest.fixture
def made(world: Callable[..., World]) -> World:
    """A hospital with a request and a refusal."""
    here = world()
    here.hospital()
    for epsilon in ("0.25", 9):
        asked = {"dataset": "d", "mechanisms": [laplace(epsilon)], "purpose": "x"}
        assert here.post("/grants", asked).status_code < 500
    return here


WHAT_IF = "/console/fair/what-if"


def fields(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form of a page that is sent to an address."""
    form = page.partition(f'action="{action}"')[2].partition("</form>")[0]
    found = re.findall(r'name="(\w+)" value="([^"]*)"', form)
    return {name: unescape(value) for name, value in found}


def rule_of(made: World) -> str:
    """A limit of the policy in force."""
    adopted = made.service.state("fair").adopted
    assert adopted is not None
    return adopted.policy.limits[0].id


def worked_out(browser: Browser, path: str) -> str:
    """The page of a trial, once that and those beside it are worked out."""
    until = monotonic() + 60
    while True:
        page = browser.get(path)
        assert page.status_code == 200
        still = "Being worked out", 'data-l="Would have refused" class="n">–'
        if monotonic() > until or not any(one in page.text for one in still):
            text: str = page.text
            return text
        sleep(0.2)


def test_to_try_records_nothing(made: World) -> None:
    """Neither an address nor a policy that is sent writes an event; what was typed is kept."""
    browser, rule = signed_in(made, "ada", "auditor"), rule_of(made)
    size = made.service.head("fair").size
    page = worked_out(browser, f"{WHAT_IF}?rule={rule}&epsilon=7")
    assert 'value="7"' in page
    assert len(re.findall(r'data-l="Would have refused" class="n">\d of \d<', page)) == 4
    assert "/what-if/propose" not in page
    wrong = browser.get(f"{WHAT_IF}?rule={rule}&epsilon=%3Cscript%3E")
    assert wrong.status_code == 422
    assert "&lt;script&gt;" in wrong.text
    text = "policy: p\r\nrules:\r\n  - {id: </textarea><script>, limit: {epsilon: 1}}\r\n"
    sent = browser.post(WHAT_IF, {"csrf": browser.csrf(), "text": text})
    assert sent.status_code == 422
    assert "&lt;/textarea&gt;&lt;script&gt;" in sent.text
    assert "line 3" in sent.text
    good = browser.post(WHAT_IF, {"csrf": browser.csrf(), "text": POLICY, "days": "7"})
    assert good.status_code == 200
    assert "What it would have answered" in good.text
    assert browser.post(WHAT_IF, {"csrf": "no", "text": POLICY}).status_code == 403
    assert made.service.head("fair").size == size


def test_a_long_trial_is_worked_out_beside_the_service(made: World, monkeypatch: Any) -> None:
    """A process of its own decides again; the page says so until it has, and then what it found; a
    trial that takes too long says why.
    """
    browser, rule = signed_in(made), rule_of(made)
    near = worked_out(browser, f"{WHAT_IF}?rule={rule}&epsilon=7")
    found = re.search(r"\d+ requests? since .* (?:was|were)\.", near)
    assert found
    monkeypatch.setattr(trying, "WORTH", 1)
    path = f"{WHAT_IF}?rule={rule}&epsilon=7.0&days=28"
    page = browser.get(path).text
    assert "Being worked out" in page
    assert "Look again" in page
    assert found[0] in worked_out(browser, path)
    monkeypatch.setattr(trying, "WORTH", 10**9)
    monkeypatch.setattr(trying, "LONGEST", -1)
    late = browser.get(f"{WHAT_IF}?rule={rule}&epsilon=7.00&days=1").text
    assert "This was not worked out." in late or "the time for it was over" in late


def propose(browser: Browser, **changed: str) -> Any:
    """Sends the form of a page on which a limit is tried."""
    return browser.post(f"{WHAT_IF}/propose", changed)


def test_what_was_shown_is_what_is_proposed(made: World) -> None:
    """An administrator's form proposes the policy by its digest, once; others may not; a page that
    is older than the policy in force is told so, as is one that was changed on the way.
    """
    rule, admin = rule_of(made), signed_in(made, "ann", "admin")
    page = admin.get(f"{WHAT_IF}?rule={rule}&epsilon=7").text
    sent = fields(page, f"{WHAT_IF}/propose")
    assert propose(admin, **(sent | {"epsilon": "8"})).status_code == 409
    stale = propose(admin, **(sent | {"base": "0"}))
    assert (stale.status_code, "Nothing was proposed." in stale.text) == (409, True)
    assert 'name="epsilon" type="text" inputmode="decimal" maxlength="40" value="7"' in stale.text
    assert propose(admin, **(sent | {"csrf": "x"})).status_code == 403
    officer = signed_in(made, "olive", "officer")
    assert propose(officer, **(sent | {"csrf": officer.csrf()})).status_code == 403
    first, again = propose(admin, **sent), propose(admin, **sent)
    assert first.status_code == again.status_code == 303
    assert first.headers["location"] == again.headers["location"]
    number = int(first.headers["location"].rpartition("/")[2])
    proposal, _ = made.service.proposal("fair", number)
    assert proposal.by == "ann"
    limits = {one["id"]: one for one in proposal.command["policy"]["rules"]}
    assert limits[rule]["limit"]["epsilon"] == "7"
    assert rule_of(made) == rule


def test_a_whole_policy_is_proposed_as_it_was_sent(made: World) -> None:
    """It comes back with its lines, to be changed further, and its digest is that of the text."""
    admin, rule = signed_in(made, "ann", "admin"), rule_of(made)
    text = f"policy: other\n# é “why”\nrules:\n  - {{id: {rule}, limit: {{epsilon: 9}}}}\n"
    sent = {"csrf": admin.csrf(), "text": text.replace("\n", "\r\n")}
    page = admin.post(WHAT_IF, sent).text
    assert unescape(page.partition("<textarea")[2].partition(">\n")[2]).startswith(text)
    form = fields(page, f"{WHAT_IF}/propose")
    assert form["text"] == text
    answer = propose(admin, **(form | {"text": sent["text"]}))
    assert "/proposals/" in answer.headers["location"]
    number = int(answer.headers["location"].rpartition("/")[2])
    command = made.service.proposal("fair", number)[0].command
    assert command["policy"]["policy"] == "other"
    assert command["source_digest"] == sha256(text.encode()).hexdigest()


def test_what_tightens_is_adopted_at_once(made: World) -> None:
    """The page says so before, and leads to the event after; a retry changes nothing more."""
    rule, admin = rule_of(made), signed_in(made, "ann", "admin")
    page = admin.get(f"{WHAT_IF}?rule={rule}&epsilon=0.5").text
    assert "Adopt it now" in page
    sent = fields(page, f"{WHAT_IF}/propose")
    answer = propose(admin, **sent)
    assert (answer.status_code, "/ledger/" in answer.headers["location"]) == (303, True)
    adopted = made.service.state("fair").adopted
    assert adopted is not None
    assert adopted.policy.limits[0].limit.epsilon == Decimal("0.5")
    size = made.service.head("fair").size
    assert propose(admin, **sent).status_code == 409
    assert made.service.head("fair").size == size


def test_a_ledger_without_requests_would_have_refused_none(desk: Desk) -> None:
    """The figure says that there were none; before any charge an even chance stays even."""
    desk.hospital()
    found = tried(desk, Change("a", "2"), account="d")
    looked = Trier(desk.ledgers).answer(Asked(desk.name, found.text, 0))
    assert isinstance(looked, Looked)
    refused = words.figures(found, looked)[2]
    assert (refused.value, refused.beside) == ("none", "no request was decided in these days")
    assert (even_chance("0"), even_chance("0.000000001")) == ("50 in 100", "51 in 100")
