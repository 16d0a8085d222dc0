"""Requests that wait for a person: who approves or declines, what is granted then, and to whom."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson
import pytest
from support import SECOND, START, Book, audited, laplace, make, snapshot

from accountant.budget.apply import fold
from accountant.budget.commands import DAY, KeyMade
from accountant.budget.decide import SYSTEM, Repeated
from accountant.budget.decide.adopting import weakened
from accountant.budget.errors import Problem
from accountant.budget.facts import grant_in
from accountant.budget.policy_file import parse_policy
from accountant.budget.previewing import foresee
from accountant.budget.replay import replay
from accountant.budget.rules.base import Rule
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.budget.trials.backtest import Backtest
from accountant.budget.trials.cases import Cases, try_all
from accountant.ledger.events import Event, rfc3339

BIG = "  - {id: a, limit: {epsilon: 3}}\n  - {id: big, action: approve, at_most: {epsilon: 1}}\n"
HALF = "  - {id: a, limit: {epsilon: 3}}\n  - {id: half, action: approve, limit: {epsilon: 1}}\n"
SEVEN_DAYS = 7 * DAY * SECOND


def book_of(rules: str = BIG) -> Book:
    """A ledger with one dataset."""
    book = Book()
    book.register()
    book.dataset("d")
    book.policy(rules)
    return book


def approving(event: Event, kind: str = "approve_grant", **more: Any) -> Any:
    """The command that approves what an event asks for."""
    digest = sha256(event.to_bytes()).hexdigest()
    more = {"reason": "it is worth it"} | more if kind == "decline_grant" else more
    return make(kind, grant=grant_in(event), digest=digest, **more)


def refused(book: Book, command: Any, by: str, code: str) -> Problem:
    """A command that is refused, and changes nothing."""
    before = snapshot(book.state)
    with pytest.raises(Problem) as found:
        book.ask(command, by)
    assert found.value.code == code
    assert snapshot(book.state) == before
    return found.value


def copied(book: Book) -> State:
    """The state as a snapshot keeps it."""
    return load(book.name, b"".join(dump(book.state)))


def sound(book: Book) -> None:
    """Replay, fold, snapshot and the second verifier agree."""
    assert book.replayed().findings == []
    assert audited(book).findings == []
    events = [Event.from_bytes(entry) for entry in book.stored]
    assert snapshot(fold(book.name, events)) == snapshot(book.state)
    assert snapshot(copied(book)) == snapshot(book.state)


def test_a_request_that_needs_approval_waits_and_holds_nothing() -> None:
    """It waits for seven days, or as long as it says; what fits under the rule is granted."""
    book = book_of()
    waiting = book.grant(laplace(2))
    assert waiting.type == "grant.waiting.v1"
    assert waiting.body["fired"] == [["big", "request-too-costly"]]
    assert book.decision(waiting)["outcome"] == "approve"
    assert book.used() == [(0, 0, 0, 0)]
    kept = book.state.waiting.requests[grant_in(waiting)]
    assert kept.expires == book.now + SEVEN_DAYS
    assert kept.digest == sha256(book.stored[waiting.sequence]).hexdigest()
    short = book.grant(laplace(2), wait="2h")
    assert book.state.waiting.requests[grant_in(short)].expires == book.now + 7_200 * SECOND
    assert book.grant(laplace(1)).type == "grant.reserved.v1"
    sound(book)


def test_an_approval_grants_the_request_to_its_client() -> None:
    """The event is an admission by the approver, names what was read, and is settled like any."""
    book = book_of()
    waiting = book.grant(laplace(2), purpose="a table", ttl_seconds=60)
    command = approving(waiting, reason="it is worth it")
    [admitted] = book.ask(command, "officer", key="k")
    assert (admitted.type, admitted.by) == ("grant.admitted.v1", "officer")
    asked = admitted.body["command"]
    assert asked["approval"] == {"digest": command.digest}
    assert (asked["client"], asked["grant"]) == ("pipe", grant_in(waiting))
    assert set(asked["reason"]) == {"sealed"}
    assert admitted.body["fired"] == [["big", "request-too-costly"]]
    assert book.decision(admitted)["outcome"] == "flag"
    grant = book.state.open[grant_in(admitted)]
    assert (grant.by, grant.expires) == ("pipe", book.now + 60 * SECOND)
    assert book.used()[0][0] == 2 * 10**9
    assert book.ask(command, "officer", key="k") == Repeated(admitted.sequence)
    refused(book, command, "officer", "no-approval-needed")
    assert book.do("commit_grant", grant=grant.id).type == "grant.committed.v1"
    sound(book)


def test_a_decline_ends_the_wait_for_good() -> None:
    """With a reason, which the event holds sealed; then nobody approves it."""
    book = book_of()
    waiting = book.grant(laplace(2))
    [declined] = book.ask(approving(waiting, "decline_grant"), "officer")
    assert declined.type == "grant.declined.v1"
    assert set(declined.body["command"]["reason"]) == {"sealed"}
    assert book.state.grants.get(grant_in(waiting)).status == "declined"  # type: ignore[union-attr]
    refused(book, approving(waiting), "officer", "no-approval-needed")
    refused(book, approving(waiting, "decline_grant"), "officer", "no-approval-needed")
    sound(book)


@pytest.mark.parametrize("kind", ["approve_grant", "decline_grant"])
def test_another_person_decides_about_what_they_read(kind: str) -> None:
    """Not the client under any spelling, nor by a key that it made lately; by the digest read."""
    book = book_of()
    waiting = book.grant(laplace(2), by="admin")
    for name in ("admin", "Admin", " admin", "ａdmin", SYSTEM):
        refused(book, approving(waiting, kind), name, "same-person")
    other = approving(waiting, kind).model_copy(update={"digest": "0" * 64})
    refused(book, other, "officer", "approval-digest")
    made = {"role": "officer", "by": ["admin"], "time": rfc3339(START)}
    for facts, code in ((made, "key-too-new"), (made | {"role": "pipeline"}, "role-not-allowed")):
        key = KeyMade.model_validate(facts)
        with_key = approving(waiting, kind).model_copy(update={"key": key})
        refused(book, with_key, "officer", code)
    key = KeyMade.model_validate(made | {"by": ["operator"]})
    assert book.ask(approving(waiting, kind).model_copy(update={"key": key}), "officer")
    sound(book)


def test_what_blocks_when_it_is_approved_is_told_and_it_waits_on() -> None:
    """An approval is no way around a rule that blocks: it says which, and both sides."""
    book = book_of()
    waiting = book.grant(laplace(2), wait="1d")
    held = [grant_in(book.grant(laplace(1))) for _ in range(2)]
    problem = refused(book, approving(waiting), "officer", "approval-blocked")
    assert problem.numbers["rules"] == ["a"]
    assert "more than the limit 3" in problem.detail
    book.do("release_grant", grant=held[0], reason="not run")
    assert grant_in(waiting) in book.state.waiting.requests  # a release approves nothing
    assert book.ask(approving(waiting), "officer")[-1].type == "grant.admitted.v1"
    sound(book)


def test_what_waits_for_budget_and_a_person_waits_for_both() -> None:
    """A request that a limit blocks and that needs approval waits only if it says how long; it is
    approved once it fits, and no release admits it.
    """
    book = book_of()
    held = [grant_in(book.grant(laplace(1))) for _ in range(2)]
    assert book.grant(laplace(2)).type == "grant.refused.v1"
    waiting = book.grant(laplace(2), wait="1d")
    assert (waiting.type, waiting.body["fired"][0][0]) == ("grant.waiting.v1", "a")
    refused(book, approving(waiting), "officer", "approval-blocked")
    for name in held:
        book.do("release_grant", grant=name, reason="not run")
    assert grant_in(waiting) in book.state.waiting.requests
    assert book.ask(approving(waiting), "officer")[-1].type == "grant.admitted.v1"
    assert book.grant(laplace(4), wait="1d").type == "grant.refused.v1"  # it never fits
    sound(book)


def test_what_waits_for_budget_alone_is_nobodys_to_approve() -> None:
    """Nor to decline: only its client ends it."""
    book = book_of()
    book.grant(laplace(1))
    book.grant(laplace(1))
    book.grant(laplace("0.5"))
    waiting = book.grant(laplace(1), wait="1d")
    for kind in ("approve_grant", "decline_grant"):
        refused(book, approving(waiting, kind), "officer", "no-approval-needed")


def test_a_limit_that_asks_a_person_lets_in_what_fits_again() -> None:
    """Once less is used the request needs nobody any more, and is admitted; an approved one counts
    in the limit that asked.
    """
    book = book_of(HALF)
    first = grant_in(book.grant(laplace(1)))
    waiting = book.grant(laplace("0.5"))
    assert waiting.body["fired"] == [["half", "budget-exceeded"]]
    book.ask(approving(waiting), "officer")
    later = book.grant(laplace("0.5"))
    assert later.type == "grant.waiting.v1"
    book.do("release_grant", grant=first, reason="not run")
    last = Event.from_bytes(book.stored[-1])
    assert (last.type, last.by) == ("grant.admitted.v1", SYSTEM)
    assert last.body["command"]["grant"] == grant_in(later)
    sound(book)


def test_as_much_as_needs_nobody_is_admitted_at_once() -> None:
    """A request that accepts fewer invocations gets those that no person has to approve."""
    book = book_of()
    waiting = book.grant(laplace("0.5", 4), wait="1d", at_least=1)
    assert waiting.type == "grant.waiting.v1"
    admitted = Event.from_bytes(book.stored[-1])
    assert admitted.body["command"]["request"]["mechanisms"][0]["count"] == 2
    sound(book)


def test_one_that_joins_those_that_wait_is_audited() -> None:
    """Where requests unlock a limit, one that fits takes its place behind those that it lets in."""
    book = book_of("  - {id: a, limit: {epsilon: 4}, unlock: {per_request: 1/4}}\n")
    book.grant(laplace(2), wait="1d")
    joins = book.grant(laplace("0.5"), wait="1d")
    assert (joins.type, "fired" in joins.body) == ("grant.waiting.v1", False)
    sound(book)


def test_it_times_out_like_any_wait() -> None:
    """After its time nobody approves it, and it is refused; its client may release it before."""
    book = book_of()
    waiting, other = book.grant(laplace(2)), book.grant(laplace(2), wait="8d")
    gone = book.do("release_grant", grant=grant_in(other), reason="not needed")
    assert gone.type == "grant.cancelled.v1"
    book.now += SEVEN_DAYS
    refused(book, approving(waiting), "officer", "wait-is-over")
    [late] = book.state.waiting.due(book.now, 9)
    assert book.ask(late.timing_out(), by=SYSTEM)[-1].type == "grant.timed_out.v1"
    sound(book)


def test_what_does_not_wait_is_refused_or_flagged() -> None:
    """An item of a batch and a session are refused by the rule; what ran already is flagged."""
    book = book_of()
    item = make("ask_grant", dataset="d", mechanisms=[laplace(2)])
    [batch] = book.batch(make("ask_grant", dataset="d", mechanisms=[laplace(1)]), item)
    assert (batch.type, batch.body["item"]) == ("batch.refused.v1", 1)
    told = book.decision(batch)
    assert (told["outcome"], told["rules"][0]["rule"]) == ("approve", "big")
    mechanism = {
        "kind": "sparse_vector",
        "sensitivity": "1",
        "threshold_scale": "1",
        "comparison_scale": "2",
        "max_positives": 1,
    }
    assert book.do("open_sparse_vector", dataset="d", mechanism=mechanism).type == (
        "grant.refused.v1"
    )
    recorded = book.record(laplace(2))
    assert (recorded.type, recorded.body["fired"][0][0]) == ("invocation.recorded.v1", "big")
    assert "overrun" not in recorded.body
    assert book.decision(recorded)["outcome"] == "flag"
    sound(book)


def test_the_kinds_that_block_or_flag_may_ask_a_person() -> None:
    """All but what has no request to wait: allotments, thresholds, and what is given back."""
    book = book_of(
        "  - {id: a, limit: {epsilon: 9}}\n"
        "  - {id: w, action: approve, limit: {epsilon: 1}, window: 12h}\n"
        "  - {id: m, action: approve, mechanisms: [exponential]}\n"
        "  - {id: r, action: approve, require: [purpose]}\n"
        "  - {id: p, action: approve, purposes: [care]}\n"
    )
    found = book.grant(laplace(2))
    assert [rule for rule, _ in found.body["fired"]] == ["r", "p", "w"]
    sound(book)
    for rule in ("{id: t, trusted: {epsilon: 1}, action: approve}",):
        with pytest.raises(Problem, match="block"):
            parse_policy(f"policy: p\nrules:\n  - {{id: a, limit: {{epsilon: 9}}}}\n  - {rule}\n")


def rule(text: str) -> Rule:
    """One rule beside a limit."""
    return parse_policy(f"policy: p\nrules:\n  - {{id: z, limit: {{epsilon: 1}}}}\n  - {text}\n")[
        0
    ].rules[1]


@pytest.mark.parametrize("kind", ["limit: {epsilon: 2}", "at_most: {epsilon: 1}"])
def test_from_block_to_approve_loosens_and_back_does_not(kind: str) -> None:
    """The stricter an action is the tighter: flag, approve, block."""
    actions = ("flag", "approve", "block")
    ladder = [rule(f"{{id: r, action: {action}, {kind}}}") for action in actions]
    for i, old in enumerate(ladder):
        assert [weakened(old, new) is not None for new in ladder] == [j < i for j in range(3)]
        assert weakened(None, old) is None
        assert (weakened(old, None) is not None) == (i > 0)


def test_previews_and_trials_know_the_outcome() -> None:
    """A preview, a case and a backtest say that a request would wait for a person."""
    book = book_of()
    asks = [make("ask_grant", dataset="d", mechanisms=[laplace(e)]) for e in (2, 1, 2, 4)]
    found = list(foresee(copied(book), "pipe", asks, book.now))
    assert [one.outcome for one in found] == ["approve", "allow", "approve", "block"]
    policy, _ = parse_policy("policy: p\nrules:\n" + BIG)
    ask = {"dataset": "d", "mechanisms": [laplace(2)]}
    cases = [
        {"case": "large", "requests": [{"ask": ask}], "expect": "approve", "rule": "big"},
        {"case": "twice", "requests": [{"ask": ask, "times": 2}], "expect": "approve"},
    ]
    verdicts = list(try_all(policy, Cases.model_validate({"cases": cases})))
    assert verdicts[0].wrong is None
    assert "left to a person's approval already, by big" in str(verdicts[1].wrong)
    book.ask(approving(book.grant(laplace(2))), "officer")
    book.grant(laplace(1), key="other")
    events = [Event.from_bytes(entry) for entry in book.stored]
    for rules, then, now in ((BIG, "approve", "approve"), (HALF, "approve", "approve")):
        trial = Backtest(fold(book.name, events[:3]))
        trial.adopt(parse_policy("policy: q\nrules:\n" + rules)[0], START)
        first, second = trial.compare(events[3:])
        assert (first.then.outcome, first.now.outcome) == (then, now)
        assert second.now.outcome == "allow"
    assert isinstance(trial.state, State)


LATELY = {"role": "officer", "by": ["Pipe"], "time": rfc3339(START)}
FORGED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "by its client": ({"by": "PIPE"}, {}, "only one person"),
    "by the service": ({"by": SYSTEM}, {}, "only one person"),
    "of another event": ({}, {"digest": "0" * 64}, "another one was read"),
    "by a key of its client": ({}, {"key": LATELY}, "only one person"),
    "by another role": ({}, {"key": LATELY | {"role": "auditor", "by": ["x"]}}, "may not confirm"),
    "by nobody": ({}, {"digest": ...}, "the outcome"),
}


@pytest.mark.parametrize("kind", ["grant.admitted.v1", "grant.declined.v1"])
@pytest.mark.parametrize(("fields", "said", "reason"), FORGED.values(), ids=FORGED)
def test_both_verifiers_find_a_forged_approval(
    kind: str, fields: dict[str, Any], said: dict[str, Any], reason: str
) -> None:
    """Of whoever had no part in it, of what was not read, or of nobody; and a forged decline."""
    book = book_of()
    what = "approve_grant" if kind == "grant.admitted.v1" else "decline_grant"
    book.ask(approving(book.grant(laplace(2)), what), "officer")
    document = orjson.loads(book.stored[-1])
    assert document["type"] == kind
    command = document["command"]
    if said == {"digest": ...}:
        command.pop("approval", None)
        command.pop("digest", None)
        reason = reason if kind == "grant.admitted.v1" else "digest"
    elif kind == "grant.admitted.v1":
        command["approval"] |= said
    else:
        command |= said
    book.stored[-1] = orjson.dumps(document | fields, option=orjson.OPT_SORT_KEYS)
    assert any(reason in one["reason"] for one in audited(book).findings)
    *_, found = replay(book.name, book.stored)
    assert found.findings


def test_an_approval_that_nobody_asked_for_is_found() -> None:
    """An admission for want of budget has none: nobody may be let in before others by hand."""
    book = book_of("  - {id: a, limit: {epsilon: 2}}\n")
    held = grant_in(book.grant(laplace(2)))
    waiting = book.grant(laplace(1), wait="1d")
    book.do("release_grant", grant=held, reason="not run")
    document = orjson.loads(book.stored[-1])
    digest = sha256(waiting.to_bytes()).hexdigest()
    document["by"], document["command"]["approval"] = "officer", {"digest": digest}
    book.stored[-1] = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
    assert any("the outcome" in one["reason"] for one in audited(book).findings)
    *_, found = replay(book.name, book.stored)
    assert found.findings
